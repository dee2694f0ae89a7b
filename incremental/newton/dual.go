package newton

import (
	"cmp"
	"context"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/parallel"
)

const (
	// A duality gap of gapSettled relative to the objective ends the search. When
	// h(u) = 0, rounding may leave a gap of gapAllowed.
	gapSettled = 0x1p-46
	gapAllowed = 0x1p-33
)

// dualRow is a row in scaled coordinates.
type dualRow struct {
	x      []float64
	weight float64
	class  int
}

// dual refines every plane by Algorithm 6.3.1.
func (s *solver) dual(ctx context.Context) error {
	if err := s.survey(ctx); err != nil {
		return err
	}
	rows, err := s.gather(ctx)
	if err != nil {
		return err
	}
	// The kernel computes XX' from the transpose: rows are its columns.
	columns := make([]gram.Column, len(rows))
	for i := range rows {
		columns[i] = gram.ColumnOf(rows[i].x)
	}
	var kernel gram.Kernel
	var sums [1]gram.Sums
	kernel.Sum(sums[:], columns, make([]int32, s.width), nil, make([]float64, len(rows)))
	return parallel.For(s.workers, len(s.planes), func(i int) error {
		return s.planes[i].solveDual(ctx, rows, sums[0].Cross, s.limit)
	})
}

// gather copies the rows out of their blocks, ordered by their contents.
func (s *solver) gather(ctx context.Context) ([]dualRow, error) {
	var rows []dualRow
	err := s.pass(ctx, func(c *chunk, z *scratch) error {
		some := make([]dualRow, c.rows())
		for i, code := range c.codes {
			r := dualRow{x: make([]float64, s.width), weight: 1, class: c.class[code]}
			if c.weights != nil {
				r.weight = c.weights[i]
			}
			for j, column := range c.columns {
				r.x[j] = (column.At(i) - s.seen.mean[j]) / s.seen.sigma[j]
			}
			some[i] = r
		}
		s.mutex.Lock()
		rows = append(rows, some...)
		s.mutex.Unlock()
		return nil
	})
	slices.SortFunc(rows, func(a, b dualRow) int {
		return cmp.Or(cmp.Compare(a.class, b.class), slices.Compare(a.x, b.x), cmp.Compare(a.weight, b.weight))
	})
	return rows, err
}

// nsvm is the dual (6.5) of one plane: min ½u'Qu − e'u over u ≥ 0, with
// Q = diag(1/C) + D(XX' + ee')D, and the implicit Lagrangian (6.9) of it.
type nsvm struct {
	q     *mat.SymDense
	alpha float64 // > ‖Q‖
}

// lagrangian returns L(u) and Qu.
func (d *nsvm) lagrangian(u []float64) (l float64, qu []float64) {
	qu = make([]float64, len(u))
	mat.NewVecDense(len(u), qu).MulVec(d.q, mat.NewVecDense(len(u), u))
	for i, t := range qu {
		g := t - 1
		l += u[i]*t/2 - u[i]
		if plus := g - d.alpha*u[i]; plus > 0 {
			l += plus * plus / (2 * d.alpha)
		}
		l -= g * g / (2 * d.alpha)
	}
	return l, qu
}

// lifted reports whether the multiplier is in E(u) of (6.14), where the Newton step
// makes it zero.
func (d *nsvm) lifted(u, qu float64) bool { return qu-1-d.alpha*u > 0 }

// solveDual moves a plane from its point to the minimum. On the rows E of (6.14) the
// Newton step (6.18) is −u. On the others, N, it solves Q_NN(u + d)_N = e by a Cholesky
// factorisation of Q_NN, which replaces (6.21–6.24).
func (p *plane) solveDual(ctx context.Context, rows []dualRow, xx []float64, limit int) error {
	m, n := len(rows), len(p.point)-1
	cost, side := make([]float64, m), make([]float64, m)
	for i, r := range rows {
		cost[i], side[i] = float64(p.classCost(r.class)*r.weight), -1
		if r.class == p.class {
			side[i] = 1
		}
	}
	d := nsvm{q: mat.NewSymDense(m, nil)}
	sums := make([]float64, m)
	at := 0
	for i := range m {
		for k := range i + 1 {
			t := side[i] * side[k] * (xx[at] + 1)
			at++
			if k == i {
				t += 1 / cost[i]
				sums[i] += t
			} else {
				sums[i] += math.Abs(t)
				sums[k] += math.Abs(t)
			}
			d.q.SetSym(i, k, t)
		}
	}
	d.alpha = 1.1 * slices.Max(sums) // ‖Q‖ is at most its largest absolute row sum

	u := make([]float64, m) // (2.43) of the given plane
	for i, r := range rows {
		u[i] = cost[i] * max(1-side[i]*(dot(r.x, p.point)-p.point[n]), 0)
	}
	var factor mat.Cholesky
	for l, qu := d.lagrangian(u); ; p.iterations++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.iterations == limit {
			p.measure(rows, cost, side, u)
			return &LimitError{p.report()}
		}
		var some []int // N
		for i := range u {
			if !d.lifted(u[i], qu[i]) {
				some = append(some, i)
			}
		}
		target := make([]float64, m)
		if len(some) > 0 {
			part := mat.NewSymDense(len(some), nil)
			ones := mat.NewVecDense(len(some), nil)
			for a, i := range some {
				ones.SetVec(a, 1)
				for b, k := range some[:a+1] {
					part.SetSym(a, b, d.q.At(i, k))
				}
			}
			if !factor.Factorize(part) {
				return &incremental.ConditionError{Class: p.label, Condition: math.Inf(1)}
			}
			p.condition = factor.Cond()
			_ = factor.SolveVecTo(ones, ones) // the gap shows the error
			for a, i := range some {
				target[i] = ones.AtVec(a)
			}
		}
		full, fullQu := d.lagrangian(target)
		same := true // (i): h(target) = 0
		for i, k := 0, 0; i < m; i++ {
			in := k < len(some) && some[k] == i
			if in {
				k++
			}
			same = same && in == !d.lifted(target[i], fullQu[i])
		}
		gap := p.measure(rows, cost, side, target)
		if gap <= gapSettled*p.baseObjective || same && gap <= gapAllowed*p.baseObjective {
			p.iterations++
			return nil
		}
		if same {
			return p.stalled()
		}
		// ∇L'd = ((αI − Q)h/α)'d, by (6.10).
		var slope float64
		h, step := make([]float64, m), make([]float64, m)
		for i := range h {
			h[i] = qu[i] - 1 - max(qu[i]-1-d.alpha*u[i], 0)
			step[i] = target[i] - u[i]
		}
		for i := range h {
			qstep := fullQu[i] - qu[i]
			slope += h[i] * (step[i] - qstep/d.alpha)
		}
		next, nextL, nextQu := target, full, fullQu
		for lambda := 1.0; !(nextL <= l+armijo*lambda*slope+noise*math.Abs(l)); {
			if lambda /= 2; lambda < 0x1p-60 {
				return p.stalled()
			}
			next = make([]float64, m)
			for i := range next {
				next[i] = u[i] + lambda*step[i]
			}
			nextL, nextQu = d.lagrangian(next)
		}
		u, l, qu = next, nextL, nextQu
	}
}

// measure sets the plane to that of the multipliers u₊ (6.3) and returns its duality
// gap.
func (p *plane) measure(rows []dualRow, cost, side, u []float64) (gap float64) {
	n := len(p.point) - 1
	z := make([]float64, n+1)
	var linear, ridge float64
	p.active = 0
	for i, r := range rows {
		if !(u[i] > 0) {
			continue
		}
		p.active++
		t := side[i] * u[i]
		for j, x := range r.x {
			z[j] += float64(t * x)
		}
		z[n] -= t
		linear += u[i]
		ridge += u[i] * u[i] / cost[i]
	}
	// The dual objective is e'u − ½u'Qu, and u'HH'u = ‖z‖².
	dual := linear - (ridge+square(z))/2
	gradient := slices.Clone(z)
	var loss float64
	for i, r := range rows {
		residual := 1 - side[i]*(dot(r.x, z)-z[n])
		if residual <= 0 {
			continue
		}
		t := cost[i] * residual
		loss += t * residual
		t *= side[i]
		for j, x := range r.x {
			gradient[j] -= float64(t * x)
		}
		gradient[n] += t
	}
	p.base, p.norm = z, norm(gradient)
	p.baseObjective = (loss + square(z)) / 2
	return p.baseObjective - dual
}

// dot is x'z over the length of x.
func dot(x, z []float64) (sum float64) {
	for j, v := range x {
		sum += float64(v * z[j])
	}
	return sum
}
