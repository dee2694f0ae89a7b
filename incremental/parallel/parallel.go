// Package parallel runs a loop on several goroutines.
package parallel

import (
	"sync"
	"sync/atomic"
)

// For calls do for 0 to n−1, in that order but on up to so many goroutines, of
// which this one is one, and returns when all calls have. After an error no
// more calls begin.
//
// It returns the error of the lowest number. Since calls begin in order, that is
// the error that a plain loop would have ended with, however fast which
// goroutine is. Results are as independent of it when each call writes to a
// place of its own.
func For(workers, n int, do func(i int) error) error {
	var (
		next   atomic.Int64
		mutex  sync.Mutex // guards what follows
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
