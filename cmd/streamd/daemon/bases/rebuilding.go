// Package bases goes from one basis of the live set to the next.
//
//	basis.go       a basis is chosen from the row sample, or a part of the one in use
//	rebuilding.go  the live blocks come into its coordinates
//	sharing.go     the control topic has one basis for all replicas
//	filling.go     the sample is given rows that it lacks
//	requests.go    the calls of HTTP
//
// All of it belongs to the loop but the work of the jobs, and the calls of HTTP.
package bases

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
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/passes"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/incremental"
	"streamd/retire"
	"streamd/snapshot"
)

// Bases is the loop's part in going from one basis to another.
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
type Bases struct {
	*loop.Loop
	saves       Saves
	filling     *Filling
	planes      Planes
	reducing    *Reduction    // the reduction under way, or nil
	reading     *loop.Job     // the pass over the log under way, or nil
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

// Saves says whether blocks that were read again may be added, as far as the snapshot is concerned.
type Saves interface{ Takes() error }

// Planes are told of the coordinates in use.
type Planes interface {
	// InOtherCoordinates requests planes and a study in the coordinates in use. The last study was
	// of other ones.
	InOtherCoordinates()
	// SayStale serves the same model again if its basis has become stale.
	SayStale()
}

// New has nothing under way. write writes to the control topic. began is when the daemon was made.
// With retract the topic shall have no basis.
func New(c *loop.Loop, s Saves, p Planes, f *Filling, hasCaughtUp *atomic.Bool, write func(context.Context, []control.Record) error, began time.Time, retract bool) *Bases {
	return &Bases{
		Loop: c, saves: s, planes: p, filling: f, hasCaughtUp: hasCaughtUp, write: write, started: began,
		shared: sharedBasis{topic: c.Config.Retire.Topic, later: time.Duration(c.Salt[0]) * notWhole / 256, retract: retract},
	}
}

// IsUnderWay reports whether a reduction or a pass over the log is.
func (r *Bases) IsUnderWay() bool { return r.reducing != nil || r.reading != nil }

// IsKnown reports whether the control topic has been read up to its end.
func (r *Bases) IsKnown() bool { return r.shared.known }

// RetryAt is the earliest time at which a basis is chosen or built next.
func (r *Bases) RetryAt(at time.Time) { r.again = at }

// Reduction is the reduction under way, or nil.
func (r *Bases) Reduction() *Reduction { return r.reducing }

// listedBlocks bounds the blocks that an answer names.
const listedBlocks = 100

// WhenDue drops, builds or chooses a basis, whichever is due.
func (r *Bases) WhenDue(now time.Time) error {
	if r.Config.Kernel.Function == config.KernelNone {
		if s := &r.shared; s.known && s.retract && s.has.Keys > 0 {
			r.empty(now)
		}
		return nil
	}
	if r.Live.HasBasis() && !r.Live.Parted() {
		if err := r.Flush(); err != nil {
			return err
		}
		if !r.Live.Parted() {
			r.retracts()
			r.dropBasis("the live rows are of fewer than two classes")
			r.again, r.problem = time.Time{}, "" // when there are two, nothing has failed
		}
	}
	r.planes.SayStale()
	if r.shared.topic != "" {
		r.follow(now)
	}
	if r.Live.Next() != nil {
		if err := r.build(now); err != nil {
			return err
		}
	}
	if (r.shared.topic == "" || r.shared.known) && r.Live.Next() == nil && r.reducing == nil && r.reductionDue(now) {
		return r.beginReduction(now, false)
	}
	return nil
}

// FeaturesFreed abandons work on features that are no longer fixed.
func (r *Bases) FeaturesFreed() {
	r.endReduction()
	r.endReading()
	r.planes.InOtherCoordinates()
}

// endReduction abandons the reduction under way.
func (r *Bases) endReduction() {
	if r.reducing != nil {
		r.reducing.Cancel()
		r.reducing = nil
		r.Live.Chosen()
	}
}

// dropBasis goes back to planes in the features, as a daemon would that starts with the
// live blocks. Another basis is chosen when the live blocks support one again.
func (r *Bases) dropBasis(why string) {
	if !r.Live.HasBasis() {
		return
	}
	r.endReduction()
	r.endReading()
	r.Live.DropBases()
	r.planes.InOtherCoordinates()
	r.Log.Warn().Str("reason", why).Msg("the basis is dropped; planes are in the features again")
}

func (r *Bases) endReading() {
	if r.reading != nil {
		r.reading.Cancel()
	}
}

// build continues the epoch that is being built.
func (r *Bases) build(now time.Time) error {
	next := r.Live.Next()
	switch {
	case next.Missing() == 0:
		r.switchEpoch()
		return nil
	case r.reading != nil || now.Before(r.again) || r.Rests(loop.TaskRebuild, now):
		return nil
	case next.Waits() && r.Config.Kernel.Unread == config.UnreadSkip:
		return r.skipUnread()
	case next.Waits():
		return nil
	}
	wanted := slices.DeleteFunc(r.Live.Page(retire.Lowest, math.MaxInt), func(e retire.Entry) bool {
		return !next.Wants(e.ID)
	})
	failed := func(error) { r.reading = nil }
	if at := r.Live.Part(); at != nil {
		blocks := r.Live.MomentInUse(wanted)
		r.reading = r.Begin(loop.TaskRebuild, true, func(ctx context.Context) func() {
			err := r.takeParts(ctx, next, blocks, at)
			return func() { r.endReadInto(ctx, next, nil, err) }
		}, failed)
		return nil
	}
	blocks := r.Live.Moment(wanted)
	r.reading = r.Begin(loop.TaskRebuild, true, func(ctx context.Context) func() {
		unread, err := r.readInto(ctx, next, blocks)
		return func() { r.endReadInto(ctx, next, unread, err) }
	}, failed)
	return nil
}

// skipUnread retires the blocks that the log does not return.
func (r *Bases) skipUnread() error {
	next := r.Live.Next()
	unread := r.unread()
	for _, id := range next.MissingIDs() {
		if _, err := r.DropLost(id, func() bool { return next.Lacks(id) }); err != nil {
			return err
		}
	}
	r.skipped = unread
	r.Log.Warn().Int("blocks", len(unread)).Str("block", r.Logged(unread[0].ID)).Str("reason", unread[0].Reason).
		Msg("retired blocks that the log does not return for the new coordinates (kernel.unread is skip)")
	r.switchEpoch()
	return nil
}

// unread lists the blocks that the log does not return, by id.
func (r *Bases) unread() (out []httpapi.UnreadBlock) {
	for _, u := range r.Live.Next().Unread() {
		out = append(out, httpapi.UnreadBlock{ID: u.ID, Rows: u.Rows, Reason: u.Reason.Error()})
	}
	return out
}

// switchEpoch takes the finished epoch into use.
func (r *Bases) switchEpoch() {
	r.Live.Switch()
	r.planes.InOtherCoordinates()
	r.switched = time.Now()
	r.took = r.switched.Sub(r.at)
	r.Log.Info().Str("basis", r.Live.InUse().ID).Int("blocks", r.Live.Blocks()).Msg("all live blocks are in the coordinates of the new basis")
}

// summarised is a block in the coordinates of an epoch.
type summarised struct {
	summary *incremental.Summary
	digest  [32]byte // of its labelled rows in the features
}

// readInto reads blocks from the log and has the loop add them to an epoch.
func (r *Bases) readInto(ctx context.Context, next *live.Space, blocks *live.Blocks) (unread []live.Unread, err error) {
	r.Log.Info().Int("blocks", len(blocks.Entries)).Msg("reading blocks again for the coordinates of a new basis")
	c := next.Coordinates
	return loop.ReadAgain(ctx, r.Topic, r.Live, r.Call, blocks, true, loop.AtOnce(c.Size()), func(w *passes.Worker, b *incremental.Block, s *incremental.Summary) (summarised, error) {
		in, err := w.Keeper.Summary(ctx, b, c)
		return summarised{in, s.LabelledDigest()}, err
	}, func(e retire.Entry, z summarised) error { return r.take(next, e, z) })
}

// take adds a live block to an epoch.
func (r *Bases) take(next *live.Space, e retire.Entry, z summarised) error {
	if err := r.saves.Takes(); err != nil {
		return err
	}
	if r.Failure == nil && r.Live.Take(next, e.ID, z.summary, z.digest) {
		r.taken += e.Rows
	}
	return nil
}

// takeParts has the loop add blocks to an epoch whose coordinates are some of those in use, at the
// given places. Their summaries are parts of those that there are, so the log is not read.
func (r *Bases) takeParts(ctx context.Context, next *live.Space, blocks *live.UseBlocks, at []int) error {
	r.Log.Info().Int("blocks", len(blocks.Entries)).Msg("taking the sums of a part of the basis from those in use")
	for some := range slices.Chunk(blocks.Entries, loop.AtOnce(next.Coordinates.Size())) {
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
				return fmt.Errorf("block %s in the coordinates in use: %w", r.Logged(e.ID), err)
			}
		}
		err := r.Call(ctx, func() error {
			for _, e := range some {
				if now, live := r.Live.Get(e.ID); !live || now != e {
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
func (r *Bases) endReadInto(ctx context.Context, next *live.Space, unread []live.Unread, err error) {
	r.reading = nil
	switch {
	case ctx.Err() != nil:
	case err != nil:
		r.again = time.Now().Add(loop.AfterFailure)
		r.Log.Error().Err(err).Msg("blocks could not be read again for the coordinates of a new basis; it will be tried again")
	case len(unread) > 0:
		r.Live.SetUnread(next, unread)
		r.Log.Warn().Int("blocks", len(unread)).Str("block", r.Logged(unread[0].ID)).AnErr("reason", unread[0].Reason).
			Msg("blocks are not in the coordinates of the new basis, since the log does not return them unchanged")
	}
}

// Report is the part of the answer that is cheap enough to make after every step.
func (r *Bases) Report() *httpapi.EpochAnswer {
	a := &httpapi.EpochAnswer{Problem: r.problem, Served: r.Front.Served().BasisID()}
	if e := r.Live.InUse(); e.Coordinates != nil {
		a.Epoch, a.InUse, a.Stale = e.Number, e.Reduction, e.Stale() != live.Fresh
	}
	if job := r.reducing; job != nil {
		a.Reducing = &httpapi.ReducingAnswer{Began: job.began.UTC(), Stages: job.Stages()}
	}
	if e := r.Live.Next(); e != nil {
		b := &httpapi.RebuildAnswer{
			Reduction: e.Reduction, Blocks: r.Live.Blocks() - e.Missing(), Missing: e.Missing(),
			Rows: e.Rows(), LiveRows: r.Live.Rows(), Unread: len(e.Unread()), Stale: e.Stale() != live.Fresh,
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
func (r *Bases) mustGo() bool {
	e := r.Live.InUse()
	return e.Stale() >= live.SourceRetired && r.Config.Kernel.OnRetire == config.OnRetireReduce
}

// forgetDue reports whether another basis should be chosen because the one in use is stale.
// After a retirement that is due at once. Values of keys are replaced all the time, so
// replacements wait until rebuilding takes at most 1/share of the time.
func (r *Bases) forgetDue(stale live.Staleness, policy config.OnRetire, now time.Time) bool {
	return policy == config.OnRetireReduce &&
		(stale >= live.SourceRetired || stale == live.SourceReplaced && now.Sub(r.switched) >= loop.Share*r.took)
}

// Conditions lists what the operator should know of bases, and of the sample that they are chosen
// from.
func (r *Bases) Conditions() (all []httpapi.Problem) {
	all = r.sharedConditions()
	if r.problem != "" && r.reducing == nil && r.Live.Next() == nil {
		all = append(all, httpapi.Problem{Kind: httpapi.ProblemBasis, Subject: "reduction", Text: "no basis could be chosen: " + r.problem})
	}
	if n := len(r.filling.Unread); n > 0 && r.mustGo() && r.reducing == nil && r.Live.Next() == nil && r.filling.reading == nil {
		all = append(all, httpapi.Problem{
			Kind: httpapi.ProblemBasis, Subject: "sample", Count: int64(n),
			Text:   fmt.Sprintf("the basis in use was chosen from blocks that have been retired since, and no other can be chosen: the row sample lacks rows of %d blocks that the log does not return unchanged", n),
			Action: "retire the blocks that the log no longer has, or produce them again",
		})
	}
	if p := r.filling.condition(); p != nil {
		all = append(all, *p)
	}
	if e := r.Live.Next(); e != nil && e.Waits() {
		all = append(all, httpapi.Problem{
			Kind: httpapi.ProblemBasis, Subject: "rebuild", Count: int64(e.Missing()),
			Text:   fmt.Sprintf("the new basis waits for blocks that the log does not return unchanged, %d of them (see /v1/epoch)", e.Missing()),
			Action: "retire them, or set kernel.unread: skip",
		})
	}
	return all
}
