package ndc

import (
	"fmt"
	"testing"
)

// BenchmarkFill reports the time of one point on one core.
func BenchmarkFill(b *testing.B) {
	for _, n := range []int{2, 10, 32, 100} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			g, err := New(Config{Features: n, Seed: 1})
			if err != nil {
				b.Fatal(err)
			}
			const rows = 20_000
			s := g.NewSampler()
			columns, codes := buffers(n, rows)
			b.SetBytes(int64(4 * n * rows))
			b.ReportAllocs()
			for i := range int64(b.N) {
				s.Fill(columns, codes, Train, i*rows)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rows), "ns/point")
		})
	}
}

// BenchmarkNew reports the cost of finding an expansion factor.
func BenchmarkNew(b *testing.B) {
	for _, n := range []int{10, 100} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			for i := range b.N {
				if _, err := New(Config{Features: n, Separability: Hard, Seed: uint64(i)}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func buffers(n, rows int) (columns [][]float32, codes []int32) {
	columns = make([][]float32, n)
	for j := range columns {
		columns[j] = make([]float32, rows)
	}
	return columns, make([]int32, rows)
}
