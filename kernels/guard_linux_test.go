package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"streamd/incremental/gram/guard"
)

// The routines access only their rows, points and results, for every number of rows and
// points that their loops distinguish.
func TestNothingBeyondItsOperandsIsTouched(t *testing.T) {
	const most = 1000 // numbers of an operand, or more
	r := rand.New(rand.NewPCG(12, 12))
	out, tile, z := guard.Memory[float64](t, most), guard.Memory[float64](t, most), guard.Memory[float64](t, most)
	type sum = func(out []float64, stride int, tile []float64, pitch int, z []float64, n, rows int)
	sums := map[string]func(*variant) sum{
		"squares":  func(v *variant) sum { return v.squares },
		"products": func(v *variant) sum { return v.products },
	}
	variants := runnable(t)
	for _, n := range []int{1, 2, 3, 9} {
		for points := 1; points <= 9; points++ {
			for rows := lanes; rows <= 10*lanes; rows += lanes {
				numbers, basis := point(r, n*rows), point(r, points*n)
				for _, atEnd := range []bool{true, false} {
					x, y := tile(n*rows, atEnd), z(points*n, atEnd)
					copy(x, numbers)
					copy(y, basis)
					for name, routine := range sums {
						want := make([]float64, points*rows)
						routine(&reference)(want, rows, numbers, rows, basis, n, rows)
						for _, v := range variants {
							got := out(points*rows, atEnd)
							clear(got)
							routine(v)(got, rows, x, rows, y, n, rows)
							requireBits(t, fmt.Sprintf("%s of %s, n=%d t=%d m=%d, at the end %t", name, v.name, n, points, rows, atEnd), got, want)
						}
					}
				}
			}
		}
	}
	for count := lanes; count <= 20*lanes; count += lanes {
		numbers := make([]float64, count)
		for i := range numbers {
			numbers[i] = 10 * r.Float64()
		}
		want := append([]float64(nil), numbers...)
		reference.gaussian(want, 0.5)
		for _, atEnd := range []bool{true, false} {
			for _, v := range variants {
				got := tile(count, atEnd)
				copy(got, numbers)
				v.gaussian(got, 0.5)
				requireBits(t, fmt.Sprintf("exponentials of %s, %d of them", v.name, count), got, want)
			}
		}
	}
}

func requireBits(t *testing.T, what string, got, want []float64) {
	t.Helper()
	for i := range want {
		if math.Float64bits(got[i]) != math.Float64bits(want[i]) {
			t.Fatalf("%s: number %d is %v, not %v", what, i, got[i], want[i])
		}
	}
}
