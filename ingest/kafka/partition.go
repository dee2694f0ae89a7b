package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
)

// partition reads one partition, over all generations in which this process owns
// it. One goroutine fetches and decodes, another delivers.
type partition struct {
	c      *Consumer
	id     int
	log    zerolog.Logger
	budget *budget
	names  interner

	largest int // bytes of the record batch read last; the fetching goroutine's

	mu    sync.Mutex
	state PartitionStats
	// delivered is the position after the last batch that the sink took, or what
	// it had saved. Until known, it is to be asked for.
	delivered Saved
	known     bool
}

func newPartition(c *Consumer, id int) *partition {
	return &partition{
		c:      c,
		id:     id,
		log:    c.log.With().Int("partition", id).Logger(),
		budget: newBudget(c.cfg.BufferBytes),
		state:  PartitionStats{Partition: id, Next: -1, HighWatermark: -1, LogStart: -1},
	}
}

func (p *partition) stats() PartitionStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.state
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

// queued steps are ready while the sink is busy. More would only fill memory
// earlier: a batch is up to FetchBytes.
const queued = 4

// run reads until ctx ends.
func (p *partition) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan delivery, queued)
	var fetching sync.WaitGroup
	fetching.Go(func() {
		defer close(queue)
		if err := p.fetchAll(ctx, queue); err != nil {
			// What was read before the error is good, but the partition ends
			// here either way, and the rest would come again.
			cancel(err)
		}
	})
	defer fetching.Wait()
	for d := range queue {
		if ctx.Err() == nil {
			if err := p.deliver(ctx, d); err != nil {
				cancel(err)
			}
		} else if d.batch != nil {
			d.batch.Release()
		}
	}
	return context.Cause(ctx)
}

func (p *partition) deliver(ctx context.Context, d delivery) error {
	if d.batch == nil {
		if d.gap != nil {
			p.c.sink.Jumped(d.gap, d.at.Next)
		}
		p.mu.Lock()
		p.delivered, p.known = d.at, true
		p.state.Next = d.at.Next
		p.mu.Unlock()
		return nil
	}
	b := d.batch
	n, bytes, at := len(b.Records), b.bytes, b.Position
	var last time.Time
	if n > 0 {
		last = b.Records[n-1].Time
	}
	// From a success on the batch is the sink's.
	if err := p.c.sink.Deliver(ctx, b); err != nil {
		b.Release()
		return fmt.Errorf("deliver offsets before %d: %w", at.Next, err)
	}
	p.mu.Lock()
	p.delivered = at
	p.state.Next = at.Next
	p.state.Records += int64(n)
	p.state.Bytes += bytes
	if n > 0 {
		p.state.Time = last
	}
	p.mu.Unlock()
	return nil
}

// Repeating a request mends a bit that flipped on the way, but not one on the
// broker's disk.
const corruptAttempts = 5

// fetchAll fetches from the partition's position on and puts batches into queue
// until ctx ends or something cannot be gone on with.
func (p *partition) fetchAll(ctx context.Context, queue chan<- delivery) error {
	p.mu.Lock()
	at, known := p.delivered, p.known
	p.mu.Unlock()
	if !known {
		at, known = p.c.sink.Position(p.c.cfg.Topic, p.id)
	}
	var (
		located bool
		corrupt int
		pause   backoff
	)
	for {
		var err error
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
			at, err = p.fetch(ctx, at, queue)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var (
			gap       *GapError
			damaged   *corruptError
			inflated  *inflateError
			oversized *oversizeError
		)
		switch {
		case err == nil:
			pause.reset()
			corrupt = 0
			continue
		case errors.As(err, &gap), isPermanent(err):
			return err
		case errors.As(err, &damaged):
			if corrupt++; corrupt == corruptAttempts {
				return fmt.Errorf("%w (%d attempts)", err, corrupt)
			}
		case errors.As(err, &inflated):
			return fmt.Errorf("%w; raise the message limit if the producer is to be trusted", err)
		case errors.As(err, &oversized):
			return fmt.Errorf("at offset %d: %w; raise the message limit to the topic's max.message.bytes", at.Next, err)
		case errors.Is(err, kafkago.OffsetOutOfRange), unknownPartition(err):
			located = false // it may be another log by now
		}
		p.mu.Lock()
		p.state.FetchErrors++
		p.mu.Unlock()
		p.log.Warn().Err(err).Int64("offset", at.Next).Msg("fetching failed; trying again")
		if err := pause.wait(ctx); err != nil {
			return err
		}
	}
}

func enqueue(ctx context.Context, queue chan<- delivery, d delivery) error {
	select {
	case queue <- d:
		return nil
	case <-ctx.Done():
		if d.batch != nil {
			d.batch.Release()
		}
		return context.Cause(ctx)
	}
}

func unknownPartition(err error) bool {
	return errors.Is(err, kafkago.UnknownTopicOrPartition) ||
		errors.Is(err, protocol.ErrNoTopic) || errors.Is(err, protocol.ErrNoPartition)
}

// locate finds where to go on: at, when it is known and still fits the log.
func (p *partition) locate(ctx context.Context, at Saved, known bool) (delivery, error) {
	const attempts = 4
	var pause backoff
	for attempt := 1; ; attempt++ {
		start, end, err := p.c.cl.bounds(ctx, p.c.cfg.Topic, p.id)
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
			p.log.Info().Int64("offset", d.at.Next).Int64("log_start", start).Int64("log_end", end).Msg("nothing saved; starting")
			return d, nil
		}
		if at.Next < start && start <= at.Done {
			p.log.Info().Int64("saved", at.Next).Int64("log_start", start).Int64("offset", at.Done).
				Msg("the log does not reach back to what was to be read once more; going on after it")
			at = Saved{Next: at.Done}
		}
		gap := &GapError{Topic: p.c.cfg.Topic, Partition: p.id, Saved: at.Next, LogStart: start, LogEnd: end, Reset: at.Next > end}
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

// recognise reads the record that f was taken of again and says whether it is
// still the same. A record that is gone (compacted away, or below start) proves
// nothing and passes.
func (p *partition) recognise(ctx context.Context, f Fingerprint, start int64) (bool, error) {
	if f == (Fingerprint{}) || f.Offset < start {
		return true, nil
	}
	same := true
	answer, result, err := p.c.cl.fetch(ctx, p.c.cfg.Topic, p.id, f.Offset, 1, p.responseLimit(), p.c.cfg.MaxWait)
	if err != nil {
		return false, fmt.Errorf("read the last record processed, offset %d, again: %w", f.Offset, err)
	}
	own := newBudget(0) // admits one thing alone, beside what the partition holds
	if err := own.acquire(ctx, int64(cap(answer.buf)), 0); err != nil {
		return false, err
	}
	s := splitter{p: p, budget: own, memory: newMemory(answer.buf, own), result: result, at: Saved{Next: f.Offset}, all: true}
	_, err = s.split(ctx, func(b *Batch) error {
		if i, found := slices.BinarySearchFunc(b.Records, f.Offset, func(r Record, o int64) int { return int(r.Offset - o) }); found {
			same = FingerprintOf(&b.Records[i]) == f
		}
		b.Release()
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("read the last record processed, offset %d, again: %w", f.Offset, err)
	}
	return same, nil
}

// responseLimit bounds a fetch response: what was asked for, or a single record
// batch if that is larger, besides a list of aborted transactions.
func (p *partition) responseLimit() int {
	return max(p.c.cfg.FetchBytes, p.c.cfg.MaxMessageBytes) + 1<<20
}

// fetch gets what comes next, enqueues it and returns the position after it.
func (p *partition) fetch(ctx context.Context, at Saved, queue chan<- delivery) (Saved, error) {
	cfg := &p.c.cfg
	maxBytes := cfg.FetchBytes
	if int64(p.largest) > int64(maxBytes)/4 {
		// A batch that is cut off at the end of a response comes again with the
		// next. With large ones it is cheaper to ask for one at a time.
		maxBytes = 1
	}
	reserved := min(int64(max(maxBytes, p.largest)), p.budget.limit)
	if err := p.budget.acquire(ctx, reserved, 0); err != nil {
		return at, err
	}
	answer, result, err := p.c.cl.fetch(ctx, cfg.Topic, p.id, at.Next, maxBytes, p.responseLimit(), cfg.MaxWait)
	if err != nil {
		p.budget.release(reserved)
		return at, err
	}
	if more := int64(cap(answer.buf)) - reserved; more <= 0 {
		p.budget.release(-more)
	} else if err := p.budget.acquire(ctx, more, reserved); err != nil {
		p.budget.release(reserved)
		putBuffer(answer.buf)
		return at, err
	}
	p.mu.Lock()
	p.state.HighWatermark = result.highWatermark
	p.state.LogStart = result.logStart
	p.mu.Unlock()
	s := splitter{p: p, budget: p.budget, memory: newMemory(answer.buf, p.budget), result: result, at: at}
	return s.split(ctx, func(b *Batch) error { return enqueue(ctx, queue, delivery{batch: b}) })
}

// A splitter makes batches of a fetch response.
type splitter struct {
	p      *partition
	budget *budget
	memory *memory // the response; split releases it
	result *fetchResult
	at     Saved // after what was emitted
	all    bool  // also what was aborted

	current *Batch
	size    int // of the memory that belongs to current alone
}

// split emits all complete record batches of the response and returns the
// position after them. What comes before an error is emitted.
func (s *splitter) split(ctx context.Context, emit func(*Batch) error) (Saved, error) {
	defer s.memory.release()
	aborted := abortedBy{pending: s.result.aborted}
	data := s.result.records
	pos := s.at.Next
	var failure error
	for first := true; len(data) > 0; {
		rb, size, err := parseBatch(data)
		if limit := s.p.c.cfg.MaxMessageBytes; size > batchPrefix+limit {
			failure = &oversizeError{"a record batch", size, limit}
			break
		}
		if errors.Is(err, errCut) && first {
			// The first batch comes whole, however little was asked for.
			err = &corruptError{rb.base, "the response ends within its first batch"}
		} else if errors.Is(err, errCut) {
			break
		}
		if err != nil {
			failure = err
			break
		}
		first = false
		data = data[size:]
		s.p.largest = size
		skip, err := aborted.skips(&rb)
		if err == nil && rb.last >= pos && (!skip || s.all && rb.attributes&attrControl == 0) {
			err = s.add(ctx, &rb, pos, emit)
		}
		if err != nil {
			failure = err
			break
		}
		pos = max(pos, rb.last+1)
	}
	if pos > s.at.Next {
		if err := s.flush(pos, emit); err != nil && failure == nil {
			failure = err
		}
	} else if s.current != nil {
		s.current.Release()
	}
	return s.at, failure
}

// add decodes the records of rb from pos on into the current batch.
func (s *splitter) add(ctx context.Context, rb *recordBatch, pos int64, emit func(*Batch) error) error {
	payload, mem := rb.payload, s.memory
	codec := compress.Compression(rb.attributes & attrCodec)
	if codec != compress.None {
		limit := s.p.c.cfg.MaxMessageBytes
		buf, n, err := decompress(codec, payload, limit)
		if err != nil {
			var inflated *inflateError
			if errors.As(err, &inflated) {
				return fmt.Errorf("record batch at offset %d: %w", rb.base, err)
			}
			return &corruptError{rb.base, fmt.Sprintf("%v: %v", codec, err)}
		}
		if s.current != nil && (s.size+n > s.p.c.cfg.FetchBytes || !s.budget.fits(int64(cap(buf)))) {
			if err := s.flush(pos, emit); err != nil {
				putBuffer(buf)
				return err
			}
		}
		if err := s.budget.acquire(ctx, int64(cap(buf)), s.memory.charge); err != nil {
			putBuffer(buf)
			return err
		}
		s.size += n
		payload, mem = buf[:n], newMemory(buf, s.budget)
	} else {
		mem.retain()
	}
	if s.current == nil {
		s.current = s.newBatch()
	}
	s.current.memory = append(s.current.memory, mem)
	kept := len(s.current.Records)
	if err := rb.appendTo(s.current, payload, pos); err != nil {
		s.current.Records = s.current.Records[:kept]
		return err
	}
	return nil
}

func (s *splitter) newBatch() *Batch {
	b := batchPool.Get().(*Batch)
	b.Topic, b.Partition, b.names = s.p.c.cfg.Topic, s.p.id, &s.p.names
	b.HighWatermark, b.LogStart = s.result.highWatermark, s.result.logStart
	return b
}

// flush emits the current batch, whose records end before pos.
func (s *splitter) flush(pos int64, emit func(*Batch) error) error {
	b := s.current
	if b == nil {
		b = s.newBatch() // only the position has moved
	}
	s.current, s.size = nil, 0
	b.Position = Saved{Next: pos, Last: s.at.Last}
	if n := len(b.Records); n > 0 {
		b.Position.Last = FingerprintOf(&b.Records[n-1])
	}
	at := b.Position
	if err := emit(b); err != nil {
		return err
	}
	s.at = at
	return nil
}

// abortedBy walks along a fetch response and knows which of its record batches
// belong to aborted transactions.
type abortedBy struct {
	pending []abortedTxn // by first offset, once sorted
	sorted  bool
	active  map[int64]bool // producers
}

// skips says whether the records of b are not for the application: because they
// were aborted, or because b is a control batch.
func (a *abortedBy) skips(b *recordBatch) (bool, error) {
	if !a.sorted {
		slices.SortFunc(a.pending, func(x, y abortedTxn) int { return int(min(1, max(-1, x.first-y.first))) })
		a.sorted = true
	}
	for len(a.pending) > 0 && a.pending[0].first <= b.last {
		if a.active == nil {
			a.active = make(map[int64]bool)
		}
		a.active[a.pending[0].producer] = true
		a.pending = a.pending[1:]
	}
	if b.attributes&attrControl != 0 {
		kind := int16(-1)
		if b.count > 0 { // compaction may have emptied it
			var err error
			if kind, err = b.controlType(); err != nil {
				return false, err
			}
		}
		if kind == controlAbort {
			delete(a.active, b.producer)
		}
		return true, nil
	}
	return b.attributes&attrTxn != 0 && a.active[b.producer], nil
}
