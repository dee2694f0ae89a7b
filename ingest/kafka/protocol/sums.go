package protocol

import (
	"hash/crc32"
	"unsafe"
)

// Castagnoli is the table of CRC-32C, the checksum of record batches.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sums holds checksums of a buffer, taken as it fills. Each byte is summed when it has
// just arrived and is in the processor's cache. The checksum of a long part of the buffer,
// such as a record batch or a value in it, is then computed without reading it again.
type Sums struct {
	buf  []byte
	upTo []uint32 // of buf[:step], buf[:2·step], …
}

const (
	step = 16 << 10
	// long is the length from which Update gains: it still sums up to a step at each end.
	long = 4 * step
)

// Extend sums the bytes that have been appended to the buffer.
func (s *Sums) Extend(buf []byte) {
	s.buf = buf
	if s.upTo == nil {
		s.upTo = make([]uint32, 0, cap(buf)/step)
	}
	for end := (len(s.upTo) + 1) * step; end <= len(buf); end += step {
		s.upTo = append(s.upTo, s.before(end))
	}
}

// before is the checksum of buf[:end].
func (s *Sums) before(end int) uint32 {
	k, crc := min(end/step, len(s.upTo)), uint32(0)
	if k > 0 {
		crc = s.upTo[k-1]
	}
	return crc32.Update(crc, Castagnoli, s.buf[k*step:end])
}

// Update returns crc32.Update(crc, Castagnoli, part). It is quick where part is a long
// part of the buffer.
func (s *Sums) Update(crc uint32, part []byte) uint32 {
	from := int(uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(s.buf))))
	to := from + len(part)
	if len(part) < long || from < 0 || to > len(s.buf) {
		return crc32.Update(crc, Castagnoli, part)
	}
	// Checksums are linear: replace the bytes before part by those that crc was taken of.
	return Combine(crc^s.before(from), s.before(to), len(part))
}

// Combine is the checksum of two parts in a row, where a and b are their checksums and
// length is that of the second: a·x^(8·length) + b, as polynomials over GF(2) modulo
// Castagnoli's.
func Combine(a, b uint32, length int) uint32 {
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

// times multiplies polynomials. Their highest bit is the coefficient of x^0.
func times(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return product
}
