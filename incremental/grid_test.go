package incremental

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"streamd/incremental/exact"
	"streamd/incremental/gram"
)

// Sums that are added as integers are those of their terms, bit for bit, and take no wider windows,
// in whatever order both ways come.
func TestIntegersAreTheirTerms(t *testing.T) {
	const n = 5
	names := DefaultFeatures(n)
	columns := map[string]func(r *rand.Rand) float64{
		"float32":  func(r *rand.Rand) float64 { return float64(float32(r.NormFloat64())) },
		"float64":  func(r *rand.Rand) float64 { return r.NormFloat64() },
		"far":      func(r *rand.Rand) float64 { return float64(float32(1e4 + r.NormFloat64())) },
		"one-hot":  func(r *rand.Rand) float64 { return float64(r.IntN(2)) },
		"constant": func(r *rand.Rand) float64 { return 0 },
		"negative": func(r *rand.Rand) float64 { return -float64(r.IntN(1000)) / 8 },
		"extremes": func(r *rand.Rand) float64 {
			return float64(float32(math.Ldexp(r.NormFloat64(), r.IntN(200)-100)))
		},
	}
	for name, number := range columns {
		r := rand.New(rand.NewPCG(81, 81))
		state, terms := NewState(names), NewState(names)
		integers, others := 0, 0
		var blocks []*Summary
		for i := range 300 {
			b := &Block{Classes: []string{"a"}, Codes: make([]int32, 1+r.IntN(40))}
			if i%3 == 0 {
				for range b.Codes {
					b.Weights = append(b.Weights, []float64{1, 0.1, 3, 1e-9}[r.IntN(4)])
				}
			}
			for range n {
				x := make([]float64, len(b.Codes))
				for i := range x {
					x[i] = number(r)
				}
				b.Columns = append(b.Columns, gram.ColumnOf(x))
			}
			blocks = append(blocks, summarise(t, b))
		}
		// Half of the blocks leave again. Some have a factor.
		for i := range len(blocks) * 3 / 2 {
			at, sign := i%len(blocks), 1.0
			if i >= len(blocks) {
				sign = -1
			}
			s, factor := blocks[at], math.Ldexp(sign, at%4)
			state.add(s, int64(sign), at%4)
			from, c := &s.classes[0], terms.classes[terms.class("a")]
			v := factor * from.weight
			c.rows += int64(sign) * from.rows
			c.weight.Add(0, v)
			c.shiftTerms(from, s.origin, v, factor, make([]exact.Factor, 4*n))
			probe := NewState(names)
			if probe.classes[probe.class("a")].shiftIntegers(from, s.origin, v, factor, make([]gridded, n)) {
				integers++
			} else {
				others++
			}
			if !bytes.Equal(state.AppendBinary(nil), terms.AppendBinary(nil)) {
				t.Fatalf("%s: after block %d the sums are not those of the terms", name, i)
			}
		}
		if state.Window() != terms.Window() {
			t.Errorf("%s: the window is %v, that of the terms %v", name, state.Window(), terms.Window())
		}
		if wide := name == "float64" || name == "extremes"; integers < 200 && !wide || others == 0 && wide {
			t.Errorf("%s: %d blocks were added as integers, %d were not", name, integers, others)
		}
	}
}

func TestIntegerOf(t *testing.T) {
	for _, c := range []struct {
		x      float64
		e      int
		hi, lo uint64
		ok     bool
	}{
		{0, 0, 0, 0, true},
		{5, 0, 0, 5, true},
		{-5, 0, math.MaxUint64, math.MaxUint64 - 4, true},
		{1, -64, 1, 0, true},
		{-1, -64, math.MaxUint64, 0, true},
		{1<<53 - 1, 0, 0, 1<<53 - 1, true},
		{1, -123, 1 << 59, 0, true},
		{1, -124, 0, 0, false},
		{0.5, 0, 0, 0, false},
		{6, 1, 0, 3, true},
		{6, 2, 0, 0, false},
	} {
		t.Run(fmt.Sprint(c.x, c.e), func(t *testing.T) {
			if hi, lo, ok := integerOf(c.x, c.e); hi != c.hi || lo != c.lo || ok != c.ok {
				t.Errorf("%x %x %v, want %x %x %v", hi, lo, ok, c.hi, c.lo, c.ok)
			}
		})
	}
}
