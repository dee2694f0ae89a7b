// Package audit checks a receipt with a copy of the snapshot, by arithmetic and without a row: the
// summaries of the live blocks add up to the digest of the state, those of the blocks that had come
// by the last receipt add up to the digest that it left, the log of the file continues that of the
// receipt, each of its receipts is proved, and no block of the receipt is live whose id is known,
// nor archived or withdrawn where the receipt says that it is not. The ids are known of blocks that
// positions name, of those that the caller names, and with the private key of all. The private key
// only adds checks.
package audit

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"streamd/incremental"
	"streamd/incremental/sample"
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
	Leaves int64  `json:"leaves"`    // of its log, which goes on that of the receipt; each is proved
	Last   int64  `json:"last_leaf"` // of blocks that have left or come back; -1: there is none
	// Since counts the live blocks that have come after the last leaf, by its offsets, and Grown
	// those of which a part has. Without the former the blocks add up to the digest after the last
	// leaf, and with the private key they have its root. Proved reports that. It is false only
	// where blocks have grown or there is no last leaf.
	Since  int    `json:"blocks_since"`
	Grown  int    `json:"blocks_grown"`
	Proved bool   `json:"last_proved"`
	Root   string `json:"live_root,omitempty"` // of the tree of the live blocks; only with the private key
	// Looked counts the blocks of the receipt that were looked for: all with the private key, else
	// those that are named. Live counts the ids of the receipt that are live in the file: the
	// blocks have come again, or others by their ids have.
	Looked int `json:"looked_for"`
	Live   int `json:"live"`
}

// Snapshot checks a receipt with the arithmetic of a snapshot file. key is the private key,
// or nil, and named has the keys of the items of named blocks. further are other checkpoints of the
// log.
func Snapshot(path string, r *receipt.Receipt, public string, key *receipt.Key, named map[string]receipt.Hash, further ...*receipt.Checkpoint) (*Report, error) {
	store, saved, err := snapshot.OpenReadOnly(path)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	report := &Report{File: path, Blocks: len(saved.Entries), Leaves: saved.Log.Size, Last: -1}
	log, err := report.audit(store, saved, r, public, append(further, r.Checkpoint))
	if err == nil {
		err = report.add(store, saved, r, log, key, named)
	}
	if err == nil {
		_, err = checkParts(store, func(string, *incremental.Block) error { return nil })
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return report, nil
}

// findings are what a log has.
type findings struct {
	last     *receipt.Leaf         // nil: there is none
	restored map[receipt.Hash]bool // keys of the items of blocks that came back after the receipt, or may have
	returned map[receipt.Hash]bool // likewise, to the archive
	passing  bool                  // leaves after the receipt count blocks of which they say no more
}

// audit checks that the log in a file goes on those of checkpoints, and each of its leaves.
func (p *Report) audit(store *snapshot.Store, saved *snapshot.Contents, r *receipt.Receipt, public string, checkpoints []*receipt.Checkpoint) (*findings, error) {
	slices.SortFunc(checkpoints, func(a, b *receipt.Checkpoint) int { return cmp.Compare(a.Size, b.Size) })
	has := fmt.Sprintf("its log has %d receipts", saved.Log.Size)
	if saved.Log.Size == 1 {
		has = "its log has 1 receipt"
	}
	if most := checkpoints[len(checkpoints)-1].Size; saved.Log.Size < most {
		return nil, fmt.Errorf("%s, and the checkpoint to compare with is one of %d: take a later copy of the snapshot", has, most)
	}
	head, err := receipt.OpenCheckpoint(saved.Log.Checkpoint, public)
	if err != nil {
		return nil, err
	}
	if head.Size != saved.Log.Size {
		return nil, fmt.Errorf("%s, and its checkpoint is one of %d", has, head.Size)
	}
	found := &findings{restored: map[receipt.Hash]bool{}, returned: map[receipt.Hash]bool{}}
	var failed error
	leaves := func(yield func([]byte) bool) {
		for i := range saved.Log.Size {
			leaf, err := p.leaf(store, i, r.Index, found)
			if err != nil {
				failed = fmt.Errorf("receipt %d: %w", i, err)
				return
			}
			if !yield(leaf) {
				return
			}
		}
	}
	if err := receipt.Audit(leaves, append(checkpoints, head)...); err != nil {
		return nil, errors.Join(failed, err)
	}
	return found, nil
}

// expired reports whether a leaf says that the policy has let go of a withdrawn block. An open run
// may come again when it grows, and is live then without another leaf.
func expired(l *receipt.Leaf, i receipt.Item) bool {
	return l.Kind == receipt.Purged && l.Principal == "" && i.Withdrawn()
}

// leaf checks a leaf of a log, and returns its bytes.
func (p *Report) leaf(store *snapshot.Store, i, receipted int64, found *findings) ([]byte, error) {
	record, err := store.Receipt(i)
	if err != nil {
		return nil, err
	}
	l, items, err := record.Open()
	if err != nil {
		return nil, err
	}
	p.Last, found.last = i, l
	if i <= receipted {
		return record.Leaf, nil
	}
	found.passing = found.passing || l.Passing > 0
	for _, item := range items {
		switch {
		case l.Kind == receipt.Restored || expired(l, item):
			found.restored[item.Key] = true
		case l.Kind == receipt.Returned:
			found.returned[item.Key] = true
		}
	}
	return record.Leaf, nil
}

// checkParts checks that every part of the row sample is one of a live block: it has the digest and
// the number of rows of that block. Where it has all rows of the block, their sums are the block's,
// and each is called with the rows. The other parts are counted.
func checkParts(store *snapshot.Store, each func(id string, b *incremental.Block) error) (partial int, err error) {
	var failed error
	var summariser incremental.Summariser
	check := func(id string, p *sample.Part) error {
		s, err := store.Summary(snapshot.Features, id)
		if err != nil {
			return fmt.Errorf("it has rows of the sample of block %s: %w", id, err)
		}
		if p.Digest() != s.LabelledDigest() || p.Rows() != s.Rows() {
			return fmt.Errorf("under the block %s it has rows of the sample of another one", id)
		}
		b := p.Whole()
		if b == nil {
			partial++
			return nil
		}
		if again, err := summariser.Summarise(b); err != nil || again.Digest() != s.Digest() {
			return fmt.Errorf("the sums of the block %s are not those of its rows in the sample", id)
		}
		return each(id, b)
	}
	err = store.Parts(func(id string, p *sample.Part) {
		if failed == nil {
			failed = check(id, p)
		}
	})
	return partial, cmp.Or(err, failed)
}

// add adds up the live blocks of a file.
//
// No block leaves without a leaf while receipts are on. So the live blocks that had come by the
// offsets of the last leaf are the live set after it.
func (p *Report) add(store *snapshot.Store, saved *snapshot.Contents, r *receipt.Receipt, log *findings, key *receipt.Key, named map[string]receipt.Hash) error {
	digest := incremental.NewState(nil).Digest()
	all, old := incremental.NewState(nil), incremental.NewState(nil) // of all blocks, and of those that had come by the last leaf
	if space := saved.Space(snapshot.Features); space != nil {
		all, old, digest = incremental.NewState(space.State.Features()), incremental.NewState(space.State.Features()), space.State.Digest()
	}
	about := map[receipt.Hash]bool{} // the keys of the receipt; true: the id has no live block after it
	for _, item := range r.Items {
		about[item.Key] = r.Leaf.Kind != receipt.Restored && r.Leaf.Kind != receipt.Returned && !expired(r.Leaf, item)
	}
	for _, other := range r.Others {
		about[other] = false
	}
	var allItems, oldItems receipt.Tree // with the private key
	var stayed []string                 // live blocks of ids that the receipt says have none, and that had come before it
	err := store.Summaries(snapshot.Features, func(e retire.Entry, s *incremental.Summary) error {
		all.Add(s)
		var item receipt.Item
		known, err := false, error(nil) // the key of the item
		if key != nil {
			item, known = key.Item(e.ID, receipt.Hash{}, s.Digest()), true
			if e.ItemKey != (receipt.Hash{}) && e.ItemKey != item.Key {
				return fmt.Errorf("block %s has another key of its item in the ledger than the log's key makes", e.ID)
			}
			allItems.Put(item)
		} else if item.Key, known, err = itemKey(e.ID, r, nil, named); err != nil {
			return err
		}
		if gone, is := about[item.Key]; known && is {
			p.Live++
			at := came(r.Leaf, &e)
			grown := at == partly && r.Leaf.Kind == receipt.Expired // an open run comes again when it grows
			if gone && (at == before || at == partly && !grown) && !log.restored[item.Key] {
				stayed = append(stayed, e.ID)
			}
		}
		if log.last == nil {
			return nil
		}
		switch came(log.last, &e) {
		case after:
			p.Since++
		case partly, unknown:
			p.Grown++
		case before:
			old.Add(s)
			if key != nil {
				oldItems.Put(item)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if summed := all.Digest(); summed != digest {
		return fmt.Errorf("its blocks add up to the digest %x, and the state has %x", summed, digest)
	}
	p.Rows, p.Digest = all.Rows(), hex.EncodeToString(digest[:])
	if key != nil {
		root := allItems.Root()
		p.Root = hex.EncodeToString(root[:])
	}
	if stayed != nil {
		return fmt.Errorf("the block %s of the receipt is live in it, and by its offset it had come before the receipt: it has not left, unless the topic was made again since", stayed[0])
	}
	if err := put(saved, r, log, about, key, named); err != nil {
		return err
	}
	if log.last != nil && p.Grown == 0 {
		if err := p.prove(&log.last.After, old, key, &oldItems); err != nil {
			return err
		}
	}
	if p.Looked = len(r.Items); key == nil {
		p.Looked = len(named)
	}
	return nil
}

// itemKey is the key of a block's item, if it is known: of blocks that positions name, of named
// ones, and with the private key of all.
func itemKey(id string, r *receipt.Receipt, key *receipt.Key, named map[string]receipt.Hash) (of receipt.Hash, known bool, err error) {
	switch of, known = named[id]; {
	case known:
		return of, true, nil
	case key != nil:
		return key.ItemKey(id), true, nil
	case receipt.Keyed(id):
		return of, false, nil
	}
	of, err = receipt.ItemKeyOf(r.Checkpoint.VRF, id, nil)
	return of, err == nil, err
}

// put looks for the blocks of a receipt among those that a file has put into the archive or has
// withdrawn. Expired blocks are archived, those that the control topic took out are withdrawn, and
// others have left the file. Under the key of a block that a save has found gone, a later value may
// be there, which had come by then, too: such blocks are looked for after requests alone. about has
// the keys of the receipt; true: the id has no live block.
func put(saved *snapshot.Contents, r *receipt.Receipt, log *findings, about map[receipt.Hash]bool, key *receipt.Key, named map[string]receipt.Hash) error {
	kind, unasked := r.Leaf.Kind, r.Leaf.Principal == ""
	if kind == receipt.Expired || kind == receipt.Begun {
		return nil
	}
	control := kind == receipt.Withdrawn || kind == receipt.Excluded || kind == receipt.Purged && unasked
	asked := kind == receipt.Retired || kind == receipt.Purged && !unasked
	for _, entries := range [][]retire.Entry{saved.Archived, saved.Withdrawn} {
		for _, e := range entries {
			of, known, err := itemKey(e.ID, r, key, named)
			if err != nil {
				return err
			}
			at := came(r.Leaf, &e)
			switch {
			case !known || !about[of] || at != before && at != partly:
			case receipt.Keyed(e.ID) && !asked:
			case control && (e.Withdrawn || log.restored[of] || log.returned[of] || log.passing):
			case e.Withdrawn:
				return fmt.Errorf("the block %s of the receipt has its place among the withdrawn ones of it, and by its offset it had come before the receipt: it has not left, unless the topic was made again since", e.ID)
			default:
				return fmt.Errorf("the block %s of the receipt is archived in it, and by its offset it had come before the receipt: it has not left the archive, unless the topic was made again since", e.ID)
			}
		}
	}
	return nil
}

// prove compares the blocks that had come by the last leaf with the live set after it. Without a
// block the digest can be that of earlier features.
func (p *Report) prove(left *receipt.Side, old *incremental.State, key *receipt.Key, items *receipt.Tree) error {
	const unless = ": it has other blocks than the receipt has left, unless since then format.features changed, the topic was made again, or receipts were off (receipts.key_file)"
	digest, root, none := old.Digest(), items.Root(), p.Since == p.Blocks
	switch {
	case none && left.Root != receipt.EmptyRoot:
		return fmt.Errorf("it has none of the blocks that receipt %d has left"+unless, p.Last)
	case !none && digest != left.Digest:
		return fmt.Errorf("its blocks that had come by receipt %d add up to the digest %x, and the receipt has left %x"+unless, p.Last, digest, left.Digest)
	case key != nil && root != left.Root:
		return fmt.Errorf("its blocks that had come by receipt %d have the digest that the receipt has left, but they are others: their root is %x, and the receipt has %x", p.Last, root, left.Root)
	}
	p.Proved = true
	return nil
}

// arrival says when a block came.
type arrival int

const (
	before arrival = iota // before the cut of a leaf
	partly                // some of its records
	after
	unknown
)

// came says when a block came, by the offsets of a leaf.
func came(l *receipt.Leaf, e *retire.Entry) arrival {
	in, first, last := e.Records()
	at, found := slices.BinarySearchFunc(l.Offsets, in, func(o receipt.Next, partition int) int {
		return cmp.Compare(int(o.Partition), partition)
	})
	switch {
	case !found && len(l.Offsets) == receipt.MaxOffsets: // further ones were cut off
		return unknown
	case !found || first >= l.Offsets[at].Offset:
		return after
	case last >= l.Offsets[at].Offset:
		return partly
	}
	return before
}
