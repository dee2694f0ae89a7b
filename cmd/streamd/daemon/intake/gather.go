package intake

import (
	"context"
	"fmt"
	"slices"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/exact"
	"streamd/ingest/kafka"
	"streamd/retire"
	"streamd/snapshot"
)

// run is the open block of a partition whose messages are gathered. It has the rows of
// consecutive messages of one bucket: a range of offsets or a span of event time. Where a
// run begins and ends depends on the log alone, so reading the log again makes the same
// blocks.
//
// A run is summarised before it is complete, so that the model does not wait for the end
// of a bucket. When the run has grown, its block is replaced. Adding and removing are
// exact, so nothing of the shorter block is left. Until the run is closed, the saved
// position and the saved counts stay before it. After a restart its messages are read
// again, while the block that they made is live.
//
// A block is a function of its usable records. A record that is rejected, or whose rows
// all have weight 0, begins no run and does not affect the block's time.
type run struct {
	bucket     int64
	start      kafka.Saved          // the position before its first record
	clock      retire.Clock         // at start
	first      incremental.Position // of its first usable record; names the block
	last       int64                // offset of its last usable record
	time       time.Time            // latest of its usable records
	rows       Rows
	window     exact.Window    // of its block's sums
	weightless int64           // rows of weight 0, which are not in rows
	counts     snapshot.Counts // of its records
	grown      bool            // has rows that are not summarised yet
	judged     []judgement     // of these rows
	label      string          // the partition's last label before the first record
}

// runBytes is the memory of the block of an open run until it is saved.
func (in *Intake) runBytes(o *run) int64 {
	return in.Live.Bytes(len(o.rows.classes)) + o.rows.spreadBytes() // all rows may be in the sample
}

// admitsRows says why rows of a task may not join those of an open run, whose sums have the
// given window. It is nil if they may.
func (in *Intake) admitsRows(have *Rows, window exact.Window, from *Rows, z *result) error {
	bytes := from.rowBytes() * int64(z.j-z.i)
	if in.gathered+bytes > in.Budget.Gathered {
		return noRoomToGather(in.Budget, in.gathered, bytes)
	}
	c := live.Candidate{Labels: have.classesWith(from, z.i, z.j), Features: len(from.places), Window: window.Union(z.window)}
	if c.Labels == nil {
		if c.Labels = have.classes; window == c.Window {
			return nil
		}
	} else { // other runs bring classes, too
		for _, p := range in.partitions {
			if p.open != nil {
				c.Labels = append(c.Labels, p.open.rows.classes...)
			}
		}
		slices.Sort(c.Labels)
		c.Labels = slices.Compact(c.Labels)
	}
	return in.Live.Admits(c)
}

// noRoomToGather says why rows cannot join open runs.
func noRoomToGather(m *memory.Budget, have, more int64) error {
	return unusablef(kindMemory, "the rows of blocks that are not complete take %s, and these would take %s more; there is room for %s (limits.memory is %s): raise limits.memory, or lower blocks.offsets or blocks.period",
		memory.Size(float64(have)), memory.Size(float64(more)), memory.Size(float64(m.Gathered)), memory.Size(float64(m.Limit)))
}

// bucketOf is the bucket of a record with that offset and event time.
func bucketOf(b config.Blocks, offset int64, at time.Time) int64 {
	if b.Unit == config.UnitOffsets {
		return offset / b.Offsets
	}
	// Times before 1970 are negative: round down, not towards zero.
	t, period := at.UnixMilli(), b.Period.Milliseconds()
	bucket := t / period
	if t%period < 0 {
		bucket--
	}
	return bucket
}

// gather adds the rows of a record to the open run of its partition. If the record
// belongs to another run, it first closes the open one. The partition is still at the
// position before the record.
func (in *Intake) gather(ctx context.Context, p *partition, t *task, i int, z *result) error {
	r := &t.records[i]
	n := z.j - z.i
	usable := z.bad == nil && n > 0
	var at time.Time
	if usable {
		at = in.countsAs(p, r)
		in.noteAhead(t.partition, r, at)
	}
	bucket := bucketOf(in.Config.Blocks, r.Offset, at)
	if p.open != nil && endsBefore(in.Config, p.open, bucket, n, usable) {
		if err := in.closeRun(ctx, p); err != nil {
			return err
		}
	}
	if !usable {
		in.countUnused(p, t.partition, r, z)
		return nil
	}
	have, window := &p.spare, exact.Window{}
	if p.open != nil {
		have, window = &p.open.rows, p.open.window
	}
	if z.bad = in.admitsRows(have, window, t.rows, z); z.bad != nil {
		in.countUnused(p, t.partition, r, z)
		return in.reject(t.partition, r, z.id, z.bad)
	}
	if p.open == nil {
		p.settle()
		before := p.at
		if before.Next < 0 {
			before.Next = r.Offset
		}
		// Only a position at a batch's end has the fingerprint of the last record.
		previous := t.previous
		if i > 0 {
			previous = &t.records[i-1]
		}
		if previous != nil {
			before.Last = kafka.FingerprintOf(previous)
		}
		p.open = &run{
			bucket: bucket,
			start:  before,
			clock:  p.clock,
			first:  positionOf(in.Config, t.partition, r),
			time:   at,
			rows:   p.spare,
			label:  p.label,
		}
		p.spare = Rows{}
		in.gathered += p.open.rows.bytes()
	}
	o := p.open
	o.last = r.Offset
	if at.After(o.time) {
		o.time = at
	}
	in.countApplied(&o.counts.AppliedRecords)
	in.fixFeatures(z)
	in.gathered -= o.rows.bytes()
	o.rows.appendLate(t.rows, z.i, z.j)
	in.gathered += o.rows.bytes()
	o.window = o.window.Union(z.window)
	o.counts.Rows += int64(n)
	o.counts.ZeroWeightRows += int64(z.rows - n)
	o.weightless += int64(z.rows - n)
	p.follow(z, "")
	if r.Offset >= p.applied.next { // otherwise the block has the rows already, if the policy has admitted it
		o.grown = true
		if last := len(o.judged) - 1; last >= 0 && o.judged[last].by == z.judged.by {
			o.judged[last].rulings = append(o.judged[last].rulings, z.judged.rulings...)
		} else if len(z.judged.rulings) > 0 {
			o.judged = append(o.judged, z.judged)
		}
	}
	return nil
}

// endsBefore reports whether a run ends before a record of n rows.
func endsBefore(cfg *config.Config, o *run, bucket int64, n int, usable bool) bool {
	most := cfg.Limits.Rows
	return o.rows.Len()+n > most || readBy(o.counts).records >= int64(most) || // bounds how much a restart reads again
		o.bucket != bucket && (usable || cfg.Blocks.Unit == config.UnitOffsets)
}

// countUnused counts a record that adds nothing to the open run, because it is rejected
// or its rows all have weight 0. It counts with the run, if there is one, since it will
// be read again with the run.
func (in *Intake) countUnused(p *partition, number int, r *kafka.Record, z *result) {
	c := &in.accounts.counts
	if p.open != nil {
		c = &p.open.counts
	}
	if z.bad != nil {
		in.countRejected(c, number, r, z)
		return
	}
	in.countApplied(&c.AppliedRecords)
	c.ZeroWeightRows += int64(z.rows)
	if p.open != nil {
		p.open.weightless += int64(z.rows)
	}
}

// flushRun makes the rows of the open run a live block.
func (in *Intake) flushRun(ctx context.Context, p *partition) error {
	if p.rereads() {
		return nil
	}
	defer p.settle()
	o := p.open
	former, is, err := in.Live.Former(p.unfinished)
	if err != nil {
		return err
	}
	if is {
		if o != nil && !former.Archived { // the archived block would come back if there is room again
			o.grown = true // the new rows replace the block, because the log may have changed
		}
		if o == nil || o.first.String() != p.unfinished {
			if !former.Withdrawn && !former.Archived {
				in.accounts.counts.BlocksReplaced++
			}
			if err := in.Live.Remove(p.unfinished); err != nil {
				return err
			}
		}
	}
	p.unfinished = ""
	if o == nil || !o.grown {
		return nil
	}
	k, err := in.own.keeper.Keep(ctx, o.rows.Block(), in.Live.Target())
	if err != nil {
		// Each message was valid on its own, but rows that were taken for other
		// coordinates may not fit those in use. They have not been saved. When they are
		// read again, each message is rejected by itself.
		return fmt.Errorf("summarise block %s: %w", o.first, err)
	}
	e := retire.Entry{ID: o.first.String(), Position: o.first, Last: o.last, Time: o.time, Rows: k.Summary.Rows()}
	done, err := in.Live.Add(e, k)
	if err != nil {
		return err
	}
	if done.Added && done.Replaced {
		done.Added, done.Replaced = false, false // it has only grown
	}
	in.countAdded(e, done)
	for _, y := range o.judged {
		in.record.add(y)
	}
	o.grown, o.judged = false, nil
	return nil
}

// closeRun completes the open run. Its block and its counts become final, and the saved
// position moves behind it.
func (in *Intake) closeRun(ctx context.Context, p *partition) error {
	if p.rereads() {
		p.applied = mark{next: p.at.Next, clock: p.clock} // the run ends earlier than before, because limits have changed
		p.open.grown = true
	}
	if err := in.flushRun(ctx, p); err != nil {
		return err
	}
	in.accounts.counts.Add(p.open.counts)
	if in.copies() {
		in.judgeInOrder(p.open.first.Partition, p.open.rows.Block(), "")
	}
	in.dropRun(p)
	p.applied.counts = snapshot.Counts{}
	return nil
}

// reach notes that the log continues at an offset. Then all records of the run that is
// being read again have come, or the log no longer has them.
func (in *Intake) reach(p *partition, offset int64) {
	if !p.rereads() || offset < p.applied.next {
		return
	}
	if p.open == nil {
		in.skipReread(p)
	}
	p.at.Next = p.applied.next
}

// dropRun drops the open run, and keeps the memory of its rows for the next one.
func (in *Intake) dropRun(p *partition) {
	in.gathered -= p.open.rows.bytes()
	p.open.rows.Empty()
	if p.open.rows.bytes() <= keptRows {
		p.spare = p.open.rows
	}
	p.open = nil
}

// skipReread stops reading a run again. Its block stays as saved, and its records count
// as they did then.
func (in *Intake) skipReread(p *partition) {
	if o := p.open; o != nil {
		in.accounts.read.take(readBy(o.counts))
		in.dropRun(p)
	}
	c := p.applied.counts
	in.accounts.counts.Add(c)
	in.accounts.read.add(readBy(c))
	p.at, p.clock = kafka.Saved{Next: p.applied.next}, p.applied.clock
	p.applied.counts = snapshot.Counts{}
	p.unfinished, p.moved = "", true
}

// Flush makes the rows of open runs live. all is false if some have no room before the next
// save.
func (in *Intake) Flush(ctx context.Context) (all bool, err error) {
	all = true
	for _, p := range in.partitions {
		if p.open != nil && p.open.grown && !in.HasRoom(in.runBytes(p.open)) {
			all = false
			continue
		}
		if err := in.flushRun(ctx, p); err != nil {
			return false, err
		}
	}
	return all, nil
}

// EndBlocks ends the live blocks that are still growing and whose ids are among these.
// Later records begin other ones. ended is false if none of them was growing.
func (in *Intake) EndBlocks(ctx context.Context, among func(id string) bool) (ended bool, err error) {
	for _, p := range in.partitions {
		switch {
		case p.rereads() && among(p.unfinished):
			in.skipReread(p) // its records do not rebuild it
			ended = true
		case p.open != nil && among(p.open.first.String()):
			p.moved, ended = true, true
			if err := in.closeRun(ctx, p); err != nil {
				return ended, err
			}
		}
	}
	return ended, nil
}

// Jump continues after a gap in the log of a partition. Where the log is another one, former are
// the blocks of the one that no longer exists. The caller retires them by RetireFormerLog before
// anything else is applied: blocks of the new log would get the same ids.
func (in *Intake) Jump(ctx context.Context, gap *kafka.GapError, to int64) (former []string, err error) {
	p := in.partition(gap.Partition)
	if p.rereads() {
		in.skipReread(p) // its records will not come again
	}
	if p.open != nil {
		if err := in.closeRun(ctx, p); err != nil {
			return nil, err
		}
	}
	if gap.Reset {
		p.clock, p.label = retire.Clock{}, ""    // of another log
		if err := in.Live.Settle(); err != nil { // some that depart would only be archived
			return nil, err
		}
		in.dropRowsOf(gap.Partition)
		for e := range in.Live.Everything {
			if from, _, _ := e.Records(); from == gap.Partition {
				former = append(former, e.ID)
			}
		}
	}
	in.accounts.counts.Gaps++
	in.accounts.counts.LostRecords += gap.Lost(to)
	p.at, p.moved = kafka.Saved{Next: to}, true
	p.applied = mark{next: to, clock: p.clock}
	return former, nil
}

// RetireFormerLog retires some of the blocks of a log that no longer exists, of so many, and counts
// the live ones. Where they are many, they depart later.
func (in *Intake) RetireFormerLog(few []string, together int) error {
	for _, id := range few {
		e, ok := in.Live.Find(id)
		if !ok {
			continue
		}
		if err := in.Live.RetireAmong(id, together); err != nil {
			return err
		}
		if !e.Withdrawn && !e.Archived {
			in.CountRetired(1)
		}
	}
	return nil
}
