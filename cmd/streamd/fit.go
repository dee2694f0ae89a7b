package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
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
)

// fitCmd learns from a file with the daemon's mathematics (packages study and basis). The
// file is read in blocks and never held in memory: once to sum the blocks and the folds,
// and once to score the rows. The choice of ν, leaving each row out in turn and the
// ε-support vectors take one to three readings more. A kernel takes one for the sample
// that its basis is chosen from. Every fold has a basis that has not seen it, which takes
// one reading for each fold. With folds, one reading takes the sample that probabilities and
// the rule of labels are fitted to (package decision).
//
// With --block-rows the file is cut as streamd replay file cuts it. Blocks go to the folds
// and rows to the sample by their content, as in a daemon that reads the blocks. For the
// same settings γ, ν, the basis, the planes and the rule of labels have the bits of that
// daemon's.
type fitCmd struct {
	File string `arg:"" help:"CSV, LIBSVM, JSON, Arrow, Parquet, or the images of an idx pair, also compressed by gzip or Zstandard (.gz, .zst)."`
	featureFlags
	missingFlags
	unlabelledFlags
	Format       string             `enum:"auto,arrow,json,csv,libsvm" default:"auto" help:"Format of a file whose name does not end in one: ${enum}. With auto the first line decides."`
	Plain        bool               `help:"Choose nothing: where no other flag says otherwise nu is 1, and planes are neither scaled nor balanced nor refined, as in the thesis and in a daemon without such keys. Without it, and with no number for nu, all of these are auto."`
	Nu           nuFlag             `placeholder:"NU" help:"Weight ν > 0 of the errors against the size of the plane. auto, the default, tries 2^-20 to 2^20 and takes one that classifies well over the folds (10 without --folds). The accuracy over the same folds then flatters a little. With a number, --standardise, --balanced and --refine are off unless they are given. (default: auto; 1 with --plain, --knowledge, --reduce none, a --refine by programs, or too few rows to choose by)"`
	Objective    config.Objective   `enum:"accuracy,balanced" default:"accuracy" placeholder:"FIGURE" help:"Figure that auto chooses by: accuracy, the share of rows classified right, or balanced, the mean of the classes' shares, for rare classes that count as much as frequent ones."`
	Balanced     config.Switch      `placeholder:"true" help:"Give the rows on each side of a plane half of the weight of all rows. auto, with --nu auto: the better of the two. (default: auto; false with --class-weights or --kernel)"`
	ClassWeights map[string]float64 `mapsep:"," placeholder:"A=2,B=1" help:"Weights of classes; the others have 1."`
	Standardise  config.Switch      `placeholder:"true" help:"Solve with every feature scaled to mean 0 and variance 1. auto, with --nu auto: the better of the two. (default: auto; false with --kernel)"`
	Method       config.Method      `enum:"psvm,means,lasso" default:"psvm" placeholder:"METHOD" help:"How planes are read off the sums: psvm, the proximal support vector machine by least squares; means, the difference of the classes' means, which depends on no nu and needs no linear system; or lasso, least squares and the 1-norm, with few features where nu is small."`
	Folds        int                `placeholder:"K" help:"Cross-validate: score every row by a model that has not seen its fold, of K."`
	Test         string             `placeholder:"FILE" help:"File to test on."`
	LOO          bool               `name:"loo" help:"Report the leave-one-out accuracy: of each row by the plane without it."`
	EpsilonSV    *float64           `name:"epsilon-sv" placeholder:"SHARE" help:"Solve again with this share of the rows only, those nearest to the planes x·w − gamma = ±1 (0.01 is usual), and report that plane, too."`
	BlockRows    *int               `placeholder:"ROWS" help:"Learn the same as a daemon that reads the file from streamd replay file with as many --block-rows. Then folds have whole blocks, and nu, the refinement and a kernel go by the rows of the --sample."`
	Seed         uint64             `default:"1" help:"Seed of the division into folds, and of a kernel's sample and basis."`
	Refine       config.Refine      `enum:",none,line,full,logistic,auto,hinge,sparse,minimal,features,nlp,unlabelled" default:"" placeholder:"HOW" help:"Refine the planes on the rows. By Newton's method and the squared errors of the rows within the margin or wrong: line moves and stretches planes, without the weights of --balanced, full turns them, too. logistic moves the planes of all classes together, by the logistic loss. auto, with --nu auto: the best of none, full and logistic. Each of a few dozen steps reads the file. By programs of all rows, in memory: hinge, the SVM with the hinge loss; sparse, the 1-norm SVM, with few features; minimal with few support vectors; features with fewest features; nlp like sparse, by a Newton method for tens of thousands of features; unlabelled, VS3VM, from rows without a label, too. Of more than 4096 features no sums are made: nlp, sparse, hinge, full and kernels take them, and nlp keeps the zeros of a file out of memory. nu is chosen on the rows of the --sample. (default: auto; none with --kernel, --method, --knowledge, --loo and --epsilon-sv)"`
	machineFlags
	knowledgeFlags
	kernelFlags
	decisionFlags
	jsonFlag

	byDefault, foldsByDefault bool // nu is auto, and there are folds, because no flag says otherwise
	given                     settings
}

// settle gives values to the settings that no flag gives one. They are auto where a choice by
// folds of the rows is worth its time, and else those of a daemon without such keys. Machines
// that are programs of all rows, and planes in as many coordinates as rows, take that time for
// every ν and fold.
func (c *fitCmd) settle() {
	programs := false
	switch c.Refine {
	case "", config.RefineNone, config.RefineLine, config.RefineFull, config.RefineLogistic, config.RefineAuto:
	default:
		programs = true
	}
	if c.byDefault = c.Nu == (nuFlag{}) && !c.Plain && !programs && c.Reduce != "none" && c.Knowledge == ""; c.byDefault {
		c.Nu.auto = true
	} else if c.Nu == (nuFlag{}) {
		c.Nu.value = 1
	}
	c.given = settings{c.Standardise, c.Balanced, c.Refine}
	c.settleRest(c.Nu.auto && !c.Plain && c.Kernel == config.KernelNone && c.Knowledge == "")
}

// settings are those that are chosen together with ν; "": not given.
type settings struct {
	standardise, balanced config.Switch
	refine                config.Refine
}

// settleRest gives values to the settings beside ν that no flag gives one.
func (c *fitCmd) settleRest(choose bool) {
	c.Standardise = cmp.Or(c.given.standardise, switchTo(choose))
	c.Balanced = cmp.Or(c.given.balanced, switchTo(choose && len(c.ClassWeights) == 0))
	if c.Refine = c.given.refine; c.Refine == "" {
		c.Refine = config.RefineNone
		if choose && c.Method == config.MethodPSVM && !c.LOO && c.EpsilonSV == nil {
			c.Refine = config.RefineAuto
		}
	}
}

func switchTo(auto bool) config.Switch {
	if auto {
		return config.SwitchAuto
	}
	return config.SwitchOff
}

// Validate implements kong's interface: its errors are wrong usage.
func (c *fitCmd) Validate() error {
	c.settle()
	if _, err := c.treatment(); err != nil {
		return err
	}
	if err := c.kernelFlags.check(c.BlockRows != nil || (c.Refine != config.RefineNone || c.Knowledge != "") && c.Nu.auto); err != nil {
		return err
	}
	if c.full() {
		if c.BlockRows != nil {
			return errors.New("--block-rows: does not go with --reduce none and --refine hinge, a full kernel, which no daemon learns")
		}
		c.Regulariser = config.RegulariserKernel
	}
	spec := c.spec()
	if faults := spec.Check(); len(faults) > 0 {
		return asFlags(faults)
	}
	if err := c.checkKnowledge(); err != nil {
		return err
	}
	if _, err := model.Prices(c.Costs); err != nil {
		return fmt.Errorf("--costs: %w", err)
	}
	if !(c.Tolerance >= 0) || math.IsInf(c.Tolerance, 0) {
		return fmt.Errorf("--tolerance %v: must be positive", c.Tolerance)
	}
	if c.Tolerance > 0 && !c.full() {
		return errors.New("--tolerance: goes with --kernel, --reduce none and --refine hinge, the support vector machine of a full kernel")
	}
	if rows := c.BlockRows; rows != nil && (*rows < 1 || *rows > maxReplayed) {
		return fmt.Errorf("--block-rows %d: must be 1 to %d", *rows, maxReplayed)
	}
	if c.Refine != config.RefineNone && (c.LOO || c.EpsilonSV != nil) {
		return errors.New("--refine: does not go with --loo and --epsilon-sv, which are of solved planes")
	}
	if c.Method != config.MethodPSVM && (c.LOO || c.EpsilonSV != nil) {
		return fmt.Errorf("--method %s: does not go with --loo and --epsilon-sv, which are of psvm", c.Method)
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
	if c.Folds < 0 || c.Folds > maxFolds {
		return fmt.Errorf("--folds %d: must be 2 to %d", c.Folds, maxFolds)
	}
	return nil
}

// spec says what the flags ask for as a daemon's keys would.
func (c *fitCmd) spec() config.Spec {
	s := config.DefaultSpec()
	s.Blocks.Unlabelled, s.Format.Missing, s.Format.MissingFeatures = c.Unlabelled, c.Missing, c.MissingFeatures
	m, k := &s.Model, &s.Kernel
	m.Nu = config.Nu(cmp.Or(c.Nu.value, model.FirstNu)) // planes of rules alone have none
	if c.Nu.auto {
		m.Nu = config.NuAuto
	}
	switch {
	case c.Mu.auto:
		m.Mu = config.NuAuto
	case c.Mu.value > 0:
		m.Mu = config.Nu(c.Mu.value)
	}
	m.Objective, m.Balanced, m.Standardise, m.ClassWeights = c.Objective, c.Balanced, c.Standardise, c.ClassWeights
	m.Knowledge, m.Method, m.Refine = c.Knowledge, c.Method, c.Refine
	m.MachineMu, m.MachineEpsilon, m.MachineDelta = c.MachineMu, c.MachineEpsilon, c.MachineDelta
	m.Calibration, m.Decision, m.Costs = c.Calibration, c.Decision, c.Costs
	if m.Folds = c.Folds; c.chooses() && c.Folds == 0 {
		m.Folds = defaultFolds
	}
	s.Sample.Rows = c.sampled()
	k.Function, k.Basis, k.Reduce, k.Regulariser = c.Kernel, given(c.Basis, k.Basis), cmp.Or(config.Reduce(c.Reduce), k.Reduce), cmp.Or(c.Regulariser, k.Regulariser)
	return s
}

// chooses says whether something is chosen over folds.
func (c *fitCmd) chooses() bool { return c.Nu.auto || c.Reduce == reduceAuto }

// asFlags says what does not go together, by the names of flags.
func asFlags(faults []config.Fault) error {
	flag := func(key string) string {
		switch key {
		case "kernel.function":
			return "--kernel"
		case "sample.rows":
			return "--sample"
		}
		return "--" + strings.ReplaceAll(key[strings.LastIndexByte(key, '.')+1:], "_", "-")
	}
	name := func(key, value string) string { return strings.TrimSuffix(flag(key)+" "+value, " ") }
	texts := make([]string, len(faults))
	for i, f := range faults {
		texts[i] = name(f.Key, f.Value) + ": " + f.Text(name)
	}
	return errors.New(strings.Join(texts, "\n"))
}

func (c *fitCmd) Run(ctx context.Context, s *surroundings) error {
	began := time.Now()
	options := c.featureFlags.options(c.Format)
	options.Missing, _ = c.treatment() // Validate has checked it
	if err := c.unlabelledFlags.choose(&options); err != nil {
		return err
	}
	data, err := dataset.Open(c.File, options, s.watchRows)
	if err != nil {
		return err
	}
	if err := s.warnOf(data); err != nil {
		return err
	}
	var test *dataset.Dataset // opened first, so that its errors come at once
	if c.Test != "" {
		if test, err = data.Aligned(c.Test); err != nil {
			return err
		}
	}
	if c.byDefault && data.Wide() && c.Kernel == config.KernelNone { // there are no sums to choose by
		c.byDefault, c.Nu.autoFlag = false, autoFlag{value: 1}
		c.settleRest(false)
	}
	if c.chooses() && c.Folds == 0 {
		c.Folds, c.foldsByDefault = defaultFolds, true
	}
	spec := c.spec()
	f := &fit{
		s: s, data: data, folds: c.Folds, seed: c.Seed,
		options: model.Options(spec.Model), objective: model.Objective(c.Objective), quick: c.byDefault,
		refining: model.Refining(c.Refine), method: model.Refiner(c.Refine, c.settings(), nil, c.Kernel != config.KernelNone),
	}
	f.options.Mean = options.Missing.Means(data.Features)
	if err := c.checkWide(f); err != nil {
		return err
	}
	if c.BlockRows != nil {
		f.replay(*c.BlockRows, c.sampled())
	}
	report := &fitReport{}
	if err := c.learn(ctx, f, report); err != nil {
		return c.advise(err)
	}
	f.describe(report)
	if report.Reduction != nil {
		report.Basis = model.NewBasisJSON(f.in.Map, cmp.Or(c.Regulariser, config.RegulariserIdentity))
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

// learn makes the model and the models without each fold.
func (c *fitCmd) learn(ctx context.Context, f *fit, r *fitReport) (err error) {
	if f.blocks != nil {
		if f.sums, err = f.sum(ctx, nil); err != nil {
			return err
		}
		f.rows = f.blocks.chosen(f.sums.whole, f.method.Unlabelled())
	}
	if c.full() || f.data.Wide() && c.Kernel == config.KernelNone {
		return c.learnRows(ctx, f, r)
	}
	if c.Kernel != config.KernelNone {
		// Features are scaled on their way into the kernel, coordinates are not.
		f.scaled, f.options.Standardise = f.options.Standardise, false
		if r.Reduction, err = f.choose(ctx, &c.kernelFlags, c.Nu.auto); err != nil {
			return err
		}
	}
	if f.in != nil || f.blocks == nil {
		if f.sums, err = f.sum(ctx, f.in); err != nil {
			return err
		}
	}
	if c.byDefault {
		if few := f.tooFew(); few != "" {
			c.doWithout(f, r, few)
		}
	}
	if f.method.Unlabelled() && f.sums.whole.Unlabelled().Rows == 0 {
		return fmt.Errorf("learn from %s: --refine unlabelled learns from rows without a label, and all rows have one: name the text that means none by --unlabelled-text, or take --refine sparse, the same machine without such rows", f.data.Path)
	}
	if err := f.weighs(); err != nil {
		return err
	}
	if c.Knowledge != "" {
		if err := c.know(ctx, f); err != nil {
			return err
		}
	}
	if c.Nu.auto {
		r.Tuning, err = f.tune(ctx, c)
		if c.byDefault && errors.Is(err, incremental.ErrClasses) && len(f.sums.whole.Moments().Classes()) > 1 {
			c.doWithout(f, r, "without one of the folds the rows are of fewer than two classes")
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

// advise adds to an error which flags help.
func (c *fitCmd) advise(err error) error {
	err = c.kernelFlags.advise(err)
	if c.Standardise != config.SwitchOn && strings.Contains(err.Error(), "standardise the features") {
		err = fmt.Errorf("%w; --standardise does so", err)
	}
	return err
}

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
	return fmt.Sprintf("there are %s, %d of them outside the largest class: a choice takes %d and %d", counted(rows, "row"), rows-most, leastChosenBy, leastOutside)
}

// doWithout takes settings that need no choice, where none was asked for.
func (c *fitCmd) doWithout(f *fit, r *fitReport, reason string) {
	c.Nu.autoFlag, f.options.Nu = autoFlag{value: 1}, 1
	if f.refining == study.Either {
		f.refining = study.Never
	}
	if c.foldsByDefault && !c.decisionFlags.demanding() {
		c.Folds, f.folds, f.foldIn, f.sums.folds = 0, 0, nil, nil
	}
	r.Choice = "nothing is chosen by held-out rows, as with --plain, since " + reason
}

// weighs refuses weights of classes that there are not.
func (f *fit) weighs() error {
	for class := range f.options.ClassWeights {
		if !f.sums.whole.Has(class) {
			return usagef("--class-weights: %s has no class %q; it has %s", f.data.Path, class, strings.Join(f.sums.whole.Moments().Classes(), ", "))
		}
	}
	return nil
}

// measure reports the accuracies of the models.
func (c *fitCmd) measure(ctx context.Context, f *fit, test *dataset.Dataset, r *fitReport) error {
	auc, err := f.decide(ctx, &c.decisionFlags, r)
	if err != nil {
		return err
	}
	if f.knowledge != nil {
		if r.Knowledge, err = f.reportRules(ctx); err != nil {
			return err
		}
	}
	own, held, err := f.score(ctx, f.data, "scoring", f.foldModels)
	if err != nil {
		return err
	}
	r.TrainAccuracy = own.accuracy()
	if c.Folds == 0 && test == nil {
		r.Unanswered = f.answers(own, nil).Unanswered()
	}
	if c.Folds > 0 {
		all := f.newJudgement()
		for fold, t := range held {
			switch {
			case t.weight > 0:
				r.FoldAccuracies = append(r.FoldAccuracies, t.accuracy())
				all.merge(t)
			case f.blocks == nil && fold < f.judgedFolds():
				return fmt.Errorf("fold %d of %d of %s has no rows; ask for fewer --folds", fold+1, c.Folds, c.File)
			}
		}
		r.TestAccuracy, r.HeldOut = new(mean(r.FoldAccuracies)), f.answers(all, auc)
	}
	if test != nil {
		t, _, err := f.score(ctx, test, "testing", nil)
		if err != nil {
			return err
		}
		if t.weight == 0 {
			return fmt.Errorf("%s has no row that weighs anything", c.Test)
		}
		areas, err := f.areas(&t.scores)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Test, err)
		}
		r.TestAccuracy, r.Test = new(t.accuracy()), f.answers(t, areas)
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
	s      *surroundings
	data   *dataset.Dataset
	folds  int // 0: none
	seed   uint64
	blocks *blocks // nil: rows are dealt to the folds

	options   incremental.Options
	objective tuning.Objective
	refining  study.Refining
	method    study.Refiner // of the refinement
	knowledge *knowledge    // nil: there are no rules, which take the method's place
	quick     bool          // planes without a fold are refined on the sample of a large file

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

// autoFlag is a positive number or auto. The zero value was not given.
type autoFlag struct {
	value float64
	auto  bool
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *autoFlag) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		*f = autoFlag{auto: true}
		return nil
	}
	value, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(value > 0) || math.IsInf(value, 0) {
		return fmt.Errorf("must be a positive number or auto, not %s", text)
	}
	*f = autoFlag{value: value}
	return nil
}

// nuFlag is an autoFlag that may be 0, too.
type nuFlag struct {
	autoFlag
	zero bool
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *nuFlag) UnmarshalText(text []byte) error {
	if value, err := strconv.ParseFloat(string(text), 64); err == nil && value == 0 {
		*f = nuFlag{zero: true}
		return nil
	}
	return f.autoFlag.UnmarshalText(text)
}

// defaultFolds is the number of folds that choose ν or a basis without --folds.
const defaultFolds = 10

// tune chooses ν, and the other settings that are auto, by the rows of each fold and the planes
// without it.
// Planes that are refined, or may be, are judged on the rows of a sample.
func (f *fit) tune(ctx context.Context, c *fitCmd) (*tuningReport, error) {
	p := &study.Problem{Whole: f.sums.dealt, Folds: f.sums.folds}
	if f.in != nil {
		p.Regulariser = f.in.Regulariser
	}
	var rows study.Parts = fileParts{f}
	if f.refining != study.Never && f.rows == nil {
		if err := f.sample(ctx, c.sampled()); err != nil {
			return nil, err
		}
	}
	if f.blocks != nil || f.refining != study.Never {
		rows = f.rows.random().study(f.in, p.Whole, p.Folds)
	}
	how, err := c.judging(f.objective)
	if err != nil {
		return nil, err
	}
	y := study.New(p, study.Options{
		Planes: f.options, AnyScale: c.Standardise == config.SwitchAuto, AnyBalance: c.Balanced == config.SwitchAuto,
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
	r := model.NewTuning(t)
	return &tuningReport{
		Folds: r.Folds, Criterion: r.Criterion, Nu: r.Nu, Best: r.Best, Points: r.Curves[t.Chosen].Points,
		Method: r.Method, Standardise: r.Standardise, Balanced: r.Balanced, Mu: r.Mu, Curves: r.Curves, Finals: r.Finals,
	}, nil
}

// train makes the model. Its sums are those of whole blocks, so that it has the same bits
// with folds and without.
func (f *fit) train(ctx context.Context) (*refinementReport, error) {
	m, result, err := f.planes(ctx, f.sums.whole, f.in, none)
	f.model = m
	return newRefinementReport(f.refiner(f.in), result), err
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
	if f.quick && f.blocks == nil && f.in == nil && f.refining == study.Always && f.rows != nil {
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
	var rows newton.Rows = &rereading{f, in, fold, o.Refine.Unlabelled()}
	var standFor map[string]float64
	_, sums := o.Refine.(newton.Method) // what it finds depends on no order of the rows
	some := sums && f.blocks == nil && f.rows.stands(f.sums.whole)
	begin := f.model // the planes of all rows are near
	if fold == none {
		begin = f.judged
	}
	begins := sums && f.blocks == nil && y.Begin(begin)
	switch {
	case f.blocks != nil || some && fold != none && f.quick:
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
	result, err := y.Refine(ctx, rows, standFor)
	if err != nil {
		return nil, nil, fmt.Errorf("refine on %s: %w", from, err)
	}
	return result.Model, result, nil
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

// score classifies all rows by the model, and each row by the model without its fold. A row
// of a class that a model does not know counts as wrong. Of rows other than the fit's, the
// decision values are kept.
func (f *fit) score(ctx context.Context, d *dataset.Dataset, task string, foldModels []*incremental.Model) (all judgement, folds []judgement, err error) {
	all, folds = f.newJudgement(), make([]judgement, len(foldModels))
	for fold := range folds {
		folds[fold] = f.newJudgement()
	}
	tools := f.tools()
	err = dataset.Each(ctx, d, task,
		func(worker int, b *incremental.Block, firstRow int64) ([]judgement, error) {
			z := &tools[worker]
			judged := make([]judgement, 1+len(foldModels))
			judged[0] = f.judge(f.model, none, z.enter(b, f.in), d != f.data)
			if len(foldModels) == 0 {
				return judged, nil
			}
			for fold, part := range z.parts(b, firstRow) {
				if m := foldModels[fold]; m != nil {
					judged[1+fold] = f.judge(m, fold, z.enter(part, f.without(fold)), false)
				}
			}
			return judged, nil
		},
		func(judged []judgement) error {
			all.merge(judged[0])
			for fold := range folds {
				if of := judged[1+fold]; of.matrix != nil {
					folds[fold].merge(of)
				}
			}
			return nil
		})
	return all, folds, err
}

// without has the coordinates of the model without a fold.
func (f *fit) without(fold int) *basis.Coordinates {
	if f.foldIn == nil {
		return f.in
	}
	return f.foldIn[fold]
}
