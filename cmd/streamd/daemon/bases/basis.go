package bases

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/kernels"
	"streamd/kernels/reduce"
)

// Reduction is a reduction under way.
type Reduction struct {
	*loop.Job
	began time.Time
	asked bool // on request

	published *live.Published // the chosen basis, once it is written to the control topic
	until     time.Time       // when it must have come back

	mu     sync.Mutex
	stages []model.Stage
}

// note notes a stage.
func (w *Reduction) note(s model.Stage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stages = append(w.stages, s)
}

// Stages are those that have ended.
func (w *Reduction) Stages() []model.Stage {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]model.Stage{}, w.stages...)
}

// reductionDue reports whether a basis should be chosen without a request.
func (r *Bases) reductionDue(now time.Time) bool {
	k, use := &r.Config.Kernel, r.Live.InUse()
	if !r.chooses() || r.shared.isEmptied() || now.Before(r.again) || r.Rests(loop.TaskReduce, now) || !r.Live.Parted() || r.Live.Lacking() > 0 {
		return false
	}
	if r.forgetDue(use.Stale(), k.OnRetire, now) {
		return true
	}
	if r.at.IsZero() && use.Coordinates != nil && r.Live.Features().Digest() == use.Reduction.Digest {
		r.churn = r.Live.Churn() // chosen before the start, from the same rows
	}
	if r.at.IsZero() {
		r.at = r.started
		if use.Coordinates != nil {
			r.at = use.Reduction.MadeAt
		}
	}
	if lacks := r.shared.lacksShared(now); lacks || use.Coordinates == nil || !live.Fits(use.Map, r.Config) {
		changed := r.tried == 0 || r.churn != r.Live.Churn() || lacks && use.Coordinates != nil
		return !r.shared.waits() && k.Rows > 0 && r.Live.Rows()-r.Live.Unlabelled() >= k.Rows && changed
	}
	return k.Interval > 0 && now.Sub(r.at) >= k.Interval && r.churn != r.Live.Churn()
}

// beginReduction begins to choose a basis.
func (r *Bases) beginReduction(now time.Time, asked bool) error {
	if err := r.Flush(); err != nil {
		return err
	}
	work := &Reduction{began: now, asked: asked}
	r.reducing, r.at, r.churn = work, now, r.Live.Churn()
	r.tried++
	r.Live.Choose()
	made := &model.Reduction{
		Method: string(r.Config.Kernel.Reduce), Digest: r.Live.Features().Digest(), Live: r.Live.Rows(),
	}
	snap := r.Live.Sample(0)
	sums := r.Learner.Scaling(r.Live)
	work.Job = r.Begin(loop.TaskReduce, true, func(ctx context.Context) func() {
		chosen, err := r.Learner.Reduce(ctx, snap.View(), sums, made, work.note)
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
				r.Metrics.ReduceSeconds.Observe(made.Seconds)
			}
			r.UseBasis(work, chosen, made, err)
		}
	}, func(error) { r.endFailed(work) })
	return nil
}

// beginPruning begins to choose a part of the basis in use, by K(Z, Z) and the sums of all live
// blocks. No row is read.
func (r *Bases) beginPruning(how reduce.Pruning, points int, now time.Time) error {
	if err := r.Flush(); err != nil {
		return err
	}
	work, use := &Reduction{began: now, asked: true}, r.Live.InUse().Coordinates
	r.reducing, r.at, r.churn = work, now, r.Live.Churn()
	r.Live.ChoosePart()
	made := &model.Reduction{
		Method: string(how), Pruned: use.Size(), Digest: r.Live.Features().Digest(), Live: r.Live.Rows(),
		Rows: use.Reduction.Rows, Gammas: use.Reduction.Gammas, Unjudged: use.Reduction.Unjudged,
	}
	sums, options := r.Live.InUse().Total().Clone(), r.Learner.Options
	options.Standardise = false
	work.Job = r.Begin(loop.TaskReduce, true, func(ctx context.Context) func() {
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
			case err == nil && r.Live.InUse().Coordinates != use:
				err = errors.New("another basis has come into use meanwhile")
			}
			if err == nil {
				r.Metrics.ReduceSeconds.Observe(made.Seconds)
			}
			r.UseBasis(work, chosen, made, err)
		}
	}, func(error) { r.endFailed(work) })
	return nil
}

// endFailed ends a reduction that has failed. The basis in use stays, and another try is due.
func (r *Bases) endFailed(work *Reduction) {
	if r.reducing == work {
		r.reducing, r.churn = nil, -1
		r.Live.Chosen()
	}
}

// UseBasis begins a space with the basis, or publishes it where there is a control topic.
func (r *Bases) UseBasis(work *Reduction, chosen *kernels.Map, made *model.Reduction, err error) {
	use, shared := r.Live.InUse(), &r.shared
	r.reducing, r.problem = nil, ""
	defer func() {
		if r.reducing == nil {
			r.Live.Chosen()
		}
	}()
	stays := shared.topic == "" || shared.basis != nil && shared.basis.Reduction.Basis == made.Basis
	switch {
	case r.Failure != nil:
	case err != nil && made.Pruned > 0: // the basis in use stays
		r.problem = err.Error()
		r.Log.Warn().Err(err).Msg("the basis is not pruned")
	case err != nil:
		r.problem, r.again = err.Error(), time.Now().Add(loop.AfterFailure)
		r.Log.Warn().Err(err).Msg("no basis could be chosen")
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
		r.Live.Abandon() // a rebuild for another basis
		r.endReading()
		r.Log.Info().Str("basis", made.Basis).Msg("the basis stays")
	case stays && r.Live.Next() != nil && r.Live.Next().ID == made.Basis && r.Live.Next().Stale() == live.Fresh:
		r.Live.Next().Retry() // the log may have them now
		r.again = time.Time{}
	case shared.topic != "":
		of := r.Live.Publish(chosen, made, r.Config.Kafka.Topic)
		switch must := of.Stale >= live.SourceRetired && r.Config.Kernel.OnRetire == config.OnRetireReduce; {
		case must && made.Pruned > 0:
			r.problem = "the basis in use is stale, so no part of it is published"
		case must: // its rows must not go there
			_ = r.beginReduction(time.Now(), work.asked) // else the daemon has failed
		default:
			r.publish(work, of)
		}
	default:
		r.takeUp(chosen, made, func() { r.Live.Begin(chosen, made, r.Config.Kernel.Regulariser) })
	}
}

// takeUp calls begin, which begins a space with the basis, if there is memory.
func (r *Bases) takeUp(chosen *kernels.Map, made *model.Reduction, begin func()) {
	err := r.Live.FitsBasis(chosen.Size())
	if err != nil && r.mustGo() { // no basis for a while is better than a stale one
		r.dropBasis("there is no memory for another one beside it")
		err = r.Live.FitsBasis(chosen.Size())
	}
	if err != nil {
		r.problem, r.again = err.Error(), time.Now().Add(loop.AfterFailure)
		r.Log.Warn().Err(err).Msg("the basis cannot be used")
		return
	}
	r.endReading()
	begin()
	r.taken, r.problem = 0, ""
	r.again = time.Time{}
	r.Log.Info().Str("basis", made.Basis).Int("points", made.Points).Int("blocks", r.Live.Next().Missing()).
		Msg("a basis has been chosen; putting the live blocks into its coordinates")
}

// betweenReductions is the least time between two reductions that fail for lack of rows.
const betweenReductions = time.Second

var errGivenUp = errors.New("it was abandoned")
