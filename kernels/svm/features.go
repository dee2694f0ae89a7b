package svm

import "context"

// Features is the 1-norm support vector machine that selects features,
//
//	min  ν c'E + ‖w‖₁ + μ e'(e − ε^(−α|w|))
//	s.t. D(Aw − eγ) + E ≥ e,  E ≥ 0
//
// which is FSV, feature selection by concave minimisation (Fung 2003, 4.11). A feature costs
// nearly μ for being used, and |w_j| as it does in Sparse. In the coordinates of a basis it
// selects points of that.
//
// It is solved like Minimal, and Objective, Gap and Alpha mean the same.
type Features struct {
	Mu float64 // μ ≥ 0, the price of a feature; 0: 1/4
}

// Fit implements Machine.
func (f Features) Fit(ctx context.Context, rows *Rows, nu float64) (*Plane, error) {
	p := priced{rows: rows, nu: nu, coefficients: f.Mu}
	if p.coefficients == 0 {
		p.coefficients = featuresMu
	}
	return p.minimise(ctx)
}
