package wire

import (
	"errors"
	"math"
	"math/bits"
	"strconv"
	"unsafe"
)

// number reads the decimal number that starts at b[i] and ends before b[end]:
// [+-] digits [. digits] [e [+-] digits], with a digit on at least one side of the
// point. The value is strconv.ParseFloat's, bit for bit, and infinite if it overflows
// float64. There is no number, and ok is false, where the bytes that numbers are made
// of spell none. Hexadecimal, "nan" and "inf" are none.
func number(b []byte, i int) (x float64, end int, ok bool) {
	first := i
	if first < len(b) && b[first] == '-' {
		first++
	}
	mantissa, end := digits(b, first, 0)
	count, scale := end-first, 0
	if end < len(b) && b[end] == '.' {
		point := end
		mantissa, end = digits(b, point+1, mantissa)
		scale = end - point - 1
		count += scale
	}
	more := end < len(b) && isNumeric(b[end])
	if !more && count > 0 && mantissa != tooLong && scale < len(powers) {
		if x = decimal(mantissa, scale); first > i {
			x = -x
		}
		return x, end, true
	}
	for end < len(b) && isNumeric(b[end]) {
		end++
	}
	if end == i {
		return 0, i, false
	}
	// The string views the text, which ParseFloat neither keeps nor changes.
	x, err := strconv.ParseFloat(unsafe.String(&b[i], end-i), 64)
	return x, end, err == nil || errors.Is(err, strconv.ErrRange)
}

// tooLong stands for digits that do not fit 64 bits.
const tooLong = math.MaxUint64

// digits appends the digits at b[i], which end before b[end], to the number n.
func digits(b []byte, i int, n uint64) (sum uint64, end int) {
	for ; i < len(b) && b[i]-'0' < 10; i++ {
		if n > tooLong/10-1 {
			n = tooLong
		} else {
			n = 10*n + uint64(b[i]-'0')
		}
	}
	return n, i
}

// powers of ten that fit 64 bits.
var powers = func() (p [20]uint64) {
	p[0] = 1
	for k := range len(p) - 1 {
		p[k+1] = 10 * p[k]
	}
	return p
}()

// decimal is the float64 nearest to m/10^k. With both numbers shifted to the left the
// quotient has 63 bits or more. A remainder shows in the last of them, far behind those
// that float64 keeps, so that the only rounding is right.
func decimal(m uint64, k int) float64 {
	if k == 0 || m == 0 {
		return float64(m)
	}
	d := powers[k]
	up, down := bits.LeadingZeros64(m), bits.LeadingZeros64(d)
	m <<= up
	q, r := bits.Div64(m>>1, m<<63, d<<down)
	if r != 0 {
		q |= 1
	}
	const bias, fraction = 1023, 52 // of a float64's bits
	return float64(q) * math.Float64frombits(uint64(bias-63-up+down)<<fraction)
}

// isNumeric is whether decimal numbers have c in them. Of texts without other
// characters ParseFloat accepts the decimal numbers only.
func isNumeric(c byte) bool {
	return c-'0' < 10 || c == '.' || c == '-' || c == '+' || c|0x20 == 'e'
}
