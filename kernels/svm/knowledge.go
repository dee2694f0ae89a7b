package svm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"streamd/incremental/gram"
	"streamd/kernels"
	"streamd/kernels/lp"
)

// Knowledge is the 1-norm support vector machine with polyhedral knowledge sets. For sets
// {x : Bx ≤ b} of the positive class (d = 1) and of the other (d = −1) it minimises
//
//	ν c'E + ‖w‖₁ + μ Σ (e'r + ρ)
//	s.t. D(Aw − eγ) + E ≥ e,  E ≥ 0
//	     −r ≤ B'u + dw ≤ r,  b'u + dγ + 1 ≤ ρ,  u, ρ ≥ 0   for each set
//
// which is Fung 2003, (3.15). With r = ρ = 0 the set lies beyond its bounding plane,
// d(x'w − γ) ≥ 1 (proposition 3.1.1). With ν = 0, or without rows, the plane is that of the
// sets alone.
//
// In the coordinates of a basis the second line is −r ≤ K(Z, B')u + dK(Z, Z)w ≤ r (3.36), where
// a condition's factors are taken for a point. Each condition is first scaled so that its largest
// factor is 1 in magnitude. Then the surface does not depend on how a condition is written.
//
// A multiplier u ≥ 0 of each condition is a variable of the program. Not so in the features,
// where a set bounds a feature on its own by l ≤ x ≤ h: with r = 0 the best u is (dw)₊ for l and
// (−dw)₊ for h, which follow from a variable that all sets share. Within [−1, 1] r costs no less
// than u. Beyond, a feature gets multipliers of its own where the dual solution says that r would
// save something. One-of groups are treated alike. So a rule of bounds adds one row and hardly a
// variable, whatever the number of its conditions.
type Knowledge struct {
	Sets []Set
	// Positive is the class of the plane's positive side. The sets of all other classes belong
	// to the other side.
	Positive string
	Mu       float64 // μ ≥ 0
	// Alone makes ν 0: rows do not count.
	Alone bool
	// Report, unless nil, is called by Fit with the hold on each set.
	Report func(held []Grip)
	// Map is the basis of the rows' coordinates; nil: the features.
	Map *kernels.Map
}

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

// A Grip is the hold of a plane on a set.
type Grip struct {
	// Slack is e'r + ρ. It is 0 where the whole set lies beyond its bounding plane.
	Slack float64
	// Multipliers are u of the conditions. Conditions with u > 0 are the support constraints:
	// without the others the plane is the same. Those of groups are not listed.
	Multipliers []float64
}

// Fit implements Machine.
func (k Knowledge) Fit(ctx context.Context, rows *Rows, nu float64) (*Plane, error) {
	if k.Alone {
		nu = 0
	}
	p, held, err := k.Solve(ctx, rows, nu)
	if err != nil {
		return nil, err
	}
	if k.Alone {
		p.Alpha = nil // α = 0 does not say that a row is right
	}
	if k.Report != nil {
		k.Report(held)
	}
	return p, nil
}

func (Knowledge) convex() {}

// of returns the machine for the plane of a class, in the coordinates (x − μ)/σ if mean is not
// nil.
func (k Knowledge) of(class string, mean, sigma []float64) Machine {
	k.Positive = class
	if mean != nil {
		k.Sets = slices.Clone(k.Sets)
		for i := range k.Sets {
			k.Sets[i] = k.Sets[i].Scaled(mean, sigma)
		}
	}
	return k
}

// Solve is Fit that also returns the hold on each set. No set may be empty: see
// Set.Contradiction.
func (k Knowledge) Solve(ctx context.Context, rows *Rows, nu float64) (*Plane, []Grip, error) {
	if err := rows.Check(nu); err != nil {
		return nil, nil, err
	}
	if rows.Regulariser != nil {
		return nil, nil, errRegulariser
	}
	if !amount(k.Mu) {
		return nil, nil, fmt.Errorf("svm: μ is %v, not a finite number that is at least 0", k.Mu)
	}
	n := len(rows.Columns)
	if k.Map != nil {
		n = len(k.Map.Point(0))
	}
	for i := range k.Sets {
		if err := k.Sets[i].check(n); err != nil {
			return nil, nil, fmt.Errorf("svm: set %d: %w", i, err)
		}
	}
	if k.Map == nil {
		if free := k.free(n); len(free) > fewFeatures {
			return k.generate(ctx, rows, nu, free)
		}
	}
	p, grips, _, err := k.solve(ctx, rows, nu)
	return p, grips, err
}

// side is d of a set.
func (k *Knowledge) side(s *Set) float64 {
	if s.Class == k.Positive {
		return 1
	}
	return -1
}

// solve solves the program with all features at once. It also returns the dual variable of each
// set's margin, b'u + dγ + 1 ≤ ρ.
func (k *Knowledge) solve(ctx context.Context, rows *Rows, nu float64) (*Plane, []Grip, []float64, error) {
	penalties := slices.Repeat([]float64{1}, len(rows.Columns))
	program := lp.Program{Columns: rows.Columns, D: rows.D, Nu: nu, Costs: rows.Costs, Penalties: penalties}
	v, held, programs, err := k.run(ctx, program, nil, rows.Workers)
	if err != nil {
		return nil, nil, nil, err
	}
	grips, margins := make([]Grip, len(held)), make([]float64, len(held))
	for i := range held {
		of := &held[i]
		grips[i], margins[i] = of.grip(v), v.Beta[of.rows[len(of.rows)-1]]
	}
	return &Plane{
		W: v.U, Gamma: v.Gamma, Alpha: v.Alpha,
		Objective: v.Objective, Gap: v.Gap, Programs: programs, Steps: v.Passes + v.Pivots,
	}, grips, margins, nil
}

// Hold returns the hold of a plane on each set.
func (k Knowledge) Hold(ctx context.Context, w []float64, gamma float64) ([]Grip, error) {
	n := len(w)
	for i := range k.Sets {
		if err := k.Sets[i].check(n); err != nil {
			return nil, fmt.Errorf("svm: set %d: %w", i, err)
		}
	}
	empty := slices.Repeat([]gram.Column{gram.ColumnOf([]float64{})}, n)
	program := lp.Program{Columns: empty, Penalties: make([]float64, n)}
	v, rows, _, err := k.run(ctx, program, append(slices.Clone(w), gamma), 1)
	if err != nil {
		return nil, err
	}
	held := make([]Grip, len(rows))
	for i := range rows {
		held[i] = rows[i].grip(v)
	}
	return held, nil
}

// run adds the sets to a program and solves it. With fixed, w and γ are given.
//
// At first no bounded feature has multipliers of its own, as if r were 0: see setRows.assumed.
// Those get them whose r would save more than it costs, by the dual solution. So the last
// solution is that of the program with all multipliers. It also returns the number of programs.
func (k *Knowledge) run(ctx context.Context, program lp.Program, fixed []float64, workers int) (*lp.Solution, []setRows, int, error) {
	const tolerance = 1e-9 // of a slack's cost
	own := make([]map[int]bool, len(k.Sets))
	for programs := 1; ; programs++ {
		p := &knowledgeProgram{Program: program, below: make([]int, len(program.Columns)), rows: map[int]int{}, leads: map[string]int{}}
		p.Penalties = slices.Clone(program.Penalties)
		held := make([]setRows, len(k.Sets))
		for i := range k.Sets {
			s := &k.Sets[i]
			if d, cost := k.side(s), k.Mu*s.Weight; k.Map != nil {
				held[i] = p.inBasis(s, d, cost, k.Map)
			} else {
				held[i] = p.inFeatures(s, d, cost, own[i])
			}
		}
		v, err := p.solve(ctx, fixed, workers)
		if err != nil {
			return nil, nil, 0, err
		}
		done := true
		for i := range held {
			of := &held[i]
			margin, cost := v.Beta[of.rows[len(of.rows)-1]], k.Mu*k.Sets[i].Weight
			for _, a := range of.assumed {
				// The point of the set that is nearest to the wrong side has x = l or h, or
				// where w is 0 one between.
				high := 0.0
				if a.below > 0 {
					if low, at := v.Beta[a.below-1], v.Beta[a.below]; at > 0 {
						high = at / (low + at)
					}
				}
				x := a.low + high*(a.high-a.low)
				if !a.own && k.side(&k.Sets[i]) < 0 {
					x = a.high - high*(a.high-a.low)
				}
				if margin*math.Abs(x) > cost*(1+tolerance) {
					if own[i] == nil {
						own[i] = map[int]bool{}
					}
					own[i][a.feature], done = true, false
				}
			}
		}
		if done {
			return v, held, programs, nil
		}
	}
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

// fewFeatures is the number of features that are all in the program at once.
const fewFeatures = 64

// free returns the features that a program can go without where their w is 0: they need no
// multipliers of their own, or no set bounds them.
func (k *Knowledge) free(n int) (free []int) {
	bound := make([]bool, n)
	for i := range k.Sets {
		about := k.Sets[i].intervals(n)
		for _, group := range k.Sets[i].OneOf {
			for _, j := range group {
				bound[j] = true
			}
		}
		for j := range about {
			bound[j] = bound[j] || !about[j].unit() && !about[j].unbounded()
		}
	}
	for j := range bound {
		if !bound[j] {
			free = append(free, j)
		}
	}
	return free
}

// generate solves the program by column generation: it begins with few of the free features and
// adds those whose w = 0 is not optimal by the dual solution, until there are none. The plane is
// that of all features, within the tolerance, and few features are in it.
func (k *Knowledge) generate(ctx context.Context, rows *Rows, nu float64, free []int) (*Plane, []Grip, error) {
	const tolerance = 1e-9 // of a w's price
	n := len(rows.Columns)
	in := slices.Repeat([]bool{true}, n)
	for _, j := range free {
		in[j] = false
	}
	abouts := make([][]interval, len(k.Sets))
	for i := range k.Sets {
		abouts[i] = k.Sets[i].intervals(n)
	}
	at := &Plane{W: make([]float64, n), Alpha: slices.Clone(rows.Costs)}
	if at.Alpha == nil {
		at.Alpha = slices.Repeat([]float64{1}, len(rows.D))
	}
	margins := make([]float64, len(k.Sets))
	for i := range k.Sets {
		margins[i] = k.Mu * k.Sets[i].Weight
	}
	for i := range at.Alpha {
		at.Alpha[i] *= nu // the dual solution of w = 0 where all rows and sets are missed
	}
	var grips []Grip
	for first := true; ; first = false {
		// How much faster than its price a step of w from 0 saves errors and slack.
		type saving struct {
			feature int
			value   float64
		}
		var savings []saving
		for _, j := range free {
			if in[j] {
				continue
			}
			price, up := 1.0, 0.0
			for i, a := range at.Alpha {
				if a != 0 {
					up += a * rows.D[i] * rows.Columns[j].At(i)
				}
			}
			down := -up
			for i := range k.Sets {
				v := &abouts[i][j]
				switch {
				case v.unbounded():
					price += k.Mu * k.Sets[i].Weight
				case k.side(&k.Sets[i]) > 0:
					up += margins[i] * v.low
					down -= margins[i] * v.high
				default:
					up -= margins[i] * v.high
					down += margins[i] * v.low
				}
			}
			if value := max(up, down) - price; value > tolerance*price || first {
				savings = append(savings, saving{j, value})
			}
		}
		if len(savings) == 0 && grips != nil {
			return at, grips, nil
		}
		slices.SortStableFunc(savings, func(a, b saving) int { return cmp.Compare(b.value, a.value) })
		for _, s := range savings[:min(len(savings), fewFeatures/2)] {
			in[s.feature] = true
		}
		var features []int
		part := &Rows{D: rows.D, Costs: rows.Costs, Workers: rows.Workers}
		for j := range in {
			if in[j] {
				features, part.Columns = append(features, j), append(part.Columns, rows.Columns[j])
			}
		}
		sub, kept := k.only(features, n)
		p, some, beta, err := sub.solve(ctx, part, nu)
		if err != nil {
			return nil, nil, err
		}
		p.Programs += at.Programs
		p.Steps += at.Steps
		w := make([]float64, n)
		for i, j := range features {
			w[j] = p.W[i]
		}
		p.W, at, margins, grips = w, p, beta, make([]Grip, len(k.Sets))
		for i := range grips {
			grips[i] = Grip{some[i].Slack, make([]float64, len(k.Sets[i].Conditions))}
			for c, of := range kept[i] {
				grips[i].Multipliers[of] = some[i].Multipliers[c]
			}
		}
	}
}

// only returns the knowledge in some of the features, and the conditions that each set keeps.
func (k *Knowledge) only(features []int, n int) (Knowledge, [][]int) {
	number := slices.Repeat([]int{-1}, n)
	for i, j := range features {
		number[j] = i
	}
	sub, kept := Knowledge{Positive: k.Positive, Mu: k.Mu}, make([][]int, len(k.Sets))
	for i, s := range k.Sets {
		part := Set{Class: s.Class, Weight: s.Weight}
		for c, from := range s.Conditions {
			if number[from.Terms[0].Variable] < 0 {
				continue
			}
			to := Condition{Bound: from.Bound}
			for _, term := range from.Terms {
				to.Terms = append(to.Terms, lp.Term{Variable: number[term.Variable], Value: term.Value})
			}
			part.Conditions, kept[i] = append(part.Conditions, to), append(kept[i], c)
		}
		for _, from := range s.OneOf {
			var to []int
			for _, j := range from {
				to = append(to, number[j])
			}
			part.OneOf = append(part.OneOf, to)
		}
		sub.Sets = append(sub.Sets, part)
	}
	return sub, kept
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

// A knowledgeProgram is the linear program of a Knowledge while it is built.
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
	t, kernel, points := len(p.Columns), z.Kernel(), z.Gram()
	margin := lp.Row{Terms: []lp.Term{{Variable: t, Value: -d}}, Bound: 1, Cost: cost}
	rows := make([]lp.Row, t) // K(Z, B')u + dK(Z, Z)w = 0
	for i := range rows {
		rows[i] = lp.Row{Equal: true, Cost: cost}
		for j := range rows {
			rows[i].Terms = append(rows[i].Terms, lp.Term{Variable: j, Value: d * points[gram.PackedLen(max(i, j))+min(i, j)]})
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
		for j := range rows {
			rows[j].Terms = append(rows[j].Terms, lp.Term{Variable: u, Value: kernel.Value(kernel.Argument(z.Point(j), point))})
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
