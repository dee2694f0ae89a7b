package gram

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"streamd/incremental/gram/guard"
)

// Columns begin or end beside unreadable memory, where reading one element too many is a
// fault.
func TestNothingBeyondAColumnIsRead(t *testing.T) {
	t.Run("float32", guarded[float32])
	t.Run("float64", guarded[float64])
	t.Run("int8", guarded[int8])
	t.Run("uint16", guarded[uint16])
}

func guarded[T Number](t *testing.T) {
	const n = 6
	r := rand.New(rand.NewPCG(11, 11))
	for _, m := range []int{1, 3, 8, 15, 16, 17, 31, 33, stretch - 1, stretch, stretch + 1, 2*stretch + 9} {
		for _, atEnd := range []bool{true, false} {
			columns := make([]Column, n)
			for j := range columns {
				v := guard.Memory[T](t, m)(m, atEnd)
				for i := range v {
					v[i] = T(r.IntN(100))
				}
				columns[j] = ColumnOf(v)
			}
			for _, k := range kernels(t) {
				k.variant.addProducts(make([]float64, m), columns, 0, nil, []float64{1, 2, 3, 4, 5, 6})
				k.variant.addDots(make([]float64, n), columns, 0, nil, slices.Repeat([]float64{1}, m))
			}
			for _, classes := range []int{1, 2, 3, maxTestedClasses} {
				codes := numbers[int32](r, m, func() float64 { return float64(r.IntN(classes)) })
				c := make([]float64, n)
				want := specification(classes, columns, codes, nil, c)
				for _, k := range kernels(t) {
					got := make([]Sums, classes)
					k.Sum(got, columns, codes, nil, c)
					same(t, fmt.Sprintf("%s m=%d classes=%d at the end: %t", k.variant.name, m, classes, atEnd), got, want)
				}
			}
		}
	}
}
