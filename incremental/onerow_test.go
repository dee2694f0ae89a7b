package incremental

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"streamd/incremental/gram"
)

// A block of one row is looked at across its columns, and others along them: the window of its sums
// and the reason to refuse it are those of the row twice.
func TestOneRow(t *testing.T) {
	r := rand.New(rand.NewPCG(94, 1))
	odd := []float64{0, math.Copysign(0, -1), 1, math.NaN(), math.Inf(1), math.Inf(-1), 1e-300, 5e-324, 1e39, -3e38, 1.4e-45, 1e308}
	bad := 0
	for trial := range 3000 {
		n := []int{1, 2, 10, 256, 257, 600}[r.IntN(6)]
		var columns [2][]gram.Column
		for range n {
			x := r.NormFloat64() * math.Pow(2, float64(r.IntN(60)-30))
			if r.IntN(2*n) == 0 {
				x = odd[r.IntN(len(odd))]
			}
			kind := r.IntN(3)
			for twice := range columns {
				var c gram.Column
				switch {
				case kind == 0 && x == x && math.Abs(x) < 100:
					c = gram.ColumnOf([]int8{int8(x), int8(x)}[:twice+1])
				case kind == 1:
					c = gram.ColumnOf([]float32{float32(x), float32(x)}[:twice+1])
				default:
					c = gram.ColumnOf([]float64{x, x}[:twice+1])
				}
				columns[twice] = append(columns[twice], c)
			}
		}
		var weights []float64
		if trial%4 == 0 {
			weights = []float64{0.5, 0.5}
		}
		blockOf := func(rows int) *Block {
			b := &Block{Classes: []string{"a"}, Codes: make([]int32, rows), Columns: columns[rows-1]}
			if weights != nil {
				b.Weights = weights[:rows]
			}
			return b
		}
		one, two := blockOf(1), blockOf(2)
		got, want := one.FirstBadRow(), two.FirstBadRow()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("trial %d: %v, want %v", trial, got, want)
		}
		if want != nil {
			bad++
			continue
		}
		if got, want := one.Window(), two.Window(); got != want {
			t.Fatalf("trial %d: the window is %v, want %v", trial, got, want)
		}
	}
	if bad < 100 || bad > 2900 {
		t.Errorf("%d rows are refused", bad)
	}
}
