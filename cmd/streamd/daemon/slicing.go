package daemon

import (
	"context"
	"fmt"
	"time"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/httpapi"
	"streamd/ingest/kafka"
)

// Many blocks may depart at once: a request chooses them, or the control topic, or the policy lets
// them go, or their log was deleted. The loop takes them out in slices, and applies deliveries
// between two slices. It does nothing else before the last one: it does not save or solve, and
// takes no calls. So all who ask, and the file, see the live set before or after. If the process
// ends in between, the file is as it was.
//
// What is left is that of the live set without the blocks, since the ledger lacks them from the
// beginning (see the package live).

const (
	sliceTime  = 10 * time.Millisecond  // of a slice, about
	leastSlice = 64                     // blocks of a slice, and of the first one: how long these take is not known yet
	mostSlice  = 4096                   // likewise
	stopTime   = 500 * time.Millisecond // for the slices that are left when a stop begins

	// departAtOnce is the number of blocks that one change takes out without slices.
	departAtOnce = leastSlice
)

// errAbandoned says that the daemon stops before all blocks have departed.
var errAbandoned = fmt.Errorf("the daemon stops while blocks are being taken out: none is, and what was read since the last save is read again: %w", httpapi.ErrUnavailable)

// slicing is what the loop does in slices.
//
//	rests     work is nil, and no block departs
//	works     slices of work, then slices of departing blocks
//	abandons  the daemon has failed, or stops; the works are told, and nothing is saved any more
type slicing struct {
	work    *slicedWork
	settled []func(error) // called when no block departs any more, or the daemon has failed
	n       int           // blocks of the next slice; 0: that is the first one of its kind
	least   int           // see leastSlice
	most    int           // see mostSlice

	held  *intake.Delivery // a call that comes after the slices
	until time.Time        // when a stop gives up; zero: none has begun

	longest time.Duration // turn of the loop
}

// slicedWork is work on many blocks.
type slicedWork struct {
	slice   func(n int) (more bool, err error) // works on about n blocks
	arrives func() (may bool)                  // called before deliveries are applied between two slices
	end     func(error)                        // called after the last slice; with an error the daemon has failed
}

// slices reports whether slices are left.
func (c *core) slices() bool {
	return c.failure == nil && (c.slicing.work != nil || c.live.Departing() > 0)
}

// inSlices does the first slices of work, for about as long as a slice takes. The loop does the
// rest. No other work is under way.
func (c *core) inSlices(w *slicedWork) {
	s := &c.slicing
	s.work = w
	for began := time.Now(); s.work != nil && s.most > s.least && time.Since(began) < sliceTime/2; {
		c.nextSlice()
	}
}

// nextSlice does a slice.
func (c *core) nextSlice() {
	s, began := &c.slicing, time.Now()
	s.n = max(s.n, s.least)
	var err error
	if w := s.work; w != nil {
		var more bool
		if more, err = w.slice(s.n); err == nil && !more {
			s.work, s.settled = nil, append(s.settled, w.end)
		}
	} else {
		_, err = c.live.Depart(s.n)
	}
	if err != nil {
		c.fail(err) // nothing is saved any more, so a restart has all blocks
	}
	faster := float64(sliceTime) / float64(max(time.Since(began), 1))
	s.n = min(int(float64(s.n)*min(faster, 4)), s.most)
	c.afterSlices()
}

// retireFormerLog retires the blocks of a log that no longer exists. Records of the new one wait
// until the blocks have left the ledger, and then come between the slices in which they leave the
// sums.
func (d *Daemon) retireFormerLog(gap *kafka.GapError, former []string) {
	next := 0
	d.inSlices(&slicedWork{
		slice: func(n int) (more bool, err error) {
			few := former[next:min(next+n, len(former))]
			next += len(few)
			if next == len(former) {
				d.slicing.n = 0 // the sums take longer, how long is not known yet
			}
			return next < len(former), d.intake.RetireFormerLog(few, len(former))
		},
		arrives: func() bool { return false },
		end: func(err error) {
			if err == nil {
				d.log.Warn().Str("topic", gap.Topic).Int("partition", gap.Partition).Int("blocks", len(former)).Msg("blocks of the former topic retired")
			}
		},
	})
}

// whenSettled calls f when no block departs any more, which may be now.
func (c *core) whenSettled(f func(error)) {
	c.slicing.settled = append(c.slicing.settled, f)
	c.afterSlices()
}

// afterSlices calls those who wait for the last slice.
func (c *core) afterSlices() {
	s := &c.slicing
	if c.slices() {
		return
	}
	if w := s.work; w != nil {
		s.work = nil
		w.end(c.failure)
	}
	all := s.settled
	s.settled, s.n, s.until = nil, 0, time.Time{}
	for _, f := range all {
		f(c.failure)
	}
}

// turn notes that a turn of the loop, which began then, has ended.
func (c *core) turn(began time.Time) {
	took := time.Since(began)
	c.slicing.longest = max(c.slicing.longest, took)
	c.metrics.TurnSeconds.Observe(took.Seconds())
}

// slice does a slice, and then applies deliveries for as long.
func (d *Daemon) slice(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // pending deliveries are read again
	}
	began := time.Now()
	if d.abandons(began) {
		d.fail(errAbandoned)
		d.afterSlices()
		return nil
	}
	d.nextSlice()
	took := time.Since(began)
	d.turn(began)
	for until := time.Now().Add(took); d.slices() && time.Now().Before(until); {
		began := time.Now()
		y := d.nextBetween()
		if y == nil {
			break
		}
		d.applyNext(ctx, y)
		d.turn(began)
		if waiting, _ := d.intake.Waiting(); waiting == y {
			break // there is no room for its next block yet
		}
	}
	d.afterSlices() // a delivery may have failed
	return nil
}

// abandons reports whether a stop has begun too long ago for the slices that are left.
func (d *Daemon) abandons(now time.Time) bool {
	s := &d.slicing
	select {
	case <-d.stopping:
	default:
		return false
	}
	if s.until.IsZero() {
		s.until = now.Add(stopTime)
	}
	return now.After(s.until)
}

// nextBetween is the next delivery that may be applied between two slices, or nil.
func (d *Daemon) nextBetween() *intake.Delivery {
	s := &d.slicing
	if j := d.saver.job; j != nil {
		select {
		case <-j.done: // what it has saved takes no room any more
			j.await()
		default:
		}
	}
	y, wants := d.intake.Waiting()
	if s.held != nil || d.intake.Sending() != nil || d.saver.problem != nil || !d.saver.hasRoom(wants) || d.live.Emptied() {
		return nil
	}
	if w := s.work; w != nil && w.arrives != nil && (y != nil || len(d.intake.Deliveries()) > 0) && !w.arrives() {
		return nil
	}
	if y != nil {
		return y
	}
	select {
	case next, ok := <-d.intake.Deliveries():
		if ok && next.IsCall() { // it may save, or ask
			s.held = next
			return nil
		}
		return next // nil after the last one
	default:
		return nil
	}
}

// applyNext applies a delivery, or the rest of the one that waits.
func (d *Daemon) applyNext(ctx context.Context, y *intake.Delivery) {
	if waiting, _ := d.intake.Waiting(); waiting == y {
		d.applied(d.intake.Continue(ctx))
	} else {
		d.applied(d.intake.Apply(ctx, y))
	}
	d.publisher.note(y)
	d.intake.Release(y)
}
