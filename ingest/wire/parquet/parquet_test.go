package parquet_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	writer "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"streamd/ingest/wire/parquet"
)

// table is columns as they were written; nil is a null.
type table struct {
	bits   []*bool
	small  []*int32
	large  []*int64
	stamps []*[12]byte
	single []*float32
	double []*float64
	texts  []*[]byte
	fixed  []*[]byte
}

const fixedLength = 5

func value[T any](r *rand.Rand, x T) *T {
	if r.IntN(5) == 0 {
		return nil
	}
	return &x
}

// random has rows of values that repeat, run on, or are extreme.
func random(r *rand.Rand, rows int) (t table) {
	for i := range rows {
		k := int64(r.IntN(7))
		switch r.IntN(4) {
		case 0:
			k = int64(r.Uint64())
		case 1:
			k = int64(i)
		}
		t.bits = append(t.bits, value(r, k%3 == 0))
		t.small = append(t.small, value(r, int32(k)))
		t.large = append(t.large, value(r, k))
		t.stamps = append(t.stamps, value(r, [12]byte{byte(k), byte(i), 11: 7}))
		single, double := math.Float32frombits(uint32(k)), math.Float64frombits(uint64(k))
		if single != single || double != double { // the writer's dictionaries have one NaN for all
			single, double = -1, -1
		}
		t.single, t.double = append(t.single, value(r, single)), append(t.double, value(r, double))
		t.texts = append(t.texts, value(r, append([]byte{}, strings.Repeat(fmt.Sprint(k), r.IntN(4))...)))
		t.fixed = append(t.fixed, value(r, fmt.Appendf(nil, "%05d", uint64(k)%100_000)))
	}
	return t
}

// write writes the rows by arrow-go, in row groups.
func write(t *testing.T, of table, groups int, properties ...writer.WriterProperty) []byte {
	t.Helper()
	var fields schema.FieldList
	for i, typ := range []writer.Type{
		writer.Types.Boolean, writer.Types.Int32, writer.Types.Int64, writer.Types.Int96, writer.Types.Float, writer.Types.Double,
		writer.Types.ByteArray, writer.Types.FixedLenByteArray,
	} {
		field, err := schema.NewPrimitiveNode(fmt.Sprintf("c%d", i), writer.Repetitions.Optional, typ, -1, fixedLength)
		if err != nil {
			t.Fatal(err)
		}
		fields = append(fields, field)
	}
	root, err := schema.NewGroupNode("schema", writer.Repetitions.Required, fields, -1)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := file.NewParquetWriter(&out, root, file.WithWriterProps(writer.NewWriterProperties(properties...)))
	rows := len(of.bits)
	for g := range groups {
		from, to := g*rows/groups, (g+1)*rows/groups
		group, err := w.AppendRowGroupChecked()
		if err != nil {
			t.Fatal(err)
		}
		for range fields {
			column, err := group.NextColumn()
			if err == nil {
				switch c := column.(type) {
				case *file.BooleanColumnChunkWriter:
					err = put(c.WriteBatch, of.bits[from:to], func(x bool) bool { return x })
				case *file.Int32ColumnChunkWriter:
					err = put(c.WriteBatch, of.small[from:to], func(x int32) int32 { return x })
				case *file.Int64ColumnChunkWriter:
					err = put(c.WriteBatch, of.large[from:to], func(x int64) int64 { return x })
				case *file.Int96ColumnChunkWriter:
					err = put(c.WriteBatch, of.stamps[from:to], func(x [12]byte) writer.Int96 { return x })
				case *file.Float32ColumnChunkWriter:
					err = put(c.WriteBatch, of.single[from:to], func(x float32) float32 { return x })
				case *file.Float64ColumnChunkWriter:
					err = put(c.WriteBatch, of.double[from:to], func(x float64) float64 { return x })
				case *file.ByteArrayColumnChunkWriter:
					err = put(c.WriteBatch, of.texts[from:to], func(x []byte) writer.ByteArray { return x })
				case *file.FixedLenByteArrayColumnChunkWriter:
					err = put(c.WriteBatch, of.fixed[from:to], func(x []byte) writer.FixedLenByteArray { return x })
				}
			}
			if err == nil {
				err = column.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := group.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func put[T, W any](write func([]W, []int16, []int16) (int64, error), column []*T, of func(T) W) error {
	var values []W
	levels := make([]int16, len(column))
	for i, x := range column {
		if x != nil {
			values, levels[i] = append(values, of(*x)), 1
		}
	}
	_, err := write(values, levels, nil)
	return err
}

// read reads leaf i of a file, so many levels at a time.
func read[T parquet.Value](f *parquet.File, i, most int) (column []*T, err error) {
	r := parquet.NewReader[T](f, i)
	definitions, repetitions := make([]int16, most), make([]int16, most)
	for g := range f.RowGroups() {
		if err := r.Begin(g); err != nil {
			return nil, err
		}
		for {
			n, present, err := r.Levels(definitions, repetitions)
			if err != nil {
				return nil, err
			}
			if n == 0 {
				break
			}
			var values []T
			for len(values) < present {
				some := make([]T, present-len(values))
				k, err := r.Values(some)
				if err != nil {
					return nil, err
				}
				for _, x := range some[:k] {
					if b, ok := any(x).([]byte); ok {
						x = any(append([]byte{}, b...)).(T)
					}
					values = append(values, x)
				}
			}
			for _, level := range definitions[:n] {
				if level < f.Leaves[i].Definitions {
					column = append(column, nil)
					continue
				}
				column, values = append(column, &values[0]), values[1:]
			}
		}
	}
	return column, nil
}

var limits = parquet.Limits{Bytes: 1 << 20, Columns: 100}

// readAll reads all columns of a file.
func readAll(text []byte, most int) (t table, err error) {
	f, err := parquet.Open(bytes.NewReader(text), int64(len(text)), limits)
	if err != nil {
		return t, err
	}
	if len(f.Leaves) != 8 {
		return t, fmt.Errorf("%d columns", len(f.Leaves))
	}
	for _, err := range []error{
		into(&t.bits, f, 0, most), into(&t.small, f, 1, most), into(&t.large, f, 2, most), into(&t.stamps, f, 3, most),
		into(&t.single, f, 4, most), into(&t.double, f, 5, most), into(&t.texts, f, 6, most), into(&t.fixed, f, 7, most),
	} {
		if err != nil {
			return t, err
		}
	}
	return t, nil
}

func into[T parquet.Value](column *[]*T, f *parquet.File, i, most int) (err error) {
	*column, err = read[T](f, i, most)
	return err
}

// ways are properties of files: versions of pages, codecs, and encodings of some columns.
func ways() (all [][]writer.WriterProperty) {
	for _, version := range []writer.DataPageVersion{writer.DataPageV1, writer.DataPageV2} {
		for _, codec := range []compress.Compression{compress.Codecs.Uncompressed, compress.Codecs.Snappy, compress.Codecs.Gzip, compress.Codecs.Zstd, compress.Codecs.Brotli} {
			common := []writer.WriterProperty{writer.WithDataPageVersion(version), writer.WithCompression(codec), writer.WithDataPageSize(300)}
			all = append(all, common, append(slices.Clone(common), writer.WithDictionaryDefault(false)))
		}
		delta := []writer.WriterProperty{writer.WithDataPageVersion(version), writer.WithDictionaryDefault(false), writer.WithDataPageSize(2000)}
		for path, encoding := range map[string]writer.Encoding{
			"c1": writer.Encodings.DeltaBinaryPacked, "c2": writer.Encodings.DeltaBinaryPacked,
			"c4": writer.Encodings.ByteStreamSplit, "c5": writer.Encodings.ByteStreamSplit,
			"c6": writer.Encodings.DeltaByteArray, "c7": writer.Encodings.ByteStreamSplit,
		} {
			delta = append(delta, writer.WithEncodingFor(path, encoding))
		}
		all = append(all, delta, append(slices.Clone(delta), writer.WithEncodingFor("c6", writer.Encodings.DeltaLengthByteArray)))
	}
	return all
}

// What another program has written is read as it was, whatever the versions of the pages, the
// codecs and the encodings, and however many values are asked for at once.
func TestValuesAreThoseWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(81, 1))
	for i, properties := range ways() {
		for _, rows := range []int{1, 300, 1700} {
			want := random(r, rows)
			text := write(t, want, 1+r.IntN(min(rows, 3)), properties...)
			got, err := readAll(text, 1+r.IntN(700))
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("way %d, %d rows: %v; the values are others", i, rows, err)
			}
		}
	}
}

// A damaged file is an error or other values, never a panic.
func TestDamagedFiles(t *testing.T) {
	r := rand.New(rand.NewPCG(82, 1))
	refused, read := 0, 0
	for _, properties := range ways() {
		whole := write(t, random(r, 200), 2, properties...)
		for range 150 {
			text := bytes.Clone(whole)
			for range 1 + r.IntN(3) {
				at := r.IntN(len(text))
				if r.IntN(2) == 0 {
					at = len(text) - 1 - r.IntN(min(len(text), 600))
				}
				text[at] = []byte{0, 1, 0x7f, 0x80, 0xff, byte(r.Uint32())}[r.IntN(6)]
			}
			if r.IntN(8) == 0 {
				text = text[:r.IntN(len(text))]
			}
			if _, err := readAll(text, 100); err != nil {
				refused++
			} else {
				read++
			}
		}
	}
	if refused < 100 || read < 100 {
		t.Errorf("%d damaged files were refused, %d read", refused, read)
	}
}

// What a file asks for is bounded: its footer and its pages, compressed or not.
func TestFilesAreBounded(t *testing.T) {
	text := write(t, random(rand.New(rand.NewPCG(83, 1)), 3000), 1, writer.WithDictionaryDefault(false), writer.WithCompression(compress.Codecs.Zstd))
	for _, most := range []int{100, 2000} {
		f, err := parquet.Open(bytes.NewReader(text), int64(len(text)), parquet.Limits{Bytes: most, Columns: 100})
		if err == nil {
			_, err = read[int64](f, 2, 100)
		}
		if large := (parquet.TooLargeError{}); !errors.As(err, &large) || large.Limit != most {
			t.Errorf("with %d bytes: %v", most, err)
		}
	}
	if _, err := parquet.Open(bytes.NewReader(text), int64(len(text)), parquet.Limits{Bytes: 1 << 20, Columns: 7}); err == nil {
		t.Error("eight columns are read where there may be seven")
	}
}

func FuzzFile(f *testing.F) {
	r := rand.New(rand.NewPCG(84, 1))
	for _, properties := range ways()[:6] {
		f.Add(write(&testing.T{}, random(r, 20), 1, properties...))
	}
	f.Fuzz(func(t *testing.T, text []byte) { readAll(text, 50) })
}
