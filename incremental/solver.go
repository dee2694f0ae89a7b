package incremental

import (
	"errors"
	"iter"
	"math"
)

// Solver finds planes from sums by another criterion than the proximal one. Moments.Solve and
// Path call it if Options have one. It needs no rows, so its planes are functions of the set of
// live blocks, like proximal ones.
type Solver interface {
	// Plane returns z = [w; γ] in the program's coordinates. It is a function of the program and
	// ν, and may run on several goroutines at once.
	Plane(p *Program, nu float64) (z []float64, err error)
	// Uses says whether Plane reads the program's Matrix, and whether ν changes its labels.
	Uses() (matrix, nu bool)
	// String is the solver's name.
	String() string
}

// Program is what sums know of one plane x̂'w = γ, with the weights a and v, the sides d and the
// vectors z = [x̂; −1] of Moments.Solve. Its squared error is z'Hz − 2z'b + Mass.
//
// The coordinates are x̂ = (x − Mean)/Sigma. Missing values have been imputed.
type Program struct {
	Class       string
	Classes     []string // of all rows
	Features    []string
	Mean, Sigma []float64 // nil: x̂ = x
	Matrix      []float64 // H = Σ a v z z', packed lower triangle of order n+1; see Solver.Uses
	Right       []float64 // b = Σ a d v z, n+1
	Mass        float64   // Σ a v
	Regulariser []float64 // R of WithRegulariser, nil: I
}

// solveBy solves by Options.Solver for every ν.
func (m *Moments) solveBy(o Options, nus []float64) ([]*Model, error) {
	matrix, tuned := o.Solver.Uses()
	x := m.coordinates(o.Standardise)
	models, like := make([]*Model, len(nus)), m.model(o)
	for i, nu := range nus {
		model := *like
		model.Options.Nu = nu
		models[i] = &model
	}
	for p := range m.programs(o, x, matrix) {
		var plane Plane
		for i, nu := range nus {
			if i == 0 || tuned {
				z, err := o.Solver.Plane(p, nu)
				if err != nil {
					return nil, err
				}
				plane = Plane{Class: p.Class, Condition: math.NaN()}
				plane.W, plane.Gamma = x.back(doubles(z))
			}
			models[i].Planes = append(models[i].Planes, plane)
		}
	}
	return models, nil
}

// Programs yields the program of each plane, in order, with its matrix. It is valid until the next.
// Options that are not of the system, such as ν, do not matter. With fewer than two classes there
// are no planes.
func (m *Moments) Programs(o Options) iter.Seq[*Program] {
	if len(m.classes) < 2 {
		return func(func(*Program) bool) {}
	}
	return m.programs(o, m.coordinates(o.Standardise), true)
}

func (m *Moments) programs(o Options, x coordinates, matrix bool) iter.Seq[*Program] {
	return func(yield func(*Program) bool) {
		p := Program{Features: m.features, Regulariser: m.regulariser}
		parts := make([]system, len(m.classes))
		for c := range parts {
			p.Classes = append(p.Classes, m.classes[c].label)
			if matrix {
				parts[c] = x.part(&m.classes[c])
			} else {
				parts[c] = x.firsts(&m.classes[c])
			}
		}
		if o.Standardise {
			p.Mean, p.Sigma = m.Scale()
		}
		for r, s := range m.systems(o, parts) {
			p.Class, p.Right, p.Mass = m.classes[r].label, nearest(s.right), s.mass
			if matrix {
				p.Matrix = nearest(s.matrix)
			}
			if !yield(&p) {
				return
			}
		}
	}
}

func nearest(t []double) []float64 {
	out := make([]float64, len(t))
	for i := range t {
		out[i] = t[i].hi
	}
	return out
}

func doubles(v []float64) []double {
	out := make([]double, len(v))
	for i := range v {
		out[i] = toDouble(v[i])
	}
	return out
}

// Means is the Solver of the linear error (González-Castaño and Meyer, 6): a row on the right side
// of its margin earns as much as one on the wrong side pays.
//
//	min  ν Σ a v (1 − d(x̂'w − γ)) + ‖w‖² + γ²
//	w = (ν/2) Σ a d v x̂,  γ = −(ν/2) Σ a d v
//
// So w is the difference of the first sums of both sides, and of their means if these are
// balanced, which also makes γ 0. ν is a factor of the decision values and changes no label.
// Means takes 4/Σav for it, which makes the balanced w exactly the difference of the means, and
// decision values of folds comparable. The cost is O(n) for a plane.
type Means struct{}

// String implements Solver.
func (Means) String() string { return "means" }

// Uses implements Solver.
func (Means) Uses() (matrix, nu bool) { return false, false }

// Plane implements Solver. It refuses a regulariser, which would take a linear system.
func (Means) Plane(p *Program, _ float64) ([]float64, error) {
	if p.Regulariser != nil {
		return nil, errors.New("means have no regulariser but the identity")
	}
	z := make([]float64, len(p.Right))
	for j, b := range p.Right {
		z[j] = b * 2 / p.Mass
	}
	return z, nil
}
