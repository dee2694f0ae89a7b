package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/daemon/control"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/passes"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/retire"
	"streamd/snapshot"
)

// rebuilding is the loop's part in going from one basis to another.
//
// A reduction chooses γ and a basis from a complete view of the sample. The view is a
// function of the live set, so the basis is one, too. A reduction works on a copy, with
// one goroutine fewer than there are processors. Its basis begins an epoch, which is
// built beside the one in use. Workers put new blocks into both. Older blocks are read
// from the log again and are added if they are live and unchanged. A block that is added
// or retired meanwhile is added or retired in both. When the next epoch has every live
// block, it replaces the one in use, between two deliveries and in one transaction. The
// served model stays until planes in the new coordinates have been solved. The epoch is
// saved as it grows, so that a restart reads only the rest.
type rebuilding struct {
	*core
	saver       *saver
	studying    *studying
	reducing    *reduction    // the reduction under way, or nil
	reading     *job          // the pass over the log under way, or nil
	again       time.Time     // the earliest time of another try after a failure
	at          time.Time     // when the last reduction began; zero: not known yet
	churn       int64         // the live set's churn at that time
	tried       int           // reductions of this process
	problem     string        // why the last reduction failed
	taken       int64         // rows of older blocks that this process has added to the epoch being built
	switched    time.Time     // when this process last switched to a basis; zero: never
	took        time.Duration // from the start of its reduction to the switch
	skipped     []httpapi.UnreadBlock
	hasCaughtUp *atomic.Bool                                              // with the topic of the blocks
	shared      sharedBasis                                               // of the control topic
	write       func(ctx context.Context, records []control.Record) error // to the control topic
	started     time.Time                                                 // of the daemon
}

// listedBlocks bounds the blocks that an answer names.
const listedBlocks = 100

// whenDue drops, builds or chooses a basis, whichever is due.
func (r *rebuilding) whenDue(now time.Time) {
	if r.cfg.Kernel.Function == config.KernelNone {
		if s := &r.shared; s.known && s.retract && s.has.Keys > 0 {
			r.empty(now)
		}
		return
	}
	if r.live.HasBasis() && !r.live.Parted() && r.isFlushed() && !r.live.Parted() {
		r.retracts()
		r.dropBasis("the live rows are of fewer than two classes")
		r.again, r.problem = time.Time{}, "" // when there are two, nothing has failed
	}
	r.studying.publisher.sayStale()
	if r.shared.topic != "" {
		r.follow(now)
	}
	if r.live.Next() != nil {
		r.build(now)
	}
	if r.shared.topic != "" && !r.shared.known {
		return
	}
	if r.live.Next() == nil && r.reducing == nil && r.reductionDue(now) {
		r.beginReduction(now, false)
	}
}

// featuresFreed abandons work on features that are no longer fixed.
func (r *rebuilding) featuresFreed() {
	r.endReduction()
	r.endReading()
	r.inOtherCoordinates()
}

// endReduction abandons the reduction under way.
func (r *rebuilding) endReduction() {
	if r.reducing != nil {
		r.reducing.cancel()
		r.reducing = nil
		r.live.Chosen()
	}
}

// dropBasis goes back to planes in the features, as a daemon would that starts with the
// live blocks. Another basis is chosen when the live blocks support one again.
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

// build continues the epoch that is being built.
func (r *rebuilding) build(now time.Time) {
	next := r.live.Next()
	if next.Missing() == 0 {
		r.switchEpoch()
		return
	}
	if r.reading != nil || now.Before(r.again) || r.rests(taskRebuild, now) {
		return
	}
	if next.Waits() {
		if r.cfg.Kernel.Unread == config.UnreadSkip {
			r.skipUnread()
		}
		return
	}
	wanted := slices.DeleteFunc(r.live.Page(retire.Lowest, math.MaxInt), func(e retire.Entry) bool {
		return !next.Wants(e.ID)
	})
	failed := func(error) { r.reading = nil }
	if at := r.live.Part(); at != nil {
		blocks := r.live.MomentInUse(wanted)
		r.reading = r.begin(taskRebuild, true, func(ctx context.Context) func() {
			err := r.takeParts(ctx, next, blocks, at)
			return func() { r.endReadInto(ctx, next, nil, err) }
		}, failed)
		return
	}
	blocks := r.live.Moment(wanted)
	r.reading = r.begin(taskRebuild, true, func(ctx context.Context) func() {
		unread, err := r.readInto(ctx, next, blocks)
		return func() { r.endReadInto(ctx, next, unread, err) }
	}, failed)
}

// skipUnread retires the blocks that the log does not return.
func (r *rebuilding) skipUnread() {
	next := r.live.Next()
	unread := r.unread()
	for _, id := range next.MissingIDs() {
		if _, ok := r.dropLost(id, func() bool { return next.Lacks(id) }); !ok {
			return
		}
	}
	r.skipped = unread
	r.log.Warn().Int("blocks", len(unread)).Str("block", r.logged(unread[0].ID)).Str("reason", unread[0].Reason).
		Msg("retired blocks that the log does not return for the new coordinates (kernel.unread is skip)")
	r.switchEpoch()
}

// unread lists the blocks that the log does not return, by id.
func (r *rebuilding) unread() (out []httpapi.UnreadBlock) {
	for _, u := range r.live.Next().Unread() {
		out = append(out, httpapi.UnreadBlock{ID: u.ID, Rows: u.Rows, Reason: u.Reason.Error()})
	}
	return out
}

// switchEpoch takes the finished epoch into use.
func (r *rebuilding) switchEpoch() {
	r.live.Switch()
	r.inOtherCoordinates()
	r.switched = time.Now()
	r.took = r.switched.Sub(r.at)
	r.log.Info().Str("basis", r.live.InUse().ID).Int("blocks", r.live.Blocks()).Msg("all live blocks are in the coordinates of the new basis")
}

// inOtherCoordinates requests planes and a study in the coordinates in use. The last study
// was of other coordinates.
func (r *rebuilding) inOtherCoordinates() {
	y := r.studying
	y.publisher.changed, y.publisher.study = true, nil
	if r.live.Rows() > 0 || y.asked != nil {
		y.want()
	} else {
		y.unwant()
	}
}

// takenAtOnce bounds the bytes of the summaries that the loop takes in one call.
const takenAtOnce = 8 << 20

var errUnsaved = errors.New("the snapshot cannot be saved")

// summarised is a block in the coordinates of an epoch.
type summarised struct {
	summary *incremental.Summary
	digest  [32]byte // of its labelled rows in the features
}

// readInto reads blocks from the log and has the loop add them to an epoch.
func (r *rebuilding) readInto(ctx context.Context, next *live.Space, blocks *live.Blocks) (unread []live.Unread, err error) {
	r.log.Info().Int("blocks", len(blocks.Entries)).Msg("reading blocks again for the coordinates of a new basis")
	c := next.Coordinates
	return readAgain(ctx, r.topic, r.live, r.call, blocks, true, blocksAtOnce(c), func(w *passes.Worker, b *incremental.Block, s *incremental.Summary) (summarised, error) {
		in, err := w.Keeper.Summary(ctx, b, c)
		return summarised{in, s.LabelledDigest()}, err
	}, func(e retire.Entry, z summarised) error { return r.take(next, e, z) })
}

// blocksAtOnce is the number of summaries in the coordinates that the loop takes in one call.
func blocksAtOnce(c *live.Coordinates) int {
	return min(max(takenAtOnce/(8*gram.PackedLen(c.Size())), 1), offersAtOnce)
}

// take adds a live block to an epoch.
func (r *rebuilding) take(next *live.Space, e retire.Entry, z summarised) error {
	if r.saver.problem != nil && r.live.Unsaved() >= r.cfg.Snapshot.Blocks {
		return errUnsaved
	}
	if r.failure == nil && r.live.Take(next, e.ID, z.summary, z.digest) {
		r.taken += e.Rows
	}
	return nil
}

// takeParts has the loop add blocks to an epoch whose coordinates are some of those in use, at the
// given places. Their summaries are parts of those that there are, so the log is not read.
func (r *rebuilding) takeParts(ctx context.Context, next *live.Space, blocks *live.UseBlocks, at []int) error {
	r.log.Info().Int("blocks", len(blocks.Entries)).Msg("taking the sums of a part of the basis from those in use")
	for some := range slices.Chunk(blocks.Entries, blocksAtOnce(next.Coordinates)) {
		ready := map[string]summarised{}
		for _, e := range some {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			s, digest, err := blocks.Part(e.ID, at)
			switch {
			case err == nil:
				ready[e.ID] = summarised{s, digest}
			case !errors.Is(err, snapshot.ErrNotFound): // such a block is no longer live
				return fmt.Errorf("block %s in the coordinates in use: %w", r.logged(e.ID), err)
			}
		}
		err := r.call(ctx, func() error {
			for _, e := range some {
				if now, live := r.live.Get(e.ID); !live || now != e {
					continue
				}
				if z, ok := ready[e.ID]; ok {
					if err := r.take(next, e, z); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// endReadInto ends a pass, in the loop. Blocks that could not be read unchanged stay
// missing in next.
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
			Msg("blocks are not in the coordinates of the new basis, since the log does not return them unchanged")
	}
}

// epochAnswer is the part of the answer that is cheap enough to make after every step.
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

// mustGo reports whether the basis in use holds rows that must be removed.
func (r *rebuilding) mustGo() bool {
	e := r.live.InUse()
	return e.Stale() >= live.SourceRetired && r.cfg.Kernel.OnRetire == config.OnRetireReduce
}

// forgetDue reports whether another basis should be chosen because the one in use is stale.
// After a retirement that is due at once. Values of keys are replaced all the time, so
// replacements wait until rebuilding takes at most 1/share of the time.
func (r *rebuilding) forgetDue(stale live.Staleness, policy config.OnRetire, now time.Time) bool {
	return policy == config.OnRetireReduce &&
		(stale >= live.SourceRetired || stale == live.SourceReplaced && now.Sub(r.switched) >= share*r.took)
}
