package calibration

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func fitSigmoid(values []float64, positive []bool, weights []float64) (s Sigmoid, err error) {
	o, err := NewOutcomes(values, positive, weights)
	if err != nil {
		return s, err
	}
	return o.FitSigmoid()
}

func fitIsotonic(values []float64, positive []bool, weights []float64) (c Isotonic, err error) {
	o, err := NewOutcomes(values, positive, weights)
	if err != nil {
		return c, err
	}
	return o.FitIsotonic()
}

// oracleRows returns the rows of
//
//	f = np.array([((i*7) % 24)//2*0.5 - 2.75 for i in range(24)])
//	y = np.array([1 if (i*5) % 11 + f[i]*2 > 4 else 0 for i in range(24)])
//	w = np.array([1 + i % 3 for i in range(24)], float)
func oracleRows() (f []float64, y []bool, w []float64) {
	for i := range 24 {
		value := float64(i*7%24/2)*0.5 - 2.75
		f, y, w = append(f, value), append(y, float64(i*5%11)+value*2 > 4), append(w, float64(1+i%3))
	}
	return f, y, w
}

// The expected values are those of scikit-learn 1.9.1, without and with sample_weight:
//
//	s = _SigmoidCalibration().fit(f, y); s.a_, s.b_
//	p = s.predict(f); brier_score_loss(y, p), log_loss(y, p)
//	IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(f, y).predict(q)
func TestAgainstScikitLearn(t *testing.T) {
	f, y, w := oracleRows()
	q := []float64{-5, -2.75, -1.6, -0.3, 0.1, 0.9, 1.3, 2.2, 9}
	for _, c := range []struct {
		weights           []float64
		a, b, brier, loss float64
		isotonic          []float64
	}{
		{nil, -0.9123601284112943, -0.5105678484317445, 0.13072952181407335, 0.4062060715459331,
			[]float64{0, 0, 0.25, 0.5, 0.675, 0.825, 1, 1, 1}},
		{w, -1.1248576164672874, -0.6578960538425552, 0.12124627148458877, 0.37163774607558686,
			[]float64{0, 0, 0.25, 0.4444444444444444, 0.7333333333333333, 0.9, 1, 1, 1}},
	} {
		s, err := fitSigmoid(f, y, c.weights)
		if err != nil {
			t.Fatal(err)
		}
		// Theirs ends at a gradient of 1e-6 (of values that are divided by at most 1).
		if math.Abs(s.A-c.a) > 1e-5 || math.Abs(s.B-c.b) > 1e-5 {
			t.Errorf("A = %v, B = %v instead of %v, %v", s.A, s.B, c.a, c.b)
		}
		p := make([]float64, len(f))
		for i := range p {
			p[i] = s.Probability(f[i])
		}
		r, err := Measure(p, y, c.weights, 4)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(r.Brier-c.brier) > 1e-6 || math.Abs(r.LogLoss-c.loss) > 1e-6 {
			t.Errorf("Brier %v, log loss %v instead of %v, %v", r.Brier, r.LogLoss, c.brier, c.loss)
		}
		iso, err := fitIsotonic(f, y, c.weights)
		if err != nil {
			t.Fatal(err)
		}
		for i, value := range q {
			if got := iso.Probability(value); math.Abs(got-c.isotonic[i]) > 1e-14 {
				t.Errorf("isotonic at %v: %v instead of %v", value, got, c.isotonic[i])
			}
		}
	}
}

type rows struct {
	values   []float64
	positive []bool
	weights  []float64
}

func drawRows(t *rapid.T) rows {
	m := rapid.IntRange(1, 40).Draw(t, "rows")
	r := rows{weights: make([]float64, m)}
	scale := rapid.SampledFrom([]float64{1, 1e-150, 1e150}).Draw(t, "scale")
	bias := rapid.IntRange(-9, 9).Draw(t, "bias")
	for range m {
		value := rapid.IntRange(-9, 9).Draw(t, "value")
		r.values = append(r.values, float64(value)*scale)
		r.positive = append(r.positive, rapid.IntRange(-9, 9).Draw(t, "noise")+value > bias)
	}
	for i := range r.weights {
		r.weights[i] = float64(rapid.IntRange(0, 3).Draw(t, "weight"))
	}
	r.weights[0] = 1
	return r
}

// permuted returns the rows in another order, without those of weight 0, and with two
// rows of weight 1 for each of weight 2.
func (r rows) permuted(t *rapid.T) rows {
	var out rows
	for _, i := range rapid.Permutation(slices.Collect(func(yield func(int) bool) {
		for i := range r.values {
			if !yield(i) {
				return
			}
		}
	})).Draw(t, "order") {
		weight, times := r.weights[i], 1
		switch weight {
		case 0:
			continue
		case 2:
			weight, times = 1, 2
		}
		for range times {
			out.values, out.positive, out.weights = append(out.values, r.values[i]), append(out.positive, r.positive[i]), append(out.weights, weight)
		}
	}
	return out
}

func TestCurvesAreMonotoneFunctionsOfTheSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRows(t)
		other := r.permuted(t)
		sigmoid, err := fitSigmoid(r.values, r.positive, r.weights)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := fitSigmoid(other.values, other.positive, other.weights); err != nil || again != sigmoid {
			t.Fatalf("%v, of the same rows %v, %v", sigmoid, again, err)
		}
		isotonic, err := fitIsotonic(r.values, r.positive, r.weights)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := fitIsotonic(other.values, other.positive, other.weights); err != nil || !reflect.DeepEqual(again, isotonic) {
			t.Fatalf("%v, of the same rows %v, %v", isotonic, again, err)
		}
		at := append(slices.Clone(r.values), -math.MaxFloat64, math.MaxFloat64, 0, 1, -1)
		for _, knot := range isotonic.Values {
			at = append(at, knot/2, math.Nextafter(knot, 1e300), math.Nextafter(knot, -1e300))
		}
		slices.Sort(at)
		for i, c := range []Curve{sigmoid, isotonic, Linear{}} {
			var ulp float64 // what exp's rounding may make of neighbours
			if i == 0 {
				ulp = 0x1p-52
			}
			last := 0.0
			for _, value := range at {
				p := c.Probability(value)
				if !(p >= last-ulp && p <= 1) {
					t.Fatalf("%T%v: %v at %v, after %v", c, c, p, value, last)
				}
				last = p
			}
		}
		measured, err := Measure(probabilities(sigmoid, r.values), r.positive, r.weights, 5)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Measure(probabilities(sigmoid, other.values), other.positive, other.weights, 5); err != nil || !reflect.DeepEqual(again, measured) {
			t.Fatalf("%+v, of the same rows %+v, %v", measured, again, err)
		}
	})
}

// Curves of Only some outcomes are those of new outcomes of these rows.
func TestCurvesOfSomeOutcomes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRows(t)
		all, err := NewOutcomes(r.values, r.positive, r.weights)
		if err != nil {
			t.Fatal(err)
		}
		kept := make([]bool, len(r.values))
		var some rows
		for i := range kept {
			if kept[i] = rapid.Bool().Draw(t, "kept"); kept[i] {
				some.values, some.positive, some.weights = append(some.values, r.values[i]), append(some.positive, r.positive[i]), append(some.weights, r.weights[i])
			}
		}
		only := all.Only(func(row int) bool { return kept[row] })
		sigmoid, err := only.FitSigmoid()
		if want, wantErr := fitSigmoid(some.values, some.positive, some.weights); sigmoid != want || err != wantErr {
			t.Fatalf("%v, %v instead of %v, %v", sigmoid, err, want, wantErr)
		}
		isotonic, err := only.FitIsotonic()
		if want, wantErr := fitIsotonic(some.values, some.positive, some.weights); !reflect.DeepEqual(isotonic, want) || err != wantErr {
			t.Fatalf("%v, %v instead of %v, %v", isotonic, err, want, wantErr)
		}
	})
}

// The order of 0 and −0 does not matter either.
func TestZerosAreOne(t *testing.T) {
	minus := math.Copysign(0, -1)
	for _, values := range [][]float64{{minus, 0, 1}, {0, minus, 1}, {minus, minus, 1}} {
		c, err := fitIsotonic(values, []bool{false, true, true}, nil)
		if err != nil || len(c.Values) != 2 || math.Float64bits(c.Values[0]) != 0 {
			t.Errorf("%v: %v, %v", values, c, err)
		}
	}
}

func probabilities(c Curve, values []float64) []float64 {
	out := make([]float64, len(values))
	for i, value := range values {
		out[i] = c.Probability(value)
	}
	return out
}

// The fit agrees with the closed form of isotonic regression (Barlow et al. 1972): the
// maximum over the beginnings of intervals of the minimum over their ends of their means.
func TestIsotonicIsMaxMin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRows(t)
		c, err := fitIsotonic(r.values, r.positive, r.weights)
		if err != nil {
			t.Fatal(err)
		}
		mean := func(from, to float64) float64 {
			var plus, all float64
			for i, value := range r.values {
				if from <= value && value <= to {
					all += r.weights[i]
					if r.positive[i] {
						plus += r.weights[i]
					}
				}
			}
			return plus / all
		}
		for i, value := range r.values {
			if r.weights[i] == 0 {
				continue
			}
			want := math.Inf(-1)
			for a, from := range r.values {
				if from > value || r.weights[a] == 0 {
					continue
				}
				least := math.Inf(1)
				for b, to := range r.values {
					if to >= value && r.weights[b] > 0 {
						least = min(least, mean(from, to))
					}
				}
				want = max(want, least)
			}
			if got := c.Probability(value); math.Abs(got-want) > 1e-12 {
				t.Fatalf("at %v: %v instead of %v", value, got, want)
			}
		}
	})
}

// No pair (A, B) with A ≤ 0 near the fitted one costs less.
func TestSigmoidIsTheMinimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRows(t)
		s, err := fitSigmoid(r.values, r.positive, r.weights)
		if err != nil {
			t.Fatal(err)
		}
		if s.A > 0 {
			t.Fatalf("A = %v", s.A)
		}
		var plus, minus, scale float64
		for i, v := range r.weights {
			scale = max(scale, math.Abs(r.values[i]))
			if r.positive[i] {
				plus += v
			} else {
				minus += v
			}
		}
		cost := func(a, b float64) (sum float64) {
			for i, v := range r.weights {
				target := 1 / (minus + 2)
				if r.positive[i] {
					target = (plus + 1) / (plus + 2)
				}
				x := a*r.values[i] + b
				sum += v * (target*x + math.Max(-x, 0) + math.Log1p(math.Exp(-math.Abs(x))))
			}
			return sum
		}
		least := cost(s.A, s.B)
		unit := 1.0
		if scale > 0 {
			unit = 1 / scale
		}
		for _, size := range []float64{1, 0.1, 1e-3} {
			for direction := range 16 {
				turn := 2 * math.Pi * float64(direction) / 16
				a, b := s.A+size*unit*math.Cos(turn), s.B+size*math.Sin(turn)
				if c := cost(min(a, 0), b); c < least-1e-12*(1+least) {
					t.Fatalf("A = %v, B = %v costs %v, more than %v at %v, %v", s.A, s.B, least, c, min(a, 0), b)
				}
			}
		}
	})
}

// The fit finds the sigmoid that a thousand rows were drawn from.
func TestSigmoidFindsWhatMadeTheRows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	const m, a, b = 200_000, -3, 0.5
	values, positive := make([]float64, m), make([]bool, m)
	for i := range values {
		values[i] = r.NormFloat64()
		positive[i] = r.Float64() < 1/(1+math.Exp(a*values[i]+b))
	}
	s, err := fitSigmoid(values, positive, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The bounds are five standard errors, 0.011 and 0.007 by the inverse Hessian.
	if math.Abs(s.A-a) > 0.055 || math.Abs(s.B-b) > 0.035 {
		t.Errorf("A = %v, B = %v", s.A, s.B)
	}
	iso, err := fitIsotonic(values, positive, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []Curve{s, iso} {
		held, err := Measure(probabilities(c, values), positive, nil, 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(held.Bins) != 10 || held.Error > 0.01 {
			t.Errorf("%T: expected calibration error %v in %d bins", c, held.Error, len(held.Bins))
		}
	}
	raw, err := Measure(probabilities(Linear{}, values), positive, nil, 10)
	if err != nil {
		t.Fatal(err)
	}
	if raw.Error < 0.05 {
		t.Errorf("what was not calibrated has the error %v", raw.Error)
	}
}

// The fit is settled for values of any shape and from any starting point: one more step
// of Newton's method, on sums computed in another way, moves nothing. The starting point
// does not change the result by more than that.
func TestSigmoidIsSettled(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	draw := map[string]func() float64{
		"normal":  r.NormFloat64,
		"uniform": r.Float64,
		"heavy":   func() float64 { return r.NormFloat64() / (r.Float64() + 1e-4) }, // a value or two 10,000 times the others
	}
	for what, value := range draw {
		for _, share := range []float64{0.5, 0.02, 0.002} {
			for _, apart := range []float64{0, 0.5, 3, 30} {
				const m = 4000
				values, positive, weights := make([]float64, m), make([]bool, m), make([]float64, m)
				for i := range values {
					positive[i] = i == 0 || r.Float64() < share
					values[i], weights[i] = value(), float64(1+r.IntN(3))
					if positive[i] {
						values[i] += apart
					}
				}
				o, err := NewOutcomes(values, positive, weights)
				if err != nil {
					t.Fatal(err)
				}
				var first Sigmoid
				for i, fit := range []func() (Sigmoid, error){
					o.FitSigmoid,
					func() (Sigmoid, error) { return o.FitSigmoidFrom(Sigmoid{}) },
					func() (Sigmoid, error) { return o.FitSigmoidFrom(Sigmoid{-3, 20}) },
				} {
					s, err := fit()
					if err != nil {
						t.Fatalf("%s, %v of them, %v apart, start %d: %v", what, share, apart, i, err)
					}
					if i == 0 {
						first = s
					}
					if s.A == 0 { // a level: TestSigmoidIsTheMinimum
						continue
					}
					moved, from := 0.0, newtonStep(s, values, positive, weights)
					for _, value := range values {
						moved = max(moved, math.Abs(from.A*value+from.B), math.Abs((s.A-first.A)*value+s.B-first.B))
					}
					if !(moved < 1e-8) {
						t.Errorf("%s, %v of them, %v apart, start %d: %v moves log odds by %v", what, share, apart, i, s, moved)
					}
				}
			}
		}
	}
}

// newtonStep is one Newton step of Platt's problem, from the definition.
func newtonStep(s Sigmoid, values []float64, positive []bool, weights []float64) Sigmoid {
	var plus, minus, mean float64
	for i, v := range weights {
		if positive[i] {
			plus += v
		} else {
			minus += v
		}
		mean += v * values[i]
	}
	mean /= plus + minus
	var ga, gb, aa, ab, bb float64 // of A(value − mean) + B'
	for i, v := range weights {
		target := 1 / (minus + 2)
		if positive[i] {
			target = (plus + 1) / (plus + 2)
		}
		p := 1 / (1 + math.Exp(s.A*values[i]+s.B))
		u, g, h := values[i]-mean, v*(target-p), v*p*(1-p)
		ga, gb, aa, ab, bb = ga+u*g, gb+g, aa+u*u*h, ab+u*h, bb+h
	}
	determinant := aa*bb - ab*ab
	a := (ab*gb - bb*ga) / determinant
	return Sigmoid{a, (ab*ga-aa*gb)/determinant - a*mean}
}

func TestDecays(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 1))
	x := []float64{0, math.Copysign(0, -1), 0x1p-1074, 1, -1, math.Ln2, 693, -693}
	for range 100_000 {
		x = append(x, 700*r.Float64()*r.Float64()-350)
	}
	e := make([]float64, len(x))
	decays(e, x)
	for i, x := range x {
		if want := math.Exp(-math.Abs(x)); math.Abs(e[i]-want) > 0x1p-51*want {
			t.Fatalf("exp(−|%v|) is %v instead of %v", x, e[i], want)
		}
	}
	decays(e[:3], []float64{700, -1e300, math.Inf(1)})
	for _, got := range e[:3] {
		if math.Abs(got-0x1p-1000) > 0x1p-1040 {
			t.Errorf("far out: %v", got)
		}
	}
}

// Outcomes rise by value, with weights or without.
func TestOutcomesRise(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	values, weights := make([]float64, 5000), make([]float64, 5000)
	for i := range values {
		values[i] = math.Ldexp(r.NormFloat64(), r.IntN(2000)-1000)
		if i%3 == 0 {
			values[i] = float64(r.IntN(5) - 2)
		}
		weights[i] = float64(1 + r.IntN(3))
	}
	for _, v := range [][]float64{nil, weights} {
		o, err := NewOutcomes(values, make([]bool, len(values)), v)
		if err != nil {
			t.Fatal(err)
		}
		seen := make([]bool, len(values))
		for i, row := range o.rows {
			seen[row.row] = true
			if row.value != values[row.row] || v != nil && row.weight != v[row.row] {
				t.Fatalf("row %d is %+v", row.row, row)
			}
			if i > 0 && (row.value < o.rows[i-1].value || row.value == o.rows[i-1].value && row.weight < o.rows[i-1].weight) {
				t.Fatalf("%+v is after %+v", row, o.rows[i-1])
			}
		}
		if slices.Contains(seen, false) {
			t.Error("a row is missing")
		}
	}
}

func TestDegenerateRows(t *testing.T) {
	// One class, one value or falling probabilities give a constant: the mean of Platt's
	// targets, or of the rows.
	for what, c := range map[string]struct {
		values             []float64
		positive           []bool
		sigmoid, isotonic0 float64
	}{
		"one class":  {[]float64{1, 2, 3}, []bool{true, true, true}, 4.0 / 5, 1},
		"no class":   {[]float64{1, 2, 3}, []bool{false, false, false}, 1.0 / 5, 0},
		"one value":  {[]float64{2, 2, 2}, []bool{true, false, true}, (2*3.0/4 + 1.0/3) / 3, 2.0 / 3},
		"one row":    {[]float64{-7}, []bool{true}, 2.0 / 3, 1},
		"falling":    {[]float64{1, 2, 3, 4}, []bool{true, true, false, false}, 0.5, 0.5},
		"far values": {[]float64{-1e308, 1e308}, []bool{true, false}, 0.5, 0.5},
	} {
		s, err := fitSigmoid(c.values, c.positive, nil)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		iso, err := fitIsotonic(c.values, c.positive, nil)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		for _, value := range []float64{-100, 0, 1.5, 100} {
			if got := s.Probability(value); math.Abs(got-c.sigmoid) > 1e-9 {
				t.Errorf("%s: sigmoid at %v: %v instead of %v", what, value, got, c.sigmoid)
			}
			if got := iso.Probability(value); math.Abs(got-c.isotonic0) > 1e-15 {
				t.Errorf("%s: isotonic at %v: %v instead of %v", what, value, got, c.isotonic0)
			}
		}
	}
	// Separable rows give a finite sigmoid.
	s, err := fitSigmoid([]float64{-2, -1, 1, 2}, []bool{false, false, true, true}, nil)
	if err != nil || !(s.A < -0.1 && s.A > -10) {
		t.Errorf("separable: %+v, %v", s, err)
	}
	for what, r := range map[string]rows{
		"a value that is none": {[]float64{math.NaN()}, []bool{true}, nil},
		"an infinite value":    {[]float64{math.Inf(1)}, []bool{true}, nil},
		"a negative weight":    {[]float64{1}, []bool{true}, []float64{-1}},
		"an infinite weight":   {[]float64{1}, []bool{true}, []float64{math.Inf(1)}},
	} {
		if _, err := fitSigmoid(r.values, r.positive, r.weights); err == nil || errors.Is(err, ErrNoRows) {
			t.Errorf("%s: sigmoid: %v", what, err)
		}
		if _, err := fitIsotonic(r.values, r.positive, r.weights); err == nil || errors.Is(err, ErrNoRows) {
			t.Errorf("%s: isotonic: %v", what, err)
		}
	}
	if _, err := fitSigmoid(nil, nil, nil); !errors.Is(err, ErrNoRows) {
		t.Errorf("no rows: %v", err)
	}
	if _, err := fitIsotonic([]float64{1}, []bool{true}, []float64{0}); !errors.Is(err, ErrNoRows) {
		t.Errorf("rows of weight 0: %v", err)
	}
	if _, err := MeasureClasses(2, nil, nil, nil, 3); !errors.Is(err, ErrNoRows) {
		t.Errorf("no rows of classes: %v", err)
	}
	if _, err := Measure([]float64{1.5}, []bool{true}, nil, 3); err == nil {
		t.Error("a probability of 1.5 is taken")
	}
}

func TestProbabilitiesOfClasses(t *testing.T) {
	dst := make([]float64, 4)
	Probabilities(dst, []Curve{Linear{}}, []float64{-0.5, 2})
	if !slices.Equal(dst, []float64{0.75, 0.25, 0, 1}) {
		t.Errorf("two classes: %v", dst)
	}
	dst = make([]float64, 6)
	Probabilities(dst, []Curve{Linear{}, Linear{}, Linear{}}, []float64{0, 0, -0.5, -1, -2, -3})
	if want := []float64{0.4, 0.4, 0.2, 1.0 / 3, 1.0 / 3, 1.0 / 3}; !slices.Equal(dst, want) {
		t.Errorf("three classes: %v instead of %v", dst, want)
	}
}

func TestMeasureByHand(t *testing.T) {
	// The rows of probability 0.3 are in one of the two bins.
	p := []float64{0.1, 0.2, 0.3, 0.3, 0.3, 0.3, 0.6, 0.7, 0.9, 1}
	y := []bool{false, false, true, false, false, true, true, false, true, true}
	r, err := Measure(p, y, nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	want := []Bin{{0.1, 0.3, 6, 1.5 / 6, 2.0 / 6}, {0.6, 1, 4, 3.2 / 4, 3.0 / 4}}
	if len(r.Bins) != 2 {
		t.Fatalf("bins %+v", r.Bins)
	}
	for i, b := range r.Bins {
		if b.Low != want[i].Low || b.High != want[i].High || b.Weight != want[i].Weight ||
			math.Abs(b.Probability-want[i].Probability) > 1e-15 || math.Abs(b.Share-want[i].Share) > 1e-15 {
			t.Errorf("bin %d is %+v instead of %+v", i, b, want[i])
		}
	}
	if e := (math.Abs(1.5-2) + math.Abs(3.2-3)) / 10; math.Abs(r.Error-e) > 1e-15 || r.Weight != 10 {
		t.Errorf("the error of %v rows is %v, not %v", r.Weight, r.Error, e)
	}
	// A wrong certainty has a finite loss.
	if r, err := Measure([]float64{0}, []bool{true}, nil, 1); err != nil || r.LogLoss != 53*math.Ln2 || r.Brier != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Two classes are measured by the event of the second, three by definition.
func TestMeasureClasses(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	for k := 2; k < 5; k++ {
		const m = 300
		p, class, weights := make([]float64, 0, m*k), make([]int32, m), make([]float64, m)
		var brier, loss, all, right float64
		var second []float64
		var happened []bool
		for i := range m {
			var sum float64
			row := make([]float64, k)
			for c := range row {
				row[c] = r.ExpFloat64()
				sum += row[c]
			}
			class[i], weights[i] = int32(r.IntN(k)), float64(r.IntN(3))
			for c := range row {
				row[c] /= sum
				y := 0.0
				if int(class[i]) == c {
					y = 1
				}
				brier += weights[i] * (row[c] - y) * (row[c] - y) / 2
			}
			loss -= weights[i] * math.Log(row[class[i]])
			all += weights[i]
			if slices.Max(row) == row[class[i]] {
				right += weights[i]
			}
			p, second, happened = append(p, row...), append(second, row[1]), append(happened, class[i] == 1)
		}
		got, err := MeasureClasses(k, func(dst []float64, row int) { copy(dst, p[row*k:]) }, class, weights, 10)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.Brier-brier/all) > 1e-12 || math.Abs(got.LogLoss-loss/all) > 1e-12 || got.Weight != all {
			t.Errorf("%d classes: Brier %v, log loss %v of %v instead of %v, %v of %v", k, got.Brier, got.LogLoss, got.Weight, brier/all, loss/all, all)
		}
		if k == 2 {
			if want, err := Measure(second, happened, weights, 10); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("two classes: %+v instead of %+v, %v", got, want, err)
			}
			continue
		}
		var share float64
		for _, b := range got.Bins {
			share += b.Share * b.Weight
		}
		if math.Abs(share-right) > 1e-9 {
			t.Errorf("%d classes: %v of the most probable classes are right instead of %v", k, share, right)
		}
	}
}

func BenchmarkFit(b *testing.B) {
	r := rand.New(rand.NewPCG(3, 1))
	const m = 20_000
	values, positive := make([]float64, m), make([]bool, m)
	for i := range values {
		values[i] = r.NormFloat64()
		positive[i] = r.Float64() < 1/(1+math.Exp(-2*values[i]))
	}
	o, err := NewOutcomes(values, positive, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("sort", func(b *testing.B) {
		for b.Loop() {
			if _, err := NewOutcomes(values, positive, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sigmoid", func(b *testing.B) {
		for b.Loop() {
			if _, err := o.FitSigmoid(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("isotonic", func(b *testing.B) {
		for b.Loop() {
			if _, err := o.FitIsotonic(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Rows whose weights overflow have no figures, rather than some that cannot be compared.
func TestWeightsThatOverflow(t *testing.T) {
	values, positive := []float64{0.2, 0.6, 0.9}, []bool{false, true, true}
	heavy := []float64{math.MaxFloat64, math.MaxFloat64, 1}
	if o, err := NewOutcomes(values, positive, heavy); err == nil {
		t.Errorf("%+v", o)
	}
	if r, err := Measure(values, positive, heavy, 2); err == nil {
		t.Errorf("%+v", r)
	}
	classes := []int32{0, 1, 2}
	if c, err := FitSoftmax(make([]float64, 9), classes, heavy, 3, 10, nil); err == nil {
		t.Errorf("%+v", c)
	}
	large := []float64{math.MaxFloat64, -math.MaxFloat64, 0, 1, 0, 0, 0, 0, 1}
	if c, err := FitSoftmax(large, classes, []float64{1, 1, 1}, 3, 10, nil); err == nil {
		for _, curve := range c {
			for _, w := range curve.(Softmax).Weights {
				if math.IsNaN(w) {
					t.Errorf("%+v", c)
				}
			}
		}
	}
	if o, err := NewOutcomes(values, positive, []float64{0x1p898, 0x1p898, 0x1p898}); err != nil {
		t.Error(err)
	} else if at := o.Threshold(1e12, 1e12); at != 0.4 {
		t.Errorf("the threshold is %v", at)
	}
}
