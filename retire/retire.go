// Package retire keeps the ledger of live blocks and decides by policy which
// of them to retire. It knows no matrix: the owner of the sums subtracts the blocks that
// the ledger retires.
//
// # The live set is a function of the blocks seen
//
// A policy ranks blocks by event time, and by position where times are equal,
// never by arrival. It keeps the highest ranks. Its horizon is the rank of the highest
// block that it has evicted. Every block at or below the horizon is retired, and refused
// from then on. The horizon only rises, and it ends up at the same
// block in whatever order the blocks came. So the live set depends
// on the set of blocks seen, not on their order or on the number of partitions.
//
// An explicit retirement (Retire) reverses the block's effect on the horizon, which then
// equals that of a ledger that has seen the live blocks alone. With an age that is the
// newest live time less the age. With another limit there is room again, and nothing is
// refused. Blocks that were retired or refused meanwhile do not come back.
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

func (r Rank) compare(s Rank) int {
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

// Policy determines which blocks stay live. At most one limit is set; the zero Policy
// keeps all.
type Policy struct {
	Blocks int           // keep this many of the last blocks
	Rows   int64         // keep the last blocks that together have at most this many rows
	Age    time.Duration // keep blocks that are at most this much older than the newest event time seen
}

// Ledger is the set of live blocks. Each change of a block takes O(log live blocks).
type Ledger struct {
	policy  Policy
	entries *btree.BTreeG[ranked] // by rank
	hint    btree.PathHint        // blocks come roughly in the order of their rank
	byID    map[string]*Entry
	rows    int64
	horizon Rank
}

// ranked is an entry with the first part of its rank, which mostly decides a comparison.
// A search then need not follow the pointers to the entries.
type ranked struct {
	milliseconds int64
	*Entry
}

func rankedOf(e *Entry) ranked { return ranked{e.Time.UnixMilli(), e} }

// NewLedger returns an empty ledger. It panics on a policy with a negative
// limit or more than one.
func NewLedger(p Policy) *Ledger {
	set := 0
	for _, limit := range []int64{int64(p.Blocks), p.Rows, int64(p.Age)} {
		if limit < 0 {
			panic("retire: a negative limit")
		}
		if limit > 0 {
			set++
		}
	}
	if set > 1 {
		panic("retire: more than one limit")
	}
	return &Ledger{
		policy:  p,
		entries: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true}),
		byID:    map[string]*Entry{},
		horizon: Lowest,
	}
}

// Len is the number of live blocks.
func (l *Ledger) Len() int { return len(l.byID) }

// Rows is the number of live rows.
func (l *Ledger) Rows() int64 { return l.rows }

// IDs yields the ids of the live blocks, in ascending rank.
func (l *Ledger) IDs(yield func(id string) bool) {
	l.entries.Scan(func(e ranked) bool { return yield(e.ID) })
}

// Newest returns the live block of the highest rank. ok is false when there is none.
func (l *Ledger) Newest() (e Entry, ok bool) {
	newest, ok := l.entries.Max()
	if !ok {
		return Entry{}, false
	}
	return *newest.Entry, true
}

// Get returns the live block of that id.
func (l *Ledger) Get(id string) (Entry, bool) {
	e, ok := l.byID[id]
	if !ok {
		return Entry{}, false
	}
	return *e, true
}

// admits reports whether the policy would keep a block of that rank if it were the next one.
func (l *Ledger) admits(r Rank) bool { return r.compare(l.horizon) > 0 }

// Add makes a block live and returns the blocks that the policy retires for it, lowest
// rank first, which may include the block itself. It panics if a block of that id is
// live: remove that one first.
func (l *Ledger) Add(e Entry) (retired []Entry) {
	if _, ok := l.byID[e.ID]; ok {
		panic(fmt.Sprintf("retire: block %s is live already", e.ID))
	}
	if !l.admits(e.Rank()) {
		return []Entry{e}
	}
	l.insert(&e)
	if l.policy == (Policy{}) {
		return nil
	}
	return l.enforce()
}

func (l *Ledger) insert(e *Entry) {
	l.entries.SetHint(rankedOf(e), &l.hint)
	l.byID[e.ID] = e
	l.rows += e.Rows
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
	if newest, ok := l.entries.Max(); ok && l.policy.Age > 0 {
		// Everything strictly before the limit goes, whatever its position.
		limit := Rank{Milliseconds: newest.Time.Add(-l.policy.Age).UnixMilli()}
		if l.horizon.compare(limit) < 0 {
			l.horizon = limit
		}
	}
	for l.Len() > 0 {
		oldest, _ := l.entries.Min()
		switch {
		case l.policy.Blocks > 0 && l.Len() > l.policy.Blocks,
			l.policy.Rows > 0 && l.rows > l.policy.Rows:
			l.horizon = oldest.Rank()
		case !l.admits(oldest.Rank()):
		default:
			return retired
		}
		retired = append(retired, *oldest.Entry)
		l.remove(oldest.Entry)
	}
	return retired
}

// Retire is an explicit retirement. It removes a block and recomputes the horizon from
// the live blocks. ok is false if the block is not live.
func (l *Ledger) Retire(id string) (e Entry, ok bool) {
	if e, ok = l.Remove(id); ok {
		l.horizon = Lowest
		l.enforce() // retires nothing: the policy held with one block more
	}
	return e, ok
}

// Remove removes a block from the ledger and keeps the horizon. It is for a block that is
// replaced by another of its id, or is lost. ok is false if the block is not live.
func (l *Ledger) Remove(id string) (e Entry, ok bool) {
	p, ok := l.byID[id]
	if !ok {
		return Entry{}, false
	}
	l.remove(p)
	return *p, true
}

func (l *Ledger) remove(e *Entry) {
	l.entries.Delete(rankedOf(e))
	delete(l.byID, e.ID)
	l.rows -= e.Rows
}

// Page returns up to limit live blocks in ascending rank, from the first one
// above the given rank.
func (l *Ledger) Page(above Rank, limit int) []Entry {
	page := make([]Entry, 0, min(limit, l.Len()))
	first := ranked{above.Milliseconds, &Entry{Position: above.Position}}
	l.entries.Ascend(first, func(e ranked) bool {
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
	if l.Len() > 0 {
		panic("retire: restoring into a ledger in use")
	}
	l.byID = make(map[string]*Entry, len(entries))
	byRank := make([]ranked, 0, len(entries))
	for _, e := range entries {
		if _, twice := l.byID[e.ID]; twice {
			return nil, fmt.Errorf("restore the ledger: block %s is there twice", e.ID)
		}
		l.byID[e.ID] = &e
		l.rows += e.Rows
		byRank = append(byRank, rankedOf(&e))
	}
	// In rank order they are appended to the tree without a search.
	slices.SortFunc(byRank, compare)
	for _, e := range byRank {
		l.entries.Load(e)
	}
	l.horizon = horizon
	return l.enforce(), nil
}
