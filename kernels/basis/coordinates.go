package basis

import (
	"context"

	"streamd/incremental"
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
