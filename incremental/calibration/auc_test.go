package calibration

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// The expected values are those of scikit-learn 1.9.1 for the rows of oracleRows:
//
//	roc_auc_score(y, f), roc_auc_score(y, f, sample_weight=w)
func TestAUCAgainstScikitLearn(t *testing.T) {
	f, y, w := oracleRows()
	for _, c := range []struct {
		weights []float64
		want    float64
	}{{nil, 0.9}, {w, 0.9101633393829401}} {
		o, err := NewOutcomes(f, y, c.weights)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.AUC(); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("area %v, not %v", got, c.want)
		}
	}
}

// The area is the share of pairs in order, counted one by one.
func TestAUCCountsPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRows(t)
		var right, all float64
		for i, p := range r.positive {
			for j, n := range r.positive {
				if !p || n {
					continue
				}
				pair := r.weights[i] * r.weights[j]
				all += pair
				switch {
				case r.values[i] > r.values[j]:
					right += pair
				case r.values[i] == r.values[j]:
					right += pair / 2
				}
			}
		}
		o, err := NewOutcomes(r.values, r.positive, r.weights)
		if err != nil {
			t.Fatal(err)
		}
		got := o.AUC()
		if all == 0 && !math.IsNaN(got) || all > 0 && !(math.Abs(got-right/all) < 1e-14) {
			t.Fatalf("area %v, not %v of %v", got, right, all)
		}
	})
}

// No threshold between two rows, or beyond all, costs less.
func TestThresholdCostsLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRows(t)
		missed, alarm := float64(rapid.IntRange(1, 9).Draw(t, "missed")), float64(rapid.IntRange(1, 9).Draw(t, "alarm"))
		cost := func(threshold float64) (sum float64) {
			for i, value := range r.values {
				switch taken := value >= threshold; {
				case taken && !r.positive[i]:
					sum += alarm * r.weights[i]
				case !taken && r.positive[i]:
					sum += missed * r.weights[i]
				}
			}
			return sum
		}
		o, err := NewOutcomes(r.values, r.positive, r.weights)
		if err != nil {
			t.Fatal(err)
		}
		got := o.Threshold(missed, alarm)
		least := cost(got)
		for _, value := range append(r.values, math.MaxFloat64, -math.MaxFloat64) {
			for _, other := range []float64{value, math.Nextafter(value, math.Inf(1))} {
				if c := cost(other); c < least || c == least && math.Abs(got) == math.MaxFloat64 && math.Abs(other) < 1e100 && r.inside(other) {
					t.Fatalf("%v costs %v, %v costs %v", got, least, other, c)
				}
			}
		}
	})
}

// inside says whether a threshold is between rows of weight.
func (r rows) inside(threshold float64) bool {
	var below, above bool
	for i, value := range r.values {
		if r.weights[i] > 0 {
			below, above = below || value < threshold, above || value >= threshold
		}
	}
	return below && above
}
