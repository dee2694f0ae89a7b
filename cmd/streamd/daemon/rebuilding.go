package daemon

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"streamd/cmd/streamd/daemon/archive"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/retire"
)

// rebuilding is the loop's part in going from one basis to another.
//
// A reduction chooses γ and a basis from a complete view of the sample: a function of
// the live set, so that the basis is one, too. It works on a copy, on as many
// goroutines as there are processors but one. Its basis begins an epoch, which is
// built beside the one in use: workers put new blocks into both, and older ones
// are read from the log again and taken in where they are still live as they were.
// A block that comes or goes meanwhile does so in both. When the epoch has every
// live block it takes the place of the other one, between two deliveries and in
// one transaction with it; the served model stays until planes in the new
// coordinates have been solved. The epoch is saved as it grows, so that a restart
// reads the rest.
type rebuilding struct {
	*core
	saver    *saver
	studying *studying
	reducing *reduction    // under way; nil: none is
	reading  *job          // the pass over the log that is under way; nil: none is
	again    time.Time     // not before, after a failure
	at       time.Time     // when the last reduction began; zero: not looked at yet
	churn    int64         // of the live set then
	tried    int           // reductions of this process
	problem  string        // why the last reduction came to nothing
	taken    int64         // rows of older blocks, of the epoch being built, by this process
	switched time.Time     // when this process last took a basis into use; zero: never
	took     time.Duration // from the beginning of its reduction
	skipped  []httpapi.UnreadBlock
	started  time.Time // of the daemon
}

// listedBlocks bounds the blocks that are named in an answer.
const listedBlocks = 100

// whenDue drops, builds or chooses a basis when it is due.
func (r *rebuilding) whenDue(now time.Time) {
	if r.cfg.Kernel.Function == config.KernelNone {
		return
	}
	if r.live.HasBasis() && !r.live.Parted() && r.isFlushed() && !r.live.Parted() {
		r.dropBasis("the live rows are of fewer than two classes")
		r.again, r.problem = time.Time{}, "" // when there are two, nothing has failed
	}
	r.studying.publisher.sayStale()
	if r.live.Next() != nil {
		r.build(now)
	}
	if r.live.Next() == nil && r.reducing == nil && r.reductionDue(now) {
		r.beginReduction(now)
	}
}

// featuresFreed ends work on features that are free again.
func (r *rebuilding) featuresFreed() {
	r.endReduction()
	r.endReading()
	r.inOtherCoordinates()
}

// endReduction gives up the reduction that is under way.
func (r *rebuilding) endReduction() {
	if r.reducing != nil {
		r.reducing.cancel()
		r.reducing = nil
		r.live.Chosen()
	}
}

// dropBasis goes back to the planes of the features, where a daemon is that starts with
// the live blocks as they are. Another basis is chosen when they support one again.
func (r *rebuilding) dropBasis(why string) {
	if !r.live.HasBasis() {
		return
	}
	r.endReduction()
	r.endReading()
	r.live.DropBases()
	r.inOtherCoordinates()
	r.log.Warn().Str("reason", why).Msg("the basis is dropped; planes are in the features again")
}

func (r *rebuilding) endReading() {
	if r.reading != nil {
		r.reading.cancel()
	}
}

// build goes on with the epoch that is being built.
func (r *rebuilding) build(now time.Time) {
	next := r.live.Next()
	if next.Missing() == 0 {
		r.switchEpoch()
		return
	}
	if r.reading != nil || now.Before(r.again) {
		return
	}
	if next.Waits() {
		if r.cfg.Kernel.Unread == config.UnreadSkip {
			r.skipUnread()
		}
		return
	}
	blocks := r.live.Moment(slices.DeleteFunc(r.live.Page(retire.Lowest, math.MaxInt), func(e retire.Entry) bool {
		return !next.Wants(e.ID)
	}))
	r.reading = r.begin(true, func(ctx context.Context) func() {
		unread, err := r.readInto(ctx, next, blocks)
		return func() { r.endReadInto(ctx, next, unread, err) }
	})
}

// skipUnread retires the blocks that the log does not give back.
func (r *rebuilding) skipUnread() {
	next := r.live.Next()
	unread := r.unread()
	for _, id := range next.MissingIDs() {
		if err := r.intake.EndBlock(r.background, id); err != nil {
			r.fail(err)
			return
		}
		if !next.Lacks(id) {
			continue // its rows were still in an open run
		}
		if err := r.live.Remove(id); err != nil {
			r.fail(err)
			return
		}
		r.intake.CountRetired(1)
	}
	r.skipped = unread
	r.log.Warn().Int("blocks", len(unread)).Str("block", r.logged(unread[0].ID)).Str("reason", unread[0].Reason).
		Msg("retired blocks that the log does not give back for the new coordinates (kernel.unread is skip)")
	r.switchEpoch()
}

// unread lists the blocks that the log does not give back, by id.
func (r *rebuilding) unread() (out []httpapi.UnreadBlock) {
	for _, u := range r.live.Next().Unread() {
		out = append(out, httpapi.UnreadBlock{ID: u.ID, Rows: u.Rows, Reason: u.Reason.Error()})
	}
	return out
}

// switchEpoch takes the epoch that has been built into use.
func (r *rebuilding) switchEpoch() {
	r.live.Switch()
	r.inOtherCoordinates()
	r.switched = time.Now()
	r.took = r.switched.Sub(r.at)
	r.log.Info().Str("basis", r.live.InUse().ID).Int("blocks", r.live.Blocks()).Msg("all live blocks are in the coordinates of the new basis")
}

// inOtherCoordinates has planes solved and studied in the coordinates in use, which the
// last study is not about.
func (r *rebuilding) inOtherCoordinates() {
	y := r.studying
	y.publisher.changed, y.publisher.study = true, nil
	if r.live.Rows() > 0 || y.asked != nil {
		y.want()
	} else {
		y.unwant()
	}
}

// takenAtOnce bounds the bytes of summaries that are handed to the loop together.
const takenAtOnce = 8 << 20

var errUnsaved = errors.New("the snapshot cannot be saved")

// summarised is a block in the coordinates of an epoch.
type summarised struct {
	summary *incremental.Summary
	digest  [32]byte // of its summary of features
}

// readInto reads blocks from the log and has the loop take them into an epoch.
func (r *rebuilding) readInto(ctx context.Context, next *live.Space, blocks *live.Blocks) (unread []live.Unread, err error) {
	r.log.Info().Int("blocks", len(blocks.Entries)).Msg("reading blocks again for the coordinates of a new basis")
	c := next.Coordinates
	atOnce := min(max(takenAtOnce/(8*gram.PackedLen(c.Size())), 1), offersAtOnce)
	return readAgain(ctx, r.core, blocks, atOnce, func(w *archive.Worker, b *incremental.Block, s *incremental.Summary) (summarised, error) {
		in, err := w.Keeper.Summary(ctx, b, c)
		return summarised{in, s.Digest()}, err
	}, func(e retire.Entry, z summarised) error {
		if r.saver.problem != nil && r.live.Unsaved() >= r.cfg.Snapshot.Blocks {
			return errUnsaved
		}
		if r.failure == nil && r.live.Take(next, e.ID, z.summary, z.digest) {
			r.taken += e.Rows
		}
		return nil
	})
}

// endReadInto is the end of a pass, in the loop. Unread blocks are not in next, since
// they cannot be read again as they were.
func (r *rebuilding) endReadInto(ctx context.Context, next *live.Space, unread []live.Unread, err error) {
	r.reading = nil
	switch {
	case ctx.Err() != nil:
	case err != nil:
		r.again = time.Now().Add(afterFailure)
		r.log.Error().Err(err).Msg("blocks could not be read again for the coordinates of a new basis; it will be tried again")
	case len(unread) > 0:
		r.live.SetUnread(next, unread)
		r.log.Warn().Int("blocks", len(unread)).Str("block", r.logged(unread[0].ID)).AnErr("reason", unread[0].Reason).
			Msg("blocks are not in the coordinates of the new basis, since they cannot be read again as they were")
	}
}

// epochAnswer is the part of the answer that is cheap enough for every step.
func (r *rebuilding) epochAnswer() *httpapi.EpochAnswer {
	a := &httpapi.EpochAnswer{Problem: r.problem, Served: r.studying.publisher.published.Load().served.BasisID()}
	if e := r.live.InUse(); e.Coordinates != nil {
		a.Epoch, a.InUse, a.Stale = e.Number, e.Reduction, e.Stale() != live.Fresh
	}
	if job := r.reducing; job != nil {
		job.mu.Lock()
		a.Reducing = &httpapi.ReducingAnswer{Began: job.began.UTC(), Stages: append([]model.Stage{}, job.stages...)}
		job.mu.Unlock()
	}
	if e := r.live.Next(); e != nil {
		b := &httpapi.RebuildAnswer{
			Reduction: e.Reduction, Blocks: r.live.Blocks() - e.Missing(), Missing: e.Missing(),
			Rows: e.Rows(), LiveRows: r.live.Rows(), Unread: len(e.Unread()), Stale: e.Stale() != live.Fresh,
		}
		if r.taken > 0 && b.Unread < b.Missing {
			left := time.Since(e.Began()).Seconds() / float64(r.taken) * float64(b.LiveRows-b.Rows)
			if !math.IsInf(left, 0) {
				b.Seconds = &left
			}
		}
		a.Rebuild = b
	}
	return a
}

// mustGo says whether the basis in use holds rows that must not stay.
func (r *rebuilding) mustGo() bool {
	e := r.live.InUse()
	return e.Stale() >= live.SourceRetired && r.cfg.Kernel.OnRetire == config.OnRetireReduce
}

// forgetDue says whether another basis is to be chosen since the one in use is stale.
// After a retirement that is at once. Values of keys are replaced all the time, and
// wait so that no more than one part in share of the time goes into rebuilding.
func (r *rebuilding) forgetDue(stale live.Staleness, policy config.OnRetire, now time.Time) bool {
	return policy == config.OnRetireReduce &&
		(stale >= live.SourceRetired || stale == live.SourceReplaced && now.Sub(r.switched) >= share*r.took)
}
