package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"streamd/incremental"
	"streamd/incremental/sample"
)

// maxDamage bounds the damaged values that a Report names.
const maxDamage = 100

// Report is the result of Verify.
type Report struct {
	Blocks int64 // live blocks that could be read with their summaries
	Rows   int64 // their rows
	// Archived counts the archived blocks whose summaries could be read.
	Archived int64
	Saved    [sha256.Size]byte // digest of the features' state as saved; zero if the state is damaged
	Summed   [sha256.Size]byte // digest of the sum of the readable blocks; zero if the state, and with it the names of the features, is damaged

	Keyed bool // the file is under a key

	Damaged int              // number of damaged things
	Damage  []*ChecksumError // the first hundred of them

	OK bool // nothing is damaged, and the two digests are equal
}

// Verify is the method Verify without a key: it does not check the file's MAC.
func Verify(ctx context.Context, path string, watch func(done, all int)) (Report, error) {
	return (*Key)(nil).Verify(ctx, path, watch)
}

// Verify reads everything in a file, checks its MAC, and adds up the summaries of each
// space and of each of its folds. Damaged values are in the report. It returns the errors
// of Open for a file in which values cannot be found at all. It costs one State.Add for
// each summary, and holds one summary at a time in memory. Before each summary it calls
// watch, unless that is nil, with the number of summaries done and of all. ctx ends it.
func (k *Key) Verify(ctx context.Context, path string, watch func(done, all int)) (Report, error) {
	s, err := k.openFile(path, true)
	if err != nil {
		return Report{}, openError(path, err)
	}
	defer s.Close()
	v := verification{ctx: ctx, watch: watch}
	if err := s.view(v.read); err != nil {
		return Report{}, fmt.Errorf("verify snapshot %s: %w", path, err)
	}
	return v.Report, nil
}

// verification is a Report in the making.
type verification struct {
	Report
	ctx       context.Context
	watch     func(done, all int)
	done, all int // summaries
	tx        *bbolt.Tx
	contents  *Contents
	digests   map[string][sha256.Size]byte // by block, of summaries in the features; nil if there are no other spaces
}

// recount is recomputed sums, one per fold.
type recount struct {
	sum   *incremental.State
	folds []*incremental.State
}

func newRecount(features []string, folds int) *recount {
	c := &recount{sum: incremental.NewState(features)}
	for range folds {
		c.folds = append(c.folds, incremental.NewState(features))
	}
	return c
}

// add adds a block's summary. digest is that of its summary in the features.
func (c *recount) add(s *incremental.Summary, digest [sha256.Size]byte) {
	if len(c.folds) > 0 {
		c.folds[sample.Fold(digest, len(c.folds))].Add(s)
	} else {
		c.sum.Add(s)
	}
}

// total is the digest of the sum of all blocks.
func (c *recount) total() [sha256.Size]byte {
	if len(c.folds) > 0 {
		c.sum.SetSum(c.folds)
	}
	return c.sum.Digest()
}

// next is called before each summary.
func (r *verification) next() error {
	if r.watch != nil {
		r.watch(r.done, r.all)
	}
	r.done++
	return r.ctx.Err()
}

// note adds damage to the report, and returns any other error.
func (r *Report) note(err error) error {
	damage := (*ChecksumError)(nil)
	if !errors.As(err, &damage) {
		return err
	}
	r.Damaged++
	if len(r.Damage) < maxDamage {
		r.Damage = append(r.Damage, damage)
	}
	return nil
}

func (r *verification) read(tx *bbolt.Tx) (err error) {
	r.tx = tx
	if r.contents, err = readContents(tx, r.note); err != nil {
		return err
	}
	c := r.contents
	r.Keyed, r.all = c.Keyed, len(c.Spaces)*len(c.Entries)+len(c.Archived)
	for i := range c.Spaces {
		r.all -= len(c.Spaces[i].Missing)
	}
	if len(c.Spaces) > 1 {
		r.digests = make(map[string][sha256.Size]byte, len(c.Entries))
	}
	if c.Space(Features) == nil && len(c.Entries) == 0 {
		r.Saved, r.Summed = emptyDigest, emptyDigest
	}
	for i := range c.Spaces {
		if err := r.verifySpace(&c.Spaces[i]); err != nil {
			return err
		}
	}
	if err := r.verifyArchive(); err != nil {
		return err
	}
	if err := r.orphans(); err != nil {
		return err
	}
	if err := verifyLog(tx, r.note); err != nil {
		return err
	}
	r.OK = r.Damaged == 0 && r.Saved == r.Summed
	return nil
}

// verifySpace adds up the summaries of a space. The features come before the other spaces.
func (r *verification) verifySpace(s *SpaceContents) error {
	damaged := r.Damaged
	var features []string
	if s.State != nil { // otherwise there are no names, which has been noted
		features = s.State.Features()
	}
	sums, missing := newRecount(features, len(s.Folds)), s.Missing
	for i := range r.contents.Entries {
		e := &r.contents.Entries[i]
		if len(missing) > 0 && missing[0] == e.ID {
			missing = missing[1:]
			continue
		}
		if err := r.next(); err != nil {
			return err
		}
		summary, err := readSummary(r.tx, s.Number, e)
		if err == nil && s.State != nil && summary.Features() != len(features) {
			err = damageIn(bucketSummaries, s.Number, e.ID, fmt.Sprintf("it has %d features, the state %d", summary.Features(), len(features)))
		}
		if err != nil {
			if err := r.note(err); err != nil {
				return err
			}
			continue
		}
		digest, err := r.digest(s.Number, e.ID, summary)
		if err != nil {
			return err
		}
		if s.State != nil {
			sums.add(summary, digest)
		}
	}
	if s.Number == Features {
		r.Saved = s.digest
	}
	if s.State == nil {
		return nil
	}
	total := sums.total()
	// A block's digest determines its fold.
	whole := r.Damaged == damaged && (s.Number == Features || len(r.digests) == len(r.contents.Entries))
	switch {
	case s.Number == Features:
		r.Summed = total // the caller compares it
	case whole && total != s.digest:
		r.note(damageIn(bucketStates, s.Number, "0", "it is not the sum of the summaries"))
	}
	for i, fold := range s.Folds {
		if whole && fold.Digest() != sums.folds[i].Digest() {
			r.note(damageIn(bucketStates, s.Number, fmt.Sprint(1+i), "it is not the sum of the summaries of this fold"))
		}
	}
	return nil
}

// verifyArchive reads the summaries of the archived blocks.
func (r *verification) verifyArchive() error {
	names := r.contents.Features()
	for i := range r.contents.Archived {
		if err := r.next(); err != nil {
			return err
		}
		e := &r.contents.Archived[i]
		if e.Withdrawn {
			continue
		}
		s, err := readSummary(r.tx, Features, e)
		if err == nil && names != nil && s.Features() != len(names) {
			err = damageIn(bucketSummaries, Features, e.ID, fmt.Sprintf("it has %d features, the state %d", s.Features(), len(names)))
		}
		if err == nil {
			var saved [sha256.Size]byte
			if _, saved, err = decodeArchived(e.ID, archivedValue(r.tx, e.ID)); err == nil && saved != s.Digest() {
				err = &ChecksumError{string(bucketArchive), e.ID, "its digest is not that of its summary"}
			}
		}
		if err != nil {
			if err := r.note(err); err != nil {
				return err
			}
			continue
		}
		r.Archived++
	}
	return nil
}

// digest returns the digest of a block: that of its summary in the features, which is read
// first. It also compares the block's part with it.
func (r *verification) digest(space uint32, id string, summary *incremental.Summary) (digest [sha256.Size]byte, err error) {
	if space != Features {
		return r.digests[id], nil
	}
	r.Blocks++
	r.Rows += summary.Rows()
	_, saved, err := decodeBlock(id, r.tx.Bucket(bucketBlocks).Get([]byte(id)))
	if err == nil && saved != summary.Digest() {
		err = &ChecksumError{string(bucketBlocks), id, "its digest is not that of its summary"}
	}
	if err := r.note(err); err != nil {
		return digest, err
	}
	digest = summary.LabelledDigest()
	if r.digests != nil {
		r.digests[id] = digest
	}
	part, err := readPart(r.tx, id)
	switch {
	case err == nil && part != nil && (part.Digest() != digest || part.Features() != summary.Features() || part.Rows() != summary.Rows()):
		err = &ChecksumError{string(bucketParts), id, "it is not of this block"}
	case err != nil:
		if _, bad := unseal(bucketParts, []byte(id), r.tx.Bucket(bucketParts).Get([]byte(id))); bad != nil {
			err = nil // a wrong checksum has been noted already
		}
	}
	return digest, r.note(err)
}

// orphans notes values of blocks that are not in the ledger.
func (r *verification) orphans() error {
	for _, o := range []struct {
		bucket  []byte
		bySpace bool // keys begin with the number of a space
	}{{bucketParts, false}, {bucketSources, true}, {bucketSummaries, true}} {
		err := place{o.bucket, nil}.each(r.tx, func(key, _ []byte) error {
			space := uint32(Features)
			id := key
			if o.bySpace && len(key) >= 4 {
				space, id = binary.BigEndian.Uint32(key), key[4:]
			}
			archived := bytes.Equal(o.bucket, bucketSummaries) && space == Features && archivedValue(r.tx, string(id)) != nil
			if r.tx.Bucket(bucketBlocks).Get(id) == nil && !archived {
				r.note(damageIn(o.bucket, space, string(id), "no block in the ledger has it"))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
