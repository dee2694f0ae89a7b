package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"streamd/incremental"
	"streamd/incremental/sample"
)

// maxDamage bounds how many damaged values a Report names.
const maxDamage = 100

// Report is what Verify has found.
type Report struct {
	Blocks int64             // live blocks that could be read with their summaries
	Rows   int64             // their rows
	Saved  [sha256.Size]byte // digest of the state as it was saved; zero: that is damaged
	Summed [sha256.Size]byte // digest of the sum of the blocks that could be read; zero: the state is damaged, and with it the names of the features

	Keyed bool // the file is under a key

	Damaged int              // how many things are damaged
	Damage  []*ChecksumError // the first hundred of them

	OK bool // nothing is damaged, and the two digests are one
}

// Verify is the method Verify without a key: it does not check the file's MAC.
func Verify(ctx context.Context, path string, watch func(done, all int)) (Report, error) {
	return (*Key)(nil).Verify(ctx, path, watch)
}

// Verify reads everything in a file, checks its MAC, and adds up the summaries of all live
// blocks, of each fold and in each epoch. Damaged values are in the report; the
// error is for a file in which values cannot be found at all, as those of Open.
// It is the work of as many State.Add as there are blocks, and holds one summary
// at a time in memory. watch, unless nil, is told of each summary how many have been
// added up, and of how many; ctx ends it.
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

// verification is a Report that is being made.
type verification struct {
	Report
	ctx       context.Context
	watch     func(done, all int)
	done, all int // summaries
	tx        *bbolt.Tx
	live      map[string]liveBlock // those that could be read, for the epochs
}

type liveBlock struct {
	digest [sha256.Size]byte // of its summary
	rows   int64
}

// recount is blocks summed up anew, apart for each fold where there are folds.
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

// add adds what is summed of a block; digest is that of its summary in the features.
func (c *recount) add(s *incremental.Summary, digest [sha256.Size]byte) {
	if len(c.folds) > 0 {
		c.folds[sample.Fold(digest, len(c.folds))].Add(s)
	} else {
		c.sum.Add(s)
	}
}

// total is the digest of all of it.
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

// note takes damage into the report; it gives back any other error.
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

func (r *verification) read(tx *bbolt.Tx) error {
	r.tx, r.live = tx, map[string]liveBlock{}
	c, err := readContents(tx, fileID{}, r.note)
	if err != nil {
		return err
	}
	r.all, r.Keyed = len(c.Entries), c.Keyed
	for i := range c.Epochs {
		r.all += len(c.Epochs[i].Blocks)
	}
	if err := r.verifyBlocks(c); err != nil {
		return err
	}
	for i := range c.Epochs {
		if err := r.verifyEpoch(&c.Epochs[i]); err != nil {
			return err
		}
	}
	for _, name := range [][]byte{bucketParts, bucketSummaries} {
		if bucket := tx.Bucket(name); bucket != nil { // there are no parts in version 1
			err := bucket.ForEach(func(key, _ []byte) error {
				if tx.Bucket(bucketBlocks).Get(key) == nil {
					r.note(&ChecksumError{string(name), string(key), "no block in the ledger has it"})
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	r.OK = r.Damaged == 0 && r.Saved == r.Summed
	return nil
}

// verifyBlocks reads the live blocks and adds them up.
func (r *verification) verifyBlocks(c *Contents) error {
	h, headErr := readHead(r.tx)
	r.Saved = h.digest
	// Without the features' names there is nothing to add up to; but before
	// they are fixed, there are no blocks.
	summing := c.State != nil || headErr == nil && !h.hasState
	sums := newRecount(c.Features, len(c.Folds))
	for _, e := range c.Entries {
		if err := r.next(); err != nil {
			return err
		}
		summary, err := readBlockSummary(r.tx, e.ID)
		if err == nil && summing && summary.Features() != len(c.Features) {
			err = &ChecksumError{string(bucketSummaries), e.ID, fmt.Sprintf("it has %d features, the state %d", summary.Features(), len(c.Features))}
		}
		if err != nil {
			if err := r.note(err); err != nil {
				return err
			}
			continue
		}
		r.Blocks++
		r.Rows += summary.Rows()
		digest := summary.Digest()
		if len(c.Epochs) > 0 {
			r.live[e.ID] = liveBlock{digest, e.Rows}
		}
		if err := r.verifyPart(e.ID, summary, digest); err != nil {
			return err
		}
		if summing {
			sums.add(summary, digest)
		}
	}
	if summing {
		r.Summed = sums.total()
	}
	for i, s := range c.Folds {
		if r.Damaged == 0 && s.Digest() != sums.folds[i].Digest() {
			r.note(&ChecksumError{string(bucketFolds), fmt.Sprint(i), "it is not the sum of the blocks of this fold"})
		}
	}
	return nil
}

// verifyPart reads the part of a block, if it has one.
func (r *verification) verifyPart(id string, summary *incremental.Summary, digest [sha256.Size]byte) error {
	part, err := readPart(r.tx, id)
	if err == nil && part != nil && (part.Digest() != digest || part.Features() != summary.Features() || part.Rows() != summary.Rows()) {
		err = &ChecksumError{string(bucketParts), id, "it is not of this block"}
	}
	if err == nil {
		return nil
	}
	if _, e := unseal(bucketParts, []byte(id), r.tx.Bucket(bucketParts).Get([]byte(id))); e != nil {
		return nil // one with a wrong checksum has been noted already
	}
	return r.note(err)
}
