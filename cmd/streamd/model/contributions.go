package model

import (
	"cmp"
	"math"
	"slices"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// Strongest picks the largest contributions of rows in columns. It works on a
// stretch of rows at a time, for all planes, and allocates nothing per row.
type Strongest struct {
	// AtMean is the value of the mean row, for each plane.
	AtMean []float64

	model   *incremental.Model
	columns []gram.Column
	most    int
	rows    int // of a stretch

	from    int // the row where the stretch begins; −1: there is none yet
	values  []float64
	stretch []gram.Column
	order   []int // of the features
}

// stretchNumbers is how many contributions are held at once, unless a single
// row has more (4 MiB).
const stretchNumbers = 1 << 19

// NewStrongest picks up to most contributions for each row and plane. The
// model must have its means.
func NewStrongest(m *incremental.Model, columns []gram.Column, most int) *Strongest {
	n := len(m.Features)
	s := &Strongest{
		model: m, columns: columns, most: min(most, n), from: -1,
		rows:  max(1, min(256, stretchNumbers/max(1, n*len(m.Planes)))),
		order: make([]int, 0, n), stretch: make([]gram.Column, n),
	}
	for p := range m.Planes {
		s.AtMean = append(s.AtMean, m.Base(p))
	}
	if n > 0 {
		s.rows = min(s.rows, columns[0].Len())
	}
	s.values = make([]float64, s.rows*n*len(m.Planes))
	return s
}

// Of gives the contributions of all features to a plane's value of row i, and
// the features whose are largest: those with the largest first, ties in the
// features' order; all features, in their own order, when none is left out.
// Both are valid until the next call. It is fast when rows come in order.
func (s *Strongest) Of(i, plane int) (features []int, values []float64) {
	n := len(s.model.Features)
	if s.from < 0 || i < s.from || i >= s.from+s.rows {
		s.load(i)
	}
	values = s.values[(plane*s.rows+i-s.from)*n:][:n]
	s.order = s.order[:0]
	if s.most == n {
		for j := range n {
			s.order = append(s.order, j)
		}
		return s.order, values
	}
	// Few of many features are wanted: most of the others are turned away by
	// one comparison with the least that is in, the root of a heap.
	less := func(a, b int) int {
		return cmp.Or(cmp.Compare(math.Abs(values[b]), math.Abs(values[a])), cmp.Compare(a, b))
	}
	for j := range values {
		if len(s.order) < s.most {
			s.order = append(s.order, j)
			if len(s.order) == s.most {
				for root := s.most/2 - 1; root >= 0; root-- {
					sift(s.order, root, less)
				}
			}
		} else if math.Abs(values[j]) > math.Abs(values[s.order[0]]) {
			s.order[0] = j
			sift(s.order, 0, less)
		}
	}
	slices.SortFunc(s.order, less)
	return s.order, values
}

// sift restores the heap whose root may be out of place: what comes last by
// less is on top.
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

// load computes the stretch that row i begins.
func (s *Strongest) load(i int) {
	n := len(s.model.Features)
	s.from = i
	rows := s.rows
	for j, c := range s.columns {
		rows = min(rows, c.Len()-i)
		s.stretch[j] = c.Slice(i, i+rows)
	}
	for p := range s.model.Planes {
		values := s.values[p*s.rows*n:][:rows*n]
		s.model.Contributions(values, p, s.stretch)
		for t, x := range values {
			// The sum is finite, but the last step to a contribution may leave
			// the range of numbers.
			values[t] = max(-math.MaxFloat64, min(math.MaxFloat64, x))
		}
	}
}
