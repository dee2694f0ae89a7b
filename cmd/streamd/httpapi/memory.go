package httpapi

import (
	"bytes"
	"context"
	"io"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// smallPrediction is the size of a prediction that takes no share of the memory.
	smallPrediction = 64 << 10
	// slotWait bounds how long a prediction waits for others to end.
	slotWait = 5 * time.Second
	// pieceBytes is the part of a body that is read at a time.
	pieceBytes = 256 << 10
)

// share is one prediction's part of the memory for all of them. It grows while the body is
// read and before it is decoded, and is held until the client has read the answer. A
// prediction waits for its share before it takes a slot, never while it holds one.
type share struct {
	memory *semaphore.Weighted
	most   int64 // all of the memory; a prediction that holds it may go on
	held   int64
}

// grow adds n bytes once they are free. The error is that of ctx, or says that the wait
// is too long.
func (s *share) grow(ctx context.Context, n int64) error {
	if n = min(n, s.most-s.held); n <= 0 {
		return nil
	}
	waiting, stop := context.WithTimeout(ctx, slotWait)
	defer stop()
	if s.memory.Acquire(waiting, n) != nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		return errTooMany
	}
	s.held += n
	return nil
}

var errTooMany = fail(CodeUnavailable, "too many calls with a body at a time")

// shrink gives back all but n bytes.
func (s *share) shrink(n int64) {
	if n < s.held {
		s.memory.Release(s.held - n)
		s.held = n
	}
}

// read appends from to body, up to most bytes, and grows the share with it. The buffer
// doubles as it grows, so a piece counts twice.
func (s *share) read(ctx context.Context, body *bytes.Buffer, from io.Reader, most int) error {
	for body.Len() < most {
		piece := int64(min(pieceBytes, most-body.Len()))
		if err := s.grow(ctx, 2*piece); err != nil {
			return err
		}
		n, err := body.ReadFrom(io.LimitReader(from, piece))
		if err != nil || n < piece {
			return err
		}
	}
	return nil
}

// takeSlot waits for a slot. The slots bound the predictions computed at a time.
func takeSlot(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-time.After(slotWait):
		return errTooMany
	case <-ctx.Done():
		return ctx.Err()
	}
}
