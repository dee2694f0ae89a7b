package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/loop"
)

// loop is the goroutine that owns the live set. Everything that changes the set happens
// here, one step after the other. It ends when the order is closed and empty. When ctx
// ends, it ends at once and leaves pending deliveries.
func (d *Daemon) loop(ctx context.Context) error {
	background, stop := context.WithCancel(ctx)
	d.Background = background
	defer d.Running.Wait()
	defer d.Studies.AwaitEnd(ctx)
	defer d.Saver.Await()
	defer stop()
	tick := time.NewTicker(d.tickInterval())
	defer tick.Stop()
	solve := time.NewTimer(0)
	defer solve.Stop()
	d.Live.DepartAtOnce(loop.DepartAtOnce)
	began := time.Now() // of the turn
	for {
		if d.Slices() {
			d.Turn(began)
			for d.Slices() {
				if err := d.slice(ctx); err != nil {
					return err
				}
			}
			began = time.Now()
		}
		d.rest()
		d.Turn(began)
		if wait, waits := d.publisher.DueIn(time.Now()); waits {
			solve.Reset(wait)
		} else {
			solve.Stop()
		}
		order, more, again, stopping, calls := d.Intake.Deliveries(), (<-chan struct{})(nil), (<-chan struct{})(nil), (<-chan struct{})(nil), d.Calls
		if d.Behind {
			again = always
		}
		next, _ := d.Intake.Waiting()
		switch {
		case d.Intake.Sending() != nil:
			order, more = nil, d.Intake.Sending()
			stopping = d.Stopping // a stop does not wait for brokers that take no dead letters
		case d.Failure == nil && d.Saver.IsFull():
			order = nil // take no more deliveries
			if d.Saver.Problem() != nil {
				stopping = d.Stopping // a stop does not wait for the disk
			}
		case next != nil:
			order, more = nil, always
		case d.held != nil:
			next = d.held
			order, more = nil, always
		}
		if d.Live.Departing() > 0 {
			calls = nil // the daemon has failed, and nobody sees what was half done
		}
		select {
		case <-more:
			began = time.Now()
			if next == d.held {
				d.held = nil
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
			if _, unsent := d.Intake.Unsent(); unsent != nil {
				d.Intake.StopSending()
				return cmp.Or(d.Failure, fmt.Errorf("the last changes are not saved and will be read again: %w", unsent))
			}
			if err := d.finish(); d.Saver.Problem() != nil {
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
	if d.Live.Departing() > 0 {
		return // the daemon has failed
	}
	d.Intake.FreeFeatures()
	d.Behind = false
	if d.Failure == nil {
		if err := d.whenDue(time.Now()); err != nil {
			d.Fail(err)
		}
	}
	d.updateStatus()
}

// A part of the loop begins the work that is due. With an error the daemon fails.
type part interface{ WhenDue(now time.Time) error }

// whenDue has each part begin the work that is due.
func (d *Daemon) whenDue(now time.Time) error {
	if err := d.Store.Broken(); err != nil {
		return err
	}
	d.Intake.Tell(now)
	for _, p := range d.parts {
		if err := p.WhenDue(now); err != nil {
			return err
		}
	}
	return nil
}

// applied takes the result of applying records. With an error the daemon fails.
func (d *Daemon) applied(err error) {
	d.Delivered = time.Now()
	d.publisher.Changed()
	if err != nil {
		d.Fail(err)
	}
}

// always is a closed channel.
var always = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

func (d *Daemon) tickInterval() time.Duration {
	return min(max(d.Config.Snapshot.Interval/4, 5*time.Millisecond), loop.Quiet)
}

// finish ends the loop after all deliveries have been applied: it saves.
func (d *Daemon) finish() error {
	if d.Failure == nil && d.Saver.HasUnsaved() {
		if n := d.Live.Unsaved(); n > 0 {
			d.Log.Info().Int("blocks", n).Msg("saving what has changed since the last save")
		}
		if err := d.Saver.Save(); err != nil {
			return fmt.Errorf("the last changes are not saved and will be read again: %w", err)
		}
	}
	if errors.Is(d.Failure, loop.ErrAbandoned) {
		d.Log.Warn().Msg(loop.ErrAbandoned.Error())
		return nil
	}
	return d.Failure
}

// slice does a slice, and then applies deliveries for as long.
func (d *Daemon) slice(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // pending deliveries are read again
	}
	began := time.Now()
	if d.Abandons(began) {
		d.Fail(loop.ErrAbandoned)
		d.AfterSlices()
		return nil
	}
	d.NextSlice()
	took := time.Since(began)
	d.Turn(began)
	for until := time.Now().Add(took); d.Slices() && time.Now().Before(until); {
		began := time.Now()
		y := d.nextBetween()
		if y == nil {
			break
		}
		d.applyNext(ctx, y)
		d.Turn(began)
		if waiting, _ := d.Intake.Waiting(); waiting == y {
			break // there is no room for its next block yet
		}
	}
	d.AfterSlices() // a delivery may have failed
	return nil
}

// nextBetween is the next delivery that may be applied between two slices, or nil.
func (d *Daemon) nextBetween() *intake.Delivery {
	d.Saver.EndIfWritten()
	y, wants := d.Intake.Waiting()
	if d.held != nil || d.Intake.Sending() != nil || d.Saver.Problem() != nil || !d.Saver.HasRoom(wants) || d.Live.Emptied() {
		return nil
	}
	if (y != nil || len(d.Intake.Deliveries()) > 0) && !d.MayArrive() {
		return nil
	}
	if y != nil {
		return y
	}
	select {
	case next, ok := <-d.Intake.Deliveries():
		if ok && next.IsCall() { // it may save, or ask
			d.held = next
			return nil
		}
		return next // nil after the last one
	default:
		return nil
	}
}

// applyNext applies a delivery, or the rest of the one that waits.
func (d *Daemon) applyNext(ctx context.Context, y *intake.Delivery) {
	if waiting, _ := d.Intake.Waiting(); waiting == y {
		d.applied(d.Intake.Continue(ctx))
	} else {
		d.applied(d.Intake.Apply(ctx, y))
	}
	d.publisher.Note(y)
	d.Intake.Release(y)
}
