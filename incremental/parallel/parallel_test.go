package parallel

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Each i has one call, and the error is that of a plain loop, even if a later call
// fails sooner.
func TestForIsALoop(t *testing.T) {
	for workers := range 6 {
		for _, n := range []int{0, 1, 2, 7, 100} {
			for _, bad := range [][]int{nil, {0}, {1, 2}, {3, 4, 6}, {99}} {
				calls := make([]atomic.Int32, n)
				err := For(workers, n, func(i int) error {
					calls[i].Add(1)
					if place := slices.Index(bad, i); place >= 0 {
						time.Sleep(time.Duration(len(bad)-1-place) * time.Millisecond)
						return fmt.Errorf("call %d", i)
					}
					return nil
				})
				want, loop := error(nil), n
				if bad != nil && bad[0] < n {
					want, loop = fmt.Errorf("call %d", bad[0]), bad[0]+1
				}
				if fmt.Sprint(err) != fmt.Sprint(want) {
					t.Errorf("%d workers, %d calls, of which %v fail: %v, not %v", workers, n, bad, err, want)
				}
				for i := range calls {
					if c := calls[i].Load(); c > 1 || c == 0 && i < loop || c > 0 && i >= loop && workers <= 1 {
						t.Errorf("%d workers, %d calls, of which %v fail: %d calls of %d", workers, n, bad, c, i)
					}
				}
			}
		}
	}
}

// Calls run in parallel: one per worker, they wait for each other.
func TestForIsParallel(t *testing.T) {
	const workers = 3
	var together sync.WaitGroup
	together.Add(workers)
	err := For(workers, workers, func(int) error {
		together.Done()
		together.Wait()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A panic on any goroutine is one of the caller of For, with the stack of where it was.
func TestPanicsReachTheCaller(t *testing.T) {
	for workers := 1; workers <= 4; workers++ {
		for at := range 6 {
			p := func() (p *Panic) {
				defer func() { p, _ = recover().(*Panic) }()
				For(workers, 6, func(i int) error {
					if i == at {
						explode(i)
					}
					return nil
				})
				return nil
			}()
			if p == nil || p.Value != at || !strings.Contains(p.String(), "explode") {
				t.Errorf("%d workers, panic in call %d: %v", workers, at, p)
			}
		}
	}
}

//go:noinline
func explode(i int) { panic(i) }

// A group within a group keeps the first stack.
func TestPanicOfANestedGroup(t *testing.T) {
	defer func() {
		if p, ok := recover().(*Panic); !ok || p.Value != 7 {
			t.Errorf("%v", p)
		}
	}()
	var outer Group
	outer.Go(func() {
		var inner Group
		inner.Go(func() { explode(7) })
		inner.Wait()
	})
	outer.Wait()
}
