// Package exact sums float64 numbers without rounding.
//
// A sum is a two's-complement fixed-point integer in units of 2^-512, wide
// enough (960 bits) that adding is associative and commutative and that
// subtracting what was added gives back the very bits of before. That is what
// makes a sum a function of the multiset of its terms, whatever the order in
// which they came and went (compare Kulisch's long accumulator; here it is
// cut to the range that block summaries need).
//
// A vector stores only the limbs that its terms have touched, one window of
// limbs for all its entries: sums of ordinary data take three or four 64-bit
// limbs each instead of fifteen. Adding a number changes two limbs, adding a
// product of two changes three, and a carry ripples now and then. The window is
// not visible from outside: the canonical encoding, and so any digest of it,
// depends on the values alone.
//
// Nothing here is safe for concurrent use.
package exact

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
)

const (
	// limbs is the full width; limb q holds the bits of weight 2^(64q+unit).
	limbs = 15
	// unit is the exponent of the lowest bit.
	unit = -512
	// MaxExponent bounds a term's magnitude: |x| < 2^MaxExponent. One limb is
	// left above it, so 2^63 terms cannot overflow.
	MaxExponent = unit + 64*(limbs-1)
	// MinExponent bounds a term's precision: x is a multiple of 2^MinExponent.
	MinExponent = unit
)

// Fits says whether x can be a term: finite, below 2^MaxExponent in magnitude
// and a multiple of 2^MinExponent. Every float64 from 2^-459 to 2^383 does.
func Fits(x float64) bool {
	_, _, _, ok := place(x)
	return ok
}

// place gives x's magnitude as lo·2^(64q+unit) + hi·2^(64(q+1)+unit).
func place(x float64) (q int, lo, hi uint64, ok bool) {
	b := math.Float64bits(x)
	exponent := int(b >> 52 & 0x7ff)
	mantissa := b & (1<<52 - 1)
	switch exponent {
	case 0:
		exponent = 1
	case 0x7ff:
		return 0, 0, 0, false
	default:
		mantissa |= 1 << 52
	}
	if mantissa == 0 {
		return 0, 0, 0, true
	}
	shift := exponent - 1075 - unit
	if shift < 0 {
		if bits.TrailingZeros64(mantissa) < -shift {
			return 0, 0, 0, false
		}
		mantissa >>= -shift
		shift = 0
	}
	if shift+bits.Len64(mantissa) > MaxExponent-unit {
		return 0, 0, 0, false
	}
	q = shift / 64
	r := uint(shift % 64)
	return q, mantissa << r, mantissa >> (64 - r), true
}

// Vector is n exact sums, all zero at first.
type Vector struct {
	n     int
	low   int      // index of the window's lowest limb
	width int      // limbs per entry; 0 while every entry is zero
	limb  []uint64 // entry i is limb[i*width:(i+1)*width], lowest limb first
}

// A Window says which limbs a Vector stores for each of its sums: Width of them, from
// Low on. The zero Window is that of sums of nothing.
type Window struct{ Low, Width int }

// WindowOf has room for sums of terms that are multiples of 2^low and below 2^high in
// magnitude, and for any rounded part of such a sum.
func WindowOf(low, high int) Window {
	const mantissa = 52 // bits below the highest of a float64
	first := max(low-mantissa-unit, 0) / 64
	return Window{first, min(max(high-1-unit, 0)/64+2, limbs) - first}
}

// Union covers both windows.
func (w Window) Union(o Window) Window {
	switch {
	case w.Width == 0:
		return o
	case o.Width == 0:
		return w
	}
	low := min(w.Low, o.Low)
	return Window{low, max(w.Low+w.Width, o.Low+o.Width) - low}
}

// Bytes is what a sum takes in the window.
func (w Window) Bytes() int { return 8 * w.Width }

// Window is that of the vector.
func (v *Vector) Window() Window { return Window{v.low, v.width} }

// NewVector returns n sums of nothing.
func NewVector(n int) *Vector { return &Vector{n: n} }

// Len is n.
func (v *Vector) Len() int { return v.n }

// Add adds x to sum i. It panics unless Fits(x). Adding −x undoes it.
func (v *Vector) Add(i int, x float64) {
	// The usual case: a normal number, with a limb to spare above it in the
	// window. (A zero is as if far below every window, and Inf and NaN are far
	// above.)
	b := math.Float64bits(x)
	shift := int(b>>52&0x7ff) - (1075 + unit + 64*v.low)
	k := shift >> 6
	if uint(k) >= uint(max(v.width-2, 0)) {
		v.addAnywhere(i, x)
		return
	}
	mantissa := b&(1<<52-1) | 1<<52
	r := uint(shift) & 63
	lo, hi := mantissa<<r, mantissa>>1>>(63-r)
	// Subtracting is adding to the complement. Signs are as good as random: a
	// branch on them would be taken wrongly half the time.
	sign := uint64(int64(b) >> 63)
	e := v.limb[i*v.width+k : (i+1)*v.width]
	l, c := bits.Add64(e[0]^sign, lo, 0)
	e[0] = l ^ sign
	l, c = bits.Add64(e[1]^sign, hi, c)
	e[1] = l ^ sign
	for k := 2; c != 0 && k < len(e); k++ {
		l, c = bits.Add64(e[k]^sign, 0, c)
		e[k] = l ^ sign
	}
}

// addAnywhere is Add for any number, and for any window.
func (v *Vector) addAnywhere(i int, x float64) {
	if x == 0 {
		return
	}
	q, lo, hi, ok := place(x)
	if !ok {
		panic(fmt.Sprintf("exact: %g does not fit", x))
	}
	// The limb above the term's highest stays free of terms, so that the
	// window's sign limb cannot overflow in fewer than 2^63 additions.
	sign := q + 1
	if hi != 0 {
		sign++
	}
	v.widen(q, sign)
	e := v.limb[i*v.width : (i+1)*v.width]
	k := q - v.low
	var c uint64
	if x > 0 {
		e[k], c = bits.Add64(e[k], lo, 0)
		e[k+1], c = bits.Add64(e[k+1], hi, c)
		for k += 2; c != 0 && k < len(e); k++ {
			e[k], c = bits.Add64(e[k], 0, c)
		}
		return
	}
	e[k], c = bits.Sub64(e[k], lo, 0)
	e[k+1], c = bits.Sub64(e[k+1], hi, c)
	for k += 2; c != 0 && k < len(e); k++ {
		e[k], c = bits.Sub64(e[k], 0, c)
	}
}

// A Factor is a float64 number as what products are made of: ±m·2^e, with an odd m or
// none.
type Factor struct {
	m    uint64
	e    int
	sign uint64 // all ones: negative
}

// FactorOf gives x, which is finite.
func FactorOf(x float64) Factor {
	b := math.Float64bits(x)
	m, e := b&(1<<52-1), int(b>>52&0x7ff)-1075
	switch {
	case m == 0 && e == -1075:
		return Factor{}
	case e == -1075:
		e++
	default:
		m |= 1 << 52
	}
	zeros := bits.TrailingZeros64(m)
	return Factor{m >> zeros, e + zeros, uint64(int64(b) >> 63)}
}

// AddProducts adds a·b[k], not rounded, to sum i+k, for each k. It panics when a
// product is no multiple of 2^MinExponent, or its magnitude not below 2^MaxExponent.
func (v *Vector) AddProducts(i int, a Factor, b []Factor) {
	if a.m == 0 {
		return
	}
	base, near := a.e-(unit+64*v.low), uint(max(v.width-3, 0))
	for k := range b {
		x := &b[k]
		hi, lo := bits.Mul64(a.m, x.m) // of up to 106 bits
		shift := base + x.e
		q, r := shift>>6, uint(shift)&63
		l0, l1, l2 := lo<<r, hi<<r|lo>>1>>(63-r), hi>>1>>(63-r)
		if uint(q) >= near {
			// The limbs above may reach the sign limb.
			if x.m == 0 {
				continue
			}
			if top := v.width - 2 - q; q < 0 || top < 0 || top < 1 && l1|l2 != 0 || top < 2 && l2 != 0 {
				v.cover(a.e+x.e-unit, hi, lo)
				base, near = a.e-(unit+64*v.low), uint(max(v.width-3, 0))
				q = (base + x.e) >> 6
			}
		}
		sign := a.sign ^ x.sign
		e := v.limb[(i+k)*v.width+q : (i+k+1)*v.width]
		l, c := bits.Add64(e[0]^sign, l0, 0)
		e[0] = l ^ sign
		l, c = bits.Add64(e[1]^sign, l1, c)
		e[1] = l ^ sign
		if len(e) == 2 {
			continue
		}
		l, c = bits.Add64(e[2]^sign, l2, c)
		e[2] = l ^ sign
		for k := 3; c != 0 && k < len(e); k++ {
			l, c = bits.Add64(e[k]^sign, 0, c)
			e[k] = l ^ sign
		}
	}
}

// cover widens the window for a product whose lowest bit is bit first of a sum.
func (v *Vector) cover(first int, hi, lo uint64) {
	length := bits.Len64(lo)
	if hi != 0 {
		length = 64 + bits.Len64(hi)
	}
	if first < 0 || first+length > MaxExponent-unit {
		panic("exact: a product does not fit")
	}
	v.widen(first/64, (first+length-1)/64+1)
}

// Clear makes every sum zero.
func (v *Vector) Clear() { clear(v.limb) }

// AddVector adds to each sum that of w, which has as many.
func (v *Vector) AddVector(w *Vector) { v.addVector(w, 0) }

// SubVector subtracts from each sum that of w, which has as many.
func (v *Vector) SubVector(w *Vector) { v.addVector(w, math.MaxUint64) }

// addVector adds w, or with a mask of ones its complement and one.
func (v *Vector) addVector(w *Vector, mask uint64) {
	if v.n != w.n {
		panic(fmt.Sprintf("exact: %d sums for %d", w.n, v.n))
	}
	if w.width == 0 {
		return
	}
	// The window's highest limb is above those of all terms of either.
	v.widen(w.low, w.low+w.width-1)
	for i := range v.n {
		to, from := v.limb[i*v.width+w.low-v.low:(i+1)*v.width], w.limb[i*w.width:(i+1)*w.width]
		c := mask & 1
		for k, l := range from {
			to[k], c = bits.Add64(to[k], l^mask, c)
		}
		sign := uint64(int64(from[len(from)-1])>>63) ^ mask
		for k := len(from); k < len(to); k++ {
			to[k], c = bits.Add64(to[k], sign, c)
		}
	}
}

// widen makes the window cover limbs low to high.
func (v *Vector) widen(low, high int) {
	if v.width != 0 {
		if v.low <= low && high < v.low+v.width {
			return
		}
		low = min(low, v.low)
		high = max(high, v.low+v.width-1)
	}
	width := high - low + 1
	wide := make([]uint64, v.n*width)
	if v.width != 0 {
		for i := range v.n {
			from, to := v.limb[i*v.width:(i+1)*v.width], wide[i*width:(i+1)*width]
			k := v.low - low + copy(to[v.low-low:], from)
			for sign := uint64(int64(from[v.width-1]) >> 63); k < width; k++ {
				to[k] = sign
			}
		}
	}
	v.low, v.width, v.limb = low, width, wide
}

// IsZero says whether every sum is zero.
func (v *Vector) IsZero() bool {
	for _, l := range v.limb {
		if l != 0 {
			return false
		}
	}
	return true
}

// Split gives sum i as an unevaluated sum of two float64 numbers: hi is the
// sum rounded to nearest, ties to even, and lo what is left, rounded likewise.
func (v *Vector) Split(i int) (hi, lo float64) {
	if v.width == 0 {
		return 0, 0
	}
	var one [limbs]uint64
	rest := Vector{n: 1, low: v.low, width: v.width, limb: one[:v.width]}
	copy(rest.limb, v.limb[i*v.width:])
	hi = rest.round()
	switch {
	case hi == 0:
	case Fits(hi):
		rest.Add(0, -hi)
		lo = rest.round()
	default: // the sum is larger than any of its terms: a limb lower hi is one
		rest.low--
		rest.Add(0, -math.Ldexp(hi, -64))
		lo = math.Ldexp(rest.round(), 64)
	}
	return hi, lo
}

// Below says whether the magnitude of every sum, rounded to a float64, is below
// 2^exponent.
func (v *Vector) Below(exponent int) bool {
	if unit+64*(v.low+v.width)-1 < exponent {
		return true // none can reach that
	}
	bound := math.Ldexp(1, exponent)
	for i := range v.n {
		if hi, _ := v.Split(i); math.Abs(hi) >= bound {
			return false
		}
	}
	return true
}

// round gives sum 0 to nearest, ties to even. (A sum's magnitude is below
// 2^448 and at least 2^-512 unless it is zero: the result is a normal float64.)
func (v *Vector) round() float64 {
	var magnitude [limbs + 1]uint64 // Split may need one more than there are
	e := v.limb[:v.width]
	negative := int64(e[len(e)-1]) < 0
	var borrow uint64
	top := -1
	for k, l := range e {
		if negative {
			l, borrow = bits.Sub64(0, l, borrow)
		}
		if magnitude[k] = l; l != 0 {
			top = k
		}
	}
	if top < 0 {
		return 0
	}
	// The highest 64 bits, normalised, with everything below them gathered in
	// the last bit: rounding that to 53 bits is rounding the whole.
	shift := uint(bits.LeadingZeros64(magnitude[top]))
	head := magnitude[top] << shift
	var sticky uint64
	if top > 0 {
		head |= magnitude[top-1] >> (64 - shift)
		sticky = magnitude[top-1] << shift
		for _, l := range magnitude[:top-1] {
			sticky |= l
		}
	}
	if sticky != 0 {
		head |= 1
	}
	x := math.Ldexp(float64(head), unit+64*(v.low+top)-int(shift))
	if negative {
		return -x
	}
	return x
}

// AppendBinary appends the canonical encoding of the n sums: for each sum the
// number of limbs (one byte), the index of the lowest (one byte), and the
// limbs, lowest first, 8 bytes each, little endian. A sum is trimmed: neither
// is its lowest limb zero, nor its highest a mere copy of the sign below it.
// Zero is two zero bytes.
func (v *Vector) AppendBinary(b []byte) []byte {
	for i := range v.n {
		e := v.limb[i*v.width : (i+1)*v.width]
		low := v.low
		for len(e) > 0 && e[0] == 0 {
			e, low = e[1:], low+1
		}
		for len(e) > 1 && e[len(e)-1] == uint64(int64(e[len(e)-2])>>63) {
			e = e[:len(e)-1]
		}
		if len(e) == 0 {
			low = 0
		}
		b = append(b, byte(len(e)), byte(low))
		for _, l := range e {
			b = binary.LittleEndian.AppendUint64(b, l)
		}
	}
	return b
}

// ErrEncoding is returned for bytes that AppendBinary did not write.
var ErrEncoding = errors.New("exact: not the canonical encoding of exact sums")

// DecodeVector reads n sums from the front of b and returns what follows them.
// It accepts what AppendBinary writes and nothing else.
func DecodeVector(b []byte, n int) (v *Vector, rest []byte, err error) {
	if n < 0 || n > len(b)/2 {
		return nil, nil, ErrEncoding
	}
	v = NewVector(n)
	// Twice over the bytes: first to check them and find the window.
	low, high := limbs, -1
	rest = b
	for range n {
		if len(rest) < 2 {
			return nil, nil, ErrEncoding
		}
		k, at := int(rest[0]), int(rest[1])
		rest = rest[2:]
		if k == 0 && at != 0 || at+k > limbs || len(rest) < 8*k {
			return nil, nil, ErrEncoding
		}
		if k == 0 {
			continue
		}
		highest := binary.LittleEndian.Uint64(rest[8*k-8:])
		if binary.LittleEndian.Uint64(rest) == 0 ||
			k > 1 && highest == uint64(int64(binary.LittleEndian.Uint64(rest[8*k-16:]))>>63) {
			return nil, nil, ErrEncoding
		}
		low, high = min(low, at), max(high, at+k-1)
		rest = rest[8*k:]
	}
	if high < 0 {
		return v, rest, nil
	}
	// One limb above, for the sign of sums to come; the full width has it.
	v.widen(low, min(high+1, limbs-1))
	for i := range n {
		k, at := int(b[0]), int(b[1])
		b = b[2:]
		e := v.limb[i*v.width : (i+1)*v.width]
		for j := range k {
			e[at-low+j] = binary.LittleEndian.Uint64(b[8*j:])
		}
		if k > 0 && int64(e[at-low+k-1]) < 0 {
			for j := at - low + k; j < v.width; j++ {
				e[j] = math.MaxUint64
			}
		}
		b = b[8*k:]
	}
	return v, rest, nil
}
