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

	"streamd/ingest/kafka/protocol"
)

// partition reads one partition, over all generations in which this process owns it. One
// goroutine fetches and decodes, another delivers.
type partition struct {
	*fetcher
	sink  Sink
	start Start
	onGap OnGap
	log   zerolog.Logger

	mu        sync.Mutex
	state     PartitionStats // without Assigned, Next and Buffered
	delivered Saved          // after the last batch that the sink took, if known
	known     bool
}

// PartitionStats is the state of one partition.
type PartitionStats struct {
	Partition     int
	Assigned      bool
	Next          int64 // -1: not yet known
	HighWatermark int64 // -1: not yet known
	LogStart      int64 // -1: not known
	Buffered      int64 // bytes that count against the budget
	FetchErrors   int64 // since the process began

	Failing time.Time // since when no fetch has succeeded; zero: the last one has
	Because error     // the last failure since then
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

func (p *partition) deliver(ctx context.Context, d delivery) error {
	at := d.at
	if d.gap != nil {
		p.sink.Jumped(d.gap, at.Next)
	}
	if b := d.batch; b != nil {
		at = b.Position // after Deliver the batch is the sink's
		if err := p.sink.Deliver(ctx, b); err != nil {
			b.Release()
			return fmt.Errorf("deliver offsets before %d: %w", at.Next, err)
		}
	}
	p.mu.Lock()
	p.delivered, p.known = at, true
	p.mu.Unlock()
	return nil
}

// position is where reading continues, or false if that is not known.
func (p *partition) position() (Saved, bool) {
	p.mu.Lock()
	at, known := p.delivered, p.known
	p.mu.Unlock()
	if !known {
		return p.sink.Position(p.id)
	}
	return at, true
}

// forget has the sink asked for the position again.
func (p *partition) forget() {
	p.mu.Lock()
	p.delivered, p.known = Saved{}, false
	p.mu.Unlock()
}

// fetchAll fetches from the partition's position on and puts batches into queue, until ctx
// ends or the partition cannot go on.
func (p *partition) fetchAll(ctx context.Context, queue chan<- delivery) error {
	at, known := p.position()
	var located bool
	var asked time.Time // when the broker was asked last
	var retry retrial
	for {
		// Wait for room first: without room, the knowledge of the log gets old.
		_, reserved, err := p.reserve(ctx, p.cfg.FetchBytes)
		if err != nil {
			return err
		}
		p.budget.release(reserved)
		if time.Since(asked) >= 10*p.cfg.MaxWait {
			located = false // the log may have become another one while this process stood still
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
			p.failed(nil)
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
		located = false // the log may be another one by now
		p.failed(err)
		p.log.Warn().Err(err).Int64("offset", at.Next).Msg("fetching failed; trying again")
		if err := retry.waitFor(ctx, p.fetcher); err != nil {
			return err
		}
	}
}

// failed notes how a fetch has ended.
func (p *partition) failed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.state
	if s.Because = err; err == nil {
		s.Failing = time.Time{}
		return
	}
	s.FetchErrors++
	if s.Failing.IsZero() {
		s.Failing = time.Now()
	}
}

// answered notes the bounds of the log in a fetch response.
func (p *partition) answered(r *protocol.Fetched) {
	p.mu.Lock()
	p.state.HighWatermark, p.state.LogStart = r.HighWatermark, r.LogStart
	p.mu.Unlock()
}

// locate finds where to continue: at, if it is known and still fits the log.
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
			if p.start == Latest {
				d.at.Next = end
			}
			// The sink saves this. Otherwise a restart before the first record would begin
			// elsewhere.
			d.batch = newBatch(p.id, &p.names)
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
		// A new leader may not know yet how far the replicas have got, and a request may
		// meet a topic in the middle of its deletion.
		if at.Next > end && attempt < attempts {
			if err := pause.wait(ctx); err != nil {
				return delivery{}, err
			}
			continue
		}
		var to int64
		switch p.onGap {
		case StopOnGap:
			return delivery{}, gap
		case GapToEarliest:
			to = start
		case GapToLatest:
			to = end
		}
		p.log.Warn().Int64("saved", at.Next).Int64("log_start", start).Int64("log_end", end).Bool("reset", gap.Reset).
			Int64("offset", to).Int64("skipped", max(0, to-at.Next)).Msg("saved offset does not fit the log; continuing, as kafka.on_gap allows")
		return delivery{at: Saved{Next: to}, gap: gap}, nil
	}
}

// recognise reports whether the record of f is still the same. It reads the record, which may
// be a marker, again. A record that is gone proves nothing and passes: it was compacted
// away, lies below start, or is in a record batch that is refused now.
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
	if result.Stable >= 0 && result.Stable <= f.Offset {
		// The record was read when it lay before all open transactions, and the first of
		// those only moves on. So the leader has just begun, or the topic was made anew and
		// its record cannot be seen yet.
		putBuffer(result.Buf)
		return false, fmt.Errorf("the log can be read up to offset %d only, before a transaction that is open", result.Stable)
	}
	own := newBudget(0, p.budget.total) // admits one thing alone, beside those of the partition
	if err := own.acquire(ctx, int64(cap(result.Buf)), 0); err != nil {
		return false, err
	}
	same = true
	s := p.splitter(result, own, Saved{Next: f.Offset}, func(b *Batch) error {
		if i, found := slices.BinarySearchFunc(b.Records, f.Offset, func(r Record, o int64) int { return cmp.Compare(r.Offset, o) }); found {
			same = FingerprintOf(&b.Records[i]) == f
		}
		b.Release()
		return nil
	})
	s.all = true
	_, err = s.split(ctx)
	return same, err
}
