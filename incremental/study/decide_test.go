package study

import (
	"errors"
	"math"
	"slices"
	"testing"

	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/incremental/decision"
	"streamd/incremental/tuning"
)

// heldOut scores blocks of some of the classes out of fold.
func heldOut(t *testing.T, classes ...string) *HeldOut {
	t.Helper()
	blocks := overlapping(20, 60)
	for _, b := range blocks {
		for i, code := range b.Codes {
			if !slices.Contains(classes, b.Classes[code]) {
				b.Weights[i] = 0
			}
		}
	}
	l := newLive(t, blocks, 4, everyRow, nil)
	s := New(&l.Problem, Options{Planes: incremental.Options{Nu: 1}})
	if _, err := s.Solve(); err != nil {
		t.Fatal(err)
	}
	h, err := s.HoldOut(t.Context(), l.sample(), everyRow)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.model.Classes) != len(classes) {
		t.Fatalf("classes %v", h.model.Classes)
	}
	return h
}

// A held-out row is decided by curves, or a threshold, of the other folds' rows. The quality
// counts these decisions.
func TestDecisionsHaveNotSeenTheRow(t *testing.T) {
	prices := []decision.Price{{Class: "two", Answer: "one", Cost: 5}, {Class: "one", Answer: "three", Cost: 2}}
	for _, classes := range [][]string{{"one", "two"}, {"one", "three", "two"}} {
		h := heldOut(t, classes...)
		planes := len(h.model.Planes)
		c, err := h.Calibrate(t.Context(), Isotonic)
		if err != nil {
			t.Fatal(err)
		}
		without := func(fold, plane int) *calibration.Outcomes {
			var values, weights []float64
			var positive []bool
			for i := range h.codes {
				if in := h.folds[fold]; i < in.from || i >= in.to {
					values = append(values, h.values[i*planes+plane])
					weights = append(weights, h.weight[i])
					positive = append(positive, h.model.Classes[h.codes[i]] == h.model.Planes[plane].Class)
				}
			}
			o, err := calibration.NewOutcomes(values, positive, weights)
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		curves := func(fold int) (all []calibration.Curve) {
			for p := range planes {
				curve, err := without(fold, p).FitIsotonic()
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, curve)
			}
			return all
		}
		for _, want := range []struct {
			Decision
			c    *Calibrated
			rule func(fold int) *decision.Rule
		}{
			{Decision{Kind: decision.Value}, c, func(int) *decision.Rule { return decision.ByValue(len(classes)) }},
			{Decision{Kind: decision.Probability}, c, func(fold int) *decision.Rule { return decision.ByProbability(curves(fold)) }},
			{Decision{Kind: decision.Cost, Prices: prices}, c, func(fold int) *decision.Rule { return decision.ByCost(classes, curves(fold), prices) }},
			{Decision{Kind: decision.Cost, Prices: prices}, nil, func(fold int) *decision.Rule { return decision.ByThreshold(without(fold, 0).Threshold(5, 1), prices) }},
			{Decision{Kind: decision.Probability}, nil, nil},
		} {
			d, err := h.Decide(want.Decision, want.c)
			if want.rule == nil || want.c == nil && planes > 1 {
				if !errors.Is(err, decision.ErrCurves) {
					t.Errorf("%v without curves: %v", want.Kind, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if d.Rule.Kind() != want.Kind {
				t.Errorf("%v, wanted %v", d.Rule.Kind(), want.Kind)
			}
			var right, weight float64
			for fold, in := range h.folds {
				said := make([]int32, in.to-in.from)
				want.rule(fold).Decide(said, h.values[in.from*planes:in.to*planes])
				if !slices.Equal(said, d.said[in.from:in.to]) {
					t.Fatalf("%v, %d classes, fold %d: other decisions", want.Kind, len(classes), fold)
				}
				for i, class := range said {
					weight += h.weight[in.from+i]
					if class == h.codes[in.from+i] {
						right += h.weight[in.from+i]
					}
				}
			}
			q, err := h.Quality(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(q.Correctness-right/weight) > 1e-15 || q.Rows != int64(len(h.codes)) || q.Folds != 4 {
				t.Errorf("%v: quality %+v, not %v", want.Kind, q, right/weight)
			}
			for class := range classes {
				plane := class
				if planes == 1 {
					plane = 0
				}
				outcomes, err := h.outcomes(plane)
				if err != nil {
					t.Fatal(err)
				}
				if q.AUC[class] != outcomes.AUC() || !(q.AUC[class] > 0.5) {
					t.Errorf("%v: area %v of class %d", want.Kind, q.AUC[class], class)
				}
			}
		}
	}
}

// For the balanced objective the most probable class gives way to the costs that weigh all
// classes alike, which are right about rare classes more often.
func TestBalancedObjectiveWeighsClassesAlike(t *testing.T) {
	blocks := overlapping(20, 60)
	for _, b := range blocks {
		for i, code := range b.Codes {
			if code == 2 && i%12 > 0 { // one of twelve rows of the class is left
				b.Weights[i] = 0
			}
		}
	}
	l := newLive(t, blocks, 4, everyRow, nil)
	s := New(&l.Problem, Options{Planes: incremental.Options{Nu: 1}})
	if _, err := s.Solve(); err != nil {
		t.Fatal(err)
	}
	h, err := s.HoldOut(t.Context(), l.sample(), everyRow)
	if err != nil {
		t.Fatal(err)
	}
	settle := func(o tuning.Objective) *Settled {
		got, err := h.Settle(t.Context(), Judging{Decision: Decision{Kind: decision.Probability, Objective: o}})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	plain, even := settle(tuning.Accuracy), settle(tuning.Balanced)
	if plain.Decided.Rule.Kind() != decision.Probability || even.Decided.Rule.Kind() != decision.Cost {
		t.Errorf("by %v, and by %v for the balanced objective", plain.Decided.Rule.Kind(), even.Decided.Rule.Kind())
	}
	a, b := plain.Quality, even.Quality
	if !(a.Correctness > b.Correctness) || !(b.BalancedCorrectness > a.BalancedCorrectness+0.05) {
		t.Errorf("correctness %v and %v, balanced %v and %v", a.Correctness, b.Correctness, a.BalancedCorrectness, b.BalancedCorrectness)
	}
	// Rows of every class cost as much in all.
	for c, class := range h.model.Classes {
		for _, p := range even.Decided.Rule.Prices() {
			if want := a.Weight / a.Classes[c].Rows / 3; p.Class == class && math.Abs(p.Cost/want-1) > 1e-12 {
				t.Errorf("a row of class %s costs %v, not %v", class, p.Cost, want)
			}
		}
	}
}

// Labels by probability are right about as many held-out rows as the decision values or more,
// also where few rows make curves that are not.
func TestCurvesKeepLabelsThatAreRight(t *testing.T) {
	kept := 0
	for size := 14; size <= 34; size += 2 {
		l := newLive(t, overlapping(8, size), 4, everyRow, nil)
		s := New(&l.Problem, Options{Planes: incremental.Options{Nu: 1}})
		if _, err := s.Solve(); err != nil {
			t.Fatal(err)
		}
		h, err := s.HoldOut(t.Context(), l.sample(), everyRow)
		if err != nil {
			t.Fatal(err)
		}
		byValue, err := h.Settle(t.Context(), Judging{Uncalibrated: true})
		if err != nil {
			t.Fatal(err)
		}
		got, err := h.Settle(t.Context(), Judging{Decision: Decision{Kind: decision.Probability}})
		if err != nil {
			t.Fatal(err)
		}
		if got.Decided.Rule.Kind() != decision.Probability || got.Quality.Correctness < byValue.Quality.Correctness-muchBetter {
			t.Errorf("%d rows: by %v %v, by value %v", 8*size, got.Decided.Rule.Kind(), got.Quality.Correctness, byValue.Quality.Correctness)
		}
		if slices.Equal(got.Decided.said, byValue.Decided.said) {
			kept++
		}
	}
	if kept == 0 {
		t.Error("no labels were kept, so that nothing was tested")
	}
}
