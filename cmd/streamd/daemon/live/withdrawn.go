package live

import (
	"fmt"
	"slices"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/retire"
	"streamd/retire/receipt"
)

// withdrawalsShare is the part of the live set's memory that selections may take.
const withdrawalsShare = 4

// Withdraw puts a selection of the control topic in force, in place of the one under the name;
// nil only takes that one back. It returns the number of live blocks that are withdrawn, and
// their rows. Blocks that no selection chooses any more become due. No block changes before
// FollowWithdrawals is called.
func (l *Set) Withdraw(name string, s *retire.Selection) (blocks int, rows int64, err error) {
	was := l.withdrawals.Put(name, s)
	if takes, room := l.withdrawals.Bytes(), l.budget.Room()/withdrawalsShare; float64(takes) > room {
		return 0, 0, fmt.Errorf("retire.topic: its selections take %s, and there is room for %s (limits.memory is %s): raise limits.memory, or take back selections that are not needed any more",
			memory.Size(float64(takes)), memory.Size(room), memory.Size(float64(l.budget.Limit)))
	}
	if !l.following {
		return 0, 0, nil
	}
	if s != nil {
		for _, e := range slices.Collect(l.ledger.Select(s)) {
			if err := l.withdraw(e); err != nil {
				return blocks, rows, err
			}
			blocks++
			rows += e.Rows
		}
		for e := range l.ledger.SelectWithdrawn(s) {
			delete(l.due, e.ID)
		}
	}
	if was != nil {
		for e := range l.ledger.SelectWithdrawn(was) {
			l.compare(&e)
		}
	}
	return blocks, rows, nil
}

// withdraw withdraws a live block. Its rows must not stay anywhere.
func (l *Set) withdraw(e retire.Entry) error {
	l.ledger.Withdraw(e.ID)
	l.withdrew++
	l.receipts.note(receipt.Withdrawn, &e)
	l.leaveRemains()
	l.forget(e.ID, SourceRetired)
	if err := l.takeOut(&e); err != nil {
		return err
	}
	e.Withdrawn = true
	l.putWithdrawn(e)
	return nil
}

// FollowWithdrawals has blocks follow the selections from now on. It is called when all selections
// of the control topic are known, since the snapshot does not have them. Before that a selection
// may be one that a later record takes back, and blocks that it withdrew might not be in the log any
// more. It returns the number of live blocks that are withdrawn, and their rows.
func (l *Set) FollowWithdrawals() (blocks int, rows int64, err error) {
	l.following = true
	for e := range l.ledger.SelectWithdrawn(&retire.Selection{}) {
		l.compare(&e)
	}
	if l.withdrawals.Len() == 0 {
		return 0, 0, nil
	}
	var chosen []retire.Entry
	for e := range l.ledger.Select(&retire.Selection{}) {
		if l.withdrawals.Choose(&e) {
			chosen = append(chosen, e)
		}
	}
	for _, e := range chosen {
		if err := l.withdraw(e); err != nil {
			return blocks, rows, err
		}
		blocks++
		rows += e.Rows
	}
	return blocks, rows, nil
}

// compare notes that a withdrawn block is due if no selection chooses it.
func (l *Set) compare(e *retire.Entry) {
	if !l.withdrawals.Choose(e) {
		l.due[e.ID] = struct{}{}
	}
}

// Withdrawn is the number of withdrawn blocks.
func (l *Set) Withdrawn() int { return l.ledger.Withdrawn() }

// WithdrawnBlocks lists them by ascending rank.
func (l *Set) WithdrawnBlocks() []retire.Entry {
	return slices.Collect(l.ledger.SelectWithdrawn(&retire.Selection{}))
}

// Due lists the withdrawn blocks that no selection chooses any more. They must be read again.
func (l *Set) Due() []retire.Entry {
	due := make([]retire.Entry, 0, len(l.due))
	for id := range l.due {
		e, _ := l.ledger.Find(id)
		due = append(due, e)
	}
	return due
}

// GiveBack makes a withdrawn block that was read again live. It changes nothing if the block
// is no longer due, or if k does not cover the space in use; the block is then due still. The
// error is that of Admits.
func (l *Set) GiveBack(e retire.Entry, k Kept) (given bool, err error) {
	if _, due := l.due[e.ID]; !due || !l.Covers(&k) {
		return false, nil
	}
	if err := l.Admits(Candidate{Labels: k.Summary.Classes(), Features: k.Summary.Features(), Window: k.Summary.Window(), Kept: k}); err != nil {
		return false, err
	}
	l.ledger.Return(e.ID)
	l.dropWithdrawn(e.ID)
	e.Withdrawn = false
	l.include(e, k)
	l.receipts.note(receipt.Restored, &e)
	return true, nil
}

// putWithdrawn notes that the entry of a withdrawn block must be saved.
func (l *Set) putWithdrawn(e retire.Entry) {
	l.withdrawn[e.ID] = e
	delete(l.gone, e.ID)
}

// dropWithdrawn drops what is known about a block that is not withdrawn any more.
func (l *Set) dropWithdrawn(id string) {
	delete(l.withdrawn, id)
	delete(l.due, id)
	l.gone[id] = struct{}{}
}
