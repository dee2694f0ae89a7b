package main

import (
	"context"
	"io"

	"golang.org/x/sync/errgroup"
)

// pipeline does work on several goroutines without showing it: next gives the
// jobs, one call at a time, until io.EOF, and take gets the results in the
// order of their jobs, one call at a time. The calls of one worker follow each
// other, so memory kept by its number (from 0) is its own.
//
// The first error in the order of the jobs ends it all; it too does not depend
// on the number of workers. At most inFlight(workers) jobs have been given
// whose results have not been taken.
func pipeline[Job, Result any](ctx context.Context, workers int,
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
	order := make(chan (<-chan outcome), inFlight(workers)-2) // one more is with take, one with next

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
				return nil // take comes to it in its turn
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

// inFlight is how many jobs a pipeline has in hand at most.
func inFlight(workers int) int { return 2*workers + 2 }
