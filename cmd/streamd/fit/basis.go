package fit

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/kernels"
	"streamd/kernels/basis"
	"streamd/kernels/reduce"
)

// firstReduce is the reducer that others are compared with.
const firstReduce config.Reduce = "kmeans"

// maxFull is the most rows that ReduceNone takes but for the machine of a full kernel. A solve
// takes their third power.
const maxFull = 2000

// sampled is the most rows of the sample.
func (f *fit) sampled() int {
	if f.want.Kernel.Reduce == ReduceNone {
		return maxFull + 1 // so that more rows are noticed
	}
	return f.want.Sample.Rows
}

// choose finds the coordinates of the model, and others for the model without each fold,
// which must not have seen the fold's rows.
func (f *fit) choose(ctx context.Context) (r *Reduction, err error) {
	began, k := time.Now(), &f.want.Kernel
	if f.blocks == nil {
		if f.rows, err = f.sample(ctx, f.sampled()); err != nil {
			return nil, err
		}
	}
	if k.Reduce == ReduceNone && f.rows.Rows() > maxFull {
		return nil, fmt.Errorf("learn from %s: --reduce none makes every row a point of the basis, and it has more than %d; take another --reduce", f.data.Path, maxFull)
	}
	if len(f.rows.Classes) < 2 {
		return nil, fmt.Errorf("learn from %s: %w", f.data.Path, incremental.ErrClasses)
	}
	r = &Reduction{Method: string(k.Reduce), Sample: f.rows.Rows()}
	auto := k.Reduce == ReduceAuto
	if auto {
		k.Reduce = firstReduce // of no account for γ
	}
	kernel, searched := k.Function.Kernel(len(f.rows.Columns))
	if searched {
		if kernel, err = f.searchGamma(ctx, nil, r); err != nil {
			return nil, fmt.Errorf("choose gamma for %s: %w", f.data.Path, err)
		}
	}
	if auto {
		if r.Compared, err = f.compare(ctx, kernel); err != nil {
			return nil, fmt.Errorf("compare bases for %s: %w", f.data.Path, err)
		}
		r.Method = string(k.Reduce)
	}
	if f.in, r.Stages, err = f.reduce(ctx, kernel, none); err != nil {
		return nil, fmt.Errorf("choose a basis for %s: %w", f.data.Path, err)
	}
	for fold := range f.folds {
		var in *basis.Coordinates
		if f.blocks == nil || f.sums.folds[fold].Rows() > 0 {
			if in, _, err = f.reduce(ctx, kernel, fold); err != nil {
				return nil, fmt.Errorf("choose a basis for %s without fold %d of %d: %w", f.data.Path, fold+1, f.folds, err)
			}
		}
		f.foldIn = append(f.foldIn, in)
	}
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// problem has the sample without a fold, or all of it for none. Features are scaled by all
// rows where whole blocks are in the folds, and otherwise by the sample.
func (f *fit) problem(without int) (*basis.Problem, error) {
	rows, k := f.rows.without(without), &f.want.Kernel
	p := &basis.Problem{
		Rows: rows.Block, Order: rows.order, Totals: rows.totals, Seed: f.want.Seed,
		Objective: f.objective, Gram: k.Regulariser == config.RegulariserKernel, Points: k.Basis,
	}
	if k.Reduce == ReduceNone {
		p.Points = rows.Rows()
	} else {
		p.Reducer = k.Reduce.Reducer(p.Points)
	}
	var err error
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
func (f *fit) reduce(ctx context.Context, kernel kernels.Kernel, without int) (*basis.Coordinates, []model.Stage, error) {
	p, err := f.problem(without)
	if err != nil {
		return nil, nil, err
	}
	var stages []model.Stage
	var state atomic.Pointer[string]
	begun := fmt.Sprintf("%d rows", p.Rows.Rows())
	state.Store(&begun)
	task := "choosing the basis"
	if without != none {
		task = fmt.Sprintf("choosing the basis without fold %d of %d", without+1, f.folds)
	} else {
		p.Progress = func(s reduce.Stage) {
			stages = append(stages, model.NewStage(s, p.Rows.Classes))
			line := stages[len(stages)-1].String()
			state.Store(&line)
		}
	}
	stop := f.steps(task, func() string { return *state.Load() })
	defer stop()
	m, _, err := p.Choose(ctx, kernel)
	if err != nil {
		return nil, nil, err
	}
	return basis.New(m, p.Gram), stages, nil
}

// searchGamma chooses the γ of a Gaussian. Where ν is to be chosen, too, each γ has its own. judge
// is nil for proximal planes.
func (f *fit) searchGamma(ctx context.Context, judge basis.Judge, r *Reduction) (k kernels.Kernel, err error) {
	p, err := f.problem(none)
	if err != nil {
		return k, err
	}
	if p.Planes = f.options; f.tunes() {
		p.Planes.Nu = 0
	}
	p.Judge = judge
	var tried atomic.Int64
	p.Tried = func() { tried.Add(1) }
	stop := f.steps("choosing gamma", func() string { return fmt.Sprintf("%d tried", tried.Load()) })
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
