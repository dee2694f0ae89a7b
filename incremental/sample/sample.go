// Package sample keeps rows: a sample of the rows of all live blocks, for what
// cannot be read off sums (refinement, calibration, the choice of a basis).
//
// # The law
//
// Every row has a hash of 64 bits, of the seed, its block's content digest
// (incremental.Summary.Digest) and its index i among the block's rows of weight
// greater than 0. Of the random numbers
//
//	z(t) = mix(mix(digest[0:8] ^ mix(seed)) + t·φ)
//
// of its block, which are SplitMix64 (Steele, Lea and Flood 2014) with its stream
// named by the content, a row has bit i mod 64 of 63 words, w(l) =
// z(64·⌊i/64⌋ + l). Its level is how many of them are 1 before one is 0; the hash
// begins with as many zeros, then a one, then bits of z(2^32 + i). So the 64 rows
// of a group that are of level l or above are the bits of w(1) & … & w(l), and
// rows that are of no such level are not looked at.
//
// The sample is the live rows of least hash, Settings.Rows of them; of each class
// as many, Rows/k of the k live classes, when Balanced. That is a uniform sample
// without replacement (a bottom-k sketch; Cohen and Kaplan 2007), and a function
// of the live set alone: not of topics, partitions, arrival or what came and
// went. A fixed threshold that is halved when too many rows are below it would be
// such a function too, but its size jumps between half and all of what is asked
// for, and the classes of a balanced sample with it.
//
// Of each block a Part is kept: how many rows each of its classes has, and all
// rows of some level or above, with exact numbers. When each of the live parts
// has all its rows from a common level on, the floor, and these are as many as
// are wanted or the floor is 0, then they have every row of the sample.
//
// Rows of equal blocks have equal hashes: two copies of a block are in the
// sample together, each row as often as it is live. Blocks of one row each with
// few different values are therefore a poor thing to sample; gathered into
// larger blocks their rows have hashes of their own.
//
// # Growing again
//
// The floor rises when there are too many rows, and workers read it when they
// take the part of a new block (Levels). So that it need not be lowered for each
// block that is retired, a Sample holds up to 3·Rows rows, and at least 1.5·Rows
// when the floor has risen: only when the live rows have shrunk by a third or
// more does the sample need rows that are not held. Then a floor that leaves
// enough is estimated from the totals of the parts, those of all live blocks are
// offered again (Unsure, Offer), and the ones that do not have the rows either
// are Wanted: their blocks have to be read from the log again. Should the rows
// be too few even so, that repeats. Until then a View is not Complete: it is a
// uniform sample of the rows of the blocks that have a part, and smaller. The
// floor depends on history; a complete View does not.
//
// # Exactness and memory
//
// The numbers of a row are kept as float32 where that loses nothing for any row
// of its block's part, and as float64 elsewhere; a column of a View is float32
// when all its numbers are. A Sample of n features takes up to 3·Rows rows of
// 4n + 8 bytes (8n + 8, and 8 more where rows have weights), which equal blocks
// share, 250 to 300 bytes and two objects per block that has a row in it, up to 400
// more for one of 32 rows or more, which lie apart by level, and nothing for other
// blocks: their parts are in the snapshot. Of more than two classes each takes 8
// more, and its label where the part was read. Classes with a quota of a few rows
// may have some rows more.
//
// # Cost
//
// Taking the part of a block of m rows: m/64 groups of 8 or 9 random numbers,
// 0.2 ns per row, and O(n) per row kept; where the floors of classes differ also
// O(1) per row of the lowest floor or above, and where there are rows of weight 0
// a pass over the weights. Add, Remove and Offer: O(k), and amortised O(1) per
// row held; most rows of large parts are let go of without a copy of those that
// stay. A block of 1,200 rows of ten features, of which two or three stay, takes 2 µs
// to take and as long to add, all trimming included (BenchmarkManyBlocks). Restore:
// O(n) per row of a part, and some microseconds per block. Snapshot: O(blocks with
// rows in the sample). View: O(R·(log R + n)) for R rows held, in the caller's
// goroutine.
//
// # Concurrency and ownership
//
// A Sample belongs to one goroutine, but Levels may be called from any. Parts,
// Snapshots and Views are immutable and may be shared. A Taker belongs to one
// goroutine at a time. Nothing keeps a reference to a Block.
//
// # Errors and panics
//
// DecodePart refuses with ErrEncoding what is no part: rows below the level that
// it says, more than there are, or fewer where it is 0, and what no Taker writes.
// It cannot miss rows above a level: that needs the block. Removing a block
// that is not there is a bug of the caller and panics, as does taking one of more
// than 2^26 classes.
package sample

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync/atomic"
)

// Settings say which rows a sample has.
type Settings struct {
	Rows     int // wanted, at least 1
	Seed     uint64
	Balanced bool // as many rows of each class
}

// stratum names that of a class.
func (s *Settings) stratum(label string) string {
	if s.Balanced {
		return label
	}
	return ""
}

const (
	top    = 63 // the highest level
	levels = top + 1
)

// When more than most times the rows wanted are held, floors rise: that leaves
// half of them, as many as are enough.
const most = 3

// enough rows of a stratum are those that a floor leaves when it rises: what is
// more than the quota may be retired before rows are missing.
func enough(quota int64) int64 { return (3*quota + 1) / 2 }

// highest is the highest level from which there are enough rows.
func highest(counts *[levels]int64, quota int64) int {
	var sum int64
	for l := top; l > 0; l-- {
		if sum += counts[l]; sum >= enough(quota) {
			return l
		}
	}
	return 0
}

// lower is the highest level below a floor from which 2q+8 of so many rows are
// expected, for a quota q; it is fewer than q less than once in ten thousand times,
// whatever q is.
func lower(floor int, rows, quota int64) int {
	l := 0
	for l < floor-1 && rows>>(l+1) >= 2*quota+8 {
		l++
	}
	return l
}

// A stratum is the live rows that share a quota: those of a class when the
// sample is balanced, and all of them otherwise.
type stratum struct {
	rows   int64         // of blocks with a part
	counts [levels]int64 // the rows held, by level; copies count
	floor  int           // rows of this level and above are to be held
	sure   int           // and from this level on, floor or above, all are
}

func (t *stratum) above(level int) (rows int64) {
	for _, n := range t.counts[level:] {
		rows += n
	}
	return rows
}

// has says whether there are so many rows from the sure level on, or all.
func (t *stratum) has(rows int64) bool { return t.sure == 0 || t.above(t.sure) >= rows }

// lack says what is missing of a live block.
type lack uint8

const (
	unsure lack = iota // nobody has looked whether its part has the rows
	wanted             // its part does not have the rows
	absent             // it has no part, so that not even its totals are known
)

// held is the rows of blocks of equal content, as a part: none is below the floors.
type held struct {
	part   *Part // nil: of none
	copies int32 // blocks
	next   int32 // the place of other rows of such a content, or none
}

const none = -1

// Sample is the rows of the live blocks that a View chooses from.
type Sample struct {
	settings Settings
	live     iter.Seq[string]
	strata   map[string]*stratum // by class, or one by ""
	kept     map[string]int32    // by block, for those that have rows: the place among held
	held     []held
	free     []int32          // places among held
	same     map[stream]int32 // by content: the first place among held
	rows     int              // in memory: copies share theirs
	lacking  map[string]lack
	absent   int      // how many of those are absent
	queue    []string // of those that were unsure
	settled  bool     // nothing has changed since settle
	moved    bool     // floors have changed since publish
	levels   atomic.Pointer[Levels]

	strataOf []*stratum // working memory
	floors   []uint8
}

// New returns an empty sample. live lists the ids of the live blocks; it is
// called when most of them have to be looked at.
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

// Levels is what a Taker has to know now. It may be called from any goroutine.
func (s *Sample) Levels() *Levels { return s.levels.Load() }

func (s *Sample) publish() {
	l := &Levels{settings: s.settings, floors: make(map[string]int, len(s.strata))}
	for name, t := range s.strata {
		l.floors[name] = t.floor
	}
	s.levels.Store(l)
	s.moved = false
}

// quota is the rows wanted of each stratum.
func (s *Sample) quota() int64 {
	return int64(max(1, s.settings.Rows/max(1, len(s.strata))))
}

// of is the strata of the classes. It is valid until the next call.
func (s *Sample) of(labels []string) []*stratum {
	s.strataOf = s.strataOf[:0]
	for _, label := range labels {
		s.strataOf = append(s.strataOf, s.strata[s.settings.stratum(label)])
	}
	return s.strataOf
}

// floorsOf is the floors of the strata. It is valid until the next call.
func (s *Sample) floorsOf(strata []*stratum) []uint8 {
	s.floors = s.floors[:0]
	for _, t := range strata {
		s.floors = append(s.floors, uint8(t.floor))
	}
	return s.floors
}

// count adds the totals of a part, or takes them out.
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

// usable says whether a part was made under this seed.
func (s *Sample) usable(p *Part) bool { return p != nil && p.seed == s.settings.Seed }

// Add takes in a block that has become live. Nil, or a part of another seed:
// there is none, and the block is wanted from the log.
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

// Remove takes out a block that is live no more, with the part that Add or the
// last Offer has had.
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

// found notes that it does not.
func (s *Sample) found(id string) {
	if l, ok := s.lacking[id]; ok {
		delete(s.lacking, id)
		if l == absent {
			s.absent--
		}
	}
}

// hold takes over the rows of a part from the floors on. Where the part does
// not reach down to a floor, that rises if it leaves enough rows, and otherwise
// the block lacks rows: it does not have all.
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
	if s.rows > most*s.settings.Rows {
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

// keep holds the rows of a part for a block; in common with blocks that have the
// same. They are not counted by level.
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

// place is where it is put.
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

// release lets go of the rows of a block, if any are held.
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

// drop takes out one of the copies of the rows.
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

// tally counts the rows by level, or takes them out.
func tally(p *Part, strata []*stratum, sign int64) {
	common := true // to all classes
	for _, t := range strata {
		common = common && t == strata[0]
	}
	for i := range p.pieces {
		r := &p.pieces[i]
		if common && r.low == r.high { // none has to be looked at
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

// rise raises a floor. The rows below it have to be trimmed.
func (s *Sample) rise(t *stratum, level int) {
	t.floor, t.sure = level, max(t.sure, level)
	s.moved = true
}

// trim lets go of the rows below the floors.
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
		if len(stays) == 0 { // of small blocks mostly: no part is made for nothing
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
		case differ: // rows of equal content did, and may no more
			s.drop(at)
			s.keep(id, p)
		}
	}
}

// partial is how many blocks have a part that may lack rows.
func (s *Sample) partial() int { return len(s.lacking) - s.absent }

// reach raises the floors to the levels from which all blocks are sure to have
// their rows, where so many rows are left. Where it is all of them, no block with a
// part lacks rows any more.
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

// settle lowers floors above which there are too few rows, when no more of them
// can be found, and begins to look for those below.
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

// Unsure gives up to limit live blocks of which nobody knows whether their
// parts have the rows that are missing: Offer each its part. They are not given
// again.
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

// Offer gives a live block's part again, the one it has had or a fuller one. A
// block that lacks nothing is left alone.
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
// Add. The error is that of the parts.
func (s *Sample) Restore(parts func(yield func(id string, p *Part)) error) error {
	var short []string // of rows: nearly all are until the floors have risen
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
	// Parts reach down to the floors of their time: those of other settings, or
	// of far fewer blocks, not to the levels that are needed now.
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

// Blocks lists the blocks of which rows are held, each once and in no order. The rows of
// a View taken now are all theirs.
func (s *Sample) Blocks() iter.Seq[string] { return maps.Keys(s.kept) }

// Lacking is the number of live blocks of which rows of the sample may be
// missing; 0 says that the sample is complete.
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

// Wanted lists the blocks that have to be read from the log again, by id:
// Offer each a part taken anew. It is empty while the sample is complete, and
// while there are blocks that are Unsure.
func (s *Sample) Wanted() []string {
	if s.Lacking() == 0 || len(s.queue) > 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(s.lacking))
}
