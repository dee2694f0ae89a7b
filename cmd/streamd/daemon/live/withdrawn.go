package live

import (
	"fmt"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/retire"
	"streamd/retire/receipt"
)

// withdrawalsShare is the part of the live set's memory that selections may take.
const withdrawalsShare = 4

// Withdraw puts a selection of the control topic in force, in place of the one under the name;
// nil only takes that one back. Blocks that no selection chooses any more become due. No block
// changes before FollowWithdrawals is called.
func (l *Set) Withdraw(name string, s *retire.Selection) (w Withdrawal, err error) {
	was := l.withdrawals.Put(name, s)
	if takes, room := l.withdrawals.Bytes(), l.budget.Room()/withdrawalsShare; float64(takes) > room {
		return w, fmt.Errorf("retire.topic: its selections take %s, and there is room for %s (limits.memory is %s): raise limits.memory, or take back selections that are not needed any more",
			memory.Size(float64(takes)), memory.Size(room), memory.Size(float64(l.budget.Limit)))
	}
	if !l.following {
		return w, nil
	}
	if s != nil {
		chosen := l.SelectPast(s)
		for _, e := range chosen {
			if err := l.withdrawPast(e, len(chosen), &w); err != nil {
				return w, err
			}
		}
	}
	if s != nil {
		for _, e := range l.ledger.SelectWithdrawn(s) {
			delete(l.due, e.ID)
		}
	}
	if was != nil {
		for _, e := range l.ledger.SelectWithdrawn(was) {
			l.compare(&e)
		}
	}
	return w, nil
}

// Withdrawal is the effect of a selection of the control topic.
type Withdrawal struct {
	Blocks   int   // live blocks that it has withdrawn
	Rows     int64 // their rows
	Archived int   // archived blocks that it has withdrawn

	ArchivedRows int64 // the rows of these
}

// Add adds the effect of another selection.
func (w *Withdrawal) Add(more Withdrawal) {
	w.Blocks += more.Blocks
	w.Rows += more.Rows
	w.Archived += more.Archived
	w.ArchivedRows += more.ArchivedRows
}

// withdrawPast withdraws a live or an archived block, one of so many, and counts it.
func (l *Set) withdrawPast(e retire.Entry, together int, w *Withdrawal) error {
	if e.Archived {
		w.Archived++
		w.ArchivedRows += e.Rows
		return l.withdrawArchived(e)
	}
	w.Blocks++
	w.Rows += e.Rows
	return l.withdraw(e, together)
}

// withdraw withdraws a live block, one of so many. Its rows must not stay anywhere.
func (l *Set) withdraw(e retire.Entry, together int) error {
	l.ledger.Withdraw(e.ID)
	l.withdrew++
	l.note(receipt.Withdrawn, &e)
	l.leaveRemains()
	l.forget(e.ID, SourceRetired)
	return l.depart(&e, toWithdrawn, together)
}

// FollowWithdrawals has blocks follow the selections from now on. It is called when all selections
// of the control topic are known, since the snapshot does not have them. Before that a selection
// may be one that a later record takes back, and blocks that it withdrew might not be in the log
// any more.
func (l *Set) FollowWithdrawals() (w Withdrawal, err error) {
	l.following = true
	for _, e := range l.ledger.SelectWithdrawn(&retire.Selection{}) {
		l.compare(&e)
	}
	if l.withdrawals.Len() == 0 {
		return w, nil
	}
	var chosen []retire.Entry
	for e := range l.Everything {
		if !e.Withdrawn && l.withdrawals.Choose(&e) {
			chosen = append(chosen, e)
		}
	}
	for _, e := range chosen {
		if err := l.withdrawPast(e, len(chosen), &w); err != nil {
			return w, err
		}
	}
	return w, nil
}

// compare notes that a withdrawn block is due if no selection chooses it.
func (l *Set) compare(e *retire.Entry) {
	if !l.withdrawals.Choose(e) {
		l.due[e.ID] = struct{}{}
	}
}

// Withdrawn is the number of withdrawn blocks, archived ones included.
func (l *Set) Withdrawn() int { return l.ledger.Withdrawn() }

// Everything yields all blocks, live, withdrawn and archived, as Ledger.All does. The set must not
// change meanwhile.
func (l *Set) Everything(yield func(retire.Entry) bool) { l.ledger.All(yield) }

// HasPlaces reports whether there is any block: live, withdrawn or archived.
func (l *Set) HasPlaces() bool { return l.entries() > 0 }

// Due lists the withdrawn blocks that no selection chooses any more. They must be read again.
func (l *Set) Due() []retire.Entry {
	due := make([]retire.Entry, 0, len(l.due))
	for id := range l.due {
		e, _ := l.Find(id)
		due = append(due, e)
	}
	return due
}

// GiveBack makes a withdrawn block that was read again live, or archived as it was. It changes
// nothing if the block is no longer due, or if k does not cover the space in use; the block is then
// due still. The error is that of Admits.
func (l *Set) GiveBack(e retire.Entry, k Kept) (given bool, err error) {
	if _, due := l.due[e.ID]; !due || !l.Covers(&k) {
		return false, nil
	}
	if err := l.Admits(Candidate{Labels: k.Summary.Classes(), Features: k.Summary.Features(), Window: k.Summary.Window(), Kept: k}); err != nil {
		return false, err
	}
	if e.Archived {
		l.giveBackArchived(e, k.Summary)
		return true, nil
	}
	l.ledger.Return(e.ID)
	l.dropWithdrawn(e.ID)
	e.Withdrawn = false
	l.include(e, k)
	l.asideComes(&e, k.Summary, false)
	l.noteBack(&e, k.Summary, false)
	return true, nil
}

// putWithdrawn notes that the entry of a withdrawn block must be saved, as one of those.
func (l *Set) putWithdrawn(e retire.Entry) {
	l.withdrawn.put(e.ID, e)
	l.gone.drop(e.ID)
}

// dropWithdrawn drops what is known about a block that is not withdrawn any more.
func (l *Set) dropWithdrawn(id string) {
	l.withdrawn.drop(id)
	delete(l.due, id)
	l.gone.put(id, struct{}{})
}
