package live

import (
	"crypto/sha256"
	"fmt"
	"hash"

	"streamd/incremental"
	"streamd/retire"
	"streamd/retire/receipt"
)

// receipts is what receipts need to know about the live set.
type receipts struct {
	key  *receipt.Key // nil: there are no receipts
	tree receipt.Tree // of the live blocks
	file receipt.Hash // digest of the sums in the file, if the start has retired blocks of it
	left [receipt.Kinds]*departures
}

// departures are blocks that have left the live set, or come back, in one way.
type departures struct {
	leaf  receipt.Leaf
	items hash.Hash
}

// note notes a block. Its item is in the tree.
func (r *receipts) note(kind receipt.Kind, e *retire.Entry) {
	if r.key == nil {
		return
	}
	d := r.left[kind]
	if d == nil {
		d = &departures{receipt.Leaf{Kind: kind}, sha256.New()}
		r.left[kind] = d
	}
	d.leaf.Add(e.Rows, e.Time)
	i, _ := r.tree.Get(r.key.ItemKey(e.ID))
	d.items.Write(i.Key[:])
	d.items.Write(i.Value[:])
}

// put puts a block with that summary in the features into the tree.
func (r *receipts) put(id string, s *incremental.Summary) {
	if r.key != nil {
		r.tree.Put(r.key.Item(id, s.Digest()))
	}
}

// remove removes a block from the tree.
func (r *receipts) remove(id string) {
	if r.key != nil {
		r.tree.Remove(r.key.ItemKey(id))
	}
}

// KeepReceipts makes the tree of the live blocks from the store's ledger. It is called
// before the set changes. Blocks that a stricter policy has just retired are noted. before is the
// live set that the file has.
func (l *Set) KeepReceipts(key *receipt.Key) (before receipt.Side, err error) {
	l.receipts.key = key
	var retired []retire.Entry
	items := make([]receipt.Item, 0, l.ledger.Len())
	err = l.store.Digests(func(e retire.Entry, digest [sha256.Size]byte) {
		items = append(items, key.Item(e.ID, digest))
		if _, live := l.ledger.Get(e.ID); !live {
			retired = append(retired, e)
		}
	})
	if err != nil {
		return before, fmt.Errorf("make the tree of the live blocks: %w", err)
	}
	l.receipts.tree.Fill(items)
	if before = l.Side(); len(retired) > 0 {
		before.Digest = l.receipts.file
	}
	for i := range retired {
		l.receipts.note(receipt.Expired, &retired[i])
		l.receipts.remove(retired[i].ID)
	}
	return before, nil
}

// Side is the live set as receipts have it.
func (l *Set) Side() receipt.Side {
	return receipt.Side{Digest: l.features.sums.totalDigest(), Root: l.receipts.tree.Root()}
}

// TakeDepartures returns what has been noted since the last call, a leaf for each kind, without
// the two sides.
func (l *Set) TakeDepartures() (leaves []receipt.Leaf) {
	for kind, d := range l.receipts.left {
		if d != nil {
			d.items.Sum(d.leaf.Items[:0])
			leaves = append(leaves, d.leaf)
			l.receipts.left[kind] = nil
		}
	}
	return leaves
}

// RetireTogether retires live blocks on request, with what a receipt says of them. Without
// receipts that is nil.
func (l *Set) RetireTogether(ids []string) (leaf *receipt.Leaf, removal []byte, err error) {
	r := &l.receipts
	if r.key != nil {
		leaf = &receipt.Leaf{Kind: receipt.Retired, Before: l.Side()}
		var keys []receipt.Hash
		for _, id := range ids {
			keys = append(keys, r.key.ItemKey(id))
			e, _ := l.ledger.Get(id)
			leaf.Add(e.Rows, e.Time)
		}
		removal, leaf.Items = r.tree.Prove(keys)
	}
	for _, id := range ids {
		if err := l.retire(id); err != nil {
			return nil, nil, err
		}
	}
	if leaf != nil {
		leaf.After = l.Side()
	}
	return leaf, removal, nil
}
