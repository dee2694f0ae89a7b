package lp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"

	"streamd/incremental/gram"
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
	if p.Start != nil && p.Quadratic == nil {
		if sol, err := p.restart(ctx, workers); sol != nil || err != nil {
			return sol, err
		}
	}
	s, err := newSolver(p, workers)
	if err != nil {
		return nil, err
	}
	if err := s.interior(ctx); err != nil {
		return nil, err
	}
	if s.q == nil {
		err = s.crossover(ctx)
	} else {
		err = s.polish(ctx)
	}
	if err != nil && !errors.Is(err, ErrUnbounded) && !errors.Is(err, ErrNotConverged) {
		return nil, err
	}
	sol, allowed := s.solution(p)
	if off := s.unbalanced(); err == nil && s.q != nil && !(off <= feasibility) {
		err = fmt.Errorf("%w: the gradient is off by %.3g of its terms", ErrNotConverged, off)
	}
	if err == nil && !(math.Abs(sol.Gap) <= allowed) {
		err = fmt.Errorf("%w: duality gap %.3g of an objective of %.6g", ErrNotConverged, sol.Gap, sol.Objective)
	}
	return sol, err
}

// restart solves the program by the simplex method from Start. It returns no solution if that
// takes longer than the interior point method usually does, or ends without a certificate.
func (p *Program) restart(ctx context.Context, workers int) (*Solution, error) {
	s, err := newSolver(p, workers)
	if err != nil {
		return nil, err
	}
	s.startAt(p.Start)
	s.limit = 100 + 2*s.n
	if s.crossover(ctx) != nil {
		return nil, ctx.Err()
	}
	if sol, allowed := s.solution(p); math.Abs(sol.Gap) <= allowed {
		return sol, nil
	}
	return nil, nil
}

// startAt sets x and β to those of a solution, with β within the bounds of this program.
func (s *solver) startAt(from *Solution) {
	a, t := s.a, s.a.t
	copy(s.x, from.U)
	s.x[t] = from.Gamma
	copy(s.x[t+1:], from.S)
	for j := range s.x {
		s.x[j] *= a.scale[j]
	}
	put := func(k int, beta float64) { s.beta[k] = min(max(beta, s.lo[k]), s.hi[k]) }
	for i, alpha := range from.Alpha {
		put(i, alpha*s.unit)
	}
	for k, beta := range from.Beta {
		if i := s.place[k]; i >= a.m+s.n { // not folded
			put(i, beta*s.unit)
		}
	}
	rest := make([]float64, s.n) // A'β of the terms other than the variables' own
	a.mulTransposed(rest, s.beta)
	for j := range rest {
		put(a.m+j, s.f[j]-rest[j])
	}
}

// checkHard minimises the amount by which the hard rows are missed. If they contradict
// each other, the dual solution proves it (Farkas).
func (p *Program) checkHard(ctx context.Context) (*Solution, error) {
	// Without columns, variable 0 is γ and all others are extra variables. So alone
	// has the same variables with the same numbers, all free and without cost.
	alone := &Program{Variables: make([]Variable, len(p.Columns)+len(p.Variables))}
	var index []int
	possible := true
	for k, row := range p.Rows {
		if row.Cost == Hard {
			row.Cost = 1
			alone.Rows = append(alone.Rows, row)
			index = append(index, k)
			possible = possible && (row.Bound == 0 || row.Bound < 0 && !row.Equal)
		}
	}
	if possible { // with x = 0
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

// solution returns the solution in the program's coordinates, and the allowed gap: the
// tolerance, and the rounding error of the terms that cancel in the objective.
func (s *solver) solution(p *Program) (sol *Solution, allowed float64) {
	a, t := s.a, s.a.t
	x := make([]float64, s.n)
	for j := range x {
		x[j] = s.x[j] / a.scale[j]
	}
	sol = &Solution{U: x[:t:t], Gamma: x[t], S: x[t+1:], Passes: s.passes, Pivots: s.pivots}
	if s.ray {
		sol.Objective, sol.Gap = math.Inf(-1), math.Inf(1)
		return sol, 0
	}
	sol.E, sol.Alpha = make([]float64, a.m), make([]float64, a.m)
	sol.Slack, sol.Beta = make([]float64, len(p.Rows)), make([]float64, len(p.Rows))
	var dual, size float64
	for i := range sol.E {
		sol.E[i] = s.miss(s.residual[i], false)
		sol.Alpha[i] = s.beta[i] / s.unit
		sol.Objective += s.hi[i] / s.unit * sol.E[i]
		dual += sol.Alpha[i]
		size += sol.Alpha[i]
	}
	largest := 1 + maxAbs(s.x)
	size += feasibility / s.unit
	qx := make([]float64, s.n)
	s.mulQuadratic(qx, s.x)
	for j, v := range s.x {
		sol.Objective += (s.penalty[j]*math.Abs(v) + s.f[j]*v) / s.unit
		sol.Objective += qx[j] * v / 2 / s.unit
		dual -= qx[j] * v / 2 / s.unit
		size += (s.penalty[j] + math.Abs(s.f[j]) + math.Abs(qx[j])) * largest / s.unit
		if j < s.order {
			size += s.q[gram.PackedLen(j)+j] * (v*v + s.tolerance*s.tolerance) / s.unit
		}
	}
	shares := map[int]float64{} // what is left of the dual variables of variables' terms
	for k, row := range p.Rows {
		i := s.place[k]
		if row.folded() {
			sol.Slack[k], sol.Beta[k] = s.unfold(&row, i, shares)
		} else {
			sol.Slack[k], sol.Beta[k] = s.miss(s.residual[i], row.Equal), s.beta[i]/s.unit
		}
		if row.Cost != Hard {
			sol.Objective += row.Cost * math.Abs(sol.Slack[k])
		}
		dual += row.Bound * sol.Beta[k]
		size += (math.Abs(row.Bound) + 1e-3) * math.Abs(sol.Beta[k]) // a bound near 0 is rounding
	}
	sol.Gap = sol.Objective - dual
	return sol, gapTolerance*math.Abs(sol.Objective) + 1e-12*size
}

// unfold returns the slack and the dual variable of a row that is part of its variable's
// term. At a kink the penalty and then the rows in their order take as much of the term's
// dual variable as their intervals allow.
func (s *solver) unfold(row *Row, place int, shares map[int]float64) (slack, beta float64) {
	j := place - s.a.m
	w := row.Terms[0].Value / s.a.scale[j]
	lo, hi := row.interval()
	slack = s.miss(-w*s.x[j], row.Equal)
	switch r := -w * s.x[j]; {
	case r > s.tolerance:
		return slack, hi
	case r < -s.tolerance:
		return slack, lo
	}
	left, ok := shares[j]
	if !ok {
		left = s.beta[place]
		left -= min(max(left, -s.penalty[j]), s.penalty[j])
	}
	beta = min(max(left/w/s.unit, lo), hi)
	shares[j] = left - beta*w*s.unit
	return slack, beta
}

// miss is the amount by which a row of the given residual is missed.
func (s *solver) miss(residual float64, equal bool) float64 {
	if math.Abs(residual) <= s.tolerance || residual < 0 && !equal {
		return 0
	}
	return residual
}

// unbalanced is the largest entry of f + Qx − A'β, relative to its terms.
func (s *solver) unbalanced() float64 {
	qx, off := make([]float64, s.n), make([]float64, s.n)
	s.mulQuadratic(qx, s.x)
	s.a.mulTransposed(off, s.beta)
	for j := range off {
		off[j] = s.f[j] + qx[j] - off[j]
	}
	return maxAbs(off) / (1 + maxAbs(qx))
}
