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
// A Matrix keeps the rows as m·n float64, or, where few numbers are not 0, these with their places.
// It is immutable and may be shared.
type Matrix struct {
	kernel  Kernel
	m, n    int
	height  int         // rows of a tile, a multiple of lanes
	tiles   []float64   // none where rows are sparse
	sparse  *sparseRows // nil where they are not
	variant *variant
	workers int
}

const (
	// parallelWork is the least number of multiply-adds for which another goroutine pays.
	parallelWork = 1 << 17
	// SparseShare is the least number of numbers to one that is not 0, for which a Matrix keeps the
	// latter alone. Of fewer, whole rows take less time.
	SparseShare = 16
)

// Sparse says whether a Matrix of the rows of some columns keeps the numbers that are not 0 alone.
// Columns that are not of kind gram.Sparse count as numbers that are not 0.
func Sparse(columns []gram.Column) bool {
	m, used := int64(columns[0].Len()), int64(0)
	for _, c := range columns {
		if at, _, ok := c.NonZero(); ok {
			used += int64(len(at))
		} else {
			used += m
		}
	}
	return used*SparseShare <= m*int64(len(columns))
}

// NewMatrix returns K(A, A) of the rows of n ≥ 1 columns. Methods use up to workers
// goroutines. It fails when a number is not finite, or a row is too large to be squared. The
// columns are copied.
func NewMatrix(k Kernel, columns []gram.Column, workers int) (*Matrix, error) {
	n := len(columns)
	a := &Matrix{kernel: k, m: columns[0].Len(), n: n, variant: fastest, workers: workers}
	for j, c := range columns {
		if c.Len() != a.m {
			panic(fmt.Sprintf("kernels: column %d has %d of %d rows", j, c.Len(), a.m))
		}
	}
	if Sparse(columns) {
		a.height, a.sparse = gram.TileRows, newSparseRows(columns)
		return a, a.check()
	}
	a.height = min(gram.TileRows, max(tileSize/n/lanes*lanes, lanes))
	count := (a.m + a.height - 1) / a.height
	a.tiles = make([]float64, count*n*a.pitch())
	for j, c := range columns {
		for t := range count {
			from := t * a.height
			c.Copy(a.tiles[(t*n+j)*a.pitch():][:min(a.height, a.m-from)], from)
		}
	}
	return a, a.check()
}

// check refuses rows that have no kernel.
func (a *Matrix) check() error {
	x := make([]float64, a.n)
	for i := range a.m {
		at, numbers := a.numbers(x, i)
		var squares float64
		for k, v := range numbers {
			if v-v != 0 {
				if at != nil {
					k = int(at[k])
				}
				return fmt.Errorf("row %d: feature %d is %v", i, k, v)
			}
			squares += float64(v * v)
		}
		if math.IsInf(squares, 0) {
			return fmt.Errorf("row %d is too large to be squared", i)
		}
	}
	return nil
}

// numbers returns the numbers of row i that are kept, and their places, nil for all. It may use x,
// n numbers.
func (a *Matrix) numbers(x []float64, i int) (at []int32, numbers []float64) {
	if a.sparse != nil {
		return a.sparse.row(i)
	}
	return nil, a.point(x, i)
}

// pitch is the distance between the columns of a tile. It is no power of two, which would put
// all columns into the same cache sets.
func (a *Matrix) pitch() int { return a.height + lanes }

// Rows is m.
func (a *Matrix) Rows() int { return a.m }

// point writes row i of A to x.
func (a *Matrix) point(x []float64, i int) []float64 {
	if a.sparse != nil {
		return a.sparse.point(x, i)
	}
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
		_, numbers := a.numbers(x, i)
		diagonal[i] = a.kernel.Value(a.kernel.Argument(numbers, numbers))
	}
	return diagonal
}

// Row returns row i of K(A, A), m numbers. It uses the memory of out if that has Stride.
func (a *Matrix) Row(out []float64, i int) []float64 {
	out = slices.Grow(out[:0], a.Stride())[:a.Stride()]
	x := a.point(make([]float64, a.n), i)
	if a.sparse != nil {
		a.each(len(a.sparse.x), func(t int) {
			from := t * a.height
			a.sparse.values(out[from:min(from+a.height, a.m)], from, a.kernel, i, x)
		})
		return out[:a.m]
	}
	a.each(a.m*a.n, func(t int) { a.values(out[t*a.height:], t, x) })
	return out[:a.m]
}

// Stride is the capacity that Row needs: m, rounded up.
func (a *Matrix) Stride() int { return (a.m + lanes - 1) / lanes * lanes }

// each calls do for all tiles, in parallel if there is enough work for it.
func (a *Matrix) each(work int, do func(t int)) {
	_ = parallel.For(max(1, min(a.workers, work/parallelWork)), (a.m+a.height-1)/a.height, func(t int) error {
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
	if a.sparse != nil {
		return a.sparseTimes(ctx, w)
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

// sparseTimes is Times of rows that are sparse.
func (a *Matrix) sparseTimes(ctx context.Context, w []float64) ([]float64, error) {
	out := make([]float64, a.m)
	var row []float64
	for i, wi := range w {
		if wi == 0 {
			continue
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		row = a.Row(row, i)
		for r, v := range row {
			out[r] += float64(wi * v)
		}
	}
	return out, nil
}

// sparseRows are the numbers of rows that are not 0, row by row.
type sparseRows struct {
	begin []int // of row i, and the end of the last
	at    []int32
	x     []float64
}

func newSparseRows(columns []gram.Column) *sparseRows {
	s := &sparseRows{begin: make([]int, columns[0].Len()+1)}
	each := func(do func(row, j int, x float64)) {
		for j, c := range columns {
			if at, x, ok := c.NonZero(); ok {
				for k, row := range at {
					do(int(row), j, x[k])
				}
				continue
			}
			for row := range c.Len() {
				if x := c.At(row); x != 0 {
					do(row, j, x)
				}
			}
		}
	}
	each(func(row, _ int, _ float64) { s.begin[row+1]++ })
	for row := range len(s.begin) - 1 {
		s.begin[row+1] += s.begin[row]
	}
	used := s.begin[len(s.begin)-1]
	s.at, s.x = make([]int32, used), make([]float64, used)
	next := slices.Clone(s.begin)
	each(func(row, j int, x float64) {
		s.at[next[row]], s.x[next[row]] = int32(j), x
		next[row]++
	})
	return s
}

// row returns the numbers of a row that are not 0, and their places, ascending.
func (s *sparseRows) row(i int) (at []int32, x []float64) {
	from, to := s.begin[i], s.begin[i+1]
	return s.at[from:to], s.x[from:to]
}

// point writes row i to x.
func (s *sparseRows) point(x []float64, i int) []float64 {
	clear(x)
	at, numbers := s.row(i)
	for k, j := range at {
		x[j] = numbers[k]
	}
	return x
}

// values computes K between rows from one on and row i, which is z. Numbers are taken in the order
// of Kernel.Argument. Those that it leaves out change no sum.
func (s *sparseRows) values(out []float64, from int, kernel Kernel, i int, z []float64) {
	zAt, zX := s.row(i)
	for r := range out {
		at, x := s.row(from + r)
		var sum float64
		if kernel.Radial() {
			sum = distance(at, x, zAt, zX)
		} else {
			for k, j := range at {
				sum = math.FMA(x[k], z[j], sum)
			}
		}
		out[r] = kernel.Value(sum)
	}
}

// distance is ‖x−z‖² of sparse rows.
func distance(at []int32, x []float64, zAt []int32, z []float64) (sum float64) {
	k := 0
	for l, j := range zAt {
		for ; k < len(at) && at[k] < j; k++ {
			sum = math.FMA(x[k], x[k], sum)
		}
		d := z[l]
		if k < len(at) && at[k] == j {
			d -= x[k]
			k++
		}
		sum = math.FMA(d, d, sum)
	}
	for ; k < len(at); k++ {
		sum = math.FMA(x[k], x[k], sum)
	}
	return sum
}
