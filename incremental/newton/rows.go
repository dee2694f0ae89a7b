package newton

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/parallel"
)

const (
	// chunkRows rows of a block are summed before their sums are added exactly, an
	// addition that costs as much as about ten rows. A goroutine processes one chunk
	// at a time, which bounds working memory.
	chunkRows = 2048
	// stretchRows rows of all columns stay in the second-level cache between the
	// products and the gradient.
	stretchRows = 256
)

// chunk holds rows of a block, none of weight 0, as columns for the planes.
type chunk struct {
	columns []gram.Column
	codes   []int32
	weights []float64 // nil: 1 each
	class   []int     // the solver's class of each code; −1: none
	held    []held    // per plane; nil for rows that are not in memory

	// The origin of the rows, for errors. kept lists the indices of the block's rows
	// of weight > 0; nil: all rows.
	position incremental.Position
	source   []gram.Column
	first    int
	kept     []int
}

// held keeps the results of a chunk's rows for one plane between passes.
type held struct {
	residual [2][]float64 // 1 − d(x'w − γ) at the base and at the point
	active   []bool       // at the point of the last pass
}

func (c *chunk) rows() int { return len(c.codes) }

// solver refines planes on rows.
type solver struct {
	rows        Rows
	model       *incremental.Model
	multipliers map[string]float64
	limit       int
	workers     int

	scaling               // the scaling of the rows' features
	direction [][]float64 // Line: the feature of each plane, in scaled coordinates
	width     int         // the number of columns of a chunk
	size      size        // of planes
	seen      scaling     // the scaling of a chunk's columns
	together  bool        // Logistic: planes are on their way together
	coarse    bool        // Options.Coarse

	planes    []*plane
	passes    int
	chunks    []*chunk // the chunks of rows in memory
	classRows []int64

	classWeight []float64 // Σ v of each class
	top         []float64 // the largest magnitude of each column

	mutex sync.Mutex // guards free, and results that a pass collects
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
	likely   []float64            // Logistic: the probability of each plane's class, plane by plane
	missed   [stretchRows]float64 // Logistic: 1 − p of each row's class
	gradient []float64
	omega    []float64
	cost     [chunkRows]float64 // C of each row
	side     [chunkRows]float64 // d
}

func (s *solver) total() (rows int64) {
	for _, m := range s.classRows {
		rows += m
	}
	return rows
}

// pass calls visit for every chunk, for several at a time.
func (s *solver) pass(ctx context.Context, visit func(*chunk, *scratch) error) error {
	s.passes++
	if s.chunks == nil {
		return s.rows.Pass(ctx, func(b *incremental.Block) error {
			z := s.takeScratch()
			defer s.giveScratch(z)
			a, err := s.accept(b)
			if err != nil {
				return err
			}
			for from := 0; from < a.Rows(); from += chunkRows {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := visit(s.chunk(a, from, min(from+chunkRows, a.Rows()), &z.numbers), z); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return parallel.For(s.workers, len(s.chunks), func(i int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		z := s.takeScratch()
		defer s.giveScratch(z)
		return visit(s.chunks[i], z)
	})
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

// accepted is a block without its rows of weight 0. kept lists the indices of the other
// rows; nil: all rows.
type accepted struct {
	*incremental.Block
	class []int // the solver's class of each code; −1: none
	kept  []int
}

// accept checks a block's shape and drops its rows of weight 0.
func (s *solver) accept(b *incremental.Block) (a accepted, err error) {
	switch n := len(s.scaling.mean); {
	case len(b.Columns) != n:
		return a, fmt.Errorf("refine on block %v: it has %d features, the model %d", b.Position, len(b.Columns), n)
	case b.Features != nil && !slices.Equal(b.Features, s.model.Features):
		return a, fmt.Errorf("refine on block %v: its features are not the model's, or in another order", b.Position)
	}
	a = accepted{Block: b, class: b.ClassesIn(s.model.Classes)}
	if slices.Contains(b.Weights, 0) {
		for i, v := range b.Weights {
			if v != 0 {
				a.kept = append(a.kept, i)
			}
		}
		a.Block = b.Pick(a.kept)
	}
	return a, nil
}

// hold cuts blocks in memory into chunks.
func (s *solver) hold(blocks Blocks) error {
	s.chunks = []*chunk{}
	for _, b := range blocks {
		a, err := s.accept(b)
		if err != nil {
			return err
		}
		for from := 0; from < a.Rows(); from += chunkRows {
			var numbers []float64
			c := s.chunk(a, from, min(from+chunkRows, a.Rows()), &numbers)
			s.chunks = append(s.chunks, c)
			if s.together {
				continue
			}
			m := c.rows()
			c.held = make([]held, len(s.planes))
			residuals, flags := make([]float64, 2*m*len(s.planes)), make([]bool, m*len(s.planes))
			for i := range c.held {
				h := &c.held[i]
				h.residual[0], residuals = residuals[:m:m], residuals[m:]
				h.residual[1], residuals = residuals[:m:m], residuals[m:]
				h.active, flags = flags[:m:m], flags[m:]
			}
		}
	}
	return nil
}

// chunk returns a chunk of a block's rows. numbers is memory for columns that are
// computed or converted.
func (s *solver) chunk(b accepted, from, to int, numbers *[]float64) *chunk {
	c := &chunk{codes: b.Codes[from:to], class: b.class, position: b.Position, first: from, kept: b.kept}
	if b.Weights != nil {
		c.weights = b.Weights[from:to]
	}
	m, n := to-from, len(b.Columns)
	c.source = make([]gram.Column, n)
	for j, column := range b.Columns {
		c.source[j] = column.Slice(from, to)
	}
	c.columns = c.source
	if s.direction == nil && gram.Plain(c.source) {
		return c
	}
	if cap(*numbers) < s.width*m {
		*numbers = make([]float64, s.width*m)
	}
	c.columns = make([]gram.Column, s.width)
	omega := make([]float64, n)
	for i := range c.columns {
		feature := (*numbers)[i*m : (i+1)*m]
		c.columns[i] = gram.ColumnOf(feature)
		if s.direction == nil {
			c.source[i].Copy(feature, 0) // convert once instead of in each product
			continue
		}
		clear(feature)
		for j := range omega {
			omega[j] = s.direction[i][j] / s.scaling.sigma[j]
		}
		gram.AddProducts(feature, c.source, 0, s.scaling.mean, omega)
	}
	return c
}

// Rows are the rows that planes are refined on.
type Rows interface {
	// Pass calls visit once for every block, in any order, and returns the
	// first error of visit or its own. Calls for different blocks may run at
	// the same time. A block is valid until its call returns. All passes show the
	// same blocks, with the model's features as columns, in the model's order.
	Pass(ctx context.Context, visit func(*incremental.Block) error) error
}

// Blocks are Rows in memory. Results for each row are kept from one pass to the next,
// and parts of blocks are processed in parallel. Many planes are refined in groups that
// take up to 64 MiB.
type Blocks []*incremental.Block

// Pass visits the blocks one after the other.
func (b Blocks) Pass(ctx context.Context, visit func(*incremental.Block) error) error {
	for _, block := range b {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := visit(block); err != nil {
			return err
		}
	}
	return nil
}

// scaling defines the coordinates x̂ = (x − μ)/σ.
type scaling struct {
	mean, sigma []float64
}

func identity(n int) scaling {
	s := scaling{mean: make([]float64, n), sigma: make([]float64, n)}
	for j := range s.sigma {
		s.sigma[j] = 1
	}
	return s
}

// enter returns the plane x'w = γ in the coordinates x̂, as [ŵ; γ̂].
func (s scaling) enter(w []float64, gamma float64) []float64 {
	z := make([]float64, len(w)+1)
	for j, x := range w {
		z[j] = float64(x * s.sigma[j])
		gamma -= float64(x * s.mean[j])
	}
	z[len(w)] = gamma
	return z
}

// leave is the inverse of enter.
func (s scaling) leave(z []float64) (w []float64, gamma float64) {
	w = make([]float64, len(z)-1)
	gamma = z[len(w)]
	for j := range w {
		w[j] = z[j] / s.sigma[j]
		gamma += float64(w[j] * s.mean[j])
	}
	return w, gamma
}

// norm is the Euclidean norm, without overflow.
func norm(x []float64) float64 {
	var top, sum float64
	for _, v := range x {
		top = max(top, math.Abs(v))
	}
	if top == 0 || math.IsInf(top, 0) {
		return top
	}
	for _, v := range x {
		v /= top
		sum += float64(v * v)
	}
	return top * math.Sqrt(sum)
}
