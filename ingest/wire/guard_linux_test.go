package wire

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"streamd/incremental/gram"
	"streamd/incremental/gram/guard"
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
	const most = 40
	labels, codes := guard.Memory[byte](t, 8*most), guard.Memory[int32](t, most)
	for rows := 1; rows <= most; rows++ {
		for classes := range 3 {
			x := make([]T, rows)
			for i := range x {
				x[i] = T(i % (classes + 1))
			}
			size := rows * int(unsafe.Sizeof(T(0)))
			for _, atEnd := range []bool{true, false} {
				c := codes(rows, atEnd)
				d := decoderOf(t, 1000)
				d.codes = c
				requireCodes(t, d, kindOf[T](), arrayOf(kindOf[T](), x, labels(size, atEnd)), x)
				if &d.codes[0] != &c[0] {
					t.Fatal("the codes are not where memory ends")
				}
			}
		}
	}
}

// A text lies beside memory that cannot be read, so that one byte too many is a fault.
func TestNothingBeyondTheText(t *testing.T) {
	memory := guard.Memory[byte](t, 4096)
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
			for _, atEnd := range []bool{false, true} {
				place := memory(len(text), atEnd)
				copy(place, text)
				b, err := d.Decode(c.format.ContentType(), place)
				if err != nil || b.Rows() != rows || b.Columns[0].At(rows-1) != rows-1 {
					t.Fatalf("%v: %v\n%s", c.format, err, text)
				}
			}
		}
	}
}
