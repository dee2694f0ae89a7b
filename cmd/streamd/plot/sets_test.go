package plot

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A place of the rectangle is inside the corners if and only if it meets the conditions.
func TestSetWithin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	var inside, empty int
	for range 300 {
		var s Set
		for range r.IntN(5) {
			s.Conditions = append(s.Conditions, [3]float64{r.NormFloat64(), r.NormFloat64(), r.NormFloat64()})
		}
		corners := s.within(-2, 3, -1, 2)
		if len(corners) == 0 {
			empty++
		}
		for range 50 {
			p := XY{X: -2 + 5*r.Float64(), Y: -1 + 3*r.Float64()}
			want := true
			for _, c := range s.Conditions {
				want = want && c[0]*p.X+c[1]*p.Y <= c[2]
			}
			got := len(corners) > 2
			for i, a := range corners { // they go around anticlockwise
				b := corners[(i+1)%len(corners)]
				got = got && (b.X-a.X)*(p.Y-a.Y)-(b.Y-a.Y)*(p.X-a.X) >= -1e-12
			}
			if got != want {
				t.Fatalf("%v: %v is inside: %v; corners %v", s.Conditions, p, got, corners)
			}
			if got {
				inside++
			}
		}
	}
	if inside == 0 || empty == 0 {
		t.Errorf("%d places inside, %d empty sets", inside, empty)
	}
	s := Set{Conditions: [][3]float64{{1, 0, 1}, {-1, 0, 0}, {0, 1, math.Inf(1)}}}
	if corners := s.within(-2, 3, -1, 2); len(corners) != 4 {
		t.Errorf("a strip: %v", corners)
	}
}
