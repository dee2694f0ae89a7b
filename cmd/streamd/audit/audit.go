// Package audit checks a receipt with a copy of the snapshot, by arithmetic and without a row: the
// summaries of the live blocks add up to the digest of the state, the log of the file continues that
// of the receipt, and each of its receipts is proved.
package audit

import (
	"encoding/hex"
	"errors"
	"fmt"

	"streamd/incremental"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// Report is the result of checking a snapshot file.
type Report struct {
	File   string `json:"file"`
	Blocks int    `json:"blocks"` // live ones, whose summaries add up to the digest
	Rows   int64  `json:"rows"`
	Digest string `json:"state_digest"`
	Leaves int64  `json:"leaves"` // of its log, which goes on that of the receipt; each is proved
	// At is the latest leaf whose live set after has the digest, and with the private key the
	// root; null: blocks have come since the last leaf, which is Last.
	At   *int64 `json:"at_leaf"`
	Last int64  `json:"last_leaf"`           // of blocks that have left or come back
	Root string `json:"live_root,omitempty"` // of the tree of the live blocks; only with the private key
	// Looked counts the blocks of the receipt that were looked for: all with the private key, else
	// those that are named. Those that had been withdrawn are left out, since the receipt has no
	// contents of them. Live counts those that are live in the file.
	Looked int `json:"looked_for"`
	Live   int `json:"live"`
}

// Snapshot checks a receipt with the arithmetic of a snapshot file. key is the private key,
// or nil, and salts are those of named blocks. It also returns the leaf that names the model
// without the blocks of the receipt, if the receipt does not.
func Snapshot(path string, r *receipt.Receipt, public string, key *receipt.Key, salts map[string]receipt.Hash) (*Report, *receipt.Leaf, error) {
	store, saved, err := snapshot.OpenReadOnly(path)
	if err != nil {
		return nil, nil, err
	}
	defer store.Close()
	report := &Report{File: path, Blocks: len(saved.Entries), Leaves: saved.Log.Size, Last: -1}
	sum, digest := incremental.NewState(nil), incremental.NewState(nil).Digest()
	if space := saved.Space(snapshot.Features); space != nil {
		sum, digest = incremental.NewState(space.State.Features()), space.State.Digest()
	}
	var tree receipt.Tree // of the blocks whose salts are known
	err = store.Summaries(snapshot.Features, func(e retire.Entry, s *incremental.Summary) error {
		sum.Add(s)
		if salt, named := salts[e.ID]; key != nil {
			tree.Put(key.Item(e.ID, s.Digest()))
		} else if named {
			digest := s.Digest()
			tree.Put(receipt.Item{Key: receipt.Commit(salt, e.ID), Value: receipt.Commit(salt, string(digest[:]))})
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if summed := sum.Digest(); summed != digest {
		return nil, nil, fmt.Errorf("%s: its blocks add up to the digest %x, and the state has %x", path, summed, digest)
	}
	report.Rows, report.Digest = sum.Rows(), hex.EncodeToString(digest[:])
	var root *receipt.Hash // of all live blocks
	if key != nil {
		all := tree.Root()
		root, report.Root = &all, hex.EncodeToString(all[:])
	}
	named, err := report.audit(store, saved, r, public, digest, root)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	wanted := map[receipt.Hash]bool{}
	for id, salt := range salts {
		wanted[receipt.Commit(salt, id)] = true
	}
	for _, item := range r.Items {
		if item.Withdrawn() || key == nil && !wanted[item.Key] {
			continue
		}
		report.Looked++
		if is, _ := tree.Get(item.Key); is == item {
			report.Live++
		}
	}
	return report, named, nil
}

// audit checks that the log in a file is one with that of a receipt, and each of its leaves. It
// returns the leaf that names the model without the blocks of the receipt, if its own leaf does
// not. root is that of the live blocks, or nil.
//
// Other blocks with the same rows have the same digest. So the live set may have the digest of an
// earlier leaf and another root. It cannot have the digest of the last leaf and another root, since
// blocks that only come change the digest.
func (p *Report) audit(store *snapshot.Store, saved *snapshot.Contents, r *receipt.Receipt, public string, digest receipt.Hash, root *receipt.Hash) (named *receipt.Leaf, err error) {
	has := fmt.Sprintf("its log has %d receipts", saved.Log.Size)
	if saved.Log.Size == 1 {
		has = "its log has 1 receipt"
	}
	if saved.Log.Size < r.Checkpoint.Size {
		return nil, fmt.Errorf("%s, and the checkpoint of the receipt is one of %d: take a later copy of the snapshot", has, r.Checkpoint.Size)
	}
	head, err := receipt.OpenCheckpoint(saved.Log.Checkpoint, public)
	if err != nil {
		return nil, err
	}
	if head.Size != saved.Log.Size {
		return nil, fmt.Errorf("%s, and its checkpoint is one of %d", has, head.Size)
	}
	var failed error
	var last *receipt.Leaf
	leaves := func(yield func([]byte) bool) {
		for i := range saved.Log.Size {
			record, err := store.Receipt(i)
			if err == nil {
				var l *receipt.Leaf
				if l, err = receipt.DecodeLeaf(record.Leaf); err == nil {
					_, _, err = l.CheckChange(record.Change)
				}
				switch {
				case err != nil:
				case l.Kind != receipt.Served:
					if p.Last, last = i, l; l.After.Digest == digest && (root == nil || l.After.Root == *root) {
						p.At = &i
					}
				case named == nil && i > r.Index && l.Leaves > r.Index:
					named = l
				}
			}
			if err != nil {
				failed = fmt.Errorf("receipt %d: %w", i, err)
				return
			}
			if !yield(record.Leaf) {
				return
			}
		}
	}
	if err := receipt.Audit(leaves, r.Checkpoint, head); err != nil {
		return nil, errors.Join(failed, err)
	}
	if root != nil && last != nil && last.After.Digest == digest && last.After.Root != *root {
		return nil, fmt.Errorf("it has the digest of the live set after receipt %d, but its blocks are others: their root is %x, and the receipt has %x", p.Last, *root, last.After.Root)
	}
	return named, nil
}
