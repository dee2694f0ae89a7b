package httpapi

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"streamd/cmd/streamd/model"
)

// minus writes the sign of a number.
var minus = strings.NewReplacer("-", "−")

// number writes four digits of x: 0.01235, 12 350, 1.235·10⁻⁷.
func number(x float64) string {
	size := math.Abs(x)
	switch {
	case x == 0:
		return "0"
	case size-size != 0:
		return minus.Replace(strconv.FormatFloat(x, 'g', -1, 64))
	case size < 1e-4 || size >= 1e7:
		digits, exponent, _ := strings.Cut(strconv.FormatFloat(x, 'e', 3, 64), "e")
		if strings.Contains(digits, ".") {
			digits = strings.TrimRight(strings.TrimRight(digits, "0"), ".")
		}
		n, _ := strconv.Atoi(exponent)
		return minus.Replace(digits) + "·10" + raised.Replace(strconv.Itoa(n))
	case size >= 1e4:
		return minus.Replace(thousands(int64(math.Round(x))))
	}
	decimals := max(0, 3-int(math.Floor(math.Log10(size))))
	text := strconv.FormatFloat(x, 'f', decimals, 64)
	if decimals > 0 {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return minus.Replace(text)
}

var raised = strings.NewReplacer("-", "⁻", "0", "⁰", "1", "¹", "2", "²", "3", "³", "4", "⁴", "5", "⁵", "6", "⁶", "7", "⁷", "8", "⁸", "9", "⁹")

// noise is the share of a scale below which a number is what rounding has left of 0.
const noise = 1e-12

// numberIn writes a number among others of a scale.
func numberIn(x, scale float64) string {
	if math.Abs(x) < noise*scale {
		return "0"
	}
	return number(x)
}

// seconds writes how long something took.
func seconds(s float64) string {
	switch {
	case s < 0.0005:
		return "under 1 ms"
	case s < 1:
		return fmt.Sprintf("%.0f ms", 1000*s)
	case s < 100:
		return strconv.FormatFloat(s, 'g', 3, 64) + " s"
	}
	return roughly(time.Duration(min(s, 1e9) * float64(time.Second)))
}

// unit is the blank before a unit.
var unit = regexp.MustCompile(`([0-9]) (%|(?:ms|s|min|h|d|MiB|rows/s)\b)`)

// tight keeps numbers and their units on one line.
func tight(text string) string { return unit.ReplaceAllString(text, "$1\u00a0$2") }

func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 1, 64) + " %" }

func clock(t time.Time) string { return t.UTC().Format("2 Jan 15:04:05") }

// mebibytes writes a number of bytes.
func mebibytes(n int64) string { return thousands((n+1<<19)>>20) + " MiB" }

// compact writes a number for the mark of an axis: 1.5 k, 2 M.
func compact(x float64) string {
	for _, unit := range []struct {
		of   float64
		name string
	}{{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if math.Abs(x) >= unit.of {
			return strconv.FormatFloat(x/unit.of, 'g', 4, 64) + unit.name
		}
	}
	return number(x)
}

// plural is the ending of a noun for n things.
func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// thousands writes n in groups of three digits.
func thousands[N int | int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	first := len(digits) % 3
	if n < 0 {
		first = (1 + (len(digits)-1)%3) % 3 // the sign stands before the groups
	}
	var grouped strings.Builder
	for i, d := range digits {
		if i > 0 && i%3 == first && digits[i-1] != '-' {
			grouped.WriteRune('\u202f') // narrow no-break space
		}
		grouped.WriteRune(d)
	}
	return grouped.String()
}

// weight writes a sum of weights, which is a number of rows where these are 1.
func weight(x float64) string {
	if math.Abs(x) < 1e15 && (x == math.Trunc(x) || math.Abs(x) >= 1000) {
		return thousands(int64(math.Round(x)))
	}
	return number(x)
}

// roughly writes a duration in one unit.
func roughly(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours())/24)
}

// occurring are the categories that have undeclared values.
func occurring(all []model.Undeclared) []model.Undeclared {
	return slices.DeleteFunc(slices.Clone(all), func(u model.Undeclared) bool { return u.Share == 0 })
}
