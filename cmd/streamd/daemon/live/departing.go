package live

import (
	"bytes"
	"math"
	"slices"

	"streamd/incremental"
	"streamd/retire"
	"streamd/retire/receipt"
)

// A block departs in two steps. First it leaves the ledger, so that the policy and all who arrive
// go by the blocks that stay. Then it leaves the sums, the sample and the tree of receipts, for
// which its summary is read. That takes most of the time, and the order does not matter there. So
// where many blocks depart together, the second step waits for calls of Depart and RetireTogether,
// and blocks may be added between these.
//
// Until Departing is 0 the sums are those of no live set. Nothing may be read off them or saved.

// departing has the blocks that are not in the ledger any more, but in the sums.
type departing struct {
	most   int // of the blocks that one change lets go: of these the second step does not wait
	blocks map[string]*leaver
	queue  []*leaver // for Depart, in the order in which they have left; some may have departed since
}

// leaver is a block that departs.
type leaver struct {
	entry retire.Entry
	goes  destination
	asked bool // by a request, which takes it out by RetireTogether
}

// destination is what becomes of a block.
type destination uint8

const (
	toNowhere destination = iota
	toArchive
	toWithdrawn
)

// DepartAtOnce has blocks depart by Depart where one change lets more of them go than most. Until
// it is called all depart at once.
func (l *Set) DepartAtOnce(most int) { l.departing.most = most }

// Departing is the number of blocks that have left the ledger and not the sums.
func (l *Set) Departing() int { return len(l.departing.blocks) }

// mustBeSettled panics while blocks depart.
func (l *Set) mustBeSettled() {
	if len(l.departing.blocks) > 0 {
		panic("live: blocks depart, and the sums are those of no live set")
	}
}

// Emptied reports whether blocks depart and no others are left. Then the features may change as
// soon as they have departed, so nothing may be added before.
func (l *Set) Emptied() bool { return l.Departing() > 0 && l.entries() == l.Departing() }

// Limited reports whether the policy retires blocks at all.
func (l *Set) Limited() bool { return l.ledger.Limited() }

// depart has a block depart, one of so many that a change lets go.
func (l *Set) depart(e *retire.Entry, goes destination, together int) error {
	if together <= l.departing.most {
		return l.finish(e, goes)
	}
	x := &leaver{entry: *e, goes: goes}
	l.departing.blocks[e.ID] = x
	l.departing.queue = append(l.departing.queue, x)
	return nil
}

// finish takes a block that has left the ledger out of everything else.
func (l *Set) finish(e *retire.Entry, goes destination) error {
	switch goes {
	case toArchive:
		return l.putAway(e)
	case toWithdrawn:
		if err := l.takeOut(e, false); err != nil {
			return err
		}
		l.putWithdrawn(*e)
		return nil
	}
	return l.takeOut(e, false)
}

// Depart takes up to n departing blocks out of the sums, but none of a request. left reports
// whether others are left.
func (l *Set) Depart(n int) (left bool, err error) {
	d := &l.departing
	for ; n > 0 && len(d.queue) > 0; d.queue = d.queue[1:] {
		x := d.queue[0]
		if d.blocks[x.entry.ID] != x {
			continue
		}
		delete(d.blocks, x.entry.ID)
		if err := l.finish(&x.entry, x.goes); err != nil {
			return false, err
		}
		n--
	}
	if len(d.queue) == 0 {
		d.queue = nil
	}
	return len(d.queue) > 0, nil
}

// Settle takes all departing blocks out of the sums.
func (l *Set) Settle() error {
	_, err := l.Depart(math.MaxInt)
	return err
}

// Former finds the block whose id a record has, be it live, withdrawn or archived. A departing one
// departs before, and one that a request would take out is live again: the record decides.
func (l *Set) Former(id string) (e retire.Entry, ok bool, err error) {
	if err := l.settle(id); err != nil {
		return e, false, err
	}
	e, ok = l.Find(id)
	return e, ok, nil
}

// settle takes a departing block out of the sums, if there is one of that id. It is called before
// anything else happens to such a block. One that a request would take out is live again.
func (l *Set) settle(id string) error {
	x := l.departing.blocks[id]
	if x == nil {
		return nil
	}
	delete(l.departing.blocks, id)
	if x.asked {
		l.ledger.PutBack(x.entry)
		return nil
	}
	return l.finish(&x.entry, x.goes)
}

// Detach has live blocks leave the ledger on request, and RetireTogether takes them out of the
// rest.
func (l *Set) Detach(ids []string) {
	for _, id := range ids {
		e, ok := l.ledger.Retire(id)
		if !ok || e.Withdrawn {
			panic("live: block " + id + " is not live")
		}
		l.departing.blocks[id] = &leaver{entry: e, asked: true}
	}
}

// Detached finds a block that a request takes out.
func (l *Set) Detached(id string) (e retire.Entry, ok bool) {
	if x := l.departing.blocks[id]; x != nil && x.asked {
		return x.entry, true
	}
	return e, false
}

// RetireTogether retires blocks on request, which are live or detached, and returns the contents of
// their receipt. Without receipts it returns nil. The blocks also leave beside, which are sums that
// have them in the space in use, unless it is nil.
func (l *Set) RetireTogether(ids []string, beside *incremental.State) (*Departure, error) {
	for _, id := range ids {
		if _, detached := l.Detached(id); !detached {
			l.Detach([]string{id})
		}
	}
	l.beside = beside
	defer func() { l.beside = nil }()
	all := func() error {
		for _, id := range ids {
			x := l.departing.blocks[id]
			delete(l.departing.blocks, id)
			l.leaveRemains()
			l.retired++
			l.forget(id, SourceRetired)
			l.hasLeft(id)
			if err := l.finish(&x.entry, x.goes); err != nil {
				return err
			}
		}
		return nil
	}
	r := &l.receipts
	if r.key == nil {
		return nil, all()
	}
	d := &Departure{Leaf: receipt.Leaf{Kind: receipt.Retired, Before: l.Side()}}
	since := r.tree.Mark()
	var items []receipt.Item
	var keys []receipt.Hash
	for _, id := range ids {
		e := &l.departing.blocks[id].entry
		d.Add(e.Rows, e.Time)
		d.Based = d.Based || l.based(id)
		i, _ := r.tree.Get(r.keyOf(e))
		items, keys = append(items, i), append(keys, i.Key)
		l.note(ownReceipt, e)
	}
	slices.SortFunc(items, func(a, b receipt.Item) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	if err := all(); err != nil {
		return nil, err
	}
	d.Items, d.Change, d.After, d.Moves = receipt.ListHash(items), r.tree.Prove(since, keys), l.Side(), r.moves
	r.tree.Unmark()
	return d, nil
}
