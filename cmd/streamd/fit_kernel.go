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

	"streamd/cmd/streamd/dataset"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/kernels"
	"streamd/kernels/basis"
	"streamd/kernels/reduce"
)

// kernelFlags ask for a nonlinear classifier.
type kernelFlags struct {
	Kernel      config.Function    `default:"none" placeholder:"K" help:"Learn in the coordinates K(x, Z) of a basis Z: linear, gaussian, whose gamma is chosen, polynomial for (x·z/n + 1)^3 of n features, sigmoid for tanh(x·z/n), or a kernel in full, such as gaussian(gamma=0.5) or polynomial(a=1,b=1,degree=2). The chosen gamma is the one that classifies held-out rows of the sample best, of powers of four times the median heuristic, then twice and half the best of them. With --standardise the features are scaled before they get to the kernel."`
	Basis       *int               `placeholder:"T" help:"Points of the basis, at most; with eigen its coordinates. (default: 50)"`
	Reduce      string             `placeholder:"HOW" help:"How the basis is chosen: kmeans or kmedian (centres of each class); stratified, random, lda (forward selection) or cholesky (independent rows) for rows; eigen (leading eigenvectors of 1000 rows); cs (chunking-synthetic), slmc (sparse large margin), rs (reduced set) or skfd (sparse Fisher) for points that need not be rows; none (all rows, of a small file; with --refine hinge those that are support vectors, of up to 50,000 rows). With settings where they are wanted, such as cs(nu=6) or slmc(nu=10): see kernels/README.md. auto compares all but none, each with T, T/2, T/4, … points, by proximal planes on held-out rows of the --folds, at most 2000 of the sample, and takes the fewest points that are no more than one standard error behind the best, neither in correctness nor in squared loss. (default: kmeans)"`
	ReduceTime  *time.Duration     `placeholder:"TIME" help:"Longest time that --reduce auto compares bases for, in equal shares for the reducers. Then it takes the best so far. (default: 10m)"`
	SVG         string             `name:"svg" placeholder:"FILE" help:"Draw the correctness of the bases that --reduce auto compares against their size."`
	Regulariser config.Regulariser `enum:",identity,kernel" default:"" placeholder:"R" help:"Quantity to keep small beside the errors: identity for the coefficients, kernel for u'K(Z,Z)u. (default: identity; kernel with --reduce none and --refine hinge)"`
	Sample      *int               `placeholder:"ROWS" help:"Rows, taken at random, that the basis, gamma and the scaling are chosen from, and nu for refined planes. (default: 10000; without a kernel 50000)"`
}

const (
	defaultBasis  = 50
	defaultSample = 10_000
	defaultRows   = 50_000 // of a sample without a kernel, like a daemon's
	defaultReduce = "kmeans"
	maxBasis      = 4096
	maxSample     = 1 << 20
	// maxFull is the most rows that --reduce none takes but for --refine hinge. A solve takes their
	// third power.
	maxFull = 2000
)

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
	if c.Basis != nil && c.Reduce == "none" {
		return errors.New("--basis: with --reduce none every row is a point of the basis")
	}
	if c.Sample != nil && c.Reduce == "none" {
		return errors.New("--sample: with --reduce none all rows are used")
	}
	return nil
}

// checkReduce refuses a reducer that there is not, and flags of auto without it.
func (c *kernelFlags) checkReduce() error {
	name, _, settings := strings.Cut(c.Reduce, "(")
	switch _, err := reduce.Parse(c.Reduce, 1); {
	case c.Reduce == "" || err == nil:
	case name != "none" && name != reduceAuto && !slices.Contains(reduce.Names(), name):
		return fmt.Errorf("--reduce %s: %w; none takes all rows, and auto compares the others", c.Reduce, err)
	case name != "none" && name != reduceAuto:
		return fmt.Errorf("--reduce %s: %w", c.Reduce, err)
	case settings:
		return fmt.Errorf("--reduce %s: %s has no settings", c.Reduce, name)
	}
	return c.checkAuto()
}

// given is the value of a flag, or its default.
func given[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

// sampled is the number of rows of the sample.
func (c *kernelFlags) sampled() int {
	switch {
	case c.Reduce == "none":
		return maxFull + 1 // so that more rows are noticed
	case c.Kernel == config.KernelNone:
		return given(c.Sample, defaultRows)
	}
	return given(c.Sample, defaultSample)
}

// advise adds a remedy to an error about a singular K(Z, Z) in the regulariser.
func (c *kernelFlags) advise(err error) error {
	if condition := (*incremental.ConditionError)(nil); c.Regulariser == config.RegulariserKernel && errors.As(err, &condition) {
		return fmt.Errorf("%w; here also: a basis of fewer points, a larger gamma, or --regulariser identity", err)
	}
	return err
}

// basisReport reports how the basis was chosen.
type basisReport struct {
	Method string        `json:"method"`
	Sample int           `json:"sample"` // rows
	Gammas []model.Gamma `json:"gammas,omitempty"`
	// Unjudged says why no γ was tried and the median heuristic's was taken.
	Unjudged string            `json:"gammas_absent,omitempty"`
	Compared *comparisonReport `json:"compared,omitempty"` // of auto
	Stages   []model.Stage     `json:"stages,omitempty"`
	Seconds  float64           `json:"seconds"` // with the bases of the folds

	vectors bool // the points are the support vectors of a full kernel
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
		switch {
		case r.vectors:
			how = fmt.Sprintf("the support vectors of %s", counted(r.Sample, "row"))
		case len(b.Points) < r.Sample:
			how = fmt.Sprintf("of %s, without those that repeat others", counted(r.Sample, "row"))
		}
	}
	p.row("basis", fmt.Sprintf("%s, %s%s, in %.3g s", describeBasis(b), how, scaled, r.Seconds))
	p.row("regulariser", string(b.Regulariser))
	for i := range r.Gammas {
		p.gamma(&r.Gammas[i])
	}
	if r.Unjudged != "" {
		p.row("  gamma", "by the median heuristic: "+r.Unjudged)
	}
	if r.Compared != nil {
		r.Compared.print(p)
	}
	for i := range r.Stages {
		p.row("  stage", describeStage(&r.Stages[i]))
	}
}

func (t *table) gamma(g *model.Gamma) {
	t.row(fmt.Sprintf("  gamma %.4g", g.Gamma), fmt.Sprintf("%s of held-out rows are right, at nu %g", percent(g.Correctness), g.Nu))
}

// describeStage describes a stage of the reduction.
func describeStage(s *model.Stage) string {
	weights := fmt.Sprintf("%.4g nonzero weights", s.Points) // perhaps a mean of several runs
	if s.Points == 1 {
		weights = "1 nonzero weight"
	}
	text := fmt.Sprintf("class %s, stage %d: %s, %s, ", s.Class, s.Stage, counted(s.Rows, "row"), weights)
	if s.Testing > 0 {
		return text + percent(s.Testing) + " of other rows right"
	}
	return text + percent(s.Training) + " right"
}

// choose finds the coordinates of the model, and others for the model without each fold,
// which must not have seen the fold's rows.
func (f *fit) choose(ctx context.Context, c *kernelFlags, tuned bool) (*basisReport, error) {
	began := time.Now()
	if f.blocks == nil {
		if err := f.sample(ctx, c.sampled()); err != nil {
			return nil, err
		}
	}
	if c.Reduce == "none" && f.rows.Rows() > maxFull {
		return nil, fmt.Errorf("learn from %s: --reduce none makes every row a point of the basis, and it has more than %d; take another --reduce", f.data.Path, maxFull)
	}
	if len(f.rows.Classes) < 2 {
		return nil, fmt.Errorf("learn from %s: %w", f.data.Path, incremental.ErrClasses)
	}
	r := &basisReport{Method: cmp.Or(c.Reduce, defaultReduce), Sample: f.rows.Rows()}
	auto, own := c.Reduce == reduceAuto, *c
	if c = &own; auto {
		c.Reduce = defaultReduce // of no account for γ
	}
	kernel, searched := c.Kernel.Kernel(len(f.rows.Columns))
	var err error
	if searched {
		if kernel, err = f.searchGamma(ctx, c, tuned, nil, r); err != nil {
			return nil, fmt.Errorf("choose gamma for %s: %w", f.data.Path, err)
		}
	}
	if err == nil && auto {
		if err := r.compare(ctx, f, c, kernel, tuned); err != nil {
			return nil, err
		}
	}
	if err == nil {
		f.in, r.Stages, err = f.reduce(ctx, c, kernel, none)
	}
	if err != nil {
		return nil, fmt.Errorf("choose a basis for %s: %w", f.data.Path, err)
	}
	for fold := range f.folds {
		var in *basis.Coordinates
		if f.blocks == nil || f.sums.folds[fold].Rows() > 0 {
			if in, _, err = f.reduce(ctx, c, kernel, fold); err != nil {
				return nil, fmt.Errorf("choose a basis for %s without fold %d of %d: %w", f.data.Path, fold+1, f.folds, err)
			}
		}
		f.foldIn = append(f.foldIn, in)
	}
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// sample takes a sample of up to so many rows, and deals them to the folds like all rows.
func (f *fit) sample(ctx context.Context, rows int) (err error) {
	if f.rows, err = f.draw(ctx, rows, false); err == nil && f.method.Unlabelled() {
		f.rows.unlabelled, err = f.draw(ctx, rows, true)
	}
	return err
}

// draw is sample of the rows with a label, or of those without.
func (f *fit) draw(ctx context.Context, rows int, unlabelled bool) (*rowSample, error) {
	s, err := f.data.Sample(ctx, rows, f.seed, unlabelled)
	if err != nil {
		return nil, err
	}
	drawn := &rowSample{Block: s.Block, order: s.Order}
	if f.folds > 0 {
		deal := dataset.NewDealer(f.folds, f.seed)
		for _, number := range s.Numbers {
			drawn.fold = append(drawn.fold, int32(deal.Of(number)))
		}
	}
	return drawn, nil
}

// problem has the sample without a fold, or all of it for none. Features are scaled by all
// rows where whole blocks are in the folds, and otherwise by the sample.
func (f *fit) problem(c *kernelFlags, without int) (*basis.Problem, error) {
	rows := f.rows.without(without)
	p := &basis.Problem{
		Rows: rows.Block, Order: rows.order, Totals: rows.totals, Seed: f.seed,
		Objective: f.objective, Gram: c.Regulariser == config.RegulariserKernel, Points: given(c.Basis, defaultBasis),
	}
	var err error
	if c.Reduce == "none" {
		p.Points = rows.Rows()
	} else if p.Reducer, err = reduce.Parse(cmp.Or(c.Reduce, defaultReduce), p.Points); err != nil {
		return nil, err
	}
	switch {
	case f.scaled && f.blocks == nil:
		p.Mean, p.Sigma, err = basis.Scale(rows.Block)
	case f.scaled && without != none:
		p.Mean, p.Sigma = f.sums.whole.Without(f.sums.folds[without]).Moments().Scale()
	case f.scaled:
		p.Mean, p.Sigma = f.sums.whole.Moments().Scale()
	}
	return p, err
}

// reduce makes coordinates from the sample without a fold, or from all of it for none.
func (f *fit) reduce(ctx context.Context, c *kernelFlags, kernel kernels.Kernel, without int) (*basis.Coordinates, []model.Stage, error) {
	p, err := f.problem(c, without)
	if err != nil {
		return nil, nil, err
	}
	var stages []model.Stage
	var state atomic.Pointer[string]
	begun := counted(p.Rows.Rows(), "row")
	state.Store(&begun)
	task := "choosing the basis"
	if without != none {
		task = fmt.Sprintf("choosing the basis without fold %d of %d", without+1, f.folds)
	} else {
		p.Progress = func(s reduce.Stage) {
			stages = append(stages, model.NewStage(s, p.Rows.Classes))
			line := describeStage(&stages[len(stages)-1])
			state.Store(&line)
		}
	}
	stop := f.s.report(task, func() string { return *state.Load() })
	defer stop()
	m, _, err := p.Choose(ctx, kernel)
	if err != nil {
		return nil, nil, err
	}
	return basis.New(m, p.Gram), stages, nil
}

// searchGamma chooses the γ of a Gaussian. Where ν is to be chosen, too, each γ has its own. judge
// is nil for proximal planes.
func (f *fit) searchGamma(ctx context.Context, c *kernelFlags, tuned bool, judge basis.Judge, r *basisReport) (k kernels.Kernel, err error) {
	p, err := f.problem(c, none)
	if err != nil {
		return k, err
	}
	if p.Planes = f.options; tuned {
		p.Planes.Nu = 0
	}
	p.Judge = judge
	var tried atomic.Int64
	p.Tried = func() { tried.Add(1) }
	stop := f.s.report("choosing gamma", func() string { return fmt.Sprintf("%d tried", tried.Load()) })
	defer stop()
	g, err := p.Gamma(ctx)
	if err != nil {
		return k, err
	}
	if r.Gammas = model.NewGammas(g.Trials); g.Unjudged != nil {
		r.Unjudged = g.Unjudged.Error()
	}
	return kernels.Gaussian(g.Gamma)
}
