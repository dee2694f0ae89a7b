package daemon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/mod/sumdb/tlog"

	"streamd/cmd/streamd/audit"
	"streamd/cmd/streamd/daemon/control"
	"streamd/cmd/streamd/daemon/passes"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// pastLog reads the log of a history again.
type pastLog struct{ *logHistory }

func (l pastLog) Stats() kafka.RangeStats { return kafka.RangeStats{} }
func (l pastLog) Close()                  {}

func (l pastLog) Read(ctx context.Context, ranges []kafka.Range, deliver func(context.Context, *kafka.Batch) error) ([]kafka.Lost, error) {
	slices.SortFunc(ranges, func(a, b kafka.Range) int {
		return cmp.Or(a.Partition-b.Partition, int(a.From-b.From))
	})
	for _, r := range ranges {
		records := between(l.log[r.Partition], r.From, r.To)
		records = slices.DeleteFunc(records, func(r kafka.Record) bool { return bytes.Equal(r.Value, unreadable) })
		if err := deliver(ctx, kafka.NewBatch(r.Partition, records, kafka.Saved{Next: r.To})); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// open opens a daemon that follows an empty control topic.
func (h *logHistory) open(t *testing.T, flags map[string]string, left bool) *offline {
	t.Helper()
	o := h.begin(t, flags, left)
	o.catchUp()
	return o
}

// begin opens a daemon that can read the log again. It has not read the control topic yet.
func (h *logHistory) begin(t *testing.T, flags map[string]string, left bool) *offline {
	t.Helper()
	o := openOffline(t, flags, left)
	if h.sliced {
		o.Live.DepartAtOnce(0)
		o.Slicing.Least, o.Slicing.Most = 1, 1
	}
	o.Topic = passes.Over(pastLog{h}, passes.Settings{
		Config: o.Config, Log: zerolog.Nop(), Budget: o.Memory, Decoding: o.Decoding, Target: o.Live.Target, StillLive: o.StillLive,
	})
	if reader := o.withdrawing.Reader; reader != nil {
		t.Cleanup(reader.Close)
	}
	return o
}

// catchUp has the daemon know that it has taken all of the control topic.
func (o *offline) catchUp() {
	o.t.Helper()
	if err := o.withdrawing.CatchUp(); err != nil {
		o.t.Fatal(err)
	}
	o.sliceAll()
}

// restart closes the file without a save and opens it again. The daemon reads the control topic
// from its beginning, as it is after some compaction, before it reads anything else.
func (h *logHistory) restart(t *testing.T, o *offline) *offline {
	t.Helper()
	if err := o.Store.Close(); err != nil {
		t.Fatal(err)
	}
	again := h.begin(t, o.flags, h.r.IntN(4) == 0)
	again.asked, again.heads = o.asked, o.heads
	latest := map[string]int{}
	for i, c := range h.control {
		latest[c.Name] = i
	}
	var compacted []control.Change
	for i, c := range h.control {
		if i == latest[c.Name] || h.r.IntN(2) == 0 {
			compacted = append(compacted, c)
		}
	}
	again.follow(compacted)
	again.follows = len(h.control)
	again.catchUp()
	return again
}

// follow takes records of the control topic.
func (o *offline) follow(records []control.Change) {
	o.t.Helper()
	if len(records) == 0 {
		return
	}
	var err error
	next := o.follows + len(records)
	o.play(func() { err = o.withdrawing.Take(o.t.Context(), 0, int64(next), records) }, func() {})
	if err != nil {
		o.t.Fatal(err)
	}
	o.follows = next
}

// giveBack reads all blocks again that the control topic does not retire any more.
func (o *offline) giveBack() {
	o.t.Helper()
	w := o.withdrawing
	w.Again = time.Time{}
	w.WhenDue(time.Now())
	for w.Reading != nil {
		(<-o.Calls)()
	}
	if o.Failure != nil {
		o.t.Fatal(o.Failure)
	}
	for _, e := range o.Live.Due() {
		o.t.Fatalf("block %v does not come back: %v", e, w.Unread)
	}
}

// nameBlocks notes what blocks the records may make.
func (h *logHistory) nameBlocks() {
	for partition, all := range h.log {
		for _, r := range all {
			e := retire.Entry{Position: incremental.Position{Topic: "t", Partition: partition, Offset: r.Offset}, Last: r.Offset, Time: r.Time}
			if e.ID = e.Position.String(); h.flags["blocks.unit"] == "key" {
				e.ID = retire.KeyPrefix + string(r.Key) // the keys need no escapes
			}
			if retire.ValidTime(e.Time) {
				h.named = append(h.named, e)
			}
		}
	}
}

// say writes a record of the control topic. It chooses among all blocks of the history, whether
// they are live, have gone, or come later.
func (h *logHistory) say() {
	if h.flags["retire.topic"] == "" {
		return
	}
	c := control.Change{Name: fmt.Sprint("0/", h.r.IntN(4))}
	if h.r.IntN(3) > 0 {
		s, _ := randomSelector(h.r, h.flags, h.named)
		var err error
		if c.Selection, err = s.Selection(h.flags["retire.header"]); err != nil {
			panic(err) // the selector is good
		}
	}
	h.control = append(h.control, c)
}

// consume gives the daemon a consumer, which never connects.
func (o *offline) consume() {
	o.t.Helper()
	if o.consumer != nil {
		return
	}
	consumer, err := kafka.NewConsumer(kafka.Config{Cluster: kafka.Cluster{Brokers: []string{"127.0.0.1:1"}}, Topic: "t", Group: "g"}, o, zerolog.Nop())
	if err != nil {
		o.t.Fatal(err)
	}
	o.consumer = consumer
}

// revoke ends the reading of partitions for a moment, as when their number changes.
func (o *offline) revoke(partitions []int) {
	o.consume()
	o.play(func() { o.Revoked(o.t.Context(), partitions) }, func() {})
	if o.Saver.HasUnsaved() {
		o.t.Error("something is unsaved after a revocation")
	}
}

// alone returns a daemon that has seen the records of some blocks and nothing else. They count by
// the time of their block. With moved, they are in other partitions and at other offsets. The
// daemon has no settings of some names.
func (h *logHistory) alone(t *testing.T, blocks []retire.Entry, moved bool, without ...string) *offline {
	t.Helper()
	flags := maps.Clone(h.flags)
	flags["snapshot.file"] = filepath.Join(t.TempDir(), "alone.db")
	for _, name := range append(without, "retire.keep", "retire.blocks", "retire.rows", "retire.age", "retire.topic") {
		delete(flags, name)
	}
	o := openOffline(t, flags, false)
	blocks = slices.Clone(blocks)
	h.r.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
	if !moved { // in the order of their partitions
		slices.SortStableFunc(blocks, func(a, b retire.Entry) int { return cmp.Compare(a.Position.Offset, b.Position.Offset) })
	}
	for _, e := range blocks {
		partition, first := e.Position.Partition, e.Position.Offset
		records := between(h.log[partition], first, e.Last+1)
		to := first
		if moved {
			partition = h.r.IntN(5)
			to = (o.at[partition] + 6) / 7 * 7 // where a block by offsets begins
		}
		for i := range records {
			if r := &records[i]; retire.ValidTime(r.Time) { // otherwise it was rejected
				r.Time, r.Appended = e.Time, true
			}
			records[i].Offset += to - first
		}
		o.deliver(partition, records, e.Last+1+to-first)
		if _, err := o.Intake.EndBlocks(t.Context(), func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// unkeyed checks the keys of the items in entries, and returns the entries without them.
func (o *offline) unkeyed(entries []retire.Entry) []retire.Entry {
	o.t.Helper()
	entries = slices.Clone(entries)
	for i := range entries {
		e, want := &entries[i], receipt.Hash{}
		if key := o.receipts.Key; key != nil && receipt.Keyed(e.ID) {
			want = key.ItemKey(e.ID)
		}
		if e.ItemKey != want {
			o.t.Errorf("block %s has the key %x of its item, want %x", e.ID, e.ItemKey, want)
		}
		e.ItemKey = receipt.Hash{}
	}
	return entries
}

// checkSurvivors compares the daemon with those that have seen the live blocks alone, and the
// models of some windows with those of daemons that have seen the windows' blocks alone.
func (h *logHistory) checkSurvivors(t *testing.T, o *offline) {
	t.Helper()
	survivors := o.Live.Page(retire.Lowest, math.MaxInt)
	alone := h.alone(t, survivors, false)
	defer alone.Store.Close()
	o.compareLive(alone, "the survivors alone")
	moved := h.alone(t, survivors, true)
	defer moved.Store.Close()
	if moved.Live.Digest() != o.Live.Digest() {
		t.Error("the survivors in other partitions have another digest")
	}
	if h.flags["blocks.unit"] == "key" && moved.Live.Side() != o.Live.Side() {
		t.Error("the survivors in other partitions have another root")
	}
	for range 2 {
		w := randomWindow(h.r)
		got, err := o.window(w, 0, func() {})
		blocks := o.blocksIn(&w)
		if len(blocks) == 0 && errors.Is(err, httpapi.ErrNoWindow) {
			continue
		}
		if err != nil {
			t.Fatalf("window %+v: %v", w, err)
		}
		alone := h.alone(t, blocks, h.r.IntN(2) == 0, "retire.half_life", "retire.half_life_rows")
		want := alone.solved()
		alone.Store.Close()
		if got.Digest != want.Digest || got.Rows != want.Rows || got.Blocks != want.Blocks || !reflect.DeepEqual(got.Model, want.Model) {
			t.Errorf("window %+v has\n%+v, its blocks alone\n%+v", w, got, want)
		}
	}
}

// auditReceipts checks every receipt of a daemon, compares the log with all its former checkpoints
// and with the daemon's counts, and sees that every forgery is found.
func (h *logHistory) auditReceipts(t *testing.T, o *offline) {
	t.Helper()
	o.Saver.Save()
	head, err := o.Store.LogHead()
	if err != nil {
		t.Fatal(err)
	}
	public := o.receipts.Key.Public()
	var leaves [][]byte
	var proofs [][]byte
	var gone int64 // blocks
	last := map[receipt.Item]receipt.Kind{}
	for i := range head.Size {
		record, err := o.Store.Receipt(i)
		if err != nil {
			t.Fatal(err)
		}
		proof, err := o.Receipt(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		r, err := receipt.Check(proof, public)
		if err != nil {
			t.Fatalf("receipt %d: %v", i, err)
		}
		l := r.Leaf
		if l.Blocks+l.Passing == 0 != (l.Kind == receipt.Begun) || l.Blocks == 0 != (l.Rows == 0) {
			t.Errorf("leaf %d is %+v", i, l)
		}
		if l.Kind != receipt.Restored && !l.Kind.Listed() { // the blocks of listed kinds had gone before
			gone += l.Blocks + l.Passing
		}
		for _, item := range r.Items {
			last[item] = l.Kind
		}
		leaves, proofs = append(leaves, record.Leaf), append(proofs, proof)
	}
	for _, e := range o.Live.ArchivedBlocks(retire.Lowest, math.MaxInt) {
		s, err := o.Store.Summary(snapshot.Features, e.ID)
		if err != nil {
			t.Fatal(err)
		}
		switch kind := last[o.receipts.Key.Item(e.ID, e.ItemKey, s.Digest())]; kind {
		case receipt.Retired, receipt.Deleted, receipt.Purged:
			t.Errorf("the block %s is archived, and was %v by its last receipt", e.ID, kind)
		}
	}
	c := o.Intake.Counts()
	counted, all := c.BlocksRetired+c.BlocksReplaced, o.Config.Retire.Keep == config.KeepAll
	if gone > counted || all && gone < counted { // a policy retires some as they come: they were never live
		t.Errorf("by the receipts %d blocks have gone, the counts are %+v", gone, c)
	}
	if head.Size > 0 {
		last, err := receipt.OpenCheckpoint(head.Checkpoint, public)
		if err != nil {
			t.Fatal(err)
		}
		o.heads = append(o.heads, last)
		if err := receipt.Audit(slices.Values(leaves), o.heads...); err != nil {
			t.Errorf("the log of receipts: %v", err)
		}
		h.forge(t, o, leaves, proofs, head.Checkpoint)
	}
	o.Store.Close()
	if report, err := snapshot.Verify(t.Context(), o.Config.Snapshot.File, nil); err != nil || !report.OK {
		t.Errorf("%+v, %v", report, err)
	}
	if len(proofs) > 0 {
		h.auditSnapshot(t, o, proofs[h.r.IntN(len(proofs))])
	}
}

// auditSnapshot checks a receipt with the file of a daemon that has ended, with the private key.
func (h *logHistory) auditSnapshot(t *testing.T, o *offline, proof []byte) {
	t.Helper()
	key := o.receipts.Key
	r, err := receipt.Check(proof, key.Public())
	if err != nil {
		t.Fatal(err)
	}
	report, err := audit.Snapshot(o.Config.Snapshot.File, r, key.Public(), key, nil)
	if err != nil {
		t.Errorf("receipt %d: %v", r.Index, err)
		return
	}
	live, side := 0, o.Live.Side()
	for id := range o.Live.IDs {
		if slices.ContainsFunc(r.Items, func(i receipt.Item) bool { return i.Key == o.Live.Item(id).Key }) {
			live++
		}
	}
	if report.Blocks != o.Live.Blocks() || report.Rows != o.Live.Rows() || report.Digest != hex.EncodeToString(side.Digest[:]) ||
		report.Root != hex.EncodeToString(side.Root[:]) || report.Looked != len(r.Items) || report.Live != live || report.Last < 0 || report.Proved != (report.Grown == 0) {
		t.Errorf("receipt %d: the snapshot has %+v, want %d of its blocks", r.Index, report, live)
	}
}

// forge changes something of the log at random in every way. All of it is found.
func (h *logHistory) forge(t *testing.T, o *offline, leaves, proofs [][]byte, checkpoint []byte) {
	t.Helper()
	r, key := h.r, o.receipts.Key
	flipped := func(b []byte) []byte {
		b = bytes.Clone(b)
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		return b
	}
	n := r.IntN(len(leaves))
	if bad := flipped(proofs[n]); accepted(receipt.Check(bad, key.Public())) {
		t.Errorf("receipt %d passes as\n%q instead of\n%q", n, bad, proofs[n])
	}
	if bad := flipped(checkpoint); accepted(receipt.OpenCheckpoint(bad, key.Public())) {
		t.Errorf("the checkpoint passes as %q instead of %q", bad, checkpoint)
	}
	changed := slices.Clone(leaves)
	changed[n] = flipped(leaves[n])
	bad := map[string][][]byte{
		"changed": changed, "dropped": slices.Delete(slices.Clone(leaves), n, n+1), "forestalled": slices.Insert(slices.Clone(leaves), n, changed[n]),
	}
	if m := r.IntN(len(leaves)); m != n {
		swapped := slices.Clone(leaves)
		swapped[n], swapped[m] = swapped[m], swapped[n]
		bad["moved"] = swapped
	}
	for what, forged := range bad {
		if receipt.Audit(slices.Values(forged), o.heads...) == nil {
			t.Errorf("leaf %d of %d was %s, and the audit does not find it", n, len(leaves), what)
		}
	}
	// The owner of the key signs another log.
	var records []receipt.Record
	for _, leaf := range changed {
		records = append(records, receipt.Record{Leaf: leaf})
	}
	fork, err := key.Grow(0, tlog.HashReaderFunc(nil), records)
	if err != nil {
		t.Fatal(err)
	}
	other, err := receipt.OpenCheckpoint(fork.Checkpoint, key.Public())
	if err != nil {
		t.Fatal(err)
	}
	if err := receipt.Audit(slices.Values(changed), other); err != nil && n > 0 && changed[n][1] != byte(receipt.Begun) {
		t.Errorf("the forked log by itself: %v", err)
	}
	for _, log := range [][][]byte{leaves, changed} {
		if receipt.Audit(slices.Values(log), append(slices.Clone(o.heads), other)...) == nil {
			t.Errorf("a log forked at leaf %d passes beside the checkpoints of the other", n)
		}
	}
}

// accepted reports whether a check has found nothing wrong.
func accepted[T any](_ T, err error) bool { return err == nil }
