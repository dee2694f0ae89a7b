package bases

import (
	"context"
	"fmt"
	"time"

	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/kernels/reduce"
)

// Reduce implements httpapi.Service.
func (r *Bases) Reduce(ctx context.Context) error {
	return r.reduceBy(ctx, func() error {
		if r.Live.Lacking() > 0 {
			return fmt.Errorf("reduce: %w: %w", learning.ErrLacking, httpapi.ErrUnavailable)
		}
		return r.beginReduction(time.Now(), true)
	})
}

// Prune implements httpapi.Service.
func (r *Bases) Prune(ctx context.Context, how reduce.Pruning, points int) error {
	return r.reduceBy(ctx, func() error {
		use := r.Live.InUse().Coordinates
		if use == nil {
			return fmt.Errorf("prune: no basis is in use yet: %w", httpapi.ErrUnavailable)
		}
		if points >= use.Size() {
			return fmt.Errorf("prune: the basis in use has %d coordinates, so it has no part of %d: %w", use.Size(), points, httpapi.ErrUnfit)
		}
		if err := how.Check(use.Map); err != nil {
			return fmt.Errorf("prune: %w: %w", err, httpapi.ErrUnfit)
		}
		return r.beginPruning(how, points, time.Now())
	})
}

// reduceBy calls begin in the loop where a reduction may begin.
func (r *Bases) reduceBy(ctx context.Context, begin func() error) error {
	if r.Config.Kernel.Function == config.KernelNone {
		return fmt.Errorf("kernel.function is none: %w", httpapi.ErrOff)
	}
	return r.Do(ctx, func() error {
		switch {
		case r.Live.Rows() == 0:
			return fmt.Errorf("there are no live rows: %w", httpapi.ErrUnavailable)
		case r.shared.topic != "" && !r.shared.known:
			return fmt.Errorf("reduce: the control topic %s has not been read up to its end: %w", r.Config.Retire.Topic, httpapi.ErrUnavailable)
		case r.reducing != nil, r.shared.isEmptied():
			return fmt.Errorf("reduce: %w", httpapi.ErrBusy)
		case r.Live.Next() != nil && !r.Live.Next().Waits():
			return fmt.Errorf("reduce: the live blocks are being mapped to the coordinates of a basis, which DELETE /v1/reduce stops: %w", httpapi.ErrBusy)
		}
		return begin()
	})
}

// Abandon implements httpapi.Service.
func (r *Bases) Abandon(ctx context.Context) error {
	return r.Do(ctx, func() error {
		if work := r.reducing; work != nil {
			if work.Cancel(); work.published != nil {
				r.endFailed(work)
			}
		}
		if r.Live.Next() != nil {
			r.shared.passed = r.shared.basis
			r.endReading()
			r.Live.Abandon()
			r.Log.Info().Msg("the basis that was being built is abandoned")
		}
		r.again = time.Now().Add(loop.AfterFailure)
		return nil
	})
}

// Epoch implements httpapi.Service.
func (r *Bases) Epoch(ctx context.Context) (*httpapi.EpochAnswer, error) {
	return loop.Ask(ctx, r.Loop, func() (*httpapi.EpochAnswer, error) {
		a := r.Report()
		a.Skipped = r.skipped[:min(len(r.skipped), listedBlocks)]
		if e := r.Live.InUse(); e.Coordinates != nil {
			a.Basis = model.NewBasisJSON(e.Map, r.Config.Kernel.Regulariser)
		}
		if a.Rebuild != nil {
			a.Rebuild.Reasons = r.unread()
			a.Rebuild.Reasons = a.Rebuild.Reasons[:min(len(a.Rebuild.Reasons), listedBlocks)]
		}
		return a, nil
	})
}
