package receipt

import (
	"errors"
	"fmt"
	"slices"
)

// A removal is the part of a Tree that proves what a removal of items did: they were in the
// tree of the first root, they are absent from the tree of the second root, and nothing else
// has changed. It is written as a tree, each node before those below it:
//
//	0  hash (32 bytes)            a part that the removal does not touch
//	1  bit (1), left, right       an inner node
//	2  key (32), value (32)       a removed item
//	3  key (32), value (32)       an item that stays
//
// The second tree is the first one without the removed items; an inner node that has one side
// left is replaced by this side. The path of a key goes left where the key has a 0 in the bit
// of the inner node, so a root leaves no choice where the key could be. The path of each removed key
// leads to it in the first tree, and to another item in the second one.
//
// With n items, the proof of one that is removed takes 132 bytes and some 35·log₂ n.

const (
	tagHash byte = iota
	tagNode
	tagRemoved
	tagStays
)

// part is a node of a removal.
type part struct {
	tag   byte
	hash  Hash
	bit   uint8
	item  Item
	below [2]*part
	empty bool // after the removal

	ref ref // of the node in the tree, while a removal is made
}

// MaxRemoved is the most items of one proof. Further ones get another proof, and another leaf.
const MaxRemoved = 4096

// Prove proves the removal of items before it is made. All keys are in the tree, and there is
// at least one. list is the ListHash of the items.
func (t *Tree) Prove(keys []Hash) (proof []byte, list Hash) {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, func(a, b Hash) int { return less(&a, &b) })
	root := t.part(t.root, slices.Compact(keys))
	for i := range keys {
		t.expand(root, &keys[i])
	}
	return t.appendPart(nil, root), ListHash(root.removed(nil))
}

// part is the part of a removal that begins at a node and leads to the keys below it.
func (t *Tree) part(r ref, keys []Hash) *part {
	switch {
	case len(keys) == 0:
		return &part{tag: tagHash, ref: r}
	case r.isItem():
		i := *t.items.at(int32(^r))
		if len(keys) > 1 || i.Key != keys[0] {
			panic(fmt.Sprintf("receipt: key %x is not in the tree", keys[0]))
		}
		return &part{tag: tagRemoved, item: i, empty: true}
	}
	n := t.nodes.at(int32(r))
	right := slices.IndexFunc(keys, func(k Hash) bool { return bitOf(&k, n.bit) == 1 })
	if right < 0 {
		right = len(keys)
	}
	p := &part{tag: tagNode, bit: n.bit, below: [2]*part{t.part(n.below[0], keys[:right]), t.part(n.below[1], keys[right:])}}
	p.empty = p.below[0].empty && p.below[1].empty
	return p
}

// next is the side of an inner node on the path of a key after the removal.
func (p *part) next(key *Hash) *part {
	switch {
	case p.below[0].empty:
		return p.below[1]
	case p.below[1].empty:
		return p.below[0]
	}
	return p.below[bitOf(key, p.bit)]
}

// expand shows the path of a removed key after the removal.
func (t *Tree) expand(p *part, key *Hash) {
	for !p.empty {
		switch p.tag {
		case tagStays:
			return
		case tagHash:
			if p.ref.isItem() {
				p.tag, p.item = tagStays, *t.items.at(int32(^p.ref))
				return
			}
			n := t.nodes.at(int32(p.ref))
			p.tag, p.bit = tagNode, n.bit
			p.below = [2]*part{{tag: tagHash, ref: n.below[0]}, {tag: tagHash, ref: n.below[1]}}
		}
		p = p.next(key)
	}
}

func (t *Tree) appendPart(b []byte, p *part) []byte {
	b = append(b, p.tag)
	switch p.tag {
	case tagHash:
		hash := t.hash(p.ref)
		return append(b, hash[:]...)
	case tagNode:
		return t.appendPart(t.appendPart(append(b, p.bit), p.below[0]), p.below[1])
	}
	return append(append(b, p.item.Key[:]...), p.item.Value[:]...)
}

// Removal is what a proof says.
type Removal struct {
	Before, After Hash   // roots
	Removed       []Item // by ascending key
}

// CheckRemoval checks a proof. The roots are those that the proof leads to: compare them with
// those of a leaf.
func CheckRemoval(proof []byte) (*Removal, error) {
	root, rest, err := readPart(proof, nil)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the proof of the removal: %w", err)
	case len(rest) > 0:
		return nil, fmt.Errorf("the proof of the removal: %d bytes too many", len(rest))
	}
	r := &Removal{Before: root.before(), After: EmptyRoot}
	r.Removed = root.removed(nil)
	if len(r.Removed) == 0 {
		return nil, errors.New("the proof of the removal: it removes nothing")
	}
	if !root.empty {
		r.After = root.after()
	}
	for i := range r.Removed {
		key := &r.Removed[i].Key
		if i > 0 && less(&r.Removed[i-1].Key, key) >= 0 {
			return nil, errors.New("the proof of the removal: the keys are not in order")
		}
		p := root
		for !p.empty && p.tag == tagNode {
			p = p.next(key)
		}
		if !p.empty && (p.tag != tagStays || p.item.Key == *key) {
			return nil, fmt.Errorf("the proof of the removal: it does not show that %x is absent", *key)
		}
	}
	return r, nil
}

// turn is a step of a path.
type turn struct {
	bit  uint8
	side int
}

// readPart reads a node at the end of a path.
func readPart(b []byte, path []turn) (p *part, rest []byte, err error) {
	errShort := errors.New("it ends too early")
	if len(b) == 0 {
		return nil, nil, errShort
	}
	p = &part{tag: b[0]}
	b = b[1:]
	switch p.tag {
	case tagHash:
		if len(b) < len(p.hash) {
			return nil, nil, errShort
		}
		return p, b[copy(p.hash[:], b):], nil
	case tagNode:
		if len(b) == 0 {
			return nil, nil, errShort
		}
		p.bit, b = b[0], b[1:]
		if len(path) > 0 && p.bit <= path[len(path)-1].bit {
			return nil, nil, errors.New("the bits of a path do not ascend")
		}
		for side := range p.below {
			if p.below[side], b, err = readPart(b, append(path, turn{p.bit, side})); err != nil {
				return nil, nil, err
			}
		}
		p.empty = p.below[0].empty && p.below[1].empty
		return p, b, nil
	case tagRemoved, tagStays:
		if len(b) < 2*len(p.hash) {
			return nil, nil, errShort
		}
		b = b[copy(p.item.Key[:], b):]
		b = b[copy(p.item.Value[:], b):]
		for _, t := range path {
			if bitOf(&p.item.Key, t.bit) != t.side {
				return nil, nil, fmt.Errorf("%x is not on the path of its key", p.item.Key)
			}
		}
		p.empty = p.tag == tagRemoved
		return p, b, nil
	}
	return nil, nil, fmt.Errorf("a node of kind %d", p.tag)
}

// before is the hash before the removal.
func (p *part) before() Hash {
	switch p.tag {
	case tagHash:
		return p.hash
	case tagNode:
		left, right := p.below[0].before(), p.below[1].before()
		return nodeHash(p.bit, &left, &right)
	}
	return p.item.hash()
}

// after is the hash after the removal of a part that is not empty then.
func (p *part) after() Hash {
	switch {
	case p.tag == tagHash:
		return p.hash
	case p.tag == tagStays:
		return p.item.hash()
	case p.below[0].empty:
		return p.below[1].after()
	case p.below[1].empty:
		return p.below[0].after()
	}
	left, right := p.below[0].after(), p.below[1].after()
	return nodeHash(p.bit, &left, &right)
}

// removed appends the removed items.
func (p *part) removed(items []Item) []Item {
	switch p.tag {
	case tagNode:
		return p.below[1].removed(p.below[0].removed(items))
	case tagRemoved:
		return append(items, p.item)
	}
	return items
}
