package newton

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"streamd/incremental"
	"streamd/incremental/gram"
)

const (
	// chunkRows is how many rows of a block are summed before their sums are
	// added exactly, which costs as much as some ten rows do. It bounds working
	// memory and is what one of several goroutines takes at a time.
	chunkRows = 2048
	// stretchRows keeps a stretch of all columns in the second-level cache
	// between the products and the gradient.
	stretchRows = 256
)

// chunk is rows of a block, none of weight 0, with the columns that planes see.
type chunk struct {
	columns []gram.Column
	single  [][]float32 // the columns' numbers, if all are float32 …
	double  [][]float64 // … and otherwise
	codes   []int32
	weights []float64 // nil: 1 each
	class   []int     // the solver's class of each code; −1: none
	held    []held    // per plane; nil for rows that are not in memory

	// Where the rows are from, for errors: kept, if any, are the indices of the
	// block's rows of weight > 0.
	position incremental.Position
	source   []gram.Column
	first    int
	kept     []int
}

// held is what is kept of a chunk's rows for one plane.
type held struct {
	residual [2][]float64 // 1 − d(x'w − γ) at the base and at the point
	active   []bool       // at the point of the last pass
}

func (c *chunk) rows() int { return len(c.codes) }

// solver is the rows and the planes that are refined on them.
type solver struct {
	rows        Rows
	model       *incremental.Model
	multipliers map[string]float64
	limit       int
	workers     int

	scaling               // of the rows' features
	direction [][]float64 // Line: the feature of each plane, in scaled coordinates
	width     int         // columns of a chunk
	seen      scaling     // of the columns of a chunk

	planes    []*plane
	passes    int
	chunks    []*chunk // of rows in memory
	classRows []int64

	mutex sync.Mutex // guards free and what a pass sums
	free  []*scratch
}

// scratch is one goroutine's working memory.
type scratch struct {
	kernel   gram.Kernel
	sums     [2]gram.Sums
	numbers  []float64 // of a chunk that is not held
	residual [2][chunkRows]float64
	weights  [chunkRows]float64
	codes    [chunkRows]int32
	y        [stretchRows]float64
	gradient []float64
	omega    []float64
	cost     []float64 // of each code
	side     []float64
}

func (s *solver) total() (rows int64) {
	for _, m := range s.classRows {
		rows += m
	}
	return rows
}

// pass shows every chunk to visit, several at a time.
func (s *solver) pass(ctx context.Context, visit func(*chunk, *scratch) error) error {
	s.passes++
	if s.chunks == nil {
		return s.rows.Pass(ctx, func(b *incremental.Block) error {
			z := s.takeScratch()
			defer s.giveScratch(z)
			b, kept, err := s.accept(b)
			if err != nil {
				return err
			}
			for from := 0; from < b.Rows(); from += chunkRows {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := visit(s.chunk(b, kept, from, min(from+chunkRows, b.Rows()), &z.numbers), z); err != nil {
					return err
				}
			}
			return nil
		})
	}
	var next atomic.Int64
	work := func() error {
		z := s.takeScratch()
		defer s.giveScratch(z)
		for {
			i := int(next.Add(1)) - 1
			if i >= len(s.chunks) {
				return nil
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := visit(s.chunks[i], z); err != nil {
				return err
			}
		}
	}
	return parallel(min(s.workers, len(s.chunks)), work)
}

// parallel runs work on so many goroutines, this one among them.
func parallel(workers int, work func() error) error {
	errs := make([]error, max(workers, 1))
	var others sync.WaitGroup
	for i := 1; i < workers; i++ {
		others.Go(func() { errs[i] = work() })
	}
	errs[0] = work()
	others.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *solver) takeScratch() *scratch {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if last := len(s.free) - 1; last >= 0 {
		z := s.free[last]
		s.free = s.free[:last]
		return z
	}
	return new(scratch)
}

func (s *solver) giveScratch(z *scratch) {
	s.mutex.Lock()
	s.free = append(s.free, z)
	s.mutex.Unlock()
}

// accept checks a block's shape and leaves out its rows of weight 0: kept, if
// there are any, are the others.
func (s *solver) accept(b *incremental.Block) (out *incremental.Block, kept []int, err error) {
	switch n := len(s.scaling.mean); {
	case len(b.Columns) != n:
		return nil, nil, fmt.Errorf("refine on block %v: it has %d features, the model %d", b.Position, len(b.Columns), n)
	case b.Features != nil && !slices.Equal(b.Features, s.model.Features):
		return nil, nil, fmt.Errorf("refine on block %v: its features are not the model's, or in another order", b.Position)
	case !slices.Contains(b.Weights, 0):
		return b, nil, nil
	}
	for i, v := range b.Weights {
		if v != 0 {
			kept = append(kept, i)
		}
	}
	return b.Pick(kept), kept, nil
}

// hold cuts rows in memory into chunks.
func (s *solver) hold(blocks Blocks) error {
	s.chunks = []*chunk{}
	for _, b := range blocks {
		b, kept, err := s.accept(b)
		if err != nil {
			return err
		}
		for from := 0; from < b.Rows(); from += chunkRows {
			var numbers []float64
			c := s.chunk(b, kept, from, min(from+chunkRows, b.Rows()), &numbers)
			m := c.rows()
			c.held = make([]held, len(s.planes))
			residuals, flags := make([]float64, 2*m*len(s.planes)), make([]bool, m*len(s.planes))
			for i := range c.held {
				h := &c.held[i]
				h.residual[0], residuals = residuals[:m:m], residuals[m:]
				h.residual[1], residuals = residuals[:m:m], residuals[m:]
				h.active, flags = flags[:m:m], flags[m:]
			}
			s.chunks = append(s.chunks, c)
		}
	}
	return nil
}

// chunk makes a chunk of a block's rows. numbers is memory for columns that are
// not as they lie in the block.
func (s *solver) chunk(b *incremental.Block, kept []int, from, to int, numbers *[]float64) *chunk {
	c := &chunk{
		codes: b.Codes[from:to], class: make([]int, len(b.Classes)),
		position: b.Position, first: from, kept: kept,
	}
	for code, label := range b.Classes {
		c.class[code] = slices.Index(s.model.Classes, label)
	}
	if b.Weights != nil {
		c.weights = b.Weights[from:to]
	}
	m, n := to-from, len(b.Columns)
	c.columns = make([]gram.Column, n)
	c.single = make([][]float32, n)
	for j, column := range b.Columns {
		c.columns[j] = column.Slice(from, to)
		v, ok := gram.Values[float32](c.columns[j])
		if !ok {
			c.single = nil
			break
		}
		c.single[j] = v
	}
	needed := len(s.direction) * m
	if c.single == nil {
		needed += n * m
	}
	if cap(*numbers) < needed {
		*numbers = make([]float64, needed)
	}
	rest := (*numbers)[:needed]
	take := func() []float64 {
		v := rest[:m:m]
		rest = rest[m:]
		return v
	}
	if c.single == nil {
		c.double = make([][]float64, n)
		for j, column := range b.Columns {
			c.double[j] = take()
			column.Copy(c.double[j], from)
			c.columns[j] = gram.ColumnOf(c.double[j])
		}
	}
	c.source = c.columns
	if s.direction == nil {
		return c
	}
	features := make([][]float64, s.width)
	columns := make([]gram.Column, s.width)
	omega := make([]float64, n)
	for i, d := range s.direction {
		features[i] = take()
		clear(features[i])
		for j := range omega {
			omega[j] = d[j] / s.scaling.sigma[j]
		}
		c.addProducts(features[i], 0, 0, n, s.scaling.mean, omega)
		columns[i] = gram.ColumnOf(features[i])
	}
	c.single, c.double, c.columns = nil, features, columns
	return c
}

// addProducts adds Σ_j (x_j − μ_j)ω_j to the values of the rows that begin with
// from, over the columns low to high.
func (c *chunk) addProducts(values []float64, from, low, high int, mean, omega []float64) {
	if c.single != nil {
		addProducts(values, from, c.single[low:high], mean[low:high], omega)
	} else {
		addProducts(values, from, c.double[low:high], mean[low:high], omega)
	}
}

// addDots adds Σ_i y_i (x_ij − μ_j) to each sum j, over the rows that begin with
// from.
func (c *chunk) addDots(sums []float64, from, low, high int, mean, y []float64) {
	if c.single != nil {
		addDots(sums, from, c.single[low:high], mean[low:high], y)
	} else {
		addDots(sums, from, c.double[low:high], mean[low:high], y)
	}
}

func addProducts[T float32 | float64](values []float64, from int, columns [][]T, mean, omega []float64) {
	m := len(values)
	for len(columns) >= 4 {
		x0, x1, x2, x3 := columns[0][from:][:m], columns[1][from:][:m], columns[2][from:][:m], columns[3][from:][:m]
		c0, c1, c2, c3 := mean[0], mean[1], mean[2], mean[3]
		w0, w1, w2, w3 := omega[0], omega[1], omega[2], omega[3]
		if c0 == 0 && c1 == 0 && c2 == 0 && c3 == 0 { // the same numbers in two thirds of the time
			for i := range values {
				t0, t1 := float64(float64(x0[i])*w0), float64(float64(x1[i])*w1)
				t2, t3 := float64(float64(x2[i])*w2), float64(float64(x3[i])*w3)
				values[i] += (t0 + t1) + (t2 + t3)
			}
		} else {
			for i := range values {
				t0, t1 := float64((float64(x0[i])-c0)*w0), float64((float64(x1[i])-c1)*w1)
				t2, t3 := float64((float64(x2[i])-c2)*w2), float64((float64(x3[i])-c3)*w3)
				values[i] += (t0 + t1) + (t2 + t3)
			}
		}
		columns, mean, omega = columns[4:], mean[4:], omega[4:]
	}
	for j, x := range columns {
		x, c, w := x[from:][:m], mean[j], omega[j]
		for i := range values {
			values[i] += float64((float64(x[i]) - c) * w)
		}
	}
}

func addDots[T float32 | float64](sums []float64, from int, columns [][]T, mean, y []float64) {
	m := len(y)
	for len(columns) >= 4 {
		x0, x1, x2, x3 := columns[0][from:][:m], columns[1][from:][:m], columns[2][from:][:m], columns[3][from:][:m]
		c0, c1, c2, c3 := mean[0], mean[1], mean[2], mean[3]
		var s0, s1, s2, s3 float64
		if c0 == 0 && c1 == 0 && c2 == 0 && c3 == 0 {
			for i, t := range y {
				s0 += float64(float64(x0[i]) * t)
				s1 += float64(float64(x1[i]) * t)
				s2 += float64(float64(x2[i]) * t)
				s3 += float64(float64(x3[i]) * t)
			}
		} else {
			for i, t := range y {
				s0 += float64((float64(x0[i]) - c0) * t)
				s1 += float64((float64(x1[i]) - c1) * t)
				s2 += float64((float64(x2[i]) - c2) * t)
				s3 += float64((float64(x3[i]) - c3) * t)
			}
		}
		sums[0] += s0
		sums[1] += s1
		sums[2] += s2
		sums[3] += s3
		columns, mean, sums = columns[4:], mean[4:], sums[4:]
	}
	for j, x := range columns {
		x, c := x[from:][:m], mean[j]
		var sum float64
		for i, t := range y {
			sum += float64((float64(x[i]) - c) * t)
		}
		sums[j] += sum
	}
}

// largest gives max |x_j − μ_j|, and whether all are finite and in range.
func (c *chunk) largest(top []float64, mean []float64) bool {
	if c.single != nil {
		return largest(top, c.single, mean)
	}
	return largest(top, c.double, mean)
}

func largest[T float32 | float64](top []float64, columns [][]T, mean []float64) bool {
	ok := true
	for j, x := range columns {
		c, t := mean[j], top[j]
		for _, v := range x {
			if a := math.Abs(float64(v) - c); !(a <= t) {
				ok = ok && a <= largestNumber
				t = a
			}
		}
		top[j] = t
	}
	return ok
}
