package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/segmentio/kafka-go/compress"

	"streamd/ingest/kafka/protocol"
)

// A splitter turns a fetch response into batches.
type splitter struct {
	partition int
	cfg       *Fetching
	names     *interner
	budget    *budget
	memory    *memory // the response; split releases it
	result    *protocol.Fetched
	largest   *int // set to the size of the largest record batch that came whole

	all   bool                         // emit aborted records and markers, too
	wants func(first, last int64) bool // nil: all offsets
	emit  func(*Batch) error

	at      Saved       // after the batches emitted so far
	last    Fingerprint // of the last marker passed, or of the last record emitted
	aborted abortedBy
	current *Batch
	size    int // memory that current alone holds
}

// split emits all complete record batches of the response and returns the position after
// them. It emits everything that comes before an error.
func (s *splitter) split(ctx context.Context) (Saved, error) {
	defer s.memory.release()
	slices.SortFunc(s.result.Aborted, func(x, y protocol.AbortedTxn) int { return cmp.Compare(x.First, y.First) })
	s.aborted.pending = s.result.Aborted
	s.last = s.at.Last
	pos, largest := s.at.Next, 0
	var failure error
	for data := s.result.Records; len(data) > 0; {
		rb, size, err := parseBatch(data, &s.result.Sums)
		isCut := errors.Is(err, errCut)
		if isCut && largest > 0 {
			break // the next response begins with it
		}
		if isCut {
			// A broker sends the first batch whole, so the limit has cut it.
			rb, err = parseCut(s.result, data, size)
			data = nil
		} else if err == nil {
			data = data[size:]
		}
		if err != nil {
			failure = err
			break
		}
		largest = max(largest, size)
		var oversize error
		if limit := s.cfg.MaxMessageBytes; isCut || size > batchPrefix+limit {
			oversize = tooLarge(fmt.Sprintf("a record batch of %d bytes is larger than the limit of %d", size, limit))
		} else {
			*s.largest = largest
		}
		if err := s.take(ctx, &rb, pos, oversize); err != nil {
			failure = err
			break
		}
		pos = max(pos, rb.last()+1)
	}
	if pos > s.at.Next {
		if err := s.flush(pos); err != nil && failure == nil {
			failure = err
		}
	} else if s.current != nil {
		s.current.Release()
	}
	return s.at, failure
}

// take adds the records of rb from pos on to the current batch, refuses them, or passes
// over them.
func (s *splitter) take(ctx context.Context, rb *recordBatch, pos int64, oversize error) error {
	skip := false
	if !s.all {
		var err error
		if skip, err = s.aborted.skips(rb); err != nil {
			return err
		}
	}
	switch {
	case rb.last() < pos || s.wants != nil && !s.wants(max(pos, rb.first()), rb.last()):
		return nil
	case skip:
		if rb.has(attrControl) {
			s.passMarker(rb)
		}
		return nil
	case oversize != nil:
		return s.refuse(rb, pos, int(rb.NumRecords), oversize)
	}
	return s.add(ctx, rb, pos)
}

// passMarker notes a control batch as the last thing read.
func (s *splitter) passMarker(rb *recordBatch) {
	b := Batch{names: s.names}
	records, err := rb.reader(rb.Records)
	if err == nil {
		err = records.appendTo(&b, rb.first(), 1)
	}
	if err == nil && len(b.Records) > 0 {
		s.last = FingerprintOf(&b.Records[0])
	}
}

// maxRecords bounds the records of a batch. Small records take more memory than their
// bytes, and their bytes alone count against the budget.
const maxRecords = 1024

// add decodes the records of rb from pos on into the current batch. It refuses those that
// are not encoded as they should be.
func (s *splitter) add(ctx context.Context, rb *recordBatch, pos int64) error {
	payload, mem := rb.Records, s.memory
	if codec := rb.codec(); codec != compress.None {
		buf, n, bad, err := s.inflate(ctx, rb, pos)
		if bad != nil {
			return s.refuse(rb, pos, int(rb.NumRecords), fmt.Errorf("a record batch compressed with %v: %w", codec, bad))
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
	records, err := rb.reader(payload)
	for err == nil && records.left > 0 {
		if s.current != nil && len(s.current.Refused) > 0 {
			if err := s.flush(max(pos, records.previous+1)); err != nil {
				return err
			}
		}
		if s.current == nil {
			s.current = newBatch(s.partition, s.names)
		}
		mem.retain()
		s.current.memory = append(s.current.memory, mem)
		if err = records.appendTo(s.current, pos, maxRecords); err == nil && records.left > 0 {
			if err := s.flush(max(pos, records.previous+1)); err != nil {
				return err
			}
		}
	}
	if err != nil {
		return s.refuse(rb, max(pos, records.previous+1), records.left, err)
	}
	return nil
}

// refuse adds a stretch that cannot be read to the current batch: count records of rb, from
// offset first on.
func (s *splitter) refuse(rb *recordBatch, first int64, count int, reason error) error {
	first = max(first, rb.first())
	if first > rb.last() {
		return nil // all records have been read, and the bytes behind them are none
	}
	if b := s.current; b != nil && (len(b.Records) > 0 || len(b.Refused) == maxRecords) {
		if err := s.flush(first); err != nil {
			return err
		}
	}
	if s.current == nil {
		s.current = newBatch(s.partition, s.names)
	}
	s.current.Refused = append(s.current.Refused, Refused{
		First: first, Last: rb.last(), Records: max(1, min(int64(count), rb.last()-first+1)), Reason: reason,
	})
	return nil
}

// inflate decompresses the records of rb into the first n bytes of buf. bad is an error of
// the records.
//
// If there is no room, the current batch is emitted first: the memory that is waited for
// may be its own.
func (s *splitter) inflate(ctx context.Context, rb *recordBatch, pos int64) (buf []byte, n int, bad, err error) {
	codec, limit := rb.codec(), s.cfg.MaxMessageBytes
	guess := guessSize(codec, rb.Records, limit)
	if s.current != nil && s.size+guess > s.cfg.FetchBytes {
		if err := s.flush(pos); err != nil {
			return nil, 0, nil, err
		}
	}
	buf, n, bad = decompress(codec, rb.Records, guess, limit, s.budget)
	for ; errors.Is(bad, errNoRoom); guess = limit + 1 {
		if s.current != nil {
			if err := s.flush(pos); err != nil {
				return nil, 0, nil, err
			}
		}
		patient := &patientBudget{budget: s.budget, ctx: ctx, held: s.memory.charge}
		buf, n, bad = decompress(codec, rb.Records, guess, limit, patient)
		if bad != nil && ctx.Err() != nil {
			return nil, 0, nil, ctx.Err()
		}
	}
	return buf, n, bad, nil
}

// flush emits the current batch. pos is the position after its records.
func (s *splitter) flush(pos int64) error {
	b := s.current
	if b == nil {
		b = newBatch(s.partition, s.names) // it moves the position alone
	}
	s.current, s.size = nil, 0
	if n := len(b.Records); n > 0 && b.Records[n-1].Offset >= s.last.Offset {
		s.last = fingerprint(&b.Records[n-1], &s.result.Sums)
	}
	b.Position = Saved{Next: pos, Last: s.last}
	at := b.Position
	if err := s.emit(b); err != nil {
		return err
	}
	s.at = at
	return nil
}

// abortedBy finds the record batches of a fetch response that belong to aborted
// transactions. It must be given every batch, in order.
type abortedBy struct {
	pending []protocol.AbortedTxn // not begun yet, by first offset
	active  map[int64]bool        // producers
}

// skips reports whether the records of b are hidden from the application, because they were
// aborted or because b is a control batch.
func (a *abortedBy) skips(b *recordBatch) (bool, error) {
	for len(a.pending) > 0 && a.pending[0].First <= b.last() {
		if a.active == nil {
			a.active = make(map[int64]bool)
		}
		a.active[a.pending[0].Producer] = true
		a.pending = a.pending[1:]
	}
	if !b.has(attrControl) {
		return b.has(attrTxn) && a.active[b.ProducerID], nil
	}
	const abort = 0
	if b.NumRecords > 0 { // compaction may have emptied it
		kind, err := b.marker()
		if err != nil {
			return false, err
		}
		if kind == abort {
			delete(a.active, b.ProducerID)
		}
	}
	return true, nil
}
