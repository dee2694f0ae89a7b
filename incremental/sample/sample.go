// Package sample keeps a sample of the rows of all live blocks. Refinement, calibration
// and the choice of a basis need rows; sums do not suffice.
//
// # The law
//
// Every row has a hash of 64 bits. It depends on the seed, the content digest of its
// block (incremental.Summary.LabelledDigest) and the row's index i among the block's rows
// of weight > 0, those with a label first. A block has the random numbers
//
//	z(t) = mix(mix(digest[0:8] ^ mix(seed)) + t·φ)
//
// of SplitMix64 (Steele, Lea and Flood 2014), with its content as the stream. Row i has
// bit i mod 64 of the 63 words w(l) = z(64·⌊i/64⌋ + l). The number of leading ones among
// these bits is the row's level. The hash begins with as many zeros, then a one, then
// bits of z(2^32 + i). So w(1) & … & w(l) marks the rows of level l or above among the
// 64 rows of a group, and other rows need no work.
//
// The sample is the Settings.Rows live rows of least hash, or when Balanced the Rows/k
// rows of least hash of each of the k live classes. Rows without a label are sampled
// apart, with the quota of Rows, or Rows/k. So the rows with a label are the same ones as
// if the others had never come. It is a uniform sample without
// replacement (a bottom-k sketch; Cohen and Kaplan 2007). It is a function of the live
// set alone: topics, partitions, arrival and removed blocks do not matter. (A fixed
// threshold, halved when too many rows are below it, would be such a function too. But
// the size of its sample would jump between Rows/2 and Rows.)
//
// A Part of each block is kept: the number of rows of each of its classes, and all rows
// of some level or above, with exact numbers. The floor is a level from which all live
// parts have all their rows. If the parts have enough rows from the floor on, or the
// floor is 0, they contain the whole sample.
//
// Rows of equal blocks have equal hashes. Copies of a block are in the sample together,
// each row as often as it is live. Blocks of one row each with few distinct values are
// therefore sampled poorly; in larger blocks their rows have distinct hashes.
//
// # Growing again
//
// The floor rises when there are too many rows. Workers read it when they take the part
// of a new block (Levels). A Sample holds up to 3·Rows rows, and at least 1.5·Rows after
// the floor has risen, so that retired blocks rarely lower the floor: only when the live
// rows have shrunk by a third does the sample need rows that it does not hold. Then it
// estimates a floor that leaves enough rows from the totals of the parts. The parts of
// all live blocks are offered again (Unsure, Offer). Blocks whose parts lack the rows
// are Wanted: they must be read from the log again. This repeats while the rows are too
// few. Until then a View is not Complete: it is a smaller uniform sample of the rows of
// the blocks that have a part. The floor depends on history, but a complete View does
// not.
//
// # Exactness and memory
//
// The numbers of a row are kept as float32 if that loses nothing for any row of its
// block's part, and as float64 otherwise. A column of a View is float32 if all its
// numbers fit. A Sample of n features takes up to 3·Rows rows of 4n + 8 bytes (8n + 8 as
// float64, and 8 more with weights), which equal blocks share. A block with a row in the
// sample takes 250 to 300 bytes in two objects, up to 400 more with 32 rows or more,
// whose levels lie apart, and 8 more per class beyond two. Other blocks take nothing:
// their parts are in the snapshot. Classes with a quota of a few rows may have some more.
//
// # Cost
//
// Taking the part of a block of m rows costs 8 or 9 random numbers for each of m/64
// groups, and O(n) per row kept. It also costs O(1) per row of the lowest floor or
// above if the floors of classes differ, and a pass over the weights if some are 0. Add,
// Remove and Offer take O(k), and amortised O(1) per row held: most rows of large parts
// are dropped without copying the others. Restore takes O(n) per row of a part, Snapshot
// O(blocks with rows in the sample), and View O(R·(log R + n)) for R rows held, in the
// caller's goroutine.
//
// # Concurrency and ownership
//
// A Sample belongs to one goroutine, but Levels may be called from any. Parts,
// Snapshots and Views are immutable and may be shared. A Taker belongs to one
// goroutine at a time. No reference to a Block is kept.
//
// # Errors and panics
//
// DecodePart fails with ErrEncoding on bytes that no Taker writes: rows below their
// class's level, more rows than the class has, or fewer although the level is 0. It
// cannot detect missing rows above a level without the block. Removing a block that is
// not in the sample is a bug of the caller and panics, as does taking a block of more
// than 2^26 classes.
package sample

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync/atomic"

	"streamd/incremental"
)

// A stratum is the live rows that share a quota: the rows of a class if the sample is
// balanced, and all rows with a label otherwise. The rows without a label are another.
type stratum struct {
	rows   int64         // the live rows of blocks with a part
	counts [levels]int64 // the rows held, by level, with copies
	floor  int           // rows of this level or above are to be held
	sure   int           // rows of this level or above, floor at least, are all held
}

func (t *stratum) above(level int) (rows int64) {
	for _, n := range t.counts[level:] {
		rows += n
	}
	return rows
}

// has reports whether at least rows rows are held from the sure level on, or all rows.
func (t *stratum) has(rows int64) bool { return t.sure == 0 || t.above(t.sure) >= rows }

// lack is the state of a live block that may lack rows.
type lack uint8

const (
	unsure lack = iota // its part has not been checked yet
	wanted             // its part lacks rows
	absent             // it has no part, so its totals are unknown
)

// held holds the rows of blocks of equal content, as a part without rows below the
// floors.
type held struct {
	part   *Part // nil: the place is free
	copies int32 // the number of these blocks
	next   int32 // the place of other rows of equal content, or none
}

const none = -1

// Sample holds rows of the live blocks, from which a View chooses.
type Sample struct {
	settings Settings
	live     iter.Seq[string]
	strata   map[string]*stratum // by Settings.stratum
	kept     map[string]int32    // places in held of the blocks that have rows, by block
	held     []held
	free     []int32          // free places in held
	same     map[stream]int32 // the first place in held, by content
	rows     int              // rows in memory, where copies are shared
	lacking  map[string]lack  // by block
	absent   int              // the number of absent blocks in lacking
	queue    []string         // blocks in lacking to check, some of them no longer unsure
	settled  bool             // nothing has changed since settle
	moved    bool             // floors have changed since publish
	levels   atomic.Pointer[Levels]

	strataOf []*stratum // working memory
	floors   []uint8
}

// New returns an empty sample. live lists the ids of the live blocks; it is
// called when most of them have to be checked.
func New(s Settings, live iter.Seq[string]) *Sample {
	if s.Rows < 1 {
		panic(fmt.Sprintf("sample: %d rows", s.Rows))
	}
	out := &Sample{
		settings: s, live: live, strata: map[string]*stratum{}, lacking: map[string]lack{},
		kept: map[string]int32{}, same: map[stream]int32{},
	}
	out.publish()
	return out
}

// Levels returns the current floors for a Taker. It may be called from any goroutine.
func (s *Sample) Levels() *Levels { return s.levels.Load() }

func (s *Sample) publish() {
	l := &Levels{settings: s.settings, floors: make(map[string]int, len(s.strata))}
	for name, t := range s.strata {
		l.floors[name] = t.floor
	}
	s.levels.Store(l)
	s.moved = false
}

// quota is the number of sampled rows of each stratum.
func (s *Sample) quota() int64 {
	if s.unlabelled() {
		return s.settings.quota(len(s.strata) - 1)
	}
	return s.settings.quota(len(s.strata))
}

// unlabelled reports whether live rows have no label.
func (s *Sample) unlabelled() bool { return s.strata[incremental.Unlabelled] != nil }

// of returns the strata of the classes. The slice is valid until the next call.
func (s *Sample) of(labels []string) []*stratum {
	s.strataOf = s.strataOf[:0]
	for _, label := range labels {
		s.strataOf = append(s.strataOf, s.strata[s.settings.stratum(label)])
	}
	return s.strataOf
}

// floorsOf returns the floors of the strata. The slice is valid until the next call.
func (s *Sample) floorsOf(strata []*stratum) []uint8 {
	s.floors = s.floors[:0]
	for _, t := range strata {
		s.floors = append(s.floors, uint8(t.floor))
	}
	return s.floors
}

// count adds or subtracts the totals of a part.
func (s *Sample) count(p *Part, sign int64) {
	for c, label := range p.labels {
		name := s.settings.stratum(label)
		t := s.strata[name]
		if t == nil {
			t = &stratum{}
			s.strata[name] = t
		}
		t.rows += sign * int64(p.classes[c].total)
		switch {
		case t.rows < 0:
			panic("sample: a part was removed that was not in the sample")
		case t.rows == 0:
			delete(s.strata, name)
			s.moved = true
		}
	}
}

// usable reports whether there is a part of this seed.
func (s *Sample) usable(p *Part) bool { return p != nil && p.seed == s.settings.Seed }

// Uses reports whether the sample can use a part that was taken elsewhere: it is of its seed. It
// may be called from any goroutine.
func (s *Sample) Uses(p *Part) bool { return s.usable(p) }

// Add adds a block that has become live. Without a part, or with one of another seed,
// the block is Wanted.
func (s *Sample) Add(id string, p *Part) {
	s.settled = false
	if !s.usable(p) {
		s.lack(id, absent)
		return
	}
	s.count(p, 1)
	if !s.hold(id, p) {
		s.lack(id, wanted)
	}
}

// Remove removes a block that is no longer live. p is the part that was last given to
// Add or Offer.
func (s *Sample) Remove(id string, p *Part) {
	s.settled = false
	was, ok := s.lacking[id]
	s.found(id)
	if ok && was == absent {
		return
	}
	if !s.usable(p) {
		panic(fmt.Sprintf("sample: block %s is removed without its part", id))
	}
	s.release(id)
	s.count(p, -1)
}

// lack notes that a block lacks rows.
func (s *Sample) lack(id string, l lack) {
	s.found(id)
	s.lacking[id] = l
	if l == absent {
		s.absent++
	}
}

// found notes that a block lacks nothing.
func (s *Sample) found(id string) {
	if l, ok := s.lacking[id]; ok {
		delete(s.lacking, id)
		if l == absent {
			s.absent--
		}
	}
}

// hold adds the rows of a part from the floors on. If the part does not reach down to a
// floor, that floor rises if enough rows remain. Otherwise the block lacks rows, and
// hold returns false.
func (s *Sample) hold(id string, p *Part) (all bool) {
	strata := s.of(p.labels)
	if less := p.above(s.floorsOf(strata)); len(less.pieces) > 0 {
		s.keep(id, less)
		tally(less, strata, 1)
	}
	quota := s.quota()
	risen := false
	rise := func(t *stratum, level int) {
		if level > t.floor {
			s.rise(t, level)
			risen = true
		}
	}
	for c, t := range strata {
		if from := int(p.classes[c].from); from > t.floor && t.above(from) >= enough(quota) {
			rise(t, from)
		}
	}
	all = true
	for c, t := range strata {
		if from := int(p.classes[c].from); from > t.floor {
			t.sure = max(t.sure, from)
			all = false
		}
	}
	if s.rows > s.settings.room(quota, s.unlabelled()) {
		for _, t := range s.strata {
			rise(t, highest(&t.counts, quota))
		}
	}
	if risen {
		s.trim()
		s.publish()
	}
	return all
}

// keep holds the rows of a part for a block. Blocks with the same rows share them. keep
// does not count them by level.
func (s *Sample) keep(id string, p *Part) {
	z := streamOf(p.seed, &p.digest)
	first, ok := s.same[z]
	if !ok {
		first = none
	}
	at := first
	for at != none && !s.held[at].part.equal(p) {
		at = s.held[at].next
	}
	if at == none {
		at = s.place(held{part: p, next: first})
		s.same[z] = at
		s.rows += count(p.pieces)
	}
	s.kept[id] = at
	s.held[at].copies++
}

// place stores h and returns its place.
func (s *Sample) place(h held) int32 {
	if last := len(s.free) - 1; last >= 0 {
		at := s.free[last]
		s.free = s.free[:last]
		s.held[at] = h
		return at
	}
	s.held = append(s.held, h)
	return int32(len(s.held) - 1)
}

// release drops the rows of a block, if any are held.
func (s *Sample) release(id string) {
	at, ok := s.kept[id]
	if !ok {
		return
	}
	delete(s.kept, id)
	p := s.held[at].part
	tally(p, s.of(p.labels), -1)
	s.drop(at)
}

// drop removes one of the copies of the rows.
func (s *Sample) drop(at int32) {
	h := &s.held[at]
	if h.copies--; h.copies == 0 {
		s.rows -= count(h.part.pieces)
		s.forget(at)
	}
}

// forget empties a place among held.
func (s *Sample) forget(at int32) {
	h := s.held[at]
	z := streamOf(h.part.seed, &h.part.digest)
	switch before := s.same[z]; {
	case before != at:
		for s.held[before].next != at {
			before = s.held[before].next
		}
		s.held[before].next = h.next
	case h.next != none:
		s.same[z] = h.next
	default:
		delete(s.same, z)
	}
	s.held[at] = held{}
	s.free = append(s.free, at)
}

// tally adds or subtracts the rows in the counts by level.
func tally(p *Part, strata []*stratum, sign int64) {
	common := true // all classes have one stratum
	for _, t := range strata {
		common = common && t == strata[0]
	}
	for i := range p.pieces {
		r := &p.pieces[i]
		if common && r.low == r.high {
			strata[0].counts[r.low] += sign * int64(r.len())
			continue
		}
		stride := r.stride()
		for row := 0; row < len(r.words); row += stride {
			word := r.words[row+1]
			strata[word>>levelBits].counts[word%levels] += sign
		}
	}
}

// rise raises a floor. The caller trims the rows below it.
func (s *Sample) rise(t *stratum, level int) {
	t.floor, t.sure = level, max(t.sure, level)
	s.moved = true
}

// trim drops the rows below the floors.
func (s *Sample) trim() {
	for _, t := range s.strata {
		clear(t.counts[:t.floor])
	}
	for at := range s.held {
		p := s.held[at].part
		if p == nil {
			continue
		}
		var memory [mostPieces]rows
		floors := s.floorsOf(s.of(p.labels))
		stays, all := p.cut(floors, memory[:0])
		if all {
			continue
		}
		s.rows -= count(p.pieces) - count(stays)
		if len(stays) == 0 {
			s.forget(int32(at))
			continue
		}
		s.held[at].part = p.with(stays, floors)
	}
	differ := len(s.held)-len(s.free) > len(s.same)
	for id, at := range s.kept {
		p := s.held[at].part
		switch {
		case p == nil:
			delete(s.kept, id)
		case differ: // rows of equal content differed, and may be the same now
			s.drop(at)
			s.keep(id, p)
		}
	}
}

// partial is the number of blocks with a part that may lack rows.
func (s *Sample) partial() int { return len(s.lacking) - s.absent }

// reach raises the floors to their sure levels where that many rows remain. It reports
// whether all floors are at their sure levels; then no block with a part lacks rows.
func (s *Sample) reach(rows int64) (all bool) {
	all = true
	risen := false
	for _, t := range s.strata {
		if t.sure > t.floor && t.above(t.sure) >= rows {
			s.rise(t, t.sure)
			risen = true
		}
		all = all && t.sure == t.floor
	}
	if risen {
		s.trim()
	}
	return all
}

// settle lowers the floors of strata with too few rows, once all blocks with a part have
// been checked, and begins another check.
func (s *Sample) settle() {
	if s.settled {
		return
	}
	s.settled = true
	quota := s.quota()
	if s.partial() > 0 && s.reach(enough(quota)) {
		maps.DeleteFunc(s.lacking, func(_ string, l lack) bool { return l != absent })
		s.queue = nil
	}
	if s.partial() == 0 {
		lowered := false
		for _, t := range s.strata {
			if t.sure = t.floor; !t.has(quota) {
				t.floor = lower(t.sure, t.rows, quota)
				lowered = true
			}
		}
		if lowered {
			s.moved = true
			s.doubt()
		}
	}
	if s.moved {
		s.publish()
	}
}

// doubt makes every block with a part unsure.
func (s *Sample) doubt() {
	s.queue = s.queue[:0]
	for id := range s.live {
		if l, ok := s.lacking[id]; ok && l == absent {
			continue
		}
		s.lacking[id] = unsure
		s.queue = append(s.queue, id)
	}
}

// Unsure returns up to limit live blocks whose parts have to be checked for missing
// rows. The caller offers each its part. A block is returned once.
func (s *Sample) Unsure(limit int) []string {
	s.settle()
	var out []string
	for len(s.queue) > 0 && len(out) < limit {
		id := s.queue[len(s.queue)-1]
		s.queue = s.queue[:len(s.queue)-1]
		if l, ok := s.lacking[id]; ok && l == unsure {
			out = append(out, id)
		}
	}
	return out
}

// Offer adds a live block's part again, the same one or one with more rows. It does
// nothing for a block that lacks nothing.
func (s *Sample) Offer(id string, p *Part) {
	was, ok := s.lacking[id]
	if !ok {
		return
	}
	if !s.usable(p) {
		if was != absent {
			panic(fmt.Sprintf("sample: block %s had a part and is offered none", id))
		}
		return
	}
	s.settled = false
	s.found(id)
	if was == absent {
		s.count(p, 1)
	}
	s.release(id)
	if !s.hold(id, p) {
		s.lack(id, wanted)
	}
}

// Restore fills an empty sample with all live blocks, each with its part as for
// Add. It returns the error of parts.
func (s *Sample) Restore(parts func(yield func(id string, p *Part)) error) error {
	var short []string // blocks that lack rows: nearly all until the floors have risen
	err := parts(func(id string, p *Part) {
		if !s.usable(p) {
			s.lack(id, absent)
			return
		}
		s.count(p, 1)
		if !s.hold(id, p) {
			short = append(short, id)
		}
	})
	if err != nil {
		return err
	}
	// Parts reach down to the floors at the time of their making. Parts of other
	// settings, or of far fewer blocks, do not reach down to the present floors.
	quota := s.quota()
	if len(short) > 0 && !s.reach(quota) {
		for _, id := range short {
			s.lack(id, wanted)
		}
	}
	for _, t := range s.strata {
		if t.sure > t.floor {
			s.rise(t, max(t.floor, lower(t.sure, t.rows, quota)))
		}
	}
	s.trim()
	s.settled = false
	s.settle()
	return nil
}

// Blocks lists the blocks that rows with a label are held of, each once and in no order.
// All rows of a View taken now are theirs.
func (s *Sample) Blocks() iter.Seq[string] {
	return func(yield func(string) bool) {
		for id, at := range s.kept {
			if p := s.held[at].part; len(p.labels) == 1 && p.unlabelled() >= 0 {
				continue
			}
			if !yield(id) {
				return
			}
		}
	}
}

// Lacking is the number of live blocks that may lack rows of the sample. The sample is
// complete when it is 0.
func (s *Sample) Lacking() int {
	s.settle()
	if s.absent > 0 {
		return len(s.lacking)
	}
	quota := s.quota()
	for _, t := range s.strata {
		if !t.has(quota) {
			return len(s.lacking)
		}
	}
	return 0
}

// Wanted lists the blocks that must be read from the log again, in the order of their
// ids. The caller takes each a new part and offers it. Wanted is empty while the sample
// is complete, and while there are Unsure blocks.
func (s *Sample) Wanted() []string {
	if s.Lacking() == 0 || len(s.queue) > 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(s.lacking))
}
