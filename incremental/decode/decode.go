// Package decode reads canonical encodings from bytes that may come from
// anywhere.
package decode

import (
	"encoding/binary"
	"math"
)

// A Reader reads an encoding from the front; all numbers are little endian. It
// never reads beyond the bytes, and after a fault all it gives is zero: callers
// look at Bad once, at the end, and at Rest, which should be empty then. They may
// set Bad themselves.
type Reader struct {
	Rest []byte
	Bad  bool
}

func (r *Reader) fail() { r.Bad, r.Rest = true, nil }

// Take is the next n bytes, not to be written to; after a fault they are zero,
// and made: do not ask for as many as the bytes themselves say.
func (r *Reader) Take(n int) []byte {
	if r.Bad || n > len(r.Rest) {
		r.fail()
		return make([]byte, n)
	}
	b := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return b
}

// Uvarint is a varint, which must not be longer than it need be.
func (r *Reader) Uvarint() uint64 {
	x, k := binary.Uvarint(r.Rest)
	if r.Bad || k <= 0 || k > 1 && r.Rest[k-1] == 0 {
		r.fail()
		return 0
	}
	r.Rest = r.Rest[k:]
	return x
}

// Count is a varint that says how many things follow, of size bytes each or
// more, and is a fault when there is no room for them: it may be allocated for.
func (r *Reader) Count(size int) int {
	x := r.Uvarint()
	if x > uint64(len(r.Rest)/size) {
		r.fail()
		return 0
	}
	return int(x)
}

// Text is a Count of bytes, and the bytes.
func (r *Reader) Text() string { return string(r.Take(r.Count(1))) }

// Floats are n numbers of float64, or nil when there are fewer.
func (r *Reader) Floats(n int) []float64 {
	if r.Bad || n > len(r.Rest)/8 {
		r.fail()
		return nil
	}
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = math.Float64frombits(binary.LittleEndian.Uint64(r.Rest[8*i:]))
	}
	r.Rest = r.Rest[8*n:]
	return xs
}
