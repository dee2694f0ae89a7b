package basis

import (
	"context"
	"math"
	"slices"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/kernels"
)

// Coordinates are those of a basis Z: a row x has the coordinates K(x, Z). They are
// immutable. A nil pointer means the features themselves.
type Coordinates struct {
	Map         *kernels.Map
	Names       []string  // z1, z2, …
	Regulariser []float64 // R of u'Ru (incremental.Moments.WithRegulariser); nil: I
}

// New makes coordinates from a map. With gram the size of a plane is u'K(Z, Z)u, the norm
// of its function in the kernel's space (Wu, Schölkopf and Bakır 2006, 28), and otherwise
// ‖u‖² (Fung 2003, 2.55).
func New(m *kernels.Map, gram bool) *Coordinates {
	c := &Coordinates{Map: m, Names: m.Names()}
	if gram {
		c.Regulariser = m.Gram()
	}
	return c
}

// dependent is the share of the largest diagonal entry of K(Z, Z) below which a pivot of its
// Cholesky factor counts as 0. Without that coordinate a function moves by at most its root, 1e-5,
// of the coefficient. Systems with the others keep a condition number that can be solved.
const dependent = 0x1p-26

// independent returns the map without the coordinates that depend on others in the kernel's
// space, such as those of a point that occurs twice (Wu, Schölkopf and Bakır 2006, section 5.6),
// of points that nearly coincide under a wide kernel, and of more points than a polynomial has
// dimensions. K(Z, Z) of all is singular, and the planes with the others are the same functions.
// It takes O(t³) for t coordinates.
func independent(m *kernels.Map) *kernels.Map {
	kept := pivots(m.Gram(), m.Size())
	if len(kept) == m.Size() || len(kept) == 0 {
		return m
	}
	return m.Selected(kept)
}

// pivots are the places of the pivots of a Cholesky factor of t rows, in ascending order. Each
// step takes the largest entry that is left of the diagonal, the first of equals, while it is no
// dependent one. gram is the packed lower triangle.
func pivots(g []float64, t int) (kept []int) {
	left := make([]float64, t)
	for i := range left {
		left[i] = g[gram.PackedLen(i)+i]
	}
	var columns [][]float64
	for least := dependent * slices.Max(left); len(kept) < t; {
		best := 0
		for i, d := range left {
			if d > left[best] {
				best = i
			}
		}
		if !(left[best] > least) {
			break
		}
		root, column := math.Sqrt(left[best]), make([]float64, t)
		for i := range column {
			v := g[gram.PackedLen(max(i, best))+min(i, best)]
			for _, c := range columns {
				v -= float64(c[i] * c[best])
			}
			column[i] = v / root
			left[i] -= float64(column[i] * column[i])
		}
		left[best] = math.Inf(-1)
		kept, columns = append(kept, best), append(columns, column)
	}
	slices.Sort(kept)
	return kept
}

// Moments returns the moments of sums in the coordinates, with the regulariser.
func (c *Coordinates) Moments(s *incremental.State) *incremental.Moments {
	if c == nil || c.Regulariser == nil {
		return s.Moments()
	}
	return s.Moments().WithRegulariser(c.Regulariser)
}

// Lifter maps blocks to coordinates. It belongs to one goroutine at a time and keeps
// memory for the last two coordinates.
type Lifter struct {
	mappers map[*Coordinates]*kernels.Mapper
}

// Block returns b in the coordinates, valid until the next call, or b itself if c is nil.
// When ctx ends it returns ctx's cause.
func (l *Lifter) Block(ctx context.Context, b *incremental.Block, c *Coordinates) (*incremental.Block, error) {
	if c == nil {
		return b, nil
	}
	m := l.mappers[c]
	if m == nil {
		if len(l.mappers) >= 2 || l.mappers == nil {
			l.mappers = map[*Coordinates]*kernels.Mapper{}
		}
		m = kernels.NewMapper(c.Map)
		l.mappers[c] = m
	}
	columns, err := m.MapContext(ctx, b.Columns)
	if err != nil {
		return nil, err
	}
	in := *b
	in.Features, in.Columns = c.Names, columns
	return &in, nil
}
