// Package parallel runs a loop on several goroutines.
package parallel

import (
	"sync"
	"sync/atomic"
)

// For calls do(0) to do(n−1) on up to workers goroutines, including the caller's, and
// returns after the last call. Calls begin in order. After an error no more calls begin.
//
// For returns the error of the lowest i. Since calls begin in order, a plain loop would
// have ended with the same error. Results do not depend on the timing of goroutines if
// each call writes only to a place of its own.
func For(workers, n int, do func(i int) error) error {
	var (
		next   atomic.Int64
		mutex  sync.Mutex // guards lowest and first
		lowest = n
		first  error
	)
	work := func() {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			if err := do(i); err != nil {
				next.Store(int64(n))
				mutex.Lock()
				if i < lowest {
					lowest, first = i, err
				}
				mutex.Unlock()
			}
		}
	}
	var others sync.WaitGroup
	for range min(workers, n) - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
	return first
}
