package wire

import (
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
)

// readPlain lets the kernel read s with short and long texts behind it.
func readPlain(t *testing.T, s string, want float64) (read bool) {
	t.Helper()
	for k, behind := range []string{",", `, "a name of so many bytes as 32": `[:32], `, "a name so long that it is not compared whole": `, "\n"} {
		if !hasNumbers {
			return false
		}
		b := []byte(strings.Repeat("9", 33) + s + behind + strings.Repeat("7", 67-len(behind)))
		p := pattern{end: 33}
		p.value(b, 33, 33+len(s), 0)
		p.finish(b, 33+len(s)+len(behind))
		row := []float64{math.NaN()}
		done, end := plainNumbers(row, b, p.steps, 33)
		switch {
		case done == 1 && (end != 33+len(s)+len(behind) || math.Float64bits(row[0]) != math.Float64bits(want)):
			t.Fatalf("%q: %v to %d, want %v", b, row[0], end, want)
		case done == 1 && !jsonGrammar([]byte(s)):
			t.Fatalf("%q is no number by JSON's grammar", s)
		case done == 0 && end != 33, done > 1 || done < 0:
			t.Fatalf("%q: %d to %d", b, done, end)
		case k > 0 && read != (done == 1):
			t.Fatalf("%q: read is %v, with other text behind it not", b, done == 1)
		}
		read = done == 1
	}
	return read
}

// TestPlainNumbers: the kernel reads nearly all numbers as programs print them, and
// leaves the rest. That those it reads are right is also TestNumber's matter. With
// STREAMD_REQUIRE_VARIANTS set it is a failure if it cannot be tested.
func TestPlainNumbers(t *testing.T) {
	if !hasNumbers {
		if os.Getenv("STREAMD_REQUIRE_VARIANTS") != "" {
			t.Fatal("this processor has no AVX2, BMI1, BMI2 and LZCNT, or this is a build without assembly")
		}
		t.Skip("NOT TESTED: this processor has no AVX2, BMI1, BMI2 and LZCNT, or this is a build without assembly")
	}
	rng := rand.New(rand.NewPCG(2, 2))
	for name, text := range map[string]func(x float64) string{
		"float64":    func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) },
		"float32":    func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 32) },
		"scientific": func(x float64) string { return strconv.FormatFloat(x, 'e', 18, 64) },
		"small":      func(x float64) string { return strconv.FormatFloat(x/1e9, 'g', -1, 64) },
		"decimals":   func(x float64) string { return strconv.FormatFloat(1000*x, 'f', rng.IntN(16), 64) },
		"integer":    func(x float64) string { return strconv.Itoa(int(1000 * x)) },
	} {
		const all = 20_000
		read := 0
		for range all {
			s := text(rng.NormFloat64())
			want, err := strconv.ParseFloat(s, 64)
			if err != nil {
				t.Fatal(err)
			}
			if readPlain(t, s, want) {
				read++
			}
		}
		// Of those with 19 digits one in 25 is so near to a float64 with an odd last
		// bit that it looks half way.
		if read < all*95/100 || read == all && name == "float64" {
			t.Errorf("%s: %d of %d are read, want nearly all, but not those half way between two", name, read, all)
		}
	}
	for _, s := range []string{"", "-", "+1", "01", "-00.5", "1.", "1.e+5", ".5", "-.5", "1e+", "1e", "--1", "1e5", "1e-005", "1e400",
		"1e-32", "1.5e-31", "100000000000000000000", "184400000000.00000001", "9007199254740993",
		"0.12345678901234567890123456789", "1.0000000000000000000000000000000", "12345678901234567890123456789012"} {
		if readPlain(t, s, math.NaN()) {
			t.Errorf("%q is read", s)
		}
	}
	for s, want := range map[string]float64{"0": 0, "-0": math.Copysign(0, -1), "-0.0": math.Copysign(0, -1), "0e-31": 0, "1.5e+01": 15, "1.5E-1": 0.15,
		"1e-31": 1e-31, "1.5e-30": 1.5e-30, "18430000000000000000": 18430000000000000000, "0.000000000000000000000000001": 1e-27} {
		if !readPlain(t, s, want) {
			t.Errorf("%q is not read", s)
		}
	}
}
