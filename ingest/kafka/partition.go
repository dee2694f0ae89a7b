package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// partition reads one partition, over all generations in which this process owns
// it. One goroutine fetches and decodes, another delivers.
type partition struct {
	*fetcher
	c   *Consumer
	log zerolog.Logger

	mu    sync.Mutex
	state PartitionStats // but for what follows, and the budget
	// delivered is the position after the last batch that the sink took, or what
	// it had saved. Until known, it is to be asked for.
	delivered Saved
	known     bool
}

func newPartition(c *Consumer, id int) *partition {
	return &partition{
		fetcher: newFetcher(c.cl, c.cfg.Topic, id, c.cfg.Fetching, c.total),
		c:       c,
		log:     c.log.With().Int("partition", id).Logger(),
		state:   PartitionStats{Partition: id, Next: -1, HighWatermark: -1, LogStart: -1},
	}
}

func (p *partition) stats() PartitionStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.state
	if p.known {
		s.Next = p.delivered.Next
	}
	s.Buffered = p.budget.outstanding()
	return s
}

// A delivery is one step of a partition: a batch, or a position found in the log,
// with the gap before it if there is one.
type delivery struct {
	batch *Batch // nil: a position
	at    Saved
	gap   *GapError
}

func (d delivery) drop() {
	if d.batch != nil {
		d.batch.Release()
	}
}

// queued steps are ready while the sink is busy. More would only fill memory
// earlier: a batch is up to FetchBytes.
const queued = 4

// pump runs fetch, which puts steps into a queue, beside deliver, which takes
// them out, until both have ended. The first error ends both; steps that are in
// the queue then are dropped.
func pump(ctx context.Context, fetch func(context.Context, chan<- delivery) error, deliver func(context.Context, delivery) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan delivery, queued)
	var fetching sync.WaitGroup
	fetching.Go(func() {
		defer close(queue)
		if err := fetch(ctx, queue); err != nil {
			// What was read before the error is good, but the partition ends
			// here either way, and the rest would come again.
			cancel(err)
		}
	})
	defer fetching.Wait()
	for step := range queue {
		if ctx.Err() == nil {
			if err := deliver(ctx, step); err != nil {
				cancel(err)
			}
		} else {
			step.drop()
		}
	}
	return context.Cause(ctx)
}

func (p *partition) deliver(ctx context.Context, d delivery) error {
	at := d.at
	if d.gap != nil {
		p.c.sink.Jumped(d.gap, at.Next)
	}
	if b := d.batch; b != nil {
		at = b.Position // from a success on the batch is the sink's
		if err := p.c.sink.Deliver(ctx, b); err != nil {
			b.Release()
			return fmt.Errorf("deliver offsets before %d: %w", at.Next, err)
		}
	}
	p.mu.Lock()
	p.delivered, p.known = at, true
	p.mu.Unlock()
	return nil
}

// position is where to go on; false when nothing is known of that.
func (p *partition) position() (Saved, bool) {
	p.mu.Lock()
	at, known := p.delivered, p.known
	p.mu.Unlock()
	if !known {
		return p.c.sink.Position(p.id)
	}
	return at, true
}

// fetchAll fetches from the partition's position on and puts batches into queue
// until ctx ends or something cannot be gone on with.
func (p *partition) fetchAll(ctx context.Context, queue chan<- delivery) error {
	at, known := p.position()
	var located bool
	var asked time.Time // of the broker, last
	var retry retrial
	for {
		// There is room first: what is known of the log grows old while there is none.
		_, reserved, err := p.reserve(ctx, p.cfg.FetchBytes)
		if err != nil {
			return err
		}
		p.budget.release(reserved)
		if time.Since(asked) >= 10*p.cfg.MaxWait {
			located = false // while this process stood still it may have become another
		}
		asked = time.Now()
		if !located {
			var found delivery
			if found, err = p.locate(ctx, at, known); err == nil {
				at, known, located = found.at, true, true
				if err := enqueue(ctx, queue, found); err != nil {
					return err
				}
			}
		}
		if err == nil {
			at, err = p.fetch(ctx, at, p.cfg.FetchBytes, p.answered, nil, func(b *Batch) error {
				return enqueue(ctx, queue, delivery{batch: b})
			})
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			retry.succeeded()
			continue
		}
		var gap *GapError
		if errors.As(err, &gap) {
			return err
		}
		if err := retry.final(err); err != nil {
			return err
		}
		located = false // it may be another log by now
		p.mu.Lock()
		p.state.FetchErrors++
		p.mu.Unlock()
		p.log.Warn().Err(err).Int64("offset", at.Next).Msg("fetching failed; trying again")
		if err := retry.waitFor(ctx, p.fetcher); err != nil {
			return err
		}
	}
}

// answered notes what a fetch response says of the log.
func (p *partition) answered(r *fetchResult) {
	p.mu.Lock()
	p.state.HighWatermark, p.state.LogStart = r.highWatermark, r.logStart
	p.mu.Unlock()
}

// enqueue puts a step into the queue, or drops it when ctx ends first.
func enqueue(ctx context.Context, queue chan<- delivery, step delivery) error {
	select {
	case queue <- step:
		return nil
	case <-ctx.Done():
		step.drop()
		return context.Cause(ctx)
	}
}

// locate finds where to go on: at, when it is known and still fits the log.
func (p *partition) locate(ctx context.Context, at Saved, known bool) (delivery, error) {
	const attempts = 4
	var pause backoff
	for attempt := 1; ; attempt++ {
		start, end, err := p.cl.bounds(ctx, p.topic, p.id)
		if err != nil {
			return delivery{}, err
		}
		p.mu.Lock()
		p.state.HighWatermark, p.state.LogStart = end, start
		p.mu.Unlock()
		if !known {
			d := delivery{at: Saved{Next: start}}
			if p.c.cfg.Start == Latest {
				d.at.Next = end
			}
			// To be saved: a restart before anything comes would begin elsewhere.
			d.batch = p.newBatch()
			d.batch.Position = d.at
			p.log.Info().Int64("offset", d.at.Next).Int64("log_start", start).Int64("log_end", end).Msg("nothing saved; starting")
			return d, nil
		}
		if at.Next < start && start <= at.Done {
			p.log.Info().Int64("saved", at.Next).Int64("log_start", start).Int64("offset", at.Done).
				Msg("the log does not reach back to what was to be read once more; going on after it")
			at = Saved{Next: at.Done}
		}
		gap := &GapError{Topic: p.topic, Partition: p.id, Saved: at.Next, LogStart: start, LogEnd: end, Reset: at.Next > end}
		if at.Next >= start && at.Next <= end {
			same, err := p.recognise(ctx, at.Last, start)
			if err != nil {
				return delivery{}, err
			}
			if same {
				return delivery{at: at}, nil
			}
			gap.Reset = true
		}
		// A new leader may not know yet how far the replicas have got, and a
		// request may meet a topic in the middle of its deletion.
		if at.Next > end && attempt < attempts {
			if err := pause.wait(ctx); err != nil {
				return delivery{}, err
			}
			continue
		}
		var to int64
		switch p.c.cfg.OnGap {
		case StopOnGap:
			return delivery{}, gap
		case GapToEarliest:
			to = start
		case GapToLatest:
			to = end
		}
		p.log.Warn().Int64("saved", at.Next).Int64("log_start", start).Int64("log_end", end).Bool("reset", gap.Reset).
			Int64("offset", to).Int64("skipped", max(0, to-at.Next)).Msg("saved offset does not fit the log; going on as told")
		return delivery{at: Saved{Next: to}, gap: gap}, nil
	}
}

// recognise reads the record that f was taken of again, which may be a marker, and
// says whether it is still the same. A record that is gone (compacted away, below
// start, or in a record batch that is refused now) proves nothing and passes.
func (p *partition) recognise(ctx context.Context, f Fingerprint, start int64) (same bool, err error) {
	if f == (Fingerprint{}) || f.Offset < start {
		return true, nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("read the last record processed, offset %d, again: %w", f.Offset, err)
		}
	}()
	result, err := p.cl.fetch(ctx, p.topic, p.id, f.Offset, 1, p.responseLimit(), p.cfg.MaxWait)
	if err != nil {
		return false, err
	}
	if result.stable >= 0 && result.stable <= f.Offset {
		// It was read behind all open transactions, and these only move on: this is a
		// leader that has just begun, or a topic made anew whose record cannot be seen yet.
		putBuffer(result.buf)
		return false, fmt.Errorf("the log can be read up to offset %d only, before a transaction that is open", result.stable)
	}
	own := newBudget(0, p.budget.total) // admits one thing alone, beside what the partition holds
	if err := own.acquire(ctx, int64(cap(result.buf)), 0); err != nil {
		return false, err
	}
	s := splitter{f: p.fetcher, budget: own, memory: newMemory(result.buf, own), result: result, at: Saved{Next: f.Offset}, all: true}
	same = true
	_, err = s.split(ctx, func(b *Batch) error {
		if i, found := slices.BinarySearchFunc(b.Records, f.Offset, func(r Record, o int64) int { return cmp.Compare(r.Offset, o) }); found {
			same = FingerprintOf(&b.Records[i]) == f
		}
		b.Release()
		return nil
	})
	return same, err
}
