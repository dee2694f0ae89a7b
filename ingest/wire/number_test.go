package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// TestNumber compares numbers with strconv's, bit for bit: of every length, half way
// between two float64, and next to those.
func TestNumber(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	check := func(s string) {
		t.Helper()
		want, _ := strconv.ParseFloat(s, 64)
		// The text behind a number is not part of it, though it be digits.
		for _, behind := range []string{"", ",12345678", ":.5", "\xff\xff\xff\xff\xff\xff\xff\xff"} {
			x, end, ok := number([]byte(s+behind), 0)
			if !ok || end != len(s) || math.Float64bits(x) != math.Float64bits(want) {
				t.Fatalf("%s: %v to %d, %v; want %v", s+behind, x, end, ok, want)
			}
		}
	}
	for _, s := range []string{"0", "-0", "0.0", "-0.00", ".0", "-.5", "5.", "+7", "000", "-000.100"} {
		check(s)
	}
	spell := func(m uint64, k int) {
		t.Helper()
		text := strconv.FormatUint(m, 10)
		sign := [...]string{"", "-", "+"}[rng.IntN(3)]
		check(sign + text)
		check(sign + text + "e-" + strconv.Itoa(k))
		if k < len(text) {
			check(sign + text[:len(text)-k] + "." + text[len(text)-k:])
		} else {
			check(sign + "0." + strings.Repeat("0", k-len(text)) + text)
		}
	}
	for range 20_000 {
		spell(rng.Uint64()>>rng.IntN(64), rng.IntN(32))
		check(strconv.FormatFloat(math.Float64frombits(rng.Uint64()&^(0x7ff<<52)|(1023-120+rng.Uint64N(240))<<52), 'g', -1, 64))
	}
	for range 10_000 {
		// 54 bits, the last of them set, are half way between two float64, as
		// is any power of two times that. 5^j divided by 10^j is one.
		half, j := rng.Uint64()>>10|1<<53|1, rng.IntN(5)
		m := half * uint64(math.Pow(5, float64(j)))
		for _, m := range []uint64{m - 1, m, m + 1} {
			spell(m, j)
			if m < math.MaxUint64/10 {
				spell(10*m, j+1)
			}
		}
	}
	// Around the number of digits that are read without strconv.
	for digits := 15; digits <= 22; digits++ {
		for k := 18; k <= 30; k++ {
			for _, digit := range []string{"0", "1", "9"} {
				text := "1" + strings.Repeat(digit, digits-1)
				check(text + "e-" + strconv.Itoa(k))
				check(text + "e" + strconv.Itoa(k))
				check("0.000" + text)
				check("000" + text + "." + text)
			}
		}
	}
	for _, m := range []uint64{1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		for k := range 30 {
			spell(m, k)
		}
	}
}

// Around both ends of the table of powers, and of the powers that float64 has exactly.
func TestScaled(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	done := 0
	for k := -mostScale - 1; k <= mostScale+1; k++ {
		for range 2000 {
			m := rng.Uint64() >> rng.IntN(64)
			if x := float64(rng.IntN(1000)) / 8; rng.IntN(4) == 0 { // a number without rounding
				m = uint64(x * 1000)
			}
			want, err := strconv.ParseFloat(fmt.Sprintf("%de%d", m, k), 64)
			if err != nil {
				t.Fatal(err)
			}
			x, ok := scaled(m, k)
			if ok && math.Float64bits(x) != math.Float64bits(want) {
				t.Fatalf("%d·10^%d: %v, want %v", m, k, x, want)
			}
			if ok {
				done++
			}
		}
	}
	if most := 2000 * (2*mostScale + 3); done < most*95/100 {
		t.Errorf("of %d numbers %d are left to strconv", most, most-done)
	}
}

// FuzzStrictNumber compares with strconv, and with the grammar of JSON.
func FuzzStrictNumber(f *testing.F) {
	for _, s := range []string{"0.1", "-12.25e-3", "1e400", "00.5", ".5", "5.", "1e", "0.00000000000000000000012345678901234567890", "9007199254740993", "123456789012345678901234567890", "1-2", "0x1p4"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n := 0
		for n < len(text) && numeric[text[n]] {
			n++
		}
		want, _ := strconv.ParseFloat(string(text[:n]), 64)
		if x, end, ok := strictNumber(text, 0); ok && (end != n || math.Float64bits(x) != math.Float64bits(want) || !json.Valid(text[:n])) {
			t.Errorf("%q: %v to %d is strict", text, x, end)
		}
	})
}

// BenchmarkNumber reads float64 and float32 in full, and numbers as people type them.
func BenchmarkNumber(b *testing.B) {
	for _, c := range []struct {
		name string
		text func(x float64) string
	}{
		{"float64", func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }},
		{"float32", func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 32) }},
		{"decimals=3", func(x float64) string { return strconv.FormatFloat(x, 'f', 3, 64) }},
		{"integer", func(x float64) string { return strconv.Itoa(int(1000 * x)) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			const numbers = 100_000 // so many that their lengths cannot be learned
			var text []byte
			for range numbers {
				text = append(append(text, c.text(rng.NormFloat64())...), ',')
			}
			for b.Loop() {
				for i := 0; i < len(text); i++ { // past the comma
					_, i, _ = number(text, i)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/numbers, "ns/number")
		})
	}
}
