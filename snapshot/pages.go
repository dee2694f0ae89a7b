package snapshot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
)

// The pages of a bbolt file, in the byte order of the machine. A page is a run
// of 1 + overflow times the page size, starting at id times the page size:
//
//	offset size
//	     0    8  id
//	     8    2  kind: 1 branch, 2 leaf, 4 meta, 16 free list
//	    10    2  number of elements
//	    12    4  overflow
//	    16       elements, 16 bytes each (free list: page ids, 8 bytes each)
//
// A branch element is the place of a key, counted from the element, its
// length (4 bytes each) and the child's id. A leaf element is flags (1: the
// value is a bucket), the place of the key, its length and that of the value
// behind it (4 bytes each). A bucket is its root's id and a sequence number (8
// bytes each); without a root a leaf page follows in the value.
//
// A meta page, of which the whole one of the higher transaction counts:
//
//	offset size
//	    16    4  magic
//	    20    4  version
//	    24    4  page size
//	    28    4  flags
//	    32   16  root bucket
//	    48    8  id of the free list; all ones: none
//	    56    8  number of pages, used or free
//	    64    8  transaction
//	    72    8  FNV-1a of the 56 bytes from the magic on
const (
	pageHeader  = 16
	elementSize = 16

	kindBranch   = 1
	kindLeaf     = 2
	kindFreelist = 16

	leafBucket = 1
	noFreelist = ^uint64(0)

	boltMagic   = 0xED0CDAED
	boltVersion = 2

	// Branches have at least two children, but for the odd one.
	maxDepth = 64
)

var order = binary.NativeEndian

// pageCheck walks over the pages that can be reached from a file's root.
// bbolt itself trusts them: what it would do with a page that is its own
// child, a free list longer than memory or an element beyond the end of the
// file ranges from a fault to eating all memory.
type pageCheck struct {
	file  *os.File
	size  int64 // of a page
	pages uint64
	seen  []uint64 // bits

	window []byte // the pages that were read last
	first  uint64 // the first of them
	needed []bool // stretches of the file of which a page was read out of order

	// unused, unless nil, is told of the parts of used pages that hold nothing.
	unused func(at, length int64) error
	inUse  []uint64 // bits: the pages that hold something, when all have been seen
}

const (
	// mostAhead is up to how many bytes of pages are read at a time.
	mostAhead = 256 << 10
	// stretch is how many the system is asked to read where pages are asked for in no order.
	stretch = 1 << 20
)

// page gives a page, good until the next one is asked for. Where they are asked for
// in the order of the file, more and more are read at a time. Otherwise those around it
// are about to be asked for: in a file of keys that came in no order one waits for the
// disk as often as it has stretches, and not pages.
func (c *pageCheck) page(id uint64) ([]byte, error) {
	next := c.first + uint64(len(c.window))/uint64(c.size)
	if id < c.first || id >= next {
		n := c.size
		if id == next {
			n = min(2*int64(len(c.window)), max(mostAhead, c.size), int64(c.pages-id)*c.size)
		} else if i := int64(id) * c.size / stretch; !c.needed[i] {
			c.needed[i] = true
			willNeed(c.file, i*stretch, stretch)
		}
		c.first, c.window = id, slices.Grow(c.window[:0], int(n))[:n]
		if _, err := c.file.ReadAt(c.window, int64(id)*c.size); err != nil {
			return nil, err
		}
	}
	at := int64(id-c.first) * c.size
	return c.window[at : at+c.size], nil
}

// checkPages proves that every page in use lies in the file, is used once, has
// its elements inside, and has its keys in order.
func checkPages(file *os.File, pageSize int) error {
	_, err := readPages(file, pageSize, nil)
	return err
}

// unusedParts calls f with the parts of a file, none within a page and beyond it, that
// hold nothing: free pages, what is behind the last page, and the ends of used pages.
func unusedParts(file *os.File, pageSize int, f func(at, length int64) error) error {
	c, err := readPages(file, pageSize, f)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	const metaPages, metaSize = 2, 80
	for id := int64(0); id*c.size < info.Size(); id++ {
		used := int64(0)
		switch {
		case id < metaPages:
			used = metaSize
		case uint64(id) < c.pages && c.inUse[id/64]>>(id%64)&1 == 1:
			continue
		}
		if err := f(id*c.size+used, min(c.size, info.Size()-id*c.size)-used); err != nil {
			return err
		}
	}
	return nil
}

func readPages(file *os.File, pageSize int, unused func(at, length int64) error) (*pageCheck, error) {
	if pageSize < 1<<10 || pageSize > 1<<24 || pageSize&(pageSize-1) != 0 {
		return nil, &ChecksumError{Reason: fmt.Sprintf("pages of %d bytes", pageSize)}
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	c := &pageCheck{file: file, size: int64(pageSize), unused: unused}
	meta, _, err := c.meta()
	if err != nil {
		return nil, err
	}
	root, freelist, pages := order.Uint64(meta[32:]), order.Uint64(meta[48:]), order.Uint64(meta[56:])
	if have := uint64(info.Size() / c.size); have < pages {
		return nil, &ChecksumError{Reason: fmt.Sprintf("the file is cut short: %d of %d pages", have, pages)}
	}
	c.pages = pages
	c.seen = make([]uint64, pages/64+1)
	c.needed = make([]bool, pages*uint64(c.size)/stretch+1)
	if err := c.tree(root, keyRange{}, true, 0); err != nil {
		return nil, err
	}
	if freelist == noFreelist {
		c.inUse = c.seen
		return c, nil
	}
	return c, c.freelist(freelist)
}

// meta gives the meta page that counts, and its place.
func (c *pageCheck) meta() (newest []byte, at int64, err error) {
	for i := range int64(2) {
		b := make([]byte, 80)
		if _, err := c.file.ReadAt(b, i*c.size); err != nil {
			return nil, 0, err
		}
		h := fnv.New64a()
		h.Write(b[16:72])
		if order.Uint32(b[16:]) != boltMagic || order.Uint32(b[20:]) != boltVersion || h.Sum64() != order.Uint64(b[72:]) {
			continue
		}
		if newest == nil || order.Uint64(b[64:]) > order.Uint64(newest[64:]) {
			newest, at = b, i*c.size
		}
	}
	if newest == nil {
		return nil, 0, ErrNotSnapshot
	}
	return newest, at, nil
}

func badPage(id uint64, format string, args ...any) error {
	return &ChecksumError{Reason: fmt.Sprintf("page %d: ", id) + fmt.Sprintf(format, args...)}
}

// claim marks pages as used.
func (c *pageCheck) claim(id, n uint64) error {
	if id < 2 || id >= c.pages || n > c.pages-id {
		return badPage(id, "it is outside the file")
	}
	for ; n > 0; id, n = id+1, n-1 {
		if c.seen[id/64]>>(id%64)&1 == 1 {
			return badPage(id, "it is used twice")
		}
		c.seen[id/64] |= 1 << (id % 64)
	}
	return nil
}

// run is a page as it is in the file, or a leaf page inside a value.
type run struct {
	id     uint64
	kind   uint16
	count  int
	length int64  // with overflow
	front  []byte // at least the header and all elements
	file   *os.File
	at     int64 // place of the run in the file
	end    int64 // of what was found in it, from its beginning
}

// reach notes that the run holds something up to there.
func (r *run) reach(end int64) { r.end = max(r.end, end) }

// read claims a page and reads the front of it, which is good until the next read.
func (c *pageCheck) read(id uint64) (r run, err error) {
	if id < 2 || id >= c.pages {
		return r, badPage(id, "it is outside the file")
	}
	b, err := c.page(id)
	if err != nil {
		return r, err
	}
	at := int64(id) * c.size
	r = run{id: id, kind: order.Uint16(b[8:]), count: int(order.Uint16(b[10:])), front: b, file: c.file, at: at}
	if order.Uint64(b) != id {
		return r, badPage(id, "it says that it is page %d", order.Uint64(b))
	}
	n := 1 + uint64(order.Uint32(b[12:]))
	if err := c.claim(id, n); err != nil {
		return r, err
	}
	r.length = int64(n) * c.size
	if r.kind == kindFreelist {
		return r, nil // its elements are of another size: freelist looks at them
	}
	table := r.table()
	if table > r.length {
		return r, badPage(id, "%d elements do not fit in", r.count)
	}
	if table > int64(len(b)) {
		r.front = make([]byte, table)
		if _, err := c.file.ReadAt(r.front, at); err != nil {
			return r, err
		}
	}
	return r, nil
}

// table is where the elements of a branch or leaf page end.
func (r *run) table() int64 { return pageHeader + int64(r.count)*elementSize }

// bytes reads part of a run that element i claims to own.
func (r *run) bytes(i int, place, length int64) ([]byte, error) {
	at := pageHeader + int64(i)*elementSize + place
	if at < r.table() || at+length > r.length {
		return nil, badPage(r.id, "element %d is outside of it", i)
	}
	r.reach(at + length)
	if at+length <= int64(len(r.front)) {
		return r.front[at : at+length], nil
	}
	b := make([]byte, length)
	_, err := r.file.ReadAt(b, r.at+at)
	return b, err
}

// keyRange bounds the keys of a subtree: the first one and the end, which is
// above all; nil: no bound. That a branch names the very first key of its
// child is more than a search needs, but bbolt finds a child that it has
// changed in its parent by that key.
type keyRange struct{ first, end []byte }

// tree checks the subtree under a page. Only the values of the root bucket are
// buckets.
func (c *pageCheck) tree(id uint64, within keyRange, isRootBucket bool, depth int) error {
	if depth > maxDepth {
		return badPage(id, "the tree is too deep")
	}
	r, err := c.read(id)
	if err != nil {
		return err
	}
	if r.kind == kindBranch || isRootBucket {
		r.front = bytes.Clone(r.front) // others are read before it is done
	}
	switch r.reach(r.table()); r.kind {
	case kindLeaf:
		err = c.leaf(&r, within, isRootBucket)
	case kindBranch:
		err = c.branch(&r, within, isRootBucket, depth)
	default:
		err = badPage(id, "it is of kind %d, not of a tree", r.kind)
	}
	if err != nil {
		return err
	}
	return c.tellUnused(&r)
}

// tellUnused tells of the end of a run, behind what it holds.
func (c *pageCheck) tellUnused(r *run) error {
	if c.unused == nil || r.end == r.length {
		return nil
	}
	return c.unused(r.at+r.end, r.length-r.end)
}

func (c *pageCheck) branch(r *run, within keyRange, isRootBucket bool, depth int) error {
	if r.count == 0 {
		return badPage(r.id, "a branch without children")
	}
	keys := make([][]byte, r.count)
	var previous []byte
	for i := range keys {
		e := r.front[pageHeader+i*elementSize:]
		key, err := r.bytes(i, int64(order.Uint32(e)), int64(order.Uint32(e[4:])))
		if err != nil {
			return err
		}
		if err := checkOrder(r.id, i, key, previous, within); err != nil {
			return err
		}
		keys[i], previous = key, key
	}
	for i, key := range keys {
		child := keyRange{first: key, end: within.end}
		if i+1 < len(keys) {
			child.end = keys[i+1]
		}
		e := r.front[pageHeader+i*elementSize:]
		if err := c.tree(order.Uint64(e[8:]), child, isRootBucket, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (c *pageCheck) leaf(r *run, within keyRange, isRootBucket bool) error {
	if r.count == 0 && within.first != nil {
		return badPage(r.id, "it is empty")
	}
	var previous []byte
	for i := range r.count {
		e := r.front[pageHeader+i*elementSize:]
		flags, place := order.Uint32(e), int64(order.Uint32(e[4:]))
		keyLength, valueLength := int64(order.Uint32(e[8:])), int64(order.Uint32(e[12:]))
		if at := pageHeader + int64(i)*elementSize + place; at+keyLength+valueLength > r.length {
			return badPage(r.id, "element %d is outside of it", i)
		} else {
			r.reach(at + keyLength + valueLength)
		}
		key, err := r.bytes(i, place, keyLength)
		if err != nil {
			return err
		}
		if err := checkOrder(r.id, i, key, previous, within); err != nil {
			return err
		}
		previous = key
		if isBucket := flags == leafBucket; isBucket != isRootBucket || flags > leafBucket {
			return badPage(r.id, "element %d has flags %d", i, flags)
		}
		if !isRootBucket {
			continue
		}
		if valueLength < 16 || valueLength > c.size {
			return badPage(r.id, "bucket %q has %d bytes", key, valueLength)
		}
		bucket, err := r.bytes(i, place+keyLength, valueLength)
		if err != nil {
			return err
		}
		if err := c.bucket(r.id, bucket); err != nil {
			return err
		}
	}
	return nil
}

func (c *pageCheck) bucket(id uint64, b []byte) error {
	if root := order.Uint64(b); root != 0 {
		return c.tree(root, keyRange{}, false, 0)
	}
	page := b[16:]
	if len(page) < pageHeader {
		return badPage(id, "a bucket of %d bytes", len(b))
	}
	r := &run{id: id, kind: order.Uint16(page[8:]), count: int(order.Uint16(page[10:])), length: int64(len(page)), front: page}
	if r.kind != kindLeaf || r.table() > r.length {
		return badPage(id, "a bucket of kind %d with %d elements", r.kind, r.count)
	}
	return c.leaf(r, keyRange{}, false)
}

// checkOrder checks the key of an element, behind that of the one before it.
func checkOrder(id uint64, i int, key, previous []byte, within keyRange) error {
	switch {
	case i == 0 && within.first != nil && !bytes.Equal(key, within.first),
		i > 0 && bytes.Compare(key, previous) <= 0,
		within.end != nil && bytes.Compare(key, within.end) >= 0:
		return badPage(id, "element %d is out of order", i)
	}
	return nil
}

// freelist checks that what is free is in the file, and free.
func (c *pageCheck) freelist(id uint64) error {
	r, err := c.read(id)
	if err != nil {
		return err
	}
	if r.kind != kindFreelist {
		return badPage(id, "it is of kind %d, not the free list", r.kind)
	}
	b := make([]byte, r.length-pageHeader)
	if _, err := c.file.ReadAt(b, r.at+pageHeader); err != nil {
		return err
	}
	n := uint64(r.count)
	if n == 0xFFFF { // the number is too large for its field
		n, b = order.Uint64(b), b[8:]
		r.reach(pageHeader + 8)
	}
	if n > uint64(len(b)/8) {
		return badPage(id, "%d free pages do not fit in", n)
	}
	r.reach(max(r.end, pageHeader) + 8*int64(n))
	if err := c.tellUnused(&r); err != nil {
		return err
	}
	if c.unused != nil {
		c.inUse = slices.Clone(c.seen)
	}
	for i := range n {
		if err := c.claim(order.Uint64(b[8*i:]), 1); err != nil {
			return err
		}
	}
	return nil
}
