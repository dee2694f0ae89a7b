package wire

import (
	"math"
	"strconv"
	"unsafe"
)

// pow10 holds the powers of ten that float64 represents exactly.
var pow10 = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

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
		for ; i < len(b) && b[i]-'0' < 10; i++ {
			mantissa = 10*mantissa + uint64(b[i]-'0')
		}
		digits += i - from
		exponent = from - i
	}
	if digits == 0 {
		return 0, start, false
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
	// With both factors exact a single rounding gives the nearest float64
	// (Clinger 1990); nineteen digits cannot have wrapped the mantissa.
	if digits <= 19 && mantissa < 1<<53 && -22 <= exponent && exponent <= 22 {
		x = float64(mantissa)
		if exponent < 0 {
			x /= pow10[-exponent]
		} else {
			x *= pow10[exponent]
		}
		if negative {
			x = -x
		}
		return x, i, true
	}
	// The text is a valid number, so the only error left is overflow, for
	// which ParseFloat returns an infinity. The string is not kept.
	x, _ = strconv.ParseFloat(unsafe.String(&b[start], i-start), 64)
	return x, i, true
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
