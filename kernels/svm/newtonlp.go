package svm

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/lapack/lapack64"
)

// NewtonLP is NLPSVM, the Newton method for the 1-norm support vector machine of Fung 2003,
// section 4.3. Of the solutions of Sparse's linear program it finds the one of least 2-norm,
// by minimising
//
//	min  ν c'E + ‖w‖₁ + ε/2 (‖w‖² + γ² + c'E²)
//	s.t. D(Aw − eγ) + E ≥ e,  E ≥ 0
//
// which is (4.37) for a finite ε. From some ε on, which depends on the rows, its solution is
// that of the linear program; a larger ε shrinks w. A row of cost 3 counts like three rows.
//
// # Method
//
// The variables are u of the dual exterior penalty problem (4.49),
//
//	f(u) = −εe'u + ½‖(|A'Du| − e)₊‖² + ½(e'Du)² + ½‖(u − νc)₊‖² + α/2 ‖(−u)₊‖²
//
// whose last two norms are weighted by 1/c. A step of algorithm 4.1 goes along the Newton
// direction −(∂²f + δI)⁻¹∇f (4.54). The thesis halves it until it satisfies Armijo's rule (4.53)
// and doubles α, at first 10³, after each. That leaves it far from the solution: with a large α
// a step ends at the first row that comes to u = 0. Here a step goes to the minimum along its
// direction, and α is doubled when an undamped step leaves all rows and features on their
// side of their bounds. Short steps raise δ for the next ones. An ε below 0.1·max{1, ν} is
// reached from there, each time by a quarter. Then by (4.41)
//
//	w = ((A'Du − e)₊ − (−A'Du − e)₊)/ε,   γ = −e'Du/ε
//
// so that zeros of w are exact. A step's system has the order of the rows or, by the identity
// of Sherman, Morrison and Woodbury (4.57), of the features with |A'Du| > 1, whichever is less.
// So rows may be few and features tens of thousands.
//
// # Stopping rule
//
// The Gap is the Objective, with the errors E of w and γ, less the dual objective of u₊, so it
// bounds the distance from the optimum. Newton's method stops at a gap of 1e-9 of the objective.
// After 2000 steps, after 200 that do not lower the gap, or where rounding leaves no descent, a
// gap of more than 1e-7 is ErrNotConverged: with a large ν, 1e-16·ν/ε is what rounding leaves of
// w. The thesis stops when a step is shorter than 10⁻³, and tunes δ, which moves its planes. Here
// δ only damps the steps.
//
// # Cost
//
// Up to a few hundred steps, each some products with A and a system of order k, of m·k²/2
// and k³/6 multiply-adds, or n·m²/2 and m³/6. The memory is a copy of A and one of its parts. If
// columns are sparse, products and the copy take their numbers other than 0 alone.
// Workers is not used.
type NewtonLP struct {
	Epsilon float64 // ε; 0: 0.1
	Delta   float64 // the smallest δ; 0: 10⁻⁵
}

const (
	defaultEpsilon = 0.1
	defaultDelta   = 1e-5
	firstAlpha     = 1e3
	maxAlpha       = 1e12 // a larger one leaves no digits of −u
	newtonGap      = 1e-9
	worstGap       = 1e-7
	coarseGap      = 1e-4 // of an ε that is not the last
	flat           = 1e-3 // the slope at a minimum along a direction, relative to the first
	maxNewtonSteps = 2000
	maxIdleSteps   = 200 // steps without a smaller gap
	// A step shorter than shortStep makes the next one's δ larger, up to maxDamping.
	shortStep  = 0.1
	maxDamping = 0.01
)

func (n NewtonLP) convex() {}

// Fit implements Machine.
func (n NewtonLP) Fit(ctx context.Context, rows *Rows, nu float64) (*Plane, error) {
	if err := rows.Check(nu); err != nil {
		return nil, err
	}
	if rows.Regulariser != nil {
		return nil, errRegulariser
	}
	if n.Epsilon == 0 {
		n.Epsilon = defaultEpsilon
	}
	if n.Delta == 0 {
		n.Delta = defaultDelta
	}
	if !(n.Epsilon > 0) || !(n.Delta > 0) {
		return nil, fmt.Errorf("svm: ε is %v and δ is %v; both must be positive", n.Epsilon, n.Delta)
	}
	p := newPenalty(n, rows, nu)
	if err := p.minimise(ctx, nu); err != nil {
		return nil, err
	}
	plane := &Plane{
		W: p.best.w, Gamma: p.best.gamma, Alpha: make([]float64, len(rows.D)),
		Objective: p.best.objective, Gap: p.best.gap, Programs: 1, Steps: p.steps,
	}
	for k, i := range p.row {
		plane.Alpha[i] = p.best.u[k]
	}
	return plane, nil
}

// penalty is the dual exterior penalty problem (4.49) of the rows of positive cost. Epsilon is
// that of the problem at hand.
type penalty struct {
	NewtonLP
	row            []int    // numbers of the rows
	da             features // A'D: a row for each column of A
	d, c           []float64
	bound          []float64 // νc
	alpha, damping float64

	u         []float64
	t         []float64 // A'Du
	s         float64   // e'Du
	r         []float64 // εw
	v         []float64 // DAr
	g         []float64 // ∇f
	f         []float64 // the diagonal F of (4.57)
	dir, dirT []float64

	steps int
	best  solution
}

// solution is the u of the smallest gap so far.
type solution struct {
	u, w                  []float64
	gamma, objective, gap float64
}

func newPenalty(n NewtonLP, rows *Rows, nu float64) *penalty {
	p := &penalty{NewtonLP: n, alpha: firstAlpha, damping: n.Delta, best: solution{gap: math.Inf(1)}}
	for i, d := range rows.D {
		if c := rows.cost(i); c > 0 {
			p.row, p.d, p.c, p.bound = append(p.row, i), append(p.d, d), append(p.c, c), append(p.bound, nu*c)
		}
	}
	m, columns := len(p.d), len(rows.Columns)
	p.da = newFeatures(rows.Columns, p.row, p.d, len(rows.D))
	for _, v := range []*[]float64{&p.u, &p.v, &p.g, &p.f, &p.dir} {
		*v = make([]float64, m)
	}
	for _, v := range []*[]float64{&p.t, &p.r, &p.dirT} {
		*v = make([]float64, columns)
	}
	for i := range p.u {
		p.u[i] = min(1, p.bound[i]) // the thesis begins at 1
	}
	return p
}

// minimise comes to an ε that is small beside ν from larger ones, whose solutions have nearly
// the same rows and features at their bounds.
func (p *penalty) minimise(ctx context.Context, nu float64) error {
	last := p.Epsilon
	for p.Epsilon = max(defaultEpsilon*max(1, nu), last); p.Epsilon > last; p.Epsilon = max(p.Epsilon/4, last) {
		if err := p.descend(ctx, coarseGap); err != nil {
			return err
		}
	}
	if err := p.descend(ctx, newtonGap); err != nil {
		return err
	}
	if size := math.Abs(p.best.objective); !(p.best.gap <= worstGap*size) {
		return fmt.Errorf("%w: a gap of %.3g at an objective of %.3g after %d Newton steps; a larger ε helps, too", ErrNotConverged, p.best.gap, p.best.objective, p.steps)
	}
	return nil
}

// descend takes Newton steps until the gap is as small as wanted, relative to the objective, or
// steps get no farther.
func (p *penalty) descend(ctx context.Context, wanted float64) error {
	p.best.gap = math.Inf(1)
	for taken, idle := 0, 0; ; taken++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.gradient()
		idle++
		if p.judge() {
			idle = 0
		}
		if p.best.gap <= wanted*math.Abs(p.best.objective) || taken == maxNewtonSteps || idle == maxIdleSteps || !p.step() {
			return nil
		}
		p.steps++
	}
}

// excess is (|x| − 1)₊ with the sign of x.
func excess(x float64) float64 {
	switch {
	case x > 1:
		return x - 1
	case x < -1:
		return x + 1
	}
	return 0
}

// times returns A'Du in t, and e'Du.
func (p *penalty) times(t, u []float64) float64 {
	p.da.times(t, u)
	return floats.Dot(p.d, u)
}

func vector(x []float64) blas64.Vector { return blas64.Vector{N: len(x), Data: x, Inc: 1} }

// gradient computes all that follows from u.
func (p *penalty) gradient() {
	p.s = p.times(p.t, p.u)
	for j, t := range p.t {
		p.r[j] = excess(t)
	}
	clear(p.v)
	for j, r := range p.r {
		if r != 0 {
			p.da.add(p.v, r, j)
		}
	}
	for i, u := range p.u {
		p.g[i] = -p.Epsilon + p.v[i] + p.d[i]*p.s
		p.f[i] = p.damping
		switch {
		case u < 0:
			p.g[i] += p.alpha * u / p.c[i]
			p.f[i] += p.alpha / p.c[i]
		case u > p.bound[i]:
			p.g[i] += (u - p.bound[i]) / p.c[i]
			p.f[i] += 1 / p.c[i]
		}
	}
}

// judge computes the plane of u by (4.41) and its gap, and keeps it if that is the smallest.
func (p *penalty) judge() (better bool) {
	gamma, objective := -p.s/p.Epsilon, 0.0
	objective += p.Epsilon / 2 * gamma * gamma
	for _, r := range p.r {
		w := r / p.Epsilon
		objective += math.Abs(w) + p.Epsilon/2*w*w
	}
	positive, t := make([]float64, len(p.u)), make([]float64, len(p.t))
	var dual float64
	for i, u := range p.u {
		e := max(0, 1-(p.v[i]+p.d[i]*p.s)/p.Epsilon)
		objective += p.bound[i]*e + p.Epsilon/2*p.c[i]*e*e
		positive[i] = max(0, u)
		over := max(0, u-p.bound[i])
		dual += positive[i] - over*over/(2*p.c[i]*p.Epsilon)
	}
	s := p.times(t, positive)
	dual -= s * s / (2 * p.Epsilon)
	for _, x := range t {
		x = excess(x)
		dual -= x * x / (2 * p.Epsilon)
	}
	gap := objective - dual
	if !(gap < p.best.gap) {
		return false
	}
	w := make([]float64, len(p.r))
	for j, r := range p.r {
		w[j] = r / p.Epsilon
	}
	p.best = solution{u: positive, w: w, gamma: gamma, objective: objective, gap: gap}
	return true
}

// slope is the derivative of f(u + λdir) by λ.
func (p *penalty) slope(lambda, dirS float64) float64 {
	f := (p.s + lambda*dirS) * dirS
	for j, t := range p.t {
		f += excess(t+lambda*p.dirT[j]) * p.dirT[j]
	}
	for i, u := range p.u {
		u += lambda * p.dir[i]
		var push float64
		if u < 0 {
			push = p.alpha * u / p.c[i]
		} else if u > p.bound[i] {
			push = (u - p.bound[i]) / p.c[i]
		}
		f += (push - p.Epsilon) * p.dir[i]
	}
	return f
}

// step goes to the minimum along a Newton direction. It returns false if there is no descent.
// It doubles α if the step is undamped and no row or feature comes to or leaves its bound, so
// that Newton's method has found the minimum for this α.
func (p *penalty) step() bool {
	if !p.direction() {
		return false
	}
	dirS := p.times(p.dirT, p.dir)
	first := p.slope(0, dirS)
	if !(first < 0) {
		return false
	}
	// The slope rises with λ and is linear between the bounds.
	low, lowSlope, high := 0.0, first, 1.0
	highSlope := p.slope(high, dirS)
	for highSlope < flat*first && high < 1<<20 {
		low, lowSlope, high = high, highSlope, 2*high
		highSlope = p.slope(high, dirS)
	}
	lambda := high
	for i := 0; highSlope > -flat*first && i < 60; i++ {
		lambda = low + (high-low)*lowSlope/(lowSlope-highSlope)
		if i%3 == 2 {
			lambda = (low + high) / 2
		}
		at := p.slope(lambda, dirS)
		if math.Abs(at) <= -flat*first {
			break
		}
		if at < 0 {
			low, lowSlope = lambda, at
		} else {
			high, highSlope = lambda, at
		}
	}
	same := true
	for j, t := range p.t {
		same = same && (excess(t) == 0) == (excess(t+lambda*p.dirT[j]) == 0)
	}
	for i, u := range p.u {
		p.u[i] += lambda * p.dir[i]
		same = same && (u < 0) == (p.u[i] < 0) && (u > p.bound[i]) == (p.u[i] > p.bound[i])
	}
	undamped := p.damping <= p.Delta
	if lambda < shortStep {
		p.damping = min(2*p.damping, max(maxDamping, p.Delta))
	} else if lambda > 0.5 {
		p.damping = max(p.damping/16, p.Delta)
	}
	if same && undamped {
		p.alpha = min(2*p.alpha, maxAlpha)
	}
	return true
}

// direction solves (HH' + F)dir = −∇f, H = D[AE e] (4.54, 4.57).
func (p *penalty) direction() bool {
	m := len(p.u)
	// H' has the rows of A'D with |A'Du| > 1, and d.
	h := blas64.General{Cols: m, Stride: max(1, m)}
	for j, r := range p.r {
		if r != 0 {
			h.Data = p.da.appendRow(h.Data, j)
			h.Rows++
		}
	}
	h.Data = append(h.Data, p.d...)
	h.Rows++
	if h.Rows >= m {
		system := symmetric(m)
		for i, f := range p.f {
			system.Data[i*m+i] = f
		}
		blas64.Syrk(blas.Trans, 1, h, 1, system)
		copy(p.dir, p.g)
		if !solve(system, p.dir) {
			return false
		}
		floats.Scale(-1, p.dir)
		return true
	}
	// (HH' + F)⁻¹ = F⁻¹ − F⁻¹H(I + H'F⁻¹H)⁻¹H'F⁻¹, with H scaled by the root of F⁻¹.
	root := make([]float64, m)
	for i, f := range p.f {
		root[i] = 1 / math.Sqrt(f)
		p.dir[i] = p.g[i] * root[i]
	}
	for j := range h.Rows {
		floats.Mul(h.Data[j*m:][:m], root)
	}
	system := symmetric(h.Rows)
	for j := range h.Rows {
		system.Data[j*h.Rows+j] = 1
	}
	blas64.Syrk(blas.NoTrans, 1, h, 1, system)
	x := make([]float64, h.Rows)
	blas64.Gemv(blas.NoTrans, 1, h, vector(p.dir), 0, vector(x))
	if !solve(system, x) {
		return false
	}
	blas64.Gemv(blas.Trans, 1, h, vector(x), -1, vector(p.dir))
	floats.Mul(p.dir, root)
	return true
}

func symmetric(n int) blas64.Symmetric {
	return blas64.Symmetric{Uplo: blas.Upper, N: n, Stride: n, Data: make([]float64, n*n)}
}

// solve replaces b with the solution of a positive definite system.
func solve(a blas64.Symmetric, b []float64) bool {
	factor, ok := lapack64.Potrf(a)
	if !ok {
		return false
	}
	lapack64.Potrs(factor, blas64.General{Rows: a.N, Cols: 1, Stride: 1, Data: b})
	for _, x := range b {
		if !finite(x) {
			return false
		}
	}
	return true
}
