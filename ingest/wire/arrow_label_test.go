package wire

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"streamd/incremental/gram"
)

// TestLabelCodes: labels of one array get the codes that they get in arrays of one
// element, and a bad one is refused for the same reason.
func TestLabelCodes(t *testing.T) {
	t.Run("int8", func(t *testing.T) { testLabelCodes(t, kindOf[int8](), []int8{1, -1, 0, 65, -128}, nil) })
	t.Run("int16", func(t *testing.T) { testLabelCodes(t, kindOf[int16](), []int16{1, -1, 0, 257, -32768}, nil) })
	t.Run("int32", func(t *testing.T) {
		testLabelCodes(t, kindOf[int32](), []int32{1, -1, 0, 1 + 1<<16, 1 << 30}, nil)
	})
	t.Run("int64", func(t *testing.T) {
		testLabelCodes(t, kindOf[int64](), []int64{1, -1, 0, 1 + 1<<32, 1<<53 - 1}, []int64{1 << 53, math.MinInt64})
	})
	t.Run("uint8", func(t *testing.T) { testLabelCodes(t, kindOf[uint8](), []uint8{1, 2, 0, 129, 255}, nil) })
	t.Run("uint16", func(t *testing.T) { testLabelCodes(t, kindOf[uint16](), []uint16{1, 2, 0, 257, 65535}, nil) })
	t.Run("uint32", func(t *testing.T) { testLabelCodes(t, kindOf[uint32](), []uint32{1, 2, 0, 1 + 1<<16, 1 << 31}, nil) })
	t.Run("uint64", func(t *testing.T) {
		testLabelCodes(t, kindOf[uint64](), []uint64{1, 2, 0, 1 + 1<<32, 1<<53 - 1}, []uint64{1 << 53, math.MaxUint64})
	})
	negative0, nan, inf := math.Copysign(0, -1), math.NaN(), math.Inf(1)
	t.Run("float64", func(t *testing.T) {
		testLabelCodes(t, kindOf[float64](), []float64{0, negative0, 1, 0.1, 1e300}, []float64{nan, inf})
	})
	t.Run("float32", func(t *testing.T) {
		testLabelCodes(t, kindOf[float32](), []float32{0, float32(negative0), 1, 0.1, 1e30}, []float32{float32(nan), float32(inf)})
	})
	t.Run("float16", func(t *testing.T) {
		field := &arrowField{typ: arrayType{layout: layoutHalf, size: 2}}
		testLabelCodes(t, field, []uint16{0, 0x8000, 0x3c00, 0x2e66, 0x7bff}, []uint16{0x7e00, 0x7c00})
	})
	// Entries 0 and 3 are the same class, 5 is null, and there is no sixth.
	t.Run("indices of 1 byte", func(t *testing.T) {
		testLabelCodes(t, indices[int8](), []int8{0, 1, 2, 3, 4}, []int8{5, 6, -1})
	})
	t.Run("indices of 2 bytes", func(t *testing.T) {
		testLabelCodes(t, indices[uint16](), []uint16{0, 1, 2, 3, 4}, []uint16{5, 6, 256})
	})
	t.Run("indices of 4 bytes", func(t *testing.T) {
		testLabelCodes(t, indices[int32](), []int32{0, 1, 2, 3, 4}, []int32{5, 6, 1 << 16, -1})
	})
	t.Run("indices of 8 bytes", func(t *testing.T) {
		testLabelCodes(t, indices[uint64](), []uint64{0, 1, 2, 3, 4}, []uint64{5, 6, 1 << 32})
	})
}

func kindOf[T gram.Number]() *arrowField {
	return &arrowField{typ: arrayType{layout: layoutNumbers, kind: gram.ColumnOf([]T{0}).Kind(), size: int(unsafe.Sizeof(T(0)))}}
}

func indices[T gram.Number]() *arrowField {
	return &arrowField{encoded: true, index: kindOf[T]().typ}
}

// arrayOf is an array of the field's labels, in the given memory.
func arrayOf[T gram.Number](field *arrowField, labels []T, memory []byte) *scalars {
	typ := field.typ
	if field.encoded {
		typ = field.index
	}
	copy(memory, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(labels))), len(labels)*typ.size))
	return &scalars{typ: typ, rows: len(labels), data: memory[:len(labels)*typ.size]}
}

func testLabelCodes[T gram.Number](t *testing.T, field *arrowField, good, bad []T) {
	r := rand.New(rand.NewPCG(3, 4))
	memory := make([]byte, 4096)
	five, two := decoderOf(t, 5), decoderOf(t, 2)
	check := func(d *Decoder, labels []T) {
		t.Helper()
		shift := 0
		if anywhere {
			shift = r.IntN(64)
		}
		requireCodes(t, d, field, arrayOf(field, labels, memory[shift:]), labels)
	}
	random := func(rows, classes int) []T {
		r.Shuffle(len(good), func(i, j int) { good[i], good[j] = good[j], good[i] })
		labels := make([]T, rows)
		for i := range labels {
			labels[i] = good[r.IntN(classes)]
		}
		return labels
	}
	for rows := 1; rows <= 70; rows++ {
		for classes := 1; classes <= len(good); classes++ {
			check(five, random(rows, classes))
			check(two, random(rows, classes))
		}
	}
	for rows := 1; rows <= 35; rows++ {
		for at := range rows {
			for classes := 1; classes <= 3; classes++ {
				labels := random(rows, classes)
				labels[at] = good[classes]
				check(five, labels)
				check(two, labels)
				for _, x := range bad {
					labels[at] = x
					check(five, labels)
				}
			}
		}
	}
}

// An index below 0 has the bits of one that a large dictionary may have.
func TestNegativeIndexIntoALargeDictionary(t *testing.T) {
	testIndices[int8](t, 300, []int8{0, 127}, []int8{-1, -128})
	testIndices[uint8](t, 300, []uint8{0, 127, 128, 255}, nil)
	testIndices[int16](t, 70_000, []int16{0, 32767}, []int16{-1, -32768})
	testIndices[uint16](t, 70_000, []uint16{0, 32767, 32768, 65535}, nil)
}

func testIndices[T gram.Number](t *testing.T, entries int, good, bad []T) {
	t.Helper()
	d := decoderOf(t, 2)
	field := indices[T]()
	for _, k := range slices.Concat(good, bad) {
		d.begin(Arrow, nil)
		d.arrow.dictionary = *arrayOf(kindOf[int8](), make([]int8, entries), make([]byte, entries))
		d.arrow.forgetCodes()
		size := int(unsafe.Sizeof(k))
		_, reason := d.arrow.labelCodes(arrayOf(field, []T{k, k}, make([]byte, 2*size)), field.encoded)
		if refused := reason != ""; refused != slices.Contains(bad, k) {
			t.Errorf("index %v of type %T into %d entries: %q", k, k, entries, reason)
		}
	}
}

func decoderOf(t testing.TB, maxClasses int) *Decoder {
	t.Helper()
	d, err := NewDecoder(Options{Limits: Limits{Classes: maxClasses}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// beginLabels begins a block, and gives it a dictionary.
func beginLabels(d *Decoder) {
	d.begin(Arrow, nil)
	d.arrow.dictionary = *arrayOf(kindOf[int8](), []int8{10, 11, 12, 10, 14, 15}, make([]byte, 6))
	d.arrow.dictionary.valid = []byte{0b011111}
	d.arrow.forgetCodes()
}

func requireCodes(t *testing.T, d *Decoder, field *arrowField, a *scalars, labels any) {
	t.Helper()
	beginLabels(d)
	var want []int32
	wantBad, wantReason := 0, ""
	for i := range a.rows {
		one := scalars{typ: a.typ, rows: 1, data: a.data[i*a.typ.size : (i+1)*a.typ.size]}
		if _, wantReason = d.arrow.labelCodes(&one, field.encoded); wantReason != "" {
			wantBad = i
			break
		}
	}
	want = append(want, d.codes...)
	classes := slices.Clone(d.labels.classes)

	beginLabels(d)
	bad, reason := d.arrow.labelCodes(a, field.encoded)
	if bad != wantBad || reason != wantReason {
		t.Fatalf("labels %v: row %d %q, want row %d %q", labels, bad, reason, wantBad, wantReason)
	}
	if !slices.Equal(d.labels.classes, classes) {
		t.Fatalf("labels %v: classes %q, want %q", labels, d.labels.classes, classes)
	}
	if reason == "" && !slices.Equal(d.codes, want) {
		t.Fatalf("labels %v: codes %v, want %v", labels, d.codes, want)
	}
}

// BenchmarkLabelCodes gives the labels of 20,000 rows their codes, those of one
// block over and over, or of so many blocks that they come from memory.
func BenchmarkLabelCodes(b *testing.B) {
	b.Run("int8", func(b *testing.B) { benchmarkLabelCodes[int8](b, kindOf[int8]()) })
	b.Run("int64", func(b *testing.B) { benchmarkLabelCodes[int64](b, kindOf[int64]()) })
	b.Run("float64", func(b *testing.B) { benchmarkLabelCodes[float64](b, kindOf[float64]()) })
	b.Run("indices", func(b *testing.B) { benchmarkLabelCodes[int8](b, indices[int8]()) })
}

func benchmarkLabelCodes[T gram.Number](b *testing.B, field *arrowField) {
	const rows, many = 20000, 64 << 20
	size := int(unsafe.Sizeof(T(0))) * rows
	for _, classes := range []int{2, 5} {
		for _, blocks := range []int{1, many / size} {
			b.Run(fmt.Sprintf("classes=%d/blocks=%d", classes, blocks), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 2))
				labels := make([]T, rows)
				for i := range labels {
					labels[i] = T(r.IntN(classes))
				}
				arrays := make([]*scalars, blocks)
				for k := range arrays {
					arrays[k] = arrayOf(field, labels, make([]byte, size))
				}
				d := decoderOf(b, classes)
				beginLabels(d)
				k := 0
				for b.Loop() {
					d.begin(Arrow, nil)
					d.arrow.forgetCodes()
					if bad, reason := d.arrow.labelCodes(arrays[k], field.encoded); reason != "" {
						b.Fatal(bad, reason)
					}
					k = (k + 1) % blocks
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/row")
			})
		}
	}
}

// TestTableCodes looks up numbers that a table must not be asked for, or has no code for.
func TestTableCodes(t *testing.T) {
	table := []int32{7, -1, 0, 5} // of the numbers -2 to 1
	testTableCodes(t, table, []int64{-2, 0, 1, 0}, []int64{-1, 2, -3, math.MinInt64, math.MaxInt64})
	testTableCodes(t, table, []int8{-2, 0, 1}, []int8{-1, 2, -3, math.MinInt8, math.MaxInt8})
	testTableCodes(t, table, []uint64{0, 1}, []uint64{2, math.MaxUint64, math.MaxUint64 - 1, 1 << 63})
	testTableCodes(t, table, []float64{-2, 0, math.Copysign(0, -1), 1}, []float64{-1, 0.5, 1 - 0x1p-53, 2, math.NaN(), math.Inf(1), math.Inf(-1), 0x1p64, -0x1p64})
	testTableCodes(t, table, []float32{-2, 0, 1}, []float32{-1, 0.5, 2, float32(math.NaN()), float32(math.Inf(1)), 0x1p63})
}

func testTableCodes[T gram.Number](t *testing.T, table []int32, known, unknown []T) {
	t.Helper()
	codes := make([]int32, len(known)+1)
	for _, x := range unknown {
		if n := tableCodes(codes, append(slices.Clone(known), x), table, 2); n != len(known) {
			t.Errorf("%T: %d codes, want those of %v, and none of %v", x, n, known, x)
		}
	}
	for i, x := range known {
		if want := table[int(x)+2]; codes[i] != want {
			t.Errorf("%T: %v has code %d, want %d", x, x, codes[i], want)
		}
	}
}
