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
	// ItemKey is the key of the block's item in the tree of receipts, where that takes long to
	// compute; zero: it is not known. No Ledger looks at it.
	ItemKey [sha256.Size]byte

	Withdrawn bool // it keeps its place, but is not live
	Archived  bool // a policy has let it go, and its owner keeps its summary; no Ledger looks at it
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

// Ledger is the set of live blocks, and of the withdrawn ones. Each change of a block takes
// O(log blocks).
type Ledger struct {
	policy          Policy
	live, withdrawn *shelf
	horizon         Rank
}

// shelf is blocks by rank, by position and by id.
type shelf struct {
	entries   *btree.BTreeG[ranked] // by rank
	hint      btree.PathHint        // blocks come roughly in the order of their rank
	places    *btree.BTreeG[placed] // by position
	placeHint btree.PathHint
	longest   int64 // no block has had more offsets after its first one
	byID      map[string]*Entry
	rows      int64
}

func newShelf() *shelf {
	o := btree.Options{NoLocks: true}
	return &shelf{entries: btree.NewBTreeGOptions(less, o), places: btree.NewBTreeGOptions(lessPlaced, o), byID: map[string]*Entry{}}
}

func (s *shelf) insert(e *Entry) {
	s.entries.SetHint(rankedOf(e), &s.hint)
	s.places.SetHint(placedOf(e), &s.placeHint)
	s.note(e)
}

// note notes an entry everywhere but in the trees.
func (s *shelf) note(e *Entry) {
	s.longest = max(s.longest, e.Last-e.Position.Offset)
	s.byID[e.ID] = e
	s.rows += e.Rows
}

func (s *shelf) remove(e *Entry) {
	s.entries.Delete(rankedOf(e))
	s.places.Delete(placedOf(e))
	delete(s.byID, e.ID)
	s.rows -= e.Rows
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

// NewLedger returns an empty ledger. It panics on a policy with a negative limit.
func NewLedger(p Policy) *Ledger {
	if min(int64(p.Blocks), p.Rows, int64(p.Age)) < 0 {
		panic("retire: a negative limit")
	}
	return &Ledger{policy: p, live: newShelf(), withdrawn: newShelf(), horizon: Lowest}
}

// Len is the number of live blocks.
func (l *Ledger) Len() int { return len(l.live.byID) }

// Withdrawn is the number of withdrawn blocks.
func (l *Ledger) Withdrawn() int { return len(l.withdrawn.byID) }

// Rows is the number of live rows.
func (l *Ledger) Rows() int64 { return l.live.rows }

// IDs yields the ids of the live blocks, in ascending rank.
func (l *Ledger) IDs(yield func(id string) bool) {
	l.live.entries.Scan(func(e ranked) bool { return yield(e.ID) })
}

// Newest returns the live block of the highest rank. ok is false when there is none.
func (l *Ledger) Newest() (e Entry, ok bool) {
	newest, ok := l.live.entries.Max()
	if !ok {
		return Entry{}, false
	}
	return *newest.Entry, true
}

// Backward yields the live blocks in descending rank. The ledger must not change meanwhile.
func (l *Ledger) Backward(yield func(Entry) bool) {
	l.live.entries.Reverse(func(e ranked) bool { return yield(*e.Entry) })
}

// Get returns the live block of that id.
func (l *Ledger) Get(id string) (Entry, bool) {
	e, ok := l.live.byID[id]
	if !ok {
		return Entry{}, false
	}
	return *e, true
}

// Find returns the block of that id, be it live or withdrawn.
func (l *Ledger) Find(id string) (Entry, bool) {
	if e, ok := l.withdrawn.byID[id]; ok {
		return *e, true
	}
	return l.Get(id)
}

// admits reports whether the policy would keep a block of that rank if it were the next one.
func (l *Ledger) admits(r Rank) bool { return r.Compare(l.horizon) > 0 }

// Add puts a block into the ledger, live or withdrawn, and returns the blocks that the policy
// retires for it, lowest rank first, which may include the block itself. It panics if the
// ledger has a block of that id: remove that one first.
func (l *Ledger) Add(e Entry) (retired []Entry) {
	if _, ok := l.Find(e.ID); ok {
		panic(fmt.Sprintf("retire: block %s is in the ledger already", e.ID))
	}
	if !l.admits(e.Rank()) {
		return []Entry{e}
	}
	l.shelf(&e).insert(&e)
	if l.policy == (Policy{}) {
		return nil
	}
	return l.enforce()
}

// PutBack puts a block back that Retire has returned, and nothing else happens. The ledger has none
// of that id.
func (l *Ledger) PutBack(e Entry) { l.shelf(&e).insert(&e) }

// Limited reports whether the policy retires blocks at all.
func (l *Ledger) Limited() bool { return l.policy != (Policy{}) }

// shelf is where a block belongs.
func (l *Ledger) shelf(e *Entry) *shelf {
	if e.Withdrawn {
		return l.withdrawn
	}
	return l.live
}

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
	if newest, ok := l.newest(); ok && l.policy.Age > 0 {
		// Everything strictly before the limit goes, whatever its position.
		l.raise(Rank{Milliseconds: newest.Time.Add(-l.policy.Age).UnixMilli()})
	}
	for {
		oldest, ok := l.oldest()
		switch {
		case !ok:
			return retired
		case l.policy.Blocks > 0 && l.Len()+l.Withdrawn() > l.policy.Blocks,
			l.policy.Rows > 0 && l.live.rows+l.withdrawn.rows > l.policy.Rows:
			l.raise(oldest.Rank())
		case !l.admits(oldest.Rank()):
		default:
			return retired
		}
		retired = append(retired, *oldest.Entry)
		l.shelf(oldest.Entry).remove(oldest.Entry)
	}
}

// raise raises the horizon, if it is lower.
func (l *Ledger) raise(to Rank) {
	if l.horizon.Compare(to) < 0 {
		l.horizon = to
	}
}

// oldest is the block of the lowest rank, live or withdrawn.
func (l *Ledger) oldest() (ranked, bool) {
	a, ok := l.live.entries.Min()
	b, also := l.withdrawn.entries.Min()
	if also && (!ok || less(b, a)) {
		return b, true
	}
	return a, ok
}

// newest is the block of the highest rank, live or withdrawn.
func (l *Ledger) newest() (ranked, bool) {
	a, ok := l.live.entries.Max()
	b, also := l.withdrawn.entries.Max()
	if also && (!ok || less(a, b)) {
		return b, true
	}
	return a, ok
}

// Retire is an explicit retirement. It removes a block, live or withdrawn, and recomputes the
// horizon from the others. ok is false if the ledger has no such block.
func (l *Ledger) Retire(id string) (e Entry, ok bool) {
	if e, ok = l.Remove(id); ok {
		l.horizon = Lowest
		l.enforce() // retires nothing: the policy held with one block more
	}
	return e, ok
}

// Remove removes a block, live or withdrawn, and keeps the horizon. It is for a block that is
// replaced by another of its id, or is lost. ok is false if the ledger has no such block.
func (l *Ledger) Remove(id string) (e Entry, ok bool) {
	for _, s := range []*shelf{l.live, l.withdrawn} {
		if p := s.byID[id]; p != nil {
			s.remove(p)
			return *p, true
		}
	}
	return Entry{}, false
}

// SetItemKey sets the ItemKey of a block, live or withdrawn, if the ledger has one of that id.
func (l *Ledger) SetItemKey(id string, key [sha256.Size]byte) {
	for _, s := range []*shelf{l.live, l.withdrawn} {
		if e := s.byID[id]; e != nil {
			e.ItemKey = key
		}
	}
}

// Withdraw withdraws a live block. ok is false if the block is not live.
func (l *Ledger) Withdraw(id string) (ok bool) { return l.move(id, l.live, l.withdrawn) }

// Return makes a withdrawn block live again. ok is false if the block is not withdrawn.
func (l *Ledger) Return(id string) (ok bool) { return l.move(id, l.withdrawn, l.live) }

func (l *Ledger) move(id string, from, to *shelf) bool {
	e := from.byID[id]
	if e == nil {
		return false
	}
	from.remove(e)
	moved := *e // a View may have e
	moved.Withdrawn = to == l.withdrawn
	to.insert(&moved)
	return true
}

// Page returns up to limit live blocks in ascending rank, from the first one
// above the given rank.
func (l *Ledger) Page(above Rank, limit int) []Entry {
	page := make([]Entry, 0, min(limit, l.Len()))
	first := ranked{above.Milliseconds, &Entry{Position: above.Position}}
	l.live.entries.Ascend(first, func(e ranked) bool {
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

// Horizon is the rank at and below which blocks are refused. It must be saved with the
// entries.
func (l *Ledger) Horizon() Rank { return l.horizon }

// Restore puts saved entries and a saved horizon into an empty ledger. It returns the
// entries that the policy, which may have changed, retires.
func (l *Ledger) Restore(entries []Entry, horizon Rank) (retired []Entry, err error) {
	if l.Len()+l.Withdrawn() > 0 {
		panic("retire: restoring into a ledger in use")
	}
	l.live.byID = make(map[string]*Entry, len(entries))
	byRank, byPlace := make([]ranked, 0, len(entries)), make([]placed, 0, len(entries))
	for _, e := range entries {
		if _, twice := l.Find(e.ID); twice {
			return nil, fmt.Errorf("restore the ledger: block %s is there twice", e.ID)
		}
		l.shelf(&e).note(&e)
		byRank, byPlace = append(byRank, rankedOf(&e)), append(byPlace, placedOf(&e))
	}
	// In order they are appended to a tree without a search.
	slices.SortFunc(byRank, compare)
	for _, e := range byRank {
		l.shelf(e.Entry).entries.Load(e)
	}
	slices.SortFunc(byPlace, comparePlaced)
	for _, e := range byPlace {
		l.shelf(e.Entry).places.Load(e)
	}
	l.horizon = horizon
	return l.enforce(), nil
}
