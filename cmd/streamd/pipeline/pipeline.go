// Package pipeline works on the pieces of a stream on several goroutines, and gives their results
// in the order of the stream.
package pipeline

import (
	"context"
	"io"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// Workers is the number of workers that keep the processors busy.
func Workers() int { return runtime.GOMAXPROCS(0) }

// Run runs jobs on several goroutines, with the results of a single one. next gives
// the jobs, one call at a time, until io.EOF. take gets the results in the order of their
// jobs, one call at a time. Calls of work by the same worker, numbered from 0, follow each
// other, so that a worker may have memory of its own.
//
// The first error in the order of the jobs ends the pipeline, for any number of
// workers. At most InFlight(workers) jobs are between next and take.
func Run[Job, Result any](ctx context.Context, workers int,
	next func() (Job, error),
	work func(worker int, job Job) (Result, error),
	take func(Result) error,
) error {
	type outcome struct {
		result Result
		err    error
	}
	type task struct {
		job  Job
		done chan<- outcome
	}
	tasks := make(chan task)
	order := make(chan (<-chan outcome), InFlight(workers)-2) // and one each in take and next

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(order)
		defer close(tasks)
		for {
			job, err := next()
			if err == io.EOF {
				return nil
			}
			done := make(chan outcome, 1)
			if err != nil {
				done <- outcome{err: err}
			}
			select {
			case order <- done:
			case <-ctx.Done():
				return ctx.Err()
			}
			if err != nil {
				return nil // take gets it in its turn
			}
			select {
			case tasks <- task{job, done}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	for worker := range workers {
		group.Go(func() error {
			for t := range tasks {
				result, err := work(worker, t.job)
				t.done <- outcome{result, err}
			}
			return nil
		})
	}
	group.Go(func() error {
		for done := range order {
			select {
			case o := <-done:
				if o.err != nil {
					return o.err
				}
				if err := take(o.result); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	return group.Wait()
}

// InFlight is the most jobs of Run between next and take.
func InFlight(workers int) int { return 2*workers + 2 }
