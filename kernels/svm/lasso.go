package svm

import (
	"context"
	"errors"
	"fmt"
	"math"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/kernels/lp"
)

// Lasso is the plane of least squares with few features (Tibshirani 1996), read off sums alone:
//
//	min  ‖w‖₁ + (ν/2) Σ a v (1 − d(x̂'w − γ))²
//
// The squared loss is that of (2.28) in Fung 2003, and ‖w‖₁ is that of (3.1). γ is not
// regularised. Zeros of w are exact: the smaller ν, the fewer features the plane has. It is a
// quadratic program of package lp in n + 1 variables.
type Lasso struct{}

// String implements incremental.Solver.
func (Lasso) String() string { return "lasso" }

// Uses implements incremental.Solver.
func (Lasso) Uses() (matrix, nu bool) { return true, true }

// Plane implements incremental.Solver. It refuses a regulariser. Its other errors are those of
// lp.Program.Solve.
func (Lasso) Plane(p *incremental.Program, nu float64) ([]float64, error) {
	if p.Regulariser != nil {
		return nil, errors.New("the lasso has no regulariser but the 1-norm")
	}
	if !(nu > 0) || math.IsInf(nu, 1) {
		return nil, fmt.Errorf("svm: ν is %v", nu)
	}
	// In units of the rows' mass, so that the numbers are those of one row. With γ' = γ − w'μ,
	// where μ is the mean of the rows, w and γ' have no products, and features may be far from 0.
	n := len(p.Right) - 1
	last := p.Matrix[gram.PackedLen(n):] // −Σ a v x̂, Σ a v
	weight := last[n]
	mean := make([]float64, n)
	program := lp.Program{
		Columns: make([]gram.Column, n), Penalties: make([]float64, n),
		Quadratic: make([]float64, len(p.Matrix)), Linear: make([]float64, n+1),
	}
	for j := range n {
		mean[j] = -last[j] / weight
		program.Columns[j] = gram.ColumnOf([]float64{})
		program.Penalties[j] = 1 / nu / weight
		program.Linear[j] = -(p.Right[j] + p.Right[n]*mean[j]) / weight
		for i := range j + 1 {
			k := gram.PackedLen(j) + i
			program.Quadratic[k] = p.Matrix[k]/weight - mean[i]*mean[j]
		}
		// So much may be lost to rounding, and the matrix has to stay positive semidefinite.
		program.Quadratic[gram.PackedLen(j)+j] += 4 * float64(n) * 0x1p-52 * mean[j] * mean[j]
	}
	program.Quadratic[len(program.Quadratic)-1] = 1
	program.Linear[n] = -p.Right[n] / weight
	v, err := program.Solve(context.Background(), 1)
	if err != nil {
		return nil, err
	}
	gamma := v.Gamma
	for j, w := range v.U {
		gamma += w * mean[j]
	}
	return append(v.U, gamma), nil
}
