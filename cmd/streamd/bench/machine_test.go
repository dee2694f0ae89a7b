//go:build unix

package bench

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Reading stays within the bytes. The page after them cannot be read.
func TestReadBytesStaysInside(t *testing.T) {
	page := unix.Getpagesize()
	memory, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	if err := unix.Mprotect(memory[page:], unix.PROT_NONE); err != nil {
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
