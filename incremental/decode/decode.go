// Package decode reads canonical encodings from untrusted bytes.
package decode

import (
	"encoding/binary"
	"math"
)

// A Reader reads an encoding from the front; all numbers are little endian. It never
// reads beyond the bytes. After a fault it sets Bad and returns zeros, so that callers
// need to check Bad, and that Rest is empty, only once at the end. Callers may set Bad
// themselves.
type Reader struct {
	Rest []byte
	Bad  bool
}

func (r *Reader) fail() { r.Bad, r.Rest = true, nil }

// Take returns the next n bytes, which must not be written to. After a fault it returns
// n new zero bytes, so n must not come from the bytes themselves unless Count checked it.
func (r *Reader) Take(n int) []byte {
	if r.Bad || n > len(r.Rest) {
		r.fail()
		return make([]byte, n)
	}
	b := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return b
}

// Uvarint reads a varint. A longer encoding than necessary is a fault.
func (r *Reader) Uvarint() uint64 {
	x, k := binary.Uvarint(r.Rest)
	if r.Bad || k <= 0 || k > 1 && r.Rest[k-1] == 0 {
		r.fail()
		return 0
	}
	r.Rest = r.Rest[k:]
	return x
}

// Count reads a varint that counts the following items of size bytes or more each. It
// is a fault when Rest is too short for them, so callers may allocate for the count.
func (r *Reader) Count(size int) int {
	x := r.Uvarint()
	if x > uint64(len(r.Rest)/size) {
		r.fail()
		return 0
	}
	return int(x)
}

// Text reads a Count of bytes, and the bytes.
func (r *Reader) Text() string { return string(r.Take(r.Count(1))) }

// Floats reads n float64 numbers. It is a fault, and the result nil, when there are
// fewer.
func (r *Reader) Floats(n int) []float64 {
	if r.Bad || n > len(r.Rest)/8 {
		r.fail()
		return nil
	}
	xs := make([]float64, n)
	r.Fill(xs)
	return xs
}

// Fill reads float64 numbers into xs. It is a fault when there are fewer.
func (r *Reader) Fill(xs []float64) {
	if r.Bad || len(xs) > len(r.Rest)/8 {
		r.fail()
		return
	}
	b := r.Rest[:8*len(xs)]
	for i := range xs {
		xs[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i : 8*i+8]))
	}
	r.Rest = r.Rest[len(b):]
}
