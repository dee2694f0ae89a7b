package httpapi

import (
	"bytes"
	"context"
	"io"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// Memory is what predictions may take, unless Config says otherwise.
	Memory = 256 << 20
	// smallPrediction is what one may take that is not counted.
	smallPrediction = 64 << 10
	// slotWait is how long a prediction waits for others to end.
	slotWait = 5 * time.Second
	// pieceBytes is how much of a body is read at a time.
	pieceBytes = 256 << 10
)

// A share is what one prediction has of the memory for all of them. It grows while
// the body is read and before it is decoded, and is kept until the client has read
// the answer. A prediction waits for its share before it takes a slot, never with
// one.
type share struct {
	memory *semaphore.Weighted
	most   int64 // there is; a prediction that has all of it may go on
	has    int64
}

// grow adds n bytes, when others have given them back. The error is ctx's, or says
// that it takes too long.
func (s *share) grow(ctx context.Context, n int64) error {
	if n = min(n, s.most-s.has); n <= 0 {
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
	s.has += n
	return nil
}

var errTooMany = fail(CodeUnavailable, "too many predictions at a time")

// shrink gives back what is more than n bytes.
func (s *share) shrink(n int64) {
	if n < s.has {
		s.memory.Release(s.has - n)
		s.has = n
	}
}

// read adds what from has to body, as far as most bytes, and to the share what that
// takes: the buffer doubles as it grows.
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

// takeSlot waits for one of the slots, which bound how many predictions are made
// at a time.
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
