package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/newton"
)

// fitCmd learns from a file as the daemon does from a topic. The file is read
// in blocks and never held in memory: once to sum the blocks up, and the folds
// apart, and once to score its rows. To choose ν, to leave each row out in turn
// and to find the ε-support vectors takes one to three readings more. A kernel
// takes one for the sample that its basis is chosen from and, as every fold has a
// basis that has not seen it, one to sum for each fold.
type fitCmd struct {
	File string `arg:"" help:"CSV, LIBSVM, JSON or Arrow, also gzipped (.gz)."`
	columnFlags
	Format       string             `enum:"auto,arrow,json,csv,libsvm" default:"auto" help:"Format of a file whose name does not end in one: ${enum}. auto is what the first line looks like."`
	Nu           autoFlag           `default:"1" help:"Weight ν > 0 of the errors against the size of the plane. auto tries 2^-20 to 2^20 and takes what classifies best over the folds (10 without --folds) or, of several within a quarter of a point, what has the least loss, with classes of equal weight if --balanced; the accuracy over the same folds then flatters a little."`
	Balanced     bool               `xor:"weights" help:"Weigh each side of a plane by one over its rows."`
	ClassWeights map[string]float64 `mapsep:"," xor:"weights" placeholder:"A=2,B=1" help:"Weights of classes; the others have 1."`
	Standardise  bool               `help:"Solve with every feature scaled to mean 0 and variance 1."`
	Folds        int                `placeholder:"K" help:"Cross-validate: score every row by a model that has not seen its fold, of K."`
	Test         string             `placeholder:"FILE" help:"File to test on."`
	LOO          bool               `name:"loo" help:"Report the leave-one-out accuracy: of each row by the plane without it."`
	EpsilonSV    *float64           `name:"epsilon-sv" placeholder:"SHARE" help:"Solve again with this share of the rows only, those nearest to the planes x·w − gamma = ±1 (0.01 is usual), and report that plane, too."`
	Seed         uint64             `default:"1" help:"Seed of the division into folds, and of a kernel's sample and basis."`
	Refine       string             `enum:"none,line,full" default:"none" placeholder:"HOW" help:"Refine the planes by Newton's method until they minimise the squared errors of the rows within the margin or wrong: line moves and stretches them, without the weights of --balanced, full turns them, too. Each of a few dozen steps reads the file."`
	kernelFlags
	jsonFlag
}

// unrefined is the --refine of planes as they are solved.
const unrefined = "none"

// Validate implements kong's interface: what it returns is a wrong usage.
func (c *fitCmd) Validate() error {
	if err := c.kernelFlags.check(); err != nil {
		return err
	}
	if c.Refine != unrefined && (c.LOO || c.EpsilonSV != nil) {
		return errors.New("--refine: does not go with --loo and --epsilon-sv, which are of solved planes")
	}
	if c.Refine != unrefined && c.Regulariser == config.RegulariserKernel {
		return errors.New("--refine: goes with --regulariser identity")
	}
	if share := c.EpsilonSV; share != nil && !(*share > 0 && *share < 1) {
		return fmt.Errorf("--epsilon-sv %v: must be a share of the rows, above 0 and below 1", *share)
	}
	for class, weight := range c.ClassWeights {
		if !(weight > 0) || math.IsInf(weight, 0) {
			return fmt.Errorf("--class-weights %s=%v: must be positive", class, weight)
		}
	}
	const maxFolds = 1000 // each keeps a state
	if c.Folds != 0 && (c.Folds < 2 || c.Folds > maxFolds) {
		return fmt.Errorf("--folds %d: must be 2 to %d", c.Folds, maxFolds)
	}
	return nil
}

// fitReport is what fit prints. Features, classes, planes, options and method are
// named as in httpapi.ModelAnswer, so that a saved report can be predicted with.
type fitReport struct {
	File           string    `json:"file"`
	Rows           int64     `json:"rows"` // of weight > 0, as all counts
	TrainAccuracy  float64   `json:"train_accuracy"`
	TestAccuracy   *float64  `json:"test_accuracy,omitempty"` // on the test file, else the mean over the folds
	FoldAccuracies []float64 `json:"fold_accuracies,omitempty"`
	LOOAccuracy    *float64  `json:"loo_accuracy,omitempty"`

	Method     string            `json:"method"` // that made the planes: psvm, or the refinement's
	Refinement *refinementReport `json:"refinement,omitempty"`
	Reduction  *basisReport      `json:"reduction,omitempty"`
	Tuning     *tuningReport     `json:"tuning,omitempty"`
	EpsilonSV  *supportReport    `json:"epsilon_sv,omitempty"`

	Classes   []string          `json:"classes"`    // k
	ClassRows []int64           `json:"class_rows"` // k
	Features  []string          `json:"features"`   // n
	Basis     *model.BasisJSON  `json:"basis,omitempty"`
	W         any               `json:"w"`     // n, or one for each point of the basis; k of those for k > 2 classes
	Gamma     any               `json:"gamma"` // a number; k for k > 2 classes
	Planes    []model.PlaneJSON `json:"planes"`
	Condition float64           `json:"condition"` // the largest of the planes'
	Mean      []float64         `json:"mean"`      // n
	Options   model.OptionsJSON `json:"options"`
	Digest    string            `json:"state_digest"`
	Seconds   float64           `json:"seconds"`
}

func (c *fitCmd) Run(ctx context.Context, s *surroundings) error {
	began := time.Now()
	data, err := openDataset(c.File, c.columnFlags.options(c.Format))
	if err != nil {
		return err
	}
	var test *dataset // opened first, so that what is wrong with it is said at once
	if c.Test != "" {
		if test, err = data.aligned(c.Test); err != nil {
			return err
		}
	}
	if c.Nu.auto && c.Folds == 0 {
		c.Folds = defaultFolds
	}
	f := &fit{
		s: s, data: data, folds: c.Folds, seed: c.Seed, coordinates: newCoordinates(data.features, nil),
		options: incremental.Options{
			Nu: c.Nu.value, Balanced: c.Balanced, ClassWeights: c.ClassWeights, Standardise: c.Standardise,
		},
	}
	report := &fitReport{}
	if err := c.learn(ctx, f, report); err != nil {
		return err
	}
	f.describe(report)
	if report.Reduction != nil {
		report.Basis = model.NewBasisJSON(f.coordinates.basis, cmp.Or(c.Regulariser, config.RegulariserIdentity))
	}
	if err := c.measure(ctx, f, test, report); err != nil {
		return err
	}
	report.Seconds = time.Since(began).Seconds()
	if c.JSON {
		return printJSON(s.stdout, report)
	}
	return c.print(s.stdout, report)
}

// learn makes the model and, where there are folds, those without each of them.
func (c *fitCmd) learn(ctx context.Context, f *fit, r *fitReport) (err error) {
	if c.Kernel != "" {
		// The features are scaled; their coordinates are as they are.
		f.scaled, f.options.Standardise = c.Standardise, false
		if r.Reduction, err = f.choose(ctx, &c.kernelFlags); err != nil {
			return err
		}
	}
	if err := f.sum(ctx); err != nil {
		return err
	}
	if c.Nu.auto {
		r.Tuning, err = f.tune(ctx)
	} else if err = f.train(); err == nil && c.Folds > 0 {
		err = f.trainFolds(ctx)
	}
	if err != nil {
		return c.advise(err)
	}
	switch c.Refine {
	case newton.Line.String():
		r.Refinement, err = f.refine(ctx, newton.Line)
	case newton.Full.String():
		r.Refinement, err = f.refine(ctx, newton.Full)
	}
	return err
}

// measure says what the models are worth.
func (c *fitCmd) measure(ctx context.Context, f *fit, test *dataset, r *fitReport) error {
	own, held, err := f.score(ctx, f.data, "scoring", f.foldModels)
	if err != nil {
		return err
	}
	r.TrainAccuracy = own.accuracy()
	if c.Folds > 0 {
		var mean float64
		for fold, t := range held {
			if t.weight == 0 {
				return fmt.Errorf("fold %d of %d of %s has no rows; ask for fewer --folds", fold+1, c.Folds, c.File)
			}
			r.FoldAccuracies = append(r.FoldAccuracies, t.accuracy())
			mean += t.accuracy() / float64(c.Folds)
		}
		r.TestAccuracy = &mean
	}
	if test != nil {
		t, _, err := f.score(ctx, test, "testing", nil)
		if err != nil {
			return err
		}
		if t.weight == 0 {
			return fmt.Errorf("%s has no row that weighs anything", c.Test)
		}
		r.TestAccuracy = new(t.accuracy())
	}
	if c.LOO {
		t, err := f.leaveOneOut(ctx)
		if err != nil {
			return err
		}
		r.LOOAccuracy = new(t.accuracy())
	}
	if c.EpsilonSV != nil {
		r.EpsilonSV, err = f.supportVectors(ctx, *c.EpsilonSV, test)
	}
	return err
}

// fit is one run of fitCmd.
type fit struct {
	s       *surroundings
	data    *dataset
	folds   int // 0: none
	seed    uint64
	options incremental.Options
	scaled  bool // features get to the kernel scaled

	coordinates     *coordinates
	foldCoordinates []*coordinates // of a kernel

	state      *incremental.State
	dealt      *incremental.State   // the sum of the folds' own summaries
	foldStates []*incremental.State // the sum of each fold; none for a kernel
	model      *incremental.Model
	foldModels []*incremental.Model
}

// sum sums the file up. The model is that of whole blocks, also when there are
// folds, and so has the same bits with them and without.
func (f *fit) sum(ctx context.Context) error {
	type summaries struct {
		whole *incremental.Summary
		parts []*incremental.Summary
	}
	f.state, f.dealt = incremental.NewState(f.coordinates.names), incremental.NewState(f.coordinates.names)
	if f.foldCoordinates == nil { // the folds, too, are summed in these coordinates
		for range f.folds {
			f.foldStates = append(f.foldStates, incremental.NewState(f.coordinates.names))
		}
	}
	tools := make([]incremental.Summariser, workers())
	dividers := f.dividers()
	err := each(ctx, f.s, "learning", f.data,
		func(worker int, b *incremental.Block, firstRow int64) (r summaries, err error) {
			z := &tools[worker]
			b = f.coordinates.enter(worker, b)
			if r.whole, err = z.Summarise(b); err != nil || f.foldStates == nil {
				return r, err
			}
			for _, rows := range dividers[worker].parts(b, firstRow) {
				part, err := z.Summarise(rows)
				if err != nil {
					return r, err
				}
				r.parts = append(r.parts, part)
			}
			return r, nil
		},
		func(r summaries) error {
			f.state.Add(r.whole)
			for fold, part := range r.parts {
				f.dealt.Add(part)
				f.foldStates[fold].Add(part)
			}
			return nil
		})
	if err != nil {
		return err
	}
	for class := range f.options.ClassWeights {
		if !f.state.Has(class) {
			return usagef("--class-weights: %s has no class %q; it has %s", f.data.path, class, strings.Join(f.state.Moments().Classes(), ", "))
		}
	}
	return nil
}

// train solves.
func (f *fit) train() (err error) {
	if f.model, err = f.coordinates.moments(f.state).Solve(f.options); err != nil {
		return fmt.Errorf("learn from %s: %w", f.data.path, err)
	}
	return nil
}

// trainFolds solves without each fold in turn.
func (f *fit) trainFolds(ctx context.Context) (err error) {
	f.foldModels = make([]*incremental.Model, f.folds)
	for fold := range f.foldModels {
		rest, _, err := f.without(ctx, fold)
		if err != nil {
			return err
		}
		if f.foldModels[fold], err = rest.Solve(f.options); err != nil {
			return fmt.Errorf("learn from %s without fold %d of %d: %w", f.data.path, fold+1, f.folds, err)
		}
	}
	return nil
}

// without gives the sums of all rows but a fold's, and of the fold's.
func (f *fit) without(ctx context.Context, fold int) (rest, held *incremental.Moments, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if f.foldCoordinates == nil {
		held := f.foldStates[fold]
		return f.dealt.Without(held).Moments(), held.Moments(), nil
	}
	type summaries [2]*incremental.Summary
	in := f.foldCoordinates[fold]
	states := [2]*incremental.State{incremental.NewState(in.names), incremental.NewState(in.names)}
	tools := make([]incremental.Summariser, workers())
	dividers := f.dividers()
	err = each(ctx, f.s, fmt.Sprintf("learning without fold %d of %d", fold+1, f.folds), f.data,
		func(worker int, b *incremental.Block, firstRow int64) (r summaries, err error) {
			z, d := &tools[worker], &dividers[worker]
			held, rest := d.divide(b, firstRow, fold)
			for part, rows := range [][]int{rest, held} {
				if r[part], err = z.Summarise(in.enter(worker, d.gather(b, rows))); err != nil {
					return r, err
				}
			}
			return r, nil
		},
		func(r summaries) error {
			for part := range r {
				states[part].Add(r[part])
			}
			return nil
		})
	if err != nil {
		return nil, nil, err
	}
	return in.moments(states[0]), states[1].Moments(), nil
}

// tally counts rows by their weights.
type tally struct{ right, weight float64 }

// count counts row i of a block.
func (t *tally) count(b *incremental.Block, i int, right bool) {
	weight := b.Weight(i)
	t.weight += weight
	if right {
		t.right += weight
	}
}

func (t *tally) add(o tally) {
	t.right += o.right
	t.weight += o.weight
}

// accuracy is the share of the rows that were classified right; a row of weight
// 2 counts as two.
func (t *tally) accuracy() float64 { return t.right / t.weight }

// score classifies all rows by the model of all rows, and each by that of its
// fold if there are any. A row of a class that a model does not know counts
// as wrong.
func (f *fit) score(ctx context.Context, d *dataset, what string, foldModels []*incremental.Model) (all tally, folds []tally, err error) {
	folds = make([]tally, len(foldModels))
	dividers := f.dividers()
	err = each(ctx, f.s, what, d,
		func(worker int, b *incremental.Block, firstRow int64) ([]tally, error) {
			tallies := []tally{judge(f.model, f.coordinates.enter(worker, b))}
			if foldModels != nil {
				for fold, part := range dividers[worker].parts(b, firstRow) {
					tallies = append(tallies, judge(foldModels[fold], f.of(fold).enter(worker, part)))
				}
			}
			return tallies, nil
		},
		func(tallies []tally) error {
			all.add(tallies[0])
			for fold := range folds {
				folds[fold].add(tallies[1+fold])
			}
			return nil
		})
	return all, folds, err
}

// judge counts the rows of a block that a model puts into their class.
func judge(m *incremental.Model, b *incremental.Block) (t tally) {
	class := make([]int32, b.Rows())
	m.Classify(class, make([]float64, b.Rows()*len(m.Planes)), b.Columns)
	for i, code := range b.Codes {
		t.count(b, i, m.Classes[class[i]] == b.Classes[code])
	}
	return t
}

// of is the coordinates of a fold's model.
func (f *fit) of(fold int) *coordinates {
	if f.foldCoordinates == nil {
		return f.coordinates
	}
	return f.foldCoordinates[fold]
}

// describe takes the model into the report.
func (f *fit) describe(r *fitReport) {
	m := f.model
	digest := f.state.Digest()
	r.File, r.Rows, r.Digest = f.data.path, f.state.Rows(), hex.EncodeToString(digest[:])
	r.Classes, r.ClassRows, r.Features = m.Classes, m.Rows, f.data.features
	r.Mean, r.Options = m.Mean, model.NewOptionsJSON(m.Options)
	r.Method = model.MethodPSVM
	if r.Refinement != nil {
		r.Method = r.Refinement.Method
	}
	r.Planes = model.NewPlanesJSON(m.Planes)
	var ws [][]float64
	var gammas []float64
	for _, p := range m.Planes {
		r.Condition = max(r.Condition, p.Condition)
		ws, gammas = append(ws, p.W), append(gammas, p.Gamma)
	}
	r.W, r.Gamma = ws, gammas
	if len(m.Planes) == 1 {
		r.W, r.Gamma = ws[0], gammas[0]
	}
}

// print is the report for people.
func (c *fitCmd) print(w io.Writer, r *fitReport) error {
	p := newTable(w)
	p.row("file", r.File)
	p.row("rows", fmt.Sprint(r.Rows))
	p.row("classes", countedClasses(r.Classes, r.ClassRows))
	p.row("options", describeOptions(r.Options))
	if r.Basis != nil {
		r.Reduction.print(p, r.Basis)
	}
	p.row("condition", fmt.Sprintf("%.3g", r.Condition))
	p.row("train accuracy", percent(r.TrainAccuracy))
	if r.FoldAccuracies != nil && c.Test != "" {
		p.row("fold accuracy", describeFolds(r.FoldAccuracies))
	}
	if r.TestAccuracy != nil {
		text := percent(*r.TestAccuracy)
		if c.Test == "" {
			text = describeFolds(r.FoldAccuracies)
		}
		p.row("test accuracy", text)
	}
	if r.LOOAccuracy != nil {
		p.row("leave-one-out accuracy", percent(*r.LOOAccuracy))
	}
	if r.Tuning != nil {
		p.row("nu", r.Tuning.describe())
	}
	if r.Refinement != nil {
		p.row("refined", r.Refinement.describe())
	}
	if r.EpsilonSV != nil {
		r.EpsilonSV.print(p)
	}
	p.row("seconds", fmt.Sprintf("%.3g", r.Seconds))
	if r.Basis != nil {
		p.kernelPlanes(len(r.Basis.Points), r.Planes)
	} else {
		p.planes(r.Features, r.Planes)
	}
	return p.flush()
}

func describeFolds(accuracies []float64) string {
	var mean float64
	for _, a := range accuracies {
		mean += a / float64(len(accuracies))
	}
	return fmt.Sprintf("%s, the mean of %d folds between %s and %s",
		percent(mean), len(accuracies), percent(slices.Min(accuracies)), percent(slices.Max(accuracies)))
}

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }
