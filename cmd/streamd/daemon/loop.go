package daemon

import (
	"context"
	"fmt"
	"math"
	"time"
)

// loop is the goroutine that owns the live set: everything that changes it
// happens here, one after the other. It ends when the order is closed and
// empty, or, leaving what is in hand, when ctx ends.
func (d *Daemon) loop(ctx context.Context) error {
	background, stop := context.WithCancel(ctx)
	d.background = background
	defer d.ends.Wait()
	defer d.abandonStudy(ctx)
	defer d.awaitSave()
	defer d.awaitCompaction()
	defer stop()
	tick := time.NewTicker(d.tickInterval())
	defer tick.Stop()
	for {
		order, more, stopping := d.intake.Deliveries(), (<-chan struct{})(nil), (<-chan struct{})(nil)
		waiting, wants := d.intake.Waiting()
		switch {
		case d.failure == nil && (d.live.Unsaved() >= d.mostUnsaved() || !d.hasRoom(wants)):
			order = nil // nothing more is taken in
			if d.saveProblem != nil {
				stopping = d.stopping // a stop does not wait for the disk
			}
		case waiting != nil:
			order, more = nil, always
		}
		select {
		case <-more:
			d.applied(d.intake.Continue(ctx))
			d.intake.Release(waiting)
		case y, ok := <-order:
			if !ok {
				return d.finish()
			}
			d.applied(d.intake.Apply(ctx, y))
			d.intake.Release(y)
		case <-stopping:
			if err := d.finish(); d.saveProblem != nil {
				return err
			}
		case call := <-d.calls:
			call()
		case next := <-d.solved:
			d.endSolve(next)
		case s := <-d.studied:
			d.endStudy(s)
		case s := <-d.saved:
			d.endSave(s)
		case <-d.compacted():
			d.endCompaction()
		case <-ctx.Done():
			return context.Cause(ctx) // what is in hand is read again
		case <-tick.C:
		}
		d.intake.FreeFeatures()
		d.everySoOften()
		if d.live.HasSample() && d.failure == nil {
			d.fillSample(background, time.Now())
		}
		if d.failure == nil {
			d.rebuild(background, time.Now())
			d.studyWhenDue(background, time.Now())
		}
		d.updateStatus()
	}
}

// applied notes that records have been applied, or why the daemon cannot go on.
func (d *Daemon) applied(err error) {
	d.delivered, d.changed = time.Now(), true
	if err != nil {
		d.fail(err)
	}
}

// always is closed.
var always = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// hasRoom says whether a block of so many bytes may come to those that wait for a save.
// While a save is on its way, as many bytes may come as there is room for beside those
// that are in it. A block that is larger comes alone.
func (d *Daemon) hasRoom(bytes int64) bool {
	waiting := d.live.Waiting()
	if d.saving != nil {
		waiting -= d.saving.bytes
	}
	return waiting <= 0 || waiting+bytes <= d.intake.Room()
}

// mostUnsaved bounds the blocks that wait for a disk that is full or slow: while a
// save is on its way, as many may come as are in it, if there is room for them.
func (d *Daemon) mostUnsaved() int {
	switch {
	case d.saveProblem != nil:
		return min(d.cfg.Snapshot.Blocks, d.live.Room())
	case d.compaction != nil: // the next save waits for it
		return max(d.live.Room(), d.cfg.Snapshot.Blocks)
	case d.saving != nil:
		return d.saving.blocks + min(max(d.saving.blocks, d.cfg.Snapshot.Blocks), d.live.Room())
	}
	return math.MaxInt
}

func (d *Daemon) tickInterval() time.Duration {
	return min(max(min(d.cfg.Model.SolveInterval, d.cfg.Snapshot.Interval)/4, 5*time.Millisecond), 250*time.Millisecond)
}

// share bounds what saving, and copying the sums for a solve, may take of the
// loop's time: one part in so many each, however wide the state is. Saving takes more
// where blocks come faster than there is room for them.
const share = 20

// quiet is how long nothing has come when a save or a solve no longer waits for its
// share: longer than the pauses between the fetches of a fast stream.
const quiet = 50 * time.Millisecond

// everySoOften saves and solves what is due.
func (d *Daemon) everySoOften() {
	if d.failure != nil {
		return
	}
	now := time.Now()
	d.intake.Tell(now)
	if d.unsavedSince.IsZero() && d.hasUnsaved() {
		d.unsavedSince = now
	}
	_, wants := d.intake.Waiting()
	full := d.live.Unsaved() >= d.live.Room() || !d.hasRoom(wants)
	due := !d.unsavedSince.IsZero() && now.Sub(d.unsavedSince) >= d.cfg.Snapshot.Interval ||
		d.live.Unsaved() >= d.cfg.Snapshot.Blocks || full
	pause := d.pause(d.saveTook, now) // who replays may be waiting for what this save will commit
	if full {
		pause = 0
	}
	if d.saveProblem != nil {
		pause = max(pause, d.cfg.Snapshot.Interval)
	}
	if due && d.saving == nil && d.compaction == nil && now.Sub(d.lastSaveTry) >= pause {
		d.beginSave()
	}
	if d.saving == nil && d.compaction == nil && compactionIsDue(d.cfg.Snapshot.Scrub, d.live.Uncompacted(), d.lastCompaction, now) {
		d.beginCompaction(now)
	}
	if d.changed && !d.solving && now.Sub(d.lastSolve) >= max(d.cfg.Model.SolveInterval, d.pause(d.copyTook, now)) {
		d.solve(time.Now()) // what the save took is not the solve's
	}
}

// pause is how long the loop goes without what took it so long: not at all where it has
// had nothing else to do for as long.
func (d *Daemon) pause(took time.Duration, now time.Time) time.Duration {
	if now.Sub(d.delivered) >= max(quiet, took) {
		return 0
	}
	return share * took
}

// fail ends the daemon with an error, without applying anything more.
func (d *Daemon) fail(err error) {
	if d.failure == nil {
		d.failure = err
		d.intake.Fail()
		d.stop(err)
	}
}

// finish is the end of the loop: everything delivered has been applied.
func (d *Daemon) finish() error {
	if d.failure == nil && d.hasUnsaved() {
		if n := d.live.Unsaved(); n > 0 {
			d.log.Info().Int("blocks", n).Msg("saving what has changed since the last save")
		}
		d.save()
		if d.saveProblem != nil {
			return fmt.Errorf("the last changes are not saved and will be read again: %w", d.saveProblem)
		}
	}
	return d.failure
}

// inLoop runs f in the loop, between two deliveries, and gives its answer. f may
// still run after ctx has ended; its answer is dropped then.
func inLoop[T any](ctx context.Context, d *Daemon, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	var none T
	select {
	case d.calls <- func() {
		value, err := f()
		done <- answer{value, err}
	}:
	case <-d.loopDone:
		return none, errStopping
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// call is inLoop for what has no answer.
func (d *Daemon) call(ctx context.Context, f func() error) error {
	_, err := inLoop(ctx, d, func() (struct{}, error) { return struct{}{}, f() })
	return err
}
