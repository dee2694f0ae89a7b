package reproduce

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// The values are scipy 1.17.1's: scipy.stats.ttest_rel(a, b).pvalue.
func TestPairedT(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		want float64
	}{
		{
			[]float64{0.9, 0.8, 0.85, 0.95, 0.7, 0.75, 0.88, 0.92, 0.81, 0.79},
			[]float64{0.88, 0.82, 0.8, 0.9, 0.72, 0.7, 0.85, 0.91, 0.8, 0.75}, 0.02984963308863083,
		},
		{
			[]float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 0.9},
			[]float64{0.8, 0.9, 1, 0.9, 0.85, 0.9, 1, 0.95, 0.9, 1}, 0.029457853822895255,
		},
		{[]float64{0.1, 0.5}, []float64{0.2, 0.9}, 0.34404173924526144},
		{[]float64{3, 1, 4, 1, 5, 9, 2, 6, 5, 3}, []float64{2, 7, 1, 8, 2, 8, 1, 8, 2, 8}, 0.5337858366853893},
		{
			[]float64{0.97, 0.98, 0.96, 0.99, 0.97, 0.98, 0.96, 0.97, 0.98, 0.99},
			[]float64{0.85, 0.84, 0.86, 0.83, 0.85, 0.84, 0.85, 0.86, 0.83, 0.84}, 9.053225669112081e-09,
		},
		{[]float64{0.7, 0.8, 0.9}, []float64{0.7, 0.8, 0.9}, 1},
		{[]float64{0.8, 0.9, 1.0}, []float64{0.7, 0.8, 0.9}, 0}, // but for rounding, all differ by the same
	} {
		if got := pairedT(c.a, c.b); math.Abs(got-c.want) > 1e-12+1e-9*c.want {
			t.Errorf("%v and %v: p = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

func TestPairedTKnowsNoOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share := rapid.Float64Range(0, 1)
		a := rapid.SliceOfN(share, 2, 20).Draw(t, "a")
		b := rapid.SliceOfN(share, len(a), len(a)).Draw(t, "b")
		p := pairedT(a, b)
		if !(p >= 0 && p <= 1) {
			t.Fatalf("p = %v", p)
		}
		if q := pairedT(b, a); math.Abs(p-q) > 1e-9 {
			t.Fatalf("p = %v, turned round %v", p, q)
		}
	})
}
