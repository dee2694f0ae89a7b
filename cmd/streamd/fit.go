package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"streamd/cmd/streamd/dataset"
	"streamd/cmd/streamd/fit"
	"streamd/cmd/streamd/listing"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
)

// fitCmd learns from a file and measures what it has learned: see package fit.
type fitCmd struct {
	File string `arg:"" help:"CSV, LIBSVM, JSON, Arrow, Parquet, or the images of an idx pair, also compressed by gzip or Zstandard (.gz, .zst)."`
	featureFlags
	schemaFlags
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
	Progressive  bool               `help:"Judge each row by planes of the rows before it, in the order of the file, and report the figures beside those of the largest class and of the last label. The planes are proximal ones, not refined, and decide by their values. nu is 1 and features are scaled where these are auto, since a choice would look ahead."`
	Every        *int               `name:"progressive-every" placeholder:"N" help:"Rows after which --progressive solves for the planes again; with --block-rows blocks. (default: as many as there are features, so that solves take no longer than sums, but 100 or more; with --block-rows 1)"`
	LOO          bool               `name:"loo" help:"Report the leave-one-out accuracy: of each row by the plane without it."`
	EpsilonSV    *float64           `name:"epsilon-sv" placeholder:"SHARE" help:"Solve again with this share of the rows only, those nearest to the planes x·w − gamma = ±1 (0.01 is usual), and report that plane, too."`
	BlockRows    *int               `placeholder:"ROWS" help:"Learn the same as a daemon that reads the file from streamd replay file with as many --block-rows. Then folds have whole blocks, and nu, the refinement and a kernel go by the rows of the --sample."`
	Seed         uint64             `default:"1" help:"Seed of the division into folds, and of a kernel's sample and basis."`
	Refine       config.Refine      `enum:",none,line,full,logistic,auto,hinge,sparse,minimal,features,nlp,unlabelled" default:"" placeholder:"HOW" help:"Refine the planes on the rows. By Newton's method and the squared errors of the rows within the margin or wrong: line moves and stretches planes, without the weights of --balanced, full turns them, too. logistic moves the planes of all classes together, by the logistic loss. auto, with --nu auto: the best of none, full and logistic. Each of a few dozen steps reads the file. By programs of all rows, in memory: hinge, the SVM with the hinge loss; sparse, the 1-norm SVM, with few features; minimal with few support vectors; features with fewest features; nlp like sparse, by a Newton method for tens of thousands of features; unlabelled, VS3VM, from rows without a label, too. Of more than 4096 features no sums are made: nlp, sparse, hinge, full and kernels take them, and nlp keeps the zeros of a file out of memory. nu is chosen on the rows of the --sample. (default: auto; none with --kernel, --method, --knowledge, --loo and --epsilon-sv)"`
	machineFlags
	knowledgeFlags
	kernelFlags
	decisionFlags
	sumsFlags
	jsonFlag
}

// defaultFolds is the number of folds that choose ν or a basis without --folds.
const defaultFolds = 10

// settings say what the flags ask for. Settings that no flag gives a value are auto where a choice
// by folds of the rows is worth its time, and else those of a daemon without such keys. Machines
// that are programs of all rows, and planes in as many coordinates as rows, take that time for
// every ν and fold. Of a wide file there are no sums to choose by.
func (c *fitCmd) settings(wide bool) fit.Settings {
	s := fit.Settings{Spec: config.DefaultSpec(), Alone: c.Nu.zero, Seed: c.Seed, BlockRows: given(c.BlockRows, 0), Tolerance: c.Tolerance, LOO: c.LOO, EpsilonSV: given(c.EpsilonSV, 0)}
	s.Blocks.Unlabelled, s.Format.Missing, s.Format.MissingFeatures = c.Unlabelled, c.Missing, c.MissingFeatures
	s.Format.Schema = c.Schema.of
	if s.Progressive = given(c.Every, 0); c.Progressive && c.Every == nil {
		s.Progressive = fit.EveryDefault
	}
	plain := c.Plain || c.Sums != ""
	if c.Sums != "" {
		s.Kept = &fit.Kept{Path: c.Sums, Forget: c.Forget}
	}
	m := &s.Model
	m.Objective, m.ClassWeights, m.Knowledge, m.Method = c.Objective, c.ClassWeights, c.Knowledge, c.Method
	m.MachineMu, m.MachineEpsilon, m.MachineDelta = c.MachineMu, c.MachineEpsilon, c.MachineDelta
	m.Calibration, m.Decision, m.Costs = c.Calibration, c.Decision, c.Costs
	c.kernelFlags.choose(&s, c.Refine)

	inFeatures := c.Kernel == config.KernelNone
	programs := cmp.Or(c.Refine, config.RefineNone).Program() || c.Reduce == reduceNone || c.Knowledge != ""
	s.NuByDefault = c.Nu == (nuFlag{}) && !plain && !programs && !(wide && inFeatures)
	if m.Nu, m.Mu = c.Nu.or(m.Nu), c.Mu.or(m.Mu); s.NuByDefault {
		m.Nu = config.NuAuto
	}
	choose := m.Nu == config.NuAuto && !plain && inFeatures && c.Knowledge == ""
	m.Standardise = cmp.Or(c.Standardise, switchTo(choose))
	m.Balanced = cmp.Or(c.Balanced, switchTo(choose && len(c.ClassWeights) == 0))
	if m.Refine = cmp.Or(c.Refine, config.RefineNone); c.Refine == "" && choose && c.Method == config.MethodPSVM && !c.LOO && c.EpsilonSV == nil {
		m.Refine = config.RefineAuto
	}
	if m.Folds = c.Folds; c.Folds == 0 && (m.Nu == config.NuAuto || s.Kernel.Reduce == fit.ReduceAuto) {
		m.Folds, s.FoldsByDefault = defaultFolds, true
	}
	return s
}

func switchTo(auto bool) config.Switch {
	if auto {
		return config.SwitchAuto
	}
	return config.SwitchOff
}

// Validate implements kong's interface: its errors are wrong usage.
func (c *fitCmd) Validate() error {
	want := c.settings(false)
	if _, err := c.treatment(); err != nil {
		return err
	}
	kernel := c.kernelFlags
	if c.Progressive {
		kernel.SVG = "" // it is the picture of the rows
		if err := c.kernelFlags.checkSVG(); err != nil {
			return err
		}
	}
	if err := kernel.check(c.BlockRows != nil || (want.Model.Refine != config.RefineNone || c.Knowledge != "") && want.Model.Nu == config.NuAuto); err != nil {
		return err
	}
	if want.Full() && c.BlockRows != nil {
		return errors.New("--block-rows: does not go with --reduce none and --refine hinge, a full kernel, which no daemon learns")
	}
	if faults := want.Check(); len(faults) > 0 {
		return asFlags(faults)
	}
	if err := c.checkKnowledge(); err != nil {
		return err
	}
	if err := c.checkSums(&want); err != nil {
		return err
	}
	if _, err := model.Prices(c.Costs); err != nil {
		return fmt.Errorf("--costs: %w", err)
	}
	if !(c.Tolerance >= 0) || math.IsInf(c.Tolerance, 0) {
		return fmt.Errorf("--tolerance %v: must be positive", c.Tolerance)
	}
	if c.Tolerance > 0 && !want.Full() {
		return errors.New("--tolerance: goes with --kernel, --reduce none and --refine hinge, the support vector machine of a full kernel")
	}
	if rows := c.BlockRows; rows != nil && (*rows < 1 || *rows > maxReplayed) {
		return fmt.Errorf("--block-rows %d: must be 1 to %d", *rows, maxReplayed)
	}
	if err := c.checkProgressive(); err != nil {
		return err
	}
	if learns := c.Schema.of.Learns(); len(learns) > 0 && (c.Progressive || c.Sums != "") {
		return fmt.Errorf("--schema: goes with --progressive and --sums only where all lists are declared; %w", learnFirst(learns))
	}
	if want.Model.Refine != config.RefineNone && (c.LOO || c.EpsilonSV != nil) {
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

// checkProgressive refuses what --progressive has no planes of.
func (c *fitCmd) checkProgressive() error {
	switch {
	case !c.Progressive && c.Every != nil:
		return errors.New("--progressive-every: goes with --progressive")
	case !c.Progressive:
		return nil
	case c.Every != nil && (*c.Every < 1 || *c.Every > maxReplayed):
		return fmt.Errorf("--progressive-every %d: must be 1 to %d", *c.Every, maxReplayed)
	case c.Kernel != config.KernelNone || c.Knowledge != "" || c.Method != config.MethodPSVM || cmp.Or(c.Refine, config.RefineAuto) != config.RefineAuto && c.Refine != config.RefineNone:
		return errors.New("--progressive: is of proximal planes in the features, without --kernel, --knowledge, --method and --refine")
	}
	return nil
}

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
	options := c.featureFlags.options(c.Format)
	options.Missing, _ = c.treatment() // Validate has checked it
	if err := c.schemaFlags.choose(s, c.File, &options); err != nil {
		return err
	}
	if err := c.unlabelledFlags.choose(&options); err != nil {
		return err
	}
	if len(c.Schema.of.Learns()) > 0 {
		learned, lists, err := s.learnedBy(ctx, c.File, options, c.Schema.of)
		if err != nil {
			return err
		}
		for _, l := range lists {
			fmt.Fprintf(s.stderr, "streamd: category %s is learned: %s\n", listing.OneLine(l.Feature), &l)
		}
		c.Schema.of, options.Schema = learned, learned
	}
	data, err := dataset.Open(c.File, options, s.watchRows)
	if err != nil {
		return c.advised(err, c.File, c.Label)
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
	if c.Progressive && data.Wide() {
		return fmt.Errorf("--progressive: planes of %d features are not read off sums", len(data.Features))
	}
	if c.Sums != "" && data.Wide() {
		return fmt.Errorf("--sums: of %d features no sums are made", len(data.Features))
	}
	want := c.settings(data.Wide())
	report, err := fit.Learn(ctx, data, test, want, s.report)
	if err != nil {
		return c.advised(advise(err, &want), c.File, c.Label)
	}
	if c.SVG != "" {
		draw := func() error { return drawProgressive(c.SVG, c.File, report.Progressive) }
		if report.Progressive == nil {
			draw = func() error { return drawComparison(c.SVG, c.File, report.Reduction.Compared) }
		}
		if err := draw(); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(s.stdout, report)
	}
	p := newTable(s.stdout)
	p.fit(report)
	return p.flush()
}

// advise adds to an error which flags help.
func advise(err error, want *fit.Settings) error {
	if errors.As(err, new(fit.ClassError)) {
		return usagef("--class-weights: %w", err)
	}
	if condition := (*incremental.ConditionError)(nil); want.Kernel.Regulariser == config.RegulariserKernel && errors.As(err, &condition) {
		err = fmt.Errorf("%w; here also: a basis of fewer points, a larger gamma, or --regulariser identity", err)
	}
	if want.Model.Standardise != config.SwitchOn && strings.Contains(err.Error(), "standardise the features") {
		err = fmt.Errorf("%w; --standardise does so", err)
	}
	return err
}
