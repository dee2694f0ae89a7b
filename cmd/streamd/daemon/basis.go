package daemon

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/kernels"
	"streamd/kernels/basis"
	"streamd/kernels/reduce"
)

// reduction is one under way.
type reduction struct {
	began time.Time
	end   context.CancelFunc

	mu     sync.Mutex
	stages []model.Stage
}

// reductionDue says whether a basis is to be chosen without being asked for.
func (d *Daemon) reductionDue(now time.Time) bool {
	r, k, use := &d.rebuilding, &d.cfg.Kernel, d.live.InUse()
	if now.Before(r.again) || !d.live.Parted() || d.live.Lacking() > 0 {
		return false
	}
	if r.forgetDue(use.Stale(), k.OnRetire, now) {
		return true
	}
	if r.at.IsZero() && use.Coordinates != nil && d.live.Features().Digest() == use.Reduction.Digest {
		r.churn = d.live.Churn() // chosen before the start, of the same rows
	}
	if r.at.IsZero() {
		r.at = d.started
		if use.Coordinates != nil {
			r.at = use.Reduction.MadeAt
		}
	}
	if use.Coordinates == nil || !live.Fits(use.Map, d.cfg) {
		return k.Rows > 0 && d.live.Rows() >= k.Rows && (r.tried == 0 || r.churn != d.live.Churn())
	}
	return k.Interval > 0 && now.Sub(r.at) >= k.Interval && r.churn != d.live.Churn()
}

// beginReduction begins to choose a basis.
func (d *Daemon) beginReduction(ctx context.Context, now time.Time) {
	r := &d.rebuilding
	if !d.isFlushed() {
		return
	}
	working, end := context.WithCancel(ctx)
	r.reducing, r.at, r.churn = &reduction{began: now, end: end}, now, d.live.Churn()
	r.tried++
	d.live.Choose()
	job := r.reducing
	made := &model.Reduction{
		Method: string(d.cfg.Kernel.Reduce), Digest: d.live.Features().Digest(), Live: d.live.Rows(),
	}
	snap := d.live.Sample(0)
	var sums *incremental.Moments
	if d.cfg.Model.Standardise == config.SwitchOn {
		sums = d.live.Features().Total().Moments()
	}
	d.ends.Go(func() {
		defer end()
		chosen, err := d.reduce(working, job, snap, sums, made)
		made.MadeAt, made.Seconds = time.Now().UTC(), time.Since(now).Seconds()
		d.call(ctx, func() error {
			if d.rebuilding.reducing != job {
				return nil // the live set has no use for a basis any more
			}
			if working.Err() != nil { // perhaps when the basis was there, but not here
				err = errGivenUp
			}
			if err == nil {
				d.metrics.ReduceSeconds.Observe(made.Seconds)
			}
			d.endReduction(chosen, made, err)
			return nil
		})
	})
}

// endReduction begins an epoch with the basis.
func (d *Daemon) endReduction(chosen *kernels.Map, made *model.Reduction, err error) {
	r, use := &d.rebuilding, d.live.InUse()
	r.reducing, r.problem = nil, ""
	defer d.live.Chosen()
	switch {
	case d.failure != nil:
	case err != nil:
		r.problem, r.again = err.Error(), time.Now().Add(afterFailure)
		d.log.Warn().Err(err).Msg("no basis could be chosen")
		undecided := errors.Is(err, errGivenUp) || errors.Is(err, errLacking)
		unsupported := errors.Is(err, reduce.ErrClasses) || errors.Is(err, reduce.ErrRows)
		if unsupported { // the next rows may change that, and to find out takes no time
			r.again = time.Now().Add(betweenReductions)
		}
		if unsupported || d.mustGo() && !undecided {
			d.dropBasis("no basis can be chosen from the live rows")
		}
	case use.Coordinates != nil && use.ID == made.Basis && use.Stale() == live.Fresh:
		d.live.Abandon() // a rebuild for another one
		d.endReading()
		d.log.Info().Str("basis", made.Basis).Msg("the basis stays")
	case d.live.Next() != nil && d.live.Next().ID == made.Basis && d.live.Next().Stale() == live.Fresh:
		d.live.Next().Retry() // perhaps the log has them now
		r.again = time.Time{}
	default:
		err := d.live.FitsBasis(chosen.Points())
		if err != nil && d.mustGo() { // rather no basis for a while than a stale one
			d.dropBasis("there is no memory for another one beside it")
			err = d.live.FitsBasis(chosen.Points())
		}
		if err != nil {
			r.problem, r.again = err.Error(), time.Now().Add(afterFailure)
			d.log.Warn().Err(err).Msg("the basis cannot be used")
			return
		}
		d.endReading()
		d.live.Begin(chosen, made, d.cfg.Kernel.Regulariser)
		r.taken = 0
		r.again = time.Time{}
		d.log.Info().Str("basis", made.Basis).Int("points", made.Points).Int("blocks", d.live.Next().Missing()).
			Msg("a basis has been chosen; putting the live blocks into its coordinates")
	}
}

// betweenReductions is the least time between two of rows that are too few.
const betweenReductions = time.Second

var errGivenUp = errors.New("it was given up")

var errLacking = errors.New("the sample lacks rows of live blocks, which are read from the log again")

// reduce chooses a basis from the sample.
func (d *Daemon) reduce(ctx context.Context, job *reduction, snap *sample.Snapshot, sums *incremental.Moments, made *model.Reduction) (*kernels.Map, error) {
	view := snap.View()
	if !view.Complete() {
		return nil, fmt.Errorf("%w: %d blocks", errLacking, view.Lacking)
	}
	k := &d.cfg.Kernel
	p := &basis.Problem{
		Rows: view.Block, Totals: view.Totals, Planes: d.options, Gram: k.Regulariser == config.RegulariserKernel,
		Points: k.Basis, Reducer: reduce.Named(string(k.Reduce), k.Basis), Seed: uint64(d.cfg.Sample.Seed),
		Workers: max(1, runtime.GOMAXPROCS(0)-1),
		Progress: func(s reduce.Stage) {
			job.mu.Lock()
			defer job.mu.Unlock()
			job.stages = append(job.stages, model.NewStage(s, view.Block.Classes))
		},
	}
	p.Planes.Standardise = false
	if d.tunes() {
		p.Planes.Nu = 0
	}
	if sums != nil {
		p.Mean, p.Sigma = sums.Scale()
	}
	kernel, auto := k.Function.Kernel()
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
	digest := m.Digest()
	made.Basis, made.Kernel, made.Points, made.Rows, made.Stages = hex.EncodeToString(digest[:]), kernel.String(), m.Points(), view.Block.Rows(), job.stages
	return m, nil
}
