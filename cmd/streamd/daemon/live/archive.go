package live

import (
	"fmt"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/incremental"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// With retire.archive, a block that the policy lets go keeps its summary in the features. It is
// not live. It belongs to the past: windows are summed from live and archived blocks, in the
// features, whatever basis is in use. A basis does not last as long as the past does, and
// windows in different coordinates could not be compared.
//
// A block that is retired leaves the archive. A block that a withdrawal chooses keeps its place
// there, as in the ledger, without its summary.

// archiveShare is the part of the live set's memory that the entries of the archive may take.
// When they are as many, those of the lowest ranks go.
const archiveShare = 4

// MostArchived is the number of blocks that the archive takes.
func MostArchived(b *memory.Budget) int {
	return max(1, int(b.Room()/archiveShare/(memory.PerBlock)))
}

// archivedOf is the archived entries of a file that are kept, and makes their archive. Blocks of
// other features cannot be summed with those of now, and without retire.archive no archived block
// is wanted: these are dropped.
func (l *Set) archivedOf(saved *snapshot.Contents, wanted, same bool, log zerolog.Logger) []retire.Entry {
	if wanted {
		l.ledger.KeepArchive(MostArchived(l.budget))
	}
	if n := len(saved.Archived); n > 0 && !(wanted && same) {
		why := "retire.archive is false"
		if wanted {
			why = "the features are others"
		}
		log.Warn().Int("blocks", n).Str("reason", why).Msg("the archive is dropped: windows lack its blocks")
		for _, e := range saved.Archived {
			l.gone.put(e.ID, struct{}{})
		}
		saved.Archived = nil
	}
	return saved.Archived
}

// entries is the number of blocks that have a place, and of those that depart.
func (l *Set) entries() (n int) { return l.Departing() + l.ledger.Places() }

// Archived is the number of archived blocks, without those that are withdrawn.
func (l *Set) Archived() int { return l.ledger.Archived() }

// Overflowed counts the blocks that the archive has dropped since the start because it was full.
func (l *Set) Overflowed() int64 { return l.overflowed }

// ArchivedBlocks lists up to limit archived blocks above a rank, by ascending rank, without
// those that are withdrawn.
func (l *Set) ArchivedBlocks(above retire.Rank, limit int) []retire.Entry {
	return l.ledger.PageArchived(above, limit)
}

// letGo removes the rest of a block that the policy has removed from the ledger, one of so many,
// and archives it if there is an archive.
func (l *Set) letGo(e *retire.Entry, together int) error {
	if err := l.settle(e.ID); err != nil {
		return err
	}
	switch {
	case l.ledger.HasArchive() && e.Withdrawn:
		return l.putAway(e)
	case e.Withdrawn:
		l.receipts.notePlace(e)
		l.dropWithdrawn(e.ID)
		return nil
	case l.ledger.HasArchive():
		return l.depart(e, toArchive, together)
	}
	return l.depart(e, toNowhere, together)
}

// putAway archives a block that has left the ledger.
func (l *Set) putAway(of *retire.Entry) error {
	e := *of
	s, _ := l.features.put.get(e.ID) // nil: it is withdrawn, or the file has it
	if _, due := l.due[e.ID]; e.Withdrawn {
		if l.dropWithdrawn(e.ID); due {
			l.due[e.ID] = struct{}{}
		}
	} else if err := l.takeOut(&e, true); err != nil {
		return err
	}
	e.Archived = true
	l.putArchived(e, s)
	for _, out := range l.ledger.Add(e) {
		l.overflowed++
		if out.Withdrawn {
			l.receipts.notePlace(&out)
		}
		if err := l.dropArchived(&out); err != nil {
			return err
		}
	}
	return nil
}

// putArchived notes that an archived block must be saved. s is its summary in the features; nil
// if it is withdrawn, or if the file has it.
func (l *Set) putArchived(e retire.Entry, s *incremental.Summary) {
	l.archived.put(e.ID, snapshot.Archived{Entry: e, Summary: s})
	l.gone.drop(e.ID)
	if !e.Withdrawn {
		l.index(&e)
	}
}

// archivedSummary is the summary of an archived block.
func (l *Set) archivedSummary(id string) (*incremental.Summary, error) {
	if a, _ := l.archived.get(id); a.Summary != nil {
		return a.Summary, nil
	}
	return l.store.Summary(snapshot.Features, id)
}

// dropArchived drops what is known about a block that has left the archive, or that is
// withdrawn from now on.
func (l *Set) dropArchived(e *retire.Entry) error {
	if !e.Withdrawn {
		var s *incremental.Summary
		if len(l.past.cuts) > 0 {
			var err error
			if s, err = l.archivedSummary(e.ID); err != nil {
				return fmt.Errorf("take block %s out of the archive: %w", e.ID, err)
			}
		}
		l.unindex(e, s)
	}
	l.archived.drop(e.ID)
	delete(l.due, e.ID)
	l.gone.put(e.ID, struct{}{})
	return nil
}

// RetireOthers retires those of the blocks on request that are archived or withdrawn. The state
// does not change. leaves are the contents of their receipts. rest are the live blocks.
func (l *Set) RetireOthers(ids []string) (leaves []Departure, rest []string, err error) {
	all := map[receipt.Item]move{}
	for _, id := range ids {
		e, _ := l.ledger.Find(id)
		if !e.Archived && !e.Withdrawn {
			rest = append(rest, id)
			continue
		}
		item, err := l.archivedItem(&e)
		if err != nil {
			return nil, nil, err
		}
		if l.receipts.key != nil {
			delete(l.receipts.past, item) // it was given back since the last save
			all[item] = move{receipt.Purged, id, size{e.Rows, e.Time}, l.based(id)}
		}
		if err := l.retire(id, 1); err != nil {
			return nil, nil, err
		}
	}
	return l.listed(receipt.Purged, all), rest, nil
}

// withdrawArchived withdraws an archived block.
func (l *Set) withdrawArchived(e retire.Entry) error {
	if err := l.notePurged(&e); err != nil {
		return err
	}
	l.ledger.Withdraw(e.ID)
	l.forget(e.ID, SourceRetired)
	l.withdrew++
	l.leaveRemains()
	if err := l.dropArchived(&e); err != nil {
		return err
	}
	e.Withdrawn = true
	l.putArchived(e, nil)
	return nil
}

// giveBackArchived gives an archived block that was read again its summary back.
func (l *Set) giveBackArchived(e retire.Entry, s *incremental.Summary) {
	l.ledger.Return(e.ID)
	delete(l.due, e.ID)
	l.noteBack(&e, s, true)
	e.Withdrawn = false
	l.putArchived(e, s)
}

// Span returns the first block above a rank and the last one of all, live or archived. ok is
// false if there is none.
func (l *Set) Span(above retire.Rank) (first, last retire.Entry, ok bool) {
	return l.ledger.Span(above)
}

// Places are the blocks of now, withdrawn and archived ones included: those of these ids, or all if
// ids is nil.
func (l *Set) Places(ids []string) *retire.View { return l.ledger.View(ids) }

// SelectPast lists the live blocks and the archived ones that s chooses, by ascending rank.
func (l *Set) SelectPast(s *retire.Selection) []retire.Entry { return l.ledger.SelectPast(s) }
