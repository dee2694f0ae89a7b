package svm

import (
	"context"
	"fmt"
	"testing"

	"streamd/kernels"
)

// BenchmarkSMO learns 10,000 rows of 20 features: see the commit for LIBSVM's time.
func BenchmarkSMO(b *testing.B) {
	rows := ringnorm(1, 10_000, 20, true)
	kernel, _ := kernels.Gaussian(0.05)
	for _, nu := range []float64{1, 100} {
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("nu=%v/workers=%d", nu, workers), func(b *testing.B) {
				rows.Workers = workers
				for b.Loop() {
					p, err := SMO{Kernel: kernel, CacheBytes: 1 << 30}.Fit(context.Background(), rows, nu)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(p.Steps), "steps")
					b.ReportMetric(float64(p.SupportVectors()), "SV")
					b.ReportMetric(p.Objective, "objective")
				}
			})
		}
	}
}
