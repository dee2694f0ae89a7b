package bench

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Sample is what one run of a side did.
type Sample struct {
	Ops     int64 // how often its work was done: the N of a benchmark line
	Rows    int64 // rows that went through
	Seconds float64
}

// nsPerRow is the time for a row.
func (s Sample) nsPerRow() float64 { return s.Seconds * 1e9 / float64(s.Rows) }

// nsPerOp is the time for the work to be done once.
func (s Sample) nsPerOp() float64 { return s.Seconds * 1e9 / float64(s.Ops) }

// rowsPerSecond is the rate.
func (s Sample) rowsPerSecond() float64 { return float64(s.Rows) / s.Seconds }

// A side is one of the things that are compared.
type side struct {
	Name string // for progress and errors
	// Run does the work once or more, for about d, and says what it did, of
	// which nothing is zero. A work that cannot be divided may take longer.
	Run func(ctx context.Context, d time.Duration) (Sample, error)
}

// A work does some of what is measured, and says how many rows that was.
type work = func() (rows int64, err error)

// loop makes a side's Run of work that returns the rows it did: it is repeated
// until the time is up. Each of several works runs on a goroutine of its own,
// at the same time, and the sample has the sum of their rates.
func loop(works ...work) func(context.Context, time.Duration) (Sample, error) {
	return func(ctx context.Context, d time.Duration) (Sample, error) {
		samples, errs := make([]Sample, len(works)), make([]error, len(works))
		var ready, done sync.WaitGroup
		begin := make(chan struct{})
		for i := range works {
			ready.Add(1)
			done.Go(func() {
				ready.Done()
				<-begin
				samples[i], errs[i] = repeat(ctx, d, works[i])
			})
		}
		ready.Wait()
		close(begin)
		done.Wait()
		var all Sample
		rate := 0.0
		for i, s := range samples {
			if errs[i] != nil {
				return Sample{}, errs[i]
			}
			all.Ops += s.Ops
			all.Rows += s.Rows
			rate += s.rowsPerSecond()
		}
		// Each has ended its last work at its own time, so there is no common
		// one: this is how long all would have taken at their joint rate.
		all.Seconds = float64(all.Rows) / rate
		return all, nil
	}
}

// repeat does work until d is over. Of short work it does more and more at a
// time, so that looking at the clock does not count.
func repeat(ctx context.Context, d time.Duration, work work) (s Sample, err error) {
	began, took := time.Now(), time.Duration(0)
	for batch := 1; s.Ops == 0 || took < d; {
		if err := ctx.Err(); err != nil {
			return Sample{}, err
		}
		for range batch {
			rows, err := work()
			if err != nil {
				return Sample{}, err
			}
			s.Ops++
			s.Rows += rows
		}
		before := took
		if took = time.Since(began); took-before < d/100 {
			batch *= 2
		}
	}
	s.Seconds = took.Seconds()
	return s, nil
}

// Plan is how much is measured.
type Plan struct {
	Rounds int           // at least 1
	Time   time.Duration // of a side in a round
	// Skip the runs to warm up: for sides that take minutes, and whose first
	// seconds therefore do not matter.
	Cold bool
	// Progress, if not nil, is told what is about to run and which share of
	// everything is done.
	Progress func(what string, done float64)
}

// Case is the plan of case i of n, whose progress is a part of the whole.
func (p Plan) Case(i, n int, name string) Plan {
	if whole := p.Progress; whole != nil {
		p.Progress = func(what string, done float64) {
			whole(name+" "+what, (float64(i)+done)/float64(n))
		}
	}
	return p
}

// alternate runs the sides in turn, round after round, and returns for each
// side, in their order, a sample per round.
func (p Plan) alternate(ctx context.Context, sides ...side) ([][]Sample, error) {
	samples := make([][]Sample, len(sides))
	first := -1 // the round to warm up
	if p.Cold {
		first = 0
	}
	for round := first; round < p.Rounds; round++ {
		for i, side := range sides {
			if p.Progress != nil {
				done := (round-first)*len(sides) + i
				p.Progress(side.Name, float64(done)/float64((p.Rounds-first)*len(sides)))
			}
			sample, err := side.Run(ctx, p.Time)
			if err != nil {
				return nil, fmt.Errorf("measure %s: %w", side.Name, err)
			}
			if round >= 0 {
				samples[i] = append(samples[i], sample)
			}
		}
	}
	return samples, nil
}
