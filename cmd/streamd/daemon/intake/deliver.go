package intake

import (
	"context"
	"time"

	"streamd/ingest/kafka"
)

// Delivery is a batch on its way. Deliver puts it into the order and hands its tasks to
// the workers. The loop applies it in its turn. A delivery without a batch is a function
// that the loop calls in its turn.
type Delivery struct {
	batch *kafka.Batch
	came  time.Time   // of the batch
	tasks []*task     // not applied yet
	next  int         // the record that begins the first of these
	of    *labelBatch // the batch is of labels, and has no tasks; else nil
	call  func()
}

// Came is the time when the batch came from the log; zero without one.
func (y *Delivery) Came() time.Time { return y.came }

// IsCall reports whether it is a function, and not a batch.
func (y *Delivery) IsCall() bool { return y.call != nil }

// task is consecutive records of a batch, processed by one worker.
type task struct {
	partition int
	records   []kafka.Record
	previous  *kafka.Record   // the record before them in the batch, or nil
	refused   []kafka.Refused // in place of records
	letters   []kafka.Letter  // about these, which the loop sends
	done      chan struct{}   // closed by the worker
	fatal     error           // why the daemon cannot go on
	// results are those of the first records. The loop processes the rest itself, one by
	// one, because the features were not fixed yet or there was no room for more.
	results []result
	alone   int       // records before this one are not decoded together
	rows    *Rows     // of all its records, if they are to be gathered
	fixed   *[]string // the model's features, which those rows have
}

// A task has at most this much work, so that the records of one fetch are spread over the
// workers. It is large enough to hide the hand-over, and small enough that neither a worker
// nor the loop is busy with one for long.
const (
	TaskBytes   = 512 << 10
	TaskRecords = 1024
)

// inOrder bounds the deliveries that wait for their turn.
const inOrder = 64

// Deliver takes a batch, which then belongs to the intake. Its only error is that of ctx. It waits
// for a registry that does not answer for a schema of the batch, and other partitions go on.
func (in *Intake) Deliver(ctx context.Context, b *kafka.Batch) error {
	if err := in.Await(ctx, b); err != nil {
		return err
	}
	y := newDelivery(b)
	select {
	case in.order <- y:
	case <-ctx.Done():
		return ctx.Err()
	}
	// A worker becomes free eventually, whatever the loop does.
	for _, t := range y.tasks {
		in.tasks <- t
	}
	return nil
}

// InTurn runs f in the loop once everything delivered so far has been applied. If it
// returns false, f has not run: it may run after ctx has ended, or never. done is closed
// when the loop has ended.
func (in *Intake) InTurn(ctx context.Context, done <-chan struct{}, f func()) bool {
	ran := make(chan struct{})
	select {
	case in.order <- &Delivery{call: func() { defer close(ran); f() }}:
	case <-done:
		return false
	case <-ctx.Done():
		return false
	}
	select {
	case <-ran:
		return true
	case <-done:
	case <-ctx.Done():
	}
	return false
}

// Close ends deliveries. Workers and loop end after they have processed the rest.
func (in *Intake) Close() {
	close(in.order)
	close(in.tasks)
}

// Deliveries are the deliveries in the order in which the loop must apply them.
func (in *Intake) Deliveries() <-chan *Delivery { return in.order }

// newDelivery divides a batch into tasks.
func newDelivery(b *kafka.Batch) *Delivery {
	y := &Delivery{batch: b, came: time.Now()}
	var previous *kafka.Record
	for rest := b.Records; len(rest) > 0; {
		n, bytes := 1, len(rest[0].Value)
		for n < min(len(rest), TaskRecords) && bytes+len(rest[n].Value) <= TaskBytes {
			bytes += len(rest[n].Value)
			n++
		}
		y.tasks = append(y.tasks, &task{partition: b.Partition, records: rest[:n], previous: previous, done: make(chan struct{})})
		previous = &rest[n-1]
		rest = rest[n:]
	}
	if len(b.Refused) > 0 {
		y.tasks = append(y.tasks, &task{partition: b.Partition, refused: b.Refused, done: make(chan struct{})})
	}
	return y
}
