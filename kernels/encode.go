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

// Bits of the encoding's byte on the form of the map.
const (
	formScaled    = 1
	formProjected = 2
)

// AppendBinary appends the map's canonical encoding: the kernel's text, n, t, a byte that is
// the sum of 1 for a scaled map and 2 for a projected one, S of a projected map, μ and σ of
// a scaled map, the points, and the S×t matrix of a projected map. Counts and the length of
// the text are uvarints, all other numbers float64, little endian.
func (m *Map) AppendBinary(b []byte) []byte {
	kernel := m.kernel.String()
	b = binary.AppendUvarint(b, uint64(len(kernel)))
	b = append(b, kernel...)
	b = binary.AppendUvarint(b, uint64(m.n))
	b = binary.AppendUvarint(b, uint64(m.t))
	form := byte(0)
	if m.mean != nil {
		form |= formScaled
	}
	if m.projection != nil {
		form |= formProjected
	}
	if b = append(b, form); m.projection != nil {
		b = binary.AppendUvarint(b, uint64(m.Size()))
	}
	for _, numbers := range [][]float64{m.mean, m.scale, m.z, m.projection} {
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
	form := d.Take(1)[0]
	if d.Bad || form > formScaled|formProjected || n == 0 || t == 0 {
		return nil, ErrEncoding
	}
	scaled, size, points := form&formScaled != 0, 0, t
	if scaled {
		points += 2
	}
	if form&formProjected != 0 {
		size = d.Count(8)
	}
	left := len(d.Rest) / 8
	if d.Bad || size == 0 && form&formProjected != 0 || points > left/n || size > left/t || // neither product overflows
		len(d.Rest) != 8*(n*points+size*t) {
		return nil, ErrEncoding
	}
	numbers := d.Floats(n * points)
	projection := d.Floats(size * t)
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
	if err == nil && size > 0 {
		m, err = m.Projected(projection)
	}
	if err != nil {
		return nil, ErrEncoding
	}
	return m, nil
}
