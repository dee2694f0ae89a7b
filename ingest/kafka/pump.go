package kafka

import (
	"context"

	"streamd/incremental/parallel"
)

// A delivery is one step of a partition: a batch, or a position found in the log with the
// gap before it, if there is one.
type delivery struct {
	batch *Batch // nil: a position
	at    Saved
	gap   *GapError
}

func (d delivery) drop() {
	if d.batch != nil {
		d.batch.Release()
	}
}

// maxQueued is the number of steps that are ready while the sink is busy. More would only
// fill memory earlier, since a batch is up to FetchBytes.
const maxQueued = 4

// pump runs fetch, which puts steps into a queue, beside deliver, which takes them out,
// until both have ended. The first error ends both. Steps in the queue are dropped then.
func pump(ctx context.Context, fetch func(context.Context, chan<- delivery) error, deliver func(context.Context, delivery) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	queue := make(chan delivery, maxQueued)
	var fetching parallel.Group
	fetching.Go(func() {
		defer close(queue)
		if err := fetch(ctx, queue); err != nil {
			// Records read before the error are good, but the partition ends here either
			// way, and they would come again.
			cancel(err)
		}
	})
	defer func() { // deliver may panic, and so may Wait
		cancel(nil)
		fetching.Wait()
	}()
	for step := range queue {
		if ctx.Err() == nil {
			if err := deliver(ctx, step); err != nil {
				cancel(err)
			}
		} else {
			step.drop()
		}
	}
	return context.Cause(ctx)
}

// enqueue puts a step into the queue, or drops it when ctx ends first.
func enqueue(ctx context.Context, queue chan<- delivery, step delivery) error {
	select {
	case queue <- step:
		return nil
	case <-ctx.Done():
		step.drop()
		return context.Cause(ctx)
	}
}
