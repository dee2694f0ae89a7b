package confusion

import (
	"cmp"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// near says whether a and b agree to rounding, or are both NaN.
func near(a, b float64) bool {
	return math.Abs(a-b) < 1e-15*8 || math.IsNaN(a) && math.IsNaN(b)
}

// The expected values are those of scikit-learn 1.9.1:
//
//	i = np.arange(40)
//	c, a = i % 4, (i % 4 + (i*5 % 9 > 5)*(i % 3)) % 4
//	a[a == 3] = 0  # the last class is never the answer
//	for v in (None, 1 + i % 3.):
//	    confusion_matrix(c, a, sample_weight=v)
//	    precision_recall_fscore_support(c, a, sample_weight=v, zero_division=np.nan)
//	    accuracy_score(c, a, sample_weight=v), balanced_accuracy_score(c, a, sample_weight=v)
//	    cohen_kappa_score(c, a, sample_weight=v)
func TestAgainstScikitLearn(t *testing.T) {
	nan := math.NaN()
	for _, want := range []struct {
		weighted              bool
		rows                  [][]float64
		precision, recall, f1 []float64
		correct, balanced     float64
		largest, kappa        float64
	}{
		{false, [][]float64{{8, 1, 1, 0}, {1, 8, 1, 0}, {2, 0, 8, 0}, {9, 1, 0, 0}},
			[]float64{0.4, 0.8, 0.8, nan}, []float64{0.8, 0.8, 0.8, 0}, []float64{0.5333333333333333, 0.8, 0.8, 0},
			0.6, 0.6000000000000001, 0.25, 0.4666666666666667},
		{true, [][]float64{{14, 2, 3, 0}, {3, 15, 2, 0}, {5, 0, 16, 0}, {16, 3, 0, 0}},
			[]float64{0.3684210526315789, 0.75, 0.7619047619047619, nan}, []float64{0.7368421052631579, 0.75, 0.7619047619047619, 0},
			[]float64{0.49122807017543857, 0.75, 0.7619047619047619, 0},
			0.569620253164557, 0.56218671679198, 0.26582278481012656, 0.4258230012825994},
	} {
		m := New(4)
		for i := range int32(40) {
			class, answer := i%4, i%4
			if i*5%9 > 5 {
				answer = (i%4 + i%3) % 4
			}
			if answer == 3 {
				answer = 0
			}
			weight := 1.0
			if want.weighted {
				weight = 1 + float64(i%3)
			}
			m.Add(class, answer, weight)
		}
		if got := m.Rows(4); !reflect.DeepEqual(got, want.rows) {
			t.Errorf("matrix %v, not %v", got, want.rows)
		}
		f := m.Figures()
		for c, got := range f.Classes {
			if !near(got.Precision, want.precision[c]) || !near(got.Recall, want.recall[c]) || !near(got.F1, want.f1[c]) {
				t.Errorf("class %d: %+v, not %v, %v, %v", c, got, want.precision[c], want.recall[c], want.f1[c])
			}
		}
		if !near(f.Correctness, want.correct) || !near(f.BalancedCorrectness, want.balanced) {
			t.Errorf("%v, balanced %v, not %v, %v", f.Correctness, f.BalancedCorrectness, want.correct, want.balanced)
		}
		if !near(f.LargestClass, want.largest) || !near(f.Kappa, want.kappa) {
			t.Errorf("largest class %v, kappa %v, not %v, %v", f.LargestClass, f.Kappa, want.largest, want.kappa)
		}
		if m.Rows(3) != nil {
			t.Error("a matrix of more classes than wanted")
		}
	}
}

// Figures agree with counting the rows for each class anew, for few classes and many, in
// parts and as a whole.
func TestFiguresAgreeWithCounting(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	for _, k := range []int{2, 3, mostDense, mostDense + 1, 500} {
		type row struct {
			class, answer int32
			weight        float64
		}
		var rows []row
		whole, parts := New(k), New(k)
		for range 20 {
			part := New(k)
			for range 100 {
				// Class 0 is never the answer, and the last class has no rows.
				x := row{int32(r.IntN(k)) - 1, 1 + int32(r.IntN(k-1)), float64(r.IntN(4))}
				if x.class > 0 && r.IntN(2) == 0 {
					x.answer = x.class
				}
				rows = append(rows, x)
				whole.Add(x.class, x.answer, x.weight)
				part.Add(x.class, x.answer, x.weight)
			}
			parts.Merge(part)
		}
		count := func(of func(row) bool) (sum float64) {
			for _, x := range rows {
				if of(x) {
					sum += x.weight
				}
			}
			return sum
		}
		f := whole.Figures()
		g := parts.Figures()
		var recalls, seen float64
		for c := range int32(k) {
			in, out := count(func(x row) bool { return x.class == c }), count(func(x row) bool { return x.answer == c })
			right := count(func(x row) bool { return x.class == c && x.answer == c })
			got := f.Classes[c]
			if got.Rows != in || got.Answers != out || got.Right != right || got.Recall != right/in && in > 0 || got.Precision != right/out && out > 0 {
				t.Fatalf("%d classes, class %d: %+v, not %v, %v, %v", k, c, got, in, out, right)
			}
			if same := g.Classes[c]; same.Rows != in || same.Answers != out || same.Right != right {
				t.Fatalf("%d classes, class %d: in parts %+v, not %+v", k, c, same, got)
			}
			if in > 0 {
				recalls, seen = recalls+right/in, seen+1
			}
		}
		if all := count(func(row) bool { return true }); f.Weight != all || f.Unknown != count(func(x row) bool { return x.class < 0 }) ||
			f.Correctness != count(func(x row) bool { return x.class == x.answer })/all || !near(f.BalancedCorrectness, recalls/seen) {
			t.Errorf("%d classes: %v, %v, %v, %v", k, f.Weight, f.Unknown, f.Correctness, f.BalancedCorrectness)
		}
		mistakes := whole.Mistakes(10)
		if len(mistakes) == 0 || !slices.IsSortedFunc(mistakes, func(a, b Mistake) int { return cmp.Compare(b.Weight, a.Weight) }) {
			t.Errorf("%d classes: mistakes %v", k, mistakes)
		}
		for _, x := range mistakes {
			if w := count(func(y row) bool { return int(y.class) == x.Class && int(y.answer) == x.Answer }); w != x.Weight || x.Class == x.Answer {
				t.Errorf("%d classes: %+v has %v", k, x, w)
			}
		}
		least := mistakes[len(mistakes)-1].Weight
		larger := 0
		for c, row := range whole.Rows(k) {
			for a, w := range row {
				if c != a && w > least {
					larger++
				}
			}
		}
		if larger >= 10 {
			t.Errorf("%d classes: %d mistakes are larger than the tenth", k, larger)
		}
	}
}

// Nothing was counted.
func TestEmpty(t *testing.T) {
	f := New(2).Figures()
	if !math.IsNaN(f.Correctness) || !math.IsNaN(f.BalancedCorrectness) || !math.IsNaN(f.Classes[1].Precision) {
		t.Errorf("%+v", f)
	}
}

// A baseline that is always right leaves nothing to measure against. One that is always wrong
// leaves the correctness itself.
func TestKappa(t *testing.T) {
	for _, x := range []struct{ correctness, baseline, want float64 }{
		{1, 0.5, 1}, {0.5, 0.5, 0}, {0.25, 0.5, -0.5}, {0.75, 0, 0.75}, {1, 1, math.NaN()}, {0.5, 1, math.NaN()},
	} {
		if got := Kappa(x.correctness, x.baseline); !near(got, x.want) {
			t.Errorf("%v beside %v: %v, not %v", x.correctness, x.baseline, got, x.want)
		}
	}
	m := New(2) // all rows are of one class, which is always the answer
	m.Add(1, 1, 3)
	if f := m.Figures(); f.LargestClass != 1 || !math.IsNaN(f.Kappa) {
		t.Errorf("%+v", f)
	}
	m.Add(-1, 1, 1) // a class that the classifier does not know is wrong, and no largest class
	if f := m.Figures(); f.LargestClass != 0.75 || f.Kappa != 0 {
		t.Errorf("%+v", f)
	}
}
