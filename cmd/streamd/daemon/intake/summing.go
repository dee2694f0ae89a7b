package intake

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/ingest/envelope"
	"streamd/ingest/kafka"
	"streamd/ingest/summary"
	"streamd/retire"
	"streamd/snapshot"
)

// Stage sums the records of a topic for daemons that read the sums: what a record becomes depends
// on its partition alone, so any number of processes may share the partitions. A block has the id,
// the rows and the event time that a daemon has it with that reads the records itself.
//
//   - A block goes as sums (package summary) with the key, the headers and the time of its record.
//     One of several records has none of these but the time.
//   - A record that makes a block of its own goes as it is where its rows are smaller than its
//     sums, or where it came as sums.
//   - A key's null value goes as it is. A value that cannot be used is a dead letter, and a null
//     value in its place retires the key's former block.
//   - The block of several records is written when it is complete (Summing.Take), and before when
//     nothing more comes (Summing.Flush).
//
// Each partition has a Summing. They may work at the same time.
type Stage struct {
	pool     *pool
	features []string
	levels   *sample.Levels // nil: sums go without rows
	gathered atomic.Int64   // bytes of rows in open runs
	counts   StageCounts
}

// StageCounts are what has become of the records since the start.
type StageCounts struct {
	Records, Rejected, Tombstones  atomic.Int64 // that were read; those that cannot be used; without a value
	Rows, RejectedRows, ZeroWeight atomic.Int64 // of the records that could be decoded
	Blocks, Grown                  atomic.Int64 // blocks of sums that are complete; that are not, each time one is written
	Forwarded                      atomic.Int64 // records that went as they were
	Bytes                          atomic.Int64 // of keys and values that were written
	Ahead                          atomic.Int64 // records ahead of the clock
}

// NewStage makes a stage. Of the settings it uses Config, Log, Budget, Decoding and Letters. Sums
// have about so many rows of their block for the sample.
func NewStage(s Settings, rows int) *Stage {
	g := &Stage{pool: &pool{Settings: s}, features: live.Wanted(nil, s.Config.Format)}
	if rows > 0 {
		sampled := sample.Settings{Rows: rows, Seed: uint64(s.Config.Sample.Seed), Balanced: s.Config.Sample.Balanced}
		g.levels = sample.New(sampled, nil).Levels()
	}
	return g
}

// Counts are the counts, which go on.
func (g *Stage) Counts() *StageCounts { return &g.counts }

// Await waits for the schemas of a batch: see the package's Await.
func (g *Stage) Await(ctx context.Context, b *kafka.Batch) error { return g.pool.Await(ctx, b) }

// Writer writes the records of a stage, as kafka.TransactionalProducer does. It keeps nothing of
// them.
type Writer interface {
	Write(ctx context.Context, key, value []byte, headers []kafka.Header, t time.Time) error
}

// Summing sums the records of one partition. It belongs to one goroutine at a time. An error is
// final.
type Summing struct {
	*Stage
	*worker
	to        Writer
	partition int
	at        kafka.Saved   // the end of the last batch
	previous  *kafka.Record // of the same batch, or nil
	clock     retire.Clock
	open      *run // of a block of several records, which is not complete; else nil
	spare     Rows
	refusals  refusals

	maker   summary.Maker
	value   []byte
	headers []kafka.Header
}

// Summing returns a Summing of the partition that continues at a position, and at its clock.
func (g *Stage) Summing(partition int, at kafka.Saved, clock retire.Clock, to Writer) *Summing {
	return &Summing{Stage: g, worker: newWorker(g.pool), to: to, partition: partition, at: at, clock: clock}
}

// Resume is the position that is to be continued at when all that has been written is kept, with
// the clock there: before the block that is not complete.
func (s *Summing) Resume() (kafka.Saved, retire.Clock) {
	if s.open != nil {
		return s.open.start, s.open.clock
	}
	return s.at, s.clock
}

// Take writes what becomes of the records of a batch. It does not release the batch. Dead letters
// are written before it returns.
func (s *Summing) Take(ctx context.Context, b *kafka.Batch) error {
	for i := range b.Refused {
		r := &b.Refused[i]
		s.counts.Records.Add(r.Records)
		s.counts.Rejected.Add(r.Records)
		s.refusals.note(s.Log, s.Config.DeadLetters, time.Now(), fmt.Sprintf("%s/%d/%d to %d", s.Config.Kafka.Topic, s.partition, r.First, r.Last), r.Records, &unusable{kindBatch, r.Reason})
		if err := s.rejectStretch(s.partition, r); err != nil {
			return err
		}
	}
	for i := range b.Records {
		r := &b.Records[i]
		if err := s.take(ctx, r); err != nil {
			return err
		}
		s.counts.Records.Add(1)
		s.previous = r
		if !r.Time.IsZero() && retire.ValidTime(r.Time) {
			s.clock.Add(r.Time)
		}
	}
	s.at, s.previous = b.Position, nil
	return s.sendLetters(ctx, s.partition)
}

// take writes what becomes of a record. The position is still before it.
func (s *Summing) take(ctx context.Context, r *kafka.Record) error {
	if err := s.prepare(&s.features); err != nil {
		return err
	}
	m, id, bad := s.message(s.partition, r)
	keyed := s.Config.Blocks.Unit == config.UnitKey
	switch {
	case bad != nil || m.Fate == envelope.Row:
	case m.Fate == envelope.Truncate && s.Config.Format.Truncate == config.TruncateStop:
		return fmt.Errorf("record %s: %s, and format.truncate is stop", positionOf(s.Config, s.partition, r), truncated)
	case m.Fate == envelope.Retire:
		s.counts.Tombstones.Add(1)
		return s.forward(ctx, r)
	default: // the daemon has all blocks
		s.counts.Forwarded.Add(1)
		return s.forward(ctx, r)
	}
	if bad == nil && summary.Is(m.ContentType) { // the daemon checks them
		if err := s.complete(ctx); err != nil {
			return err
		}
		s.counts.Forwarded.Add(1)
		return s.forward(ctx, r)
	}
	var b *incremental.Block
	if bad == nil {
		b, bad = s.decode(r, m)
	}
	if b != nil {
		s.tellDoubt(s.partition, r)
	}
	if IsAway(bad) {
		return bad
	}
	gathers := Gathers(s.Config.Blocks)
	forwards := bad == nil && !gathers && len(r.Value) < sumsBytes(b)
	if bad == nil && (gathers || forwards) {
		if row := b.FirstBadRow(); row != nil { // other blocks are checked as they are summed
			bad = row
		}
	}
	if gathers {
		return s.gather(ctx, r, b, bad)
	}
	if bad == nil && forwards {
		s.counts.Rows.Add(int64(b.Rows()))
		s.counts.Forwarded.Add(1)
		return s.forward(ctx, r)
	}
	if bad == nil {
		of := summary.Block{ID: id, Position: positionOf(s.Config, s.partition, r), Last: r.Offset, Time: s.timeOf(r)}
		if bad = s.encode(ctx, &of, b); bad == nil {
			s.counts.Blocks.Add(1)
			s.counts.Rows.Add(of.Summary.Rows())
			s.counts.ZeroWeight.Add(of.Rows.ZeroWeight)
		}
	}
	switch {
	case ctx.Err() != nil: // the record is not at fault
		return context.Cause(ctx)
	case bad == nil:
		return s.put(ctx, r.Key, s.value, s.headersOf(r), r.Time)
	}
	if err := s.refused(r, b, bad); err != nil {
		return err
	}
	if keyed && id != "" && !isLabelAlone(bad) { // the daemon retires what this value would have replaced
		return s.put(ctx, r.Key, nil, r.Headers, r.Time)
	}
	return nil
}

// refused counts a record that cannot be used, and applies the policy of dead letters.
func (s *Summing) refused(r *kafka.Record, b *incremental.Block, why error) error {
	s.counts.Rejected.Add(1)
	if b != nil {
		s.counts.RejectedRows.Add(int64(b.Rows()))
	}
	position := positionOf(s.Config, s.partition, r)
	s.refusals.note(s.Log, s.Config.DeadLetters, time.Now(), position.String(), 1, why)
	return s.refuse(s.partition, kafka.Letter{Record: r}, fmt.Sprintf("record %s", position), "", why)
}

// gather adds the rows of a record to the open run, as Intake.gather does, with the same ends of
// runs. b has the rows; bad says why they cannot be used.
func (s *Summing) gather(ctx context.Context, r *kafka.Record, b *incremental.Block, bad error) error {
	weighing, n, zero := b, 0, 0
	if bad == nil {
		weighing = Weighing(b)
		n, zero = weighing.Rows(), b.Rows()-weighing.Rows()
	}
	usable := bad == nil && n > 0
	var at time.Time
	if usable {
		at = s.timeOf(r)
	}
	bucket := bucketOf(s.Config.Blocks, r.Offset, at)
	if s.open != nil && endsBefore(s.Config, s.open, bucket, n, usable) {
		if err := s.complete(ctx); err != nil {
			return err
		}
	}
	if usable {
		bytes := 8 * int64(len(b.Columns)+2) * int64(n)
		if have := s.gathered.Load(); have+bytes > s.Budget.Gathered {
			bad = noRoomToGather(s.Budget, have, bytes)
		}
	}
	if bad != nil {
		if s.open != nil {
			s.open.counts.RejectedRecords++
			if b != nil {
				s.open.counts.RejectedRows += int64(b.Rows())
			}
		}
		return s.refused(r, b, bad)
	}
	s.counts.ZeroWeight.Add(int64(zero))
	if s.open != nil {
		s.open.weightless += int64(zero)
		s.open.counts.AppliedRecords++
	}
	if !usable {
		return nil
	}
	if s.open == nil {
		start := s.at
		if s.previous != nil {
			start = kafka.Saved{Next: r.Offset, Last: kafka.FingerprintOf(s.previous)}
		}
		s.open = &run{
			bucket: bucket, start: start, clock: s.clock, first: positionOf(s.Config, s.partition, r), time: at,
			rows: s.spare, weightless: int64(zero), counts: snapshot.Counts{AppliedRecords: 1},
		}
		s.spare = Rows{}
		s.gathered.Add(s.open.rows.bytes())
	}
	o := s.open
	if o.last = r.Offset; at.After(o.time) {
		o.time = at
	}
	s.gathered.Add(-o.rows.bytes())
	o.rows.AppendBlock(weighing)
	s.gathered.Add(o.rows.bytes())
	o.grown = true
	s.counts.Rows.Add(int64(n))
	return nil
}

// Flush writes the block that is not complete, if it has grown since it was written. It will be
// written again with more rows, which replace these.
func (s *Summing) Flush(ctx context.Context) error {
	o := s.open
	if o == nil || !o.grown {
		return nil
	}
	of := summary.Block{
		ID: o.first.String(), Position: o.first, Last: o.last, Time: o.time,
		Rows: summary.RowCounts{Rejected: o.counts.RejectedRows, ZeroWeight: o.weightless},
	}
	b := o.rows.Block()
	b.Features = s.features
	if err := s.encode(ctx, &of, b); err != nil {
		// Each message was valid on its own.
		return fmt.Errorf("summarise block %s: %w", o.first, err)
	}
	o.grown = false
	s.counts.Grown.Add(1)
	return s.put(ctx, []byte(of.ID), s.value, s.headersOf(nil), o.time)
}

// complete ends the open run, if there is one, and writes its block.
func (s *Summing) complete(ctx context.Context) error {
	if s.open == nil {
		return nil
	}
	if s.open.grown {
		if err := s.Flush(ctx); err != nil {
			return err
		}
		s.counts.Grown.Add(-1)
	}
	s.counts.Blocks.Add(1)
	s.Close()
	return nil
}

// Close gives up the block that is not complete.
func (s *Summing) Close() {
	if s.open == nil {
		return
	}
	s.gathered.Add(-s.open.rows.bytes())
	if s.open.rows.bytes() <= keptRows {
		s.spare = s.open.rows
		s.spare.Empty()
	}
	s.open = nil
}

// encode makes the value of the record of a block.
func (s *Summing) encode(ctx context.Context, of *summary.Block, b *incremental.Block) (err error) {
	weightless := of.Rows.ZeroWeight // were left out of b
	if err := s.maker.Make(ctx, of, b, s.levels); err != nil {
		return err
	}
	of.Rows.ZeroWeight += weightless
	of.Rows.Read += weightless
	s.value, err = of.AppendBinary(s.value[:0])
	return err
}

// timeOf is the event time by which a record counts.
func (s *Summing) timeOf(r *kafka.Record) time.Time {
	at := countsAs(s.Config, &s.clock, r)
	if at.Before(r.Time) {
		s.counts.Ahead.Add(1)
	}
	return at
}

// headersOf are the headers of a record of sums: those of the record of rows, and its type.
func (s *Summing) headersOf(r *kafka.Record) []kafka.Header {
	s.headers = s.headers[:0]
	if r != nil {
		for _, h := range r.Headers {
			if h.Key != "content-type" {
				s.headers = append(s.headers, h)
			}
		}
	}
	s.headers = append(s.headers, kafka.Header{Key: "content-type", Value: []byte(summary.ContentType)})
	return s.headers
}

func (s *Summing) forward(ctx context.Context, r *kafka.Record) error {
	return s.put(ctx, r.Key, r.Value, r.Headers, r.Time)
}

func (s *Summing) put(ctx context.Context, key, value []byte, headers []kafka.Header, t time.Time) error {
	s.counts.Bytes.Add(int64(len(key) + len(value)))
	return s.to.Write(ctx, key, value, headers, t)
}

// sumsBytes is about the size of a block's sums: those of n(n+3)/2 products and values of each
// class.
func sumsBytes(b *incremental.Block) int {
	labels := b.Classes
	if b.Weights != nil {
		labels = positiveClasses(b)
	}
	n := len(b.Columns)
	return len(labels) * 8 * n * (n + 3) / 2
}

// Jump goes on elsewhere in the log, where another block begins. With reset the log is another one.
func (s *Summing) Jump(ctx context.Context, to int64, reset bool) error {
	if err := s.complete(ctx); err != nil {
		return err
	}
	s.at = kafka.Saved{Next: to}
	if reset {
		s.clock = retire.Clock{}
	}
	return nil
}

// Unwritten reports whether rows wait for the end of their block, or for Flush.
func (s *Summing) Unwritten() bool { return s.open != nil && s.open.grown }
