package receipt

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// A change is the part of two Trees that proves what has become of some items between them. It
// is written as one tree, that of the items of both, each node before those below it. Hashes,
// keys and values have 32 bytes; of two, that of the tree before comes first.
//
//	 0  hash                 a part that is the same in both
//	 1  bit (1), left, right an inner node
//	 2  key, value           an item that only the tree before has
//	 3  key, value           a neighbour that is the same in both
//	 4  key, value           an item that only the tree after has
//	 5  key, value, value    an item that has another value after
//	 6  hash                 a part that only the tree before has
//	 7  hash                 a part that only the tree after has
//	 8  hash, hash           a part that differs
//	 9  key, value           a neighbour that only the tree before has
//	10  key, value           a neighbour that only the tree after has
//	11  key, value, value    a neighbour that has another value after
//	12  before, after        a part that only the tree before has, in place of one that only the
//	                         tree after has; none is below another
//	16 + 2·gap  hash, right  an inner node whose left is a part that is the same in both, with the bit
//	                         that is gap + 1 behind that of the inner node above, or behind −1
//	17 + 2·gap  left, hash   one whose right is such a part, likewise
//
// The change is about the items of the kinds 2, 4 and 5. If all parts are of the kinds 0 to 5,
// nothing else differs between the two trees.
//
// Either tree is what remains without the items and parts that it lacks; an inner node that has
// one side left is replaced by this side. The path of a key goes left where the key has a 0 in
// the bit of the inner node, so a root leaves no choice where the key could be. In either tree
// the path of each item leads to it, or to the neighbour that shows that it is absent.
//
// With n items, the proof that one has left takes 132 bytes and some 33·log₂ n, and at most
// 34 for each of the log₂ n parts beside the path that differ, too. The proof that d have left
// takes 132·d bytes and some 33·d·log₂(n/d), and as much again if everything differs.
//
// A path has at most 256 inner nodes with a bit, since the bits ascend, and one of kind 12: both
// trees have a node of kind 12, and only one of them has the parts below it. The recursion of the
// functions here is as deep as a path.

const (
	tagHash byte = iota
	tagNode
	tagRemoved
	tagStays
	tagAdded
	tagReplaced
	tagInPlace byte = 12
	tagStep    byte = 16 // and the side that is the same, and twice the gap
)

// mostGap is the largest gap of a tagStep.
const mostGap = (math.MaxUint8 - int(tagStep)) / 2

// sides are the trees of a change.
const (
	before = iota
	after
)

// shape is the kind of a part of a change: an item or not, and the trees that have it.
type shape struct {
	item, ours bool    // ours: the change is about the item
	in         [2]bool // the trees that have it
	same       bool    // it is the same in both
}

// shapes are those of all kinds of parts, but for inner nodes.
var shapes = [...]shape{
	tagHash:     {in: [2]bool{true, true}, same: true},
	tagRemoved:  {item: true, ours: true, in: [2]bool{before: true}},
	tagStays:    {item: true, in: [2]bool{true, true}, same: true},
	tagAdded:    {item: true, ours: true, in: [2]bool{after: true}},
	tagReplaced: {item: true, ours: true, in: [2]bool{true, true}},
	6:           {in: [2]bool{before: true}},
	7:           {in: [2]bool{after: true}},
	8:           {in: [2]bool{true, true}},
	9:           {item: true, in: [2]bool{before: true}},
	10:          {item: true, in: [2]bool{after: true}},
	11:          {item: true, in: [2]bool{true, true}},
}

// part is a node of a change.
type part struct {
	shape
	inner bool
	bit   uint8
	below [2]*part
	key   Hash
	value [2]Hash // of an item; of another part it is the hash

	refs [2]ref // of the part in the two trees, while a change is made
}

// MaxItems is the most items of one proof. Further ones get another proof, and another leaf.
const MaxItems = 4096

// Prove proves what has become of the items of some keys since a version. Each of the keys is
// in the version, or in the tree, or in both with two values. Prove panics at a key of which
// nothing has changed, and without a key: no checker accepts a proof of that.
func (t *Tree) Prove(since Version, keys []Hash) []byte {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, func(a, b Hash) int { return less(&a, &b) })
	keys = slices.Compact(keys)
	if len(keys) == 0 {
		panic("receipt: a proof about no item")
	}
	for _, key := range keys {
		was, had := t.GetIn(since, key)
		if is, has := t.Get(key); has == had && (!has || is == was) {
			panic(fmt.Sprintf("receipt: a proof about the key %x, of which nothing has changed", key))
		}
	}
	root := partOf(since.ref(), t.now.ref())
	for i := range keys {
		for side := range root.refs {
			t.show(root, side, keys, &keys[i])
		}
	}
	return t.appendPart(nil, root, -1)
}

func partOf(b, a ref) *part {
	return &part{shape: shape{in: [2]bool{b != nothing, a != nothing}, same: a == b}, refs: [2]ref{b, a}}
}

// show shows the path of a key in one of the trees. ours are the keys of the items that the
// change is about.
func (t *Tree) show(p *part, side int, ours []Hash, key *Hash) {
	for p.in[side] && !p.item {
		if !p.inner {
			t.open(p, ours)
		} else {
			p = p.next(side, key)
		}
	}
}

// open makes a part an inner node, or an item.
func (t *Tree) open(p *part, ours []Hash) {
	bit := 256
	var nodes [2]*node // of the trees that have an inner one
	for side, r := range p.refs {
		if r != nothing && !r.isItem() {
			nodes[side] = t.nodes.at(int32(r))
			bit = min(bit, int(nodes[side].bit))
		}
	}
	if p.in[before] && p.in[after] && !p.same && !related(p.refs, nodes) {
		if at, same := differ(t.first(p.refs[before]), t.first(p.refs[after])); !same {
			bit = min(bit, int(at))
		}
	}
	if bit == 256 {
		for side, r := range p.refs {
			if r != nothing {
				i := t.items.at(int32(^r))
				p.key, p.value[side] = i.Key, i.Value
			}
		}
		p.item, p.same = true, p.in[before] && p.in[after] && p.value[before] == p.value[after]
		if !p.same {
			_, p.ours = slices.BinarySearchFunc(ours, p.key, func(a, b Hash) int { return less(&a, &b) })
		}
		return
	}
	below := [2][2]ref{{nothing, nothing}, {nothing, nothing}} // by place and tree
	for side, r := range p.refs {
		if r == nothing {
			continue
		}
		if n := nodes[side]; n != nil && int(n.bit) == bit {
			below[0][side], below[1][side] = n.below[0], n.below[1]
			continue
		}
		place := -1
		if other := nodes[1-side]; other != nil {
			place = slices.Index(other.below[:], r)
		}
		if place < 0 {
			place = bitOf(t.first(r), uint8(bit))
		}
		below[place][side] = r
	}
	p.inner, p.bit = true, uint8(bit)
	for place, refs := range below {
		p.below[place] = partOf(refs[before], refs[after])
	}
}

// first is the key on the left below a node, or that of an item.
func (t *Tree) first(r ref) *Hash { return &t.nearest(Version{root: r, n: 1}, &Hash{}).Key }

// related reports whether two different parts share one, so that the first bit in which their
// keys differ is that of one of their nodes. Without this, most of the time of a proof would go
// into finding a key below every node of a path.
func related(refs [2]ref, nodes [2]*node) bool {
	b, a := nodes[before], nodes[after]
	switch {
	case b != nil && slices.Contains(b.below[:], refs[after]), a != nil && slices.Contains(a.below[:], refs[before]):
		return true
	}
	return b != nil && a != nil && b.bit == a.bit && (b.below[0] == a.below[0] || b.below[1] == a.below[1])
}

// next is the part below an inner node on the path of a key in a tree that has the node.
func (p *part) next(side int, key *Hash) *part {
	switch {
	case !p.below[0].in[side]:
		return p.below[1]
	case !p.below[1].in[side]:
		return p.below[0]
	}
	return p.below[bitOf(key, p.bit)]
}

// inOne reports whether no tree has an inner node: one has its left, and the other its right.
func (p *part) inOne() bool {
	left, right := p.below[0].in, p.below[1].in
	return left[before] != right[before] && left[after] != right[after]
}

// appendPart appends a part below an inner node with the bit above, or -1.
func (t *Tree) appendPart(b []byte, p *part, above int) []byte {
	if !p.inner {
		t.settle(p)
		return p.appendFields(append(b, p.tag()))
	}
	left, right := p.below[0], p.below[1]
	if p.inOne() {
		if right.in[before] {
			left, right = right, left
		}
		return t.appendPart(t.appendPart(append(b, tagInPlace), left, above), right, above)
	}
	t.settle(left)
	t.settle(right)
	bit := int(p.bit)
	gap := bit - above - 1
	step := tagStep + 2*byte(min(gap, mostGap))
	switch {
	case gap > mostGap:
	case !left.inner && left.tag() == tagHash:
		return t.appendPart(left.appendFields(append(b, step)), right, bit)
	case !right.inner && right.tag() == tagHash:
		return right.appendFields(t.appendPart(append(b, step+1), left, bit))
	}
	return t.appendPart(t.appendPart(append(b, tagNode, p.bit), left, bit), right, bit)
}

// settle finds the hashes of a part that is not opened.
func (t *Tree) settle(p *part) {
	if p.inner || p.item {
		return
	}
	for side, r := range p.refs {
		if r != nothing {
			p.value[side] = t.hash(r)
		}
	}
	p.same = p.in[before] && p.in[after] && p.value[before] == p.value[after]
}

// tag is the kind of a part that is no inner node.
func (p *part) tag() byte { return byte(slices.Index(shapes[:], p.shape)) }

// appendFields appends what comes after the kind of a part that is no inner node.
func (p *part) appendFields(b []byte) []byte {
	if p.item {
		b = append(b, p.key[:]...)
	}
	if p.in[before] {
		b = append(b, p.value[before][:]...)
	}
	if p.in[after] && !p.same {
		b = append(b, p.value[after][:]...)
	}
	return b
}

// Change is the contents of a proof: the items that differ between two trees.
type Change struct {
	Before, After Hash    // roots
	Moved         []Moved // by ascending key
	Alone         bool    // nothing else differs between the two trees
}

// Moved is an item that differs between two trees.
type Moved struct {
	Key           Hash
	Before, After *Hash // values; nil: the tree has none
}

// CheckChange checks a proof. The roots are those that the proof leads to: compare them with
// those of a leaf.
func CheckChange(proof []byte) (*Change, error) {
	c, err := checkChange(proof)
	if err != nil {
		return nil, fmt.Errorf("the proof of the change: %w", err)
	}
	return c, nil
}

func checkChange(proof []byte) (*Change, error) {
	root, rest, err := readPart(proof, nil, false)
	switch {
	case err != nil:
		return nil, err
	case len(rest) > 0:
		return nil, fmt.Errorf("%d bytes too many", len(rest))
	}
	c := &Change{Before: EmptyRoot, After: EmptyRoot, Alone: true}
	for side, to := range []*Hash{&c.Before, &c.After} {
		if root.in[side] {
			*to = root.hash(side)
		}
	}
	c.add(root)
	slices.SortFunc(c.Moved, func(a, b Moved) int { return less(&a.Key, &b.Key) })
	if len(c.Moved) == 0 {
		return nil, errors.New("it is about no item")
	}
	for i := range c.Moved {
		m := &c.Moved[i]
		if i > 0 && c.Moved[i-1].Key == m.Key {
			return nil, fmt.Errorf("it has %x twice", m.Key)
		}
		for side, value := range []*Hash{m.Before, m.After} {
			p := root
			for p.inner && p.in[side] {
				p = p.next(side, &m.Key)
			}
			if p.in[side] && (!p.item || (p.key == m.Key) != (value != nil)) {
				return nil, fmt.Errorf("it does not show where %x is", m.Key)
			}
		}
	}
	return c, nil
}

// turn is a step of a path.
type turn struct {
	bit  uint8
	side int
}

var errShort = errors.New("it ends too early")

// readPart reads a node at the end of a path. inOne says that the path has a node of kind 12.
func readPart(b []byte, path []turn, inOne bool) (p *part, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, errShort
	}
	return readFields(b[0], b[1:], path, inOne)
}

// readFields reads what comes after the kind of a node.
func readFields(tag byte, b []byte, path []turn, inOne bool) (p *part, rest []byte, err error) {
	if tag == tagNode || tag == tagInPlace || tag >= tagStep {
		p = &part{inner: true}
		above, same := -1, -1 // the bit of the inner node above, and the side that is the same
		if last := len(path) - 1; last >= 0 {
			above = int(path[last].bit)
		}
		switch {
		case tag == tagInPlace:
			if inOne { // refused before the parts below are read, so that they do not nest without bound
				return nil, nil, errors.New("a part in place of another, below such a part")
			}
			inOne = true
		case tag >= tagStep:
			bit := above + 1 + int(tag-tagStep)/2
			if bit > math.MaxUint8 {
				return nil, nil, errors.New("a bit that keys do not have")
			}
			p.bit, same = uint8(bit), int(tag-tagStep)%2
		default:
			if len(b) == 0 {
				return nil, nil, errShort
			}
			if p.bit, b = b[0], b[1:]; int(p.bit) <= above {
				return nil, nil, errors.New("the bits of a path do not ascend")
			}
		}
		for side := range p.below {
			to := path
			if tag != tagInPlace {
				to = append(path, turn{p.bit, side})
			}
			if same == side {
				p.below[side], b, err = readFields(tagHash, b, to, inOne)
			} else {
				p.below[side], b, err = readPart(b, to, inOne)
			}
			if err != nil {
				return nil, nil, err
			}
			p.in[before] = p.in[before] || p.below[side].in[before]
			p.in[after] = p.in[after] || p.below[side].in[after]
		}
		if p.inOne() != (tag == tagInPlace) || tag == tagInPlace && !p.below[0].in[before] {
			return nil, nil, errors.New("an inner node that neither tree has, or a part in place of another that a tree has both of")
		}
		return p, b, nil
	}
	if int(tag) >= len(shapes) {
		return nil, nil, fmt.Errorf("a node of kind %d", tag)
	}
	p = &part{shape: shapes[tag]}
	var fields []*Hash
	if p.item {
		fields = append(fields, &p.key)
	}
	if p.in[before] {
		fields = append(fields, &p.value[before])
	}
	if p.in[after] && !p.same {
		fields = append(fields, &p.value[after])
	}
	for _, field := range fields {
		if len(b) < len(field) {
			return nil, nil, errShort
		}
		b = b[copy(field[:], b):]
	}
	switch {
	case p.same:
		p.value[after] = p.value[before]
	case p.in[before] && p.in[after] && p.value[before] == p.value[after]:
		return nil, nil, errors.New("a part that differs is the same")
	}
	if p.item {
		for _, t := range path {
			if bitOf(&p.key, t.bit) != t.side {
				return nil, nil, fmt.Errorf("%x is not on the path of its key", p.key)
			}
		}
	}
	return p, b, nil
}

// hash is the hash in a tree that has the part.
func (p *part) hash(side int) Hash {
	switch {
	case p.item:
		i := Item{p.key, p.value[side]}
		return i.hash()
	case !p.inner:
		return p.value[side]
	case !p.below[0].in[side]:
		return p.below[1].hash(side)
	case !p.below[1].in[side]:
		return p.below[0].hash(side)
	}
	left, right := p.below[0].hash(side), p.below[1].hash(side)
	return nodeHash(p.bit, &left, &right)
}

// add adds what a part says of items.
func (c *Change) add(p *part) {
	if p.inner {
		c.add(p.below[0])
		c.add(p.below[1])
		return
	}
	c.Alone = c.Alone && (p.same || p.ours)
	if !p.ours {
		return
	}
	m := Moved{Key: p.key}
	if p.in[before] {
		m.Before = &p.value[before]
	}
	if p.in[after] {
		m.After = &p.value[after]
	}
	c.Moved = append(c.Moved, m)
}
