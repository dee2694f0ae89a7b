package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/retiring"
	"streamd/cmd/streamd/httpapi"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/retire"
)

// randomSelector chooses some of the blocks: by id, key, positions, event time or header, or as a
// file of ids does. chosen is the ids of these, found by looking at every block.
func randomSelector(r *rand.Rand, flags map[string]string, blocks []retire.Entry) (s retire.Selector, chosen []string) {
	unit, kinds := flags["blocks.unit"], r.IntN(10)
	if len(blocks) == 0 {
		kinds = 1
	} else if kinds == 9 && flags["retire.header"] == "" {
		kinds = 8
	}
	byName := kinds < 4 || kinds == 8
	named := map[string]bool{}
	if byName {
		s.IDs = []string{"t/9/9"}
		if len(blocks) > 0 && r.IntN(2) == 0 {
			s.IDs = nil
		}
		many := 1 + r.IntN(4)
		if kinds == 8 {
			many = len(blocks) / 2
		}
		for range min(len(blocks), max(many, 1)) {
			id := blocks[r.IntN(len(blocks))].ID
			named[id] = true
			if unit == "key" && r.IntN(2) == 0 {
				s.Keys = append(s.Keys, strings.TrimPrefix(id, retire.KeyPrefix)) // the keys need no escapes
			} else {
				s.IDs = append(s.IDs, id)
			}
		}
	}
	if kinds == 3 || 4 <= kinds && kinds < 7 {
		for range 1 + r.IntN(3) {
			first := r.Int64N(60)
			s.Positions = append(s.Positions, retire.Range{Topic: "t", Partition: r.IntN(3), First: first, Last: first + r.Int64N(10)})
		}
	}
	headers := map[retire.HeaderHash]bool{}
	if kinds == 9 {
		for range 1 + r.IntN(2) {
			value := tenants[r.IntN(len(tenants))]
			s.Headers = append(s.Headers, value)
			headers[retire.HashHeader(lawHeader, []byte(value))] = true
		}
	}
	if kinds == 6 || kinds == 7 {
		from := blocks[r.IntN(len(blocks))].Time
		to := from.Add(time.Duration(1+r.IntN(8000)) * time.Millisecond)
		s.From, s.To = &from, &to
		if other := blocks[r.IntN(len(blocks))].Time; other.After(from) && r.IntN(2) == 0 {
			to = other // not chosen itself
		}
		if k := r.IntN(8); k == 0 {
			s.From = nil
		} else if k == 1 {
			s.To = nil
		}
	}
	for _, e := range blocks {
		inRange := s.Positions == nil
		for _, p := range s.Positions {
			inRange = inRange || e.Position.Partition == p.Partition && e.Position.Offset <= p.Last && p.First <= e.Last
		}
		if inRange && (!byName || named[e.ID]) && (s.Headers == nil || headers[e.Header]) && (s.From == nil || !e.Time.Before(*s.From)) && (s.To == nil || e.Time.Before(*s.To)) {
			chosen = append(chosen, e.ID)
		}
	}
	return s, chosen
}

// retire retires blocks in the place of the loop, and waits until they are saved.
func (o *offline) retire(s retire.Selector, dryRun bool, by access.Caller) (r httpapi.Retirement, err error) {
	o.t.Helper()
	answered := false
	o.retireInLoop(s, dryRun, by, func(done httpapi.Retirement, failed error) { r, err, answered = done, failed, true })
	o.sliceAll()
	if o.Saver.Await(); !answered {
		o.Saver.Save()
	}
	if !dryRun {
		err = o.WithEarlier(context.Background(), err, &s)
	}
	return r, err
}

// retireInLoop is what a request has the loop do.
func (d *Daemon) retireInLoop(s retire.Selector, dryRun bool, by access.Caller, answer func(httpapi.Retirement, error)) {
	q, err := d.Ask(s, dryRun, by)
	if err != nil {
		answer(httpapi.Retirement{}, err)
		return
	}
	q.Choose()
	q.InBasis = dryRun && d.AnyInBasis(q.Chosen)
	d.RetireThen(q, answer)
}

// retire retires blocks by a random selector, after a dry run, withdrawn ones included. The digest
// is then that of the sums of the other live blocks.
func (h *logHistory) retire(t *testing.T, o *offline) {
	t.Helper()
	o.giveBack()
	o.FlushRuns() // may retire some
	before := o.Live.Page(retire.Lowest, math.MaxInt)
	places := o.everything() // withdrawn ones, too
	s, want := randomSelector(h.r, h.flags, places)
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	digest, horizon := o.Live.Digest(), o.Live.Horizon()
	forecast, err := o.retire(s, true, access.Caller{})
	if len(want) == 0 {
		_, again := o.retire(s, false, access.Caller{})
		for _, err := range []error{err, again} {
			if !errors.Is(err, httpapi.ErrNoneChosen) && !errors.Is(err, httpapi.ErrNotLive) {
				t.Fatalf("%s chooses nothing: %v", text, err)
			}
		}
		return
	}
	if err != nil {
		t.Fatalf("dry run of %s: %v", text, err)
	}
	if !slices.Equal(o.Live.Page(retire.Lowest, math.MaxInt), before) || o.Live.Digest() != digest || o.Live.Horizon() != horizon {
		t.Fatalf("the dry run of %s has changed something", text)
	}
	slicing := o.Slicing
	o.Slicing.Least, o.Slicing.Most = loop.LeastSlice, loop.MostSlice // one receipt
	done, err := o.retire(s, false, access.Caller{})
	if o.Slicing.Least, o.Slicing.Most = slicing.Least, slicing.Most; err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var first []string
	var rows int64
	for _, b := range done.First {
		first, rows = append(first, b.ID), rows+b.Rows
	}
	if done.Blocks != len(want) || !slices.Equal(first, want[:min(len(want), retiring.ListedNames)]) || len(want) <= retiring.ListedNames && done.Rows != rows {
		t.Fatalf("%s retires %+v, want %v", text, done, want)
	}
	predicted := done
	predicted.DryRun, predicted.DigestAfter, predicted.RetiredAt, predicted.Remains = true, "", nil, nil
	predicted.Receipts, predicted.Request, predicted.RequestSalt, predicted.Settings, predicted.First = nil, "", "", "", slices.Clone(done.First)
	for i := range predicted.First {
		predicted.First[i].Proof = ""
	}
	if !reflect.DeepEqual(forecast, predicted) {
		t.Fatalf("%s retires\n%+v, forecast\n%+v", text, done, forecast)
	}
	left := slices.DeleteFunc(before, func(e retire.Entry) bool { return slices.Contains(want, e.ID) })
	if !slices.Equal(o.Live.Page(retire.Lowest, math.MaxInt), left) {
		t.Fatalf("after %s live are %v, want %v", text, o.ids(), left)
	}
	state := incremental.NewState(o.Live.Features().Total().Features())
	moment := o.Live.Moment(left)
	for _, e := range left {
		summary, err := moment.Summary(e.ID)
		if err != nil {
			t.Fatal(err)
		}
		state.Add(summary)
	}
	if want := live.DigestOf(state); done.DigestAfter != want || o.Live.Digest() != want || done.DigestBefore != digest {
		t.Fatalf("after %s the digest is %s, in the receipt %s, of the other blocks %s", text, o.Live.Digest(), done.DigestAfter, want)
	}
	o.asked = append(o.asked, retirement{Retirement: done, ids: want, follows: o.follows})
	chosen := slices.DeleteFunc(places, func(e retire.Entry) bool { return !slices.Contains(want, e.ID) })
	for _, e := range chosen {
		if _, is := o.Live.Find(e.ID); is {
			t.Fatalf("%s leaves %+v", text, e)
		}
	}
	h.checkReceipts(t, o, done, chosen)
}

// A selector chooses among all rows that have been read, also those of open runs for which
// there is no room before the next save.
func TestRetireRunsWithoutRoom(t *testing.T) {
	const partitions = 3
	o := openOffline(t, offlineFlags(t, map[string]string{"blocks.unit": "offsets", "blocks.offsets": "100"}), false)
	defer o.Store.Close()
	var s retire.Selector
	for p := range partitions {
		o.deliver(p, []kafka.Record{after(0, 0), after(1, 0)}, 2)
		s.Positions = append(s.Positions, retire.Range{Topic: "t", Partition: p, First: 1, Last: 1})
	}
	o.Memory.Limit = 0
	o.deliver(0, nil, 2) // grants the room that is left
	if all, _ := o.FlushRuns(); all || o.Live.Blocks() != 1 {
		t.Fatalf("%d runs had room", o.Live.Blocks())
	}
	done, err := o.retire(s, false, access.Caller{})
	if err != nil || done.Blocks != partitions || done.Rows != 2*partitions || o.Live.Blocks() != 0 {
		t.Errorf("%+v, %v; %d blocks are left", done, err, o.Live.Blocks())
	}
}

// The loop goes on while a retirement is saved. One that comes meanwhile is not in that save, and
// is answered after the next.
func TestLoopGoesOnWhileARetirementIsSaved(t *testing.T) {
	o := openOffline(t, offlineFlags(t, map[string]string{"blocks.unit": "message"}), false)
	defer o.Store.Close()
	o.deliver(0, []kafka.Record{after(0, 0), after(1, 0), after(2, 0)}, 3)
	o.Saver.Save()
	ids := o.ids()
	var answered []string
	retire := func(id string) {
		o.retireInLoop(retire.Selector{IDs: []string{id}}, false, access.Caller{}, func(r httpapi.Retirement, err error) {
			if err != nil || r.Blocks != 1 || r.RetiredAt == nil {
				t.Errorf("%s: %+v, %v", id, r, err)
			}
			answered = append(answered, id)
		})
	}
	retire(ids[0])
	retire(ids[1])
	if o.Live.Blocks() != 1 || !o.Saver.IsStoring() || len(answered) > 0 {
		t.Fatalf("%d blocks are live, answered are %q", o.Live.Blocks(), answered)
	}
	if o.Saver.Await(); !slices.Equal(answered, ids[:1]) {
		t.Fatalf("after the first save answered are %q", answered)
	}
	o.Saver.WhenDue(time.Now())
	if o.Saver.Await(); !slices.Equal(answered, ids[:2]) || o.Saver.HasUnsaved() {
		t.Fatalf("after the second save answered are %q", answered)
	}
}

// retire sends a selector and returns the status and the answer, or an error.
func (p *process) retire(s retire.Selector) (status int, r httpapi.Retirement, err error) {
	body, err := json.Marshal(s)
	if err != nil {
		return 0, r, err
	}
	res, err := http.Post("http://"+p.addr+"/v1/retire", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, r, err
	}
	defer res.Body.Close()
	return res.StatusCode, r, json.NewDecoder(res.Body).Decode(&r)
}

// A daemon is killed (kill -9) at moments before, during and after the retirement of fifty
// blocks. The next process has all fifty or none, and none after an answer.
func TestKillWhileBlocksAreRetired(t *testing.T) {
	const rounds, chunk = 12, 50
	name := topic(t, 1)
	var messages []message
	var rows [][]int
	for i := range rounds * chunk {
		rows = append(rows, []int{i % 2, i, i * i % 7})
		messages = append(messages, message{value: jsonRow(rows[i][0], rows[i][1:]...)})
	}
	produce(t, name, messages...)
	flags := map[string]string{
		"kafka.brokers": cluster(t).Brokers[0], "kafka.topic": name,
		"http.listen": "127.0.0.1:0", "snapshot.file": filepath.Join(t.TempDir(), "streamd.db"), "snapshot.interval": "10ms",
	}
	p := spawn(t, flags)
	answered := 0
	for round := range rounds {
		first := round * chunk
		with := live.DigestOf(stateOf(t, rows...))
		without := live.DigestOf(stateOf(t, rowsWithout(rows, first, chunk)...))
		at := ""
		p.until(t, "all records", func() bool {
			digest, _, seen, err := p.model()
			at = digest
			return err == nil && seen == int64(len(messages))
		})
		if at != with {
			t.Fatalf("round %d begins with digest %s, want %s", round, at, with)
		}
		ended := make(chan bool, 1)
		go func() {
			status, r, err := p.retire(retire.Selector{Positions: []retire.Range{{Topic: name, First: int64(first), Last: int64(first + chunk - 1)}}})
			if err == nil && (status != http.StatusOK || r.Blocks != chunk || r.DigestBefore != with || r.DigestAfter != without) {
				t.Errorf("round %d: status %d, %+v", round, status, r)
			}
			ended <- err == nil
		}()
		durable := false
		if round == rounds-1 {
			durable = <-ended
			p.kill()
		} else {
			time.Sleep(time.Duration(round) * 1500 * time.Microsecond)
			p.kill()
			durable = <-ended
		}
		p = spawn(t, flags)
		p.until(t, "all records again", func() bool {
			digest, _, seen, err := p.model()
			at = digest
			return err == nil && seen == int64(len(messages))
		})
		switch {
		case at == without:
			rows = rowsWithout(rows, first, chunk)
		case at != with:
			t.Fatalf("round %d: after kill -9 some of the blocks are retired: digest %s, with all %s, without them %s", round, at, with, without)
		case durable:
			t.Fatalf("round %d: the blocks were retired durably, and are live again", round)
		}
		if durable {
			answered++
		}
	}
	if answered == 0 {
		t.Error("no retirement was answered")
	}
	t.Logf("%d of %d retirements were answered before the kill", answered, rounds)
}

// rowsWithout is rows without those of a chunk, by their second number.
func rowsWithout(rows [][]int, first, chunk int) [][]int {
	return slices.DeleteFunc(slices.Clone(rows), func(row []int) bool { return first <= row[1] && row[1] < first+chunk })
}

// Blocks that the policy has let go for a block that is retired later do not come back: the README
// says so of its headline. A daemon that has never seen the retired block has them.
func TestLetGoForARetiredBlock(t *testing.T) {
	flags := map[string]string{"blocks.unit": "message", "retire.keep": "blocks", "retire.blocks": "2"}
	records := []kafka.Record{after(0, 10*time.Second), after(1, 11*time.Second), after(2, 12*time.Second)}
	o := openOffline(t, offlineFlags(t, flags), false)
	o.deliver(0, records, 3)
	if _, err := o.retireOne("t/0/2"); err != nil {
		t.Fatal(err)
	}
	never := openOffline(t, offlineFlags(t, flags), false)
	never.deliver(0, records[:2], 2)
	for what, each := range map[string]struct {
		o    *offline
		want []string
	}{"retired": {o, []string{"t/0/1"}}, "never seen": {never, []string{"t/0/0", "t/0/1"}}} {
		each.o.Saver.Save()
		each.o = each.o.crash(false)
		if got := each.o.ids(); !slices.Equal(got, each.want) {
			t.Errorf("%s: live are %v, want %v", what, got, each.want)
		}
		each.o.Store.Close()
	}
}

// The answer to a retirement says until when the log has the records.
func TestRetirementSaysRetention(t *testing.T) {
	name := topic(t, 1) + "-hour"
	if err := kafka.EnsureTopic(t.Context(), cluster(t), name, 1, map[string]string{"retention.ms": "3600000", "segment.ms": "600000"}); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Truncate(time.Millisecond)
	for _, m := range customers(t)[:3] {
		m.time = at
		produce(t, name, m)
	}
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"dead_letters.policy": "skip"})
	d.await("three blocks", func() bool { return d.Live.Blocks() == 3 })
	d.until("the retention is known", func() bool { return !d.receipts.LogUntil(at).IsZero() })
	answer := d.retire(slices.Sorted(d.Live.IDs)[0])
	if want := at.Add(time.Hour + 10*time.Minute); answer.LogUntil == nil || !answer.LogUntil.Equal(want) || !strings.Contains(answer.Remains[0], want.UTC().Format(time.RFC3339)) {
		t.Errorf("until %v, want %s: %s", answer.LogUntil, want, answer.Remains)
	}
	d.stop()
}
