package study

import (
	"context"
	"slices"

	"streamd/incremental"
	"streamd/incremental/newton"
	"streamd/incremental/tuning"
)

// Problem is the sums of rows. It is only read, and must not change meanwhile.
type Problem struct {
	Whole *incremental.State   // of all rows
	Folds []*incremental.State // of disjoint parts that add up to Whole; none: nothing is held out
	// Regulariser is R of w'Rw (incremental.Moments.WithRegulariser); nil: I.
	Regulariser []float64
}

// Options say which planes are wanted.
type Options struct {
	// Planes are the options of the planes. Tune puts its choice into them.
	Planes incremental.Options
	// AnyScale and AnyBalance let Tune choose Planes.Standardise and Planes.Balanced, too.
	AnyScale, AnyBalance bool
	// Ways are those that Tune chooses from in place of Planes.Solver and Refine, the preferred
	// ones first. None: there is no choice.
	Ways []Way
	// Objective is the figure that Tune chooses by.
	Objective tuning.Objective
	// Others adds the curves of other options to a Tuning, where they take little time.
	Others bool
	// Refining says whether the planes will be refined. Tune chooses for such planes.
	Refining Refining
	Refine   Refiner // nil: newton.Full
	// AnyMethod lets Tune choose newton.Logistic, too, where it chooses whether to refine.
	AnyMethod bool
	// Held says how Tune judges out-of-fold decision values, like those of the planes that
	// will be served.
	Held    Judging
	Workers int // goroutines of a refinement; 0: GOMAXPROCS
	// Coarse is for planes that are not served, but compared: see newton.Options. Those without a
	// fold are always coarse.
	Coarse bool
}

// A Way is a method of finding planes.
type Way struct {
	Solver incremental.Solver // nil: the proximal planes
	Refine Refiner            // nil: newton.Full
}

// A Refiner moves planes on rows: a newton.Method, or a machine of another package.
type Refiner interface {
	// String is the method's name.
	String() string
	// Refine returns the model with the planes that are best on rows, by an objective with the
	// costs C_i of package newton. The model's options determine these, and whether rows are
	// standardised. The result depends only on the set of the rows, and not on o.Workers.
	Refine(ctx context.Context, model *incremental.Model, rows newton.Rows, o newton.Options) (*newton.Result, error)
	// Unlabelled says whether rows may be of the class incremental.Unlabelled. They then count,
	// too. Others get rows with a label alone.
	Unlabelled() bool
	// Continues says whether the search begins at the planes of the model and ends, up to
	// rounding, at the same planes wherever it begins.
	Continues() bool
}

// use makes a way that of the planes.
func (o *Options) use(w Way) {
	if o.Planes.Solver, o.Refine = w.Solver, w.Refine; o.Refine == nil {
		o.Refine = newton.Full
	}
}

// Judging says how planes are judged on held-out rows.
type Judging struct {
	Values       int // bound of HoldOut
	Curves       Curves
	Uncalibrated bool // there are no curves
	Decision     Decision
}

// Refining says whether planes are refined after they have been solved.
type Refining int

const (
	Never Refining = iota
	Always
	Either // Tune chooses
)

// Study is one study. It belongs to one goroutine at a time.
type Study struct {
	problem *Problem
	options Options
	total   *incremental.Moments
	model   *incremental.Model // nil before Solve
	refined bool
	folds   []*incremental.Model // of UseWithout; nil: HoldOut makes them
}

// New begins a study.
func New(p *Problem, o Options) *Study {
	s := Of(nil, o)
	s.problem = p
	s.total = s.moments(p.Whole)
	return s
}

// Of begins a study of sums without folds.
func Of(total *incremental.Moments, o Options) *Study {
	o.use(Way{o.Planes.Solver, o.Refine})
	return &Study{problem: &Problem{}, options: o, total: total}
}

// Options are the options of the planes, with the choice of Tune.
func (s *Study) Options() incremental.Options { return s.options.Planes }

// Refines says whether the planes are to be refined, with the choice of Tune.
func (s *Study) Refines() bool { return s.options.Refining == Always }

// RefinesBy is the Refiner of the planes, with the choice of Tune.
func (s *Study) RefinesBy() Refiner { return s.options.Refine }

// Solve reads the planes off the sums.
func (s *Study) Solve() (model *incremental.Model, err error) {
	if model, err = s.total.Solve(s.options.Planes); err == nil {
		s.model, s.refined = model, false
	}
	return model, err
}

// Use goes on with planes that were solved by another study of the same sums, and refined
// on the same rows if refined.
func (s *Study) Use(model *incremental.Model, refined bool) { s.model, s.refined = model, refined }

// Begin has Refine begin at planes that are near, of all of the study's classes, if its method may
// begin anywhere. It reports whether it will.
func (s *Study) Begin(at *incremental.Model) bool {
	if at == nil || !s.options.Refine.Continues() || !slices.Equal(at.Classes, s.model.Classes) {
		return false
	}
	near := *s.model
	near.Planes = at.Planes
	s.model = &near
	return true
}

// UseWithout has HoldOut use planes that were made without each fold elsewhere, like those of the
// study. nil: there are none without the fold.
func (s *Study) UseWithout(folds []*incremental.Model) { s.folds = folds }

// SolveWithHat is Solve that keeps the factors: see incremental.Hat.
func (s *Study) SolveWithHat() (model *incremental.Model, hat *incremental.Hat, err error) {
	if model, hat, err = s.total.SolveWithHat(s.options.Planes); err == nil {
		s.model, s.refined = model, false
	}
	return model, hat, err
}

// Move gives the study another ν. Refined planes stay if Refine continues from them, since the
// minima of neighbouring ν are near each other. Otherwise Move returns false, and Solve comes
// next.
func (s *Study) Move(nu float64) bool {
	s.options.Planes.Nu = nu
	if !s.refined || !s.options.Refine.Continues() {
		return false
	}
	near := *s.model
	near.Options.Nu = nu
	s.model = &near
	return true
}

// Refine moves the planes by Options.Refine on rows. standFor is, by class, the number of rows
// that a row stands for; nil: one. When Refine fails, the planes stay.
func (s *Study) Refine(ctx context.Context, rows newton.Rows, standFor map[string]float64) (*newton.Result, error) {
	result, err := s.refine(ctx, s.model, rows, s.total, standFor, s.options.Coarse)
	if err == nil {
		s.model, s.refined = result.Model, true
	}
	return result, err
}

// refineWithout refines planes without a fold, which are never served. It may begin at the planes
// of all rows: the minimum is near, and half as many steps get there.
func (s *Study) refineWithout(ctx context.Context, model *incremental.Model, rest *incremental.Moments, of *Sample, fold int) (*incremental.Model, error) {
	if s.options.Refine.Continues() {
		near := *model
		near.Planes = s.model.Planes
		model = &near
	}
	rows, standFor := of.Without(fold)
	result, err := s.refine(ctx, model, rows, rest, standFor, true)
	if err != nil {
		return nil, err
	}
	return result.Model, nil
}

// refine refines planes that were solved from sums.
func (s *Study) refine(ctx context.Context, model *incremental.Model, rows newton.Rows, sums *incremental.Moments, standFor map[string]float64, coarse bool) (*newton.Result, error) {
	complete, rows, o, err := s.refining(model, rows, sums, standFor, coarse)
	if err != nil {
		return nil, err
	}
	result, err := s.options.Refine.Refine(ctx, complete, rows, o)
	if err == nil && complete != model {
		result.Model = model.WithPlanesOf(result.Model)
	}
	return result, err
}

// refining is what a refinement of planes that were solved from sums is made of. Missing values of
// the rows are imputed by the means of the model; complete is the model without them, or model.
func (s *Study) refining(model *incremental.Model, rows newton.Rows, sums *incremental.Moments, standFor map[string]float64, coarse bool) (complete *incremental.Model, _ newton.Rows, o newton.Options, err error) {
	o = newton.Options{Coarse: coarse, Multipliers: standFor, Regulariser: sums.Regulariser(), Workers: s.options.Workers}
	in, imputed, err := sums.Impute(s.options.Planes.Mean)
	if err != nil {
		return nil, nil, o, err
	}
	if s.options.Planes.Standardise {
		o.Mean, o.Sigma = in.Scale()
	}
	if len(imputed) == 0 {
		return model, rows, o, nil
	}
	return model.WithoutMissing(), imputing(rows, model.Imputed), o, nil
}

// imputing returns rows in which missing values are the means. Rows in memory stay there.
func imputing(rows newton.Rows, imputed []incremental.Imputed) newton.Rows {
	blocks, ok := rows.(newton.Blocks)
	if !ok {
		return imputedRows{rows, imputed}
	}
	out := make(newton.Blocks, len(blocks))
	for i, b := range blocks {
		out[i] = incremental.ImputeBlock(b, imputed)
	}
	return out
}

type imputedRows struct {
	newton.Rows
	imputed []incremental.Imputed
}

// Pass implements newton.Rows.
func (r imputedRows) Pass(ctx context.Context, visit func(*incremental.Block) error) error {
	return r.Rows.Pass(ctx, func(b *incremental.Block) error { return visit(incremental.ImputeBlock(b, r.imputed)) })
}

// without returns the sums of the rows outside a fold.
func (s *Study) without(fold int) *incremental.Moments {
	return s.moments(s.problem.Whole.Without(s.problem.Folds[fold]))
}

func (s *Study) moments(sums *incremental.State) *incremental.Moments {
	m := sums.Moments()
	if r := s.problem.Regulariser; r != nil {
		m = m.WithRegulariser(r)
	}
	return m
}
