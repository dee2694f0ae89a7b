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

// Unlabelled is the class of rows without a label. CheckLabel refuses it, so no label
// names it. Its rows are summed, counted and removed like others, but it has no plane,
// and Moments lack it.
const Unlabelled = ""

// NumberLabel is the canonical label of a numeric class: the shortest decimal that
// reads back as x, so that 1, 1.0 and +1 name one class. It has an exponent only below
// 1e-5 and from 1e15 on. x is finite.
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

// CheckLabel returns an error for a label that is empty, too long, or not UTF-8.
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

// CompareLabels is the canonical order of classes: numbers by value, then all other
// labels byte by byte. Of two classes the second is the positive one: 1 of −1 and 1,
// or of 0 and 1.
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

// labelNumber is the number whose canonical label is label, if any.
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

// shortInteger reads up to 15 digits. It is the fast path of labelNumber: every block
// that is added or removed compares its labels, and most numeric labels are short
// integers.
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
