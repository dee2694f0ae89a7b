package kafka

import (
	"context"
	"errors"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Buffers are pooled by size class. There are four classes per power of two, so rounding
// wastes a fifth at most. (A response is a few bytes larger than the requested power of
// two.)
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

// maxPooled bounds the buffers that are kept for reuse, in bytes.
const maxPooled = 8 << 20

func putBuffer(b []byte) {
	b = b[:cap(b)]
	if len(b) > maxPooled {
		return
	}
	class, _ := bufferClass(len(b))
	bufferPools[class].Put(&b)
}

// counter counts bytes up to a limit.
type counter struct {
	limit int64

	mu   sync.Mutex
	used int64
	free chan struct{} // closed and replaced when bytes are returned
}

// wait takes n bytes once they fit, or once beyond, called under the lock, allows more.
func (c *counter) wait(ctx context.Context, n int64, beyond func() bool) error {
	for {
		c.mu.Lock()
		if c.used+n <= c.limit || beyond() {
			c.used += n
			c.mu.Unlock()
			return nil
		}
		free := c.free
		c.mu.Unlock()
		select {
		case <-free:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// try takes n bytes if they fit now.
func (c *counter) try(n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used+n > c.limit {
		return false
	}
	c.used += n
	return true
}

func (c *counter) release(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used -= n; c.used < 0 {
		panic("kafka: more bytes released than acquired")
	}
	close(c.free)
	c.free = make(chan struct{})
}

func (c *counter) outstanding() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// A total counts the bytes of several partitions.
type total struct {
	counter
	beyond *budget // while used is above limit: the partition that may take more; nil: any may
}

func newTotal(limit int64) *total {
	return &total{counter: counter{limit: limit, free: make(chan struct{})}}
}

// A budget counts the bytes of one partition that are held in memory. They count against
// the total of all partitions as well.
type budget struct {
	counter
	total *total
}

func newBudget(limit int64, t *total) *budget {
	return &budget{counter: counter{limit: limit, free: make(chan struct{})}, total: t}
}

// reserve takes n bytes. It waits until they fit or nothing else is used.
func (b *budget) reserve(ctx context.Context, n int64) error {
	return b.take(ctx, n, 0, false)
}

// acquire takes n bytes. It waits until they fit, or until nothing is used but the held
// bytes, which the caller has already. So a thing larger than the budget gets in alone, and
// no caller waits for itself.
//
// One partition at a time may exceed the total. Otherwise partitions that each hold a
// response could wait for each other with its decompressed records.
func (b *budget) acquire(ctx context.Context, n, held int64) error {
	return b.take(ctx, n, held, true)
}

func (b *budget) take(ctx context.Context, n, held int64, beyond bool) error {
	if err := b.wait(ctx, n, func() bool { return b.used <= held }); err != nil {
		return err
	}
	t := b.total
	err := t.wait(ctx, n, func() bool {
		switch {
		case t.used == 0:
			t.beyond = nil
			return true
		case beyond && (t.used <= t.limit || t.beyond == nil || t.beyond == b):
			t.beyond = b
			return true
		}
		return false
	})
	if err != nil {
		b.counter.release(n)
	}
	return err
}

// try takes n bytes if that needs no waiting.
func (b *budget) try(n int64) bool {
	if !b.counter.try(n) {
		return false
	}
	if !b.total.try(n) {
		b.counter.release(n)
		return false
	}
	return true
}

func (b *budget) release(n int64) {
	if n != 0 {
		b.counter.release(n)
		b.total.release(n)
	}
}

// buffers is a source of buffers for decompress.
type buffers interface {
	get(n int) ([]byte, error) // at least n bytes
	put([]byte)
}

// errNoRoom says that a budget has no room without waiting.
var errNoRoom = errors.New("no room without waiting")

// get implements buffers without waiting. It fails with errNoRoom.
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

// patientBudget is a budget that waits for room for its first buffer.
type patientBudget struct {
	*budget
	ctx    context.Context
	held   int64 // as in acquire
	waited bool
}

// get implements buffers.
func (p *patientBudget) get(n int) ([]byte, error) {
	if p.waited {
		return p.budget.get(n)
	}
	_, size := bufferClass(n)
	if err := p.acquire(p.ctx, int64(size), p.held); err != nil {
		return nil, err
	}
	p.waited = true
	return getBuffer(n), nil
}

// memory is a pooled buffer that counts against a budget and is shared by the batches that
// view it.
type memory struct {
	buf    []byte
	budget *budget
	charge int64
	refs   atomic.Int32
}

// newMemory wraps buf, whose capacity has been acquired. The caller holds the first
// reference.
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
