package daemon

import (
	"fmt"

	"streamd/incremental"
	"streamd/retire"
	"streamd/snapshot"
)

// liveSet is the ledger of live blocks and the exact sum of their summaries,
// changed together, with the changes that are not saved yet. The summaries of
// saved blocks stay on disk until they are needed to take one out, so memory
// does not grow with the rows of a block, and hardly with the blocks.
type liveSet struct {
	store      *snapshot.Store
	state      *incremental.State
	ledger     *retire.Ledger
	maxClasses int

	put  map[string]snapshot.Block // live, not saved yet
	gone map[string]struct{}       // not live any more, perhaps still saved
}

// outcome says what adding a block has done. A block that the policy refuses
// is added and retired at once.
type outcome struct {
	added    bool // false: all its rows weigh nothing
	replaced bool // a block of the same id
	retired  int
}

// newLiveSet takes over what a store contains. A policy that is stricter than
// the one it was saved under retires blocks here.
func newLiveSet(store *snapshot.Store, saved *snapshot.Contents, policy retire.Policy, maxClasses int) (l *liveSet, retired int, err error) {
	l = &liveSet{
		store:      store,
		state:      saved.State,
		ledger:     retire.NewLedger(policy),
		maxClasses: maxClasses,
		put:        map[string]snapshot.Block{},
		gone:       map[string]struct{}{},
	}
	out, err := l.ledger.Restore(saved.Entries, saved.Horizon)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range out {
		if err := l.takeOut(e.ID); err != nil {
			return nil, 0, err
		}
	}
	return l, len(out), nil
}

// admits says whether these classes, each listed once, stay within the limit
// together with the live ones.
func (l *liveSet) admits(labels []string) bool {
	classes := l.state.Classes()
	for _, label := range labels {
		if !l.state.Has(label) {
			classes++
		}
	}
	return classes <= l.maxClasses
}

// add makes a block live, in the place of a live block of the same id. A block
// whose rows all weigh nothing is as if absent. An error comes from the store
// and is final.
func (l *liveSet) add(e retire.Entry, s *incremental.Summary) (o outcome, err error) {
	if _, o.replaced = l.ledger.Get(e.ID); o.replaced {
		if _, err := l.remove(e.ID); err != nil {
			return o, err
		}
	}
	if s.Rows() == 0 {
		if o.replaced { // by nothing
			o = outcome{retired: 1}
		}
		return o, nil
	}
	o.added = true
	l.state.Add(s)
	l.put[e.ID] = snapshot.Block{Entry: e, Summary: s}
	delete(l.gone, e.ID)
	for _, out := range l.ledger.Add(e) {
		if err := l.takeOut(out.ID); err != nil {
			return o, err
		}
		o.retired++
	}
	return o, nil
}

// remove takes a live block out.
func (l *liveSet) remove(id string) (retire.Entry, error) {
	e, ok := l.ledger.Remove(id)
	if !ok {
		panic("daemon: block " + id + " is not live")
	}
	return e, l.takeOut(id)
}

// takeOut subtracts a block that has left the ledger.
func (l *liveSet) takeOut(id string) error {
	b, ok := l.put[id]
	if !ok {
		s, err := l.store.Summary(id)
		if err != nil {
			return fmt.Errorf("retire block %s: %w", id, err)
		}
		b.Summary = s
	}
	l.state.Remove(b.Summary)
	delete(l.put, id)
	l.gone[id] = struct{}{}
	return nil
}

// unsaved is the number of blocks that have come or gone since the last save.
func (l *liveSet) unsaved() int { return len(l.put) + len(l.gone) }

// change is what has to be saved.
func (l *liveSet) change() snapshot.Change {
	c := snapshot.Change{Horizon: l.ledger.Horizon()}
	if len(l.state.Features()) > 0 {
		c.State = l.state
	}
	for _, b := range l.put {
		c.Put = append(c.Put, b)
	}
	for id := range l.gone {
		c.Delete = append(c.Delete, id)
	}
	return c
}

// saved says that the change has been saved.
func (l *liveSet) saved() {
	clear(l.put)
	clear(l.gone)
}
