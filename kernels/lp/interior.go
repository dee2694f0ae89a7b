package lp

import (
	"context"
	"fmt"
	"math"
	"slices"

	"streamd/incremental/gram"
)

const (
	// gapTolerance is the largest relative duality gap of a Solution.
	gapTolerance = 1e-8
	// interiorGap is the relative gap at which the crossover begins, which reduces
	// it to rounding error.
	interiorGap = 1e-9
	// feasibility is the relative amount by which a constraint may be missed.
	feasibility = 1e-9
	// maxPasses exceeds the 15 to 80 passes that programs need.
	maxPasses = 150
	// patience is the number of passes within which the gap must halve.
	patience = 15
	// boundary is the length of a step as a part of the way to the nearest bound.
	boundary = 0.995
	// semidefinite is the part of the diagonal of Q within which a negative eigenvalue
	// counts as rounding.
	semidefinite = 1e-10
)

// A solver is a program in the form
//
//	min ½x'Qx + f'x + Σ_k φ_k(b_k − a_k'x),   φ_k(r) = max {βr : lo_k ≤ β ≤ hi_k}
//
// in scaled coordinates and costs. Its terms k are the rows of data, in
// [0, νc]; one for each variable, with a_k a unit vector and b_k = 0, in
// [−g, g]; and the extra rows. An extra row of one term and bound 0 is folded into its
// variable's term: the interval of the sum is the sum of the intervals.
type solver struct {
	a         *matrix
	n         int
	unit      float64   // scaled costs are unit times the program's costs
	q         []float64 // the packed lower triangle of Q, or nil
	order     int       // of Q, which belongs to the first variables
	f         []float64
	penalty   []float64 // g of each variable
	place     []int     // the term of each extra row; of a folded one that of its variable
	b, lo, hi []float64
	x, beta   []float64
	passes    int
	pivots    int
	limit     int       // of pivots
	residual  []float64 // b − Ax
	ray       bool      // x is a direction, not a point
	tolerance float64   // a smaller residual counts as 0
}

func newSolver(p *Program, workers int) (*solver, error) {
	n := len(p.Columns) + 1 + len(p.Variables)
	var rows [][]Term
	place := make([]int, len(p.Rows))
	for k, row := range p.Rows {
		if row.folded() {
			place[k] = len(p.D) + row.Terms[0].Variable
			continue
		}
		place[k] = len(p.D) + n + len(rows)
		rows = append(rows, row.Terms)
	}
	a, err := newMatrix(p, n, rows, workers)
	if err != nil {
		return nil, err
	}
	s := &solver{a: a, n: n, f: make([]float64, n), penalty: make([]float64, n), x: make([]float64, n), place: place, limit: 1000 + 50*n}
	numbers := make([]float64, 5*a.terms())
	for _, v := range []*[]float64{&s.b, &s.lo, &s.hi, &s.beta, &s.residual} {
		*v, numbers = numbers[:a.terms():a.terms()], numbers[a.terms():]
	}
	for i := range a.m {
		s.b[i] = 1
		s.hi[i] = p.Nu
		if p.Costs != nil {
			s.hi[i] *= p.Costs[i]
		}
	}
	for j := range a.t {
		switch {
		case p.Penalties != nil:
			s.penalty[j] = p.Penalties[j] / a.scale[j]
		case p.Quadratic == nil:
			s.penalty[j] = 1 / a.scale[j]
		}
	}
	for j, v := range p.Variables {
		s.f[a.t+1+j] = v.Cost / a.scale[a.t+1+j]
		s.penalty[a.t+1+j] = v.Penalty / a.scale[a.t+1+j]
	}
	for j, v := range p.Linear {
		s.f[j] += v / a.scale[j]
	}
	for j, g := range s.penalty {
		s.lo[a.m+j], s.hi[a.m+j] = -g, g
	}
	for k, row := range p.Rows {
		lo, hi := row.interval()
		if row.folded() {
			w := row.Terms[0].Value / a.scale[row.Terms[0].Variable]
			lo, hi = min(w*lo, w*hi), max(w*lo, w*hi)
		}
		i := place[k]
		if s.lo[i] += lo; !row.folded() {
			s.b[i] = row.Bound
		}
		s.hi[i] += hi
	}
	if p.Quadratic != nil {
		s.order = p.order()
		s.q = make([]float64, len(p.Quadratic))
		for i := range s.order {
			for j := range i + 1 {
				at := gram.PackedLen(i) + j
				s.q[at] = p.Quadratic[at] / a.scale[i] / a.scale[j]
			}
		}
	}
	// Scale the largest finite cost to [1/2, 1).
	var top float64
	for k, hi := range s.hi {
		for _, bound := range []float64{hi, -s.lo[k]} {
			if bound != Hard {
				top = max(top, bound)
			}
		}
	}
	for _, v := range s.f {
		top = max(top, math.Abs(v))
	}
	for i := range s.order {
		top = max(top, s.q[gram.PackedLen(i)+i])
	}
	s.unit = 1
	if top > 0 {
		_, exponent := math.Frexp(top)
		s.unit = math.Ldexp(1, min(max(-exponent, -1000), 1000))
	}
	for k := range s.hi {
		s.lo[k] *= s.unit
		s.hi[k] *= s.unit
	}
	for j := range s.f {
		s.f[j] *= s.unit
		s.penalty[j] *= s.unit
	}
	for i := range s.q {
		s.q[i] *= s.unit
	}
	return s, s.checkQuadratic()
}

// folded reports whether the row belongs into the term of its only variable.
func (r *Row) folded() bool {
	return len(r.Terms) == 1 && r.Bound == 0 && r.Terms[0].Value != 0
}

// interval is the interval of the row's dual variable.
func (r *Row) interval() (lo, hi float64) {
	if r.Equal {
		lo = -r.Cost
	}
	return lo, r.Cost
}

// checkQuadratic refuses a Q with a negative eigenvalue, relative to its diagonal and
// beyond rounding: then Q plus a small part of its diagonal has no Cholesky factor.
func (s *solver) checkQuadratic() error {
	l := slices.Clone(s.q)
	for i := range s.order {
		row := l[gram.PackedLen(i):][:i+1]
		diagonal := row[i]
		for j := range i {
			other := l[gram.PackedLen(j):][:j+1]
			row[j] -= dot(row[:j], other[:j])
			if other[j] > 0 {
				row[j] /= other[j]
			} else if row[j] != 0 {
				return fmt.Errorf("lp: the quadratic term is not positive semidefinite: its diagonal has 0 in row %d, which has other numbers", j)
			}
		}
		pivot := diagonal*(1+semidefinite) - dot(row[:i], row[:i])
		if pivot < 0 || pivot == 0 && diagonal > 0 {
			return fmt.Errorf("lp: the quadratic term is not positive semidefinite, as found in row %d", i)
		}
		row[i] = math.Sqrt(pivot)
	}
	return nil
}

// mulQuadratic writes Qx to out.
func (s *solver) mulQuadratic(out, x []float64) {
	clear(out)
	for i := range s.order {
		row := s.q[gram.PackedLen(i):][:i+1]
		out[i] += dot(row, x[:i+1])
		addTo(out[:i], x[i], row[:i])
	}
}

// start sets β to the middle of its bounds.
func (s *solver) start() {
	for k := range s.beta {
		switch lo, hi := s.lo[k], s.hi[k]; {
		case !math.IsInf(hi-lo, 1):
			s.beta[k] = (lo + hi) / 2
		case !math.IsInf(lo, -1):
			s.beta[k] = lo + 1
		case !math.IsInf(hi, 1):
			s.beta[k] = hi - 1
		default:
			s.beta[k] = 0
		}
	}
}

// An interior is the state of the interior point method. With w⁺ = hi − β and
// w⁻ = β − lo, p and q are the multipliers of w⁺ and w⁻. At the optimum the residual
// b − Ax is p − q.
type interior struct {
	*solver
	up, down       []float64 // w⁺, w⁻
	p, q           []float64
	dp, dq, dBeta  []float64
	theta, h       []float64
	dx, rhs, rd    []float64 // rd = f + Qx − A'β
	qx             []float64
	factor, normal []float64
	head           []int // the first column of each row of the factor that is not 0
	pieces         []piece
	first          float64 // the objective before the first step
	best           float64 // the gap when it last halved
	since          int     // the pass when it last halved
}

// A piece is the contribution of one range of terms to a step.
type piece struct {
	gap, primal, dual float64 // Σ p·w⁺ + q·w⁻, and the objectives
	count             float64 // the number of complementary pairs
	infeasible        float64 // max |b − Ax − p + q|
	stepX, stepBeta   float64
}

// interior runs Mehrotra's predictor-corrector method (Mehrotra 1992; Nocedal
// and Wright 2006, algorithm 14.3) until the duality gap and the residuals are
// small, or until there is no progress. The crossover then decides the outcome.
func (s *solver) interior(ctx context.Context) error {
	a, terms := s.a, s.a.terms()
	in := &interior{solver: s, pieces: make([]piece, a.ranges())}
	numbers := make([]float64, 9*terms)
	for _, v := range []*[]float64{&in.up, &in.down, &in.p, &in.q, &in.dp, &in.dq, &in.dBeta, &in.theta, &in.h} {
		*v, numbers = numbers[:terms:terms], numbers[terms:]
	}
	for _, v := range []*[]float64{&in.dx, &in.rhs, &in.rd, &in.qx} {
		*v = make([]float64, s.n)
	}
	in.normal = make([]float64, gram.PackedLen(s.n))
	in.factor = make([]float64, gram.PackedLen(s.n))
	in.head = make([]int, s.n)
	s.start()
	in.begin()
	for s.passes < maxPasses && !in.converged() && s.passes-in.since <= patience {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.passes++
		if !in.step() {
			break
		}
	}
	// With a quadratic term, an x without bound would leave nothing but rounding.
	far := s.q != nil && maxAbs(s.x) > 1e9
	if far || !finite(maxAbs(s.x)) || !finite(maxAbs(s.beta)) {
		clear(s.x)
		s.start()
	}
	return nil
}

// begin sets the multipliers for x = 0.
func (in *interior) begin() {
	for k, beta := range in.beta {
		r := in.b[k]
		in.residual[k] = r
		if in.lo[k] == in.hi[k] {
			continue
		}
		if in.up[k] = in.hi[k] - beta; !math.IsInf(in.hi[k], 1) {
			in.p[k] = max(r, 0) + 1
		}
		if in.down[k] = beta - in.lo[k]; !math.IsInf(in.lo[k], -1) {
			in.q[k] = max(-r, 0) + 1
		}
	}
}

// forTerms calls do for each range of terms, in parallel.
func (in *interior) forTerms(do func(c int, sum *piece, from, to int)) {
	in.a.over(in.a.ranges(), func(c int) {
		from, to := in.a.rangeOf(c)
		do(c, &in.pieces[c], from, to)
	})
}

// converged measures the residuals and the gap, and sets θ and the predictor's h.
func (in *interior) converged() bool {
	s, a := in.solver, in.a
	a.mulTransposed(in.rd, s.beta)
	s.mulQuadratic(in.qx, s.x)
	var dual, fx, xqx float64
	for j := range in.rd {
		in.rd[j] = s.f[j] - in.rd[j] + in.qx[j]
		dual = max(dual, math.Abs(in.rd[j]))
		fx += s.f[j] * s.x[j]
		xqx += in.qx[j] * s.x[j]
	}
	in.forTerms(func(_ int, sum *piece, from, to int) {
		*sum = piece{}
		for k := from; k < to; k++ {
			if s.lo[k] == s.hi[k] {
				continue
			}
			r := s.residual[k]
			p, q := in.p[k], in.q[k]
			sum.infeasible = max(sum.infeasible, math.Abs(r-p+q))
			sum.dual += s.b[k] * s.beta[k]
			var inverse float64 // 1/θ
			if !math.IsInf(s.hi[k], 1) {
				sum.gap += p * in.up[k]
				sum.primal += s.hi[k] * p
				sum.count++
				inverse += p / in.up[k]
			}
			if !math.IsInf(s.lo[k], -1) {
				sum.gap += q * in.down[k]
				sum.primal -= s.lo[k] * q
				sum.count++
				inverse += q / in.down[k]
			}
			in.h[k] = r
			if inverse == 0 {
				in.theta[k] = 0 // free: set by step
				continue
			}
			in.theta[k] = 1 / inverse
		}
	})
	total := in.total()
	primal := total.primal + fx + xqx/2
	total.dual -= xqx / 2
	if in.passes == 0 {
		in.first, in.best = math.Abs(primal), math.Inf(1)
	}
	if gap := math.Abs(primal - total.dual); gap < in.best/2 {
		in.best, in.since = gap, in.passes
	}
	// If the optimum is zero, the gap is relative to the first objective and the largest
	// cost.
	scale := math.Abs(primal) + 1e-6*in.first + 1e-9
	return math.Abs(primal-total.dual) <= interiorGap*scale && total.gap <= interiorGap*scale &&
		dual <= feasibility && total.infeasible <= feasibility*(1+maxAbs(s.x))
}

func (in *interior) total() piece {
	total := piece{stepX: 1 / boundary, stepBeta: 1 / boundary}
	for _, p := range in.pieces {
		total.gap += p.gap
		total.primal += p.primal
		total.dual += p.dual
		total.count += p.count
		total.infeasible = max(total.infeasible, p.infeasible)
		total.stepX = min(total.stepX, p.stepX)
		total.stepBeta = min(total.stepBeta, p.stepBeta)
	}
	return total
}

// step makes one step. With Θ the diagonal of θ = 1/(p/w⁺ + q/w⁻), the Newton step solves
//
//	(Q + A'ΘA) Δx = A'Θh − (f + Qx − A'β),   Δβ = θ(h − AΔx),
//
// first for h = b − Ax, which aims at a gap of zero, and then for an h that is centred
// and corrected for the products Δp·Δw⁺ and Δq·Δw⁻ of the first direction. Q ties the
// lengths of the steps of x and β to each other. step reports whether a step was possible.
func (in *interior) step() bool {
	s, a := in.solver, in.a
	total := in.total()
	if total.count > 0 && !(total.gap > 0 && total.gap < math.MaxFloat64) {
		return false
	}
	mu := total.gap / max(total.count, 1)

	// A free dual variable (of a hard equality) has θ = ∞. A finite θ, in proportion to
	// the others, makes a proximal step, which becomes exact as the iteration converges.
	top := maxAbs(in.theta)
	for k := a.m; k < a.terms(); k++ {
		if math.IsInf(s.hi[k], 1) && math.IsInf(s.lo[k], -1) {
			in.theta[k] = max(min(1e3*top, 1e12), 1e3)
		}
	}

	a.normal(in.normal, in.rhs, in.theta, in.h)
	for i, v := range s.q {
		in.normal[i] += v
	}
	in.factorise()
	if !in.direction() {
		return false
	}
	in.forTerms(func(c int, sum *piece, from, to int) {
		in.directionOf(c, sum, from, to, true)
	})
	total = in.total()
	alphaX, alphaBeta := s.steps(total.stepX, total.stepBeta)
	in.forTerms(func(_ int, sum *piece, from, to int) {
		sum.gap = 0
		for k := from; k < to; k++ {
			if s.lo[k] == s.hi[k] {
				continue
			}
			if !math.IsInf(s.hi[k], 1) {
				sum.gap += (in.p[k] + alphaX*in.dp[k]) * (in.up[k] - alphaBeta*in.dBeta[k])
			}
			if !math.IsInf(s.lo[k], -1) {
				sum.gap += (in.q[k] + alphaX*in.dq[k]) * (in.down[k] + alphaBeta*in.dBeta[k])
			}
		}
	})
	var target float64
	if total.count > 0 {
		ratio := in.total().gap / total.count / mu
		target = mu * ratio * ratio * ratio
	}
	in.forTerms(func(_ int, _ *piece, from, to int) {
		for k := from; k < to; k++ {
			// h = b − Ax − p + q − r⁺/w⁺ + r⁻/w⁻, where r⁺ and r⁻ are the wanted
			// changes of p·w⁺ and q·w⁻. dp and dq become r⁺/w⁺ and r⁻/w⁻.
			if s.lo[k] == s.hi[k] {
				continue
			}
			h := s.residual[k] - in.p[k] + in.q[k]
			if !math.IsInf(s.hi[k], 1) {
				in.dp[k] = (target+in.dp[k]*in.dBeta[k])/in.up[k] - in.p[k]
				h -= in.dp[k]
			}
			if !math.IsInf(s.lo[k], -1) {
				in.dq[k] = (target-in.dq[k]*in.dBeta[k])/in.down[k] - in.q[k]
				h += in.dq[k]
			}
			in.h[k] = h
			in.dBeta[k] = in.theta[k] * h
		}
	})
	a.mulTransposed(in.rhs, in.dBeta)
	if !in.direction() {
		return false
	}
	in.forTerms(func(c int, sum *piece, from, to int) {
		in.directionOf(c, sum, from, to, false)
	})
	total = in.total()
	alphaX, alphaBeta = s.steps(boundary*total.stepX, boundary*total.stepBeta)
	if !(max(alphaX, alphaBeta) > 1e-10) {
		return false
	}
	in.forTerms(func(_ int, _ *piece, from, to int) {
		for k := from; k < to; k++ {
			// h is AΔx now.
			s.residual[k] -= alphaX * in.h[k]
			if s.lo[k] == s.hi[k] {
				continue
			}
			in.p[k] += alphaX * in.dp[k]
			in.q[k] += alphaX * in.dq[k]
			s.beta[k] += alphaBeta * in.dBeta[k]
			in.up[k] -= alphaBeta * in.dBeta[k]
			in.down[k] += alphaBeta * in.dBeta[k]
		}
	})
	for j, d := range in.dx {
		s.x[j] += alphaX * d
	}
	return true
}

// steps limits the lengths of steps.
func (s *solver) steps(x, beta float64) (float64, float64) {
	x, beta = min(1, x), min(1, beta)
	if s.q != nil {
		x = min(x, beta)
		beta = x
	}
	return x, beta
}

// direction solves for Δx, with rhs = A'Θh. It reports whether Δx is finite.
func (in *interior) direction() bool {
	for j := range in.dx {
		in.dx[j] = in.rhs[j] - in.rd[j]
	}
	in.solve(in.dx)
	return finite(maxAbs(in.dx))
}

// directionOf completes the direction for range c of the terms, and computes the longest
// step. The predictor aims at products p·w⁺ and q·w⁻ of zero; for the corrector dp and dq
// hold r⁺/w⁺ and r⁻/w⁻. It replaces h by AΔx.
func (in *interior) directionOf(c int, sum *piece, from, to int, predictor bool) {
	s := in.solver
	in.a.mul(in.dBeta, c, in.dx)
	stepX, stepBeta := 1/boundary, 1/boundary
	for k := from; k < to; k++ {
		adx := in.dBeta[k]
		dBeta := in.theta[k] * (in.h[k] - adx)
		in.dBeta[k], in.h[k] = dBeta, adx
		if s.lo[k] == s.hi[k] {
			continue
		}
		if !math.IsInf(s.hi[k], 1) {
			d := -in.p[k]
			if !predictor {
				d = in.dp[k]
			}
			d += in.p[k] * dBeta / in.up[k]
			in.dp[k] = d
			if -stepX*d > in.p[k] {
				stepX = in.p[k] / -d
			}
			if stepBeta*dBeta > in.up[k] {
				stepBeta = in.up[k] / dBeta
			}
		}
		if !math.IsInf(s.lo[k], -1) {
			d := -in.q[k]
			if !predictor {
				d = in.dq[k]
			}
			d -= in.q[k] * dBeta / in.down[k]
			in.dq[k] = d
			if -stepX*d > in.q[k] {
				stepX = in.q[k] / -d
			}
			if -stepBeta*dBeta > in.down[k] {
				stepBeta = in.down[k] / -dBeta
			}
		}
	}
	sum.stepX, sum.stepBeta = stepX, stepBeta
}

// factorise sets factor to the Cholesky factor LL' of Q + A'ΘA. A pivot that is rounding error
// belongs to a direction without effect (a column that is zero, or depends on others).
// It is replaced by a huge one, so that nothing moves in that direction.
//
// Where there are extra variables, L has the variables from the last to the first. Each row is
// taken from its first number that is not 0. So variables that only neighbours are in rows with,
// like the multipliers of one knowledge set, are eliminated without filling L.
func (in *interior) factorise() {
	l := in.factor
	if last := in.n - 1; in.backward() {
		clear(l)
		for i := range in.n {
			for j, v := range in.normal[gram.PackedLen(i):][:i+1] {
				if v != 0 {
					l[gram.PackedLen(last-j)+last-i] = v
				}
			}
		}
	} else {
		copy(l, in.normal)
	}
	for i := range in.n {
		row := l[gram.PackedLen(i):][:i+1]
		head, diagonal := 0, row[i]
		for head < i && row[head] == 0 {
			head++
		}
		in.head[i] = head
		for j := head; j < i; j++ {
			other, from := l[gram.PackedLen(j):][:j+1], max(head, in.head[j])
			row[j] = (row[j] - dot(row[from:j], other[from:j])) / other[j]
		}
		pivot := diagonal - dot(row[head:i], row[head:i])
		if !(pivot > 1e-15*diagonal) {
			pivot = 1e128
		}
		row[i] = math.Sqrt(pivot)
	}
}

// backward says whether the factor has the variables from the last to the first.
func (in *interior) backward() bool { return in.n > in.a.t+1 }

// solve replaces x by (Q + A'ΘA)⁻¹x.
func (in *interior) solve(x []float64) {
	if in.backward() {
		slices.Reverse(x)
		defer slices.Reverse(x)
	}
	for i, head := range in.head {
		row := in.factor[gram.PackedLen(i):][:i+1]
		x[i] = (x[i] - dot(row[head:i], x[head:i])) / row[i]
	}
	for i := len(x) - 1; i >= 0; i-- {
		row, head := in.factor[gram.PackedLen(i):][:i+1], in.head[i]
		x[i] /= row[i]
		addTo(x[head:i], -x[i], row[head:i])
	}
}

func dot(v, w []float64) float64 {
	var s0, s1, s2, s3 float64
	for len(v) >= 4 && len(w) >= 4 {
		s0 += float64(v[0] * w[0])
		s1 += float64(v[1] * w[1])
		s2 += float64(v[2] * w[2])
		s3 += float64(v[3] * w[3])
		v, w = v[4:], w[4:]
	}
	for i, x := range v {
		s0 += float64(x * w[i])
	}
	return (s0 + s1) + (s2 + s3)
}

// addTo adds w·v to z.
func addTo(z []float64, w float64, v []float64) {
	v = v[:len(z)]
	for i := range z {
		z[i] += float64(w * v[i])
	}
}

func maxAbs(x []float64) (top float64) {
	for _, v := range x {
		top = max(top, math.Abs(v)) // propagates NaN
	}
	return top
}
