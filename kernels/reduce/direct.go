package reduce

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"streamd/incremental/gram"
	"streamd/incremental/parallel"
	"streamd/kernels"
)

// Direct is the direct method of Wu, Schölkopf and Bakır 2006: it moves t expansion points Z
// to a local minimum of
//
//	W(Z) = min over β and the bias of a kernel machine whose w is Σ_l β_l φ(z_l)     (12–15)
//
// by L-BFGS. Corollary 2 has the gradient: that of the machine's objective by Z, with its
// solution held fixed.
//
// The points begin at distinct rows, taken at random, or at means of clusters of all rows
// (k-means). They need not be rows in the end, but a point may stay where it began. Each
// plane has points of its own, ⌊t/k⌋ or ⌈t/k⌉ of them.
//
// W is not convex. The descent stops when no component of the gradient is above 1e-4, in units
// of W at the start and of the spread of the rows, when ten iterations together lower W by less
// than a thousandth, or after 200 iterations. The paper needs 20 to 200.
//
// An evaluation maps the m rows to t coordinates, which costs mtn, solves the machine's program
// in them, and sums the gradient over the rows that pull at the plane. The program is solved anew
// each time, because an active-set method that begins at the α before it takes longer than the
// interior-point method. K(Z, Z) gets a ridge of 1e-8 of the mean K(x, x), so that points may come
// together. It refuses kernels that are not positive semidefinite.
type Direct struct {
	Machine Marginal
	Means   bool // begin at means of clusters instead of random rows
	Starts  int  // descents for each plane, of which the least W counts; 0: 1
	// Nu, if it is not 0, is ν of the hinge loss that gives the points in the end their
	// coefficients and γ (45), instead of the Machine.
	Nu float64
}

// Marginal is a kernel machine that gives W(Z): LargeMargin, ReducedSet or Fisher.
type Marginal interface {
	// open prepares the machine for the rows of a plane.
	open(ctx context.Context, s *sample, r rows, workers int) (program, error)
}

// program solves a kernel machine in the coordinates ψ(x) = K(x, Z) of its rows (31). metric is
// K(Z, Z) with its ridge.
type program interface {
	solve(psi []gram.Column, metric *factor) (*optimum, error)
	// size is the factor s of the term ½s·β'K(Z, Z)β of the objective.
	size() float64
}

// optimum is the solution of a program: K(x, Z)β − γ, and the objective's derivatives.
type optimum struct {
	value float64
	beta  []float64
	gamma float64
	pull  []float64 // ∂W/∂(β'ψ(x_i)) of each row
	dual  int       // rows with a positive dual variable
}

// The stopping rule of a descent on Z.
const (
	directGradient   = 1e-4
	directIterations = 200
	directDecrease   = 1e-3
	directRidge      = 1e-8
)

// Reduce implements Reducer.
func (d Direct) Reduce(ctx context.Context, p *Problem) (*Result, error) {
	s, err := newSample(p)
	if err != nil {
		return nil, err
	}
	if d.Starts < 0 {
		return nil, fmt.Errorf("the direct method: %d starts", d.Starts)
	}
	setDefault(&d.Starts, 1)
	if d.Nu != 0 {
		if err := checkNu(d.Nu); err != nil {
			return nil, err
		}
	}
	if !p.Kernel.Semidefinite() {
		return nil, fmt.Errorf("the direct method needs a positive semidefinite kernel, and %v is none", p.Kernel)
	}
	sides := s.sides()
	found := make([]*descended, len(sides)*d.Starts)
	inner := max(1, s.workers/len(found))
	err = parallel.For(s.workers, len(found), func(i int) error {
		side := sides[i/d.Starts]
		var err error
		found[i], err = d.descend(ctx, s, side, s.random(3, side.rank, i%d.Starts), inner)
		return err
	})
	if err != nil {
		return nil, err
	}
	result := &Result{Features: len(p.Columns), Interrupted: ctx.Err() != nil}
	for k, side := range sides {
		starts := found[k*d.Starts:][:d.Starts]
		best := starts[0]
		unconverged := 0
		for _, other := range starts {
			if other.value < best.value {
				best = other
			}
			unconverged += other.unconverged
		}
		side.best = &best.classifier
		best.step.Unconverged = unconverged
		s.report(result, Stage{
			Class: side.class, Rows: len(s.live), Runs: d.Starts, Nu: d.Nu,
			Candidates: len(best.u), Reduced: best.step,
		})
	}
	result.assemble(sides)
	return result, nil
}

// sides divides the points among the planes.
func (s *sample) sides() []*side {
	sides := make([]*side, len(s.planes))
	for k, class := range s.planes {
		sides[k] = &side{class: class, rank: k, points: s.Points / len(s.planes)}
		if k < s.Points%len(s.planes) {
			sides[k].points++
		}
	}
	return sides
}

// A descended is the classifier at the end of a descent, and its W.
type descended struct {
	classifier
	value       float64
	unconverged int
}

func (d Direct) descend(ctx context.Context, s *sample, side *side, random *rand.Rand, workers int) (*descended, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := s.take(s.live, side.class)
	program, err := d.Machine.open(ctx, s, r, workers)
	if err != nil {
		return nil, err
	}
	z, err := d.start(ctx, s, random, side.points)
	if err != nil {
		return nil, err
	}
	m := newMover(s.Kernel, r, program, z)
	result, err := m.descend(ctx)
	if err != nil {
		return nil, err
	}
	w := m.best.value
	if d.Nu != 0 {
		m.program = &largeMargin{ctx: ctx, nu: d.Nu, r: r, workers: workers}
		if m.best.optimum, err = m.solve(m.best.z); err != nil {
			return nil, err
		}
	}
	c := classifier{z: m.best.z, u: m.best.beta, gamma: m.best.gamma}
	for _, u := range c.u {
		if u != 0 {
			c.step.Points++
		}
	}
	c.step.SupportVectors = float64(m.best.dual)
	c.step.Training, err = s.test(r, c.z, c.u, c.gamma)
	done := &descended{classifier: c, value: w}
	if !result.converged {
		done.unconverged = 1
	}
	return done, err
}

// start returns the points that a descent begins at.
func (d Direct) start(ctx context.Context, s *sample, random *rand.Rand, points int) ([]float64, error) {
	if !d.Means {
		return s.draw(random, s.live, points), nil
	}
	c := newClustering(s.take(s.live, 0), TwoNorm, 1)
	c.seed(random, points)
	if _, err := c.run(ctx); err != nil {
		return nil, err
	}
	return Distinct(c.z, len(s.Columns)), nil
}

// A mover evaluates W(Z) and its gradient.
type mover struct {
	kernel  kernels.Kernel
	program program
	columns []gram.Column
	m, n, t int
	x       []float64 // m×n, row by row
	unit    float64   // of Z: the spread of the rows
	scale   float64   // of W: that of the start
	ridge   float64
	towards []float64 // n
	err     error     // of the last evaluation
	best    struct {
		*optimum
		z []float64
	}
}

func newMover(kernel kernels.Kernel, r rows, program program, z []float64) *mover {
	n, m := len(r.columns), len(r.d)
	v := &mover{kernel: kernel, program: program, columns: r.columns, m: m, n: n, t: len(z) / n, towards: make([]float64, n)}
	v.x = make([]float64, m*n)
	spread := 0.0
	for j, c := range r.columns {
		mean := 0.0
		for i := range m {
			v.x[i*n+j] = c.At(i)
			mean += v.x[i*n+j] / float64(m)
		}
		for i := range m {
			spread = math.FMA(v.x[i*n+j]-mean, v.x[i*n+j]-mean, spread)
		}
	}
	if v.unit = math.Sqrt(spread / float64(m)); !(v.unit > 0) {
		v.unit = 1
	}
	for i := range m {
		v.ridge += kernel.Value(kernel.Argument(v.row(i), v.row(i))) * directRidge / float64(m)
	}
	v.best.z = z
	return v
}

func (v *mover) row(i int) []float64 { return v.x[i*v.n:][:v.n] }

// descend moves the points from best.z to a local minimum.
func (v *mover) descend(ctx context.Context) (descent, error) {
	at := make([]float64, len(v.best.z))
	lo, hi := make([]float64, len(at)), make([]float64, len(at))
	for i, z := range v.best.z {
		at[i] = z / v.unit
		lo[i], hi[i] = math.Inf(-1), math.Inf(1)
	}
	v.evaluate(at, make([]float64, len(at)))
	if v.err != nil {
		return descent{}, v.err
	}
	if v.scale = math.Abs(v.best.value); v.scale == 0 {
		return descent{converged: true}, nil // no error and no w: nothing is to be gained
	}
	return minimise(ctx, v.evaluate, at, lo, hi, directGradient, directDecrease, directIterations), nil
}

// evaluate returns W, relative to that of the start, at Z in units of the spread, and writes its
// gradient to g. Where the program has no certain solution, as between points that have come
// together, W counts as infinite, so that the search along a line goes back.
func (v *mover) evaluate(at, g []float64) float64 {
	z := make([]float64, len(at))
	for i, a := range at {
		z[i] = a * v.unit
	}
	o, err := v.solve(z)
	if v.err = err; err != nil {
		return math.Inf(1)
	}
	if v.best.optimum == nil || o.value < v.best.value {
		v.best.optimum, v.best.z = o, z
	}
	scale := v.scale
	if scale == 0 {
		scale = 1
	}
	size := v.program.size()
	for l, beta := range o.beta {
		zl, own := z[l*v.n:][:v.n], 0.0
		clear(v.towards)
		add := func(x []float64, coefficient float64) {
			s := argument(v.kernel, zl, x)
			_, slope := v.kernel.ValueAndDerivative(s)
			slope *= coefficient * beta
			if v.kernel.Radial() {
				slope = float64(-2 * slope)
				own -= slope
			}
			axpy(slope, x, v.towards)
		}
		for i, pull := range o.pull {
			if pull != 0 {
				add(v.row(i), pull)
			}
		}
		for other, b := range o.beta {
			add(z[other*v.n:][:v.n], size*b)
		}
		for j, zj := range zl {
			g[l*v.n+j] = math.FMA(own, zj, v.towards[j]) * v.unit / scale
		}
	}
	return o.value / scale
}

// solve solves the program for the points z.
func (v *mover) solve(z []float64) (*optimum, error) {
	k, err := kernels.NewMap(v.kernel, v.n, z)
	if err != nil {
		return nil, err
	}
	metric := k.Gram()
	for l := range v.t {
		metric[gram.PackedLen(l)+l] += v.ridge
	}
	f, ok := newFactor(metric, v.t)
	if !ok {
		return nil, fmt.Errorf("K(Z, Z) of %d points is not positive definite", v.t)
	}
	f.ridge = v.ridge
	return v.program.solve(kernels.NewMapper(k).Map(v.columns), f)
}

// A factor is the Cholesky factor L of a positive definite matrix of order t, packed.
type factor struct {
	l     []float64
	t     int
	ridge float64 // that is in the diagonal of the matrix
}

func newFactor(a []float64, t int) (*factor, bool) {
	f := &factor{l: a, t: t}
	for i := range t {
		ri := f.row(i)
		for j := range i + 1 {
			rj := f.row(j)
			sum := ri[j] - dot(ri[:j], rj[:j])
			if j < i {
				ri[j] = sum / rj[j]
				continue
			}
			if !(sum > 0) || math.IsInf(sum, 0) {
				return nil, false
			}
			ri[i] = math.Sqrt(sum)
		}
	}
	return f, true
}

func (f *factor) row(i int) []float64 { return f.l[gram.PackedLen(i):][:i+1] }

// forward solves Lx = b in place, and back L'x = b.
func (f *factor) forward(b []float64) {
	for i := range b {
		r := f.row(i)
		b[i] = (b[i] - dot(r[:i], b)) / r[i]
	}
}

func (f *factor) back(b []float64) {
	for i := f.t - 1; i >= 0; i-- {
		r := f.row(i)
		b[i] /= r[i]
		axpy(-b[i], r[:i], b)
	}
}

// whiten turns the coordinates ψ(x) of the rows into L⁻¹ψ(x), those in an orthonormal basis of
// the span of φ(Z) (41). It overwrites them. A coordinate whose squares are all below the ridge, as
// that of a point far from all rows, is 0: programs would look for its plane among rounding errors.
func (f *factor) whiten(psi []gram.Column) []gram.Column {
	white := make([]gram.Column, len(psi))
	done := make([][]float64, len(psi))
	for l, c := range psi {
		v, ok := gram.Values[float64](c)
		if !ok {
			panic("reduce: coordinates that are not float64")
		}
		r := f.row(l)
		for k, earlier := range done[:l] {
			axpy(-r[k], earlier, v)
		}
		largest := 0.0
		for i := range v {
			v[i] /= r[l]
			largest = max(largest, math.Abs(v[i]))
		}
		if largest*largest <= f.ridge {
			clear(v)
		}
		done[l], white[l] = v, gram.ColumnOf(v)
	}
	return white
}
