package ndc

import (
	"slices"
	"syscall"
	"testing"
	"unsafe"
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
			s.g = &Generator{&geometry, g.expansion, g.key, g.normals}
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
	page := syscall.Getpagesize()
	size := len(x) * int(unsafe.Sizeof(x[0]))
	inner := (size + page - 1) / page * page
	memory, err := syscall.Mmap(-1, 0, inner+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(memory) })
	for _, guard := range [][]byte{memory[:page], memory[page+inner:]} {
		if err := syscall.Mprotect(guard, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	first := page
	if atEnd {
		first += inner - size
	}
	copied := unsafe.Slice((*T)(unsafe.Pointer(&memory[first])), len(x))
	copy(copied, x)
	return copied
}
