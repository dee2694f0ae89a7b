// Package calibration turns a plane's decision value x'w − γ into the
// probability that the row is of the plane's class, and measures how well such
// probabilities hold.
//
// A curve is fitted to Outcomes: out-of-fold decision values and whether each row was
// of the plane's class. The plane's own training rows would make it overconfident.
// Two curves are fitted. Sigmoid is Platt's; its two parameters need few rows, and suit
// planes whose values are shaped like log-odds. Isotonic assumes only that
// probabilities rise with values, and needs a thousand rows or more. Linear needs no
// fit: a proximal plane fits d = ±1 by least squares, so its value estimates
// E[d | x] = 2p − 1. A Softmax is fitted to the values of all planes of a row.
//
// All results are functions of the multiset of rows; the order of rows does not
// matter. Sorting m < 2^31 outcomes takes O(m), and so does each fit to all or some of
// them. A probability takes O(1), an isotonic one the logarithm of the number of
// knots. Curves are immutable values. For three classes or more there is Softmax, whose
// curves look at the values of all planes.
//
// Slices of different lengths are the caller's bug and panic. A value that is
// not finite, a negative weight, a lack of rows of weight > 0, and rows that weigh more than
// 2^900 together are errors. So no figure is NaN or infinite.
package calibration

import (
	"errors"
	"fmt"
	"math"
	"sort"
)

// Curve maps a decision value to the probability of the plane's class, from 0 to 1. It
// never falls as the value rises, except that a Sigmoid may fall by exp's last bit
// between neighbouring values.
type Curve interface {
	Probability(value float64) float64
}

// Linear is (1 + value)/2, at least 0 and at most 1.
type Linear struct{}

// Probability implements Curve.
func (Linear) Probability(value float64) float64 { return min(max((1+value)/2, 0), 1) }

// Sigmoid is 1/(1 + exp(A·value + B)) with A ≤ 0 (Platt 1999).
type Sigmoid struct{ A, B float64 }

// Probability implements Curve.
func (s Sigmoid) Probability(value float64) float64 { return logistic(-(float64(s.A*value) + s.B)) }

// logistic is 1/(1 + exp(−x)) without overflow.
func logistic(x float64) float64 {
	if x >= 0 {
		return 1 / (1 + math.Exp(-x))
	}
	e := math.Exp(x)
	return e / (1 + e)
}

// Isotonic is piecewise linear between knots and constant beyond them. Values rise,
// Probabilities do not fall, and there is at least one knot.
type Isotonic struct {
	Values, Probabilities []float64
}

// Probability implements Curve.
func (c Isotonic) Probability(value float64) float64 {
	i := sort.SearchFloat64s(c.Values, value) // the first knot at or above value
	switch {
	case i == 0:
		return c.Probabilities[0]
	case i == len(c.Values):
		return c.Probabilities[i-1]
	}
	low, high := c.Probabilities[i-1], c.Probabilities[i]
	// Halve first, because the difference of two finite numbers may be infinite.
	below := float64(c.Values[i-1] / 2)
	share := (float64(value/2) - below) / (float64(c.Values[i]/2) - below)
	return min(max(low+float64((high-low)*share), low), high)
}

// ErrNoRows reports that no row has a weight > 0.
var ErrNoRows = errors.New("no row to calibrate with weighs anything")

// Outcomes are decision values, in rising order, and whether each row was of the plane's
// class. They are sorted once and serve every curve that is fitted to all or some of
// them. They are immutable.
type Outcomes struct{ rows []outcome }

type outcome struct {
	value, weight float64
	row           int32
	positive      bool
}

// mostWeight bounds the weight of all rows. A product with a cost or a logarithm is then finite.
const mostWeight = 0x1p900

// NewOutcomes sorts the outcomes of rows and drops rows of weight 0. positive marks
// rows of the plane's class. Weights nil: all are 1. The slices are not kept.
func NewOutcomes(values []float64, positive []bool, weights []float64) (*Outcomes, error) {
	if len(positive) != len(values) || weights != nil && len(weights) != len(values) {
		panic(fmt.Sprintf("calibration: %d values, %d outcomes, %d weights", len(values), len(positive), len(weights)))
	}
	order, total := make([]int32, 0, len(values)), 0.0
	for i, value := range values {
		v := 1.0
		if weights != nil {
			v = weights[i]
		}
		if value-value != 0 {
			return nil, fmt.Errorf("row %d: the value is %v", i, value)
		}
		if !(v >= 0) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("row %d: the weight is %v", i, v)
		}
		if v > 0 {
			order = append(order, int32(i))
			total += v
		}
	}
	if total > mostWeight {
		return nil, fmt.Errorf("the rows weigh %g together, more than %g", total, float64(mostWeight))
	}
	keys := make([]uint64, len(order))
	if weights != nil {
		// Sort rows of equal value by weight, so that sums do not depend on the order
		// of the rows.
		for to, i := range order {
			keys[to] = rising(weights[i])
		}
		sortByKey(keys, order)
	}
	for to, i := range order {
		keys[to] = rising(values[i] + 0) // −0 + 0 is 0
	}
	sortByKey(keys, order)
	rows := make([]outcome, len(order))
	for to, i := range order {
		rows[to] = outcome{values[i] + 0, 1, i, positive[i]}
		if weights != nil {
			rows[to].weight = weights[i]
		}
	}
	return &Outcomes{rows}, nil
}

// rising maps finite numbers to bits of the same order.
func rising(x float64) uint64 {
	b := math.Float64bits(x)
	return b ^ (uint64(int64(b)>>63) | 1<<63)
}

// sortByKey sorts keys, and rows along with them, by a stable radix sort.
func sortByKey(keys []uint64, rows []int32) {
	const bits, digits = 11, 6
	var starts [digits][1 << bits]int32
	for _, key := range keys {
		for d := range digits {
			starts[d][key>>(bits*d)&(1<<bits-1)]++
		}
	}
	fromKeys, fromRows := keys, rows
	toKeys, toRows := make([]uint64, len(keys)), make([]int32, len(rows))
	for d := range digits {
		start := &starts[d]
		var at int32
		for i, count := range start {
			start[i] = at
			at += count
		}
		for i, key := range fromKeys {
			place := &start[key>>(bits*d)&(1<<bits-1)]
			toKeys[*place], toRows[*place] = key, fromRows[i]
			*place++
		}
		fromKeys, toKeys = toKeys, fromKeys
		fromRows, toRows = toRows, fromRows
	}
	// After an even number of passes the result is in keys and rows.
}

// Only returns the outcomes of the rows whose indices keep accepts.
func (o *Outcomes) Only(keep func(row int) bool) *Outcomes {
	rows := make([]outcome, 0, len(o.rows))
	for _, r := range o.rows {
		if keep(int(r.row)) {
			rows = append(rows, r)
		}
	}
	return &Outcomes{rows}
}

// group is the rows of one value: the weights of those of the plane's class, and of the
// others.
type group struct{ value, plus, minus float64 }

func (g *group) weight() float64 { return g.plus + g.minus }

func (g *group) add(r *outcome) {
	if r.positive {
		g.plus += r.weight
	} else {
		g.minus += r.weight
	}
}

// groups merges rows of equal values, in rising order.
func (o *Outcomes) groups() ([]group, error) {
	if len(o.rows) == 0 {
		return nil, ErrNoRows
	}
	out := make([]group, 0, len(o.rows))
	for i := range o.rows {
		r := &o.rows[i]
		if len(out) == 0 || out[len(out)-1].value != r.value {
			out = append(out, group{value: r.value})
		}
		out[len(out)-1].add(r)
	}
	return out, nil
}

// FitIsotonic is the least-squares fit of non-falling probabilities, by pooling
// adjacent violators (Ayer et al. 1955). Rows of equal value share a
// probability.
func (o *Outcomes) FitIsotonic() (Isotonic, error) {
	rows, err := o.groups()
	if err != nil {
		return Isotonic{}, err
	}
	type pool struct {
		first, last float64
		group
	}
	var pools []pool
	for _, g := range rows {
		pools = append(pools, pool{g.value, g.value, g})
		for len(pools) > 1 {
			a, b := &pools[len(pools)-2], &pools[len(pools)-1]
			if a.plus/a.weight() < b.plus/b.weight() {
				break
			}
			a.last, a.plus, a.minus = b.last, a.plus+b.plus, a.minus+b.minus
			pools = pools[:len(pools)-1]
		}
	}
	var c Isotonic
	for _, p := range pools {
		c.Values, c.Probabilities = append(c.Values, p.first), append(c.Probabilities, p.plus/p.weight())
		if p.last > p.first {
			c.Values, c.Probabilities = append(c.Values, p.last), append(c.Probabilities, p.plus/p.weight())
		}
	}
	return c, nil
}

// Probabilities fills dst (m × k, row by row) from the decision values (m ×
// planes, row by row) of a model with one curve per plane. A single plane is that of
// the second of two classes. With k > 2 one-vs-rest planes, each curve was fitted on its
// own, and the k probabilities are divided by their sum (Zadrozny and Elkan 2002); if
// all are 0, each becomes 1/k. The rows of a Softmax give the probabilities together. The class of
// the largest probability need not have the largest decision value: see package decision.
func Probabilities(dst []float64, curves []Curve, values []float64) {
	k := len(curves)
	if k == 0 || len(values)%k != 0 || len(dst) != len(values)/k*max(k, 2) {
		panic(fmt.Sprintf("calibration: %d probabilities for %d values of %d planes", len(dst), len(values), k))
	}
	if k == 1 {
		for i, value := range values {
			p := curves[0].Probability(value)
			dst[2*i], dst[2*i+1] = 1-p, p
		}
		return
	}
	for from := 0; from < len(values); from += k {
		row := dst[from:][:k]
		if softmax(row, curves, values[from:][:k]) {
			continue
		}
		var sum float64
		for c, curve := range curves {
			row[c] = curve.Probability(values[from+c])
			sum += row[c]
		}
		for c := range row {
			if sum > 0 {
				row[c] /= sum
			} else {
				row[c] = 1 / float64(k)
			}
		}
	}
}
