package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/compress"

	"streamd/ingest/kafka/protocol"
)

func TestBufferClasses(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	sizes := []int{0, 1, 4095, 4096, 4097, 5120, 5121, 8191, 8192, 8193, 8<<20 + 70, 1 << 30}
	for range 1000 {
		sizes = append(sizes, rng.IntN(1<<(1+rng.IntN(30))))
	}
	for _, n := range sizes {
		class, size := bufferClass(n)
		if size < n || size > 4096 && 4*size > 5*n+4 {
			t.Fatalf("%d bytes for %d", size, n)
		}
		if again, same := bufferClass(size); again != class || same != size {
			t.Fatalf("%d bytes come from class %d and go back to %d", size, class, again)
		}
	}
}

func TestBudget(t *testing.T) {
	const limit, workers = 1000, 8
	b := newBudget(limit, newTotal(2*limit))
	var work sync.WaitGroup
	for w := range workers {
		rng := rand.New(rand.NewPCG(uint64(w), 1))
		work.Go(func() {
			for range 300 {
				n := rng.Int64N(limit) + 1
				if err := b.acquire(context.Background(), n, 0); err != nil {
					t.Error(err)
				}
				if used := b.outstanding(); used > limit {
					t.Errorf("%d bytes are used of %d", used, limit)
				}
				b.release(n)
			}
		})
	}
	work.Wait()
	if used := b.outstanding(); used != 0 {
		t.Errorf("%d bytes are left", used)
	}
}

func TestBudgetAdmitsTheLargeAlone(t *testing.T) {
	b := newBudget(100, newTotal(1000))
	ctx := context.Background()
	if err := b.acquire(ctx, 60, 0); err != nil {
		t.Fatal(err)
	}
	// 500 on top of the caller's own 60 get in, since nothing else is used.
	if err := b.acquire(ctx, 500, 60); err != nil {
		t.Fatal(err)
	}
	late := make(chan error, 1)
	go func() { late <- b.acquire(ctx, 50, 0) }()
	expired, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := b.acquire(expired, 1, 0); err == nil {
		t.Error("something was admitted beside what is too large")
	}
	b.release(560)
	if err := <-late; err != nil || b.outstanding() != 50 {
		t.Errorf("%v, %d", err, b.outstanding())
	}
}

// bomb makes a record batch of one record, of size zeros.
func bomb(t testing.TB, base int64, codec compress.Compression, size int) []byte {
	t.Helper()
	var w batchWriter
	w.reset()
	w.add(nil, make([]byte, size), nil, time.UnixMilli(1))
	plain := w.finish(-1, -1, -1)
	data := append(bytes.Clone(plain[:batchHeader]), compressed(t, codec, bytes.NewReader(plain[batchHeader:]))...)
	data[22] |= byte(codec)
	binary.BigEndian.PutUint32(data[8:], uint32(len(data)-batchPrefix))
	return at(base, seal(data))
}

// Batches that 64 partitions decompress at the same time take no more than the total and
// one batch, in whatever order they are released. No partition waits for ever.
func TestOneBudgetOverAllPartitions(t *testing.T) {
	const partitions, batches, size, limit = 64, 3, 1 << 20, 4 << 20
	shared := newTotal(limit)
	var most atomic.Int64
	held := make(chan *Batch, 2*partitions) // to be released by another goroutine
	var sink, work sync.WaitGroup
	sink.Go(func() {
		for b := range held {
			b.Release()
		}
	})
	var read atomic.Int64
	for i := range partitions {
		codec := codecs[i%len(codecs)]
		var records []byte
		for k := range batches {
			records = append(records, bomb(t, int64(k), codec, size)...)
		}
		work.Go(func() {
			c := &Consumer{cfg: Config{Topic: "t", Fetching: Fetching{MaxMessageBytes: 2 * size, FetchBytes: 1 << 16, BufferBytes: 2 * size}}, total: shared}
			p := c.newPartition(i)
			buf := getBuffer(len(records))
			if err := p.budget.reserve(t.Context(), int64(cap(buf))); err != nil {
				t.Error(err)
				return
			}
			s := p.splitter(&protocol.Fetched{Records: records, Buf: buf}, p.budget, Saved{}, func(b *Batch) error {
				read.Add(int64(len(b.Records)))
				shared.mu.Lock()
				used := shared.used
				shared.mu.Unlock()
				for old := most.Load(); used > old && !most.CompareAndSwap(old, used); old = most.Load() {
				}
				held <- b
				return nil
			})
			if _, err := s.split(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	close(held)
	sink.Wait()
	if n := read.Load(); n != partitions*batches {
		t.Errorf("%d records were read, want %d", n, partitions*batches)
	}
	// Beside the total: a buffer for the largest batch if it does not give its size, and the
	// partition's own budget.
	if n := most.Load(); n > limit+5*2*size/4+2*size {
		t.Errorf("%d bytes were held, the total is %d", n, limit)
	}
	if shared.used != 0 {
		t.Errorf("%d bytes are not given back", shared.used)
	}
}
