package daemon

import (
	"context"
	"errors"
	"fmt"
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
// What comes and goes meanwhile comes and goes in both. When the epoch has every
// live block it takes the place of the other one, between two deliveries and in
// one transaction with it; what is served stays until planes in the new
// coordinates have been solved. The epoch is saved as it grows, so that a restart
// reads what is left.
type rebuilding struct {
	reducing *reduction         // under way
	reading  context.CancelFunc // ends the pass over the log that is under way; nil: there is none
	again    time.Time          // not before, after a failure
	at       time.Time          // when the last reduction began; zero: not looked at yet
	churn    int64              // of the live set then
	tried    int                // reductions of this process
	problem  string             // why the last reduction came to nothing
	taken    int64              // rows of older blocks, of the epoch being built, by this process
	switched time.Time          // when this process last took a basis into use; zero: never
	took     time.Duration      // from the beginning of its reduction
	skipped  []httpapi.UnreadBlock
}

// listedBlocks bounds the blocks that are named in an answer.
const listedBlocks = 100

// rebuild does what is to be done for the basis now.
func (d *Daemon) rebuild(ctx context.Context, now time.Time) {
	if d.cfg.Kernel.Function == config.KernelNone {
		return
	}
	if d.live.HasBasis() && !d.live.Parted() && d.isFlushed() && !d.live.Parted() {
		d.dropBasis("the live rows are of fewer than two classes")
		d.rebuilding.again, d.rebuilding.problem = time.Time{}, "" // when there are two, nothing has failed
	}
	d.sayStale()
	if d.live.Next() != nil {
		d.build(ctx, now)
	}
	if d.live.Next() == nil && d.rebuilding.reducing == nil && d.reductionDue(now) {
		d.beginReduction(ctx, now)
	}
}

// featuresFreed ends what is about features that are free again.
func (d *Daemon) featuresFreed() {
	if r := &d.rebuilding; r.reducing != nil {
		r.reducing.end()
		r.reducing = nil
	}
	d.endReading()
	d.inOtherCoordinates()
}

// dropBasis goes back to the planes of the features, where a daemon is that starts with
// the live blocks as they are. Another basis is chosen when they support one again.
func (d *Daemon) dropBasis(why string) {
	if !d.live.HasBasis() {
		return
	}
	r := &d.rebuilding
	if r.reducing != nil {
		r.reducing.end()
		r.reducing = nil
		d.live.Chosen()
	}
	d.endReading()
	d.live.DropBases()
	d.inOtherCoordinates()
	d.log.Warn().Str("reason", why).Msg("the basis is dropped; planes are in the features again")
}

func (d *Daemon) endReading() {
	if end := d.rebuilding.reading; end != nil {
		end()
	}
}

// build goes on with the epoch that is being built.
func (d *Daemon) build(ctx context.Context, now time.Time) {
	r, next := &d.rebuilding, d.live.Next()
	if next.Missing() == 0 {
		d.switchEpoch()
		return
	}
	if r.reading != nil || now.Before(r.again) {
		return
	}
	if next.Waits() {
		if d.cfg.Kernel.Unread == config.UnreadSkip {
			d.skipUnread()
		}
		return
	}
	blocks := d.live.Moment(slices.DeleteFunc(d.live.Page(retire.Lowest, math.MaxInt), func(e retire.Entry) bool {
		return !next.Wants(e.ID)
	}))
	reading, end := context.WithCancel(ctx)
	r.reading = end
	d.ends.Go(func() {
		defer end()
		unread, err := d.readInto(reading, next, blocks)
		d.call(ctx, func() error {
			d.endReadInto(reading, next, unread, err)
			return nil
		})
	})
}

// skipUnread retires the blocks that the log does not give back.
func (d *Daemon) skipUnread() {
	next := d.live.Next()
	unread := d.unread()
	for _, id := range next.MissingIDs() {
		if err := d.intake.EndBlock(d.background, id); err != nil {
			d.fail(err)
			return
		}
		if !next.Lacks(id) {
			continue // its rows were still in hand
		}
		if err := d.live.Remove(id); err != nil {
			d.fail(err)
			return
		}
		d.intake.CountRetired(1)
	}
	d.rebuilding.skipped = unread
	d.log.Warn().Int("blocks", len(unread)).Str("block", d.logged(unread[0].ID)).Str("reason", unread[0].Reason).
		Msg("retired blocks that the log does not give back for the new coordinates (kernel.unread is skip)")
	d.switchEpoch()
}

// unread lists the blocks that the log does not give back, by id.
func (d *Daemon) unread() (out []httpapi.UnreadBlock) {
	for _, u := range d.live.Next().Unread() {
		out = append(out, httpapi.UnreadBlock{ID: u.ID, Rows: u.Rows, Reason: u.Reason.Error()})
	}
	return out
}

// switchEpoch takes the epoch that has been built into use.
func (d *Daemon) switchEpoch() {
	d.live.Switch()
	d.inOtherCoordinates()
	r := &d.rebuilding
	r.switched = time.Now()
	r.took = r.switched.Sub(r.at)
	d.log.Info().Str("basis", d.live.InUse().ID).Int("blocks", d.live.Blocks()).Msg("all live blocks are in the coordinates of the new basis")
}

// inOtherCoordinates has planes solved and studied in the coordinates in use, which the
// last study is not about.
func (d *Daemon) inOtherCoordinates() {
	d.changed = true
	d.studying.last, d.studying.due = nil, d.live.Rows() > 0 || d.studying.asked != nil
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
func (d *Daemon) readInto(ctx context.Context, next *live.Space, blocks *live.Blocks) (unread []live.Unread, err error) {
	d.log.Info().Int("blocks", len(blocks.Entries)).Msg("reading blocks again for the coordinates of a new basis")
	c := next.Coordinates
	atOnce := min(max(takenAtOnce/(8*gram.PackedLen(c.Size())), 1), offersAtOnce)
	return readAgain(ctx, d, blocks, atOnce, func(w *archive.Worker, b *incremental.Block, s *incremental.Summary) (summarised, error) {
		in, err := w.Keeper.Summary(ctx, b, c)
		return summarised{in, s.Digest()}, err
	}, func(e retire.Entry, z summarised) error {
		if d.saveProblem != nil && d.live.Unsaved() >= d.cfg.Snapshot.Blocks {
			return errUnsaved
		}
		if d.failure == nil && d.live.Take(next, e.ID, z.summary, z.digest) {
			d.rebuilding.taken += e.Rows
		}
		return nil
	})
}

// endReadInto is the end of a pass, in the loop. What it has left is not in next,
// since it cannot be read again as it was.
func (d *Daemon) endReadInto(ctx context.Context, next *live.Space, unread []live.Unread, err error) {
	d.rebuilding.reading = nil
	switch {
	case ctx.Err() != nil:
	case err != nil:
		d.rebuilding.again = time.Now().Add(afterFailure)
		d.log.Error().Err(err).Msg("blocks could not be read again for the coordinates of a new basis; it will be tried again")
	case len(unread) > 0:
		d.live.SetUnread(next, unread)
		d.log.Warn().Int("blocks", len(unread)).Str("block", d.logged(unread[0].ID)).AnErr("reason", unread[0].Reason).
			Msg("blocks are not in the coordinates of the new basis, since they cannot be read again as they were")
	}
}

// Reduce implements httpapi.Service.
func (d *Daemon) Reduce(ctx context.Context) error {
	if d.cfg.Kernel.Function == config.KernelNone {
		return fmt.Errorf("kernel.function is none: %w", httpapi.ErrOff)
	}
	return d.call(ctx, func() error {
		r := &d.rebuilding
		switch {
		case d.failure != nil:
			return errStopping
		case d.live.Rows() == 0:
			return fmt.Errorf("there are no live rows: %w", httpapi.ErrUnavailable)
		case d.live.Lacking() > 0:
			return fmt.Errorf("reduce: %w: %w", errLacking, httpapi.ErrUnavailable)
		case r.reducing != nil:
			return fmt.Errorf("reduce: %w", httpapi.ErrBusy)
		case d.live.Next() != nil && !d.live.Next().Waits():
			return fmt.Errorf("reduce: blocks are being put into the coordinates of a basis, which DELETE /v1/reduce gives up: %w", httpapi.ErrBusy)
		}
		d.beginReduction(d.background, time.Now())
		return nil
	})
}

// Abandon implements httpapi.Service.
func (d *Daemon) Abandon(ctx context.Context) error {
	return d.call(ctx, func() error {
		r := &d.rebuilding
		if d.failure != nil {
			return errStopping
		}
		if r.reducing != nil {
			r.reducing.end()
		}
		if d.live.Next() != nil {
			d.endReading()
			d.live.Abandon()
			d.log.Info().Msg("the basis that had been chosen is given up")
		}
		r.again = time.Now().Add(afterFailure)
		return nil
	})
}

// Epoch implements httpapi.Service.
func (d *Daemon) Epoch(ctx context.Context) (*httpapi.EpochAnswer, error) {
	return inLoop(ctx, d, func() (*httpapi.EpochAnswer, error) {
		a := d.epochAnswer()
		a.Skipped = d.rebuilding.skipped[:min(len(d.rebuilding.skipped), listedBlocks)]
		if e := d.live.InUse(); e.Coordinates != nil {
			a.Basis = model.NewBasisJSON(e.Map, d.cfg.Kernel.Regulariser)
		}
		if a.Rebuild != nil {
			a.Rebuild.Reasons = d.unread()
			a.Rebuild.Reasons = a.Rebuild.Reasons[:min(len(a.Rebuild.Reasons), listedBlocks)]
		}
		return a, nil
	})
}

// epochAnswer is what takes no time to say after every step.
func (d *Daemon) epochAnswer() *httpapi.EpochAnswer {
	r := &d.rebuilding
	a := &httpapi.EpochAnswer{Problem: r.problem, Served: d.published.Load().served.BasisID()}
	if e := d.live.InUse(); e.Coordinates != nil {
		a.Epoch, a.InUse, a.Stale = e.Number, e.Reduction, e.Stale() != live.Fresh
	}
	if job := r.reducing; job != nil {
		job.mu.Lock()
		a.Reducing = &httpapi.ReducingAnswer{Began: job.began.UTC(), Stages: append([]model.Stage{}, job.stages...)}
		job.mu.Unlock()
	}
	if e := d.live.Next(); e != nil {
		b := &httpapi.RebuildAnswer{
			Reduction: e.Reduction, Blocks: d.live.Blocks() - e.Missing(), Missing: e.Missing(),
			Rows: e.Rows(), LiveRows: d.live.Rows(), Unread: len(e.Unread()), Stale: e.Stale() != live.Fresh,
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
