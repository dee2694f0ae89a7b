package envelope

import (
	"encoding/base64"
	"math/big"
	"strconv"
	"time"
)

// Bounds of a decimal. float64 has no number of more than 309 digits before the point, nor one that
// is not zero with 324 zeros behind it.
const (
	maxUnscaled = 512 // bytes
	maxScale    = 4096
)

func badScale(dst, _ []byte, _ *conversion) ([]byte, string) {
	return dst, "the schema of the decimal has no scale, or one beyond 4096"
}

// decimal appends a decimal, which is a base64 text of its unscaled digits as a big-endian integer
// in two's complement. A number stays as it is: decimal.format=NUMERIC writes those.
func decimal(dst, raw []byte, c *conversion) ([]byte, string) {
	if raw[0] != '"' {
		if isNumber(raw) {
			return append(dst, raw...), ""
		}
		return dst, "the decimal is neither a base64 text nor a number"
	}
	return unscaled(dst, raw, c.scale)
}

// unscaled appends the decimal whose unscaled digits are a base64 text.
func unscaled(dst, raw []byte, scale int) ([]byte, string) {
	var memory [maxUnscaled + 3]byte // base64 comes in threes
	text := raw[1 : len(raw)-1]
	if len(text) > base64.StdEncoding.EncodedLen(maxUnscaled) {
		return dst, "the decimal has too many digits"
	}
	n, err := base64.StdEncoding.Decode(memory[:], text)
	if err != nil || n == 0 {
		return dst, "the decimal is no base64 text"
	}
	var room [20]byte
	var digits []byte
	if bytes := memory[:n]; n <= 8 {
		x := int64(int8(bytes[0]))
		for _, b := range bytes[1:] {
			x = x<<8 | int64(b)
		}
		digits = strconv.AppendInt(room[:0], x, 10)
	} else {
		x := new(big.Int).SetBytes(bytes)
		if bytes[0] >= 0x80 {
			x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*n)))
		}
		digits = x.Append(nil, 10)
	}
	return appendScaled(dst, digits, scale), ""
}

// appendScaled appends the integer of some digits, divided by 10^scale.
func appendScaled(dst, digits []byte, scale int) []byte {
	if digits[0] == '-' {
		dst, digits = append(dst, '-'), digits[1:]
	}
	switch whole := len(digits) - scale; {
	case scale <= 0:
		dst = append(dst, digits...)
		if string(digits) == "0" {
			return dst // 000 is no number of JSON
		}
		for range -scale {
			dst = append(dst, '0')
		}
	case whole > 0:
		dst = append(append(dst, digits[:whole]...), '.')
		dst = append(dst, digits[whole:]...)
	default:
		dst = append(dst, '0', '.')
		for range -whole {
			dst = append(dst, '0')
		}
		dst = append(dst, digits...)
	}
	return dst
}

// variable appends a VariableScaleDecimal: an object of the scale and the unscaled digits.
func variable(dst, raw []byte, _ *conversion) ([]byte, string) {
	scale, value, ok := scaleAndValue(raw)
	if !ok {
		return decimal(dst, raw, &conversion{})
	}
	if scale < -maxScale || scale > maxScale {
		return dst, "the decimal has a scale beyond 4096"
	}
	return unscaled(dst, value, scale)
}

// scaleAndValue reads an object of a scale and a base64 text, and nothing else.
func scaleAndValue(raw []byte) (scale int, value []byte, ok bool) {
	if raw[0] != '{' {
		return 0, nil, false
	}
	fields := in(raw, 0)
	var hasScale bool
	for fields.next() {
		v := fields.value.of(raw)
		switch string(fields.name) {
		case "scale":
			n, err := strconv.Atoi(string(v))
			if err != nil || hasScale {
				return 0, nil, false
			}
			scale, hasScale = n, true
		case "value":
			if v[0] != '"' || value != nil {
				return 0, nil, false
			}
			value = v
		default:
			return 0, nil, false
		}
	}
	return scale, value, fields.reason == "" && hasScale && value != nil
}

const (
	secondsPerDay = 24 * 60 * 60
	// The seconds of the years 0 to 9999, of which texts are times.
	firstSecond, lastSecond = -62167219200, 253402300799
	beyondTime              = "the time is beyond the years 0 to 9999, as infinity is"
)

func integer(raw []byte) (n int64, reason string) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return 0, "the time is no integer of 64 bits"
	}
	return n, ""
}

func days(dst, raw []byte, _ *conversion) ([]byte, string) {
	n, reason := integer(raw)
	switch {
	case reason != "":
		return dst, reason
	case n < firstSecond/secondsPerDay || n > lastSecond/secondsPerDay:
		return dst, beyondTime
	}
	return append(appendDate(append(dst, '"'), n), '"'), ""
}

var tens = [...]int64{0: 1, 3: 1e3, 6: 1e6, 9: 1e9}

func instant(dst, raw []byte, c *conversion) ([]byte, string) {
	n, reason := integer(raw)
	if reason != "" {
		return dst, reason
	}
	seconds, rest := n/tens[c.scale], n%tens[c.scale]
	if rest < 0 {
		seconds, rest = seconds-1, rest+tens[c.scale]
	}
	if seconds < firstSecond || seconds > lastSecond {
		return dst, beyondTime
	}
	day, second := seconds/secondsPerDay, seconds%secondsPerDay
	if second < 0 {
		day, second = day-1, second+secondsPerDay
	}
	dst = append(appendDate(append(dst, '"'), day), 'T')
	dst = append(appendDigits(dst, second/3600, 2), ':')
	dst = append(appendDigits(dst, second/60%60, 2), ':')
	dst = appendDigits(dst, second%60, 2)
	if digits := c.scale; rest > 0 {
		for ; rest%10 == 0; digits-- {
			rest /= 10
		}
		dst = appendDigits(append(dst, '.'), rest, digits)
	}
	return append(dst, 'Z', '"'), ""
}

// appendDate appends the date of a day since 1970, as 2024-01-31.
func appendDate(dst []byte, day int64) []byte {
	year, month, of := time.Unix(day*secondsPerDay, 0).UTC().Date()
	dst = append(appendDigits(dst, int64(year), 4), '-')
	dst = append(appendDigits(dst, int64(month), 2), '-')
	return appendDigits(dst, int64(of), 2)
}

// appendDigits appends the last digits of n, which is not negative.
func appendDigits(dst []byte, n int64, digits int) []byte {
	at := len(dst) + digits
	for range digits {
		dst = append(dst, '0')
	}
	for i := at - 1; i >= at-digits; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
	return dst
}

func duration(dst, raw []byte, c *conversion) ([]byte, string) {
	n, reason := integer(raw)
	if reason != "" {
		return dst, "the duration is no integer of 64 bits"
	}
	var room [20]byte
	return appendScaled(dst, strconv.AppendInt(room[:0], n, 10), c.scale), ""
}

func timeOfDay(dst, _ []byte, _ *conversion) ([]byte, string) {
	return dst, "a time of day is no value: ignore the column"
}

func untyped(dst, _ []byte, _ *conversion) ([]byte, string) {
	return dst, "bytes are no value: ignore the column"
}

// isNumber is whether a value of JSON is a number, by its first byte.
func isNumber(raw []byte) bool { return raw[0] == '-' || raw[0]-'0' < 10 }
