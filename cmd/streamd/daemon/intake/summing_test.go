package intake

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"streamd/ingest/kafka"
)

// A stage counts records and rows as the daemon does that reads them itself.
func TestStageCountsAsTheDaemonDoes(t *testing.T) {
	refused := int64(0) // rows
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(84, seed))
		unit := []string{"message", "key", "offsets"}[seed%3]
		flags := map[string]string{"blocks.unit": unit, "format.features": "x,y", "format.weight": "w", "format.ignore": "ignored", "limits.classes": "5", "dead_letters.policy": "skip"}
		if unit == "offsets" { // and blocks depart meanwhile
			flags["blocks.offsets"], flags["retire.keep"], flags["retire.rows"] = "7", "rows", "30"
		}
		settings := ignoring(stored(t, nil, flags, "x", "y")).Settings
		settings.Ahead, settings.TooOld = &counter{}, &counter{}
		settings.Live.DepartAtOnce(0)
		in := New(settings)
		var records []kafka.Record
		for offset := range int64(200) {
			if y := randomMessage(r, offset, false); y.refused == nil {
				y.Offset = int64(len(records))
				records = append(records, y.Record)
			}
		}
		g := NewStage(in.Settings, 0)
		batch := kafka.NewBatch(0, append([]kafka.Record{}, records...), kafka.Saved{Next: int64(len(records))})
		s := g.Summing(0, kafka.Saved{}, in.partition(0).clock, &stageWriter{})
		if err := s.Take(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := feed(t, in, true, records...); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		type fates struct{ records, refused, without, rows, rowsRefused int64 }
		c, of := g.Counts(), in.Report()
		got := fates{c.Records.Load(), c.Rejected.Load(), c.Tombstones.Load(), c.Rows.Load() + c.ZeroWeight.Load(), c.RejectedRows.Load()}
		want := fates{of.Records.Read, of.Records.Rejected, of.Records.Tombstones, of.Rows.Read - of.Rows.Rejected, of.Rows.Rejected}
		if got != want {
			t.Errorf("seed %d: blocks by %s: the stage counts %+v, the daemon %+v", seed, unit, got, want)
		}
		refused += want.rowsRefused
	}
	if refused < 20 {
		t.Errorf("%d rows were refused: too few", refused)
	}
}

// Sums between rows end the run of the rows before them, and nothing of either is lost.
func TestSumsEndARun(t *testing.T) {
	flags := map[string]string{"blocks.unit": "offsets", "blocks.offsets": "7", "format.features": "x"}
	row := func(i int) kafka.Record {
		return kafka.Record{Offset: int64(i), Value: fmt.Appendf(nil, `{"label":%q,"x":%d}`, []string{"a", "b"}[i%2], i)}
	}
	flags["kafka.topic"] = "elsewhere"
	of := stored(t, nil, flags, "x")
	var all []kafka.Record
	for i := range 14 {
		all = append(all, row(i))
	}
	sums := &stageWriter{}
	s := NewStage(of.Settings, 0).Summing(0, kafka.Saved{}, of.partition(0).clock, sums)
	if err := s.Take(t.Context(), kafka.NewBatch(0, all, kafka.Saved{Next: 14})); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(sums.all) != 2 {
		t.Fatalf("the stage has written %d blocks, want 2", len(sums.all))
	}
	flags["kafka.topic"] = "t"
	in := stored(t, nil, flags, "x")
	if err := feed(t, in, true, row(0), row(1), sums.all[0], row(2), sums.all[1], row(3)); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for e := range in.Live.Everything {
		rows = append(rows, fmt.Sprint(e.ID, ": ", e.Rows))
	}
	slices.Sort(rows)
	if want := []string{"elsewhere/0/0: 7", "elsewhere/0/7: 7", "t/0/0: 2", "t/0/3: 1", "t/0/5: 1"}; !slices.Equal(rows, want) {
		t.Errorf("the blocks and their rows are %q, want %q", rows, want)
	}
	balances(t, in)
}

// A stage refuses rows for which a block that is not complete has no room. Those of the next block
// have the room again.
func TestStageHasRoomForRows(t *testing.T) {
	flags := map[string]string{"blocks.unit": "offsets", "blocks.offsets": "3", "format.features": "x", "dead_letters.policy": "skip"}
	of := stored(t, nil, flags, "x")
	of.Budget.Gathered = 8 * 3 * 100 // of a hundred rows: a number, a code and a weight each
	const rows = 60
	record := func(offset int64) kafka.Record {
		return kafka.Record{Offset: offset, Value: []byte("[" + strings.Repeat(`{"label":"a","x":1},`, rows-1) + `{"label":"b","x":2}]`)}
	}
	var all []kafka.Record
	for offset := range int64(6) {
		all = append(all, record(offset))
	}
	all[4].Value = []byte("[" + strings.Repeat(`{"label":"a","x":1},`, 2*rows) + `{"label":"b","x":2}]`) // more than there is room for
	g, sums := NewStage(of.Settings, 0), &stageWriter{}
	s := g.Summing(0, kafka.Saved{}, of.partition(0).clock, sums)
	if err := s.Take(t.Context(), kafka.NewBatch(0, all, kafka.Saved{Next: 6})); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := g.Counts(); c.Rejected.Load() != 4 || c.Rows.Load() != 2*rows || c.RejectedRows.Load() != 3*rows+2*rows+1 || len(sums.all) != 2 {
		t.Errorf("%d records are refused; %d rows are in %d blocks, %d are refused", c.Rejected.Load(), c.Rows.Load(), len(sums.all), c.RejectedRows.Load())
	}
}

// A TRUNCATE on the topic of labels is refused by its reason, with a key or without one.
func TestLabelsAreNotTruncated(t *testing.T) {
	s := newJoinSite(t, map[string]string{"kafka.topic": "t", "labels.topic": "l", "blocks.unit": "key", "format.envelope": "debezium", "format.features": "a"})
	for _, key := range [][]byte{nil, []byte(`{"id":1}`)} {
		l := s.labels.label(s.Config, 0, &kafka.Record{Key: key, Value: []byte(`{"source":{},"op":"t"}`)})
		if l.bad == nil || !strings.Contains(l.bad.Error(), "the topic is one of labels") {
			t.Errorf("with the key %q: %v", key, l.bad)
		}
	}
}

// A record that cannot be used ends no block, though it has as many rows as there may be: it counts
// with the block, as in the daemon.
func TestRefusedRecordsEndNoBlockOfAStage(t *testing.T) {
	of := stored(t, nil, map[string]string{"blocks.unit": "offsets", "blocks.offsets": "100", "format.features": "x", "dead_letters.policy": "skip", "limits.rows": "2"}, "x")
	var all []kafka.Record
	for offset, value := range []string{`[{"label":"a","x":1},{"label":"a","x":2}]`, `{"label":"a","x":1e300}`} {
		all = append(all, kafka.Record{Offset: int64(offset), Value: []byte(value)})
	}
	g := NewStage(of.Settings, 0)
	s := g.Summing(0, kafka.Saved{}, of.partition(0).clock, &stageWriter{})
	if err := s.Take(t.Context(), kafka.NewBatch(0, all, kafka.Saved{Next: 2})); err != nil {
		t.Fatal(err)
	}
	if c := g.Counts(); c.Rejected.Load() != 1 || c.Blocks.Load() != 0 || !s.Unwritten() || s.open.counts.RejectedRows != 1 {
		t.Errorf("%d records are refused, %d blocks complete, and rows wait: %t", c.Rejected.Load(), c.Blocks.Load(), s.Unwritten())
	}
}

// Rows of weight 0 are in no block of a stage, and are counted as such.
func TestRowsWithoutWeightAreNotGathered(t *testing.T) {
	of := stored(t, nil, map[string]string{"blocks.unit": "offsets", "blocks.offsets": "100", "format.features": "x", "format.weight": "w"}, "x")
	var all []kafka.Record
	for offset, value := range []string{`[{"label":"a","x":1,"w":1},{"label":"b","x":2,"w":0}]`, `{"label":"b","x":5,"w":0}`, `{"label":"b","x":7,"w":2}`} {
		all = append(all, kafka.Record{Offset: int64(offset), Value: []byte(value)})
	}
	g, sums := NewStage(of.Settings, 0), &stageWriter{}
	s := g.Summing(0, kafka.Saved{}, of.partition(0).clock, sums)
	err := s.Take(t.Context(), kafka.NewBatch(0, all, kafka.Saved{Next: 3}))
	if err == nil {
		err = s.Flush(t.Context())
	}
	if c := g.Counts(); err != nil || c.Rows.Load() != 2 || c.ZeroWeight.Load() != 2 || len(sums.all) != 1 || s.open.rows.Len() != 2 {
		t.Errorf("%d rows and %d of weight 0 in %d blocks, %v", c.Rows.Load(), c.ZeroWeight.Load(), len(sums.all), err)
	}
}
