package live

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"streamd/incremental"
	"streamd/incremental/parallel"
	"streamd/retire"
	"streamd/retire/receipt"
)

// receipts keeps the tree of live blocks, and the moves of blocks that no saved receipt tells of
// yet.
type receipts struct {
	key   *receipt.Key          // nil: there are no receipts
	keys  *itemKeys             // the key for other goroutines
	tree  receipt.Tree          // of the live blocks
	kept  receipt.Version       // of the tree at the last save that was begun
	saved receipt.Side          // the live set at that save
	file  receipt.Hash          // digest of the sums in the file, if the start has retired blocks of it
	moved map[receipt.Item]move // since that save: the latest move of each item
	again [receipt.Kinds]int64  // since that save: moves that a later one of the same item has replaced
	grown map[receipt.Hash]size // at that save: of the blocks that have grown since, by the key of their items
	past  map[receipt.Item]move // since that save: archived blocks with their summaries lost, or back
	moves int64                 // since the start
	// unplaced has the withdrawn blocks that a stricter policy has let go of at the start.
	unplaced []retire.Entry
	// withdrew has the blocks, by id, that were withdrawn since that save, with their items. An
	// item is zero if the tree did not have the block as it is now.
	withdrew map[string]receipt.Item
	// The control topic has moved blocks of the ledger since that save, or some that it withdraws
	// have lost their places.
	controlled bool

	begins bool // the log has no leaf yet: the snapshot may be a copy of one with another key
}

// move is how a block has left the live set, or come back, since the last save.
type move struct {
	kind receipt.Kind
	id   string
	size
	based bool // Set.based of it
}

// ownReceipt is the kind of a move that has a receipt of its own. No receipt of a save counts it.
const ownReceipt receipt.Kind = 0

type size struct {
	rows int64
	at   time.Time
}

// grow records that a live block grows.
func (r *receipts) grow(former *retire.Entry) {
	if r.key == nil {
		return
	}
	i, _ := r.tree.Get(r.keyOf(former))
	if in, _ := r.tree.GetIn(r.kept, i.Key); in == i {
		r.grown[i.Key] = size{former.Rows, former.Time}
	}
}

// note records a move of a block whose item is in the tree, before the bases forget the block. It
// replaces an earlier move of the item.
func (l *Set) note(kind receipt.Kind, e *retire.Entry) {
	r := &l.receipts
	if r.key == nil {
		return
	}
	i, _ := r.tree.Get(r.keyOf(e))
	if former, again := r.moved[i]; again {
		r.again[former.kind]++
	}
	r.moved[i] = move{kind, e.ID, size{e.Rows, e.Time}, l.based(e.ID)}
	r.moves++
	switch kind {
	case receipt.Withdrawn:
		r.withdrew[e.ID] = i
		r.controlled = true
	case receipt.Restored:
		r.controlled = true
	}
}

// exclude records that a block is withdrawn with other contents than the tree has, if any. grown
// says that it was withdrawn before, with fewer rows.
func (r *receipts) exclude(id string, grown bool) {
	if _, untold := r.withdrew[id]; r.key != nil && (untold || !grown) {
		r.withdrew[id] = receipt.Item{}
		r.controlled = true
	}
}

// keyOf is the key of a block's item. There are receipts.
func (r *receipts) keyOf(e *retire.Entry) receipt.Hash {
	if e.ItemKey != (receipt.Hash{}) {
		return e.ItemKey
	}
	return r.key.ItemKey(e.ID)
}

// keep computes the key of an item that takes long, once for an id. former is a block of the same
// id, or the zero Entry.
func (r *receipts) keep(e *retire.Entry, former *retire.Entry) {
	if e.ItemKey == (receipt.Hash{}) {
		e.ItemKey = former.ItemKey
	}
	if r.key != nil && receipt.Keyed(e.ID) {
		e.ItemKey = r.keyOf(e)
		r.keys.note(e.ID)
	}
}

// itemKeys lets workers compute the keys of items of new blocks, so that the loop need not. A set
// of hashes of ids tells them which blocks are not new. It errs for some new blocks, whose keys the
// loop computes, and for blocks that are in other workers' hands, whose keys are computed twice.
type itemKeys struct {
	key   *receipt.Key
	seed  maphash.Seed
	noted [knownIDs / 32]atomic.Uint32
}

// knownIDs is the number of bits of the set of ids, in a MiB. With a million ids it errs for one
// new block in nine.
const knownIDs = 1 << 23

func (k *itemKeys) bit(id string) (word *atomic.Uint32, bit uint32) {
	h := maphash.String(k.seed, id) % knownIDs
	return &k.noted[h/32], 1 << (h % 32)
}

func (k *itemKeys) note(id string) {
	word, bit := k.bit(id)
	word.Or(bit)
}

// seem reports whether an id seems to be noted.
func (k *itemKeys) seem(id string) bool {
	word, bit := k.bit(id)
	return word.Load()&bit != 0
}

// put puts a block with that summary in the features into the tree.
func (r *receipts) put(e *retire.Entry, s *incremental.Summary) {
	if r.key != nil {
		r.tree.Put(r.key.Item(e.ID, e.ItemKey, s.Digest()))
	}
}

// remove removes a block from the tree.
func (r *receipts) remove(e *retire.Entry) {
	if r.key != nil {
		r.tree.Remove(r.keyOf(e))
	}
}

// atOnce is the number of items or keys that are made together.
const atOnce = 1 << 8

// inParallel calls do with the numbers below n.
func inParallel(n int, do func(i int)) {
	_ = parallel.For(runtime.GOMAXPROCS(0), (n+atOnce-1)/atOnce, func(part int) error {
		for i := part * atOnce; i < min((part+1)*atOnce, n); i++ {
			do(i)
		}
		return nil
	})
}

// keepKeys computes the keys of items that the ledgers lack: those of blocks that came while there
// were no receipts, and all if the log begins. The next save has them.
func (l *Set) keepKeys() {
	var lack []retire.Entry
	for e := range l.Everything {
		if receipt.Keyed(e.ID) && (l.receipts.begins || e.ItemKey == (receipt.Hash{})) {
			lack = append(lack, e)
		}
	}
	inParallel(len(lack), func(i int) { lack[i].ItemKey = l.receipts.key.ItemKey(lack[i].ID) })
	for _, e := range lack {
		l.ledger.SetItemKey(e.ID, e.ItemKey)
		if a, ok := l.archived.get(e.ID); ok {
			a.Entry.ItemKey = e.ItemKey
			l.archived.put(e.ID, a)
		} else {
			l.rekeyed.put(e.ID, e.ItemKey)
		}
	}
}

// KeepReceipts makes the tree of the live blocks from the store's ledger. It is called before
// the set changes. Blocks that a stricter policy has just retired have receipts with the first
// save.
func (l *Set) KeepReceipts(key *receipt.Key) error {
	r := &l.receipts
	r.key, r.moved, r.past, r.grown = key, map[receipt.Item]move{}, map[receipt.Item]move{}, map[receipt.Hash]size{}
	r.withdrew = map[string]receipt.Item{}
	r.keys = &itemKeys{key: key, seed: maphash.MakeSeed()}
	for e := range l.Everything {
		r.keys.note(e.ID)
	}
	l.keepKeys()
	l.retarget()
	type block struct {
		id          string
		key, digest receipt.Hash
	}
	var retired []retire.Entry
	blocks := make([]block, 0, l.ledger.Len())
	err := l.store.Digests(func(e retire.Entry, digest [sha256.Size]byte) {
		if now, live := l.ledger.Get(e.ID); live {
			e.ItemKey = now.ItemKey
		} else if r.begins && receipt.Keyed(e.ID) {
			e.ItemKey = key.ItemKey(e.ID)
		}
		blocks = append(blocks, block{e.ID, e.ItemKey, digest})
		if r.file == (receipt.Hash{}) { // the start has retired none, and a search for each block takes long
			return
		}
		if _, live := l.ledger.Get(e.ID); !live {
			retired = append(retired, e)
		}
	})
	if err != nil {
		return fmt.Errorf("make the tree of the live blocks: %w", err)
	}
	items := make([]receipt.Item, len(blocks))
	inParallel(len(items), func(i int) { items[i] = key.Item(blocks[i].id, blocks[i].key, blocks[i].digest) })
	r.tree.Fill(items)
	r.kept, r.saved = r.tree.Keep(), l.Side()
	if len(retired) > 0 {
		r.saved.Digest = r.file
	}
	for i := range retired {
		l.note(receipt.Expired, &retired[i])
		r.remove(&retired[i])
	}
	for i := range r.unplaced {
		r.notePlace(&r.unplaced[i])
	}
	r.unplaced = nil
	return nil
}

// Side identifies the live set for receipts.
func (l *Set) Side() receipt.Side {
	return receipt.Side{Digest: l.features.sums.totalDigest(), Root: l.receipts.tree.Root()}
}

// Item is the item of a live block. It is zero without receipts.
func (l *Set) Item(id string) (i receipt.Item) {
	if e, live := l.ledger.Get(id); live && l.receipts.key != nil {
		i, _ = l.receipts.tree.Get(l.receipts.keyOf(&e))
	}
	return i
}

// Begun is the contents of the receipt that begins a log: the live set at the last save. The blocks
// that are withdrawn by then are excluded by the next receipts.
func (l *Set) Begun() *Departure {
	for _, e := range l.ledger.SelectWithdrawn(&retire.Selection{}) {
		if !e.Archived {
			l.receipts.exclude(e.ID, false)
		}
	}
	key := l.receipts.key
	return &Departure{Leaf: receipt.Leaf{Kind: receipt.Begun, VRF: key.VRF(), Before: l.receipts.saved, After: l.receipts.saved}}
}

// Moves is the number of times that a block has left the live set, or come back, since the start.
// It is 0 without receipts.
func (l *Set) Moves() int64 { return l.receipts.moves }

// Controlled reports whether the control topic has moved blocks since the last TakeDepartures, or
// some that it withdraws have lost their places.
func (l *Set) Controlled() bool { return l.receipts.controlled }

// Departure is the contents of a receipt of blocks that have left the live set, or come back.
type Departure struct {
	receipt.Leaf
	Change []byte // its proof
	Moves  int64  // Set.Moves by now
	Based  bool   // the points of a basis may have rows of the blocks
}

// TakeDepartures returns the moves since the last call as contents of receipts, with the live set
// then and now. A kind of many blocks has several receipts, since a proof is bounded. Those of
// listed kinds come last.
func (l *Set) TakeDepartures() (departures []Departure) {
	r := &l.receipts
	now := l.Side()
	last, passing := l.provable()
	excluded := l.excluded()
	var proved [receipt.Kinds][]receipt.Item
	for i, m := range last {
		proved[m.kind] = append(proved[m.kind], i)
	}
	for kind, items := range proved {
		if kind == int(ownReceipt) {
			continue
		}
		slices.SortFunc(items, func(a, b receipt.Item) int { return bytes.Compare(a.Key[:], b.Key[:]) })
		for len(items) > 0 || passing[kind] > 0 {
			few := items[:min(len(items), receipt.MaxItems)]
			d := Departure{Moves: r.moves, Based: passing[kind] > 0} // of those nothing is known
			d.Leaf = receipt.Leaf{Kind: receipt.Kind(kind), Passing: passing[kind], Before: r.saved, After: now, Items: receipt.ListHash(few)}
			var keys []receipt.Hash
			for _, i := range few {
				d.Add(last[i].rows, last[i].at)
				d.Based = d.Based || last[i].based
				keys = append(keys, i.Key)
			}
			if len(keys) > 0 {
				d.Change = r.tree.Prove(r.kept, keys)
			}
			departures = append(departures, d)
			items, passing[kind] = items[len(few):], 0
		}
	}
	r.moved, r.again, r.grown = map[receipt.Item]move{}, [receipt.Kinds]int64{}, map[receipt.Hash]size{}
	r.withdrew, r.controlled = map[string]receipt.Item{}, false
	r.kept, r.saved = r.tree.Keep(), now
	departures = append(departures, l.listed(receipt.Purged, r.past)...)
	departures = append(departures, l.listed(receipt.Returned, r.past)...)
	clear(r.past)
	return append(departures, l.listed(receipt.Excluded, excluded)...)
}

// excluded lists the blocks that were withdrawn since the last save, are so still, and whose
// present contents no proof shows as withdrawn. Their items have no value.
func (l *Set) excluded() map[receipt.Item]move {
	r, all := &l.receipts, map[receipt.Item]move{}
	for id, was := range r.withdrew {
		e, _ := l.ledger.Find(id)
		if !e.Withdrawn || e.Archived {
			continue
		}
		key := r.keyOf(&e)
		if in, had := r.tree.GetIn(r.kept, key); had && in == was {
			continue // a proof shows it
		}
		all[receipt.Item{Key: key}] = move{receipt.Excluded, id, size{e.Rows, e.Time}, false}
	}
	return all
}

// provable lists the moves that a proof can show: those of items that only one of the two live sets
// has, that of the last save and the present one. passing counts the others by kind.
func (l *Set) provable() (last map[receipt.Item]move, passing [receipt.Kinds]int64) {
	r := &l.receipts
	last, passing = map[receipt.Item]move{}, r.again
	for i, m := range r.moved {
		if m.kind == ownReceipt { // there may be many, and no receipt of a save counts them
			continue
		}
		in, was := r.tree.GetIn(r.kept, i.Key)
		out, is := r.tree.Get(i.Key)
		if m.kind == receipt.Restored {
			in, was, out, is = out, is, in, was
		}
		// A block that has grown before it left, or after it came back, has another item there.
		// That one may have a move of its own, in the same direction.
		other, own := r.moved[in]
		own = own && (other.kind == receipt.Restored) == (m.kind == receipt.Restored)
		if !was || is && in == out || in != i && own {
			passing[m.kind]++
			continue
		}
		if other, twice := last[in]; twice {
			if passing[min(other.kind, m.kind)]++; other.kind > m.kind {
				continue
			}
		}
		// The rows are those that the block had in the live set that has its item.
		if in != i && m.kind == receipt.Restored {
			e, _ := l.ledger.Get(m.id)
			m.size = size{e.Rows, e.Time}
		} else if in != i {
			m.size = r.grown[i.Key]
		}
		last[in] = m
	}
	return last, passing
}

// notePurged records that an archived block loses its summary.
func (l *Set) notePurged(e *retire.Entry) error {
	item, err := l.archivedItem(e)
	if err == nil {
		l.notePast(receipt.Purged, item, e)
	}
	return err
}

// archivedItem is the item of an archived block, which is made from its summary, or of a withdrawn
// one. It is zero without receipts.
func (l *Set) archivedItem(e *retire.Entry) (receipt.Item, error) {
	key := l.receipts.key
	switch {
	case key == nil:
		return receipt.Item{}, nil
	case e.Withdrawn:
		return receipt.Item{Key: l.receipts.keyOf(e)}, nil
	}
	s, err := l.archivedSummary(e.ID)
	if err != nil {
		return receipt.Item{}, fmt.Errorf("make a receipt of the archived block %s: %w", e.ID, err)
	}
	return key.Item(e.ID, e.ItemKey, s.Digest()), nil
}

// notePast records that an archived block loses its summary, or has it again. Both between two
// saves undo each other.
func (l *Set) notePast(kind receipt.Kind, i receipt.Item, e *retire.Entry) {
	r := &l.receipts
	if r.key == nil {
		return
	}
	if _, undone := r.past[i]; undone {
		delete(r.past, i)
		return
	}
	r.past[i] = move{kind, e.ID, size{e.Rows, e.Time}, l.based(e.ID)}
}

// notePlace records that the policy lets go of a withdrawn block, which loses its place. An open
// run may come again when it grows, and it is live then without another receipt.
func (r *receipts) notePlace(e *retire.Entry) {
	if r.key != nil {
		r.past[receipt.Item{Key: r.keyOf(e)}] = move{receipt.Purged, e.ID, size{e.Rows, e.Time}, false}
		r.controlled = true
	}
}

// listed makes the contents of receipts of a listed kind. Their proof is the list of the items.
func (l *Set) listed(kind receipt.Kind, all map[receipt.Item]move) (leaves []Departure) {
	var items []receipt.Item
	for i, m := range all {
		if m.kind == kind {
			items = append(items, i)
		}
	}
	slices.SortFunc(items, receipt.Item.Compare)
	for few := range slices.Chunk(items, receipt.MaxItems) {
		now := l.Side()
		d := Departure{Leaf: receipt.Leaf{Kind: kind, Before: now, After: now, Items: receipt.ListHash(few)}, Change: receipt.AppendItems(nil, few)}
		for _, i := range few {
			d.Add(all[i].rows, all[i].at)
			d.Based = d.Based || all[i].based
		}
		leaves = append(leaves, d)
	}
	return leaves
}
