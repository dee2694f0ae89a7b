package intake

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/kafka"
	"streamd/retire"
	"streamd/snapshot"
)

// message is a record, and what its bytes mean.
type message struct {
	kafka.Record
	refused *kafka.Refused // in place of the record
	columns []string       // of its rows
	rows    []row
	bad     string // the kind for which it can never be used, or ""
}

type row struct {
	label  string
	values []float64
	weight float64
}

// weighing has the rows that weigh something.
func (m *message) weighing() []row {
	return slices.DeleteFunc(slices.Clone(m.rows), func(r row) bool { return r.weight == 0 })
}

func labelsOf(rows []row) (labels []string) {
	for _, r := range rows {
		labels = append(labels, r.label)
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}

// summaryOf summarises rows.
func summaryOf(t testing.TB, rows []row) *incremental.Summary {
	t.Helper()
	b := &incremental.Block{Classes: labelsOf(rows)}
	columns := make([][]float64, len(rows[0].values))
	for _, r := range rows {
		b.Codes = append(b.Codes, int32(slices.Index(b.Classes, r.label)))
		b.Weights = append(b.Weights, r.weight)
		for j, x := range r.values {
			columns[j] = append(columns[j], x)
		}
	}
	for _, x := range columns {
		b.Columns = append(b.Columns, gram.ColumnOf(x))
	}
	s, err := new(incremental.Summariser).Summarise(b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const dayOne = 1_700_000_000_000 // ms

// randomMessage draws a message. Some have other columns than most, where others is set.
func randomMessage(r *rand.Rand, offset int64, others bool) message {
	m := message{Record: kafka.Record{Offset: offset, Time: time.UnixMilli(dayOne + 1000*offset + r.Int64N(5000)).UTC()}, columns: []string{"x", "y"}}
	m.Key = []byte([]string{"a", "b", "c/d", "e"}[r.IntN(4)])
	if others && r.IntN(3) == 0 {
		m.columns = []string{"x", "z"}
	}
	for range r.IntN(3) {
		m.Headers = append(m.Headers, kafka.Header{Key: []string{"tenant", "other"}[r.IntN(2)], Value: []byte{byte('0' + r.IntN(3))}})
	}
	switch r.IntN(12) {
	case 0:
		m.Time = time.Time{}
	case 1:
		m.Time = m.Time.Add(time.Duration(r.IntN(2000)) * time.Second) // ahead of the clock
	case 2:
		m.Time = time.UnixMilli(-r.Int64N(10_000)).UTC()
		m.Appended = r.IntN(2) == 0
	}
	weightless := r.IntN(10) == 0
	var text []string
	for range 1 + r.IntN(3) {
		w := row{label: []string{"p", "q", "r", "s"}[r.IntN(r.IntN(4)+1)], weight: float64(r.IntN(3))}
		if weightless {
			w.weight = 0
		}
		line := fmt.Sprintf(`{"label":%q,"w":%v`, w.label, w.weight)
		for _, name := range m.columns {
			w.values = append(w.values, float64(r.IntN(100))/4)
			line += fmt.Sprintf(`,%q:%v`, name, w.values[len(w.values)-1])
		}
		m.rows, text = append(m.rows, w), append(text, line+"}")
	}
	m.Value = []byte(strings.Join(text, "\n"))
	switch r.IntN(40) {
	case 0:
		m.Value, m.rows, m.bad = []byte(`{"label":`), nil, kindFormat
	case 1:
		m.Value, m.rows, m.bad = nil, nil, kindNull
	case 2:
		m.OmittedHeaders, m.rows, m.bad = 20_000, nil, kindHeaders
	case 3:
		m.Time, m.rows, m.bad = time.UnixMilli(1<<53), nil, kindTime
	case 4:
		for i := range m.rows {
			m.rows[i].weight = max(m.rows[i].weight, 1)
		}
		m.Value, m.bad = bytes.ReplaceAll(m.Value, []byte(`"w":0`), []byte(`"w":1`)), kindRow
		m.Value = bytes.Replace(m.Value, []byte(`"x":`), []byte(`"x":1e300,"ignored":`), 1)
	case 5:
		m.refused = &kafka.Refused{First: offset, Last: offset, Records: 1 + r.Int64N(5), Reason: errors.New("its batch is too large")}
		m.rows, m.bad = nil, kindBatch
	}
	return m
}

// history drives an intake with a store through batches, saves and restarts.
type history struct {
	*testing.T
	*Intake
	r      *rand.Rand
	path   string
	store  *snapshot.Store
	noRoom bool
	saved  map[int]snapshot.Offset // as they were saved

	ahead, tooOld counter
	sampled       bytes.Buffer // the log
}

// counter is a counter that can be read.
type counter struct {
	prometheus.Counter
	n int
}

func (c *counter) Inc() { c.n++ }

func newHistory(t *testing.T, seed uint64, flags map[string]string) *history {
	t.Helper()
	h := &history{T: t, r: rand.New(rand.NewPCG(61, seed)), path: filepath.Join(t.TempDir(), "streamd.db"), saved: map[int]snapshot.Offset{}}
	given := map[string]string{"format.weight": "w", "format.ignore": "ignored", "dead_letters.policy": "skip", "limits.classes": "3", "sample.rows": "50"}
	maps.Copy(given, flags)
	h.Intake = idle(t, given)
	h.open()
	t.Cleanup(func() { h.store.Close() })
	return h
}

// open continues with what has been saved.
func (h *history) open() {
	h.Helper()
	store, contents, err := snapshot.Open(h.path, snapshot.Settings{})
	if err != nil {
		h.Fatal(err)
	}
	l, _, err := live.Open(store, contents, h.Config, h.Budget, zerolog.Nop())
	if err != nil {
		h.Fatal(err)
	}
	if h.store = store; len(h.Config.Format.Features) > 0 && !l.HasPlaces() {
		l.Fix(h.Config.Format.Features)
	}
	s := h.Settings
	s.Live = l
	s.HasRoom = func(int64) bool { return !h.noRoom }
	s.Ahead, s.TooOld = &h.ahead, &h.tooOld
	h.ahead, h.tooOld = counter{}, counter{}
	h.sampled.Reset()
	s.Sampled = zerolog.New(&h.sampled)
	s.Decoding.Ignore = h.Config.Format.Ignore
	h.Intake = New(s)
	if got, want := h.Room(), h.Live.RoomBytes(); got != want {
		h.Fatalf("at first workers have room for %d bytes, not %d", got, want)
	}
	resumes := h.Restore(contents)
	for number, saved := range h.saved {
		want := kafka.Saved{Next: saved.Next, Last: lastOf(saved)}
		if g := saved.Growing; g != nil {
			want.Done = g.Next
		}
		if resumes[number] != want {
			h.Fatalf("partition %d is read from %+v, not %+v", number, resumes[number], want)
		}
	}
	if len(resumes) != len(h.saved) {
		h.Fatalf("%d partitions are read, not %d", len(resumes), len(h.saved))
	}
}

func lastOf(o snapshot.Offset) (f kafka.Fingerprint) {
	if o.HasLast {
		f = kafka.Fingerprint{Offset: o.Last.Offset, CRC: o.Last.Checksum, Millis: o.Last.Time.UnixMilli()}
	}
	return f
}

// save saves everything, and compares the positions with those of a model.
func (h *history) save(position func(partition int) snapshot.Offset) {
	h.Helper()
	moved := h.Moved()
	_, undo := h.TakeMoved()
	if undo(); h.Moved() != moved {
		h.Fatal("what was taken and given back is not there again")
	}
	offsets, _ := h.TakeMoved()
	if moved != (len(offsets) > 0) || h.Moved() {
		h.Fatalf("positions have moved: %t, then %t; %d are saved", moved, h.Moved(), len(offsets))
	}
	slices.SortFunc(offsets, func(a, b snapshot.Offset) int { return cmp.Compare(a.Partition, b.Partition) })
	for _, o := range offsets {
		h.saved[o.Partition] = o
	}
	var numbers []int
	for number, o := range h.saved { // those that have not moved are as they were
		want := position(number)
		if o.EventTimes = slices.Clip(o.EventTimes); !reflect.DeepEqual(o, want) {
			h.Fatalf("partition %d is saved at %+v, growing %+v, not %+v, %+v", number, o, o.Growing, want, want.Growing)
		}
		numbers = append(numbers, number)
	}
	settled := h.Settled(numbers)
	for _, number := range numbers {
		if settled[number] != h.saved[number].Next {
			h.Fatalf("settled at %v, not %d", settled, h.saved[number].Next)
		}
	}
	c := h.Live.Change()
	c.Offsets, c.Counts, c.SavedAt = offsets, h.Counts(), time.UnixMilli(1)
	if _, err := h.store.Save(c); err != nil {
		h.Fatal(err)
	}
	h.Live.Saved(&c)
}

func (h *history) restart() {
	h.Helper()
	if err := h.store.Close(); err != nil {
		h.Fatal(err)
	}
	h.open()
}

// deliver applies messages as one batch: by a worker, with room for some of them, or by the loop
// alone. Then reading continues at next.
func (h *history) deliver(partition int, messages []message, next int64) {
	h.Helper()
	var records []kafka.Record
	var refused []kafka.Refused
	for _, m := range messages {
		if m.refused != nil {
			refused = append(refused, *m.refused)
		} else {
			records = append(records, m.Record)
		}
	}
	last := messages[len(messages)-1]
	b := kafka.NewBatch(partition, records, kafka.Saved{Next: next, Last: kafka.FingerprintOf(&last.Record)})
	b.Refused = refused
	y := newDelivery(b)
	if h.r.IntN(3) == 0 && len(y.tasks) == 1 && len(records) > 1 { // as of a larger batch
		at := 1 + h.r.IntN(len(records)-1)
		y.tasks = []*task{
			{partition: partition, records: records[:at], done: make(chan struct{})},
			{partition: partition, records: records[at:], previous: &records[at-1], done: make(chan struct{})},
		}
	}
	h.room.Store([]int64{1 << 30, 600, 0}[h.r.IntN(3)])
	w := newWorker(h.pool)
	for _, x := range y.tasks {
		if h.r.IntN(3) > 0 || len(x.refused) > 0 {
			w.do(h.Context(), x)
		}
		close(x.done)
	}
	h.noRoom = h.r.IntN(4) == 0
	if err := h.Apply(h.Context(), y); err != nil {
		h.Fatal(err)
	}
	for {
		waiting, bytes := h.Waiting()
		if waiting == nil {
			break
		}
		if waiting != y || bytes <= 0 || !h.noRoom {
			h.Fatalf("a delivery waits for %d bytes", bytes)
		}
		h.Release(y) // not yet
		if h.noRoom = h.r.IntN(3) == 0; h.noRoom && h.r.IntN(2) == 0 {
			continue
		}
		if err := h.Continue(h.Context()); err != nil {
			h.Fatal(err)
		}
	}
	h.noRoom = false
	h.Release(y)
	if got, want := h.Room(), h.Live.RoomBytes(); got != want {
		h.Fatalf("workers have room for %d bytes, not %d", got, want)
	}
	if left := h.inHand.Load(); left != 0 {
		h.Fatalf("%d bytes are pending when all is applied", left)
	}
	func() {
		defer func() {
			if recover() == nil {
				h.Fatal("an applied batch was not released")
			}
		}()
		b.Release()
	}()
}

// jump continues after a gap, and retires the blocks of a former log.
func (h *history) jump(gap *kafka.GapError, to int64) {
	h.Helper()
	former, err := h.Jump(h.Context(), gap, to)
	if err == nil {
		err = h.RetireFormerLog(former, len(former))
	}
	if err != nil {
		h.Fatal(err)
	}
}

// compare compares the live blocks with those of a model.
func (h *history) compare(want map[string]retire.Entry, summaries map[string]*incremental.Summary) {
	h.Helper()
	all := slices.Collect(h.Live.Everything)
	if len(all) != len(want) {
		h.Fatalf("%d blocks are live, not %d: %v, %v", len(all), len(want), all, want)
	}
	for _, e := range all {
		if is := want[e.ID]; e.Time.Equal(is.Time) {
			if is.Time = e.Time; e != is {
				h.Fatalf("block %s is %+v, not %+v", e.ID, e, is)
			}
		} else {
			h.Fatalf("block %s is of %v, not %v", e.ID, e.Time, is.Time)
		}
		s, err := h.Live.Summary(e, h.Live.InUse().Coordinates)
		if err != nil {
			h.Fatal(err)
		}
		if s.Digest() != summaries[e.ID].Digest() {
			h.Fatalf("block %s has other rows", e.ID)
		}
	}
}

// reference takes one message after the other, and knows how each one ends. It has blocks of a
// message or of a key.
type reference struct {
	testing.TB
	cfg       *config.Config
	ledger    *retire.Ledger
	summaries map[string]*incremental.Summary
	classes   map[string][]string
	features  []string
	at        map[int]snapshot.Offset
	clocks    map[int]*retire.Clock
	counts    snapshot.Counts
	read      tally

	// since the start
	kinds         map[string]int64
	ahead, tooOld int
	fixed, freed  int // features
	byKey         int // blocks that their keys have retired
	inARow        int64
	oldInARow     int
	applied       bool
}

func newReference(t testing.TB, cfg *config.Config) *reference {
	m := &reference{
		TB: t, cfg: cfg, ledger: retire.NewLedger(retire.Policy{Blocks: cfg.Retire.Blocks, Rows: cfg.Retire.Rows, Age: cfg.Retire.Age}),
		summaries: map[string]*incremental.Summary{}, classes: map[string][]string{},
		at: map[int]snapshot.Offset{}, clocks: map[int]*retire.Clock{},
	}
	m.start()
	return m
}

// start is a start of the process.
func (m *reference) start() {
	m.kinds, m.ahead, m.tooOld, m.inARow, m.oldInARow, m.applied = map[string]int64{}, 0, 0, 0, 0, false
	m.fixed, m.freed, m.byKey = 0, 0, 0
	if m.ledger.Len() == 0 && len(m.cfg.Format.Features) == 0 {
		m.features = nil // those of a file without blocks are free
	}
}

func (m *reference) clock(partition int) *retire.Clock {
	if m.clocks[partition] == nil {
		m.clocks[partition] = new(retire.Clock)
	}
	return m.clocks[partition]
}

// timeOf is the event time that a record counts as, and whether that is not its own.
func timeOf(r *kafka.Record, clock *retire.Clock, cfg *config.Config) (at time.Time, ahead bool) {
	switch {
	case r.Time.IsZero():
		return time.UnixMilli(0).UTC(), false
	case r.Appended:
		return r.Time, false
	}
	at = clock.Bound(r.Time, cfg.Retire.MaxFuture)
	return at, at.Before(r.Time)
}

func (m *reference) drop(id string) {
	delete(m.summaries, id)
	delete(m.classes, id)
}

// retireFormer retires the block of a key.
func (m *reference) retireFormer(id string) {
	if _, ok := m.ledger.Retire(id); ok {
		m.counts.BlocksRetired++
		m.byKey++
		m.drop(id)
	}
}

func (m *reference) reject(kind string, rows int) {
	m.kinds[kind]++
	m.inARow++
	m.counts.RejectedRecords++
	m.counts.RejectedRows += int64(rows)
	if rows == 0 {
		m.counts.UndecodedRecords++
	}
}

func (m *reference) take(partition int, y *message) {
	if p, known := m.at[partition]; known && y.Offset < p.Next {
		return
	}
	o := snapshot.Offset{Topic: "t", Partition: partition, Next: y.Offset + 1}
	defer func() { m.at[partition] = o }()
	if f := y.refused; f != nil {
		m.read.records += f.Records
		m.kinds[kindBatch] += f.Records
		m.inARow += f.Records
		m.counts.RejectedRecords += f.Records
		m.counts.UndecodedRecords += f.Records
		return
	}
	clock := m.clock(partition)
	defer func() {
		if !y.Time.IsZero() && retire.ValidTime(y.Time) {
			clock.Add(y.Time)
		}
	}()
	if m.ledger.Len() == 0 && len(m.cfg.Format.Features) == 0 && m.features != nil {
		m.features = nil
		m.freed++
	}
	m.read.records++
	id, keyed := fmt.Sprintf("t/%d/%d", partition, y.Offset), m.cfg.Blocks.Unit == config.UnitKey
	if keyed {
		if id = "key:" + url.PathEscape(string(y.Key)); y.Key == nil || len(y.Key) > 512 {
			m.reject(kindKey, 0)
			return
		}
		if y.Value == nil && y.OmittedHeaders == 0 {
			m.counts.Tombstones++
			m.inARow, m.applied = 0, true
			m.retireFormer(id)
			return
		}
	}
	rows, bad := y.weighing(), y.bad
	if m.features != nil && !slices.Equal(m.features, y.columns) && (bad == "" || bad == kindRow) {
		bad, y.rows = kindFormat, nil
	}
	m.read.rows += int64(len(y.rows))
	labels := labelsOf(rows)
	if bad == "" || bad == kindRow { // its number is looked at with the others
		all := slices.Clone(labels)
		for _, c := range m.classes {
			all = append(all, c...)
		}
		slices.Sort(all)
		if len(slices.Compact(all)) > m.cfg.Limits.Classes && len(labels) > 0 {
			bad = cmp.Or(bad, kindClasses) // a bad row comes first
		}
	}
	if bad != "" {
		m.reject(bad, len(y.rows))
		if keyed {
			m.retireFormer(id)
		}
		return
	}
	m.counts.AppliedRecords++
	m.inARow, m.applied = 0, true
	m.counts.Rows += int64(len(rows))
	m.counts.ZeroWeightRows += int64(len(y.rows) - len(rows))
	at, ahead := timeOf(&y.Record, clock, m.cfg)
	if ahead {
		m.ahead++
	}
	_, replaced := m.ledger.Remove(id)
	m.drop(id)
	if len(rows) == 0 {
		if replaced {
			m.counts.BlocksRetired++
		}
		return
	}
	if m.features == nil {
		m.features = y.columns
		m.fixed++
	}
	e := retire.Entry{ID: id, Position: incremental.Position{Topic: "t", Partition: partition, Offset: y.Offset}, Last: y.Offset, Time: at, Rows: int64(len(rows))}
	for _, header := range y.Headers {
		if header.Key == "tenant" {
			e.Header = retire.HashHeader("tenant", header.Value)
		}
	}
	m.summaries[id], m.classes[id] = summaryOf(m, rows), labels
	m.counts.BlocksAdded++
	if replaced {
		m.counts.BlocksReplaced++
	}
	refused := false
	for _, out := range m.ledger.Add(e) {
		m.counts.BlocksRetired++
		m.drop(out.ID)
		refused = refused || out.ID == id
	}
	if m.oldInARow++; !refused {
		m.oldInARow = 0
	} else {
		m.tooOld++
	}
}

// jump is a gap in the log, or another log.
func (m *reference) jump(gap *kafka.GapError, to int64) {
	if gap.Reset {
		m.clocks[gap.Partition] = new(retire.Clock)
		for e := range m.ledger.Select(&retire.Selection{}) {
			if e.Position.Partition == gap.Partition {
				defer m.drop(e.ID)
				defer m.ledger.Retire(e.ID)
				m.counts.BlocksRetired++
			}
		}
	}
	m.counts.Gaps++
	m.counts.LostRecords += gap.Lost(to)
	m.at[gap.Partition] = snapshot.Offset{Topic: "t", Partition: gap.Partition, Next: to}
}

func (m *reference) position(partition int) snapshot.Offset {
	o := m.at[partition]
	o.EventTimes = slices.Clip(m.clock(partition).Times())
	return o
}

// report is the model's report.
func (m *reference) report() Report {
	c := &m.counts
	r := Report{
		Counts: *c, TooOld: m.oldInARow, Applied: map[int]int64{},
		Records: model.RecordCounts{Read: m.read.records, Applied: c.AppliedRecords, Tombstones: c.Tombstones, Rejected: c.RejectedRecords, Undecoded: c.UndecodedRecords, Lost: c.LostRecords, Gaps: c.Gaps},
		Rows:    model.RowCounts{Read: m.read.rows, Summarised: c.Rows, ZeroWeight: c.ZeroWeightRows, Rejected: c.RejectedRows},
	}
	for partition, o := range m.at {
		r.Applied[partition] = o.Next
	}
	for _, kind := range slices.Sorted(maps.Keys(m.kinds)) {
		r.Refused = append(r.Refused, model.Refusal{Reason: kind, Meaning: kinds[kind].meaning, Records: m.kinds[kind]})
	}
	return r
}

// compareReport compares a report with that of a model.
func (h *history) compareReport(want Report, inARow int64, applied bool) {
	h.Helper()
	got := h.Report()
	if got.Latest.InARow != inARow || got.Latest.Good != applied {
		h.Fatalf("%d records were refused in a row, not %d; one was applied: %t", got.Latest.InARow, inARow, got.Latest.Good)
	}
	got.Latest = Refusing{}
	if len(got.Refused) == 0 && len(want.Refused) == 0 {
		got.Refused, want.Refused = nil, nil
	}
	if !reflect.DeepEqual(got, want) {
		h.Fatalf("the report is\n%+v, not\n%+v", got, want)
	}
}

// Records make blocks of a message or of a key, one after the other, as one who knows what they
// mean makes them: whoever decodes them, in batches of any size that may come twice, with a policy,
// few classes, other features, gaps, and restarts.
func TestMessagesAndKeysAreTakenOneByOne(t *testing.T) {
	total := snapshot.Counts{}
	kinds := map[string]int64{}
	for seed := range uint64(32) {
		flags := map[string]string{"blocks.unit": []string{"message", "key"}[seed%2], "retire.header": "tenant"}
		switch seed % 8 {
		case 2:
			flags["retire.keep"], flags["retire.blocks"] = "blocks", "4"
		case 4:
			flags["retire.keep"], flags["retire.age"] = "age", "10s"
		case 6:
			flags["retire.keep"], flags["retire.rows"], flags["format.features"] = "rows", "9", "x,y"
		}
		h := newHistory(t, seed, flags)
		m := newReference(t, h.Config)
		if len(h.Config.Format.Features) > 0 {
			m.features = h.Config.Format.Features
		}
		log := map[int][]message{}
		end := func(partition int) int64 {
			if all := log[partition]; len(all) > 0 {
				return all[len(all)-1].Offset + 1
			}
			return 0
		}
		for range 60 {
			partition := h.r.IntN(2)
			switch k := h.r.IntN(12); {
			case k < 9:
				var batch []message
				if old := log[partition]; h.r.IntN(5) == 0 { // some come once more
					batch = slices.Clone(old[h.r.IntN(len(old)+1):])
				}
				for range 1 + h.r.IntN(8) {
					offset := max(end(partition), m.at[partition].Next) + h.r.Int64N(2)
					y := randomMessage(h.r, offset, true)
					switch {
					case seed%2 == 0:
					case h.r.IntN(20) == 0:
						y.Key = nil
					case h.r.IntN(20) == 0:
						y.Key = bytes.Repeat([]byte("k"), 512+h.r.IntN(2))
					}
					log[partition], batch = append(log[partition], y), append(batch, y)
				}
				// Refused records come alone.
				for len(batch) > 0 {
					n := slices.IndexFunc(batch, func(y message) bool { return (y.refused != nil) != (batch[0].refused != nil) })
					if n < 0 {
						n = len(batch)
					}
					next := batch[n-1].Offset + 1 + h.r.Int64N(2)
					if n < len(batch) {
						next = min(next, batch[n].Offset)
					}
					h.deliver(partition, batch[:n], next)
					for i := range batch[:n] {
						y := batch[i]
						m.take(partition, &y)
					}
					if o := m.at[partition]; next >= o.Next {
						f := kafka.FingerprintOf(&batch[n-1].Record)
						o.Next, o.HasLast, o.Last = next, true, snapshot.Fingerprint{Offset: f.Offset, Checksum: f.CRC, Time: time.UnixMilli(f.Millis)}
						m.at[partition] = o
					}
					batch = batch[n:]
				}
			case k == 9:
				h.save(m.position)
				if h.r.IntN(2) == 0 {
					h.restart()
					m.start()
				}
			case k == 10 && h.r.IntN(4) == 0 && len(log[partition]) > 0:
				gap := &kafka.GapError{Topic: "t", Partition: partition, Saved: m.at[partition].Next, LogStart: end(partition) + h.r.Int64N(4), Reset: h.r.IntN(2) == 0}
				to := max(gap.LogStart, m.at[partition].Next)
				h.jump(gap, to)
				m.jump(gap, to)
				log[partition] = nil
			}
			want := map[string]retire.Entry{}
			for e := range m.ledger.Select(&retire.Selection{}) {
				want[e.ID] = e
			}
			h.compare(want, m.summaries)
			h.compareReport(m.report(), m.inARow, m.applied)
			var at []model.Offset
			for _, partition := range slices.Sorted(maps.Keys(m.at)) {
				at = append(at, model.Offset{Topic: "t", Partition: partition, Next: m.at[partition].Next})
			}
			if got := h.Positions(); !slices.Equal(got.Applied, at) || !slices.Equal(got.Resume, at) || !slices.Equal(h.Applied(), at) {
				t.Fatalf("seed %d: positions %+v, not %+v", seed, got, at)
			}
			for text, want := range map[string]int{
				"more than retire.max_future after the partition": m.ahead, "retired as it came": m.tooOld, "retired by its key": m.byKey,
				"the features are those of the first block, and records with others are refused while": m.fixed, "the next one decides": m.freed,
			} {
				if got := strings.Count(h.sampled.String(), text); got != want {
					t.Fatalf("seed %d: the log says %d times %q, not %d times", seed, got, text, want)
				}
			}
			if a, o := h.ahead.n, h.tooOld.n; a != m.ahead || o != m.tooOld {
				t.Fatalf("seed %d: %d records ahead and %d blocks too old, not %d and %d", seed, a, o, m.ahead, m.tooOld)
			}
		}
		total.Add(m.counts)
		for kind, n := range m.kinds {
			kinds[kind] += n
		}
	}
	if c := total; c.Tombstones < 10 || c.BlocksReplaced < 100 || c.BlocksRetired < 100 || c.Gaps < 10 || len(kinds) < 8 {
		t.Errorf("%+v, %v: the histories do not reach what they should", total, kinds)
	}
}

// gathered is a run as a model makes it.
type gathered struct {
	bucket  int64
	id      string
	entry   retire.Entry
	rows    []row
	start   snapshot.Offset
	least   int64 // start.Next is above this
	pending snapshot.Counts
}

// prefix is what the log of a partition below an offset makes: its runs, of which the last may be
// open, and the counts and the position behind it.
type prefix struct {
	runs   []gathered
	open   bool
	counts snapshot.Counts // without those of the open run
	at     snapshot.Offset
	least  int64
}

// gather reads the log of a partition below an offset. Runs end at the cuts.
func gather(cfg *config.Config, partition int, log []message, below int64, cuts []int64) (p prefix) {
	clock := new(retire.Clock)
	p.at, p.least = snapshot.Offset{Topic: "t", Partition: partition}, -1
	for _, y := range log {
		if y.Offset >= below {
			break
		}
		rows := y.weighing()
		if y.bad != "" {
			rows = nil
		}
		usable := len(rows) > 0
		at := time.UnixMilli(0)
		if usable {
			at, _ = timeOf(&y.Record, clock, cfg)
		}
		bucket := at.UnixMilli() / cfg.Blocks.Period.Milliseconds()
		if at.UnixMilli() < 0 && at.UnixMilli()%cfg.Blocks.Period.Milliseconds() != 0 {
			bucket--
		}
		if cfg.Blocks.Unit == config.UnitOffsets {
			bucket = y.Offset / cfg.Blocks.Offsets
		}
		if p.open {
			o := &p.runs[len(p.runs)-1]
			c := o.pending
			read := c.AppliedRecords + c.RejectedRecords
			cut := slices.ContainsFunc(cuts, func(cut int64) bool { return o.entry.Position.Offset < cut && cut <= y.Offset })
			if cut || y.refused == nil && (len(o.rows)+len(rows) > cfg.Limits.Rows || read >= int64(cfg.Limits.Rows) ||
				bucket != o.bucket && (usable || cfg.Blocks.Unit == config.UnitOffsets)) {
				p.counts.Add(c)
				p.open = false
			}
		}
		if usable && !p.open {
			position := incremental.Position{Topic: "t", Partition: partition, Offset: y.Offset}
			p.at.EventTimes = slices.Clip(clock.Times())
			p.runs = append(p.runs, gathered{
				bucket: bucket, id: position.String(), start: p.at, least: p.least,
				entry: retire.Entry{ID: position.String(), Position: position, Time: at},
			})
			p.open = true
		}
		c := &p.counts
		if p.open {
			c = &p.runs[len(p.runs)-1].pending
		}
		switch f := y.refused; {
		case f != nil:
			c.RejectedRecords += f.Records
			c.UndecodedRecords += f.Records
		case y.bad != "":
			c.RejectedRecords++
			c.RejectedRows += int64(len(y.rows))
			if len(y.rows) == 0 {
				c.UndecodedRecords++
			}
		default:
			c.AppliedRecords++
			c.Rows += int64(len(rows))
			c.ZeroWeightRows += int64(len(y.rows) - len(rows))
			if o := len(p.runs) - 1; usable {
				e := &p.runs[o].entry
				p.runs[o].rows = append(p.runs[o].rows, rows...)
				e.Last, e.Rows = y.Offset, e.Rows+int64(len(rows))
				if at.After(e.Time) {
					e.Time = at
				}
			}
		}
		if y.refused == nil && !y.Time.IsZero() && retire.ValidTime(y.Time) {
			clock.Add(y.Time)
		}
		f := kafka.FingerprintOf(&y.Record)
		p.at.Next, p.at.HasLast, p.least = y.Offset+1, true, y.Offset
		p.at.Last = snapshot.Fingerprint{Offset: f.Offset, Checksum: f.CRC, Time: time.UnixMilli(f.Millis)}
	}
	if p.open && slices.ContainsFunc(cuts, func(cut int64) bool {
		return p.runs[len(p.runs)-1].entry.Position.Offset < cut && cut <= below
	}) {
		p.counts.Add(p.runs[len(p.runs)-1].pending)
		p.open = false
	}
	p.at.EventTimes = slices.Clip(clock.Times())
	return p
}

// Records of a range of offsets or a span of time make blocks that are a function of the log,
// wherever its batches begin, whenever runs are made live, and wherever a restart reads it again.
// At any moment the live set has exactly the records below the applied position, and the counts
// those below the position that is read.
func TestGatheredBlocksAreAFunctionOfTheLog(t *testing.T) {
	rereads, cutRereads, cutMidway, lost := 0, 0, 0, 0
	for seed := range uint64(32) {
		flags := map[string]string{"blocks.unit": "offsets", "blocks.offsets": "7", "limits.rows": []string{"1000", "9"}[seed/2%2], "limits.classes": "5", "format.features": "x,y"}
		if seed%2 == 1 {
			flags["blocks.unit"], flags["blocks.period"] = "time", "6s"
			delete(flags, "blocks.offsets")
		}
		h := newHistory(t, seed, flags)
		log := map[int][]message{}     // as far as it has been written
		cuts := map[int][]int64{}      // offsets at which runs were ended
		savedCuts := map[int][]int64{} // those before the last save
		next := map[int]int64{}        // the first offset that has not been delivered
		bare := map[int]int64{}        // positions behind runs that were not read again, of which no record is known
		dropped := snapshot.Counts{}   // gaps
		savedDropped := dropped
		position := func(partition int) snapshot.Offset {
			p := h.partitions[partition]
			all := gather(h.Config, partition, log[partition], p.at.Next, cuts[partition])
			o := all.at
			if o.Next = p.at.Next; all.open {
				run := all.runs[len(all.runs)-1]
				// A batch may end behind its last record.
				if o = run.start; p.open.start.Next <= run.least || p.open.start.Next > p.open.first.Offset {
					t.Fatalf("seed %d: a run from %v begins at %d", seed, p.open.first, p.open.start.Next)
				}
				o.Next = p.open.start.Next
			}
			if resume, _ := p.resume(); resume.Last == (kafka.Fingerprint{}) && bare[partition] == o.Next {
				o.Last, o.HasLast = snapshot.Fingerprint{}, false
			}
			if applied := p.applied.next; applied > o.Next {
				of := gather(h.Config, partition, log[partition], applied, cuts[partition])
				o.Growing = &snapshot.Growing{Next: applied, EventTimes: of.at.EventTimes}
				if of.open {
					o.Growing.Counts = of.runs[len(of.runs)-1].pending
				}
			}
			return o
		}
		check := func() {
			t.Helper()
			want, summaries := map[string]retire.Entry{}, map[string]*incremental.Summary{}
			counts := dropped
			var records model.RecordCounts
			var rows model.RowCounts
			positions := map[int]int64{}
			for partition, p := range h.partitions {
				positions[partition] = p.applied.next
				applied := gather(h.Config, partition, log[partition], p.applied.next, cuts[partition])
				for _, run := range applied.runs {
					want[run.id], summaries[run.id] = run.entry, summaryOf(t, run.rows)
				}
				at := gather(h.Config, partition, log[partition], p.at.Next, cuts[partition])
				counts.Add(at.counts)
				if at.open {
					c := at.runs[len(at.runs)-1].pending
					records.Pending += c.AppliedRecords
					rows.Pending += c.Rows + c.ZeroWeightRows
					c.AppliedRecords, c.Rows, c.ZeroWeightRows = 0, 0, 0
					counts.Add(c)
				}
				same := len(at.runs) == len(applied.runs) && (len(at.runs) == 0 || len(at.runs[len(at.runs)-1].rows) == len(applied.runs[len(applied.runs)-1].rows))
				if same && p.applied.next < p.at.Next {
					t.Fatalf("seed %d: position %d has been read, and no more rows than below %d, which is applied", seed, p.at.Next, p.applied.next)
				}
			}
			counts.BlocksAdded = int64(len(want)) + h.Counts().BlocksRetired
			counts.BlocksRetired = h.Counts().BlocksRetired
			records.Read = counts.AppliedRecords + counts.RejectedRecords + records.Pending
			records.Applied, records.Rejected, records.Undecoded, records.Lost, records.Gaps = counts.AppliedRecords, counts.RejectedRecords, counts.UndecodedRecords, counts.LostRecords, counts.Gaps
			rows.Read = counts.Rows + counts.ZeroWeightRows + counts.RejectedRows + rows.Pending
			rows.Summarised, rows.ZeroWeight, rows.Rejected = counts.Rows, counts.ZeroWeightRows, counts.RejectedRows
			h.compare(want, summaries)
			got := h.Report()
			if got.Counts != counts || got.Records != records || got.Rows != rows || !maps.Equal(got.Applied, positions) {
				t.Fatalf("seed %d: the report is\n%+v, not\n%+v, %+v, %+v, %+v", seed, got, counts, records, rows, positions)
			}
			var bytes int64
			for _, p := range h.partitions {
				if p.open != nil {
					bytes += p.open.rows.bytes()
				}
			}
			if h.gathered != bytes {
				t.Fatalf("seed %d: open runs take %d bytes, not %d", seed, h.gathered, bytes)
			}
		}
		flush := func() {
			h.noRoom = h.r.IntN(4) == 0
			grown := false
			for _, p := range h.partitions {
				grown = grown || p.open != nil && p.open.grown
			}
			all, err := h.Flush(t.Context())
			if err != nil || all != !(h.noRoom && grown) {
				t.Fatalf("seed %d: flushed all: %t, grown: %t, %v", seed, all, grown, err)
			}
			if h.noRoom = false; !all {
				if _, err := h.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for number, p := range h.partitions {
				if !p.rereads() && p.applied.next != p.at.Next {
					t.Fatalf("seed %d: partition %d is flushed up to %d of %d", seed, number, p.applied.next, p.at.Next)
				}
			}
		}
		for range 80 {
			partition := h.r.IntN(2)
			switch k := h.r.IntN(14); {
			case k < 8:
				from := next[partition]
				if h.r.IntN(6) == 0 {
					from = max(0, from-h.r.Int64N(6))
				}
				i, _ := slices.BinarySearchFunc(log[partition], from, func(y message, at int64) int { return cmp.Compare(y.Offset, at) })
				batch := slices.Clone(log[partition][i:])
				if n := 1 + h.r.IntN(6); len(batch) > n {
					batch = batch[:n]
				} else {
					for range h.r.IntN(6) {
						offset := next[partition] + h.r.Int64N(2)
						if all := log[partition]; len(all) > 0 {
							offset = max(offset, all[len(all)-1].Offset+1+h.r.Int64N(2))
						}
						y := randomMessage(h.r, offset, false)
						log[partition], batch = append(log[partition], y), append(batch, y)
					}
				}
				for len(batch) > 0 {
					n := slices.IndexFunc(batch, func(y message) bool { return (y.refused != nil) != (batch[0].refused != nil) })
					if n < 0 {
						n = len(batch)
					}
					to := batch[n-1].Offset + 1
					h.deliver(partition, batch[:n], to)
					next[partition] = max(next[partition], to)
					batch = batch[n:]
				}
			case k < 10:
				flush()
			case k == 10:
				h.save(position)
				savedDropped = dropped
				for number := range h.partitions {
					savedCuts[number] = slices.Clone(cuts[number])
				}
			case k == 11: // what was not saved comes again
				if h.restart(); h.r.IntN(2) == 0 {
					h.FreeFeatures()
				}
				cuts, dropped = map[int][]int64{}, savedDropped
				for number := range 2 {
					// A run that was open began there, so the one before it had ended.
					cuts[number] = append(slices.Clone(savedCuts[number]), h.saved[number].Next)
					next[number] = max(0, h.saved[number].Next)
					p := h.partitions[number]
					if p == nil || !p.rereads() {
						continue
					}
					rereads++
					if h.r.IntN(4) == 0 { // the log has lost them meanwhile
						lost++
						to := p.applied.next + h.r.Int64N(3)
						gap := &kafka.GapError{Topic: "t", Partition: number, Saved: p.at.Next, LogStart: to}
						dropped.Gaps++
						dropped.LostRecords += to - p.at.Next
						log[number] = slices.DeleteFunc(log[number], func(y message) bool { return y.Offset >= p.applied.next && y.Offset < to })
						cuts[number] = append(cuts[number], p.applied.next)
						h.jump(gap, to)
						next[number], bare[number] = to, to
					}
				}
			default:
				id := ""
				for e := range h.Live.Everything {
					if h.r.IntN(8) == 0 {
						id = e.ID
					}
				}
				for number := range 2 {
					if p := h.partitions[number]; p != nil && p.rereads() && (p.open != nil || h.r.IntN(2) == 0) {
						id = p.unfinished
					}
				}
				growing := false
				for number, p := range h.partitions {
					switch {
					case p.rereads() && p.unfinished == id && id != "":
						if cutRereads++; p.open != nil {
							cutMidway++
						}
						cuts[number] = append(cuts[number], p.applied.next)
						next[number], bare[number] = max(next[number], p.applied.next), p.applied.next
						growing = true
					case !p.rereads() && p.open != nil && p.open.first.String() == id:
						cuts[number] = append(cuts[number], p.at.Next)
						growing = true
					}
				}
				ended, err := h.EndBlocks(t.Context(), func(have string) bool { return have == id })
				if err != nil || ended != growing {
					t.Fatalf("seed %d: block %s was growing: %t, and ended: %t, %v", seed, id, growing, ended, err)
				}
			}
			check()
		}
	}
	if rereads < 40 || cutRereads < 10 || cutMidway == 0 || lost < 5 {
		t.Errorf("%d runs were read again, %d of them ended, %d of these half read, and %d lost: the histories do not reach what they should", rereads, cutRereads, cutMidway, lost)
	}
}

// A block that was growing, and whose first record the log does not have any more after a restart,
// is replaced by the one of the records that are left. So the counts add up to the live blocks.
func TestBlockWithoutItsFirstRecordIsReplaced(t *testing.T) {
	h := newHistory(t, 1, map[string]string{"blocks.unit": "offsets", "blocks.offsets": "100"})
	log := func() (all []kafka.Record) {
		for offset := range int64(3) {
			all = append(all, kafka.Record{Offset: offset, Time: time.UnixMilli(dayOne), Value: []byte(`{"label":"a","x":1,"y":2,"w":1}`)})
		}
		return all
	}
	if err := feed(t, h.Intake, true, log()...); err != nil {
		t.Fatal(err)
	}
	flush := func() {
		t.Helper()
		if all, err := h.Flush(t.Context()); !all || err != nil {
			t.Fatal(all, err)
		}
	}
	flush()
	c := h.Live.Change()
	c.Offsets, _ = h.TakeMoved()
	c.Counts, c.SavedAt = h.Counts(), time.UnixMilli(1)
	if _, err := h.store.Save(c); err != nil {
		t.Fatal(err)
	}
	h.Live.Saved(&c)
	for _, o := range c.Offsets {
		h.saved[o.Partition] = o
	}
	h.restart()

	y := newDelivery(kafka.NewBatch(0, log()[1:], kafka.Saved{Next: 3}))
	close(y.tasks[0].done)
	if err := h.Apply(t.Context(), y); err != nil {
		t.Fatal(err)
	}
	h.Release(y)
	flush()
	n := h.Report().Counts
	if _, ok := h.Live.Find("t/0/1"); !ok || h.Live.Blocks() != 1 {
		t.Errorf("the live blocks are %v", slices.Collect(h.Live.Everything))
	}
	if n.BlocksAdded != 2 || n.BlocksReplaced != 1 || n.BlocksRetired != 0 {
		t.Errorf("%d blocks were added, %d of them in place of others, and %d retired", n.BlocksAdded, n.BlocksReplaced, n.BlocksRetired)
	}
}
