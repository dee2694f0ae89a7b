package lp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
)

// Solve solves the program with up to workers goroutines (0: GOMAXPROCS). The bits of the
// solution do not depend on their number. Solve returns the context's error when ctx ends.
// Invalid data (numbers that are not finite, labels other than ±1, negative costs, unknown
// variables) are an error; lengths that do not match panic.
//
// The error is nil if and only if the Solution is optimal.
func (p *Program) Solve(ctx context.Context, workers int) (*Solution, error) {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	if sol, err := p.checkHard(ctx); err != nil {
		return sol, err
	}
	s, err := newSolver(p, workers)
	if err != nil {
		return nil, err
	}
	if err := s.interior(ctx); err != nil {
		return nil, err
	}
	err = s.crossover(ctx)
	if err != nil && !errors.Is(err, ErrUnbounded) && !errors.Is(err, ErrNotConverged) {
		return nil, err
	}
	sol, allowed := s.solution(p)
	if err == nil && !(math.Abs(sol.Gap) <= allowed) {
		err = fmt.Errorf("%w: duality gap %.3g of an objective of %.6g", ErrNotConverged, sol.Gap, sol.Objective)
	}
	return sol, err
}

// checkHard minimises the amount by which the hard rows are missed. If they contradict
// each other, the dual solution proves it (Farkas).
func (p *Program) checkHard(ctx context.Context) (*Solution, error) {
	// Without columns, variable 0 is γ and all others are extra variables. So alone
	// has the same variables with the same numbers, all free and without cost.
	alone := &Program{Variables: make([]Variable, len(p.Columns)+len(p.Variables))}
	var index []int
	for k, row := range p.Rows {
		if row.Cost == Hard {
			row.Cost = 1
			alone.Rows = append(alone.Rows, row)
			index = append(index, k)
		}
	}
	if index == nil {
		return nil, nil
	}
	s, err := newSolver(alone, 1)
	if err != nil {
		return nil, err
	}
	s.start()
	if err := s.crossover(ctx); err != nil {
		return nil, fmt.Errorf("lp: whether the hard rows can hold: %w", err)
	}
	sol, _ := s.solution(alone)
	var size float64
	for k, b := range sol.Beta {
		size += math.Abs(b * alone.Rows[k].Bound)
	}
	if sol.Objective <= feasibility*size {
		return nil, nil
	}
	proof := &Solution{Beta: make([]float64, len(p.Rows)), Objective: math.Inf(1), Pivots: sol.Pivots}
	for i, k := range index {
		proof.Beta[k] = sol.Beta[i]
	}
	return proof, ErrInfeasible
}
