package wire_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
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

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/wire"
)

// writeFile writes a file into a folder of its own, through gzip if its name
// ends so.
func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	if strings.HasSuffix(name, ".gz") {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		content = z.Bytes()
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// readAll reads a file and joins its blocks. It does so twice, once in pieces, for
// the same blocks or the same error.
func readAll(path string, opts wire.Options, rowsPerBlock int) (*incremental.Block, error) {
	want, wantErr := joined(path, opts, rowsPerBlock, func(r *wire.Reader) func() (*incremental.Block, error) { return r.Next })
	got, err := joined(path, opts, rowsPerBlock, pieces)
	if fmt.Sprint(err) != fmt.Sprint(wantErr) {
		return nil, fmt.Errorf("in pieces: %v, otherwise: %v", err, wantErr)
	}
	if wantErr != nil {
		return nil, wantErr
	}
	show := func(b *incremental.Block) string {
		text := fmt.Sprintf("%q %q %v %v", b.Features, b.Classes, b.Codes, b.Weights)
		for _, c := range b.Columns {
			for i := range c.Len() {
				text += fmt.Sprintf(" %x", math.Float64bits(c.At(i)))
			}
		}
		return text
	}
	if a, b := show(got), show(want); a != b {
		return nil, fmt.Errorf("in pieces: %s, otherwise: %s", a, b)
	}
	return want, nil
}

// pieces decodes each piece when the next one has been cut, where its memory could
// be in use.
func pieces(r *wire.Reader) func() (*incremental.Block, error) {
	var cut [2]wire.Piece
	var rows [2]int
	var errs [2]error
	rows[0], errs[0] = r.Cut(&cut[0])
	at := 0
	return func() (*incremental.Block, error) {
		if errs[at] != nil {
			return nil, errs[at]
		}
		next := 1 - at
		rows[next], errs[next] = r.Cut(&cut[next])
		b, err := cut[at].Block()
		if err == nil && b.Rows() != rows[at] {
			err = fmt.Errorf("%d rows, %d cut", b.Rows(), rows[at])
		}
		at = next
		return b, err
	}
}

func joined(path string, opts wire.Options, rowsPerBlock int, open func(*wire.Reader) func() (*incremental.Block, error)) (*incremental.Block, error) {
	r, err := wire.OpenFile(path, opts, rowsPerBlock)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	next := open(r)
	all := &incremental.Block{}
	codes := make(map[string]int32)
	var columns [][]float64
	for {
		b, err := next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if b.Rows() > rowsPerBlock {
			return nil, fmt.Errorf("a block of %d rows", b.Rows())
		}
		if columns == nil {
			columns = make([][]float64, len(b.Columns))
			all.Features = b.Features
		}
		if fmt.Sprint(b.Features) != fmt.Sprint(all.Features) || len(b.Columns) != len(columns) {
			return nil, fmt.Errorf("features %q, %d columns behind %q, %d", b.Features, len(b.Columns), all.Features, len(columns))
		}
		for i := range b.Rows() {
			class := b.Classes[b.Codes[i]]
			if _, ok := codes[class]; !ok {
				codes[class] = int32(len(codes))
				all.Classes = append(all.Classes, class)
			}
			all.Codes = append(all.Codes, codes[class])
			for j := range columns {
				columns[j] = append(columns[j], b.Columns[j].At(i))
			}
		}
		all.Weights = append(all.Weights, b.Weights...)
	}
	for _, c := range columns {
		all.Columns = append(all.Columns, gram.ColumnOf(c))
	}
	if read, size := r.Progress(); read != size {
		return nil, fmt.Errorf("%d of %d bytes read at the end", read, size)
	}
	if _, err := r.Next(); err != io.EOF {
		return nil, fmt.Errorf("behind the end: %v", err)
	}
	return all, nil
}

// TestFiles: a file read in blocks of any size is the block that was written.
func TestFiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	want := randomBlock(rng, 97, 5, []string{"1", "-1", "4"}, []gram.Kind{gram.Float64, gram.Int16})
	encode := func(f wire.Format, b *incremental.Block) []byte {
		payload, err := wire.Encode(nil, f, b)
		if err != nil {
			t.Fatal(err)
		}
		return payload
	}
	named, text := *want, *want
	named.Features = []string{"a", "b,\n\"", "c", "d", "e"}
	text.Classes = []string{"a,b", "line\nbreak", "quote\""}
	lines := encode(wire.JSON, want)
	array := "[\n" + strings.ReplaceAll(strings.TrimSpace(string(lines)), "\n", " ,\n") + "\n]\n"
	commented := "# made up\n\n" + strings.ReplaceAll(string(encode(wire.LIBSVM, want)), "\n", " # row\n#\n")
	for _, c := range []struct {
		name    string
		content []byte
		opts    wire.Options
		want    *incremental.Block
	}{
		{"a.csv", encode(wire.CSV, want), wire.Options{}, want},
		{"a.CSV.gz", encode(wire.CSV, want), wire.Options{}, want},
		{"plain", encode(wire.CSV, want), wire.Options{}, want},
		{"header.csv", encode(wire.CSV, &named), wire.Options{}, &named},
		{"selected.csv", encode(wire.CSV, &named), wire.Options{Features: named.Features, Label: "first"}, &named},
		{"quoted.csv", bytes.ReplaceAll(encode(wire.CSV, &text), []byte("\n"), []byte("\n")), wire.Options{}, &text},
		{"mark.csv", append([]byte("\xef\xbb\xbf\n"), encode(wire.CSV, &named)...), wire.Options{}, &named},
		{"a.json", lines, wire.Options{}, want},
		{"a.ndjson.gz", encode(wire.JSON, &named), wire.Options{}, &named},
		{"array.json", []byte(array), wire.Options{}, want},
		{"a.svm", encode(wire.LIBSVM, want), wire.Options{}, want},
		{"commented.txt", []byte(commented), wire.Options{}, want},
		{"unnamed", encode(wire.LIBSVM, want), wire.Options{}, want},
		{"a.arrow", encode(wire.Arrow, &named), wire.Options{}, &named},
		{"a.gz", encode(wire.Arrow, &named), wire.Options{}, &named},
		{"configured.txt", encode(wire.JSON, want), wire.Options{Format: wire.JSON}, want},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := writeFile(t, c.name, c.content)
			for _, rows := range []int{1, 2, 10, 96, 97, 1000} {
				got, err := readAll(path, c.opts, rows)
				if err != nil {
					t.Fatalf("%d rows: %v", rows, err)
				}
				requireSame(t, got, c.want)
				if c.want.Features != nil && fmt.Sprint(got.Features) != fmt.Sprint(c.want.Features) {
					t.Fatalf("features %q", got.Features)
				}
			}
			// The limit of bytes is met before that of rows.
			opts := c.opts
			opts.Limits.Bytes = 1 << 13
			if got, err := readAll(path, opts, 1000); err == nil {
				requireSame(t, got, c.want)
			} else if !strings.HasSuffix(c.name, "arrow") {
				t.Fatal(err)
			}
		})
	}
}

// TestArrowFiles reads pyarrow's files, among them one in the file format and one whose
// dictionary changes in the middle.
func TestArrowFiles(t *testing.T) {
	for _, name := range []string{"file", "batches", "dictionary", "dictionary_replaced", "lz4", "list_named", "string_view"} {
		for _, rows := range []int{1, 3, 100} {
			got, err := readAll("../../testdata/wire/"+name+".arrow", wire.Options{}, rows)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			requireSame(t, got, &incremental.Block{Classes: []string{"a", "b", "c"}, Codes: []int32{0, 1, 0, 2},
				Columns: []gram.Column{gram.ColumnOf([]float64{1, -2, 3, 4}), gram.ColumnOf([]float64{0.5, 1.5, -2.5, 100})}})
		}
	}
}

// TestFilesRefused: errors name the file, and count rows and lines from its start.
func TestFilesRefused(t *testing.T) {
	arrowFile := string(fixture(t, "batches"))
	for _, c := range []struct {
		name, content string
		row, line     int
		reason        string
	}{
		{"empty.csv", "", -1, 0, "empty"},
		{"program.csv", "\x7fELF\x02\x01\x01\x00\x00", -1, 0, "binary"},
		{"utf16.csv", "\xff\xfel\x00,\x00u\x00\n\x00", -1, 0, "UTF-16"},
		{"header.csv", "label,u\n", -1, 0, "no rows"},
		{"blank.csv", "\n\r\n", -1, 0, "no rows"},
		{"bad.csv", "\nlabel,u\n1,2\n\n1,3\n1,4\n1,x\n", 3, 7, `"x"`},
		{"width.csv", "1,2\n1,2\n1,2,3\n", 2, 3, "3 fields"},
		{"quote.csv", "1,2\n1,2\n1,\"2\n\n\n", 2, 3, "not closed"},
		{"bad.svm", "1 1:1\n# no\n1 1:1\n1 1:1 x\n", 2, 4, "index:value"},
		{"comments.svm", "# no\n", -1, 0, "no rows"},
		{"bad.ndjson", "{\"label\":1,\"u\":1}\n{\"label\":1,\"u\":1}\n\n{\"label\":1,\"u\":null}\n", 2, 4, "null"},
		{"shape.ndjson", "{\"label\":1,\"u\":1}\n{\"label\":1,\"u\":1}\n{\"label\":1,\"features\":[1]}\n", 2, 3, "named"},
		{"text.ndjson", "{\"label\":1,\"u\":1}\nhello\n", 1, 2, "hello"},
		{"truncated.ndjson", "{\"label\":1,\"u\":1}\n{\"label\":1,\"u", 1, 2, "not closed"},
		{"open.json", "[{\"label\":1,\"u\":1},\n{\"label\":1,\"u\":1}\n", -1, 3, "not closed"},
		{"comma.json", "[{\"label\":1,\"u\":1},\n{\"label\":1,\"u\":1},\n]", -1, 3, "another row"},
		{"nocomma.json", "[{\"label\":1,\"u\":1},\n{\"label\":1,\"u\":1}\n{\"label\":1,\"u\":1}]", -1, 3, "comma"},
		{"behind.json", "[{\"label\":1,\"u\":1}\n]\n x", -1, 3, "behind"},
		{"none.json", "[\n]", -1, 0, "no rows"},
		{"cut.arrow", arrowFile[:len(arrowFile)-20], -1, 0, "truncated"},
		{"text.arrow", "1,2,3,4,5,6,7,8\n", -1, 0, "not an Arrow"},
		{"text.parquet", "1,2,3,4,5,6,7,8\n", -1, 0, "not Parquet"},
		{"cut.parquet", "PAR1\x15\x04\x15\x10", -1, 0, "Parquet"},
		{"sheet.csv", "PK\x03\x04\x14\x00", -1, 0, "an Excel sheet: want CSV, JSON, LIBSVM, Arrow or Parquet"},
		{"frame", "\x80\x05\x95\x00", -1, 0, "a pickle of Python"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := readAll(writeFile(t, c.name, []byte(c.content)), wire.Options{}, 2)
			if err == nil || !strings.Contains(err.Error(), c.name) || !strings.Contains(err.Error(), c.reason) {
				t.Fatalf("error %v, want %s: …%s…", err, c.name, c.reason)
			}
			var e *wire.Error
			if errors.As(err, &e) && (e.Row != c.row || e.Line != c.line && c.line != 0) {
				t.Errorf("row %d, line %d, want %d, %d: %v", e.Row, e.Line, c.row, c.line, err)
			}
		})
	}
	if _, err := wire.OpenFile(filepath.Join(t.TempDir(), "absent.csv"), wire.Options{}, 10); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
	cut := writeFile(t, "cut.csv.gz", []byte(strings.Repeat("1,2\n", 1000)))
	b, err := os.ReadFile(cut)
	if err != nil {
		t.Fatal(err)
	}
	for _, length := range []int{5, len(b) / 2, len(b) - 5} {
		if err := os.WriteFile(cut, b[:length], 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readAll(cut, wire.Options{}, 100)
		if want := cut + ": it is cut short"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes of %d: got %v, want %q in it", length, len(b), err, want)
		}
	}
}

// TestFileLimits: a row that no buffer within the limits can hold is an error.
func TestFileLimits(t *testing.T) {
	long := "1," + strings.Repeat("0", 3000) + "1\n"
	for name, content := range map[string]string{
		"a.csv":    long,
		"b.csv":    "1,2\n" + long,
		"c.svm":    "1 1:" + strings.Repeat("0", 3000) + "\n",
		"d.json":   `[{"label":1,"features":[1` + strings.Repeat(" ", 3000) + `]}]`,
		"e.ndjson": `{"label":1,"features":[1` + strings.Repeat(" ", 3000) + `]}`,
	} {
		if _, err := readAll(writeFile(t, name, []byte(content)), wire.Options{Limits: wire.Limits{Bytes: 2000}}, 10); err == nil || !strings.Contains(err.Error(), "2000 bytes") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestDictionaryOutlivesBatches: a dictionary at the start of a file serves all its
// batches, also those behind a large one whose memory is given back.
func TestDictionaryOutlivesBatches(t *testing.T) {
	labels := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	schema := arrow.NewSchema([]arrow.Field{{Name: "label", Type: labels}, {Name: "u", Type: arrow.PrimitiveTypes.Float64}}, nil)
	values := array.NewStringBuilder(memory.DefaultAllocator)
	values.AppendValues([]string{"ham", "spam"}, nil)
	dictionary := values.NewArray()
	var stream bytes.Buffer
	w := ipc.NewWriter(&stream, ipc.WithSchema(schema), ipc.WithZstd())
	want := 0
	for _, rows := range []int{1 << 20, 10, 10, 10} {
		indices := array.NewInt8Builder(memory.DefaultAllocator)
		numbers := array.NewFloat64Builder(memory.DefaultAllocator)
		for i := range rows {
			indices.Append(int8(i % 2))
			numbers.Append(float64(i % 7))
		}
		batch := array.NewRecordBatch(schema, []arrow.Array{array.NewDictionaryArray(labels, indices.NewArray(), dictionary), numbers.NewArray()}, int64(rows))
		if err := w.Write(batch); err != nil {
			t.Fatal(err)
		}
		want += rows
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := wire.OpenFile(writeFile(t, "a.arrows", stream.Bytes()), wire.Options{}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := 0
	for {
		b, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got += b.Rows()
	}
	if got != want {
		t.Errorf("%d rows, want %d", got, want)
	}
}

// Pieces of a stream of record batches have the rows that were asked for, whatever the batches:
// their numbers, labels and weights, and their texts.
func TestPiecesDoNotFollowBatches(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 11))
	const rows = 1000
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "label", Type: arrow.BinaryTypes.String}, {Name: "w", Type: arrow.PrimitiveTypes.Float64}, {Name: "x", Type: arrow.PrimitiveTypes.Float64},
		{Name: "city", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
	var stream bytes.Buffer
	w := ipc.NewWriter(&stream, ipc.WithSchema(schema))
	var want []string
	for left := rows; left > 0; {
		m := min(left, 1+r.IntN(90))
		left -= m
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for range m {
			label, weight, x, city := fmt.Sprint("class ", r.IntN(1+len(want)/100)), 1+r.Float64(), r.NormFloat64(), fmt.Sprint("city ", r.IntN(40))
			b.Field(0).(*array.StringBuilder).Append(label)
			b.Field(1).(*array.Float64Builder).Append(weight)
			b.Field(2).(*array.Float64Builder).Append(x)
			if city == "city 0" {
				b.Field(3).AppendNull()
				city = "none"
			} else {
				b.Field(3).(*array.StringBuilder).Append(city)
			}
			want = append(want, fmt.Sprintf("%s %v %v %s", label, weight, x, city))
		}
		if err := w.Write(b.NewRecordBatch()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rows.arrows")
	if err := os.WriteFile(path, stream.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 7, 64, 333, rows, 2 * rows} {
		file, err := wire.OpenFile(path, wire.Options{Weight: "w", AsTexts: true}, size)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		var pieces [2]wire.Piece // the one before is read while the next one is cut
		for i := 0; ; i++ {
			p := &pieces[i%2]
			n, err := file.Cut(p)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if left := rows - len(got); n != min(size, left) {
				t.Fatalf("a piece of %d rows, of %d that are left: want %d", n, left, size)
			}
			b, err := p.Block()
			if err != nil {
				t.Fatal(err)
			}
			x, city := slices.Index(b.Features, "x"), slices.Index(b.Features, "city")
			for i, c := range b.Codes {
				text := func(j int) string {
					code := b.Columns[j].At(i)
					if code != code {
						return "none"
					}
					return p.Texts()[j][int(code)]
				}
				got = append(got, fmt.Sprintf("%s %v %s %s", b.Classes[c], b.Weights[i], text(x), text(city)))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pieces of %d rows the file has others", size)
		}
		file.Close()
	}
}
