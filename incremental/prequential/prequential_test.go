package prequential

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"streamd/incremental/confusion"
)

type row struct {
	class, answer int32
	loss          float64
	repeats       bool
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(b) }

// check compares figures with those counted anew, the last row weighing 1 and each one before
// alpha times the next.
func check(t *testing.T, what string, k int, f Figures, rows []row, alpha float64) {
	t.Helper()
	want := confusion.New(k)
	var loss, weight, all, repeats float64
	for i, x := range rows {
		w := math.Pow(alpha, float64(len(rows)-1-i))
		want.Add(x.class, x.answer, w)
		if all += w; x.repeats {
			repeats += w
		}
		if x.class >= 0 {
			loss, weight = loss+w*x.loss, weight+w
		}
	}
	got, expected := f.Matrix.Figures(), want.Figures()
	if !near(got.Weight, expected.Weight) || !near(got.Unknown, expected.Unknown) || !near(f.SquaredLoss, loss/weight) {
		t.Errorf("%s: weight %v, unknown %v, loss %v, not %v, %v, %v", what, got.Weight, got.Unknown, f.SquaredLoss, expected.Weight, expected.Unknown, loss/weight)
	}
	if !near(f.LastLabel, repeats/all) || !near(got.LargestClass, expected.LargestClass) || !near(got.Kappa, expected.Kappa) {
		t.Errorf("%s: baselines %v and %v, kappa %v, not %v, %v, %v", what, got.LargestClass, f.LastLabel, got.Kappa, expected.LargestClass, repeats/all, expected.Kappa)
	}
	rowsOf := f.Matrix.Rows(k)
	for class, row := range want.Rows(k) {
		for answer, w := range row {
			if g := rowsOf[class][answer]; math.Abs(g-w) > 1e-9 {
				t.Fatalf("%s: %v rows of class %d get the answer %d, not %v", what, g, class, answer, w)
			}
		}
	}
}

// The figures are those of counting the rows anew, also after the weights of fading have been
// scaled, for few classes and many.
func TestAgreesWithCounting(t *testing.T) {
	for _, k := range []int{2, 5, 70} {
		r := rand.New(rand.NewPCG(uint64(k), 1))
		classes := make([]string, k)
		for i := range classes {
			classes[i] = string(rune('0' + i))
		}
		var e Evaluation
		e.SetClasses(classes)
		var rows []row
		const half, all = 7000, 60_000 // the unit passes its limit twice
		for i := range all {
			if i%half == 0 {
				e.Turn()
			}
			x := row{int32(r.IntN(k+1) - 1), int32(r.IntN(k)), r.Float64(), r.IntN(3) > 0}
			rows = append(rows, x)
			e.Add(x.class, x.answer, x.loss, x.repeats)
		}
		check(t, "window", k, e.Window(), rows[all/half*half-half:], 1)
		check(t, "fading", k, e.Fading(), rows, Alpha)
		var right, repeats int64
		seen := map[string]int64{}
		for _, class := range classes {
			seen[class] = 0
		}
		for _, x := range rows {
			if x.class == x.answer {
				right++
			}
			if x.repeats {
				repeats++
			}
			if x.class >= 0 {
				seen[classes[x.class]]++
			}
		}
		if of, n := e.Seen(); n != repeats || !reflect.DeepEqual(of, seen) {
			t.Errorf("%v and %d repeats, not %v and %d", of, n, seen, repeats)
		}
		if n, ok := e.Totals(); n != all || ok != right {
			t.Errorf("%d of %d rows are right, not %d of %d", ok, n, right, all)
		}
	}
}

// After a change of classes, the counts are under the same labels as before. Those of a label
// that has gone are forgotten, and those of unknown classes stay.
func TestClassesChange(t *testing.T) {
	var e Evaluation
	if f := e.Window(); f.Matrix != nil || !math.IsNaN(f.SquaredLoss) || !math.IsNaN(f.LastLabel) {
		t.Errorf("without classes %+v", f)
	}
	e.Turn()
	e.SetClasses([]string{"a", "c"})
	e.Add(0, 0, 1, false)
	e.Add(0, 1, 1, false)
	e.Turn()
	e.Add(1, 1, 1, false)
	e.Add(-1, 0, 1, false)
	e.SetClasses([]string{"a", "b", "c"})
	if got, want := e.Window().Matrix.Rows(3), [][]float64{{1, 0, 1}, {0, 0, 0}, {0, 0, 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	e.SetClasses([]string{"c", "b"})
	if of, _ := e.Seen(); !reflect.DeepEqual(of, map[string]int64{"c": 1, "b": 0}) {
		t.Errorf("%v", of)
	}
	f := e.Window()
	if got, want := f.Matrix.Rows(2), [][]float64{{1, 0}, {0, 0}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if n, right := e.Totals(); n != 4 || right != 2 {
		t.Errorf("%d of %d rows are right", right, n)
	}
	e.SetClasses([]string{"a", "b", "c"})
	if got := e.Window().Matrix.Figures(); got.Weight != 1 || got.Classes[2].Right != 1 {
		t.Errorf("%+v", got)
	}
}

func TestSquaredError(t *testing.T) {
	for _, test := range []struct {
		values []float64
		class  int32
		want   float64
	}{
		{[]float64{0.5}, 1, 0.25},
		{[]float64{0.5}, 0, 2.25},
		{[]float64{1, 0, -1}, 0, 1. / 3},
		{[]float64{1, 0, -1}, 1, (4 + 1 + 0) / 3.},
	} {
		if got := SquaredError(test.values, test.class); math.Abs(got-test.want) > 1e-15 {
			t.Errorf("%v of class %d: %v, want %v", test.values, test.class, got, test.want)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	var e Evaluation
	e.SetClasses([]string{"a", "b"})
	b.ReportAllocs()
	for b.Loop() {
		e.Add(0, 1, 0.5, false)
	}
}

// One row of values that overflow leaves figures that are numbers.
func TestLossThatOverflows(t *testing.T) {
	for _, loss := range []float64{math.NaN(), math.Inf(1), math.MaxFloat64} {
		var e Evaluation
		e.SetClasses([]string{"a", "b"})
		for range 100_000 {
			e.Add(0, 1, loss, false)
		}
		e.Add(1, 1, 0.5, false)
		for _, f := range []Figures{e.Window(), e.Fading()} {
			if math.IsNaN(f.SquaredLoss) || math.IsInf(f.SquaredLoss, 0) || f.SquaredLoss < 1e80 {
				t.Errorf("loss %v: the mean is %v", loss, f.SquaredLoss)
			}
		}
	}
}
