package kernels

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"streamd/incremental/gram"
)

// Rows of the matrix have the bits of the map of its points, and Times those of plain loops,
// for all variants, kernels and numbers of workers, and sizes around those of tiles.
func TestMatrixIsTheMapOfItsRows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	for _, size := range [][2]int{{1, 1}, {7, 3}, {256, 2}, {257, 5}, {130, 300}, {600, 40}} {
		m, n := size[0], size[1]
		points := make([]float64, m*n)
		columns := make([]gram.Column, n)
		for i := range points {
			points[i] = float64(float32(r.NormFloat64()))
		}
		for j := range columns {
			columns[j] = gram.StridedColumn(points, j, n, m)
		}
		w := make([]float64, m)
		for i := range w {
			if i%3 > 0 {
				w[i] = r.NormFloat64()
			}
		}
		for _, k := range []Kernel{Linear(), must(Gaussian(0.3)), must(Polynomial(0.5, 1, 3))} {
			basis, err := NewMap(k, n, points)
			if err != nil {
				t.Fatal(err)
			}
			want := NewMapper(basis).Map(columns)
			product := make([]float64, m)
			for j, wj := range w {
				for i := range product {
					if wj != 0 {
						product[i] += float64(wj * want[j].At(i))
					}
				}
			}
			for _, v := range variants {
				if v.missing != "" {
					t.Logf("%s: the processor lacks %s", v.name, v.missing)
					continue
				}
				for _, workers := range []int{1, 3} {
					a, err := NewMatrix(k, columns, workers)
					if err != nil {
						t.Fatal(err)
					}
					a.variant = v
					diagonal := a.Diagonal()
					var row []float64
					for i := range m {
						row = a.Row(row, i)
						for j, x := range row {
							if math.Float64bits(x) != math.Float64bits(want[i].At(j)) {
								t.Fatalf("%d×%d, %v, %s: K(%d, %d) is %v, not %v", m, n, k, v.name, i, j, x, want[i].At(j))
							}
						}
						if diagonal[i] != row[i] {
							t.Fatalf("%d×%d, %v: the diagonal has %v at %d, not %v", m, n, k, diagonal[i], i, row[i])
						}
					}
					times, err := a.Times(t.Context(), w)
					for i := range times {
						if math.Float64bits(times[i]) != math.Float64bits(product[i]) {
							t.Fatalf("%d×%d, %v, %s: (Kw)_%d is %v, not %v", m, n, k, v.name, i, times[i], product[i])
						}
					}
					if err != nil {
						t.Error(err)
					}
				}
			}
		}
	}
}

// Rows of few numbers that are not 0 are kept without the others, and have the bits of all.
func TestMatrixOfSparseRows(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 9))
	for _, size := range [][2]int{{1, 200}, {7, 300}, {256, 260}, {257, 200}, {600, 300}} {
		m, n := size[0], size[1]
		full, few := make([]gram.Column, n), make([]gram.Column, n)
		for j := range full {
			x := make([]float64, m)
			var at []int32
			var numbers []float64
			for i := range x {
				if r.IntN(30) == 0 && i%5 != 1 { // some rows are all 0
					x[i] = r.NormFloat64()
					at, numbers = append(at, int32(i)), append(numbers, x[i])
				}
			}
			full[j], few[j] = gram.ColumnOf(x), gram.SparseColumn(m, at, numbers)
			if j%100 == 50 {
				few[j] = full[j]
			}
		}
		if Sparse(full) || !Sparse(few) {
			t.Fatalf("%d×%d: dense columns are sparse, or sparse ones dense", m, n)
		}
		w := make([]float64, m)
		for i := range w {
			if i%3 > 0 {
				w[i] = r.NormFloat64()
			}
		}
		for _, k := range []Kernel{Linear(), must(Gaussian(0.3)), must(Polynomial(0.5, 1, 3)), must(Sigmoid(0.5, -0.1))} {
			for _, workers := range []int{1, 3} {
				of, err := NewMatrix(k, full, workers)
				if err != nil {
					t.Fatal(err)
				}
				a, err := NewMatrix(k, few, workers)
				if err != nil {
					t.Fatal(err)
				}
				same := func(what string, got, want []float64) {
					t.Helper()
					for i := range want {
						if len(got) != len(want) || math.Float64bits(got[i]) != math.Float64bits(want[i]) {
							t.Fatalf("%d×%d, %v: %s has %v at %d, not %v", m, n, k, what, got[i], i, want[i])
						}
					}
				}
				for i := range m {
					same("a row", a.Row(nil, i), of.Row(nil, i))
					same("a point", a.Point(i), of.Point(i))
				}
				same("the diagonal", a.Diagonal(), of.Diagonal())
				got, err := a.Times(t.Context(), w)
				if err != nil {
					t.Fatal(err)
				}
				want, err := of.Times(t.Context(), w)
				if err != nil {
					t.Fatal(err)
				}
				same("a product", got, want)
			}
		}
	}
}

func TestMatrixRefuses(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(1), 1e160} {
		if _, err := NewMatrix(Linear(), []gram.Column{gram.ColumnOf([]float64{0, x})}, 1); err == nil {
			t.Errorf("%v is not refused", x)
		}
		few := make([]gram.Column, 20)
		for j := range few {
			few[j] = gram.SparseColumn(3, nil, nil)
		}
		few[7] = gram.SparseColumn(3, []int32{2}, []float64{x})
		if _, err := NewMatrix(Linear(), few, 1); err == nil || !strings.Contains(err.Error(), "row 2") || x-x != 0 && !strings.Contains(err.Error(), "feature 7") {
			t.Errorf("%v in a sparse row: %v", x, err)
		}
	}
	a, err := NewMatrix(Linear(), []gram.Column{gram.ColumnOf([]float64{1, 2})}, 1)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Times(ended, []float64{1, 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error after the end of the context is %v", err)
	}
}
