package snapshot

import (
	"bytes"
	"context"
	"math"

	"go.etcd.io/bbolt"
)

// Formats 1 to 4 kept the features and the spaces of bases apart:
//
//	bucket           key                             in format 5
//	state            state                           states: 0, 0
//	folds            fold (u32, BE)                  states: 0, 1 + fold
//	summaries        block id                        summaries: 0, block id
//	epochs           space (u32, BE)                 spaces
//	epoch states     space, 0 or 1 + fold (u32, BE)  states
//	epoch summaries  space (u32, BE), block id       summaries
//
// There was no record of the features. The head had their rows, digest and folds, and
// each ledger entry had the length and the checksum of its summary. Version 2 brought
// parts and folds, version 3 the spaces of bases, version 4 the sources.
//
// Format 5 had ledger entries without flags and digests. The rest was the same.
var (
	bucketOldState       = []byte("state")
	bucketOldFolds       = []byte("folds")
	bucketEpochs         = []byte("epochs")
	bucketEpochStates    = []byte("epoch states")
	bucketEpochSummaries = []byte("epoch summaries")
)

// UnknownSources is the staleness of a space of version 3, which did not keep sources.
const UnknownSources = math.MaxUint8

// buckets lists the buckets of a version, except the one that has the version.
func (f format) buckets() [][]byte {
	if f >= 5 {
		return [][]byte{bucketBlocks, bucketParts, bucketOffsets, bucketSpaces, bucketBases, bucketSources, bucketStates, bucketSummaries}
	}
	all := [][]byte{bucketOldState, bucketBlocks, bucketSummaries, bucketOffsets}
	if f >= 2 {
		all = append(all, bucketParts, bucketOldFolds)
	}
	if f >= 3 {
		all = append(all, bucketEpochs, bucketBases, bucketEpochStates, bucketEpochSummaries)
	}
	if f >= 4 {
		all = append(all, bucketSources)
	}
	return all
}

// spaces is the bucket of the records of spaces.
func (f format) spaces() []byte {
	if f < 5 {
		return bucketEpochs
	}
	return bucketSpaces
}

// place is a location of values: a bucket and the prefix of their keys.
type place struct{ bucket, prefix []byte }

func (f format) summaries(number uint32) place {
	switch {
	case f >= 5:
		return place{bucketSummaries, spaceKey(number)}
	case number == Features:
		return place{bucketSummaries, nil}
	}
	return place{bucketEpochSummaries, spaceKey(number)}
}

// states are the places of a space's state and folds, in order.
func (f format) states(number uint32) []place {
	switch {
	case f >= 5:
		return []place{{bucketStates, spaceKey(number)}}
	case number == Features:
		return []place{{bucketOldState, nil}, {bucketOldFolds, nil}}
	}
	return []place{{bucketEpochStates, spaceKey(number)}}
}

func sources(number uint32) place { return place{bucketSources, spaceKey(number)} }

// each calls f with all values in a place, ordered by key, until f fails. A file of an
// older format may lack the bucket.
func (p place) each(tx *bbolt.Tx, f func(key, value []byte) error) error {
	bucket := tx.Bucket(p.bucket)
	if bucket == nil {
		return nil
	}
	var passed passed
	cursor := bucket.Cursor()
	for key, value := cursor.Seek(p.prefix); bytes.HasPrefix(key, p.prefix) && key != nil; key, value = cursor.Next() {
		if err := f(key, value); err != nil {
			return err
		}
		passed.add(tx, len(key)+len(value))
	}
	return nil
}

// key is the key of a block's value in the place.
func (p place) key(id string) []byte { return append(bytes.Clone(p.prefix), id...) }

// id is the id of the block with that key.
func (p place) id(key []byte) string { return string(key[len(p.prefix):]) }

// oldHead reads the part of a head that differs before format 5.
func (p *payload) oldHead(f format, h *head) {
	features := &spaceRecord{number: Features, rows: h.rows}
	if p.flag() {
		h.features = features
	}
	features.digest = [32]byte(p.Take(32))
	if f >= 2 {
		h.parts, features.states = p.tally(), p.tally() // of the folds
	}
	if f >= 3 {
		h.spaces, h.inUse = p.tally(), p.u32()
	}
	if f >= 4 {
		h.retirements, h.uncompacted = p.natural(), p.time()
	}
}

// completeOld makes the record of the features one of format 5. Its tallies include the
// state, which the digest bound, and the summaries, which the ledger's entries bound.
func (h *head) completeOld(tx *bbolt.Tx, summaries tally) {
	r := h.features
	if r == nil {
		return
	}
	r.summaries = summaries
	if value := tx.Bucket(bucketOldState).Get(bucketOldState); len(value) >= frameSize {
		r.states.add(value)
	}
}

// migrate replaces a file of an older format by one of the current format with the same
// contents. It works like Compact: a crash leaves one of the two under the name, whole,
// and its memory does not grow with the file.
func (s *Store) migrate() error {
	var found format
	err := s.view(func(tx *bbolt.Tx) (err error) {
		found, _, err = readFormat(tx)
		return err
	})
	if err != nil || found == version {
		return err
	}
	return s.replace(context.Background(), func(from *bbolt.Tx, to *copier) (head, error) {
		if s.key != nil {
			to.summer = newSummer(s.key, valueSum{})
		}
		c, err := readContents(from, s.file, strict)
		if err != nil {
			return head{}, err
		}
		return convert(from, c, to)
	})
}

// convert copies the values of an older file and returns the head that binds them. It
// checks every value that gets another checksum, so that a damaged value does not become
// a good one.
func convert(from *bbolt.Tx, c *Contents, to *copier) (head, error) {
	f := format(c.Version)
	h, err := readHead(from, f)
	if err != nil {
		return h, err
	}
	if f < 4 && h.counts.BlocksRetired > 0 { // some possibly by request
		h.uncompacted = h.savedAt
	}
	if err := createBuckets(to.tx); err != nil {
		return h, err
	}
	// Values with the same place and form in both formats.
	for _, p := range []place{{bucketMeta, keySettings}, {bucketMeta, keyMember}, {bucketParts, nil}, {bucketOffsets, nil}, {bucketBases, nil}, {bucketSources, nil}} {
		if err := p.each(from, func(key, value []byte) error { return to.put(p.bucket, key, value) }); err != nil {
			return h, err
		}
	}
	// Buckets that a file need not have.
	for _, name := range [][]byte{bucketHistory, bucketReceipts, bucketLogHashes, bucketLog} {
		if err := to.copyBucket(from, name); err != nil {
			return h, err
		}
	}
	if err := convertEntries(from, f, c, &h, to); err != nil {
		return h, err
	}
	h.spaces = tally{}
	for i := range c.Spaces {
		r, err := convertSpace(from, f, &c.Spaces[i], to)
		if err != nil {
			return h, err
		}
		value, err := to.add(bucketSpaces, spaceKey(r.number), appendSpace(frame(), r))
		if err != nil {
			return h, err
		}
		h.spaces.add(value)
	}
	return h, nil
}

// convertEntries writes the entries of the ledger and computes the digests of their
// summaries.
func convertEntries(from *bbolt.Tx, f format, c *Contents, h *head, to *copier) error {
	h.blocks, h.withdrawn = tally{}, tally{}
	for i := range c.Entries {
		e := &c.Entries[i]
		s, err := readSummary(from, f, Features, e)
		if err != nil {
			return err
		}
		digest := s.Digest()
		value, err := to.add(bucketBlocks, []byte(e.ID), appendBlock(frame(), e, &digest))
		if err != nil {
			return err
		}
		h.blocks.add(value)
	}
	if from.Bucket(bucketWithdrawn) == nil {
		return nil
	}
	if _, err := to.tx.CreateBucket(bucketWithdrawn); err != nil {
		return err
	}
	for i := range c.Withdrawn {
		e := &c.Withdrawn[i]
		value, err := to.add(bucketWithdrawn, []byte(e.ID), appendBlock(frame(), e, nil))
		if err != nil {
			return err
		}
		h.withdrawn.add(value)
	}
	return nil
}

// convertSpace copies the states and the summaries of a space.
func convertSpace(from *bbolt.Tx, f format, s *SpaceContents, to *copier) (*spaceRecord, error) {
	r := &spaceRecord{number: s.Number, rows: s.State.Rows(), digest: s.digest, stale: s.Stale}
	if s.Number != Features {
		r.basisChecksum = frameChecksum(from.Bucket(bucketBases).Get(spaceKey(s.Number)))
	}
	err := sources(s.Number).each(from, func(_, value []byte) error {
		r.sources.add(value)
		return nil
	})
	for _, p := range f.states(s.Number) {
		if err != nil {
			return nil, err
		}
		err = p.each(from, func(key, value []byte) error {
			value, err := to.move(p.bucket, key, value, bucketStates, stateKey(s.Number, int(r.states.n)))
			if err == nil {
				r.states.add(value)
			}
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	p := f.summaries(s.Number)
	return r, p.each(from, func(key, value []byte) error {
		now := blockKey(s.Number, p.id(key))
		value, err := to.move(p.bucket, key, value, bucketSummaries, now)
		if err == nil {
			r.summaries.addKeyed(now, value)
		}
		return err
	})
}

// move copies the payload of a value to another place.
func (c *copier) move(bucket, key, value, toBucket, toKey []byte) ([]byte, error) {
	payload, err := unseal(bucket, key, value)
	if err != nil {
		return nil, err
	}
	return c.add(toBucket, toKey, append(make([]byte, frameSize, frameSize+len(payload)), payload...))
}

// add writes a value whose payload starts at frameSize, and returns it.
func (c *copier) add(bucket, key, value []byte) ([]byte, error) {
	if err := seal(bucket, key, value); err != nil {
		return nil, err
	}
	return value, c.put(bucket, key, value)
}
