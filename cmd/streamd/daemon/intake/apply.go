package intake

import (
	"context"
	"slices"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental/exact"
	"streamd/ingest/envelope"
	"streamd/ingest/kafka"
	"streamd/retire"
)

// Apply applies a delivery, or makes a call in its turn. If there is no room for a block,
// the rest of the batch waits for Continue.
func (in *Intake) Apply(ctx context.Context, y *Delivery) error {
	if y.call != nil {
		y.call()
		return nil
	}
	in.applying = y
	return in.Continue(ctx)
}

// Waiting is the delivery whose rest waits for room, or nil, and the bytes that its next
// block needs.
func (in *Intake) Waiting() (y *Delivery, bytes int64) { return in.applying, in.wants }

// Release returns the batch of a delivery, if all of it has been applied.
func (in *Intake) Release(y *Delivery) {
	if y.batch != nil && in.applying != y {
		y.batch.Release()
	}
}

// Continue continues the delivery that waits for room, or for its dead letters.
func (in *Intake) Continue(ctx context.Context) error {
	y := in.applying
	var p *partition
	if y.of == nil {
		p = in.partition(y.batch.Partition)
	}
	var waits bool
	var err error
	if in.sending == nil {
		if y.of != nil {
			waits, err = in.applyLabels(ctx, y)
		} else {
			waits, err = in.applyTasks(ctx, p, y)
		}
		if !waits && err == nil && !in.failed {
			waits, err = in.passHorizons(ctx)
		}
		in.failed = in.failed || err != nil
		// Dead letters come before the next save, since saved records count as processed.
		later, unsent := in.send(ctx, y.batch.Partition, waits)
		if err == nil {
			err = unsent
		}
		if later {
			return err
		}
	} else {
		select {
		case <-in.sending.done:
			waits, err = in.sent()
		default:
			return nil
		}
	}
	if in.failed = in.failed || err != nil; waits {
		if p != nil && !in.failed {
			p.settle() // a save that makes room has the position, so that no record is counted twice
		}
		return err
	}
	in.applying = nil
	if !in.failed && y.of != nil {
		in.endLabels(y)
	} else if !in.failed {
		// The end has the last record's fingerprint. It may lie beyond that record, after
		// markers and aborted data.
		in.reach(p, y.batch.Position.Next)
		if y.batch.Position.Next >= p.at.Next {
			p.at = y.batch.Position
		}
		p.settle()
		p.moved = true
		in.grantRoom()
	}
	return err
}

// applyTasks applies the rest of a delivery's tasks, until one waits for room. After a
// failure it applies none, which would leave a hole.
func (in *Intake) applyTasks(ctx context.Context, p *partition, y *Delivery) (waits bool, err error) {
	for ; len(y.tasks) > 0; y.tasks, y.next = y.tasks[1:], 0 {
		t := y.tasks[0]
		<-t.done
		if err == nil && !in.failed {
			err = t.fatal
		}
		in.failed = in.failed || err != nil
		if !in.failed {
			in.own.letters, t.letters = append(in.own.letters, t.letters...), nil
		}
		for i := range t.refused {
			if r := &t.refused[i]; !in.failed && y.next == 0 && r.Last >= p.at.Next {
				in.applyRefused(p, t.partition, r)
			}
		}
		for ; y.next < len(t.records) && !in.failed; y.next++ {
			if in.wants, err = in.applyNext(ctx, p, t, y.next); in.wants > 0 {
				return true, nil
			}
			in.failed = err != nil
		}
		for i := range t.results { // also of records that were left out
			in.inHand.Add(-t.results[i].inHand)
		}
		in.end(t)
	}
	return false, err
}

// applyRefused counts a range of records that could not be read. They will be read again
// together with the open run.
func (in *Intake) applyRefused(p *partition, partition int, r *kafka.Refused) {
	in.reach(p, r.First)
	p.at.Next = r.Last + 1
	c := &in.accounts.counts
	if p.open != nil {
		c = &p.open.counts
	}
	in.countRefused(c, partition, r)
}

// applyNext applies record i of a task. If there is no room for another unsaved block of
// its size, it applies nothing and wants is the bytes of the block.
func (in *Intake) applyNext(ctx context.Context, p *partition, t *task, i int) (wants int64, err error) {
	r := &t.records[i]
	if r.Offset < p.at.Next {
		return 0, nil // delivered before
	}
	in.reach(p, r.Offset)
	// A record that was decoded for other features is decoded again. A block that was
	// summarised for other coordinates is summarised again.
	in.FreeFeatures()
	if i >= len(t.results) { // it was left
		if t.rows != nil {
			t.rows.Empty() // earlier rows have been gathered
		}
		t.results = append(t.results, make([]result, i-len(t.results))...)
		if in.own.together(ctx, t, i) == 0 {
			t.results = append(t.results, in.own.process(ctx, t, r))
		}
	} else if !in.isCurrent(&t.results[i]) {
		z := in.own.process(ctx, t, r)
		z.inHand = t.results[i].inHand
		t.results[i] = z
	}
	z := &t.results[i]
	if wants = in.unsavedBy(p, r, z); wants > 0 && !in.HasRoom(wants) {
		in.grantRoom()
		return wants, nil
	}
	if in.Live.Departing() > 0 && z.bad == nil && !in.isAdmitted(p, t, z) {
		return max(wants, 1), nil // there may be room for it without the blocks that depart
	}
	if in.Live.Emptied() {
		return max(wants, 1), nil // behind a TRUNCATE, the features may be others
	}
	defer func() { *z = result{} }() // and what it holds
	if z.inHand > 0 {
		in.inHand.Add(-z.inHand)
		z.inHand = 0
	}
	if z.fatal == nil && z.bad != nil {
		z.fatal = in.reject(t.partition, r, z.id, z.bad)
	}
	if z.fatal == nil {
		z.fatal = in.applyRecord(ctx, p, t, i, z)
	}
	if z.fatal != nil {
		return 0, z.fatal
	}
	p.at.Next = r.Offset + 1
	if !r.Time.IsZero() && retire.ValidTime(r.Time) {
		p.clock.Add(r.Time)
		in.advance(&p.clock)
	}
	return 0, nil
}

// isAdmitted reports whether the rows of a record may become live.
func (in *Intake) isAdmitted(p *partition, t *task, z *result) bool {
	switch {
	case z.joins != nil:
		return false
	case in.comesWhole(z):
		return z.Summary == nil || in.Live.Admits(candidate(z)) == nil
	case z.i == z.j:
		return true
	case p.open != nil: // it may end before them, and then they would need less
		return in.admitsRows(&p.open.rows, p.open.window, t.rows, z) == nil
	}
	return in.admitsRows(&p.spare, exact.Window{}, t.rows, z) == nil
}

// comesWhole reports whether a record is a block of its own, if it is any.
func (in *Intake) comesWhole(z *result) bool { return z.sums != nil || !Gathers(in.Config.Blocks) }

// candidate is the block of a record's result.
func candidate(z *result) live.Candidate {
	return live.Candidate{Labels: z.Summary.Classes(), Features: z.Summary.Features(), Window: z.Summary.Window(), Kept: z.Kept}
}

// isCurrent reports whether a result is for the features and the coordinates in use.
func (in *Intake) isCurrent(z *result) bool {
	return z.fixed == in.Live.Target().Features && (z.Summary == nil || z.Summary.Rows() == 0 || in.Live.Covers(&z.Kept))
}

// unsavedBy is the size of the block that a record makes: its own, or the open run that it
// ends.
func (in *Intake) unsavedBy(p *partition, r *kafka.Record, z *result) int64 {
	switch ends := p.open != nil && p.open.grown; {
	case z.joins != nil:
		return int64(len(z.joins)) * in.rowBytes()
	case in.comesWhole(z) && ends: // sums end an open run
		return z.Bytes() + in.runBytes(p.open)
	case in.comesWhole(z):
		return z.Bytes()
	case !ends:
		return 0
	}
	n, at := z.j-z.i, time.Time{}
	usable := z.bad == nil && n > 0
	if usable {
		at = in.countsAs(p, r)
	}
	if !endsBefore(in.Config, p.open, bucketOf(in.Config.Blocks, r.Offset, at), n, usable) {
		return 0
	}
	return in.runBytes(p.open)
}

// headerOf hashes the last header of that name, which is the one that counts in Kafka's clients.
func headerOf(name string, r *kafka.Record) retire.HeaderHash {
	if name != "" {
		for _, h := range slices.Backward(r.Headers) {
			if h.Key == name {
				return retire.HashHeader(name, h.Value)
			}
		}
	}
	return retire.HeaderHash{}
}

// applyRecord changes the live set by record i of a task. An error is final.
func (in *Intake) applyRecord(ctx context.Context, p *partition, t *task, i int, z *result) error {
	r := &t.records[i]
	if !in.comesWhole(z) {
		in.accounts.read.add(tally{1, int64(z.rows)})
		return in.gather(ctx, p, t, i, z)
	}
	if p.open != nil { // sums end the run of rows before them, whatever becomes of them
		if err := in.closeRun(ctx, p); err != nil {
			return err
		}
	}
	e, repeats, err := in.entryOf(p, t.partition, r, z)
	if err != nil {
		return err
	}
	in.accounts.read.add(tally{1, int64(z.rows)})
	switch {
	case repeats:
		in.countApplied(&in.accounts.counts.AppliedRecords)
		return nil
	case z.bad != nil:
		in.countRejected(&in.accounts.counts, t.partition, r, z)
		if isLabelAlone(z.bad) {
			return nil
		}
		return in.retireFormer(z.id)
	case z.fate == envelope.Pass:
		in.accounts.counts.AppliedRecords++
		return nil
	case z.fate == envelope.Truncate:
		in.countApplied(&in.accounts.counts.Tombstones)
		return in.truncate(t.partition, r)
	case z.joins != nil:
		return in.applyRows(ctx, p, t.partition, r, z)
	case z.Summary == nil:
		return in.applyTombstone(r, z.id)
	}
	if z.bad = in.Live.Admits(candidate(z)); z.bad != nil {
		in.countRejected(&in.accounts.counts, t.partition, r, z)
		if err := in.reject(t.partition, r, z.id, z.bad); err != nil || z.sums != nil && in.Config.Blocks.Unit != config.UnitKey {
			return err // a position's rows are the same ones, so the sums that were there stay
		}
		return in.retireFormer(z.id)
	}
	if z.sums == nil {
		in.noteAhead(t.partition, r, e.Time)
	}
	if z.Summary.Rows() > 0 { // otherwise it counts as absent
		in.fixFeatures(z)
	}
	o, err := in.Live.Add(e, z.Kept)
	if err != nil {
		return err
	}
	if z.has > 0 && o.Added && o.Replaced {
		o.Added, o.Replaced = false, false // it has only grown
	}
	in.countApplied(&in.accounts.counts.AppliedRecords)
	in.countSummarised(e, o, z)
	in.countAdded(e, o)
	former := ""
	if in.Config.Blocks.Unit == config.UnitKey {
		former = o.Label
	}
	p.follow(z, former)
	in.record.add(z.judged)
	in.judgeInOrder(t.partition, z.block, former)
	return nil
}

// applyTombstone applies a record that retires the block of its key. With changes of Debezium a
// null value comes behind each deletion, for compaction alone: it counts where it retires a block.
func (in *Intake) applyTombstone(r *kafka.Record, id string) error {
	fate := &in.accounts.counts.Tombstones
	if r.Value == nil && in.own.kind == envelope.Debezium {
		switch _, ok, err := in.Live.Former(id); {
		case err != nil:
			return err
		case !ok:
			fate = &in.accounts.counts.AppliedRecords
		}
	}
	in.countApplied(fate)
	return in.retireFormer(id)
}

// entryOf is the entry of the block that a record makes, if it makes one. A block that came as sums
// and comes again counts once: then repeats is true, and z has no rows.
func (in *Intake) entryOf(p *partition, number int, r *kafka.Record, z *result) (e retire.Entry, repeats bool, err error) {
	if z.bad != nil || z.Summary == nil {
		return e, false, nil
	}
	if z.sums != nil {
		e = carried(in.Config, number, r, z.sums)
	} else {
		e = retire.Entry{
			ID: z.id, Position: positionOf(in.Config, number, r), Last: r.Offset,
			Time: in.countsAs(p, r), Rows: z.Summary.Rows(), Header: headerOf(in.Config.Retire.Header, r),
		}
	}
	e.ItemKey = z.itemKey
	if repeats, z.has, err = in.Live.Repeats(&e, z.Summary); repeats {
		in.record.addSums(model.Sums{Repeated: 1})
		z.rows = 0
	}
	z.rows -= int(z.has)
	return e, repeats, err
}

// retireFormer retires the block of that id, live, withdrawn or archived, if any. The key's value
// was deleted, or the new value cannot be used.
func (in *Intake) retireFormer(id string) error {
	in.dropRow(id)
	return in.retireBlock(id)
}

func (in *Intake) retireBlock(id string) error {
	e, ok, err := in.Live.Former(id)
	if !ok || err != nil {
		return err
	}
	if !e.Withdrawn && !e.Archived {
		in.accounts.counts.BlocksRetired++
		in.Sampled.Info().Str("block", in.Logged(id)).Msg("block retired by its key's latest message")
	}
	return in.Live.Retire(id)
}

// countsAs is a record's event time, capped shortly after the partition's clock unless the
// broker has set the time. A record without a time counts as of 1970.
func (in *Intake) countsAs(p *partition, r *kafka.Record) time.Time {
	return countsAs(in.Config, &p.clock, r)
}

func countsAs(cfg *config.Config, clock *retire.Clock, r *kafka.Record) time.Time {
	switch {
	case r.Time.IsZero():
		return time.UnixMilli(0).UTC()
	case r.Appended:
		return r.Time
	}
	return clock.Bound(r.Time, cfg.Retire.MaxFuture)
}

// noteAhead counts and logs a record whose event time is ahead of the partition's clock, and counts
// as another one.
func (in *Intake) noteAhead(number int, r *kafka.Record, countsAs time.Time) {
	if countsAs.Before(r.Time) {
		in.Ahead.Inc()
		in.Sampled.Warn().Stringer("record", positionOf(in.Config, number, r)).Time("event_time", r.Time).Time("counts_as", countsAs).
			Msg("the event time is more than retire.max_future after the partition's clock")
	}
}

// countAdded counts the outcome of adding block e. It logs if the policy has refused the
// block.
func (in *Intake) countAdded(e retire.Entry, o live.Outcome) {
	if o.Added && !o.Refused {
		in.accounts.tooOld = 0
	}
	if o.Refused {
		in.accounts.tooOld++
		in.TooOld.Inc()
		in.Sampled.Warn().Str("block", in.Logged(e.ID)).Time("event_time", e.Time).Int64("rows", e.Rows).
			Msg("block retired as it came: its event time is below what retire.keep lets in")
	}
	if o.Added {
		in.accounts.counts.BlocksAdded++
	}
	if o.Replaced {
		in.accounts.counts.BlocksReplaced++
	}
	in.accounts.counts.BlocksRetired += int64(o.Retired)
}

// listedFeatures bounds the names in a line of the log.
const listedFeatures = 20

// fixFeatures sets the model's features to those of the first usable block.
func (in *Intake) fixFeatures(z *result) {
	if in.Live.Target().Features == nil {
		in.Live.Fix(z.features)
		others := "records with others are refused"
		if in.Config.Format.IgnoresUnknown() {
			others = "other columns are ignored"
		}
		in.Sampled.Warn().Int("count", len(z.features)).Strs("features", z.features[:min(len(z.features), listedFeatures)]).
			Msg("format.features is not set: the features are those of the first block, and " + others + " while a block is live")
	}
}

// FreeFeatures lets the next block set the features if no block is live, withdrawn or archived and
// no run is open.
func (in *Intake) FreeFeatures() {
	if in.Live.HasPlaces() || len(in.Config.Format.Features) > 0 || in.Config.Format.Schema != nil || in.Live.Target().Features == nil {
		return
	}
	for _, p := range in.partitions {
		if p.open != nil && p.open.rows.Len() > 0 {
			return
		}
	}
	in.Live.Fix(nil)
	in.Freed()
	in.Sampled.Info().Msg("no block is live: the next one decides which features the model has")
}
