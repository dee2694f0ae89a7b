package kafka

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
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
	b := newBudget(limit)
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
	b := newBudget(100)
	ctx := context.Background()
	if err := b.acquire(ctx, 60, 0); err != nil {
		t.Fatal(err)
	}
	// 500 on top of one's own 60 get in, since nobody else has any.
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
