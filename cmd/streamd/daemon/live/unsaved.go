package live

import (
	"crypto/sha256"
	"maps"
	"math"
	"slices"
	"time"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// unsaved is the changes that the snapshot lacks.
type unsaved struct {
	put   backlog[*snapshot.Block] // live blocks
	parts backlog[*sample.Part]    // of live blocks, where they are others than put and the file have
	gone  backlog[struct{}]        // blocks that are no longer live and that the file may have
	moved bool                     // the file has other spaces

	withdrawn backlog[retire.Entry] // withdrawn blocks; none is in put or gone
	withdrew  int                   // blocks that were live and have been withdrawn

	archived backlog[snapshot.Archived] // archived blocks; none is in put, withdrawn or gone

	rekeyed backlog[receipt.Hash] // keys of items that the entries in the file lack

	pages int // bytes per block that the last save wrote

	retired     int       // explicit retirements
	forgotten   int       // rows that were deleted while they waited for their labels
	staleBases  int       // dropped bases with rows of retired blocks
	uncompacted time.Time // the oldest of these since the last compaction; zero: none
}

// leaveRemains notes that free pages of the file contain, or will contain, something of a
// retired block.
func (l *Set) leaveRemains() {
	if l.uncompacted.IsZero() {
		l.uncompacted = time.Now()
	}
}

// RowForgotten notes that a row was deleted that has waited for its label, and is in no block.
func (l *Set) RowForgotten() {
	l.forgotten++
	l.leaveRemains()
}

// Uncompacted is the time of the oldest retirement that may have left remains in the
// file. It is zero if there is none.
func (l *Set) Uncompacted() time.Time { return l.uncompacted }

// Compacting notes that a compaction begins. Retirements that are not saved yet leave their
// remains with the next save.
func (l *Set) Compacting(now time.Time) {
	if l.uncompacted = (time.Time{}); l.retired+l.withdrew+l.staleBases+l.forgotten > 0 {
		l.uncompacted = now
	}
}

// NotCompacted notes that a compaction has failed. since is the former Uncompacted.
func (l *Set) NotCompacted(since time.Time) {
	if !since.IsZero() {
		l.uncompacted = since
	}
}

// newUnsaved is that of an empty file.
func newUnsaved() unsaved {
	u := unsaved{pages: math.MaxInt} // not known yet
	u.put.size = func(b *snapshot.Block) int {
		if b.Part == nil {
			return 0
		}
		return b.Part.Bytes()
	}
	u.archived.size = func(a snapshot.Archived) int {
		if a.Summary == nil {
			return 0
		}
		return a.Summary.Bytes()
	}
	return u
}

// Unsaved is the number of blocks that were added, removed or read again since the last
// save.
func (l *Set) Unsaved() int {
	n := l.put.len() + l.parts.len() + l.gone.len() + l.withdrawn.len() + l.archived.len()
	if l.next != nil {
		n += l.next.put.len()
	}
	return n
}

// HasUnsaved reports whether a save would change the file.
func (l *Set) HasUnsaved() bool { return l.moved || l.Unsaved() > 0 || l.rekeyed.len() > 0 }

// Waiting is the bytes of the summaries that wait for a save, and of the parts of blocks that do.
// Parts that were taken again are in memory anyway.
func (l *Set) Waiting() int64 {
	n := l.put.waiting() + l.archived.waiting()
	for _, p := range l.spaces() {
		n += p.put.waiting()
	}
	return n
}

// IsGone reports whether a block has left the live set while the file may still have it.
func (l *Set) IsGone(id string) bool { return l.gone.has(id) }

// HasGone reports whether any block is.
func (l *Set) HasGone() bool { return l.gone.len() > 0 }

// UnsavedMemory is the usual room, in bytes, for blocks that wait for a save. The room is
// larger where the sums are, since a save writes these as well, and smaller where memory
// is scarce.
const UnsavedMemory = 32 << 20

// RoomBytes is the room for blocks that wait for a save. Workers may hold as much. Eight
// times that is free: a save holds the pages that it writes, which take up to four times
// as much as the blocks (see Room), and as much may come during the save.
func (l *Set) RoomBytes() int64 {
	_, state := l.estimate()
	free := l.budget.Room() - l.Price() - float64(l.pastBytes())
	return max(1, int64(min(max(UnsavedMemory, float64(state)), free/8)))
}

// Room is the number of blocks that may wait before a save is urgent. All pages that a save
// writes are in memory together and may take four times as much as the blocks.
func (l *Set) Room() int {
	block, _ := l.estimate()
	// In the worst case every block lies, in each bucket, on a page of its own with three
	// others of its size. The other pages of a save do not count here.
	pages := min(l.pages, 4*(block+4<<10))
	return max(1, int(l.RoomBytes())/max(block, pages/4))
}

// Wrote notes how many bytes a save of that many blocks has written.
func (l *Set) Wrote(bytes int64, blocks int) {
	if blocks > 0 {
		l.pages = int(bytes) / blocks
	}
}

// estimate is the approximate size of a block of all classes, and of the sums.
func (l *Set) estimate() (block, state int) {
	block = 1 << 10 // for everything beside its summary
	for _, p := range l.spaces() {
		numbers := p.sums.classes() * gram.PackedLen(len(p.sums.features)+1)
		block += 8 * numbers
		state += 32 * numbers * (p.sums.folds + 1)
	}
	return block, state
}

// Change is everything that must be saved. Blocks and parts stay unsaved until Saved is called. The
// sums count as saved unless NotSaved is called. No block departs. The lists of blocks are made by
// Complete, beside the set.
func (l *Set) Change() snapshot.Change {
	l.mustBeSettled()
	c := snapshot.Change{
		Retired: l.retired, Withdrawn: l.withdrew, StaleBases: l.staleBases, Joining: snapshot.Joining{Forgotten: l.forgotten}, Horizon: l.ledger.Horizon(),
	}
	summaries := map[uint32]map[string]*incremental.Summary{} // by space
	for _, p := range l.spaces() {
		c.Spaces = append(c.Spaces, l.changeOf(p))
		summaries[p.space().Number] = p.put.take()
	}
	l.moved, c.InUse = false, l.inUse.space().Number
	put, parts, gone := l.put.take(), l.parts.take(), l.gone.take()
	withdrawn, archived, rekeyed := l.withdrawn.take(), l.archived.take(), l.rekeyed.take()
	above := func(p *sample.Part) *sample.Part { return p }
	if l.sample != nil {
		levels := l.sample.Levels() // they may have risen since the block was added
		above = func(p *sample.Part) *sample.Part { return p.Above(levels) }
	}
	c.Complete = func(c *snapshot.Change) {
		for id, p := range parts {
			c.Parts = append(c.Parts, snapshot.Part{ID: id, Part: above(p)})
		}
		c.Put = make([]snapshot.Block, 0, len(put))
		for _, b := range put {
			c.Put = append(c.Put, *b)
			if b.Part != nil {
				c.Put[len(c.Put)-1].Part = above(b.Part)
			}
		}
		for i := range c.Spaces {
			space := &c.Spaces[i]
			space.Put = make([]snapshot.Summary, 0, len(summaries[space.Number]))
			for id, s := range summaries[space.Number] {
				space.Put = append(space.Put, snapshot.Summary{ID: id, Summary: s})
			}
		}
		c.Delete, c.Withdraw, c.Archive = slices.Collect(maps.Keys(gone)), slices.Collect(maps.Values(withdrawn)), slices.Collect(maps.Values(archived))
		for id, key := range rekeyed {
			c.Rekeyed = append(c.Rekeyed, snapshot.Rekeyed{ID: id, ItemKey: key})
		}
	}
	return c
}

// changeOf is the part of a space that must be saved, without its blocks.
func (l *Set) changeOf(p *Space) snapshot.SpaceChange {
	c := snapshot.SpaceChange{Space: p.space(), Stale: uint8(p.from.stale), State: p.sums.total(), Folds: p.sums.takeMoved()}
	switch {
	case len(p.from.blocks) == 0:
	case p.inFile: // the file drops a source's mark when the block is put again
		for id := range l.put.all() {
			if _, ok := p.from.blocks[id]; ok {
				c.Sources = append(c.Sources, id)
			}
		}
	default:
		for id := range p.from.blocks {
			if _, live := l.ledger.Get(id); live {
				c.Sources = append(c.Sources, id)
			}
		}
	}
	return c
}

// Saved notes that the change has been saved. Blocks that were added, removed or read again
// since the change was made stay unsaved.
func (l *Set) Saved(c *snapshot.Change) {
	l.retired -= c.Retired
	l.withdrew -= c.Withdrawn
	l.staleBases -= c.StaleBases
	l.forgotten -= c.Joining.Forgotten
	l.put.saved()
	l.parts.saved()
	l.gone.saved()
	l.withdrawn.saved()
	l.archived.saved()
	l.rekeyed.saved()
	l.eachSaved(c, func(p *Space, saved *snapshot.SpaceChange) {
		p.inFile = true
		p.put.saved()
	})
}

// NotSaved notes that the change has not been saved.
func (l *Set) NotSaved(c *snapshot.Change) {
	l.moved = true
	l.put.notSaved()
	l.parts.notSaved()
	l.gone.notSaved()
	l.withdrawn.notSaved()
	l.archived.notSaved()
	l.rekeyed.notSaved()
	l.eachSaved(c, func(p *Space, not *snapshot.SpaceChange) {
		p.sums.stillMoved(not.Folds)
		p.put.notSaved()
	})
}

// eachSaved pairs the spaces that still exist with their changes.
func (l *Set) eachSaved(c *snapshot.Change, do func(*Space, *snapshot.SpaceChange)) {
	for _, p := range l.spaces() {
		for i := range c.Spaces {
			if c.Spaces[i].Number == p.space().Number {
				do(p, &c.Spaces[i])
			}
		}
	}
}

// Blocks are live blocks at one moment. They may be used beside the set.
type Blocks struct {
	Entries []retire.Entry
	Unsaved map[string]*incremental.Summary // summaries in the features that the store lacks
	store   *snapshot.Store
}

// Moment is the given live blocks at this moment.
func (l *Set) Moment(entries []retire.Entry) *Blocks {
	return &Blocks{Entries: entries, Unsaved: maps.Collect(l.features.put.all()), store: l.store}
}

// Summary is a block's summary in the features. If the block has been retired or replaced
// since, the store may lack it or return another one of the same id.
func (b *Blocks) Summary(id string) (*incremental.Summary, error) {
	if s := b.Unsaved[id]; s != nil {
		return s, nil
	}
	return b.store.Summary(snapshot.Features, id)
}

// UseBlocks are live blocks at one moment, with their summaries in the space in use.
type UseBlocks struct {
	*Blocks
	number  uint32 // of the space
	unsaved map[string]*incremental.Summary
	folds   bool
}

// MomentInUse is Moment for blocks in the space in use.
func (l *Set) MomentInUse(entries []retire.Entry) *UseBlocks {
	return &UseBlocks{l.Moment(entries), l.inUse.space().Number, maps.Collect(l.inUse.put.all()), l.inUse.sums.folds > 0}
}

// Part is a block's summary in some of the coordinates, with the digest that decides about its
// fold, if there are folds. The error is snapshot.ErrNotFound if the block has been retired or
// replaced since.
func (b *UseBlocks) Part(id string, at []int) (part *incremental.Summary, digest [sha256.Size]byte, err error) {
	s := b.unsaved[id]
	if s == nil {
		if s, err = b.store.Summary(b.number, id); err != nil {
			return nil, digest, err
		}
	}
	if b.folds {
		in, err := b.Summary(id)
		if err != nil {
			return nil, digest, err
		}
		digest = in.LabelledDigest()
	}
	return s.Select(at), digest, nil
}
