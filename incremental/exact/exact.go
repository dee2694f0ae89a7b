// Package exact sums float64 numbers without rounding.
//
// A sum is a two's-complement fixed-point integer in units of 2^-512. Its 960 bits make
// addition associative and commutative, and subtraction its exact inverse. So a sum is
// a function of the multiset of its terms, in whatever order they were added and
// removed. It is Kulisch's long accumulator, cut to the range of block summaries.
//
// A Vector stores one window of limbs for all its sums: the limbs that its terms have
// touched. Sums of ordinary data take three or four 64-bit limbs each instead of
// fifteen. Adding a number changes two limbs and adding a product of two numbers
// changes three, besides occasional carries. The window does not show in results: the
// canonical encoding, and any digest of it, depends on the values alone.
//
// Vectors are not safe for concurrent use.
package exact

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
)

const (
	// limbs is the full width. Limb q holds the bits of weight 2^(64q+unit) and above.
	limbs = 15
	// unit is the exponent of the lowest bit.
	unit = -512
	// MaxExponent bounds a term's magnitude: |x| < 2^MaxExponent. One limb above
	// it keeps 2^63 terms from overflowing.
	MaxExponent = unit + 64*(limbs-1)
	// MinExponent bounds a term's precision: x is a multiple of 2^MinExponent.
	MinExponent = unit
)

// Fits reports whether x can be a term: finite, below 2^MaxExponent in magnitude
// and a multiple of 2^MinExponent. Every float64 from 2^-459 to 2^383 fits.
func Fits(x float64) bool {
	_, _, _, ok := place(x)
	return ok
}

// place returns |x| as lo·2^(64q+unit) + hi·2^(64(q+1)+unit).
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

// Vector holds n exact sums, initially zero.
type Vector struct {
	n     int
	low   int      // index of the window's lowest limb
	width int      // limbs per entry; 0 while every entry is zero
	limb  []uint64 // entry i is limb[i*width:(i+1)*width], lowest limb first
}

// A Window is the range of limbs that a Vector stores for each of its sums: Width limbs
// from Low on. The zero Window is that of zeros.
type Window struct{ Low, Width int }

// WindowOf returns a window with room for sums of terms that are multiples of 2^low and
// below 2^high in magnitude, and for any rounded part of such a sum.
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

// Bytes is the size of one sum.
func (w Window) Bytes() int { return 8 * w.Width }

// Window is the vector's window.
func (v *Vector) Window() Window { return Window{v.low, v.width} }

// NewVector returns n zeros.
func NewVector(n int) *Vector { return &Vector{n: n} }

// Len is n.
func (v *Vector) Len() int { return v.n }

// Add adds x to sum i. It panics unless Fits(x). Adding −x undoes it.
func (v *Vector) Add(i int, x float64) {
	// The usual case is a normal number with a limb to spare above it in the window.
	// (By its exponent a zero is far below every window, and Inf and NaN are far above.)
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
	// To subtract, add to the complement. A branch would be mispredicted half of the
	// time, because signs are as good as random.
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
	// No term touches the limb above the term's highest limb. So the window's sign limb
	// cannot overflow in fewer than 2^63 additions.
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

// A Factor is a float64 number prepared for products: ±m·2^e with m odd or 0.
type Factor struct {
	m    uint64
	e    int
	sign uint64 // all ones: negative
}

// FactorOf returns the factor of a finite x.
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

// AddProducts adds a·b[k], without rounding, to sum i+k, for each k. It panics unless
// every product is a multiple of 2^MinExponent and below 2^MaxExponent in magnitude.
func (v *Vector) AddProducts(i int, a Factor, b []Factor) {
	if a.m == 0 {
		return
	}
	base, near := a.e-(unit+64*v.low), uint(max(v.width-3, 0))
	for k := range b {
		x := &b[k]
		hi, lo := bits.Mul64(a.m, x.m) // up to 106 bits
		shift := base + x.e
		q, r := shift>>6, uint(shift)&63
		l0, l1, l2 := lo<<r, hi<<r|lo>>1>>(63-r), hi>>1>>(63-r)
		if uint(q) >= near {
			// The product may reach the sign limb.
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

// AddInteger adds (hi·2^64 + lo)·2^exponent, of a signed integer of 128 bits, to sum i, and reports
// true. If the window would have to grow for it, it adds nothing and reports false: add the terms
// of the integer one by one.
func (v *Vector) AddInteger(i int, hi, lo uint64, exponent int) bool {
	sign := uint64(int64(hi) >> 63)
	lo, borrow := bits.Sub64(lo^sign, sign, 0)
	hi, _ = bits.Sub64(hi^sign, sign, borrow)
	shift := exponent - (unit + 64*v.low)
	if shift < 0 { // the integer may have zeros at its end
		if shift <= -64 || lo&(1<<-shift-1) != 0 {
			return hi|lo == 0
		}
		lo, hi, shift = lo>>-shift|hi<<(64+shift), hi>>-shift, 0
	}
	q, r := shift>>6, uint(shift)&63
	l0, l1, l2 := lo<<r, hi<<r|lo>>1>>(63-r), hi>>1>>(63-r)
	if uint(q) >= uint(max(v.width-3, 0)) {
		// The sign limb, and those above it, are no place for a term.
		if top := v.width - 2 - q; top < 2 && l2 != 0 || top < 1 && l1 != 0 || top < 0 {
			return l0|l1|l2 == 0
		}
	}
	e := v.limb[i*v.width+q : (i+1)*v.width]
	l, c := bits.Add64(e[0]^sign, l0, 0)
	e[0] = l ^ sign
	l, c = bits.Add64(e[1]^sign, l1, c)
	e[1] = l ^ sign
	if len(e) == 2 {
		return true
	}
	l, c = bits.Add64(e[2]^sign, l2, c)
	e[2] = l ^ sign
	for k := 3; c != 0 && k < len(e); k++ {
		l, c = bits.Add64(e[k]^sign, 0, c)
		e[k] = l ^ sign
	}
	return true
}

// cover widens the window for a product whose lowest bit is bit number first of a sum.
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

// AddVector adds the sums of w, which must be of the same length.
func (v *Vector) AddVector(w *Vector) { v.addVector(w, 0) }

// SubVector subtracts the sums of w, which must be of the same length.
func (v *Vector) SubVector(w *Vector) { v.addVector(w, math.MaxUint64) }

// addVector adds w, or subtracts it when mask is all ones.
func (v *Vector) addVector(w *Vector, mask uint64) {
	if v.n != w.n {
		panic(fmt.Sprintf("exact: %d sums for %d", w.n, v.n))
	}
	if w.width == 0 {
		return
	}
	// The highest limb of either window is free of terms.
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

// AddMultiple adds m·2^shift times each sum of w, without rounding. w has the same length, and m
// is below 2^63. It panics unless every product is a multiple of 2^MinExponent and below
// 2^MaxExponent in magnitude.
func (v *Vector) AddMultiple(w *Vector, m uint64, shift int) {
	if v.n != w.n {
		panic(fmt.Sprintf("exact: %d sums for %d", w.n, v.n))
	}
	first, last := w.span()
	if m == 0 || last < 0 {
		return
	}
	first, last = first+shift, last+shift+bits.Len64(m)
	if first < 0 || last > MaxExponent-unit {
		panic("exact: a multiple does not fit")
	}
	v.widen(first/64, (last-1)/64+1)
	// A product has one limb more than a sum, and one more when it is shifted by r bits. Limbs
	// below v's window are zero, and those above it are copies of the sign.
	from, r := w.low-v.low+shift>>6, uint(shift)&63
	var memory [limbs + 2]uint64
	product := memory[:w.width+2]
	for i := range v.n {
		e := w.limb[i*w.width : (i+1)*w.width]
		var carry uint64
		for k, l := range e {
			hi, lo := bits.Mul64(l, m)
			var c uint64
			product[k], c = bits.Add64(lo, carry, 0)
			carry = hi + c
		}
		if int64(e[len(e)-1]) < 0 {
			carry -= m // the limbs stand for 2^(64·width) more than the sum
		}
		sign := uint64(int64(carry) >> 63)
		product[w.width], product[w.width+1] = carry, sign
		if r > 0 {
			for k := len(product) - 1; k > 0; k-- {
				product[k] = product[k]<<r | product[k-1]>>(64-r)
			}
			product[0] <<= r
		}
		to := v.limb[i*v.width : (i+1)*v.width]
		var c uint64
		for k := max(from, 0); k < len(to); k++ {
			l := sign
			if k-from < len(product) {
				l = product[k-from]
			}
			to[k], c = bits.Add64(to[k], l, c)
		}
	}
}

// span returns the number of the lowest bit that is set in any sum, and one above that of the
// highest which differs from its sign. If all sums are zero, last is negative.
func (v *Vector) span() (first, last int) {
	first, last = 64*limbs, -1
	for i := range v.n {
		e := v.limb[i*v.width : (i+1)*v.width]
		low := 0
		for low < len(e) && e[low] == 0 {
			low++
		}
		if low == len(e) {
			continue
		}
		first = min(first, 64*(v.low+low)+bits.TrailingZeros64(e[low]))
		sign, high := uint64(int64(e[len(e)-1])>>63), len(e)-1
		for high > low && e[high] == sign {
			high--
		}
		last = max(last, 64*(v.low+high)+bits.Len64(e[high]^sign))
	}
	return first, last
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

// IsZero reports whether every sum is zero.
func (v *Vector) IsZero() bool {
	for _, l := range v.limb {
		if l != 0 {
			return false
		}
	}
	return true
}

// Split returns sum i as an unevaluated sum of two float64 numbers: hi is the sum
// rounded to nearest, ties to even, and lo is the rest, rounded likewise.
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
	default: // the sum is too large to be a term: work on it one limb lower
		rest.low--
		rest.Add(0, -math.Ldexp(hi, -64))
		lo = math.Ldexp(rest.round(), 64)
	}
	return hi, lo
}

// Below reports whether the magnitude of every sum, rounded to a float64, is below
// 2^exponent.
func (v *Vector) Below(exponent int) bool {
	if unit+64*(v.low+v.width)-1 < exponent {
		return true // the window cannot hold that much
	}
	bound := math.Ldexp(1, exponent)
	for i := range v.n {
		if hi, _ := v.Split(i); math.Abs(hi) >= bound {
			return false
		}
	}
	return true
}

// round returns sum 0 rounded to nearest, ties to even. (A sum is zero or its magnitude
// lies between 2^-512 and 2^448, so the result is a normal float64.)
func (v *Vector) round() float64 {
	var magnitude [limbs + 1]uint64 // Split may work one limb lower
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
	// head is the highest 64 bits. Its last bit also stands for all bits below, so that
	// rounding head to 53 bits rounds the whole sum.
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
// limbs, lowest first, 8 bytes each, little endian. A sum is trimmed: its lowest limb
// is not zero, and its highest limb is not just the sign of the one below. Zero is two
// zero bytes.
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

// ErrEncoding reports bytes that AppendBinary did not write.
var ErrEncoding = errors.New("exact: not the canonical encoding of exact sums")

// DecodeVector reads n sums from the front of b and returns the rest of b. It fails with
// ErrEncoding on everything that AppendBinary does not write.
func DecodeVector(b []byte, n int) (v *Vector, rest []byte, err error) {
	if n < 0 || n > len(b)/2 {
		return nil, nil, ErrEncoding
	}
	v = NewVector(n)
	// A first pass over the bytes checks them and finds the window.
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
	// Add a limb for the sign, unless the window has the full width.
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
