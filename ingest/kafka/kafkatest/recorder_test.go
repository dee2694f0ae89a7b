package kafkatest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"streamd/ingest/kafka"
)

// chain is SHA-256 over the chain before and one record. It differs after a loss, a
// duplicate or a change of order. A sum would not show a change of order.
type chain [sha256.Size]byte

func (c chain) add(offset int64, key, value []byte) chain {
	h := sha256.New()
	h.Write(c[:])
	for _, v := range [][]byte{binary.BigEndian.AppendUint64(nil, uint64(offset)), key, value} {
		fmt.Fprintf(h, "%d/%t/", len(v), v == nil)
		h.Write(v)
	}
	return chain(h.Sum(nil))
}

// recorder is a Sink that remembers its deliveries. It saves every position at once, so that
// a second consumer with the same recorder resumes.
type recorder struct {
	// deliver, when set, is called before a batch is taken.
	deliver func(ctx context.Context, b *kafka.Batch) error
	// keep makes records keep a copy of each record.
	keep bool
	// revoked, when set, is called from Revoked.
	revoked func(ctx context.Context, partitions []int)

	mu      sync.Mutex
	busy    map[int]bool // partitions within Deliver
	saved   map[int]kafka.Saved
	chains  map[int]chain
	counts  map[int]int
	records map[int][]kafka.Record
	refused []kafka.Refused
	jumps   []*kafka.GapError
	failure error // a broken promise of the consumer
}

func newRecorder() *recorder {
	return &recorder{
		busy:    make(map[int]bool),
		saved:   make(map[int]kafka.Saved),
		chains:  make(map[int]chain),
		counts:  make(map[int]int),
		records: make(map[int][]kafka.Record),
	}
}

func (r *recorder) Position(partition int) (kafka.Saved, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.saved[partition]
	return s, ok
}

func (r *recorder) Partitions() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.saved))
}

func (r *recorder) Deliver(ctx context.Context, b *kafka.Batch) error {
	p := b.Partition
	r.mu.Lock()
	if r.busy[p] {
		r.failure = fmt.Errorf("partition %d: two deliveries at once", p)
	}
	r.busy[p] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.busy[p] = false
		r.mu.Unlock()
	}()
	if r.deliver != nil {
		if err := r.deliver(ctx, b); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range b.Records {
		rec := &b.Records[i]
		if rec.Offset < r.saved[p].Next {
			r.failure = fmt.Errorf("partition %d: offset %d after position %d", p, rec.Offset, r.saved[p].Next)
		}
		r.chains[p] = r.chains[p].add(rec.Offset, rec.Key, rec.Value)
		r.counts[p]++
		if r.keep {
			r.records[p] = append(r.records[p], clone(rec))
		}
	}
	r.refused = append(r.refused, b.Refused...)
	r.saved[p] = b.Position
	b.Release()
	return nil
}

func (r *recorder) Jumped(gap *kafka.GapError, to int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy[gap.Partition] {
		r.failure = fmt.Errorf("partition %d: a jump during a delivery", gap.Partition)
	}
	r.jumps = append(r.jumps, gap)
	r.saved[gap.Partition] = kafka.Saved{Next: to}
}

func (*recorder) Assigned(context.Context, []int) error { return nil }

func (r *recorder) Revoked(ctx context.Context, partitions []int) {
	r.mu.Lock()
	for _, p := range partitions {
		if r.busy[p] {
			r.failure = fmt.Errorf("partition %d: revoked during a delivery", p)
		}
	}
	r.mu.Unlock()
	if r.revoked != nil {
		r.revoked(ctx, partitions)
	}
}

// total is the number of records so far.
func (r *recorder) total() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, c := range r.counts {
		n += c
	}
	return n
}

func (r *recorder) count(partition int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[partition]
}

func (r *recorder) next(partition int) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.saved[partition].Next
}

func (r *recorder) chainOf(partition int) chain {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.chains[partition]
}

func (r *recorder) kept(partition int) []kafka.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.records[partition])
}

func (r *recorder) positions() map[int]kafka.Saved {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.saved)
}

func (r *recorder) broken() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

// checkRefused checks that these offsets were refused, each by itself, because of a limit.
func (r *recorder) checkRefused(t *testing.T, offsets ...int64) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.refused) != len(offsets) {
		t.Fatalf("refused: %+v", r.refused)
	}
	for i, o := range offsets {
		if got := r.refused[i]; got.First != o || got.Last != o || got.Records != 1 || !strings.Contains(got.Reason.Error(), "the limit") {
			t.Errorf("offset %d: refused %+v", o, got)
		}
	}
}

// clone copies a record. Nil stays nil, and empty stays empty.
func clone(r *kafka.Record) kafka.Record {
	c := *r
	c.Key, c.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
	c.Headers = slices.Clone(r.Headers)
	for i := range c.Headers {
		c.Headers[i].Value = bytes.Clone(c.Headers[i].Value)
	}
	return c
}
