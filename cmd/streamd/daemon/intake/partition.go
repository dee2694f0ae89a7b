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
	spare      Rows // empty: memory for the next run
}

// mark is a position above the saved one.
type mark struct {
	next   int64
	clock  retire.Clock    // there
	counts snapshot.Counts // of the records from the saved position on
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

// saved is the position as the snapshot has it.
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

// partition is the state of a partition, made when it is first met.
func (in *Intake) partition(number int) *partition {
	p, ok := in.partitions[number]
	if !ok {
		p = &partition{at: kafka.Saved{Next: -1}, applied: mark{next: -1}}
		in.partitions[number] = p
	}
	return p
}

// Restore takes up how far partitions were read, which of their blocks were still
// growing, and the counts. It returns where reading of each partition goes on.
func (in *Intake) Restore(saved *snapshot.Contents) map[int]kafka.Saved {
	c := saved.Counts
	in.accounts.counts, in.accounts.rowsRead = c, c.Rows+c.ZeroWeightRows+c.RejectedRows
	for _, o := range saved.Offsets {
		p := in.partition(o.Partition)
		p.at = kafka.Saved{Next: o.Next}
		if o.HasLast {
			p.at.Last = kafka.Fingerprint{Offset: o.Last.Offset, CRC: o.Last.Checksum, Millis: o.Last.Time.UnixMilli()}
		}
		p.clock = retire.ClockAt(o.EventTimes)
		p.applied = mark{next: o.Next, clock: p.clock}
		if g := o.Growing; g != nil {
			p.applied = mark{next: g.Next, clock: retire.ClockAt(g.EventTimes), counts: g.Counts}
		}
	}
	// A block at or behind its partition's saved position is of a run that was
	// still open: its records are read once more, and make it anew.
	for _, e := range saved.Entries {
		p, ok := in.partitions[e.Position.Partition]
		if !Gathers(in.Config.Blocks) || !ok || e.Position.Offset < p.at.Next {
			continue
		}
		p.unfinished = e.ID
		p.applied.next = max(p.applied.next, e.Last+1) // a file of before format 4 does not say
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

// Positions are the progress at one moment, by partition, where it is known.
type Positions struct {
	Applied []model.Offset // the live set has the records below, and none beyond
	Resume  []model.Offset // reading goes on here after a restart
}

// Positions are the positions as they are now.
func (in *Intake) Positions() Positions {
	return Positions{
		Applied: in.positions(func(p *partition) int64 { return p.applied.next }),
		Resume:  in.positions(func(p *partition) int64 { resume, _ := p.resume(); return resume.Next }),
	}
}

// Applied says how far each partition has been applied.
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

// Moved says whether positions are others than were saved.
func (in *Intake) Moved() bool {
	for _, p := range in.partitions {
		if p.moved {
			return true
		}
	}
	return false
}

// TakeMoved lists the positions that have moved, which then count as saved. undo has
// them count as moved again.
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
	return offsets, func() {
		for _, p := range moved {
			p.moved = true
		}
	}
}

// Settled is where reading of the partitions goes on whose positions have not moved since
// the last save.
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
