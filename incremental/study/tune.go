package study

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"streamd/incremental"
	"streamd/incremental/newton"
	"streamd/incremental/tuning"
)

// Tuning reports how the options were chosen.
type Tuning struct {
	Curves    []*tuning.Curve // of the options to choose from, then of Options.Others
	Ways      []Way           // of each curve
	Chosen    int             // index of the chosen curve
	Criterion tuning.Criterion
	Point     tuning.Point // the choice
	// Finals are the best planes of each method, judged like those that will be served, where
	// Tune chooses between several. The choice is the best of them.
	Finals []Final

	paths [][]*incremental.Model // of each curve that is refined: planes of each ν, without a fold
}

// Final is a choice that was judged on held-out rows like the planes that will be served.
type Final struct {
	Curve   int // index of its curve
	Nu      float64
	Quality Quality
	// Model has its planes, of all rows of the sample. Refined ones are coarse (Options.Coarse): a
	// refinement may begin there.
	Model *incremental.Model
}

const (
	// cheap is the most classes × features × rows for curves of other options.
	cheap = 10_000_000
	// refinedRows is about the most rows that planes of every ν are refined on.
	refinedRows = 10_000
	// mostTogether is the most numbers of planes that Tune refines together: a step on
	// refinedRows takes a tenth of a second.
	mostTogether = 1024
)

// refinedGrid is the grid of ν for refined planes, every other ν of tuning.Grid, and every
// fourth for Logistic, which takes more time. Each ν takes a refinement without each fold.
func refinedGrid(by Refiner) []float64 {
	const span = 20
	step := 2
	if by == newton.Logistic {
		step = 4
	}
	var nus []float64
	for i := -span; i <= span; i += step {
		nus = append(nus, math.Ldexp(1, i))
	}
	return nus
}

// Tune chooses ν, and what else the options leave to it, by one fold or more and their rows:
// the choice is what classifies held-out rows best by Options.Objective, of the planes that
// will be served, be they solved or refined. Within a standard error of the best ν of a curve it
// is that of least loss, and within 1.5 of the best curve of a method the first: standardised
// before not, and as configured before balanced. Planes are refined with the other balance in the
// scaling that is better with the configured one. Of equal methods it is the first, solved before
// refined. With few rows the best of many figures is a lucky one. Logistic takes
// more time than other methods, and is tried with the balance and scaling of the best other
// refined planes. Of a Sample the first folds are held out (Enough).
//
// Without rows (nil) the squared loss decides. Planes are refined only on a Sample: on other
// rows solved planes decide.
//
// When Tune fails, the options stay.
func (s *Study) Tune(ctx context.Context, rows Parts) (*Tuning, error) {
	offered, others := s.optionSets()
	of, _ := rows.(*Sample)
	folds := len(s.problem.Folds)
	if of != nil {
		folds = of.Enough()
		rows = firstFolds{of, folds}
	}
	how := s.options.Refining
	if of == nil {
		how = Never
	}
	t := &Tuning{}
	var failed error
	try := func(ways []Way, options []incremental.Options, curve func(Options) (*tuning.Curve, []*incremental.Model, error)) {
		for _, w := range ways {
			for _, o := range options {
				c, path, err := curve(s.with(o, w))
				if err != nil {
					failed = errors.Join(failed, err)
					continue
				}
				t.Curves, t.Ways, t.paths = append(t.Curves, c), append(t.Ways, w), append(t.paths, path)
			}
		}
	}
	solved := func(o Options) (c *tuning.Curve, none []*incremental.Model, err error) {
		c, err = s.curve(ctx, o.Planes, rows, folds)
		return c, nil, err
	}
	refined := func(o Options) (*tuning.Curve, []*incremental.Model, error) { return s.refinedCurve(ctx, o, of, folds) }
	if how != Always {
		try(s.ways(), offered, solved)
	}
	first := len(t.Curves) // of refined planes
	if how != Never {
		// Which scaling is better depends little on the balance, and each curve takes long.
		as, others := s.asConfigured(offered)
		if try(s.ways(), as, refined); len(t.Curves) > first {
			scaled := t.Curves[first+tuning.Best(t.Curves[first].By(s.options.Objective), t.Curves[first:])].Options.Standardise
			others = slices.DeleteFunc(others, func(o incremental.Options) bool { return o.Standardise != scaled })
		}
		try(s.ways(), others, refined)
	}
	if len(t.Curves) == 0 && how == Always { // solved planes are served where none can be refined
		try(s.ways(), offered, solved)
	}
	if len(t.Curves) == 0 {
		return nil, failed
	}
	scored := t.Curves[0].Rows()
	t.Criterion = t.Curves[0].By(s.options.Objective)
	if how == Either && s.options.AnyMethod && s.options.Refine != newton.Logistic && s.few() && first < len(t.Curves) {
		best := first + tuning.Best(t.Criterion, t.Curves[first:])
		same := t.Curves[best].Options
		offered = slices.DeleteFunc(offered, func(o incremental.Options) bool {
			return o.Balanced != same.Balanced || o.Standardise != same.Standardise
		})
		try([]Way{{t.Ways[best].Solver, newton.Logistic}}, offered, refined)
	}
	if err := s.choose(ctx, t, of, folds); err != nil {
		return nil, err
	}
	size := int64(len(s.total.Classes())*len(s.problem.Whole.Features())) * scored
	if s.options.Others && rows != nil && size <= cheap {
		try(t.Ways[t.Chosen:t.Chosen+1], others, solved) // those that cannot be solved are left out
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.take(t)
	return t, nil
}

// ways are those to choose from, or the only one.
func (s *Study) ways() []Way {
	if s.options.Ways != nil {
		return s.options.Ways
	}
	return []Way{{s.options.Planes.Solver, s.options.Refine}}
}

// with returns the study's options for some planes, found in a way.
func (s *Study) with(planes incremental.Options, w Way) Options {
	o := s.options
	o.Planes = planes
	o.use(w)
	return o
}

// take makes the choice the study's options.
func (s *Study) take(t *Tuning) {
	c := t.Curves[t.Chosen]
	s.options = s.with(c.Options, t.Ways[t.Chosen])
	s.options.Planes.Nu = t.Point.Nu
	if s.options.Refining == Either {
		s.options.Refining = Never
		if c.Method != "" {
			s.options.Refining = Always
		}
	}
}

// few reports whether the planes are few enough for newton.Logistic on as many rows as planes
// of every ν are refined on.
func (s *Study) few() bool {
	k := len(s.total.Classes())
	if k == 2 {
		k = 1
	}
	return k*(len(s.problem.Whole.Features())+1) <= mostTogether
}

// choose takes the best point of the best curve. Where curves are of several methods, the best
// point of each is judged.
func (s *Study) choose(ctx context.Context, t *Tuning, of *Sample, folds int) (err error) {
	var methods []string
	kinds := map[string][]int{} // the curves of each
	for i, c := range t.Curves {
		if kinds[c.Method] == nil {
			methods = append(methods, c.Method)
		}
		kinds[c.Method] = append(kinds[c.Method], i)
	}
	var failed error
	best, most := -1, math.Inf(-1)
	for _, method := range methods {
		curves := kinds[method]
		some := make([]*tuning.Curve, len(curves))
		for i, at := range curves {
			some[i] = t.Curves[at]
		}
		at := curves[tuning.Best(t.Criterion, some)]
		_, point, err := t.Curves[at].Solve(s.total, t.Criterion)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		figure := 0.0
		if len(curves) < len(t.Curves) {
			final := &Final{Curve: at, Nu: point.Nu}
			if final.Model, final.Quality, err = s.judge(ctx, t, at, point.Nu, of, folds); err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			t.Finals = append(t.Finals, *final)
			figure = s.options.Objective.Of(final.Quality.Correctness, final.Quality.BalancedCorrectness)
		}
		if best < 0 || figure > most {
			best, most, t.Chosen, t.Point = at, figure, at, point
		}
	}
	if best < 0 {
		return failed
	}
	return nil
}

// judge measures the planes of a point of a curve on the rows of the first folds.
func (s *Study) judge(ctx context.Context, t *Tuning, curve int, nu float64, of *Sample, folds int) (m *incremental.Model, q Quality, err error) {
	c := t.Curves[curve]
	trial := &Study{problem: s.problem, options: s.with(c.Options, t.Ways[curve]), total: s.total}
	trial.options.Planes.Nu, trial.options.Coarse = nu, true
	if _, err = trial.Solve(); err == nil && c.Method != "" {
		if i := slices.IndexFunc(t.paths[curve], func(m *incremental.Model) bool { return m.Options.Nu == nu }); i >= 0 {
			trial.Begin(t.paths[curve][i])
		}
		rows, standFor := of.All()
		_, err = trial.Refine(ctx, rows, standFor)
	}
	if err != nil {
		return nil, q, err
	}
	held, err := trial.holdOut(ctx, of, s.options.Held.Values, folds)
	if err != nil {
		return nil, q, err
	}
	settled, err := held.Settle(ctx, s.options.Held)
	if err != nil {
		return nil, q, err
	}
	return trial.model, settled.Quality, nil
}

// asConfigured divides options into those of the configured balance and those of the other one.
func (s *Study) asConfigured(options []incremental.Options) (as, others []incremental.Options) {
	for _, o := range options {
		if o.Balanced == s.options.Planes.Balanced {
			as = append(as, o)
		} else {
			others = append(others, o)
		}
	}
	return as, others
}

// optionSets returns the options to choose from, the preferred ones first, and others to
// compare with.
func (s *Study) optionSets() (offered, others []incremental.Options) {
	planes := s.options.Planes
	scales := []bool{planes.Standardise, !planes.Standardise}
	if s.options.AnyScale { // without scaling, the penalty of a weight is a matter of its feature's unit
		scales = []bool{true, false}
	}
	for _, balanced := range []bool{planes.Balanced, !planes.Balanced} {
		for _, scaled := range scales {
			o := planes
			o.Balanced, o.Standardise = balanced, scaled
			switch {
			case balanced && len(o.ClassWeights) > 0 && !planes.Balanced:
			case (balanced == planes.Balanced || s.options.AnyBalance) && (scaled == planes.Standardise || s.options.AnyScale):
				offered = append(offered, o)
			default:
				others = append(others, o)
			}
		}
	}
	return offered, others
}

// curve tries every ν with the planes of one set of options, on the first folds.
func (s *Study) curve(ctx context.Context, o incremental.Options, rows Parts, folds int) (*tuning.Curve, error) {
	t := tuning.New(o, tuning.GridOf(o), s.total.Classes())
	for i, held := range s.problem.Folds[:folds] {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := t.Hold(s.without(i), held.Moments()); err != nil {
			return nil, fmt.Errorf("without fold %d of %d: %w", i+1, len(s.problem.Folds), err)
		}
	}
	return s.scored(ctx, t, rows)
}

// scored scores the rows of a trial.
func (s *Study) scored(ctx context.Context, t *tuning.Trial, rows Parts) (*tuning.Curve, error) {
	if rows != nil {
		var mu sync.Mutex
		err := rows.Parts(ctx, func(fold int, part *incremental.Block) error {
			score := t.Score(fold, part)
			mu.Lock()
			defer mu.Unlock()
			t.Add(score)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return t.Curve()
}

// refinedCurve is curve with refined planes. They are refined on some of the rows outside a
// fold, and judged on all rows of the fold. It also returns the path without the first fold.
func (s *Study) refinedCurve(ctx context.Context, o Options, of *Sample, folds int) (c *tuning.Curve, path []*incremental.Model, err error) {
	few, nus := of.some(refinedRows), refinedGrid(o.Refine)
	models := make([][]*incremental.Model, folds)
	for i := range models {
		if len(of.in[i]) == 0 {
			continue
		}
		if models[i], err = s.refinedPath(ctx, o, nus, i, few); err != nil {
			return nil, nil, fmt.Errorf("refine without fold %d of %d: %w", i+1, len(models), err)
		}
		if path == nil {
			path = models[i]
		}
		nus = nus[:len(models[i])]
	}
	for i := range models {
		models[i] = models[i][:min(len(models[i]), len(nus))]
	}
	c, err = s.scored(ctx, tuning.Refined(o.Planes, nus, s.total.Classes(), models, o.Refine.String(), o.Refine == newton.Logistic), firstFolds{of, folds})
	return c, path, err
}

// refinedPath refines planes without a fold for one ν after the other, ascending, if
// possible from the planes of the ν before. The path ends before the first ν at which no planes
// are found, and fails when there is none.
func (s *Study) refinedPath(ctx context.Context, o Options, nus []float64, fold int, few *Sample) (path []*incremental.Model, err error) {
	rest := s.without(fold)
	rows, standFor := few.Without(fold)
	o.Coarse = true
	trial := &Study{options: o, total: rest}
	along, err := trial.along(nus[0], rows, standFor)
	if err != nil {
		return nil, err
	}
	for _, nu := range nus {
		model, err := along(ctx, nu)
		switch {
		case err == nil:
			path = append(path, model)
		case ctx.Err() != nil || path == nil:
			return nil, err
		default:
			return path, nil
		}
	}
	return path, nil
}

// along returns a function that makes planes of one ν after the other, the first one first.
func (s *Study) along(first float64, rows newton.Rows, standFor map[string]float64) (func(context.Context, float64) (*incremental.Model, error), error) {
	method, ok := s.options.Refine.(newton.Method)
	if !ok || !method.Continues() {
		return func(ctx context.Context, nu float64) (*incremental.Model, error) {
			if !s.Move(nu) {
				if _, err := s.Solve(); err != nil {
					return nil, err
				}
			}
			result, err := s.Refine(ctx, rows, standFor)
			if err != nil {
				return nil, err
			}
			return result.Model, nil
		}, nil
	}
	s.options.Planes.Nu = first
	model, err := s.Solve()
	if err != nil {
		return nil, err
	}
	complete, rows, o, err := s.refining(model, rows, s.total, standFor, true)
	if err != nil {
		return nil, err
	}
	o.Method = method
	path := newton.NewPath(complete, rows.(newton.Blocks), o)
	return func(ctx context.Context, nu float64) (*incremental.Model, error) {
		result, err := path.Refine(ctx, nu)
		if err != nil {
			return nil, err
		}
		if complete == model {
			return result.Model, nil
		}
		at := *model
		at.Options.Nu = nu
		return at.WithPlanesOf(result.Model), nil
	}, nil
}
