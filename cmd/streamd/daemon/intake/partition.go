package intake

import (
	"slices"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/ingest/kafka"
	"streamd/retire"
	"streamd/snapshot"
)

// partition is the progress in a partition. It has three positions:
//
// resume   reading continues here after a restart: before the open run applied  the live
// set has exactly the records below it; answers name it at       the records below it
// have been read: they count, or are in the open run
//
// After a restart applied can be above at. The run that was open is then read again, and
// the live set stays as saved until all of the run has come (rereads).
type partition struct {
	at      kafka.Saved
	clock   retire.Clock // the clock at position at
	open    *run         // the gathered block that is not complete, or nil
	applied mark
	moved   bool   // since the last save
	label   string // of the last row that has one; "": not known
	// unfinished is the id of the live block whose run is being read again, or "".
	unfinished string
	spare      Rows // empty; its memory is used for the next run
}

// mark is a position above the saved one.
type mark struct {
	next   int64
	clock  retire.Clock    // the clock at this position
	counts snapshot.Counts // of the records since the saved position
}

// resume is the position to save, and the clock there.
func (p *partition) resume() (kafka.Saved, *retire.Clock) {
	if p.open != nil {
		return p.open.start, &p.open.clock
	}
	return p.at, &p.clock
}

// rereads reports whether records are coming that the live set has already.
func (p *partition) rereads() bool { return p.at.Next < p.applied.next }

// settle moves the applied position up to the read one, unless the open run has rows that
// the live set lacks.
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

// saved is the snapshot's record of the position.
func (p *partition) saved(topic string, number int) snapshot.Offset {
	s, clock := p.resume()
	o := snapshot.Offset{Topic: topic, Partition: number, Next: s.Next, EventTimes: clock.Times()}
	if a := &p.applied; a.next > s.Next {
		o.Growing = &snapshot.Growing{Next: a.next, Counts: a.counts, EventTimes: a.clock.Times()}
	}
	if o.HasLast = s.Last != (kafka.Fingerprint{}); o.HasLast {
		o.Last = snapshot.Fingerprint{Offset: s.Last.Offset, Checksum: s.Last.CRC, Time: time.UnixMilli(s.Last.Millis)}
	}
	return o
}

// partition returns the state of a partition, and makes it on first use.
func (in *Intake) partition(number int) *partition {
	p, ok := in.partitions[number]
	if !ok {
		p = &partition{at: kafka.Saved{Next: -1}, applied: mark{next: -1}}
		in.partitions[number] = p
	}
	return p
}

// Restore restores the positions, the ids of growing blocks, and the counts. It returns the
// position from which each partition is read.
func (in *Intake) Restore(saved *snapshot.Contents) map[int]kafka.Saved {
	c := saved.Counts
	in.accounts.counts, in.accounts.read = c, readBy(c)
	if in.Labels != nil {
		in.accounts.read.rows += in.Labels.Pending()
	}
	for _, o := range saved.Offsets {
		if o.Topic != in.Config.Kafka.Topic {
			in.restoreLabelOffset(&o) // or it is of the control topic
			continue
		}
		p := in.partition(o.Partition)
		p.at = savedAt(&o)
		p.clock = retire.ClockAt(o.EventTimes)
		p.applied = mark{next: o.Next, clock: p.clock}
		if g := o.Growing; g != nil {
			p.applied = mark{next: g.Next, clock: retire.ClockAt(g.EventTimes), counts: g.Counts}
		}
	}
	// A block at or behind its partition's saved position belongs to a run that was still
	// open. Its records are read again and rebuild it.
	for _, e := range slices.Concat(saved.Entries, saved.Withdrawn, saved.Archived) {
		p, ok := in.partitions[e.Position.Partition]
		if !Gathers(in.Config.Blocks) || !ok || e.Position.Offset < p.at.Next || e.Carrier.Sums {
			continue
		}
		p.unfinished = e.ID
		p.applied.next = max(p.applied.next, e.Last+1) // files before format 4 lack this position
	}
	resumes := map[int]kafka.Saved{}
	for number, p := range in.partitions {
		resume := p.at
		if p.rereads() {
			resume.Done = p.applied.next
		}
		resumes[number] = resume
	}
	return resumes
}

// savedAt is the position of a snapshot's record.
func savedAt(o *snapshot.Offset) kafka.Saved {
	at := kafka.Saved{Next: o.Next}
	if o.HasLast {
		at.Last = kafka.Fingerprint{Offset: o.Last.Offset, CRC: o.Last.Checksum, Millis: o.Last.Time.UnixMilli()}
	}
	return at
}

// Positions are the progress at one moment, by partition, where it is known.
type Positions struct {
	Applied []model.Offset // the live set has exactly the records below
	Resume  []model.Offset // reading continues here after a restart
}

// Positions are the present positions.
func (in *Intake) Positions() Positions {
	return Positions{
		Applied: in.positions(func(p *partition) int64 { return p.applied.next }),
		Resume:  in.positions(func(p *partition) int64 { resume, _ := p.resume(); return resume.Next }),
	}
}

// Applied is the applied position of each partition.
func (in *Intake) Applied() []model.Offset {
	return in.positions(func(p *partition) int64 { return p.applied.next })
}

func (in *Intake) positions(of func(*partition) int64) []model.Offset {
	var out []model.Offset
	for number, p := range in.partitions {
		if next := of(p); next >= 0 {
			out = append(out, model.Offset{Topic: in.Config.Kafka.Topic, Partition: number, Next: next})
		}
	}
	slices.SortFunc(out, func(a, b model.Offset) int { return a.Partition - b.Partition })
	return out
}

// Moved reports whether positions have changed since the last save.
func (in *Intake) Moved() bool {
	for _, p := range in.partitions {
		if p.moved {
			return true
		}
	}
	return in.labelsMoved()
}

// TakeMoved lists the changed positions and marks them as saved. undo marks them as changed
// again.
func (in *Intake) TakeMoved() (offsets []snapshot.Offset, undo func()) {
	var moved []*partition
	for number, p := range in.partitions {
		if !p.moved {
			continue
		}
		p.moved = false
		moved = append(moved, p)
		if resume, _ := p.resume(); resume.Next >= 0 {
			offsets = append(offsets, p.saved(in.Config.Kafka.Topic, number))
		}
	}
	ofLabels, undoLabels := in.takeMovedLabels()
	return append(offsets, ofLabels...), func() {
		for _, p := range moved {
			p.moved = true
		}
		undoLabels()
	}
}

// Settled is where reading continues, for those of the partitions whose positions have not
// changed since the last save.
func (in *Intake) Settled(partitions []int) map[int]int64 {
	next := map[int]int64{}
	for _, number := range partitions {
		p := in.partition(number)
		if resume, _ := p.resume(); !p.moved && resume.Next >= 0 {
			next[number] = resume.Next
		}
	}
	return next
}
