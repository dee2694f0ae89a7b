package parquet

import "encoding/binary"

// runs reads numbers of a few bits in runs of one number and in packed groups of eight
// (Encodings.md, "RLE/Bit-Packing Hybrid").
type runs struct {
	b      []byte
	width  int
	value  uint32
	same   uint64 // numbers left that are value
	packed uint64 // numbers left that are packed
	bits   int    // of b before the next packed one
}

// readRuns reads the next numbers. They are fewer at the end.
func readRuns[T int16 | uint32](r *runs, dst []T) (n int) {
	for n < len(dst) {
		switch {
		case r.same > 0:
			k := int(min(r.same, uint64(len(dst)-n)))
			for i := range dst[n : n+k] {
				dst[n+i] = T(r.value)
			}
			r.same -= uint64(k)
			n += k
		case r.packed > 0:
			k := int(min(r.packed, uint64(len(dst)-n)))
			unpack(dst[n:n+k], r.b, r.bits, r.width)
			r.bits += k * r.width
			if r.packed -= uint64(k); r.packed == 0 {
				r.b = r.b[min(len(r.b), (r.bits+7)/8):]
				r.bits = 0
			}
			n += k
		case !r.next():
			return n
		}
	}
	return n
}

// next reads the head of a run. It is false at the end, or where there is none.
func (r *runs) next() bool {
	head, n := binary.Uvarint(r.b)
	if n <= 0 {
		return false
	}
	r.b = r.b[n:]
	if head&1 == 0 {
		bytes := (r.width + 7) / 8
		if len(r.b) < bytes {
			return false
		}
		r.value = 0
		for i := range bytes {
			r.value |= uint32(r.b[i]) << (8 * i)
		}
		r.b = r.b[bytes:]
		r.same = head >> 1
		return true
	}
	r.packed = min(head>>1, 1<<40) * 8
	if r.width > 0 { // the last group may be cut
		r.packed = min(r.packed, uint64(len(r.b)*8/r.width))
	}
	return true
}

// unpack reads numbers of up to 32 bits that begin at a bit, least significant bit first.
// All are in b.
func unpack[T int16 | uint32](dst []T, b []byte, bit, width int) {
	mask := uint64(1)<<width - 1
	for i := range dst {
		dst[i] = T(bitsAt(b, bit) & mask)
		bit += width
	}
}

// bitsAt returns the bits from one on, at least 57 or up to the end.
func bitsAt(b []byte, bit int) uint64 {
	at := bit >> 3
	if at+8 <= len(b) {
		return binary.LittleEndian.Uint64(b[at:]) >> (bit & 7)
	}
	var x uint64
	for i := at; i < len(b); i++ {
		x |= uint64(b[i]) << (8 * (i - at))
	}
	return x >> (bit & 7)
}

// oldLevels reads levels of the old encoding BIT_PACKED: most significant bit first.
type oldLevels struct {
	b     []byte
	width int
	bit   int
}

func (o *oldLevels) read(dst []int16) {
	for i := range dst {
		dst[i] = 0
		for range o.width {
			dst[i] = dst[i]<<1 | int16(o.b[o.bit>>3]>>(7-o.bit&7)&1)
			o.bit++
		}
	}
}
