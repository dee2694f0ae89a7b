package incremental

import (
	"math"
	"testing"
)

// Angles are right at both ends, where arc cosines lose half of the digits, and for weights whose
// squares overflow or vanish.
func TestAngle(t *testing.T) {
	for _, degrees := range []float64{0, 1e-9, 1e-4, 30, 90, 135, 180 - 1e-6, 180} {
		sin, cos := math.Sincos(degrees * math.Pi / 180)
		for _, size := range []float64{1, 1e-200, 1e200} {
			p, q := Plane{W: []float64{size, 0}}, Plane{W: []float64{3 * cos, 3 * sin / 2}}
			if got := p.Angle(&q, []float64{1, 2}); math.Abs(got-degrees) > 1e-13*(1+degrees) {
				t.Errorf("%v degrees, size %g: %v", degrees, size, got)
			}
		}
	}
	if p := (&Plane{W: []float64{0, 0}}); !math.IsNaN(p.Angle(&Plane{W: []float64{1, 0}}, nil)) {
		t.Error("a zero normal has an angle")
	}
}
