package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"streamd/cmd/streamd/fit"
	"streamd/config"
	"streamd/kernels/reduce"
)

// kernelFlags ask for a nonlinear classifier.
type kernelFlags struct {
	Kernel      config.Function    `default:"none" placeholder:"K" help:"Learn in the coordinates K(x, Z) of a basis Z: linear, gaussian, whose gamma is chosen, polynomial for (x·z/n + 1)^3 of n features, sigmoid for tanh(x·z/n), or a kernel in full, such as gaussian(gamma=0.5) or polynomial(a=1,b=1,degree=2). The chosen gamma is the one that classifies held-out rows of the sample best, of powers of four times the median heuristic, then twice and half the best of them. With --standardise the features are scaled before they get to the kernel."`
	Basis       *int               `placeholder:"T" help:"Points of the basis, at most; with eigen its coordinates. (default: 50)"`
	Reduce      string             `placeholder:"HOW" help:"How the basis is chosen: kmeans or kmedian (centres of each class); stratified, random, lda (forward selection) or cholesky (independent rows) for rows; eigen (leading eigenvectors of 1000 rows); cs (chunking-synthetic), slmc (sparse large margin), rs (reduced set) or skfd (sparse Fisher) for points that need not be rows; none (all rows, of a small file; with --refine hinge those that are support vectors, of up to 50,000 rows). With settings where they are wanted, such as cs(nu=6) or slmc(nu=10): see kernels/README.md. auto compares all but none, each with T, T/2, T/4, … points, by proximal planes on held-out rows of the --folds, at most 2000 of the sample, and takes the fewest points that are no more than one standard error behind the best, neither in correctness nor in squared loss. (default: kmeans)"`
	ReduceTime  *time.Duration     `placeholder:"TIME" help:"Longest time that --reduce auto compares bases for, in equal shares for the reducers. Then it takes the best so far. (default: 10m)"`
	SVG         string             `name:"svg" placeholder:"FILE" help:"Draw the correctness of --progressive along the rows, beside its baselines, or that of the bases that --reduce auto compares against their size."`
	Regulariser config.Regulariser `enum:",identity,kernel" default:"" placeholder:"R" help:"Quantity to keep small beside the errors: identity for the coefficients, kernel for u'K(Z,Z)u. (default: identity; kernel with --reduce none and --refine hinge)"`
	Sample      *int               `placeholder:"ROWS" help:"Rows, taken at random, that the basis, gamma and the scaling are chosen from, and nu for refined planes. (default: 10000; without a kernel 50000)"`
}

const (
	reduceNone = string(fit.ReduceNone)
	reduceAuto = string(fit.ReduceAuto)

	defaultSample     = 10_000
	defaultRows       = 50_000 // of a sample without a kernel, like a daemon's
	defaultReduceTime = 10 * time.Minute
	maxBasis          = 4096
	maxSample         = 1 << 20
)

// choose puts the flags into settings. A full kernel has the regulariser of its machine.
func (c *kernelFlags) choose(s *fit.Settings, refine config.Refine) {
	k, rows := &s.Kernel, defaultSample
	if c.Kernel == config.KernelNone {
		rows = defaultRows
	}
	s.Sample.Rows, s.ReduceTime = given(c.Sample, rows), given(c.ReduceTime, defaultReduceTime)
	k.Function, k.Basis, k.Reduce, k.Regulariser = c.Kernel, given(c.Basis, k.Basis), cmp.Or(config.Reduce(c.Reduce), k.Reduce), cmp.Or(c.Regulariser, k.Regulariser)
	if c.Regulariser == "" && c.Kernel != config.KernelNone && c.Reduce == reduceNone && refine == config.RefineHinge {
		k.Regulariser = config.RegulariserKernel
	}
}

// check refuses flags that do not go together. There may be a sample also without a kernel.
func (c *kernelFlags) check(sampled bool) error {
	if c.Sample != nil && (*c.Sample < 1 || *c.Sample > maxSample) && (c.Kernel != config.KernelNone || sampled) {
		return fmt.Errorf("--sample %d: must be 1 to %d", *c.Sample, maxSample)
	}
	if c.Kernel == config.KernelNone {
		if c.ReduceTime != nil || c.SVG != "" || c.Sample != nil && !sampled {
			return errors.New("--reduce-time, --svg and --sample go with --kernel")
		}
	}
	if err := c.checkReduce(); err != nil {
		return err
	}
	if c.Basis != nil && (*c.Basis < 1 || *c.Basis > maxBasis) {
		return fmt.Errorf("--basis %d: must be 1 to %d", *c.Basis, maxBasis)
	}
	if c.Basis != nil && c.Reduce == reduceNone {
		return errors.New("--basis: with --reduce none every row is a point of the basis")
	}
	if c.Sample != nil && c.Reduce == reduceNone {
		return errors.New("--sample: with --reduce none all rows are used")
	}
	return nil
}

// checkReduce refuses a reducer that there is not, and flags of auto without it.
func (c *kernelFlags) checkReduce() error {
	name, _, settings := strings.Cut(c.Reduce, "(")
	switch _, err := reduce.Parse(c.Reduce, 1); {
	case c.Reduce == "" || err == nil:
	case name != reduceNone && name != reduceAuto && !slices.Contains(reduce.Names(), name):
		return fmt.Errorf("--reduce %s: %w; none takes all rows, and auto compares the others", c.Reduce, err)
	case name != reduceNone && name != reduceAuto:
		return fmt.Errorf("--reduce %s: %w", c.Reduce, err)
	case settings:
		return fmt.Errorf("--reduce %s: %s has no settings", c.Reduce, name)
	}
	return c.checkAuto()
}

// checkAuto refuses flags that go with --reduce auto alone.
func (c *kernelFlags) checkAuto() error {
	if c.Reduce != reduceAuto && (c.ReduceTime != nil || c.SVG != "") {
		return errors.New("--reduce-time and --svg go with --reduce auto")
	}
	if c.ReduceTime != nil && *c.ReduceTime <= 0 {
		return fmt.Errorf("--reduce-time %v: must be positive", *c.ReduceTime)
	}
	return c.checkSVG()
}

func (c *kernelFlags) checkSVG() error {
	if c.SVG != "" && filepath.Ext(c.SVG) != ".svg" {
		return fmt.Errorf("--svg %s: its name must end in .svg", c.SVG)
	}
	return nil
}

// machineFlags are the parameters of machines that planes are refined by. 0: the usual ones.
type machineFlags struct {
	MachineMu      float64 `placeholder:"MU" help:"Parameter μ of --refine minimal (128), features (0.25) and unlabelled (as much as makes the rows without a label weigh half of those with one): a larger one uses fewer support vectors and points of a kernel, fewer features, or heeds rows without a label more."`
	MachineEpsilon float64 `placeholder:"EPSILON" help:"Parameter ε of --refine nlp (0.1): below some ε the planes are those of sparse, and a larger one shrinks them."`
	MachineDelta   float64 `placeholder:"DELTA" help:"Parameter δ of --refine nlp (1e-5), which damps its Newton steps."`
	Tolerance      float64 `placeholder:"TOLERANCE" help:"Violation of the optimality conditions that the support vector machine of a full kernel may end with (0.001, as in LIBSVM). The report says how far from the minimum it may be."`
}

// sumsFlags keep exact sums from one run to the next.
type sumsFlags struct {
	Sums   string `placeholder:"FILE" help:"Add the rows to the exact sums in this file, which is made if it is missing, and learn from all rows that it has. Each row is a summand of its own, so the sums depend on the set of the rows alone, bit for bit, and not on the files and the order that they came in. Planes are read off sums: settings that no flag gives are those of --plain. Accuracies are of the rows of this run."`
	Forget bool   `help:"Take the rows out of --sums: the planes are, bit for bit, those that never saw them. The rows must have the same numbers, labels and weights. Sums do not list their rows: of rows that were never added, only some are found out."`
}

// checkSums refuses what takes rows beside --sums.
func (c *fitCmd) checkSums(want *fit.Settings) error {
	m := &want.Model
	switch {
	case c.Sums == "" && c.Forget:
		return errors.New("--forget: goes with --sums")
	case c.Sums == "":
		return nil
	case c.BlockRows != nil || c.LOO || c.EpsilonSV != nil || c.Progressive || c.Kernel != config.KernelNone || c.Knowledge != "":
		return errors.New("--sums: does not go with --block-rows, --loo, --epsilon-sv, --progressive, --kernel and --knowledge, which take the rows themselves")
	case m.Folds > 0 || m.Nu == config.NuAuto || m.Standardise == config.SwitchAuto || m.Balanced == config.SwitchAuto || m.Refine != config.RefineNone:
		return errors.New("--sums: does not go with --folds, choices by them (auto) and --refine, which take the rows themselves")
	}
	return nil
}

// knowledgeFlags ask for planes by rules and rows.
type knowledgeFlags struct {
	Knowledge string   `placeholder:"FILE" help:"Learn from rules, too: a YAML file that says of which class rows are. rules: [{when: tumor >= 4 and lymph >= 5, then: recur}] has comparisons that are linear in the features, and each rule may have a name and a weight. within: [0, 1] bounds the features that a rule does not name; one-of: [[red, green, blue]] lists features of which one is 1. The planes are those of the 1-norm SVM with these knowledge sets, by a program of all rows, in memory. With --nu 0 they are those of the rules alone. With --block-rows they have the squared loss of a daemon with model.knowledge, and with --refine sparse, too, the errors of the rows of the --sample."`
	Mu        autoFlag `placeholder:"MU" help:"Weight of the rules' slack against the size of the plane. At 1 and less, a rule that leaves features without bounds may cost less than a plane. auto, with --nu auto, tries 0.01 to 10000 and takes the one that classifies best over the folds. (default: 10)"`
}

// checkKnowledge refuses what no daemon has, and what a daemon alone has.
func (c *fitCmd) checkKnowledge() error {
	switch {
	case c.Knowledge == "" && c.Nu.zero:
		return errors.New("--nu 0: goes with --knowledge, since nothing is learned from the rows")
	case c.Knowledge == "":
		return nil
	case c.Refine == config.RefineSparse && c.BlockRows == nil:
		return errors.New("--knowledge: has the planes of --refine sparse with rules, unless --block-rows asks for those of a daemon")
	case c.LOO || c.EpsilonSV != nil:
		return errors.New("--knowledge: does not go with --loo and --epsilon-sv, which are of solved planes")
	case c.BlockRows == nil && c.Regulariser == config.RegulariserKernel:
		return errors.New("--knowledge: goes with --regulariser identity")
	case c.BlockRows != nil && c.Nu.zero:
		return errors.New("--knowledge: with --block-rows, as in a daemon, it does not go with --nu 0")
	}
	return nil
}

// decisionFlags choose the rule of labels, as model.calibration, model.decision and model.costs
// do.
type decisionFlags struct {
	Calibration config.Calibration `enum:"auto,platt,isotonic,softmax,temperature,none" default:"auto" placeholder:"CURVE" help:"Curve from values to probabilities, fitted over the --folds: ${enum}. auto is the best of platt, isotonic, given 1000 rows, and softmax, of all planes together, given 3 to 16 classes. With more classes it is temperature, one scale of all values. No curve is fitted to fewer than 30 held-out rows of a class."`
	Decision    config.Decision    `enum:"probability,value,cost" default:"probability" placeholder:"RULE" help:"Rule of labels: the largest probability, given a calibration, the largest value, or the least expected cost. Accuracies are by this rule, over the folds by one that has not seen the fold."`
	Costs       map[string]float64 `mapsep:"," placeholder:"A>B=10" help:"Costs of wrong answers: here 10 for a row of class A that is labelled B. Others cost 1. Goes with --decision cost."`
}

// given is the value of a flag, or its default.
func given[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

// autoFlag is a positive number or auto. The zero value was not given.
type autoFlag struct {
	value float64
	auto  bool
}

// or is the weight that the flag gives, or another one.
func (f *autoFlag) or(otherwise config.Nu) config.Nu {
	if f.auto {
		return config.NuAuto
	}
	return cmp.Or(config.Nu(f.value), otherwise)
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
