package incremental

import (
	"math"
	"math/rand/v2"
	"testing"

	"streamd/incremental/gram"
)

// The windows of rows are those of blocks of one row.
func TestWindowsOfRows(t *testing.T) {
	r := rand.New(rand.NewPCG(45, 1))
	for range 200 {
		m := r.IntN(20)
		b := &Block{Classes: []string{"a"}, Codes: make([]int32, m)}
		codes, x, weights := make([]uint16, m), make([]float64, m), make([]float64, m)
		small := make([]int8, m)
		for i := range m {
			codes[i], small[i] = uint16(r.IntN(3)), int8(r.IntN(7)-3)
			x[i] = []float64{0, 1, -3, math.Ldexp(r.NormFloat64(), r.IntN(200)-100), 0x1p-149, math.Inf(1), math.NaN(), 5e-324}[r.IntN(8)]
			weights[i] = math.Ldexp(1, r.IntN(9)-4)
		}
		b.Columns = []gram.Column{gram.IndicatorColumn(codes, 0), gram.ColumnOf(x), gram.IndicatorColumn(codes, 1), gram.ColumnOf(small)}[r.IntN(3):]
		if r.IntN(2) == 0 {
			b.Weights = weights
		}
		got := b.Windows(nil)
		if len(got) != m {
			t.Fatalf("%d windows of %d rows", len(got), m)
		}
		for i, w := range got {
			if want := b.Slice(i, i+1).Window(); w != want {
				t.Fatalf("row %d has the window %v, not %v", i, w, want)
			}
		}
	}
}
