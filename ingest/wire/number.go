package wire

import (
	"errors"
	"math"
	"strconv"
	"unsafe"
)

// number reads the decimal number that starts at b[i] and ends before b[end]:
// [+-] digits [. digits] [e [+-] digits], with a digit on at least one side of the
// point. The value is strconv.ParseFloat's, bit for bit, and infinite if it overflows
// float64. There is no number, and ok is false, where the bytes that numbers are made
// of spell none. Hexadecimal, "nan" and "inf" are none.
func number(b []byte, i int) (x float64, end int, ok bool) {
	from := i
	if from < len(b) && b[from] == '-' {
		from++
	}
	whole := 0
	for end = from; end < len(b) && b[end]-'0' < 10; end++ {
		whole = 10*whole + int(b[end]-'0')
	}
	if rest := end < len(b) && isNumeric(b[end]); !rest && whole != 0 && end-from <= exactDigits {
		if from > i {
			whole = -whole
		}
		return float64(whole), end, true
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

// exactDigits is how many digits float64 holds in any case.
const exactDigits = 15

// isNumeric is whether decimal numbers have c in them. Of texts without other
// characters ParseFloat accepts the decimal numbers only.
func isNumeric(c byte) bool {
	return c-'0' < 10 || c == '.' || c == '-' || c == '+' || c|0x20 == 'e'
}

// finite reads a field that must be a finite number and nothing else. The reason says
// why it is not one, or is empty.
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
