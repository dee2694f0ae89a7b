package wire

import (
	"bytes"
	"fmt"
	"strings"
)

// Notation says how CSV writes numbers. The zero value is plain: a point before the decimals, and
// nothing between the thousands.
type Notation struct {
	DecimalComma bool
	Thousands    Thousands
}

// notation is the short name inside the package.
type notation = Notation

// Thousands is what stands between groups of three digits.
type Thousands uint8

// The separators of thousands.
const (
	ThousandsNone Thousands = iota
	ThousandsComma
	ThousandsPoint
	ThousandsBlank      // also one that is narrow or not to be broken
	ThousandsApostrophe // also the typographic one
)

var thousandsNames = []string{"none", "comma", "point", "blank", "apostrophe"}

// thousandsTexts are the texts of the separators.
var thousandsTexts = [...][]string{
	ThousandsComma: {","}, ThousandsPoint: {"."}, ThousandsBlank: {" ", "\u00a0", "\u202f", "\u2009"}, ThousandsApostrophe: {"'", "\u2019"},
}

// String is the separator's name.
func (t Thousands) String() string { return thousandsNames[t] }

// ParseThousands is the inverse of String.
func ParseThousands(name string) (Thousands, error) {
	for t, known := range thousandsNames {
		if name == known {
			return Thousands(t), nil
		}
	}
	return 0, fmt.Errorf("%q separates no thousands: want %s", name, strings.Join(thousandsNames, ", "))
}

// Check says why numbers cannot be written so.
func (n Notation) Check() error {
	switch {
	case int(n.Thousands) >= len(thousandsNames):
		return fmt.Errorf("unknown separator of thousands %d", n.Thousands)
	case n.DecimalComma && n.Thousands == ThousandsComma:
		return fmt.Errorf("a comma separates the thousands and the decimals")
	case !n.DecimalComma && n.Thousands == ThousandsPoint:
		return fmt.Errorf("a point separates the thousands and the decimals")
	}
	return nil
}

// isPlain is whether numbers are written as everywhere else.
func (n *Notation) isPlain() bool { return *n == Notation{} }

// plain writes a number in the notation as one in plain notation, into the memory of to. A text
// that is no number is returned as it is; the reason says why one that looks like a number in
// another notation is refused. Groups are of three digits: with other ones the text is in another
// notation.
func (n *Notation) plain(text []byte, to *[]byte) (number []byte, reason string) {
	out := (*to)[:0]
	defer func() { *to = out }()
	rest := text
	if len(rest) > 0 && (rest[0] == '-' || rest[0] == '+') {
		out, rest = append(out, rest[0]), rest[1:]
	}
	whole := leadingDigits(rest)
	out, rest = append(out, rest[:whole]...), rest[whole:]
	grouped := whole > 0 && whole <= 3
	for grouped {
		size := n.thousands(rest)
		if size == 0 || leadingDigits(rest[size:]) != 3 {
			break
		}
		out, rest = append(out, rest[size:size+3]...), rest[size+3:]
	}
	point := byte('.')
	if n.DecimalComma {
		point = ','
	}
	if len(rest) > 0 && rest[0] == point {
		decimals := leadingDigits(rest[1:])
		out, rest = append(append(out, '.'), rest[1:1+decimals]...), rest[1+decimals:]
	}
	if len(rest) > 0 && rest[0]|0x20 == 'e' {
		out, rest = append(out, rest...), nil
	}
	if len(rest) == 0 && isDecimal(out) {
		return out, ""
	}
	if isDecimal(text) || hasDecimalComma(text) {
		return text, quoted(text) + " is a number in another notation: see the settings of decimals and thousands (csv_decimal, csv_thousands)"
	}
	return text, ""
}

// thousands is the length of the separator that text begins with, or 0.
func (n *Notation) thousands(text []byte) int {
	for _, separator := range thousandsTexts[n.Thousands] {
		if bytes.HasPrefix(text, []byte(separator)) {
			return len(separator)
		}
	}
	return 0
}

// isNumber is whether a text is a number in the notation.
func (n *Notation) isNumber(text []byte) bool {
	if n.isPlain() {
		return isDecimal(text)
	}
	var scratch []byte
	number, reason := n.plain(text, &scratch)
	return reason == "" && isDecimal(number)
}

// isDecimal is whether a text is a decimal number in plain notation.
func isDecimal(text []byte) bool {
	_, end, ok := number(text, 0)
	return ok && end == len(text)
}

func leadingDigits(b []byte) int {
	_, end := digits(b, 0)
	return end
}
