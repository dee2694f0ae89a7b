package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

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

// mostFull is the most rows of a full kernel. Its time grows with their square, and with ν auto
// ten classes and ten folds of so many rows take half a gigabyte.
const mostFull = 50_000

// fullNus are the ν that are tried for a full kernel: 2^-5, 2^-3, … 2^15.
func fullNus() (nus []float64) {
	for exponent := -5; exponent <= 15; exponent += 2 {
		nus = append(nus, math.Ldexp(1, exponent))
	}
	return nus
}

// full says whether planes are those of the support vector machine of a full kernel. No sums of
// its coordinates, one for each row, are made.
func (c *fitCmd) full() bool {
	return c.Kernel != "" && c.Reduce == "none" && c.Refine == config.RefineHinge && c.Regulariser != config.RegulariserIdentity
}

// fullKernel learns planes of a full kernel.
type fullKernel struct {
	*fit
	flags  *kernelFlags
	kernel kernels.Kernel
	done   atomic.Int64 // fits
}

// learnFull makes the model of a full kernel, and the models without each fold, whose values of
// the fold's rows also choose ν.
func (c *fitCmd) learnFull(ctx context.Context, f *fit, r *fitReport) error {
	began := time.Now()
	from := f.data.path
	f.scaled, f.options.Standardise = f.options.Standardise, false
	err := f.sample(ctx, mostFull+1)
	if err == nil {
		f.sums, err = f.sum(ctx, nil, false)
	}
	if err != nil {
		return err
	}
	if f.rows.Rows() > mostFull {
		return fmt.Errorf("learn from %s: a full kernel takes at most %d rows; take another --reduce", from, mostFull)
	}
	if len(f.rows.Classes) < 2 {
		return fmt.Errorf("learn from %s: %w", from, incremental.ErrClasses)
	}
	if err := f.weighs(); err != nil {
		return err
	}
	r.Reduction = &basisReport{Method: c.Reduce, Sample: f.rows.Rows(), vectors: true}
	full := &fullKernel{fit: f, flags: &c.kernelFlags}
	full.kernel, err = c.kernel(len(f.rows.Columns), 1)
	if err == nil && c.searched() {
		full.kernel, err = f.searchGamma(ctx, &c.kernelFlags, c.Nu.auto, r.Reduction)
	}
	if err != nil {
		return fmt.Errorf("choose gamma for %s: %w", from, err)
	}
	nus := []float64{f.options.Nu}
	if c.Nu.auto {
		nus = fullNus()
	}
	stop := f.s.report("learning", func() string {
		return fmt.Sprintf("%d of %d fits", full.done.Load(), len(nus)*f.folds+1)
	})
	defer stop()
	fits, err := full.withoutFolds(ctx, nus)
	if err != nil {
		return err
	}
	best := 0
	if c.Nu.auto {
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
	r.Refinement = &refinementReport{Method: f.method.String(), Passes: 1, Planes: model.PlaneRefinements(&newton.Result{Model: f.model, Planes: reports})}
	if err := full.hold(ctx, best, fits); err != nil {
		return err
	}
	f.refining = study.Always
	r.Reduction.Seconds = time.Since(began).Seconds()
	return nil
}

// withoutFolds learns without each fold, for each ν: a list of fits for each fold, which is nil
// where the fold has no rows.
func (k *fullKernel) withoutFolds(ctx context.Context, nus []float64) ([][]*svm.FullFit, error) {
	fits := make([][]*svm.FullFit, k.folds)
	for fold := range fits {
		var err error
		if !slices.Contains(k.rows.fold, int32(fold)) {
			continue
		}
		if fits[fold], err = k.learn(ctx, fold, nus); err != nil {
			return nil, err
		}
	}
	return fits, nil
}

// learn learns without a fold, or from all rows for none. Without a fold the values are those of
// the fold's rows alone.
func (k *fullKernel) learn(ctx context.Context, without int, nus []float64) (fits []*svm.FullFit, err error) {
	p, err := k.problem(k.flags, without)
	if err == nil {
		rows := basis.Scaled(k.rows.Block, p.Mean, p.Sigma)
		err = svm.SMO{Kernel: k.kernel}.Classify(ctx, rows, func(i int) bool { return without != none && int(k.rows.fold[i]) == without },
			k.options, nus, func(fit *svm.FullFit) error {
				if without != none {
					k.forget(fit, without)
				}
				fits = append(fits, fit)
				k.done.Add(1)
				return nil
			})
	}
	switch {
	case err != nil && without != none:
		err = fmt.Errorf("learn from %s without fold %d of %d: %w", k.data.path, without+1, k.folds, err)
	case err != nil:
		err = fmt.Errorf("learn from %s: %w", k.data.path, err)
	}
	return fits, err
}

// forget leaves in a fit without a fold what is needed of it.
func (k *fullKernel) forget(fit *svm.FullFit, fold int) {
	var held []float64
	for i, of := range k.rows.fold {
		if int(of) == fold {
			held = append(held, fit.Values[i*len(fit.Planes):][:len(fit.Planes)]...)
		}
	}
	fit.Values = held
	for _, p := range fit.Planes {
		p.Alpha = nil
	}
}

// choose chooses the ν whose planes classify most held-out rows right, the smallest of several.
func (k *fullKernel) choose(nus []float64, fits [][]*svm.FullFit) (*tuningReport, int, error) {
	r := &tuningReport{Criterion: tuning.For(k.objective, true).String(), Method: k.method.String(), Balanced: k.options.Balanced}
	best := -1
	for i, nu := range nus {
		next := make([]int, k.folds) // numbers of the folds' rows
		right, weight := make([]float64, len(k.rows.Classes)), make([]float64, len(k.rows.Classes))
		for row, code := range k.rows.Codes {
			if of := fits[k.rows.fold[row]]; of != nil {
				weight[code] += k.rows.Weight(row)
				at := &next[k.rows.fold[row]]
				label := of[i].Classes[incremental.Decide(values(of[i], *at))]
				*at++
				if label == k.rows.Classes[code] {
					right[code] += k.rows.Weight(row)
				}
			}
		}
		var rights, weights, recalls, seen float64
		for class, w := range weight {
			if w > 0 {
				rights, weights, recalls, seen = rights+right[class], weights+w, recalls+right[class]/w, seen+1
			}
		}
		if seen == 0 {
			return nil, 0, tuning.ErrRows
		}
		correctness, balanced := rights/weights, recalls/seen
		r.Points = append(r.Points, model.TuningPoint{Nu: nu, Correctness: &correctness, BalancedCorrectness: &balanced})
		if of := k.objective.Of(correctness, balanced); best < 0 || of > r.Best {
			r.Best, r.Nu, best = of, nu, i
		}
	}
	for _, of := range fits {
		if of != nil {
			r.Folds++
		}
	}
	r.Curves = []model.TuningCurve{{Method: r.Method, Balanced: r.Balanced, Rows: int64(k.rows.Rows()), Points: r.Points}}
	return r, best, nil
}

// values are those of one of the rows.
func values(fit *svm.FullFit, row int) []float64 {
	planes := len(fit.Planes)
	return fit.Values[row*planes:][:planes]
}

// hold keeps the models without each fold, and the values of its rows by them.
func (k *fullKernel) hold(ctx context.Context, nu int, fits [][]*svm.FullFit) (err error) {
	k.foldModels, k.foldIn = make([]*incremental.Model, k.folds), make([]*basis.Coordinates, k.folds)
	if k.folds == 0 {
		return nil
	}
	planes := len(k.model.Planes)
	held, of := make([]float64, k.rows.Rows()*planes), make([]int, k.rows.Rows())
	next := make([]int, k.folds)
	for row, fold := range k.rows.fold {
		of[row] = none
		if fit := fits[fold]; fit != nil && slices.Equal(fit[nu].Classes, k.model.Classes) {
			of[row] = int(fold)
			copy(held[row*planes:], values(fit[nu], next[fold]))
			next[fold]++
		}
	}
	k.held = study.NewHeldOut(k.model, k.rows.Block, of, held)
	for fold, fit := range fits {
		if fit != nil {
			if k.foldModels[fold], k.foldIn[fold], _, err = k.modelOf(ctx, fold, fit[nu]); err != nil {
				return err
			}
		}
	}
	return nil
}

// modelOf returns the model of a fit, in the coordinates of its support vectors.
func (k *fullKernel) modelOf(ctx context.Context, without int, fit *svm.FullFit) (*incremental.Model, *basis.Coordinates, []newton.Report, error) {
	p, err := k.problem(k.flags, without)
	if err != nil {
		return nil, nil, nil, err
	}
	rows := basis.Scaled(k.rows.Block, p.Mean, p.Sigma)
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
	m, err := kernels.NewMap(k.kernel, len(rows.Columns), z)
	if err == nil && p.Mean != nil {
		m, err = m.Scaled(p.Mean, p.Sigma)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	in := basis.New(m, false)
	out := &incremental.Model{Features: in.Names, Classes: fit.Classes, Rows: make([]int64, len(fit.Classes)), Options: k.options}
	out.Options.Nu = fit.Nu
	counted := k.rows.without(without)
	for i, class := range counted.ClassesIn(fit.Classes) {
		for _, code := range counted.Codes {
			if class >= 0 && int(code) == i {
				out.Rows[class]++
			}
		}
	}
	if out.Mean, err = means(ctx, counted.Block, in); err != nil {
		return nil, nil, nil, err
	}
	var reports []newton.Report
	for i, plane := range fit.Planes {
		class := fit.Classes[i]
		if len(fit.Planes) == 1 {
			class = fit.Classes[1]
		}
		w := make([]float64, len(used))
		for j, row := range used {
			w[j] = plane.W[row]
		}
		out.Planes = append(out.Planes, incremental.Plane{Class: class, W: w, Gamma: plane.Gamma, Condition: math.NaN()})
		vectors := plane.SupportVectors() // 0 without a fold, which has no report
		reports = append(reports, newton.Report{
			Class: class, Objective: plane.Objective, Gradient: math.NaN(), Gap: plane.Gap, Programs: plane.Programs, Iterations: plane.Steps,
			SupportVectors: int64(vectors), LeaveOneOut: float64(vectors) / float64(counted.Rows()),
		})
	}
	return out, in, reports, nil
}

// means are the weighted means of coordinates.
func means(ctx context.Context, b *incremental.Block, in *basis.Coordinates) ([]float64, error) {
	const piece = 1024
	out := make([]float64, len(in.Names))
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
				out[j] += part.Weight(i) * c.At(i)
			}
		}
	}
	for j := range out {
		out[j] /= weight
	}
	return out, nil
}
