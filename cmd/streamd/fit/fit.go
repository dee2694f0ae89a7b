// Package fit learns a classifier from a file with the daemon's mathematics (packages study and
// basis), and measures it.
//
// The file is read in blocks and never held in memory: once to sum the blocks and the folds, and
// once to score the rows. The choice of ν, leaving each row out in turn and the ε-support vectors
// take one to three readings more. A kernel takes one for the sample that its basis is chosen from.
// Every fold has a basis that has not seen it, which takes one reading for each fold. With folds,
// one reading takes the sample that probabilities and the rule of labels are fitted to (package
// decision). Machines that are programs of all rows hold these in memory.
//
// # Same bits
//
// A report is a function of the file and the settings, but for its seconds, and for the bases that
// ReduceAuto had the time to compare.
//
// With Settings.BlockRows the file is cut as streamd replay file cuts it. Blocks go to the folds
// and rows to the sample by their content, as in a daemon that reads the blocks. For the same
// settings γ, ν, the basis, the planes and the rule of labels have the bits of that daemon's.
//
// # Errors
//
// Errors name the file, and the flags of streamd fit that help.
package fit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"streamd/cmd/streamd/dataset"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/newton"
	"streamd/incremental/study"
	"streamd/incremental/tuning"
	"streamd/kernels/basis"
	"streamd/kernels/svm"
)

// Settings say what is learned and what is measured.
type Settings struct {
	// Spec says what a daemon's keys would say, and must have passed its Check. Kernel.Reduce may
	// also be ReduceNone or ReduceAuto. Rows of the file are treated by the options that it was
	// opened with.
	config.Spec

	// NuByDefault says that ν is auto without being asked for. Where rows are too few to choose by,
	// nothing is chosen then.
	NuByDefault bool
	// FoldsByDefault says that the folds are those of such a choice: without it there are none.
	FoldsByDefault bool

	Alone      bool // planes are those of the rules, and rows do not count
	Seed       uint64
	BlockRows  int           // rows of a block of the topic that a daemon would read; 0: there is no topic
	Tolerance  float64       // of the support vector machine of a full kernel; 0: svm.DefaultTolerance
	ReduceTime time.Duration // longest time to compare bases for, with ReduceAuto

	// Kept are sums to add the rows to, and to read the planes off. They do not go with what takes
	// rows: folds and choices by them, refinement, kernels, rules, LOO and EpsilonSV. nil: none.
	Kept *Kept

	LOO       bool    // report the accuracy of each row by the plane without it
	EpsilonSV float64 // share of the rows to solve again with; 0: none

	// Progressive judges rows in their order, by planes of the rows before that are solved again
	// after as many rows; with BlockRows after as many blocks. 0: not.
	Progressive int // or EveryDefault
}

const (
	// ReduceNone makes every row a point of the basis, of a small file. With config.RefineHinge and
	// config.RegulariserKernel it makes the support vector machine of a full kernel.
	ReduceNone config.Reduce = "none"
	// ReduceAuto has the reducer and the size of the basis chosen.
	ReduceAuto config.Reduce = "auto"
)

// EveryDefault stands for as many rows as there are features, or for 100 if these are fewer: then
// solves take no longer than sums. Of blocks it stands for 1.
const EveryDefault = -1

// Full says whether planes are those of the support vector machine of a full kernel. No sums of
// its coordinates, one for each row, are made.
func (s *Settings) Full() bool {
	return s.Kernel.Function != config.KernelNone && s.Kernel.Reduce == ReduceNone && s.Model.Refine == config.RefineHinge && s.Kernel.Regulariser == config.RegulariserKernel
}

// machine has the parameters of the machine that planes are refined by.
func (s *Settings) machine() svm.Settings {
	return svm.Settings{Mu: s.Model.MachineMu, Epsilon: s.Model.MachineEpsilon, Delta: s.Model.MachineDelta}
}

// ClassError refuses a weight of a class that no row has.
type ClassError struct{ error }

// Steps shows the progress of work that has other steps than rows until stop is called. at
// describes it, and may be called on any goroutine.
type Steps func(task string, at func() string) (stop func())

// Learn learns from the rows of data, and measures the planes on them, on held-out ones of the
// folds, and on the rows of test, if it is not nil. Data may be cut into other blocks.
func Learn(ctx context.Context, data, test *dataset.Dataset, want Settings, steps Steps) (*Report, error) {
	began := time.Now()
	f := newFit(data, want, steps)
	if err := f.checkWide(); err != nil {
		return nil, err
	}
	r := &Report{}
	if err := f.learn(ctx, r); err != nil {
		return nil, err
	}
	f.describe(r)
	if err := f.measure(ctx, test, r); err != nil {
		return nil, err
	}
	if want.Progressive != 0 {
		var err error
		if r.Progressive, err = f.progress(ctx); err != nil {
			return nil, err
		}
	}
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// fit is one run of Learn.
type fit struct {
	data   *dataset.Dataset
	want   Settings
	steps  Steps
	folds  int     // 0: none
	blocks *blocks // nil: rows are dealt to the folds

	options   incremental.Options
	objective tuning.Objective
	refining  study.Refining
	method    study.Refiner // of the refinement
	knowledge *knowledge    // nil: there are no rules, which take the method's place

	scaled bool                 // features get to the kernel, or to rows in memory, scaled
	rows   *rowSample           // the sample; nil: there is none
	in     *basis.Coordinates   // nil: the features
	foldIn []*basis.Coordinates // of a kernel, for the models without each fold

	sums       *sums
	model      *incremental.Model
	judged     *incremental.Model   // refined to compare it; nil: none was
	foldModels []*incremental.Model // without each fold; nil: it has no rows
	held       *study.HeldOut       // values of rows by foldModels; nil: they are to be found
	rules      *study.Decided       // of labels, also without each fold
}

func newFit(data *dataset.Dataset, want Settings, steps Steps) *fit {
	f := &fit{
		data: data, want: want, steps: steps, folds: want.Model.Folds,
		options: model.Options(want.Model), objective: model.Objective(want.Model.Objective),
		refining: model.Refining(want.Model.Refine),
		method:   model.Refiner(want.Model.Refine, want.machine(), nil, want.Kernel.Function != config.KernelNone),
	}
	f.options.Mean = data.Missing.Means(data.Features)
	if want.BlockRows > 0 {
		f.replay()
	}
	return f
}

// learn makes the model and the models without each fold.
func (f *fit) learn(ctx context.Context, r *Report) (err error) {
	if f.blocks != nil {
		if f.sums, err = f.sum(ctx, nil); err != nil {
			return err
		}
		f.rows = f.blocks.chosen(f.sums.whole, f.method.Unlabelled())
	}
	kernel := f.want.Kernel.Function != config.KernelNone
	if f.want.Full() || f.data.Wide() && !kernel {
		return f.learnRows(ctx, r)
	}
	if kernel {
		// Features are scaled on their way into the kernel, coordinates are not.
		f.scaled, f.options.Standardise = f.options.Standardise, false
		if r.Reduction, err = f.choose(ctx); err != nil {
			return err
		}
	}
	switch {
	case f.want.Kept != nil:
		if err := f.sumKept(ctx); err != nil {
			return err
		}
	case f.in != nil || f.blocks == nil:
		if f.sums, err = f.sum(ctx, f.in); err != nil {
			return err
		}
	}
	if f.want.NuByDefault {
		if few := f.tooFew(); few != "" {
			f.doWithout(r, few)
		}
	}
	if f.method.Unlabelled() && f.sums.whole.Unlabelled().Rows == 0 {
		return fmt.Errorf("learn from %s: --refine unlabelled learns from rows without a label, and all rows have one: name the text that means none by --unlabelled-text, or take --refine sparse, the same machine without such rows", f.data.Path)
	}
	if err := f.weighs(); err != nil {
		return err
	}
	if f.want.Model.Knowledge != "" {
		if err := f.know(ctx); err != nil {
			return err
		}
	}
	if f.tunes() {
		r.Tuning, err = f.tune(ctx)
		if f.want.NuByDefault && errors.Is(err, incremental.ErrClasses) && len(f.sums.whole.Moments().Classes()) > 1 {
			f.doWithout(r, "without one of the folds the rows are of fewer than two classes")
			err = nil
		}
	}
	if err == nil {
		r.Refinement, err = f.train(ctx)
	}
	if err == nil {
		err = f.trainFolds(ctx)
	}
	return err
}

// tunes says whether ν is chosen.
func (f *fit) tunes() bool { return f.want.Model.Nu == config.NuAuto }

const (
	leastChosenBy = 20 // rows that a choice is made by
	leastOutside  = 4  // of them, rows outside the largest class
)

// tooFew says why the rows are too few to choose settings by, or "".
func (f *fit) tooFew() string {
	rows, most := int64(0), int64(0)
	for _, of := range f.sums.whole.Totals() {
		rows, most = rows+of.Rows, max(most, of.Rows)
	}
	if rows >= leastChosenBy && rows-most >= leastOutside {
		return ""
	}
	return fmt.Sprintf("there are %d rows, %d of them outside the largest class: a choice takes %d and %d", rows, rows-most, leastChosenBy, leastOutside)
}

// doWithout takes settings that need no choice, where none was asked for.
func (f *fit) doWithout(r *Report, reason string) {
	f.want.Model.Nu, f.options.Nu = model.FirstNu, model.FirstNu
	if f.refining == study.Either {
		f.refining = study.Never
	}
	if f.want.FoldsByDefault && !f.demanding() {
		f.folds, f.foldIn, f.sums.folds = 0, nil, nil
	}
	r.Choice = "nothing is chosen by held-out rows, as with --plain, since " + reason
}

// weighs refuses weights of classes that there are not.
func (f *fit) weighs() error {
	for class := range f.options.ClassWeights {
		if !f.sums.whole.Has(class) {
			return ClassError{fmt.Errorf("%s has no class %q; it has %s", f.data.Path, class, strings.Join(f.sums.whole.Moments().Classes(), ", "))}
		}
	}
	return nil
}

// tune chooses ν, and the other settings that are auto, by the rows of each fold and the planes
// without it. Planes that are refined, or may be, are judged on the rows of a sample.
func (f *fit) tune(ctx context.Context) (*model.Choice, error) {
	p := f.dealt()
	var rows study.Parts = fileParts{f}
	if f.refining != study.Never && f.rows == nil {
		var err error
		if f.rows, err = f.sample(ctx, f.sampled()); err != nil {
			return nil, err
		}
	}
	if f.blocks != nil || f.refining != study.Never {
		rows = f.rows.random().study(f.in, p.Whole, p.Folds)
	}
	how, err := f.judging()
	if err != nil {
		return nil, err
	}
	y := study.New(p, study.Options{
		Planes: f.options, AnyScale: f.want.Model.Standardise == config.SwitchAuto, AnyBalance: f.want.Model.Balanced == config.SwitchAuto,
		Objective: f.objective, Refining: f.refining, Refine: f.refiner(f.in), AnyMethod: f.refining == study.Either,
		Ways: f.ways(f.in),
		Held: how,
	})
	t, err := y.Tune(ctx, rows)
	if err != nil {
		return nil, fmt.Errorf("choose nu for %s: %w", f.data.Path, err)
	}
	if f.refining == study.Either {
		f.method = y.RefinesBy()
	}
	if f.knowledge != nil {
		f.knowledge.machine.Mu = model.MuOf(t.Ways[t.Chosen])
	}
	f.options, f.refining = y.Options(), study.Never
	if y.Refines() {
		f.refining = study.Always
	}
	for _, final := range t.Finals {
		if final.Curve == t.Chosen && t.Curves[t.Chosen].Method != "" {
			f.judged = final.Model
		}
	}
	return model.NewChoice(t), nil
}

// dealt has the sums of the folds, for a study.
func (f *fit) dealt() *study.Problem {
	p := &study.Problem{Whole: f.sums.dealt, Folds: f.sums.folds}
	if f.in != nil {
		p.Regulariser = f.in.Regulariser
	}
	return p
}

// train makes the model. Its sums are those of whole blocks, so that it has the same bits
// with folds and without.
func (f *fit) train(ctx context.Context) (*Refinement, error) {
	m, result, err := f.planes(ctx, f.sums.whole, f.in, none)
	f.model = m
	return newRefinement(f.refiner(f.in), result), err
}

// trainFolds makes the models without each fold.
func (f *fit) trainFolds(ctx context.Context) error {
	f.foldModels = make([]*incremental.Model, f.folds)
	for fold := range f.foldModels[:f.judgedFolds()] {
		if err := ctx.Err(); err != nil {
			return err
		}
		in, rest := f.without(fold), (*incremental.State)(nil)
		switch {
		case f.foldIn == nil && f.sums.folds[fold].Rows() > 0:
			rest = f.sums.dealt.Without(f.sums.folds[fold])
		case f.foldIn != nil && in != nil:
			var err error
			if rest, err = f.sumWithout(ctx, fold); err != nil {
				return err
			}
		default:
			continue
		}
		m, _, err := f.planes(ctx, rest, in, fold)
		if err != nil {
			return err
		}
		f.foldModels[fold] = m
	}
	return nil
}

// judgedFolds is the number of the first folds that rows are scored by models without. By default,
// where planes are refined and rows are many, they are those that the choice was made by.
func (f *fit) judgedFolds() int {
	if f.want.NuByDefault && f.blocks == nil && f.in == nil && f.refining == study.Always && f.rows != nil {
		return min(f.folds, f.rows.study(nil, f.sums.dealt, f.sums.folds).Enough())
	}
	return f.folds
}

// planes solves for the planes of some sums, and refines them on the rows outside a fold,
// or on those of the sample where whole blocks are in the folds.
func (f *fit) planes(ctx context.Context, whole *incremental.State, in *basis.Coordinates, fold int) (*incremental.Model, *newton.Result, error) {
	from := f.data.Path
	if fold != none {
		from = fmt.Sprintf("%s without fold %d of %d", f.data.Path, fold+1, f.folds)
	}
	o := study.Options{Planes: f.optionsIn(in), Refine: f.refiner(in), Coarse: fold != none}
	if fold == none {
		o.Refine = f.reporting(in)
	}
	if f.blocks == nil && o.Refine == newton.Full && 2*(whole.Rows()-whole.Unlabelled().Rows) <= int64(len(whole.Features())) {
		o.Refine = newton.Dual // the same planes in two passes, from smaller systems
	}
	y := study.Of(in.Moments(whole), o)
	m, err := y.Solve()
	if err != nil {
		return nil, nil, fmt.Errorf("learn from %s: %w", from, err)
	}
	if f.refining == study.Never {
		return m, nil, nil
	}
	file := &rereading{f, in, fold, o.Refine.Unlabelled()}
	var rows newton.Rows = file
	var standFor map[string]float64
	_, sums := o.Refine.(newton.Method) // what it finds depends on no order of the rows
	some := sums && f.blocks == nil && f.rows.stands(f.sums.whole)
	begin := f.model // the planes of all rows are near
	if fold == none {
		begin = f.judged
	}
	begins := sums && f.blocks == nil && y.Begin(begin)
	switch {
	case f.blocks != nil || some && fold != none && f.want.NuByDefault:
		rows, standFor = f.rows.without(fold).study(in, whole, nil).All()
	case some && begins && fold == none: // at planes that were refined on the sample to be judged
	case some && o.Refine.Continues(): // few readings of the file are left
		few, each := f.rows.without(fold).study(in, whole, nil).All()
		if _, err := y.Refine(ctx, few, each); err != nil {
			return nil, nil, fmt.Errorf("refine on a sample of %s: %w", from, err)
		}
	case sums && f.blocks == nil && f.rows != nil && !o.Refine.Unlabelled(): // these are all rows
		rows, _ = f.rows.without(fold).study(in, whole, nil).All()
	}
	if rows == newton.Rows(file) && sums {
		rows, err = file.held(ctx, int(whole.Rows()), len(m.Features))
	}
	var result *newton.Result
	if err == nil {
		result, err = y.Refine(ctx, rows, standFor)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("refine on %s: %w", from, err)
	}
	return result.Model, result, nil
}

// without has the coordinates of the model without a fold.
func (f *fit) without(fold int) *basis.Coordinates {
	if f.foldIn == nil {
		return f.in
	}
	return f.foldIn[fold]
}
