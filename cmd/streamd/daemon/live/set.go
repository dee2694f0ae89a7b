// Package live keeps the live set: the ledger of live blocks, their exact sums in every
// space, the row sample, and the changes that the snapshot does not have yet.
//
//	set.go       a block comes, goes, or is replaced
//	space.go     the coordinates of a basis, and the sums of a space
//	sums.go      exact sums, apart by fold
//	bases.go     one basis is in use, and the next one is being built
//	archive.go   blocks that the policy has let go keep their summaries, for the past
//	departing.go many blocks leave the sums a few at a time
//	withdrawn.go selections of the control topic withdraw blocks, and give them back
//	aside.go     live blocks that a replay counts as withdrawn
//	sources.go   the blocks that a basis was chosen from
//	published.go a basis in the form that replicas share
//	fading.go    the sums of the blocks, weighted by a half-life
//	cut.go       the blocks of a window, and their sum from an index
//	keeper.go    workers summarise a block for the spaces of a target
//	unsaved.go   changes for the snapshot, and the room for them
//	receipts.go  the tree of live blocks, and what receipts say of those that leave
//	report.go    the snapshot's record of how a basis was chosen
//	open.go      the state of a snapshot is restored
//	progress.go  the sums of each partition, for progressive figures
//	features.go  the order of the features of a snapshot
//
// # Spaces
//
// A space is the coordinates that sums are kept in. The features are the first space and
// always have every live block: a block's content is named by the digest of its summary
// of features, and a block that is read again is compared with it. A basis makes another space.
// Planes are read off the space in use. The next space is built beside it: it has the
// new blocks at once, and the others as they are read again.
//
// # Ownership
//
// A Set belongs to one goroutine and starts none. Target and Room may be called from
// any: a target is immutable. Summaries and parts of saved blocks stay on disk until they
// are needed to take a block out, so memory does not grow with the rows of a block, and
// hardly with the blocks.
//
// An error of a method that changes the set comes from the store and is final.
package live

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/incremental"
	"streamd/incremental/exact"
	"streamd/incremental/sample"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// Set is the live set.
type Set struct {
	store      *snapshot.Store
	ledger     *retire.Ledger // of all blocks; with retire.archive it has an archive
	overflowed int64          // blocks that a full archive has dropped since the start
	sample     *sample.Sample // nil without a sample
	budget     *memory.Budget
	keyed      bool // a key names a block, and the key's next value replaces the block
	maxClasses int
	churn      int64 // rows added and removed since the start

	features, inUse, next *Space   // inUse is features without a basis; next is nil unless one is being built
	lastSpace             uint32   // number of the latest one
	choosing              *sources // of the basis that is being chosen, or nil

	withdrawals retire.Withdrawals
	following   bool                // all selections of the control topic are known
	due         map[string]struct{} // withdrawn blocks that no withdrawal chooses; they are read again

	receipts receipts
	aside    aside

	progress  *progress
	leftLabel string // label of all rows of the block that was taken out last; see incremental.Summary.Label

	// Left is called with the id of a block that has left for good and is not replaced; nil: it is
	// not.
	Left func(id string)
	unsaved
	past   past
	fading fading
	departing
	beside *incremental.State // see RetireTogether
	target atomic.Pointer[Target]
}

// Outcome is the effect of adding a block on the live blocks. A block that the policy refuses
// is added and retired at once.
type Outcome struct {
	Added    bool // false: all its rows have weight 0, or it is withdrawn
	Replaced bool // a live block of the same id
	Refused  bool // the policy has retired the new block
	// Retired counts the blocks that the policy has retired, including the new block, and a
	// live block of the same id if the new one is withdrawn or has no weight.
	Retired int
	Label   string // of all rows of the live block of the same id; "": they have several, or there is none
}

// Rows is the number of live rows.
func (l *Set) Rows() int64 { return l.ledger.Rows() }

// Unlabelled is the number of live rows without a label.
func (l *Set) Unlabelled() int64 { return l.features.sums.unlabelled() }

// Blocks is the number of live blocks.
func (l *Set) Blocks() int { return l.ledger.Len() }

// Get finds a live block.
func (l *Set) Get(id string) (retire.Entry, bool) { return l.ledger.Get(id) }

// Find finds a block, be it live, withdrawn or archived, but not a departing one (see Former).
func (l *Set) Find(id string) (retire.Entry, bool) { return l.ledger.Find(id) }

// HasSumsOf reports whether any block, be it live, withdrawn or archived, came as sums of rows in a
// topic.
func (l *Set) HasSumsOf(topic string) bool { return l.ledger.HasSumsOf(topic) }

// Page lists up to limit live blocks above a rank, by ascending rank.
func (l *Set) Page(above retire.Rank, limit int) []retire.Entry { return l.ledger.Page(above, limit) }

// Select yields the live blocks that s chooses, by ascending rank. The set must not change
// meanwhile.
func (l *Set) Select(s *retire.Selection) iter.Seq[retire.Entry] { return l.ledger.Select(s) }

// IDs yields the ids of the live blocks, in no order.
func (l *Set) IDs(yield func(string) bool) { l.ledger.IDs(yield) }

// Horizon is the rank below which the retention policy has retired blocks permanently.
func (l *Set) Horizon() retire.Rank { return l.ledger.Horizon() }

// Newest is the live block of the highest rank.
func (l *Set) Newest() (retire.Entry, bool) { return l.ledger.Newest() }

// Backward yields the live blocks in descending rank. The set must not change meanwhile.
func (l *Set) Backward(yield func(retire.Entry) bool) { l.ledger.Backward(yield) }

// Summary returns the summary of a block in the space in use. It is nil if the block has
// changed, or other coordinates are in use.
func (l *Set) Summary(e retire.Entry, in *Coordinates) (*incremental.Summary, error) {
	if now, ok := l.ledger.Get(e.ID); !ok || now != e || in != l.inUse.Coordinates {
		return nil, nil
	}
	s, err := l.inUse.summary(l.store, e.ID)
	if err != nil {
		return nil, fmt.Errorf("read the summary of block %s: %w", e.ID, err)
	}
	return s, nil
}

// Churn counts the rows added and removed since the start.
func (l *Set) Churn() int64 { return l.churn }

// Parted reports whether there are rows of at least two classes.
func (l *Set) Parted() bool { return l.features.sums.parted() }

// Features is the space that has every live block.
func (l *Set) Features() *Space { return l.features }

// InUse is the space that planes are solved from.
func (l *Set) InUse() *Space { return l.inUse }

// Digest is the digest of the sums that planes are solved from, in hex. No block departs.
func (l *Set) Digest() string {
	l.mustBeSettled()
	return l.inUse.Digest()
}

// Target names the spaces that workers put blocks into from now on.
func (l *Set) Target() *Target { return l.target.Load() }

// retarget publishes the target after a change of features or spaces.
func (l *Set) retarget() {
	t := &Target{Features: l.features.names, use: l.inUse.Coordinates, sample: l.sample, keys: l.receipts.keys}
	if l.next != nil {
		t.next = l.next.Coordinates
	}
	l.target.Store(t)
}

// Fix sets the model's features. With none they are free, and the next block sets them. No
// block is live.
func (l *Set) Fix(features []string) {
	l.DropBases()
	l.dropPast()
	l.choosing = nil
	l.features = newSpace(nil, features, l.features.sums.folds, nil)
	if len(features) > 0 {
		l.features.names = &features
	}
	l.inUse = l.features
	l.retarget()
}

// A Candidate describes a block as far as admission depends on it.
type Candidate struct {
	Labels   []string // of its classes, each listed once
	Features int
	Window   exact.Window // of its sums; zero: not known yet
	Kept     Kept         // as far as it is made
}

// A ClassesError says that a block would give the model too many classes.
type ClassesError struct{ Most int }

func (e *ClassesError) Error() string {
	return fmt.Sprintf("the model would have more than %d classes (limits.classes)", e.Most)
}

// Admits says why a block may not become live: a ClassesError, or a memory.LimitError. The
// caller adds an admitted block.
func (l *Set) Admits(c Candidate) error {
	more := l.features.sums.newClasses(c.Labels)
	if more > 0 {
		l.measure()
		classes := l.features.sums.most + more
		if slices.Contains(c.Labels, incremental.Unlabelled) || l.Unlabelled() > 0 {
			classes-- // of the limit, rows without a label are none
		}
		if classes > l.maxClasses {
			return &ClassesError{l.maxClasses}
		}
	}
	err := l.fits(c, more)
	if err != nil && more == 0 { // classes, or large numbers, may have been retired
		l.measure()
		err = l.fits(c, more)
	}
	if err != nil {
		return err
	}
	for _, p := range l.spaces() {
		p.sums.most += more
	}
	return nil
}

// fits says why there is no memory for a block with that many new classes.
func (l *Set) fits(c Candidate, more int) error {
	shapes, block := l.shapes(more), 0.0
	shapes[0].Features = c.Features
	shapes[0].Window = shapes[0].Window.Union(c.Window)
	for i, p := range l.spaces() {
		own := shapes[i]
		own.Classes = len(c.Labels)
		block += own.Summary()
		if s := c.Kept.in(p.Coordinates); s != nil && i > 0 {
			shapes[i].Window = shapes[i].Window.Union(s.Window())
		}
	}
	return l.budget.Fits(shapes, l.entries()+1, block+l.progress.bytes(shapes[0])+float64(l.withdrawals.Bytes()))
}

// measure counts the classes and finds the windows.
func (l *Set) measure() {
	for _, p := range l.spaces() {
		p.sums.measure()
		p.sums.most = l.features.sums.most // the next space may lack blocks
	}
}

// shapes lists the shapes of the spaces with more further classes, features first.
func (l *Set) shapes(more int) (shapes []memory.Shape) {
	for _, p := range l.spaces() {
		shapes = append(shapes, p.sums.shape(more))
	}
	return shapes
}

// Bytes is the size of the summaries, in all spaces, of a block with that many classes.
func (l *Set) Bytes(classes int) int64 {
	var n float64
	for _, s := range l.shapes(0) {
		s.Classes = classes
		n += s.Summary()
	}
	return int64(n)
}

// Price is an upper bound of the live set's memory in bytes.
func (l *Set) Price() float64 {
	shapes := l.shapes(0)
	return l.budget.Price(shapes, l.entries()) + l.progress.bytes(shapes[0]) + float64(l.withdrawals.Bytes())
}

// Add makes a block live, or withdrawn if a withdrawal chooses it, and replaces a block of the
// same id. A block of zero weight counts as absent. k must cover the space in use (see
// Covers). If it does not cover the next space, that space lacks the block.
func (l *Set) Add(e retire.Entry, k Kept) (o Outcome, err error) {
	former, ok, err := l.Former(e.ID)
	if err != nil {
		return o, err
	}
	e.Withdrawn = l.withdrawals.Choose(&e)
	// The next value of a key replaces a block, and so do sums. Otherwise its rows have grown.
	replaces := l.keyed || e.Carrier.Sums || former.Carrier.Sums
	grown, stays := false, false // a live block; and it stays aside
	l.receipts.keep(&e, &former)
	if ok {
		o.Replaced = !former.Withdrawn && !former.Archived
		grown = o.Replaced && !replaces
		if replaces {
			if o.Replaced {
				l.note(receipt.Replaced, &former)
			}
			l.forget(e.ID, SourceReplaced)
		}
		stays = l.IsAside(e.ID) && former.Position == e.Position
		if grown && k.Summary.Rows() > 0 {
			l.receipts.grow(&former)
		} else if grown && !e.Withdrawn { // the log does not return its rows any more
			l.note(receipt.Lost, &former)
		}
		if grown && e.Withdrawn {
			if err := l.withdraw(former, 1); err != nil {
				return o, err
			}
		}
		if err := l.replace(e.ID); err != nil {
			return o, err
		}
		if o.Replaced {
			o.Label = l.leftLabel
		}
	}
	if k.Summary.Rows() == 0 {
		return o.withoutNew(), nil
	}
	if e.Withdrawn {
		l.receipts.exclude(e.ID, former.Withdrawn && !former.Archived && !l.keyed)
		l.putWithdrawn(e)
		o = o.withoutNew()
	} else {
		l.include(e, k)
		l.asideComes(&e, k.Summary, stays)
		o.Added = true
	}
	l.sourceComes(&e)
	gone := l.ledger.Add(e)
	for i := range gone {
		out := &gone[i]
		if !out.Withdrawn && (out.ID != e.ID || grown) {
			l.note(receipt.Expired, out)
		}
		if err := l.letGo(out, len(gone)); err != nil {
			return o, err
		}
		if !out.Withdrawn {
			o.Refused = o.Refused || out.ID == e.ID
			o.Retired++
		}
	}
	if former.Withdrawn && !e.Withdrawn && !replaces { // an open run was read again, or has grown
		l.noteBack(&e, k.Summary, o.Refused)
	}
	return o, nil
}

// Repeats reports whether a block is there already as it comes: live or archived, and of the same
// sums, or of later records. Only a block that came, or comes, as sums can be: a record of rows
// comes once. A block of several records may come as sums before it is complete, and again when it
// has grown: then has is the number of its rows that are there.
func (l *Set) Repeats(e *retire.Entry, s *incremental.Summary) (repeats bool, has int64, err error) {
	if !e.Carrier.Sums && !l.ledger.HasSums() {
		return false, 0, nil
	}
	former, ok, err := l.Former(e.ID)
	if !ok || err != nil || former.Withdrawn || !(e.Carrier.Sums || former.Carrier.Sums) {
		return false, 0, err
	}
	if e.IsBefore(&former) {
		return true, 0, nil
	}
	if e.Position == former.Position && former.IsBefore(e) {
		return false, former.Rows, nil
	}
	if !former.Time.Equal(e.Time) {
		return false, 0, nil
	}
	archived := former.Archived
	former.Carrier, former.ItemKey, former.Time, former.Archived = e.Carrier, e.ItemKey, e.Time, false
	if former != *e {
		return false, 0, nil
	}
	var was *incremental.Summary
	if archived {
		was, err = l.archivedSummary(e.ID)
	} else {
		was, err = l.features.summary(l.store, e.ID)
	}
	if err != nil {
		return false, 0, fmt.Errorf("compare block %s: %w", e.ID, err)
	}
	return was.Digest() == s.Digest(), 0, nil
}

// noteBack records that a withdrawn block has come back with its rows: it is live again, or
// archived, or the policy has let it go at once.
func (l *Set) noteBack(e *retire.Entry, s *incremental.Summary, archived bool) {
	switch key := l.receipts.key; {
	case key == nil:
	case !archived:
		l.note(receipt.Restored, e)
	case l.ledger.HasArchive():
		l.notePast(receipt.Returned, key.Item(e.ID, e.ItemKey, s.Digest()), e)
	default:
		l.receipts.notePlace(e)
	}
}

// withoutNew is the outcome if the new block does not become live.
func (o Outcome) withoutNew() Outcome {
	if o.Replaced {
		return Outcome{Retired: 1, Label: o.Label}
	}
	return Outcome{}
}

// include adds a live block to the sums and to the sample.
func (l *Set) include(e retire.Entry, k Kept) {
	if !l.Covers(&k) {
		panic("live: block " + e.ID + " is not in the space in use")
	}
	l.churn += k.Summary.Rows()
	digest := l.content(k.Summary, k.part)
	if l.sample != nil {
		// Levels may have risen since the part was taken. A part that was taken before
		// there were levels has all rows.
		if k.part != nil {
			k.part = k.part.Above(l.sample.Levels())
		}
		l.sample.Add(e.ID, k.part)
	}
	for _, p := range l.spaces() {
		if s := k.in(p.Coordinates); s != nil {
			p.add(e.ID, s, digest)
		} else {
			p.missing[e.ID] = struct{}{}
		}
	}
	if l.progress != nil {
		l.progress.add(&e, k.Summary, l.features.Names())
	}
	l.receipts.put(&e, k.Summary)
	block := &snapshot.Block{Entry: e, Part: k.part}
	if k.Summary.Unlabelled() == 0 { // then it is of all rows
		block.Digest = digest
	}
	l.put.put(e.ID, block)
	l.index(&e)
	l.fading.moved(e.Time)
	l.gone.drop(e.ID)
}

// Covers reports whether k can be added: it has a summary in the space in use.
func (l *Set) Covers(k *Kept) bool { return k.in(l.inUse.Coordinates) != nil }

// Retire retires a block, live, withdrawn or archived, permanently, because its log says so. Its
// rows must not stay anywhere.
func (l *Set) Retire(id string) error { return l.RetireAmong(id, 1) }

// RetireAmong is Retire of one of so many blocks. A live one departs later where they are many.
func (l *Set) RetireAmong(id string, together int) error {
	if err := l.settle(id); err != nil {
		return err
	}
	switch e, ok := l.ledger.Find(id); {
	case !ok || e.Withdrawn:
	case !e.Archived:
		l.note(receipt.Deleted, &e)
	default:
		if err := l.notePurged(&e); err != nil {
			return err
		}
	}
	return l.retire(id, together)
}

func (l *Set) retire(id string, together int) error {
	e, ok := l.ledger.Retire(id)
	if !ok {
		panic("live: there is no block " + id)
	}
	l.leaveRemains() // of a withdrawn block its id, which can be a customer's key
	if !e.Withdrawn {
		l.retired++
	}
	if !e.Withdrawn || e.Archived {
		l.forget(id, SourceRetired)
	}
	l.hasLeft(id)
	if together > 1 && !e.Withdrawn && !e.Archived {
		return l.depart(&e, toNowhere, together)
	}
	return l.removed(&e)
}

// Lose removes a live block that the log does not return as it was.
func (l *Set) Lose(id string) error {
	if e, live := l.ledger.Get(id); live {
		l.note(receipt.Lost, &e)
	}
	l.hasLeft(id)
	return l.Remove(id)
}

func (l *Set) hasLeft(id string) {
	if l.Left != nil {
		l.Left(id)
	}
}

// OnlyRow is the row of a live block of one row. It is nil if there is none.
func (l *Set) OnlyRow(id string) ([]float64, error) {
	if _, ok := l.ledger.Get(id); !ok {
		return nil, nil
	}
	s, err := l.features.summary(l.store, id)
	if err != nil {
		return nil, fmt.Errorf("read the row of block %s: %w", id, err)
	}
	row, _ := s.OnlyRow()
	return row, nil
}

// Remove removes a block, live, withdrawn or archived, that is replaced.
func (l *Set) Remove(id string) error {
	if err := l.settle(id); err != nil {
		return err
	}
	e, ok := l.ledger.Remove(id)
	if !ok {
		panic("live: there is no block " + id)
	}
	return l.removed(&e)
}

// replace is Remove where another block of that id takes its place.
func (l *Set) replace(id string) error {
	if l.progress != nil {
		l.progress.replacing = true
		defer func() { l.progress.replacing = false }()
	}
	return l.Remove(id)
}

// removed removes the rest of a block that is no longer in the ledger.
func (l *Set) removed(e *retire.Entry) error {
	switch {
	case e.Archived:
		return l.dropArchived(e)
	case e.Withdrawn:
		l.dropWithdrawn(e.ID)
		return nil
	}
	return l.takeOut(e, false)
}

// takeOut subtracts a block that is no longer live. It stays in the indices of windows if it is
// archived.
func (l *Set) takeOut(e *retire.Entry, archived bool) error {
	id := e.ID
	part, err := l.part(id)
	if err != nil {
		return fmt.Errorf("retire block %s: %w", id, err)
	}
	var digest [sha256.Size]byte
	for _, p := range l.spaces() {
		s, err := p.summary(l.store, id)
		if err != nil {
			return fmt.Errorf("retire block %s: %w", id, err)
		}
		if p == l.features {
			l.churn += s.Rows()
			digest = l.content(s, part)
			l.asideLeaves(e, s)
			l.leftLabel = s.Label()
			l.progress.remove(e, s)
		}
		if p == l.pastSpace() && !archived {
			l.unindex(e, s)
		}
		if p == l.fading.of {
			l.fading.remove(id, s)
		}
		if p == l.inUse && l.beside != nil {
			l.beside.Remove(s)
		}
		p.remove(id, s, digest)
	}
	l.fading.moved(e.Time)
	if l.sample != nil {
		l.sample.Remove(id, part)
	}
	l.receipts.remove(e)
	l.put.drop(id)
	l.parts.drop(id)
	l.gone.put(id, struct{}{})
	return nil
}

// content is the digest that decides about the fold of a block, if there are folds. The
// part may have it already.
func (l *Set) content(s *incremental.Summary, p *sample.Part) (digest [sha256.Size]byte) {
	switch {
	case l.features.sums.folds == 0:
		return digest
	case p != nil:
		return p.Digest()
	}
	return s.LabelledDigest()
}

// part is the sample part of a live block, or nil.
func (l *Set) part(id string) (*sample.Part, error) {
	if p, ok := l.parts.get(id); ok { // it has been taken again since
		return p, nil
	}
	if b, ok := l.put.get(id); ok {
		return b.Part, nil
	}
	return l.store.Part(id)
}

// HasSample reports whether there is a row sample.
func (l *Set) HasSample() bool { return l.sample != nil }

// Lacking is the number of blocks that lack rows in the sample; 0 without a sample.
func (l *Set) Lacking() int {
	if l.sample == nil {
		return 0
	}
	return l.sample.Lacking()
}

// Wanted lists the blocks that must be read again for the sample.
func (l *Set) Wanted() (entries []retire.Entry) {
	for _, id := range l.sample.Wanted() {
		e, ok := l.ledger.Get(id)
		if !ok {
			panic("live: block " + id + " is in the sample, but not live")
		}
		entries = append(entries, e)
	}
	return entries
}

// Sample copies the row sample with the folds of its rows. It is nil without a sample.
func (l *Set) Sample(folds int) *sample.Snapshot {
	if l.sample == nil {
		return nil
	}
	return l.sample.Snapshot(l.features.Total(), folds)
}

// Look offers the sample the stored parts of blocks that it has not checked yet, for
// about d.
func (l *Set) Look(d time.Duration) error {
	const atOnce = 100
	for began := time.Now(); ; {
		ids := l.sample.Unsure(atOnce)
		for _, id := range ids {
			p, err := l.part(id)
			if err != nil {
				return fmt.Errorf("look for rows of block %s: %w", id, err)
			}
			l.sample.Offer(id, p)
		}
		if len(ids) < atOnce || time.Since(began) > d {
			return nil
		}
	}
}

// Offer gives a live block a new part.
func (l *Set) Offer(id string, p *sample.Part) {
	l.sample.Offer(id, p)
	l.parts.put(id, p)
}

// WeightedSample is Sample with each row weighted like its block in the sums of Weigh.
func (l *Set) WeightedSample(folds int, w *Weighted) *sample.Snapshot {
	if l.sample == nil {
		return nil
	}
	return l.sample.Weighted(l.features.Total(), folds, w.Whole, l.Weight)
}

// DigestOf is the digest of sums, in hex.
func DigestOf(s *incremental.State) string {
	digest := s.Digest()
	return hex.EncodeToString(digest[:])
}
