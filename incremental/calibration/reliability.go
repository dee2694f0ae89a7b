package calibration

import (
	"fmt"
	"math"
	"slices"
)

// Reliability measures how well probabilities hold. Means over rows are weighted.
type Reliability struct {
	Weight  float64 // of all rows
	Brier   float64 // mean of ½ Σ_c (p_c − y_c)², of two classes (p − y)² (Brier 1950)
	LogLoss float64 // mean of −log p of the outcome, p at least 2^-53
	// Error is the expected calibration error: the mean over the bins, by
	// weight, of |Probability − Share|.
	Error float64
	Bins  []Bin
}

// Bin holds rows of similar probability.
type Bin struct {
	Low, High   float64 // least and largest probability
	Weight      float64
	Probability float64 // mean probability
	Share       float64 // weighted share of the rows for which the event happened
}

// Measure compares probabilities of an event with whether it happened, in at
// most the given number of bins of equal weight. Rows of equal probability share a bin,
// so few distinct probabilities give fewer bins. Weights nil: all are 1.
func Measure(probabilities []float64, happened []bool, weights []float64, bins int) (Reliability, error) {
	if bins < 1 {
		panic(fmt.Sprintf("calibration: %d bins", bins))
	}
	outcomes, err := NewOutcomes(probabilities, happened, weights)
	if err != nil {
		return Reliability{}, err
	}
	rows, err := outcomes.groups()
	if err != nil {
		return Reliability{}, err
	}
	var r Reliability
	for i := range rows {
		r.Weight += rows[i].weight()
	}
	var seen float64
	last := -1
	for i := range rows {
		p, plus, minus := rows[i].value, rows[i].plus, rows[i].minus
		if p < 0 || p > 1 {
			return Reliability{}, fmt.Errorf("a probability is %v", p)
		}
		v := plus + minus
		r.Brier += (float64(plus*(1-p)*(1-p)) + float64(minus*p*p)) / r.Weight
		var logs float64 // a logarithm is a third of a row's time: skip it for weight 0
		if plus > 0 {
			logs = float64(plus * logarithm(p))
		}
		if minus > 0 {
			logs += float64(minus * logarithm(1-p))
		}
		r.LogLoss -= logs / r.Weight
		// The middle of a group decides its bin.
		bin := min(int((seen+float64(v/2))/r.Weight*float64(bins)), bins-1)
		seen += v
		if bin != last {
			r.Bins = append(r.Bins, Bin{Low: p})
			last = bin
		}
		b := &r.Bins[len(r.Bins)-1]
		b.High = p
		b.Weight += v
		b.Probability += float64(p * v)
		b.Share += plus
	}
	for i := range r.Bins {
		b := &r.Bins[i]
		b.Probability /= b.Weight
		b.Share /= b.Weight
		r.Error += float64(math.Abs(b.Probability-b.Share) * (b.Weight / r.Weight))
	}
	return r, nil
}

// logarithm is log p for p of at least 2^-53, the least p for which 1 − p differs from
// 1. A wrong certainty costs 37 instead of infinity.
func logarithm(p float64) float64 { return math.Log(max(p, 0x1p-53)) }

// MeasureClasses is Measure for k classes. class holds the true class of each row.
// probabilities fills dst (k) with the probabilities of one row; it is called once per
// row, so that they need not all be in memory. Brier and LogLoss are over all classes.
// With two classes the bins are of the second class. With more they are of each row's
// most probable class and whether it was right (Guo et al. 2017).
func MeasureClasses(k int, probabilities func(dst []float64, row int), class []int32, weights []float64, bins int) (Reliability, error) {
	if k < 2 {
		panic(fmt.Sprintf("calibration: %d classes", k))
	}
	m := len(class)
	if m == 0 {
		return Reliability{}, ErrNoRows
	}
	top, right := make([]float64, m), make([]bool, m)
	briers, logs := make([]float64, m), make([]float64, m)
	row := make([]float64, k)
	for i, c := range class {
		if c < 0 || int(c) >= k {
			panic(fmt.Sprintf("calibration: class %d of %d", c, k))
		}
		probabilities(row, i)
		best := 1
		if k > 2 {
			best = 0
		}
		for j, p := range row {
			if !(p >= 0 && p <= 1) {
				return Reliability{}, fmt.Errorf("row %d: a probability is %v", i, p)
			}
			if k > 2 && p > row[best] {
				best = j
			}
			if j == int(c) {
				p = 1 - p
			}
			briers[i] += float64(p * p)
		}
		top[i], right[i], logs[i] = row[best], int(c) == best, logarithm(row[c])
	}
	r, err := Measure(top, right, weights, bins)
	if err != nil || k == 2 {
		return r, err
	}
	for i := range class {
		v := 1.0
		if weights != nil {
			v = weights[i]
		}
		briers[i] = v / r.Weight * briers[i] / 2
		logs[i] = -v / r.Weight * logs[i]
	}
	r.Brier, r.LogLoss = sortedSum(briers), sortedSum(logs)
	return r, nil
}

// sortedSum does not depend on the order of the terms.
func sortedSum(terms []float64) float64 {
	slices.Sort(terms)
	var sum float64
	for _, t := range terms {
		sum += t
	}
	return sum
}
