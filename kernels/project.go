package kernels

import (
	"fmt"
	"math"
	"slices"

	"streamd/incremental/gram"
)

// Projected returns the map x → P·K(Z, x) of S ≤ t coordinates, for a matrix P of S rows of
// t numbers. With the leading eigenpairs K(Z, Z)v = λv and rows v'/√λ, these are the
// coordinates of φ(x) in an orthonormal basis of a subspace of the kernel's space (Yajima,
// Ohi and Mori 2003, 3.6). It fails when the rows are none, too many or not finite. The
// matrix is copied.
func (m *Map) Projected(projection []float64) (*Map, error) {
	s := len(projection) / m.t
	if s < 1 || s > m.t || len(projection) != s*m.t {
		return nil, fmt.Errorf("basis: %d numbers do not project %d points to so many coordinates or fewer", len(projection), m.t)
	}
	for i, x := range projection {
		if x-x != 0 {
			return nil, fmt.Errorf("basis: coordinate %d takes %v times point %d", i/m.t+1, x, i%m.t+1)
		}
	}
	projected := *m
	projected.projection = slices.Clone(projection)
	for i := range projected.projection {
		projected.projection[i] += 0 // as for points
	}
	return &projected, nil
}

// Projection is the S×t matrix of a map made by Projected, row by row, and nil for others. It
// must not be written to.
func (m *Map) Projection() []float64 { return m.projection }

// Size is the number of coordinates: S of a projected map, and t of others.
func (m *Map) Size() int {
	if m.projection != nil {
		return len(m.projection) / m.t
	}
	return m.t
}

// Work is the number of multiply-adds for the coordinates of a row.
func (m *Map) Work() int { return m.t*m.n + len(m.projection) }

// At returns the coordinates of one point. Its features are scaled already, like those of the
// points of the basis.
func (m *Map) At(x []float64) []float64 {
	k := make([]float64, m.t)
	for i := range k {
		k[i] = m.kernel.Value(m.kernel.Argument(m.Point(i), x))
	}
	if m.projection == nil {
		return k
	}
	c := make([]float64, m.Size())
	for i := range c {
		c[i] = addable(fused(m.projection[i*m.t:][:m.t], k))
	}
	return c
}

// projectedGram is PK(Z, Z)P', packed.
func (m *Map) projectedGram() []float64 {
	columns := make([][]float64, m.Size()) // of K(Z, Z)P'
	for i := range columns {
		columns[i] = make([]float64, m.t)
	}
	for i := range m.t {
		for j, c := range m.At(m.Point(i)) {
			columns[j][i] = c
		}
	}
	packed := make([]float64, 0, gram.PackedLen(len(columns)))
	for i := range columns {
		for _, column := range columns[:i+1] {
			packed = append(packed, fused(m.projection[i*m.t:][:m.t], column))
		}
	}
	return packed
}

// fused is x'y by fused multiply-adds in the order of the numbers, as in products.
func fused(x, y []float64) float64 {
	s := 0.0
	for i, xi := range x {
		s = math.FMA(xi, y[i], s)
	}
	return s
}

// addable is v, or 0 where exact sums could not add it.
func addable(v float64) float64 {
	if math.Abs(v) < smallest {
		return 0
	}
	return v
}
