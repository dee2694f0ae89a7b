package incremental

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxLabel is the largest length of a class label, in bytes.
const MaxLabel = 128

// NumberLabel is the canonical label of a numeric class: the shortest decimal
// that reads back as x, so that 1, 1.0 and +1 name one class, without an exponent
// for 0 and for magnitudes from 1e-5 to below 1e15. x is finite.
func NumberLabel(x float64) string { return string(AppendNumberLabel(nil, x)) }

// AppendNumberLabel appends NumberLabel.
func AppendNumberLabel(dst []byte, x float64) []byte {
	if x == 0 {
		return append(dst, '0') // −0 too
	}
	format := byte('f')
	if a := math.Abs(x); a < 1e-5 || a >= 1e15 {
		format = 'e'
	}
	return strconv.AppendFloat(dst, x, format, -1, 64)
}

// CheckLabel says what is wrong with a label: empty, too long, or not UTF-8.
func CheckLabel(label string) error {
	switch {
	case label == "":
		return errors.New("the label is empty")
	case len(label) > MaxLabel:
		return fmt.Errorf("the label has %d bytes, more than %d", len(label), MaxLabel)
	case !utf8.ValidString(label):
		return errors.New("the label is not valid UTF-8")
	}
	return nil
}

// CompareLabels is the canonical order of classes: numbers first, by value,
// then all other labels, byte by byte. Of two classes the second is the
// positive one: 1 of −1 and 1, or of 0 and 1.
func CompareLabels(a, b string) int {
	x, xIsNumber := labelNumber(a)
	y, yIsNumber := labelNumber(b)
	switch {
	case xIsNumber && yIsNumber:
		if c := cmp.Compare(x, y); c != 0 {
			return c
		}
	case xIsNumber:
		return -1
	case yIsNumber:
		return 1
	}
	return strings.Compare(a, b)
}

// labelNumber is the number that a label is canonical for, if any.
func labelNumber(label string) (float64, bool) {
	digits := strings.TrimPrefix(label, "-")
	if digits == "" || digits[0] < '0' || digits[0] > '9' {
		return 0, false
	}
	if x, ok := shortInteger(digits); ok && (digits[0] != '0' || label == "0") {
		if len(digits) < len(label) {
			x = -x
		}
		return x, true
	}
	x, err := strconv.ParseFloat(label, 64)
	return x, err == nil && x-x == 0 && NumberLabel(x) == label
}

// shortInteger reads up to 15 digits, of which most labels are that are numbers:
// blocks compare their labels with those of others whenever they come or go.
func shortInteger(digits string) (x float64, ok bool) {
	if len(digits) > 15 {
		return 0, false
	}
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, false
		}
		x = float64(x*10) + float64(c-'0')
	}
	return x, true
}
