package lp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"

	"streamd/incremental/gram"
)

// A Program is the data of a 1-norm program: see the package's comment.
type Program struct {
	Columns []gram.Column // K: t columns of m finite numbers
	D       []float64     // m labels, 1 or −1
	Nu      float64       // ν ≥ 0
	Costs   []float64     // c ≥ 0 of each row; nil: 1 each. A row of cost 0 is as if absent.
}

// A Solution is an optimal vertex, with its certificate: a dual solution whose
// objective is equal but for Gap.
type Solution struct {
	U     []float64 // t
	Gamma float64
	E     []float64 // m, by how much each row misses its margin
	Alpha []float64 // m, the dual variables of the rows, 0 ≤ α ≤ νc

	Objective float64
	Gap       float64 // Objective less the dual objective
	Passes    int     // interior-point iterations: each a weighted Gram matrix
	Pivots    int     // simplex iterations of the crossover
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

// ErrNotConverged says that a limit was reached, or rounding. The Solution, if any,
// is the last point, and proves nothing.
var ErrNotConverged = errors.New("lp: not converged")

// Solve solves the program with up to so many goroutines (0: GOMAXPROCS); the
// solution does not depend on their number, bit for bit. It returns the
// context's error when that is done. Data that make no sense (numbers that are
// not finite, labels other than ±1, negative costs) are an error; lengths that do not fit together panic.
//
// The error is nil if and only if the Solution is optimal.
func (p *Program) Solve(ctx context.Context, workers int) (*Solution, error) {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	s, err := newSolver(p, workers)
	if err != nil {
		return nil, err
	}
	if err := s.interior(ctx); err != nil {
		return nil, err
	}
	err = s.crossover(ctx)
	if err != nil && !errors.Is(err, ErrNotConverged) {
		return nil, err
	}
	sol, allowed := s.solution()
	if err == nil && !(math.Abs(sol.Gap) <= allowed) {
		err = fmt.Errorf("%w: duality gap %.3g of an objective of %.6g", ErrNotConverged, sol.Gap, sol.Objective)
	}
	return sol, err
}

func (p *Program) check() error {
	m := len(p.D)
	if p.Costs != nil && len(p.Costs) != m {
		panic(fmt.Sprintf("lp: %d costs and %d labels", len(p.Costs), m))
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
	return nil
}

func finite(v float64) bool { return math.Abs(v) <= math.MaxFloat64 }
func amount(v float64) bool { return v >= 0 && v <= math.MaxFloat64 }
