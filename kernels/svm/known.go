package svm

import (
	"context"
	"fmt"
	"slices"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/kernels"
	"streamd/kernels/lp"
)

// KnownSums is the proximal plane with knowledge sets. It reads the rows' sums alone:
//
//	min  ½z'(I/ν + E'E)z − z'E'De + μ Σ (e'r + ρ),  z = [w; γ]
//
// over the constraints of Knowledge, which are those of Fung 2003, (3.13) and (3.15), and in the
// coordinates of a basis (3.36). A regulariser R takes the place of I, but for γ. The
// squared loss of (2.28) takes the place of the errors E and ‖w‖₁, which sums do not have, so the
// plane is a function of the set of rows. Without sets, or with μ = 0, it is that of (2.28).
// Without rows it is that of the sets. It is a quadratic program of package lp, with n + 1
// variables beside those of the sets.
type KnownSums struct {
	Sets []Set
	Mu   float64      // μ ≥ 0
	Map  *kernels.Map // the basis of the sums' coordinates; nil: the features
}

// String implements incremental.Solver.
func (*KnownSums) String() string { return "knowledge" }

// Uses implements incremental.Solver.
func (*KnownSums) Uses() (matrix, nu bool) { return true, true }

// Plane implements incremental.Solver. Its errors are those of sets that are none, and of
// lp.Program.Solve.
func (k *KnownSums) Plane(p *incremental.Program, nu float64) ([]float64, error) {
	z, _, err := k.Solve(p, nu)
	return z, err
}

// Solve is Plane that also returns the hold on each set, in the program's coordinates.
func (k *KnownSums) Solve(p *incremental.Program, nu float64) (z []float64, held []Grip, err error) {
	n := len(p.Right) - 1
	if !amount(k.Mu) || !(nu > 0) || !finite(nu) {
		return nil, nil, fmt.Errorf("svm: ν is %v and μ is %v", nu, k.Mu)
	}
	known := Knowledge{Sets: slices.Clone(k.Sets), Positive: p.Class, Mu: k.Mu, Map: k.Map}
	if err := known.check(n); err != nil {
		return nil, nil, err
	}
	for i := range known.Sets {
		if p.Mean != nil {
			known.Sets[i] = known.Sets[i].Scaled(p.Mean, p.Sigma)
		}
	}
	program := lp.Program{
		Columns: slices.Repeat([]gram.Column{gram.ColumnOf([]float64{})}, n), Penalties: make([]float64, n),
		Quadratic: slices.Clone(p.Matrix), Linear: make([]float64, n+1),
	}
	for i, r := range p.Regulariser {
		program.Quadratic[i] += r / nu
	}
	for j, b := range p.Right {
		if p.Regulariser == nil || j == n {
			program.Quadratic[gram.PackedLen(j)+j] += 1 / nu
		}
		program.Linear[j] = -b
	}
	v, rows, _, err := known.run(context.Background(), program, nil, 1)
	if err != nil {
		return nil, nil, err
	}
	for i := range rows {
		held = append(held, rows[i].grip(v))
	}
	return append(v.U, v.Gamma), held, nil
}
