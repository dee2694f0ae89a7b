package control

import (
	"maps"
	"slices"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/model"
	"streamd/snapshot"
)

// Followed has the offsets below which the live set follows the control topic. A start reads the
// topic from its beginning, and the set follows what is new once all is known.
type Followed struct {
	topic string
	next  map[int]int64 // of each partition
	moved bool          // since the last save
}

// NewFollowed has the offsets of a control topic that a snapshot has. others are the other topics
// that it has offsets of.
func NewFollowed(topic string, others []string, saved []snapshot.Offset, log zerolog.Logger) *Followed {
	f := &Followed{topic: topic, next: map[int]int64{}}
	for _, o := range saved {
		switch {
		case o.Topic == topic:
			f.next[o.Partition] = o.Next
		case !slices.Contains(others, o.Topic):
			log.Warn().Str("former", o.Topic).Str("topic", topic).
				Msg("the snapshot has followed another control topic: what only that one retires comes back")
		}
	}
	return f
}

// Move notes that the live set follows the records of a partition below an offset.
func (f *Followed) Move(partition int, next int64) {
	if next > f.next[partition] {
		f.next[partition], f.moved = next, true
	}
}

// HasMoved reports whether offsets have not been saved.
func (f *Followed) HasMoved() bool { return f.moved }

// Next is a copy of the offsets, by partition.
func (f *Followed) Next() map[int]int64 { return maps.Clone(f.next) }

// Offsets lists the offsets, by partition.
func (f *Followed) Offsets() (all []model.Offset) {
	for _, partition := range slices.Sorted(maps.Keys(f.next)) {
		all = append(all, model.Offset{Topic: f.topic, Partition: partition, Next: f.next[partition]})
	}
	return all
}

// TakeMoved lists the offsets to save and marks them as saved. undo marks them as moved again.
func (f *Followed) TakeMoved() (offsets []snapshot.Offset, undo func()) {
	if !f.moved {
		return nil, func() {}
	}
	f.moved = false
	for _, partition := range slices.Sorted(maps.Keys(f.next)) {
		offsets = append(offsets, snapshot.Offset{Topic: f.topic, Partition: partition, Next: f.next[partition]})
	}
	return offsets, func() { f.moved = true }
}
