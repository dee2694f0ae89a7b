package daemon

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/exact"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
	"streamd/retire"
	"streamd/snapshot"
)

// liveSet is the ledger of live blocks, the exact sums of their summaries, the same in
// the coordinates of epochs, and the row sample, changed together, with the changes
// that are not saved yet. The summaries and parts of saved blocks stay on disk until
// they are needed to take one out, so memory does not grow with the rows of a block,
// and hardly with the blocks.
type liveSet struct {
	store      *snapshot.Store
	sums       sums           // in the features
	sample     *sample.Sample // nil: there is none
	ledger     *retire.Ledger
	keyed      bool // a block is named by its key, and replaced by the next one of it
	memory     *memory
	maxClasses int
	churn      int64 // rows that have come or gone since the start

	put   map[string]snapshot.Block // live, not saved yet
	bytes int64                     // of their summaries and parts
	parts map[string]*sample.Part   // not saved yet, of saved blocks
	gone  map[string]struct{}       // not live any more, perhaps still saved
	pages int                       // bytes of them that the last save has written for each

	retired     int       // explicit retirements that are not saved yet
	staleBases  int       // bases with rows of retired blocks that have gone, which is not saved yet
	uncompacted time.Time // when the oldest of either has gone since the file was compacted; zero: there is none

	epoch, next *epoch // in use, and being built; nil: the features are in use, nothing is
	lastEpoch   uint32
	epochsMoved bool     // others than were saved
	choosing    *sources // of the basis that is being chosen; nil: none is

	// What workers go by, besides the levels of the sample.
	features atomic.Pointer[[]string] // their names; nil: not fixed yet
	current  atomic.Pointer[current]
}

// outcome says what adding a block has done. A block that the policy refuses
// is added and retired at once.
type outcome struct {
	added    bool // false: all its rows weigh nothing
	replaced bool // a block of the same id
	refused  bool // the policy has retired the block itself
	retired  int  // by the policy, the block itself included
}

// newLiveSet takes over what a store contains. A policy that is stricter than
// the one it was saved under retires blocks here. Another number of folds than
// the saved one, as in a file of old, is summed up from the summaries.
func newLiveSet(store *snapshot.Store, saved *snapshot.Contents, cfg *config.Config, memory *memory) (l *liveSet, retired int, err error) {
	l = &liveSet{
		store:      store,
		ledger:     retire.NewLedger(retire.Policy{Blocks: cfg.Retire.Blocks, Rows: cfg.Retire.Rows, Age: cfg.Retire.Age}),
		keyed:      cfg.Blocks.Unit == config.UnitKey,
		memory:     memory,
		maxClasses: cfg.Limits.Classes,
		put:        map[string]snapshot.Block{},
		parts:      map[string]*sample.Part{},
		gone:       map[string]struct{}{},
		pages:      math.MaxInt, // not known yet

		uncompacted: saved.Uncompacted,
	}
	var whole bool
	if l.sums, whole = restoredSums(saved.State, saved.Folds, cfg.Model.Folds); !whole {
		if err := store.Summaries(func(_ retire.Entry, s *incremental.Summary) error {
			l.sums.of(s.Digest()).Add(s)
			return nil
		}); err != nil {
			return nil, 0, err
		}
		l.sums.measure()
	}
	if features := saved.State.Features(); len(features) > 0 {
		l.features.Store(&features)
	}
	if err := l.restoreEpochs(saved, cfg); err != nil {
		return nil, 0, err
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
	if s := cfg.Sample; s.Rows > 0 {
		l.sample = sample.New(sample.Settings{Rows: s.Rows, Seed: uint64(s.Seed), Balanced: s.Balanced}, l.ledger.IDs)
		if len(out) > 0 {
			saved.Entries = slices.DeleteFunc(saved.Entries, func(e retire.Entry) bool {
				_, live := l.ledger.Get(e.ID)
				return !live
			})
		}
		err = l.sample.Restore(func(yield func(string, *sample.Part)) error {
			// Both are in the order of the ids.
			rest := saved.Entries
			err := store.Parts(func(id string, p *sample.Part) {
				for ; len(rest) > 0 && rest[0].ID < id; rest = rest[1:] {
					yield(rest[0].ID, nil)
				}
				if len(rest) > 0 && rest[0].ID == id {
					yield(rest[0].ID, p)
					rest = rest[1:]
				}
			})
			for _, e := range rest {
				yield(e.ID, nil)
			}
			return err
		})
	}
	return l, len(out), err
}

// fix makes the features those of the model.
func (l *liveSet) fix(features []string) {
	l.sums = newSums(features, l.sums.folds)
	l.features.Store(&features)
}

// free lets the features be others. There are no live blocks.
func (l *liveSet) free() {
	l.sums = newSums(nil, l.sums.folds)
	l.dropEpochs() // before others can be fixed, for which their coordinates would not be
	l.features.Store(nil)
}

// A candidate is what decides whether a block may become live.
type candidate struct {
	labels   []string // of its classes, each listed once
	features int
	window   exact.Window // of its sums; zero: not known yet
	in       []lifted     // the same in the coordinates of epochs, as far as known
}

// admits says why a block may not become live: it would be of too many classes, or there
// is no memory for it, or for the live set with it. Whatever is admitted is to be added.
func (l *liveSet) admits(c candidate) error {
	more := l.sums.newClasses(c.labels)
	if more > 0 {
		l.measure()
		if l.sums.most+more > l.maxClasses {
			return unusablef(kindClasses, "the model would have more than %d classes (limits.classes)", l.maxClasses)
		}
	}
	err := l.fits(c, more)
	if err != nil && more == 0 { // some classes, or large numbers, may have gone
		l.measure()
		err = l.fits(c, more)
	}
	if err != nil {
		return err
	}
	l.sums.most += more
	for _, e := range l.epochs() {
		e.sums.most += more
	}
	return nil
}

// fits says why there is no memory for a block that brings so many classes.
func (l *liveSet) fits(c candidate, more int) error {
	shapes, block := l.shapes(more), 0.0
	shapes[0].features = c.features
	shapes[0].window = shapes[0].window.Union(c.window)
	for i, s := range shapes {
		s.classes = len(c.labels)
		block += s.summary()
		for _, in := range c.in {
			if i > 0 && in.coordinates == l.epochs()[i-1].coordinates {
				shapes[i].window = shapes[i].window.Union(in.summary.Window())
			}
		}
	}
	live, room := l.memory.price(shapes, l.ledger.Len()+1), l.memory.room()
	if inMemory*block+live > room {
		return l.memory.refusal(shapes[0], block, live)
	}
	return nil
}

// fitsBasis says why there is no memory for the sums in the coordinates of a basis of so
// many points, beside those that there are.
func (l *liveSet) fitsBasis(points int) error {
	shapes := append(l.shapes(0)[:1:1], shape{features: points, classes: l.sums.most})
	if l.epoch != nil {
		shapes = append(shapes, l.epoch.sums.shape(0))
	}
	if live, room := l.memory.price(shapes, l.ledger.Len()), l.memory.room(); live > room {
		return fmt.Errorf("the live set in the coordinates of %d points would take %s, and limits.memory, %s, leaves %s: raise it, or lower kernel.basis",
			points, size(live), size(float64(l.memory.limit)), size(room))
	}
	return nil
}

func (l *liveSet) measure() {
	l.sums.measure()
	for _, e := range l.epochs() {
		e.sums.measure()
		e.sums.most = l.sums.most // it may not have all blocks yet
	}
}

// shapes are those of the sums with so many more classes: in the features, and in the
// coordinates of the epochs.
func (l *liveSet) shapes(more int) []shape {
	shapes := []shape{l.sums.shape(more)}
	for _, e := range l.epochs() {
		shapes = append(shapes, e.sums.shape(more))
	}
	return shapes
}

// add makes a block live, in the place of a live block of the same id. A block
// whose rows all weigh nothing is as if absent. It has been put into the coordinates in
// use, and the epoch that is being built waits for it where it has not been put into
// those. An error comes from the store and is final.
func (l *liveSet) add(e retire.Entry, k kept) (o outcome, err error) {
	s, part := k.summary, k.part
	if _, o.replaced = l.ledger.Get(e.ID); o.replaced {
		if l.keyed { // otherwise it has grown
			l.forget(e.ID, sourceReplaced)
		}
		if err := l.remove(e.ID); err != nil {
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
	l.churn += s.Rows()
	digest := l.content(s, part)
	l.sums.of(digest).Add(s)
	l.sums.window = l.sums.window.Union(s.Window())
	if l.sample != nil {
		// Floors may have risen since the part was taken; of the first blocks all rows
		// were.
		if part != nil {
			part = part.Above(l.sample.Levels())
		}
		l.sample.Add(e.ID, part)
	}
	for _, each := range l.epochs() {
		each.missing[e.ID] = struct{}{}
		for _, z := range k.in {
			if z.coordinates == each.coordinates {
				each.add(e.ID, z.summary, digest)
			}
		}
	}
	if !l.covers(k.in) {
		panic("daemon: block " + e.ID + " is not in the coordinates in use")
	}
	l.putBlock(snapshot.Block{Entry: e, Summary: s, Part: part})
	delete(l.gone, e.ID)
	for _, out := range l.ledger.Add(e) {
		if err := l.takeOut(out.ID); err != nil {
			return o, err
		}
		o.refused = o.refused || out.ID == e.ID
		o.retired++
	}
	return o, nil
}

// retire is an explicit retirement of a live block.
func (l *liveSet) retire(id string) error {
	if _, ok := l.ledger.Retire(id); !ok {
		panic("daemon: block " + id + " is not live")
	}
	l.retired++
	l.leaveRemains()
	l.forget(id, sourceRetired)
	return l.takeOut(id)
}

// leaveRemains notes that the file has something of a retired block in free pages, or
// will have.
func (l *liveSet) leaveRemains() {
	if l.uncompacted.IsZero() {
		l.uncompacted = time.Now()
	}
}

// putBlock notes that a block is to be saved, in the place of one of the same id.
func (l *liveSet) putBlock(b snapshot.Block) {
	if old, ok := l.put[b.Entry.ID]; ok {
		l.bytes -= unsavedBytes(old)
	}
	l.put[b.Entry.ID] = b
	l.bytes += unsavedBytes(b)
}

// dropPut notes that a block is not to be saved any more.
func (l *liveSet) dropPut(id string) {
	if b, ok := l.put[id]; ok {
		l.bytes -= unsavedBytes(b)
		delete(l.put, id)
	}
}

// unsavedBytes is what the block takes until it is saved.
func unsavedBytes(b snapshot.Block) int64 {
	n := b.Summary.Bytes()
	if b.Part != nil {
		n += b.Part.Bytes()
	}
	return int64(n)
}

// remove takes a live block out that makes room for another of its id, or is lost.
func (l *liveSet) remove(id string) error {
	if _, ok := l.ledger.Remove(id); !ok {
		panic("daemon: block " + id + " is not live")
	}
	return l.takeOut(id)
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
		if b.Part, err = l.part(id); err != nil {
			return fmt.Errorf("retire block %s: %w", id, err)
		}
	}
	l.churn += b.Summary.Rows()
	digest := l.content(b.Summary, b.Part)
	l.sums.of(digest).Remove(b.Summary)
	for _, e := range l.epochs() {
		if err := e.remove(l.store, id, digest); err != nil {
			return fmt.Errorf("retire block %s: %w", id, err)
		}
	}
	if l.sample != nil {
		l.sample.Remove(id, b.Part)
	}
	l.dropPut(id)
	delete(l.parts, id)
	l.gone[id] = struct{}{}
	return nil
}

// content is the digest of a block where it is in a fold by it. Its part has it at hand.
func (l *liveSet) content(s *incremental.Summary, p *sample.Part) (digest [sha256.Size]byte) {
	switch {
	case l.sums.folds == 0:
		return digest
	case p != nil:
		return p.Digest()
	}
	return s.Digest()
}

// part is that of a live block; nil: it has none.
func (l *liveSet) part(id string) (*sample.Part, error) {
	if b, ok := l.put[id]; ok {
		return b.Part, nil
	}
	if p, ok := l.parts[id]; ok {
		return p, nil
	}
	return l.store.Part(id)
}

// look offers the sample the parts of the blocks of which it does not know
// whether they have the rows that it needs, for about as long as that.
func (l *liveSet) look(duration time.Duration) error {
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
		if len(ids) < atOnce || time.Since(began) > duration {
			return nil
		}
	}
}

// offer gives a live block a part that was taken anew.
func (l *liveSet) offer(id string, p *sample.Part) {
	l.sample.Offer(id, p)
	if b, ok := l.put[id]; ok {
		b.Part = p
		l.putBlock(b)
	} else {
		l.parts[id] = p
	}
}

// unsaved is the number of blocks that have come or gone since the last save, or
// have been read again.
func (l *liveSet) unsaved() int {
	n := len(l.put) + len(l.parts) + len(l.gone)
	if l.next != nil {
		n += len(l.next.put)
	}
	return n
}

// unsavedMemory is what blocks that wait for a save may take, in bytes, if that is more
// than the sums take, which a save writes as well, and if there is as much.
const unsavedMemory = 32 << 20

// roomBytes is what blocks that wait for a save may take, and as much may be in the
// hands of the workers. Eight times that is free: a save holds the pages that it writes,
// four times as much as the blocks (see room), and as much may come while it writes.
func (l *liveSet) roomBytes() int64 {
	_, state := l.estimate()
	free := l.memory.room() - l.memory.price(l.shapes(0), l.ledger.Len())
	return max(1, int64(min(max(unsavedMemory, float64(state)), free/8)))
}

// room is how many blocks may wait for a save that it would be better to put off: as
// many as have room. The pages that a save writes are in memory together, and may take
// four times that.
func (l *liveSet) room() int {
	block, _ := l.estimate()
	// At worst every block is in each bucket on a page of its own, with three others of
	// its size; what a save has written beside that is not for its blocks.
	pages := min(l.pages, 4*(block+4<<10))
	return max(1, int(l.roomBytes())/max(block, pages/4))
}

// waiting is the bytes that wait for a save.
func (l *liveSet) waiting() int64 {
	n := l.bytes
	for _, e := range l.epochs() {
		n += e.bytes
	}
	return n
}

// estimate is about what a block of all classes takes, and what the sums do.
func (l *liveSet) estimate() (block, state int) {
	block = 1 << 10 // it has more than its summary
	count := func(s *sums) {
		numbers := s.classes() * gram.PackedLen(len(s.features)+1)
		block += 8 * numbers
		state += 32 * numbers * (s.folds + 1)
	}
	count(&l.sums)
	for _, e := range l.epochs() {
		count(&e.sums)
	}
	return block, state
}

// change is what has to be saved. Blocks and parts remain unsaved until saved is
// called; the sums count as saved unless notSaved is.
func (l *liveSet) change() snapshot.Change {
	c := snapshot.Change{Retired: l.retired, StaleBases: l.staleBases, Horizon: l.ledger.Horizon(), Put: make([]snapshot.Block, 0, len(l.put)), Delete: make([]string, 0, len(l.gone))}
	if len(l.sums.features) > 0 {
		c.State, c.Folds = l.sums.total(), l.sums.takeMoved()
	}
	for _, e := range l.epochs() {
		c.Epochs = append(c.Epochs, e.change(l))
	}
	l.epochsMoved = false
	if l.epoch != nil {
		c.Epoch = l.epoch.number
	}
	var levels *sample.Levels
	if l.sample != nil {
		levels = l.sample.Levels()
	}
	for id, p := range l.parts {
		p = p.Above(levels)
		l.parts[id] = p
		c.Parts = append(c.Parts, snapshot.Part{ID: id, Part: p})
	}
	for _, b := range l.put {
		if b.Part != nil { // floors have risen since it was added
			if less := b.Part.Above(levels); less != b.Part {
				b.Part = less
				l.putBlock(b)
			}
		}
		c.Put = append(c.Put, b)
	}
	for id := range l.gone {
		c.Delete = append(c.Delete, id)
	}
	return c
}

// saved says that the change has been saved. What has come, gone or been read again
// since it was made remains unsaved: a block that has gone since is in the file, one
// that has come in the place of another is to be put in its place.
func (l *liveSet) saved(c *snapshot.Change) {
	l.retired -= c.Retired
	l.staleBases -= c.StaleBases
	for i := range c.Put {
		b := &c.Put[i]
		now, ok := l.put[b.Entry.ID]
		if !ok || now.Summary != b.Summary {
			continue
		}
		l.dropPut(b.Entry.ID)
		if now.Part != b.Part {
			l.parts[b.Entry.ID] = now.Part
		}
	}
	for _, p := range c.Parts {
		if l.parts[p.ID] == p.Part {
			delete(l.parts, p.ID)
		}
	}
	for _, id := range c.Delete {
		delete(l.gone, id)
	}
	for _, e := range l.epochs() {
		for i := range c.Epochs {
			if c.Epochs[i].Number == e.number {
				e.isSaved(&c.Epochs[i])
			}
		}
	}
}

// notSaved says that the change has not been saved.
func (l *liveSet) notSaved(c *snapshot.Change) {
	l.sums.stillMoved(c.Folds)
	l.epochsMoved = true
	for _, e := range l.epochs() {
		for i := range c.Epochs {
			if c.Epochs[i].Number == e.number {
				e.sums.stillMoved(c.Epochs[i].Folds)
			}
		}
	}
}
