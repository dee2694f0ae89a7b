package learning

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/kernels"
	"streamd/kernels/basis"
	"streamd/kernels/reduce"
)

// ErrLacking says that no basis can be chosen yet.
var ErrLacking = errors.New("the sample lacks rows of live blocks, which are read from the log again")

// Scaling is the sums of the features that Reduce scales rows by; nil: it does not.
func (l *Learner) Scaling(set *live.Set) *incremental.Moments {
	if l.Config.Model.Standardise != config.SwitchOn {
		return nil
	}
	return set.Features().Total().Moments()
}

// Reduce chooses a basis from the sample, and reports it. sums are those of Scaling. progress is
// called on other goroutines.
func (l *Learner) Reduce(ctx context.Context, view *sample.View, sums *incremental.Moments, made *model.Reduction, progress func(model.Stage)) (*kernels.Map, error) {
	if !view.Complete() {
		return nil, fmt.Errorf("%w: %d blocks", ErrLacking, view.Lacking)
	}
	k := &l.Config.Kernel
	p := &basis.Problem{
		Rows: view.Block, Totals: view.Totals, Planes: l.Options, Objective: model.Objective(l.Config.Model.Objective), Gram: k.Regulariser == config.RegulariserKernel,
		Points: k.Basis, Reducer: k.Reduce.Reducer(k.Basis), Seed: uint64(l.Config.Sample.Seed),
		Workers:  max(1, runtime.GOMAXPROCS(0)-1),
		Progress: func(s reduce.Stage) { progress(model.NewStage(s, view.Block.Classes)) },
	}
	p.Planes.Standardise = false
	if l.Tunes() {
		p.Planes.Nu = 0
	}
	if sums != nil {
		p.Mean, p.Sigma = sums.Scale()
	}
	kernel, auto := k.Function.Kernel(len(view.Block.Columns))
	if auto {
		gamma, err := p.Gamma(ctx)
		if err != nil {
			return nil, fmt.Errorf("choose gamma: %w", err)
		}
		if made.Gammas = model.NewGammas(gamma.Trials); gamma.Unjudged != nil {
			made.Unjudged = gamma.Unjudged.Error()
		}
		if kernel, err = kernels.Gaussian(gamma.Gamma); err != nil {
			return nil, err
		}
	}
	m, _, err := p.Choose(ctx, kernel)
	if err != nil {
		return nil, err
	}
	Describe(made, m)
	made.Rows = view.Block.Rows()
	return m, nil
}

// Describe names a basis in its report.
func Describe(made *model.Reduction, m *kernels.Map) {
	digest := m.Digest()
	made.Basis, made.Kernel, made.Points = hex.EncodeToString(digest[:]), m.Kernel().String(), m.Points()
}
