package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/windows"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/ingest/kafka"
	"streamd/retire"
	"streamd/retire/receipt"
)

// archived is a history of three daemons: one with a policy and an archive, a twin that keeps
// all, and one with the policy alone.
type archived struct {
	*logHistory
	o, all, live *offline
	at           map[int]int64 // of the last two
}

func newArchived(t *testing.T, seed uint64) *archived {
	h := newHistory(seed)
	h.others = false
	h.flags["format.features"] = "x1,x2"
	open := func(flags map[string]string) *offline {
		all := map[string]string{"snapshot.file": filepath.Join(t.TempDir(), "s.db")}
		for _, f := range []map[string]string{h.flags, flags} {
			for name, value := range f {
				all[name] = value
			}
		}
		return openOffline(t, all, false)
	}
	return &archived{
		logHistory: h, o: open(map[string]string{"retire.archive": "true"}), live: open(nil), at: map[int]int64{},
		all: open(map[string]string{"retire.keep": "all", "retire.blocks": "0", "retire.rows": "0", "retire.age": "0s"}),
	}
}

// meet has all daemons read up to the same offsets.
func (a *archived) meet() {
	to := map[int]int64{}
	a.o.FlushRuns()
	named := a.o.named()
	for partition := range a.log {
		next := named[partition]
		if back := a.at[partition]; next < back { // after a crash
			a.o.deliver(partition, between(a.log[partition], a.o.at[partition], back), back)
			next = back
		}
		to[partition] = next
	}
	a.o.FlushRuns()
	for partition, next := range to {
		for _, x := range []*offline{a.all, a.live} {
			x.deliver(partition, between(a.log[partition], a.at[partition], next), next)
			x.FlushRuns()
		}
		a.at[partition] = next
	}
}

// retire retires the same blocks everywhere, archived ones included.
func (a *archived) retire(t *testing.T) {
	a.meet()
	past := a.o.Live.SelectPast(&retire.Selection{})
	s, want := randomSelector(a.r, a.flags, past)
	done, err := a.o.retire(s, false, access.Caller{})
	if len(want) == 0 {
		if !errors.Is(err, httpapi.ErrNoneChosen) && !errors.Is(err, httpapi.ErrNotLive) {
			t.Fatalf("nothing is chosen: %v", err)
		}
		return
	}
	if err != nil || done.Blocks != len(want) {
		t.Fatalf("%+v, %v, want %v", done, err, want)
	}
	if done.Archived == done.Blocks && done.DigestBefore != done.DigestAfter {
		t.Fatal("archived blocks were in the state")
	}
	for _, x := range []*offline{a.all, a.live} {
		// A block that is still growing ends when it is retired, be it live or archived.
		if _, err := x.Intake.EndBlocks(t.Context(), func(id string) bool { return slices.Contains(want, id) }); err != nil {
			t.Fatal(err)
		}
		ids := slices.DeleteFunc(slices.Clone(want), func(id string) bool { _, is := x.Live.Get(id); return !is })
		if x == a.all && len(ids) != len(want) {
			t.Fatalf("a daemon that keeps all has not %v", want)
		}
		if len(ids) == 0 {
			continue
		}
		if _, err := x.retire(retire.Selector{IDs: ids}, false, access.Caller{}); err != nil {
			t.Fatal(err)
		}
	}
}

// check compares windows with those of the daemon that keeps all, and live blocks with those of
// the daemon without an archive.
func (a *archived) check(t *testing.T) (solved int) {
	a.meet()
	if got, want := a.o.Live.Page(retire.Lowest, math.MaxInt), a.live.Live.Page(retire.Lowest, math.MaxInt); !slices.Equal(got, want) ||
		a.o.Live.Digest() != a.live.Live.Digest() || a.o.Live.Horizon() != a.live.Live.Horizon() {
		t.Fatalf("live are\n%v\nwant, as without an archive\n%v", got, want)
	}
	whole := model.Window{From: new(time.Time)}
	for _, w := range []model.Window{whole, randomWindow(a.r), randomWindow(a.r)} {
		got, err := a.o.window(w, 0, func() {})
		want, wanted := a.all.window(w, 0, func() {})
		if !errors.Is(err, wanted) && err.Error() != wanted.Error() {
			t.Fatalf("%+v: %v, want %v", w, err, wanted)
		}
		if err != nil {
			continue
		}
		if got.Digest != want.Digest || got.Blocks != want.Blocks || got.Fingerprint != want.Fingerprint || !reflect.DeepEqual(got.Model, want.Model) {
			t.Fatalf("%+v: %d blocks with digest %s, want %d with %s", w, got.Blocks, got.Digest, want.Blocks, want.Digest)
		}
		if got.Model != nil {
			solved++
		}
	}
	if a.all.Live.Blocks() == 0 {
		return solved
	}
	steps := func(o *offline) *model.Steps {
		return asked(o, func(ctx context.Context) (*model.Steps, error) {
			from, to := time.UnixMilli(lawEpoch-10_000), time.UnixMilli(lawEpoch+100_000)
			s, err := o.Steps(ctx, httpapi.StepsQuery{From: &from, To: &to, Step: 10 * time.Second, Window: 20 * time.Second})
			if errors.Is(err, httpapi.ErrNoWindow) {
				return nil, nil
			}
			return s, err
		})
	}
	if got, want := steps(a.o), steps(a.all); !reflect.DeepEqual(got, want) {
		t.Fatalf("steps are %+v, want %+v", got, want)
	}
	return solved
}

// Whatever a policy lets go, and in whatever order blocks come, windows of the past are those of
// a daemon that keeps all, bit for bit, over retirements, restarts and crashes. The live blocks are
// those of a daemon without an archive.
func TestThePastIsThatOfADaemonThatKeepsAll(t *testing.T) {
	solved, let := 0, 0
	for seed := range uint64(40) {
		if seed%4 == 3 || seed/4%5 == 0 {
			continue // keys, or retire.keep: all
		}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			a := newArchived(t, seed)
			r := a.r
			for range 40 {
				switch r.IntN(8) {
				case 0:
					a.o.Saver.Save()
				case 1:
					a.o = a.o.crash(r.IntN(4) == 0)
				case 2:
					a.retire(t)
				case 3:
					solved += a.check(t)
				default:
					a.read(a.o, r.IntN(len(a.log)), 1+r.IntN(10))
				}
			}
			for partition := range a.log {
				a.read(a.o, partition, math.MaxInt)
			}
			solved += a.check(t)
			let += a.o.Live.Archived()
			a.checkPages(t)
		})
	}
	if solved < 100 || let < 100 {
		t.Errorf("%d windows solved, %d blocks archived at the end", solved, let)
	}
}

// checkPages compares the pages of archived blocks with the archive.
func (a *archived) checkPages(t *testing.T) {
	t.Helper()
	var listed []string
	for after, more := "", true; more; more = after != "" {
		page := asked(a.o, func(ctx context.Context) ([]httpapi.BlockInfo, error) {
			page, next, err := a.o.Blocks(ctx, true, after, 3)
			after = next
			return page, err
		})
		for _, b := range page {
			if !b.Archived {
				t.Errorf("%s is not archived", b.ID)
			}
			listed = append(listed, b.ID)
		}
	}
	var want []string
	for _, e := range a.o.Live.SelectPast(&retire.Selection{}) {
		if e.Archived {
			want = append(want, e.ID)
		}
	}
	if !slices.Equal(listed, want) {
		t.Errorf("pages list %v, want %v", listed, want)
	}
}

// Nothing of a retired archived block is left in any answer, in the log and, after a compaction,
// in the snapshot's folder, whoever retires it. Before that, windows have it.
func TestNothingIsLeftOfAnArchivedBlock(t *testing.T) {
	to := plantedTime.Add(time.Second)
	planted := model.Window{From: &plantedTime, To: &to}
	for how, leaves := range map[string]func(d *instance, topic string){
		"event time": func(d *instance, _ string) { d.choose(retire.Selector{From: &plantedTime, To: &to}) },
		"DELETE":     func(d *instance, topic string) { d.retire(topic + "/0/10") },
		"control topic": func(d *instance, topic string) {
			produce(d.t, topic+".control", message{key: []byte("request"), value: []byte(`{"retire":{"positions":["` + topic + `/0/10-10"]}}`)})
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			topic, folder := topic(t, 1), t.TempDir()
			file := filepath.Join(folder, "streamd.db")
			flags := map[string]string{"retire.keep": "blocks", "retire.blocks": "10", "retire.archive": "true", "receipts.key_file": filepath.Join(folder, "receipts.key")}
			if how == "control topic" {
				flags["retire.topic"] = controlTopic(t, topic)
			}
			produce(t, topic, append(customers(t)[:10], plantedRows(t))...)
			d, log := logging(t, topic, file, flags)
			d.wait("the other blocks", func(s *model.Served) bool { return s.Model != nil && s.Rows == 90 })
			if _, err := d.Snapshot(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			if s, err := d.Window(t.Context(), planted, 0); err != nil || s.Blocks != 1 || s.Rows != 6 {
				t.Fatalf("%+v, %v", s, err)
			}
			before := slices.Collect(maps.Keys(found(files(t, folder))))
			for _, c := range []string{"raw of the label in streamd.db", " of the summary in streamd.db"} {
				if !slices.ContainsFunc(before, func(trace string) bool { return strings.HasSuffix(trace, c) }) {
					t.Errorf("the search does not find the %s before the retirement", c)
				}
			}
			leaves(d, topic)
			for {
				_, err := d.Window(t.Context(), planted, 0)
				if errors.Is(err, httpapi.ErrNoWindow) {
					break
				}
				if err != nil || how != "control topic" {
					t.Fatalf("the window has the block still: %v", err)
				}
				time.Sleep(10 * time.Millisecond)
			}
			none := func(where string, places map[string][]byte) {
				t.Helper()
				for trace := range found(places) {
					t.Errorf("%s: %s", where, trace)
				}
			}
			events, _, _ := d.Events("")
			if !slices.ContainsFunc(events, func(e httpapi.Event) bool {
				r := e.Retirement
				return r != nil && r.Blocks == 1 && r.Archived == 1 && r.Rows == 6 && r.DigestBefore == r.DigestAfter
			}) {
				t.Errorf("no event tells of an archived block that was retired: %+v", events)
			}
			d.compact()
			none("answers", d.answers())
			none("files", files(t, folder))
			_, proof := d.ask(http.MethodGet, "/v1/receipts/proof/1")
			_, entries := d.ask(http.MethodGet, "/v1/receipts/tile/entries/000.p/2")
			none("receipts", map[string][]byte{"proof": []byte(proof), "entries": []byte(entries)})
			r, err := receipt.Check([]byte(proof), publicKey(t, folder))
			id := topic + "/0/10"
			if err != nil || r.Leaf.Kind != receipt.Purged || r.Leaf.Blocks != 1 || r.Leaf.Rows != 6 || !isAbout(r, d.receipts.Key, id) || r.Checkpoint.Size != 2 {
				t.Fatalf("the receipt is %+v, %v", r, err)
			}
			if asked := how != "control topic"; asked != (r.Leaf.Principal != "") || asked != (r.Leaf.Request != receipt.Hash{}) {
				t.Errorf("the receipt says that %q asked", r.Leaf.Principal)
			}
			path := filepath.Join(t.TempDir(), "0.tlog-proof")
			if err := os.WriteFile(path, []byte(proof), 0o644); err != nil {
				t.Fatal(err)
			}
			independent(t, true, path, receipt.PublicFile(flags["receipts.key_file"]), "--block", id)
			independent(t, false, path, receipt.PublicFile(flags["receipts.key_file"]), "--block", topic+"/0/9")
			if how == "DELETE" {
				status, body := d.ask(http.MethodDelete, "/v1/blocks/"+url.PathEscape(id))
				if status != http.StatusNotFound || !strings.Contains(body, "receipts [1] of ") || strings.Contains(body, "proof of") {
					t.Errorf("the same request again: %d %s", status, body)
				}
			}
			d.stop()
			none("the log", map[string][]byte{"it": log.Bytes()})
		})
	}
}

// Without retire.archive a start drops the archive.
func TestArchiveIsTurnedOff(t *testing.T) {
	a := newArchived(t, 4)
	for partition := range a.log {
		a.read(a.o, partition, math.MaxInt)
	}
	a.o.FlushRuns()
	if a.o.Live.Archived() == 0 {
		t.Fatal("nothing is archived")
	}
	a.o.Saver.Save()
	a.o.flags["retire.archive"] = "false"
	o := a.o.crash(false)
	if o.Live.Archived() != 0 || len(o.Live.ArchivedBlocks(retire.Lowest, 1)) > 0 {
		t.Errorf("%d blocks are archived", o.Live.Archived())
	}
	o.Saver.Save()
	o.flags["retire.archive"] = "true"
	if o = o.crash(false); o.Live.Archived() != 0 {
		t.Errorf("%d blocks are in the file", o.Live.Archived())
	}
}

// A full archive drops the blocks of the lowest event times. The log has one line about the first
// of them and later another one about all others; the metrics count them all, also those that a
// start with less memory drops.
func TestArchiveIsFull(t *testing.T) {
	var log bytes.Buffer
	lines := func() string {
		defer log.Reset()
		return log.String()
	}
	flags := map[string]string{
		"kafka.topic": "orders", "snapshot.file": filepath.Join(t.TempDir(), "s.db"), "format.features": "x", "limits.memory": "136MiB",
		"retire.archive": "true", "retire.keep": "blocks", "retire.blocks": "1", "sample.rows": "0", "model.folds": "0",
	}
	counts := func(o *offline, blocks int) {
		t.Helper()
		registry := prometheus.NewRegistry()
		registry.MustRegister(o.Metrics.ArchiveDropped)
		w := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if want := fmt.Sprintf("\nstreamd_archive_dropped_total %d\n", blocks); !strings.Contains(w.Body.String(), want) {
			t.Errorf("the metrics lack %s: %s", want, w.Body)
		}
		if got, want := o.Live.Archived(), live.MostArchived(o.Memory); got != want {
			t.Errorf("%d archived blocks, want %d", got, want)
		}
	}
	o := openOffline(t, flags, false)
	o.Log = zerolog.New(&log)
	sent, now := 0, time.Now()
	send := func(n int) {
		t.Helper()
		records := make([]kafka.Record, n)
		for i := range records {
			records[i] = kafka.Record{Offset: int64(sent), Time: time.UnixMilli(int64(sent)), Value: fmt.Appendf(nil, `[{"label":%d,"x":%d}]`, sent%2, sent)}
			sent++
		}
		o.deliver(0, records, int64(sent))
	}
	for most := live.MostArchived(o.Memory); sent <= most; {
		send(min(500, most+1-sent))
	}
	o.Windows.WhenDue(now)
	if counts(o, 0); log.Len() > 0 {
		t.Errorf("a full archive that has dropped nothing: %s", lines())
	}
	for range 3 {
		send(2)
		o.Windows.WhenDue(now)
	}
	if got := lines(); strings.Count(got, "the archive is full") != 1 || !strings.Contains(got, `"blocks":2`) {
		t.Errorf("after the first blocks: %s", got)
	}
	counts(o, 6)
	o.Windows.WhenDue(now.Add(windows.OverflowPause))
	if got := lines(); strings.Count(got, "the archive is full") != 1 || !strings.Contains(got, `"blocks":4`) {
		t.Errorf("after the others: %s", got)
	}
	s, err := o.window(model.Window{From: new(time.UnixMilli(0))}, 0, func() {})
	if err != nil || s.Blocks != live.MostArchived(o.Memory)+1 || !slices.ContainsFunc(s.Window.Lacks, func(l string) bool { return strings.Contains(l, "has dropped because it was full") }) {
		t.Errorf("a window of all times does not say that blocks have been dropped: %+v, %v", s.Window, err)
	}

	o.Saver.Save()
	most := live.MostArchived(o.Memory)
	o.flags["limits.memory"] = "128MiB"
	o = o.crash(false)
	o.Log = zerolog.New(&log)
	o.Windows.WhenDue(now)
	less := most - live.MostArchived(o.Memory)
	if got := lines(); less < 1 || !strings.Contains(got, fmt.Sprintf(`"blocks":%d`, less)) {
		t.Errorf("%d blocks have no room after a start with less memory: %s", less, got)
	}
	counts(o, less)
}

// A change of features drops the archive. The log says so when it begins and when it is done.
func TestArchiveGoesWithItsFeatures(t *testing.T) {
	r := rand.New(rand.NewPCG(65, 1))
	topic, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
	for range 5 {
		produce(t, topic, message{value: wideRows(r, 20)})
	}
	flags := map[string]string{"format.features": "a,b", "retire.keep": "blocks", "retire.blocks": "2", "retire.archive": "true"}
	d := start(t, topic, file, flags)
	d.waitForOffsets(5)
	d.stop()
	flags["format.features"] = "a,c"
	d, log := logging(t, topic, file, flags)
	p := pollModels(d.Addr().String())
	p.wait(t, "a c")
	p.stop(t)
	if status, body := d.ask(http.MethodGet, "/v1/blocks?archived=true"); status != http.StatusOK || !strings.Contains(body, `"blocks":[]`) {
		t.Errorf("archived blocks: %d %s", status, body)
	}
	d.stop()
	for _, want := range []string{"the archive will be dropped when the features have changed", "the archive is dropped: windows lack its blocks"} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("the log says %d times %q", n, want)
		}
	}
}
