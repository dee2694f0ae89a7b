package svm

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"streamd/incremental/gram"
	"streamd/kernels/lp"
)

const (
	// stepAlpha is α of the concave exponential 1 − ε^(−αx), which stands for the step from 0
	// to 1 at x > 0. Fung 2003 sets it to 5 throughout chapter 4.
	stepAlpha = 5
	// settled is the relative gain of a program at which the linearisation counts as settled.
	// It is the largest relative gap of a program of package lp.
	settled = 1e-8

	// The usual μ. Those of Minimal leave about half the support vectors of Sparse, or fewer, and
	// larger ones hardly less; that of Features costs no correctness on the sets of table 4.1.
	minimalMu  = 128
	featuresMu = 0.25
)

// Minimal is the support vector machine with few support vectors,
//
//	min  ν c'(E + μ(e − ε^(−αE))) + ‖w‖₁
//	s.t. D(Aw − eγ) + E ≥ e,  E ≥ 0
//
// which is MSVM (Fung 2003, 4.7, where μ is νμ of here). An error costs νc as it does in
// Sparse, and nearly νcμ more for not being zero. Rows with an error are support vectors, so a
// large μ leaves little more of these than the rows that no plane has on their side.
//
// In the coordinates of a basis it is the minimal kernel classifier (Fung 2003, 4.26), which
// uses few points of the basis, too: w_j costs μ(1 − ε^(−α|w_j|)) more.
//
// The objective is concave, and is minimised by successive linearisation (algorithms 4.1.1 and
// 4.2.3), from the solution of Sparse and in the features that it uses. This ends at a local
// minimum, which need not be the global one. Objective is its value. Gap is what a better
// plane in these features could save to first order, by the last program. Alpha and the support
// vectors are those of the last program.
type Minimal struct {
	Mu float64 // μ ≥ 0, the price of a support vector in units of νc; 0: 128
	// Begin is ν of the plane of Sparse where the search begins. A smaller one than ν chooses
	// fewer features; Fung 2003 has one from 0.01 to 0.1. 0: ν.
	Begin float64
}

// Fit implements Machine.
func (m Minimal) Fit(ctx context.Context, rows *Rows, nu float64) (*Plane, error) {
	p := priced{rows: rows, nu: nu, begin: m.Begin, errors: m.Mu}
	if p.errors == 0 {
		p.errors = minimalMu
	}
	if rows.Basis {
		p.coefficients = p.errors
	}
	return p.minimise(ctx)
}

// priced is the program of Minimal and Features,
//
//	min  ν c's(E, errors) + e's(|w|, coefficients),   s(x, μ) = x + μ(1 − ε^(−αx))
type priced struct {
	rows                 *Rows
	nu, begin            float64
	errors, coefficients float64 // μ of each
}

// minimise solves linear programs until a program gains nothing. Each has the slope of the
// objective at the last solution as the costs of errors and coefficients (Fung 2003, 4.9, 4.27).
// The objective lies below its linearisation, so it falls with every program.
func (p *priced) minimise(ctx context.Context) (*Plane, error) {
	r := p.rows
	if err := r.Check(p.nu); err != nil {
		return nil, err
	}
	if r.Regulariser != nil {
		return nil, errRegulariser
	}
	if !amount(p.errors) || !amount(p.coefficients) || !amount(stepAlpha*p.nu*max(p.errors, p.coefficients)) {
		return nil, fmt.Errorf("svm: μ is %v with ν = %v: α·μ·ν is not a finite number that is at least 0", max(p.errors, p.coefficients), p.nu)
	}
	if !amount(p.begin) {
		return nil, fmt.Errorf("svm: the search begins with ν = %v, not a finite number that is at least 0", p.begin)
	}
	program := lp.Program{Columns: r.Columns, D: r.D, Nu: cmp.Or(p.begin, p.nu), Costs: r.Costs}
	v, err := program.Solve(ctx, r.Workers)
	if err != nil {
		return nil, err
	}
	program.Nu = p.nu
	plane := &Plane{
		W: make([]float64, len(r.Columns)), Programs: 1, Steps: v.Passes + v.Pivots,
		held: make([]bool, len(r.D)), entered: make([]bool, len(r.Columns)),
	}
	plane.hold(v)
	var columns []int
	for j, w := range v.U {
		if w != 0 {
			columns, plane.entered[j] = append(columns, j), true
		}
	}
	program.Columns = make([]gram.Column, len(columns))
	for k, j := range columns {
		program.Columns[k], v.U[k] = r.Columns[j], v.U[j]
	}
	v.U = v.U[:len(columns)]
	program.Costs, program.Penalties = make([]float64, len(r.D)), make([]float64, len(columns))
	for settles := false; !settles; {
		if plane.Programs == maxPrograms {
			return nil, fmt.Errorf("%w: the successive linearisation goes on after %d programs", lp.ErrNotConverged, maxPrograms)
		}
		var last float64 // the objective of the next program at the last solution
		for i, e := range v.E {
			program.Costs[i] = r.cost(i) * slope(e, p.errors)
			last += p.nu * program.Costs[i] * e
		}
		for j, w := range v.U {
			program.Penalties[j] = slope(math.Abs(w), p.coefficients)
			last += program.Penalties[j] * math.Abs(w)
		}
		program.Start = v
		next, err := program.Solve(ctx, r.Workers)
		if err != nil {
			return nil, err
		}
		plane.Programs++
		plane.Steps += next.Passes + next.Pivots
		plane.hold(next)
		if settles = last-next.Objective <= settled*last; settles {
			plane.Alpha, plane.Gap = next.Alpha, last-(next.Objective-next.Gap)
		} else {
			v = next
		}
	}
	for i, e := range v.E {
		plane.Objective += p.nu * r.cost(i) * step(e, p.errors)
	}
	for k, w := range v.U {
		plane.W[columns[k]] = w
		plane.Objective += step(math.Abs(w), p.coefficients)
	}
	plane.Gamma = v.Gamma
	return plane, nil
}

// hold marks the rows with α > 0.
func (p *Plane) hold(v *lp.Solution) {
	for i, alpha := range v.Alpha {
		p.held[i] = p.held[i] || alpha > 0
	}
}

// step is s(x, μ) = x + μ(1 − ε^(−αx)), for x ≥ 0 (Fung 2003, 4.25).
func step(x, mu float64) float64 { return x - mu*math.Expm1(-stepAlpha*x) }

// slope is the derivative of step.
func slope(x, mu float64) float64 { return 1 + mu*stepAlpha*math.Exp(-stepAlpha*x) }
