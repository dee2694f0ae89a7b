package svm

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"streamd/incremental/gram"
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
// Of more than 4,096 features it solves the program of some of them, at first of those that
// NewtonLP uses, and adds the ones whose dual constraint |A'Dα| ≤ 1 is violated most, until there
// are none: then w with zeros elsewhere is a solution for all features.
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
	if len(rows.Columns) > manyFeatures {
		return s.generate(ctx, rows, nu)
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

const (
	// overpriced is how far |A'Dα| may be above 1: the objective is then off by as large a share of
	// ‖w‖₁.
	overpriced = 1e-9
	// entering is the most features that enter a program at a time.
	entering = 256
)

// generate solves programs of a few features, until no other feature would lower the objective.
func (s Sparse) generate(ctx context.Context, rows *Rows, nu float64) (*Plane, error) {
	n := len(rows.Columns)
	var used []int
	begin, err := NewtonLP{}.Fit(ctx, rows, nu)
	if err != nil && !errors.Is(err, ErrNotConverged) {
		return nil, err
	}
	for j := 0; begin != nil && j < n; j++ {
		if begin.W[j] != 0 {
			used = append(used, j)
		}
	}
	out := &Plane{}
	price, signed := make([]float64, n), make([]float64, len(rows.D))
	for {
		columns := make([]gram.Column, len(used))
		for k, j := range used {
			columns[k] = rows.Columns[j]
		}
		program := lp.Program{Columns: columns, D: rows.D, Nu: nu, Costs: rows.Costs}
		v, err := program.Solve(ctx, rows.Workers)
		if err != nil {
			return nil, err
		}
		out.Programs++
		out.Steps += v.Passes + v.Pivots
		for i, a := range v.Alpha {
			signed[i] = a * rows.D[i]
		}
		clear(price)
		gram.AddDots(price, rows.Columns, 0, nil, signed)
		var violators []int
		for j, p := range price {
			if math.Abs(p) > 1+overpriced && !slices.Contains(used, j) {
				violators = append(violators, j)
			}
		}
		if violators == nil {
			out.W, out.Gamma, out.Alpha, out.Objective, out.Gap = make([]float64, n), v.Gamma, v.Alpha, v.Objective, v.Gap
			for k, j := range used {
				out.W[j] = v.U[k]
			}
			return out, nil
		}
		slices.SortFunc(violators, func(a, b int) int { return cmp.Compare(math.Abs(price[b]), math.Abs(price[a])) })
		used = append(used, violators[:min(len(violators), entering)]...)
		slices.Sort(used)
	}
}
