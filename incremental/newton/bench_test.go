package newton

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// BenchmarkRefine measures whole refinements of float32 rows of two overlapping clouds,
// from the proximal plane to the minimum. The sizes range from one where the cost of a
// call dominates to that of a row sample.
func BenchmarkRefine(b *testing.B) {
	for _, size := range []struct{ m, n int }{{150, 4}, {1000, 20}, {20000, 32}, {32561, 123}} {
		r := rand.New(rand.NewPCG(1, 1))
		block := &incremental.Block{Classes: []string{"-1", "1"}, Codes: make([]int32, size.m)}
		for i := range block.Codes {
			block.Codes[i] = int32(i % 2)
		}
		for range size.n {
			v := make([]float32, size.m)
			for i := range v {
				v[i] = float32(r.NormFloat64()) + 3*float32(i%2)/float32(math.Sqrt(float64(size.n)))
			}
			block.Columns = append(block.Columns, gram.ColumnOf(v))
		}
		blocks := Blocks{block}
		model, with := proximal(b, blocks, incremental.Options{Nu: 2})
		for _, method := range []Method{Full, Line} {
			with.Method = method
			b.Run(fmt.Sprintf("m=%d/n=%d/%v", size.m, size.n, method), func(b *testing.B) {
				b.ReportAllocs()
				var passes int
				for b.Loop() {
					result, err := Refine(context.Background(), model, blocks, with)
					if err != nil {
						b.Fatal(err)
					}
					passes = result.Passes
				}
				b.ReportMetric(float64(passes), "passes")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(passes)/float64(size.m), "ns/row/pass")
			})
		}
	}
}
