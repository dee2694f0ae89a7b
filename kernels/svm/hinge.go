package svm

import (
	"context"

	"streamd/incremental/gram"
	"streamd/kernels"
	"streamd/kernels/lp"
)

// Hinge is the support vector machine with the hinge loss,
//
//	min  ½w'Rw + ν c'E
//	s.t. D(Aw − eγ) + E ≥ e,  E ≥ 0
//
// with R = I in features, and R = K(Z, Z) in the coordinates of a basis, where ½w'Rw is half
// of the squared norm of the classifier among functions of the kernel (Wu, Schölkopf and Bakır
// 2006, 28–30). γ is not regularised. So with R = I it is the linear problem of LIBSVM.
//
// It is one quadratic program of package lp, whose α are exactly 0 or νc where they are at
// these bounds. Its cost grows with m·n², where that of a full kernel grows with m².
//
// Of more than 4,096 features without a Regulariser, which would have a matrix of their square,
// it finds α of the dual program with the linear kernel, as SMO does, and w = A'Dα. Then the gap
// is the one that SMO leaves at a tolerance of 1e-8.
//
// Steps are interior-point and active-set iterations. A gap above 1e-8 of the objective is an
// error, and so is a Regulariser that is not positive semidefinite.
type Hinge struct{}

// Fit implements Machine.
func (h Hinge) Fit(ctx context.Context, rows *Rows, nu float64) (*Plane, error) {
	if err := rows.Check(nu); err != nil {
		return nil, err
	}
	if rows.Regulariser == nil && len(rows.Columns) > manyFeatures {
		return h.dual(ctx, rows, nu)
	}
	program := lp.Program{Columns: rows.Columns, D: rows.D, Nu: nu, Costs: rows.Costs, Quadratic: rows.Regulariser}
	if program.Quadratic == nil {
		n := len(rows.Columns)
		program.Quadratic = make([]float64, gram.PackedLen(n))
		for j := range n {
			program.Quadratic[gram.PackedLen(j)+j] = 1
		}
	}
	v, err := program.Solve(ctx, rows.Workers)
	if err != nil {
		return nil, err
	}
	return &Plane{
		W: v.U, Gamma: v.Gamma, Alpha: v.Alpha,
		Objective: v.Objective, Gap: v.Gap, Programs: 1, Steps: v.Passes + v.Pivots,
	}, nil
}

// manyFeatures is the most features that programs of their own order are solved for.
const manyFeatures = 4096

// dual finds the plane by the program of the rows.
func (h Hinge) dual(ctx context.Context, rows *Rows, nu float64) (*Plane, error) {
	const tolerance = 1e-8
	p, err := SMO{Kernel: kernels.Linear(), Tolerance: tolerance}.Fit(ctx, rows, nu)
	if err != nil {
		return nil, err
	}
	w := make([]float64, len(rows.Columns))
	gram.AddDots(w, rows.Columns, 0, nil, p.W)
	p.W = w
	return p, nil
}

func (h Hinge) convex() {}
