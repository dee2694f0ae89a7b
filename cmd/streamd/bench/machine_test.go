//go:build unix

package bench

import (
	"syscall"
	"testing"
)

// Reading stays within the bytes: what follows them cannot be read.
func TestReadBytesStaysInside(t *testing.T) {
	page := syscall.Getpagesize()
	memory, err := syscall.Mmap(-1, 0, 2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(memory)
	if err := syscall.Mprotect(memory[page:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	for size := range page + 1 {
		readBytes(memory[page-size : page])
	}
	readPiecesGo(memory[:page])
}

func TestMultiplyAddCounts(t *testing.T) {
	one := multiplyAdd(1)
	if many := multiplyAdd(1000); one <= 0 || many != 1000*one {
		t.Errorf("%d in a round, %d in 1000", one, many)
	}
}
