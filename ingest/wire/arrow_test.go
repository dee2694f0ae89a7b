package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/wire"
)

const arrowType = "application/vnd.apache.arrow.stream"

// fixture is a stream written by pyarrow, see testdata/wire/README.md.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../testdata/wire", name+".arrow"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPyarrow reads the same four rows in every type that another
// implementation wrote them in, at every alignment of the payload in memory.
func TestPyarrow(t *testing.T) {
	want := &incremental.Block{Classes: []string{"a", "b", "c"}, Codes: []int32{0, 1, 0, 2},
		Columns: []gram.Column{gram.ColumnOf([]float64{1, -2, 3, 4}), gram.ColumnOf([]float64{0.5, 1.5, -2.5, 100})}}
	for name, kinds := range map[string][2]gram.Kind{
		"string":              {gram.Float64, gram.Float64},
		"large_string":        {gram.Float32, gram.Float32},
		"string_view":         {gram.Float64, gram.Float64},
		"dictionary":          {gram.Float64, gram.Float64},
		"dictionary_int8":     {gram.Float64, gram.Float64},
		"dictionary_replaced": {gram.Float64, gram.Float64},
		"int8":                {gram.Int8, gram.Float32},
		"float16":             {gram.Int16, gram.Float32},
		"label_last":          {gram.Float64, gram.Float64},
		"lz4":                 {gram.Float64, gram.Float64},
		"zstd":                {gram.Float64, gram.Float64},
		"sliced":              {gram.Int32, gram.Float64},
		"batches":             {gram.Float64, gram.Float64},
		"list":                {gram.Float32, gram.Float32},
		"list_named":          {gram.Float32, gram.Float32},
		"timestamp":           {gram.Float64, gram.Float64},
	} {
		t.Run(name, func(t *testing.T) {
			payload := fixture(t, name)
			for _, opts := range []wire.Options{{}, {Features: []string{"u", "v"}}} {
				d := newDecoder(t, opts)
				for shift := range 9 {
					b, err := d.Decode(arrowType, append(make([]byte, shift, shift+len(payload)), payload...)[shift:])
					if err != nil {
						t.Fatal(err)
					}
					requireSame(t, b, want)
					if got := strings.Join(b.Features, ","); got != "u,v" && (name != "list" || got != "") {
						t.Errorf("features %s", got)
					}
					for j, c := range b.Columns {
						if c.Kind() != kinds[j] {
							t.Errorf("column %d is of kind %d, want %d", j, c.Kind(), kinds[j])
						}
					}
				}
			}
			swapped := decode(t, wire.Options{Features: []string{"v", "u"}}, arrowType, payload)
			if name != "list" { // its features have no names to be swapped by
				requireSame(t, swapped, &incremental.Block{Classes: want.Classes, Codes: want.Codes,
					Columns: []gram.Column{want.Columns[1], want.Columns[0]}})
			}
		})
	}
	t.Run("weights", func(t *testing.T) {
		weighted := *want
		weighted.Weights = []float64{1, 0, 2, 0.5}
		requireSame(t, decode(t, wire.Options{Weight: "weight"}, arrowType, fixture(t, "weights")), &weighted)
	})
}

func TestPyarrowRefused(t *testing.T) {
	uv := wire.Options{Features: []string{"u", "v"}}
	for _, c := range []struct {
		name   string
		opts   wire.Options
		row    int
		column string
		reason string
	}{
		{"null_feature", wire.Options{}, 2, "v", "null"},
		{"null_label", wire.Options{}, 1, "label", "null"},
		{"null_list", wire.Options{}, 1, "x", "null"},
		{"delta", wire.Options{}, -1, "label", "delta"},
		{"unnamed", wire.Options{}, -1, "", "empty name"},
		{"pandas_index", wire.Options{}, -1, "__index_level_0__", "preserve_index"},
		{"file", wire.Options{}, -1, "", "stream format"},
		{"string", wire.Options{Label: "u", Features: []string{"v"}}, -1, "label", "unknown"},
		{"string", wire.Options{Label: "u"}, 0, "label", `"a" is not a number`},
		{"string", wire.Options{Features: []string{"u", "v", "w"}}, -1, "w", "missing"},
		{"string", wire.Options{Features: []string{"u"}}, -1, "v", "unknown"},
		{"string", wire.Options{Label: "what"}, -1, "what", "no such column"},
		{"int8", wire.Options{Weight: "u"}, 1, "u", "-2"},
		{"string", wire.Options{Weight: "w"}, -1, "w", "no such column"},
		{"list", wire.Options{Features: []string{"u", "v", "w"}}, -1, "", "2 features, want 3"},
		{"weights", uv, -1, "weight", "unknown"},
		{"string", wire.Options{Limits: wire.Limits{Rows: 3}}, -1, "", "4 rows"},
		{"batches", wire.Options{Limits: wire.Limits{Rows: 3}}, -1, "", "3 rows"},
		{"string", wire.Options{Limits: wire.Limits{Classes: 2}}, 3, "label", "2 classes"},
		{"list", wire.Options{Limits: wire.Limits{Features: 1}}, -1, "features", "fixed_size_list of 2 float32 is not supported: want numbers, booleans, dates, time stamps or texts that spell them, or lists of up to 1 numbers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := newDecoder(t, c.opts).Decode(arrowType, fixture(t, c.name))
			var e *wire.Error
			if !errors.As(err, &e) || e.Row != c.row || e.Column != c.column || !strings.Contains(e.Reason, c.reason) {
				t.Errorf("error %v, want row %d, column %q: …%s…", err, c.row, c.column, c.reason)
			}
		})
	}
}

// TestArrowTruncated cuts a stream at every byte. No part of it may be taken for the
// whole, except all but the end marker, which Arrow lets a writer leave out.
func TestArrowTruncated(t *testing.T) {
	for _, name := range []string{"string", "lz4", "dictionary", "list_named"} {
		whole := fixture(t, name)
		d := newDecoder(t, wire.Options{})
		for n := range len(whole) {
			if _, err := d.Decode(arrowType, whole[:n]); (err == nil) != (n == len(whole)-8) {
				t.Errorf("%s: %d of %d bytes: error %v", name, n, len(whole), err)
			}
		}
		if _, err := d.Decode(arrowType, append(bytes.Clone(whole), 0)); err == nil {
			t.Errorf("%s: a byte behind the end is accepted", name)
		}
	}
}

// TestArrowCorrupted changes single bytes. An accepted stream makes a consistent block,
// and nothing panics.
func TestArrowCorrupted(t *testing.T) {
	for _, name := range []string{"string", "string_view", "zstd", "lz4", "dictionary_int8", "list_named", "batches", "null_feature", "weights"} {
		whole := fixture(t, name)
		d := newDecoder(t, wire.Options{})
		for i := range whole {
			for _, c := range []byte{0, 1, 0x7f, 0x80, 0xff} {
				corrupt := bytes.Clone(whole)
				corrupt[i] = c
				if b, err := d.Decode(arrowType, corrupt); err == nil {
					requireConsistent(t, b, false)
				}
			}
		}
	}
}

// TestArrowView: the columns of a single batch lie in the payload.
func TestArrowView(t *testing.T) {
	payload, err := wire.Encode(nil, wire.Arrow, randomBlock(rand.New(rand.NewPCG(1, 1)), 100, 3, []string{"1", "-1"}, []gram.Kind{gram.Float32}))
	if err != nil {
		t.Fatal(err)
	}
	words := make([]uint64, len(payload)/8+1) // aligned, as any large slice is
	aligned := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(payload))
	copy(aligned, payload)
	b := decode(t, wire.Options{}, arrowType, aligned)
	before := b.Columns[1].At(7)
	at := bytes.Index(aligned, binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(before))))
	copy(aligned[at:], binary.LittleEndian.AppendUint32(nil, math.Float32bits(4711)))
	if got := b.Columns[1].At(7); got != 4711 {
		t.Errorf("the column is a copy: %v, want 4711", got)
	}
}

// TestArrowGo lets the library read what the encoder writes.
func TestArrowGo(t *testing.T) {
	want := randomBlock(rand.New(rand.NewPCG(1, 1)), 100, 3, []string{"spam", "ham"}, []gram.Kind{gram.Float32, gram.Int8})
	want.Features = []string{"a", "b", "c"}
	payload, err := wire.Encode(nil, wire.Arrow, want)
	if err != nil {
		t.Fatal(err)
	}
	r, err := ipc.NewReader(bytes.NewReader(payload))
	if err != nil {
		t.Fatal(err)
	}
	if !r.Next() {
		t.Fatal(r.Err())
	}
	batch := r.RecordBatch()
	if got := batch.Schema().String(); batch.NumRows() != 100 || !strings.Contains(got, "label: type=utf8") || !strings.Contains(got, "b: type=int8") {
		t.Errorf("%d rows of %s", batch.NumRows(), got)
	}
	for i := range 100 {
		if got := batch.Column(0).ValueStr(i); got != want.Classes[want.Codes[i]] {
			t.Fatalf("row %d: label %s", i, got)
		}
	}
	if r.Next() || r.Err() != nil {
		t.Errorf("a second batch, or %v", r.Err())
	}
}

// overlapping is a stream of 37 rows of n features that all lie in one buffer.
func overlapping(t testing.TB, n int) []byte {
	t.Helper()
	const rows = 37
	b := &incremental.Block{Classes: []string{"1"}, Codes: make([]int32, rows)}
	for j := range n {
		column := make([]float64, rows)
		for i := range column {
			column[i] = float64(i * (j + 1))
		}
		b.Columns = append(b.Columns, gram.ColumnOf(column))
	}
	payload, err := wire.Encode(nil, wire.Arrow, b)
	if err != nil {
		t.Fatal(err)
	}
	// A buffer is its offset in the body and its length. The length of a column's
	// numbers is unique here.
	var buffers [][]byte
	for i, step := 0, 1; i+16 <= len(payload); i += step {
		at := binary.LittleEndian.Uint64(payload[i:])
		if binary.LittleEndian.Uint64(payload[i+8:]) == 8*rows && at < uint64(len(payload)) {
			buffers, step = append(buffers, payload[i:i+8]), 16
		}
	}
	if len(buffers) != n+1 { // and the labels
		t.Fatalf("%d buffers found, want %d", len(buffers), n+1)
	}
	for _, b := range buffers[1:] {
		copy(b, buffers[0])
	}
	// The body keeps only that buffer. Before it are the metadata of the schema and of
	// the batch, and behind it the end of the stream.
	schema := 8 + int(binary.LittleEndian.Uint32(payload[4:]))
	from := schema + 8 + int(binary.LittleEndian.Uint32(payload[schema+4:]))
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(payload)-8-from))
	at := schema + bytes.LastIndex(payload[schema:from], length)
	binary.LittleEndian.PutUint64(payload[at:], 8*rows)
	return append(payload[:from+8*rows], payload[len(payload)-8:]...)
}

// TestOverlappingBuffers: a body cannot stand for more bytes than it has.
func TestOverlappingBuffers(t *testing.T) {
	for _, n := range []int{2, 4, 64} {
		b, err := newDecoder(t, wire.Options{}).Decode(arrowType, overlapping(t, n))
		if err == nil || !strings.Contains(err.Error(), "overlap") {
			t.Errorf("%d features: block %v, error %v", n, b, err)
		}
	}
}

// TestNumbersThatTakeTooMuch: the error says that another decoder may take the payload.
func TestNumbersThatTakeTooMuch(t *testing.T) {
	for contentType, payload := range map[string]string{
		"application/x-libsvm": strings.Repeat("1\n", 200) + "1 100:1\n",
		"text/csv":             strings.Repeat("1,2,3\n", 300),
		arrowType:              string(zeros(t, 5000, 4)),
	} {
		for numbers, fits := range map[int]bool{4 << 10: false, 1 << 20: true} {
			_, err := newDecoder(t, wire.Options{Limits: wire.Limits{Numbers: numbers}}).Decode(contentType, []byte(payload))
			var e *wire.Error
			if errors.As(err, &e); fits && err != nil || !fits && (e == nil || !e.Memory) {
				t.Errorf("%s in %d bytes: %v", contentType, numbers, err)
			}
		}
	}
}

// TestMemoryIsGivenBack: the memory of a large block is not kept for small ones.
func TestMemoryIsGivenBack(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	small, err := wire.Encode(nil, wire.CSV, &incremental.Block{
		Classes: []string{"1"}, Codes: []int32{0}, Columns: []gram.Column{gram.ColumnOf([]float64{1})},
	})
	if err != nil {
		t.Fatal(err)
	}
	for contentType, large := range map[string]func() []byte{
		"application/x-libsvm": func() []byte { return []byte(strings.Repeat("1\n", 2000) + "1 4096:1\n") },
		arrowType:              func() []byte { return zeros(t, 1<<20, 8) },
	} {
		d := newDecoder(t, wire.Options{})
		before := heap()
		if _, err := d.Decode(contentType, large()); err != nil {
			t.Fatal(err)
		}
		held := int64(heap() - before)
		for range 2 {
			if _, err := d.Decode("text/csv", small); err != nil {
				t.Fatal(err)
			}
		}
		if kept := int64(heap() - before); held < 8<<20 || kept > held/4 {
			t.Errorf("%s: %d bytes after a large block, %d after two small ones", contentType, held, kept)
		}
		runtime.KeepAlive(d)
	}
}

// zeros is a stream of rows of n booleans, compressed by Zstandard.
func zeros(t testing.TB, rows, n int) []byte {
	t.Helper()
	fields := []arrow.Field{{Name: "label", Type: arrow.FixedWidthTypes.Boolean}}
	for j := range n {
		fields = append(fields, arrow.Field{Name: incremental.DefaultFeature(j), Type: arrow.FixedWidthTypes.Boolean})
	}
	schema := arrow.NewSchema(fields, nil)
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer builder.Release()
	for _, field := range builder.Fields() {
		field.(*array.BooleanBuilder).AppendValues(make([]bool, rows), nil)
	}
	return stream(t, builder.NewRecordBatch(), ipc.WithZstd())
}
