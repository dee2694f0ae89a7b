package fit

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/dataset"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/newton"
	"streamd/incremental/study"
	"streamd/incremental/tuning"
	"streamd/kernels"
	"streamd/kernels/basis"
	"streamd/kernels/svm"
)

// byRows learns planes from rows in memory, without sums of them: those of a full kernel, or of a
// machine in more features than sums are made of.
type byRows struct {
	*fit
	machine svm.Machine
	kernel  *kernels.Kernel // of a full kernel; nil: planes are in the features
	done    atomic.Int64    // fits
}

// withoutZeros says whether the machine keeps zeros of the rows out of memory.
func (b *byRows) withoutZeros() bool {
	switch b.machine.(type) {
	case svm.NewtonLP, svm.Sparse:
		return true
	case svm.Hinge: // by the kernel matrix of the rows
		return b.data.Wide() && !b.scaled && kernels.Sparse(b.rows.Columns)
	}
	return false
}

// mostFull is the most rows of a full kernel. Its time grows with their square, and with ν auto
// ten classes and ten folds of so many rows take half a gigabyte.
const mostFull = 50_000

// nus are the ν that are tried: 2^-5, 2^-3, … 2^15, and 2^-10, 2^-8, … 2^6 where the size of a
// plane is its 1-norm.
func (b *byRows) nus() (nus []float64) {
	low, high := -5, 15
	switch b.machine.(type) {
	case svm.NewtonLP, svm.Sparse:
		low, high = -10, 6
	}
	for exponent := low; exponent <= high; exponent += 2 {
		nus = append(nus, math.Ldexp(1, exponent))
	}
	return nus
}

// Limits of rows in memory: rows of planes in features, and numbers of those that are not sparse.
const (
	mostRead  = 1 << 20
	mostDense = 1 << 28
)

// checkWide refuses what needs sums of the features, where there are too many.
func (f *fit) checkWide() error {
	if !f.data.Wide() {
		return nil
	}
	m, kernel, again := &f.want.Model, f.want.Kernel.Function != config.KernelNone, f.want.LOO || f.want.EpsilonSV > 0
	var reason string
	switch {
	case f.want.BlockRows > 0:
		reason = "--block-rows, as in a daemon, needs sums"
	case m.Knowledge != "":
		reason = "--knowledge needs sums"
	case kernel && (again || len(f.options.Mean) == 0):
		return nil // whose sums are those of the coordinates
	case again:
		reason = "--loo and --epsilon-sv need sums"
	case len(f.options.Mean) > 0:
		reason = "--missing mean needs sums"
	case m.Standardise == config.SwitchAuto || m.Balanced == config.SwitchAuto:
		reason = "auto for --standardise and --balanced needs sums"
	case !slices.Contains(sumless, m.Refine):
		reason = fmt.Sprintf("the planes of --method %s and --refine %s need sums", m.Method, m.Refine)
	default:
		return nil
	}
	return fmt.Errorf("learn from %s: it has %d features, and %s, of %d at most; --refine nlp, sparse, hinge or full and --kernel need none", f.data.Path, len(f.data.Features), reason, dataset.MostSummed)
}

// sumless are the machines that learn from rows alone.
var sumless = []config.Refine{config.RefineNLP, config.RefineSparse, config.RefineHinge, config.RefineFull}

// learnRows makes the model of all rows, and the models without each fold, whose values of the
// fold's rows also choose ν.
func (f *fit) learnRows(ctx context.Context, r *Report) (err error) {
	began := time.Now()
	from := f.data.Path
	most := mostRead
	if f.scaled = f.options.Standardise; f.want.Full() {
		most, f.options.Standardise = mostFull, false
	}
	if f.rows, err = f.sample(ctx, most+1); err != nil {
		return err
	}
	summed, err := f.data.Sum(ctx)
	if err != nil {
		return err
	}
	f.sums = &sums{whole: summed, dealt: summed}
	if f.rows.Rows() > most {
		return fmt.Errorf("learn from %s: it has more than %d rows, the most for planes that need no sums", from, most)
	}
	if len(f.rows.Classes) < 2 {
		return fmt.Errorf("learn from %s: %w", from, incremental.ErrClasses)
	}
	if err := f.weighs(); err != nil {
		return err
	}
	full := &byRows{fit: f}
	if f.want.Full() {
		r.Reduction = &Reduction{Method: string(f.want.Kernel.Reduce), Sample: f.rows.Rows()}
		kernel, auto := f.want.Kernel.Function.Kernel(len(f.rows.Columns))
		if auto {
			if kernel, err = f.searchGamma(ctx, full.judge(), r.Reduction); err != nil {
				return fmt.Errorf("choose gamma for %s: %w", from, err)
			}
		}
		full.kernel, full.machine = &kernel, svm.SMO{Kernel: kernel, Tolerance: f.want.Tolerance}
	} else if machine, ok := svm.Named(string(f.want.Model.Refine), f.want.machine()); ok {
		full.machine = machine
	} else {
		full.machine = svm.Squared{}
	}
	if n := int64(len(f.rows.Columns)) * int64(f.rows.Rows()); n > mostDense && !full.withoutZeros() {
		return fmt.Errorf("learn from %s: %d rows of %d features do not fit into %d GiB; --refine nlp and sparse keep zeros out of memory, and so does hinge where one number in %d is not 0, without --standardise", from, f.rows.Rows(), len(f.rows.Columns), mostDense*8>>30, kernels.SparseShare)
	}
	nus := []float64{f.options.Nu}
	if f.tunes() {
		nus = full.nus()
	}
	stop := f.steps("learning", func() string {
		return fmt.Sprintf("%d of %d fits", full.done.Load(), len(nus)*f.folds+1)
	})
	defer stop()
	fits, err := full.withoutFolds(ctx, nus)
	if err != nil {
		return err
	}
	best := 0
	if f.tunes() {
		if r.Tuning, best, err = full.choose(nus, fits); err != nil {
			return err
		}
		f.options.Nu = nus[best]
	}
	whole, err := full.learn(ctx, none, []float64{f.options.Nu})
	if err != nil {
		return err
	}
	var reports []newton.Report
	if f.model, f.in, reports, err = full.modelOf(ctx, none, whole[0]); err != nil {
		return err
	}
	r.Refinement = &Refinement{Method: f.method.String(), Passes: 1, Planes: model.PlaneRefinements(&newton.Result{Model: f.model, Planes: reports})}
	if f.want.Full() {
		r.Refinement.Tolerance = cmp.Or(f.want.Tolerance, svm.DefaultTolerance)
	}
	if err := full.hold(ctx, best, fits); err != nil {
		return err
	}
	f.refining = study.Always
	if r.Reduction != nil {
		r.Reduction.Seconds = time.Since(began).Seconds()
	}
	return nil
}

// scale returns the means and the deviations that features are scaled by without a fold, nil if
// they are not.
func (b *byRows) scale(without int) (mean, sigma []float64, err error) {
	if !b.scaled {
		return nil, nil, nil
	}
	return basis.Scale(b.rows.without(without).Block)
}

// withoutFolds learns without each fold, for each ν: a list of fits for each fold, which is nil
// where the fold has no rows.
func (b *byRows) withoutFolds(ctx context.Context, nus []float64) ([][]*svm.Fit, error) {
	fits := make([][]*svm.Fit, b.folds)
	for fold := range fits {
		var err error
		if !slices.Contains(b.rows.fold, int32(fold)) {
			continue
		}
		if fits[fold], err = b.learn(ctx, fold, nus); err != nil {
			return nil, err
		}
	}
	return fits, nil
}

// learn learns without a fold, or from all rows for none. Without a fold the values are those of
// the fold's rows alone.
func (b *byRows) learn(ctx context.Context, without int, nus []float64) (fits []*svm.Fit, err error) {
	mean, sigma, err := b.scale(without)
	if err == nil {
		rows := basis.Scaled(b.rows.Block, mean, sigma)
		err = svm.Classify(ctx, b.machine, rows, func(i int) bool { return without != none && int(b.rows.fold[i]) == without },
			b.options, nus, func(fit *svm.Fit) error {
				if without != none {
					b.forget(fit, without)
				}
				fits = append(fits, fit)
				b.done.Add(1)
				return nil
			})
	}
	switch {
	case err != nil && without != none:
		err = fmt.Errorf("learn from %s without fold %d of %d: %w", b.data.Path, without+1, b.folds, err)
	case err != nil:
		err = fmt.Errorf("learn from %s: %w", b.data.Path, err)
	}
	return fits, err
}

// forget leaves in a fit without a fold what is needed of it.
func (b *byRows) forget(fit *svm.Fit, fold int) {
	var held []float64
	for i, of := range b.rows.fold {
		if int(of) == fold {
			held = append(held, fit.Values[i*len(fit.Planes):][:len(fit.Planes)]...)
		}
	}
	fit.Values = held
	for _, p := range fit.Planes {
		p.Alpha = nil
	}
}

// judge judges γ as the machine itself does: by the ν, of every second one that is tried, whose
// planes classify most rows of the folds right. Those above 2^11 would take most of the time, and γ
// has its place along the same ridge without them.
func (b *byRows) judge() basis.Judge {
	nus := []float64{b.options.Nu}
	if b.tunes() {
		nus = nil
		for i, nu := range b.nus() {
			if i%2 == 0 && nu <= 1<<11 {
				nus = append(nus, nu)
			}
		}
	}
	return func(ctx context.Context, kernel kernels.Kernel, rows *incremental.Block, folds [][]int) (best basis.Trial, err error) {
		answers := make([]answered, len(nus))
		for i := range answers {
			answers[i] = newAnswered(len(rows.Classes))
		}
		for _, fold := range folds {
			held := make([]bool, rows.Rows())
			for _, row := range fold {
				held[row] = true
			}
			next := 0
			if err := svm.Classify(ctx, svm.SMO{Kernel: kernel, Tolerance: b.want.Tolerance}, rows, func(i int) bool { return held[i] }, b.options, nus, func(fit *svm.Fit) error {
				for _, row := range fold {
					answers[next].add(rows, row, fit, row)
				}
				next++
				return nil
			}); err != nil {
				return best, err
			}
		}
		for i, a := range answers {
			correctness, balanced, ok := a.shares()
			if of := b.objective.Of(correctness, balanced); ok && (best.Nu == 0 || of > best.Correctness) {
				best = basis.Trial{Nu: nus[i], Correctness: of, Loss: a.loss / a.weights}
			}
		}
		if best.Nu == 0 {
			return best, tuning.ErrRows
		}
		return best, nil
	}
}

// answered counts answers about held-out rows.
type answered struct {
	right, weight []float64 // of each class
	loss, weights float64   // Σ (value ∓ 1)² over rows and planes, and the weights of these
}

func newAnswered(classes int) answered {
	return answered{right: make([]float64, classes), weight: make([]float64, classes)}
}

// add counts a row of a block, which has the values of row at of a fit.
func (a *answered) add(rows *incremental.Block, row int, fit *svm.Fit, at int) {
	code, weight, of := rows.Codes[row], rows.Weight(row), values(fit, at)
	a.weight[code] += weight
	if fit.Classes[incremental.Decide(of)] == rows.Classes[code] {
		a.right[code] += weight
	}
	for p, v := range of {
		d := -1.0
		if classOf(fit, p) == rows.Classes[code] {
			d = 1
		}
		a.loss += float64(weight * (v - d) * (v - d))
		a.weights += weight
	}
}

// shares are the share of the rows that were right, and the mean of the classes' shares. ok is
// false where no row weighs anything.
func (a *answered) shares() (correctness, balanced float64, ok bool) {
	var rights, weights, recalls, seen float64
	for class, w := range a.weight {
		if w > 0 {
			rights, weights, recalls, seen = rights+a.right[class], weights+w, recalls+a.right[class]/w, seen+1
		}
	}
	return rights / weights, recalls / seen, seen > 0
}

// choose chooses the ν whose planes classify most held-out rows right, the smallest of several.
func (b *byRows) choose(nus []float64, fits [][]*svm.Fit) (*model.Choice, int, error) {
	r := &model.Choice{Criterion: tuning.For(b.objective, true).String(), Method: b.method.String(), Balanced: b.options.Balanced}
	curve := model.TuningCurve{Method: r.Method, Balanced: r.Balanced, Rows: int64(b.rows.Rows())}
	best := -1
	for i, nu := range nus {
		next := make([]int, b.folds) // numbers of the folds' rows
		a := newAnswered(len(b.rows.Classes))
		for row := range b.rows.Codes {
			if of := fits[b.rows.fold[row]]; of != nil {
				at := &next[b.rows.fold[row]]
				a.add(b.rows.Block, row, of[i], *at)
				*at++
			}
		}
		correctness, balanced, ok := a.shares()
		if !ok {
			return nil, 0, tuning.ErrRows
		}
		curve.Points = append(curve.Points, model.TuningPoint{Nu: nu, Correctness: &correctness, BalancedCorrectness: &balanced})
		if of := b.objective.Of(correctness, balanced); best < 0 || of > r.Best {
			r.Best, r.Nu, best = of, nu, i
		}
	}
	for _, of := range fits {
		if of != nil {
			r.Folds++
		}
	}
	r.Curves = []model.TuningCurve{curve}
	return r, best, nil
}

// values are those of one of the rows.
func values(fit *svm.Fit, row int) []float64 {
	planes := len(fit.Planes)
	return fit.Values[row*planes:][:planes]
}

// hold keeps the models without each fold, and the values of its rows by them.
func (b *byRows) hold(ctx context.Context, nu int, fits [][]*svm.Fit) (err error) {
	if b.foldModels = make([]*incremental.Model, b.folds); b.folds == 0 {
		return nil
	}
	if b.kernel != nil {
		b.foldIn = make([]*basis.Coordinates, b.folds)
	}
	planes := len(b.model.Planes)
	held, of := make([]float64, b.rows.Rows()*planes), make([]int, b.rows.Rows())
	next := make([]int, b.folds)
	for row, fold := range b.rows.fold {
		of[row] = none
		if fit := fits[fold]; fit != nil && slices.Equal(fit[nu].Classes, b.model.Classes) {
			of[row] = int(fold)
			copy(held[row*planes:], values(fit[nu], next[fold]))
			next[fold]++
		}
	}
	b.held = study.NewHeldOut(b.model, b.rows.Block, of, held)
	for fold, fit := range fits {
		if fit != nil {
			m, in, _, err := b.modelOf(ctx, fold, fit[nu])
			if err != nil {
				return err
			}
			if b.foldModels[fold] = m; in != nil {
				b.foldIn[fold] = in
			}
		}
	}
	return nil
}

// modelOf returns the model of a fit, in the coordinates of its support vectors.
func (b *byRows) modelOf(ctx context.Context, without int, fit *svm.Fit) (*incremental.Model, *basis.Coordinates, []newton.Report, error) {
	mean, sigma, err := b.scale(without)
	if err != nil {
		return nil, nil, nil, err
	}
	out := b.count(without, fit)
	if b.kernel == nil {
		if without == none { // others say nothing of it
			if out.Mean, err = means(ctx, b.rows.Block, nil); err != nil {
				return nil, nil, nil, err
			}
		}
		return b.inFeatures(out, fit, mean, sigma), nil, b.reports(fit), nil
	}
	rows := basis.Scaled(b.rows.Block, mean, sigma)
	var used []int
	var z []float64
	for i := range rows.Rows() {
		if slices.ContainsFunc(fit.Planes, func(p *svm.Plane) bool { return p.W[i] != 0 }) {
			used = append(used, i)
			for _, c := range rows.Columns {
				z = append(z, c.At(i))
			}
		}
	}
	m, err := kernels.NewMap(*b.kernel, len(rows.Columns), z)
	if err == nil && mean != nil {
		m, err = m.Scaled(mean, sigma)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	in := basis.New(m, false)
	out.Features = in.Names
	if out.Mean, err = means(ctx, b.rows.without(without).Block, in); err != nil {
		return nil, nil, nil, err
	}
	for i, plane := range fit.Planes {
		w := make([]float64, len(used))
		for j, row := range used {
			w[j] = plane.W[row]
		}
		out.Planes = append(out.Planes, incremental.Plane{Class: classOf(fit, i), W: w, Gamma: plane.Gamma, Condition: math.NaN()})
	}
	return out, in, b.reports(fit), nil
}

// classOf is the class of a plane.
func classOf(fit *svm.Fit, plane int) string {
	if len(fit.Planes) == 1 {
		return fit.Classes[1]
	}
	return fit.Classes[plane]
}

// count is a model with the numbers of rows, without planes.
func (b *byRows) count(without int, fit *svm.Fit) *incremental.Model {
	out := &incremental.Model{Classes: fit.Classes, Rows: make([]int64, len(fit.Classes)), Options: b.options}
	out.Options.Nu = fit.Nu
	at := b.rows.ClassesIn(fit.Classes)
	for i, code := range b.rows.Codes {
		if class := at[code]; class >= 0 && (without == none || int(b.rows.fold[i]) != without) {
			out.Rows[class]++
		}
	}
	return out
}

// inFeatures adds planes in the features, of rows that were scaled or not.
func (b *byRows) inFeatures(out *incremental.Model, fit *svm.Fit, mean, sigma []float64) *incremental.Model {
	out.Features = b.data.Features
	for i, plane := range fit.Planes {
		p := incremental.Plane{Class: classOf(fit, i), W: slices.Clone(plane.W), Gamma: plane.Gamma, Condition: math.NaN()}
		for j := range mean { // leave the coordinates (x − μ)/σ
			p.W[j] /= sigma[j]
			p.Gamma += float64(p.W[j] * mean[j])
		}
		out.Planes = append(out.Planes, p)
	}
	return out
}

// reports are those of the programs of all rows.
func (b *byRows) reports(fit *svm.Fit) (reports []newton.Report) {
	rows := b.rows.Rows()
	for i, plane := range fit.Planes {
		vectors := plane.SupportVectors() // 0 without a fold, which has no report
		reports = append(reports, newton.Report{
			Class: classOf(fit, i), Objective: plane.Objective, Gradient: math.NaN(), Gap: plane.Gap, Programs: plane.Programs, Iterations: plane.Steps,
			SupportVectors: int64(vectors), LeaveOneOut: float64(vectors) / float64(rows),
		})
	}
	return reports
}

// means are the weighted means of coordinates, or of the features for nil.
func means(ctx context.Context, b *incremental.Block, in *basis.Coordinates) ([]float64, error) {
	const piece = 1024
	out := make([]float64, len(b.Columns))
	if in != nil {
		out = make([]float64, len(in.Names))
	}
	var lifter basis.Lifter
	var weight float64
	for from := 0; from < b.Rows(); from += piece {
		part, err := lifter.Block(ctx, b.Slice(from, min(from+piece, b.Rows())), in)
		if err != nil {
			return nil, err
		}
		for i := range part.Rows() {
			weight += part.Weight(i)
		}
		for j, c := range part.Columns {
			for i := range part.Rows() {
				out[j] += float64(part.Weight(i) * c.At(i))
			}
		}
	}
	for j := range out {
		out[j] /= weight
	}
	return out, nil
}
