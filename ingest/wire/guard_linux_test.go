package wire

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"streamd/incremental/gram"
)

// Labels and codes lie beside memory that can be neither read nor written, so that
// one element too many is a fault.
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

// A text lies beside memory that cannot be read, so that one byte too many is a fault.
func TestNothingBeyondTheText(t *testing.T) {
	memory := guarded(t)
	for _, c := range []struct {
		format Format
		row    func(i int) string
	}{
		{CSV, func(i int) string { return fmt.Sprintf("%d,%d\n", i%2, i) }},
		{CSV, func(i int) string { return fmt.Sprintf("%d,%d,-0.%028de-01\n", i%2, i, i) }},
		{LIBSVM, func(i int) string { return fmt.Sprintf("%d 1:%d 2:-0.%028de-01\n", i%2, i, i) }},
		{JSON, func(i int) string { return fmt.Sprintf(`{"label":%d,"features":[%d,-0.%028de-01]}`+"\n", i%2, i, i) }},
		{JSON, func(i int) string {
			return fmt.Sprintf(`{"a":%d,"label":%d,"%s":-0.%028de-01}`+"\n", i, i%2, strings.Repeat("b", 40), i)
		}},
	} {
		const rows = 12
		for lines := range 100 {
			empty := strings.Repeat("\n", lines)
			text := []byte(empty)
			for i := range rows {
				text = append(text, c.row(i)...)
			}
			text = append(text, empty...)
			d := decoderOf(t, 1000)
			for _, place := range [][]byte{memory[:len(text)], memory[len(memory)-len(text):]} {
				copy(place, text)
				b, err := d.Decode(c.format.ContentType(), place)
				if err != nil || b.Rows() != rows || b.Columns[0].At(rows-1) != rows-1 {
					t.Fatalf("%v: %v\n%s", c.format, err, text)
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
