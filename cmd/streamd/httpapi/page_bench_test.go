package httpapi

import "testing"

// The cost of each view, for a model of many classes.
func BenchmarkPage(b *testing.B) {
	f := newFake()
	f.served.Model = wideModel(3000, 500)
	f.explain(3000)
	s := newServer(f)
	for _, view := range viewNames {
		b.Run(view, func(b *testing.B) {
			for b.Loop() {
				do(s, "GET", "/?view="+view, "")
			}
			b.ReportMetric(float64(do(s, "GET", "/?view="+view, "").Body.Len()), "bytes")
		})
	}
}
