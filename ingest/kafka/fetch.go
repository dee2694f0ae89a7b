package kafka

import (
	"context"
	"errors"
	"fmt"

	"streamd/ingest/kafka/protocol"
)

// fetcher gets the records of one partition. It belongs to one goroutine, except for its
// budget.
type fetcher struct {
	cl     *client
	topic  string
	id     int
	cfg    Fetching
	budget *budget
	names  interner

	largest int // bytes of the largest record batch of the last response that had any
}

func newFetcher(cl *client, topic string, id int, cfg Fetching, t *total) *fetcher {
	return &fetcher{cl: cl, topic: topic, id: id, cfg: cfg, budget: newBudget(cfg.BufferBytes, t)}
}

// responseLimit bounds a fetch response: the bytes asked for, or a single record batch if
// that is larger, besides a list of aborted transactions.
func (f *fetcher) responseLimit() int {
	return max(f.cfg.FetchBytes, f.cfg.MaxMessageBytes) + 1<<20
}

// fetch gets about maxBytes of records from at on, emits them and returns the position
// after them. It calls answered with the response before it emits anything. It passes over
// record batches in which wants has no offset (nil: it wants all), after checking their
// checksums.
func (f *fetcher) fetch(ctx context.Context, at Saved, maxBytes int, answered func(*protocol.Fetched),
	wants func(first, last int64) bool, emit func(*Batch) error) (Saved, error) {
	maxBytes, reserved, err := f.reserve(ctx, maxBytes)
	if err != nil {
		return at, err
	}
	result, err := f.cl.fetch(ctx, f.topic, f.id, at.Next, maxBytes, f.responseLimit(), f.cfg.MaxWait)
	if err != nil {
		f.budget.release(reserved)
		return at, err
	}
	if more := int64(cap(result.Buf)) - reserved; more <= 0 {
		f.budget.release(-more)
	} else if err := f.budget.acquire(ctx, more, reserved); err != nil {
		f.budget.release(reserved)
		putBuffer(result.Buf)
		return at, err
	}
	answered(result)
	s := f.splitter(result, f.budget, at, emit)
	s.wants = wants
	return s.split(ctx)
}

// reserve waits for room for a fetch of about maxBytes. It returns the bytes to ask for and
// the bytes taken from the budget.
func (f *fetcher) reserve(ctx context.Context, maxBytes int) (ask int, reserved int64, err error) {
	// A batch that is cut off at the end of a response comes again with the next one. So ask
	// for whole batches, as large as those of the last response.
	if n := f.largest; n > maxBytes/2 {
		maxBytes = 1 // a broker sends the first batch whole
	} else if n > 0 {
		maxBytes -= maxBytes % n
	}
	reserved = min(int64(max(maxBytes, f.largest)), f.budget.limit)
	return maxBytes, reserved, f.budget.reserve(ctx, reserved)
}

// splitter returns a splitter of a response whose buffer has been taken from b.
func (f *fetcher) splitter(result *protocol.Fetched, b *budget, at Saved, emit func(*Batch) error) *splitter {
	return &splitter{
		partition: f.id, cfg: &f.cfg, names: &f.names, largest: &f.largest,
		budget: b, memory: newMemory(result.Buf, b), result: result, at: at, emit: emit,
	}
}

// retrial decides which errors of fetching are final, and waits after the others.
type retrial struct {
	backoff
	corrupt int // in a row
}

// corruptAttempts bounds the fetches of a corrupt batch. To fetch it again mends a bit that
// flipped on the way, but not one on the broker's disk.
const corruptAttempts = 5

func (r *retrial) succeeded() { *r = retrial{} }

// final returns the error to end with after err, or nil to try again after waitFor.
func (r *retrial) final(err error) error {
	var damaged *corruptError
	switch {
	case isPermanent(err):
		return err
	case errors.As(err, &damaged):
		if r.corrupt++; r.corrupt == corruptAttempts {
			return fmt.Errorf("%w (%d attempts)", err, r.corrupt)
		}
	}
	return nil
}

// waitFor waits, but no longer than until another broker leads the partition.
func (r *retrial) waitFor(ctx context.Context, f *fetcher) error {
	before, _ := f.cl.leader(ctx, f.topic, f.id)
	led, done := f.cl.whileLed(ctx, f.topic, f.id, func() int { return before })
	defer done()
	if err := r.wait(led); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}
