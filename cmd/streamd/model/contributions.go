package model

import (
	"cmp"
	"math"
	"slices"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// Contributions picks the largest contributions of the features to each row's values.
// It works on a stretch of rows at a time, for all planes, and allocates nothing per
// row.
type Contributions struct {
	// AtMean is the value of the mean row, for each plane.
	AtMean []float64

	model   *incremental.Model
	columns []gram.Column
	listed  []int // the features, without the columns of missing values that count as the mean
	most    int
	rows    int // in a stretch

	from    int // first row of the stretch; −1: there is none yet
	values  []float64
	stretch []gram.Column
	order   []int // feature indices
}

// stretchNumbers bounds the contributions held at once (4 MiB), unless a single row has
// more.
const stretchNumbers = 1 << 19

// NewContributions picks up to most features for each row and plane. The model must
// have its means.
func NewContributions(m *incremental.Model, columns []gram.Column, most int) *Contributions {
	n := len(m.Features)
	c := &Contributions{
		model: m, columns: columns, from: -1,
		rows:  max(1, min(256, stretchNumbers/max(1, n*len(m.Planes)))),
		order: make([]int, 0, n), stretch: make([]gram.Column, n),
	}
	for j := range n {
		if !slices.ContainsFunc(m.Imputed, func(x incremental.Imputed) bool { return x.Missing == j }) {
			c.listed = append(c.listed, j)
		}
	}
	c.most = min(most, len(c.listed))
	for p := range m.Planes {
		c.AtMean = append(c.AtMean, m.Base(p))
	}
	if n > 0 {
		c.rows = min(c.rows, columns[0].Len())
	}
	c.values = make([]float64, c.rows*n*len(m.Planes))
	return c
}

// Of gives the contributions of all features to a plane's value of row i, and the
// features that contribute most. These have the largest contribution first and ties in
// the features' order; when no feature is left out they have their own order. Both
// slices are valid until the next call. Rows are fastest in ascending order.
func (c *Contributions) Of(i, plane int) (features []int, values []float64) {
	n := len(c.model.Features)
	if c.from < 0 || i < c.from || i >= c.from+c.rows {
		c.load(i)
	}
	values = c.values[(plane*c.rows+i-c.from)*n:][:n]
	if c.most == len(c.listed) {
		return c.listed, values
	}
	c.order = c.order[:0]
	// The root of the heap is the smallest contribution kept, so that one comparison
	// rejects most features.
	less := func(a, b int) int {
		return cmp.Or(cmp.Compare(math.Abs(values[b]), math.Abs(values[a])), cmp.Compare(a, b))
	}
	for _, j := range c.listed {
		if len(c.order) < c.most {
			c.order = append(c.order, j)
			if len(c.order) == c.most {
				for root := c.most/2 - 1; root >= 0; root-- {
					sift(c.order, root, less)
				}
			}
		} else if math.Abs(values[j]) > math.Abs(values[c.order[0]]) {
			c.order[0] = j
			sift(c.order, 0, less)
		}
	}
	slices.SortFunc(c.order, less)
	return c.order, values
}

// sift restores a heap whose root may be out of place. The last element by less is on
// top.
func sift(heap []int, root int, less func(a, b int) int) {
	for {
		child := 2*root + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && less(heap[child+1], heap[child]) > 0 {
			child++
		}
		if less(heap[child], heap[root]) < 0 {
			return
		}
		heap[root], heap[child] = heap[child], heap[root]
		root = child
	}
}

// load computes the stretch that begins at row i.
func (c *Contributions) load(i int) {
	n := len(c.model.Features)
	c.from = i
	rows := c.rows
	for j, column := range c.columns {
		rows = min(rows, column.Len()-i)
		c.stretch[j] = column.Slice(i, i+rows)
	}
	for p := range c.model.Planes {
		values := c.values[p*c.rows*n:][:rows*n]
		c.model.Contributions(values, p, c.stretch)
		for t, x := range values {
			// The sum is finite, but a single contribution may overflow.
			values[t] = max(-math.MaxFloat64, min(math.MaxFloat64, x))
		}
	}
}
