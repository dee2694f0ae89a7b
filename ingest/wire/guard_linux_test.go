package wire

import (
	"syscall"
	"testing"
	"unsafe"

	"streamd/incremental/gram"
)

// Labels and codes that end, or begin, where memory can be neither read nor
// written: one element too many is a fault.
func TestNothingBeyondTheLabels(t *testing.T) {
	t.Run("int8", testBeyond[int8])
	t.Run("int16", testBeyond[int16])
	t.Run("float32", testBeyond[float32])
	t.Run("int64", testBeyond[int64])
}

func testBeyond[T gram.Number](t *testing.T) {
	labels, codes := guarded(t), guarded(t)
	for rows := 1; rows <= 40; rows++ {
		for classes := range 3 {
			x := make([]T, rows)
			for i := range x {
				x[i] = T(i % (classes + 1))
			}
			size := rows * int(unsafe.Sizeof(T(0)))
			for _, atEnd := range []bool{true, false} {
				l, c := labels[:size], codes[:4*rows]
				if atEnd {
					l, c = labels[len(labels)-size:], codes[len(codes)-4*rows:]
				}
				d := decoderOf(t, 1000)
				d.codes = unsafe.Slice((*int32)(unsafe.Pointer(&c[0])), rows)
				requireCodes(t, d, kindOf[T](), arrayOf(kindOf[T](), x, l), x)
				if unsafe.Pointer(&d.codes[0]) != unsafe.Pointer(&c[0]) {
					t.Fatal("the codes are not where memory ends")
				}
			}
		}
	}
}

// guarded is a page between two that cannot be touched.
func guarded(t *testing.T) []byte {
	t.Helper()
	page := syscall.Getpagesize()
	memory, err := syscall.Mmap(-1, 0, 3*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(memory) })
	for _, guard := range [][]byte{memory[:page], memory[2*page:]} {
		if err := syscall.Mprotect(guard, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return memory[page : 2*page]
}
