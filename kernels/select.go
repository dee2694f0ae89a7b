package kernels

import (
	"fmt"
	"slices"
)

// Selected returns the map to some of the coordinates, those at the given places in ascending
// order: to K(x, z) for some of the points, or to some rows of a projection, for which all points
// stay. Each coordinate keeps its bits, and so does every sum of products of rows in them. It
// panics when a place is none, or out of order.
func (m *Map) Selected(at []int) *Map {
	if !increasing(at) || len(at) == 0 || at[0] < 0 || at[len(at)-1] >= m.Size() {
		panic(fmt.Sprintf("kernels: the coordinates %v of %d", at, m.Size()))
	}
	selected := *m
	if m.projection != nil {
		selected.projection = rowsAt(m.projection, m.t, at)
		return &selected
	}
	selected.z, selected.t = rowsAt(m.z, m.n, at), len(at)
	return &selected
}

func increasing(at []int) bool {
	for i := range at[min(1, len(at)):] {
		if at[i] >= at[i+1] {
			return false
		}
	}
	return true
}

// rowsAt copies some rows of a matrix.
func rowsAt(x []float64, width int, at []int) []float64 {
	rows := make([]float64, 0, len(at)*width)
	for _, i := range at {
		rows = append(rows, x[i*width:][:width]...)
	}
	return rows
}

// In returns the places at which m has its coordinates among those of another map, so that m is
// of.Selected(at). It returns nil if m has others, or has them in another order.
func (m *Map) In(of *Map) (at []int) {
	if m.kernel != of.kernel || m.n != of.n || !slices.Equal(m.mean, of.mean) || !slices.Equal(m.scale, of.scale) ||
		(m.projection == nil) != (of.projection == nil) || m.projection != nil && !slices.Equal(m.z, of.z) {
		return nil
	}
	mine, theirs, width := m.z, of.z, m.n
	if m.projection != nil {
		mine, theirs, width = m.projection, of.projection, m.t
	}
	for i := 0; len(mine) > 0; i++ {
		if len(theirs) < len(mine) {
			return nil
		}
		if slices.Equal(mine[:width], theirs[:width]) {
			at, mine = append(at, i), mine[width:]
		}
		theirs = theirs[width:]
	}
	return at
}
