package newton

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// Method is the search method: see the package's documentation.
type Method int

const (
	Full Method = iota
	Line
	Dual
	Logistic
)

// String is the method's name: full, line, dual or logistic.
func (m Method) String() string {
	switch m {
	case Full:
		return "full"
	case Line:
		return "line"
	case Dual:
		return "dual"
	case Logistic:
		return "logistic"
	}
	return fmt.Sprintf("Method(%d)", int(m))
}

// Refine is the function Refine with this method.
func (m Method) Refine(ctx context.Context, model *incremental.Model, rows Rows, o Options) (*Result, error) {
	o.Method = m
	return Refine(ctx, model, rows, o)
}

// Continues says whether the search begins at the planes of the model and ends, up to
// rounding, at the same planes wherever it begins.
func (m Method) Continues() bool { return m == Full || m == Logistic }

// Unlabelled says that no method takes rows without a label.
func (m Method) Unlabelled() bool { return false }

// Options say how to refine. The model's own options and the method determine the
// objective.
type Options struct {
	Method Method
	// Mean and Sigma are μ and σ from Moments.Scale for a model with Standardise,
	// and nil for a model without.
	Mean, Sigma []float64
	// Multipliers are u_c, the number of rows that a row of class c stands for. A
	// class that is not named has 1.
	Multipliers map[string]float64
	// Regulariser is R of w'Rw in place of ‖w‖², as of Moments.WithRegulariser; nil: I. Of the
	// methods of this package only Full takes another.
	Regulariser []float64
	// Coarse ends the search where another step would gain at most 2⁻⁴⁴ of the objective: enough to
	// compare planes by held-out rows. Only Full and Logistic heed it.
	Coarse bool
	// Workers bounds the goroutines that process Blocks; 0 means GOMAXPROCS.
	Workers int

	limit int // Newton steps of a plane; 0 means maxSteps
	room  int // bytes for planes on rows in memory; 0 means heldBytes
}

// Result is a refined model and its statistics.
type Result struct {
	// Model is the given model with refined planes.
	Model  *incremental.Model
	Planes []Report // one per plane
	Rows   int64    // rows of weight > 0
	// Unlabelled counts those of Rows without a label, which other methods than Newton's take.
	Unlabelled int64
	Passes     int // passes over the rows, summed over groups of planes
}

const (
	// maxSteps is several times the number of steps of planes that come to an end.
	maxSteps = 500
	// heldBytes bounds the memory for results that are kept between passes.
	heldBytes = 64 << 20
)

// Refine moves the planes of a model to the minimum of the package's objective on rows,
// beginning where they are. The model's options determine ν, the class weights, the
// balance (which Line ignores) and the scaling. Every class of the model needs a row,
// and every row needs a class of the model.
//
// The errors are those of rows, of ctx, *incremental.RowError for a number that
// is not finite, *LimitError, *StallError, *incremental.ConditionError, and errors that
// name a class without rows or a row without a class. The result is nil then.
func Refine(ctx context.Context, model *incremental.Model, rows Rows, o Options) (*Result, error) {
	if n := len(model.Features); model.Options.Standardise != (o.Mean != nil) || len(o.Mean) != len(o.Sigma) || o.Mean != nil && len(o.Mean) != n {
		panic(fmt.Sprintf("newton: %d means and %d deviations for a model of %d features, standardised: %v", len(o.Mean), len(o.Sigma), n, model.Options.Standardise))
	}
	if r, n := o.Regulariser, len(model.Features); r != nil && len(r) != gram.PackedLen(n) {
		panic(fmt.Sprintf("newton: %d numbers of a regulariser of %d features", len(r), n))
	}
	if o.Regulariser != nil && o.Method != Full {
		return nil, fmt.Errorf("the refinement %v measures planes by ‖w‖² and has no other regulariser", o.Method)
	}
	o = o.withDefaults()
	out := resultOf(model)
	for some := range slices.Chunk(model.Planes, together(model, rows, o)) {
		s := newSolver(model, rows, o)
		for i := range some {
			s.add(&some[i])
		}
		if err := s.refine(ctx, o.Method); err != nil {
			return nil, err
		}
		out.add(s)
	}
	return out, nil
}

func (o Options) withDefaults() Options {
	if o.limit == 0 {
		o.limit = maxSteps
	}
	if o.room == 0 {
		o.room = heldBytes
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	return o
}

// resultOf is a result of a model without its planes.
func resultOf(model *incremental.Model) *Result {
	refined := *model
	refined.Planes = nil
	return &Result{Model: &refined}
}

// add adds the planes of a solver that has ended.
func (r *Result) add(s *solver) {
	r.Passes, r.Rows = r.Passes+s.passes, s.total()
	for _, p := range s.planes {
		w, gamma := s.leave(p.base)
		r.Model.Planes = append(r.Model.Planes, incremental.Plane{Class: p.label, W: w, Gamma: gamma, Condition: p.condition})
		r.Planes = append(r.Planes, p.report())
	}
}

func newSolver(model *incremental.Model, rows Rows, o Options) *solver {
	n := len(model.Features)
	s := &solver{rows: rows, model: model, multipliers: o.Multipliers, limit: o.limit, workers: o.Workers, size: o.Regulariser, coarse: o.Coarse, scaling: scaling{mean: o.Mean, sigma: o.Sigma}, width: n}
	if o.Mean == nil {
		s.scaling = identity(n)
	}
	return s
}

// add adds a plane of the model.
func (s *solver) add(p *incremental.Plane) {
	next := &plane{class: slices.Index(s.model.Classes, p.Class), label: p.Class, low: 0, high: s.width, size: s.size, gap: math.NaN()}
	next.point = s.enter(p.W, p.Gamma)
	s.planes = append(s.planes, next)
}

// together is the number of planes to refine as a group. On rows in memory, where an
// additional pass is cheap, it is the number for which there is room. A plane takes
// 17 bytes per row and a Hessian with its factor, or with Line 25 bytes per row.
func together(model *incremental.Model, rows Rows, o Options) int {
	k := len(model.Planes)
	blocks, ok := rows.(Blocks)
	if !ok || o.Method == Dual || o.Method == Logistic {
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
		if err := s.survey(ctx); err != nil {
			return err
		}
		return s.minimise(ctx)
	case Line:
		s.restrict()
		if err := s.survey(ctx); err != nil {
			return err
		}
		if err := s.minimise(ctx); err != nil {
			return err
		}
		s.expand()
		return nil
	case Dual:
		return s.dual(ctx)
	case Logistic:
		j, point, err := s.joint(ctx)
		if err != nil {
			return err
		}
		return j.minimise(ctx, point)
	}
	panic(fmt.Sprintf("newton: %v", method))
}
