package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetcher gets the records of one partition. It belongs to one goroutine, but
// for its budget.
type fetcher struct {
	cl     *client
	topic  string
	id     int
	cfg    Fetching
	budget *budget
	names  interner

	largest int // bytes of the largest record batch of the last response with any
}

func newFetcher(cl *client, topic string, id int, cfg Fetching, t *total) *fetcher {
	return &fetcher{cl: cl, topic: topic, id: id, cfg: cfg, budget: newBudget(cfg.BufferBytes, t)}
}

// responseLimit bounds a fetch response: what was asked for, or a single record
// batch if that is larger, besides a list of aborted transactions.
func (f *fetcher) responseLimit() int {
	return max(f.cfg.FetchBytes, f.cfg.MaxMessageBytes) + 1<<20
}

// fetch gets what comes next, about maxBytes of it, emits it and returns the
// position after it. answered is told what the response says of the log before
// anything is emitted. Record batches without an offset that wants says yes to
// (nil: to all) are passed over, once their checksum has been looked at.
func (f *fetcher) fetch(ctx context.Context, at Saved, maxBytes int, answered func(*fetchResult),
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
	if more := int64(cap(result.buf)) - reserved; more <= 0 {
		f.budget.release(-more)
	} else if err := f.budget.acquire(ctx, more, reserved); err != nil {
		f.budget.release(reserved)
		putBuffer(result.buf)
		return at, err
	}
	answered(result)
	s := splitter{f: f, budget: f.budget, memory: newMemory(result.buf, f.budget), result: result, at: at, wants: wants}
	return s.split(ctx, emit)
}

// reserve waits for room for a fetch of about maxBytes, and says how much to ask for
// and how much of the budget is taken for that.
func (f *fetcher) reserve(ctx context.Context, maxBytes int) (ask int, reserved int64, err error) {
	// A batch that is cut off at the end of a response comes again with the next, so
	// whole ones are asked for, going by the last response.
	if n := f.largest; n > maxBytes/2 {
		maxBytes = 1 // a broker sends the first batch whole
	} else if n > 0 {
		maxBytes -= maxBytes % n
	}
	reserved = min(int64(max(maxBytes, f.largest)), f.budget.limit)
	return maxBytes, reserved, f.budget.reserve(ctx, reserved)
}

func (f *fetcher) newBatch() *Batch {
	b := batchPool.Get().(*Batch)
	b.Partition, b.names = f.id, &f.names
	return b
}

// A splitter makes batches of a fetch response.
type splitter struct {
	f      *fetcher
	budget *budget
	memory *memory // the response; split releases it
	result *fetchResult
	at     Saved                        // after what was emitted
	all    bool                         // also what was aborted, and markers
	wants  func(first, last int64) bool // nil: all offsets

	last    Fingerprint // of the last marker passed, or of the last record emitted
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
	s.last = s.at.Last
	var failure error
	largest := 0
	for len(data) > 0 {
		whole := true
		rb, size, err := parseBatch(data, &s.result.sums)
		if errors.Is(err, errCut) && largest == 0 {
			// The first batch comes whole, however little was asked for.
			rb, err = s.result.parseCut(data, size)
			data, whole = data[len(data):], false
		} else if errors.Is(err, errCut) {
			break
		} else if err == nil {
			data = data[size:]
		}
		if err != nil {
			failure = err
			break
		}
		limit := s.f.cfg.MaxMessageBytes
		largest = max(largest, size)
		if whole = whole && size <= batchPrefix+limit; whole {
			s.f.largest = largest
		}
		skip := false
		if !s.all {
			skip, err = aborted.skips(&rb)
		}
		if rb.last() < pos || s.wants != nil && !s.wants(max(pos, rb.FirstOffset), rb.last()) {
			skip = true
		} else if err == nil && skip && rb.Attributes&attrControl != 0 {
			s.passMarker(&rb)
		}
		switch {
		case err != nil || skip:
		case !whole:
			err = s.refuse(&rb, pos, int(rb.NumRecords), &oversizeError{"a record batch", size, limit}, emit)
		default:
			err = s.add(ctx, &rb, pos, emit)
		}
		if err != nil {
			failure = err
			break
		}
		pos = max(pos, rb.last()+1)
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

// passMarker notes a control batch that is passed over as what was read last.
func (s *splitter) passMarker(rb *recordBatch) {
	var b Batch
	b.names = &s.f.names
	records, err := rb.records(rb.Records)
	if err == nil {
		err = records.appendTo(&b, rb.FirstOffset, 1)
	}
	if err == nil && len(b.Records) > 0 {
		s.last = FingerprintOf(&b.Records[0])
	}
}

// add decodes the records of rb from pos on into the current batch. Those that are
// not encoded as they should be are refused.
func (s *splitter) add(ctx context.Context, rb *recordBatch, pos int64, emit func(*Batch) error) error {
	payload, mem := rb.Records, s.memory
	codec := rb.codec()
	if codec != compress.None {
		buf, n, bad, err := s.inflate(ctx, rb, pos, emit)
		if bad != nil {
			return s.refuse(rb, pos, int(rb.NumRecords), fmt.Errorf("a record batch compressed with %v: %w", codec, bad), emit)
		}
		if err != nil {
			return err
		}
		s.size += n
		payload, mem = buf[:n], newMemory(buf, s.budget)
	} else {
		mem.retain()
	}
	defer mem.release()
	records, err := rb.records(payload)
	for err == nil && records.left > 0 {
		if s.current != nil && len(s.current.Refused) > 0 {
			if err := s.flush(max(pos, records.previous+1), emit); err != nil {
				return err
			}
		}
		if s.current == nil {
			s.current = s.f.newBatch()
		}
		mem.retain()
		s.current.memory = append(s.current.memory, mem)
		if err = records.appendTo(s.current, pos, mostRecords); err == nil && records.left > 0 {
			if err := s.flush(max(pos, records.previous+1), emit); err != nil {
				return err
			}
		}
	}
	if err != nil {
		return s.refuse(rb, max(pos, records.previous+1), records.left, err, emit)
	}
	return nil
}

// refuse adds the records of rb from first on, so many by its header, to the current
// batch as a stretch that cannot be read.
func (s *splitter) refuse(rb *recordBatch, first int64, count int, reason error, emit func(*Batch) error) error {
	first = max(first, rb.FirstOffset)
	if first > rb.last() {
		return nil // all records have been read; what is behind them is none
	}
	if b := s.current; b != nil && (len(b.Records) > 0 || len(b.Refused) == mostRecords) {
		if err := s.flush(first, emit); err != nil {
			return err
		}
	}
	if s.current == nil {
		s.current = s.f.newBatch()
	}
	s.current.Refused = append(s.current.Refused, Refused{
		First: first, Last: rb.last(), Records: max(1, min(int64(count), rb.last()-first+1)), Reason: reason,
	})
	return nil
}

// inflate decompresses a payload. When there is no room for that, the current batch goes
// first: its memory may be what is waited for. What is wrong with the payload is bad.
func (s *splitter) inflate(ctx context.Context, rb *recordBatch, pos int64, emit func(*Batch) error) (buf []byte, n int, bad, err error) {
	codec, limit := rb.codec(), s.f.cfg.MaxMessageBytes
	guess := guessSize(codec, rb.Records, limit)
	if s.current != nil && s.size+guess > s.f.cfg.FetchBytes {
		if err := s.flush(pos, emit); err != nil {
			return nil, 0, nil, err
		}
	}
	buf, n, bad = decompress(codec, rb.Records, guess, limit, s.budget)
	for ; errors.Is(bad, errNoRoom); guess = limit + 1 {
		if s.current != nil {
			if err := s.flush(pos, emit); err != nil {
				return nil, 0, nil, err
			}
		}
		g, err := s.budget.waitFor(ctx, guess, s.memory.charge)
		if err != nil {
			return nil, 0, nil, err
		}
		buf, n, bad = decompress(codec, rb.Records, guess, limit, g)
		g.giveUp()
	}
	return buf, n, bad, nil
}

// mostRecords bounds the records of a batch. Small ones take more beside their
// bytes than those, which alone count against the budget.
const mostRecords = 1024

// flush emits the current batch, whose records end before pos.
func (s *splitter) flush(pos int64, emit func(*Batch) error) error {
	b := s.current
	if b == nil {
		b = s.f.newBatch() // only the position has moved
	}
	s.current, s.size = nil, 0
	if n := len(b.Records); n > 0 && b.Records[n-1].Offset >= s.last.Offset {
		s.last = fingerprint(&b.Records[n-1], &s.result.sums)
	}
	b.Position = Saved{Next: pos, Last: s.last}
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
	for len(a.pending) > 0 && a.pending[0].first <= b.last() {
		if a.active == nil {
			a.active = make(map[int64]bool)
		}
		a.active[a.pending[0].producer] = true
		a.pending = a.pending[1:]
	}
	if b.Attributes&attrControl != 0 {
		kind := kmsg.ControlRecordKeyType(-1)
		if b.NumRecords > 0 { // compaction may have emptied it
			var err error
			if kind, err = b.controlType(); err != nil {
				return false, err
			}
		}
		if kind == controlAbort {
			delete(a.active, b.ProducerID)
		}
		return true, nil
	}
	return b.Attributes&attrTxn != 0 && a.active[b.ProducerID], nil
}
