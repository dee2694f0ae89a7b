package lp

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"streamd/incremental/gram"
)

const (
	// maxChunks bounds the memory of the partial sums, of t²/2 numbers a chunk.
	maxChunks = 16
	// chunkRows is the unit of a chunk: below some multiple of it, starting a
	// goroutine costs more than it gains. It is a multiple of gram's tile.
	chunkRows = 1024
	// tileRows is the number of rows that a product with a vector does at a
	// time, so that the sums stay in the first-level cache.
	tileRows = 512
)

// A matrix is A, the terms' rows a_k in scaled coordinates: m dense ones
// d_i[K_i, −1, 0] first, then n unit rows, then the sparse rows of the program.
//
// Rows are dealt in chunks whose bounds depend on m alone, and whatever is
// summed over rows is summed by chunk and then over the chunks in order, so
// that no bit depends on the number of workers.
type matrix struct {
	columns []gram.Column
	f32     []plain[float32]
	f64     []plain[float64]
	other   []int // columns of other types, or whose numbers are not adjacent
	d       []float64
	scale   []float64 // n: scaled x_j = x_j·scale_j; powers of two
	sparse  [][]Term
	m, n, t int

	bounds  []int // chunk c is rows bounds[c] to bounds[c+1]
	workers int
	part    []partial
	codes   []int32
	dh      []float64 // d∘h, the right-hand side that the Gram matrix carries
}

type plain[T float32 | float64] struct {
	j int
	v []T
}

// partial is the working memory of a chunk.
type partial struct {
	kernel  gram.Kernel
	columns []gram.Column // the chunk of K and of d∘h
	sums    [1]gram.Sums
	vector  []float64 // n
	tile    []float64
	signed  []float64
}

func newMatrix(columns []gram.Column, d []float64, n int, sparse [][]Term, workers int) (*matrix, error) {
	a := &matrix{columns: columns, d: d, sparse: sparse, m: len(d), n: n, t: len(columns), workers: workers}
	for j, c := range columns {
		if v, ok := gram.Values[float32](c); ok {
			a.f32 = append(a.f32, plain[float32]{j, v})
		} else if v, ok := gram.Values[float64](c); ok {
			a.f64 = append(a.f64, plain[float64]{j, v})
		} else {
			a.other = append(a.other, j)
		}
	}
	chunks := min(max(a.m/chunkRows, 1), maxChunks)
	a.bounds = []int{0}
	for c := 1; c < chunks; c++ {
		a.bounds = append(a.bounds, a.m/chunkRows*c/chunks*chunkRows)
	}
	a.bounds = append(a.bounds, a.m)
	a.part = make([]partial, chunks)
	a.dh = make([]float64, a.m)
	most := 0
	for c := range a.part {
		p := &a.part[c]
		from, to := a.bounds[c], a.bounds[c+1]
		most = max(most, to-from)
		p.vector = make([]float64, n)
		p.tile = make([]float64, tileRows)
		p.signed = make([]float64, tileRows)
		for _, column := range columns {
			p.columns = append(p.columns, column.Slice(from, to))
		}
		p.columns = append(p.columns, gram.ColumnOf(a.dh[from:to]))
	}
	a.codes = make([]int32, most)
	return a, a.setScale()
}

// setScale makes the greatest number of each scaled column lie in (1/2, 1].
func (a *matrix) setScale() error {
	largest := make([]float64, a.n)
	bad := make([]int, a.t) // 1 + the first row that is not finite
	a.over(a.t, func(j int) {
		var top float64
		tile := make([]float64, tileRows)
		for from := 0; from < a.m; from += tileRows {
			v := tile[:min(tileRows, a.m-from)]
			a.columns[j].Copy(v, from)
			for r, x := range v {
				if !(math.Abs(x) <= math.MaxFloat64) {
					bad[j] = 1 + from + r
					return
				}
				top = max(top, math.Abs(x))
			}
		}
		largest[j] = top
	})
	for j, row := range bad {
		if row > 0 {
			return fmt.Errorf("lp: column %d: row %d is %v", j, row-1, a.columns[j].At(row-1))
		}
	}
	if a.m > 0 {
		largest[a.t] = 1
	}
	for _, row := range a.sparse {
		for _, term := range row {
			largest[term.Variable] = max(largest[term.Variable], math.Abs(term.Value))
		}
	}
	a.scale = make([]float64, a.n)
	for j, top := range largest {
		a.scale[j] = 1
		if top > 0 {
			_, exponent := math.Frexp(top)
			a.scale[j] = math.Ldexp(1, min(max(exponent, -1000), 1000))
		}
	}
	for k, row := range a.sparse {
		scaled := make([]Term, len(row))
		for i, term := range row {
			scaled[i] = Term{term.Variable, term.Value / a.scale[term.Variable]}
		}
		a.sparse[k] = scaled
	}
	return nil
}

// over calls do for 0 to count−1, by as many goroutines as there are workers.
func (a *matrix) over(count int, do func(int)) {
	workers := min(a.workers, count)
	if workers <= 1 {
		for i := range count {
			do(i)
		}
		return
	}
	var next atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	group.Wait()
}

// terms is the number of rows of A.
func (a *matrix) terms() int { return a.m + a.n + len(a.sparse) }

// ranges is the number of pieces into which the terms fall: the chunks of the
// dense ones, and one of the others.
func (a *matrix) ranges() int { return len(a.part) + 1 }

func (a *matrix) rangeOf(c int) (from, to int) {
	if c < len(a.part) {
		return a.bounds[c], a.bounds[c+1]
	}
	return a.m, a.terms()
}

// mul writes the terms of range c of Ax to out.
func (a *matrix) mul(out []float64, c int, x []float64) {
	if c == len(a.part) {
		copy(out[a.m:], x)
		for k, row := range a.sparse {
			out[a.m+a.n+k] = dotSparse(row, x)
		}
		return
	}
	p := &a.part[c]
	y := p.vector
	for j := range a.t {
		y[j] = x[j] / a.scale[j]
	}
	gamma := x[a.t] / a.scale[a.t]
	from, to := a.rangeOf(c)
	for ; from < to; from += tileRows {
		z := out[from:min(from+tileRows, to)]
		for r := range z {
			z[r] = -gamma
		}
		addColumns(z, a.f32, from, y)
		addColumns(z, a.f64, from, y)
		for _, j := range a.other {
			if y[j] != 0 {
				a.columns[j].Copy(p.tile[:len(z)], from)
				addColumns(z, []plain[float64]{{j, p.tile}}, 0, y)
			}
		}
		for r, d := range a.d[from : from+len(z)] {
			z[r] *= d
		}
	}
}

// addColumns adds Σ_j y_j·column_j to z, for the rows of the columns from the
// given one on.
func addColumns[T float32 | float64](z []float64, columns []plain[T], from int, y []float64) {
	var four [4]plain[T]
	held := 0
	for _, c := range columns {
		if y[c.j] == 0 {
			continue
		}
		four[held] = plain[T]{c.j, c.v[from : from+len(z)]}
		if held++; held == 4 {
			addFour(z, four[0].v, four[1].v, four[2].v, four[3].v, y[four[0].j], y[four[1].j], y[four[2].j], y[four[3].j])
			held = 0
		}
	}
	for _, c := range four[:held] {
		v, w := c.v[:len(z)], y[c.j]
		for r := range z {
			z[r] += float64(w * float64(v[r]))
		}
	}
}

func addFour[T float32 | float64](z []float64, v0, v1, v2, v3 []T, y0, y1, y2, y3 float64) {
	v0, v1, v2, v3 = v0[:len(z)], v1[:len(z)], v2[:len(z)], v3[:len(z)]
	for r := range z {
		z[r] += (float64(y0*float64(v0[r])) + float64(y1*float64(v1[r]))) +
			(float64(y2*float64(v2[r])) + float64(y3*float64(v3[r])))
	}
}

// mulTransposed returns A'y.
func (a *matrix) mulTransposed(out, y []float64) {
	a.over(len(a.part), func(c int) { a.transposedPart(c, y) })
	a.sumParts(out, y)
}

// transposedPart puts the share of chunk c of A'y, unscaled, into its vector.
func (a *matrix) transposedPart(c int, y []float64) {
	p := &a.part[c]
	clear(p.vector)
	from, to := a.rangeOf(c)
	for ; from < to; from += tileRows {
		z := p.signed[:min(tileRows, to-from)]
		any := false
		for r, d := range a.d[from : from+len(z)] {
			z[r] = d * y[from+r]
			any = any || z[r] != 0
		}
		if !any {
			continue
		}
		addDots(p.vector, a.f32, from, z)
		addDots(p.vector, a.f64, from, z)
		for _, j := range a.other {
			a.columns[j].Copy(p.tile[:len(z)], from)
			addDots(p.vector, []plain[float64]{{j, p.tile}}, 0, z)
		}
		var sum float64
		for _, v := range z {
			sum += v
		}
		p.vector[a.t] -= sum
	}
}

// sumParts adds up the chunks' vectors, and the sparse terms.
func (a *matrix) sumParts(out, y []float64) {
	clear(out)
	for c := range a.part {
		for j, v := range a.part[c].vector {
			out[j] += v
		}
	}
	for j := range out {
		out[j] = out[j]/a.scale[j] + y[a.m+j]
	}
	for k, row := range a.sparse {
		addSparse(out, row, y[a.m+a.n+k])
	}
}

func addDots[T float32 | float64](sums []float64, columns []plain[T], from int, z []float64) {
	i := 0
	for ; i+2 <= len(columns); i += 2 {
		c0, c1 := columns[i], columns[i+1]
		s0, s1 := dotTwo(c0.v[from:from+len(z)], c1.v[from:from+len(z)], z)
		sums[c0.j] += s0
		sums[c1.j] += s1
	}
	if i < len(columns) {
		v := columns[i].v[from : from+len(z)]
		s, _ := dotTwo(v, v, z)
		sums[columns[i].j] += s
	}
}

// dotTwo is two dot products at once, of four partial sums each.
func dotTwo[T float32 | float64](v, w []T, z []float64) (a, b float64) {
	var a0, a1, a2, a3, b0, b1, b2, b3 float64
	for len(z) >= 4 && len(v) >= 4 && len(w) >= 4 {
		a0 += float64(float64(v[0]) * z[0])
		a1 += float64(float64(v[1]) * z[1])
		a2 += float64(float64(v[2]) * z[2])
		a3 += float64(float64(v[3]) * z[3])
		b0 += float64(float64(w[0]) * z[0])
		b1 += float64(float64(w[1]) * z[1])
		b2 += float64(float64(w[2]) * z[2])
		b3 += float64(float64(w[3]) * z[3])
		z, v, w = z[4:], v[4:], w[4:]
	}
	for r := range z {
		a0 += float64(float64(v[r]) * z[r])
		b0 += float64(float64(w[r]) * z[r])
	}
	return (a0 + a1) + (a2 + a3), (b0 + b1) + (b2 + b3)
}

// normal writes A'ΘA to product, a packed lower triangle, and A'Θh to rhs.
func (a *matrix) normal(product, rhs, theta, h []float64) {
	a.over(len(a.part), func(c int) {
		p := &a.part[c]
		from, to := a.rangeOf(c)
		for i := from; i < to; i++ {
			a.dh[i] = a.d[i] * h[i]
		}
		p.sums[0] = gram.Sums{}
		if from < to {
			p.kernel.Sum(p.sums[:], p.columns, a.codes[:to-from], theta[from:to], make([]float64, len(p.columns)))
		}
	})
	clear(product)
	clear(rhs)
	t := a.t
	gamma := product[gram.PackedLen(t):]
	for c := range a.part {
		sum := &a.part[c].sums[0]
		if sum.Rows == 0 {
			continue
		}
		for i, v := range sum.Cross[:gram.PackedLen(t)] {
			product[i] += v
		}
		for j := range t {
			gamma[j] -= sum.S[j]
			rhs[j] += sum.Cross[gram.PackedLen(t)+j]
		}
		gamma[t] += sum.Weight
		rhs[t] -= sum.S[t]
	}
	for j := range a.n {
		row := product[gram.PackedLen(j):]
		for k := range j + 1 {
			row[k] /= a.scale[j] * a.scale[k]
		}
		row[j] += theta[a.m+j]
		rhs[j] = rhs[j]/a.scale[j] + float64(theta[a.m+j]*h[a.m+j])
	}
	for k, row := range a.sparse {
		w := theta[a.m+a.n+k]
		for _, left := range row {
			for _, right := range row {
				if right.Variable <= left.Variable {
					product[gram.PackedLen(left.Variable)+right.Variable] += w * left.Value * right.Value
				}
			}
		}
		addSparse(rhs, row, w*h[a.m+a.n+k])
	}
}

// row writes term k's row, a_k, to out.
func (a *matrix) row(out []float64, k int) {
	clear(out)
	a.addRow(out, k, 1)
}

// addRow adds w·a_k to out.
func (a *matrix) addRow(out []float64, k int, w float64) {
	switch {
	case k < a.m:
		w *= a.d[k]
		for j := range a.columns {
			out[j] += float64(w * (a.columns[j].At(k) / a.scale[j]))
		}
		out[a.t] -= w / a.scale[a.t]
	case k < a.m+a.n:
		out[k-a.m] += w
	default:
		addSparse(out, a.sparse[k-a.m-a.n], w)
	}
}

func dotSparse(row []Term, x []float64) (sum float64) {
	for _, term := range row {
		sum += float64(term.Value * x[term.Variable])
	}
	return sum
}

func addSparse(out []float64, row []Term, w float64) {
	for _, term := range row {
		out[term.Variable] += float64(w * term.Value)
	}
}
