package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon/control"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/ingest/kafka"
	"streamd/retire"
	"streamd/retire/receipt"
)

// These tests drive the loop's code without a broker. A history is a log, by partition, a
// control topic, and a sequence of events at the daemons that read them. There are three laws.
//
// After any events the live set, the digest and the horizon equal those of a fresh daemon that
// reads each partition at once, up to the offsets that an answer names, follows the control
// topic up to the same record, and makes the same explicit retirements.
//
// The live set, its digest and the root of its tree equal those of a daemon that has seen the
// records of the surviving blocks and nothing else (survivors_test.go).
//
// The surviving blocks are those of the history told naively (naive_test.go).

// offline is a daemon whose test plays the loop.
type offline struct {
	*Daemon
	t     *testing.T
	flags map[string]string
	at    map[int]int64 // the next offset to deliver, by partition

	follows int                   // records of the control topic that it has taken
	asked   []retirement          // on request
	heads   []*receipt.Checkpoint // of the log of receipts, after each of them

	meanwhile func() // called before each slice; nil: nothing
}

// openOffline opens a daemon. If left is set, its workers leave all records to the loop.
func openOffline(t *testing.T, flags map[string]string, left bool) *offline {
	t.Helper()
	d, err := newDaemon(Options{Config: load(t, flags), Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	if left {
		d.Memory.Numbers = 1
	}
	if err := d.restore(Options{Config: d.Config}); err != nil {
		t.Fatal(err)
	}
	d.Stop, d.Background = func(error) {}, t.Context()
	d.updateStatus()
	go d.Intake.Work(t.Context())
	t.Cleanup(d.Intake.Close)
	at := map[int]int64{}
	for partition, saved := range d.resumes {
		at[partition] = saved.Next
	}
	return &offline{Daemon: d, t: t, flags: flags, at: at}
}

// play runs f beside the loop, which the test plays meanwhile. between is called after each call
// of the loop.
func (o *offline) play(f, between func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	for {
		select {
		case call := <-o.Calls:
			began := time.Now()
			call()
			o.Turn(began)
			o.sliceAll()
			between()
		case y := <-o.Intake.Deliveries():
			o.applied(o.Intake.Apply(o.t.Context(), y))
		case <-done:
			return
		}
	}
}

// crash closes the file without a save and opens it again.
func (o *offline) crash(left bool) *offline {
	o.t.Helper()
	if err := o.Store.Close(); err != nil {
		o.t.Fatal(err)
	}
	return openOffline(o.t, o.flags, left)
}

// unreadable is the value of a record that stands for one in an oversized batch.
var unreadable = []byte("unreadable")

// deliver delivers records. next is the offset after them.
func (o *offline) deliver(partition int, records []kafka.Record, next int64) {
	o.t.Helper()
	for _, b := range batches(partition, records, next) {
		o.deliverBatch(b)
	}
}

// batches are the batches of records. next is the offset after them.
func batches(partition int, records []kafka.Record, next int64) (all []*kafka.Batch) {
	for i, r := range records {
		if bytes.Equal(r.Value, unreadable) {
			refused := kafka.NewBatch(partition, nil, kafka.Saved{Next: r.Offset + 1})
			refused.Refused = []kafka.Refused{{First: r.Offset, Last: r.Offset, Records: 1, Reason: errors.New("too large")}}
			all = append(all, kafka.NewBatch(partition, records[:i:i], kafka.Saved{Next: r.Offset}), refused)
			return append(all, batches(partition, records[i+1:], next)...)
		}
	}
	b := kafka.NewBatch(partition, records, kafka.Saved{Next: next})
	if n := len(records); n > 0 {
		b.Position.Last = kafka.FingerprintOf(&records[n-1])
	}
	return []*kafka.Batch{b}
}

func (o *offline) deliverBatch(b *kafka.Batch) {
	o.t.Helper()
	if err := o.Intake.Deliver(o.t.Context(), b); err != nil {
		o.t.Fatal(err)
	}
	o.at[b.Partition] = max(o.at[b.Partition], b.Position.Next)
	o.applied(o.Intake.Apply(o.t.Context(), <-o.Intake.Deliveries()))
	o.sliceAll()
	if o.Failure != nil {
		o.t.Fatal(o.Failure)
	}
}

// named returns the offsets that answers name.
func (o *offline) named() map[int]int64 {
	out := map[int]int64{}
	for _, each := range o.Intake.Applied() {
		out[each.Partition] = each.Next
	}
	return out
}

// retirement is an answer with the ids of all its blocks.
type retirement struct {
	httpapi.Retirement
	ids     []string
	follows int // records of the control topic that had been taken
}

// logHistory is a log and a control topic.
type logHistory struct {
	r       *rand.Rand
	flags   map[string]string
	log     [][]kafka.Record
	plain   [][]kafka.Record // the same rows with their fields in order and without signs of zero
	others  bool             // some rows have other features, which are accepted while no block is live
	control []control.Change // records of the control topic
	sliced  bool             // blocks depart in slices, with arrivals in between
	named   []retire.Entry   // blocks that its selections may name, and others
}

// lawHeader is the header that chooses blocks, with its values.
const lawHeader = "tenant"

var tenants = []string{"ann", "bob", "cid"}

const lawEpoch = 1_700_000_000_000

func newHistory(seed uint64) *logHistory {
	h := &logHistory{r: rand.New(rand.NewPCG(26, seed)), sliced: seed/2%2 == 1}
	r := h.r
	unit := []string{"message", "offsets", "time", "key"}[seed%4]
	h.flags = map[string]string{
		"kafka.topic": "t", "format.features": "x1,x2", "format.weight": "v", "dead_letters.policy": "skip",
		"model.folds": "0", "sample.rows": "0",
		"blocks.unit": unit, "blocks.offsets": "7", "blocks.period": "2s", "limits.rows": "12",
		"limits.memory": "8GiB", // asking the system takes time
	}
	if unit == "message" || unit == "key" {
		h.flags["retire.header"] = lawHeader
	}
	if seed%3 == 0 {
		h.flags["blocks.unlabelled"] = "keep"
	}
	if unit != "key" {
		keep := []config.Keep{"all", "blocks", "rows", "age", "blocks+rows+age"}[seed/4%5]
		h.flags["retire.keep"] = string(keep)
		if keep.Has(config.KeepBlocks) {
			h.flags["retire.blocks"] = fmt.Sprint(1 + r.IntN(12))
		}
		if keep.Has(config.KeepRows) {
			h.flags["retire.rows"] = fmt.Sprint(10 + r.IntN(60))
		}
		if keep.Has(config.KeepAge) {
			h.flags["retire.age"] = fmt.Sprintf("%ds", 1+r.IntN(20))
			h.flags["retire.max_future"] = "4s"
		}
	}
	switch seed % 5 {
	case 0:
		h.flags["retire.half_life"] = "3s"
	case 1:
		h.flags["retire.half_life_rows"] = "9"
	}
	partitions := 1 + r.IntN(3)
	if r.IntN(2) == 0 {
		delete(h.flags, "format.features") // the first block of all decides, and the next one when none is live
		h.others = partitions == 1         // with several, the order of their first records is not defined
	}
	for partition := range partitions {
		log, plain := h.randomLog(partition)
		h.log, h.plain = append(h.log, log), append(h.plain, plain)
	}
	if r.IntN(4) == 0 {
		h.flags["model.folds"], h.flags["sample.rows"] = "3", []string{"0", "20"}[r.IntN(2)]
	}
	if r.IntN(2) == 0 {
		h.flags["retire.topic"], h.flags["kafka.brokers"] = "control", "127.0.0.1:1" // nobody connects
		h.nameBlocks()
	}
	return h
}

// randomRow returns a row with its fields in some order, and the same row in plain form.
func (h *logHistory) randomRow(weight int) (text, plain string) {
	r := h.r
	label := fmt.Sprint(r.IntN(3))
	if h.flags["blocks.unlabelled"] == "keep" && r.IntN(4) == 0 {
		label = "null"
	}
	fields := []string{`"label":` + label, fmt.Sprintf(`"x1":%d`, r.IntN(9)), fmt.Sprintf(`"x2":%d`, r.IntN(3)), fmt.Sprintf(`"v":%d`, weight)}
	plain = "{" + strings.Join(fields, ",") + "}"
	for j, field := range fields[1:3] {
		if strings.HasSuffix(field, ":0") && r.IntN(2) == 0 {
			fields[1+j] = strings.Replace(field, ":0", ":-0", 1)
		}
	}
	r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	return "{" + strings.Join(fields, ",") + "}", plain
}

// randomValue returns a record's value: good or bad, weighted or not. With bad features, no
// value can be the first of a model whose features are not configured.
func (h *logHistory) randomValue() (value, plain []byte) {
	row := func(weight int) {
		a, b := h.randomRow(weight)
		value, plain = append(value, a...), append(plain, b...)
	}
	both := func(text string) { value, plain = append(value, text...), append(plain, text...) }
	if h.others && h.r.IntN(3) == 0 {
		both(fmt.Sprintf(`{"label":%d,"y":%d,"v":1}`, h.r.IntN(3), h.r.IntN(9)))
		return value, plain
	}
	switch h.r.IntN(9) {
	case 0:
		both(`{"label":1,"x1":"?","x2":1,"v":1}`)
	case 1:
		row(0)
	case 2:
		both(`{"label":9,"x9":1,"v":0}`)
	case 3:
		if h.r.IntN(2) == 0 && h.flags["blocks.unit"] != "key" { // nobody knows the keys; else nil
			return unreadable, unreadable
		}
	case 4:
		both("[")
		row(1)
		both(",")
		row(0)
		both(",")
		row(2)
		both("]")
	default:
		row(1)
	}
	return value, plain
}

// randomLog returns the records of a partition: good and bad ones, rows of weight 0,
// tombstones, wrong clocks and gaps between offsets. It returns them in plain form, too.
func (h *logHistory) randomLog(partition int) (out, plain []kafka.Record) {
	r := h.r
	offset, at := int64(r.IntN(5)), int64(lawEpoch)
	for range r.IntN(60) {
		record := kafka.Record{Offset: offset, Key: fmt.Appendf(nil, "k%d-%d", partition, r.IntN(6)), Appended: r.IntN(20) == 0}
		offset += 1 + int64(r.IntN(6)/5)
		at += int64(r.IntN(1500))
		ms := at - int64(r.IntN(2000))
		switch r.IntN(20) {
		case 0:
			ms += 3600_000 // a wrong clock
		case 1:
			ms = math.MaxInt64 / 2 // not a valid time
		}
		if record.Time = time.UnixMilli(ms).UTC(); r.IntN(30) == 0 {
			record.Time = time.Time{}
		}
		if r.IntN(3) > 0 {
			for _, key := range []string{"other", lawHeader, lawHeader}[:2+r.IntN(5)/4] { // the last one counts
				record.Headers = append(record.Headers, kafka.Header{Key: key, Value: []byte(tenants[r.IntN(len(tenants))])})
			}
		}
		same := record
		record.Value, same.Value = h.randomValue()
		out, plain = append(out, record), append(plain, same)
	}
	return out, plain
}

// between returns the records from one offset to another.
func between(all []kafka.Record, from, to int64) []kafka.Record {
	search := func(offset int64) int {
		i, _ := slices.BinarySearchFunc(all, offset, func(r kafka.Record, o int64) int { return int(r.Offset - o) })
		return i
	}
	i := search(from)
	return slices.Clone(all[i:max(i, search(to))])
}

// end returns the offset after the last record of a partition.
func (h *logHistory) end(partition int) int64 {
	if n := len(h.log[partition]); n > 0 {
		return h.log[partition][n-1].Offset + 1
	}
	return 0
}

// fresh returns a daemon that reads each partition at once, in plain form, up to the given
// offsets. It takes as many records of the control topic as o has, in parts before and after the
// data, and makes the explicit retirements in between.
func (h *logHistory) fresh(t *testing.T, o *offline, to map[int]int64) *offline {
	t.Helper()
	flags := maps.Clone(h.flags)
	flags["snapshot.file"] = filepath.Join(t.TempDir(), "fresh.db")
	f := h.open(t, flags, false)
	at := map[int]int64{}
	read := func(to map[int]int64, follows int) {
		f.follow(h.control[f.follows : f.follows+h.r.IntN(follows-f.follows+1)])
		for partition, next := range to {
			f.deliver(partition, between(h.plain[partition], at[partition], next), next)
			at[partition] = next
		}
		f.follow(h.control[f.follows:follows])
		f.FlushRuns()
		f.giveBack()
	}
	for _, done := range o.asked {
		to := map[int]int64{}
		for _, each := range done.Offsets {
			to[each.Partition] = each.Next
		}
		read(to, done.follows)
		again, err := f.retire(retire.Selector{IDs: done.ids}, false, access.Caller{})
		if err != nil {
			t.Fatalf("at %v: retire %s: %v", done.Offsets, done.ids, err)
		}
		if again.DigestBefore != done.DigestBefore || again.DigestAfter != done.DigestAfter {
			t.Fatalf("the answer about %s names other digests than those of the offsets %v", done.ids, done.Offsets)
		}
	}
	read(to, o.follows)
	return f
}

// everything lists all blocks by ascending rank.
func (o *offline) everything() []retire.Entry {
	return slices.SortedStableFunc(o.Live.Everything, func(a, b retire.Entry) int { return a.Rank().Compare(b.Rank()) })
}

// withdrawn lists the withdrawn blocks.
func (o *offline) withdrawn() []retire.Entry {
	return slices.DeleteFunc(o.everything(), func(e retire.Entry) bool { return !e.Withdrawn })
}

// check compares the daemon with a fresh one.
func (h *logHistory) check(t *testing.T, o *offline, when string) {
	t.Helper()
	o.giveBack()
	named := o.named()
	want := h.fresh(t, o, named)
	defer want.Store.Close()
	o.compare(want, fmt.Sprintf("%s, at %v", when, named))
	if got, want := o.Live.Horizon(), want.Live.Horizon(); got != want {
		t.Errorf("%s, at %v: horizon %v, want %v", when, named, got, want)
	}
	if got, want := o.withdrawn(), want.withdrawn(); !slices.Equal(got, want) {
		t.Errorf("%s, at %v: withdrawn are\n%v\nwant\n%v", when, named, got, want)
	}
	h.checkNaively(t, o, fmt.Sprintf("%s, at %v", when, named))
	if h.flags["blocks.unit"] == "key" { // a new value of a key is another block
		return
	}
	for _, done := range o.asked {
		for _, id := range done.ids {
			if e, is := o.Live.Find(id); is {
				t.Errorf("%s, at %v: %+v had left", when, named, e)
			}
		}
	}
}

// compare compares the live sets and the archives.
func (o *offline) compare(want *offline, when string) {
	o.t.Helper()
	o.compareLive(want, when)
	got, wanted := o.Live.ArchivedBlocks(retire.Lowest, math.MaxInt), want.Live.ArchivedBlocks(retire.Lowest, math.MaxInt)
	if !slices.Equal(got, wanted) {
		o.t.Errorf("%s: archived are\n%v\nwant\n%v", when, got, wanted)
	}
}

// compareLive compares the live sets.
func (o *offline) compareLive(want *offline, when string) {
	o.t.Helper()
	entries, wanted := o.Live.Page(retire.Lowest, math.MaxInt), want.Live.Page(retire.Lowest, math.MaxInt)
	if !slices.Equal(entries, wanted) {
		o.t.Errorf("%s: live are\n%v\nwant\n%v", when, entries, wanted)
	}
	if got, want := o.Live.Digest(), want.Live.Digest(); got != want {
		o.t.Errorf("%s: digest %s, want %s", when, got, want)
	}
	for fold, sums := range want.Live.Features().PerFold() {
		if got, want := live.DigestOf(o.Live.Features().PerFold()[fold]), live.DigestOf(sums); got != want {
			o.t.Errorf("%s: fold %d has digest %s, want %s", when, fold, got, want)
		}
	}
	if o.Learner.Fades() {
		got, want := o.weighed(), want.weighed()
		if got.Digest != want.Digest {
			o.t.Errorf("%s: the weighted sums have digest %s, want %s", when, got.Digest, want.Digest)
		}
		for fold, sum := range want.Folds {
			if live.DigestOf(got.Folds[fold]) != live.DigestOf(sum) {
				o.t.Errorf("%s: the weighted sums of fold %d are other ones", when, fold)
			}
		}
	}
	if got, want := o.Live.Side(), want.Live.Side(); got != want {
		o.t.Errorf("%s: the tree of the live blocks has root %x, want %x", when, got.Root, want.Root)
	}
}

// weighed is the weighted sums.
func (o *offline) weighed() *live.Weighted {
	o.t.Helper()
	w, err := o.Live.Weigh(time.Hour)
	if err != nil {
		o.t.Fatal(err)
	}
	return w
}

// read delivers some records of a partition: either the next ones, as a consumer would, or
// delivered ones again.
func (h *logHistory) read(o *offline, partition, most int) {
	r := h.r
	if _, read := o.at[partition]; !read {
		o.deliver(partition, nil, 0) // the partition's first offset
	}
	from := o.at[partition]
	if from > 0 && r.IntN(8) == 0 {
		from = max(0, from-int64(r.IntN(10)))
	}
	rest := between(h.log[partition], from, math.MaxInt64)
	records := rest[:min(len(rest), most)]
	next := h.end(partition)
	if len(records) < len(rest) {
		next = records[max(0, len(records)-1)].Offset + 1
		if r.IntN(2) == 0 {
			next = rest[len(records)].Offset // the batch includes the gap
		}
	}
	o.meanwhile = h.arrivals(o, []int{partition})
	defer func() { o.meanwhile = nil }()
	o.deliver(partition, records, max(next, 0))
}

// run makes random events happen.
func (h *logHistory) run(t *testing.T) {
	r := h.r
	h.flags["receipts.key_file"] = filepath.Join(t.TempDir(), "receipts.key")
	if h.flags["blocks.unit"] != "key" && r.IntN(3) == 0 {
		h.flags["retire.archive"] = "true"
	}
	var replicas []*offline
	for i := range 1 + (r.IntN(4)+1)/4 {
		flags := maps.Clone(h.flags)
		flags["snapshot.file"] = filepath.Join(t.TempDir(), fmt.Sprint(i, ".db"))
		replicas = append(replicas, h.open(t, flags, r.IntN(4) == 0))
	}
	defer func() {
		for _, o := range replicas {
			o.Store.Close()
		}
	}()
	all := make([]int, len(h.log)) // the partitions
	for i := range all {
		all[i] = i
	}
	for range 10 + r.IntN(40) {
		i := r.IntN(len(replicas))
		o := replicas[i]
		switch k := r.IntN(25); {
		case k < 10:
			h.read(o, r.IntN(len(h.log)), 1+r.IntN(10))
		case k < 13:
			o.FlushRuns()
		case k < 15:
			o.Saver.Save()
		case k < 17:
			o = h.crash(t, o)
			replicas[i] = o
		case k < 18:
			if h.sliced && r.IntN(2) == 0 {
				h.retireAmid(t, o, all)
			} else {
				h.retire(t, o)
			}
		case k < 19:
			o.revoke(all)
		case k < 21:
			h.say()
		case k < 23:
			o.meanwhile = h.arrivals(o, all)
			o.follow(h.control[o.follows : o.follows+r.IntN(len(h.control)-o.follows+1)])
			if o.meanwhile = nil; r.IntN(2) == 0 {
				o.giveBack()
			}
		case k < 24:
			if h.retire(t, o); r.IntN(2) == 0 { // there is room for the next ones
				h.read(o, r.IntN(len(h.log)), 1+r.IntN(4))
				h.check(t, o, "after a retirement")
			}
		default:
			h.check(t, o, "on the way")
		}
		o.updateStatus()
		s := o.board.status
		if b := s.Blocks; s.Rows.Missing() != 0 || b.Added-b.Retired-b.Replaced != int64(s.LiveBlocks) {
			t.Errorf("counts do not add up: %+v, %d live blocks of %+v", s.Rows, s.LiveBlocks, b)
		}
		if t.Failed() {
			return
		}
	}
	asked := false
	for _, o := range replicas {
		for _, partition := range all {
			h.read(o, partition, math.MaxInt)
			if at := o.at[partition]; at < h.end(partition) {
				t.Fatalf("partition %d is read up to %d of %d", partition, at, h.end(partition))
			}
		}
		o.FlushRuns()
		o.follow(h.control[o.follows:])
		h.check(t, o, "at the end")
		asked = asked || len(o.asked) > 0
	}
	for _, o := range replicas {
		if !asked { // one replica retires blocks for itself alone
			o.compareLive(replicas[0], "as the first replica")
		}
		h.checkSurvivors(t, o)
		h.auditReceipts(t, o)
		h.checkReplay(t, o)
		o.checkCounts(h)
		if t.Failed() {
			return
		}
	}
	if asked {
		return
	}
	if h.flags["blocks.unit"] == "key" && !h.others {
		h.checkCompacted(t, replicas[0])
	}
}

// crash ends a daemon and starts it again with its file. A save may have ended before, or have
// been written without the daemon having noticed.
func (h *logHistory) crash(t *testing.T, o *offline) *offline {
	t.Helper()
	before, digest, how := o.named(), o.Live.Digest(), h.r.IntN(4)
	switch how {
	case 0, 1:
		o.Saver.Save()
	case 2:
		<-o.Saver.BeginSave()
	}
	again := h.restart(t, o)
	if now := again.named(); how < 3 && again.follows == o.follows && (!maps.Equal(now, before) || again.Live.Digest() != digest) {
		t.Errorf("after a restart at %v the daemon is at %v", before, now)
	}
	if h.r.IntN(2) == 0 {
		h.check(t, again, "after a restart")
	}
	return again
}

// checkCompacted compares the daemon with one that reads the log after a compaction, which
// keeps the latest values of keys and some others. Brokers take a label alone for a value, and drop
// the row behind it: config/labels.md says so. Here it is none.
func (h *logHistory) checkCompacted(t *testing.T, o *offline) {
	t.Helper()
	for partition, all := range h.log {
		latest := map[string]int{}
		for i, r := range all {
			if !h.hasLabelAlone(&r) {
				latest[string(r.Key)] = i
			}
		}
		plain := h.plain[partition]
		h.log[partition], h.plain[partition] = nil, nil
		for i, r := range all {
			if last, ok := latest[string(r.Key)]; ok && last == i || h.r.IntN(4) == 0 {
				h.log[partition], h.plain[partition] = append(h.log[partition], r), append(h.plain[partition], plain[i])
			}
		}
	}
	want := h.fresh(t, o, o.named())
	defer want.Store.Close()
	if got, want := o.ids(), want.ids(); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("live are %v, but %v after a compaction", got, want)
	}
	if o.Live.Digest() != want.Live.Digest() {
		t.Error("after a compaction the digest is another one")
	}
}

// checkCounts checks that each record is counted once.
func (o *offline) checkCounts(h *logHistory) {
	report := o.Intake.Report()
	var records int64
	for _, each := range h.log {
		records += int64(len(each))
	}
	if c := report.Records; c.Read != records || c.Missing() != 0 || c.Undecoded > c.Rejected {
		o.t.Errorf("of %d records count %+v", records, c)
	}
	if c := report.Rows; c.Missing() != 0 {
		o.t.Errorf("rows count %+v", c)
	}
}

// someHistories are the first seed and the number of histories: STREAMD_HISTORY and
// STREAMD_HISTORIES, or 0 and the given number.
func someHistories(t *testing.T, otherwise uint64) (first, histories uint64) {
	t.Helper()
	histories = otherwise
	for name, value := range map[string]*uint64{"STREAMD_HISTORY": &first, "STREAMD_HISTORIES": &histories} {
		if text := os.Getenv(name); text != "" {
			var err error
			if *value, err = strconv.ParseUint(text, 10, 62); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	return first, histories
}

// TestLaw runs STREAMD_HISTORIES histories, the first of which has the seed STREAMD_HISTORY. A
// failing one is repeated by its seed: STREAMD_HISTORY=SEED STREAMD_HISTORIES=1.
func TestLaw(t *testing.T) {
	most := uint64(80) // make histories has more
	if testing.Short() {
		most = 50
	}
	first, histories := someHistories(t, most)
	var ran atomic.Uint64
	t.Cleanup(func() {
		n := &toldNaively
		least := min(n.live.Load(), n.withdrawn.Load(), n.archived.Load(), n.asked.Load())
		if t.Logf("told naively: %d live sets, %d with withdrawn blocks, %d archives, %d after requests", n.live.Load(), n.withdrawn.Load(), n.archived.Load(), n.asked.Load()); ran.Load() >= 50 && least == 0 {
			t.Error("some comparisons were never made")
		}
		if n := replayedCuts.Load(); ran.Load() >= 50 && 2*n < int64(ran.Load()) {
			t.Errorf("replays of %d histories compared %d live sets on the way", ran.Load(), n)
		}
	})
	// Subtests in parallel would keep the memory of their daemons until the last has ended.
	shards := uint64(runtime.GOMAXPROCS(0))
	for shard := range shards {
		t.Run("shard", func(t *testing.T) {
			t.Parallel()
			for seed := first + shard; seed < first+histories; seed += shards {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					ran.Add(1)
					h := newHistory(seed)
					defer func() {
						if t.Failed() {
							t.Logf("%v, %d records of the control topic", h.flags, len(h.control))
						}
					}()
					h.run(t)
				})
			}
		})
	}
}
