// Package decision turns the decision values x'w − γ of a row into its label.
//
// A Rule is one of three kinds.
//
//	Value        ranks by the decision values themselves
//	Probability  ranks by the calibrated probabilities of the planes' classes
//	Cost         ranks by the expected cost of each answer
//
// With two classes every kind is a threshold: a row belongs to the plane's class, the
// second one, if x'w − γ ≥ Threshold. With more classes a row belongs to the class that
// ranks highest, the first of equal ones.
//
// # Agreement
//
// Curves of several planes have different slopes, so the largest decision value need not
// belong to the most probable class. An answer therefore never shows decision values that
// the rule does not rank by. Its values are those of Rule.Values, on the scale of the rule:
//
//	Value        x'w − γ of each plane
//	Probability  the log odds log p/(1 − p) of each plane's class, from −744 to 37
//	Cost         two classes: the expected cost of the first class as the answer, less that
//	             of the second; more: minus the expected cost of each class as the answer.
//	             Without probabilities: x'w − γ − Threshold
//
// With one plane its class is the label where the value is zero or more. With several
// planes the label has the largest value. The probabilities of an answer are those of
// Rule.Probabilities. With Probability the label has the largest. With Cost it has the
// least expected cost under them. A rule of kind Value has none, as they could contradict.
//
// # Costs
//
// The cost of answering a row of class c with a is 0 for a = c, and 1 for other pairs that
// are not listed. The expected cost of a under the probabilities q is Σ_c q_c cost(c, a);
// the least one is Bayes' decision (Elkan 2001).
//
// Two classes without a curve can have a cost, too: ByThreshold takes a threshold that was
// chosen on held-out rows.
//
// A rule is immutable and may be shared. Slices of unmatched lengths panic.
package decision

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"streamd/incremental"
	"streamd/incremental/calibration"
)

// Kind names a rule.
type Kind string

const (
	Value       Kind = "value"
	Probability Kind = "probability"
	Cost        Kind = "cost"
)

// Price is the cost of answering a row of Class with Answer.
type Price struct {
	Class, Answer string
	Cost          float64
}

// Rule decides labels. Its zero value decides nothing.
type Rule struct {
	kind      Kind
	classes   int
	curves    []calibration.Curve // of the planes; nil: none
	listed    []Price
	prices    []price
	threshold float64 // of two classes
}

// price is the cost of a pair, less 1.
type price struct {
	class, answer int
	above         float64
}

// ErrCurves says that a rule needs probabilities.
var ErrCurves = errors.New("the decision values have no calibration")

// ByValue is the rule of kind Value for k ≥ 2 classes.
func ByValue(k int) *Rule { return &Rule{kind: Value, classes: k} }

// ByProbability is the rule of kind Probability, with a curve for each plane.
func ByProbability(curves []calibration.Curve) *Rule {
	r := &Rule{kind: Probability, classes: max(2, len(curves)), curves: curves}
	r.bisect()
	return r
}

// ByCost is the rule of kind Cost, with a curve for each plane. Prices of classes that
// are not among classes have no effect. The prices must pass CheckPrices.
func ByCost(classes []string, curves []calibration.Curve, prices []Price) *Rule {
	r := &Rule{kind: Cost, classes: len(classes), curves: curves, listed: prices}
	for _, p := range prices {
		class, answer := slices.Index(classes, p.Class), slices.Index(classes, p.Answer)
		if class >= 0 && answer >= 0 && class != answer {
			r.prices = append(r.prices, price{class, answer, p.Cost - 1})
		}
	}
	r.bisect()
	return r
}

// ByThreshold is the rule of kind Cost for two classes without a curve. prices are those
// that the threshold was chosen with.
func ByThreshold(threshold float64, prices []Price) *Rule {
	return &Rule{kind: Cost, classes: 2, threshold: threshold, listed: prices}
}

// Kind returns the kind of the rule.
func (r *Rule) Kind() Kind { return r.kind }

// Threshold is, for two classes, the least decision value x'w − γ of the plane's class.
// It is math.MaxFloat64 if no value is, and −math.MaxFloat64 if all values are.
func (r *Rule) Threshold() float64 { return r.threshold }

// Curves are the planes' calibration curves, which give the probabilities; nil without.
func (r *Rule) Curves() []calibration.Curve { return r.curves }

// Prices are the costs other than 1.
func (r *Rule) Prices() []Price { return r.listed }

// HasProbabilities reports whether answers by this rule have probabilities.
func (r *Rule) HasProbabilities() bool { return r.curves != nil }

// planes is the number of planes.
func (r *Rule) planes() int {
	if r.classes == 2 {
		return 1
	}
	return r.classes
}

// bisect finds the threshold of two classes. The rule's value does not fall as the decision
// value rises, but for the last bit of exp: Values keeps to the threshold there.
func (r *Rule) bisect() {
	if r.classes != 2 {
		return
	}
	// Integers in the order of the finite numbers.
	number := func(i int64) float64 {
		if i < 0 {
			return -math.Float64frombits(uint64(-i))
		}
		return math.Float64frombits(uint64(i))
	}
	end := int64(math.Float64bits(math.MaxFloat64))
	low, high := -end, end // the threshold is at most high
	var scratch [1]float64
	for low < high {
		middle := low + int64(uint64(high-low)/2)
		scratch[0] = number(middle)
		r.scaled(scratch[:], scratch[:])
		if scratch[0] >= 0 {
			high = middle
		} else {
			low = middle + 1
		}
	}
	r.threshold = number(high)
}

// Decide fills class (m) with the class indices of rows with these decision values (m ×
// planes, row by row).
func (r *Rule) Decide(class []int32, values []float64) {
	k := r.planes()
	if len(values) != len(class)*k {
		panic(fmt.Sprintf("decision: %d values of %d planes for %d rows", len(values), k, len(class)))
	}
	switch {
	case k == 1:
		for i, value := range values {
			class[i] = 0
			if value >= r.threshold {
				class[i] = 1
			}
		}
	case r.kind == Value:
		for i := range class {
			class[i] = int32(incremental.Decide(values[i*k:][:k]))
		}
	default:
		rank := make([]float64, k)
		for i := range class {
			if r.kind == Probability {
				r.apart(rank, values[i*k:][:k])
			} else {
				r.Values(rank, values[i*k:][:k])
			}
			class[i] = int32(incremental.Decide(rank))
		}
	}
}

// apart fills dst with the probability of each plane's class against the rest.
func (r *Rule) apart(dst, values []float64) {
	calibration.Apart(dst, r.curves, values)
}

// Values fills dst (m × planes, row by row) with the values of rows on the scale of the rule,
// from their decision values. dst may be values.
func (r *Rule) Values(dst, values []float64) {
	k := r.planes()
	if len(values)%k != 0 || len(dst) != len(values) {
		panic(fmt.Sprintf("decision: %d values for %d of %d planes", len(dst), len(values), k))
	}
	if r.kind == Value {
		copy(dst, values)
		return
	}
	if k > 1 {
		r.scaled(dst, values)
		return
	}
	var before [64]float64 // dst may be values
	for len(values) > 0 {
		n := copy(before[:], values)
		r.scaled(dst[:n], values[:n])
		for i, value := range before[:n] {
			if value >= r.threshold {
				dst[i] = max(dst[i], 0)
			} else {
				dst[i] = min(dst[i], -math.SmallestNonzeroFloat64)
			}
		}
		dst, values = dst[n:], values[n:]
	}
}

// scaled is Values of a rule with another scale. With one plane the sign may be wrong by
// rounding next to the threshold.
func (r *Rule) scaled(dst, values []float64) {
	k := r.planes()
	switch {
	case r.curves == nil:
		for i, value := range values {
			// Halves, because a difference of two finite numbers may be infinite.
			dst[i] = min(max(2*(float64(value/2)-float64(r.threshold/2)), -math.MaxFloat64), math.MaxFloat64)
		}
	case r.kind == Probability:
		for from := 0; from < len(values); from += k {
			row := dst[from:][:k]
			r.apart(row, values[from:][:k])
			label := incremental.Decide(row)
			for c, p := range row {
				row[c] = logOdds(p)
			}
			if k > 1 {
				raise(row, label)
			}
		}
	case k == 1:
		cost := [2]float64{1, 1} // of rows of each class that get the other one
		for _, p := range r.prices {
			cost[p.class] = 1 + p.above
		}
		for i, value := range values {
			p := r.curves[0].Probability(value)
			dst[i] = float64(p*cost[1]) - float64((1-p)*cost[0])
		}
	default:
		extra := make([]float64, k)
		for from := 0; from < len(values); from += k {
			row := dst[from:][:k]
			calibration.Probabilities(row, r.curves, values[from:][:k])
			clear(extra)
			for _, p := range r.prices {
				extra[p.answer] += float64(row[p.class] * p.above)
			}
			for c, q := range row {
				row[c] = q - 1 - extra[c]
			}
		}
	}
}

// logOdds is log p/(1 − p), finite also for 0 and 1. 2^-53 is the least distance from 1, and
// 2^-1074 that from 0.
func logOdds(p float64) float64 {
	odds := min(max(p/(1-p), 0x1p-1074), 0x1p53)
	if odds < 0x1p-1022 {
		return math.Log(odds*0x1p64) - 64*math.Ln2 // math.Log is not exact there on all processors
	}
	return math.Log(odds)
}

// raise makes the label's number the largest, where rounding made an earlier one equal to it.
func raise(row []float64, label int) {
	if first := incremental.Decide(row); first != label {
		row[label] = math.Nextafter(row[first], math.Inf(1))
	}
}

// Probabilities fills dst (m × classes, row by row) from the decision values of rows, with
// calibration.Probabilities. If both of two classes have probability one half, that of the
// plane's class, which is the label, is slightly raised. So is that of the label by Probability
// where the division by the sum makes an earlier class's probability equal to it.
func (r *Rule) Probabilities(dst, values []float64) {
	if k := r.classes; k > 2 && r.kind == Probability && !calibration.Joint(r.curves) {
		for from := 0; from < len(dst); from += k {
			row, of := dst[from:][:k], values[from:][:k]
			r.apart(row, of)
			label := incremental.Decide(row)
			calibration.Probabilities(row, r.curves, of)
			raise(row, label)
		}
		return
	}
	calibration.Probabilities(dst, r.curves, values)
	if r.classes != 2 {
		return
	}
	for i := 1; i < len(dst); i += 2 {
		if dst[i] == 0.5 {
			dst[i] = math.Nextafter(0.5, 1)
			dst[i-1] = 1 - dst[i]
		}
	}
}
