package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// loop is the goroutine that owns the live set. Everything that changes the set happens
// here, one step after the other. It ends when the order is closed and empty. When ctx
// ends, it ends at once and leaves pending deliveries.
func (d *Daemon) loop(ctx context.Context) error {
	background, stop := context.WithCancel(ctx)
	d.background = background
	defer d.running.Wait()
	defer d.studying.abandon(ctx)
	defer d.saver.await()
	defer stop()
	tick := time.NewTicker(d.tickInterval())
	defer tick.Stop()
	solve := time.NewTimer(0)
	defer solve.Stop()
	d.live.DepartAtOnce(departAtOnce)
	began := time.Now() // of the turn
	for {
		if d.slices() {
			d.turn(began)
			for d.slices() {
				if err := d.slice(ctx); err != nil {
					return err
				}
			}
			began = time.Now()
		}
		d.rest()
		d.turn(began)
		if wait, waits := d.publisher.dueIn(time.Now()); waits {
			solve.Reset(wait)
		} else {
			solve.Stop()
		}
		order, more, again, stopping, calls := d.intake.Deliveries(), (<-chan struct{})(nil), (<-chan struct{})(nil), (<-chan struct{})(nil), d.calls
		if d.behind {
			again = always
		}
		next, _ := d.intake.Waiting()
		switch {
		case d.intake.Sending() != nil:
			order, more = nil, d.intake.Sending()
			stopping = d.stopping // a stop does not wait for brokers that take no dead letters
		case d.failure == nil && d.saver.isFull():
			order = nil // take no more deliveries
			if d.saver.problem != nil {
				stopping = d.stopping // a stop does not wait for the disk
			}
		case next != nil:
			order, more = nil, always
		case d.slicing.held != nil:
			next = d.slicing.held
			order, more = nil, always
		}
		if d.live.Departing() > 0 {
			calls = nil // the daemon has failed, and nobody sees what was half done
		}
		select {
		case <-more:
			began = time.Now()
			if next == d.slicing.held {
				d.slicing.held = nil
			}
			d.applyNext(ctx, next)
		case y, ok := <-order:
			if !ok {
				return d.finish()
			}
			began = time.Now()
			d.applyNext(ctx, y)
		case <-stopping:
			began = time.Now()
			if _, unsent := d.intake.Unsent(); unsent != nil {
				d.intake.StopSending()
				return cmp.Or(d.failure, fmt.Errorf("the last changes are not saved and will be read again: %w", unsent))
			}
			if err := d.finish(); d.saver.problem != nil {
				return err
			}
		case call := <-calls:
			began = time.Now()
			call()
		case <-ctx.Done():
			return context.Cause(ctx) // pending deliveries are read again
		case <-tick.C:
			began = time.Now()
		case <-solve.C:
			began = time.Now()
		case <-again:
			began = time.Now()
		}
	}
}

// rest does what is due between two deliveries.
func (d *Daemon) rest() {
	if d.live.Departing() > 0 {
		return // the daemon has failed
	}
	d.intake.FreeFeatures()
	d.whenDue(time.Now())
	d.updateStatus()
}

// whenDue has each part begin the work that is due.
func (d *Daemon) whenDue(now time.Time) {
	d.behind = false
	if d.failure != nil {
		return
	}
	if err := d.store.Broken(); err != nil {
		d.fail(err)
		return
	}
	d.publisher.whenDue(now) // first, since what it serves is awaited
	d.intake.Tell(now)
	d.forgetWindows(now)
	d.archiving.whenDue(now)
	d.saver.whenDue(now)
	if d.withdrawing.whenDue(now); d.failure != nil {
		return
	}
	if d.filling.whenDue(now); d.failure != nil {
		return
	}
	if d.rebuilding.whenDue(now); d.failure != nil {
		return
	}
	if d.studying.whenDue(now); d.failure != nil {
		return
	}
	if d.watching.whenDue(now); d.failure != nil {
		return
	}
	d.refeaturing.whenDue(now)
}

// applied takes the result of applying records. With an error the daemon fails.
func (d *Daemon) applied(err error) {
	d.delivered, d.publisher.changed = time.Now(), true
	if err != nil {
		d.fail(err)
	}
}

// always is a closed channel.
var always = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

func (d *Daemon) tickInterval() time.Duration {
	return min(max(d.cfg.Snapshot.Interval/4, 5*time.Millisecond), quiet)
}

// finish ends the loop after all deliveries have been applied: it saves.
func (d *Daemon) finish() error {
	if d.failure == nil && d.saver.hasUnsaved() {
		if n := d.live.Unsaved(); n > 0 {
			d.log.Info().Int("blocks", n).Msg("saving what has changed since the last save")
		}
		if d.saver.save(); d.saver.problem != nil {
			return fmt.Errorf("the last changes are not saved and will be read again: %w", d.saver.problem)
		}
	}
	if errors.Is(d.failure, errAbandoned) {
		d.log.Warn().Msg(errAbandoned.Error())
		return nil
	}
	return d.failure
}
