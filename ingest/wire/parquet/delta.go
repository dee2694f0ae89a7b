package parquet

import "errors"

// deltas reads DELTA_BINARY_PACKED: a first number and differences, in blocks of miniblocks that
// have a width of bits each.
type deltas struct {
	b      []byte
	minis  int // miniblocks of a block
	inMini int // numbers of a miniblock
	left   int // numbers

	value   int64
	isFirst bool
	least   int64  // of the block's differences
	widths  []byte // of the block's further miniblocks
	width   int
	body    []byte // of the miniblock
	bit     int
	unread  int // numbers of the miniblock
}

var errDeltas = errors.New("a page of differences is malformed")

func newDeltas(b []byte) (*deltas, error) {
	t := thrift{b: b} // has the same variable-length numbers
	block, minis, left := t.varint(), t.varint(), t.varint()
	first := t.integer()
	const mostBlock, mostLeft = 1 << 24, 1<<31 - 1
	if t.bad || minis == 0 || block > mostBlock || block%minis != 0 || block/minis%8 != 0 || block == 0 || left > mostLeft {
		return nil, errDeltas
	}
	return &deltas{b: b[t.at:], minis: int(minis), inMini: int(block / minis), left: int(left), value: first, isFirst: true}, nil
}

// read reads the next numbers. They are fewer at the end.
func (d *deltas) read(dst []int64) (n int, err error) {
	for n < len(dst) && d.left > 0 {
		if d.isFirst {
			d.isFirst = false
			dst[n] = d.value
			d.left--
			n++
			continue
		}
		if d.unread == 0 {
			if err := d.next(); err != nil {
				return n, err
			}
		}
		k := min(d.unread, len(dst)-n, d.left)
		if d.bit+k*d.width > 8*len(d.body) {
			return n, errDeltas
		}
		for i := range dst[n : n+k] {
			d.value += d.least + int64(d.number())
			dst[n+i] = d.value
		}
		d.unread -= k
		d.left -= k
		n += k
	}
	return n, nil
}

// number reads a packed number.
func (d *deltas) number() uint64 {
	x := bitsAt(d.body, d.bit)
	if over := d.bit&7 + d.width - 64; over > 0 {
		x |= uint64(d.body[d.bit>>3+8]) << (d.width - over)
	}
	d.bit += d.width
	return x & (1<<d.width - 1)
}

// next begins another miniblock.
func (d *deltas) next() error {
	if len(d.widths) == 0 {
		t := thrift{b: d.b}
		d.least = t.integer()
		if t.bad || len(d.b)-t.at < d.minis {
			return errDeltas
		}
		d.widths, d.b = d.b[t.at:t.at+d.minis], d.b[t.at+d.minis:]
	}
	d.width, d.widths = int(d.widths[0]), d.widths[1:]
	if d.width > 64 {
		return errDeltas
	}
	size := min(d.inMini/8*d.width, len(d.b)) // the last one may be cut
	d.body, d.b = d.b[:size], d.b[size:]
	d.bit, d.unread = 0, d.inMini
	return nil
}

// behind reads deltas to their end, and returns them anew and what is behind them.
func behind(b []byte) (*deltas, []byte, error) {
	d, err := newDeltas(b)
	if err != nil {
		return nil, nil, err
	}
	var scratch [256]int64
	for d.left > 0 {
		if _, err := d.read(scratch[:]); err != nil {
			return nil, nil, err
		}
	}
	again, err := newDeltas(b)
	return again, d.b, err
}

// deltaInts reads integers of DELTA_BINARY_PACKED.
type deltaInts[T int32 | int64] struct {
	*deltas
	scratch [256]int64
}

func (d *deltaInts[T]) read(dst []T) (n int, err error) {
	for n < len(dst) {
		k, err := d.deltas.read(d.scratch[:min(len(d.scratch), len(dst)-n)])
		if k == 0 || err != nil {
			return n, err
		}
		for i, x := range d.scratch[:k] {
			dst[n+i] = T(x)
		}
		n += k
	}
	return n, nil
}

// deltaBytes reads byte arrays of DELTA_LENGTH_BYTE_ARRAY and of DELTA_BYTE_ARRAY, whose
// values begin with so many bytes of the one before.
type deltaBytes struct {
	prefixes *deltas // nil: no value has one
	lengths  *deltas
	b        []byte
	last     []byte
	arena    []byte // of the values that were read at last
	fixed    int    // the length that each value must have; 0: any
}

func newDeltaBytes(b []byte, withPrefixes bool, fixed int) (d *deltaBytes, err error) {
	d = &deltaBytes{b: b, fixed: fixed}
	if withPrefixes {
		if d.prefixes, d.b, err = behind(d.b); err != nil {
			return nil, err
		}
	}
	d.lengths, d.b, err = behind(d.b)
	return d, err
}

func (d *deltaBytes) read(dst [][]byte) (n int, err error) {
	var prefix, length [1]int64
	d.arena = append(d.arena[:0:cap(d.arena)], d.last...)
	last := d.arena // stays valid where the arena grows
	for n < len(dst) {
		if d.prefixes != nil {
			if k, err := d.prefixes.read(prefix[:]); k == 0 || err != nil {
				return n, err
			}
		}
		if k, err := d.lengths.read(length[:]); k == 0 || err != nil {
			return n, err
		}
		p, l := prefix[0], length[0]
		if l < 0 || l > int64(len(d.b)) || p < 0 || p > int64(len(last)) || d.fixed > 0 && p+l != int64(d.fixed) {
			return n, errDeltas
		}
		value := d.b[:l:l]
		if d.prefixes != nil && p > 0 {
			start := len(d.arena)
			d.arena = append(append(d.arena, last[:p]...), d.b[:l]...)
			value = d.arena[start:len(d.arena):len(d.arena)]
		}
		d.b = d.b[l:]
		last = value
		dst[n] = value
		n++
		if len(d.arena) > pieceBytes {
			break
		}
	}
	d.last = append([]byte(nil), last...)
	return n, nil
}

// pieceBytes is about the most that values take beside the page that they are in. One
// value may take more.
const pieceBytes = 1 << 19

// split reads BYTE_STREAM_SPLIT: the first bytes of all values, then their second bytes, and so on.
type split[T any] struct {
	b       []byte
	size    int
	at, n   int // values
	plain   func(dst []T, b []byte)
	scratch []byte
}

func (s *split[T]) read(dst []T) (int, error) {
	dst = dst[:min(len(dst), s.n-s.at, max(1, pieceBytes/s.size))]
	need := len(dst) * s.size
	if cap(s.scratch) < need {
		s.scratch = make([]byte, need)
	}
	out := s.scratch[:need]
	for k := range s.size {
		for i, x := range s.b[k*s.n+s.at:][:len(dst)] {
			out[i*s.size+k] = x
		}
	}
	s.plain(dst, out)
	s.at += len(dst)
	return len(dst), nil
}
