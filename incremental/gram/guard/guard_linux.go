// Package guard gives tests of assembly memory between inaccessible pages, where an
// access to one element too many is a fault.
package guard

import (
	"syscall"
	"testing"
	"unsafe"
)

// Memory maps room for n elements until the end of the test. The result returns count ≤ n
// of them, which begin where the memory begins or end where it ends.
func Memory[T any](t testing.TB, n int) func(count int, atEnd bool) []T {
	t.Helper()
	size, page := int(unsafe.Sizeof(*new(T))), syscall.Getpagesize()
	inner := (n*size + page - 1) / page * page
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
	return func(count int, atEnd bool) []T {
		first := page
		if atEnd {
			first += inner - count*size
		}
		return unsafe.Slice((*T)(unsafe.Pointer(&memory[first])), count)
	}
}
