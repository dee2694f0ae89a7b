package svm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"

	"streamd/incremental/gram"
	"streamd/kernels"
)

// SMO is the support vector machine of a full kernel matrix K = K(A, A),
//
//	min  ½w'Kw + ν c'E
//	s.t. D(Kw − eγ) + E ≥ e,  E ≥ 0
//
// for as many rows as time allows: K is not stored. It solves the dual program
//
//	min  ½α'DKDα − e'α
//	s.t. 0 ≤ α ≤ νc,  d'α = 0
//
// whose solution gives w = Dα, so a row is in the classifier K(x', A)w = γ when it is a
// support vector.
//
// # Method
//
// Sequential minimal optimisation changes two variables at a time, chosen by the second-order
// rule WSS 2 of Fan, Chen and Lin 2005 (Working set selection using second order information
// for training SVMs). Rows of K that were used last are cached. Variables at a bound that look
// settled are left out of the scans (shrinking, Chang and Lin 2011, section 5.1). When nothing
// is left to do, the gradient of all rows is computed anew, and if some row was left out too
// early, the method goes on from there.
//
// # Stopping rule
//
// SMO stops when the largest violation of the optimality conditions
//
//	max {v_i : w_i can rise} − min {v_i : w_i can fall},   v = d − Kw
//
// is at most Tolerance. The Gap is computed from w, γ and v; it bounds the distance of the
// Objective from the optimum. It is Σ (νc_i E_i − w_i (v_i + γ)), a sum of terms that are not
// negative, so nothing cancels.
//
// # Cost
//
// A step is two scans of the rows that are not left out, and up to two new rows of K, of m·n
// multiply-adds and m exponentials each. Steps number a few times m, and more for large ν. The
// memory is CacheBytes, m·n numbers and some ten numbers per row.
//
// # Determinism
//
// The bits of the plane do not depend on the number of workers, on CacheBytes, on earlier
// fits, or on the kind of processor.
type SMO struct {
	Kernel kernels.Kernel // positive semidefinite
	// Tolerance is the largest violation that is allowed, > 0; 0: 1e-3.
	Tolerance float64
	// CacheBytes bounds the memory of cached rows; 0: 256 MiB. Two rows are always kept.
	CacheBytes int64
}

const (
	// DefaultTolerance is that of LIBSVM.
	DefaultTolerance  = 1e-3
	defaultCacheBytes = 256 << 20
	// minSteps and stepsPerRow bound the steps, as in LIBSVM.
	minSteps    = 10_000_000
	stepsPerRow = 100
	// leastCurvature stands for the curvature K_ii + K_jj − 2K_ij of equal rows.
	leastCurvature = 1e-12
	// contextSteps is the number of steps between two looks at the context.
	contextSteps = 256
	// shrinkSteps is the most steps between two attempts at shrinking.
	shrinkSteps = 1000
)

// ErrNotConverged reports that SMO came to its limit of steps. Its tolerance may be below what
// rounding leaves.
var ErrNotConverged = errors.New("svm: not converged")

// Fit implements Machine for Rows whose columns are A, not K. W has a number for each row.
func (s SMO) Fit(ctx context.Context, rows *Rows, nu float64) (*Plane, error) {
	if err := rows.Check(nu); err != nil {
		return nil, err
	}
	if rows.Regulariser != nil {
		return nil, errors.New("svm: the regulariser of a full kernel is K(A, A)")
	}
	f, err := s.Open(rows.Columns, rows.Workers)
	if err != nil {
		return nil, err
	}
	p, _, err := f.Fit(ctx, rows.D, rows.Costs, nu, nil)
	return p, err
}

// A FullKernel is the rows A with the cached part of K(A, A). Planes for several labels, costs
// and ν share it, one after the other.
type FullKernel struct {
	s          SMO
	matrix     *kernels.Matrix
	diagonal   []float64
	cache      cache
	limitSteps int
}

// Open prepares fits of the same rows A. It returns an error for a kernel that is not positive
// semidefinite and for numbers that are not finite. Up to workers goroutines are used; 0:
// GOMAXPROCS.
func (s SMO) Open(columns []gram.Column, workers int) (*FullKernel, error) {
	if !s.Kernel.Semidefinite() {
		return nil, fmt.Errorf("svm: %v is not positive semidefinite, so its program has no certain solution", s.Kernel)
	}
	if len(columns) == 0 {
		return nil, errors.New("svm: rows of no features have no kernel")
	}
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	if s.Tolerance == 0 {
		s.Tolerance = DefaultTolerance
	}
	if s.CacheBytes == 0 {
		s.CacheBytes = defaultCacheBytes
	}
	if !(s.Tolerance > 0) || s.CacheBytes < 0 {
		return nil, fmt.Errorf("svm: a tolerance of %v and a cache of %d bytes", s.Tolerance, s.CacheBytes)
	}
	matrix, err := kernels.NewMatrix(s.Kernel, columns, workers)
	if err != nil {
		return nil, fmt.Errorf("svm: %w", err)
	}
	m := matrix.Rows()
	f := &FullKernel{s: s, matrix: matrix, diagonal: matrix.Diagonal(), limitSteps: max(minSteps, stepsPerRow*m)}
	for i, v := range f.diagonal {
		if v-v != 0 {
			return nil, fmt.Errorf("svm: row %d: its kernel with itself is %v", i, v)
		}
	}
	f.cache = newCache(m, s.CacheBytes)
	return f, nil
}

// Fit finds the plane for labels d, costs c (nil: 1 each) and ν, which Rows.Check would
// accept. A row of cost 0 counts as absent. It also returns the value K(x_i', A)w − γ of each
// row, absent ones too.
//
// start, if any, is w of a plane for the same labels. Its numbers are cut to the bounds, so
// that of a smaller ν is a good start. With a start that Σw = 0 does not hold for after that,
// Fit begins at 0.
func (f *FullKernel) Fit(ctx context.Context, d, costs []float64, nu float64, start []float64) (*Plane, []float64, error) {
	m := f.matrix.Rows()
	if len(d) != m || costs != nil && len(costs) != m || start != nil && len(start) != m {
		panic(fmt.Sprintf("svm: %d labels, %d costs and a start of %d for %d rows", len(d), len(costs), len(start), m))
	}
	r := &search{FullKernel: f, d: d, w: make([]float64, m), cost: make([]float64, m)}
	for i := range r.cost {
		if r.cost[i] = nu; costs != nil {
			r.cost[i] *= costs[i]
		}
	}
	if start != nil {
		r.start(start)
	}
	for {
		if err := r.renew(ctx); err != nil {
			return nil, nil, err
		}
		if r.up-r.low <= f.s.Tolerance {
			p, values := r.plane()
			return p, values, nil
		}
		if err := r.run(ctx); err != nil {
			return nil, nil, err
		}
	}
}

// search is the state of one Fit. Rows are numbered by i, rows in the scans by k.
type search struct {
	*FullKernel
	d, cost, w []float64
	v          []float64 // d − Kw, as of the last renewal
	steps      int

	// Of the rows in the scans, in the order of their numbers:
	row         []int32
	g           []float64 // v
	curve       []float64 // K_ii
	noUp, noLow []float64 // 0 where w can rise or fall; else −∞ and ∞, which no scan chooses

	up, low float64 // the largest v of rows whose w can rise, the smallest of those whose w can fall
	first   int     // k of up
}

// Point returns a copy of row i of A.
func (f *FullKernel) Point(i int) []float64 { return f.matrix.Point(i) }

// bounds are those of w_i.
func (r *search) bounds(i int) (least, most float64) {
	if r.d[i] > 0 {
		return 0, r.cost[i]
	}
	return -r.cost[i], 0
}

// start begins at some w if it satisfies Σw = 0 within the bounds.
func (r *search) start(w []float64) {
	var sum, size float64
	for i, x := range w {
		least, most := r.bounds(i)
		r.w[i] = min(max(x, least), most)
		sum += r.w[i]
		size += math.Abs(r.w[i])
	}
	if !(math.Abs(sum) <= 1e-12*size) {
		clear(r.w)
	}
}

// renew computes v for all rows and takes all that can move into the scans.
func (r *search) renew(ctx context.Context) error {
	var err error
	if r.v, err = r.matrix.Times(ctx, r.w); err != nil {
		return err
	}
	r.row, r.g, r.curve, r.noUp, r.noLow = r.row[:0], r.g[:0], r.curve[:0], r.noUp[:0], r.noLow[:0]
	for i := range r.v {
		r.v[i] = r.d[i] - r.v[i]
		if r.cost[i] > 0 {
			r.row, r.g, r.curve = append(r.row, int32(i)), append(r.g, r.v[i]), append(r.curve, r.diagonal[i])
			r.noUp, r.noLow = append(r.noUp, 0), append(r.noLow, 0)
			r.limit(len(r.row) - 1)
		}
	}
	r.extremes()
	return nil
}

// limit notes which way the w of row k of the scans can move.
func (r *search) limit(k int) {
	i := r.row[k]
	least, most := r.bounds(int(i))
	r.noUp[k], r.noLow[k] = 0, 0
	if r.w[i] >= most {
		r.noUp[k] = math.Inf(-1)
	}
	if r.w[i] <= least {
		r.noLow[k] = math.Inf(1)
	}
}

// extremes finds up and low.
func (r *search) extremes() {
	r.up, r.low = math.Inf(-1), math.Inf(1)
	for k, v := range r.g {
		if x := v + r.noUp[k]; x > r.up {
			r.up, r.first = x, k
		}
		if x := v + r.noLow[k]; x < r.low {
			r.low = x
		}
	}
}

// run moves pairs of w until the rows in the scans satisfy the stopping rule.
func (r *search) run(ctx context.Context) error {
	untilShrink := 1 // a renewal has just taken in all rows
	for r.up-r.low > r.s.Tolerance {
		if r.steps%contextSteps == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if r.steps == r.limitSteps {
			return fmt.Errorf("%w after %d steps: a violation of %.3g is left, and %.3g is allowed", ErrNotConverged, r.steps, r.up-r.low, r.s.Tolerance)
		}
		if untilShrink--; untilShrink == 0 {
			r.shrink()
			untilShrink = min(r.matrix.Rows(), shrinkSteps)
		}
		a := r.cache.row(r.matrix, int(r.row[r.first]))
		second := r.partner(a)
		b := r.cache.row(r.matrix, int(r.row[second]))
		r.move(r.first, second, a, b)
		r.steps++
	}
	return nil
}

// partner chooses the second row for the first, with a its row of K: the one for which the
// objective falls most, by b²/2a with b the difference of v and a the curvature (Fan, Chen and
// Lin 2005, WSS 2).
func (r *search) partner(a []float64) int {
	top, own := r.up, r.curve[r.first]
	best, bestGain, bestCurve := -1, 0.0, 1.0
	g := r.g
	row, noLow, curve := r.row[:len(g)], r.noLow[:len(g)], r.curve[:len(g)]
	for k, v := range g {
		b := top - v - noLow[k]
		c := own + curve[k] - float64(2*a[row[k]])
		if c < leastCurvature {
			c = leastCurvature
		}
		// Without a division, and below zero for rows that cannot fall or have a larger v.
		if gain := b * math.Abs(b); gain*bestCurve > bestGain*c {
			best, bestGain, bestCurve = k, gain, c
		}
	}
	return best
}

// move raises w of row i of the scans and lowers that of row j as far as the objective falls
// and bounds allow, and updates v and the extremes.
func (r *search) move(i, j int, a, b []float64) {
	wi, wj := &r.w[r.row[i]], &r.w[r.row[j]]
	_, most := r.bounds(int(r.row[i]))
	least, _ := r.bounds(int(r.row[j]))
	step := (r.g[i] - r.g[j]) / max(r.curve[i]+r.curve[j]-float64(2*a[r.row[j]]), leastCurvature)
	risen, fallen := *wi+step, *wj-step
	if room := most - *wi; step >= room {
		step, risen, fallen = room, most, *wj-room
	}
	if room := *wj - least; step >= room {
		step, risen, fallen = room, *wi+room, least
	}
	*wi, *wj = risen, fallen
	r.limit(i)
	r.limit(j)

	g := r.g
	row, noUp, noLow := r.row[:len(g)], r.noUp[:len(g)], r.noLow[:len(g)]
	up, low, first := math.Inf(-1), math.Inf(1), 0
	for k, at := range row {
		v := g[k] - float64(step*(a[at]-b[at]))
		g[k] = v
		if x := v + noUp[k]; x > up {
			up, first = x, k
		}
		if x := v + noLow[k]; x < low {
			low = x
		}
	}
	r.up, r.low, r.first = up, low, first
}

// shrink leaves rows at a bound out of the scans that no pair could move now.
func (r *search) shrink() {
	kept := 0
	for k, v := range r.g {
		if (r.noUp[k] < 0 || v < r.low) && (r.noLow[k] > 0 || v > r.up) {
			continue
		}
		if k == r.first {
			r.first = kept
		}
		r.row[kept], r.g[kept], r.curve[kept], r.noUp[kept], r.noLow[kept] = r.row[k], v, r.curve[k], r.noUp[k], r.noLow[k]
		kept++
	}
	r.row, r.g, r.curve, r.noUp, r.noLow = r.row[:kept], r.g[:kept], r.curve[:kept], r.noUp[:kept], r.noLow[:kept]
}

// plane is the solution after a renewal, and the values of all rows.
func (r *search) plane() (*Plane, []float64) {
	// Rows between their bounds have v = −γ.
	var sum float64
	free := 0
	for k, v := range r.g {
		if r.noUp[k] == 0 && r.noLow[k] == 0 {
			sum += v
			free++
		}
	}
	p := &Plane{W: r.w, Alpha: make([]float64, len(r.w)), Programs: 1, Steps: r.steps}
	switch {
	case free > 0:
		p.Gamma = -sum / float64(free)
	case math.IsInf(r.up, 0) && math.IsInf(r.low, 0): // no rows
	case math.IsInf(r.up, 0): // one class
		p.Gamma = -r.low
	case math.IsInf(r.low, 0):
		p.Gamma = -r.up
	default:
		p.Gamma = -(r.up + r.low) / 2
	}
	values := r.v
	for i, d := range r.d {
		slack, w := r.v[i]+p.Gamma, r.w[i]
		p.Alpha[i] = math.Abs(w)
		e := float64(r.cost[i] * max(0, d*slack))
		p.Gap += e - float64(w*slack)
		p.Objective += float64(w*(d-r.v[i])/2) + e
		values[i] = d - slack
	}
	return p, values
}

// A cache keeps the rows of K that were used last.
type cache struct {
	rows [][]float64 // by their numbers; nil: not cached
	// A ring of the cached rows, the least recently used one after the end m.
	next, previous []int32
	room           int // rows that may still be added
}

func newCache(m int, bytes int64) cache {
	c := cache{rows: make([][]float64, m), next: make([]int32, m+1), previous: make([]int32, m+1)}
	c.next[m], c.previous[m] = int32(m), int32(m)
	c.room = int(max(2, min(int64(m), bytes/int64(8*max(1, m)))))
	return c
}

// row returns row i of K. It is valid until the call after the next.
func (c *cache) row(k *kernels.Matrix, i int) []float64 {
	row, end := c.rows[i], int32(len(c.rows))
	if row != nil {
		c.unlink(int32(i))
	} else {
		var memory []float64
		if c.room > 0 {
			c.room--
		} else {
			oldest := c.next[end]
			c.unlink(oldest)
			memory, c.rows[oldest] = c.rows[oldest], nil
		}
		row = k.Row(memory, i)
		c.rows[i] = row
	}
	last := c.previous[end]
	c.next[last], c.previous[i] = int32(i), last
	c.next[i], c.previous[end] = end, int32(i)
	return row
}

func (c *cache) unlink(i int32) {
	c.next[c.previous[i]], c.previous[c.next[i]] = c.next[i], c.previous[i]
}
