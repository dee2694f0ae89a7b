package kafka

import (
	"hash/crc32"
	"unsafe"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sums has the checksums of a buffer as it fills. Each byte is summed when it has
// just come and is in the processor's cache; the checksum of a long part, a record
// batch or a value in it, then is a matter of arithmetic.
type sums struct {
	buf  []byte
	upTo []uint32 // of buf[:step], buf[:2·step], …
}

const (
	step = 16 << 10
	// long is where the ends of a part, which are summed again, up to a step each,
	// cost less than all of it.
	long = 4 * step
)

// extend takes note of what has been appended to the buffer.
func (s *sums) extend(buf []byte) {
	s.buf = buf
	if s.upTo == nil {
		s.upTo = make([]uint32, 0, cap(buf)/step)
	}
	for end := (len(s.upTo) + 1) * step; end <= len(buf); end += step {
		s.upTo = append(s.upTo, s.before(end))
	}
}

// before is the checksum of buf[:end].
func (s *sums) before(end int) uint32 {
	k, crc := min(end/step, len(s.upTo)), uint32(0)
	if k > 0 {
		crc = s.upTo[k-1]
	}
	return crc32.Update(crc, castagnoli, s.buf[k*step:end])
}

// update is the checksum of something whose own is crc, followed by part. It is
// quick where that is a long part of the buffer.
func (s *sums) update(crc uint32, part []byte) uint32 {
	from := int(uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(s.buf))))
	to := from + len(part)
	if len(part) < long || from < 0 || to > len(s.buf) {
		return crc32.Update(crc, castagnoli, part)
	}
	// That of the buffer before the part, in the place of which crc is to stand,
	// is a term of that of both.
	return combine(crc^s.before(from), s.before(to), len(part))
}

// combine is the checksum of a and b, one behind the other, from those of each
// and b's length: checksum(a)·x^(8·length) + checksum(b), as polynomials over
// GF(2) modulo Castagnoli's.
func combine(a, b uint32, length int) uint32 {
	for k := 0; length > 0; k++ {
		if length&1 != 0 {
			a = times(a, shifts[k])
		}
		length >>= 1
	}
	return a ^ b
}

// shifts[k] is x^(8·2^k), for lengths below 2^31.
var shifts = func() (s [31]uint32) {
	s[0] = 1 << (31 - 8)
	for k := range s[1:] {
		s[k+1] = times(s[k], s[k])
	}
	return s
}()

// times multiplies polynomials; their highest bit is the coefficient of x^0.
func times(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return product
}
