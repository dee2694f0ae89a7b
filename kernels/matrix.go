package kernels

import (
	"context"
	"fmt"
	"math"
	"slices"

	"streamd/incremental/gram"
	"streamd/incremental/parallel"
)

// A Matrix is K(A, A) for m rows A, too large to be stored: its rows are computed when they
// are asked for. Its values are those of the map of A, bit for bit.
//
// A Matrix keeps the rows as m·n float64. It is immutable and may be shared.
type Matrix struct {
	kernel  Kernel
	m, n    int
	height  int // rows of a tile, a multiple of lanes
	tiles   []float64
	variant *variant
	workers int
}

// parallelWork is the least number of multiply-adds for which another goroutine pays.
const parallelWork = 1 << 17

// NewMatrix returns K(A, A) of the rows of n ≥ 1 columns. Methods use up to workers
// goroutines. It fails when a number is not finite, or a row is too large to be squared. The
// columns are copied.
func NewMatrix(k Kernel, columns []gram.Column, workers int) (*Matrix, error) {
	n := len(columns)
	a := &Matrix{kernel: k, m: columns[0].Len(), n: n, variant: fastest, workers: workers}
	a.height = min(gram.TileRows, max(tileSize/n/lanes*lanes, lanes))
	count := (a.m + a.height - 1) / a.height
	a.tiles = make([]float64, count*n*a.pitch())
	for j, c := range columns {
		if c.Len() != a.m {
			panic(fmt.Sprintf("kernels: column %d has %d of %d rows", j, c.Len(), a.m))
		}
		for t := range count {
			from := t * a.height
			c.Copy(a.tiles[(t*n+j)*a.pitch():][:min(a.height, a.m-from)], from)
		}
	}
	x := make([]float64, n)
	for i := range a.m {
		var squares float64
		for j, v := range a.point(x, i) {
			if v-v != 0 {
				return nil, fmt.Errorf("row %d: feature %d is %v", i, j, v)
			}
			squares += float64(v * v)
		}
		if math.IsInf(squares, 0) {
			return nil, fmt.Errorf("row %d is too large to be squared", i)
		}
	}
	return a, nil
}

// pitch is the distance between the columns of a tile. It is no power of two, which would put
// all columns into the same cache sets.
func (a *Matrix) pitch() int { return a.height + lanes }

// Rows is m.
func (a *Matrix) Rows() int { return a.m }

// point writes row i of A to x.
func (a *Matrix) point(x []float64, i int) []float64 {
	tile := a.tiles[i/a.height*a.n*a.pitch()+i%a.height:]
	for j := range x {
		x[j] = tile[j*a.pitch()]
	}
	return x
}

// values computes K between the rows of tile t, rounded up to a multiple of lanes, and points
// of n numbers each. The values of a point are a.height numbers apart from the next one's.
func (a *Matrix) values(out []float64, t int, points []float64) (rows int) {
	rows = min(a.height, a.m-t*a.height)
	padded := (rows + lanes - 1) / lanes * lanes
	sum := a.variant.products
	if a.kernel.Radial() {
		sum = a.variant.squares
	}
	sum(out, a.height, a.tiles[t*a.n*a.pitch():], a.pitch(), points, a.n, padded)
	for p := range len(points) / a.n {
		v := out[p*a.height:][:padded]
		if a.kernel.form == gaussian {
			a.variant.gaussian(v, a.kernel.a)
			continue
		}
		for r, s := range v {
			v[r] = a.kernel.Value(s)
		}
	}
	return rows
}

// Diagonal returns K(x_i, x_i) for each row.
func (a *Matrix) Diagonal() []float64 {
	diagonal, x := make([]float64, a.m), make([]float64, a.n)
	for i := range diagonal {
		a.point(x, i)
		diagonal[i] = a.kernel.Value(a.kernel.Argument(x, x))
	}
	return diagonal
}

// Row returns row i of K(A, A), m numbers. It uses the memory of out if that has Stride.
func (a *Matrix) Row(out []float64, i int) []float64 {
	out = slices.Grow(out[:0], a.Stride())[:a.Stride()]
	x := a.point(make([]float64, a.n), i)
	a.each(a.m*a.n, func(t int) { a.values(out[t*a.height:], t, x) })
	return out[:a.m]
}

// Stride is the capacity that Row needs: m, rounded up.
func (a *Matrix) Stride() int { return (a.m + lanes - 1) / lanes * lanes }

// each calls do for all tiles, in parallel if there is enough work for it.
func (a *Matrix) each(work int, do func(t int)) {
	_ = parallel.For(max(1, min(a.workers, work/parallelWork)), len(a.tiles)/(a.n*a.pitch()), func(t int) error {
		do(t)
		return nil
	})
}

// Times returns K(A, A)w, summed in the order of the rows. Rows with w_j = 0 are skipped. It
// returns the context's cause when ctx ends.
func (a *Matrix) Times(ctx context.Context, w []float64) ([]float64, error) {
	if len(w) != a.m {
		panic(fmt.Sprintf("kernels: %d coefficients of %d rows", len(w), a.m))
	}
	const batch = 64 // points whose values with a tile stay in the second-level cache
	out := make([]float64, a.m)
	points, coefficients := make([]float64, 0, batch*a.n), make([]float64, 0, batch)
	x := make([]float64, a.n)
	for i, wi := range w {
		if wi != 0 {
			points, coefficients = append(points, a.point(x, i)...), append(coefficients, wi)
		}
		if len(coefficients) == 0 || len(coefficients) < batch && i < a.m-1 {
			continue
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		a.each(len(points)*a.m, func(t int) {
			buffer := make([]float64, len(coefficients)*a.height)
			rows := a.values(buffer, t, points)
			to := out[t*a.height:][:rows]
			for p, wp := range coefficients {
				for r, v := range buffer[p*a.height:][:rows] {
					to[r] += float64(wp * v)
				}
			}
		})
		points, coefficients = points[:0], coefficients[:0]
	}
	return out, nil
}

// Point returns a copy of row i of A.
func (a *Matrix) Point(i int) []float64 { return a.point(make([]float64, a.n), i) }
