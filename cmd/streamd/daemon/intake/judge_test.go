package intake

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/kafka"
)

// The window says how many records its models were behind the rows that they judged.
func TestModelsAreBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p record
		by := &model.Classifier{Model: &incremental.Model{Classes: []string{"a", "b"}}}
		classes := by.Model.Classes
		if a := p.answer(classes, 0); a.Behind != nil {
			t.Errorf("%v records behind without a row", *a.Behind)
		}
		p.add(judgement{by: by, rulings: make([]ruling, 30), behind: 2})
		p.add(judgement{by: by, rulings: make([]ruling, 10), behind: 6})
		if a := p.answer(classes, 0); *a.Behind != 3 {
			t.Errorf("%v records behind, want 3", *a.Behind)
		}
		for range 2 { // both halves are new ones then
			p.add(judgement{by: by, rulings: make([]ruling, latestRows), behind: 5})
			time.Sleep(2 * latestTime)
		}
		p.add(judgement{by: by, rulings: make([]ruling, 1), behind: 5})
		if a := p.answer(classes, 0); *a.Behind != 5 {
			t.Errorf("%v records behind, want 5", *a.Behind)
		}
	})
}

// The latest judgements are at least 10,000 rows of at least a minute, and at most twice as
// many rows.
func TestLatestJudgements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p record
		by := &model.Classifier{Model: &incremental.Model{Classes: []string{"a", "b", "c"}}}
		add := func(class string, rows, right int64) {
			of := int32(class[0] - 'a')
			var rulings []ruling
			for i := range rows {
				answer := of
				if i >= right {
					answer = 1
				}
				rulings = append(rulings, ruling{class: of, answer: answer})
			}
			p.add(judgement{by: by, rulings: rulings})
		}
		check := func(rows, right, recent int64, correct, balanced float64) {
			t.Helper()
			got := p.answer(by.Model.Classes, 0)
			if w := got.Window; got.Rows != rows || got.Right != right || w.Weight != float64(recent) || math.Abs(w.Correctness-correct) > 1e-15 || math.Abs(w.BalancedCorrectness-balanced) > 1e-15 {
				t.Errorf("%d, %d, %+v, want %d, %d, %d, %v, %v", got.Rows, got.Right, w, rows, right, recent, correct, balanced)
			}
		}
		add("a", latestRows, latestRows)
		add("c", latestRows, 0) // within the minute
		check(2*latestRows, latestRows, 2*latestRows, 0.5, 0.5)
		time.Sleep(latestTime)
		add("a", latestRows-1, 0)
		check(3*latestRows-1, latestRows, 3*latestRows-1, float64(latestRows)/(3*latestRows-1), float64(latestRows)/(2*latestRows-1)/2)
		time.Sleep(latestTime)
		add("a", 1, 0) // there are not enough yet
		check(3*latestRows, latestRows, 3*latestRows, 1./3, 0.25)
		add("a", 5, 5) // now what came first is forgotten, and class c
		check(3*latestRows+5, latestRows+5, latestRows+5, 5./(latestRows+5), 5./(latestRows+5))
	})
}

// The rows of slow blocks are all judged. The time of many blocks, or of those of a large model,
// pays for some of their rows. Which ones depends on the position of the block alone.
func TestJudgementsAreFew(t *testing.T) {
	if got := new(allowance).take(1, 10); got != 1 {
		t.Errorf("of a block of one row %d are judged", got)
	}
	for _, test := range []struct {
		features, planes, rows, blocks int
		every                          time.Duration // between blocks
		want                           int
	}{
		{10, 1, 100, 3, time.Second, 300},
		{10, 1, 20_000, 3, time.Second, 60_000},
		{10, 1, 200_000, 3, time.Second, 3 * ((mostCredit - judgedCall) / (10 + judgedRow))},
		{100, 100, 1000, 5, time.Second, 5 * ((mostCredit - judgedCall) / (10_000 + judgedRow))},
		{10, 1, 20_000, 11, 10 * time.Millisecond, 20_000*3 + (mostCredit+10*secondCredit/100-3*20_000*(10+judgedRow)-11*judgedCall)/(10+judgedRow)},
		{1000, 100, 1000, 2, time.Millisecond, 84},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &incremental.Block{Classes: []string{"c0"}, Codes: make([]int32, test.rows)}
			for range test.features {
				b.Columns = append(b.Columns, gram.ColumnOf(make([]float64, test.rows)))
			}
			m := &incremental.Model{Features: incremental.DefaultFeatures(test.features)}
			for i := range max(2, test.planes) {
				m.Classes = append(m.Classes, fmt.Sprintf("c%d", i))
			}
			for _, class := range m.Classes[:test.planes] {
				m.Planes = append(m.Planes, incremental.Plane{Class: class, W: make([]float64, test.features)})
			}
			served := &model.Served{Model: m}
			var j, again judge
			var of allowance
			judged := 0
			for i := range test.blocks {
				if y := j.rows(b, &model.Served{}, &of, 0, 0); y.rulings != nil {
					t.Fatal("rows are judged without a model")
				}
				y := j.rows(b, served, &of, 3, int64(i))
				judged += len(y.rulings)
				if len(y.rulings) > 0 {
					again.draw(test.rows, len(y.rulings), 3, int64(i))
					if !slices.Equal(j.at, again.at) || int(slices.Max(j.at)) >= test.rows {
						t.Errorf("%+v: block %d: other rows are judged the second time", test, i)
					}
					slices.Sort(again.at)
					if len(slices.Compact(again.at)) != len(y.rulings) {
						t.Errorf("%+v: block %d: a row is judged twice", test, i)
					}
				}
				time.Sleep(test.every)
			}
			if judged > test.want || judged < test.want-test.blocks {
				t.Errorf("%+v: %d rows are judged", test, judged)
			}
		})
	}
}

// Labels that the model of now does not have are in no answer.
func TestJudgementsForgetLabels(t *testing.T) {
	var p record
	p.add(judgement{by: &model.Classifier{Model: &incremental.Model{Classes: []string{"a", "secret"}}}, rulings: []ruling{{class: 0}, {class: 1, answer: 1}, {class: 1}}})
	got := p.answer([]string{"a", "b"}, 0)
	if got.Rows != 3 || got.Window.Weight != 1 || got.Fading.Classes[1].Class != "b" || got.Window.Classes[1].Weight != 0 {
		t.Errorf("%+v, %+v", got.Window, got.Fading)
	}
	for range 2 {
		if got := p.answer(nil, 0); got.Rows != 3 || got.Window != nil || got.Fading != nil {
			t.Errorf("without a model %+v", got)
		}
	}
}

// A row without a label cannot be judged.
func TestUnlabelledRowsAreNotJudged(t *testing.T) {
	b := &incremental.Block{
		Classes: []string{incremental.Unlabelled, "c0"}, Codes: []int32{0, 1, 0, 0, 1},
		Columns: []gram.Column{gram.ColumnOf([]float64{1, 2, 3, 4, 5})},
	}
	m := &incremental.Model{Features: []string{"x"}, Classes: []string{"c0", "c1"}, Planes: []incremental.Plane{{Class: "c1", W: []float64{-1}}}}
	var j judge
	var p record
	p.add(j.rows(b, &model.Served{Model: m}, new(allowance), 0, 0))
	if got := p.answer(m.Classes, 0); got.Rows != 2 || got.Right != 2 || got.Window.Weight != 2 {
		t.Errorf("%+v, want both rows with a label judged", got)
	}
}

func BenchmarkJudge(b *testing.B) {
	const n, rows = 10, 20_000
	block := &incremental.Block{Classes: []string{"a", "b"}, Codes: make([]int32, rows)}
	for range n {
		block.Columns = append(block.Columns, gram.ColumnOf(make([]float32, rows)))
	}
	served := &model.Served{Model: &incremental.Model{
		Features: incremental.DefaultFeatures(n), Classes: []string{"a", "b"}, Planes: []incremental.Plane{{Class: "b", W: make([]float64, n)}},
	}}
	var j judge
	var p record
	b.ReportAllocs()
	judged := 0
	for b.Loop() {
		y := j.rows(block, served, &allowance{}, 0, 0)
		p.add(y)
		judged += len(y.rulings)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(judged), "ns/row")
}

// A partition none of whose rows has met planes yet has its count of them, and no shares. Later
// ones have the rows that planes have judged.
func TestProgressOfAPartition(t *testing.T) {
	in := stored(t, nil, map[string]string{"drift.every": "2", "format.features": "x"}, "x")
	take := func(label string, x int) *model.Progressive {
		t.Helper()
		if err := feed(t, in, false, kafka.Record{Value: fmt.Appendf(nil, `{"label":%q,"x":%d}`, label, x), Time: time.UnixMilli(1)}); err != nil {
			t.Fatal(err)
		}
		return in.record.answer([]string{"a", "b"}, 2).Progressive
	}
	take("a", 1)
	want := model.Progressive{Every: 2, Waited: 2, Solves: 1, Partitions: []model.ProgressivePartition{{Waited: 2, Solves: 1}}}
	if got := take("b", 5); !reflect.DeepEqual(*got, want) {
		t.Errorf("the figures are %+v, want %+v", *got, want)
	}
	if p := take("b", 6).Partitions[0]; p.Rows != 1 || p.Correctness == nil || *p.Correctness != 1 || *p.LastLabel != 1 {
		t.Errorf("after a judged row the figures are %+v", p)
	}
}

// The last label of a partition is saved, so that a restart compares the next row with it.
func TestLastLabelsOfPartitions(t *testing.T) {
	for _, unit := range []string{"message", "key"} {
		in := stored(t, nil, map[string]string{"blocks.unit": unit, "format.features": "x"}, "x")
		for _, label := range []string{"a", "b"} {
			if err := feed(t, in, false, kafka.Record{Key: []byte(label), Value: fmt.Appendf(nil, `{"label":%q,"x":1}`, label), Time: time.UnixMilli(1)}); err != nil {
				t.Fatal(err)
			}
		}
		if got := in.LastLabels(); !maps.Equal(got, map[int]string{0: "b"}) {
			t.Errorf("blocks by %s: the last labels are %v, want b", unit, got)
		}
	}
}
