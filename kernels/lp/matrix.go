package lp

import (
	"fmt"
	"math"

	"streamd/incremental/gram"
	"streamd/incremental/parallel"
)

const (
	// maxChunks bounds the memory of the partial sums, t²/2 numbers per chunk.
	maxChunks = 16
	// chunkRows divides the rows of every chunk but the last. Smaller chunks would
	// not be worth a goroutine. It is a multiple of gram's tile.
	chunkRows = 1024
	// tileRows is the number of rows that a product with a vector processes at a
	// time, so that the sums stay in the first-level cache.
	tileRows = 512
)

// A matrix is A, the terms' rows a_k in scaled coordinates: first m dense rows
// d_i[K_i, −1, 0], then n unit rows, then the sparse rows of the program.
//
// The dense rows are divided into chunks whose bounds depend on m alone. Sums over rows
// are summed by chunk, and then over the chunks in order, so that no bit depends on the
// number of workers.
type matrix struct {
	columns []gram.Column
	d       []float64
	scale   []float64 // n: scaled x_j = x_j·scale_j; powers of two
	sparse  [][]Term
	m, n, t int

	bounds  []int // chunk c has rows bounds[c] to bounds[c+1]−1
	workers int
	part    []partial
	codes   []int32
	dh      []float64 // d∘h, a last column of the Gram matrix for the right-hand side
}

// partial is the working memory of a chunk.
type partial struct {
	kernel  gram.Kernel
	columns []gram.Column // the chunk of K and of d∘h
	sums    [1]gram.Sums
	vector  []float64 // n
	signed  []float64
}

func newMatrix(p *Program, n int, sparse [][]Term, workers int) (*matrix, error) {
	columns := p.Columns
	a := &matrix{columns: columns, d: p.D, sparse: sparse, m: len(p.D), n: n, t: len(columns), workers: workers}
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
		p.signed = make([]float64, tileRows)
		for _, column := range columns {
			p.columns = append(p.columns, column.Slice(from, to))
		}
		p.columns = append(p.columns, gram.ColumnOf(a.dh[from:to]))
	}
	a.codes = make([]int32, most)
	return a, a.setScale(p)
}

// setScale scales each column to a largest magnitude in (1/2, 1]. Without rows of data
// it scales the diagonal of Q.
func (a *matrix) setScale(p *Program) error {
	largest := make([]float64, a.n)
	err := parallel.For(a.workers, a.t, func(j int) error {
		largest[j] = gram.Largest(a.columns[j], 0)
		for i := 0; !finite(largest[j]); i++ {
			if x := a.columns[j].At(i); !finite(x) {
				return fmt.Errorf("lp: column %d: row %d is %v", j, i, x)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if a.m > 0 {
		largest[a.t] = 1
	}
	for _, row := range a.sparse {
		for _, term := range row {
			largest[term.Variable] = max(largest[term.Variable], math.Abs(term.Value))
		}
	}
	for j := range p.order() {
		if v := p.Quadratic[gram.PackedLen(j)+j]; a.m == 0 && v > 0 {
			largest[j] = math.Sqrt(v)
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

// over calls do for 0 to count−1, on up to workers goroutines.
func (a *matrix) over(count int, do func(int)) {
	_ = parallel.For(a.workers, count, func(i int) error {
		do(i)
		return nil
	})
}

// terms is the number of rows of A.
func (a *matrix) terms() int { return a.m + a.n + len(a.sparse) }

// ranges is the number of ranges of terms: the chunks of dense rows, and one range of
// all other rows.
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
		gram.AddProducts(z, a.columns, from, nil, y[:a.t])
		for r, d := range a.d[from : from+len(z)] {
			z[r] *= d
		}
	}
}

// mulTransposed returns A'y.
func (a *matrix) mulTransposed(out, y []float64) {
	a.over(len(a.part), func(c int) { a.transposedPart(c, y) })
	a.sumParts(out, y)
}

// transposedPart sets the vector of chunk c to its unscaled part of A'y.
func (a *matrix) transposedPart(c int, y []float64) {
	p := &a.part[c]
	clear(p.vector)
	from, to := a.rangeOf(c)
	for ; from < to; from += tileRows {
		z := p.signed[:min(tileRows, to-from)]
		var sum float64
		for r, d := range a.d[from : from+len(z)] {
			z[r] = d * y[from+r]
			sum += z[r]
		}
		gram.AddDots(p.vector[:a.t], a.columns, from, nil, z)
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

// normal writes A'ΘA to product, a packed lower triangle, and A'Θh to rhs.
func (a *matrix) normal(product, rhs, theta, h []float64) {
	a.over(len(a.part), func(c int) {
		p := &a.part[c]
		from, to := a.rangeOf(c)
		for i := from; i < to; i++ {
			a.dh[i] = a.d[i] * h[i]
		}
		p.sums[0].Rows = 0
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
		for k := range min(j, t) + 1 {
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
