package lp

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"

	"streamd/incremental/gram"
)

const (
	// curvature is the part of the diagonal of Z'QZ below which a pivot counts as none.
	curvature = 1e-12
	// slight is the relative decrease of the objective that counts as rounding.
	slight = 1e-15
)

// A face is the state of the active-set method for programs with a quadratic term: a
// descent with a basis of up to n independent terms, whose residuals stay zero. The
// direction η leads to the minimum of the objective on the face, as far as no other term
// reaches its kink:
//
//	Qη + g = A_B'β_B,   A_B η = 0
//
// At the minimum it is zero, and β_B are the dual variables of the basis. The point is
// optimal when they are within their bounds. If one is not, its term leaves the basis.
// If the objective falls along directions without curvature, η is one of these.
//
// Variables whose own term is in the basis are zero. The others, the free ones, are
// divided by an orthogonal factor of the basis' other rows: the columns of Y span their
// rows, and the columns of Z their null space. With L the Cholesky factor of Z'QZ, of
// which pivots choose the first coordinates, η = −Z(LL')⁻¹Z'g.
type face struct {
	descent
	free  []int // the free variables
	rows  []int // the basis without the terms of variables
	y, z  *mat.Dense
	r     *mat.TriDense
	inner int       // the number of columns of Z, nil if it is the identity
	l     []float64 // the packed lower triangle of L, in the order of pivots
	pivot []int     // the columns of Z in this order
	rank  int       // of Z'QZ
	flat  bool      // η has no curvature
	calm  bool      // slopes without curvature are rounding
	qEta  []float64 // Qη
	trace float64   // of Q
	scale float64   // the sum of the sizes of the objective's terms
	terms float64   // the size of the terms of f + Qx
}

// polish turns the interior solution into an optimal one whose zeros and bounds are exact,
// by an active-set method from the face that the interior point suggests. A bad interior
// point costs time, not accuracy.
func (s *solver) polish(ctx context.Context) error {
	v := &face{descent: newDescent(s), qEta: make([]float64, s.n)}
	for i := range s.order {
		v.trace += s.q[gram.PackedLen(i)+i]
	}
	if v.trace == 0 {
		v.trace = 1
	}
	v.rest()
	v.choose(0.5, false)
	if err := v.refactor(); err != nil {
		return err
	}
	empty, petty := 0, 0
	random := rand.New(rand.NewPCG(1, uint64(s.n)))
	forgiven := map[int]bool{}
	minimal := false // the last step ended at the minimum on the face
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.pivots >= s.limit {
			return fmt.Errorf("%w: %d passes, %d active-set steps", ErrNotConverged, s.passes, s.pivots)
		}
		slope := v.solve()
		if !(slope < 0) || minimal && -slope <= slight*v.scale {
			place := v.leaving(forgiven)
			if place < 0 {
				if optimal, err := v.settle(v.refactor); optimal || err != nil {
					return err
				}
				minimal = false
				continue
			}
			if out, width := v.violation(place); out <= feasibility*width {
				if petty++; petty > pettyPivots {
					forgiven[v.basis[place]] = true
					continue
				}
			}
			s.pivots++
			v.leave(place)
			v.basis = slices.Delete(v.basis, place, place+1)
			v.fresh++
			minimal = false
			if err := v.divide(); err != nil {
				return err
			}
			continue
		}
		s.pivots++
		v.gather()
		bend := -slope // of a Newton step
		if v.flat {
			bend = 0
		}
		step, passed, enters := v.search(slope, bend, rounding*(v.terms+v.size)*v.edge)
		if passed < 0 {
			if v.fresh > 0 {
				if err := v.refactor(); err != nil {
					return err
				}
				continue
			}
			if v.descends() {
				s.ray = true
				copy(s.x, v.eta)
				return ErrUnbounded
			}
			if v.calm = true; v.missed() > 0 && v.hard <= 1e12 { // a miss is too cheap
				v.hard *= 1e3
				if err := v.refactor(); err != nil {
					return err
				}
			}
			continue
		}
		if empty++; step*v.edge > s.tolerance {
			empty = 0
		}
		v.pass(passed)
		v.advance(step)
		addTo(v.g, step, v.qEta)
		v.fresh++
		minimal = !enters && passed == 0 && !v.flat
		if enters {
			k := v.taken[passed].term
			v.a.addRow(v.g, k, s.beta[k])
			v.basis = append(v.basis, k)
			v.basic[k], v.moved = true, true
			if err := v.divide(); err != nil {
				return err
			}
		}
		for _, k := range v.basis {
			s.residual[k] = 0
		}
		if empty > emptySteps {
			v.perturb(random)
			empty = 0
		}
		if v.fresh >= refactorEvery {
			if err := v.refactor(); err != nil {
				return err
			}
		}
	}
}

// rest puts into the basis the terms of variables that nothing moves from 0: no row, no linear
// cost and no other variable. An orthogonal factor would mix rounding into them.
func (v *face) rest() {
	s, a := v.solver, v.a
	moved := make([]bool, s.n)
	a.over(a.t, func(j int) {
		at, numbers, sparse := a.columns[j].NonZero()
		for l, x := range numbers {
			moved[j] = moved[j] || x != 0 && s.hi[at[l]] > 0
		}
		for i := 0; i < a.m && !sparse && !moved[j]; i++ {
			moved[j] = s.hi[i] > 0 && a.columns[j].At(i) != 0
		}
	})
	moved[a.t] = a.m > 0
	for _, row := range a.sparse {
		for _, term := range row {
			moved[term.Variable] = true
		}
	}
	for i := range s.order {
		for j, w := range s.q[gram.PackedLen(i):][:i] {
			if w != 0 {
				moved[i], moved[j] = true, true
			}
		}
	}
	for j, f := range s.f {
		if k := a.m + j; f == 0 && !moved[j] && s.lo[k] <= 0 && s.hi[k] >= 0 {
			v.basis, v.basic[k] = append(v.basis, k), true
		}
	}
}

// refactor recomputes the face from its basis, at the point of the face next to x.
func (v *face) refactor() error {
	s := v.solver
	if err := v.divide(); err != nil {
		return err
	}
	for _, k := range v.basis {
		if k >= v.a.m && k < v.a.m+s.n {
			s.x[k-v.a.m] = v.shifts[k]
		}
	}
	if len(v.rows) > 0 {
		for range 2 { // the second time refines
			off := mat.NewVecDense(len(v.rows), nil)
			for i, k := range v.rows {
				v.a.row(v.row, k)
				off.SetVec(i, s.b[k]+v.shifts[k]-dot(v.row, s.x))
			}
			var step mat.VecDense
			blas64.Trsv(blas.Trans, v.r.RawTriangular(), off.RawVector()) // a bad condition shows in x
			step.MulVec(v.y, off)
			for i, j := range v.free {
				s.x[j] += step.AtVec(i)
			}
		}
	}
	if !finite(maxAbs(s.x)) {
		return fmt.Errorf("%w: singular basis after %d active-set steps", ErrNotConverged, s.pivots)
	}
	s.tolerance = 1e-13 * (1 + maxAbs(s.x))
	v.fromX()
	s.mulQuadratic(v.qEta, s.x)
	v.terms = maxAbs(s.f) + maxAbs(v.qEta)
	v.scale = slight * v.trace * (1 + maxAbs(s.x)) * (1 + maxAbs(s.x))
	for j := range v.g {
		v.g[j] += v.qEta[j]
		v.scale += math.Abs(s.x[j]) * (math.Abs(s.f[j]) + math.Abs(v.qEta[j]))
		if j < s.order {
			size := s.q[gram.PackedLen(j)+j] * math.Abs(s.x[j]) // Qx may cancel
			v.terms = max(v.terms, size)
			v.scale += size * math.Abs(s.x[j])
		}
	}
	for k, beta := range s.beta {
		v.scale += math.Abs(beta * s.residual[k])
	}
	return nil
}

// divide divides the free variables by the rows of the basis, and factorises Z'QZ.
func (v *face) divide() error {
	s := v.solver
	v.free, v.rows = v.free[:0], v.rows[:0]
	for _, k := range v.basis {
		if k < v.a.m || k >= v.a.m+s.n {
			v.rows = append(v.rows, k)
		}
	}
	for j := range s.n {
		if !v.basic[v.a.m+j] {
			v.free = append(v.free, j)
		}
	}
	free, rows := len(v.free), len(v.rows)
	q := mat.NewDense(max(free, 1), max(free, 1), nil)
	for i, row := range v.free {
		for k, column := range v.free[:i+1] {
			if row < s.order {
				q.Set(i, k, s.q[gram.PackedLen(row)+column])
				q.Set(k, i, s.q[gram.PackedLen(row)+column])
			}
		}
	}
	v.y, v.z = nil, nil
	if rows > 0 {
		c := mat.NewDense(free, rows, nil)
		for i, k := range v.rows {
			v.a.row(v.row, k)
			for r, j := range v.free {
				c.Set(r, i, v.row[j])
			}
		}
		var qr mat.QR
		qr.Factorize(c)
		var orthogonal mat.Dense
		qr.QTo(&orthogonal)
		v.y = orthogonal.Slice(0, free, 0, rows).(*mat.Dense)
		var r mat.Dense
		qr.RTo(&r)
		v.r = mat.NewTriDense(rows, mat.Upper, nil)
		for i := range rows {
			for j := i; j < rows; j++ {
				v.r.SetTri(i, j, r.At(i, j))
			}
		}
		if free > rows {
			v.z = orthogonal.Slice(0, free, rows, free).(*mat.Dense)
			var half, reduced mat.Dense
			half.Mul(q, v.z)
			reduced.Mul(v.z.T(), &half)
			q = &reduced
		}
	}
	v.inner, v.calm = free-rows, false
	v.factorise(q)
	return nil
}

// factorise sets L to the Cholesky factor of the inner×inner matrix q, with the largest
// pivot first, up to its rank.
func (v *face) factorise(q *mat.Dense) {
	n := v.inner
	v.l = make([]float64, gram.PackedLen(n))
	v.pivot = make([]int, n)
	left := make([]float64, n) // the diagonal of q − LL'
	for i := range n {
		v.pivot[i], left[i] = i, q.At(i, i)
	}
	row := func(i int) []float64 { return v.l[gram.PackedLen(i):][:i+1] }
	for v.rank = 0; v.rank < n; v.rank++ {
		k, top := v.rank, v.rank
		for i := k; i < n; i++ {
			if left[i] > left[top] {
				top = i
			}
		}
		if at := v.pivot[top]; !(left[top] > curvature*q.At(at, at)+rounding*v.trace) {
			return
		}
		left[k], left[top] = left[top], left[k]
		v.pivot[k], v.pivot[top] = v.pivot[top], v.pivot[k]
		for j := range k {
			row(k)[j], row(top)[j] = row(top)[j], row(k)[j]
		}
		root := math.Sqrt(left[k])
		row(k)[k] = root
		for i := k + 1; i < n; i++ {
			w := (q.At(v.pivot[i], v.pivot[k]) - dot(row(i)[:k], row(k)[:k])) / root
			row(i)[k] = w
			left[i] -= float64(w * w)
		}
	}
}

// direct computes η from g, and returns the slope along it.
func (v *face) direct() (slope float64) {
	clear(v.eta)
	v.flat = false
	if v.inner == 0 {
		return 0
	}
	g := mat.NewVecDense(len(v.free), nil)
	for i, j := range v.free {
		g.SetVec(i, v.g[j])
	}
	inner := g
	if v.z != nil {
		inner = mat.NewVecDense(v.inner, nil)
		inner.MulVec(v.z.T(), g)
	}
	y := make([]float64, v.inner) // first L⁻¹g, and what it leaves of g without curvature
	r := v.rank
	for i, p := range v.pivot {
		row := v.l[gram.PackedLen(i):][:i+1]
		y[i] = inner.AtVec(p) - dot(row[:min(i, r)], y[:min(i, r)])
		if i < r {
			y[i] /= row[i]
		}
	}
	if !v.calm && maxAbs(y[r:]) > rounding*(v.terms+v.size) {
		v.flat = true
		clear(y[:r])
		slope = -dot(y[r:], y[r:])
		for i := r; i < v.inner; i++ {
			y[i] = -y[i]
			addTo(y[:r], -y[i], v.l[gram.PackedLen(i):][:r])
		}
	} else {
		clear(y[r:])
		slope = -dot(y[:r], y[:r])
		for i := range r {
			y[i] = -y[i]
		}
	}
	for i := r - 1; i >= 0; i-- {
		row := v.l[gram.PackedLen(i):][:i+1]
		y[i] /= row[i]
		addTo(y[:i], -y[i], row[:i])
	}
	for i, p := range v.pivot {
		inner.SetVec(p, y[i])
	}
	if v.z != nil {
		g.MulVec(v.z, inner)
	}
	for i, j := range v.free {
		v.eta[j] = g.AtVec(i)
	}
	return slope
}

// solve computes the direction η, the dual variables of the basis at its end and their
// rounding errors. It returns the slope of the objective along η.
func (v *face) solve() (slope float64) {
	s := v.solver
	slope = v.direct()
	s.mulQuadratic(v.qEta, v.eta)

	left := v.row // g + Qη − A_B'β_B
	for j := range left {
		left[j] = v.g[j] + v.qEta[j]
	}
	top := maxAbs(left)
	if len(v.rows) > 0 {
		y := mat.NewVecDense(len(v.free), nil)
		for i, j := range v.free {
			y.SetVec(i, left[j])
		}
		beta := mat.NewVecDense(len(v.rows), nil)
		beta.MulVec(v.y.T(), y)
		blas64.Trsv(blas.NoTrans, v.r.RawTriangular(), beta.RawVector())
		for i, k := range v.rows {
			s.beta[k] = beta.AtVec(i)
			v.a.addRow(left, k, -s.beta[k])
			top = max(top, math.Abs(s.beta[k]))
		}
	}
	for i, k := range v.basis {
		if k >= v.a.m && k < v.a.m+s.n {
			s.beta[k] = left[k-v.a.m]
		}
		v.noise[i] = 10 * rounding * (top + v.terms)
	}
	return slope
}

// leaving is the place in the basis of the dual variable that violates its bounds most, or
// −1.
func (v *face) leaving(forgiven map[int]bool) int {
	most, place := 0.0, -1
	for i, k := range v.basis {
		if out, _ := v.violation(i); out > v.noise[i] && out > most && !forgiven[k] {
			most, place = out, i
		}
	}
	return place
}
