// Package timeline keeps exact partial sums of live blocks in the order of event times or
// of offsets, so that the sum of any window is that of a few parts.
//
// An Index is a binary trie over the bits of a block's key. A leaf has the names of up to a
// fixed number of blocks. A node of the trie may have the sum of its blocks. A window of B
// blocks is O(log B) whole nodes, and some of the blocks of the leaves at its ends. Sums are
// exact, so any division into parts gives the same bits.
//
// The index begins without sums. Whoever asks for a window computes the sums that are
// missing, and offers them for later windows (Plan, Evaluate, Keep). A change of a block
// drops the sums of the nodes above it, in O(depth) and without arithmetic: nothing of a
// retired block stays in the index.
package timeline

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"streamd/incremental"
)

// Line separates blocks whose keys have no common order: offsets of several partitions.
type Line struct {
	Topic     string
	Partition int
}

// Block is a block in the index. Its keys, from First to Last, are event times in
// milliseconds or offsets. The order is that of First.
type Block struct {
	ID          string
	First, Last int64
	Time        int64 // by which Times chooses
}

// Range chooses the blocks of a line that have a key from First to Last, both included.
type Range struct {
	Line
	First, Last int64
}

// Times narrows a window to the blocks of a time from First to Last, both included. In an order
// that time hardly follows, a narrow window has many leaves of which it takes a part.
type Times struct{ First, Last int64 }

// Index is the sums of blocks. It belongs to one goroutine.
type Index struct {
	capacity int // blocks of a leaf
	most     int // bytes of sums that are kept
	seed     maphash.Seed
	lines    map[Line]*node
	blocks   int
	nodes    int
	bytes    int    // of the sums that are kept
	full     bool   // a sum was not kept for want of room
	changes  uint64 // counts all changes, for node.changed
}

// New makes an empty index. capacity is the most blocks of a leaf. Sums of most bytes are
// kept.
func New(capacity, most int) *Index {
	return &Index{capacity: max(capacity, 1), most: most, seed: maphash.MakeSeed(), lines: map[Line]*node{}}
}

// Len is the number of blocks.
func (x *Index) Len() int { return x.blocks }

// BlockBytes is the most that a block takes in the index, in a slice that has grown to twice its
// length. A node takes nodeBytes.
const BlockBytes, nodeBytes = 80, 144

// Bytes is an upper bound of the index's memory.
func (x *Index) Bytes() int { return BlockBytes*x.blocks + nodeBytes*x.nodes + x.bytes }

// key is the place of a block in the trie: the bits of First, and those of a hash of its id. So
// blocks of one time are divided, too.
type key struct{ first, hash uint64 }

const keyBits = 128

// unsigned keeps the order of keys.
func unsigned(k int64) uint64 { return uint64(k) ^ 1<<63 }

func (x *Index) key(b *Block) key {
	return key{unsigned(b.First), maphash.String(x.seed, b.ID)}
}

// bit is a bit of a key; bit 127 is the highest.
func (k key) bit(i int) int {
	if i < 64 {
		return int(k.hash >> i & 1)
	}
	return int(k.first >> (i - 64) & 1)
}

// node is the blocks whose keys share the bits from its level on. Exactly one of blocks and
// children is in use.
type node struct {
	children [2]*node // by the bit below the level
	inner    bool
	blocks   []Block // of a leaf
	count    int     // blocks below
	bounds
	changed uint64 // number of the last change below
	sum     *incremental.State
	bytes   int // that count for sum: 0 where it is that of a child
}

// bounds are of the blocks below a node: none has a key above last, or a time before earliest or
// after latest.
type bounds struct{ last, earliest, latest int64 }

func boundsOf(b *Block) bounds { return bounds{b.Last, b.Time, b.Time} }

func (s *bounds) widen(b *Block) {
	s.last, s.earliest, s.latest = max(s.last, b.Last), min(s.earliest, b.Time), max(s.latest, b.Time)
}

// touch notes a change below n.
func (x *Index) touch(n *node) {
	x.changes++
	n.changed = x.changes
	if n.bytes > 0 {
		x.full = false
	}
	x.bytes -= n.bytes
	n.sum, n.bytes = nil, 0
}

// Add adds a block. It does nothing if the block is in the index.
func (x *Index) Add(line Line, b Block) {
	k, root := x.key(&b), x.lines[line]
	if x.has(root, k, &b) {
		return
	}
	if root == nil {
		root = x.leaf(&b)
		x.lines[line] = root
	}
	x.blocks++
	n, level := root, keyBits
	for {
		n.count++
		n.widen(&b)
		x.touch(n)
		if !n.inner {
			break
		}
		level--
		next := &n.children[k.bit(level)]
		if *next == nil {
			*next = x.leaf(&b)
		}
		n = *next
	}
	n.blocks = append(n.blocks, b)
	x.split(n, level)
}

// leaf makes a leaf for a block, which is still to be put there.
func (x *Index) leaf(b *Block) *node {
	x.nodes++
	return &node{bounds: boundsOf(b)}
}

// has reports whether a block is below n.
func (x *Index) has(n *node, k key, b *Block) bool {
	for level := keyBits; n != nil; {
		if !n.inner {
			return slices.Contains(n.blocks, *b)
		}
		level--
		n = n.children[k.bit(level)]
	}
	return false
}

// split divides a leaf of too many blocks until none has too many.
func (x *Index) split(n *node, level int) {
	if len(n.blocks) <= x.capacity || level == 0 {
		return
	}
	for _, b := range n.blocks {
		k := x.key(&b)
		child := &n.children[k.bit(level-1)]
		if *child == nil {
			*child = x.leaf(&b)
		}
		c := *child
		c.blocks, c.count = append(c.blocks, b), c.count+1
		c.widen(&b)
	}
	n.inner, n.blocks = true, nil
	for _, c := range n.children {
		if c != nil {
			x.touch(c)
			x.split(c, level-1)
		}
	}
}

// Remove removes a block, if it is in the index.
func (x *Index) Remove(line Line, b Block) {
	k, root := x.key(&b), x.lines[line]
	if !x.has(root, k, &b) {
		return
	}
	x.blocks--
	x.remove(root, keyBits, k, &b)
	if root.count == 0 {
		x.nodes--
		delete(x.lines, line)
	}
}

func (x *Index) remove(n *node, level int, k key, b *Block) {
	n.count--
	x.touch(n)
	if !n.inner {
		n.blocks = slices.DeleteFunc(n.blocks, func(have Block) bool { return have == *b })
		return
	}
	child := &n.children[k.bit(level-1)]
	x.remove(*child, level-1, k, b)
	if (*child).count == 0 {
		x.nodes--
		*child = nil
	}
	if n.count <= x.capacity/2 {
		x.gather(n)
	}
}

// gather moves the blocks of the leaves below n into n, and drops these. No child is an inner node,
// since it has no more blocks than n.
func (x *Index) gather(n *node) {
	for _, c := range n.children {
		if c == nil {
			continue
		}
		x.touch(c) // sums on their way to it are not kept
		n.blocks = append(n.blocks, c.blocks...)
		x.nodes--
	}
	n.inner, n.children = false, [2]*node{}
}

// Part is a part of a window. It has its sum, or else the blocks or parts that it is the sum
// of.
type Part struct {
	Sum    *incremental.State
	Blocks []Block
	Parts  []*Part

	node    *node // whose sum it is, if it may be kept
	changed uint64
}

// Plan is the parts of a window at one moment.
type Plan struct {
	Parts  []*Part
	Blocks int // in the window
	Unread int // blocks that Evaluate reads
	// Whole is false for the plan of a window with too many unread blocks. Then it has only
	// some of its parts, whose sums are to be kept before the window is planned again.
	Whole bool
	// ID identifies the blocks of the window: within one index, plans of the same ID have the
	// same blocks. Other plans of the same blocks may have another ID.
	ID string
}

// planner makes a plan.
type planner struct {
	*Plan
	ranges []Range // of the line, in order and apart
	times  *Times
	most   int   // blocks of missing sums that a plan has
	loose  *Part // blocks that are read without keeping a sum
	keeps  int   // blocks of missing sums so far
	full   bool  // no missing sum can be kept
	id     []byte
}

// Plan divides a window into parts: the blocks of some ranges, of which none ends before it begins,
// and of some times, which may be nil for all. A block that is in several ranges counts once. Where
// sums of more than most blocks are missing the plan is not whole, unless
// there is no room to keep them.
func (x *Index) Plan(window []Range, times *Times, most int) *Plan {
	p := planner{Plan: &Plan{Whole: true}, times: times, most: most, loose: &Part{}, full: x.full}
	window = merged(window)
	for len(window) > 0 {
		line, end := window[0].Line, 1
		for end < len(window) && window[end].Line == line {
			end++
		}
		p.ranges, window = window[:end], window[end:]
		if n := x.lines[line]; n != nil {
			p.visit(n, keyBits, 0)
		}
	}
	p.ID = string(p.id)
	p.Unread = p.keeps
	if !p.Whole {
		p.Parts = slices.DeleteFunc(p.Parts, func(part *Part) bool { return part.Sum != nil })
	} else if len(p.loose.Blocks) > 0 {
		p.Parts = append(p.Parts, p.loose)
		p.Unread += len(p.loose.Blocks)
	}
	return p.Plan
}

// merged is ranges in order, line by line, without those that overlap.
func merged(ranges []Range) (out []Range) {
	sorted := slices.SortedFunc(slices.Values(ranges), func(a, b Range) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.First, b.First))
	})
	for _, r := range sorted {
		if i := len(out) - 1; i >= 0 && out[i].Line == r.Line && r.First <= out[i].Last {
			out[i].Last = max(out[i].Last, r.Last)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// visit plans what the window has of n, whose keys have the high bits of first.
func (p *planner) visit(n *node, level int, first uint64) {
	lowest, highest := first, first
	if level > 64 {
		highest |= 1<<(level-64) - 1
	}
	apart, within := true, false
	for _, r := range p.ranges {
		from, to := unsigned(r.First), unsigned(r.Last)
		apart = apart && (lowest > to || unsigned(n.last) < from)
		within = within || from <= lowest && highest <= to
	}
	if t := p.times; t != nil {
		apart = apart || n.earliest > t.Last || n.latest < t.First
		within = within && t.First <= n.earliest && n.latest <= t.Last
	}
	switch {
	case apart:
	case within:
		p.note(n)
		p.Blocks += n.count
		if part := p.whole(n); part != nil {
			p.Parts = append(p.Parts, part)
		}
	case n.inner:
		for bit, c := range n.children {
			if c == nil {
				continue
			}
			first := first
			if level > 64 {
				first |= uint64(bit) << (level - 65)
			}
			p.visit(c, level-1, first)
		}
	default:
		p.note(n)
		before := len(p.loose.Blocks)
		for _, b := range n.blocks {
			if p.has(&b) {
				p.loose.Blocks = append(p.loose.Blocks, b)
			}
		}
		p.Blocks += len(p.loose.Blocks) - before
	}
}

// has reports whether a block of the line is in the window.
func (p *planner) has(b *Block) bool {
	if t := p.times; t != nil && (b.Time < t.First || b.Time > t.Last) {
		return false
	}
	return slices.ContainsFunc(p.ranges, func(r Range) bool { return b.First <= r.Last && b.Last >= r.First })
}

func (p *planner) note(n *node) { p.id = binary.LittleEndian.AppendUint64(p.id, n.changed) }

// whole returns the part of all blocks below n. If it returns nil, the plan has its parts, or
// is not whole.
func (p *planner) whole(n *node) *Part {
	part := &Part{node: n, changed: n.changed, Sum: n.sum}
	switch {
	case n.sum != nil:
		return part
	case n.inner:
		for _, c := range n.children {
			if c == nil {
				continue
			}
			if below := p.whole(c); below != nil {
				part.Parts = append(part.Parts, below)
			}
		}
		if p.Whole && !p.full {
			return part
		}
		p.Parts = append(p.Parts, part.Parts...)
		return nil
	case p.full:
		p.loose.Blocks = append(p.loose.Blocks, n.blocks...)
		return nil
	case !p.Whole, p.keeps > 0 && p.keeps+n.count > p.most:
		p.Whole = false
		return nil
	}
	p.keeps += n.count
	part.Blocks = slices.Clone(n.blocks)
	return part
}

// EachUnread calls do for each block that Evaluate reads.
func (p *Plan) EachUnread(do func(id string)) { eachUnread(p.Parts, do) }

func eachUnread(parts []*Part, do func(id string)) {
	for _, p := range parts {
		eachUnread(p.Parts, do)
		for _, b := range p.Blocks {
			do(b.ID)
		}
	}
}

// ErrLarge says that a sum takes more bytes than Evaluate may use for it.
var ErrLarge = errors.New("the sum is too large")

// Evaluate computes the missing sums of all parts, and returns the sum of the plan, which
// nobody may change. summary gives the summary of a block. It may run beside the index. The
// error is ErrLarge if a sum takes more than most bytes: blocks of many times may have more
// classes together than any of them.
func (p *Plan) Evaluate(features []string, most int, summary func(id string) (*incremental.Summary, error)) (*incremental.State, error) {
	e := evaluation{features, most, summary}
	return e.sum(p.Parts)
}

type evaluation struct {
	features []string
	most     int
	summary  func(id string) (*incremental.Summary, error)
}

func (e *evaluation) sum(parts []*Part) (*incremental.State, error) {
	var sums []*incremental.State
	for _, part := range parts {
		if part.Sum == nil {
			if err := e.evaluate(part); err != nil {
				return nil, err
			}
		}
		sums = append(sums, part.Sum)
	}
	if len(sums) == 1 {
		return sums[0], nil
	}
	sum := incremental.NewState(e.features)
	sum.SetSum(sums)
	if sum.Bytes() > e.most {
		return nil, ErrLarge
	}
	return sum, nil
}

func (e *evaluation) evaluate(p *Part) (err error) {
	if p.Parts != nil {
		p.Sum, err = e.sum(p.Parts)
		return err
	}
	sum := incremental.NewState(e.features)
	for _, b := range p.Blocks {
		s, err := e.summary(b.ID)
		if err != nil {
			return fmt.Errorf("sum block %s: %w", b.ID, err)
		}
		if sum.Add(s); sum.Bytes() > e.most {
			return ErrLarge
		}
	}
	p.Sum = sum
	return nil
}

// Keep keeps the sums of a plan for later windows, as far as they have been evaluated and there
// is room. Sums of nodes that have changed since are dropped.
func (x *Index) Keep(p *Plan) { x.keep(p.Parts) }

func (x *Index) keep(parts []*Part) {
	for _, p := range parts {
		x.keep(p.Parts)
		n := p.node
		if n == nil || n.sum != nil || n.changed != p.changed || p.Sum == nil {
			continue
		}
		bytes := p.Sum.Bytes()
		if len(p.Parts) == 1 && p.Parts[0].node.sum == p.Sum {
			bytes = 0 // that of its only child
		}
		if x.bytes+bytes > x.most {
			x.full = true
			continue
		}
		n.sum, n.bytes = p.Sum, bytes
		x.bytes += bytes
	}
}
