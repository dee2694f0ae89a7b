package svm

import (
	"context"
	"fmt"
	"math"

	"streamd/incremental/gram"
	"streamd/kernels/lp"
)

// Unlabelled is the concave semi-supervised machine VS³VM (Fung 2003, section 5.1). Rows with
// D = 0 have no label. Each of these, B, counts on the side where it misses its margin by less:
//
//	min  ν c'y + ‖w‖₁ + μ Σ c_j min{r_j, s_j}                         (5.1)
//	s.t. D(Aw − eγ) + y ≥ e,  Bw − eγ + r ≥ e,  −Bw + eγ + s ≥ e,  y, r, s ≥ 0
//
// So the plane avoids places where rows are dense. Without such rows it is that of Sparse.
//
// The last term is concave. Each linear program (5.2) has its supergradient at the last plane
// in its place: a row has the label of its side and weighs μ, or has both labels and μ/2 each
// if it lies on the plane (5.4 with λ = ½). In the first program all rows have both (5.5). The
// objective falls with every program. Fit returns the first plane that a program cannot improve
// by more than rounding (5.3), which need not be the best plane of all. Three to eight programs
// are usual, and 100 without an end are an error.
//
// Objective is that of (5.1). Gap is that of the last program, so it bounds what another plane
// saves while all rows keep their sides. Alpha of a row without a label is the sum of its two
// dual variables.
type Unlabelled struct {
	// Mu is μ/ν. 0: the rows without a label weigh half as much as those with one, all
	// together, and each at most ν.
	Mu float64
}

const maxPrograms = 100

func (u Unlabelled) partly() {}

// Fit implements Machine. A label of 0 is none.
func (u Unlabelled) Fit(ctx context.Context, rows *Rows, nu float64) (*Plane, error) {
	if err := rows.check(nu, true); err != nil {
		return nil, err
	}
	if !amount(u.Mu) {
		return nil, fmt.Errorf("svm: μ is %v times ν, not a finite number that is at least 0", u.Mu)
	}
	if rows.Regulariser != nil {
		return nil, errRegulariser
	}
	p := newSides(rows, u.Mu)
	program := lp.Program{Columns: p.columns, D: p.d, Nu: nu, Costs: p.costs}
	plane := &Plane{}
	for {
		v, err := program.Solve(ctx, rows.Workers)
		if err != nil {
			return nil, fmt.Errorf("program %d: %w", plane.Programs+1, err)
		}
		// (5.3): the plane before has the same linear objective.
		const rounding = 1e-8 // of package lp
		stationary := plane.Programs > 0 && v.Objective >= plane.Objective*(1-rounding)
		*plane = Plane{
			W: v.U, Gamma: v.Gamma, Alpha: p.sums(v.Alpha), Gap: v.Gap,
			Programs: plane.Programs + 1, Steps: plane.Steps + v.Passes + v.Pivots,
		}
		program.Start = v
		moved := p.side(plane)
		plane.Objective = p.objective(plane, v.E, nu)
		if stationary || !moved {
			return plane, nil
		}
		if plane.Programs == maxPrograms {
			return nil, fmt.Errorf("%w: the objective still falls after %d programs", lp.ErrNotConverged, maxPrograms)
		}
	}
}

// sides are the rows of the linear programs. Each row without a label is there twice, with
// label 1 and then with label −1.
type sides struct {
	rows     *Rows
	columns  []gram.Column
	d, costs []float64
	at       []int     // of each given row, its only or its first row here
	most     []float64 // of each given row: its cost, in units of ν
	values   []float64 // of each given row: its decision value
}

func newSides(rows *Rows, mu float64) *sides {
	m := len(rows.D)
	p := &sides{rows: rows, at: make([]int, m), most: make([]float64, m), values: make([]float64, m)}
	var labelled, unlabelled float64 // Σc
	for i, d := range rows.D {
		p.most[i] = 1
		if rows.Costs != nil {
			p.most[i] = rows.Costs[i]
		}
		if d == 0 {
			unlabelled += p.most[i]
		} else {
			labelled += p.most[i]
		}
	}
	if mu == 0 && unlabelled > 0 {
		mu = min(labelled/(2*unlabelled), 1)
	}
	for i, d := range rows.D {
		p.at[i] = len(p.d)
		if d != 0 {
			p.d, p.costs = append(p.d, d), append(p.costs, p.most[i])
			continue
		}
		p.most[i] *= mu
		p.d, p.costs = append(p.d, 1, -1), append(p.costs, p.most[i]/2, p.most[i]/2)
	}
	if len(p.d) == m {
		p.columns = rows.Columns
		return p
	}
	numbers := make([]float64, len(p.d)*len(rows.Columns))
	for j, c := range rows.Columns {
		x := numbers[j*len(p.d):][:len(p.d)]
		for i, d := range rows.D {
			x[p.at[i]] = c.At(i)
			if d == 0 {
				x[p.at[i]+1] = x[p.at[i]]
			}
		}
		p.columns = append(p.columns, gram.ColumnOf(x))
	}
	return p
}

// side puts each row without a label on its side of the plane, and reports whether any row has
// moved.
func (p *sides) side(plane *Plane) (moved bool) {
	for i := range p.values {
		p.values[i] = -plane.Gamma
	}
	gram.AddProducts(p.values, p.rows.Columns, 0, nil, plane.W)
	for i, d := range p.rows.D {
		if d != 0 {
			continue
		}
		positive := p.most[i] / 2
		switch value := p.values[i]; {
		case value > 0:
			positive = p.most[i]
		case value < 0:
			positive = 0
		}
		costs := p.costs[p.at[i]:][:2]
		if costs[0] != positive {
			costs[0], costs[1], moved = positive, p.most[i]-positive, true
		}
	}
	return moved
}

// objective is that of (5.1), for the plane of side and the errors of its program.
func (p *sides) objective(plane *Plane, errors []float64, nu float64) (sum float64) {
	for i, d := range p.rows.D {
		missed := errors[p.at[i]]
		if d == 0 {
			missed = max(1-math.Abs(p.values[i]), 0)
		}
		sum += nu * p.most[i] * missed
	}
	for _, w := range plane.W {
		sum += math.Abs(w)
	}
	return sum
}

// sums adds up the dual variables of each given row.
func (p *sides) sums(alpha []float64) []float64 {
	if len(alpha) == len(p.rows.D) {
		return alpha
	}
	out := make([]float64, len(p.rows.D))
	for i, d := range p.rows.D {
		out[i] = alpha[p.at[i]]
		if d == 0 {
			out[i] += alpha[p.at[i]+1]
		}
	}
	return out
}
