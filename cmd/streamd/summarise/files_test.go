package summarise

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/ingest/summary"
	"streamd/ingest/wire"
)

// someRows are rows of two features as CSV and as a stream of Arrow, in batches of random sizes.
func someRows(t *testing.T, r *rand.Rand, n int) (csv, stream []byte) {
	t.Helper()
	columns := arrow.NewSchema([]arrow.Field{
		{Name: "x", Type: arrow.PrimitiveTypes.Float64}, {Name: "label", Type: arrow.BinaryTypes.String}, {Name: "price", Type: arrow.PrimitiveTypes.Float64},
	}, nil)
	var text, out bytes.Buffer
	text.WriteString("x,label,price\n")
	w := ipc.NewWriter(&out, ipc.WithSchema(columns))
	for left := n; left > 0; {
		m := min(left, 1+r.IntN(150))
		left -= m
		b := array.NewRecordBuilder(memory.DefaultAllocator, columns)
		for range m {
			x, label, price := r.NormFloat64(), string(rune('a'+r.IntN(2))), float64(r.IntN(1e6))/100
			fmt.Fprintf(&text, "%g,%s,%g\n", x, label, price)
			b.Field(0).(*array.Float64Builder).Append(x)
			b.Field(1).(*array.StringBuilder).Append(label)
			b.Field(2).(*array.Float64Builder).Append(price)
		}
		batch := b.NewRecordBatch()
		if err := w.Write(batch); err != nil {
			t.Fatal(err)
		}
		batch.Release()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return text.Bytes(), out.Bytes()
}

func sumAll(t *testing.T, f *Files) (all []Made) {
	t.Helper()
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	err := f.Sum(t.Context(), func(b *Made) error {
		c := *b
		c.Value = slices.Clone(b.Value)
		all = append(all, c)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Blocks are cut by the rows of a file, whatever its format and its batches, and a table gives them
// back as they are. Their sums are those of incremental.
func TestFilesAreCutByRows(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	const n, rows = 1033, 100
	csv, stream := someRows(t, r, n)
	dir := t.TempDir()
	path := filepath.Join(dir, "rows.csv")
	if err := os.WriteFile(path, csv, 0o644); err != nil {
		t.Fatal(err)
	}
	settings := sample.Settings{Rows: 10, Seed: 3}
	of := sumAll(t, &Files{Paths: []string{path}, BlockRows: rows, Sample: settings})
	from := sumAll(t, &Files{
		Paths: []string{"-"}, Stdin: io.MultiReader(bytes.NewReader(stream)), Source: "rows.csv", BlockRows: rows, Sample: settings, Time: of[0].Time,
	})
	if len(of) != 11 || len(from) != len(of) {
		t.Fatalf("%d blocks of the file, %d of the stream", len(of), len(from))
	}
	reader, err := wire.OpenFile(path, wire.Options{}, rows)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for i := range of {
		a, b := &of[i], &from[i]
		if a.ID != fmt.Sprintf("file:rows.csv/0/%d", i*rows) || a.ID != b.ID || a.FirstRow != int64(i*rows) || !bytes.Equal(a.Value, b.Value) {
			t.Fatalf("block %d is %s from row %d, of the stream %s; the same bytes: %t", i, a.ID, a.FirstRow, b.ID, bytes.Equal(a.Value, b.Value))
		}
		block, err := reader.Next()
		if err != nil {
			t.Fatal(err)
		}
		s, err := new(incremental.Summariser).Summarise(block)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%x", s.Digest()); a.Digest != want {
			t.Fatalf("block %d has the digest %s, not %s", i, a.Digest, want)
		}
	}

	table := filepath.Join(dir, "table.jsonl")
	var lines bytes.Buffer
	for i := range of {
		if err := WriteRow(&lines, &of[i]); err != nil {
			t.Fatal(err)
		}
	}
	// A folder as Spark leaves it, of both formats.
	columns, folder := filepath.Join(dir, "table.parquet"), filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	some := bytes.SplitAfter(lines.Bytes(), []byte("\n"))
	for path, content := range map[string][]byte{
		table: lines.Bytes(), columns: tableColumns(t, of, 3), filepath.Join(folder, "_SUCCESS"): nil, filepath.Join(folder, ".part.crc"): {1},
		filepath.Join(folder, "part-0"): bytes.Join(some[:4], nil), filepath.Join(folder, "part-1"): nil, filepath.Join(folder, "part-2"): tableColumns(t, of[4:], 100),
	} {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]bool{path: false, table: true, columns: true, folder: true} {
		if is, err := IsTable(path); err != nil || is != want {
			t.Errorf("%s is a table: %t, %v", path, is, err)
		}
	}
	for _, path := range []string{table, columns, folder} {
		i := 0
		if err := ReadTable(path, 1<<20, func(b *summary.Block, value []byte) error {
			if b.ID != of[i].ID || !bytes.Equal(value, of[i].Value) {
				t.Errorf("block %d of %s is %s", i, path, b.ID)
			}
			i++
			return nil
		}); err != nil || i != len(of) {
			t.Fatalf("%s: %d blocks are read: %v", path, i, err)
		}
	}
	for path, want := range map[string]string{table: "line 1", columns: "row 0", folder: "part-0: line 1"} {
		if err := ReadTable(path, 10, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s, of a limit of 10 bytes: %v", path, err)
		}
	}
	if _, err := IsTable(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no file of a table") {
		t.Errorf("an empty folder: %v", err)
	}
}

// tableColumns is a table in Parquet, with so many rows in a row group.
func tableColumns(t *testing.T, blocks []Made, group int) []byte {
	t.Helper()
	leaf := func(name string, logical schema.LogicalType) schema.Node {
		return schema.MustPrimitive(schema.NewPrimitiveNodeLogical(name, parquet.Repetitions.Optional, logical, parquet.Types.ByteArray, 0, -1))
	}
	root, err := schema.NewGroupNode("table", parquet.Repetitions.Required, schema.FieldList{
		leaf("id", schema.StringLogicalType{}), leaf("bytes", schema.NoLogicalType{}),
	}, -1)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := file.NewParquetWriter(&out, root, file.WithWriterProps(parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Snappy))))
	for some := range slices.Chunk(blocks, group) {
		rows, err := w.AppendRowGroupChecked()
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range []func(b *Made) []byte{func(b *Made) []byte { return []byte(b.ID) }, func(b *Made) []byte { return b.Value }} {
			column, err := rows.NextColumn()
			if err != nil {
				t.Fatal(err)
			}
			var values []parquet.ByteArray
			for i := range some {
				values = append(values, value(&some[i]))
			}
			there := slices.Repeat([]int16{1}, len(some))
			if _, err := column.(*file.ByteArrayColumnChunkWriter).WriteBatch(values, there, nil); err != nil {
				t.Fatal(err)
			}
			if err := column.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A broken table is an error, and never a panic; what was read before was whole.
func TestBrokenTables(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	csv, _ := someRows(t, r, 40)
	dir := t.TempDir()
	path := filepath.Join(dir, "rows.csv")
	if err := os.WriteFile(path, csv, 0o644); err != nil {
		t.Fatal(err)
	}
	blocks := sumAll(t, &Files{Paths: []string{path}, BlockRows: 10})
	var lines bytes.Buffer
	for i := range blocks {
		if err := WriteRow(&lines, &blocks[i]); err != nil {
			t.Fatal(err)
		}
	}
	for name, table := range map[string][]byte{"lines": lines.Bytes(), "parquet": tableColumns(t, blocks, 2)} {
		broken := filepath.Join(dir, name)
		refused := 0
		for range 1000 {
			text := slices.Clone(table)
			switch r.IntN(3) {
			case 0:
				text = text[:r.IntN(len(text))]
			case 1:
				text[r.IntN(len(text))] ^= 1 << r.IntN(8)
			case 2:
				at := r.IntN(len(text) - 8)
				copy(text[at:], []byte{0xff, 0xff, 0xff, 0x7f})
			}
			if err := os.WriteFile(broken, text, 0o644); err != nil {
				t.Fatal(err)
			}
			is, err := IsTable(broken)
			if err != nil {
				t.Fatal(err)
			}
			// Beside the records a file of Parquet has bytes that nobody reads, such as statistics.
			whole := 0
			if !is || ReadTable(broken, 1<<20, func(b *summary.Block, value []byte) error {
				if !bytes.Equal(value, blocks[whole].Value) {
					t.Errorf("%s: block %d has other bytes", name, whole)
				}
				whole++
				return nil
			}) != nil {
				refused++
			}
		}
		if refused < 250 {
			t.Errorf("%s: %d of 1000 are refused", name, refused)
		}
	}
}

// Wrong files are errors that name the row.
func TestWrongFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.csv", "label,x\na,1\nb,2\n")
	for _, each := range []struct {
		paths []string
		want  string
	}{
		{[]string{write("late.csv", "label,x\na,1\nb,2\na,3\nb,1e300\n")}, "row 3"},
		{[]string{good, write("other.csv", "label,y\na,1\n")}, "other.csv"},
		{[]string{write("empty.csv", "")}, "the file is empty"},
	} {
		f := &Files{Paths: each.paths, BlockRows: 2}
		err := f.Check()
		if err == nil {
			err = f.Sum(t.Context(), func(*Made) error { return nil })
		}
		if err == nil || !strings.Contains(err.Error(), each.want) {
			t.Errorf("%v: %v, want %q", each.paths, err, each.want)
		}
	}
}
