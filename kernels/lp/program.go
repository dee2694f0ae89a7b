package lp

import (
	"errors"
	"fmt"
	"math"

	"streamd/incremental/gram"
)

// Hard is the cost of a Row that must hold.
var Hard = math.Inf(1)

// A Program is the data of a program: see the package's comment. The numbers of its
// variables are j for u_j, t for γ, and t+1+j for s_j. It may have no rows (then columns
// are of length 0), and no columns.
type Program struct {
	Columns []gram.Column // K: t columns of m finite numbers
	D       []float64     // m labels, 1 or −1
	Nu      float64       // ν ≥ 0

	Costs     []float64  // c ≥ 0 of each row; nil: 1 each. A row of cost 0 is ignored.
	Penalties []float64  // g ≥ 0 of each u_j; nil: 1 each, or 0 each if Quadratic is given
	Variables []Variable // the extra variables s
	Rows      []Row      // the extra constraints

	// Quadratic is Q, a symmetric and positive semidefinite matrix: its packed lower
	// triangle, row by row. Its order may be less than the number of variables; it is
	// that of the first ones. With t it regularises u, with t+1 also γ. nil: no
	// quadratic term, a linear program.
	Quadratic []float64
	// Linear is f of the first variables, as many as it has numbers; nil: 0 each. That
	// of s_j is added to its Cost.
	Linear []float64

	// Start is the solution of a linear program with the same data, whose costs may be others.
	// It saves time, all the more the closer it is: the search begins at its vertex, and only
	// where it comes to no end like any other. nil: none. A quadratic program ignores it.
	Start *Solution
}

// A Variable is an extra variable. It is free; use Rows for bounds.
type Variable struct {
	Cost    float64 // f, the cost of s
	Penalty float64 // g ≥ 0, the cost of |s|
}

// A Row is an extra constraint a'[u; γ; s] ≥ b, or = b.
type Row struct {
	Terms []Term  // a
	Equal bool    // = rather than ≥
	Bound float64 // b
	Cost  float64 // the cost of missing the constraint by 1; Hard: it must hold
}

// A Term is one coefficient of a Row.
type Term struct {
	Variable int
	Value    float64
}

// A Solution is an optimal point with its certificate: a dual solution whose objective
// differs only by Gap. That of a linear program is a vertex.
type Solution struct {
	U     []float64 // t
	Gamma float64
	S     []float64 // the extra variables
	E     []float64 // m, the amounts by which rows miss their margins
	Slack []float64 // the amounts by which extra rows are missed; b − a'x for an equality

	Alpha []float64 // m, the dual variables of the rows, 0 ≤ α ≤ νc
	Beta  []float64 // the dual variables of the extra rows, 0 ≤ β ≤ cost, or |β| ≤ cost for equalities

	Objective float64
	Gap       float64 // Objective less the dual objective
	Passes    int     // interior-point iterations: each a weighted Gram matrix
	Pivots    int     // simplex iterations of the crossover, or active-set iterations
}

// SupportVectors is the number of rows whose dual variable is positive.
func (s *Solution) SupportVectors() int {
	count := 0
	for _, a := range s.Alpha {
		if a > 0 {
			count++
		}
	}
	return count
}

// The errors of Solve for a Program that has no solution, or none that it finds.
var (
	// ErrInfeasible: the Hard rows contradict each other. Beta of the Solution
	// is the proof: multipliers with Σβa = 0 and Σβb > 0.
	ErrInfeasible = errors.New("lp: infeasible: the hard rows contradict each other")
	// ErrUnbounded: the linear costs outweigh all other terms. U,
	// Gamma and S of the Solution are a direction along which the objective falls
	// without end.
	ErrUnbounded = errors.New("lp: unbounded: the objective falls for ever")
	// ErrNotConverged: rounding prevented convergence, or a limit was reached. The
	// Solution, if any, is the last point and proves nothing.
	ErrNotConverged = errors.New("lp: not converged")
)

func (p *Program) check() error {
	m, t := len(p.D), len(p.Columns)
	if p.Costs != nil && len(p.Costs) != m || p.Penalties != nil && len(p.Penalties) != t {
		panic(fmt.Sprintf("lp: %d costs and %d labels, %d penalties and %d columns", len(p.Costs), m, len(p.Penalties), t))
	}
	if s := p.Start; s != nil && (len(s.U) != t || len(s.S) != len(p.Variables) || len(s.Alpha) != m || len(s.Beta) != len(p.Rows)) {
		panic(fmt.Sprintf("lp: the start has %d columns, %d extra variables, %d rows and %d extra rows, the program %d, %d, %d and %d",
			len(s.U), len(s.S), len(s.Alpha), len(s.Beta), t, len(p.Variables), m, len(p.Rows)))
	}
	for j, c := range p.Columns {
		if c.Len() != m {
			panic(fmt.Sprintf("lp: column %d has %d of %d rows", j, c.Len(), m))
		}
	}
	if !amount(p.Nu) {
		return fmt.Errorf("lp: ν is %v", p.Nu)
	}
	for i, d := range p.D {
		if d != 1 && d != -1 {
			return fmt.Errorf("lp: row %d: label %v is neither 1 nor -1", i, d)
		}
	}
	for i, c := range p.Costs {
		if !amount(c) || !amount(p.Nu*c) {
			return fmt.Errorf("lp: row %d: cost %v with ν = %v", i, c, p.Nu)
		}
	}
	for j, g := range p.Penalties {
		if !amount(g) {
			return fmt.Errorf("lp: column %d: penalty %v", j, g)
		}
	}
	if order, n := p.order(), t+1+len(p.Variables); order > n || gram.PackedLen(order) != len(p.Quadratic) || len(p.Linear) > n {
		panic(fmt.Sprintf("lp: %d numbers of a quadratic and %d of a linear term of %d variables", len(p.Quadratic), len(p.Linear), n))
	}
	for i, v := range p.Quadratic {
		if !finite(v) {
			return fmt.Errorf("lp: number %d of the quadratic term is %v", i, v)
		}
	}
	for j, v := range p.Linear {
		if !finite(v) {
			return fmt.Errorf("lp: variable %d: linear cost %v", j, v)
		}
	}
	for j, v := range p.Variables {
		if !amount(v.Penalty) || !finite(v.Cost) {
			return fmt.Errorf("lp: extra variable %d: cost %v, penalty %v", j, v.Cost, v.Penalty)
		}
	}
	for k, row := range p.Rows {
		if !finite(row.Bound) || !(row.Cost >= 0) {
			return fmt.Errorf("lp: extra row %d: bound %v, cost %v", k, row.Bound, row.Cost)
		}
		for _, term := range row.Terms {
			if term.Variable < 0 || term.Variable >= t+1+len(p.Variables) || !finite(term.Value) {
				return fmt.Errorf("lp: extra row %d: %v times variable %d of %d", k, term.Value, term.Variable, t+1+len(p.Variables))
			}
		}
	}
	return nil
}

// order is the order of Q.
func (p *Program) order() int {
	return int(math.Sqrt(2*float64(len(p.Quadratic))+0.25) - 0.25)
}

func finite(v float64) bool { return math.Abs(v) <= math.MaxFloat64 }
func amount(v float64) bool { return v >= 0 && v <= math.MaxFloat64 }
