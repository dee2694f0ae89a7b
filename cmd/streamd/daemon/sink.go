package daemon

import (
	"context"
	"maps"
	"math"
	"slices"

	"streamd/ingest/kafka"
	"streamd/retire"
	"streamd/snapshot"
)

// delivery is a batch on its way through the daemon: Deliver puts it into the
// order and hands its tasks to the workers, and the loop applies it when its
// turn in the order has come. A delivery without a batch is a call from
// outside, made in its turn.
type delivery struct {
	batch *kafka.Batch
	tasks []*task // that have not been applied
	next  int     // record of the first of these
	call  func()
}

// task is consecutive records of a batch, for one worker.
type task struct {
	partition int
	records   []kafka.Record
	previous  *kafka.Record   // the one before them in the batch; nil: none
	refused   []kafka.Refused // instead of records
	done      chan struct{}   // closed by the worker
	fatal     error           // why the daemon cannot go on
	// results are those of the first records. What the worker has left, as the features
	// were not fixed yet or there was no room for more, the loop does itself, one record
	// after the other.
	results []result
	rows    *rows     // of all its records, when they are to be gathered
	fixed   *[]string // the model's features, which those rows have
}

// A task is this much work at the most, so that the records of one fetch are
// spread over the workers: large enough to hide the hand-over, small enough
// that neither a worker nor the loop is long at one.
const (
	taskBytes   = 512 << 10
	taskRecords = 1024
)

// inOrder bounds the deliveries that wait for their turn. The consumer bounds their
// bytes. Daemon.handRoom bounds what their summaries take beyond those: many times as
// much where blocks have few rows of many features.
const inOrder = 64

// Former implements kafka.Sink: who had the snapshot before has ended, since this
// process has it now.
func (d *Daemon) Former() string { return d.former }

// Joined implements kafka.Sink. It writes down who this process is in the group, so
// that after a crash the next one need not wait for the end of its session.
func (d *Daemon) Joined(member string) {
	if err := d.store.SaveMember(snapshot.Member{Group: d.cfg.Kafka.Group, ID: member}); err != nil {
		d.log.Warn().Err(err).Msg("should this process crash, the next one will wait for the end of its session in the group")
	}
}

// Position implements kafka.Sink.
func (d *Daemon) Position(partition int) (kafka.Saved, bool) {
	s, ok := d.resumes[partition]
	return s, ok
}

// Partitions implements kafka.Sink.
func (d *Daemon) Partitions() []int { return slices.Collect(maps.Keys(d.resumes)) }

// Deliver implements kafka.Sink.
func (d *Daemon) Deliver(ctx context.Context, b *kafka.Batch) error {
	y := newDelivery(b)
	select {
	case d.order <- y:
	case <-ctx.Done():
		return ctx.Err()
	}
	// From here on the batch is the daemon's. A worker is free sooner or later,
	// whatever the loop does.
	for _, t := range y.tasks {
		d.work <- t
	}
	return nil
}

// newDelivery divides a batch into tasks.
func newDelivery(b *kafka.Batch) *delivery {
	y := &delivery{batch: b}
	var previous *kafka.Record
	for rest := b.Records; len(rest) > 0; {
		n, bytes := 1, len(rest[0].Value)
		for n < min(len(rest), taskRecords) && bytes+len(rest[n].Value) <= taskBytes {
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

// Jumped implements kafka.Sink: the operator has allowed a gap.
func (d *Daemon) Jumped(gap *kafka.GapError, to int64) {
	d.log.Warn().Str("topic", gap.Topic).Int("partition", gap.Partition).Int64("saved", gap.Saved).Int64("to", to).
		Bool("made_anew", gap.Reset).Msg("going on after a gap in the log")
	d.inTurn(context.Background(), func() {
		if d.failure != nil {
			return
		}
		p := d.partition(gap.Partition)
		if p.rereads() {
			d.skipReread(p) // its records do not come again
		}
		if p.open != nil {
			if err := d.closeRun(p); err != nil {
				d.fail(err)
				return
			}
		}
		if gap.Reset {
			p.clock = retire.Clock{} // of another log
			d.retirePartition(gap.Partition)
		}
		p.at, p.moved = kafka.Saved{Next: to}, true
		p.applied = mark{next: to, clock: p.clock}
	})
}

// retirePartition retires the blocks of a log that exists no more: blocks of
// the new log would get their ids.
func (d *Daemon) retirePartition(number int) {
	n := 0
	for _, e := range d.live.Page(retire.Lowest, math.MaxInt) {
		if e.Position.Partition != number {
			continue
		}
		if err := d.live.Retire(e.ID); err != nil {
			d.fail(err)
			return
		}
		n++
	}
	d.counts.BlocksRetired += int64(n)
	d.changed = true
	d.log.Warn().Str("topic", d.cfg.Kafka.Topic).Int("partition", number).Int("blocks", n).Msg("blocks of the former topic retired")
}

// Revoked implements kafka.Sink: the partitions go to another process, or this
// one is stopping. Their blocks stay live here, and their positions are kept.
func (d *Daemon) Revoked(ctx context.Context, partitions []int) {
	next := map[int]int64{}
	told := d.inTurn(ctx, func() {
		if d.failure == nil && d.hasUnsaved() {
			d.save()
		}
		d.awaitSave()
		for _, number := range partitions {
			p := d.partition(number)
			if resume, _ := p.resume(); !p.moved && resume.Next >= 0 {
				next[number] = resume.Next
			}
		}
	})
	if told {
		d.commit(ctx, next)
	}
}

func (d *Daemon) commit(ctx context.Context, next map[int]int64) {
	if err := d.consumer.Commit(ctx, next); err != nil {
		d.log.Debug().Err(err).Msg("offsets not committed to the group; the saved ones count")
	}
}
