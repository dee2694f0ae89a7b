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

	Damaged int              // how many things are damaged
	Damage  []*ChecksumError // the first hundred of them

	OK bool // nothing is damaged, and the two digests are one
}

// Verify reads everything in a file and adds up the summaries of all live
// blocks, of each fold and in each epoch. Damaged values are in the report; the
// error is for a file in which values cannot be found at all, as those of Open.
// It is the work of as many State.Add as there are blocks, and holds one summary
// at a time in memory. watch, unless nil, is told of each summary how many have been
// added up, and of how many; ctx ends it.
func Verify(ctx context.Context, path string, watch func(done, all int)) (Report, error) {
	s, err := openFile(path, true)
	if err != nil {
		return Report{}, openError(path, err)
	}
	defer s.Close()
	v := verification{ctx: ctx, watch: watch}
	if err := view(s.db, v.read); err != nil {
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
	c, err := readContents(tx, fileID{}, r.note)
	if err != nil {
		return err
	}
	h, headErr := readHead(tx)
	r.Saved = h.digest
	// Without the features' names there is nothing to add up to; but before
	// they are fixed, there are no blocks.
	summing := c.State != nil || headErr == nil && !h.hasState
	sum := incremental.NewState(c.Features)
	folds := make([]*incremental.State, len(c.Folds))
	for i := range folds {
		folds[i] = incremental.NewState(c.Features)
	}
	digests, rows := map[string][sha256.Size]byte{}, map[string]int64{}
	r.all = len(c.Entries)
	for i := range c.Epochs {
		r.all += len(c.Epochs[i].Blocks)
	}
	for _, e := range c.Entries {
		if err := r.next(); err != nil {
			return err
		}
		summary, err := readBlockSummary(tx, e.ID)
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
			digests[e.ID], rows[e.ID] = digest, e.Rows
		}
		part, err := readPart(tx, e.ID)
		if err == nil && part != nil && (part.Digest() != digest || part.Features() != summary.Features() || part.Rows() != summary.Rows()) {
			err = &ChecksumError{string(bucketParts), e.ID, "it is not of this block"}
		}
		if damage := (*ChecksumError)(nil); errors.As(err, &damage) {
			// One with a wrong checksum has been noted already.
			if _, err := unseal(bucketParts, []byte(e.ID), tx.Bucket(bucketParts).Get([]byte(e.ID))); err == nil {
				r.note(damage)
			}
		} else if err != nil {
			return err
		}
		switch {
		case !summing:
		case len(folds) > 0:
			folds[sample.Fold(digest, len(folds))].Add(summary)
		default:
			sum.Add(summary)
		}
	}
	if len(folds) > 0 {
		sum.SetSum(folds)
	}
	if summing {
		r.Summed = sum.Digest()
	}
	for i, s := range c.Folds {
		if r.Damaged == 0 && s.Digest() != folds[i].Digest() {
			r.note(&ChecksumError{string(bucketFolds), fmt.Sprint(i), "it is not the sum of the blocks of this fold"})
		}
	}
	for i := range c.Epochs {
		if err := r.verifyEpoch(tx, &c.Epochs[i], digests, rows); err != nil {
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
