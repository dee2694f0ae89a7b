// Package sample keeps rows: a sample of the rows of all live blocks, for what
// cannot be read off sums (refinement, calibration, the choice of a basis).
//
// # The law
//
// Every row has a hash of 64 bits, of the seed, its block's content digest
// (incremental.Summary.Digest) and its index among the block's rows of weight
// greater than 0:
//
//	key = mix(digest[0:8] ^ mix(seed))     hash = mix(key + (index+1)·φ)
//
// which is SplitMix64 (Steele, Lea and Flood 2014) with its stream named by the
// content. The sample is the live rows of least hash, Settings.Rows of them; of
// each class as many, Rows/k of the k live classes, when Balanced. That is a
// uniform sample without replacement (a bottom-k sketch; Cohen and Kaplan 2007),
// and a function of the live set alone: not of topics, partitions, arrival or
// what came and went. A fixed threshold that is halved when too many rows are
// below it would be such a function too, but its size jumps between half and
// all of what is asked for, and the classes of a balanced sample with it.
//
// A hash has the level l when it begins with l zero bits. Of each block a Part
// is kept: how many rows each of its classes has at each level, and all the rows
// from some level on, with exact numbers. The counts of all live parts tell,
// whatever has been retired, down to which level the sample reaches, and so
// whether the parts have every row of it.
//
// Rows of equal blocks have equal hashes: two copies of a block are in the
// sample together, each row as often as it is live. Where a hash is so frequent
// that no level has between Rows and 3·Rows rows above it, the sample stops at
// the level above, and is smaller than Rows. Blocks of one row each with few
// different values are therefore a poor thing to sample; gathered into larger
// blocks their rows have hashes of their own.
//
// # Growing again
//
// A Sample holds the rows from a level on that rises when there are too many,
// and that workers read when they take the part of a new block (Levels). So
// that it need not be lowered for each block that is retired, it holds up to
// 4·Rows rows and at least 1.5·Rows when the level changes: only when the live
// rows have shrunk by a third or more does the sample need rows that are not
// held. Then the parts of all live blocks are offered again (Unsure, Offer), and
// those that do not have the rows either are Wanted: their blocks have to be
// read from the log again. Until then a View is not Complete: it is a uniform
// sample of the rows of the blocks that have a part, and smaller. The level held
// depends on history; a complete View does not.
//
// # Exactness and memory
//
// The numbers of a row are kept as float32 where that loses nothing for any row
// of its block's part, and as float64 elsewhere; a column of a View is float32
// when all its numbers are. A Sample of n features takes up to 4·Rows rows of
// 4n bytes (8n), 200 bytes per block that has a row in it, and nothing for other
// blocks: their parts are in the snapshot.
//
// # Cost
//
// Taking the part of a block of m rows: O(m), about 5 ns per row, and O(n) per
// row kept. Add, Remove and Offer: O(k), and amortised O(1) per row held.
// Restore: O(n) per row of a part, and some microseconds per block. Snapshot:
// O(blocks with rows in the sample). View: O(R·(log R + n)) for R rows held, in
// the caller's goroutine.
//
// # Concurrency and ownership
//
// A Sample belongs to one goroutine, but Levels may be called from any. Parts,
// Snapshots and Views are immutable and may be shared. A Taker belongs to one
// goroutine at a time. Nothing keeps a reference to a Block.
//
// # Errors and panics
//
// DecodePart refuses what no Taker has made, with ErrEncoding. Removing a block
// that is not there is a bug of the caller and panics.
package sample

import (
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
)

// Settings say which rows a sample has.
type Settings struct {
	Rows     int // wanted, at least 1
	Seed     uint64
	Balanced bool // as many rows of each class
}

// Rows held, in terms of the rows wanted: when more than most are held the
// level rises until at most enough are. Between 1 and enough lies what may be
// retired before rows are missing; between enough and most what comes before
// the rows held are gone through again.
const (
	enough = 3
	most   = 4
)

const (
	levels = 64
	none   = levels // the level that no row has
)

// A stratum is the live rows that share a quota: those of a class when the
// sample is balanced, and all of them otherwise.
type stratum struct {
	counts [levels]int64 // rows of each level, of blocks with a part
	rows   int64         // their sum
	keep   int           // rows of this level and above are held
	above  int64         // how many those are
	sure   int           // from this level on the rows of all partial blocks are held
}

// least is the lowest level from which there are at most so many rows.
func least(counts []int64, rows int64) int {
	var sum int64
	for l := len(counts) - 1; l >= 0; l-- {
		if sum += counts[l]; sum > rows {
			return l + 1
		}
	}
	return 0
}

// need is the level down to which the sample reaches.
func (s *stratum) need(quota int64) int {
	var sum int64
	for l := levels - 1; l >= 0; l-- {
		if sum += s.counts[l]; sum < quota {
			continue
		}
		if sum > enough*quota {
			return l + 1
		}
		return l
	}
	return 0
}

func (s *stratum) setKeep(level int) {
	s.keep, s.above = level, 0
	for _, c := range s.counts[level:] {
		s.above += c
	}
}

// lack says what is missing of a live block.
type lack uint8

const (
	unsure lack = iota // nobody has looked whether its part has the rows
	wanted             // its part does not have the rows
	absent             // it has no part, so that not even its counts are known
)

// Sample is the rows of the live blocks that a View chooses from.
type Sample struct {
	settings Settings
	live     iter.Seq[string]
	strata   map[string]*stratum // by class, or one by ""
	held     int64               // Σ above
	kept     map[string]*kept    // by block, for those that have any
	lacking  map[string]lack
	absent   int      // how many of those are absent
	queue    []string // of those that were unsure
	settled  bool
	levels   atomic.Pointer[Levels]
}

// New returns an empty sample. live lists the ids of the live blocks; it is
// called when most of them have to be looked at.
func New(s Settings, live iter.Seq[string]) *Sample {
	if s.Rows < 1 {
		panic(fmt.Sprintf("sample: %d rows", s.Rows))
	}
	out := &Sample{
		settings: s, live: live,
		strata: map[string]*stratum{}, kept: map[string]*kept{}, lacking: map[string]lack{}, settled: true,
	}
	out.publish()
	return out
}

// Levels is what a Taker has to know now. It may be called from any goroutine.
func (s *Sample) Levels() *Levels { return s.levels.Load() }

func (s *Sample) publish() {
	l := &Levels{settings: s.settings}
	if s.settings.Balanced {
		l.of = make(map[string]int, len(s.strata))
		for label, t := range s.strata {
			l.of[label] = t.keep
		}
	} else if t := s.strata[""]; t != nil {
		l.common = t.keep
	}
	s.levels.Store(l)
}

// quota is the rows wanted of each stratum.
func (s *Sample) quota() int64 {
	return int64(max(1, s.settings.Rows/max(1, len(s.strata))))
}

func (s *Sample) name(label string) string {
	if s.settings.Balanced {
		return label
	}
	return ""
}

// count adds the counts of a part, or takes them out.
func (s *Sample) count(p *Part, sign int64) {
	for _, c := range p.classes {
		name := s.name(c.label)
		t := s.strata[name]
		if t == nil {
			t = &stratum{}
			s.strata[name] = t
			s.settled = false // the quotas have changed
		}
		for l, n := range c.counts {
			n := sign * int64(n)
			t.counts[l] += n
			t.rows += n
			if l >= t.keep {
				t.above += n
				s.held += n
			}
			if t.counts[l] < 0 {
				panic("sample: a part was removed that was not in the sample")
			}
		}
		if t.rows == 0 {
			delete(s.strata, name)
			s.settled = false
		}
	}
}

// usable says whether a part was made under this seed.
func (s *Sample) usable(p *Part) bool { return p != nil && p.seed == s.settings.Seed }

// Add takes in a block that has become live. Nil, or a part of another seed:
// there is none, and the block is wanted from the log.
func (s *Sample) Add(id string, p *Part) {
	if !s.usable(p) {
		s.lack(id, absent)
		return
	}
	s.count(p, 1)
	s.rise()
	s.hold(id, p)
}

// Remove takes out a block that is live no more, with the part that Add or the
// last Offer has had.
func (s *Sample) Remove(id string, p *Part) {
	was, ok := s.lacking[id]
	s.found(id)
	if ok && was == absent {
		return
	}
	if !s.usable(p) {
		panic(fmt.Sprintf("sample: block %s is removed without its part", id))
	}
	delete(s.kept, id)
	s.count(p, -1)
	s.settled = false
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

// hold takes over the rows of a part from the levels that are held.
func (s *Sample) hold(id string, p *Part) {
	level := make([]int, len(p.classes))
	for c, from := range p.from() {
		t := s.strata[s.name(p.classes[c].label)]
		level[c] = t.keep
		if from > t.keep {
			t.sure = max(t.sure, from)
			s.lack(id, wanted)
		}
	}
	if k := p.keep(level); k != nil {
		s.kept[id] = k
	}
}

// rise lets go of rows when there are too many.
func (s *Sample) rise() {
	if s.held <= most*int64(s.settings.Rows) {
		return
	}
	limit := enough * s.quota()
	risen := false
	for _, t := range s.strata {
		if l := least(t.counts[:], limit); l > t.keep {
			s.held -= t.above
			t.setKeep(l)
			s.held += t.above
			risen = true
		}
	}
	if risen {
		s.trim()
		s.publish()
	}
}

// trim lets go of the rows below the levels that are held.
func (s *Sample) trim() {
	var level []int
	for id, k := range s.kept {
		level = level[:0]
		for _, label := range k.labels {
			level = append(level, s.strata[s.name(label)].keep)
		}
		if k = k.above(level); k == nil {
			delete(s.kept, id)
		} else {
			s.kept[id] = k
		}
	}
}

// settle finds out whether blocks that have gone have left a sample whose rows
// are not all held, and begins to look for them if so.
func (s *Sample) settle() {
	if s.settled {
		return
	}
	s.settled = true
	s.certain()
	quota := s.quota()
	lowered := false
	for _, t := range s.strata {
		if t.need(quota) >= t.keep {
			continue
		}
		t.sure = max(t.sure, t.keep)
		s.held -= t.above
		t.setKeep(least(t.counts[:], enough*quota))
		s.held += t.above
		lowered = true
	}
	if lowered {
		s.doubt()
	}
	s.publish()
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

// certain forgets what the last partial block was sure to have.
func (s *Sample) certain() {
	if len(s.lacking) > s.absent {
		return
	}
	for _, t := range s.strata {
		t.sure = 0
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
	s.found(id)
	if was == absent {
		s.count(p, 1)
	}
	delete(s.kept, id)
	s.rise()
	s.hold(id, p)
	s.certain()
}

// Restore fills an empty sample with the parts of live blocks; a live block
// that is not among them has none. The error is that of the parts.
func (s *Sample) Restore(parts func(yield func(id string, p *Part)) error) error {
	with := map[string]struct{}{}
	from := map[string]int{} // the highest level from which a part has all rows of a stratum
	err := parts(func(id string, p *Part) {
		if !s.usable(p) {
			return
		}
		with[id] = struct{}{}
		s.count(p, 1)
		for c, level := range p.from() {
			name := s.name(p.classes[c].label)
			from[name] = max(from[name], level)
		}
		s.rise()
		s.hold(id, p)
	})
	if err != nil {
		return err
	}
	clear(s.lacking) // hold knew the level of the moment only
	quota := s.quota()
	partial := false
	for name, t := range s.strata {
		t.sure = 0
		level := max(t.keep, least(t.counts[:], enough*quota))
		if need := t.need(quota); from[name] <= need {
			level = max(level, from[name])
		} else {
			t.sure = from[name]
			partial = true
		}
		s.held -= t.above
		t.setKeep(level)
		s.held += t.above
	}
	s.trim()
	for id := range s.live {
		if _, ok := with[id]; !ok {
			s.lack(id, absent)
		}
	}
	if partial {
		s.doubt()
	}
	s.settled = false
	s.settle()
	return nil
}

// Lacking is the number of live blocks of which rows of the sample may be
// missing; 0 says that the sample is complete.
func (s *Sample) Lacking() int {
	s.settle()
	if s.absent > 0 {
		return len(s.lacking)
	}
	quota := s.quota()
	for _, t := range s.strata {
		if len(s.lacking) > 0 && t.sure > t.need(quota) {
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
	out := make([]string, 0, len(s.lacking))
	for id := range s.lacking {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}
