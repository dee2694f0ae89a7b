package snapshot

import (
	"bufio"
	"bytes"
	"hash/fnv"
	"io"
	"os"
	"slices"
)

// builder writes a file of bbolt (see pages.go) from keys in ascending order: leaves one after the
// other as they are full, and the branches above them. It has no free pages, and zeros behind the
// elements of a page.
//
// bbolt would look for the place of each key, and keep the pages of a transaction in memory. For a
// million blocks that takes ten times as long, and leaves free pages with copies of values.
type builder struct {
	file    *os.File
	out     *bufio.Writer // behind the meta pages
	size    int           // of a page
	next    uint64        // id of the next page
	page    []byte        // the last one
	buckets []element     // of the root bucket
	err     error         // of the first write that failed
}

// element is what a page has for a key.
type element struct {
	key, value []byte
	child      uint64 // of a branch
}

func (e *element) length() int { return elementSize + len(e.key) + len(e.value) }

// tree is a bucket that is under construction. Its keys and values stay as they are until it is
// complete.
type tree struct {
	*builder
	levels []level // the leaves' first
}

// level has the elements of a level that are not in a page yet.
type level struct {
	waiting []element
	length  int // of their page
}

const (
	kindMeta = 4
	// inline is the part of a page up to which a leaf that is a whole bucket lies in its value.
	inline = 4
	// buildBytes is the size of a write.
	buildBytes = 1 << 20
)

func newBuilder(file *os.File, pageSize int) *builder {
	behind := io.NewOffsetWriter(file, metaPages*int64(pageSize))
	return &builder{file: file, out: bufio.NewWriterSize(behind, buildBytes), size: pageSize, next: metaPages}
}

// bucket writes a bucket. Fill puts its keys in ascending order.
func (b *builder) bucket(name []byte, fill func(t *tree) error) error {
	t := &tree{builder: b}
	if err := fill(t); err != nil {
		return err
	}
	b.buckets = append(b.buckets, element{key: name, value: t.end()})
	return b.err
}

// put adds a key with its value.
func (t *tree) put(key, value []byte) error {
	t.add(0, element{key: key, value: value})
	return t.err
}

// add adds an element to a level. Of a full page of a branch two elements stay, so that the last
// page has no less.
func (t *tree) add(at int, e element) {
	if at == len(t.levels) {
		t.levels = append(t.levels, level{length: pageHeader})
	}
	stay := 0
	if at > 0 {
		stay = 2
	}
	l := &t.levels[at]
	if n := len(l.waiting); n > 2*stay && float64(l.length+e.length()) > fillPercent*float64(t.size) {
		t.page(at, n-stay)
		l = &t.levels[at]
	}
	l.waiting, l.length = append(l.waiting, e), l.length+e.length()
}

// page writes the first n elements that wait at a level, and adds the page to the level above.
func (t *tree) page(at, n int) {
	l := &t.levels[at]
	first := l.waiting[0].key
	id := t.write(kindOf(at), l.waiting[:n], false)
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	l.length = t.length(l.waiting)
	t.add(at+1, element{key: first, child: id})
}

func kindOf(level int) uint16 {
	if level == 0 {
		return kindLeaf
	}
	return kindBranch
}

// end writes what waits and returns the bucket's value.
func (t *tree) end() []byte {
	if len(t.levels) == 0 {
		t.levels = []level{{length: pageHeader}}
	}
	if l := &t.levels[0]; len(t.levels) == 1 && l.length <= t.size/inline {
		return append(make([]byte, 16), t.appendPage(nil, 0, kindLeaf, l.waiting, false)...)
	}
	return order.AppendUint64(order.AppendUint64(nil, t.root()), 0)
}

// root writes what waits and returns the id of the tree's root.
func (t *tree) root() uint64 {
	for at := 0; at < len(t.levels)-1; at++ {
		t.page(at, len(t.levels[at].waiting))
	}
	at := len(t.levels) - 1
	return t.write(kindOf(at), t.levels[at].waiting, false)
}

// write writes a page and returns its id.
func (b *builder) write(kind uint16, elements []element, buckets bool) uint64 {
	id := b.next
	b.page = b.appendPage(b.page[:0], id, kind, elements, buckets)
	pages := (len(b.page) + b.size - 1) / b.size
	b.page = slices.Grow(b.page, b.size)[:pages*b.size]
	clear(b.page[b.length(elements):])
	b.next += uint64(pages)
	if b.err == nil {
		_, b.err = b.out.Write(b.page)
	}
	return id
}

// appendPage appends a page, without the zeros behind its elements.
func (b *builder) appendPage(p []byte, id uint64, kind uint16, elements []element, buckets bool) []byte {
	p = order.AppendUint64(p, id)
	p = order.AppendUint16(p, kind)
	p = order.AppendUint16(p, uint16(len(elements)))
	p = order.AppendUint32(p, uint32((b.length(elements)-1)/b.size)) // pages beside the first
	flags := uint32(0)
	if buckets {
		flags = leafBucket
	}
	place := elementSize * len(elements) // of the key, counted from its element
	for _, e := range elements {
		if kind == kindBranch {
			p = order.AppendUint32(p, uint32(place))
			p = order.AppendUint32(p, uint32(len(e.key)))
			p = order.AppendUint64(p, e.child)
		} else {
			p = order.AppendUint32(p, flags)
			p = order.AppendUint32(p, uint32(place))
			p = order.AppendUint32(p, uint32(len(e.key)))
			p = order.AppendUint32(p, uint32(len(e.value)))
		}
		place += len(e.key) + len(e.value) - elementSize
	}
	for _, e := range elements {
		p = append(append(p, e.key...), e.value...)
	}
	return p
}

// length is the bytes of a page with these elements.
func (b *builder) length(elements []element) int {
	length := pageHeader
	for _, e := range elements {
		length += e.length()
	}
	return length
}

// end writes the root bucket, an empty free list and both meta pages.
func (b *builder) end() error {
	slices.SortFunc(b.buckets, func(x, y element) int { return bytes.Compare(x.key, y.key) })
	root := b.write(kindLeaf, b.buckets, true)
	free := b.write(kindFreelist, nil, false)
	if b.err == nil {
		b.err = b.out.Flush()
	}
	for id := range uint64(metaPages) {
		p := b.appendPage(nil, id, kindMeta, nil, false)
		for _, x := range []uint32{boltMagic, boltVersion, uint32(b.size), 0} {
			p = order.AppendUint32(p, x)
		}
		for _, x := range []uint64{root, 0, free, b.next, metaPages + id} { // the transaction's parity is that of the page
			p = order.AppendUint64(p, x)
		}
		sum := fnv.New64a()
		sum.Write(p[pageHeader:])
		p = order.AppendUint64(p, sum.Sum64())
		if b.err == nil {
			_, b.err = b.file.WriteAt(append(p, make([]byte, b.size-len(p))...), int64(id)*int64(b.size))
		}
	}
	return b.err
}
