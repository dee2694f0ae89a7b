package model

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// The picked contributions are the first of all sorted ones, in every stretch of rows.
func TestContributions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "n")
		rows := rapid.IntRange(1, 600).Draw(t, "rows")
		planes := rapid.IntRange(1, 3).Draw(t, "planes")
		most := rapid.IntRange(1, n).Draw(t, "most")
		few := rapid.Float64Range(-3, 3)
		m := &incremental.Model{Features: make([]string, n), Mean: rapid.SliceOfN(few, n, n).Draw(t, "mean")}
		for range planes {
			m.Planes = append(m.Planes, incremental.Plane{W: rapid.SliceOfN(rapid.SampledFrom([]float64{-1, 0, 0.5, 1}), n, n).Draw(t, "w")})
		}
		columns := make([]gram.Column, n)
		for j := range columns {
			numbers := make([]float64, rows)
			some := rapid.SliceOfN(few, 1, 7).Draw(t, "column")
			for i := range numbers {
				numbers[i] = some[i%len(some)]
			}
			columns[j] = gram.ColumnOf(numbers)
		}
		s := NewContributions(m, columns, most)
		for i := range rows {
			for p := range m.Planes {
				order, values := s.Of(i, p)
				want := make([]int, n)
				for j := range want {
					want[j] = j
					if x := m.Planes[p].W[j] * (columns[j].At(i) - m.Mean[j]); values[j] != x {
						t.Fatalf("row %d, plane %d, feature %d: %v, want %v", i, p, j, values[j], x)
					}
				}
				if most < n {
					slices.SortStableFunc(want, func(a, b int) int { return cmp.Compare(math.Abs(values[b]), math.Abs(values[a])) })
				}
				if !slices.Equal(order, want[:most]) {
					t.Fatalf("row %d, plane %d: features %v, want %v of %v", i, p, order, want[:most], values)
				}
			}
		}
	})
}
