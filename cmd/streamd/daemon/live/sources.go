package live

import (
	"maps"
	"slices"
)

// sources are the live blocks whose rows a basis was chosen from. A basis is served with
// the planes, and its points are rows, or made of a few rows. A retired row must leave
// the basis, too, so another basis is chosen when a source is retired explicitly.
//
// Rows that the retention policy has retired may stay in the points until the next basis.
// The mean and scale of a scaled basis come from all live rows and do not make it stale.
type sources struct {
	blocks map[string]struct{}
	stale  Staleness
	// awaited are sources of a basis that another replica has chosen, whose records have not been
	// read here yet.
	awaited map[Source]struct{}
}

// Staleness says what happened to the sources of a basis since it was chosen. The snapshot
// saves it with the basis.
type Staleness uint8

const (
	Fresh          Staleness = iota
	SourceReplaced           // by a newer value of its key
	SourceRetired            // by DELETE or a tombstone; its rows must not stay
)

// lose notes that a block is no longer live.
func (s *sources) lose(id string, how Staleness) {
	if _, ok := s.blocks[id]; ok {
		delete(s.blocks, id)
		s.stale = max(s.stale, how)
	}
}

// allSources lists the sources of all bases, including the one that is being chosen.
func (l *Set) allSources() (all []*sources) {
	for _, p := range l.bases() {
		all = append(all, p.from)
	}
	if l.choosing != nil {
		all = append(all, l.choosing)
	}
	return all
}

// forget notes in all bases that the rows of a block must not stay.
func (l *Set) forget(id string, how Staleness) {
	for _, s := range l.allSources() {
		s.lose(id, how)
	}
}

// InBasis reports whether a live block is a source of the basis in use or of the next one.
func (l *Set) InBasis(id string) bool {
	return slices.ContainsFunc(l.allSources(), func(s *sources) bool {
		_, ok := s.blocks[id]
		return ok
	})
}

// based reports whether the points of a basis may have rows of a block: it is a source of the
// basis, or a former source may still be in it, which can be the block before it came back.
func (l *Set) based(id string) bool {
	return l.InBasis(id) || slices.ContainsFunc(l.allSources(), func(s *sources) bool { return s.stale != Fresh })
}

// Choose begins to record the sources of a basis that is being chosen: all blocks that have
// rows in the present sample.
func (l *Set) Choose() {
	l.choosing = &sources{blocks: map[string]struct{}{}}
	for id := range l.sample.Blocks() {
		l.choosing.blocks[id] = struct{}{}
	}
}

// ChoosePart is Choose for a part of the basis in use, whose sources it has.
func (l *Set) ChoosePart() {
	l.choosing = &sources{blocks: maps.Clone(l.inUse.from.blocks), stale: l.inUse.from.stale}
}

// Chosen ends the choice of a basis. Begin comes before it.
func (l *Set) Chosen() { l.choosing = nil }
