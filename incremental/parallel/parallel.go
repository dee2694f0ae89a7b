// Package parallel runs a loop on several goroutines.
package parallel

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// For calls do(0) to do(n−1) on up to workers goroutines, including the caller's, and
// returns after the last call. Calls begin in order. After an error no more calls begin.
//
// For returns the error of the lowest i. Since calls begin in order, a plain loop would
// have ended with the same error. Results do not depend on the timing of goroutines if
// each call writes only to a place of its own. A panic of a call is one of For.
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
	var all Group
	caught := func() {
		if !all.Catch(work) {
			next.Store(int64(n))
		}
	}
	for range min(workers, n) - 1 {
		all.Go(caught)
	}
	caught()
	all.Wait()
	return first
}

// Group is goroutines whose panics go on in the goroutine that waits for them. Elsewhere nobody
// could catch them. The zero value is ready for use.
type Group struct {
	wait  sync.WaitGroup
	mutex sync.Mutex
	first *Panic
}

// A Panic is a panic of another goroutine.
type Panic struct {
	Value any
	Stack []byte // of the goroutine
}

// String is that of the value, with the stack.
func (p *Panic) String() string { return fmt.Sprintf("%v\n\n%s", p.Value, p.Stack) }

// Go runs f on another goroutine.
func (g *Group) Go(f func()) { g.wait.Go(func() { g.Catch(f) }) }

// Catch runs f, and returns false if it panics: then Wait panics.
func (g *Group) Catch(f func()) (ok bool) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		p, is := r.(*Panic) // of a group within
		if !is {
			p = &Panic{r, debug.Stack()}
		}
		g.mutex.Lock()
		defer g.mutex.Unlock()
		if g.first == nil {
			g.first = p
		}
	}()
	f()
	return true
}

// Wait waits for all goroutines. It panics with the *Panic of the first that has panicked.
func (g *Group) Wait() {
	g.wait.Wait()
	if g.first != nil {
		panic(g.first)
	}
}
