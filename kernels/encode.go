package kernels

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
)

// ErrEncoding is returned for bytes that AppendBinary has not written.
var ErrEncoding = errors.New("not the encoding of a basis")

// AppendBinary appends the map's canonical encoding: the kernel's text, n, t, 1
// where the map is scaled and 0 elsewhere, then μ and σ of a scaled one, and the
// points. Counts and the length of the text are uvarints, all other numbers
// float64, little endian.
func (m *Map) AppendBinary(b []byte) []byte {
	kernel := m.kernel.String()
	b = binary.AppendUvarint(b, uint64(len(kernel)))
	b = append(b, kernel...)
	b = binary.AppendUvarint(b, uint64(m.n))
	b = binary.AppendUvarint(b, uint64(m.t))
	if m.mean == nil {
		b = append(b, 0)
	} else {
		b = append(b, 1)
	}
	for _, numbers := range [][]float64{m.mean, m.scale, m.z} {
		for _, x := range numbers {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
	}
	return b
}

// Digest is SHA-256 over the encoding: maps of the same digest give the same
// coordinates, bit for bit.
func (m *Map) Digest() [sha256.Size]byte { return sha256.Sum256(m.AppendBinary(nil)) }

// DecodeMap reads what AppendBinary wrote, and nothing else.
func DecodeMap(b []byte) (*Map, error) {
	bad := false
	count := func(size int) int {
		x, k := binary.Uvarint(b)
		// A varint that is longer than it need be is refused.
		if k <= 0 || k != len(binary.AppendUvarint(nil, x)) || x > uint64(len(b)/size) {
			bad, b = true, nil
			return 0
		}
		b = b[k:]
		return int(min(x, uint64(len(b))))
	}
	length := count(1)
	text := string(b[:length])
	b = b[length:]
	n, t := count(8), count(8)
	if bad || len(b) == 0 || b[0] > 1 || n == 0 {
		return nil, ErrEncoding
	}
	scaled := b[0] == 1
	b = b[1:]
	points := t
	if scaled {
		points += 2
	}
	// Neither product overflows: both factors are below the bytes' number.
	if len(b)%(8*n) != 0 || len(b)/(8*n) != points {
		return nil, ErrEncoding
	}
	numbers := make([]float64, n*points)
	for i := range numbers {
		numbers[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	kernel, err := Parse(text)
	if err != nil || kernel.String() != text {
		return nil, ErrEncoding
	}
	z := numbers
	if scaled {
		z = numbers[2*n:]
	}
	m, err := NewMap(kernel, n, z)
	if err == nil && scaled {
		m, err = m.Scaled(numbers[:n], numbers[n:2*n])
	}
	if err != nil {
		return nil, ErrEncoding
	}
	return m, nil
}
