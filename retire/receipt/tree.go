package receipt

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"
)

// Hash is a SHA-256 hash.
type Hash = [sha256.Size]byte

// Item stands for a live block in a Tree, or in a list for an archived or a withdrawn one, without
// its id or contents.
type Item struct {
	Key   Hash // of the block's id, see ItemKeyOf
	Value Hash // commitment of its summary's digest; zero: it was withdrawn, and had no summary
}

// Withdrawn reports whether the block had no summary any more.
func (i Item) Withdrawn() bool { return i.Value == Hash{} }

// Compare orders items by key, then by value.
func (i Item) Compare(other Item) int {
	return cmp.Or(less(&i.Key, &other.Key), less(&i.Value, &other.Value))
}

// Tree is the map of the live blocks as a Merkle tree. Its root is a function of the set of
// items alone. It is a crit-bit tree: an inner node names the first bit in which the keys
// below it differ, and has those with a 0 on its left. So there are no inner nodes with one
// child, and with n items a path has about log₂ n of them.
//
// A change takes O(log n) and marks the nodes above as changed. Root hashes these. An item
// takes 112 bytes of memory. A Version keeps the items of a moment: changes after it copy the
// nodes of their path, so a version costs what changes after it.
//
// The zero Tree is empty. It belongs to one goroutine.
type Tree struct {
	nodes arena[node]
	items arena[Item]
	now   Version

	generation uint32  // of the nodes that are made now; those of another one belong to a version
	kept       uint32  // the last generation of nodes that the kept version may have
	marks      uint32  // that of the first version that the last Unmark has not ended
	old        []int32 // nodes that only the kept version may have
	marked     []int32 // nodes that only marked versions may have
	oldItems   []int32 // items that only versions may have
}

// Version is the items of a Tree at one moment. The zero Version has none. To use a version that
// has ended is the caller's mistake, and panics: its nodes may be others' by now.
type Version struct {
	root ref // if n > 0
	n    int
	made uint32 // the generation of the last nodes that it may have
}

// check panics if a version has ended.
func (t *Tree) check(v Version) {
	if v.n > 0 && v.made != t.kept && v.made < t.marks {
		panic("receipt: a version of the tree that has ended")
	}
}

func (v Version) ref() ref {
	if v.n == 0 {
		return nothing
	}
	return v.root
}

// ref is a node's number, or ^ the number of an item.
type ref int32

// nothing leads nowhere.
const nothing ref = math.MinInt32

func (r ref) isItem() bool { return r < 0 }

type node struct {
	hash       Hash
	below      [2]ref
	generation uint32
	bit        uint8 // 0 is the highest bit of a key's first byte
	changed    bool  // the hash is that of earlier items
}

// arenaChunk is the number of elements that an arena allocates together.
const arenaChunk = 1 << 12

// arena numbers its elements and never moves them.
type arena[T any] struct {
	chunks []*[arenaChunk]T
	used   int32   // numbers given out
	free   []int32 // of these, the ones given back
}

func (a *arena[T]) at(i int32) *T { return &a.chunks[i/arenaChunk][i%arenaChunk] }

func (a *arena[T]) take() int32 {
	if last := len(a.free) - 1; last >= 0 {
		i := a.free[last]
		a.free = a.free[:last]
		return i
	}
	if int(a.used) == len(a.chunks)*arenaChunk {
		a.chunks = append(a.chunks, new([arenaChunk]T))
	}
	a.used++
	return a.used - 1
}

func (a *arena[T]) giveBack(i int32) {
	*a.at(i) = *new(T)
	a.free = append(a.free, i)
}

// bitOf is the bit of a key, 0 or 1.
func bitOf(key *Hash, bit uint8) int { return int(key[bit/8]>>(7-bit%8)) & 1 }

// differ is the first bit in which two keys differ. same: there is none.
func differ(a, b *Hash) (bit uint8, same bool) {
	for i := range a {
		if x := a[i] ^ b[i]; x != 0 {
			return uint8(8*i + bits.LeadingZeros8(x)), false
		}
	}
	return 0, true
}

// EmptyRoot is the root of a tree without items.
var EmptyRoot = sha256.Sum256(nil)

// hash is that of an item in the tree.
func (i *Item) hash() Hash {
	var b [1 + 2*sha256.Size]byte
	copy(b[1:], i.Key[:])
	copy(b[1+sha256.Size:], i.Value[:])
	return sha256.Sum256(b[:])
}

// nodeHash is the hash of an inner node.
func nodeHash(bit uint8, left, right *Hash) Hash {
	var b [2 + 2*sha256.Size]byte
	b[0], b[1] = 1, bit
	copy(b[2:], left[:])
	copy(b[2+sha256.Size:], right[:])
	return sha256.Sum256(b[:])
}

// Len is the number of items.
func (t *Tree) Len() int { return t.now.n }

// Keep returns the present version, which is kept until the next Keep. All earlier versions end.
func (t *Tree) Keep() Version {
	t.Unmark()
	for _, i := range t.old {
		t.nodes.giveBack(i)
	}
	for _, i := range t.oldItems {
		t.items.giveBack(i)
	}
	t.old, t.oldItems = t.old[:0], t.oldItems[:0]
	t.kept = t.generation
	return t.Mark()
}

// Mark returns the present version, which is kept until the next Unmark or Keep.
func (t *Tree) Mark() Version {
	t.generation++
	return Version{t.now.root, t.now.n, t.generation - 1}
}

// Unmark ends all marked versions. The kept one remains.
func (t *Tree) Unmark() {
	for _, i := range t.marked {
		t.nodes.giveBack(i)
	}
	t.marked, t.marks = t.marked[:0], t.generation
}

// leave notes that a node has left the tree.
func (t *Tree) leave(i int32) {
	switch generation := t.nodes.at(i).generation; {
	case generation == t.generation:
		t.nodes.giveBack(i)
	case generation > t.kept:
		t.marked = append(t.marked, i)
	default:
		t.old = append(t.old, i)
	}
}

// change returns the inner node that at leads to, to be changed. If a version may have it,
// that is a copy in its place.
func (t *Tree) change(at *ref) *node {
	i := int32(*at)
	n := t.nodes.at(i)
	if n.generation != t.generation {
		*at = ref(t.nodes.take())
		was := n
		n = t.nodes.at(int32(*at))
		*n = *was
		n.generation = t.generation
		t.leave(i)
	}
	n.changed = true
	return n
}

// nearest is the item at the end of the path of a key in a version that is not empty. It has
// the key if any item has it.
func (t *Tree) nearest(v Version, key *Hash) *Item {
	r := v.root
	for !r.isItem() {
		n := t.nodes.at(int32(r))
		r = n.below[bitOf(key, n.bit)]
	}
	return t.items.at(int32(^r))
}

// Get returns the present item of a key.
func (t *Tree) Get(key Hash) (Item, bool) { return t.get(t.now, key) }

// GetIn returns the item that a version has of a key.
func (t *Tree) GetIn(v Version, key Hash) (Item, bool) {
	t.check(v)
	return t.get(v, key)
}

func (t *Tree) get(v Version, key Hash) (Item, bool) {
	if v.n == 0 {
		return Item{}, false
	}
	i := t.nearest(v, &key)
	return *i, i.Key == key
}

// Fill puts items of different keys into an empty tree, and sorts them. It takes a fraction of
// the time of Put, since nodes that are near each other in the tree are so in memory.
func (t *Tree) Fill(items []Item) {
	if t.now.n > 0 {
		panic("receipt: filling a tree with items")
	}
	slices.SortFunc(items, func(a, b Item) int { return less(&a.Key, &b.Key) })
	if len(items) > 0 {
		t.now = Version{root: t.fill(items), n: len(items)}
	}
}

// fill makes the part of the tree that has items, in order, and at least one.
func (t *Tree) fill(items []Item) ref {
	last := len(items) - 1
	if last == 0 {
		return t.newItem(items[0])
	}
	bit, same := differ(&items[0].Key, &items[last].Key)
	if same {
		panic(fmt.Sprintf("receipt: two items have the key %x", items[0].Key))
	}
	number := t.nodes.take()
	right := sort.Search(last, func(i int) bool { return bitOf(&items[i].Key, bit) == 1 })
	*t.nodes.at(number) = node{bit: bit, changed: true, generation: t.generation, below: [2]ref{t.fill(items[:right]), t.fill(items[right:])}}
	return ref(number)
}

// Put adds an item, or replaces the one of the same key.
func (t *Tree) Put(i Item) {
	if t.now.n == 0 {
		t.now = Version{root: t.newItem(i), n: 1}
		return
	}
	near := t.nearest(t.now, &i.Key)
	bit, same := differ(&near.Key, &i.Key)
	if same && near.Value == i.Value {
		return
	}
	at := &t.now.root
	for !at.isItem() && (same || t.nodes.at(int32(*at)).bit < bit) {
		n := t.change(at)
		at = &n.below[bitOf(&i.Key, n.bit)]
	}
	if same {
		t.oldItems = append(t.oldItems, int32(^*at))
		*at = t.newItem(i)
		return
	}
	added := t.nodes.take()
	n := t.nodes.at(added)
	n.bit, n.changed, n.generation = bit, true, t.generation
	side := bitOf(&i.Key, bit)
	n.below[side], n.below[1-side] = t.newItem(i), *at
	*at = ref(added)
	t.now.n++
}

func (t *Tree) newItem(i Item) ref {
	number := t.items.take()
	*t.items.at(number) = i
	return ^ref(number)
}

// Remove removes the item of a key. ok is false if there is none.
func (t *Tree) Remove(key Hash) (ok bool) {
	if _, ok := t.Get(key); !ok {
		return false
	}
	at := &t.now.root
	var above *ref // leads to the node that has at
	for !at.isItem() {
		n := t.change(at)
		above, at = at, &n.below[bitOf(&key, n.bit)]
	}
	t.oldItems = append(t.oldItems, int32(^*at))
	t.now.n--
	if above != nil {
		gone := int32(*above)
		n := t.nodes.at(gone)
		*above = n.below[1-bitOf(&key, n.bit)]
		t.leave(gone)
	}
	return true
}

// Root is the root of the present items.
func (t *Tree) Root() Hash {
	if t.now.n == 0 {
		return EmptyRoot
	}
	return t.hash(t.now.root)
}

func (t *Tree) hash(r ref) Hash {
	if r.isItem() {
		return t.items.at(int32(^r)).hash()
	}
	n := t.nodes.at(int32(r))
	if n.changed {
		left, right := t.hash(n.below[0]), t.hash(n.below[1])
		n.hash, n.changed = nodeHash(n.bit, &left, &right), false
	}
	return n.hash
}

// less orders keys.
func less(a, b *Hash) int { return bytes.Compare(a[:], b[:]) }
