package wire

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"unsafe"
)

// pow10 holds the powers of ten that float64 represents exactly.
var pow10 = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// fives holds, for k from 0, 2^s/5^k rounded up to an integer of 63 bits, and the bits
// of the float64 2^(64-s-k). The last place is k = 0 again, as assembly wants it.
var fives = func() (f [2][33]uint64) {
	five := big.NewInt(1)
	for k := range maxFive + 1 {
		s := 61 + five.BitLen()
		if k > 0 { // no power of two
			s++
		}
		q := new(big.Int).Lsh(big.NewInt(1), uint(s))
		q.Add(q, five).Sub(q, big.NewInt(1)).Quo(q, five)
		f[0][k], f[1][k] = q.Uint64(), uint64(1023+64-s-k)<<52
		five.Mul(five, big.NewInt(5))
	}
	f[0][maxFive+1], f[1][maxFive+1] = f[0][0], f[1][0]
	return f
}()

// maxFive is the greatest power in fives.
const maxFive = 31

// maxDigits is how many digits cannot make a number of 2^64 or more.
const maxDigits = 19

// number reads the decimal number that starts at b[i] and ends before b[end]:
// [+-] digits [. digits] [e [+-] digits], with a digit on at least one side of
// the point. The value is strconv.ParseFloat's, bit for bit; one that overflows
// is infinite. False: there is no number. Hexadecimal, "nan" and "inf" are none.
func number(b []byte, i int) (x float64, end int, ok bool) {
	start := i
	negative := false
	if i < len(b) && (b[i] == '-' || b[i] == '+') {
		negative = b[i] == '-'
		i++
	}
	var mantissa uint64
	from := i
	for ; i < len(b) && b[i]-'0' < 10; i++ {
		mantissa = 10*mantissa + uint64(b[i]-'0')
	}
	digits, exponent := i-from, 0
	if i < len(b) && b[i] == '.' {
		i++
		from = i
		// A float64 in full has two times eight digits behind the point.
		for i+8 <= len(b) {
			eight := binary.LittleEndian.Uint64(b[i:])
			if !areDigits(eight) {
				break
			}
			mantissa = 1e8*mantissa + ofDigits(eight)
			i += 8
		}
		for ; i < len(b) && b[i]-'0' < 10; i++ {
			mantissa = 10*mantissa + uint64(b[i]-'0')
		}
		digits += i - from
		exponent = from - i
	}
	if digits == 0 {
		return 0, start, false
	}
	if digits > maxDigits {
		digits -= leadingZeros(b[start:i])
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		j, e, sign := i+1, 0, 1
		if j < len(b) && (b[j] == '-' || b[j] == '+') {
			if b[j] == '-' {
				sign = -1
			}
			j++
		}
		from = j
		for ; j < len(b) && b[j]-'0' < 10; j++ {
			if e < 1<<20 { // far beyond what matters, far below overflow
				e = 10*e + int(b[j]-'0')
			}
		}
		if j == from {
			return 0, start, false
		}
		i, exponent = j, exponent+sign*e
	}
	switch wrapped := digits > maxDigits; {
	case !wrapped && mantissa < 1<<53 && -len(pow10) < exponent && exponent < len(pow10):
		// With both factors exact a single rounding gives the nearest float64
		// (Clinger 1990).
		x = float64(mantissa)
		if exponent < 0 {
			x /= pow10[-exponent]
		} else {
			x *= pow10[exponent]
		}
	case !wrapped && -maxFive <= exponent && exponent <= 0:
		if x, ok = nearest(mantissa, -exponent); ok {
			break
		}
		fallthrough
	default:
		// The text is a valid number, so the only error left is overflow, for
		// which ParseFloat returns an infinity. The string is not kept.
		x, _ = strconv.ParseFloat(unsafe.String(&b[start], i-start), 64)
		return x, i, true
	}
	if negative {
		x = -x
	}
	return x, i, true
}

// leadingZeros counts the zeros before the first other digit of a number.
func leadingZeros(b []byte) (n int) {
	for _, c := range b {
		switch {
		case c == '0':
			n++
		case c-'0' < 10:
			return n
		}
	}
	return n
}

// areDigits is whether eight bytes are: their high halves are 3, also with 6
// added to the low ones.
func areDigits(eight uint64) bool {
	const high = 0xf0f0f0f0f0f0f0f0
	return eight&high|(eight+0x0606060606060606)&high>>4 == 0x3333333333333333
}

// ofDigits is the number of which the lowest byte has the first of eight digits:
// pairs of them, then fours, then all.
func ofDigits(eight uint64) uint64 {
	const pairs = 0x000000ff000000ff // the first and third, the others by a shift
	eight -= 0x3030303030303030
	eight = 10*eight + eight>>8
	return (eight&pairs*(100+1000000<<32) + eight>>16&pairs*(1+10000<<32)) >> 32
}

// nearest is the float64 nearest to m/10^k, unless that looks half way between two. No
// result is so small or large that a power of two cannot scale it.
//
// With m shifted to 64 bits the high half of its product with 2^s/5^k has 62 or 63: as
// that factor was rounded up, and the product is less than 2^64 too large, it is less
// than one away from the quotient. Of the float64 next to it, 2^9 or 2^10 apart, the
// same one is the nearest to both, unless it is half way, where bit 8 or 9 is the lowest
// that is set.
func nearest(m uint64, k int) (x float64, ok bool) {
	shift := bits.LeadingZeros64(m) & 63
	q, _ := bits.Mul64(m<<shift, fives[0][k])
	if q&-q&0x300 != 0 {
		return 0, false
	}
	return float64(int64(q)) * math.Float64frombits(fives[1][k]-uint64(shift)<<52), true
}

// finite is for a field that must be a number and nothing else: it returns the reason
// why it cannot be used, or "".
func finite(field []byte) (x float64, reason string) {
	x, end, ok := number(field, 0)
	switch {
	case len(field) == 0:
		return 0, "the value is missing"
	case !ok || end != len(field):
		return 0, quoted(field) + " is not a number"
	case math.IsInf(x, 0):
		return 0, quoted(field) + " overflows float64"
	}
	return x, ""
}

// quoted shows the start of a peer's text in an error.
func quoted(b []byte) string {
	const shown = 40
	if len(b) > shown {
		return strconv.Quote(string(b[:shown])) + "…"
	}
	return strconv.Quote(string(b))
}
