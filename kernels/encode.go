package kernels

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"

	"streamd/incremental/decode"
)

// ErrEncoding reports bytes that AppendBinary has not written.
var ErrEncoding = errors.New("not the encoding of a basis")

// AppendBinary appends the map's canonical encoding: the kernel's text, n, t, 1 for a
// scaled map and 0 otherwise, μ and σ of a scaled map, and the points. Counts and the
// length of the text are uvarints, all other numbers float64, little endian.
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

// Digest is SHA-256 over the encoding. Maps of the same digest compute the same
// coordinates, bit for bit.
func (m *Map) Digest() [sha256.Size]byte { return sha256.Sum256(m.AppendBinary(nil)) }

// DecodeMap decodes the output of AppendBinary. It fails with ErrEncoding on everything
// else.
func DecodeMap(b []byte) (*Map, error) {
	d := decode.Reader{Rest: b}
	text := d.Text()
	n, t := d.Count(8), d.Count(8)
	scaled := d.Take(1)[0]
	if d.Bad || scaled > 1 || n == 0 {
		return nil, ErrEncoding
	}
	points := t + 2*int(scaled)
	// Neither product overflows: both factors are below the number of bytes.
	if len(d.Rest)%(8*n) != 0 || len(d.Rest)/(8*n) != points {
		return nil, ErrEncoding
	}
	numbers := d.Floats(n * points)
	kernel, err := Parse(text)
	if err != nil || kernel.String() != text {
		return nil, ErrEncoding
	}
	z := numbers
	if scaled == 1 {
		z = numbers[2*n:]
	}
	m, err := NewMap(kernel, n, z)
	if err == nil && scaled == 1 {
		m, err = m.Scaled(numbers[:n], numbers[n:2*n])
	}
	if err != nil {
		return nil, ErrEncoding
	}
	return m, nil
}
