package wire

import (
	"math"
	"math/big"
	"math/bits"
	"time"
)

// textValue is the value of a text that stands for a feature or a weight: a finite
// decimal number, a boolean or a time. The reason says why it is none, or is empty.
func textValue(text []byte) (x float64, reason string) {
	if looksLikeTime(text) {
		if t, ok := parseTime(text); ok {
			return t.value(), ""
		}
		return 0, quoted(text) + " is not a date or time: want 2006-01-02 or 2006-01-02T15:04:05Z"
	}
	x, end, ok := number(text, 0)
	switch {
	case isMissing(text):
		return 0, "the value is missing: send one, or say what missing values count as"
	case ok && end == len(text) && !math.IsInf(x, 0):
		return x, ""
	case ok && end == len(text):
		return 0, quoted(text) + " overflows float64"
	}
	if is, ok := parseBoolean(text); ok {
		if is {
			return 1, ""
		}
		return 0, ""
	}
	if hasDecimalComma(text) {
		return 0, quoted(text) + " is not a number: decimals are written with a point, or in CSV with a comma if that is said (csv_decimal: comma)"
	}
	return 0, quoted(text) + isNoNumber
}

const isNoNumber = " is not a number: send one, or ignore the column"

// hasDecimalComma is whether the text would be a number if a comma were a point.
func hasDecimalComma(text []byte) bool {
	_, end, _ := number(text, 0)
	if end == 0 || end >= len(text)-1 || text[end] != ',' {
		return false
	}
	_, after := digits(text, end+1)
	return after == len(text)
}

// parseBoolean reads a boolean as JSON, Python and R spell it.
func parseBoolean(text []byte) (is, ok bool) {
	switch string(text) {
	case "true", "True", "TRUE":
		return true, true
	case "false", "False", "FALSE":
		return false, true
	}
	return false, false
}

// instant is a time: seconds since 1970-01-01T00:00:00Z, without leap seconds, and
// nanoseconds from 0 to 999,999,999 behind them.
type instant struct {
	seconds int64
	nanos   int64
}

// instantOf is n units since 1970. A second has perSecond units, at most 10⁹.
func instantOf(n, perSecond int64) instant {
	seconds, rest := n/perSecond, n%perSecond
	if rest < 0 {
		seconds, rest = seconds-1, rest+perSecond
	}
	return instant{seconds, rest * (1e9 / perSecond)}
}

// value is the float64 nearest to the seconds since 1970.
func (t instant) value() float64 {
	if t.nanos == 0 {
		return float64(t.seconds)
	}
	n, digits := t.nanos, 9
	for n%10 == 0 {
		n, digits = n/10, digits-1
	}
	seconds, before := t.seconds, t.seconds < 0
	if before { // the distance to 1970
		seconds, n = -(seconds + 1), int64(powers[digits])-n
	}
	high, low := bits.Mul64(uint64(seconds), powers[digits])
	low, carry := bits.Add64(low, uint64(n), 0)
	x, ok := scaled(low, -digits)
	if high+carry != 0 || !ok { // the former: some year beyond 2554
		sum := new(big.Int).Mul(big.NewInt(seconds), new(big.Int).SetUint64(powers[digits]))
		x, _ = new(big.Rat).SetFrac(sum.Add(sum, big.NewInt(n)), new(big.Int).SetUint64(powers[digits])).Float64()
	}
	if before {
		x = -x
	}
	return x
}

// appendLabel appends the time's label: its date at midnight in UTC, else date and time
// in UTC without trailing zeros. It is not ok outside the years 0 to 9999.
func (t instant) appendLabel(dst []byte) (label []byte, ok bool) {
	const firstSecond, lastSecond = -62167219200, 253402300799 // of the years 0 and 9999
	if t.seconds < firstSecond || t.seconds > lastSecond {
		return dst, false
	}
	layout := "2006-01-02T15:04:05.999999999Z"
	if t.nanos == 0 && t.seconds%secondsPerDay == 0 {
		layout = time.DateOnly
	}
	return time.Unix(t.seconds, t.nanos).UTC().AppendFormat(dst, layout), true
}

const secondsPerDay = 24 * 60 * 60

// looksLikeTime is whether the text begins like a date. No number does.
func looksLikeTime(text []byte) bool {
	return len(text) >= len(time.DateOnly) && text[4] == '-' && text[7] == '-' && text[0]-'0' < 10
}

// parseTime reads a date, or date and time, in ISO 8601's extended form:
// YYYY-MM-DD[(T| )hh:mm[:ss[.f]][Z|±hh[[:]mm]]] with up to nine digits f. Without an
// offset it is in UTC.
func parseTime(text []byte) (t instant, ok bool) {
	if !looksLikeTime(text) {
		return t, false
	}
	year, month, day := clock(text[:4], 9999), clock(text[5:7], 12), clock(text[8:10], 31)
	date := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	if year < 0 || month < 1 || day < 1 || date.Day() != day {
		return t, false
	}
	t.seconds = date.Unix()
	text = text[len(time.DateOnly):]
	if len(text) == 0 {
		return t, true
	}
	if len(text) < len("T15:04") || text[0] != 'T' && text[0] != ' ' || text[3] != ':' {
		return t, false
	}
	hour, minute, second := clock(text[1:3], 23), clock(text[4:6], 59), 0
	text = text[6:]
	if len(text) >= 3 && text[0] == ':' {
		second = clock(text[1:3], 59)
		text = text[3:]
		if len(text) > 0 && text[0] == '.' {
			fraction, end := digits(text, 1)
			count := end - 1
			if count < 1 || count > 9 {
				return t, false
			}
			t.nanos = int64(fraction * powers[9-count])
			text = text[end:]
		}
	}
	offset, ok := parseOffset(text)
	if !ok || hour < 0 || minute < 0 || second < 0 {
		return t, false
	}
	t.seconds += int64(3600*hour+60*minute+second) - offset
	return t, true
}

// parseOffset reads the offset from UTC, in seconds, behind a time.
func parseOffset(text []byte) (seconds int64, ok bool) {
	if len(text) == 0 || string(text) == "Z" {
		return 0, true
	}
	sign := text[0]
	text = text[1:]
	if sign != '+' && sign != '-' || len(text) < 2 {
		return 0, false
	}
	hours, minutes := clock(text[:2], 23), 0
	switch text = text[2:]; {
	case len(text) == 3 && text[0] == ':':
		minutes = clock(text[1:], 59)
	case len(text) == 2:
		minutes = clock(text, 59)
	case len(text) > 0:
		return 0, false
	}
	if hours < 0 || minutes < 0 {
		return 0, false
	}
	seconds = int64(3600*hours + 60*minutes)
	if sign == '-' {
		seconds = -seconds
	}
	return seconds, true
}

// clock reads a text of nothing but digits. It is −1 if the text is none, or beyond most.
func clock(text []byte, most int) int {
	n, end := digits(text, 0)
	if end != len(text) || n > uint64(most) {
		return -1
	}
	return int(n)
}
