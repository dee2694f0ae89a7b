package svm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"streamd/kernels/lp"
)

// A Set is a knowledge set: all rows that meet the conditions belong to the class.
type Set struct {
	Class      string
	Weight     float64 // of its slack, beside μ
	Conditions []Condition
	// OneOf has groups of features of which exactly one is 1 and the others are 0, as in a
	// one-hot encoding. A set has their convex hull. A feature is in one group at most.
	OneOf [][]int
}

// A Condition is Σ value·x ≤ bound.
type Condition struct {
	Terms []lp.Term // of different features; no value is 0
	Bound float64
}

func (s *Set) check(n int) error {
	if !amount(s.Weight) {
		return fmt.Errorf("the weight is %v, not a finite number that is at least 0", s.Weight)
	}
	for i, c := range s.Conditions {
		if len(c.Terms) == 0 || !finite(c.Bound) {
			return fmt.Errorf("condition %d has %d terms and the bound %v", i, len(c.Terms), c.Bound)
		}
		for _, term := range c.Terms {
			if term.Variable < 0 || term.Variable >= n || !finite(term.Value) || term.Value == 0 {
				return fmt.Errorf("condition %d has %v times feature %d of %d", i, term.Value, term.Variable, n)
			}
		}
	}
	for i, group := range s.OneOf {
		for _, j := range group {
			if j < 0 || j >= n {
				return fmt.Errorf("group %d has feature %d of %d", i, j, n)
			}
		}
	}
	return nil
}

// Contains reports whether a row meets all conditions. x has the value of each feature.
func (s *Set) Contains(x func(feature int) float64) bool {
	for _, c := range s.Conditions {
		var sum float64
		for _, term := range c.Terms {
			sum += float64(term.Value * x(term.Variable))
		}
		if !(sum <= c.Bound) {
			return false
		}
	}
	for _, group := range s.OneOf {
		ones := 0
		for _, j := range group {
			switch x(j) {
			case 0:
			case 1:
				ones++
			default:
				return false
			}
		}
		if ones != 1 {
			return false
		}
	}
	return true
}

// Contradiction returns conditions that cannot all hold, of which none can be left out, and nil
// for a set that is not empty. Group i has the number len(Conditions) + i. They are the members
// of a proof of infeasibility (Farkas): u ≥ 0 with B'u = 0 and b'u < 0. Fung 2003 assumes in
// proposition 3.1.1 that there is none.
func (s *Set) Contradiction(ctx context.Context) ([]int, error) {
	n := 0
	for _, c := range s.Conditions {
		for _, term := range c.Terms {
			n = max(n, term.Variable+1)
		}
	}
	about := s.intervals(n)
	for j := range about {
		if v := &about[j]; v.low > v.high {
			return []int{min(v.lowest, v.highest), max(v.lowest, v.highest)}, nil
		}
	}
	// Bounds of other features can be met whatever the rest.
	coupled := func(j int) bool { return j < n && about[j].general }
	var rows []lp.Row
	var of []int // condition or group of each row
	for i, group := range s.OneOf {
		if !slices.ContainsFunc(group, func(j int) bool { return j < n && (about[j].general || about[j].low > 0 || about[j].high < 1) }) {
			continue
		}
		one := lp.Row{Equal: true, Bound: 1, Cost: lp.Hard}
		for _, j := range group {
			if j < n {
				about[j].general = true
			}
			one.Terms = append(one.Terms, lp.Term{Variable: j, Value: 1})
			rows = append(rows, lp.Row{Terms: []lp.Term{{Variable: j, Value: 1}}, Cost: lp.Hard})
			of = append(of, len(s.Conditions)+i)
		}
		rows, of = append(rows, one), append(of, len(s.Conditions)+i)
	}
	for i, c := range s.Conditions {
		if coupled(c.Terms[0].Variable) {
			row := lp.Row{Bound: -c.Bound, Cost: lp.Hard}
			for _, term := range c.Terms {
				row.Terms = append(row.Terms, lp.Term{Variable: term.Variable, Value: -term.Value})
			}
			rows, of = append(rows, row), append(of, i)
		}
	}
	members, err := contradicting(ctx, rows, of, nil)
	for i := 0; i < len(members); {
		fewer, err := contradicting(ctx, rows, of, slices.Delete(slices.Clone(members), i, i+1))
		switch {
		case err != nil:
			return nil, err
		case fewer != nil:
			members = fewer // with those before i, which are needed
		default:
			i++
		}
	}
	return members, err
}

// contradicting returns the members of a proof that hard rows cannot all hold, and nil if they
// can. of has the number of each row. With among, only rows of these numbers count.
func contradicting(ctx context.Context, rows []lp.Row, of, among []int) ([]int, error) {
	var p lp.Program
	var numbers []int
	variable := map[int]int{} // of a feature
	for i, row := range rows {
		if among != nil && !slices.Contains(among, of[i]) {
			continue
		}
		row.Terms = slices.Clone(row.Terms)
		for l := range row.Terms {
			j := &row.Terms[l].Variable
			if variable[*j] == 0 { // the number of γ
				p.Variables = append(p.Variables, lp.Variable{})
				variable[*j] = len(p.Variables)
			}
			*j = variable[*j]
		}
		p.Rows, numbers = append(p.Rows, row), append(numbers, of[i])
	}
	v, err := p.Solve(ctx, 1)
	if err == nil || !errors.Is(err, lp.ErrInfeasible) {
		return nil, err
	}
	var members []int
	for i, beta := range v.Beta {
		if beta != 0 && !slices.Contains(members, numbers[i]) {
			members = append(members, numbers[i])
		}
	}
	slices.Sort(members)
	return members, nil
}

// Scaled returns the set in the coordinates (x − μ)/σ. Its groups are conditions there.
func (s *Set) Scaled(mean, sigma []float64) Set {
	scaled := Set{Class: s.Class, Weight: s.Weight}
	for _, c := range s.polyhedron() {
		bound, terms := c.Bound, make([]lp.Term, len(c.Terms))
		for i, term := range c.Terms {
			bound -= float64(term.Value * mean[term.Variable])
			terms[i] = lp.Term{Variable: term.Variable, Value: term.Value * sigma[term.Variable]}
		}
		scaled.Conditions = append(scaled.Conditions, Condition{terms, bound})
	}
	return scaled
}

// polyhedron returns the conditions, followed by those of the groups: x ≥ 0 for all members,
// and a sum of 1.
func (s *Set) polyhedron() []Condition {
	all := slices.Clip(s.Conditions)
	for _, group := range s.OneOf {
		for _, sign := range []float64{1, -1} {
			sum := Condition{Bound: sign}
			for _, j := range group {
				sum.Terms = append(sum.Terms, lp.Term{Variable: j, Value: sign})
			}
			all = append(all, sum)
		}
		for _, j := range group {
			all = append(all, Condition{Terms: []lp.Term{{Variable: j, Value: -1}}})
		}
	}
	return all
}

// interval is what a set says about a feature on its own.
type interval struct {
	low, high       float64
	lowest, highest int  // condition that gives the bound; none: −1
	general         bool // the feature is in a condition with others, too
	grouped         bool // the feature is a free member of a group
}

// cut raises the lower bound, or cuts the upper one, to that of condition i of one term.
func (v *interval) cut(c Condition, i int) {
	bound := c.Bound / c.Terms[0].Value
	if c.Terms[0].Value > 0 && bound < v.high {
		v.high, v.highest = bound, i
	}
	if c.Terms[0].Value < 0 && bound > v.low {
		v.low, v.lowest = bound, i
	}
}

// finite reports whether the set bounds the feature on both sides.
func (v *interval) finite() bool {
	return v.low <= v.high && !math.IsInf(v.low, 0) && !math.IsInf(v.high, 0)
}

// bounded reports whether that is all that the set says of the feature.
func (v *interval) bounded() bool { return !v.general && v.finite() }

// unit reports whether multipliers of the feature need no variables of their own.
func (v *interval) unit() bool { return v.bounded() && -1 <= v.low && v.high <= 1 }

// unbounded reports whether the set says nothing of the feature.
func (v *interval) unbounded() bool {
	return !v.general && math.IsInf(v.low, -1) && math.IsInf(v.high, 1)
}

// intervals returns what the conditions say of each feature.
func (s *Set) intervals(n int) []interval {
	about := make([]interval, n)
	for j := range about {
		about[j] = interval{low: math.Inf(-1), high: math.Inf(1), lowest: -1, highest: -1}
	}
	for i, c := range s.Conditions {
		if len(c.Terms) == 1 {
			about[c.Terms[0].Variable].cut(c, i)
			continue
		}
		for _, term := range c.Terms {
			about[term.Variable].general = true
		}
	}
	return about
}
