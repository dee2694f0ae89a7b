package wire_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/pierrec/lz4/v4"

	"streamd/incremental"
	"streamd/ingest/wire"
)

// parquetColumn is a column to write: its type, and row groups of values, where nil is null.
type parquetColumn struct {
	name   string
	typ    parquet.Type
	length int // of fixed_len_byte_array
	values [][]any
}

// parquetOf writes a Parquet file of optional columns.
func parquetOf(t testing.TB, columns []parquetColumn, options ...parquet.WriterProperty) []byte {
	t.Helper()
	var fields schema.FieldList
	for _, c := range columns {
		node, err := schema.NewPrimitiveNodeLogical(c.name, parquet.Repetitions.Optional, schema.NoLogicalType{}, c.typ, c.length, -1)
		if err != nil {
			t.Fatal(err)
		}
		fields = append(fields, node)
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, fields, -1)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	options = append([]parquet.WriterProperty{parquet.WithDictionaryDefault(false)}, options...)
	w := file.NewParquetWriter(&out, root, file.WithWriterProps(parquet.NewWriterProperties(options...)))
	for g := range columns[0].values {
		group, err := w.AppendRowGroupChecked()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range columns {
			chunk, err := group.NextColumn()
			if err != nil {
				t.Fatal(err)
			}
			writeChunk(t, chunk, c.values[g])
			if err := chunk.Close(); err != nil {
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

func writeChunk(t testing.TB, chunk file.ColumnChunkWriter, values []any) {
	t.Helper()
	var levels []int16
	var floats []float64
	var stamps []parquet.Int96
	var texts []parquet.ByteArray
	var fixed []parquet.FixedLenByteArray
	for _, value := range values {
		levels = append(levels, 1)
		switch value := value.(type) {
		case nil:
			levels[len(levels)-1] = 0
		case float64:
			floats = append(floats, value)
		case time.Time:
			var x parquet.Int96
			days := value.Unix() / 86400
			binary.LittleEndian.PutUint64(x[:], uint64(value.UnixNano()-days*86400e9))
			if value.Year() == 9999 { // whose nanoseconds since 1970 fit no int64
				binary.LittleEndian.PutUint64(x[:], uint64(value.Unix()%86400*1e9)+uint64(value.Nanosecond()))
			}
			binary.LittleEndian.PutUint32(x[8:], uint32(days+2440588))
			stamps = append(stamps, x)
		case string:
			texts, fixed = append(texts, parquet.ByteArray(value)), append(fixed, parquet.FixedLenByteArray(value))
		}
	}
	var err error
	switch chunk := chunk.(type) {
	case *file.Float64ColumnChunkWriter:
		_, err = chunk.WriteBatch(floats, levels, nil)
	case *file.Int96ColumnChunkWriter:
		_, err = chunk.WriteBatch(stamps, levels, nil)
	case *file.ByteArrayColumnChunkWriter:
		_, err = chunk.WriteBatch(texts, levels, nil)
	case *file.FixedLenByteArrayColumnChunkWriter:
		_, err = chunk.WriteBatch(fixed, levels, nil)
	default:
		t.Fatalf("%T", chunk)
	}
	if err != nil {
		t.Fatal(err)
	}
}

var (
	doubles = parquet.Types.Double
	plain   = parquet.Types.ByteArray
)

// readWhole reads a Parquet file by DecodeFile, as predict does, and by OpenFile.
func readWhole(t *testing.T, text []byte, opts wire.Options) (*incremental.Block, error) {
	t.Helper()
	b, err := readAll(writeFile(t, "rows.parquet", text), opts, 5)
	table, tableErr := newDecoder(t, opts).DecodeFile(text)
	if err == nil && (tableErr != nil || table.Rows != b.Rows() || len(table.Columns) != len(b.Columns)) {
		t.Fatalf("as a file %d rows, as a whole %d: %v", b.Rows(), table.Rows, tableErr)
	}
	return b, err
}

// TestParquetTexts: a column of bytes without a logical type holds texts, as labels and as
// features.
func TestParquetTexts(t *testing.T) {
	text := parquetOf(t, []parquetColumn{
		{name: "label", typ: plain, values: [][]any{{"a", "b", "a"}}},
		{name: "code", typ: parquet.Types.FixedLenByteArray, length: 3, values: [][]any{{"1.5", "-20", "3e2"}}},
		{name: "x", typ: plain, values: [][]any{{"1", "True", "1970-01-02"}}},
	})
	b, err := readWhole(t, text, wire.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(b.Classes, []string{"a", "b"}) || b.Columns[0].At(1) != -20 || b.Columns[0].At(2) != 300 || b.Columns[1].At(1) != 1 || b.Columns[1].At(2) != 86400 {
		t.Errorf("classes %q, columns %v", b.Classes, b.Columns)
	}
	if b, err := readWhole(t, text, wire.Options{Label: "code", Ignore: []string{"label"}}); err != nil || !slices.Equal(b.Classes, []string{"1.5", "-20", "300"}) {
		t.Errorf("%v, %v", b, err)
	}
	bad := parquetOf(t, []parquetColumn{{name: "label", typ: plain, values: [][]any{{"a", "\xff"}}}, {name: "x", typ: doubles, values: [][]any{{1.0, 2.0}}}})
	if _, err := readAll(writeFile(t, "x.parquet", bad), wire.Options{}, 5); err == nil || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("error %v", err)
	}
	// Nobody asks for a label in predict.
	if table, err := newDecoder(t, wire.Options{}).DecodeFile(bad); err != nil || table.Rows != 2 {
		t.Errorf("%v, %v", table, err)
	}
}

// TestParquetInt96: the time stamps of Impala have a range that nanoseconds in 64 bits have not.
func TestParquetInt96(t *testing.T) {
	stamps := []any{time.Date(2024, 2, 29, 12, 0, 0, 1, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 500e6, time.UTC), time.Date(1969, 12, 31, 21, 0, 0, 0, time.UTC)}
	columns := []parquetColumn{
		{name: "label", typ: plain, values: [][]any{{"a", "b", "a"}}},
		{name: "at", typ: parquet.Types.Int96, values: [][]any{stamps}},
		{name: "x", typ: doubles, values: [][]any{{1.0, 2.0, 3.0}}},
	}
	b, err := readWhole(t, parquetOf(t, columns), wire.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{1709208000.000000001, 253402300799.5, -10800} {
		if got := b.Columns[0].At(i); got != want {
			t.Errorf("row %d is %v, want %v", i, got, want)
		}
	}
	b, err = readWhole(t, parquetOf(t, columns), wire.Options{Label: "at", Ignore: []string{"label"}})
	if err != nil || b.Classes[1] != "9999-12-31T23:59:59.5Z" {
		t.Errorf("%v, %v", b, err)
	}
	columns[1].values[0][1] = time.Date(12024, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := readWhole(t, parquetOf(t, columns), wire.Options{}); err == nil || !strings.Contains(err.Error(), "Julian day") {
		t.Errorf("error %v", err)
	}
	if _, err := readWhole(t, parquetOf(t, columns), wire.Options{Ignore: []string{"at"}}); err != nil {
		t.Error(err)
	}
}

// TestParquetIgnoredIsNotRead: the pages of an ignored column may be anything, and are not read.
func TestParquetIgnoredIsNotRead(t *testing.T) {
	secret := strings.Repeat("never to be read ", 9)
	text := parquetOf(t, []parquetColumn{
		{name: "label", typ: plain, values: [][]any{{"a", "b"}, {"b"}}},
		{name: "junk", typ: plain, values: [][]any{{secret, secret}, {secret}}},
		{name: "x", typ: doubles, values: [][]any{{1.0, 2.0}, {3.0}}},
	}, parquet.WithStats(false))
	at := bytes.Index(text, []byte(secret))
	if at < 0 {
		t.Fatal("no such text")
	}
	copy(text[at-20:], strings.Repeat("\xff", 50)) // the end of the page's head, and lengths
	if b, err := readWhole(t, text, wire.Options{Ignore: []string{"junk"}}); err != nil || b.Rows() != 3 || len(b.Columns) != 1 {
		t.Errorf("%v, %v", b, err)
	}
	if _, err := readWhole(t, text, wire.Options{}); err == nil {
		t.Error("the damage is not found where the column is read")
	}
	if b, err := readWhole(t, text, wire.Options{Features: []string{"x"}, IgnoreUnknown: true}); err != nil || b.Rows() != 3 {
		t.Errorf("%v, %v", b, err)
	}
}

// TestParquetNulls: pages without a value are no end of a column, in both versions of pages.
func TestParquetNulls(t *testing.T) {
	for _, version := range []parquet.DataPageVersion{parquet.DataPageV1, parquet.DataPageV2} {
		for _, codec := range []compress.Compression{compress.Codecs.Uncompressed, compress.Codecs.Snappy, compress.Codecs.Zstd} {
			text := parquetOf(t, []parquetColumn{
				{name: "label", typ: plain, values: [][]any{{"a", "b"}, {}, {"a"}}},
				{name: "x", typ: doubles, values: [][]any{{nil, nil}, {}, {3.0}}},
			}, parquet.WithDataPageVersion(version), parquet.WithCompression(codec), parquet.WithDataPageSize(1))
			b, err := readWhole(t, text, wire.Options{Missing: wire.Missing{Default: wire.MissingZero}})
			if err != nil || b.Rows() != 3 || b.Columns[0].At(0) != 0 || b.Columns[0].At(2) != 3 {
				t.Errorf("version %v, %v: %v, %v", version, codec, b, err)
			}
		}
	}
}

// hadoopLZ4 compresses as Hadoop does, in stretches of up to so many bytes; 0: as one bare block.
type hadoopLZ4 struct {
	compress.Codec
	stretch int
}

func (h hadoopLZ4) CompressBound(n int64) int64 { return 2*n + 100 }

func (h hadoopLZ4) Encode(_, src []byte) (out []byte) {
	stretch := h.stretch
	if stretch == 0 {
		stretch = len(src)
	}
	for piece := range slices.Chunk(src, max(stretch, 1)) {
		block := make([]byte, lz4.CompressBlockBound(len(piece)))
		n, err := lz4.CompressBlock(piece, block, nil)
		if err != nil {
			panic(err)
		}
		if h.stretch > 0 {
			out = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(out, uint32(len(piece))), uint32(n))
		}
		out = append(out, block[:n]...)
	}
	return out
}

func (h hadoopLZ4) EncodeLevel(dst, src []byte, _ int) []byte { return h.Encode(dst, src) }

// TestParquetOldLZ4 reads pages that are compressed by Hadoop's LZ4, and by bare blocks.
func TestParquetOldLZ4(t *testing.T) {
	codec, err := compress.GetCodec(compress.Codecs.Lz4Raw)
	if err != nil {
		t.Fatal(err)
	}
	var labels, numbers []any
	for i := range 3000 {
		labels, numbers = append(labels, fmt.Sprint("class ", i%2)), append(numbers, float64(i/7))
	}
	for _, stretch := range []int{0, 1000, 1 << 20} {
		compress.RegisterCodec(compress.Codecs.Lz4, hadoopLZ4{codec, stretch})
		text := parquetOf(t, []parquetColumn{{name: "label", typ: plain, values: [][]any{labels}}, {name: "x", typ: doubles, values: [][]any{numbers}}},
			parquet.WithCompression(compress.Codecs.Lz4))
		b, err := readWhole(t, text, wire.Options{})
		if err != nil || b.Rows() != 3000 || b.Columns[0].At(2999) != 2999/7 {
			t.Errorf("stretches of %d: %v, %v", stretch, b, err)
		}
		corrupt := bytes.Clone(text)
		corrupt[60] ^= 0x55
		if b, err := readAll(writeFile(t, "x.parquet", corrupt), wire.Options{}, 5000); err == nil && b.Rows() != 3000 {
			t.Errorf("%d rows", b.Rows())
		}
	}
}

// TestParquetPages: the limit of a page is said, with what can be done.
func TestParquetPages(t *testing.T) {
	long := strings.Repeat("x", 5000)
	text := parquetOf(t, []parquetColumn{
		{name: "label", typ: plain, values: [][]any{{"a", "b"}}}, {name: "note", typ: plain, values: [][]any{{long, long}}}, {name: "x", typ: doubles, values: [][]any{{1.0, 2.0}}},
	}, parquet.WithStats(false))
	path := writeFile(t, "x.parquet", text)
	if _, err := readAll(path, wire.Options{Limits: wire.Limits{Bytes: 8000}}, 5); err == nil || !strings.Contains(err.Error(), "GOMEMLIMIT") {
		t.Errorf("error %v", err)
	}
	if _, err := readAll(path, wire.Options{Ignore: []string{"note"}, Limits: wire.Limits{Bytes: 8000}}, 5); err != nil {
		t.Error(err)
	}
	_, err := readAll(path, wire.Options{Limits: wire.Limits{Bytes: 8000, Pages: 20000}}, 5)
	if err == nil || strings.Contains(err.Error(), "page size") {
		t.Errorf("error %v", err)
	}
}

// TestParquetWideRows: rows that take more and more memory come in smaller and smaller batches.
func TestParquetWideRows(t *testing.T) {
	var labels, notes []any
	for i := range 600 {
		labels, notes = append(labels, fmt.Sprint(i%2)), append(notes, fmt.Sprintf("%0*d", 1+i*5, i))
	}
	text := parquetOf(t, []parquetColumn{{name: "label", typ: plain, values: [][]any{labels}}, {name: "x", typ: plain, values: [][]any{notes}}}, parquet.WithStats(false))
	b, err := readAll(writeFile(t, "x.parquet", text), wire.Options{Limits: wire.Limits{Bytes: 1 << 19, Pages: 1 << 21}}, 600)
	if err != nil || b.Rows() != 600 || b.Columns[0].At(599) != 599 {
		t.Errorf("%v, %v", b, err)
	}
}

// TestForeignFiles: files that are not read say what they are.
func TestForeignFiles(t *testing.T) {
	stream, err := os.ReadFile("../../testdata/wire/int8.arrow")
	if err != nil {
		t.Fatal(err)
	}
	old := stream[4:] // messages before 0.15 have no continuation
	arrow, err := os.ReadFile("../../testdata/wire/file.arrow")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text   []byte
		reason string
	}{
		{old, "Arrow before 0.15"},
		{bytes.ReplaceAll(arrow, []byte("\xff\xff\xff\xff"), []byte("\x00\x00\x00\x00")), "Arrow before 0.15"},
		{arrow[:len(arrow)-20], "truncated"},
		{arrow[:12], "truncated"},
		{append([]byte("PARE"), make([]byte, 100)...), "encrypted Parquet"},
		{append([]byte("PAR1\x40\x00\x00\x00"), make([]byte, 100)...), "encrypted Parquet"},
		{append([]byte("FEA1"), make([]byte, 100)...), "Feather in its first version"},
	} {
		if _, err := readAll(writeFile(t, "rows.x", c.text), wire.Options{}, 10); err == nil || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%.20q: %v, want …%s…", c.text, err, c.reason)
		}
		if _, err := newDecoder(t, wire.Options{}).DecodeFile(c.text); err == nil || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%.20q as a whole: %v, want …%s…", c.text, err, c.reason)
		}
	}
	if _, err := newDecoder(t, wire.Options{}).Decode(arrowType, old); err == nil || !strings.Contains(err.Error(), "Arrow before 0.15") {
		t.Errorf("error %v", err)
	}
}

// Columns that are encrypted behind a readable footer are said to be so, wherever they are in the
// file, and can be ignored.
func TestEncryptedColumns(t *testing.T) {
	columns := []parquetColumn{
		{"label", parquet.Types.Double, 0, [][]any{{1.0, 2.0}}}, {"u", parquet.Types.Double, 0, [][]any{{3.0, 4.0}}}, {"v", parquet.Types.Double, 0, [][]any{{5.0, 6.0}}},
	}
	for _, secret := range []string{"label", "u", "v"} {
		key := "0123456789abcdef"
		text := parquetOf(t, columns, parquet.WithEncryptionProperties(parquet.NewFileEncryptionProperties(key, parquet.WithPlaintextFooter(),
			parquet.WithEncryptedColumns(parquet.ColumnPathToEncryptionPropsMap{secret: parquet.NewColumnEncryptionProperties(secret, parquet.WithKey(key))}))))
		path := writeFile(t, "rows.parquet", text)
		for _, read := range []func() error{
			func() error { _, err := readAll(path, wire.Options{}, 10); return err },
			func() error { _, err := newDecoder(t, wire.Options{}).DecodeFile(text); return err },
		} {
			if err := read(); err == nil || !strings.Contains(err.Error(), "decrypt it first") {
				t.Errorf("%s is encrypted: %v", secret, err)
			}
		}
		if secret != "v" {
			continue
		}
		if b, err := readAll(path, wire.Options{Ignore: []string{secret}}, 10); err != nil || b.Rows() != 2 || len(b.Columns) != 1 {
			t.Errorf("%s is encrypted and ignored: %v", secret, err)
		}
	}
}

// TestArrowFileByFooter: what is in an Arrow file before its blocks is not read. polars writes the
// schema there without the length of its message.
func TestArrowFileByFooter(t *testing.T) {
	arrow, err := os.ReadFile("../../testdata/wire/file.arrow")
	if err != nil {
		t.Fatal(err)
	}
	want, err := readAll(writeFile(t, "rows.arrow", arrow), wire.Options{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	clear(arrow[8:60])
	got, err := readAll(writeFile(t, "rows.arrow", arrow), wire.Options{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	requireSame(t, got, want)
	if table, err := newDecoder(t, wire.Options{}).DecodeFile(arrow); err != nil || table.Rows != want.Rows() {
		t.Errorf("%v, %v", table, err)
	}
}

// TestDurations: Arrow's durations of all units, and Parquet's, which have the unit in the Arrow
// schema beside Parquet's own, are seconds.
func TestDurations(t *testing.T) {
	for _, name := range []string{"durations.arrow", "durations.parquet"} {
		path := "../../testdata/wire/" + name
		b, err := readAll(path, wire.Options{}, 10)
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"ms", "ns", "s", "us"}; !slices.Equal(b.Features, want) {
			t.Fatalf("%s: features %q, want %q", name, b.Features, want)
		}
		for j, perSecond := range []float64{1e3, 1e9, 1, 1e6} {
			for i, units := range []float64{-1500, 0, 1, 1 << 40} {
				if got, want := b.Columns[j].At(i), units/perSecond; got != want {
					t.Errorf("%s: %s in row %d is %v, want %v", name, b.Features[j], i, got, want)
				}
			}
		}
		b, err = readAll(path, wire.Options{Label: "ms", Ignore: []string{"label"}}, 10)
		if want := []string{"-1.5", "0", "0.001", "1099511627.776"}; err != nil || !slices.Equal(b.Classes, want) {
			t.Errorf("%s: %v, %v, want %q", name, b, err, want)
		}
	}
}

func TestPolars(t *testing.T) {
	b, err := readAll("../../testdata/wire/polars.arrow", wire.Options{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	want, err := readAll("../../testdata/wire/file.arrow", wire.Options{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	requireSame(t, b, want)
}

// TestParquetWrongFlags: old C++ compressed pages of the second version and said that they are not.
func TestParquetWrongFlags(t *testing.T) {
	text, err := os.ReadFile("../../testdata/wire/pages_v2.parquet")
	if err != nil {
		t.Fatal(err)
	}
	opts := wire.Options{}
	want, err := readWhole(t, text, opts)
	if err != nil {
		t.Fatal(err)
	}
	// Behind the lengths of the levels, of definitions some bytes and of repetitions none, is the
	// flag.
	flags := regexp.MustCompile(`\x15[\x02-\x08]\x15\x00\x11`)
	count := 0
	lied := flags.ReplaceAllFunc(text, func(b []byte) []byte {
		count++
		return append(bytes.Clone(b[:4]), 0x12)
	})
	if count != 4 {
		t.Fatalf("%d pages", count)
	}
	if got, err := readWhole(t, lied, opts); err == nil && digest(t, got, len(got.Columns)) == digest(t, want, len(want.Columns)) {
		t.Error("the flags of a newer writer are not believed")
	}
	newer, older := []byte("parquet-cpp-arrow version 26.0.1"), []byte("parquet-cpp version 1.5.1-SNAPSH")
	lied = bytes.ReplaceAll(lied, newer, older)
	got, err := readWhole(t, lied, opts)
	if err != nil {
		t.Fatal(err)
	}
	requireSame(t, got, want)
	for i := 4; i < len(lied); i += 3 { // nothing panics
		corrupt := bytes.Clone(lied)
		corrupt[i] ^= 0x5a
		newDecoder(t, opts).DecodeFile(corrupt)
	}
}

// TestParquetPageOfNothing: a page of nulls in the second version may have no bytes where those of
// a compressed nothing could be.
func TestParquetPageOfNothing(t *testing.T) {
	codec, err := compress.GetCodec(compress.Codecs.Snappy)
	if err != nil {
		t.Fatal(err)
	}
	defer compress.RegisterCodec(compress.Codecs.Snappy, codec)
	compress.RegisterCodec(compress.Codecs.Snappy, shortCodec{codec})
	text := parquetOf(t, []parquetColumn{{name: "label", typ: plain, values: [][]any{{"a", "b"}}}, {name: "x", typ: doubles, values: [][]any{{nil, nil}}}, {name: "y", typ: doubles, values: [][]any{{1.0, 2.0}}}},
		parquet.WithDataPageVersion(parquet.DataPageV2), parquet.WithCompression(compress.Codecs.Snappy))
	compress.RegisterCodec(compress.Codecs.Snappy, codec)
	if b, err := readWhole(t, text, wire.Options{Missing: wire.Missing{Default: wire.MissingZero}}); err != nil || b.Columns[0].At(1) != 0 || b.Columns[1].At(1) != 2 {
		t.Errorf("%v, %v", b, err)
	}
}

// shortCodec compresses nothing to nothing.
type shortCodec struct{ compress.Codec }

func (s shortCodec) Encode(dst, src []byte) []byte {
	if len(src) == 0 {
		return nil
	}
	return s.Codec.Encode(dst, src)
}

func (s shortCodec) EncodeLevel(dst, src []byte, level int) []byte { return s.Encode(dst, src) }

// TestParquetEmptyGroups: a group without columns, in a group or not, has no chunk in row groups.
func TestParquetEmptyGroups(t *testing.T) {
	text := parquetOf(t, []parquetColumn{{name: "label", typ: plain, values: [][]any{{"a", "b"}}}, {name: "x", typ: doubles, values: [][]any{{1.0, 2.0}}}})
	footer := len(text) - 8 - int(binary.LittleEndian.Uint32(text[len(text)-8:]))
	change := func(old, changed string) {
		t.Helper()
		i := bytes.Index(text[footer:], []byte(old))
		if i < 0 {
			t.Fatalf("no %q in %q", old, text[footer:])
		}
		text = slices.Replace(text, footer+i, footer+i+len(old), []byte(changed)...)
	}
	// The list of the schema's elements, in Thrift's compact protocol, and its first one. An empty
	// group has no type and no children, or none of them.
	change("\x19\x3c", "\x19\x6c")
	change("\x48\x06schema\x15\x04\x00", "\x48\x06schema\x15\x08\x00"+"\x35\x02\x18\x05empty\x00"+"\x35\x02\x18\x06nested\x15\x02\x00"+"\x35\x02\x18\x05inner\x15\x00\x00")
	binary.LittleEndian.PutUint32(text[len(text)-8:], uint32(len(text)-8-footer))
	b, err := readWhole(t, text, wire.Options{})
	if err != nil || b.Rows() != 2 || len(b.Columns) != 1 || b.Columns[0].At(1) != 2 {
		t.Errorf("%v, %v", b, err)
	}
}
