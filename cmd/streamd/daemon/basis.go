package daemon

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/kernels"
	"streamd/kernels/reduce"
)

// reduction is a reduction under way.
type reduction struct {
	*job
	began time.Time
	asked bool // on request

	published *live.Published // the chosen basis, once it is written to the control topic
	until     time.Time       // when it must have come back

	mu     sync.Mutex
	stages []model.Stage
}

// note notes a stage.
func (w *reduction) note(s model.Stage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stages = append(w.stages, s)
}

// reductionDue reports whether a basis should be chosen without a request.
func (r *rebuilding) reductionDue(now time.Time) bool {
	k, use := &r.cfg.Kernel, r.live.InUse()
	if !r.chooses() || r.shared.isEmptied() || now.Before(r.again) || r.rests(taskReduce, now) || !r.live.Parted() || r.live.Lacking() > 0 {
		return false
	}
	if r.forgetDue(use.Stale(), k.OnRetire, now) {
		return true
	}
	if r.at.IsZero() && use.Coordinates != nil && r.live.Features().Digest() == use.Reduction.Digest {
		r.churn = r.live.Churn() // chosen before the start, from the same rows
	}
	if r.at.IsZero() {
		r.at = r.started
		if use.Coordinates != nil {
			r.at = use.Reduction.MadeAt
		}
	}
	if lacks := r.shared.lacksShared(now); lacks || use.Coordinates == nil || !live.Fits(use.Map, r.cfg) {
		changed := r.tried == 0 || r.churn != r.live.Churn() || lacks && use.Coordinates != nil
		return !r.shared.waits() && k.Rows > 0 && r.live.Rows()-r.live.Unlabelled() >= k.Rows && changed
	}
	return k.Interval > 0 && now.Sub(r.at) >= k.Interval && r.churn != r.live.Churn()
}

// beginReduction begins to choose a basis.
func (r *rebuilding) beginReduction(now time.Time, asked bool) {
	if !r.isFlushed() {
		return
	}
	work := &reduction{began: now, asked: asked}
	r.reducing, r.at, r.churn = work, now, r.live.Churn()
	r.tried++
	r.live.Choose()
	made := &model.Reduction{
		Method: string(r.cfg.Kernel.Reduce), Digest: r.live.Features().Digest(), Live: r.live.Rows(),
	}
	snap := r.live.Sample(0)
	sums := r.learner.Scaling(r.live)
	work.job = r.begin(taskReduce, true, func(ctx context.Context) func() {
		chosen, err := r.learner.Reduce(ctx, snap.View(), sums, made, work.note)
		made.Stages = work.stages
		made.MadeAt, made.Seconds = time.Now().UTC(), time.Since(now).Seconds()
		return func() {
			if r.reducing != work {
				return // the live set no longer has a use for a basis
			}
			if ctx.Err() != nil { // ctx may have ended after the basis was chosen
				err = errGivenUp
			}
			if err == nil {
				r.metrics.ReduceSeconds.Observe(made.Seconds)
			}
			r.useBasis(work, chosen, made, err)
		}
	}, func(error) { r.endFailed(work) })
}

// beginPruning begins to choose a part of the basis in use, by K(Z, Z) and the sums of all live
// blocks. No row is read.
func (r *rebuilding) beginPruning(how reduce.Pruning, points int, now time.Time) {
	if !r.isFlushed() {
		return
	}
	work, use := &reduction{began: now, asked: true}, r.live.InUse().Coordinates
	r.reducing, r.at, r.churn = work, now, r.live.Churn()
	r.live.ChoosePart()
	made := &model.Reduction{
		Method: string(how), Pruned: use.Size(), Digest: r.live.Features().Digest(), Live: r.live.Rows(),
		Rows: use.Reduction.Rows, Gammas: use.Reduction.Gammas, Unjudged: use.Reduction.Unjudged,
	}
	sums, options := r.live.InUse().Total().Clone(), r.learner.Options
	options.Standardise = false
	work.job = r.begin(taskReduce, true, func(ctx context.Context) func() {
		chosen := use.Map
		rank, err := how.Rank(ctx, use.Map, use.Moments(sums), options, points)
		if err == nil {
			slices.Sort(rank)
			chosen = use.Map.Selected(rank)
			learning.Describe(made, chosen)
		}
		made.MadeAt, made.Seconds = time.Now().UTC(), time.Since(now).Seconds()
		return func() {
			switch {
			case r.reducing != work:
				return
			case ctx.Err() != nil:
				err = errGivenUp
			case err == nil && r.live.InUse().Coordinates != use:
				err = errors.New("another basis has come into use meanwhile")
			}
			if err == nil {
				r.metrics.ReduceSeconds.Observe(made.Seconds)
			}
			r.useBasis(work, chosen, made, err)
		}
	}, func(error) { r.endFailed(work) })
}

// endFailed ends a reduction that has failed. The basis in use stays, and another try is due.
func (r *rebuilding) endFailed(work *reduction) {
	if r.reducing == work {
		r.reducing, r.churn = nil, -1
		r.live.Chosen()
	}
}

// useBasis begins a space with the basis, or publishes it where there is a control topic.
func (r *rebuilding) useBasis(work *reduction, chosen *kernels.Map, made *model.Reduction, err error) {
	use, shared := r.live.InUse(), &r.shared
	r.reducing, r.problem = nil, ""
	defer func() {
		if r.reducing == nil {
			r.live.Chosen()
		}
	}()
	stays := shared.topic == "" || shared.basis != nil && shared.basis.Reduction.Basis == made.Basis
	switch {
	case r.failure != nil:
	case err != nil && made.Pruned > 0: // the basis in use stays
		r.problem = err.Error()
		r.log.Warn().Err(err).Msg("the basis is not pruned")
	case err != nil:
		r.problem, r.again = err.Error(), time.Now().Add(afterFailure)
		r.log.Warn().Err(err).Msg("no basis could be chosen")
		undecided := errors.Is(err, errGivenUp) || errors.Is(err, learning.ErrLacking)
		unsupported := errors.Is(err, reduce.ErrClasses) || errors.Is(err, reduce.ErrRows)
		if unsupported { // the next rows may change that, and another try is cheap
			r.again = time.Now().Add(betweenReductions)
		}
		if r.chooses() && (unsupported || r.mustGo() && !undecided) {
			r.retracts()
			r.dropBasis("no basis can be chosen from the live rows")
		}
	case stays && use.Coordinates != nil && use.ID == made.Basis && use.Stale() == live.Fresh:
		r.live.Abandon() // a rebuild for another basis
		r.endReading()
		r.log.Info().Str("basis", made.Basis).Msg("the basis stays")
	case stays && r.live.Next() != nil && r.live.Next().ID == made.Basis && r.live.Next().Stale() == live.Fresh:
		r.live.Next().Retry() // the log may have them now
		r.again = time.Time{}
	case shared.topic != "":
		of := r.live.Publish(chosen, made, r.cfg.Kafka.Topic)
		switch must := of.Stale >= live.SourceRetired && r.cfg.Kernel.OnRetire == config.OnRetireReduce; {
		case must && made.Pruned > 0:
			r.problem = "the basis in use is stale, so no part of it is published"
		case must: // its rows must not go there
			r.beginReduction(time.Now(), work.asked)
		default:
			r.publish(work, of)
		}
	default:
		r.takeUp(chosen, made, func() { r.live.Begin(chosen, made, r.cfg.Kernel.Regulariser) })
	}
}

// takeUp calls begin, which begins a space with the basis, if there is memory.
func (r *rebuilding) takeUp(chosen *kernels.Map, made *model.Reduction, begin func()) {
	err := r.live.FitsBasis(chosen.Size())
	if err != nil && r.mustGo() { // no basis for a while is better than a stale one
		r.dropBasis("there is no memory for another one beside it")
		err = r.live.FitsBasis(chosen.Size())
	}
	if err != nil {
		r.problem, r.again = err.Error(), time.Now().Add(afterFailure)
		r.log.Warn().Err(err).Msg("the basis cannot be used")
		return
	}
	r.endReading()
	begin()
	r.taken, r.problem = 0, ""
	r.again = time.Time{}
	r.log.Info().Str("basis", made.Basis).Int("points", made.Points).Int("blocks", r.live.Next().Missing()).
		Msg("a basis has been chosen; putting the live blocks into its coordinates")
}

// betweenReductions is the least time between two reductions that fail for lack of rows.
const betweenReductions = time.Second

var errGivenUp = errors.New("it was abandoned")
