package svm

import (
	"context"
	"fmt"
	"math"
	"slices"

	"streamd/incremental/gram"
	"streamd/kernels"
	"streamd/kernels/lp"
)

// A knowledgeProgram is the linear program of a Knowledge while it is built. Variables that sets
// share take the place of a set's own, and features that stay 0 are not in it, so the solver need
// not eliminate any: its width is less than twice that of the features, with any number of rules.
type knowledgeProgram struct {
	lp.Program
	below []int          // by feature: the shared variable q for (−w)₊; 0: none
	rows  map[int]int    // by such a variable: the row q ≥ −w, after q ≥ 0
	leads map[string]int // by side and members of a group: the shared variable for its max −dw
}

// A setRows says where a set is in the program.
type setRows struct {
	multipliers []multiplier // of its conditions
	rows        []int        // with slack
	forced      []int        // features without a bound, whose w should be 0: r is |w|
	// assumed are the features whose bounds may be beyond 1 in magnitude, so that r might cost
	// less than the best u.
	assumed []assumed
}

type assumed struct {
	feature   int
	low, high float64
	below     int  // row q ≥ −w of its shared variable, or q ≥ −s of its own; 0: none
	own       bool // the variable is the set's own
}

// A multiplier is u of a condition: the positive part of a sum of variables of the program, over
// the condition's own factor.
type multiplier struct {
	terms []lp.Term
	over  float64
}

// grip reads off the hold on the set.
func (of *setRows) grip(v *lp.Solution) Grip {
	var g Grip
	for _, row := range of.rows {
		g.Slack += math.Abs(v.Slack[row])
	}
	for _, j := range of.forced {
		g.Slack += math.Abs(v.U[j])
	}
	g.Multipliers = make([]float64, len(of.multipliers))
	for i, u := range of.multipliers {
		var sum float64
		for _, term := range u.terms {
			switch t := len(v.U); {
			case term.Variable < t:
				sum += float64(term.Value * v.U[term.Variable])
			case term.Variable > t:
				sum += float64(term.Value * v.S[term.Variable-t-1])
			}
		}
		if sum > 0 {
			g.Multipliers[i] = sum / u.over
		}
	}
	return g
}

// variable adds an extra variable and returns its number.
func (p *knowledgeProgram) variable() int {
	p.Variables = append(p.Variables, lp.Variable{})
	return len(p.Columns) + len(p.Variables)
}

// atLeast adds the condition that terms sum to the bound or more, in any case.
func (p *knowledgeProgram) atLeast(bound float64, terms ...lp.Term) {
	p.Rows = append(p.Rows, lp.Row{Terms: terms, Bound: bound, Cost: lp.Hard})
}

// multiplier adds a variable u ≥ 0.
func (p *knowledgeProgram) multiplier() int {
	u := p.variable()
	p.atLeast(0, lp.Term{Variable: u, Value: 1})
	return u
}

// row adds a row to the program that may be missed, and to the set.
func (p *knowledgeProgram) row(of *setRows, row lp.Row) {
	of.rows = append(of.rows, len(p.Rows))
	p.Rows = append(p.Rows, row)
}

// solve solves the program, with w and γ given if fixed is not nil.
func (p *knowledgeProgram) solve(ctx context.Context, fixed []float64, workers int) (*lp.Solution, error) {
	if fixed == nil {
		return p.Program.Solve(ctx, workers)
	}
	t := len(p.Columns)
	rest := lp.Program{Variables: p.Variables}
	for _, row := range p.Rows {
		var terms []lp.Term
		for _, term := range row.Terms {
			if term.Variable <= t {
				row.Bound -= float64(term.Value * fixed[term.Variable])
			} else {
				terms = append(terms, lp.Term{Variable: term.Variable - t, Value: term.Value})
			}
		}
		row.Terms = terms
		rest.Rows = append(rest.Rows, row)
	}
	v, err := rest.Solve(ctx, workers)
	if v != nil {
		v.U, v.Gamma = fixed[:t], fixed[t]
	}
	return v, err
}

// inFeatures adds a set to a program in the features.
func (p *knowledgeProgram) inFeatures(s *Set, d, cost float64, own map[int]bool) setRows {
	t := len(p.Columns)
	of := setRows{multipliers: make([]multiplier, len(s.Conditions))}
	about := s.intervals(t)
	margin := lp.Row{Terms: []lp.Term{{Variable: t, Value: -d}}, Bound: 1, Cost: cost} // −b'u − dγ ≥ 1
	miss := func(variable int, b float64) {
		if b != 0 {
			margin.Terms = append(margin.Terms, lp.Term{Variable: variable, Value: -b})
		}
	}
	sums := make([][]lp.Term, t) // rows of B'u, of conditions with several features
	several := func(c Condition) (u int) {
		u = p.multiplier()
		miss(u, c.Bound)
		for _, term := range c.Terms {
			sums[term.Variable] = append(sums[term.Variable], lp.Term{Variable: u, Value: term.Value})
		}
		return u
	}
	for i, c := range s.Conditions {
		if len(c.Terms) > 1 {
			of.multipliers[i] = multiplier{[]lp.Term{{Variable: several(c), Value: 1}}, 1}
		}
	}
	for _, group := range s.OneOf {
		if free, settled := settle(about, group); settled {
			if free != nil {
				miss(p.lead(free, d), 1)
			}
			continue
		}
		for _, c := range (&Set{OneOf: [][]int{group}}).polyhedron() {
			if len(c.Terms) == 1 {
				about[c.Terms[0].Variable].cut(c, -1)
				continue
			}
			for _, term := range c.Terms {
				about[term.Variable].general = true
			}
			several(c)
		}
	}
	multiplied := func(condition int, terms ...lp.Term) {
		if condition >= 0 {
			of.multipliers[condition] = multiplier{terms, math.Abs(s.Conditions[condition].Terms[0].Value)}
		}
	}
	for j := range about {
		v := &about[j]
		switch {
		case v.grouped:
		case v.bounded() && !own[j]:
			// b'u is −l(dw)₊ + h(−dw)₊, and (w)₊ is w + (−w)₊.
			if d > 0 {
				miss(j, -v.low)
			} else {
				miss(j, v.high)
			}
			below := 0
			if v.low < v.high {
				q := p.beneath(j)
				miss(q, v.high-v.low)
				below = p.rows[q]
			}
			if !v.unit() {
				of.assumed = append(of.assumed, assumed{j, v.low, v.high, below, false})
			}
			multiplied(v.lowest, lp.Term{Variable: j, Value: d})
			multiplied(v.highest, lp.Term{Variable: j, Value: -d})
		case v.finite() && !own[j]:
			// The same with s, the sum of dw and the multipliers of other conditions, for dw. Its
			// (−s)₊ is the set's own.
			of.assumed = append(of.assumed, assumed{j, v.low, v.high, 0, true})
			rest := append(sums[j], lp.Term{Variable: j, Value: d})
			for _, term := range rest {
				miss(term.Variable, -v.low*term.Value)
			}
			if v.low < v.high {
				q := p.multiplier()
				of.assumed[len(of.assumed)-1].below = len(p.Rows)
				with := append(slices.Clone(rest), lp.Term{Variable: q, Value: 1})
				p.atLeast(0, with...)
				miss(q, v.high-v.low)
				multiplied(v.lowest, with...)
				multiplied(v.highest, lp.Term{Variable: q, Value: 1})
				continue
			}
			multiplied(v.lowest, rest...)
			var negative []lp.Term
			for _, term := range rest {
				negative = append(negative, lp.Term{Variable: term.Variable, Value: -term.Value})
			}
			multiplied(v.highest, negative...)
		case v.unbounded():
			p.Penalties[j] += cost
			of.forced = append(of.forced, j)
		default:
			row := lp.Row{Terms: append(sums[j], lp.Term{Variable: j, Value: d}), Equal: true, Cost: cost}
			if !math.IsInf(v.high, 1) {
				u := p.multiplier()
				miss(u, v.high)
				multiplied(v.highest, lp.Term{Variable: u, Value: 1})
				row.Terms = append(row.Terms, lp.Term{Variable: u, Value: 1})
			}
			if !math.IsInf(v.low, -1) {
				u := p.multiplier()
				miss(u, -v.low)
				multiplied(v.lowest, lp.Term{Variable: u, Value: 1})
				row.Terms = append(row.Terms, lp.Term{Variable: u, Value: -1})
			}
			p.row(&of, row)
		}
	}
	p.row(&of, margin)
	return of
}

// settle returns the members of a group that may be 1, where nothing but the group and bounds
// of 0 or 1 say so, and marks them. A member that must be 1 gets bounds like the others, and
// there are none to return. Groups of which more is known are not settled.
func settle(about []interval, group []int) (free []int, settled bool) {
	must := -1
	for _, j := range group {
		v := &about[j]
		low, high := max(v.low, 0), min(v.high, 1)
		switch {
		case v.general:
			return nil, false
		case low == 0 && high == 1:
			free = append(free, j)
		case low == 1 && high == 1:
			must = j
		case low != 0 || high != 0:
			return nil, false
		}
	}
	if must < 0 && len(free) == 1 {
		must = free[0]
	}
	for _, j := range group {
		if must < 0 {
			about[j].grouped = true
			continue
		}
		var is float64
		if j == must {
			is = 1
		}
		about[j].cut(Condition{[]lp.Term{{Variable: j, Value: 1}}, is}, -1)
		about[j].cut(Condition{[]lp.Term{{Variable: j, Value: -1}}, -is}, -1)
	}
	if must >= 0 {
		return nil, true
	}
	return free, true
}

// beneath returns the shared variable for (−w)₊ of a feature.
func (p *knowledgeProgram) beneath(j int) int {
	if p.below[j] == 0 {
		p.below[j] = p.multiplier()
		p.rows[p.below[j]] = len(p.Rows)
		p.atLeast(0, lp.Term{Variable: p.below[j], Value: 1}, lp.Term{Variable: j, Value: 1})
	}
	return p.below[j]
}

// lead returns the shared variable for the greatest −dw of some features.
func (p *knowledgeProgram) lead(of []int, d float64) int {
	key := fmt.Sprint(d, of)
	if p.leads[key] == 0 {
		p.leads[key] = p.variable()
		for _, j := range of {
			p.atLeast(0, lp.Term{Variable: p.leads[key], Value: 1}, lp.Term{Variable: j, Value: d})
		}
	}
	return p.leads[key]
}

// inBasis adds a set to a program in the coordinates of a basis.
func (p *knowledgeProgram) inBasis(s *Set, d, cost float64, z *kernels.Map) setRows {
	of := setRows{multipliers: make([]multiplier, len(s.Conditions))}
	if mean, sigma := z.Scaling(); mean != nil {
		scaled := s.Scaled(mean, sigma)
		s = &scaled
	}
	t, metric := len(p.Columns), z.Gram()
	margin := lp.Row{Terms: []lp.Term{{Variable: t, Value: -d}}, Bound: 1, Cost: cost}
	rows := make([]lp.Row, t) // K(Z, B')u + dK(Z, Z)w = 0, or its projection
	for i := range rows {
		rows[i] = lp.Row{Equal: true, Cost: cost}
		for j := range rows {
			rows[i].Terms = append(rows[i].Terms, lp.Term{Variable: j, Value: d * metric[gram.PackedLen(max(i, j))+min(i, j)]})
		}
	}
	point := make([]float64, len(z.Point(0)))
	for i, c := range s.polyhedron() {
		var largest float64
		for _, term := range c.Terms {
			largest = max(largest, math.Abs(term.Value))
		}
		clear(point)
		for _, term := range c.Terms {
			point[term.Variable] = term.Value / largest
		}
		u := p.multiplier()
		margin.Terms = append(margin.Terms, lp.Term{Variable: u, Value: -c.Bound / largest})
		for j, value := range z.At(point) {
			rows[j].Terms = append(rows[j].Terms, lp.Term{Variable: u, Value: value})
		}
		if i < len(of.multipliers) {
			of.multipliers[i] = multiplier{[]lp.Term{{Variable: u, Value: 1}}, largest}
		}
	}
	for _, row := range append(rows, margin) {
		p.row(&of, row)
	}
	return of
}
