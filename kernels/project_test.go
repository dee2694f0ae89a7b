package kernels

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	"streamd/incremental/gram"
)

// projected returns a map of n features, t points and s coordinates.
func projected(t testing.TB, r *rand.Rand, k Kernel, n, points, s int) *Map {
	t.Helper()
	m, err := NewMap(k, n, point(r, points*n))
	if err == nil {
		m, err = m.Projected(point(r, s*points))
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Every projected coordinate has the bits of that of one point, wherever the row is in a block
// and a tile, and is PK(Z, x).
func TestEveryVariantGivesTheProjectionsBits(t *testing.T) {
	r := rand.New(rand.NewPCG(71, 1))
	for _, n := range []int{1, 3, 130} {
		for _, size := range [][2]int{{1, 1}, {4, 1}, {9, 9}, {17, 5}, {40, 13}} {
			for _, k := range everyKernel {
				m := projected(t, r, k, n, size[0], size[1])
				plain, err := NewMap(k, n, m.z)
				if err != nil {
					t.Fatal(err)
				}
				p := mat.NewDense(size[1], size[0], slices.Clone(m.Projection()))
				for _, v := range runnable(t) {
					mapper := NewMapper(m)
					mapper.variant = v
					for _, rows := range []int{0, 1, 9, gram.TileRows, 2*gram.TileRows + 13} {
						columns := columnsOf(r, n, rows)
						got := mapper.Map(columns)
						if len(got) != size[1] || m.Size() != size[1] || len(m.Names()) != size[1] {
							t.Fatalf("%d of %d coordinates", len(got), size[1])
						}
						for i := range rows {
							x := rowOf(columns, i)
							want := m.At(x)
							var exact, magnitude mat.Dense
							kernel := mat.NewVecDense(size[0], plain.At(x))
							exact.Mul(p, kernel)
							magnitude.Mul(absolute(p), absolute(kernel))
							for c := range got {
								g := got[c].At(i)
								if math.Float64bits(g) != math.Float64bits(want[c]) {
									t.Fatalf("%s, %v, n=%d t=%d m=%d: row %d, coordinate %d is %v, not %v", v.name, k, n, size[0], rows, i, c, g, want[c])
								}
								if math.Abs(g-exact.At(c, 0)) > 1e-14*magnitude.At(c, 0)+smallest {
									t.Fatalf("%v: coordinate %d is %v, not %v", k, c, g, exact.At(c, 0))
								}
							}
						}
					}
				}
			}
		}
	}
}

func absolute(of mat.Matrix) mat.Matrix {
	var a mat.Dense
	a.Apply(func(_, _ int, x float64) float64 { return math.Abs(x) }, of)
	return &a
}

// Projected coordinates have these bits on every processor, because different processors sum
// rows of one model.
func TestProjectionsBitsOnEveryProcessor(t *testing.T) {
	r := rand.New(rand.NewPCG(91, 93))
	numbers := func(m int) []float64 {
		v := make([]float64, m)
		for i := range v {
			v[i] = 8*r.Float64() - 4
		}
		return v
	}
	h := sha256.New()
	for _, k := range everyKernel {
		m, err := NewMap(k, 3, numbers(3*11))
		if err == nil {
			m, err = m.Projected(numbers(5 * 11))
		}
		if err != nil {
			t.Fatal(err)
		}
		columns := []gram.Column{gram.ColumnOf(numbers(50)), gram.ColumnOf(numbers(50)), gram.ColumnOf(numbers(50))}
		for _, c := range NewMapper(m).Map(columns) {
			for i := range 50 {
				binary.Write(h, binary.LittleEndian, c.At(i))
			}
		}
	}
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != "751cfc1ee0f0c11911d3f71e6a606ee0ee2922f849c8c4fa26f30c0d8af5d394" {
		t.Errorf("SHA-256 %s", got)
	}
}

// The Gram matrix of a projected map is PK(Z, Z)P', and features are scaled before the kernel.
func TestProjectedGram(t *testing.T) {
	r := rand.New(rand.NewPCG(72, 1))
	for _, k := range everyKernel {
		m := projected(t, r, k, 3, 12, 5)
		plain, err := NewMap(k, 3, m.z)
		if err != nil {
			t.Fatal(err)
		}
		gramOf := func(m *Map) *mat.SymDense {
			packed, g := m.Gram(), mat.NewSymDense(m.Size(), nil)
			for i := range m.Size() {
				for j := range i + 1 {
					g.SetSym(i, j, packed[gram.PackedLen(i)+j])
				}
			}
			return g
		}
		p := mat.NewDense(5, 12, slices.Clone(m.projection))
		var want mat.Dense
		want.Product(p, gramOf(plain), p.T())
		if !mat.EqualApprox(gramOf(m), &want, 1e-12*mat.Norm(&want, 1)) {
			t.Errorf("%v: %v, not %v", k, mat.Formatted(gramOf(m)), mat.Formatted(&want))
		}

		scaled, err := m.Scaled([]float64{1, 2, 3}, []float64{0.5, 2, 4})
		if err != nil {
			t.Fatal(err)
		}
		raw, in := []float64{1.5, 6, -1}, []float64{1, 2, -1}
		var columns []gram.Column
		for j := range raw {
			columns = append(columns, gram.ColumnOf(raw[j:j+1]))
		}
		got := NewMapper(scaled).Map(columns)
		for c, want := range m.At(in) {
			if got[c].At(0) != want {
				t.Errorf("%v: scaled coordinate %d is %v, not %v", k, c, got[c].At(0), want)
			}
		}
	}
}

// A row that the kernel cannot take has no coordinates, and tiny coordinates that exact sums could
// not add are 0.
func TestProjectionOfUnusualNumbers(t *testing.T) {
	m, err := NewMap(Linear(), 1, []float64{1, 2})
	if err == nil {
		m, err = m.Projected([]float64{1e-20, 0, 1, -0.5})
	}
	if err != nil {
		t.Fatal(err)
	}
	got := NewMapper(m).Map([]gram.Column{gram.ColumnOf([]float64{1e-30, 1, math.NaN()})})
	for c, want := range [][]float64{{0, 1e-20, math.NaN()}, {0, 0, math.NaN()}} {
		for i := range want {
			if g := got[c].At(i); g != want[i] && !(math.IsNaN(g) && math.IsNaN(want[i])) {
				t.Errorf("row %d, coordinate %d is %v, not %v", i, c, g, want[i])
			}
		}
	}
}

func TestProjectionsThatAreRefused(t *testing.T) {
	m, err := NewMap(Linear(), 1, []float64{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		projection []float64
		want       string
	}{
		{nil, "0 numbers"}, {[]float64{1}, "1 numbers"}, {[]float64{1, 2, 3}, "3 numbers"}, {make([]float64, 6), "6 numbers"},
		{[]float64{1, 2, 3, math.Inf(1)}, "coordinate 2 takes +Inf times point 2"},
	} {
		if m, err := m.Projected(c.projection); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %+v, %v", c.projection, m, err)
		}
	}
}
