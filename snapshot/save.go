package snapshot

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/retire"
	"streamd/retire/receipt"
)

// Block is a live block in the ledger.
type Block struct {
	Entry retire.Entry // its time is rounded to the millisecond
	Part  *sample.Part // nil without a part
	// Digest is that of the block's summary in the features. Save computes it where it is zero.
	Digest [sha256.Size]byte
}

// Part is the part of the row sample that a live block has.
type Part struct {
	ID   string
	Part *sample.Part
}

// Summary is a live block's summary in some space.
type Summary struct {
	ID      string
	Summary *incremental.Summary
}

// Archived is a block that a policy has let go, and that is kept for the past.
type Archived struct {
	Entry retire.Entry
	// Summary is that of the features. It is nil if the entry is withdrawn. It may also be nil
	// if the file has the block, live or archived: then its summary stays where it is.
	Summary *incremental.Summary
}

// Change is the difference that a Save makes.
type Change struct {
	Delete []string // blocks that are no longer live, withdrawn or archived; those not in the file are ignored
	Put    []Block  // new blocks, or replacements of the same id; applied after Delete
	// Withdraw has withdrawn blocks, which take the place of those of the same id. None is
	// also in Put. Applied after Delete.
	Withdraw []retire.Entry
	// Archive has archived blocks, which take the place of those of the same id. None is also
	// in Put or Withdraw. Applied after Delete.
	Archive []Archived
	// Rekeyed sets the ItemKey of blocks that the file has, live, withdrawn or archived, and that
	// are in none of the above. Others are ignored.
	Rekeyed []Rekeyed
	Offsets []Offset // those that have changed
	Parts   []Part   // new ones of blocks that are live after the change
	// Spaces are all spaces after the change. Others are deleted with everything that
	// belongs to them. Without space Features, or with a State of no features, the
	// features are not fixed and there are no blocks. Applied last.
	Spaces []SpaceChange

	// The rest is saved as it is.
	InUse   uint32 // one of the Spaces; it has all live blocks, and so does Features
	Horizon retire.Rank
	Counts  Counts
	Retired int // explicit retirements in the change
	// Withdrawn counts the blocks that were live and are withdrawn. They leave remains in the
	// file, too, but a control topic repeats them for a file that is older.
	Withdrawn int
	// StaleBases counts the dropped bases that were made from such blocks. They may never
	// have been in the file.
	StaleBases int
	SavedAt    time.Time // rounded to the millisecond
	// Receipts are the leaves that the log of receipts gains; nil: none.
	Receipts *receipt.Growth
	// Detectors is a record of the drift detectors, which this package does not read; nil: as
	// at the last save.
	Detectors []byte
	// Learning is what determines a model beside the blocks, which this package does not read; nil:
	// as at the last save.
	Learning []byte
	// Joining has the rows and labels by id that have changed, and their record, which this package
	// does not read. Without a record all is as at the last save.
	Joining Joining
	// Complete adds what takes long to list: Delete, Put, Withdraw, Archive, Rekeyed, Parts and
	// the Put of each space. Prepared.Save calls it, beside the work of the caller of Prepare. Nil:
	// they are complete.
	Complete func(*Change)
}

// Joining is rows and labels by id.
type Joining struct {
	Items  []JoiningItem
	Record []byte // nil: there is none
	// Forgotten counts rows that were deleted before they were live. They leave remains in the
	// file, too.
	Forgotten int
}

// JoiningItem is the row and the label of an id. Without a value the file loses them.
type JoiningItem struct {
	ID    string
	Value []byte
}

// Rekeyed is a block with the key of its item in the tree of receipts.
type Rekeyed struct {
	ID      string
	ItemKey [sha256.Size]byte
}

// SpaceChange is the change of a space, or a whole new one. Basis and Report are ignored
// for a space that the file has. The names of the features may change if every live block
// is put.
type SpaceChange struct {
	Space
	// Put has summaries of live blocks. A block that is deleted or put loses its old
	// summary in each space.
	Put   []Summary
	State *incremental.State // the sum of the summaries that the space has after the change
	// Folds are the sums of each fold. A nil fold is as at the last save. Further folds
	// in the file are deleted.
	Folds []*incremental.State
	// Sources are blocks that the basis was chosen from, in addition to those in the
	// file. A block that is deleted or put is no longer a source unless it is listed
	// again.
	Sources []string
	Stale   uint8 // saved unchanged
}

// emptyDigest is that of a state without rows.
var emptyDigest = incremental.NewState(nil).Digest()

// SaveInfo is the size of a Save.
type SaveInfo struct {
	Bytes     int64 // written
	FileBytes int64 // size of the file
}

// Save writes a change and returns when it is on the disk. The package comment has the
// promise about errors.
//
// Save refuses a change that does not fit the file, for instance if the live blocks and
// the states differ in the number of rows. Such an error is a bug of the caller, and
// names the first fault found.
func (s *Store) Save(c Change) (SaveInfo, error) {
	p, err := s.Prepare(c)
	if err != nil {
		return SaveInfo{}, err
	}
	return p.Save()
}

// Prepared is a change whose sums are encoded, so the caller may change the sums while it
// is saved.
type Prepared struct {
	store    *Store
	change   Change
	features []string // nil: they are not fixed yet
	spaces   []preparedSpace
}

// preparedSpace is a SpaceChange whose sums are encoded.
type preparedSpace struct {
	*SpaceChange // without State and Folds, which the caller may change
	features     []string
	rows         int64
	digest       [sha256.Size]byte // set by Save, beside the caller's work
	// states are the encoded state and folds, to be sealed. A nil element is as at the last
	// save.
	states [][]byte
}

// Prepare is the first part of Save, and Prepared.Save is the second. Blocks, parts,
// summaries and other immutable values are not copied. A change must be saved, or have
// failed, before the next one is prepared.
func (s *Store) Prepare(c Change) (*Prepared, error) {
	c.Spaces = slices.Clone(c.Spaces)
	c.Spaces = slices.DeleteFunc(c.Spaces, func(s SpaceChange) bool {
		return s.Number == Features && (s.State == nil || len(s.State.Features()) == 0)
	})
	p := &Prepared{store: s, change: c}
	for i := range c.Spaces {
		if space := &c.Spaces[i]; space.Number == Features {
			p.features = space.State.Features()
		}
	}
	if err := c.check(p.features); err != nil {
		return nil, fmt.Errorf("save snapshot %s: %w", s.path, err)
	}
	for i := range c.Spaces {
		space := &c.Spaces[i]
		e := preparedSpace{
			SpaceChange: space, features: space.State.Features(), rows: space.State.Rows(),
			states: [][]byte{space.State.AppendBinary(frame())},
		}
		for _, fold := range space.Folds {
			var value []byte
			if fold != nil {
				value = fold.AppendBinary(frame())
			}
			e.states = append(e.states, value)
		}
		space.State, space.Folds = nil, nil
		p.spaces = append(p.spaces, e)
	}
	return p, nil
}

// Save writes the change and returns when it is on the disk.
func (p *Prepared) Save() (SaveInfo, error) {
	info, err := p.save()
	if err != nil {
		return SaveInfo{}, fmt.Errorf("save snapshot %s: %w", p.store.path, err)
	}
	return info, nil
}

func (p *Prepared) save() (info SaveInfo, err error) {
	s, c := p.store, &p.change
	if c.Complete != nil {
		c.Complete(c)
	}
	if err := p.checkBlocks(); err != nil {
		return info, err
	}
	put := byID(c.Put, func(b *Block) string { return b.Entry.ID })
	if err := p.checkIDs(put); err != nil {
		return info, err
	}
	for i := range p.spaces {
		space := &p.spaces[i]
		if space.digest = emptyDigest; space.rows > 0 {
			space.digest = sha256.Sum256(space.states[0][frameSize:]) // as State.Digest is defined
		}
	}
	digests, err := p.digests(put)
	if err != nil {
		return info, err
	}
	var retired int64 // all in the file
	err = s.update(func(w *writer) error {
		if err := p.write(w, put, digests); err != nil {
			return err
		}
		retired = w.head.retirements
		w.tx.OnCommit(func() {
			stats := w.tx.Stats()
			info.Bytes = stats.GetPageAlloc()
		})
		return nil
	})
	if err == nil && c.Retired > 0 {
		err = s.keepRetired(retirements{retired, c.SavedAt})
	}
	if err == nil && c.Receipts != nil {
		s.checkpoint = c.Receipts.Checkpoint
	}
	if err == nil {
		err = s.keepCheckpoint()
	}
	if err != nil {
		return info, err
	}
	s.features = p.features
	if file, err := os.Stat(s.path); err == nil {
		info.FileBytes = file.Size()
	}
	s.forget()
	return info, nil
}

// checkIDs checks that a block comes to one place only. put is in the order of ids.
func (p *Prepared) checkIDs(put []*Block) error {
	for i := 1; i < len(put); i++ {
		if id := put[i].Entry.ID; id == put[i-1].Entry.ID {
			return fmt.Errorf("block %q is put twice", id)
		}
	}
	isPut := func(id string) bool {
		_, is := slices.BinarySearchFunc(put, id, func(b *Block, id string) int { return strings.Compare(b.Entry.ID, id) })
		return is
	}
	for i := range p.change.Withdraw {
		if id := p.change.Withdraw[i].ID; isPut(id) {
			return fmt.Errorf("block %q is put and withdrawn", id)
		}
	}
	for i := range p.change.Archive {
		if id := p.change.Archive[i].Entry.ID; isPut(id) {
			return fmt.Errorf("block %q is put and archived", id)
		}
	}
	return nil
}

// write writes the change in a transaction. put are its blocks in the order of ids, with the
// digests of their summaries.
func (p *Prepared) write(w *writer, put []*Block, digests [][sha256.Size]byte) error {
	c := &p.change
	old, err := readHead(w.tx)
	if err != nil {
		return err
	}
	w.head = &head{
		savedAt: c.SavedAt, horizon: c.Horizon, counts: c.Counts, inUse: c.InUse,
		rows: old.rows, blocks: old.blocks, offsets: old.offsets, parts: old.parts, withdrawn: old.withdrawn, archive: old.archive, joining: old.joining,
		retirements: old.retirements + int64(max(0, c.Retired)), uncompacted: old.uncompacted,
	}
	if c.Retired+c.Withdrawn+c.StaleBases+c.Joining.Forgotten > 0 && w.head.uncompacted.IsZero() {
		w.head.uncompacted = c.SavedAt
	}
	if w.spaces, err = readRecords(w.tx); err != nil {
		return err
	}
	if err := p.writeBlocks(w, put, digests); err != nil {
		return err
	}
	for _, o := range c.Offsets {
		if err := w.putOffset(o); err != nil {
			return err
		}
	}
	if err := w.putSpaces(p.spaces, put, p.otherFeatures()); err != nil {
		return err
	}
	if err := w.putJoining(&c.Joining); err != nil {
		return err
	}
	if err := w.putReceipts(c.Receipts); err != nil {
		return err
	}
	if c.Detectors != nil {
		if err := w.putHistory(keyDetectors, c.Detectors); err != nil {
			return err
		}
	}
	if c.Learning != nil {
		last, err := readHistory(w.tx, keyLearning)
		if err != nil {
			return err
		}
		if !bytes.Equal(last, c.Learning) {
			if err := w.putHistory(keyLearning, c.Learning); err != nil {
				return err
			}
		}
	}
	return w.putHead()
}

// otherFeatures reports whether the change has other features than the file.
func (p *Prepared) otherFeatures() bool { return !slices.Equal(p.features, p.store.features) }

// writeBlocks takes blocks out of the file and puts others in.
func (p *Prepared) writeBlocks(w *writer, put []*Block, digests [][sha256.Size]byte) error {
	c := &p.change
	for _, id := range slices.Sorted(slices.Values(c.Delete)) {
		if err := w.delete(id); err != nil {
			return err
		}
	}
	blocks := finder{cursor: w.tx.Bucket(bucketBlocks).Cursor()}
	for i, b := range put {
		if err := w.put(b, &digests[i], blocks.find([]byte(b.Entry.ID))); err != nil {
			return err
		}
	}
	for _, e := range byID(c.Withdraw, func(e *retire.Entry) string { return e.ID }) {
		if err := w.withdraw(e); err != nil {
			return err
		}
	}
	for _, k := range byID(c.Rekeyed, func(k *Rekeyed) string { return k.ID }) {
		if err := w.rekey(k); err != nil {
			return err
		}
	}
	made := 0 // summaries of archived blocks
	for _, a := range byID(c.Archive, func(a *Archived) string { return a.Entry.ID }) {
		if err := w.archive(a); err != nil {
			return err
		}
		if a.Summary != nil {
			made++
		}
	}
	if p.otherFeatures() && (w.head.blocks.n > int64(len(put)) || w.head.archive.summaries.n > int64(made)) {
		return fmt.Errorf("features %q were saved, now they are %q, and blocks would stay as they were", p.store.features, p.features)
	}
	for _, part := range byID(c.Parts, func(p *Part) string { return p.ID }) {
		if w.tx.Bucket(bucketBlocks).Get([]byte(part.ID)) == nil {
			return fmt.Errorf("block %q has a part but is not live", part.ID)
		}
		w.forgetPart(part.ID)
		if err := w.putPart(part.ID, part.Part); err != nil {
			return err
		}
	}
	return nil
}

// digests are those of the summaries in the features of the blocks that are put, in the
// order of put. Both have the same blocks.
func (p *Prepared) digests(put []*Block) ([][sha256.Size]byte, error) {
	var summaries []*Summary
	for i := range p.spaces {
		if p.spaces[i].Number == Features {
			summaries = byID(p.spaces[i].Put, func(s *Summary) string { return s.ID })
		}
	}
	digests := make([][sha256.Size]byte, len(put))
	for i, b := range put {
		if i >= len(summaries) || summaries[i].ID != b.Entry.ID {
			return nil, fmt.Errorf("from block %q on, the blocks that are put are not those of the summaries in the features", b.Entry.ID)
		}
		digests[i] = b.digestOf(summaries[i].Summary)
	}
	if len(summaries) > len(put) {
		return nil, fmt.Errorf("the features have %d summaries for the %d blocks that are put", len(summaries), len(put))
	}
	return digests, nil
}

// digestOf is the digest of the block's summary in the features.
func (b *Block) digestOf(s *incremental.Summary) [sha256.Size]byte {
	if b.Digest == ([sha256.Size]byte{}) {
		return s.Digest()
	}
	return b.Digest
}

// byID lists elements ordered by id, the order in which bbolt takes keys fastest.
func byID[T any](all []T, id func(*T) string) []*T {
	sorted := make([]*T, len(all))
	for i := range all {
		sorted[i] = &all[i]
	}
	slices.SortFunc(sorted, func(a, b *T) int { return strings.Compare(id(a), id(b)) })
	return sorted
}

// checkPosition refuses a position that cannot be saved.
func checkPosition(p incremental.Position) error {
	switch {
	case p.Partition < 0 || p.Partition > math.MaxInt32:
		return fmt.Errorf("partition %d", p.Partition)
	case p.Offset < 0:
		return fmt.Errorf("offset %d", p.Offset)
	case len(p.Topic) > MaxID-4: // the topic is part of a key
		return fmt.Errorf("a topic of %d bytes", len(p.Topic))
	}
	return nil
}

// check refuses a change that could be written but not read again, by what is not about blocks.
// features are those after the change; nil if they are not fixed.
func (c *Change) check(features []string) error {
	if err := checkPosition(c.Horizon.Position); err != nil {
		return fmt.Errorf("the horizon: %w", err)
	}
	for i := range c.Joining.Items {
		if id := c.Joining.Items[i].ID; id == "" || len(id) > MaxID {
			return fmt.Errorf("row or label %.40q: its id has %d bytes; it has 1 to %d", id, len(id), MaxID)
		}
	}
	if len(c.Joining.Items) > 0 && c.Joining.Record == nil {
		return errors.New("there are rows or labels without their record")
	}
	seen := map[uint32]bool{Features: features == nil} // without features no other space needs to be in use
	for i := range c.Spaces {
		space := &c.Spaces[i]
		if seen[space.Number] {
			return fmt.Errorf("space %d is listed twice", space.Number)
		}
		seen[space.Number] = true
		if err := space.check(); err != nil {
			return fmt.Errorf("space %d: %w", space.Number, err)
		}
	}
	if !seen[c.InUse] {
		return fmt.Errorf("space %d is in use, but not among the spaces", c.InUse)
	}
	for i := range c.Offsets {
		o := &c.Offsets[i]
		if err := checkPosition(incremental.Position{Topic: o.Topic, Partition: o.Partition, Offset: o.Next}); err != nil {
			return fmt.Errorf("offset: %w", err)
		}
		n := len(o.EventTimes)
		if g := o.Growing; g != nil {
			if g.Next < o.Next {
				return fmt.Errorf("offset of %s/%d: a growing block ends at %d, before %d", o.Topic, o.Partition, g.Next, o.Next)
			}
			n = max(n, len(g.EventTimes))
		}
		if n > MaxEventTimes {
			return fmt.Errorf("offset of %s/%d: %d event times, more than %d", o.Topic, o.Partition, n, MaxEventTimes)
		}
	}
	return nil
}

// checkBlocks is check of the blocks.
func (p *Prepared) checkBlocks() error {
	c, features := &p.change, p.features
	for i := range c.Put {
		e := &c.Put[i].Entry
		switch err := checkPosition(e.Position); {
		case e.ID == "":
			return errors.New("a block without an id")
		case len(e.ID) > MaxID:
			return fmt.Errorf("block %.40q…: its id has %d bytes, more than %d", e.ID, len(e.ID), MaxID)
		case err != nil:
			return fmt.Errorf("block %q: %w", e.ID, err)
		case features == nil:
			return fmt.Errorf("block %q without a state", e.ID)
		}
		if p := c.Put[i].Part; p != nil && (p.Features() != len(features) || p.Rows() != e.Rows) {
			return fmt.Errorf("block %q has %d rows of %d features, its part %d of %d", e.ID, e.Rows, len(features), p.Rows(), p.Features())
		}
	}
	for i := range c.Withdraw {
		e := &c.Withdraw[i]
		switch err := checkPosition(e.Position); {
		case e.ID == "" || len(e.ID) > MaxID:
			return fmt.Errorf("withdrawn block %.40q: its id has %d bytes; it has 1 to %d", e.ID, len(e.ID), MaxID)
		case err != nil:
			return fmt.Errorf("withdrawn block %q: %w", e.ID, err)
		}
	}
	for i := range c.Archive {
		a := &c.Archive[i]
		switch e, s := &a.Entry, a.Summary; {
		case e.ID == "" || len(e.ID) > MaxID:
			return fmt.Errorf("archived block %.40q: its id has %d bytes; it has 1 to %d", e.ID, len(e.ID), MaxID)
		case checkPosition(e.Position) != nil:
			return fmt.Errorf("archived block %q: %w", e.ID, checkPosition(e.Position))
		case s == nil:
		case e.Withdrawn:
			return fmt.Errorf("archived block %q is withdrawn, and has a summary", e.ID)
		case s.Features() != len(features) || s.Rows() != e.Rows:
			return fmt.Errorf("archived block %q has %d rows of %d features, its summary %d of %d", e.ID, e.Rows, len(features), s.Rows(), s.Features())
		}
	}
	for _, p := range c.Parts {
		if p.Part == nil || p.Part.Features() != len(features) {
			return fmt.Errorf("block %q: its part does not fit the %d features", p.ID, len(features))
		}
	}
	for i := range p.spaces {
		space := &p.spaces[i]
		for _, b := range space.Put {
			if b.Summary.Features() != len(space.features) {
				return fmt.Errorf("space %d: block %q has %d features, the state %d", space.Number, b.ID, b.Summary.Features(), len(space.features))
			}
		}
	}
	return nil
}

func (s *SpaceChange) check() error {
	if s.State == nil || len(s.State.Features()) == 0 {
		return errors.New("it has no state")
	}
	features := s.State.Features()
	for i, fold := range s.Folds {
		if fold != nil && !slices.Equal(fold.Features(), features) {
			return fmt.Errorf("fold %d has features %q, the state %q", i, fold.Features(), features)
		}
	}
	return nil
}

// SaveHistory replaces the saved history of the daemon's figures, which this package does
// not read. It works independently of Save, and returns when the history is on the disk.
// The record has its own bucket, because in the bucket of the head every save would write
// it again.
func (s *Store) SaveHistory(record []byte) error {
	err := s.update(func(w *writer) error { return w.putHistory(keyHistory, record) })
	if err != nil {
		return fmt.Errorf("save the history in snapshot %s: %w", s.path, err)
	}
	return nil
}

func (w *writer) putHistory(key, record []byte) error {
	if _, err := w.tx.CreateBucketIfNotExists(bucketHistory); err != nil {
		return err
	}
	return w.putValue(bucketHistory, key, append(frame(), record...))
}

// writer makes the changes of a transaction and keeps its head up to date.
type writer struct {
	tx     *bbolt.Tx
	head   *head
	spaces []spaceRecord // of the file, without the blocks that the transaction has removed
	room   []byte        // empty; for further frames
	chunks []*chunk      // hold the frames and the room
	summer *summer       // of the file's values; nil if the file is not under a key
}

// chunk is memory for frames, reused by every save.
type chunk [chunkSize]byte

var chunks = sync.Pool{New: func() any { return new(chunk) }}

const (
	// chunkSize is the memory that frames of small values share. Separate allocations would
	// cost more than filling the frames.
	chunkSize = 64 << 10
	// leastRoom is the least room that a chunk has for the next frame.
	leastRoom = 4 << 10
)

// encode makes a value by appending to an empty frame. The value stays unchanged until the
// transaction ends, as bbolt requires.
func (w *writer) encode(appendTo func(frame []byte) []byte) (value []byte) {
	if cap(w.room) < leastRoom {
		c := chunks.Get().(*chunk)
		w.chunks, w.room = append(w.chunks, c), c[:0]
	}
	value = appendTo(w.room[:frameSize])
	if cap(value) == cap(w.room) { // otherwise it did not fit, and has memory of its own
		w.room = value[len(value):]
	}
	return slices.Clip(value)
}

// close releases the frames' memory. The transaction must have ended.
func (w *writer) close() {
	for _, c := range w.chunks {
		chunks.Put(c)
	}
	w.chunks, w.room = nil, nil
}

// putValue writes a value whose payload starts at frameSize.
func (w *writer) putValue(bucket, key, value []byte) error {
	if err := seal(bucket, key, value); err != nil {
		return err
	}
	b := w.tx.Bucket(bucket)
	if w.summer != nil {
		if old := b.Get(key); old != nil {
			w.summer.sum.remove(w.summer.mac(bucket, key, old))
		}
		w.summer.sum.add(w.summer.mac(bucket, key, value))
	}
	b.FillPercent = fillPercent
	return b.Put(key, value)
}

// deleteValue deletes a value, if there is one.
func (w *writer) deleteValue(bucket, key []byte) error {
	b := w.tx.Bucket(bucket)
	if w.summer != nil {
		if old := b.Get(key); old != nil {
			w.summer.sum.remove(w.summer.mac(bucket, key, old))
		}
	}
	return b.Delete(key)
}

// putMAC writes the file's MAC. It comes last.
func (w *writer) putMAC() error {
	value, err := w.summer.fileMAC()
	if err != nil {
		return err
	}
	return w.tx.Bucket(bucketMeta).Put(keyMAC, value)
}

// createBuckets makes the buckets of an empty file.
func createBuckets(tx *bbolt.Tx) error {
	for _, name := range append(slices.Clone(buckets), bucketMeta) {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return nil
}

// initialise writes the contents of an empty file.
func initialise(w *writer, s Settings) error {
	if err := createBuckets(w.tx); err != nil {
		return err
	}
	w.head = &head{horizon: retire.NewLedger(retire.Policy{}).Horizon()}
	return errors.Join(w.putFormat(), w.putSettings(s), w.putHead())
}

func (w *writer) putFormat() error {
	return w.putValue(bucketMeta, keyFormat, appendFormat(frame(), version, program))
}

func (w *writer) putSettings(s Settings) error {
	return w.putValue(bucketMeta, keySettings, appendSettings(frame(), s))
}

// putHead writes the head, and what goes with it.
func (w *writer) putHead() error {
	for _, v := range headValues(w.head) {
		if v.value == nil {
			if err := w.deleteValue(bucketMeta, v.key); err != nil {
				return err
			}
		} else if err := w.putValue(bucketMeta, v.key, v.value); err != nil {
			return err
		}
	}
	return nil
}

// keyed is a value with its key.
type keyed struct{ key, value []byte }

// headValues are the frames of the head and of the tallies beside it. Those that count nothing are
// nil.
func headValues(h *head) []keyed {
	values := []keyed{
		{keyHead, appendHead(frame(), h)}, {keyWithdrawn, nil}, {keyArchive, nil}, {keyJoining, nil},
	}
	if h.withdrawn != (tally{}) {
		values[1].value = appendTally(frame(), h.withdrawn)
	}
	if h.archive != (archiveTally{}) {
		values[2].value = appendTally(appendTally(frame(), h.archive.blocks), h.archive.summaries)
	}
	if h.joining.record != nil {
		values[3].value = appendJoiningTally(frame(), h.joining)
	}
	return values
}

func (w *writer) putOffset(o Offset) error {
	key := offsetKey(&o)
	if old := w.tx.Bucket(bucketOffsets).Get(key); old != nil {
		w.head.offsets.remove(old)
	}
	value := appendOffset(frame(), &o)
	if err := w.putValue(bucketOffsets, key, value); err != nil {
		return err
	}
	w.head.offsets.add(value)
	return nil
}

// finder looks up keys in ascending order. Ids of new blocks mostly follow each other and
// lie between the same two keys of the bucket, so one search shows that none of them
// exists. Keys that were looked up may be put or deleted meanwhile.
type finder struct {
	cursor     *bbolt.Cursor
	sought     bool
	key, value []byte // the first at or after the last key sought, or nil
}

// find returns the value of a key, or nil.
func (f *finder) find(key []byte) []byte {
	if !f.sought || f.key != nil && bytes.Compare(f.key, key) < 0 {
		f.sought = true
		f.key, f.value = f.cursor.Seek(key)
	}
	if !bytes.Equal(f.key, key) {
		return nil
	}
	return f.value
}

// put writes a block. digest is that of its summary in the features, and old is the ledger's
// value of the block that it replaces, or nil.
func (w *writer) put(b *Block, digest *[sha256.Size]byte, old []byte) error {
	if old != nil {
		if err := w.forget(b.Entry.ID, old, false); err != nil {
			return err
		}
	}
	if err := errors.Join(w.deleteWithdrawn(b.Entry.ID), w.deleteArchived(b.Entry.ID)); err != nil {
		return err
	}
	value := w.encode(func(frame []byte) []byte { return appendBlock(frame, &b.Entry, digest) })
	if err := w.putValue(bucketBlocks, []byte(b.Entry.ID), value); err != nil {
		return err
	}
	w.head.blocks.add(value)
	w.head.rows += b.Entry.Rows
	switch {
	case b.Part != nil:
		return w.putPart(b.Entry.ID, b.Part)
	case old != nil:
		return w.deleteValue(bucketParts, []byte(b.Entry.ID))
	}
	return nil
}

// withdraw writes the entry of a withdrawn block.
func (w *writer) withdraw(e *retire.Entry) error {
	if err := w.delete(e.ID); err != nil {
		return err
	}
	if _, err := w.tx.CreateBucketIfNotExists(bucketWithdrawn); err != nil {
		return err
	}
	value := w.encode(func(frame []byte) []byte { return appendBlock(frame, e, nil) })
	if err := w.putValue(bucketWithdrawn, []byte(e.ID), value); err != nil {
		return err
	}
	w.head.withdrawn.add(value)
	return nil
}

// putJoining writes the changed rows and labels by id, and their record.
func (w *writer) putJoining(c *Joining) error {
	if c.Record == nil {
		return nil
	}
	b, err := w.tx.CreateBucketIfNotExists(bucketJoining)
	if err != nil {
		return err
	}
	t := &w.head.joining
	t.record = c.Record
	for _, item := range byID(c.Items, func(i *JoiningItem) string { return i.ID }) {
		key := []byte(item.ID)
		if old := b.Get(key); old != nil {
			t.items.remove(old)
		}
		if item.Value == nil {
			if err := w.deleteValue(bucketJoining, key); err != nil {
				return err
			}
			continue
		}
		value := w.encode(func(frame []byte) []byte { return append(frame, item.Value...) })
		if err := w.putValue(bucketJoining, key, value); err != nil {
			return err
		}
		t.items.add(value)
	}
	return nil
}

// rekey sets the ItemKey of an entry that has none.
func (w *writer) rekey(k *Rekeyed) error {
	for _, in := range []struct {
		bucket []byte
		tally  *tally
	}{{bucketBlocks, &w.head.blocks}, {bucketWithdrawn, &w.head.withdrawn}, {bucketArchive, &w.head.archive.blocks}} {
		if in.tally.n == 0 {
			continue
		}
		old := w.tx.Bucket(in.bucket).Get([]byte(k.ID))
		if old == nil {
			continue
		}
		e, digest, has, err := decodeEntry(in.bucket, k.ID, old)
		if err != nil {
			return err
		}
		if e.ItemKey == k.ItemKey {
			continue
		}
		e.ItemKey = k.ItemKey
		summary := &digest
		if !has {
			summary = nil
		}
		in.tally.remove(old)
		value := w.encode(func(frame []byte) []byte { return appendBlock(frame, &e, summary) })
		if err := w.putValue(in.bucket, []byte(k.ID), value); err != nil {
			return err
		}
		in.tally.add(value)
	}
	return nil
}

// deleteWithdrawn deletes the entry of a withdrawn block, if there is one.
func (w *writer) deleteWithdrawn(id string) error {
	if w.head.withdrawn.n == 0 {
		return nil
	}
	value := w.tx.Bucket(bucketWithdrawn).Get([]byte(id))
	if value == nil {
		return nil
	}
	w.head.withdrawn.remove(value)
	return w.deleteValue(bucketWithdrawn, []byte(id))
}

// archive writes the entry of an archived block, and its summary if it is given. Otherwise the
// summary that the file has of the block counts for the archive from now on: that of many
// blocks that a policy lets go at once need not be written again.
func (w *writer) archive(a *Archived) error {
	id := a.Entry.ID
	key := blockKey(Features, id)
	if a.Summary != nil || a.Entry.Withdrawn {
		if err := w.delete(id); err != nil {
			return err
		}
	}
	var digest *[sha256.Size]byte
	live, archived := w.tx.Bucket(bucketBlocks).Get([]byte(id)), w.archivedEntry(id)
	switch {
	case live != nil:
		_, saved, err := decodeBlock(id, live)
		if err := errors.Join(
			err, w.forget(id, live, true), w.deleteValue(bucketBlocks, []byte(id)), w.deleteValue(bucketParts, []byte(id)),
		); err != nil {
			return err
		}
		digest = &saved
		w.head.archive.summaries.addKeyed(key, w.tx.Bucket(bucketSummaries).Get(key))
	case a.Summary != nil:
		digest = new(a.Summary.Digest())
		value := w.encode(a.Summary.AppendBinary)
		if err := w.putValue(bucketSummaries, key, value); err != nil {
			return err
		}
		w.head.archive.summaries.addKeyed(key, value)
	case archived != nil:
		e, saved, err := decodeArchived(id, archived)
		if err == nil && e.Withdrawn {
			err = fmt.Errorf("archived block %q is not withdrawn any more, and has no summary", id)
		}
		if err != nil {
			return err
		}
		digest = &saved
		w.head.archive.blocks.remove(archived)
	case !a.Entry.Withdrawn:
		return fmt.Errorf("block %q is archived without a summary, and the file has none", id)
	}
	if _, err := w.tx.CreateBucketIfNotExists(bucketArchive); err != nil {
		return err
	}
	value := w.encode(func(frame []byte) []byte { return appendBlock(frame, &a.Entry, digest) })
	if err := w.putValue(bucketArchive, []byte(id), value); err != nil {
		return err
	}
	w.head.archive.blocks.add(value)
	return nil
}

// archivedEntry is the value of the entry of an archived block, or nil.
func (w *writer) archivedEntry(id string) []byte {
	if w.head.archive.blocks.n == 0 {
		return nil
	}
	return w.tx.Bucket(bucketArchive).Get([]byte(id))
}

// deleteArchived deletes an archived block, if there is one, with its summary.
func (w *writer) deleteArchived(id string) error {
	value := w.archivedEntry(id)
	if value == nil {
		return nil
	}
	w.head.archive.blocks.remove(value)
	key := blockKey(Features, id)
	if summary := w.tx.Bucket(bucketSummaries).Get(key); summary != nil {
		w.head.archive.summaries.removeKeyed(key, summary)
		if err := w.deleteValue(bucketSummaries, key); err != nil {
			return err
		}
	}
	return w.deleteValue(bucketArchive, []byte(id))
}

// delete deletes a block, live, withdrawn or archived.
func (w *writer) delete(id string) error {
	if err := errors.Join(w.deleteWithdrawn(id), w.deleteArchived(id)); err != nil {
		return err
	}
	value := w.tx.Bucket(bucketBlocks).Get([]byte(id))
	if value == nil {
		return nil
	}
	return errors.Join(
		w.forget(id, value, false),
		w.deleteValue(bucketBlocks, []byte(id)),
		w.deleteValue(bucketParts, []byte(id)),
	)
}

// forget removes the live block with that id and value from the head and from all spaces. If
// the block is archived, its summary in the features stays.
func (w *writer) forget(id string, value []byte, archived bool) error {
	e, _, err := decodeBlock(id, value)
	if err != nil {
		return err
	}
	w.head.blocks.remove(value)
	w.head.rows -= e.Rows
	w.forgetPart(id)
	for i := range w.spaces {
		r := &w.spaces[i]
		key := blockKey(r.number, id)
		if old := w.tx.Bucket(bucketSummaries).Get(key); old != nil {
			r.summaries.removeKeyed(key, old)
			r.rows -= e.Rows
			if archived && r.number == Features {
				continue // without sources
			}
			if err := w.deleteValue(bucketSummaries, key); err != nil {
				return err
			}
		}
		if old := w.tx.Bucket(bucketSources).Get(key); old != nil {
			r.sources.remove(old)
			if err := w.deleteValue(bucketSources, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetPart removes the part of that id from the head, if there is one.
func (w *writer) forgetPart(id string) {
	if value := w.tx.Bucket(bucketParts).Get([]byte(id)); value != nil {
		w.head.parts.remove(value)
	}
}

// putPart writes the part of a block. The head has no part for that block.
func (w *writer) putPart(id string, p *sample.Part) error {
	value := w.encode(p.AppendBinary)
	if err := w.putValue(bucketParts, []byte(id), value); err != nil {
		return err
	}
	w.head.parts.add(value)
	return nil
}

// putSpaces makes the spaces those of a change. put are its blocks in the order of ids. others says
// that the features have changed since the last save.
func (w *writer) putSpaces(spaces []preparedSpace, put []*Block, others bool) error {
	for _, r := range w.spaces {
		if !slices.ContainsFunc(spaces, func(s preparedSpace) bool { return s.Number == r.number }) {
			if err := w.deleteSpace(r.number); err != nil {
				return err
			}
		}
	}
	for i := range spaces {
		s := &spaces[i]
		if err := w.putSpace(s, put, others && s.Number == Features); err != nil {
			return fmt.Errorf("space %d: %w", s.Number, err)
		}
	}
	if n := w.head.blocks.n + w.head.archive.summaries.n; n > 0 && !slices.ContainsFunc(spaces, func(s preparedSpace) bool { return s.Number == Features }) {
		return fmt.Errorf("there are %d live or archived blocks without features", n)
	}
	return nil
}

func (w *writer) deleteSpace(number uint32) error {
	prefix := spaceKey(number)
	for _, name := range [][]byte{bucketSpaces, bucketBases, bucketSources, bucketStates, bucketSummaries} {
		var keys [][]byte // a cursor loses its place when its value is deleted
		place{name, prefix}.each(w.tx, func(key, _ []byte) error {
			keys = append(keys, bytes.Clone(key))
			return nil
		})
		for _, key := range keys {
			if err := w.deleteValue(name, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// putSpace writes a space. It always writes the state if the names have changed.
func (w *writer) putSpace(s *preparedSpace, put []*Block, others bool) error {
	r := spaceRecord{number: s.Number}
	if i := slices.IndexFunc(w.spaces, func(r spaceRecord) bool { return r.number == s.Number }); i >= 0 {
		r = w.spaces[i]
	} else if s.Number != Features {
		basis := appendBasis(frame(), &s.Space)
		if err := w.putValue(bucketBases, spaceKey(s.Number), basis); err != nil {
			return err
		}
		r.basisChecksum = frameChecksum(basis)
	}
	r.stale = s.Stale
	if err := w.putSources(&r, s.Sources); err != nil {
		return err
	}
	if err := w.putSummaries(&r, s.Put, put); err != nil {
		return err
	}
	states := s.states
	if s.digest == r.digest && r.states.n > 0 && !others {
		states = append([][]byte{nil}, states[1:]...) // the state is in the file
	}
	if err := w.putStates(&r, states); err != nil {
		return err
	}
	r.digest = s.digest
	switch complete := s.Number == Features || s.Number == w.head.inUse; {
	case s.rows != r.rows:
		return fmt.Errorf("the state has %d rows, its blocks %d", s.rows, r.rows)
	case complete && (r.summaries.n != w.head.blocks.n || r.rows != w.head.rows):
		return fmt.Errorf("it has to have all live blocks, and has %d of %d", r.summaries.n, w.head.blocks.n)
	}
	value := appendSpace(frame(), &r)
	if err := w.putValue(bucketSpaces, spaceKey(s.Number), value); err != nil {
		return err
	}
	w.head.spaces.add(value)
	return nil
}

// putSources adds sources to a space.
func (w *writer) putSources(r *spaceRecord, ids []string) error {
	for _, id := range slices.Sorted(slices.Values(ids)) {
		if w.tx.Bucket(bucketBlocks).Get([]byte(id)) == nil {
			return fmt.Errorf("block %q is a source but not live", id)
		}
		key := blockKey(r.number, id)
		if w.tx.Bucket(bucketSources).Get(key) != nil {
			continue
		}
		value := w.encode(func(frame []byte) []byte { return frame })
		if err := w.putValue(bucketSources, key, value); err != nil {
			return err
		}
		r.sources.add(value)
	}
	return nil
}

// putSummaries adds or replaces summaries of live blocks in a space. put are blocks of the same
// change in the order of ids.
func (w *writer) putSummaries(r *spaceRecord, all []Summary, put []*Block) error {
	saved := finder{cursor: w.tx.Bucket(bucketSummaries).Cursor()}
	sorted := byID(all, func(p *Summary) string { return p.ID })
	for i, p := range sorted {
		if i > 0 && p.ID == sorted[i-1].ID {
			return fmt.Errorf("block %q is put twice", p.ID)
		}
		for len(put) > 0 && put[0].Entry.ID < p.ID {
			put = put[1:]
		}
		var rows int64
		if len(put) > 0 && put[0].Entry.ID == p.ID {
			rows = put[0].Entry.Rows
		} else {
			e, _, err := decodeBlock(p.ID, w.tx.Bucket(bucketBlocks).Get([]byte(p.ID)))
			if err != nil {
				return fmt.Errorf("block %q: %w", p.ID, err)
			}
			rows = e.Rows
		}
		if p.Summary.Rows() != rows {
			return fmt.Errorf("block %q has %d rows in the ledger, its summary %d", p.ID, rows, p.Summary.Rows())
		}
		key := blockKey(r.number, p.ID)
		if old := saved.find(key); old != nil {
			r.summaries.removeKeyed(key, old)
			r.rows -= rows
		}
		value := w.encode(p.Summary.AppendBinary)
		if err := w.putValue(bucketSummaries, key, value); err != nil {
			return err
		}
		r.summaries.addKeyed(key, value)
		r.rows += rows
	}
	return nil
}

// putStates writes the changed states of a space and deletes those beyond them. A nil
// value is unchanged in the file.
func (w *writer) putStates(r *spaceRecord, values [][]byte) error {
	b := w.tx.Bucket(bucketStates)
	for i, value := range values {
		key := stateKey(r.number, i)
		old := b.Get(key)
		switch {
		case value == nil && old == nil:
			return fmt.Errorf("fold %d is not in the file", i-1)
		case value == nil:
			continue
		case old != nil:
			r.states.remove(old)
		}
		if err := w.putValue(bucketStates, key, value); err != nil {
			return err
		}
		r.states.add(value)
	}
	for i := len(values); ; i++ {
		key := stateKey(r.number, i)
		old := b.Get(key)
		if old == nil {
			return nil
		}
		r.states.remove(old)
		if err := w.deleteValue(bucketStates, key); err != nil {
			return err
		}
	}
}
