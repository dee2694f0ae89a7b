package reduce

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"streamd/kernels"
)

func normals(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	return x
}

// The value agrees with the expanded square, and the gradient with finite differences.
func TestApproximationAndItsGradient(t *testing.T) {
	polynomial, err := kernels.Polynomial(0.5, 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	sigmoid, err := kernels.Sigmoid(0.3, 0.1)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for _, k := range []kernels.Kernel{kernels.Linear(), gaussian(0.2), polynomial, sigmoid} {
		const n, s, points = 5, 6, 3
		c, u := normals(r, s*n), normals(r, s)
		a := newApproximation(k, n, c, u, points)
		v, g := normals(r, points+points*n), make([]float64, points+points*n)
		value := a.evaluate(v, g)

		all := append(append([]float64(nil), c...), a.z...)
		weights := append([]float64(nil), u...)
		for _, w := range a.w {
			weights = append(weights, -w)
		}
		square, norm := 0.0, 0.0
		for i, wi := range weights {
			for j, wj := range weights {
				term := wi * wj * k.Value(k.Argument(all[i*n:][:n], all[j*n:][:n]))
				square += term
				if i < s && j < s {
					norm += term
				}
			}
		}
		if want := square / norm; math.Abs(value-want) > 1e-12*(1+math.Abs(want)) {
			t.Errorf("%v: the value is %v, not %v", k, value, want)
		}
		const h = 1e-3
		scratch := make([]float64, len(v))
		for i := range v {
			at := func(step float64) float64 {
				moved := append([]float64(nil), v...)
				moved[i] += step
				return a.evaluate(moved, scratch)
			}
			numeric := (8*(at(h)-at(-h)) - (at(2*h) - at(-2*h))) / (12 * h)
			if math.Abs(numeric-g[i]) > 1e-7*(1+math.Abs(g[i])) {
				t.Errorf("%v: component %d of the gradient is %v, by differences %v", k, i, g[i], numeric)
			}
		}
	}
}

// Two points reproduce a term of two points that are far apart.
func TestApproximationFindsWhatIsThere(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	c := []float64{0, 0, 5, 0, 5.1, 0.1}
	u := []float64{2, -1, -1}
	a := newApproximation(gaussian(0.5), 2, c, u, 2)
	w, z := []float64{1, -1}, normals(r, 4)
	z[2] += 4
	d := a.solve(context.Background(), w, z, 1.25)
	if !d.converged || d.value > 1e-4 {
		t.Fatalf("w=%v z=%v: %+v", w, z, d)
	}
	if math.Abs(w[0]-2) > 0.02 || math.Abs(w[1]+2) > 0.02 || math.Abs(z[2]-5.05) > 0.02 {
		t.Errorf("w=%v z=%v", w, z)
	}
	// A box that is too small holds w at its bounds.
	w, z = []float64{1, -1}, []float64{0.1, 0.1, 4.5, 0.2}
	if d := a.solve(context.Background(), w, z, 0.5); !d.converged || w[0] != 1 || w[1] != -1 {
		t.Errorf("in the box: w=%v, %+v", w, d)
	}
}

// minimise finds the minimum of Rosenbrock's function, (1, 1), inside of the box, and the
// best point of the box otherwise.
func TestMinimise(t *testing.T) {
	inf := math.Inf(1)
	rosenbrock := func(x, g []float64) float64 {
		a, b := 1-x[0], x[1]-x[0]*x[0]
		g[0], g[1] = -2*a-400*b*x[0], 200*b
		return a*a + 100*b*b
	}
	for _, c := range []struct{ lo, hi, want [2]float64 }{
		{[2]float64{-inf, -inf}, [2]float64{inf, inf}, [2]float64{1, 1}},
		{[2]float64{-inf, -inf}, [2]float64{0.5, inf}, [2]float64{0.5, 0.25}},
		{[2]float64{-inf, -inf}, [2]float64{inf, -1}, [2]float64{0.004993, -1}},
		{[2]float64{1.5, -inf}, [2]float64{inf, inf}, [2]float64{1.5, 2.25}},
		{[2]float64{-2, -2}, [2]float64{-1, 0.5}, [2]float64{-1, 0.5}},
	} {
		x := []float64{-1.2, 1}
		d := minimise(context.Background(), rosenbrock, x, c.lo[:], c.hi[:], 1e-8, 0, 1000)
		if !d.converged || math.Abs(x[0]-c.want[0]) > 1e-4 || math.Abs(x[1]-c.want[1]) > 1e-4 {
			t.Errorf("in %v to %v it ends at %v, not %v: %+v", c.lo, c.hi, x, c.want, d)
		}
	}
	if d := minimise(context.Background(), rosenbrock, []float64{-1.2, 1}, []float64{-inf, -inf}, []float64{inf, inf}, 1e-8, 0, 3); d.converged {
		t.Errorf("three iterations: %+v", d)
	}
}

// The minimum of a convex quadratic in a box satisfies the optimality conditions.
func TestMinimiseQuadraticInABox(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	const n = 30
	b, target := normals(r, n*n), normals(r, n)
	f := func(x, g []float64) float64 { // ‖B(x − target)‖²/2
		value := 0.0
		clear(g)
		for i := range n {
			e := 0.0
			for j := range n {
				e += b[i*n+j] * (x[j] - target[j])
			}
			value += e * e / 2
			for j := range n {
				g[j] += e * b[i*n+j]
			}
		}
		return value
	}
	lo, hi, x, g := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range lo {
		lo[i], hi[i] = -0.5, 0.5
	}
	d := minimise(context.Background(), f, x, lo, hi, 1e-7, 0, 5000)
	f(x, g)
	held := 0
	for i := range x {
		atLo, atHi := x[i] == lo[i], x[i] == hi[i]
		if atLo || atHi {
			held++
		}
		if x[i] < lo[i] || x[i] > hi[i] || !atLo && !atHi && math.Abs(g[i]) > 1e-6 || atLo && g[i] < 0 || atHi && g[i] > 0 {
			t.Errorf("x[%d] = %v with gradient %v", i, x[i], g[i])
		}
	}
	if !d.converged || held == 0 || held == n {
		t.Errorf("%+v with %d at a bound", d, held)
	}
}
