package svm

import (
	"cmp"
	"context"
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
// a condition's factors are taken for a point. A projected basis has the projection of K(Z, B')
// and of K(Z, Z) from both sides. Each condition is first scaled so that its largest
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
	if err := k.check(n); err != nil {
		return nil, nil, err
	}
	if k.Map == nil {
		if free := k.free(n); len(free) > fewFeatures {
			return k.generate(ctx, rows, nu, free)
		}
	}
	p, grips, _, err := k.solve(ctx, rows, nu)
	return p, grips, err
}

// check returns an error for a set that is none of the features, for planes of n coordinates.
func (k *Knowledge) check(n int) error {
	if k.Map != nil {
		if n != k.Map.Size() {
			panic(fmt.Sprintf("svm: %d coordinates, and a basis of %d", n, k.Map.Size()))
		}
		n = len(k.Map.Point(0))
	}
	for i := range k.Sets {
		if err := k.Sets[i].check(n); err != nil {
			return fmt.Errorf("svm: set %d: %w", i, err)
		}
	}
	return nil
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
	if err := k.check(n); err != nil {
		return nil, err
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
		if k.Map == nil {
			k.share(p, own)
		}
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

// share adds the variables that sets share for their bounds. They come before those of one set
// alone, which package lp then eliminates apart from each other.
func (k *Knowledge) share(p *knowledgeProgram, own []map[int]bool) {
	for i := range k.Sets {
		grouped := slices.Concat(k.Sets[i].OneOf...)
		for j, v := range k.Sets[i].intervals(len(p.Columns)) {
			if v.bounded() && v.low < v.high && !own[i][j] && !slices.Contains(grouped, j) {
				p.beneath(j)
			}
		}
	}
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
