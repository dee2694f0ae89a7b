package intake

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// letterTime is how long the loop itself waits for dead letters to be written. Brokers take
	// milliseconds, and the daemon does nothing else meanwhile.
	letterTime = 2 * time.Second
	// letterAttempt is how long one attempt beside the loop takes.
	letterAttempt = 30 * time.Second
	letterPause   = 100 * time.Millisecond
)

// errLettersTakeLong ends an attempt to write dead letters, after which there is another one.
var errLettersTakeLong = errors.New("it takes too long")

// sending is the dead letters of a delivery that could not be written at once. They are tried
// again beside the loop, until they are written, or a stop ends it. Meanwhile the delivery waits,
// and those behind it, and nothing is saved: saved records count as processed.
type sending struct {
	since   time.Time
	stop    context.CancelFunc
	done    chan struct{}
	err     error                 // once done: why they can never be written
	waits   bool                  // the delivery also waits for room
	problem atomic.Pointer[error] // of the latest attempt
}

// Sending is closed once dead letters that could not be written at once are written, or cannot be.
// Nil: there are none.
func (in *Intake) Sending() <-chan struct{} {
	if in.sending == nil {
		return nil
	}
	return in.sending.done
}

// Unsent says since when and why dead letters cannot be written; zero and nil: all are.
func (in *Intake) Unsent() (since time.Time, why error) {
	if in.sending == nil {
		return time.Time{}, nil
	}
	return in.sending.since, *in.sending.problem.Load()
}

// StopSending gives dead letters up. Nothing may be applied or saved afterwards: their records are
// read again.
func (in *Intake) StopSending() {
	if in.sending != nil {
		in.sending.stop()
		<-in.sending.done
		in.Fail()
	}
}

// send writes the dead letters of the delivery in hand. If that takes long, it goes on beside the
// loop, and later is true.
func (in *Intake) send(ctx context.Context, partition int, waits bool) (later bool, err error) {
	if len(in.own.letters) == 0 {
		return false, nil
	}
	long, first := in.attempt(ctx, partition, letterTime)
	if !long {
		in.own.forgetLetters()
		return false, first
	}
	in.Log.Error().Err(first).Int("letters", len(in.own.letters)).Msg("dead letters cannot be written; reading waits, nothing is lost, and it is tried again")
	s := &sending{since: time.Now(), done: make(chan struct{}), waits: waits}
	s.problem.Store(&first)
	ctx, s.stop = context.WithCancel(ctx)
	in.sending = s
	go func() {
		defer close(s.done)
		for {
			long, err := in.attempt(ctx, partition, letterAttempt)
			if !long {
				s.err = err
				return
			}
			s.problem.Store(&err)
			select {
			case <-time.After(letterPause): // Write has its own pauses, but for its first attempt
			case <-ctx.Done():
			}
		}
	}()
	return true, nil
}

// attempt writes the dead letters, within limit. long reports that time was all that lacked.
func (in *Intake) attempt(ctx context.Context, partition int, limit time.Duration) (long bool, err error) {
	attempt, cancel := context.WithTimeoutCause(ctx, limit, errLettersTakeLong)
	defer cancel()
	letters := in.Letters
	if in.applying != nil && in.applying.of != nil {
		letters = in.LabelLetters
	}
	if err = letters.Write(attempt, partition, in.own.letters); err == nil {
		return false, nil
	}
	return attempt.Err() != nil && ctx.Err() == nil, fmt.Errorf("records cannot be used, and their dead letters could not be written: %w", err)
}

// sent takes the end of dead letters that took long.
func (in *Intake) sent() (waits bool, err error) {
	s := in.sending
	in.sending = nil
	s.stop()
	in.own.forgetLetters()
	if s.err == nil {
		in.Log.Info().Dur("after", time.Since(s.since)).Msg("the dead letters are written; reading goes on")
	}
	return s.waits, s.err
}
