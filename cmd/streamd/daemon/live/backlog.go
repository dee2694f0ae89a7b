package live

import (
	"iter"
	"maps"
)

// A backlog is values by id that the file lacks. A save takes those that are there, and reads them
// beside the set, so that the set is not held for as long as it takes to list them. What comes
// meanwhile is kept apart. The zero backlog is empty.
type backlog[V any] struct {
	size  func(V) int         // in bytes; nil: of no interest
	fresh map[string]V        // that no save has taken
	taken map[string]V        // that the save under way has taken, or the last one, if that failed; nobody changes it
	past  map[string]struct{} // of taken, what is no longer wanted, or has a successor

	bytes, takenBytes int64 // of fresh, and of what is wanted of taken
}

func (b *backlog[V]) sizeOf(v V) int64 {
	if b.size == nil {
		return 0
	}
	return int64(b.size(v))
}

// get is the value of an id that the file lacks.
func (b *backlog[V]) get(id string) (v V, ok bool) {
	if v, ok = b.fresh[id]; ok {
		return v, true
	}
	if v, ok = b.taken[id]; ok {
		if _, past := b.past[id]; past {
			var none V
			return none, false
		}
	}
	return v, ok
}

// has reports whether the file lacks a value of an id.
func (b *backlog[V]) has(id string) bool { _, ok := b.get(id); return ok }

// put notes that the file lacks v, in place of an earlier value of the id.
func (b *backlog[V]) put(id string, v V) {
	b.drop(id)
	if b.fresh == nil {
		b.fresh = make(map[string]V, min(len(b.taken), mostAhead))
	}
	b.fresh[id] = v
	b.bytes += b.sizeOf(v)
}

// mostAhead bounds the values that a backlog makes room for at once.
const mostAhead = 1 << 12

// drop notes that the file need not have a value of an id.
func (b *backlog[V]) drop(id string) {
	if v, ok := b.fresh[id]; ok {
		b.bytes -= b.sizeOf(v)
		delete(b.fresh, id)
		return // what was taken of the id is past since then
	}
	v, ok := b.taken[id]
	if _, past := b.past[id]; !ok || past {
		return
	}
	if b.past == nil {
		b.past = map[string]struct{}{}
	}
	b.past[id] = struct{}{}
	b.takenBytes -= b.sizeOf(v)
}

func (b *backlog[V]) len() int { return len(b.fresh) + len(b.taken) - len(b.past) }

// waiting is the size of all values.
func (b *backlog[V]) waiting() int64 { return b.bytes + b.takenBytes }

// all yields the values, in no order.
func (b *backlog[V]) all() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for id, v := range b.fresh {
			if !yield(id, v) {
				return
			}
		}
		for id, v := range b.taken {
			if _, past := b.past[id]; !past && !yield(id, v) {
				return
			}
		}
	}
}

// take returns all values for a save. They wait until it has succeeded.
func (b *backlog[V]) take() map[string]V {
	b.notSaved()
	b.taken, b.fresh, b.takenBytes, b.bytes = b.fresh, nil, b.bytes, 0
	return b.taken
}

// saved notes that the save has succeeded.
func (b *backlog[V]) saved() { b.taken, b.past, b.takenBytes = nil, nil, 0 }

// notSaved notes that the save has failed: the next one takes its values, too.
func (b *backlog[V]) notSaved() {
	switch {
	case len(b.taken) == 0:
	case len(b.fresh)+len(b.past) == 0:
		b.fresh = b.taken
	default:
		b.fresh = maps.Collect(b.all())
	}
	b.bytes += b.takenBytes
	b.saved()
}
