package gram

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A sparse column has the elements, slices, sums and products of the dense one.
func TestSparseColumn(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, m := range []int{0, 1, 7, 8, 300, 2*TileRows + 3} {
		x := make([]float64, m)
		var at []int32
		var numbers []float64
		for i := range x {
			if r.IntN(4) == 0 {
				x[i] = r.NormFloat64()
				at, numbers = append(at, int32(i)), append(numbers, x[i])
			}
		}
		dense, sparse := ColumnOf(x), SparseColumn(m, at, numbers)
		for range 20 {
			from := r.IntN(m + 1)
			to := from + r.IntN(m-from+1)
			a, b := dense.Slice(from, to), sparse.Slice(from, to)
			if b.Len() != to-from || b.Kind() != Sparse || Largest(a, 0.5) != Largest(b, 0.5) {
				t.Fatalf("%d to %d of %d: %d elements, the largest %v and %v", from, to, m, b.Len(), Largest(a, 0.5), Largest(b, 0.5))
			}
			want, got := make([]float64, to-from), make([]float64, to-from)
			a.Copy(want, 0)
			b.Copy(got, 0)
			if !slices.Equal(got, want) {
				t.Fatalf("%d to %d of %d: %v, want %v", from, to, m, got, want)
			}
			for i := range want {
				if b.At(i) != want[i] {
					t.Fatalf("element %d of %d to %d is %v, want %v", i, from, to, b.At(i), want[i])
				}
			}
			places, values, ok := b.NonZero()
			for k, i := range places {
				want[i] -= values[k]
			}
			if !ok || slices.ContainsFunc(want, func(x float64) bool { return x != 0 }) {
				t.Fatalf("%d to %d of %d: other numbers are left: %v", from, to, m, want)
			}
		}
		if m == 0 {
			continue
		}
		codes, weights := make([]int32, m), make([]float64, m)
		for i := range codes {
			codes[i], weights[i] = int32(r.IntN(2)), float64(r.IntN(3))
		}
		mixed := func(c Column) []Column { return []Column{dense, c, ColumnOf(make([]float32, m)), c} }
		origin := []float64{0, 0.25, 0, -1}
		var want, got [2]Sums
		new(Kernel).Sum(want[:], mixed(dense), codes, weights, origin)
		new(Kernel).Sum(got[:], mixed(sparse), codes, weights, origin)
		for c := range want {
			if !slices.Equal(got[c].S, want[c].S) || !slices.Equal(got[c].Cross, want[c].Cross) {
				t.Errorf("%d rows: the sums of class %d differ", m, c)
			}
		}
		dots, others := make([]float64, 4), make([]float64, 4)
		AddDots(dots, mixed(dense), 0, nil, weights)
		AddDots(others, mixed(sparse), 0, nil, weights)
		if !slices.Equal(dots, others) {
			t.Errorf("%d rows: products %v, want %v", m, others, dots)
		}
	}
	if _, _, ok := ColumnOf([]float64{0, 1}).NonZero(); ok {
		t.Error("a dense column is sparse")
	}
	if _, ok := Values[float64](SparseColumn(2, nil, nil)); ok {
		t.Error("a sparse column lies in memory")
	}
	for _, at := range [][]int32{{2}, {-1}, {1, 1}, {1, 0}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v of two elements is a column", at)
				}
			}()
			SparseColumn(2, at, make([]float64, len(at)))
		}()
	}
}
