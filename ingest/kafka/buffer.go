package kafka

import (
	"context"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Buffers are pooled by size class: four classes to the power of two, so that
// at most a fifth is wasted on rounding (a response has some bytes more than the
// power of two that was asked for).
var bufferPools [4 * 32]sync.Pool

func bufferClass(n int) (class, size int) {
	n = max(n, 4096)
	exp := bits.Len(uint(n-1)) - 3 // n is in (4·2^exp, 8·2^exp]
	quarter := (n - 1) >> exp      // 4…7
	return 4*exp + quarter - 4, (quarter + 1) << exp
}

// getBuffer returns at least n bytes, with a capacity that putBuffer can file.
func getBuffer(n int) []byte {
	class, size := bufferClass(n)
	if b, _ := bufferPools[class].Get().(*[]byte); b != nil {
		return (*b)[:size]
	}
	return make([]byte, size)
}

func putBuffer(b []byte) {
	b = b[:cap(b)]
	class, _ := bufferClass(len(b))
	bufferPools[class].Put(&b)
}

// budget counts the bytes of one partition that are held in memory.
type budget struct {
	limit int64

	mu   sync.Mutex
	used int64
	free chan struct{} // closed and replaced when bytes come back
}

func newBudget(limit int64) *budget {
	return &budget{limit: limit, free: make(chan struct{})}
}

// acquire takes n bytes, waiting until they fit or until nothing is used but the
// held bytes, which the caller has already. So what is larger than the budget
// gets in alone, and nobody waits for himself.
func (b *budget) acquire(ctx context.Context, n, held int64) error {
	for {
		b.mu.Lock()
		if b.used+n <= b.limit || b.used <= held {
			b.used += n
			b.mu.Unlock()
			return nil
		}
		free := b.free
		b.mu.Unlock()
		select {
		case <-free:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fits says whether n bytes could be had without waiting.
func (b *budget) fits(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used+n <= b.limit
}

func (b *budget) release(n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	if b.used -= n; b.used < 0 {
		panic("kafka: more bytes released than acquired")
	}
	close(b.free)
	b.free = make(chan struct{})
	b.mu.Unlock()
}

func (b *budget) outstanding() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// memory is a pooled buffer that counts against a budget and is shared by the
// batches that view it.
type memory struct {
	buf    []byte
	budget *budget
	charge int64
	refs   atomic.Int32
}

// newMemory wraps buf, whose capacity has been acquired; the caller holds the
// first reference.
func newMemory(buf []byte, b *budget) *memory {
	m := &memory{buf: buf, budget: b, charge: int64(cap(buf))}
	m.refs.Store(1)
	return m
}

func (m *memory) retain() { m.refs.Add(1) }

func (m *memory) release() {
	if m.refs.Add(-1) == 0 {
		putBuffer(m.buf)
		m.budget.release(m.charge)
	}
}
