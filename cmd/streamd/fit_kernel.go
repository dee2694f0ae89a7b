package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/kernels"
	"streamd/kernels/reduce"
	"streamd/kernels/width"
)

// kernelFlags ask for a nonlinear classifier.
type kernelFlags struct {
	Kernel      string             `placeholder:"K" help:"Learn in the coordinates K(x, Z) of a basis Z: linear, gaussian, polynomial for (gamma x·z + 1)^3, sigmoid for tanh(gamma x·z), or a kernel in full, such as polynomial(a=1,b=1,degree=2). With --standardise the features are scaled before they get to the kernel."`
	Gamma       autoFlag           `placeholder:"VALUE" help:"The kernel's gamma. auto is, of the Gaussian, what classifies held-out rows of the sample best, of powers of four times the median heuristic and of twice and half the best of them; of the others 1 over the number of features. (default: auto)"`
	Basis       *int               `placeholder:"T" help:"Points of the basis, at most. (default: 50)"`
	Reduce      string             `placeholder:"HOW" help:"How the basis is chosen: cs (chunking-synthetic), kmeans or kmedian (centres of each class), stratified or random (rows), none (all rows, of a small file). (default: kmeans)"`
	Regulariser config.Regulariser `placeholder:"R" help:"What is small beside the errors: identity for the coefficients themselves, kernel for u'K(Z,Z)u. (default: identity)"`
	Sample      *int               `placeholder:"ROWS" help:"Rows, taken at random, that the basis, gamma and the scaling are chosen from. (default: 10000)"`
}

const (
	defaultBasis  = 50
	defaultSample = 10_000
	defaultReduce = "kmeans"
	maxBasis      = 4096
	maxSample     = 1 << 20
	// maxFull is the most rows that --reduce none takes: solving for them is
	// cubic.
	maxFull = 2000
)

func (c *kernelFlags) check() error {
	if c.Kernel == "" {
		if *c != (kernelFlags{}) {
			return errors.New("--gamma, --basis, --reduce, --regulariser and --sample go with --kernel")
		}
		return nil
	}
	if err := anyOf("--reduce", c.Reduce, append(reduce.Names(), "none")...); err != nil {
		return err
	}
	if err := anyOf("--regulariser", string(c.Regulariser), string(config.RegulariserIdentity), string(config.RegulariserKernel)); err != nil {
		return err
	}
	if c.Basis != nil && (*c.Basis < 1 || *c.Basis > maxBasis) {
		return fmt.Errorf("--basis %d: must be 1 to %d", *c.Basis, maxBasis)
	}
	if c.Basis != nil && c.Reduce == "none" {
		return errors.New("--basis: with --reduce none every row is a point of the basis")
	}
	if c.Sample != nil && (*c.Sample < 1 || *c.Sample > maxSample) {
		return fmt.Errorf("--sample %d: must be 1 to %d", *c.Sample, maxSample)
	}
	if c.Sample != nil && c.Reduce == "none" {
		return errors.New("--sample: with --reduce none all rows are looked at")
	}
	if strings.Contains(c.Kernel, "(") && c.Gamma != (autoFlag{}) {
		return fmt.Errorf("--gamma: %s has all its parameters", c.Kernel)
	}
	if c.Kernel == "linear" && c.Gamma != (autoFlag{}) {
		return errors.New("--gamma: the linear kernel has none")
	}
	kernel, err := c.kernel(1, 1)
	if err != nil {
		return fmt.Errorf("--kernel: %w", err)
	}
	if c.Regulariser == config.RegulariserKernel && !kernel.Semidefinite() {
		return fmt.Errorf("--regulariser kernel: %s is not positive semidefinite", c.Kernel)
	}
	return nil
}

// anyOf says what is wrong with the value of a flag that may also be left out.
func anyOf(flag, value string, values ...string) error {
	if value != "" && !slices.Contains(values, value) {
		return fmt.Errorf("%s %s: must be one of %s", flag, value, strings.Join(values, ", "))
	}
	return nil
}

// given is the value of a flag, or what it is by default.
func given(value *int, otherwise int) int {
	if value == nil {
		return otherwise
	}
	return *value
}

// kernel is the kernel for n features, with this γ if it is a Gaussian without.
func (c *kernelFlags) kernel(n int, gamma float64) (kernels.Kernel, error) {
	a := 1 / float64(n)
	if c.Gamma.value > 0 {
		a, gamma = c.Gamma.value, c.Gamma.value
	}
	switch c.Kernel {
	case "gaussian":
		return kernels.Gaussian(gamma)
	case "polynomial":
		return kernels.Polynomial(a, 1, 3)
	case "sigmoid":
		return kernels.Sigmoid(a, 0)
	}
	return kernels.Parse(c.Kernel)
}

// searched says whether γ is to be looked for.
func (c *kernelFlags) searched() bool { return c.Kernel == "gaussian" && c.Gamma.value == 0 }

// advise adds what helps when K(Z, Z), as a regulariser, is singular.
func (c *kernelFlags) advise(err error) error {
	if condition := (*incremental.ConditionError)(nil); c.Regulariser == config.RegulariserKernel && errors.As(err, &condition) {
		return fmt.Errorf("%w; here also: a basis of fewer points, a larger gamma, or --regulariser identity", err)
	}
	return err
}

// basisReport is how the basis was chosen.
type basisReport struct {
	Method  string        `json:"method"`
	Sample  int           `json:"sample"` // rows
	Gammas  []model.Gamma `json:"gammas,omitempty"`
	Stages  []model.Stage `json:"stages,omitempty"`
	Seconds float64       `json:"seconds"` // the bases of the folds included
}

func (r *basisReport) print(p *table, b *model.BasisJSON) {
	p.row("kernel", b.Kernel.String())
	scaled := ""
	if b.Scale != nil {
		scaled = ", of scaled features"
	}
	how := fmt.Sprintf("by %s of %s", r.Method, counted(r.Sample, "row"))
	if r.Method == "none" {
		how = "all rows"
	}
	p.row("basis", fmt.Sprintf("%s, %s%s, in %.3g s", counted(len(b.Points), "point"), how, scaled, r.Seconds))
	p.row("regulariser", string(b.Regulariser))
	for i := range r.Gammas {
		p.gamma(&r.Gammas[i])
	}
	for i := range r.Stages {
		p.row("  stage", describeStage(&r.Stages[i]))
	}
}

func (t *table) gamma(g *model.Gamma) {
	t.row(fmt.Sprintf("  gamma %.4g", g.Gamma), fmt.Sprintf("%s of held-out rows are right, at nu %g", percent(g.Correctness), g.Nu))
}

// describeStage says what came of a stage of the reduction.
func describeStage(s *model.Stage) string {
	points := fmt.Sprintf("%.4g points", s.Points) // their mean, perhaps
	if s.Points == 1 {
		points = "1 point"
	}
	text := fmt.Sprintf("class %s, stage %d: %s, %s of nonzero weight, ", s.Class, s.Stage, counted(s.Rows, "row"), points)
	if s.Testing > 0 {
		return text + percent(s.Testing) + " of other rows right"
	}
	return text + percent(s.Training) + " right"
}

// coordinates are what rows are summed in: the features, or K(x, Z).
type coordinates struct {
	features    []string // of the rows
	names       []string
	basis       *kernels.Map // nil: the features
	regulariser []float64    // nil: I
	workers     []entrance
}

// entrance is one worker's way into coordinates.
type entrance struct {
	mapper  *kernels.Mapper
	block   incremental.Block
	columns []gram.Column
	zeros   []float64
}

func newCoordinates(features []string, basis *kernels.Map) *coordinates {
	c := &coordinates{features: features, names: features, basis: basis, workers: make([]entrance, workers())}
	if basis != nil {
		c.names = model.Coordinates(basis.Points())
		for i := range c.workers {
			c.workers[i].mapper = kernels.NewMapper(basis)
		}
	}
	return c
}

// enter gives a block in the coordinates, until the worker's next call. Features
// that the block lacks, as LIBSVM files may, are zero, and more are ignored.
func (c *coordinates) enter(worker int, b *incremental.Block) *incremental.Block {
	e := &c.workers[worker]
	e.block = *b
	if n := len(c.features); len(b.Columns) != n {
		e.columns = append(e.columns[:0], b.Columns[:min(len(b.Columns), n)]...)
		if len(e.zeros) < b.Rows() {
			e.zeros = make([]float64, b.Rows())
		}
		for len(e.columns) < n {
			e.columns = append(e.columns, gram.ColumnOf(e.zeros[:b.Rows()]))
		}
		e.block.Columns = e.columns
	}
	e.block.Features = c.names
	if c.basis != nil {
		e.block.Columns = e.mapper.Map(e.block.Columns)
	}
	return &e.block
}

// moments are a state's sums with the coordinates' regulariser.
func (c *coordinates) moments(s *incremental.State) *incremental.Moments {
	if c.regulariser == nil {
		return s.Moments()
	}
	return s.Moments().WithRegulariser(c.regulariser)
}

// choose finds the coordinates of the model and, as a fold's model must not have
// seen its rows, those of each fold.
func (f *fit) choose(ctx context.Context, c *kernelFlags) (*basisReport, error) {
	began := time.Now()
	limit := given(c.Sample, defaultSample)
	if c.Reduce == "none" {
		limit = maxFull + 1
	}
	sample, err := sampleRows(ctx, f.s, f.data, limit, f.seed)
	if err != nil {
		return nil, err
	}
	if c.Reduce == "none" && sample.Rows() > maxFull {
		return nil, fmt.Errorf("learn from %s: --reduce none makes every row a point of the basis, and it has more than %d; take another --reduce", f.data.path, maxFull)
	}
	if len(sample.Classes) < 2 {
		return nil, fmt.Errorf("learn from %s: %w", f.data.path, incremental.ErrClasses)
	}
	r := &basisReport{Method: cmp.Or(c.Reduce, defaultReduce), Sample: sample.Rows()}
	gamma := 0.0
	if c.searched() {
		if gamma, r.Gammas, err = f.searchGamma(ctx, c, &sample.Block); err != nil {
			return nil, fmt.Errorf("choose gamma for %s: %w", f.data.path, err)
		}
	}
	if f.coordinates, r.Stages, err = f.reduce(ctx, c, &sample.Block, gamma, "choosing the basis"); err != nil {
		return nil, fmt.Errorf("choose a basis for %s: %w", f.data.path, err)
	}
	for fold := range f.folds {
		what := fmt.Sprintf("choosing the basis without fold %d of %d", fold+1, f.folds)
		held, _, err := f.reduce(ctx, c, sample.without(fold, newDealer(f.folds, f.seed)), gamma, what)
		if err != nil {
			return nil, fmt.Errorf("choose a basis for %s without fold %d of %d: %w", f.data.path, fold+1, f.folds, err)
		}
		f.foldCoordinates = append(f.foldCoordinates, held)
	}
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// reduce makes coordinates of a sample.
func (f *fit) reduce(ctx context.Context, c *kernelFlags, sample *incremental.Block, gamma float64, what string) (*coordinates, []model.Stage, error) {
	n := len(sample.Columns)
	kernel, err := c.kernel(n, gamma)
	if err != nil {
		return nil, nil, err
	}
	var mean, scale []float64
	if f.scaled {
		sample, mean, scale = scaled(sample)
	}
	var z []float64
	var stages []model.Stage
	if c.Reduce == "none" {
		z = make([]float64, 0, sample.Rows()*n)
		for i := range sample.Rows() {
			for _, column := range sample.Columns {
				z = append(z, column.At(i))
			}
		}
	} else {
		var state atomic.Pointer[string]
		begun := counted(sample.Rows(), "row")
		state.Store(&begun)
		stop := f.s.report(what, func() string { return *state.Load() })
		defer stop()
		points := given(c.Basis, defaultBasis)
		result, err := reduce.Named(cmp.Or(c.Reduce, defaultReduce), points).Reduce(ctx, &reduce.Problem{
			Columns: sample.Columns, Codes: sample.Codes, Classes: len(sample.Classes), Weights: sample.Weights,
			Kernel: kernel, Points: points, Seed: f.seed,
			Progress: func(s reduce.Stage) {
				stages = append(stages, model.NewStage(s, sample.Classes))
				line := describeStage(&stages[len(stages)-1])
				state.Store(&line)
			},
		})
		if err != nil {
			return nil, nil, err
		}
		if result.Interrupted {
			return nil, nil, ctx.Err()
		}
		z = result.Z
	}
	basis, err := kernels.NewMap(kernel, n, z)
	if err == nil && f.scaled {
		basis, err = basis.Scaled(mean, scale)
	}
	if err != nil {
		return nil, nil, err
	}
	made := newCoordinates(f.data.features, basis)
	if c.Regulariser == config.RegulariserKernel {
		made.regulariser = basis.Gram()
	}
	return made, stages, nil
}

const (
	gammaRows  = 2000 // of the sample that γ is searched on, at most
	gammaFolds = 5
	gammaBasis = 100 // points to judge γ on, at most, unless --basis says so
)

// searchGamma chooses γ by some rows of the sample, evenly spaced in the file. ν
// is the fit's, or the best of the grid for each γ where that is to be chosen,
// too.
func (f *fit) searchGamma(ctx context.Context, c *kernelFlags, sample *incremental.Block) (float64, []model.Gamma, error) {
	if f.scaled {
		sample, _, _ = scaled(sample)
	}
	some := make([]int, min(sample.Rows(), gammaRows))
	for i := range some {
		some[i] = i * sample.Rows() / len(some)
	}
	deal := newDealer(gammaFolds, f.seed)
	folds := make([][]int, gammaFolds)
	for i := range some {
		fold := deal.of(int64(i))
		folds[fold] = append(folds[fold], i)
	}
	var tried atomic.Int64
	stop := f.s.report("choosing gamma", func() string { return fmt.Sprintf("%d tried", tried.Load()) })
	defer stop()
	gamma, trials, err := width.Search(ctx, &width.Problem{
		Block: sample.Pick(some), Folds: folds, Options: f.options, Points: given(c.Basis, gammaBasis),
		Gram: c.Regulariser == config.RegulariserKernel, Tried: func() { tried.Add(1) },
	})
	return gamma, gammasOf(trials), err
}

func gammasOf(trials []width.Trial) (gammas []model.Gamma) {
	for _, t := range trials {
		gammas = append(gammas, model.Gamma(t))
	}
	return gammas
}
