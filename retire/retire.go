// Package retire keeps the ledger of live blocks and decides by policy which
// of them to retire. It knows no matrix: the owner of the sums subtracts the blocks that
// the ledger retires.
//
// # The live set is a function of the blocks seen
//
// A policy ranks blocks by event time, and by position where times are equal, never by arrival.
// It keeps the highest ranks. Of several limits the narrowest decides: each keeps the blocks above
// some rank, and together they keep those above all of these. Its horizon is the rank of the
// highest block that it has evicted. Every block at or below the horizon is retired, and refused
// from then on. The horizon only rises, and it ends up at the same block in whatever order the
// blocks came. So the live set depends on the set of blocks seen, not on their order or on the
// number of partitions.
//
// An explicit retirement (Retire) reverses the block's effect on the horizon, which then
// equals that of a ledger that has seen the live blocks alone. With an age that is the
// newest live time less the age. With another limit there is room again, and nothing is
// refused. Blocks that were retired or refused meanwhile do not come back.
//
// # Withdrawn blocks
//
// A withdrawal (Withdrawals) is a selection that stays in force until it is taken back. A
// block that one of them chooses is withdrawn: it is not live, but it keeps its place in the
// ledger. The policy ranks and counts it like a live one. So the blocks of the ledger and
// its horizon are those that they would be without any withdrawal, and the live set is the
// ledger's blocks less those that a withdrawal chooses:
//
//	live = { b ∈ policy(blocks seen) : no withdrawal in force chooses b }
//
// It does not depend on whether a withdrawal came before a block or after it, nor on
// withdrawals that have been taken back. A block that evicted others does not bring them back
// when it is withdrawn. They may be gone from the log, and which of them are would then
// decide about the live set. A withdrawn block that no withdrawal chooses any more has its
// place, and its owner reads its rows again (Return).
//
// # The past
//
// An owner may keep the blocks that the policy retires or refuses, as an archive: a second
// Ledger, to which it adds them, and from which it retires what somebody asks it to forget.
// The two ledgers together have the blocks seen, less those that were retired or replaced:
//
//	past = { b ∈ blocks seen : not retired, and no withdrawal in force chooses b }
//
// So the past is that of a ledger that keeps all, in whatever order the blocks came, and
// wherever the horizon was. An explicit retirement that lowers the horizon makes room for new
// blocks. Archived ones stay where they are: the live set would otherwise depend on whether
// there is an archive. An archive of a limited number of blocks has those of the highest ranks
// among all that were let go.
//
// # Event times
//
// A record counts by its event time, capped at some time after the Clock of its
// partition. So a time in the far future does not retire the blocks of today.
//
// A Ledger is not safe for concurrent use.
package retire

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tidwall/btree"

	"streamd/incremental"
)

// Entry is a block in the ledger.
type Entry struct {
	ID       string
	Position incremental.Position // of its first record
	Last     int64                // offset of its last record
	Time     time.Time            // event time
	Rows     int64                // rows of weight > 0
	Header   HeaderHash           // of the header that retirements may name
	Carrier  Carrier              // of a block whose rows were summed elsewhere
	// ItemKey is the key of the block's item in the tree of receipts, where that takes long to
	// compute; zero: it is not known. No Ledger looks at it.
	ItemKey [sha256.Size]byte

	Withdrawn bool // it keeps its place, but is not live
	Archived  bool // a policy has let it go, and its owner keeps its summary; no Ledger looks at it
}

// Carrier is the record that brought the sums of a block. It lies in the log that the owner of the
// ledger reads, while the block's position is that of its rows, in a log of their own. The zero
// Carrier is that of a block whose rows were read.
type Carrier struct {
	Sums      bool
	Partition int32
	Offset    int64
}

// IsBefore reports whether two blocks came as sums of records of one partition, e of earlier ones:
// an older value of a key, or a block of several records that has grown since.
func (e *Entry) IsBefore(other *Entry) bool {
	a, b := &e.Position, &other.Position
	return e.Carrier.Sums && other.Carrier.Sums && a.Topic == b.Topic && a.Partition == b.Partition &&
		(a.Offset < b.Offset || a.Offset == b.Offset && e.Last < other.Last)
}

// Records are where the owner's log has the block: its rows, or the record of its sums.
func (e *Entry) Records() (partition int, first, last int64) {
	if c := e.Carrier; c.Sums {
		return int(c.Partition), c.Offset, c.Offset
	}
	return e.Position.Partition, e.Position.Offset, e.Last
}

// Rank is the order in which a policy retires blocks: by event time, to the
// millisecond, then by position.
type Rank struct {
	Milliseconds int64 // since 1970, UTC
	Position     incremental.Position
}

// Lowest is a rank below that of every block.
var Lowest = Rank{Milliseconds: math.MinInt64}

// Rank is the entry's place in the order.
func (e *Entry) Rank() Rank {
	return Rank{Milliseconds: e.Time.UnixMilli(), Position: e.Position}
}

// Compare orders ranks.
func (r Rank) Compare(s Rank) int {
	if r.Milliseconds != s.Milliseconds {
		return cmp.Compare(r.Milliseconds, s.Milliseconds)
	}
	return comparePositions(&r.Position, &s.Position)
}

func comparePositions(p, q *incremental.Position) int {
	return cmp.Or(
		cmp.Compare(p.Topic, q.Topic),
		cmp.Compare(p.Partition, q.Partition),
		cmp.Compare(p.Offset, q.Offset),
	)
}

// Policy determines which blocks stay live. Limits that are not zero hold together, so the
// zero Policy keeps all.
type Policy struct {
	Blocks int           // keep this many of the last blocks
	Rows   int64         // keep the last blocks that together have at most this many rows
	Age    time.Duration // keep blocks that are at most this much older than the newest event time seen
}

// Ledger is the set of all blocks that have a place: the live ones, those that an archive keeps
// after the policy has let them go, and of both the withdrawn ones. An entry says which it is, and
// an id is that of one block. Each change of a block takes O(log blocks).
type Ledger struct {
	policy  Policy
	archive int // blocks that the archive keeps; 0: there is none
	places
	horizon Rank
}

// places are the blocks of a Ledger, or of a View.
type places struct {
	byID    map[string]*Entry
	shelves [states]*shelf
	sums    map[string]int // number of blocks that came as sums, by the topic of their rows; not of a View
}

// state is what a block of a ledger is.
type state int

const (
	live state = iota
	withdrawn
	archived
	archivedWithdrawn
	states
)

func stateOf(e *Entry) (s state) {
	if e.Withdrawn {
		s = withdrawn
	}
	if e.Archived {
		s += archived
	}
	return s
}

// shelf is the blocks of one state by rank and by position.
type shelf struct {
	entries   *btree.BTreeG[ranked] // by rank
	hint      btree.PathHint        // blocks come roughly in the order of their rank
	places    *btree.BTreeG[placed] // by position
	placeHint btree.PathHint
	longest   int64 // no block has had more offsets after its first one
	rows      int64
}

func newShelf() *shelf {
	o := btree.Options{NoLocks: true}
	return &shelf{entries: btree.NewBTreeGOptions(less, o), places: btree.NewBTreeGOptions(lessPlaced, o)}
}

// note notes an entry everywhere but in the trees.
func (p *places) note(e *Entry) (s *shelf) {
	p.byID[e.ID] = e
	if e.Carrier.Sums {
		p.sums[e.Position.Topic]++
	}
	s = p.shelves[stateOf(e)]
	s.longest = max(s.longest, e.Last-e.Position.Offset)
	s.rows += e.Rows
	return s
}

func (p *places) insert(e *Entry) {
	s := p.note(e)
	s.entries.SetHint(rankedOf(e), &s.hint)
	s.places.SetHint(placedOf(e), &s.placeHint)
}

func (p *places) remove(e *Entry) {
	s := p.shelves[stateOf(e)]
	s.entries.Delete(rankedOf(e))
	s.places.Delete(placedOf(e))
	s.rows -= e.Rows
	delete(p.byID, e.ID)
	if e.Carrier.Sums {
		if p.sums[e.Position.Topic]--; p.sums[e.Position.Topic] == 0 {
			delete(p.sums, e.Position.Topic)
		}
	}
}

// HasSums reports whether a block of any state came as sums.
func (l *Ledger) HasSums() bool { return len(l.sums) > 0 }

// HasSumsOf reports whether a block of any state came as sums of rows in a topic.
func (l *Ledger) HasSumsOf(topic string) bool { return l.sums[topic] > 0 }

// count is the number of blocks of these states.
func (p *places) count(of ...state) (n int) {
	for _, s := range of {
		n += p.shelves[s].entries.Len()
	}
	return n
}

// oldest is the block of these states with the lowest rank.
func (p *places) oldest(of ...state) (oldest ranked, ok bool) {
	for _, s := range of {
		if e, some := p.shelves[s].entries.Min(); some && (!ok || less(e, oldest)) {
			oldest, ok = e, true
		}
	}
	return oldest, ok
}

// newest is the block of these states with the highest rank.
func (p *places) newest(of ...state) (newest ranked, ok bool) {
	for _, s := range of {
		if e, some := p.shelves[s].entries.Max(); some && (!ok || less(newest, e)) {
			newest, ok = e, true
		}
	}
	return newest, ok
}

// ranked is an entry with the first part of its rank, which mostly decides a comparison.
// A search then need not follow the pointers to the entries.
type ranked struct {
	milliseconds int64
	*Entry
}

func rankedOf(e *Entry) ranked { return ranked{e.Time.UnixMilli(), e} }

// placed is an entry with the parts of its position that mostly decide a comparison.
type placed struct {
	partition int
	offset    int64
	*Entry
}

func placedOf(e *Entry) placed { return placed{e.Position.Partition, e.Position.Offset, e} }

// comparePlaced orders entries by partition and offset. Different blocks always compare as
// different.
func comparePlaced(a, b placed) int {
	if a.partition != b.partition {
		return cmp.Compare(a.partition, b.partition)
	}
	if a.offset != b.offset {
		return cmp.Compare(a.offset, b.offset)
	}
	return cmp.Or(cmp.Compare(a.Position.Topic, b.Position.Topic), cmp.Compare(a.ID, b.ID))
}

func lessPlaced(a, b placed) bool { return comparePlaced(a, b) < 0 }

// NewLedger returns an empty ledger without an archive. It panics on a policy with a negative
// limit.
func NewLedger(p Policy) *Ledger {
	if min(int64(p.Blocks), p.Rows, int64(p.Age)) < 0 {
		panic("retire: a negative limit")
	}
	l := &Ledger{policy: p, horizon: Lowest, places: places{byID: map[string]*Entry{}, sums: map[string]int{}}}
	for i := range l.shelves {
		l.shelves[i] = newShelf()
	}
	return l
}

// KeepArchive has the ledger keep up to so many archived blocks from now on, one at least.
func (l *Ledger) KeepArchive(most int) { l.archive = max(1, most) }

// HasArchive reports whether there is an archive.
func (l *Ledger) HasArchive() bool { return l.archive > 0 }

// Len is the number of live blocks.
func (l *Ledger) Len() int { return l.count(live) }

// Archived is the number of archived blocks, without the withdrawn ones.
func (l *Ledger) Archived() int { return l.count(archived) }

// Withdrawn is the number of withdrawn blocks, archived ones included.
func (l *Ledger) Withdrawn() int { return l.count(withdrawn, archivedWithdrawn) }

// Places is the number of all blocks.
func (l *Ledger) Places() int { return len(l.byID) }

// Rows is the number of live rows.
func (l *Ledger) Rows() int64 { return l.shelves[live].rows }

// IDs yields the ids of the live blocks, in ascending rank.
func (l *Ledger) IDs(yield func(id string) bool) {
	l.shelves[live].entries.Scan(func(e ranked) bool { return yield(e.ID) })
}

// All yields all blocks: those of one state after those of another, each in ascending rank. The
// ledger must not change meanwhile.
func (l *Ledger) All(yield func(Entry) bool) {
	for _, s := range l.shelves {
		for e := range s.entries.Scan {
			if !yield(*e.Entry) {
				return
			}
		}
	}
}

// Newest returns the live block of the highest rank. ok is false when there is none.
func (l *Ledger) Newest() (e Entry, ok bool) {
	newest, ok := l.newest(live)
	if !ok {
		return Entry{}, false
	}
	return *newest.Entry, true
}

// Backward yields the live blocks in descending rank. The ledger must not change meanwhile.
func (l *Ledger) Backward(yield func(Entry) bool) {
	l.shelves[live].entries.Reverse(func(e ranked) bool { return yield(*e.Entry) })
}

// Get returns the live block of that id.
func (l *Ledger) Get(id string) (Entry, bool) {
	if e, ok := l.byID[id]; ok && stateOf(e) == live {
		return *e, true
	}
	return Entry{}, false
}

// Find returns the block of that id, whatever its state.
func (l *Ledger) Find(id string) (Entry, bool) {
	if e, ok := l.byID[id]; ok {
		return *e, true
	}
	return Entry{}, false
}

// admits reports whether the policy would keep a block of that rank if it were the next one.
func (l *Ledger) admits(r Rank) bool { return r.Compare(l.horizon) > 0 }

// Add puts a block into the ledger. It returns the blocks that leave for it, lowest rank first,
// which may include the block itself: those that the policy retires, or for an archived block those
// that the archive has no place for. It panics if the ledger has a block of that id: remove that
// one first.
func (l *Ledger) Add(e Entry) (out []Entry) {
	if _, ok := l.byID[e.ID]; ok {
		panic(fmt.Sprintf("retire: block %s is in the ledger already", e.ID))
	}
	if !e.Archived && !l.admits(e.Rank()) {
		return []Entry{e}
	}
	l.insert(&e)
	if e.Archived {
		return l.overflow()
	}
	return l.enforce()
}

// PutBack puts a block back that Retire has returned, and nothing else happens. The ledger has none
// of that id.
func (l *Ledger) PutBack(e Entry) { l.insert(&e) }

// Limited reports whether the policy retires blocks at all.
func (l *Ledger) Limited() bool { return l.policy != (Policy{}) }

// compare orders entries by rank. Different blocks always compare as different.
func compare(a, b ranked) int {
	if a.milliseconds != b.milliseconds {
		return cmp.Compare(a.milliseconds, b.milliseconds)
	}
	return cmp.Or(comparePositions(&a.Position, &b.Position), cmp.Compare(a.ID, b.ID))
}

func less(a, b ranked) bool { return compare(a, b) < 0 }

// enforce retires the lowest ranks until the policy holds.
func (l *Ledger) enforce() (retired []Entry) {
	if !l.Limited() {
		return nil
	}
	if newest, ok := l.newest(live, withdrawn); ok && l.policy.Age > 0 {
		// Everything strictly before the limit goes, whatever its position.
		l.raise(Rank{Milliseconds: newest.Time.Add(-l.policy.Age).UnixMilli()})
	}
	for {
		oldest, ok := l.oldest(live, withdrawn)
		switch {
		case !ok:
			return retired
		case l.policy.Blocks > 0 && l.count(live, withdrawn) > l.policy.Blocks,
			l.policy.Rows > 0 && l.shelves[live].rows+l.shelves[withdrawn].rows > l.policy.Rows:
			l.raise(oldest.Rank())
		case !l.admits(oldest.Rank()):
		default:
			return retired
		}
		retired = append(retired, *oldest.Entry)
		l.remove(oldest.Entry)
	}
}

// overflow drops the lowest ranks of the archive until it is not too full.
func (l *Ledger) overflow() (dropped []Entry) {
	for l.count(archived, archivedWithdrawn) > l.archive {
		oldest, _ := l.oldest(archived, archivedWithdrawn)
		dropped = append(dropped, *oldest.Entry)
		l.remove(oldest.Entry)
	}
	return dropped
}

// raise raises the horizon, if it is lower.
func (l *Ledger) raise(to Rank) {
	if l.horizon.Compare(to) < 0 {
		l.horizon = to
	}
}

// Retire is an explicit retirement. It removes a block and recomputes the horizon from the others.
// ok is false if the ledger has no such block.
func (l *Ledger) Retire(id string) (e Entry, ok bool) {
	if e, ok = l.Remove(id); ok && !e.Archived {
		l.horizon = Lowest
		l.enforce() // retires nothing: the policy held with one block more
	}
	return e, ok
}

// Remove removes a block and keeps the horizon. It is for a block that is replaced by another of
// its id, or is lost. ok is false if the ledger has no such block.
func (l *Ledger) Remove(id string) (e Entry, ok bool) {
	p := l.byID[id]
	if p == nil {
		return Entry{}, false
	}
	l.remove(p)
	return *p, true
}

// SetItemKey sets the ItemKey of a block, if the ledger has one of that id.
func (l *Ledger) SetItemKey(id string, key [sha256.Size]byte) {
	if e := l.byID[id]; e != nil {
		e.ItemKey = key
	}
}

// Withdraw withdraws a live or an archived block. ok is false if there is none of that id.
func (l *Ledger) Withdraw(id string) (ok bool) { return l.withdraw(id, true) }

// Return makes a withdrawn block live or archived again. ok is false if none of that id is
// withdrawn.
func (l *Ledger) Return(id string) (ok bool) { return l.withdraw(id, false) }

func (l *Ledger) withdraw(id string, to bool) (ok bool) {
	e := l.byID[id]
	if e == nil || e.Withdrawn == to {
		return false
	}
	l.remove(e)
	moved := *e // a View may have e
	moved.Withdrawn = to
	l.insert(&moved)
	return true
}

// Page returns up to limit live blocks in ascending rank, from the first one
// above the given rank.
func (l *Ledger) Page(above Rank, limit int) []Entry { return l.page(live, above, limit) }

// PageArchived is Page of the archived blocks, without the withdrawn ones.
func (l *Ledger) PageArchived(above Rank, limit int) []Entry { return l.page(archived, above, limit) }

// PagePast is Page of the live blocks and the archived ones together.
func (l *Ledger) PagePast(above Rank, limit int) []Entry {
	page := l.page(live, above, limit)
	if l.count(archived) == 0 {
		return page
	}
	page = append(page, l.page(archived, above, limit)...)
	slices.SortStableFunc(page, byRank)
	return page[:min(limit, len(page))]
}

func (l *Ledger) page(of state, above Rank, limit int) []Entry {
	entries := l.shelves[of].entries
	page := make([]Entry, 0, min(limit, entries.Len()))
	first := ranked{above.Milliseconds, &Entry{Position: above.Position}}
	entries.Ascend(first, func(e ranked) bool {
		if len(page) == limit {
			return false
		}
		if e.Rank() != above {
			page = append(page, *e.Entry)
		}
		return true
	})
	return page
}

// Span returns the first block above a rank and the last one of all, live or archived and not
// withdrawn. ok is false if there is none above the rank.
func (l *Ledger) Span(above Rank) (first, last Entry, ok bool) {
	page := l.PagePast(above, 1)
	if len(page) == 0 {
		return first, last, false
	}
	newest, _ := l.newest(live, archived)
	return page[0], *newest.Entry, true
}

func byRank(a, b Entry) int { return a.Rank().Compare(b.Rank()) }

// Horizon is the rank at and below which blocks are refused. It must be saved with the
// entries.
func (l *Ledger) Horizon() Rank { return l.horizon }

// Restore puts lists of saved entries and a saved horizon into an empty ledger. It returns the
// entries that leave: those that the policy, which may have changed, retires, and archived ones
// that the archive has no place for.
func (l *Ledger) Restore(horizon Rank, lists ...[]Entry) (out []Entry, err error) {
	if l.Places() > 0 {
		panic("retire: restoring into a ledger in use")
	}
	n := 0
	for _, entries := range lists {
		n += len(entries)
	}
	l.byID = make(map[string]*Entry, n)
	ranks, positions := make([]ranked, 0, n), make([]placed, 0, n)
	for _, entries := range lists {
		for _, e := range entries {
			if l.note(&e); len(l.byID) == len(ranks) { // not one more
				return nil, fmt.Errorf("restore the ledger: block %s is there twice", e.ID)
			}
			ranks, positions = append(ranks, rankedOf(&e)), append(positions, placedOf(&e))
		}
	}
	// In order they are appended to a tree without a search.
	slices.SortFunc(ranks, compare)
	for _, e := range ranks {
		l.shelves[stateOf(e.Entry)].entries.Load(e)
	}
	slices.SortFunc(positions, comparePlaced)
	for _, e := range positions {
		l.shelves[stateOf(e.Entry)].places.Load(e)
	}
	l.horizon = horizon
	return append(l.enforce(), l.overflow()...), nil
}
