package live

import (
	"fmt"
	"slices"

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

// restoreArchive makes the archive from a file's entries. Blocks of other features cannot be
// summed with those of now, and without retire.archive no archived block is wanted: these are
// dropped.
func (l *Set) restoreArchive(saved *snapshot.Contents, wanted, same bool, log zerolog.Logger) error {
	drop := saved.Archived
	if wanted {
		l.archive = retire.NewLedger(retire.Policy{Blocks: MostArchived(l.budget)})
		if same {
			var err error
			if drop, err = l.archive.Restore(saved.Archived, retire.Lowest); err != nil {
				return err
			}
		}
	}
	for _, e := range drop {
		l.gone[e.ID] = struct{}{}
	}
	if wanted && same {
		l.overflowed = int64(len(drop)) // there is less memory than before
		return nil
	}
	if n := len(drop); n > 0 {
		why := "retire.archive is false"
		if wanted {
			why = "the features are others"
		}
		log.Warn().Int("blocks", n).Str("reason", why).Msg("the archive is dropped: windows lack its blocks")
		saved.Archived = nil
	}
	return nil
}

// ledgers lists the ledger and the archive, if there is one.
func (l *Set) ledgers() []*retire.Ledger {
	if l.archive == nil {
		return []*retire.Ledger{l.ledger}
	}
	return []*retire.Ledger{l.ledger, l.archive}
}

// entries is the number of blocks in the ledgers, and of those that depart.
func (l *Set) entries() (n int) {
	n = l.Departing()
	for _, in := range l.ledgers() {
		n += in.Len() + in.Withdrawn()
	}
	return n
}

// Archived is the number of archived blocks, without those that are withdrawn.
func (l *Set) Archived() int {
	if l.archive == nil {
		return 0
	}
	return l.archive.Len()
}

// Overflowed counts the blocks that the archive has dropped since the start because it was full.
func (l *Set) Overflowed() int64 { return l.overflowed }

// ArchivedBlocks lists up to limit archived blocks above a rank, by ascending rank, without
// those that are withdrawn.
func (l *Set) ArchivedBlocks(above retire.Rank, limit int) []retire.Entry {
	if l.archive == nil {
		return nil
	}
	return l.archive.Page(above, limit)
}

// inArchive finds an archived block.
func (l *Set) inArchive(id string) (e retire.Entry, ok bool) {
	if l.archive == nil {
		return e, false
	}
	return l.archive.Find(id)
}

// letGo removes the rest of a block that the policy has removed from the ledger, one of so many,
// and archives it if there is an archive.
func (l *Set) letGo(e *retire.Entry, together int) error {
	if err := l.settle(e.ID); err != nil {
		return err
	}
	switch {
	case l.archive != nil && e.Withdrawn:
		return l.putAway(e)
	case e.Withdrawn:
		l.dropWithdrawn(e.ID)
		return nil
	case l.archive != nil:
		return l.depart(e, toArchive, together)
	}
	return l.depart(e, toNowhere, together)
}

// putAway archives a block that has left the ledger.
func (l *Set) putAway(of *retire.Entry) error {
	e := *of
	s := l.features.put[e.ID] // nil: it is withdrawn, or the file has it
	if _, due := l.due[e.ID]; e.Withdrawn {
		if l.dropWithdrawn(e.ID); due {
			l.due[e.ID] = struct{}{}
		}
	} else if err := l.takeOut(&e, true); err != nil {
		return err
	}
	e.Archived = true
	l.putArchived(e, s)
	for _, out := range l.archive.Add(e) {
		l.overflowed++
		if err := l.dropArchived(&out); err != nil {
			return err
		}
	}
	return nil
}

// putArchived notes that an archived block must be saved. s is its summary in the features; nil
// if it is withdrawn, or if the file has it.
func (l *Set) putArchived(e retire.Entry, s *incremental.Summary) {
	l.dropPutArchived(e.ID)
	l.archived[e.ID] = snapshot.Archived{Entry: e, Summary: s}
	if s != nil {
		l.archivedBytes += int64(s.Bytes())
	}
	delete(l.gone, e.ID)
	if !e.Withdrawn {
		l.index(&e)
	}
}

// dropPutArchived notes that an archived block need not be saved any more.
func (l *Set) dropPutArchived(id string) {
	if s := l.archived[id].Summary; s != nil {
		l.archivedBytes -= int64(s.Bytes())
	}
	delete(l.archived, id)
}

// archivedSummary is the summary of an archived block.
func (l *Set) archivedSummary(id string) (*incremental.Summary, error) {
	if s := l.archived[id].Summary; s != nil {
		return s, nil
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
	l.dropPutArchived(e.ID)
	delete(l.due, e.ID)
	l.gone[e.ID] = struct{}{}
	return nil
}

// RetireOthers retires those of the blocks on request that are archived or withdrawn. The state
// does not change. leaves are the contents of their receipts. rest are the live blocks.
func (l *Set) RetireOthers(ids []string) (leaves []Departure, rest []string, err error) {
	all := map[receipt.Item]move{}
	for _, id := range ids {
		e, archived := l.inArchive(id)
		if !archived {
			if e, _ = l.ledger.Find(id); !e.Withdrawn {
				rest = append(rest, id)
				continue
			}
		}
		item, err := l.archivedItem(&e)
		if err != nil {
			return nil, nil, err
		}
		if l.receipts.key != nil {
			delete(l.receipts.past, item) // it was given back since the last save
			all[item] = move{receipt.Purged, size{e.Rows, e.Time}, l.based(id)}
		}
		if err := l.retire(id); err != nil {
			return nil, nil, err
		}
	}
	return l.listed(receipt.Purged, all), rest, nil
}

// retireArchived retires an archived block permanently. Nothing of it must stay.
func (l *Set) retireArchived(e retire.Entry) error {
	l.archive.Retire(e.ID)
	l.forget(e.ID, SourceRetired)
	l.leaveRemains()
	if !e.Withdrawn {
		l.retired++
	}
	return l.dropArchived(&e)
}

// withdrawArchived withdraws an archived block.
func (l *Set) withdrawArchived(e retire.Entry) error {
	if err := l.notePurged(&e); err != nil {
		return err
	}
	l.archive.Withdraw(e.ID)
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
	l.archive.Return(e.ID)
	delete(l.due, e.ID)
	l.noteBack(&e, s, true)
	e.Withdrawn = false
	l.putArchived(e, s)
}

// Span returns the first block above a rank and the last one of all, live or archived. ok is
// false if there is none.
func (l *Set) Span(above retire.Rank) (first, last retire.Entry, ok bool) {
	for _, in := range l.ledgers() {
		page := in.Page(above, 1)
		if len(page) == 0 {
			continue
		}
		newest, _ := in.Newest()
		if !ok || page[0].Rank().Compare(first.Rank()) < 0 {
			first = page[0]
		}
		if !ok || newest.Rank().Compare(last.Rank()) > 0 {
			last = newest
		}
		ok = true
	}
	return first, last, ok
}

// selectArchived lists the archived blocks that s chooses, by ascending rank.
func (l *Set) selectArchived(s *retire.Selection) []retire.Entry {
	if l.archive == nil {
		return nil
	}
	return slices.Collect(l.archive.Select(s))
}

// Places are the blocks of a moment, withdrawn and archived ones included. Any goroutine may use
// them while the set changes, one at a time.
type Places []*retire.View

// Places are the blocks of now: of these ids, or all if ids is nil.
func (l *Set) Places(ids []string) (p Places) {
	for _, in := range l.ledgers() {
		p = append(p, in.View(ids))
	}
	return p
}

// Has reports whether there is a block of this id. The places are those of ids.
func (p Places) Has(id string) bool {
	return slices.ContainsFunc(p, func(in *retire.View) bool { return in.Has(id) })
}

// Select lists the blocks that s chooses, by ascending rank. Its ids are those of the places.
func (p Places) Select(s *retire.Selection) (chosen []retire.Entry) {
	for _, in := range p {
		chosen = slices.AppendSeq(chosen, in.Select(s))
	}
	slices.SortStableFunc(chosen, func(a, b retire.Entry) int { return a.Rank().Compare(b.Rank()) })
	return chosen
}

// NoHeader counts the blocks that s would choose if it had no headers, and that have none.
func (p Places) NoHeader(s *retire.Selection) (n int) {
	without := *s
	without.Headers = []retire.HeaderHash{{}}
	for _, in := range p {
		for range in.Select(&without) {
			n++
		}
	}
	return n
}

// SelectPast lists the live blocks and the archived ones that s chooses, by ascending rank.
func (l *Set) SelectPast(s *retire.Selection) []retire.Entry {
	chosen := slices.AppendSeq(l.selectArchived(s), l.ledger.Select(s))
	slices.SortStableFunc(chosen, func(a, b retire.Entry) int { return a.Rank().Compare(b.Rank()) })
	return chosen
}
