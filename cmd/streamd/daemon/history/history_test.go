package history

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/model"
)

var start = time.Unix(1_800_000_000, 0) // the beginning of an interval of each span

// shown writes a history as one word for each interval: rate, correctness of both kinds, baselines,
// lag and memory.
func shown(m *model.History) string {
	var words []string
	for i := range m.Times {
		word := fmt.Sprint((m.Times[i] - start.Unix()) / m.Seconds)
		if m.RowsPerSecond[i] == nil {
			words = append(words, word+":none")
			continue
		}
		word += fmt.Sprintf(":%g", *m.RowsPerSecond[i])
		for _, share := range []*float64{m.Correctness[i], m.BalancedCorrectness[i], m.LargestClass[i], m.LastLabel[i]} {
			if share == nil {
				word += ",-"
			} else {
				word += fmt.Sprintf(",%g", *share)
			}
		}
		if m.Lag[i] == nil {
			word += ",-"
		} else {
			word += fmt.Sprintf(",%d", *m.Lag[i])
		}
		words = append(words, word+fmt.Sprintf(",%d", *m.Memory[i]))
	}
	return strings.Join(words, " ")
}

func TestRings(t *testing.T) {
	var h Rings
	at := func(seconds float64, s Sample) { h.Add(start.Add(time.Duration(seconds*float64(time.Second))), s) }
	now := start.Add(19 * time.Second)
	if got := shown(h.History(model.SpanMinutes, now)); got != "" {
		t.Errorf("nothing is shown as %q", got)
	}
	unknown := math.NaN()
	of := func(a, b int64) map[string]int64 { return map[string]int64{"a": a, "b": b} }
	at(0, Sample{Rows: 1000, Judged: 500, Right: 500, Repeats: 77, Classes: of(300, 200), Balanced: unknown, Lag: 7, Memory: 3}) // totals from before
	at(2, Sample{Rows: 1040, Judged: 510, Right: 505, Repeats: 77, Classes: of(303, 207), Balanced: unknown, Lag: 9, Memory: 1})
	at(4, Sample{Rows: 1100, Judged: 520, Right: 515, Repeats: 82, Classes: of(309, 211), Balanced: 0.25, Lag: 5, Memory: 2}) // 9 and 11 rows
	at(7, Sample{Rows: 1100, Judged: 520, Right: 515, Repeats: 82, Classes: of(309, 211), Balanced: 0.25, Lag: -1, Memory: 1})
	at(16, Sample{Rows: 18, Judged: 4, Right: 1, Repeats: 4, Classes: of(1, 2), Balanced: 0.5, Lag: 0, Memory: 4}) // totals restart
	at(18, Sample{Rows: 38, Judged: 8, Right: 4, Repeats: 5, Classes: of(1, 5), Balanced: 0.5, Lag: 0, Memory: 4})
	want := "0:25,0.75,0.25,0.55,0.25,9,2 1:0,-,-,-,-,-,1 2:none 3:" + fmt.Sprint(20.0/11) + ",0.75,0.5,0.75,0.25,0,4"
	if got := shown(h.History(model.SpanMinutes, now)); got != want {
		t.Errorf("minutes: %s, want %s", got, want)
	}
	want = "0:" + fmt.Sprint(120.0/18) + "," + fmt.Sprint(18.0/24) + ",0.5," + fmt.Sprint(14.0/24) + ",0.25,9,4"
	for _, span := range []model.Span{model.SpanHours, model.SpanDays} {
		if got := shown(h.History(span, now)); got != want {
			t.Errorf("%s: %s, want %s", span, got, want)
		}
	}
}

// A ring drops intervals that are older than its length, also after a long pause, and
// those in the future after the clock has been set back.
func TestRingsForget(t *testing.T) {
	var h Rings
	// at adds a sample of a second in an interval, and lists the intervals that have
	// samples.
	at := func(interval int64) string {
		now := start.Add(time.Duration(interval) * 5 * time.Second)
		h.lastAt = time.Time{}
		h.Add(now, Sample{})
		h.Add(now.Add(time.Second), Sample{Rows: 1, Balanced: math.NaN()})
		m := h.History(model.SpanMinutes, now)
		var known []int64
		for i, at := range m.Times {
			if m.Memory[i] != nil {
				known = append(known, (at-start.Unix())/5)
			}
		}
		if len(known) > 3 {
			return fmt.Sprintf("%d: %d to %d", len(known), known[0], known[len(known)-1])
		}
		return fmt.Sprint(known)
	}
	for i := range int64(2 * intervals) {
		if first := max(0, i-intervals+1); i > 3 {
			if got, want := at(i), fmt.Sprintf("%d: %d to %d", i-first+1, first, i); got != want {
				t.Fatalf("interval %d: %s, want %s", i, got, want)
			}
		} else {
			at(i)
		}
	}
	for _, c := range []struct {
		interval int64
		want     string
	}{
		{3*intervals - 3, "[718 719 1077]"},
		{100 * intervals, "[36000]"},
		{100*intervals + 10, "[36000 36010]"},
		{100*intervals + 3, "[36000 36003]"}, // the clock is set back
		{100*intervals + 12, "[36000 36003 36012]"},
		{5, "[5]"}, // by more than the ring is long
		{6, "[5 6]"},
	} {
		if got := at(c.interval); got != c.want {
			t.Errorf("interval %d: %s, want %s", c.interval, got, c.want)
		}
	}
}

// A history ends now, even if samples have stopped.
func TestHistoryEndsNow(t *testing.T) {
	var h Rings
	h.Add(start, Sample{})
	h.Add(start.Add(time.Second), Sample{Rows: 1, Balanced: math.NaN(), Lag: -1, Memory: 1})
	if got := shown(h.History(model.SpanMinutes, start.Add(14*time.Second))); got != "0:1,-,-,-,-,-,1 1:none 2:none" {
		t.Errorf("it is %s", got)
	}
	if got := shown(h.History(model.SpanMinutes, start.Add(intervals*5*time.Second))); got != "" {
		t.Errorf("it is %s", got)
	}
}

// A saved record restores the rings, and further samples can be added.
func TestRecord(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var h Rings
	var s Sample
	now := start
	for range 3000 {
		now = now.Add(time.Duration(random.ExpFloat64() * float64(20*time.Second)))
		judged := random.Int64N(100)
		first := random.Int64N(judged + 1)
		s = Sample{
			Rows: s.Rows + random.Int64N(1e6), Judged: s.Judged + judged, Right: s.Right + random.Int64N(judged+1), Repeats: s.Repeats + random.Int64N(judged+1),
			Classes:  map[string]int64{"a": s.Classes["a"] + first, "b": s.Classes["b"] + judged - first},
			Balanced: random.Float64(), Lag: random.Int64N(9) - 1, Memory: random.Int64N(1e9),
		}
		h.Add(now, s)
	}
	record := h.AppendBinary([]byte("x"))[1:]
	if len(record) != Size {
		t.Fatalf("%d bytes, not %d", len(record), Size)
	}
	again, err := Decode(record)
	if err != nil || !bytes.Equal(again.AppendBinary(nil), record) {
		t.Fatalf("the record does not come back: %v", err)
	}
	for _, span := range []model.Span{model.SpanMinutes, model.SpanHours, model.SpanDays} {
		if got, want := shown(again.History(span, now)), shown(h.History(span, now)); got != want || got == "" {
			t.Errorf("%s: %s\nnot %s", span, got, want)
		}
	}
	again.Add(now.Add(time.Hour), s)
	again.Add(now.Add(time.Hour+time.Second), s)
	if m := again.History(model.SpanHours, now.Add(time.Hour)); *m.RowsPerSecond[len(m.Times)-1] != 0 || slices.Index(m.RowsPerSecond, nil) < 0 {
		t.Errorf("after a restart: %s", shown(m))
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := new(Rings).AppendBinary(nil)
	if _, err := Decode(good); err != nil {
		t.Fatal(err)
	}
	put := func(at int, x uint64) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint64(b[at:], x)
		return b
	}
	negative := uint64(math.MaxUint64)
	for name, b := range map[string][]byte{
		"empty": {}, "short": good[:len(good)-1], "long": append(bytes.Clone(good), 0), "version": put(0, 1),
		"last": put(4, negative), "last is late": put(4, math.MaxInt64), "covered": put(12, negative), "covered is long": put(12, math.MaxInt64),
		"rows": put(20, negative), "right": put(36, 1), "largest": put(44, 1), "repeats": put(52, negative), "balanced": put(60, math.Float64bits(math.Inf(1))), "lag": put(68, negative-1), "memory": put(76, negative),
	} {
		if _, err := Decode(b); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// The rows of a class that the model does not have any more are forgotten, and those before a
// restart count for the class that is the largest after it.
func TestLargestClass(t *testing.T) {
	share := func(h *Rings, at int) string {
		m := h.History(model.SpanHours, start.Add(time.Duration(at)*time.Second))
		return fmt.Sprint(*m.LargestClass[len(m.Times)-1])
	}
	var h Rings
	at := func(seconds int, judged int64, classes map[string]int64) {
		h.Add(start.Add(time.Duration(seconds)*time.Second), Sample{Judged: judged, Classes: classes, Balanced: math.NaN()})
	}
	at(0, 0, map[string]int64{"a": 0, "b": 0})
	at(1, 10, map[string]int64{"a": 4, "b": 6})
	at(2, 20, map[string]int64{"a": 12, "b": 8})
	if got := share(&h, 2); got != "0.6" {
		t.Errorf("the share of the largest class is %s", got)
	}
	again, err := Decode(h.AppendBinary(nil))
	if err != nil {
		t.Fatal(err)
	}
	h = *again
	at(3, 20, map[string]int64{"a": 12, "b": 8})
	at(4, 30, map[string]int64{"a": 14, "b": 16}) // 8 of b
	if got := share(&h, 4); got != fmt.Sprint(20.0/30) {
		t.Errorf("after a restart it is %s", got)
	}
	at(5, 40, map[string]int64{"a": 17, "new": 7})
	if got := share(&h, 5); got != fmt.Sprint(19.0/40) {
		t.Errorf("without a class it is %s", got)
	}
	at(6, 40, nil)
	if got := share(&h, 6); got != fmt.Sprint(12.0/40) {
		t.Errorf("without classes it is %s", got)
	}
}
