package reproduce

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"streamd/incremental"
	"streamd/incremental/newton"
)

// method is a way to learn a linear classifier.
type method struct {
	name     string
	balanced bool
	refine   bool          // Newton refinement by how
	how      newton.Method // Line is Algorithm 2.4.1
	highest  int           // exponent of ν; 0: that of the table
}

// The methods, by the names that the thesis has for them.
var (
	psvm = method{name: "PSVM"}
	// One from the rest, of which PSVM is the case of two classes.
	mpsvm   = method{name: "MPSVM"}
	bMPSVM  = method{name: "B-MPSVM", balanced: true}
	brMPSVM = method{name: "BR-MPSVM", balanced: true, refine: true, how: newton.Line}
	// SSVM, LSVM and NSVM are three ways to the minimum of (2.37).
	ssvm = method{name: "SSVM", refine: true}
	nsvm = method{name: "NSVM", refine: true}
	// ofr is the same, one from the rest. Segment's features repeat one another,
	// and at ν = 2^23 the steps do not settle to the last bit.
	ofr = method{name: "OFR L2-SVM", refine: true, highest: 20}
)

// learn gives the classifier of some rows.
func (m method) learn(ctx context.Context, p part, nu float64, standardise bool) (*incremental.Model, error) {
	model, err := p.moments.Solve(incremental.Options{Nu: nu, Balanced: m.balanced, Standardise: standardise})
	if err != nil {
		return nil, fmt.Errorf("%s: ν = %g: %w", m.name, nu, err)
	}
	return m.refined(ctx, p, model)
}

// refined refines a model if that is part of the method.
func (m method) refined(ctx context.Context, p part, model *incremental.Model) (*incremental.Model, error) {
	if !m.refine {
		return model, nil
	}
	options := newton.Options{Method: m.how, Workers: 1}
	if model.Options.Standardise {
		options.Mean, options.Sigma = p.moments.Scale()
	}
	refined, err := newton.Refine(ctx, model, p.rows, options)
	if err != nil {
		return nil, fmt.Errorf("%s: ν = %g: %w", m.name, model.Options.Nu, err)
	}
	return refined.Model, nil
}

// try learns the classifiers of p for each of nus, and hands them to judge with
// the index of their ν.
func (m method) try(ctx context.Context, p part, nus []float64, standardise bool, judge func(i int, model *incremental.Model)) error {
	order := make([]int, len(nus))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(nus[i], nus[j]) })
	var model *incremental.Model
	for _, i := range order {
		var err error
		if model != nil && m.refine && m.how == newton.Full {
			// The minimum is unique, and nearer to that of the ν before than to
			// the proximal plane.
			next := *model
			next.Options.Nu = nus[i]
			model, err = m.refined(ctx, p, &next)
		} else {
			model, err = m.learn(ctx, p, nus[i], standardise)
		}
		if err != nil {
			return err
		}
		judge(i, model)
	}
	return nil
}

// part is rows to learn from, with their sums.
type part struct {
	moments *incremental.Moments
	rows    newton.Blocks
}

// fold is one fold of a division: the fold itself and what is left to be trained
// on, with the tuning sets that this is divided into.
type fold struct {
	train   part
	test    newton.Blocks
	tuning  []split              // the first is the thesis's
	rest    *incremental.Moments // of the first one's rest
	summing time.Duration        // its share of what it took to sum up the division
}

// split is a tuning set and what training data there are beside it.
type split struct{ tune, rest newton.Blocks }

// folds is k of cross-validation, and the share of the training data, one k-th,
// that ν is tuned on.
const folds = 10

// divide deals a set into folds, and sums up what each leaves. Every cell of the
// grid is summed once; a fold or a tuning set is left out by taking its cells
// out of the sum of all, which leaves the very bits of a sum that never had them.
func divide(s *set, seed uint64) ([]fold, error) {
	order, start := dealt(s.codes, folds, seed)
	s = s.pick(order)
	began := time.Now()
	var z incremental.Summariser
	cells := make([]*incremental.Summary, folds*folds)
	state := incremental.NewState(s.features)
	for c := range cells {
		var err error
		if cells[c], err = z.Summarise(s.block(start[c], start[c+1])); err != nil {
			return nil, err
		}
		state.Add(cells[c])
	}
	// blocks are the cells that are wanted, neighbours as one block.
	blocks := func(wanted func(row, column int) bool) newton.Blocks {
		var b newton.Blocks
		for c := 0; c < len(cells); {
			first := c
			for c < len(cells) && wanted(c/folds, c%folds) {
				c++
			}
			if start[first] < start[c] {
				b = append(b, s.block(start[first], start[c]))
			}
			if c == first {
				c++
			}
		}
		return b
	}
	division := make([]fold, folds)
	for f := range division {
		for column := range folds {
			state.Remove(cells[f*folds+column])
		}
		train := state.Moments()
		for row := range folds {
			if row != f {
				state.Remove(cells[row*folds+f])
			}
		}
		division[f] = fold{
			train: part{train, blocks(func(row, _ int) bool { return row != f })},
			test:  blocks(func(row, _ int) bool { return row == f }),
			rest:  state.Moments(),
		}
		for i := range folds {
			tuning := (f + i) % folds
			division[f].tuning = append(division[f].tuning, split{
				tune: blocks(func(row, column int) bool { return row != f && column == tuning }),
				rest: blocks(func(row, column int) bool { return row != f && column != tuning }),
			})
			if len(division[f].tuning[i].tune) == 0 || len(division[f].test) == 0 {
				return nil, fmt.Errorf("%d rows are too few for %d folds with tuning sets", s.rows(), folds)
			}
		}
		for c, cell := range cells {
			if c/folds == f || c%folds == f {
				state.Add(cell)
			}
		}
	}
	took := time.Since(began) / folds
	for f := range division {
		division[f].summing = took
	}
	return division, nil
}

// exponents are the ν = 2^i that are tried, from i = low to high in steps.
type exponents struct {
	low, high int
	step      int // 0: 1
}

func (e exponents) String() string {
	if e.step > 1 {
		return fmt.Sprintf("2^%d, 2^%d, … 2^%d", e.low, e.low+e.step, e.high)
	}
	return fmt.Sprintf("2^%d … 2^%d", e.low, e.high)
}

// values lists them by preference: those near 1 first, and of two that are as
// near the smaller. The thesis does not say what it does when several are
// equally good on the tuning set, which happens often, as that is small.
func (e exponents) values() []float64 {
	v := e.ascending()
	slices.SortStableFunc(v, func(a, b float64) int {
		return int(math.Abs(math.Log2(a)) - math.Abs(math.Log2(b)))
	})
	return v
}

func (e exponents) ascending() []float64 {
	var v []float64
	for i := e.low; i <= e.high; i += max(1, e.step) {
		v = append(v, math.Ldexp(1, i))
	}
	return v
}

// score is what a method does in one fold.
type score struct {
	nu, mu          float64       // μ that of a Gaussian kernel, 0: none
	train, test     float64       // correctness
	training, total time.Duration // without and with tuning
}

// run chooses ν among nus, which is the first with the best correctness on the
// tuning set, and learns from all training data.
func (f *fold) run(ctx context.Context, m method, nus []float64, standardise bool) (score, error) {
	began := time.Now()
	s := score{nu: nus[0]}
	if len(nus) > 1 {
		right := make([]float64, len(nus))
		err := m.try(ctx, part{f.rest, f.tuning[0].rest}, nus, standardise, func(i int, model *incremental.Model) {
			right[i] = correctness(model, f.tuning[0].tune)
		})
		if err != nil {
			return score{}, err
		}
		s.nu = nus[first(right)]
	}
	tuned := time.Now()
	model, err := m.learn(ctx, f.train, s.nu, standardise)
	if err != nil {
		return score{}, err
	}
	s.training = f.summing + time.Since(tuned)
	s.train, s.test = correctness(model, f.train.rows), correctness(model, f.test)
	s.total = f.summing + time.Since(began)
	return s, nil
}

// first is the index of the first of the largest values.
func first(values []float64) int {
	best := 0
	for i, v := range values {
		if v > values[best] {
			best = i
		}
	}
	return best
}

// study is the cross-validation of some methods on a set.
type study struct {
	methods     []method
	nus         exponents
	one         bool // one ν for all folds and methods: the best of the first method
	standardise bool
}

// trial is the scores of a method: of each division, of each fold.
type trial [][]score

// mean is that of a figure over the folds of a division.
func (t trial) mean(division int, of func(score) float64) float64 {
	var sum float64
	for _, s := range t[division] {
		sum += of(s)
	}
	return sum / float64(len(t[division]))
}

// run cross-validates with several divisions of a set; the trials are in the
// order of the methods. The scores are the same for any number of workers.
func (y study) run(ctx context.Context, s *set, c *Config) ([]trial, error) {
	divisions, err := divideOften(s, c, c.Divisions)
	if err != nil {
		return nil, err
	}
	grid := func(m method) []float64 {
		if m.highest > 0 {
			return exponents{low: y.nus.low, high: m.highest}.values()
		}
		return y.nus.values()
	}
	if y.one {
		nu, err := y.best(ctx, c, divisions, y.nus.values())
		if err != nil {
			return nil, err
		}
		grid = func(method) []float64 { return []float64{nu} }
	}
	trials := newTrials(len(y.methods), divisions)
	return trials, each(ctx, c, divisions, func(ctx context.Context, d, f int) (err error) {
		for i, m := range y.methods {
			if trials[i][d][f], err = divisions[d][f].run(ctx, m, grid(m), y.standardise); err != nil {
				return err
			}
		}
		return nil
	})
}

// divideOften makes as many divisions as are asked for, but no more than most.
func divideOften(s *set, c *Config, most int) ([][]fold, error) {
	divisions := make([][]fold, min(c.Divisions, most))
	for d := range divisions {
		var err error
		if divisions[d], err = divide(s, c.Seed+uint64(d)); err != nil {
			return nil, err
		}
	}
	return divisions, nil
}

func newTrials(methods int, divisions [][]fold) []trial {
	trials := make([]trial, methods)
	for i := range trials {
		trials[i] = make(trial, len(divisions))
		for d, division := range divisions {
			trials[i][d] = make([]score, len(division))
		}
	}
	return trials
}

// best is the ν with which the first method is right most often in the folds.
func (y study) best(ctx context.Context, c *Config, divisions [][]fold, nus []float64) (float64, error) {
	at, err := bestChoice(ctx, c, divisions, func(ctx context.Context, fold *fold) ([]float64, error) {
		right := make([]float64, len(nus))
		return right, y.methods[0].try(ctx, fold.train, nus, y.standardise, func(i int, model *incremental.Model) {
			right[i] = correctness(model, fold.test)
		})
	})
	return nus[at], err
}

// bestChoice is the index of the choice with which most is right, by the shares that
// judge gives for each of them in a fold; of several such, the first.
func bestChoice(ctx context.Context, c *Config, divisions [][]fold, judge func(context.Context, *fold) ([]float64, error)) (int, error) {
	right := make([][][]float64, len(divisions)) // [division][fold][choice]
	for d, division := range divisions {
		right[d] = make([][]float64, len(division))
	}
	err := each(ctx, c, divisions, func(ctx context.Context, d, f int) (err error) {
		right[d][f], err = judge(ctx, &divisions[d][f])
		return err
	})
	if err != nil {
		return 0, err
	}
	total := make([]float64, len(right[0][0]))
	for _, division := range right {
		for _, fold := range division {
			for i, share := range fold {
				total[i] += share
			}
		}
	}
	return first(total), nil
}

// each does something for every fold of every division, in parallel.
func each(ctx context.Context, c *Config, divisions [][]fold, do func(ctx context.Context, d, f int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.workers())
	for d, division := range divisions {
		for f := range division {
			group.Go(func() error {
				if err := ctx.Err(); err != nil {
					return err
				}
				return do(ctx, d, f)
			})
		}
	}
	return group.Wait()
}
