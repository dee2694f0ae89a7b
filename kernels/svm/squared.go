package svm

import (
	"context"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/newton"
)

// Squared is the support vector machine with the squared hinge loss, for fewer rows than features:
//
//	min  ν/2 Σ c_i (1 − d_i(x_i'w − γ))₊² + ½(‖w‖² + γ²)
//
// which is (2.37) of Fung 2003, by NSVM, his algorithm 6.3.1 (newton.Dual). Where there are more
// rows than features, package newton refines planes that sums gave. Alpha is u of (2.43).
type Squared struct{}

// Fit implements Machine.
func (s Squared) Fit(ctx context.Context, rows *Rows, nu float64) (*Plane, error) {
	if err := rows.Check(nu); err != nil {
		return nil, err
	}
	if rows.Regulariser != nil {
		return nil, errRegulariser
	}
	classes := []string{"-1", "1"}
	b := &incremental.Block{Columns: rows.Columns, Classes: classes, Codes: make([]int32, len(rows.D)), Weights: rows.Costs}
	for i, d := range rows.D {
		b.Codes[i] = int32(max(d, 0))
	}
	n := len(rows.Columns)
	begin := &incremental.Model{
		Features: incremental.DefaultFeatures(n), Classes: classes, Options: incremental.Options{Nu: nu},
		Planes: []incremental.Plane{{Class: classes[1], W: make([]float64, n)}},
	}
	found, err := newton.Refine(ctx, begin, newton.Blocks{b}, newton.Options{Method: newton.Dual, Workers: rows.Workers})
	if err != nil {
		return nil, err
	}
	plane, report := found.Model.Planes[0], found.Planes[0]
	out := &Plane{W: plane.W, Gamma: plane.Gamma, Alpha: make([]float64, len(rows.D)), Objective: report.Objective, Gap: report.Gap, Programs: 1, Steps: report.Iterations}
	gram.AddProducts(out.Alpha, rows.Columns, 0, nil, plane.W)
	for i, d := range rows.D {
		out.Alpha[i] = nu * rows.cost(i) * max(0, 1-d*(out.Alpha[i]-plane.Gamma))
	}
	return out, nil
}

func (s Squared) convex() {}
