package svm

import (
	"context"

	"streamd/kernels/lp"
)

// Sparse is the 1-norm support vector machine,
//
//	min  ν c'E + ‖w‖₁
//	s.t. D(Aw − eγ) + E ≥ e,  E ≥ 0
//
// which is Fung 2003, (3.1), and in the coordinates of a basis (3.32). It is one linear program
// of package lp. Its solution is a vertex, so zeros of w are exact: the smaller ν, the fewer
// features or points of the basis the plane uses.
//
// Steps are interior-point iterations and pivots. A gap above 1e-8 of the objective is an
// error.
type Sparse struct{}

func (s Sparse) convex() {}

// Fit implements Machine.
func (s Sparse) Fit(ctx context.Context, rows *Rows, nu float64) (*Plane, error) {
	if err := rows.Check(nu); err != nil {
		return nil, err
	}
	if rows.Regulariser != nil {
		return nil, errRegulariser
	}
	program := lp.Program{Columns: rows.Columns, D: rows.D, Nu: nu, Costs: rows.Costs}
	v, err := program.Solve(ctx, rows.Workers)
	if err != nil {
		return nil, err
	}
	return &Plane{
		W: v.U, Gamma: v.Gamma, Alpha: v.Alpha,
		Objective: v.Objective, Gap: v.Gap, Programs: 1, Steps: v.Passes + v.Pivots,
	}, nil
}
