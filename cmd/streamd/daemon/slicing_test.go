package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/httpapi"
	"streamd/ingest/kafka"
	"streamd/retire"
)

// sliceAll does the slices that are left, and applies what has come meanwhile.
func (o *offline) sliceAll() {
	o.t.Helper()
	for {
		for o.Slices() {
			if o.meanwhile != nil {
				o.meanwhile()
			}
			if err := o.slice(o.t.Context()); err != nil {
				o.t.Fatal(err)
			}
		}
		y, wants := o.Intake.Waiting()
		if y != nil && o.Saver.HasRoom(wants) && o.held == nil && o.meanwhile != nil {
			o.applyNext(o.t.Context(), y)
			continue
		}
		if y != nil || len(o.Intake.Deliveries()) == 0 || o.meanwhile == nil {
			return
		}
		o.applyNext(o.t.Context(), <-o.Intake.Deliveries())
	}
}

// arrivals returns a function that delivers the next records of some partition, now and then. It is
// nil where blocks do not depart in slices.
func (h *logHistory) arrivals(o *offline, partitions []int) func() {
	if !h.sliced {
		return nil
	}
	return func() {
		if h.r.IntN(2) == 0 || len(partitions) == 0 || len(o.Intake.Deliveries()) > 10 {
			return
		}
		partition := partitions[h.r.IntN(len(partitions))]
		from, read := o.at[partition]
		rest := between(h.log[partition], from, h.end(partition))
		if !read || len(rest) == 0 {
			return
		}
		few := rest[:min(len(rest), 1+h.r.IntN(3))]
		for _, b := range batches(partition, few, few[len(few)-1].Offset+1) {
			if err := o.Intake.Deliver(o.t.Context(), b); err != nil {
				o.t.Error(err)
			}
			o.at[partition] = b.Position.Next
		}
	}
}

// retireAmid retires blocks by a random selector while records arrive between the slices. What the
// answer names must be what a fresh daemon finds at its offsets, see fresh.
func (h *logHistory) retireAmid(t *testing.T, o *offline, partitions []int) {
	t.Helper()
	o.giveBack()
	o.FlushRuns()
	places := o.everything()
	s, want := randomSelector(h.r, h.flags, places)
	o.meanwhile = h.arrivals(o, partitions)
	done, err := o.retire(s, false, access.Caller{})
	o.meanwhile = nil
	keyed := h.flags["blocks.unit"] == "key"
	if errors.Is(err, httpapi.ErrNoneChosen) || errors.Is(err, httpapi.ErrNotLive) {
		if len(want) > 0 && !keyed {
			t.Fatalf("%v, want %v", err, want)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, b := range done.First {
		ids = append(ids, b.ID)
		if !slices.Contains(want, b.ID) {
			t.Fatalf("block %s is retired, which was not asked for", b.ID)
		}
	}
	if len(ids) != done.Blocks || !keyed && !slices.Equal(ids, want) {
		t.Fatalf("%d blocks are retired: %v, want %v", done.Blocks, ids, want)
	}
	o.asked = append(o.asked, retirement{Retirement: done, ids: ids, follows: o.follows})
}

// fill gives the daemon so many blocks, thousands of them, in partition 0, and saves.
func (o *offline) fill(blocks int) {
	o.t.Helper()
	for at := 0; at < blocks; at += 1000 {
		var records []kafka.Record
		for i := range int64(1000) {
			records = append(records, after(int64(at)+i, time.Duration(int64(at)+i)*time.Millisecond))
		}
		o.deliver(0, records, int64(at+1000))
		if o.Live.Unsaved() > 2000 {
			o.Saver.Save()
		}
	}
	o.Saver.Save()
}

// While many blocks leave by one request the loop is never held for long, by the slices or by their
// save.
func TestLoopIsNotHeldByARetirement(t *testing.T) {
	blocks := 20_000
	if n, err := strconv.Atoi(os.Getenv("STREAMD_BLOCKS")); err == nil {
		blocks = n
	}
	for _, receipts := range []bool{false, true} {
		t.Run(fmt.Sprint("receipts ", receipts), func(t *testing.T) {
			flags := map[string]string{"blocks.unit": "message", "model.folds": "10", "sample.rows": "10000", "snapshot.file": filepath.Join(t.TempDir(), "a.db")}
			if receipts {
				flags["receipts.key_file"] = filepath.Join(t.TempDir(), "key")
			}
			o := openOffline(t, offlineFlags(t, flags), false)
			defer func() { o.Store.Close() }()
			o.fill(blocks)
			some := func(last int, dryRun bool) (done httpapi.Retirement, took time.Duration) {
				var err error
				began := time.Now()
				first := retire.Range{Topic: "t", Last: int64(last - 1)}
				o.play(func() {
					done, err = o.Retire(t.Context(), retire.Selector{Positions: []retire.Range{first}}, httpapi.RetireOptions{DryRun: dryRun})
				}, func() {})
				if took = time.Since(began); err != nil || done.Blocks != last {
					t.Fatalf("%d blocks of %d are retired: %v", done.Blocks, last, err)
				}
				return done, took
			}
			_, took := some(blocks, true)
			t.Logf("a dry run took %v, its longest turn %v", took, o.Slicing.Longest)
			done, took := some(blocks*9/10, false)
			t.Logf("%d blocks took %v, with %d receipts; the longest turn %v", done.Blocks, took, len(done.Receipts), o.Slicing.Longest)
			if most := max(100*time.Millisecond, took/5); o.Slicing.Longest > most {
				t.Errorf("the loop was held for %v of %v", o.Slicing.Longest, took)
			}
		})
	}
}

// jump has the loop go on after a gap.
func (o *offline) jump(gap *kafka.GapError, to int64) {
	o.t.Helper()
	go o.Jumped(gap, to)
	call := <-o.Intake.Deliveries()
	began := time.Now()
	o.applyNext(o.t.Context(), call)
	o.Turn(began)
	o.sliceAll()
	if o.Failure != nil {
		o.t.Fatal(o.Failure)
	}
}

// While the blocks of a topic that was made again leave, the loop is never held for long, and
// records of the new topic arrive, whose blocks have the same ids. The live set is then that of the
// new topic alone.
func TestTopicMadeAgainDepartsInSlices(t *testing.T) {
	const blocks, arrive = 20_000, 10
	flags := map[string]string{
		"blocks.unit": "message", "model.folds": "10", "sample.rows": "10000", "receipts.key_file": filepath.Join(t.TempDir(), "key"),
	}
	o := openOffline(t, offlineFlags(t, flags), false)
	defer func() { o.Store.Close() }()
	o.fill(blocks)
	var again, others []kafka.Record
	for i := range int64(arrive) {
		again = append(again, after(i, time.Hour+time.Duration(i)*time.Second))
		others = append(others, after(i+100, time.Minute))
		others[i].Offset = i
	}
	o.deliver(1, slices.Clone(others), arrive) // so that the model keeps its features
	o.Saver.Save()
	o.Live.DepartAtOnce(loop.DepartAtOnce) // as the loop does
	sent, between := 0, 0                  // records of the new topic, and those that are applied while blocks depart
	o.meanwhile = func() {
		departing := o.Live.Departing()
		if departing > 0 && o.Slicing.Work == nil {
			between = max(between, o.Live.Blocks()-arrive)
		}
		if sent < arrive && (departing > 0 && departing < blocks*3/4 || o.Live.Blocks() == arrive) {
			sent++
			if err := o.Intake.Deliver(t.Context(), batches(0, slices.Clone(again[sent-1:sent]), int64(sent))[0]); err != nil {
				t.Error(err)
			}
		}
	}
	o.Slicing.Longest = 0
	began := time.Now()
	o.jump(&kafka.GapError{Topic: "t", Partition: 0, Saved: blocks, Reset: true}, 0)
	took := time.Since(began)
	o.meanwhile = nil
	t.Logf("%d blocks took %v; the longest turn %v, %d records came meanwhile", blocks, took, o.Slicing.Longest, between)
	if most := max(100*time.Millisecond, took/5); o.Slicing.Longest > most || between == 0 {
		t.Errorf("the loop was held for %v of %v, and %d records came meanwhile", o.Slicing.Longest, took, between)
	}
	flags["receipts.key_file"], flags["snapshot.file"] = filepath.Join(t.TempDir(), "key"), filepath.Join(t.TempDir(), "b.db")
	alone := openOffline(t, offlineFlags(t, flags), false)
	defer func() { alone.Store.Close() }()
	alone.deliver(1, others, arrive)
	alone.deliver(0, again, arrive)
	if o.Live.Blocks() != 2*arrive || o.Live.Digest() != alone.Live.Digest() {
		t.Errorf("%d blocks are live with the digest %s, want %d with %s", o.Live.Blocks(), o.Live.Digest(), 2*arrive, alone.Live.Digest())
	}
}

// A key's tombstone, or an unusable value, that comes while the key's block departs is why the
// block goes, and not the request.
func TestLatestValuesBetweenSlices(t *testing.T) {
	const blocks, key = 20, 10
	for last, value := range map[string]string{"a tombstone": "", "a bad value": "bad"} {
		t.Run(last, func(t *testing.T) {
			flags := map[string]string{"blocks.unit": "key", "receipts.key_file": filepath.Join(t.TempDir(), "key"), "dead_letters.policy": "skip"}
			h := &logHistory{log: make([][]kafka.Record, 1), flags: offlineFlags(t, flags)}
			o := h.open(t, h.flags, false)
			for i := range int64(blocks + 1) {
				r := after(i, 0)
				if r.Key = fmt.Append(nil, i); i == blocks {
					r.Key, r.Value = fmt.Append(nil, key), []byte(value)
				}
				h.log[0] = append(h.log[0], r)
			}
			o.deliver(0, between(h.log[0], 0, blocks), blocks)
			o.Saver.Save()
			o.Slicing.Least, o.Slicing.Most = 1, 1
			o.meanwhile = func() {
				if o.Live.Departing() < blocks-1 || o.at[0] > blocks {
					return
				}
				if err := o.Intake.Deliver(t.Context(), batches(0, between(h.log[0], blocks, blocks+1), blocks+1)[0]); err != nil {
					t.Fatal(err)
				}
				o.at[0]++
			}
			done, err := o.retire(retire.Selector{Positions: []retire.Range{{Topic: "t", Last: blocks - 2}}}, false, access.Caller{})
			if err != nil || done.Blocks != blocks-2 {
				t.Errorf("%d blocks are retired, want %d: %v", done.Blocks, blocks-2, err)
			}
			o.Saver.Save()
			if err := o.Store.Close(); err != nil {
				t.Fatal(err)
			}
			h.checkReplay(t, o)
		})
	}
}

// Until the last slice nobody is answered and nothing is saved. A stop that comes before leaves
// some time for the rest. If that does not suffice, the file is as it was before the request.
func TestStopBetweenSlices(t *testing.T) {
	const blocks = 60
	for name, abandoned := range map[string]bool{"in time": false, "too late": true} {
		t.Run(name, func(t *testing.T) {
			o := openOffline(t, offlineFlags(t, map[string]string{
				"blocks.unit": "message", "receipts.key_file": filepath.Join(t.TempDir(), "key"),
			}), false)
			defer func() { o.Store.Close() }()
			var records []kafka.Record
			for i := range int64(blocks + 10) {
				records = append(records, after(i, 0))
			}
			o.deliver(0, records[:blocks], blocks)
			o.Saver.Save()
			before, saves, next := o.Live.Digest(), o.Saver.Next(), int64(blocks)
			o.Slicing.Least, o.Slicing.Most = 1, 1
			var failed error
			slices, answered := 0, false
			o.meanwhile = func() {
				if slices++; slices > 1 && (answered || o.Saver.Next() != saves) {
					t.Fatal("it is saved, or answered, before the last slice")
				}
				if slices < 90 {
					return
				}
				if next < int64(len(records)) {
					if err := o.Intake.Deliver(t.Context(), batches(0, records[next:next+1], next+1)[0]); err != nil {
						t.Fatal(err)
					}
					next++
				}
				if slices == 100 {
					close(o.Stopping)
					if abandoned {
						o.Slicing.Until = time.Now().Add(-1)
					}
				}
			}
			o.retireInLoop(retire.Selector{}, false, access.Caller{}, func(_ httpapi.Retirement, err error) { failed, answered = err, true })
			o.sliceAll()
			if err := o.finish(); err != nil {
				t.Fatal(err)
			}
			if !answered || slices < 100 || errors.Is(failed, httpapi.ErrUnavailable) != abandoned {
				t.Fatalf("answered %t, after %d slices: %v", answered, slices, failed)
			}
			o.Saver.Await()
			o = o.crash(false)
			if abandoned && (o.Live.Digest() != before || o.Live.Blocks() != blocks) {
				t.Errorf("%d blocks are live of %d, with the digest %s, and %s before", o.Live.Blocks(), blocks, o.Live.Digest(), before)
			}
			if arrived := int(next) - blocks; !abandoned && o.Live.Blocks() != arrived {
				t.Errorf("%d blocks are live, and %d have arrived", o.Live.Blocks(), arrived)
			}
		})
	}
}
