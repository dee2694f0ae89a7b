package newton

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"

	"streamd/incremental"
)

// Rows are the rows that planes are refined on.
type Rows interface {
	// Pass calls visit once for every block, in any order, and returns the
	// first error of visit or its own. Calls for different blocks may run at
	// the same time; a block need stay valid only until its call returns. All
	// passes show the same blocks, with the model's features as columns, in
	// the model's order.
	Pass(ctx context.Context, visit func(*incremental.Block) error) error
}

// Blocks are Rows in memory. What was computed of a row is kept from one pass to
// the next, and parts of blocks are worked on in parallel. Of many planes, as many are
// refined at a time as take 64 MiB.
type Blocks []*incremental.Block

// Pass visits the blocks one after the other.
func (b Blocks) Pass(ctx context.Context, visit func(*incremental.Block) error) error {
	for _, block := range b {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := visit(block); err != nil {
			return err
		}
	}
	return nil
}

// Method says what is varied, and how: see the package's documentation.
type Method int

const (
	Full Method = iota
	Line
	Dual
)

// String is the method's name: full, line or dual.
func (m Method) String() string {
	switch m {
	case Full:
		return "full"
	case Line:
		return "line"
	case Dual:
		return "dual"
	}
	return fmt.Sprintf("Method(%d)", int(m))
}

// Options say how to refine. What is minimised is said by the model's own
// options, and by the method.
type Options struct {
	Method Method
	// Mean and Sigma are μ and σ of a model with Standardise, as
	// Moments.Scale gives them; nil for one without.
	Mean, Sigma []float64
	// Multipliers say for how many rows of its class a row stands, u_c; a
	// class that is not named has 1.
	Multipliers map[string]float64
	// Workers bounds the goroutines at work on Blocks; 0 means GOMAXPROCS.
	Workers int

	limit int // of a plane's Newton steps; 0 means maxSteps
	room  int // bytes for planes on rows in memory; 0 means heldBytes
}

// Result is a refined model and how it came about.
type Result struct {
	// Model is the given one with other planes.
	Model  *incremental.Model
	Planes []Report // of each plane
	Rows   int64    // rows of weight > 0
	Passes int      // over the rows, for the planes that are refined together
}

// Report is how one plane was refined.
type Report struct {
	Class string
	// Objective is f(w, γ) at the end, and Gradient the norm ‖∇f(w, γ)‖, both
	// in standardised coordinates where the model is standardised. For Line,
	// the gradient is that in (λ‖w̄‖, γ).
	Objective, Gradient float64
	Iterations          int // Newton steps
	// SupportVectors counts the rows with a positive multiplier
	// u = C(1 − d(x'w − γ))₊ (2.43): the active rows.
	SupportVectors int64
}

// A LimitError says that a plane was not done within the limit of 500 iterations.
type LimitError struct {
	Report // where the plane was
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("class %q: refinement is not done after %d iterations: the objective is %.6g, its gradient %.3g: standardise the features or make nu smaller", e.Class, e.Iterations, e.Objective, e.Gradient)
}

// A StallError says that rounding keeps a plane from its minimum: no step lowers
// the objective, or steps that should settle do not. Numbers of very different
// sizes do that, also where the system of the steps is well-conditioned.
type StallError struct {
	Report            // where the plane was
	Condition float64 // of the last step's system
}

func (e *StallError) Error() string {
	return fmt.Sprintf("class %q: refinement makes no progress after %d iterations: the objective is %.6g, its gradient %.3g, the condition number about %.1e: standardise the features, drop those that repeat others, or make nu smaller",
		e.Class, e.Iterations, e.Objective, e.Gradient, e.Condition)
}

// errRange is returned where sums of the rows leave the range of package exact.
var errRange = errors.New("the rows' sums are out of range: standardise the features")

const (
	// maxSteps is several times what planes take that come to an end.
	maxSteps = 500
	// heldBytes bounds what is held of planes and rows in memory.
	heldBytes = 64 << 20
)

// Refine moves the planes of a model to where they minimise the package's
// objective on rows, beginning where they are. The model's options say what ν,
// the class weights, the balance (which Line leaves out) and the scaling are. Every class of the model
// needs a row, and every row a class of the model.
//
// The errors are those of rows, of ctx, *incremental.RowError for a number that
// is not finite, *LimitError, *StallError, *incremental.ConditionError, and those that name
// a class without rows or a row without class. There is no result then.
func Refine(ctx context.Context, model *incremental.Model, rows Rows, o Options) (*Result, error) {
	n := len(model.Features)
	if model.Options.Standardise != (o.Mean != nil) || len(o.Mean) != len(o.Sigma) || o.Mean != nil && len(o.Mean) != n {
		panic(fmt.Sprintf("newton: %d means and %d deviations for a model of %d features, standardised: %v", len(o.Mean), len(o.Sigma), n, model.Options.Standardise))
	}
	if o.limit == 0 {
		o.limit = maxSteps
	}
	if o.room == 0 {
		o.room = heldBytes
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	scale := scaling{mean: o.Mean, sigma: o.Sigma}
	if o.Mean == nil {
		scale = identity(n)
	}
	refined := *model
	refined.Planes = nil
	out := &Result{Model: &refined}
	for some := range slices.Chunk(model.Planes, together(model, rows, o)) {
		s := &solver{rows: rows, model: model, multipliers: o.Multipliers, limit: o.limit, workers: o.Workers, scaling: scale, width: n}
		for i := range some {
			p := &some[i]
			s.planes = append(s.planes, &plane{
				class: slices.Index(model.Classes, p.Class),
				label: p.Class,
				low:   0, high: n,
				point: scale.enter(p.W, p.Gamma),
			})
		}
		if err := s.refine(ctx, o.Method); err != nil {
			return nil, err
		}
		out.Passes, out.Rows = out.Passes+s.passes, s.total()
		for _, p := range s.planes {
			w, gamma := scale.leave(p.base)
			refined.Planes = append(refined.Planes, incremental.Plane{Class: p.label, W: w, Gamma: gamma, Condition: p.condition})
			out.Planes = append(out.Planes, p.report())
		}
	}
	return out, nil
}

// together is how many planes are refined beside each other: on rows in memory no more
// than have room, since passes over those cost nothing. What is held of them is
// 17 bytes per row, 8 for the feature of Line, and a Hessian with its factor.
func together(model *incremental.Model, rows Rows, o Options) int {
	k := len(model.Planes)
	blocks, ok := rows.(Blocks)
	if !ok || o.Method == Dual {
		return k
	}
	var m int
	for _, b := range blocks {
		m += b.Rows()
	}
	n := len(model.Features) + 1
	each := 17*m + 12*n*n
	if o.Method == Line {
		each = 25 * m
	}
	return min(k, max(o.room/max(each, 1), o.Workers))
}

func (s *solver) refine(ctx context.Context, method Method) error {
	switch method {
	case Full:
		return s.minimise(ctx)
	case Line:
		s.restrict()
		if err := s.minimise(ctx); err != nil {
			return err
		}
		s.expand()
		return nil
	case Dual:
		return s.dual(ctx)
	}
	panic(fmt.Sprintf("newton: %v", method))
}

// scaling is the coordinates x̂ = (x − μ)/σ.
type scaling struct {
	mean, sigma []float64
}

func identity(n int) scaling {
	s := scaling{mean: make([]float64, n), sigma: make([]float64, n)}
	for j := range s.sigma {
		s.sigma[j] = 1
	}
	return s
}

// enter gives the plane x'w = γ in the coordinates x̂, as [ŵ; γ̂].
func (s scaling) enter(w []float64, gamma float64) []float64 {
	z := make([]float64, len(w)+1)
	for j, x := range w {
		z[j] = float64(x * s.sigma[j])
		gamma -= float64(x * s.mean[j])
	}
	z[len(w)] = gamma
	return z
}

// leave is the inverse of enter.
func (s scaling) leave(z []float64) (w []float64, gamma float64) {
	w = make([]float64, len(z)-1)
	gamma = z[len(w)]
	for j := range w {
		w[j] = z[j] / s.sigma[j]
		gamma += float64(w[j] * s.mean[j])
	}
	return w, gamma
}

// norm is the Euclidean norm, without overflow.
func norm(x []float64) float64 {
	var top, sum float64
	for _, v := range x {
		top = max(top, math.Abs(v))
	}
	if top == 0 || math.IsInf(top, 0) {
		return top
	}
	for _, v := range x {
		v /= top
		sum += float64(v * v)
	}
	return top * math.Sqrt(sum)
}
