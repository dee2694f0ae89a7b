package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/daemon/timeline"
	"streamd/incremental"
	"streamd/retire"
)

// Order is an order of the live and the archived blocks that windows are stretches of.
type Order int

// The orders.
const (
	ByTime     Order = iota // of event times
	ByPosition              // of offsets, for each partition
	orders     = 2
)

// A Window is stretches of the live and the archived blocks in an order, narrowed to event times
// unless these are nil. Event times are in milliseconds.
type Window struct {
	Order  Order
	Ranges []timeline.Range
	Times  *timeline.Times
}

// block is the place of a block in an order.
func (o Order) block(e *retire.Entry) (timeline.Line, timeline.Block) {
	ms := e.Time.UnixMilli()
	if o == ByTime {
		return timeline.Line{}, timeline.Block{ID: e.ID, First: ms, Last: ms, Time: ms}
	}
	p := e.Position
	return timeline.Line{Topic: p.Topic, Partition: p.Partition}, timeline.Block{ID: e.ID, First: p.Offset, Last: max(e.Last, p.Offset), Time: ms}
}

// past has the indices that windows are summed from. They are made for the first window, and
// dropped when nobody has asked for long, or when the live set takes the memory.
type past struct {
	indices [orders]*listing
	cuts    map[*Cut]struct{} // being summed
	asked   time.Time         // the last time
}

// listing is an index that is being filled.
type listing struct {
	*timeline.Index
	in     *Coordinates // of the sums
	above  retire.Rank  // blocks up to here are in the index, and those that have come or moved since
	listed bool         // all are
}

const (
	listedAtOnce = 4096 // blocks: about a millisecond of the loop
	leastLeaf    = 128  // blocks
	mostUnread   = 1 << 17

	// sharePast is the part of the free memory that windows may take.
	sharePast = 4
)

// Index brings the index of an order a step further. ready is false while blocks are
// missing: then it must be called again. The error is a memory.LimitError.
func (l *Set) Index(o Order) (ready bool, err error) {
	p := &l.past
	p.asked = time.Now()
	x := p.indices[o]
	if x != nil && x.in != l.pastSpace().Coordinates {
		l.dropPast()
		x = nil
	}
	if x == nil {
		if x, err = l.newListing(); err != nil {
			return false, err
		}
		p.indices[o] = x
	}
	if x.listed {
		return true, nil
	}
	page := l.ledger.PagePast(x.above, listedAtOnce)
	for i := range page {
		x.Add(o.block(&page[i]))
	}
	if len(page) > 0 {
		x.above = page[len(page)-1].Rank()
	}
	x.listed = len(page) < listedAtOnce
	return x.listed, l.boundPast()
}

// newListing makes an index whose sums, at the present number of blocks, take half of the
// memory that is left.
func (l *Set) newListing() (*listing, error) {
	shape, blocks := l.pastShape(), float64(l.entries())
	room := l.pastRoom() - float64(l.pastBytes()) - l.budget.Window(shape) - timeline.BlockBytes*blocks
	if room <= 0 {
		return nil, l.noPastRoom()
	}
	// A leaf is half full or more, and has as many nodes above it.
	leaf := max(leastLeaf, 4*blocks*shape.Sum()/(room/2))
	return &listing{Index: timeline.New(int(min(leaf, 1<<30)), int(room/2)), in: l.pastSpace().Coordinates, above: retire.Lowest}, nil
}

// pastSpace is the space that windows are summed in: that in use, or with an archive the
// features.
func (l *Set) pastSpace() *Space {
	if l.ledger.HasArchive() {
		return l.features
	}
	return l.inUse
}

// Past is the coordinates that windows are summed in.
func (l *Set) Past() *Coordinates { return l.pastSpace().Coordinates }

// pastShape is the shape of the sum of the live blocks in these coordinates.
func (l *Set) pastShape() memory.Shape { return l.pastSpace().sums.shape(0) }

// pastRoom is the bytes that windows may take.
func (l *Set) pastRoom() float64 { return max(0, l.budget.Room()-l.Price()) / sharePast }

func (l *Set) noPastRoom() error {
	return memory.LimitError(fmt.Sprintf("limits.memory, %s, leaves %s for windows, and the model of one takes %s beside an index of %d blocks: raise it",
		memory.Size(float64(l.budget.Limit)), memory.Size(l.pastRoom()), memory.Size(l.budget.Window(l.pastShape())), l.entries()))
}

// mostSum is the bytes that a sum may take: as much as a window of the live blocks, or more
// where there is room for what is computed from it (see memory.Budget.Window).
func (l *Set) mostSum() int {
	const copies = 8
	return int(max(l.pastShape().Sum(), (l.pastRoom()-float64(l.pastBytes()))/copies))
}

// pastBytes is the memory that windows take.
func (l *Set) pastBytes() (n int) {
	for _, x := range l.past.indices {
		if x != nil {
			n += x.Bytes()
		}
	}
	return n
}

// boundPast drops the indices when they take too much.
func (l *Set) boundPast() error {
	if n := l.pastBytes(); n > 0 && float64(n)+l.budget.Window(l.pastShape()) > l.pastRoom() {
		err := l.noPastRoom()
		l.dropPast()
		return err
	}
	return nil
}

// dropPast drops the indices. The next window makes others.
func (l *Set) dropPast() { l.past.indices = [orders]*listing{} }

// DropPast drops what windows are summed from, if nobody has asked since a time. It reports
// whether there was anything.
func (l *Set) DropPast(since time.Time) bool {
	if l.past.indices == [orders]*listing{} || !l.past.asked.Before(since) {
		return false
	}
	l.dropPast()
	return true
}

// index notes a block, live or archived, that it may have.
func (l *Set) index(e *retire.Entry) {
	for o, x := range l.past.indices {
		if x != nil {
			x.Add(Order(o).block(e))
		}
	}
	_ = l.boundPast() // the next caller of Index learns of it
}

// unindex notes that a block has been taken out. s is its summary in the space of windows.
func (l *Set) unindex(e *retire.Entry, s *incremental.Summary) {
	for o, x := range l.past.indices {
		if x != nil {
			x.Remove(Order(o).block(e))
		}
	}
	for c := range l.past.cuts {
		if c.in == l.Past() {
			c.hold(e.ID, s)
		} else {
			c.moved = true // s is in other coordinates than the cut
		}
	}
}

// A Cut is the blocks of a window at one moment, live or archived. Sum may run beside the set, and
// EndCut must follow.
type Cut struct {
	*timeline.Plan
	features []string
	space    uint32
	in       *Coordinates
	index    *listing
	of       *Set
	most     int  // bytes of its sum
	moved    bool // a block was taken out while other coordinates were in use

	wanted map[string]struct{} // blocks that the store has

	mu   sync.Mutex
	held map[string]*incremental.Summary // that it lacks, or may lack by now
}

// Cut plans a window. The index must be ready. Sums of blocks that are missing are left for
// several cuts, if they are many: then the cut is not whole, and only serves to fill the index.
// The error is a memory.LimitError.
func (l *Set) Cut(w Window) (*Cut, error) {
	x := l.past.indices[w.Order]
	const atOnce = 64 << 20 // bytes of summaries
	most := int(min(listedAtOnce, max(1, atOnce/max(1, l.pastShape().Summary()))))
	in := l.pastSpace()
	c := &Cut{
		Plan: x.Plan(w.Ranges, w.Times, most), features: in.Names(), space: in.space().Number,
		in: in.Coordinates, index: x, of: l, most: l.mostSum(),
		wanted: map[string]struct{}{}, held: map[string]*incremental.Summary{},
	}
	switch {
	case c.Unread <= mostUnread:
	case w.Times != nil: // offsets and times have little in common
		return nil, memory.LimitError(fmt.Sprintf("the offsets and times of the window have %d blocks in common that no sum has, more than %d: narrow the offsets", c.Unread, mostUnread))
	default:
		return nil, l.noPastRoom() // to keep sums
	}
	c.EachUnread(func(id string) {
		s, _ := in.put.get(id)
		a, _ := l.archived.get(id)
		if s = cmp.Or(s, a.Summary); s != nil {
			c.held[id] = s
		} else {
			c.wanted[id] = struct{}{}
		}
	})
	if l.past.cuts == nil {
		l.past.cuts = map[*Cut]struct{}{}
	}
	l.past.cuts[c] = struct{}{}
	return c, nil
}

// Key identifies the blocks of the cut among other cuts.
func (c *Cut) Key() CutKey { return CutKey{c.index, c.ID} }

// CutKey is a Cut's key. Cuts of the same key have the same blocks.
type CutKey struct {
	index *listing
	id    string
}

// hold keeps the summary of a block that is taken out, which a save may delete or replace.
func (c *Cut) hold(id string, s *incremental.Summary) {
	if _, ok := c.wanted[id]; !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[id] == nil {
		c.held[id] = s
	}
}

func (c *Cut) holds(id string) *incremental.Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[id]
}

// Sum returns the exact sum of the blocks of a whole cut, which nobody may change. It is nil for
// another cut.
func (c *Cut) Sum(ctx context.Context) (*incremental.State, error) {
	sum, err := c.Evaluate(c.features, c.most, func(id string) (*incremental.Summary, error) {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if s := c.holds(id); s != nil {
			return s, nil
		}
		s, err := c.of.store.Summary(c.space, id)
		if s := c.holds(id); s != nil { // the store may have another block of this id by now
			return s, nil
		}
		if err == nil && s.Features() != len(c.features) {
			err = ErrMoved
		}
		return s, err
	})
	if errors.Is(err, timeline.ErrLarge) {
		return nil, memory.LimitError(fmt.Sprintf("the sums of the window take more than %s, since its blocks have many classes together: raise limits.memory, or narrow the window",
			memory.Size(float64(c.most))))
	}
	if err != nil || !c.Whole {
		return nil, err
	}
	return sum, nil
}

// ErrMoved says that other coordinates have come into use since the cut, and that its sum is not
// known.
var ErrMoved = errors.New("the model's coordinates have changed meanwhile")

// OpenCuts is the number of cuts that have not ended.
func (l *Set) OpenCuts() int { return len(l.past.cuts) }

// EndCut ends a cut, whose Sum failed with err or not, and keeps its sums for others. It returns
// err, or ErrMoved in its place.
func (l *Set) EndCut(c *Cut, err error) error {
	delete(l.past.cuts, c)
	if c.moved || err != nil && c.in != l.Past() {
		return ErrMoved
	}
	for _, x := range l.past.indices {
		if x == c.index && err == nil {
			x.Keep(c.Plan)
		}
	}
	return err
}
