package basis

import (
	"context"

	"streamd/incremental"
	"streamd/kernels"
)

// Coordinates are what rows become by a basis Z: K(x, Z). They are immutable. A nil
// pointer is the features themselves.
type Coordinates struct {
	Map         *kernels.Map
	Names       []string  // z1, z2, …
	Regulariser []float64 // R of u'Ru (incremental.Moments.WithRegulariser); nil: I
}

// New makes coordinates of a map. With gram the size of a plane is u'K(Z, Z)u, that of
// its function in the kernel's space (Wu, Schölkopf and Bakır 2006, 28), and otherwise
// ‖u‖² (Fung 2003, 2.55).
func New(m *kernels.Map, gram bool) *Coordinates {
	c := &Coordinates{Map: m, Names: m.Names()}
	if gram {
		c.Regulariser = m.Gram()
	}
	return c
}

// Moments are the sums of a state in the coordinates, with their regulariser.
func (c *Coordinates) Moments(s *incremental.State) *incremental.Moments {
	if c == nil || c.Regulariser == nil {
		return s.Moments()
	}
	return s.Moments().WithRegulariser(c.Regulariser)
}

// Lifter puts blocks into coordinates. It belongs to one goroutine at a time and keeps
// working memory for the two coordinates that it was asked for last.
type Lifter struct {
	mappers map[*Coordinates]*kernels.Mapper
}

// Block is b in the coordinates, until the next call; for nil it is b itself. It gives
// up when ctx ends, with its cause.
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
