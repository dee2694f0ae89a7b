package parquet

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
)

// Reader reads a column.
type Reader[T Value] struct {
	file  *File
	leaf  *Leaf
	index int

	chunk      chunk
	in         *bufio.Reader
	at         int64 // the position in the file
	left       int64 // values of the chunk, with nulls, that are in further pages
	dictionary dictionary[T]
	body       []byte // of the page

	inPage                   int // levels of the page that have not been read
	repetitions, definitions levels
	values                   decoder[T]
}

// NewReader returns a reader of leaf i. T must be the type that goes with the leaf's.
func NewReader[T Value](f *File, i int) *Reader[T] {
	return &Reader[T]{file: f, leaf: &f.Leaves[i], index: i}
}

// Begin goes to the beginning of a row group.
func (r *Reader[T]) Begin(group int) error {
	r.chunk = r.file.groups[group].chunks[r.index]
	r.at, r.left, r.inPage, r.dictionary, r.values = r.chunk.from, r.chunk.values, 0, nil, nil
	if r.left == 0 {
		return nil // and there may be no page
	}
	switch {
	case r.chunk.fault != nil:
		return r.chunk.fault
	case r.chunk.typ != r.leaf.Type:
		return errors.New("a column chunk has another type than the schema")
	case r.at >= r.file.size:
		return errors.New("a column chunk begins behind the end of the file")
	}
	r.open(smallHead)
	return nil
}

// smallHead is the most bytes of most pages' heads. Statistics in them may be longer.
const smallHead, longestHead = 16 << 10, 16 << 20

// open reads on at the position, with room for a head of so many bytes.
func (r *Reader[T]) open(head int) {
	section := io.NewSectionReader(r.file.in, r.at, r.file.size-r.at)
	if r.in != nil && r.in.Size() == head {
		r.in.Reset(section)
	} else {
		r.in = bufio.NewReaderSize(section, head)
	}
}

// Levels reads the levels of the next values, of one page: no more than the slices have. Where all
// are 0 by the schema, they are not written. present is how many of the values are there, and
// not null. n is 0 at the end of the row group. It makes what Values returned invalid.
func (r *Reader[T]) Levels(definitions, repetitions []int16) (n, present int, err error) {
	for r.inPage == 0 {
		if r.left == 0 {
			return 0, 0, nil
		}
		if err := r.page(); err != nil {
			return 0, 0, err
		}
	}
	n = min(r.inPage, len(definitions), len(repetitions))
	present = n
	if r.leaf.Repetitions > 0 {
		if err := r.repetitions.read(repetitions[:n]); err != nil {
			return 0, 0, err
		}
	}
	if most := r.leaf.Definitions; most > 0 {
		if err := r.definitions.read(definitions[:n]); err != nil {
			return 0, 0, err
		}
		present = 0
		for _, d := range definitions[:n] {
			if d == most {
				present++
			}
		}
	}
	r.inPage -= n
	return n, present, nil
}

// Values reads values that are present by the levels, at least one. Byte arrays are valid
// until the next call.
func (r *Reader[T]) Values(dst []T) (int, error) {
	n, err := r.values.read(dst)
	if err == nil && n == 0 {
		err = errors.New("a page has fewer values than its levels say")
	}
	return n, err
}

// pageHead is PageHeader.
type pageHead struct {
	typ                            int
	uncompressed, compressed       int
	sum                            int
	hasSum                         bool
	values                         int // with nulls
	encoding                       int
	definitionsBytes, repetitions  int // bytes, in the second version
	definitionsCode, repetitionsBy int // encodings, in the first one
	isCompressed                   bool
}

// The types of pages.
const (
	pageV1 = iota
	pageIndex
	pageDictionary
	pageV2
)

// readPageHead reads PageHeader.
func readPageHead(t *thrift) pageHead {
	h := pageHead{typ: -1, uncompressed: -1, compressed: -1, values: -1, encoding: -1, isCompressed: true}
	t.fields(func(id, typ int) {
		switch id {
		case 1:
			h.typ = t.i32(typ)
		case 2:
			h.uncompressed = t.i32(typ)
		case 3:
			h.compressed = t.i32(typ)
		case 4:
			h.sum, h.hasSum = t.i32(typ), true
		case 5, 7: // DataPageHeader and DictionaryPageHeader
			t.structure(typ, func(inner, typ int) {
				switch {
				case inner == 1:
					h.values = t.i32(typ)
				case inner == 2:
					h.encoding = t.i32(typ)
				case inner == 3 && id == 5:
					h.definitionsCode = t.i32(typ)
				case inner == 4 && id == 5:
					h.repetitionsBy = t.i32(typ)
				default:
					t.skip(typ)
				}
			})
		case 8: // DataPageHeaderV2
			t.structure(typ, func(inner, typ int) {
				switch inner {
				case 1:
					h.values = t.i32(typ)
				case 4:
					h.encoding = t.i32(typ)
				case 5:
					h.definitionsBytes = t.i32(typ)
				case 6:
					h.repetitions = t.i32(typ)
				case 7:
					h.isCompressed = t.boolean(typ)
				default:
					t.skip(typ)
				}
			})
		default:
			t.skip(typ)
		}
	})
	return h
}

// head reads the next page's head.
func (r *Reader[T]) head() (h pageHead, err error) {
	for {
		b, err := r.in.Peek(r.in.Size())
		if err != nil && err != io.EOF {
			return h, err
		}
		t := thrift{b: b}
		if h = readPageHead(&t); !t.bad {
			r.at += int64(t.at)
			_, err := r.in.Discard(t.at)
			return h, err
		}
		if err == io.EOF || r.in.Size() >= longestHead {
			return h, errors.New("the head of a page is malformed, or it is encrypted")
		}
		r.open(32 * r.in.Size())
	}
}

// page reads the next page of values.
func (r *Reader[T]) page() error {
	for {
		h, err := r.head()
		if err != nil {
			return err
		}
		most := r.file.limits.Bytes
		switch n := max(h.compressed, h.uncompressed); {
		case h.compressed < 0 || h.uncompressed < 0:
			return errors.New("a page has no size")
		case int64(h.compressed) > r.file.size-r.at:
			return errors.New("a page is longer than the file: it is truncated")
		case h.typ == pageIndex:
		case h.values < 0 || h.encoding < 0:
			return errors.New("the head of a page does not say how many values there are, or how they are encoded")
		case n > most:
			return TooLargeError{"a page", int64(n), most}
		}
		switch h.typ {
		case pageDictionary:
			err = r.readDictionary(h)
		case pageV1, pageV2:
			if h.typ == pageV1 {
				err = r.readV1(h)
			} else {
				err = r.readV2(h)
			}
			r.inPage = h.values
			r.left = max(0, r.left-int64(h.values))
			if err != nil || h.values > 0 {
				return err
			}
		default:
			_, err = io.CopyN(io.Discard, r.in, int64(h.compressed))
			r.at += int64(h.compressed)
		}
		if err != nil {
			return err
		}
		if r.left == 0 {
			return nil
		}
	}
}

// resize returns a slice of n bytes, in the room of one that is not needed any more.
func resize(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// content reads the bytes of a page. The first plainBytes of them are never compressed.
func (r *Reader[T]) content(h pageHead, body []byte, plainBytes int, compressed bool) ([]byte, error) {
	if plainBytes < 0 || plainBytes > min(h.compressed, h.uncompressed) {
		return nil, errors.New("the levels of a page are longer than the page")
	}
	compressed = compressed && r.chunk.codec != uncompressed
	if !compressed && h.compressed != h.uncompressed {
		return nil, errors.New("a page that is not compressed has two sizes")
	}
	body = resize(body, h.uncompressed)
	raw := body
	if compressed {
		r.file.scratch = resize(r.file.scratch, h.compressed)
		raw = r.file.scratch
	}
	if _, err := io.ReadFull(r.in, raw); err != nil {
		return nil, err
	}
	r.at += int64(len(raw))
	if h.hasSum && crc32.ChecksumIEEE(raw) != uint32(h.sum) {
		return nil, errors.New("the check sum of a page is wrong: the file is damaged")
	}
	if compressed {
		copy(body, raw[:plainBytes])
		if err := decompress(r.chunk.codec, body[plainBytes:], raw[plainBytes:]); err != nil {
			return nil, err
		}
	}
	return body, nil
}

func (r *Reader[T]) readDictionary(h pageHead) error {
	if h.encoding != encodingPlain && h.encoding != encodingOldDictionary {
		return fmt.Errorf("a dictionary in encoding %d is not read", h.encoding)
	}
	body, err := r.content(h, nil, 0, true)
	if err != nil {
		return err
	}
	r.dictionary, err = r.newDictionary(h.values, body)
	return err
}

func (r *Reader[T]) readV1(h pageHead) (err error) {
	if r.body, err = r.content(h, r.body, 0, true); err != nil {
		return err
	}
	b := r.body
	if r.repetitions, b, err = levelsV1(b, r.leaf.Repetitions, h.repetitionsBy, h.values); err != nil {
		return err
	}
	if r.definitions, b, err = levelsV1(b, r.leaf.Definitions, h.definitionsCode, h.values); err != nil {
		return err
	}
	r.values, err = r.newDecoder(h.encoding, b)
	return err
}

func (r *Reader[T]) readV2(h pageHead) (err error) {
	if min(h.repetitions, h.definitionsBytes) < 0 {
		return errors.New("the levels of a page have a negative size")
	}
	n := h.repetitions + h.definitionsBytes
	if r.body, err = r.content(h, r.body, n, h.isCompressed || r.file.wrongFlags); err != nil {
		return err
	}
	b := r.body
	r.repetitions = newLevels(r.leaf.Repetitions, b[:h.repetitions])
	r.definitions = newLevels(r.leaf.Definitions, b[h.repetitions:n])
	r.values, err = r.newDecoder(h.encoding, b[n:])
	return err
}

// levels reads levels up to one.
type levels struct {
	most int16
	runs runs
	old  *oldLevels // nil: in runs
}

func newLevels(most int16, b []byte) levels {
	return levels{most: most, runs: runs{b: b, width: bits.Len16(uint16(most))}}
}

// levelsV1 returns the levels at the beginning of a page, and what is behind them.
func levelsV1(b []byte, most int16, encoding, n int) (levels, []byte, error) {
	malformed := errors.New("the levels of a page are longer than the page")
	if most == 0 {
		return levels{}, b, nil
	}
	l := newLevels(most, nil)
	switch encoding {
	case encodingRuns:
		if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
			return l, nil, malformed
		}
		size := int(binary.LittleEndian.Uint32(b))
		l.runs.b = b[4 : 4+size]
		return l, b[4+size:], nil
	case encodingBitPacked:
		size := (n*l.runs.width + 7) / 8
		if size > len(b) {
			return l, nil, malformed
		}
		l.old = &oldLevels{b: b[:size], width: l.runs.width}
		return l, b[size:], nil
	}
	return l, nil, fmt.Errorf("levels in encoding %d are not read", encoding)
}

func (l *levels) read(dst []int16) error {
	if l.old != nil {
		l.old.read(dst)
	} else if readRuns(&l.runs, dst) < len(dst) {
		return errors.New("a page has fewer levels than it says")
	}
	for _, x := range dst {
		if x < 0 || x > l.most {
			return errors.New("a level is higher than the schema's")
		}
	}
	return nil
}
