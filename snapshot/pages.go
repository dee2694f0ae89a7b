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
// A meta page. Of those with a good checksum, the one of the higher transaction counts:
//
//	offset size
//	    16    4  magic
//	    20    4  version
//	    24    4  page size
//	    28    4  flags
//	    32   16  root bucket
//	    48    8  id of the free list
//	    56    8  number of pages, used or free
//	    64    8  transaction
//	    72    8  FNV-1a of the 56 bytes from the magic on
const (
	metaPages   = 2
	metaSize    = 80
	pageHeader  = 16
	elementSize = 16

	kindBranch   = 1
	kindLeaf     = 2
	kindFreelist = 16

	leafBucket = 1

	boltMagic   = 0xED0CDAED
	boltVersion = 2

	noFreelist = ^uint64(0)

	maxDepth = 64 // of a tree; nearly all branches have two children or more

	// mostAhead bounds the bytes of pages that are read at a time.
	mostAhead = 256 << 10
	// stretch is the bytes that are prefetched at a time when pages are read in random
	// order.
	stretch = 1 << 20
)

var order = binary.NativeEndian

// pageCheck walks over the pages of a file before bbolt follows them.
//
// bbolt's own check (Tx.Check) cannot do this. It runs on its own goroutine, so its
// panics cannot be recovered, and it faults when a child or an element lies outside of
// the file. It does not end when a page is its own child, allocates as much memory as a
// free list claims, and accepts a branch that does not name the first key of its child.
// The walk finds everything that bbolt's check finds.
type pageCheck struct {
	file   *os.File
	size   int64                        // of a page
	seen   []bool                       // pages that are used or free
	unused func(at, length int64) error // called with the ends of used pages
	window []byte                       // the pages read last
	first  uint64                       // the first of them
	asked  []bool                       // stretches of the file that have been prefetched
}

// checkPages is readPages without a callback.
func checkPages(file *os.File, pageSize int) error {
	return readPages(file, pageSize, func(int64, int64) error { return nil })
}

// readPages proves that every page in use lies in the file, is used once, has its
// elements inside, and has its keys in order, and that all other pages are free. It calls
// unused with every part that holds nothing: free pages, the end of the file behind the
// last page, and the ends of used pages. No part crosses the end of a page.
func readPages(file *os.File, pageSize int, unused func(at, length int64) error) error {
	if pageSize < 1<<10 || pageSize > 1<<24 || pageSize&(pageSize-1) != 0 {
		return &ChecksumError{Reason: fmt.Sprintf("pages of %d bytes", pageSize)}
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	c := &pageCheck{file: file, size: int64(pageSize), unused: unused}
	meta, _, err := c.meta()
	if err != nil {
		return err
	}
	root, freelist, pages := order.Uint64(meta[32:]), order.Uint64(meta[48:]), order.Uint64(meta[56:])
	if have := uint64(info.Size() / c.size); have < pages {
		return &ChecksumError{Reason: fmt.Sprintf("the file is cut short: %d of %d pages", have, pages)}
	}
	c.seen, c.asked = make([]bool, pages), make([]bool, int64(pages)*c.size/stretch+1)
	if err := c.tree(subtree{id: root, buckets: true}, 0); err != nil {
		return err
	}
	if freelist != noFreelist {
		if err := c.freelist(freelist); err != nil {
			return err
		}
		if i := slices.Index(c.seen[metaPages:], false); i >= 0 {
			return badPage(uint64(metaPages+i), "it is neither used nor free")
		}
	}
	for id := range int64(metaPages) {
		if err := unused(id*c.size+metaSize, c.size-metaSize); err != nil {
			return err
		}
	}
	for at := int64(pages) * c.size; at < info.Size(); at += c.size {
		if err := unused(at, min(c.size, info.Size()-at)); err != nil {
			return err
		}
	}
	return nil
}

// meta returns the valid meta page and its place.
func (c *pageCheck) meta() (newest []byte, at int64, err error) {
	for i := range int64(metaPages) {
		b := make([]byte, metaSize)
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

// claim marks pages as used or free.
func (c *pageCheck) claim(id, n uint64) error {
	if pages := uint64(len(c.seen)); id < metaPages || id >= pages || n > pages-id {
		return badPage(id, "it is outside the file")
	}
	for ; n > 0; id, n = id+1, n-1 {
		if c.seen[id] {
			return badPage(id, "it is used twice")
		}
		c.seen[id] = true
	}
	return nil
}

// page returns a page, valid until the next call. Calls in file order read more and more
// pages at a time. Other calls prefetch a stretch around the page, because calls for
// pages nearby are likely. In a file whose keys came in random order, the check then
// waits for the disk once per stretch and not once per page.
func (c *pageCheck) page(id uint64) ([]byte, error) {
	next := c.first + uint64(len(c.window))/uint64(c.size)
	if id < c.first || id >= next {
		n := c.size
		if id == next {
			n = min(2*int64(len(c.window)), max(mostAhead, c.size), int64(uint64(len(c.seen))-id)*c.size)
		} else if i := int64(id) * c.size / stretch; !c.asked[i] {
			c.asked[i] = true
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

// run is a page with its overflow, or a leaf page inside a value.
type run struct {
	id     uint64
	kind   uint16
	count  int
	length int64
	front  []byte // the header and more, until the next read
	file   *os.File
	at     int64 // place of the run in the file
	end    int64 // end of everything found in it
}

// bytes reads the part of a run that element i claims as its own.
func (r *run) bytes(i int, place, length int64) ([]byte, error) {
	at := pageHeader + int64(i)*elementSize + place
	end := at + length
	if at < pageHeader+int64(r.count)*elementSize || end > r.length {
		return nil, badPage(r.id, "element %d is outside of it", i)
	}
	r.end = max(r.end, end)
	if end <= int64(len(r.front)) {
		return r.front[at:end], nil
	}
	b := make([]byte, length)
	_, err := r.file.ReadAt(b, r.at+at)
	return b, err
}

// read claims a page and its overflow, and reads their front.
func (c *pageCheck) read(id uint64) (*run, error) {
	if id < metaPages || id >= uint64(len(c.seen)) {
		return nil, badPage(id, "it is outside the file")
	}
	b, err := c.page(id)
	if err != nil {
		return nil, err
	}
	if order.Uint64(b) != id {
		return nil, badPage(id, "it says that it is page %d", order.Uint64(b))
	}
	n := 1 + uint64(order.Uint32(b[12:]))
	if err := c.claim(id, n); err != nil {
		return nil, err
	}
	return &run{
		id: id, kind: order.Uint16(b[8:]), count: int(order.Uint16(b[10:])), length: int64(n) * c.size,
		front: b, file: c.file, at: int64(id) * c.size,
	}, nil
}

// subtree is a page and those below it. Its keys have bounds, the first key and an end
// above all keys; nil means no bound. A search does not need a parent that names the very
// first key, but bbolt uses it to find the place of a child that it has changed.
type subtree struct {
	id         uint64
	first, end []byte
	buckets    bool // its values are buckets, because it belongs to the root bucket
}

func (c *pageCheck) tree(t subtree, depth int) error {
	if depth > maxDepth {
		return badPage(t.id, "the tree is too deep")
	}
	r, err := c.read(t.id)
	if err != nil {
		return err
	}
	below, err := c.elements(r, t)
	if err != nil {
		return err
	}
	if err := c.passUnused(r); err != nil {
		return err
	}
	for _, t := range below {
		if err := c.tree(t, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// passUnused calls unused with the end of a run, behind its elements.
func (c *pageCheck) passUnused(r *run) error {
	if r.end == r.length {
		return nil
	}
	return c.unused(r.at+r.end, r.length-r.end)
}

// elements checks the elements of a branch or leaf page, and lists the trees below it.
func (c *pageCheck) elements(r *run, t subtree) (below []subtree, err error) {
	r.end = pageHeader + int64(r.count)*elementSize
	switch {
	case r.kind != kindLeaf && r.kind != kindBranch:
		return nil, badPage(r.id, "it is of kind %d, not of a tree", r.kind)
	case r.end > r.length:
		return nil, badPage(r.id, "%d elements do not fit in", r.count)
	case r.count == 0 && (r.kind == kindBranch || t.first != nil):
		return nil, badPage(r.id, "it is empty, without children or keys")
	case r.end > int64(len(r.front)):
		r.front = make([]byte, r.end)
		if _, err := r.file.ReadAt(r.front, r.at); err != nil {
			return nil, err
		}
	}
	var previous []byte
	for i := range r.count {
		e := r.front[pageHeader+i*elementSize:]
		var key []byte
		if r.kind == kindLeaf {
			var bucket []subtree
			key, bucket, err = c.leaf(r, i, e, t.buckets)
			below = append(below, bucket...)
		} else if key, err = r.bytes(i, int64(order.Uint32(e)), int64(order.Uint32(e[4:]))); err == nil {
			child := subtree{id: order.Uint64(e[8:]), first: bytes.Clone(key), end: t.end, buckets: t.buckets}
			if i > 0 {
				below[i-1].end = child.first
			}
			below = append(below, child)
		}
		switch {
		case err != nil:
			return nil, err
		case i == 0 && t.first != nil && !bytes.Equal(key, t.first),
			i > 0 && bytes.Compare(key, previous) <= 0,
			t.end != nil && bytes.Compare(key, t.end) >= 0:
			return nil, badPage(r.id, "element %d is out of order", i)
		}
		previous = key
	}
	return below, nil
}

// leaf checks element i of a leaf page. It returns the key, and the tree of a bucket.
func (c *pageCheck) leaf(r *run, i int, e []byte, isBucket bool) (key []byte, bucket []subtree, err error) {
	flags, place := order.Uint32(e), int64(order.Uint32(e[4:]))
	keyLength, length := int64(order.Uint32(e[8:])), int64(order.Uint32(e[12:]))
	if key, err = r.bytes(i, place, keyLength); err != nil {
		return nil, nil, err
	}
	if (flags == leafBucket) != isBucket || flags > leafBucket {
		return nil, nil, badPage(r.id, "element %d has flags %d", i, flags)
	}
	place += keyLength
	if !isBucket { // the value need not be read
		place, length = place+length, 0
	} else if length < 16 || length > c.size {
		return nil, nil, badPage(r.id, "bucket %q has %d bytes", key, length)
	}
	value, err := r.bytes(i, place, length)
	if err != nil || !isBucket {
		return key, nil, err
	}
	if root := order.Uint64(value); root != 0 {
		return key, []subtree{{id: root}}, nil
	}
	if value = value[16:]; len(value) < pageHeader {
		return nil, nil, badPage(r.id, "bucket %q has %d bytes", key, length)
	}
	inline := &run{id: r.id, kind: order.Uint16(value[8:]), count: int(order.Uint16(value[10:])), length: int64(len(value)), front: value}
	if inline.kind != kindLeaf {
		return nil, nil, badPage(r.id, "bucket %q is of kind %d", key, inline.kind)
	}
	_, err = c.elements(inline, subtree{})
	return key, nil, err
}

// freelist checks that the free pages are in the file and not used.
func (c *pageCheck) freelist(id uint64) error {
	r, err := c.read(id)
	if err != nil {
		return err
	}
	if r.kind != kindFreelist {
		return badPage(id, "it is of kind %d, not the free list", r.kind)
	}
	b := make([]byte, r.length-pageHeader)
	if _, err := r.file.ReadAt(b, r.at+pageHeader); err != nil {
		return err
	}
	n := uint64(r.count)
	r.end = pageHeader
	if n == 0xFFFF { // the number is too large for its field
		n, b = order.Uint64(b), b[8:]
		r.end += 8
	}
	if n > uint64(len(b)/8) {
		return badPage(id, "%d free pages do not fit in", n)
	}
	r.end += 8 * int64(n)
	for i := range n {
		free := order.Uint64(b[8*i:])
		if err := c.claim(free, 1); err != nil {
			return err
		}
		if err := c.unused(int64(free)*c.size, c.size); err != nil {
			return err
		}
	}
	return c.passUnused(r)
}
