package svm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"streamd/incremental/gram"
)

// BenchmarkHinge fits 100,000 rows of 100 features, of which a quarter is on the wrong side. With
// one worker it can be compared with LIBLINEAR -s 3 -B -1 on rows with a column of −1 for γ,
// which LIBLINEAR regularises.
func BenchmarkHinge(b *testing.B) {
	rows := overlapping(100_000, 100)
	for _, nu := range []float64{0.01, 1} {
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("nu=%v/workers=%d", nu, workers), func(b *testing.B) {
				rows.Workers = workers
				for b.Loop() {
					p, err := Hinge{}.Fit(b.Context(), rows, nu)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(p.Objective, "objective")
					b.ReportMetric(float64(p.Steps), "steps")
				}
			})
		}
	}
}

// overlapping returns rows whose classes a plane divides, up to noise that is as large as the
// distance of a usual row.
func overlapping(m, n int) *Rows {
	r := rand.New(rand.NewPCG(24, 1))
	rows, value := &Rows{D: make([]float64, m)}, make([]float64, m)
	for range n {
		column, w := make([]float64, m), r.NormFloat64()
		for i := range column {
			column[i] = r.NormFloat64()
			value[i] += w * column[i]
		}
		rows.Columns = append(rows.Columns, gram.ColumnOf(column))
	}
	for i := range rows.D {
		if rows.D[i] = 1; value[i]+10*r.NormFloat64() < 1 {
			rows.D[i] = -1
		}
	}
	return rows
}
