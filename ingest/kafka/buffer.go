package kafka

import (
	"context"
	"errors"
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

// mostPooled bounds the buffers that are kept for others, in bytes.
const mostPooled = 8 << 20

func putBuffer(b []byte) {
	b = b[:cap(b)]
	if len(b) > mostPooled {
		return
	}
	class, _ := bufferClass(len(b))
	bufferPools[class].Put(&b)
}

// A budget counts the bytes of one partition that are held in memory. They count
// against a total as well, which is that of all partitions.
type budget struct {
	limit int64
	total *total

	mu   sync.Mutex
	used int64
	free chan struct{} // closed and replaced when bytes come back
}

func newBudget(limit int64, t *total) *budget {
	return &budget{limit: limit, total: t, free: make(chan struct{})}
}

// reserve takes n bytes, waiting until they fit or nothing else is used.
func (b *budget) reserve(ctx context.Context, n int64) error {
	return b.wait(ctx, n, 0, false)
}

// acquire takes n bytes, waiting until they fit or until nothing is used but the
// held bytes, which the caller has already. So what is larger than the budget
// gets in alone, and nobody waits for himself. Of the total, one partition at a time
// may take more than there is: or those that hold a response each might wait for each
// other with what it decompresses to.
func (b *budget) acquire(ctx context.Context, n, held int64) error {
	return b.wait(ctx, n, held, true)
}

func (b *budget) wait(ctx context.Context, n, held int64, beyond bool) error {
	for {
		b.mu.Lock()
		if b.used+n <= b.limit || b.used <= held {
			b.used += n
			b.mu.Unlock()
			break
		}
		free := b.free
		b.mu.Unlock()
		select {
		case <-free:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := b.total.wait(ctx, b, n, beyond); err != nil {
		b.giveBack(n)
		return err
	}
	return nil
}

// try takes n bytes if that needs no waiting.
func (b *budget) try(n int64) bool {
	b.mu.Lock()
	ok := b.used+n <= b.limit
	if ok {
		b.used += n
	}
	b.mu.Unlock()
	if ok && !b.total.try(n) {
		b.giveBack(n)
		return false
	}
	return ok
}

func (b *budget) release(n int64) {
	if n == 0 {
		return
	}
	b.giveBack(n)
	b.total.release(n)
}

func (b *budget) giveBack(n int64) {
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

// A total is a budget of several partitions.
type total struct {
	limit int64

	mu     sync.Mutex
	used   int64
	beyond *budget       // who has taken more than there is, until that has come back; nil: nobody
	free   chan struct{} // closed and replaced when bytes come back
}

func newTotal(limit int64) *total { return &total{limit: limit, free: make(chan struct{})} }

func (t *total) wait(ctx context.Context, b *budget, n int64, beyond bool) error {
	for {
		t.mu.Lock()
		switch fits := t.used+n <= t.limit; {
		case fits || t.used == 0:
		case beyond && (t.beyond == nil || t.beyond == b):
			t.beyond = b
		default:
			free := t.free
			t.mu.Unlock()
			select {
			case <-free:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		t.used += n
		t.mu.Unlock()
		return nil
	}
}

func (t *total) try(n int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.used+n > t.limit {
		return false
	}
	t.used += n
	return true
}

func (t *total) release(n int64) {
	t.mu.Lock()
	if t.used -= n; t.used <= t.limit {
		t.beyond = nil
	}
	close(t.free)
	t.free = make(chan struct{})
	t.mu.Unlock()
}

// Where decompress has its buffers from.
type buffers interface {
	get(n int) ([]byte, error) // of at least n bytes; errNoRoom
	put([]byte)
}

// errNoRoom says that there is no room in a budget without waiting.
var errNoRoom = errors.New("no room without waiting")

// get implements buffers by what can be had without waiting.
func (b *budget) get(n int) ([]byte, error) {
	if _, size := bufferClass(n); !b.try(int64(size)) {
		return nil, errNoRoom
	}
	return getBuffer(n), nil
}

// put implements buffers.
func (b *budget) put(buf []byte) {
	putBuffer(buf)
	b.release(int64(cap(buf)))
}

// A grant is the budget when a first buffer has been waited for.
type grant struct {
	*budget
	first int64 // bytes that have been taken for it
}

// waitFor takes room for a first buffer of at least n bytes.
func (b *budget) waitFor(ctx context.Context, n int, held int64) (*grant, error) {
	_, size := bufferClass(n)
	return &grant{b, int64(size)}, b.acquire(ctx, int64(size), held)
}

// get implements buffers.
func (g *grant) get(n int) ([]byte, error) {
	if _, size := bufferClass(n); int64(size) != g.first {
		g.giveUp()
		return g.budget.get(n)
	}
	g.first = 0
	return getBuffer(n), nil
}

// giveUp gives the room back if no buffer has taken it.
func (g *grant) giveUp() {
	g.release(g.first)
	g.first = 0
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
