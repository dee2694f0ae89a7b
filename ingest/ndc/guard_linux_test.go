package ndc

import (
	"slices"
	"testing"

	"streamd/incremental/gram/guard"
)

// TestNothingBeyondThePoints puts the memory of the kernels beside memory that cannot be
// touched, so that one element too many is a fault.
func TestNothingBeyondThePoints(t *testing.T) {
	requireGroups(t)
	for _, n := range []int{1, 2, 3, 10} {
		for _, atEnd := range []bool{true, false} {
			g := mustNew(t, Config{Features: n, Seed: 7})
			s, scalar := g.newSampler(true), g.newSampler(false)
			// The kernels' centre is the last, or the first, so that its coordinates
			// and its root are at the end, or at the beginning.
			geometry := *g.geometry
			geometry.centre = guarded(t, g.centre, atEnd)
			geometry.roots = guarded(t, g.roots, atEnd)
			s.g = &Generator{geometry: &geometry, expansion: g.expansion, key: g.key, normals: g.normals}
			s.normals = guarded(t, s.normals, atEnd)
			s.order = guarded(t, s.order, atEnd)
			const most = 400
			all := make([][]float32, n)
			for j := range all {
				all[j] = guarded(t, make([]float32, most), atEnd)
			}
			for rows := 1; rows <= most; rows += 1 + rows/20 {
				columns, codes := make([][]float32, n), make([]int32, rows)
				for j, column := range all {
					columns[j] = column[:rows]
					if atEnd {
						columns[j] = column[most-rows:]
					}
				}
				s.Fill(columns, codes, Train, 0)
				wantColumns, wantCodes := buffers(n, rows)
				scalar.Fill(wantColumns, wantCodes, Train, 0)
				if !slices.Equal(codes, wantCodes) || digest(columns, codes) != digest(wantColumns, wantCodes) {
					t.Fatalf("n=%d, %d rows: other points", n, rows)
				}
			}
		}
	}
}

// guarded is a copy of x beside memory that cannot be touched.
func guarded[T any](t *testing.T, x []T, atEnd bool) []T {
	t.Helper()
	copied := guard.Memory[T](t, len(x))(len(x), atEnd)
	copy(copied, x)
	return copied
}
