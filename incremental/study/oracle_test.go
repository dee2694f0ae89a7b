package study

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/incremental/decision"
	"streamd/incremental/gram"
	"streamd/incremental/newton"
	"streamd/incremental/sample"
	"streamd/incremental/tuning"
)

// solvedOf is a study of rows with planes.
func solvedOf(t *testing.T, l *live, o Options) *Study {
	t.Helper()
	o.Planes.Nu = cmp.Or(o.Planes.Nu, 1)
	s := New(&l.Problem, o)
	if _, err := s.Solve(); err != nil {
		t.Fatal(err)
	}
	return s
}

// someClasses are blocks of two classes, or of three.
func someClasses(blocks, rows, classes int) []*incremental.Block {
	all := overlapping(blocks, rows)
	if classes == 2 {
		for _, b := range all {
			for i, code := range b.Codes {
				b.Codes[i] = code / 2 * 2
			}
		}
	}
	return all
}

func (h *HeldOut) foldOf(row int) int {
	return slices.IndexFunc(h.folds, func(in span) bool { return in.from <= row && row < in.to })
}

// The figures of a calibration are those of each row by the curves of the other folds, as are those
// of the values without one. The curves are the ones of least log loss, of all kinds that Auto may
// take.
func TestCalibrationsAreJudgedByOtherFolds(t *testing.T) {
	kinds := map[string]int{}
	for i, size := range []int{12, 10, 20, 60, 100, 20, 60, 100} {
		for _, classes := range []int{2, 3} {
			l := newLive(t, someClasses(20, size, classes), 4, everyRow, nil)
			h, err := solvedOf(t, l, Options{}).HoldOut(t.Context(), l.sample(), everyRow)
			if err != nil {
				t.Fatal(err)
			}
			planes := len(h.model.Planes)
			if i >= 4 { // values that no sigmoid of one plane fits
				for row := range h.codes {
					values := h.values[row*planes:][:planes]
					mixed := slices.Clone(values)
					for p, v := range mixed {
						values[p] = 3*v + float64(i-4)*mixed[(p+1)%planes]
						if planes == 1 {
							values[p] = math.Pow(v, 5)
						}
					}
				}
			}
			judge := func(curves func(fold int) []calibration.Curve) (r Reliability) {
				all, err := calibration.MeasureClasses(classes, func(dst []float64, row int) {
					calibration.Probabilities(dst, curves(h.foldOf(row)), h.values[row*planes:][:planes])
				}, h.codes, h.weight, 10)
				if err != nil {
					t.Fatal(err)
				}
				if r.All = all; planes == 1 {
					return Reliability{all, []calibration.Reliability{all}}
				}
				for p := range planes {
					var probabilities []float64
					var is []bool
					for row, code := range h.codes {
						c, values := curves(h.foldOf(row)), h.values[row*planes:][:planes]
						one := make([]float64, planes)
						if calibration.Joint(c) {
							calibration.Apart(one, c, values)
						} else {
							one[p] = c[p].Probability(values[p])
						}
						probabilities, is = append(probabilities, one[p]), append(is, int(code) == p)
					}
					of, err := calibration.Measure(probabilities, is, h.weight, 10)
					if err != nil {
						t.Fatal(err)
					}
					r.Planes = append(r.Planes, of)
				}
				return r
			}
			var candidates []*Calibrated
			for _, kind := range []Curves{Platt, Isotonic} {
				c, err := h.Calibrate(t.Context(), kind)
				if err != nil {
					t.Fatal(err)
				}
				if candidates = append(candidates, c); kind == Isotonic && len(h.codes) < 1000 {
					candidates = candidates[:1]
				}
			}
			names := []string{"platt", "isotonic"}[:len(candidates)]
			if classes == 3 {
				var joint []*Calibrated
				for _, shrink := range []float64{10, 100, 1000} {
					c, err := h.softmax(t.Context(), shrink)
					if err != nil {
						t.Fatal(err)
					}
					joint, names = append(joint, c), append(names, fmt.Sprint("softmax ", shrink))
				}
				candidates = append(candidates, joint...)
				got, err := h.Calibrate(t.Context(), Softmax)
				if err != nil {
					t.Fatal(err)
				}
				if want := leastLoss(joint); !reflect.DeepEqual(got, joint[want]) {
					t.Errorf("%d rows: softmax is not the best of its shrinkages", len(h.codes))
				}
			} else if _, err := h.Calibrate(t.Context(), Softmax); err == nil {
				t.Error("softmax of two classes")
			}
			got, err := h.Calibrate(t.Context(), Auto)
			if err != nil {
				t.Fatal(err)
			}
			best := leastLoss(candidates)
			if kinds[names[best]]++; !reflect.DeepEqual(got, candidates[best]) {
				t.Errorf("%d rows of %d classes: kind %v, and %s is the best", len(h.codes), classes, got.Kind, names[best])
			}
			temperature, err := h.temperature(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if want := []Curves{Platt, Temperature}[classes-2]; temperature.Kind != want || len(temperature.Curves) != planes {
				t.Errorf("one scale of %d classes is of kind %v", classes, temperature.Kind)
			}
			for _, c := range candidates {
				for _, kind := range []decision.Kind{decision.Probability, decision.Cost} {
					d, err := h.Decide(Decision{Kind: kind}, c)
					if err != nil {
						t.Fatal(err)
					}
					for _, in := range h.folds {
						said := make([]int32, in.to-in.from)
						d.Without(in.fold).Decide(said, h.values[in.from*planes:in.to*planes])
						if !slices.Equal(said, d.said[in.from:in.to]) {
							t.Errorf("by %v: the rule without fold %d answers otherwise", kind, in.fold)
						}
					}
					if d.Without(99) != d.Rule {
						t.Errorf("by %v: a fold without rows has a rule of its own", kind)
					}
				}
			}
			for _, c := range append(candidates, temperature) {
				if want := judge(func(fold int) []calibration.Curve { return c.apart[fold] }); !reflect.DeepEqual(c.After, want) {
					t.Errorf("%d rows of %d classes, kind %v: log loss %v, want %v", len(h.codes), classes, c.Kind, c.After.All.LogLoss, want.All.LogLoss)
				}
				for f := range h.folds {
					if reflect.DeepEqual(c.apart[f], c.Curves) {
						t.Errorf("kind %v: the curves without fold %d are those of all rows", c.Kind, f)
					}
				}
			}
			// One scale of all values keeps their labels.
			for row := range h.codes {
				values, p := h.values[row*planes:][:planes], make([]float64, classes)
				calibration.Probabilities(p, temperature.Curves, values)
				label := slices.Index(values, slices.Max(values))
				if planes == 1 && !(values[0] > 0) == (h.model.Planes[0].Class == h.model.Classes[0]) {
					label = 1
				}
				if p[label] != slices.Max(p) {
					t.Errorf("row %d of %d classes: values %v, probabilities %v", row, classes, values, p)
				}
			}
			linear := slices.Repeat([]calibration.Curve{calibration.Linear{}}, planes)
			before, err := h.Reliability(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if want := judge(func(int) []calibration.Curve { return linear }); !reflect.DeepEqual(before, want) {
				t.Errorf("%d rows of %d classes, values: %v, want %v", len(h.codes), classes, before.All, want.All)
			}
		}
	}
	if t.Logf("the best: %v", kinds); len(kinds) < 4 {
		t.Errorf("of all kinds only %v were the best", kinds)
	}
}

func leastLoss(all []*Calibrated) (best int) {
	for i, c := range all {
		if c.After.All.LogLoss < all[best].After.All.LogLoss {
			best = i
		}
	}
	return best
}

// Settle takes the curves of Calibrate, or those of one scale where the labels of the values are
// right about a quarter of a point more of the rows; and what the decision asks for.
func TestSettleTakesTheBetterCurves(t *testing.T) {
	kept := map[bool]int{}
	for size := 10; size <= 80; size++ {
		l := newLive(t, someClasses(8, size, 2+size%2), 4, everyRow, nil)
		h, err := solvedOf(t, l, Options{}).HoldOut(t.Context(), l.sample(), everyRow)
		if err != nil {
			continue
		}
		settle := func(how Judging) *Settled {
			s, err := h.Settle(t.Context(), how)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		if fewest, _ := h.fewest(); fewest < leastOfClass {
			continue
		}
		c, err := h.Calibrate(t.Context(), Auto)
		if err != nil {
			t.Fatal(err)
		}
		probable, err := h.Decide(Decision{Kind: decision.Probability}, c)
		if err != nil {
			t.Fatal(err)
		}
		q, err := h.Quality(t.Context(), probable)
		if err != nil {
			t.Fatal(err)
		}
		byValue := settle(Judging{Uncalibrated: true})
		if byValue.Calibrated != nil || byValue.Decided.Rule.Kind() != decision.Value {
			t.Errorf("%d rows: without curves %+v", len(h.codes), byValue)
		}
		got := settle(Judging{Decision: Decision{Kind: decision.Probability}})
		keeps := byValue.Quality.Correctness > q.Correctness+0.0025
		kept[keeps]++
		want := c
		if keeps {
			if want, err = h.temperature(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got.Quality.Correctness != byValue.Quality.Correctness || !slices.Equal(got.Decided.said, byValue.Decided.said) {
				t.Errorf("%d rows: %v are right, and %v by the values that are kept", len(h.codes), got.Quality.Correctness, byValue.Quality.Correctness)
			}
		} else if !reflect.DeepEqual(got.Quality, q) {
			t.Errorf("%d rows: quality %+v, want %+v", len(h.codes), got.Quality, q)
		}
		if !reflect.DeepEqual(got.Calibrated, want) || got.Unruled || got.Failed != nil {
			t.Errorf("%d rows: other curves, kept: %t", len(h.codes), keeps)
		}
		// Curves of a kind that was asked for stay.
		platt := settle(Judging{Curves: Platt, Decision: Decision{Kind: decision.Probability}})
		if platt.Calibrated.Kind != Platt {
			t.Errorf("%d rows: curves %v in place of Platt's", len(h.codes), platt.Calibrated.Kind)
		}
		plain := settle(Judging{Uncalibrated: true, Decision: Decision{Kind: decision.Probability}})
		if !plain.Unruled || !reflect.DeepEqual(plain.Quality, byValue.Quality) {
			t.Errorf("%d rows: a rule without its curves: %+v", len(h.codes), plain)
		}
		// The balanced objective takes the better one of the costs that weigh classes alike, and
		// the values.
		costs := h.even(Decision{Kind: decision.Probability, Objective: tuning.Balanced})
		even, err := h.Decide(costs, c)
		if err != nil {
			t.Fatal(err)
		}
		balanced, err := h.Quality(t.Context(), even)
		if err != nil {
			t.Fatal(err)
		}
		best, rule := balanced, decision.Cost
		if byValue.Quality.BalancedCorrectness > balanced.BalancedCorrectness {
			best, rule = byValue.Quality, decision.Value
		}
		if got := settle(Judging{Decision: Decision{Kind: decision.Probability, Objective: tuning.Balanced}}); !reflect.DeepEqual(got.Quality, best) || got.Decided.Rule.Kind() != rule {
			t.Errorf("%d rows: the balanced objective by %v, want %v", len(h.codes), got.Decided.Rule.Kind(), rule)
		}
	}
	if kept[true] < 3 || kept[false] < 3 {
		t.Errorf("values were kept %v: nothing was tested", kept)
	}
}

// Values of planes that were made elsewhere are held out as those of the study are.
func TestHeldOutElsewhere(t *testing.T) {
	l := newLive(t, overlapping(20, 30), 6, everyRow, func(fold int) bool { return fold != 2 })
	s := solvedOf(t, l, Options{})
	of := l.sample()
	want, err := s.HoldOut(t.Context(), of, everyRow)
	if err != nil {
		t.Fatal(err)
	}
	var folds []int
	var values []float64
	weighted := sample.Weigh(l.view.Block, l.Whole.Totals())
	for i, fold := range l.view.Fold {
		without, err := s.without(int(fold)).Solve(s.Options())
		if err != nil {
			t.Fatal(err)
		}
		class, row := make([]int32, 1), make([]float64, 3)
		without.Classify(class, row, weighted.Pick([]int{i}).Columns)
		folds, values = append(folds, int(fold)), append(values, row...)
	}
	got := NewHeldOut(s.model, weighted, folds, values)
	if !reflect.DeepEqual(got.folds, want.folds) || !slices.Equal(got.codes, want.codes) || !slices.Equal(got.weight, want.weight) || !slices.Equal(got.values, want.values) || len(want.folds) != 5 {
		t.Errorf("%d rows of folds %v, want %d of %v", len(got.codes), got.folds, len(want.codes), want.folds)
	}
	for i := range folds { // rows of a fold, and rows that weigh nothing, are left out
		if folds[i] == 4 {
			folds[i] = -1
		} else if folds[i] == 5 {
			weighted.Weights[i] = 0
		}
	}
	less := NewHeldOut(s.model, weighted, folds, values)
	if to := want.folds[len(want.folds)-2].from; !reflect.DeepEqual(less.folds, want.folds[:len(want.folds)-2]) || !slices.Equal(less.values, want.values[:3*to]) {
		t.Errorf("without two folds %v of %v", less.folds, want.folds)
	}
	clear(weighted.Weights)
	if none := NewHeldOut(s.model, weighted, folds, values); none != nil {
		t.Errorf("rows without weight: %+v", none)
	}
}

// On rows from elsewhere solved planes decide, whatever is served.
func TestRowsFromElsewhereAreNotRefined(t *testing.T) {
	l := newLive(t, overlapping(20, 60), 4, everyRow, nil)
	want, err := New(&l.Problem, Options{}).Tune(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	for _, refining := range []Refining{Always, Either} {
		s := New(&l.Problem, Options{Refining: refining})
		got, err := s.Tune(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.Curves, want.Curves) || !reflect.DeepEqual(got.Point, want.Point) || got.Finals != nil || s.Refines() != (refining == Always) {
			t.Errorf("%v: %d curves, %+v", refining, len(got.Curves), got.Point)
		}
	}
}

// Rows outside a fold come in the order of the sample, and stand for the rows outside it.
func TestRowsOutsideAFold(t *testing.T) {
	l := newLive(t, overlapping(20, 60), 4, 300, nil)
	of := l.sample()
	for fold := range 4 {
		rows, standFor := of.Without(fold)
		b, next := rows.(newton.Blocks)[0], 0
		weight := map[string]float64{}
		for i := range l.view.Block.Rows() {
			if int(l.view.Fold[i]) == fold {
				continue
			}
			if b.Columns[0].At(next) != l.view.Block.Columns[0].At(i) || b.Codes[next] != l.view.Block.Codes[i] {
				t.Fatalf("fold %d: row %d is not that of the sample", fold, next)
			}
			weight[b.Classes[b.Codes[next]]] += b.Weight(next)
			next++
		}
		if b.Rows() != next {
			t.Errorf("fold %d: %d rows, want %d", fold, b.Rows(), next)
		}
		for _, total := range l.Whole.Without(l.Folds[fold]).Totals() {
			if got := weight[total.Label] * standFor[total.Label]; math.Abs(got-total.Weight) > 1e-9*total.Weight {
				t.Errorf("fold %d: rows of class %s stand for %v, want %v", fold, total.Label, got, total.Weight)
			}
		}
	}
}

// The planes that Tune would choose are compared with the given ones on the rows that both have not
// seen. The gain is that of the labels, and its error that of the mean of the rows' differences.
func TestLookComparesWithTheChoice(t *testing.T) {
	better := map[bool]int{}
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(81, seed))
		objective := tuning.Objective(seed % 2)
		l := newLive(t, someClasses(12+r.IntN(8), 30+r.IntN(20), 2+int(seed%2)), 4, everyRow, nil)
		given := Options{Planes: incremental.Options{Nu: []float64{1e-6, 1, 1e-4}[seed%3]}, Objective: objective, Held: Judging{Values: everyRow}}
		s := solvedOf(t, l, given)
		anyScale := seed%4 > 0
		got, err := s.Look(t.Context(), l.sample(), anyScale)
		if err != nil {
			t.Fatal(err)
		}
		chosen := New(&l.Problem, Options{Planes: given.Planes, AnyScale: anyScale, Objective: objective, Held: given.Held})
		choice, err := chosen.Tune(t.Context(), l.sample())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := chosen.Solve(); err != nil {
			t.Fatal(err)
		}
		var said [2][]int32
		var of *HeldOut
		for i, y := range []*Study{s, chosen} {
			if of, err = y.HoldOut(t.Context(), l.sample(), everyRow); err != nil {
				t.Fatal(err)
			}
			settled, err := of.Settle(t.Context(), given.Held)
			if err != nil {
				t.Fatal(err)
			}
			said[i] = settled.Decided.said
		}
		ofClass, all := map[int32]float64{}, 0.0
		for i, c := range of.codes {
			ofClass[c] += of.weight[i]
			all += of.weight[i]
		}
		share := func(i int) float64 {
			if objective == tuning.Balanced {
				return of.weight[i] / ofClass[of.codes[i]] / float64(len(ofClass))
			}
			return of.weight[i] / all
		}
		var figures [2]float64
		var differences []float64
		for i, c := range of.codes {
			var is [2]float64
			for k := range is {
				if said[k][i] == c {
					is[k] = 1
				}
				figures[k] += share(i) * is[k]
			}
			differences = append(differences, is[1]-is[0])
		}
		gain, square := figures[1]-figures[0], 0.0
		for i, d := range differences {
			square += math.Pow(share(i)*(d-gain), 2)
		}
		near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
		if got.Nu != choice.Point.Nu || got.Standardise != chosen.Options().Standardise || got.Criterion != choice.Criterion ||
			!near(got.Given, figures[0]) || !near(got.Chosen, figures[1]) || !near(got.Gain, gain) || !near(got.Error, math.Sqrt(square)) {
			t.Errorf("seed %d: %+v, want ν %v, %v, %v, gain %v ± %v", seed, got, choice.Point.Nu, figures[0], figures[1], gain, math.Sqrt(square))
		}
		if better[got.Better()]++; got.Better() != (gain > math.Sqrt(square) && gain > 0) {
			t.Errorf("seed %d: %+v is better: %t", seed, got, got.Better())
		}

		// Without rows it is the losses of the folds.
		blind, err := s.Look(t.Context(), nil, anyScale)
		if err != nil {
			t.Fatal(err)
		}
		plain := New(&l.Problem, Options{Planes: given.Planes, AnyScale: anyScale, Objective: objective})
		if choice, err = plain.Tune(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		losses := func(o incremental.Options) (all []float64) {
			trial := tuning.New(o, []float64{o.Nu}, l.Whole.Moments().Classes())
			for i, held := range l.Folds {
				if err := trial.Hold(s.without(i), held.Moments()); err != nil {
					t.Fatal(err)
				}
			}
			c, err := trial.Curve()
			if err != nil {
				t.Fatal(err)
			}
			return append([]float64{choice.Criterion.Of(&c.Points()[0])}, c.Points()[0].FoldLoss...)
		}
		a, b := losses(given.Planes), losses(plain.Options())
		var mean, variance float64
		for i := range a[1:] {
			mean += (a[i+1] - b[i+1]) / float64(len(a)-1)
		}
		for i := range a[1:] {
			variance += math.Pow(a[i+1]-b[i+1]-mean, 2) / float64(len(a)-2)
		}
		off := math.Sqrt(variance / float64(len(a)-1))
		if blind.Nu != plain.Options().Nu || !near(blind.Given, a[0]) || !near(blind.Chosen, b[0]) || !near(blind.Gain, a[0]-b[0]) || !near(blind.Error, off) {
			t.Errorf("seed %d: without rows %+v, want %v, %v ± %v", seed, blind, a[0], b[0], off)
		}
	}
	if len(better) != 2 {
		t.Errorf("better: %v", better)
	}
	one := newLive(t, overlapping(1, 60), 1, everyRow, nil)
	if b, err := solvedOf(t, one, Options{}).Look(t.Context(), nil, false); err == nil {
		t.Errorf("one fold tells %+v", b)
	}
	two := newLive(t, overlapping(10, 60), 2, everyRow, nil)
	if b, err := solvedOf(t, two, Options{}).Look(t.Context(), nil, false); err != nil {
		t.Errorf("two folds tell %+v: %v", b, err)
	}
	if b := (&Beside{Gain: 0, Error: -1}); b.Better() {
		t.Error("no gain is better")
	}
}

// Two folds are enough for curves, and one is not.
func TestCurvesNeedTwoFolds(t *testing.T) {
	l := newLive(t, overlapping(20, 30), 3, everyRow, nil)
	h, err := solvedOf(t, l, Options{}).HoldOut(t.Context(), l.sample(), everyRow)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		few := &HeldOut{model: h.model, folds: h.folds[:n]}
		if n > 0 {
			to := h.folds[n-1].to
			few.codes, few.weight, few.values = h.codes[:to], h.weight[:to], h.values[:3*to]
		}
		for _, kind := range []Curves{Auto, Platt, Softmax} {
			if _, err := few.Calibrate(t.Context(), kind); (err == nil) != (n > 1) {
				t.Errorf("%d folds, kind %v: %v", n, kind, err)
			}
		}
	}
}

// Planes that were solved with their factors are the solved ones, and are not taken for refined.
func TestSolveWithHatSolves(t *testing.T) {
	l := newLive(t, overlapping(20, 30), 3, everyRow, nil)
	s := Of(l.Whole.Moments(), Options{Planes: incremental.Options{Nu: 1}})
	if s.RefinesBy() != newton.Full {
		t.Errorf("planes are refined by %v", s.RefinesBy())
	}
	want, err := s.Solve()
	if err != nil {
		t.Fatal(err)
	}
	rows, standFor := l.sample().All()
	if _, err := s.Refine(t.Context(), rows, standFor); err != nil {
		t.Fatal(err)
	}
	if !s.Move(2) {
		t.Error("refined planes do not move")
	}
	s.Move(1)
	got, hat, err := s.SolveWithHat()
	if err != nil || hat == nil || !reflect.DeepEqual(got.Planes, want.Planes) || s.Move(2) {
		t.Errorf("with factors %+v, want %+v: %v", got, want, err)
	}
}

// The planes of two classes are one.
func TestFewPlanes(t *testing.T) {
	for _, c := range []struct {
		classes, features int
		few               bool
	}{{2, 600, true}, {3, 340, true}, {3, 341, false}} {
		b := &incremental.Block{Classes: []string{"a", "b", "c"}[:c.classes], Codes: []int32{0, 1, 2}[:c.classes]}
		for range c.features {
			b.Columns = append(b.Columns, gram.ColumnOf([]float32{1, 2, 3}[:c.classes]))
		}
		summary, err := new(incremental.Summariser).Summarise(b)
		if err != nil {
			t.Fatal(err)
		}
		whole := incremental.NewState(incremental.DefaultFeatures(c.features))
		whole.Add(summary)
		if got := New(&Problem{Whole: whole}, Options{}).few(); got != c.few {
			t.Errorf("%d classes of %d features are few: %t", c.classes, c.features, got)
		}
	}
}

// Sums with a regulariser of their own have the planes of it, with all rows and without a fold.
func TestRegulariserOfAProblem(t *testing.T) {
	l := newLive(t, overlapping(20, 30), 3, everyRow, nil)
	r := []float64{2, 1, 2, 0, 1, 2} // its lower triangle
	p := l.Problem
	p.Regulariser = r
	s := New(&p, Options{Planes: incremental.Options{Nu: 0.01}})
	for fold := range 4 {
		sums, of := l.Whole, s.total
		if fold < 3 {
			sums, of = l.Whole.Without(l.Folds[fold]), s.without(fold)
		}
		got, err := of.Solve(s.Options())
		if err != nil {
			t.Fatal(err)
		}
		want, err := sums.Moments().WithRegulariser(r).Solve(s.Options())
		if err != nil {
			t.Fatal(err)
		}
		plain, err := sums.Moments().Solve(s.Options())
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.Planes, want.Planes) || reflect.DeepEqual(got.Planes, plain.Planes) {
			t.Errorf("fold %d: planes %+v, want %+v", fold, got.Planes, want.Planes)
		}
	}
}

// The best planes of each method are judged as a study that serves them judges its own.
func TestFinalsAreThoseOfAStudy(t *testing.T) {
	l := newLive(t, overlapping(12, 60), 4, everyRow, nil)
	o := Options{Refining: Either, AnyMethod: true, AnyScale: true, Held: Judging{Values: everyRow, Decision: Decision{Kind: decision.Probability}}}
	got, err := New(&l.Problem, o).Tune(t.Context(), l.sample())
	if err != nil {
		t.Fatal(err)
	}
	for _, final := range got.Finals {
		c := got.Curves[final.Curve]
		one := o
		one.Planes, one.Planes.Nu = c.Options, final.Nu
		switch c.Method {
		case "":
		case newton.Logistic.String():
			one.Refine = newton.Logistic
		default:
			one.Refine = newton.Full
		}
		s := solvedOf(t, l, one)
		if c.Method != "" {
			rows, standFor := l.sample().All()
			if _, err := s.Refine(t.Context(), rows, standFor); err != nil {
				t.Fatal(err)
			}
		}
		held, err := s.HoldOut(t.Context(), l.sample(), everyRow)
		if err != nil {
			t.Fatal(err)
		}
		want, err := held.Settle(t.Context(), o.Held)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(final.Quality, want.Quality) {
			t.Errorf("%q: quality %+v, want %+v", c.Method, final.Quality, want.Quality)
		}
	}
	if len(got.Finals) != 3 {
		t.Errorf("%d finals", len(got.Finals))
	}
}

// Up to 64 classes are weighed alike by costs, each by its rows, and a class without rows has none.
func TestEvenCosts(t *testing.T) {
	want := Decision{Kind: decision.Probability, Objective: tuning.Balanced}
	for _, classes := range []int{2, 3, 64, 65} {
		h := &HeldOut{model: &incremental.Model{}}
		for c := range classes {
			h.model.Classes = append(h.model.Classes, fmt.Sprintf("%02d", c))
			if c != 1 {
				h.codes, h.weight = append(h.codes, int32(c), int32(c)), append(h.weight, float64(1+c)/64, 1./64)
			}
		}
		got := h.even(want)
		if classes > 64 {
			if got.Kind != decision.Value || got.Prices != nil {
				t.Errorf("%d classes: %v", classes, got.Kind)
			}
			continue
		}
		all := 0.0
		for _, w := range h.weight {
			all += w
		}
		if got.Kind != decision.Cost || len(got.Prices) != (classes-1)*(classes-1) {
			t.Fatalf("%d classes: %v, %d prices", classes, got.Kind, len(got.Prices))
		}
		for _, p := range got.Prices {
			c := slices.Index(h.model.Classes, p.Class)
			if want := min(64*all/float64(2+c)/float64(classes-1), decision.MostCost); c == 1 || p.Answer == p.Class || math.Abs(p.Cost-want) > 1e-12*want {
				t.Errorf("%d classes: %+v, want the cost %v", classes, p, want)
			}
		}
	}
	h := &HeldOut{model: &incremental.Model{Classes: []string{"a", "b"}}, codes: []int32{0, 1}, weight: []float64{1, 4 * decision.MostCost}}
	for _, p := range h.even(want).Prices {
		if p.Class == "a" && p.Cost != decision.MostCost {
			t.Errorf("a rare row costs %v", p.Cost)
		}
	}
	for _, other := range []Decision{{Kind: decision.Value, Objective: tuning.Balanced}, {Kind: decision.Probability}} {
		if got := h.even(other); !reflect.DeepEqual(got, other) {
			t.Errorf("%+v becomes %+v", other, got)
		}
	}
}

// No curve is fitted to fewer than 30 rows of a class, whatever kind was asked for. Of three or
// more classes, one scale takes 60 rows, 30 of them outside the largest class.
func TestFewRowsHaveNoCurves(t *testing.T) {
	for size := 2; size <= 30; size++ {
		for _, classes := range []int{2, 3} {
			l := newLive(t, someClasses(8, size, classes), 4, everyRow, nil)
			h, err := solvedOf(t, l, Options{}).HoldOut(t.Context(), l.sample(), everyRow)
			if err != nil || len(h.folds) < 2 {
				continue
			}
			counts := map[int32]int{}
			for _, class := range h.codes {
				counts[class]++
			}
			fewest, largest := len(h.codes), 0
			for class := range int32(classes) {
				fewest, largest = min(fewest, counts[class]), max(largest, counts[class])
			}
			for _, kind := range []Curves{Auto, Platt, Isotonic, Softmax, Temperature} {
				c, err := h.Calibrate(t.Context(), kind)
				want := kind
				switch {
				case classes == 2 && (kind == Softmax || kind == Temperature):
					want = -1
				case classes == 3 && (kind == Temperature || kind == Auto && fewest < 30):
					if want = Temperature; len(h.codes) < 60 || len(h.codes)-largest < 30 {
						want = -1
					}
				case fewest < 30:
					want = -1
				}
				if (err != nil) != (want == -1) || err == nil && want != Auto && c.Kind != want {
					t.Errorf("%d rows of %d classes, %d of one, kind %v: %+v, %v", len(h.codes), classes, fewest, kind, c, err)
				}
			}
			if s, err := h.Settle(t.Context(), Judging{Decision: Decision{Kind: decision.Probability}}); err != nil || classes == 2 && s.Unruled != (fewest < 30) {
				t.Errorf("%d rows of one: unruled %t, %v", fewest, s.Unruled, err)
			}
		}
	}
}

// Of 300 classes the mean of the largest probabilities is near the share of right labels, on rows
// that nothing was fitted to.
func TestManyClassesAreAsSureAsRight(t *testing.T) {
	const k, n, perClass = 300, 50, 24
	for seed := range uint64(2) {
		for _, spread := range []float64{2} {
			random := rand.New(rand.NewPCG(seed, 9))
			centres := make([]float64, k*n)
			for i := range centres {
				centres[i] = 4 * random.NormFloat64()
			}
			block := func(rows int) *incremental.Block {
				b := &incremental.Block{Features: incremental.DefaultFeatures(n)}
				columns := make([][]float64, n)
				for c := range k {
					b.Classes = append(b.Classes, fmt.Sprintf("c%03d", c))
				}
				for range rows {
					c := random.IntN(k)
					b.Codes = append(b.Codes, int32(c))
					for j := range n {
						columns[j] = append(columns[j], centres[c*n+j]+spread*random.NormFloat64())
					}
				}
				for j := range n {
					b.Columns = append(b.Columns, gram.ColumnOf(columns[j]))
				}
				return b
			}
			var blocks []*incremental.Block
			for range 8 {
				blocks = append(blocks, block(k*perClass/8))
			}
			l := newLive(t, blocks, 4, everyRow, nil)
			s := solvedOf(t, l, Options{})
			h, err := s.HoldOut(t.Context(), l.sample(), everyRow)
			if err != nil {
				t.Fatal(err)
			}
			got, err := h.Settle(t.Context(), Judging{Decision: Decision{Kind: decision.Probability}})
			if err != nil {
				t.Fatal(err)
			}
			if got.Failed != nil || got.Calibrated.Kind != Temperature {
				t.Fatalf("kind %+v, %v", got.Calibrated, got.Failed)
			}
			test := block(1500)
			values := make([]float64, test.Rows()*k)
			class := make([]int32, test.Rows())
			h.model.Classify(class, values, test.Columns)
			p, label := make([]float64, len(values)), make([]int32, len(class))
			got.Decided.Rule.Probabilities(p, values)
			got.Decided.Rule.Decide(label, values)
			var sure, right float64
			for i, c := range test.Codes {
				row := p[i*k:][:k]
				if row[label[i]] != slices.Max(row) || label[i] != class[i] {
					t.Fatalf("row %d: the label %d is not the most probable class, or that of the values", i, label[i])
				}
				sure += slices.Max(row) / float64(len(class))
				if label[i] == c {
					right += 1 / float64(len(class))
				}
			}
			t.Logf("seed %d, spread %v: %.4f right, mean top probability %.4f", seed, spread, right, sure)
			if math.Abs(sure-right) > 0.02 {
				t.Errorf("seed %d, spread %v: %v right, mean top probability %v", seed, spread, right, sure)
			}
		}
	}
}
