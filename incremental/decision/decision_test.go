package decision

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"streamd/incremental/calibration"
)

// curves draws curves of many shapes for k classes.
func curves(r *rand.Rand, k int) (all []calibration.Curve) {
	if k == 2 {
		k = 1
	}
	kind := r.IntN(4)
	level, steep := 40*r.NormFloat64(), math.Exp2(-60*r.Float64())
	if kind == 0 && k > 1 && (k > calibration.MostSoftmax || r.IntN(2) == 0) {
		return slices.Repeat([]calibration.Curve{calibration.Temperature{Scale: steep}}, k)
	}
	for i := range k {
		switch {
		case kind == 0 && k > 1 && k <= calibration.MostSoftmax:
			s := calibration.Softmax{Weights: make([]float64, k), Bias: steep * r.NormFloat64()}
			for j := range s.Weights {
				s.Weights[j] = steep * r.NormFloat64()
			}
			s.Weights[i] += steep
			all = append(all, s)
			continue
		case kind == 1: // probabilities that are nearly equal
			all = append(all, calibration.Sigmoid{A: -steep, B: level})
			continue
		case kind == 2:
			s := calibration.Sigmoid{A: -r.ExpFloat64() * 3, B: r.NormFloat64()}
			if r.IntN(8) == 0 {
				s.A = 0 // all rows have one probability
			}
			all = append(all, s)
			continue
		}
		c := calibration.Isotonic{}
		value, p := -2*r.Float64(), 0.0
		for range 1 + r.IntN(6) {
			c.Values, c.Probabilities = append(c.Values, value), append(c.Probabilities, p)
			value += 0.1 + r.Float64()
			if r.IntN(3) > 0 { // else level
				p = min(1, p+float64(r.IntN(5))/8)
			}
		}
		all = append(all, c)
	}
	return all
}

// values draws decision values, some of them at knots, far out or equal.
func values(r *rand.Rand, planes, rows int) []float64 {
	all := make([]float64, planes*rows)
	for i := range all {
		switch r.IntN(10) {
		case 0:
			all[i] = r.NormFloat64() * 1e3
		case 1:
			all[i] = r.NormFloat64() * 1e300
		case 2:
			all[i] = float64(r.IntN(5)-2) / 2
		default:
			all[i] = r.NormFloat64()
		}
	}
	return all
}

// first is the index of the largest number, the first of equal ones.
func first(xs []float64) int { return slices.Index(xs, slices.Max(xs)) }

// Label, values and probabilities of an answer agree under every rule.
func TestAnswersAgreeWithThemselves(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 18))
	const rows = 400
	for trial := range 600 {
		k := []int{2, 2, 3, 7, 40}[r.IntN(5)]
		var classes []string
		for c := range k {
			classes = append(classes, fmt.Sprint(c))
		}
		fitted := curves(r, k)
		cost := make([][]float64, k)
		var prices []Price
		for c := range cost {
			cost[c] = slices.Repeat([]float64{1}, k)
			cost[c][c] = 0
		}
		for range r.IntN(6) {
			c, a := r.IntN(k), r.IntN(k)
			if c != a && cost[c][a] == 1 {
				cost[c][a] = r.ExpFloat64() * 20
				prices = append(prices, Price{classes[c], classes[a], cost[c][a]})
			}
		}
		prices = append(prices, Price{"absent", classes[0], 3})
		rules := []*Rule{ByValue(k), ByProbability(fitted), ByCost(classes, fitted, prices)}
		if k == 2 {
			rules = append(rules, ByThreshold([]float64{0, r.NormFloat64(), math.SmallestNonzeroFloat64, math.MaxFloat64, -math.MaxFloat64}[r.IntN(5)], prices))
		}
		planes := len(fitted)
		raw := values(r, planes, rows)
		for _, rule := range rules {
			if planes == 1 && rule.Threshold() < math.MaxFloat64 { // next to the threshold
				below, above := rule.Threshold(), rule.Threshold()
				for i := range 16 {
					below = max(math.Nextafter(below, math.Inf(-1)), -math.MaxFloat64)
					raw[2*i], raw[2*i+1] = below, above
					above = min(math.Nextafter(above, math.Inf(1)), math.MaxFloat64)
				}
			}
			class, shown := make([]int32, rows), make([]float64, len(raw))
			rule.Decide(class, raw)
			rule.Values(shown, raw)
			probabilities := make([]float64, rows*k)
			if rule.HasProbabilities() {
				rule.Probabilities(probabilities, raw)
			}
			for i, c := range class {
				row := shown[i*planes:][:planes]
				for _, v := range row {
					if v-v != 0 {
						t.Fatalf("trial %d, %v: value %v of %v", trial, rule, v, raw[i*planes:][:planes])
					}
				}
				want := first(row)
				if planes == 1 {
					want = 0
					if row[0] >= 0 {
						want = 1
					}
					if at := raw[i] >= rule.Threshold(); at != (c == 1) {
						t.Fatalf("trial %d, %v: %v at the threshold %v is of class %d", trial, rule, raw[i], rule.Threshold(), c)
					}
				}
				if int(c) != want {
					t.Fatalf("trial %d, %v: label %d by values %v", trial, rule, c, row)
				}
				q := probabilities[i*k:][:k]
				switch {
				case rule.Kind() == Probability:
					if int(c) != first(q) || k == 2 && (q[1] >= 0.5) != (c == 1) {
						t.Fatalf("trial %d, %v: label %d by probabilities %v", trial, rule, c, q)
					}
				case rule.Kind() == Cost && rule.HasProbabilities():
					least, mine := math.Inf(1), 0.0
					for a := range k {
						var sum float64
						for of, p := range q {
							sum += p * cost[of][a]
						}
						if least = min(least, sum); a == int(c) {
							mine = sum
						}
					}
					if !(mine-least < 1e-12*(1+least)) {
						t.Fatalf("trial %d, %v: label %d costs %v, the least is %v", trial, rule, c, mine, least)
					}
				}
			}
		}
	}
}

// A temperature keeps the labels of the decision values, also where these are right about most
// rows and yet their sizes say so little that the best scale is 0.
func TestTemperatureKeepsLabels(t *testing.T) {
	const rows = 400
	r := rand.New(rand.NewPCG(3, 24))
	for _, k := range []int{2, 3, 9} {
		for _, size := range []float64{1e-150, 1, 1e150} {
			planes := ByValue(k).planes()
			fitted, weights := make([]float64, rows*planes), slices.Repeat([]float64{1}, rows)
			byValue, byCurve, classes := make([]int32, rows), make([]int32, rows), make([]int32, rows)
			for i := range fitted {
				fitted[i] = size * r.NormFloat64()
			}
			ByValue(k).Decide(byValue, fitted)
			for i, c := range byValue {
				classes[i] = c
				if r.IntN(100) < 45 { // wrong, by more than the others are right
					classes[i] = (c + 1 + r.Int32N(int32(k-1))) % int32(k)
					for p := range planes {
						fitted[i*planes+p] *= 8
					}
				}
			}
			curves := calibration.FitTemperature(fitted, classes, weights, planes, 0)
			ByProbability(curves).Decide(byCurve, fitted)
			for i, c := range byCurve {
				if c != byValue[i] {
					t.Fatalf("%d classes: label %d of the values %v by %v", k, c, fitted[i*planes:][:planes], curves)
				}
			}
		}
	}
}

// A threshold is the least number of the plane's class.
func TestThreshold(t *testing.T) {
	for _, test := range []struct {
		rule *Rule
		want float64
	}{
		{ByValue(2), 0},
		{ByThreshold(-1.5, nil), -1.5},
		{ByProbability([]calibration.Curve{calibration.Sigmoid{A: -2, B: 1}}), 0.5},
		{ByProbability([]calibration.Curve{calibration.Sigmoid{A: 0, B: 1}}), math.MaxFloat64},
		{ByProbability([]calibration.Curve{calibration.Sigmoid{A: 0, B: -1}}), -math.MaxFloat64},
		{ByProbability([]calibration.Curve{calibration.Isotonic{Values: []float64{1, 3}, Probabilities: []float64{0, 1}}}), 2},
		{ByProbability([]calibration.Curve{calibration.Isotonic{Values: []float64{1, 3}, Probabilities: []float64{0.5, 1}}}), -math.MaxFloat64},
		// A missed row of class b costs 9 false alarms: from P(b) = 0.1 on.
		{ByCost([]string{"a", "b"}, []calibration.Curve{calibration.Isotonic{Values: []float64{0, 1}, Probabilities: []float64{0, 1}}},
			[]Price{{"b", "a", 9}}), 0.1},
	} {
		got := test.rule.Threshold()
		if math.Abs(got-test.want) > 1e-15 {
			t.Errorf("%+v: threshold %v, not %v", test.rule, got, test.want)
		}
		class := make([]int32, 2)
		test.rule.Decide(class, []float64{math.Nextafter(got, math.Inf(-1)), got})
		if math.Abs(got) < math.MaxFloat64 && (class[0] != 0 || class[1] != 1) {
			t.Errorf("%+v: classes %v around the threshold %v", test.rule, class, got)
		}
	}
}
