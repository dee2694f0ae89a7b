package live

import (
	"fmt"

	"streamd/incremental"
	"streamd/retire"
	"streamd/retire/receipt"
)

// aside has live blocks that somebody counts as absent: to a replay these are the ones that the
// control topic of the daemon had withdrawn. They keep their places under the policy. The set
// without them is identified from running sums and a second tree, so that it costs the same for
// any number of them.
//
// A block that grows stays aside. One that leaves the set, or whose id gets other records, does
// not: if it comes back, it is a block like any other.
type aside struct {
	kept bool                // the tree is kept
	ids  map[string]struct{} // of the blocks
	sums *incremental.State  // of them, in the features; nil without a block
	tree receipt.Tree        // of the other live blocks
}

// KeepAside lets blocks be set aside. There are receipts, and the set is empty.
func (l *Set) KeepAside() {
	if l.receipts.key == nil || l.ledger.Len() > 0 {
		panic("live: blocks are set aside from the beginning, and by their items")
	}
	l.aside.kept, l.aside.ids = true, map[string]struct{}{}
}

// IsAside reports whether a block is live and set aside.
func (l *Set) IsAside(id string) bool {
	_, is := l.aside.ids[id]
	return is
}

// SetAside sets a live block aside.
func (l *Set) SetAside(id string) error {
	e, s, err := l.toBeMoved(id)
	if err == nil && !l.IsAside(id) {
		l.aside.tree.Remove(l.receipts.keyOf(&e))
		l.aside.add(id, s, l.features.Names())
	}
	return err
}

// TakeBack undoes SetAside of a live block.
func (l *Set) TakeBack(id string) error {
	if !l.IsAside(id) {
		return nil
	}
	_, s, err := l.toBeMoved(id)
	if err == nil {
		l.aside.drop(id, s)
		l.aside.tree.Put(l.Item(id))
	}
	return err
}

// toBeMoved finds a live block and its summary.
func (l *Set) toBeMoved(id string) (e retire.Entry, s *incremental.Summary, err error) {
	e, live := l.ledger.Get(id)
	if !live || !l.aside.kept {
		panic("live: block " + id + " cannot be set aside")
	}
	if s, err = l.features.summary(l.store, id); err != nil {
		err = fmt.Errorf("set block %s aside: %w", id, err)
	}
	return e, s, err
}

// SideWithout identifies the live set without the blocks that are set aside.
func (l *Set) SideWithout() receipt.Side {
	a := &l.aside
	if a.sums == nil {
		return l.Side()
	}
	return receipt.Side{Digest: l.features.Total().Without(a.sums).Digest(), Root: a.tree.Root()}
}

func (a *aside) add(id string, s *incremental.Summary, features []string) {
	if a.sums == nil {
		a.sums = incremental.NewState(features)
	}
	a.sums.Add(s)
	a.ids[id] = struct{}{}
}

func (a *aside) drop(id string, s *incremental.Summary) {
	a.sums.Remove(s)
	if delete(a.ids, id); len(a.ids) == 0 {
		a.sums = nil // the features may be others for the next block
	}
}

// asideComes notes that a block has become live. grown says that it was aside with fewer records.
func (l *Set) asideComes(e *retire.Entry, s *incremental.Summary, grown bool) {
	switch a := &l.aside; {
	case !a.kept:
	case grown:
		a.add(e.ID, s, l.features.Names())
	default:
		item, _ := l.receipts.tree.Get(l.receipts.keyOf(e))
		a.tree.Put(item)
	}
}

// asideLeaves notes that a block is no longer live.
func (l *Set) asideLeaves(e *retire.Entry, s *incremental.Summary) {
	switch a := &l.aside; {
	case !a.kept:
	case l.IsAside(e.ID):
		a.drop(e.ID, s)
	default:
		a.tree.Remove(l.receipts.keyOf(e))
	}
}
