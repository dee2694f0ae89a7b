package kernels

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	"streamd/incremental/gram"
)

// A scaled map and the map of scaled rows give the same bits.
func TestScaledIsTheMapOfScaledRows(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	for _, n := range []int{1, 3, 130} {
		mean, scale := point(r, n), make([]float64, n)
		for j := range scale {
			scale[j] = math.Exp(3 * r.NormFloat64())
		}
		for _, k := range everyKernel {
			m, err := NewMap(k, n, point(r, 5*n))
			if err != nil {
				t.Fatal(err)
			}
			scaled, err := m.Scaled(mean, scale)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range runnable(t) {
				columns := columnsOf(r, n, gram.TileRows+9)
				by := make([]gram.Column, n)
				for j, c := range columns {
					x := make([]float64, c.Len())
					for i := range x {
						x[i] = (c.At(i) - mean[j]) * (1 / scale[j])
					}
					by[j] = gram.ColumnOf(x)
				}
				got, want := NewMapper(scaled), NewMapper(m)
				got.variant, want.variant = v, v
				g, w := got.Map(columns), want.Map(by)
				for c := range w {
					for i := range w[c].Len() {
						if math.Float64bits(g[c].At(i)) != math.Float64bits(w[c].At(i)) {
							t.Fatalf("%s, %v, n=%d: row %d, point %d is %v, not %v", v.name, k, n, i, c, g[c].At(i), w[c].At(i))
						}
					}
				}
			}
		}
	}
}

func TestScalingsThatAreRefused(t *testing.T) {
	m, err := NewMap(Linear(), 2, []float64{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][2][]float64{
		{{0, 0}, {1}}, {{0}, {1, 1}}, {{0, 0}, {1, 0}}, {{0, 0}, {1, -1}}, {{0, 0}, {1, math.Inf(1)}},
		{{0, 0}, {1, math.NaN()}}, {{0, 0}, {1, 1e-310}}, {{0, math.NaN()}, {1, 1}}, {{0, math.Inf(1)}, {1, 1}},
	} {
		if _, err := m.Scaled(bad[0], bad[1]); err == nil || !strings.Contains(err.Error(), "basis: ") {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if mean, scale := m.Scaling(); mean != nil || scale != nil {
		t.Errorf("a map that is not scaled has %v, %v", mean, scale)
	}
}

// K(Z, Z) is the map of the points themselves. It has no negative eigenvalue if the kernel
// is semidefinite, and can have one otherwise.
func TestGram(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 2))
	const n, points = 2, 12
	for _, k := range append(everyKernel, must(Polynomial(0.5, 1, 3)), must(Polynomial(2, 0, 2)), must(Polynomial(1, -2, 3))) {
		z := point(r, points*n)
		m, err := NewMap(k, n, z)
		if err != nil {
			t.Fatal(err)
		}
		columns := make([]gram.Column, n)
		for j := range columns {
			columns[j] = gram.StridedColumn(z, j, n, points)
		}
		mapped, packed := NewMapper(m).Map(columns), m.Gram()
		matrix := mat.NewSymDense(points, nil)
		p := 0
		for i := range points {
			for j := range i + 1 {
				if packed[p] != mapped[j].At(i) {
					t.Fatalf("%v: entry %d, %d is %v, not %v", k, i, j, packed[p], mapped[j].At(i))
				}
				matrix.SetSym(i, j, packed[p])
				p++
			}
		}
		var eigen mat.EigenSym
		if !eigen.Factorize(matrix, false) {
			t.Fatal("no eigenvalues")
		}
		values := eigen.Values(nil)
		if negative := values[0] < -1e-12*values[points-1]; negative == k.Semidefinite() {
			t.Errorf("%v: semidefinite: %v, but the least eigenvalue is %g", k, k.Semidefinite(), values[0])
		}
	}
}
