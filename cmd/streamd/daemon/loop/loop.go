// Package loop is the one goroutine of a daemon that owns its live set: what it works with and what
// it owns, the ways into it, the work beside it, and how it goes on when something fails.
//
//	environment.go  what every part works with, and what knows none of them
//	loop.go         the state of the loop, and the functions that run in it
//	front.go        what is served
//	jobs.go         work beside the loop, and its failures
//	slices.go       many blocks leave in slices, between deliveries
//	again.go        the loop takes blocks that were read again
//
// A part of the daemon holds a *Loop. It begins jobs with copies of what the loop owns, and they
// end in the loop, so that nothing there needs a lock. The daemon says what the loop does in turn.
package loop

import (
	"context"
	"time"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/live"
)

// Loop is what the loop owns, and the ways into it. Its parts share it.
type Loop struct {
	*Environment
	*Jobs
	Stopping chan struct{} // closed: nothing more is read
	Stop     context.CancelCauseFunc
	Front    *Front

	// The rest belongs to the loop.
	Live      *live.Set
	Intake    *intake.Intake
	Delivered time.Time // when the last batch was applied
	Failure   error     // why the daemon is stopping
	Behind    bool      // blocks are left to be read for weighted sums
	Solving   *Job      // a solve, or a comparison in its place, which needs as much memory; nil: none is under way
	Slicing   slicing
}

// New makes a loop without a live set and an intake.
func New(e *Environment) *Loop {
	return &Loop{Environment: e, Jobs: newJobs(e), Front: newFront(), Stopping: make(chan struct{}), Slicing: slicing{Least: LeastSlice, Most: MostSlice}}
}

// Fail ends the daemon with an error, without applying anything more. It returns what those who ask
// are told. Whoever cannot go on in the loop either calls it or returns the error to who does.
func (l *Loop) Fail(err error) error {
	if l.Failure == nil {
		l.Failure = err
		l.Intake.Fail()
		l.Stop(err)
	}
	return ErrStopping
}

// Ask runs f in the loop, between two deliveries, and returns its result. If ctx ends
// first, f may still run and its result is dropped.
func Ask[T any](ctx context.Context, l *Loop, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	var none T
	select {
	case l.Calls <- func() {
		value, err := f()
		done <- answer{value, err}
	}:
	case <-l.LoopDone:
		return none, l.Ended()
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

// AskKept is Ask for a result that must be given back to the loop. If ctx ends before the loop
// begins f, f never runs. Once f has begun, AskKept waits for its result.
func AskKept[T any](ctx context.Context, l *Loop, f func() (T, error)) (value T, err error) {
	done := make(chan struct{})
	select {
	case l.Calls <- func() {
		defer close(done)
		value, err = f()
	}: // calls has no buffer, so the loop has begun f
		<-done
		return value, err
	case <-l.LoopDone:
		return value, l.Ended()
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
}

// Call is Ask for functions without a result.
func (l *Loop) Call(ctx context.Context, f func() error) error {
	_, err := Ask(ctx, l, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// Change is Ask for functions that change the state: a loop that has failed refuses.
func Change[T any](ctx context.Context, l *Loop, f func() (T, error)) (T, error) {
	return Ask(ctx, l, func() (value T, err error) {
		if l.Failure != nil {
			return value, ErrStopping
		}
		return f()
	})
}

// Do is Change for functions without a result.
func (l *Loop) Do(ctx context.Context, f func() error) error {
	_, err := Change(ctx, l, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// FlushRuns makes the rows of open runs live. all is false if some have no room before the
// next save. With an error the daemon has failed.
func (l *Loop) FlushRuns() (all bool, err error) {
	all, err = l.Intake.Flush(l.Background)
	if err == nil {
		err = l.Live.Settle() // the callers read the sums
	}
	if err != nil {
		return false, l.Fail(err)
	}
	return all, nil
}

// Flush is FlushRuns for callers that do not need to know whether all rows are live.
func (l *Loop) Flush() error { _, err := l.FlushRuns(); return err }

// DropLost retires a block that the log does not return, unless it is no longer lost when
// its open run has ended. With an error the daemon has failed.
func (l *Loop) DropLost(id string, isLost func() bool) (dropped bool, err error) {
	_, err = l.Intake.EndBlocks(l.Background, func(open string) bool { return open == id })
	if err == nil {
		if !isLost() {
			return false, nil
		}
		err = l.Live.Lose(id)
	}
	if err != nil {
		return false, l.Fail(err)
	}
	l.Intake.CountRetired(1)
	return true, nil
}

// Share limits the loop's time for saving, and for copying the sums for a solve: each may
// take 1/share of it, however wide the state is. Saving takes more when blocks come faster
// than there is room for them.
const Share = 20

// Quiet is the length of a pause in the stream after which a save or a solve no longer
// waits for its share. It is longer than the pauses between the fetches of a fast stream.
const Quiet = 50 * time.Millisecond

// Pause is the time that the loop waits before it repeats work that took took. It is zero
// where the loop has been idle for as long.
func (l *Loop) Pause(took time.Duration, now time.Time) time.Duration {
	if now.Sub(l.Delivered) >= max(Quiet, took) {
		return 0
	}
	return Share * took
}

// weighing bounds the time that the loop takes at once to read blocks for weighted sums.
const weighing = 50 * time.Millisecond

// Weigh returns the sums of the live blocks weighted by a half-life, or nil without one. ready is
// false where blocks are left to be read: then the loop soon calls again. With an error the daemon
// has failed.
func (l *Loop) Weigh() (w *live.Weighted, ready bool, err error) {
	if !l.Learner.Fades() {
		return nil, true, nil
	}
	if w, err = l.Live.Weigh(weighing); err != nil {
		return nil, false, l.Fail(err)
	}
	l.Behind = w == nil
	return w, w != nil, nil
}
