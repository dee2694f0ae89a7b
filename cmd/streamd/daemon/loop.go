package daemon

import (
	"context"
	"fmt"
	"math"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/retire"
	"streamd/snapshot"
)

// counts are what was done with records, rows and blocks.
type counts = snapshot.Counts

// partition is the loop's progress in a partition. It has three positions:
//
//	resume   reading goes on here after a restart: before the open run
//	applied  the live set has the records below it and none beyond; answers name it
//	at       the records below it have been read: they count, or are in the open run
//
// After a restart applied can be above at. The run that was open is then read once
// more, and the live set stays as it was saved until all of it has come (rereads).
type partition struct {
	at      kafka.Saved
	clock   retire.Clock // at at
	open    *run         // the gathered block that is not complete
	applied mark
	moved   bool // since the last save
	// unfinished is the id of the live block of the run that is read once more; "":
	// there is none.
	unfinished string
	spare      rows // empty: memory for the next run
}

// mark is a position above the saved one.
type mark struct {
	next   int64
	clock  retire.Clock // there
	counts counts       // of the records from the saved position on
}

// newPartition is a partition of which nothing has been read.
func newPartition() *partition {
	return &partition{at: kafka.Saved{Next: -1}, applied: mark{next: -1}}
}

// resume is the position to save, and the clock there.
func (p *partition) resume() (kafka.Saved, *retire.Clock) {
	if p.open != nil {
		return p.open.start, &p.open.clock
	}
	return p.at, &p.clock
}

// rereads says whether records come that the live set has already.
func (p *partition) rereads() bool { return p.at.Next < p.applied.next }

// settle moves the applied position up to what has been read, unless the open run has
// rows that the live set does not have.
func (p *partition) settle() {
	if p.rereads() || p.open != nil && p.open.grown || p.applied.next == p.at.Next {
		return
	}
	p.applied = mark{next: p.at.Next, clock: p.clock}
	if p.open != nil {
		p.applied.counts = p.open.counts
	}
	p.moved = true
}

// partition is the loop's state of a partition, made when it is first met.
func (d *Daemon) partition(number int) *partition {
	p, ok := d.partitions[number]
	if !ok {
		p = newPartition()
		d.partitions[number] = p
	}
	return p
}

// loop is the goroutine that owns the live set: everything that changes it
// happens here, one after the other. It ends when the order is closed and
// empty, or, leaving what is in hand, when ctx ends.
func (d *Daemon) loop(ctx context.Context) error {
	background, stop := context.WithCancel(ctx)
	d.background = background
	defer d.ends.Wait()
	defer d.abandonStudy(ctx)
	defer d.awaitSave()
	defer d.awaitCompaction()
	defer stop()
	tick := time.NewTicker(d.tickInterval())
	defer tick.Stop()
	for {
		order, more, stopping := d.order, (<-chan struct{})(nil), (<-chan struct{})(nil)
		switch {
		case d.failure == nil && (d.live.Unsaved() >= d.mostUnsaved() || !d.hasRoom(d.wants)):
			order = nil // nothing more is taken in
			if d.saveProblem != nil {
				stopping = d.stopping // who stops does not wait for the disk
			}
		case d.applying != nil:
			order, more = nil, always
		}
		select {
		case <-more:
			y := d.applying
			d.applyMore(ctx)
			d.release(y)
		case y, ok := <-order:
			if !ok {
				return d.finish()
			}
			d.applyDelivery(ctx, y)
			d.release(y)
		case <-stopping:
			if err := d.finish(); d.saveProblem != nil {
				return err
			}
		case call := <-d.calls:
			call()
		case next := <-d.solved:
			d.endSolve(next)
		case s := <-d.studied:
			d.endStudy(s)
		case s := <-d.saved:
			d.endSave(s)
		case <-d.compacted():
			d.endCompaction()
		case <-ctx.Done():
			return context.Cause(ctx) // what is in hand is read again
		case <-tick.C:
		}
		d.freeFeatures()
		d.everySoOften()
		if d.live.HasSample() && d.failure == nil {
			d.fillSample(background, time.Now())
		}
		if d.failure == nil {
			d.rebuild(background, time.Now())
			d.studyWhenDue(background, time.Now())
		}
		d.updateStatus()
	}
}

// always is closed.
var always = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// hasRoom says whether a block of so many bytes may come to those that wait for a save.
// While a save is on its way, as many bytes may come as there is room for beside those
// that are in it. A block that is larger comes alone.
func (d *Daemon) hasRoom(bytes int64) bool {
	waiting := d.live.Waiting()
	if d.saving != nil {
		waiting -= d.saving.bytes
	}
	return waiting <= 0 || waiting+bytes <= d.handRoom.Load()
}

// mostUnsaved bounds the blocks that wait for a disk that is full or slow: while a
// save is on its way, as many may come as are in it, if there is room for them.
func (d *Daemon) mostUnsaved() int {
	switch {
	case d.saveProblem != nil:
		return min(d.cfg.Snapshot.Blocks, d.live.Room())
	case d.compaction != nil: // the next save waits for it
		return max(d.live.Room(), d.cfg.Snapshot.Blocks)
	case d.saving != nil:
		return d.saving.blocks + min(max(d.saving.blocks, d.cfg.Snapshot.Blocks), d.live.Room())
	}
	return math.MaxInt
}

func (d *Daemon) tickInterval() time.Duration {
	return min(max(min(d.cfg.Model.SolveInterval, d.cfg.Snapshot.Interval)/4, 5*time.Millisecond), 250*time.Millisecond)
}

// share bounds what saving, and copying the sums for a solve, may take of the
// loop's time: one part in so many each, however wide the state is. Saving takes more
// where blocks come faster than there is room for them.
const share = 20

// quiet is how long nothing has come when a save or a solve no longer waits for its
// share: longer than the pauses between the fetches of a fast stream.
const quiet = 50 * time.Millisecond

// everySoOften saves and solves what is due.
func (d *Daemon) everySoOften() {
	if d.failure != nil {
		return
	}
	now := time.Now()
	d.refusals.tell(d, now)
	if d.unsavedSince.IsZero() && d.hasUnsaved() {
		d.unsavedSince = now
	}
	full := d.live.Unsaved() >= d.live.Room() || !d.hasRoom(d.wants)
	due := !d.unsavedSince.IsZero() && now.Sub(d.unsavedSince) >= d.cfg.Snapshot.Interval ||
		d.live.Unsaved() >= d.cfg.Snapshot.Blocks || full
	pause := d.pause(d.saveTook, now) // who replays may be waiting for what this save will commit
	if full {
		pause = 0
	}
	if d.saveProblem != nil {
		pause = max(pause, d.cfg.Snapshot.Interval)
	}
	if due && d.saving == nil && d.compaction == nil && now.Sub(d.lastSaveTry) >= pause {
		d.beginSave()
	}
	if d.saving == nil && d.compaction == nil && compactionIsDue(d.cfg.Snapshot.Scrub, d.live.Uncompacted(), d.lastCompaction, now) {
		d.beginCompaction(now)
	}
	if d.changed && !d.solving && now.Sub(d.lastSolve) >= max(d.cfg.Model.SolveInterval, d.pause(d.copyTook, now)) {
		d.solve(time.Now()) // what the save took is not the solve's
	}
}

// pause is how long the loop goes without what took it so long: not at all where it has
// had nothing else to do for as long.
func (d *Daemon) pause(took time.Duration, now time.Time) time.Duration {
	if now.Sub(d.delivered) >= max(quiet, took) {
		return 0
	}
	return share * took
}

// applyDelivery applies a batch, or makes a call in its turn. Where there is no room for
// a block, the rest of the batch waits for applyMore.
func (d *Daemon) applyDelivery(ctx context.Context, y *delivery) {
	if y.call != nil {
		y.call()
		return
	}
	d.applying = y
	d.applyMore(ctx)
}

// applyMore goes on with the delivery that is being applied.
func (d *Daemon) applyMore(ctx context.Context) {
	y := d.applying
	defer func() { d.delivered = time.Now() }()
	p := d.partition(y.batch.Partition)
	waits := d.applyTasks(ctx, p, y)
	// Before the next save: what is saved counts as dealt with.
	if err := d.worker.sendLetters(ctx, y.batch.Partition); err != nil {
		d.fail(err)
	}
	if waits {
		return
	}
	d.applying = nil
	if d.failure == nil {
		// The end has the last record's fingerprint, and may lie beyond it: markers and
		// aborted data.
		d.reach(p, y.batch.Position.Next)
		if y.batch.Position.Next >= p.at.Next {
			p.at = y.batch.Position
		}
		p.settle()
		p.moved = true
		d.changed = true
		d.handRoom.Store(d.live.RoomBytes())
	}
}

// release gives the batch of a delivery back that has been applied.
func (d *Daemon) release(y *delivery) {
	if y.batch != nil && d.applying != y {
		y.batch.Release()
	}
}

// applyTasks applies the tasks of a delivery that are left, until one waits for room.
func (d *Daemon) applyTasks(ctx context.Context, p *partition, y *delivery) (waits bool) {
	for ; len(y.tasks) > 0; y.tasks, y.next = y.tasks[1:], 0 {
		t := y.tasks[0]
		<-t.done
		if t.fatal != nil {
			d.fail(t.fatal)
		}
		for i := range t.refused {
			if r := &t.refused[i]; d.failure == nil && y.next == 0 && r.Last >= p.at.Next {
				d.applyRefused(p, t.partition, r)
			}
		}
		for ; y.next < len(t.records) && d.failure == nil; y.next++ { // applying on after a failure would leave a hole
			if d.wants = d.applyNext(ctx, p, t, y.next); d.wants > 0 {
				return true
			}
		}
		for i := range t.results { // of records that were left out
			d.inHand.Add(-t.results[i].inHand)
		}
		d.giveBack(t)
	}
	return false
}

// applyNext applies record i of a task. When there is no room for what it would make
// unsaved, nothing is applied, and wants is how many bytes that is.
func (d *Daemon) applyNext(ctx context.Context, p *partition, t *task, i int) (wants int64) {
	r := &t.records[i]
	if r.Offset < p.at.Next {
		return 0 // delivered before
	}
	d.reach(p, r.Offset)
	// A record that was decoded for other features is decoded again. A block that was
	// summarised before the coordinates in use were known is summarised again.
	d.freeFeatures()
	if left := i >= len(t.results); left || !d.isCurrent(&t.results[i]) {
		if left && t.rows != nil {
			t.rows.empty() // those before have been gathered
		}
		for len(t.results) <= i {
			t.results = append(t.results, result{})
		}
		z := d.worker.process(ctx, t, r)
		z.inHand = t.results[i].inHand
		t.results[i] = z
	}
	z := t.results[i]
	if wants = d.unsavedBy(p, r, &z); wants > 0 && !d.hasRoom(wants) {
		d.handRoom.Store(d.live.RoomBytes())
		return wants
	}
	t.results[i] = result{}
	if z.inHand > 0 {
		d.inHand.Add(-z.inHand)
	}
	if z.fatal == nil && z.bad != nil {
		z.fatal = d.worker.reject(t.partition, r, z.bad)
	}
	if z.fatal == nil {
		z.fatal = d.applyRecord(p, t, i, z)
	}
	if z.fatal != nil {
		d.fail(z.fatal)
		return 0
	}
	p.at.Next = r.Offset + 1
	if !r.Time.IsZero() && retire.ValidTime(r.Time) {
		p.clock.Add(r.Time)
	}
	return 0
}

// isCurrent says whether a result is of the features and the coordinates in use.
func (d *Daemon) isCurrent(z *result) bool {
	return z.fixed == d.live.Target().Features && (z.Summary == nil || z.Summary.Rows() == 0 || d.live.Covers(&z.Kept))
}

// unsavedBy is the bytes of the block that a record makes: of its own, or of the open run
// that it ends.
func (d *Daemon) unsavedBy(p *partition, r *kafka.Record, z *result) int64 {
	if !d.gathers() {
		return z.Bytes()
	}
	if p.open == nil || !p.open.grown {
		return 0
	}
	n, at := z.j-z.i, time.Time{}
	usable := z.bad == nil && n > 0
	if usable {
		at = d.countsAs(p, r)
	}
	if !d.endsBefore(p.open, bucketOf(d.cfg.Blocks, r.Offset, at), n, usable) {
		return 0
	}
	return d.runBytes(p.open)
}

// applyRecord changes the live set by record i of a task. An error is final.
func (d *Daemon) applyRecord(p *partition, t *task, i int, z result) error {
	r := &t.records[i]
	d.rowsRead += int64(z.rowsRead())
	if d.gathers() {
		return d.gather(p, t, i, z)
	}
	d.counts.Records++
	switch {
	case z.bad != nil:
		d.countRejected(&d.counts, t.partition, r, z)
		return d.retireFormer(z.id)
	case z.Summary == nil:
		d.counts.Tombstones++
		return d.retireFormer(z.id)
	}
	if z.bad = d.live.Admits(live.Candidate{Labels: z.Summary.Classes(), Features: z.Summary.Features(), Window: z.Summary.Window(), Kept: z.Kept}); z.bad != nil {
		d.countRejected(&d.counts, t.partition, r, z)
		if err := d.worker.reject(t.partition, r, z.bad); err != nil {
			return err
		}
		return d.retireFormer(z.id)
	}
	e := retire.Entry{
		ID: z.id, Position: d.position(t.partition, r), Last: r.Offset,
		Time: d.boundedTime(p, t.partition, r), Rows: z.Summary.Rows(),
	}
	if z.Summary.Rows() > 0 { // else it is as if absent
		d.fixFeatures(z)
	}
	o, err := d.live.Add(e, z.Kept)
	if err != nil {
		return err
	}
	countSummarised(&d.counts, z.rows, z.Summary)
	d.countAdded(e, o)
	return nil
}

// retireFormer retires the live block of that id, if there is one: a key's value was
// deleted, or is one that cannot be used.
func (d *Daemon) retireFormer(id string) error {
	if _, ok := d.live.Get(id); !ok {
		return nil
	}
	d.changed = true
	d.counts.BlocksRetired++
	d.sampled.Info().Str("block", d.logged(id)).Msg("block retired by its key's latest message")
	return d.live.Retire(id)
}

// countsAs is the event time that a record counts as of: not much later than the
// partition's clock, unless the broker has set the time. A record without a time is of
// 1970.
func (d *Daemon) countsAs(p *partition, r *kafka.Record) time.Time {
	switch {
	case r.Time.IsZero():
		return time.UnixMilli(0).UTC()
	case r.Appended:
		return r.Time
	}
	return p.clock.Bound(r.Time, d.cfg.Retire.MaxFuture)
}

// boundedTime is countsAs that counts and logs when a record is ahead.
func (d *Daemon) boundedTime(p *partition, number int, r *kafka.Record) time.Time {
	bounded := d.countsAs(p, r)
	if bounded.Before(r.Time) {
		d.metrics.RecordsAhead.Inc()
		d.sampled.Warn().Stringer("record", d.position(number, r)).Time("event_time", r.Time).Time("counts_as", bounded).
			Msg("the event time is more than retire.max_future after the partition's clock")
	}
	return bounded
}

func countSummarised(c *counts, rows int, s *incremental.Summary) {
	c.Rows += s.Rows()
	c.ZeroWeightRows += int64(rows) - s.Rows()
}

// manyTooOld is how many blocks in a row are retired as they come before that is a
// problem: a few are late.
const manyTooOld = 100

// countAdded counts what adding block e has done, and logs when the policy has refused
// it.
func (d *Daemon) countAdded(e retire.Entry, o live.Outcome) {
	if o.Added && !o.Refused {
		d.tooOld = 0
	}
	if o.Refused {
		d.tooOld++
		d.metrics.BlocksRefused.Inc()
		d.sampled.Warn().Str("block", d.logged(e.ID)).Time("event_time", e.Time).Int64("rows", e.Rows).
			Msg("block retired as it came: its event time is below what retire.keep lets in")
	}
	if o.Added {
		d.counts.BlocksAdded++
	}
	if o.Replaced {
		d.counts.BlocksReplaced++
	}
	d.counts.BlocksRetired += int64(o.Retired)
}

// fail ends the daemon with an error, without applying anything more.
func (d *Daemon) fail(err error) {
	if d.failure == nil {
		d.failure = err
		d.stop(err)
	}
}

// finish is the end of the loop: everything delivered has been applied.
func (d *Daemon) finish() error {
	if d.failure == nil && d.hasUnsaved() {
		if n := d.live.Unsaved(); n > 0 {
			d.log.Info().Int("blocks", n).Msg("saving what has changed since the last save")
		}
		d.save()
		if d.saveProblem != nil {
			return fmt.Errorf("the last changes are not saved and will be read again: %w", d.saveProblem)
		}
	}
	return d.failure
}

// inLoop runs f in the loop, between two deliveries, and gives its answer. f may
// still run after ctx has ended; its answer is dropped then.
func inLoop[T any](ctx context.Context, d *Daemon, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	var none T
	select {
	case d.calls <- func() {
		value, err := f()
		done <- answer{value, err}
	}:
	case <-d.loopDone:
		return none, errStopping
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// call is inLoop for what has no answer.
func (d *Daemon) call(ctx context.Context, f func() error) error {
	_, err := inLoop(ctx, d, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// inTurn runs f in the loop once everything delivered so far has been applied; false:
// it has not run yet, and may run when ctx has ended, or never.
func (d *Daemon) inTurn(ctx context.Context, f func()) bool {
	done := make(chan struct{})
	select {
	case d.order <- &delivery{call: func() { defer close(done); f() }}:
	case <-d.loopDone:
		return false
	case <-ctx.Done():
		return false
	}
	select {
	case <-done:
		return true
	case <-d.loopDone:
	case <-ctx.Done():
	}
	return false
}

// listedFeatures bounds the names that a line of the log has.
const listedFeatures = 20

// fixFeatures makes the features of the first usable block those of the model.
func (d *Daemon) fixFeatures(z result) {
	if d.live.Target().Features == nil {
		d.live.Fix(z.features)
		d.sampled.Warn().Int("count", len(z.features)).Strs("features", z.features[:min(len(z.features), listedFeatures)]).
			Msg("format.features is not set: the features are those of the first block, and records with others are refused while a block is live")
	}
}

// freeFeatures lets the next block say what the features are, where no block is live
// and no rows are in hand: what is gone binds nobody. Studies and a basis are of rows
// that are gone.
func (d *Daemon) freeFeatures() {
	if d.live.Blocks() > 0 || len(d.cfg.Format.Features) > 0 || d.live.Target().Features == nil {
		return
	}
	for _, p := range d.partitions {
		if p.open != nil && p.open.rows.len() > 0 {
			return
		}
	}
	d.live.Fix(nil)
	if r := &d.rebuilding; r.reducing != nil {
		r.reducing.end()
		r.reducing = nil
	}
	d.endReading()
	d.inOtherCoordinates()
	d.sampled.Info().Msg("no block is live: the next one decides which features the model has")
}
