package kafka

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the CRC-32C by which both record batches and fingerprints go.
func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

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
