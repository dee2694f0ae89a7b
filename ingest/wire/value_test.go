package wire

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

// TestTextValues pins the values of texts.
func TestTextValues(t *testing.T) {
	for text, want := range map[string]float64{
		"1.5": 1.5, "-0": math.Copysign(0, -1), "+2": 2, "007": 7, "1e3": 1000,
		"true": 1, "True": 1, "TRUE": 1, "false": 0, "False": 0, "FALSE": 0,
		"1970-01-01": 0, "1969-12-31": -86400, "1970-01-01T00:00:01Z": 1, "1970-01-01 00:01": 60,
		"2024-02-29T12:34:56.789Z": 1709210096.789, "2024-02-29 12:34:56.789000000+00:00": 1709210096.789,
		"2024-02-29T12:34:56+01": 1709206496, "2024-02-29T12:34:56-0130": 1709215496, "1969-12-31T23:59:59.5Z": -0.5,
		"0000-01-01": -62167219200, "9999-12-31T23:59:59.999999999Z": 253402300800,
	} {
		x, reason := textValue([]byte(text))
		if math.Float64bits(x) != math.Float64bits(want) || reason != "" {
			t.Errorf("%q is %v (%s), want %v", text, x, reason, want)
		}
	}
	for _, bad := range []string{"", "t", "T", "yes", "tRUE", "nan", "1,5", "1 2", "2024-1-01", "2024-13-01", "2024-02-30", "2024-00-01", "2024-01-00",
		"2024-01-01T", "2024-01-01T1:00", "2024-01-01T24:00", "2024-01-01T23:60", "2024-01-01T23:59:60", "2024-01-01T23:59:5", "2024-01-01T23:59:59.",
		"2024-01-01T23:59:59.1234567890", "2024-01-01T23:59:59 UTC", "2024-01-01T23:59+24:00", "2024-01-01T23:59+1", "2024-01-01t00:00", "2024-01-01Z"} {
		if x, reason := textValue([]byte(bad)); reason == "" {
			t.Errorf("%q is %v, want it refused", bad, x)
		}
	}
}

// TestTimes compares times with the standard library's, and their values with those of
// rational arithmetic.
func TestTimes(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	const from, to = -62167219200, 253402300800 // the years 0 to 9999
	for range 20000 {
		want := time.Unix(from+rng.Int64N(to-from), rng.Int64N(1e9)).UTC()
		digits := rng.IntN(10)
		want = want.Truncate(time.Duration(math.Pow10(9 - digits)))
		if want.Year() < 0 { // Truncate counts from year 1
			continue
		}
		layout := "2006-01-02T15:04:05"
		if digits > 0 {
			layout += "." + fmt.Sprintf("%0*d", digits, 0)
		}
		zone := time.FixedZone("", 60*(rng.IntN(2*23*60)-23*60))
		if local := want.In(zone); local.Year() < 0 || local.Year() > 9999 {
			continue
		}
		text := want.In(zone).Format(layout + []string{"Z07:00", "Z0700"}[rng.IntN(2)])
		got, ok := parseTime([]byte(text))
		if !ok || got.seconds != want.Unix() || got.nanos != int64(want.Nanosecond()) {
			t.Fatalf("%s: %v (%v), want %v", text, got, ok, want)
		}
		sum := new(big.Int).Add(new(big.Int).Mul(big.NewInt(got.seconds), big.NewInt(1e9)), big.NewInt(got.nanos))
		value, _ := new(big.Rat).SetFrac(sum, big.NewInt(1e9)).Float64()
		if got.value() != value {
			t.Fatalf("%s: %v, want %v", text, got.value(), value)
		}
		label, ok := got.appendLabel(nil)
		if again, alsoOK := parseTime(label); !ok || !alsoOK || again != got {
			t.Fatalf("%s: label %s is %v", text, label, again)
		}
	}
	for _, perSecond := range []int64{1, 1e3, 1e6, 1e9} {
		for _, n := range []int64{0, 1, -1, 1e9, -1e9, 1e9 + 1, math.MaxInt64, math.MinInt64} {
			want, _ := big.NewRat(n, perSecond).Float64()
			if got := instantOf(n, perSecond).value(); got != want {
				t.Errorf("%d/%d: %v, want %v", n, perSecond, got, want)
			}
		}
	}
}

// TestDecimals compares the spelling of decimals with that of math/big.
func TestDecimals(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for range 20000 {
		size := 4 << rng.IntN(4)
		integer := make([]byte, size)
		for i := range integer {
			integer[i] = byte(rng.Uint32())
		}
		if used := rng.IntN(size); rng.IntN(2) == 0 { // a small one
			for i := used; i < size; i++ {
				integer[i] = byte(int8(integer[used]) >> 7)
			}
		}
		n := new(big.Int)
		for i := size - 1; i >= 0; i-- {
			n.Or(n.Lsh(n, 8), big.NewInt(int64(integer[i])))
		}
		if n.Bit(8*size-1) == 1 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*size)))
		}
		scale := rng.IntN(2*maxScale+1) - maxScale
		want := new(big.Rat).SetInt(n)
		power := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(scale, -scale))), nil))
		if scale < 0 {
			want.Mul(want, power)
		} else {
			want.Quo(want, power)
		}
		text := appendDecimal(nil, integer, scale)
		if got, ok := new(big.Rat).SetString(string(text)); !ok || got.Cmp(want) != 0 {
			t.Fatalf("%v with %d digits behind the point: %s, want %s", n, scale, text, want.FloatString(scale))
		}
		x, reason := textValue(text)
		if value, _ := want.Float64(); x != value || reason != "" {
			t.Fatalf("%s: %v (%s), want %v", text, x, reason, value)
		}
	}
}
