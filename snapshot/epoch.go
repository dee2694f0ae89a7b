package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"go.etcd.io/bbolt"

	"streamd/incremental"
	"streamd/incremental/decode"
)

// Epoch names a set of coordinates beside the features, in which live blocks are
// summed as well. Basis says what they are and Report how they came about; this
// package does not look into either.
type Epoch struct {
	Number uint32 // > 0; others may have it when this one is in the file no more
	Basis  []byte
	Report []byte
}

// EpochChange is what a Save changes of an epoch, or all of one that is new; of
// those that were saved before, Basis and Report are not looked at.
type EpochChange struct {
	Epoch
	// Sources are blocks whose rows the basis was chosen from, in addition to those in
	// the file. A block that goes, or is put, is one no more unless it is listed again.
	Sources []string
	Stale   uint8                // saved as it is; this package does not look into it
	Put     []EpochSummary       // of live blocks; a block that goes, or is put, loses what it had
	State   *incremental.State   // the sum of the summaries that the epoch has after the change
	Folds   []*incremental.State // nil among them: as at the last save; those beyond are deleted
}

// EpochSummary is a live block's summary in the coordinates of an epoch.
type EpochSummary struct {
	ID      string
	Summary *incremental.Summary
}

// EpochContents is what a file holds of an epoch, but for the summaries.
type EpochContents struct {
	Epoch
	Sources []string // in order
	Stale   uint8
	State   *incremental.State
	Folds   []*incremental.State
	Blocks  []string // that it has summaries of, in order
}

// unknownSources is the staleness of an epoch of version 3, whose sources are not known.
const unknownSources = math.MaxUint8

// epochHead is the record of an epoch. It binds what else there is of it:
//
//	offset size
//	     0    8  summaries, number
//	     8    8  summaries, sum of the checksums of their values and, times 2^32, of their keys
//	    16    8  summaries, rows
//	    24    8  states, number: 1 and the folds
//	    32    8  states, sum of the checksums of their values
//	    40   32  digest of the state
//	    72    4  checksum of the basis's value
//	    76    8  sources, number
//	    84    8  sources, sum of the checksums of their values
//	    92    1  staleness
//
// In version 3 it ends at 76. The basis is apart since it does not change, and the
// record does with every save.
type epochHead struct {
	number                     uint32
	summaries, states, sources tally
	rows                       int64
	digest                     [sha256.Size]byte
	basisChecksum              uint32
	stale                      uint8
}

func appendEpochHead(b []byte, h *epochHead) []byte {
	b = appendI64(b, h.summaries.n)
	b = appendI64(b, int64(h.summaries.sum))
	b = appendI64(b, h.rows)
	b = appendI64(b, h.states.n)
	b = appendI64(b, int64(h.states.sum))
	b = append(b, h.digest[:]...)
	b = appendU32(b, h.basisChecksum)
	b = appendI64(b, h.sources.n)
	b = appendI64(b, int64(h.sources.sum))
	return append(b, h.stale)
}

func decodeEpochHead(key, value []byte, version uint32) (h epochHead, err error) {
	b, err := unseal(bucketEpochs, key, value)
	if err != nil {
		return h, err
	}
	p := payload{decode.Reader{Rest: b, Bad: len(key) != 4}}
	if !p.Bad {
		h.number = binary.BigEndian.Uint32(key)
		p.Bad = h.number == 0
	}
	h.summaries.n, h.summaries.sum = p.natural(), p.u64()
	h.rows = p.natural()
	h.states.n, h.states.sum = p.natural(), p.u64()
	h.digest = [sha256.Size]byte(p.Take(sha256.Size))
	h.basisChecksum = p.u32()
	h.stale = unknownSources
	if version >= 4 {
		h.sources.n, h.sources.sum = p.natural(), p.u64()
		h.stale = p.Take(1)[0]
	}
	return h, p.done(bucketEpochs, key)
}

// A basis:
//
//	offset size
//	     0    4  length b of the basis
//	     4    b  basis
//	   4+b       report
func appendBasis(b []byte, e *Epoch) []byte {
	b = appendU32(b, uint32(len(e.Basis)))
	b = append(b, e.Basis...)
	return append(b, e.Report...)
}

func decodeBasis(key, value []byte) (e Epoch, err error) {
	b, err := unseal(bucketBases, key, value)
	if err != nil {
		return e, err
	}
	p := payload{decode.Reader{Rest: b, Bad: len(key) != 4}}
	if !p.Bad {
		e.Number = binary.BigEndian.Uint32(key)
	}
	if n := p.u32(); uint64(n) <= uint64(len(p.Rest)) {
		e.Basis = bytes.Clone(p.Take(int(n)))
	} else {
		p.Bad = true
	}
	e.Report = bytes.Clone(p.Rest)
	p.Rest = nil
	return e, p.done(bucketBases, key)
}

// addKeyed and removeKeyed are for a set whose values are not checked when a file
// is opened: a key that has changed is noticed all the same.
func (t *tally) addKeyed(key, value []byte) {
	t.add(value)
	t.sum += uint64(crc32.Checksum(key, castagnoli)) << 32
}

func (t *tally) removeKeyed(key, value []byte) {
	t.remove(value)
	t.sum -= uint64(crc32.Checksum(key, castagnoli)) << 32
}

func epochKey(number uint32) []byte { return binary.BigEndian.AppendUint32(nil, number) }

// epochStateKey is that of the state for i = 0, and of fold i−1 otherwise.
func epochStateKey(number uint32, i int) []byte {
	return binary.BigEndian.AppendUint32(epochKey(number), uint32(i))
}

func epochSummaryKey(number uint32, id string) []byte { return append(epochKey(number), id...) }

// readEpochHeads reads the records of the epochs, by number.
func readEpochHeads(tx *bbolt.Tx, version uint32) (heads []epochHead, err error) {
	err = tx.Bucket(bucketEpochs).ForEach(func(key, value []byte) error {
		h, err := decodeEpochHead(key, value, version)
		heads = append(heads, h)
		return err
	})
	return heads, err
}

func readEpochSummary(tx *bbolt.Tx, number uint32, id string) (*incremental.Summary, error) {
	bucket := tx.Bucket(bucketEpochSummaries)
	if bucket == nil { // before version 3
		return nil, ErrNotFound
	}
	key := epochSummaryKey(number, id)
	value := bucket.Get(key)
	if value == nil {
		return nil, ErrNotFound
	}
	b, err := unseal(bucketEpochSummaries, key, value)
	if err != nil {
		return nil, err
	}
	s, err := incremental.DecodeSummary(b)
	if err != nil {
		return nil, epochDamage(bucketEpochSummaries, number, id, err.Error())
	}
	return s, nil
}

func epochDamage(bucket []byte, number uint32, what, reason string) error {
	return &ChecksumError{string(bucket), fmt.Sprintf("%d/%s", number, what), reason}
}

// EpochSummary reads the summary of a block in the coordinates of an epoch. The
// error is ErrNotFound or a *ChecksumError.
func (s *Store) EpochSummary(number uint32, id string) (summary *incremental.Summary, err error) {
	err = s.view(func(tx *bbolt.Tx) (err error) {
		summary, err = readEpochSummary(tx, number, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read block %s of epoch %d from snapshot %s: %w", id, number, s.path, err)
	}
	return summary, nil
}

// readEpochs reads all but the summaries. note hears of every fault and says
// whether to go on.
func readEpochs(tx *bbolt.Tx, version uint32, want *head, note func(error) error) (epochs []EpochContents, err error) {
	var got tally
	found := want.epoch == 0
	err = tx.Bucket(bucketEpochs).ForEach(func(key, value []byte) error {
		h, err := decodeEpochHead(key, value, version)
		if err != nil {
			return note(err)
		}
		got.add(value)
		e, err := readEpoch(tx, &h, note)
		if err != nil {
			return err
		}
		if h.number == want.epoch {
			found = true
			if h.summaries.n != want.blocks.n || h.rows != want.rows {
				err = note(epochDamage(bucketEpochs, h.number, "", "it is in use, but does not have all live blocks"))
			}
		}
		epochs = append(epochs, e)
		return err
	})
	if err == nil && got != want.epochs {
		err = note(&ChecksumError{Bucket: string(bucketEpochs), Reason: fmt.Sprintf("there are %d epochs, %d were saved, or not these", got.n, want.epochs.n)})
	}
	if err == nil && !found {
		err = note(epochDamage(bucketEpochs, want.epoch, "", "it is in use, but missing"))
	}
	return epochs, err
}

func readEpoch(tx *bbolt.Tx, h *epochHead, note func(error) error) (e EpochContents, err error) {
	prefix := epochKey(h.number)
	basis := tx.Bucket(bucketBases).Get(prefix)
	e.Epoch, err = decodeBasis(prefix, basis)
	if err == nil && frameChecksum(basis) != h.basisChecksum {
		err = epochDamage(bucketBases, h.number, "", "it is not the one that belongs to the epoch")
	}
	if err != nil {
		if err := note(err); err != nil {
			return e, err
		}
	}
	e.Number, e.Stale = h.number, h.stale
	var states, summaries, sources tally
	cursor := tx.Bucket(bucketEpochStates).Cursor()
	for key, value := cursor.Seek(prefix); bytes.HasPrefix(key, prefix); key, value = cursor.Next() {
		s, err := decodeEpochState(key, value, h)
		if err != nil {
			if err := note(err); err != nil {
				return e, err
			}
			continue
		}
		states.add(value)
		if len(key) == 8 && binary.BigEndian.Uint32(key[4:]) == 0 {
			e.State = s
		} else {
			e.Folds = append(e.Folds, s)
		}
	}
	var foldRows int64
	for _, s := range e.Folds {
		foldRows += s.Rows()
	}
	cursor = tx.Bucket(bucketEpochSummaries).Cursor()
	for key, value := cursor.Seek(prefix); bytes.HasPrefix(key, prefix); key, value = cursor.Next() {
		if len(value) < frameSize {
			if err := note(epochDamage(bucketEpochSummaries, h.number, string(key[4:]), "the length is wrong")); err != nil {
				return e, err
			}
			continue
		}
		summaries.addKeyed(key, value)
		e.Blocks = append(e.Blocks, string(key[4:]))
	}
	if bucket := tx.Bucket(bucketSources); bucket != nil { // there are none in version 3
		cursor = bucket.Cursor()
		for key, value := cursor.Seek(prefix); bytes.HasPrefix(key, prefix); key, value = cursor.Next() {
			if _, err := unseal(bucketSources, key, value); err != nil {
				if err := note(err); err != nil {
					return e, err
				}
				continue
			}
			sources.add(value)
			e.Sources = append(e.Sources, string(key[4:]))
		}
	}
	for _, f := range []struct {
		bucket []byte
		bad    bool
		reason string
	}{
		{bucketSources, sources != h.sources, fmt.Sprintf("there are %d sources, %d were saved, or not these", sources.n, h.sources.n)},
		{bucketEpochStates, states != h.states, fmt.Sprintf("there are %d states, %d were saved, or not these", states.n, h.states.n)},
		{bucketEpochStates, e.State == nil, "its state is missing"},
		{bucketEpochStates, e.State != nil && e.State.Rows() != h.rows, fmt.Sprintf("the state has not the %d rows of the summaries", h.rows)},
		{bucketEpochStates, len(e.Folds) > 0 && foldRows != h.rows, fmt.Sprintf("the folds have %d rows, the summaries %d", foldRows, h.rows)},
		{bucketEpochSummaries, summaries != h.summaries, fmt.Sprintf("there are %d summaries, %d were saved, or not these", summaries.n, h.summaries.n)},
	} {
		if f.bad {
			if err := note(epochDamage(f.bucket, h.number, "", f.reason)); err != nil {
				return e, err
			}
		}
	}
	return e, nil
}

func decodeEpochState(key, value []byte, h *epochHead) (*incremental.State, error) {
	s, err := decodeState(bucketEpochStates, key, value, fmt.Sprintf("%d/%x", h.number, key[4:]))
	if err != nil {
		return nil, err
	}
	if bytes.Equal(key, epochStateKey(h.number, 0)) && s.Digest() != h.digest {
		return nil, epochDamage(bucketEpochStates, h.number, "", "the digest of its state is not the saved one")
	}
	return s, nil
}

// verifyEpoch adds up the summaries of an epoch.
func (r *verification) verifyEpoch(e *EpochContents) error {
	for _, id := range e.Sources {
		if r.tx.Bucket(bucketBlocks).Get([]byte(id)) == nil {
			r.note(epochDamage(bucketSources, e.Number, id, "no block in the ledger has it"))
		}
	}
	if e.State == nil {
		return nil // noted
	}
	damaged := r.Damaged
	features := e.State.Features()
	sums := newRecount(features, len(e.Folds))
	for _, id := range e.Blocks {
		if err := r.next(); err != nil {
			return err
		}
		s, err := readEpochSummary(r.tx, e.Number, id)
		block, live := r.live[id]
		switch {
		case err != nil:
		case !live:
			err = epochDamage(bucketEpochSummaries, e.Number, id, "no block in the ledger has it")
		case s.Features() != len(features) || s.Rows() != block.rows:
			err = epochDamage(bucketEpochSummaries, e.Number, id, "it is not of this block")
		default:
			sums.add(s, block.digest)
			continue
		}
		if err := r.note(err); err != nil {
			return err
		}
	}
	if r.Damaged > damaged {
		return nil
	}
	same := sums.total() == e.State.Digest()
	for i, s := range e.Folds {
		same = same && s.Digest() == sums.folds[i].Digest()
	}
	if !same {
		r.note(epochDamage(bucketEpochStates, e.Number, "", "the states are not the sums of the summaries"))
	}
	return nil
}

// checkEpochs finds what could be written but not be read again.
func (c *Change) checkEpochs() error {
	seen := map[uint32]bool{0: true}
	found := c.Epoch == 0
	for i := range c.Epochs {
		e := &c.Epochs[i]
		found = found || e.Number == c.Epoch
		switch {
		case seen[e.Number]:
			return fmt.Errorf("epoch %d is none, or listed twice", e.Number)
		case e.State == nil || len(e.State.Features()) == 0:
			return fmt.Errorf("epoch %d without a state", e.Number)
		}
		seen[e.Number] = true
		features := e.State.Features()
		for _, p := range e.Put {
			if p.Summary.Features() != len(features) {
				return fmt.Errorf("block %q of epoch %d has %d features, the state %d", p.ID, e.Number, p.Summary.Features(), len(features))
			}
		}
		for k, s := range e.Folds {
			if s != nil && !slices.Equal(s.Features(), features) {
				return fmt.Errorf("fold %d of epoch %d has features %q, the state %q", k, e.Number, s.Features(), features)
			}
		}
	}
	if !found {
		return fmt.Errorf("epoch %d is in use, but not among the epochs", c.Epoch)
	}
	return nil
}

// forgetInEpochs deletes what epochs have of a block that goes or is replaced.
func (w *writer) forgetInEpochs(id string) error {
	for i := range w.epochs {
		h := &w.epochs[i]
		if err := w.deleteEpochSummary(h, id); err != nil {
			return err
		}
		key := epochSummaryKey(h.number, id)
		if old := w.tx.Bucket(bucketSources).Get(key); old != nil {
			h.sources.remove(old)
			if err := w.deleteValue(bucketSources, key); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *writer) deleteEpochSummary(h *epochHead, id string) error {
	bucket, key := w.tx.Bucket(bucketEpochSummaries), epochSummaryKey(h.number, id)
	old := bucket.Get(key)
	if old == nil {
		return nil
	}
	s, err := readEpochSummary(w.tx, h.number, id)
	if err != nil {
		return err
	}
	h.summaries.removeKeyed(key, old)
	h.rows -= s.Rows()
	return w.deleteValue(bucketEpochSummaries, key)
}

// putEpochs makes the epochs those of a change.
func (w *writer) putEpochs(epochs []preparedEpoch, inUse uint32) error {
	for _, h := range w.epochs {
		if !slices.ContainsFunc(epochs, func(e preparedEpoch) bool { return e.Number == h.number }) {
			if err := w.deleteEpoch(h.number); err != nil {
				return err
			}
		}
	}
	w.head.epoch, w.head.epochs = inUse, tally{}
	for i := range epochs {
		if err := w.putEpoch(&epochs[i]); err != nil {
			return fmt.Errorf("epoch %d: %w", epochs[i].Number, err)
		}
	}
	return nil
}

func (w *writer) deleteEpoch(number uint32) error {
	prefix := epochKey(number)
	for _, name := range [][]byte{bucketEpochs, bucketBases, bucketSources, bucketEpochStates, bucketEpochSummaries} {
		bucket := w.tx.Bucket(name)
		var keys [][]byte // a cursor loses its place when what it is at is deleted
		cursor := bucket.Cursor()
		for key, _ := cursor.Seek(prefix); bytes.HasPrefix(key, prefix); key, _ = cursor.Next() {
			keys = append(keys, bytes.Clone(key))
		}
		for _, key := range keys {
			if err := w.deleteValue(name, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// preparedEpoch is an EpochChange whose sums are encoded.
type preparedEpoch struct {
	Epoch
	sources []string
	stale   uint8
	put     []EpochSummary
	state   *sums
	folds   [][]byte
}

func (w *writer) putEpoch(e *preparedEpoch) error {
	h := epochHead{number: e.Number}
	if i := slices.IndexFunc(w.epochs, func(h epochHead) bool { return h.number == e.Number }); i >= 0 {
		h = w.epochs[i]
	} else {
		basis := appendBasis(frame(), &e.Epoch)
		if err := w.putValue(bucketBases, epochKey(e.Number), basis); err != nil {
			return err
		}
		h.basisChecksum = frameChecksum(basis)
	}
	h.stale = e.stale
	for _, id := range slices.Sorted(slices.Values(e.sources)) {
		if w.tx.Bucket(bucketBlocks).Get([]byte(id)) == nil {
			return fmt.Errorf("block %q is a source but not live", id)
		}
		key := epochSummaryKey(e.Number, id)
		if w.tx.Bucket(bucketSources).Get(key) != nil {
			continue
		}
		value := w.encode(func(frame []byte) []byte { return frame })
		if err := w.putValue(bucketSources, key, value); err != nil {
			return err
		}
		h.sources.add(value)
	}
	for _, p := range byID(e.put, func(p *EpochSummary) string { return p.ID }) {
		entry, err := decodeBlock(p.ID, w.tx.Bucket(bucketBlocks).Get([]byte(p.ID)))
		if err != nil {
			return fmt.Errorf("block %q: %w", p.ID, err)
		}
		if p.Summary.Rows() != entry.Rows {
			return fmt.Errorf("block %q has %d rows in the ledger, its summary %d", p.ID, entry.Rows, p.Summary.Rows())
		}
		if err := w.deleteEpochSummary(&h, p.ID); err != nil {
			return err
		}
		key, value := epochSummaryKey(e.Number, p.ID), w.encode(p.Summary.AppendBinary)
		if err := w.putValue(bucketEpochSummaries, key, value); err != nil {
			return err
		}
		h.summaries.addKeyed(key, value)
		h.rows += p.Summary.Rows()
	}
	states := append([][]byte{nil}, e.folds...)
	if e.state.digest != h.digest || h.states.n == 0 {
		states[0] = e.state.value
	}
	if err := w.putSums(bucketEpochStates, epochKey(e.Number), &h.states, 1, states); err != nil {
		return err
	}
	h.digest = e.state.digest
	if e.state.rows != h.rows {
		return fmt.Errorf("the state has %d rows, its blocks %d", e.state.rows, h.rows)
	}
	if e.Number == w.head.epoch && (h.summaries.n != w.head.blocks.n || h.rows != w.head.rows) {
		return fmt.Errorf("it is in use, but has %d of %d live blocks", h.summaries.n, w.head.blocks.n)
	}
	return w.putEpochHead(&h)
}

// putEpochHead writes the record of an epoch, which the head does not have.
func (w *writer) putEpochHead(h *epochHead) error {
	value := appendEpochHead(frame(), h)
	if err := w.putValue(bucketEpochs, epochKey(h.number), value); err != nil {
		return err
	}
	w.head.epochs.add(value)
	return nil
}
