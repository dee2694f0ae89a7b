package daemon

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/retiring"
	"streamd/cmd/streamd/httpapi"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/retire"
)

// offlineFlags returns flags of a daemon without a broker.
func offlineFlags(t *testing.T, more map[string]string) map[string]string {
	flags := map[string]string{
		"kafka.topic": "t", "snapshot.file": filepath.Join(t.TempDir(), "streamd.db"), "dead_letters.policy": "skip",
		"format.features": "x1,x2", "format.weight": "v", "sample.rows": "0",
	}
	for k, v := range more {
		flags[k] = v
	}
	return flags
}

// after is a record with a row, at a time d after lawEpoch.
func after(offset int64, d time.Duration) kafka.Record {
	return kafka.Record{Offset: offset, Time: time.UnixMilli(lawEpoch).Add(d).UTC(),
		Value: fmt.Appendf(nil, `{"label":%d,"x1":%d,"x2":1,"v":1}`, offset%2, offset)}
}

// ids returns the ids of the live blocks, by rank.
func (o *offline) ids() []string { return slices.Collect(o.Live.IDs) }

// A record that is rejected, or whose rows all have weight 0, does not affect the time of a
// block, whether it is delivered with others or alone.
func TestTimeOfAGatheredBlock(t *testing.T) {
	unusable := after(1, 9*time.Second)
	for name, value := range map[string]string{"bad": `{"label":1,"x1":1}`, "weightless": `{"label":1,"x1":1,"x2":1,"v":0}`} {
		t.Run(name, func(t *testing.T) {
			unusable.Value = []byte(value)
			records := []kafka.Record{after(0, 2*time.Second), unusable, after(2, time.Second)}
			flags := map[string]string{"blocks.unit": "time", "blocks.period": "10s", "retire.keep": "age", "retire.age": "5s"}
			for _, atOnce := range []bool{true, false} {
				o := openOffline(t, offlineFlags(t, flags), false)
				if atOnce {
					o.deliver(0, records, 3)
				} else {
					for i, r := range records {
						o.deliver(0, []kafka.Record{r}, int64(i)+1)
						o.FlushRuns()
					}
				}
				o.FlushRuns()
				want := retire.Entry{ID: "t/0/0", Position: incremental.Position{Topic: "t"}, Last: 2, Time: records[0].Time, Rows: 2}
				if got := o.Live.Page(retire.Lowest, math.MaxInt); !slices.Equal(got, []retire.Entry{want}) {
					t.Errorf("at once: %t: %v, want %v", atOnce, got, want)
				}
				o.Store.Close()
			}
		})
	}
}

// Answers name the offsets of the live set. Rows of the open run alone do not count. A
// restart changes nothing, also when the window has moved on and the open run is read
// again.
func TestOffsetsOfAGrowingBlock(t *testing.T) {
	o := openOffline(t, offlineFlags(t, map[string]string{
		"blocks.unit": "offsets", "blocks.offsets": "4", "retire.keep": "blocks", "retire.blocks": "2",
	}), false)
	var records []kafka.Record
	for i := range int64(12) {
		records = append(records, after(i, time.Duration(i)*time.Second))
	}
	expect := func(when string, named int64, blocks ...string) {
		t.Helper()
		if got := o.named(); got[0] != named || !slices.Equal(o.ids(), blocks) {
			t.Errorf("%s: blocks %v at %v, want %v at %d", when, o.ids(), got, blocks, named)
		}
	}
	o.deliver(0, records[:10], 10)
	o.FlushRuns()
	expect("summarised", 10, "t/0/4", "t/0/8")
	o.deliver(0, records[10:11], 11)
	expect("one record more", 10, "t/0/4", "t/0/8")
	o.Saver.Save()
	if s := o.Saver.Info(); s.Offsets[0].Next != 10 || s.Resume[0].Next != 8 || s.Digest != o.Live.Digest() {
		t.Errorf("the file is said to be at %v, and to go on at %v", s.Offsets, s.Resume)
	}
	digest := o.Live.Digest()
	o = o.crash(false)
	if saved := o.resumes[0]; saved.Next != 8 || saved.Done != 10 {
		t.Errorf("reading goes on at %+v", saved)
	}
	for i, r := range records[8:10] {
		o.deliver(0, []kafka.Record{r}, r.Offset+1)
		o.FlushRuns()
		expect(fmt.Sprintf("%d records are read once more", i+1), 10, "t/0/4", "t/0/8")
		if o.Live.Digest() != digest {
			t.Error("the state is another one")
		}
	}
	o.deliver(0, records[10:], 12)
	o.FlushRuns()
	expect("all is read", 12, "t/0/4", "t/0/8")
	if e, _ := o.Live.Get("t/0/8"); e.Rows != 4 {
		t.Errorf("the block has %d rows", e.Rows)
	}
	o.Store.Close()
}

// After a compaction the log has only the latest values of keys. Therefore a value that
// cannot be used retires the one before it.
func TestBadValueOfAKey(t *testing.T) {
	bad := map[string][]byte{
		"payload":    []byte("{"),
		"width":      []byte(`{"label":1,"x1":1}`),
		"class":      []byte(`{"label":3,"x1":1,"x2":1,"v":1}`),
		"time":       []byte(`{"label":1,"x1":1,"x2":1,"v":1}`),
		"value size": fmt.Appendf(nil, `[%s{"label":1,"x1":1,"x2":1,"v":1}]`, strings.Repeat(`{"label":1,"x1":1,"x2":1,"v":1},`, 5)),
	}
	for name, value := range bad {
		t.Run(name, func(t *testing.T) {
			o := openOffline(t, offlineFlags(t, map[string]string{"blocks.unit": "key", "limits.classes": "2", "limits.rows": "5"}), false)
			record := func(offset int64, key string) kafka.Record {
				r := after(offset, 0)
				r.Key = []byte(key)
				return r
			}
			replacing := record(2, "a")
			replacing.Value = value
			if name == "time" {
				replacing.Time = time.UnixMilli(math.MaxInt64 / 2)
			}
			o.deliver(0, []kafka.Record{record(0, "a"), record(1, "b")}, 2)
			o.deliver(0, []kafka.Record{replacing}, 3)
			if got := o.ids(); !slices.Equal(got, []string{"key:b"}) {
				t.Errorf("live are %v", got)
			}
			c := o.Intake.Report().Counts
			if c.AppliedRecords+c.Tombstones != 2 || c.RejectedRecords != 1 || c.BlocksAdded != 2 || c.BlocksRetired != 1 {
				t.Errorf("counts %+v", c)
			}
			o.Store.Close()
		})
	}
}

// A record's time is capped at max_future after the clock of its partition. A record of the
// far future therefore retires nothing, and is itself live.
func TestEventTimeOfTheFuture(t *testing.T) {
	for _, keep := range []map[string]string{
		{"retire.keep": "age", "retire.age": "1h"},
		{"retire.keep": "blocks", "retire.blocks": "20"},
		{"retire.keep": "rows", "retire.rows": "20"},
	} {
		o := openOffline(t, offlineFlags(t, keep), false)
		var records []kafka.Record
		for i := range int64(12) {
			records = append(records, after(i, time.Duration(i)*time.Second))
		}
		records[10].Time = records[10].Time.Add(23 * time.Hour)
		o.deliver(0, records, 12)
		e, _ := o.Live.Get("t/0/10")
		if want := time.UnixMilli(lawEpoch).Add(8*time.Second + 5*time.Minute); len(o.ids()) != 12 || !e.Time.Equal(want) {
			t.Errorf("%v: live are %v, the one of the future of %s, want %s", keep, o.ids(), e.Time, want)
		}
		o.Store.Close()

		// Broker time (LogAppendTime) is not capped.
		o = openOffline(t, offlineFlags(t, keep), false)
		records[10].Appended = true
		o.deliver(0, records, 12)
		if e, _ := o.Live.Get("t/0/10"); !e.Time.Equal(records[10].Time) {
			t.Errorf("%v: the broker's time counts as %s", keep, e.Time)
		}
		o.Store.Close()
	}
}

// Enough records of the future advance the clock. After they are retired, blocks of today
// are accepted again.
func TestRetiredBlocksOfTheFutureRefuseNothing(t *testing.T) {
	o := openOffline(t, offlineFlags(t, map[string]string{"retire.keep": "age", "retire.age": "1h"}), false)
	for i := range int64(20) {
		r := after(i, time.Duration(i)*time.Second)
		if 10 <= i && i < 15 {
			r.Time = time.Date(2100, 1, 1, 0, 0, int(i), 0, time.UTC)
		}
		o.deliver(0, []kafka.Record{r}, i+1)
	}
	for i := range int64(manyTooOld) {
		o.deliver(0, []kafka.Record{after(20+i, 21*time.Second)}, 21+i)
	}
	live := o.ids()
	if len(live) != 3 {
		t.Fatalf("live are %v", live)
	}
	problem := func() bool {
		o.updateStatus()
		return slices.ContainsFunc(o.Problems.Present(), func(p httpapi.Problem) bool { return strings.Contains(p.Text, "blocks were retired as they came") })
	}
	if !problem() {
		t.Errorf("nothing is said of it: %q", o.Problems.Present())
	}
	for _, id := range live {
		if _, err := o.retireOne(id); err != nil {
			t.Fatal(err)
		}
	}
	o.deliver(0, []kafka.Record{after(120, time.Minute)}, 121)
	if got := o.ids(); !slices.Equal(got, []string{"t/0/120"}) || problem() {
		t.Errorf("live are %v, problems %q", got, o.Problems.Present())
	}
	o.Store.Close()
}

// A time after the year 9999 is refused. An older version's ledger may contain one, which
// is shown all the same.
func TestTimesThatAreNone(t *testing.T) {
	o := openOffline(t, offlineFlags(t, nil), false)
	defer o.Store.Close()
	none := after(0, 0)
	none.Time = time.UnixMilli(lawEpoch * 1000) // as if microseconds were taken for milliseconds
	o.deliver(0, []kafka.Record{none, after(1, 0)}, 2)
	if got := o.ids(); !slices.Equal(got, []string{"t/0/1"}) || o.Intake.Report().Counts.RejectedRecords != 1 {
		t.Errorf("live are %v, %+v", got, o.Intake.Report().Counts)
	}
	for _, ms := range []int64{lawEpoch * 1000, math.MaxInt64, math.MinInt64} {
		info := retiring.BlockInfo(retire.Entry{ID: "t/0/9", Time: time.UnixMilli(ms)})
		if _, err := json.Marshal(info); err != nil {
			t.Errorf("%d ms: %v", ms, err)
		}
	}
}

// With a half-life a block of the far future leaves the others without a weight, and that is told.
func TestHalfLifeAndABlockOfTheFuture(t *testing.T) {
	o := openOffline(t, offlineFlags(t, map[string]string{"blocks.unit": "message", "retire.half_life": "1s"}), false)
	defer o.Store.Close()
	told := func() bool {
		o.solved()
		o.updateStatus()
		return slices.ContainsFunc(o.Problems.Present(), func(p httpapi.Problem) bool {
			return strings.Contains(p.Text, "by retire.half_life 1 of the 5 live rows of the model have a weight") &&
				strings.HasPrefix(p.Detail, "the newest live block, of ") && strings.HasSuffix(p.Detail, " is t/0/0")
		})
	}
	o.deliver(0, []kafka.Record{after(0, time.Hour)}, 1) // there is no clock yet
	for i := range int64(4) {
		if told() {
			t.Errorf("%d blocks: %q", 1+i, o.Problems.Present())
		}
		o.deliver(0, []kafka.Record{after(1+i, time.Duration(i)*time.Millisecond)}, 2+i)
	}
	if !told() {
		t.Errorf("nothing is said of it: %q", o.Problems.Present())
	}
	if _, err := o.retireOne("t/0/0"); err != nil || told() {
		t.Errorf("%v, problems %q", err, o.Problems.Present())
	}
}
