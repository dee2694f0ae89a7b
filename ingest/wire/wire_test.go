package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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

// decode is a fresh decoder's answer.
func decode(t *testing.T, opts wire.Options, contentType string, payload []byte) *incremental.Block {
	t.Helper()
	b, err := newDecoder(t, opts).Decode(contentType, payload)
	if err != nil {
		t.Fatalf("%v\n%.300q", err, payload)
	}
	return b
}

func newDecoder(t testing.TB, opts wire.Options) *wire.Decoder {
	t.Helper()
	d, err := wire.NewDecoder(opts)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// requireSame compares two blocks row by row, bit by bit.
func requireSame(t *testing.T, got, want *incremental.Block) {
	t.Helper()
	if got.Rows() != want.Rows() || len(got.Columns) != len(want.Columns) {
		t.Fatalf("%d×%d, want %d×%d", got.Rows(), len(got.Columns), want.Rows(), len(want.Columns))
	}
	for i := range want.Rows() {
		if g, w := got.Classes[got.Codes[i]], want.Classes[want.Codes[i]]; g != w {
			t.Fatalf("row %d: label %q, want %q", i, g, w)
		}
		g, w := 1.0, 1.0
		if got.Weights != nil {
			g = got.Weights[i]
		}
		if want.Weights != nil {
			w = want.Weights[i]
		}
		if g != w {
			t.Fatalf("row %d: weight %v, want %v", i, g, w)
		}
	}
	for j := range want.Columns {
		if n := got.Columns[j].Len(); n != want.Rows() {
			t.Fatalf("column %d has %d rows, want %d", j, n, want.Rows())
		}
		for i := range want.Rows() {
			g, w := got.Columns[j].At(i), want.Columns[j].At(i)
			if math.Float64bits(g) != math.Float64bits(w) {
				t.Fatalf("row %d, column %d: %v, want %v", i, j, g, w)
			}
		}
	}
}

// randomBlock has m rows of n features of any kind of number.
func randomBlock(rng *rand.Rand, m, n int, classes []string, kinds []gram.Kind) *incremental.Block {
	b := &incremental.Block{Classes: classes, Codes: make([]int32, m)}
	for i := range b.Codes {
		b.Codes[i] = int32(rng.IntN(len(classes)))
	}
	for j := range n {
		b.Columns = append(b.Columns, randomColumn(rng, m, kinds[j%len(kinds)]))
	}
	return b
}

func randomColumn(rng *rand.Rand, m int, kind gram.Kind) gram.Column {
	switch kind {
	case gram.Float32:
		return gram.ColumnOf(fill(m, func() float32 { return float32(rng.NormFloat64()) }))
	case gram.Float64:
		return gram.ColumnOf(fill(m, func() float64 {
			switch rng.IntN(6) {
			case 0:
				return 0
			case 1:
				return math.Copysign(0, -1)
			case 2:
				return float64(rng.IntN(200) - 100)
			case 3: // all bits set at random, within the range of a model
				return math.Float64frombits(rng.Uint64()&^(0x7ff<<52) | (1023-140+rng.Uint64N(260))<<52)
			}
			return rng.NormFloat64()
		}))
	case gram.Int8:
		return gram.ColumnOf(fill(m, func() int8 { return int8(rng.Uint32()) }))
	case gram.Int16:
		return gram.ColumnOf(fill(m, func() int16 { return int16(rng.Uint32()) }))
	case gram.Int32:
		return gram.ColumnOf(fill(m, func() int32 { return int32(rng.Uint32()) }))
	case gram.Int64:
		return gram.ColumnOf(fill(m, func() int64 { return int64(rng.Uint64()) }))
	case gram.Uint8:
		return gram.ColumnOf(fill(m, func() uint8 { return uint8(rng.Uint32()) }))
	case gram.Uint16:
		return gram.ColumnOf(fill(m, func() uint16 { return uint16(rng.Uint32()) }))
	case gram.Uint32:
		return gram.ColumnOf(fill(m, rng.Uint32))
	}
	return gram.ColumnOf(fill(m, rng.Uint64))
}

func fill[T any](m int, next func() T) []T {
	v := make([]T, m)
	for i := range v {
		v[i] = next()
	}
	return v
}

var allKinds = []gram.Kind{gram.Float32, gram.Float64, gram.Int8, gram.Int16, gram.Int32,
	gram.Int64, gram.Uint8, gram.Uint16, gram.Uint32, gram.Uint64}

// TestConformance: a decoder reads back the block that an encoder has written, in any
// format. One decoder and one encoder per format see all blocks, so that nothing of one
// may leak into the next.
func TestConformance(t *testing.T) {
	classes := [][]string{{"1", "-1"}, {"spam", "ham", "x\u00e9"}, {"0", "1", "2", "3", "0.5"}, {"only"}, {"1e+300", "123456789012345", "-7"}}
	if got := len(wire.Formats()); got != 4 {
		t.Fatalf("%d formats, want 4", got)
	}
	for _, format := range wire.Formats() {
		t.Run(format.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(format)))
			encoder := wire.NewEncoder(format)
			plain := newDecoder(t, wire.Options{})
			weighted := newDecoder(t, wire.Options{Weight: "weight"})
			var payload []byte
			for trial := range 60 {
				m, n := 1+rng.IntN(70), 1+rng.IntN(12)
				want := randomBlock(rng, m, n, classes[trial%len(classes)], allKinds)
				decoder := plain
				if format != wire.LIBSVM {
					if trial%2 == 0 {
						for j := range n {
							want.Features = append(want.Features, fmt.Sprintf("f %d,\"%d\"", trial%7, j))
						}
					}
					if trial%3 == 0 {
						decoder = weighted
						want.Weights = fill(m, func() float64 { return max(0, rng.NormFloat64()) })
					}
				}
				var err error
				if payload, err = encoder.Append(payload[:0], want); err != nil {
					t.Fatal(err)
				}
				got, err := decoder.Decode(format.ContentType(), payload)
				if err != nil {
					t.Fatalf("%v\n%.300q", err, payload)
				}
				requireSame(t, got, want)
				if want.Features != nil && fmt.Sprint(got.Features) != fmt.Sprint(want.Features) {
					t.Fatalf("features %q, want %q", got.Features, want.Features)
				}

				table, err := newDecoder(t, wire.Options{Features: got.Features, Weight: "weight"}).DecodeUnlabelled(format.ContentType(), payload)
				if format == wire.CSV && got.Features == nil {
					// Nothing marks the first column as a label.
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if table.Rows != m || len(table.Columns) != n {
					t.Fatalf("unlabelled: %d×%d, want %d×%d", table.Rows, len(table.Columns), m, n)
				}
				requireSame(t, &incremental.Block{Columns: table.Columns, Classes: want.Classes, Codes: want.Codes, Weights: want.Weights}, want)
			}
		})
	}
}

// TestFormats pins the persistent ids and the content types.
func TestFormats(t *testing.T) {
	for id, want := range map[wire.Format][2]string{
		1: {"arrow", "application/vnd.apache.arrow.stream"},
		2: {"json", "application/json"},
		3: {"csv", "text/csv"},
		4: {"libsvm", "application/x-libsvm"},
		5: {"avro", "application/avro"},
		6: {"protobuf", "application/x-protobuf"},
	} {
		if id.String() != want[0] || id.ContentType() != want[1] {
			t.Errorf("format %d is %v, %s", uint8(id), id, id.ContentType())
		}
		if f, err := wire.ParseFormat(want[0]); f != id || err != nil {
			t.Errorf("ParseFormat(%s) = %v, %v", want[0], f, err)
		}
	}
	if _, err := wire.ParseFormat("xml"); err == nil {
		t.Error("xml is taken for a format")
	}
	for contentType, want := range map[string]struct {
		format wire.Format
		header wire.HeaderMode
	}{
		"application/json; charset=utf-8":            {wire.JSON, wire.HeaderAuto},
		"Application/X-NDJSON":                       {wire.JSON, wire.HeaderAuto},
		"text/csv; header=present":                   {wire.CSV, wire.HeaderPresent},
		"text/csv;charset=utf-8; HEADER=Absent":      {wire.CSV, wire.HeaderAbsent},
		"text/csv; nonsense":                         {wire.CSV, wire.HeaderAuto},
		"application/x-libsvm; header=present":       {wire.LIBSVM, wire.HeaderAuto},
		"application/vnd.apache.arrow.stream; v=1.0": {wire.Arrow, wire.HeaderAuto},
		"avro/binary":                                {wire.Avro, wire.HeaderAuto},
		"Application/vnd.apache.avro+binary; x=y":    {wire.Avro, wire.HeaderAuto},
	} {
		if f, h, ok := wire.FormatOf(contentType); !ok || f != want.format || h != want.header {
			t.Errorf("FormatOf(%q) = %v, %v, %v", contentType, f, h, ok)
		}
	}
	for _, contentType := range []string{"", "text/plain", "application/jsonx", "csv"} {
		if f, _, ok := wire.FormatOf(contentType); ok {
			t.Errorf("FormatOf(%q) = %v", contentType, f)
		}
	}
}

// TestLabels pins the canonical form, which is the identity of a class in every
// snapshot. A text is the same class in all formats.
func TestLabels(t *testing.T) {
	for text, want := range map[string]string{
		"1": "1", "+1": "1", "1.0": "1", "1e0": "1", "-0": "0", "0.0": "0", "-1": "-1",
		"0.50": "0.5", ".5": "0.5", "5.": "5", "1e14": "100000000000000", "1e15": "1e+15", "123456.75": "123456.75",
		"1e-5": "0.00001", "1e-6": "1e-06", "0x10": "0x10", "1_000": "1_000", "spam": "spam", "1e": "1e",
		"9007199254740991": "9.007199254740991e+15", "1e300": "1e+300", "n9007199254740992": "n9007199254740992",
		"00": "00", "007": "007", "-01": "-01", "00.5": "00.5", "9007199254740993": "9007199254740993", "-9007199254740993": "-9007199254740993",
		"true": "true", "True": "true", "TRUE": "true", "false": "false", "False": "false", "FALSE": "false", "tRue": "tRue", "T": "T", "yes": "yes",
		"2024-02-29": "2024-02-29", "2024-02-29T00:00:00Z": "2024-02-29", "2024-02-29T00:00": "2024-02-29", "2024-02-29T01:02:03.450": "2024-02-29T01:02:03.45Z",
		"2024-02-29T01:00:00+01:00": "2024-02-29", "2023-02-29": "2023-02-29", "2023-02-29T00:00:00Z": "2023-02-29T00:00:00Z", "2024-02": "2024-02",
		"0000-01-01T00:00:00+01": "0000-01-01T00:00:00+01", // in the year −1
	} {
		block := decode(t, wire.Options{}, "text/csv", []byte("label,u\n"+text+",2\n"))
		if got := block.Classes[0]; got != want {
			t.Errorf("label %s of CSV is %q, want %q", text, got, want)
		}
		if got, err := wire.Label(text); got != want || err != nil {
			t.Errorf("label %s is %q (%v), want %q", text, got, err, want)
		}
		if got := decode(t, wire.Options{}, "application/json", []byte(`{"label":"`+text+`","u":2}`)).Classes[0]; got != want {
			t.Errorf("label %s of JSON is %q, want %q", text, got, want)
		}
		if !strings.Contains(text, ":") {
			if got := decode(t, wire.Options{}, "application/x-libsvm", []byte(text+" 1:2\n")).Classes[0]; got != want {
				t.Errorf("label %s of LIBSVM is %q, want %q", text, got, want)
			}
		}
		if got := decode(t, wire.Options{}, arrowType, textStream(t, text)).Classes[0]; got != want {
			t.Errorf("label %s of Arrow is %q, want %q", text, got, want)
		}
		// An encoded label is read as the same class.
		for _, format := range wire.Formats() {
			payload, err := wire.Encode(nil, format, block)
			if format == wire.LIBSVM && strings.Contains(want, ":") {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := decode(t, wire.Options{}, format.ContentType(), payload).Classes[0]; got != want {
				t.Errorf("label %s, encoded as %v, is read as %q, want %q", text, format, got, want)
			}
		}
	}
	for label, want := range map[string]string{
		`9007199254740991`: "9.007199254740991e+15", `1e300`: "1e+300", `1.0`: "1", `-0`: "0",
		`true`: "true", `false`: "false", `"\u00e9\ud83d\ude00\n"`: "é😀\n",
	} {
		row := []byte(`{"label":` + label + `,"features":[1]}`)
		if got := decode(t, wire.Options{}, "application/json", row).Classes[0]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	for _, bad := range []string{"", "nan", "-Inf", "Infinity", "1e999", "\xff", strings.Repeat("9", 129)} {
		if class, err := wire.Label(bad); err == nil {
			t.Errorf("label %q is %q, want it refused", bad, class)
		}
	}
}

// textStream is an Arrow stream of one row with the text as its label.
func textStream(t *testing.T, text string) []byte {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "label", Type: arrow.BinaryTypes.String}, {Name: "u", Type: arrow.PrimitiveTypes.Float64}}, nil)
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer builder.Release()
	builder.Field(0).(*array.StringBuilder).Append(text)
	builder.Field(1).(*array.Float64Builder).Append(2)
	return stream(t, builder.NewRecordBatch())
}

// stream is an Arrow stream of one record batch.
func stream(t testing.TB, batch arrow.RecordBatch, options ...ipc.Option) []byte {
	t.Helper()
	defer batch.Release()
	var b bytes.Buffer
	w := ipc.NewWriter(&b, append(options, ipc.WithSchema(batch.Schema()))...)
	if err := errors.Join(w.Write(batch), w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestShapes reads the same two rows in every way in which they can be written.
func TestShapes(t *testing.T) {
	want := &incremental.Block{Classes: []string{"a", "b"}, Codes: []int32{0, 1},
		Columns: []gram.Column{gram.ColumnOf([]float64{1, 3}), gram.ColumnOf([]float64{2.5, -4})}}
	named := wire.Options{Features: []string{"u", "v"}}
	for _, c := range []struct {
		name, contentType, payload string
		opts                       wire.Options
	}{
		{"array of lists", "application/json", ` [ {"label":"a","features":[1,2.5]} , {"features" : [ 3 , -4 ],"label":"b"}]` + "\n", named},
		{"lines of lists", "application/x-ndjson", "{\"label\":\"a\",\"features\":[1,2.5]}\r\n\n{\"features\":[3,-4],\"label\":\"b\"}", wire.Options{}},
		{"array of named", "application/json", `[{"label":"a","u":1,"v":2.5},{"v":-4,"u":3,"label":"b"}]`, named},
		{"reordered", "application/json", `[{"label":"a","v":2.5,"u":1},{"v":-4,"label":"b","u":3}]`, named},
		{"escaped names", "application/json", `[{"l\u0061bel":"a","\u0075":1,"v":25e-1},{"v":-4,"label":"b","u":3}]`, named},
		{"pretty", "application/json", "[\n  {\n    \"label\": \"a\",\n    \"u\": 1,\n    \"v\": 2.5\n  },\n  {\"u\": 3, \"v\": -4, \"label\": \"b\"}\n]\n", wire.Options{}},
		{"no header", "text/csv", "a,1,2.5\nb,3,-4\n", named},
		{"label last", "text/csv", "1,2.5,a\r\n3,-4,b", wire.Options{Label: "last"}},
		{"label second", "text/csv", "1,a,2.5\r\n\r\n3,b,-4\r\n", wire.Options{Label: "2"}},
		{"header", "text/csv", "u,label,v\n1,a,2.5\n3,b,-4\n", named},
		{"header in another order", "text/csv", "v,label,u\n2.5,a,1\n-4,b,3\n", named},
		{"header, label by position", "text/csv", "u,v,what\n1,2.5,a\n3,-4,b\n", wire.Options{Label: "last"}},
		{"header, label by name", "text/csv", "u,what,v\n1,a,2.5\n3,b,-4\n", wire.Options{Label: "what"}},
		{"numbers as names", "text/csv; header=present", "label,1,2\na,1,2.5\nb,3,-4\n", wire.Options{}},
		{"byte order mark", "text/csv", "\xef\xbb\xbflabel,u,v\na,1,2.5\nb,3,-4\n", named},
		{"semicolons", "text/csv", "label;u;v\na;1;2.5\r\nb;3;-4", named},
		{"semicolons, no header", "text/csv", "a;1;2.5\nb;3;-4\n", wire.Options{}},
		{"tabs", "text/csv", "label\tu\tv\na\t1\t 2.5\nb\t3 \t-4\n", named},
		{"bars", "text/csv", "label|u|v\na|\"1\"|2.5\nb|3|-4\n", wire.Options{}},
		{"separators in quotes", "text/csv", "\"label\"|\"u\"|\"v\"\na|1|2.5\nb|3|-4\n", wire.Options{}},
		{"quotes and blanks", "text/csv", "\"label\", u ,\"v\"\n\"a\",\"1\", 2.5\t\n b ,3,\"-4\"\n", named},
		{"sparse", "application/x-libsvm", "a 1:1 2:2.5\nb\t1:3  2:-4 \r\n", wire.Options{}},
		{"sparse, byte order mark", "application/x-libsvm", "\xef\xbb\xbfa 1:1 2:2.5\nb 1:3 2:-4\n", named},
		{"comments", "application/x-libsvm", "# by hand\n\na 1:1 2:2.5 # first\nb 1:3 2:-4", named},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireSame(t, decode(t, c.opts, c.contentType, []byte(c.payload)), want)
		})
	}
}

// TestSparse: absent values are zero, wherever the width becomes known.
func TestSparse(t *testing.T) {
	want := &incremental.Block{Classes: []string{"1", "-1"}, Codes: []int32{0, 1, 0}, Columns: []gram.Column{
		gram.ColumnOf([]float64{0, 7, 0}), gram.ColumnOf([]float64{5, 0, 0}), gram.ColumnOf([]float64{0, 0, 0}), gram.ColumnOf([]float64{0, 9, 0})}}
	text := []byte("+1 2:5\n-1 1:7 4:9\n1\n")
	d := newDecoder(t, wire.Options{})
	for range 3 { // memory of an earlier block must not show through
		b, err := d.Decode("application/x-libsvm", text)
		if err != nil {
			t.Fatal(err)
		}
		requireSame(t, b, want)
		if _, err := d.Decode("application/x-libsvm", []byte("1 1:8 2:8 3:8 4:8\n1 1:8 2:8 3:8 4:8\n1 1:8 2:8 3:8 4:8\n")); err != nil {
			t.Fatal(err)
		}
	}
	padded := decode(t, wire.Options{Features: strings.Split("abcde", "")}, "application/x-libsvm", text)
	want.Columns = append(want.Columns, gram.ColumnOf(make([]float64, 3)))
	requireSame(t, padded, want)
}

// TestRefused is one payload per reason. Each error must name the row, counted from 0,
// and the reason.
func TestRefused(t *testing.T) {
	const (
		asJSON   = "application/json"
		asCSV    = "text/csv"
		asLIBSVM = "application/x-libsvm"
		asArrow  = "application/vnd.apache.arrow.stream"
	)
	uv := wire.Options{Features: []string{"u", "v"}}
	weighted := wire.Options{Weight: "w"}
	small := wire.Options{Limits: wire.Limits{Bytes: 100, Rows: 2, Features: 3, Classes: 2}}
	for _, c := range []struct {
		name, contentType, payload string
		opts                       wire.Options
		row                        int
		column, reason             string
	}{
		{"nothing", asCSV, "", wire.Options{}, -1, "", "empty"},
		{"registry", asJSON, "\x00\x00\x00\x01\x02{}", wire.Options{}, -1, "", "schema id 258"},
		{"registry, short", asJSON, "\x00\x00", wire.Options{}, -1, "", "zero byte"},
		{"type unknown", "text/plain", "1,2", wire.Options{}, -1, "", "text/csv"},
		{"parquet", asArrow, "PAR1\x15\x04\x15\x10", wire.Options{}, -1, "", "this is a Parquet file"},
		{"parquet as csv", asCSV, "PAR1\x15\x04\x15\x10", wire.Options{}, -1, "", "this is a Parquet file"},
		{"gzip", asJSON, "\x1f\x8b\x08\x00", wire.Options{}, -1, "", "the payload is compressed by gzip"},
		{"type absent", "", "1,2", wire.Options{}, -1, "", "no format"},
		{"too large", asCSV, strings.Repeat("1,2\n", 26), small, -1, "", "100"},

		{"json: blank", asJSON, " \n ", wire.Options{}, -1, "", "no rows"},
		{"json: empty array", asJSON, "[]", wire.Options{}, -1, "", "no rows"},
		{"json: Arrow", asJSON, "\xff\xff\xff\xff\x10\x00\x00\x00", wire.Options{}, -1, "", "this is an Arrow stream, whose content type is application/vnd.apache.arrow.stream"},
		{"json: scalar", asJSON, "17", wire.Options{}, 0, "", `"17"`},
		{"json: array of arrays", asJSON, "[[1,2]]", wire.Options{}, 0, "", "an array"},
		{"json: truncated", asJSON, `[{"label":1,"features":[1,2]},{"label":1,"feat`, wire.Options{}, 1, "", "not closed"},
		{"json: truncated array", asJSON, `[{"label":1,"features":[1,2]}`, wire.Options{}, 0, "", "end of the array"},
		{"json: garbage", asJSON, `{"label":1,"features":[1,2]} x`, wire.Options{}, 0, "", "behind"},
		{"json: two on a line", asJSON, `{"label":1,"features":[1]}{"label":1,"features":[1]}`, wire.Options{}, 0, "", "behind"},
		{"json: garbage behind array", asJSON, `[{"label":1,"features":[1,2]}]{}`, wire.Options{}, -1, "", "behind"},
		{"json: comma at the end", asJSON, `[{"label":1,"features":[1,2]},]`, wire.Options{}, 1, "", "row"},
		{"json: comma in the row", asJSON, `{"label":1,"features":[1,2],}`, wire.Options{}, 0, "", "name of a field"},
		{"json: comma in the list", asJSON, `{"label":1,"features":[1,]}`, wire.Options{}, 0, "x2", "number"},
		{"json: no colon", asJSON, `{"label" 1}`, wire.Options{}, 0, "label", "colon"},
		{"json: null", asJSON, `[{"label":1,"u":1,"v":2},{"label":1,"u":1,"v":null}]`, wire.Options{}, 1, "v", "null"},
		{"json: null in list", asJSON, `{"label":1,"features":[1,null]}`, uv, 0, "v", "null"},
		{"json: NaN", asJSON, `{"label":1,"features":[NaN]}`, wire.Options{}, 0, "x1", "NaN"},
		{"json: overflow", asJSON, `{"label":1,"features":[1,1e999]}`, wire.Options{}, 0, "x2", "overflows"},
		{"json: plus", asJSON, `{"label":1,"features":[+1]}`, wire.Options{}, 0, "x1", "number"},
		{"json: leading zero", asJSON, `{"label":1,"features":[01]}`, wire.Options{}, 0, "x1", "number"},
		{"json: bare point", asJSON, `{"label":1,"features":[1.]}`, wire.Options{}, 0, "x1", "number"},
		{"json: bare point, exponent", asJSON, `{"label":1,"features":[1.e5]}`, wire.Options{}, 0, "x1", "number"},
		{"json: text for number", asJSON, `{"label":1,"u":"red"}`, wire.Options{}, 0, "u", `"red" is not a number`},
		{"json: text of nothing", asJSON, `{"label":1,"u":""}`, wire.Options{}, 0, "u", "missing"},
		{"json: no such day", asJSON, `{"label":1,"u":"2023-02-29"}`, wire.Options{}, 0, "u", "not a date"},
		{"json: nearly true", asJSON, `{"label":1,"u":truth}`, wire.Options{}, 0, "u", "truth"},
		{"json: name and text escaped", asJSON, `{"label":1,"\u0075":"\u0076"}`, wire.Options{}, 0, "u", `"v" is not a number`},
		{"json: nested", asJSON, `{"label":1,"u":{"v":1}}`, wire.Options{}, 0, "u", "an object"},
		{"json: width", asJSON, "{\"label\":1,\"features\":[1,2]}\n{\"label\":1,\"features\":[1]}", wire.Options{}, 1, "", "there is 1 feature in the row, want 2"},
		{"json: too wide", asJSON, `{"label":1,"features":[1,2,3]}`, uv, 0, "", "there are 3 features in the row, want 2"},
		{"json: over the limit", asJSON, `{"label":1,"features":[1,2,3,4]}`, small, 0, "", "3 features"},
		{"json: over the limit, named", asJSON, `{"label":1,"a":1,"b":2,"c":3,"d":4}`, small, 0, "d", "3 features"},
		{"json: twice", asJSON, `{"label":1,"u":1,"u":1}`, wire.Options{}, 0, "u", "twice"},
		{"json: twice later", asJSON, `[{"label":1,"u":1,"v":1},{"label":1,"u":1,"u":1}]`, wire.Options{}, 1, "u", "twice"},
		{"json: twice, fixed", asJSON, `{"label":1,"u":1,"u":1}`, uv, 0, "u", "twice"},
		{"json: label twice", asJSON, `{"label":1,"u":1,"label":1}`, wire.Options{}, 0, "label", "twice"},
		{"json: list twice", asJSON, `{"label":1,"features":[1],"features":[1]}`, wire.Options{}, 0, "features", "twice"},
		{"json: list and names", asJSON, `{"label":1,"features":[1],"u":1}`, wire.Options{}, 0, "u", "beside"},
		{"json: names and list", asJSON, `{"label":1,"u":1,"features":[1]}`, wire.Options{}, 0, "features", "named"},
		{"json: shapes mixed", asJSON, `[{"label":1,"u":1},{"label":1,"features":[1]}]`, wire.Options{}, 1, "features", "named"},
		{"json: shapes mixed, fixed", asJSON, `[{"label":1,"features":[1,2]},{"label":1,"u":1,"v":1}]`, uv, 1, "u", "beside"},
		{"json: missing", asJSON, `{"label":1,"v":1}`, uv, 0, "u", "missing"},
		{"json: missing later", asJSON, `[{"label":1,"u":1,"v":1},{"label":1,"u":1}]`, wire.Options{}, 1, "v", "missing"},
		{"json: unknown", asJSON, `{"label":1,"u":1,"v":1,"typo":3}`, uv, 0, "typo", "unknown"},
		{"json: no label", asJSON, `[{"label":1,"u":1},{"u":1}]`, wire.Options{}, 1, "label", "missing"},
		{"json: no features", asJSON, `{"label":1}`, wire.Options{}, 0, "", "no features"},
		{"json: no features, fixed", asJSON, `{"label":1}`, uv, 0, "u", "missing"},
		{"json: empty list", asJSON, `{"label":1,"features":[]}`, wire.Options{}, 0, "", "no features"},
		{"json: empty object", asJSON, `{}`, wire.Options{}, 0, "label", "missing"},
		{"json: null label", asJSON, `{"label":null,"u":1}`, wire.Options{}, 0, "label", "null"},
		{"json: empty label", asJSON, `{"label":"","u":1}`, wire.Options{}, 0, "label", "empty"},
		{"json: long label", asJSON, `{"label":"` + strings.Repeat("x", 129) + `","u":1}`, wire.Options{}, 0, "label", "128"},
		{"json: label not UTF-8", asJSON, "{\"label\":\"\xff\",\"u\":1}", wire.Options{}, 0, "label", "UTF-8"},
		{"json: label overflows", asJSON, `{"label":1e999,"u":1}`, wire.Options{}, 0, "label", "overflows"},
		{"json: label of 54 bits", asJSON, `{"label":9007199254740993,"u":1}`, wire.Options{}, 0, "label", "9007199254740993 has more than 53 bits"},
		{"json: label is a list", asJSON, `{"label":[1],"u":1}`, wire.Options{}, 0, "label", "an array"},
		{"json: lone surrogate", asJSON, `{"label":"\ud800","u":1}`, wire.Options{}, 0, "label", "escape"},
		{"json: bad escape", asJSON, `{"label":"\x","u":1}`, wire.Options{}, 0, "label", "escape"},
		{"json: raw newline", asJSON, "{\"label\":\"a\nb\",\"u\":1}", wire.Options{}, 0, "label", "control"},
		{"json: name empty", asJSON, `{"label":1,"":1}`, wire.Options{}, 0, "", "empty name"},
		{"json: weight", asJSON, `[{"label":1,"u":1,"w":0},{"label":1,"u":1,"w":-1}]`, weighted, 1, "w", "-1"},
		{"json: weight missing", asJSON, `{"label":1,"u":1}`, weighted, 0, "w", "missing"},
		{"json: weight twice", asJSON, `{"label":1,"u":1,"w":1,"w":1}`, weighted, 0, "w", "twice"},
		{"json: rows", asJSON, `[{"label":1,"u":1},{"label":1,"u":1},{"label":1,"u":1}]`, small, 2, "", "2 rows"},
		{"json: classes", asJSON, `[{"label":1,"u":1},{"label":2,"u":1},{"label":3,"u":1}]`,
			wire.Options{Limits: wire.Limits{Classes: 2}}, 2, "label", "2 classes"},

		{"csv: no rows", asCSV, "label,u,v\n", wire.Options{}, -1, "", "no rows"},
		{"csv: only empty lines", asCSV, "\n\r\n\n", wire.Options{}, -1, "", "no rows"},
		{"csv: a missing value in the first row", asCSV, "1,NA,3\n1,2,3\n", wire.Options{}, 0, "x1", "the value is missing"},
		{"csv: texts and numbers", asCSV, "1,red,3\n1,2,3\n", wire.Options{}, -1, "", "neither"},
		{"csv: label last", asCSV, "1,2,spam\n1,2,ham\n", wire.Options{}, -1, "", "say which field is the label"},
		{"csv: NaN in the first row", asCSV, "1,nan,3\n1,2,3\n", wire.Options{}, 0, "x1", "the value is missing"},
		{"csv: inf", asCSV, "1,2,3\n1,2,-Inf\n", wire.Options{}, 1, "x2", "-Inf"},
		{"csv: empty", asCSV, "1,2,3\n1,,3\n", wire.Options{}, 1, "x1", "missing"},
		{"csv: overflow", asCSV, "1,2,3\n1,2,1e400\n", wire.Options{}, 1, "x2", "overflows"},
		{"csv: hexadecimal", asCSV, "1,2,3\n1,2,0x10\n", wire.Options{}, 1, "x2", "not a number"},
		{"csv: decimal comma", asCSV, "1,2,3\n1,2,\"3,5\"\n", wire.Options{}, 1, "x2", "decimals are written with a point"},
		{"csv: no such hour", asCSV, "label,u\n1,2024-01-01 24:00\n", wire.Options{}, 0, "u", "not a date"},
		{"csv: text", asCSV, "label,u\n1,2\n1,spam\n", wire.Options{}, 1, "u", "spam"},
		{"csv: too few", asCSV, "1,2,3\n1,2\n", wire.Options{}, 1, "", "2 fields, want 3"},
		{"csv: too many", asCSV, "1,2,3\n1,2,3\n1,2,3,4,5\n", wire.Options{}, 2, "", "5 fields, want 3"},
		{"csv: wrong width", asCSV, "1,2,3,4\n", uv, 0, "", "there are 3 features, want 2"},
		{"csv: too narrow", asCSV, "1,2\n", uv, 0, "", "there is 1 feature, want 2"},
		{"csv: only a label", asCSV, "1\n", wire.Options{}, -1, "", "no features"},
		{"csv: colons", asCSV, "label:u\nspam:2\n", wire.Options{}, -1, "", `no comma, semicolon, tab or bar separates fields in the first line, "label:u"`},
		{"csv: semicolons, decimal comma", asCSV, "label;u\nspam;2,5\n", wire.Options{}, 0, "u", `"2,5" is not a number: decimals are written with a point`},
		{"csv: semicolons, decimal commas, no header", asCSV, "1;0,5;2,5\n", wire.Options{}, 0, "x1", "write decimals with a point"},
		{"csv: semicolons below commas", asCSV, "label,u\nspam;2\n", wire.Options{}, 0, "", "1 fields, want 2"},
		{"csv: commas below semicolons", asCSV, "label;u;v\nspam,2,3\n", uv, 0, "", "1 fields, want 3"},
		{"csv: bare quote", asCSV, "1,2,3\n1,2,3\"\n", wire.Options{}, 1, "x2", "quote"},
		{"csv: open quote", asCSV, "1,2,3\n1,2,\"3\n", wire.Options{}, 1, "x2", "not closed"},
		{"csv: text behind quote", asCSV, "1,2,3\n1,\"2\"2,3\n", wire.Options{}, 1, "x1", "behind"},
		{"csv: name twice", asCSV, "label,u,u\n1,2,3\n", wire.Options{}, -1, "u", "twice"},
		{"csv: label twice", asCSV, "label,u,label\n1,2,3\n", wire.Options{}, -1, "label", "twice"},
		{"csv: name empty", asCSV, ",label,u\n1,2,3\n", wire.Options{}, -1, "", "empty name"},
		{"csv: missing", asCSV, "label,u\n1,2\n", uv, -1, "v", "missing"},
		{"csv: unknown", asCSV, "label,u,v,typo\n1,2,3,4\n", uv, -1, "typo", "unknown"},
		{"csv: no label", asCSV, "u,v\n1,2\n", wire.Options{}, -1, "label", `"u", "v"`},
		{"csv: label's name without header", asCSV, "1,2\n", wire.Options{Label: "what"}, -1, "what", "first"},
		{"csv: label's number", asCSV, "1,2\n", wire.Options{Label: "3"}, -1, "3", "up to 2"},
		{"csv: empty label", asCSV, "1,2\n,2\n", wire.Options{}, 1, "label", "empty"},
		{"csv: NaN label", asCSV, "1,2\nnan,2\n", wire.Options{}, 1, "label", "nan"},
		{"csv: infinite label", asCSV, "1,2\n1e999,2\n", wire.Options{}, 1, "label", "overflows"},
		{"csv: weight without header", asCSV, "1,2\n", weighted, -1, "w", "header"},
		{"csv: weight missing", asCSV, "label,u\n1,2\n", weighted, -1, "w", "weight"},
		{"csv: weight", asCSV, "label,w,u\n1,1,2\n1,-0.5,2\n", weighted, 1, "w", "-0.5"},
		{"csv: features", asCSV, "1,2,3,4,5\n", small, -1, "", "limit"},
		{"csv: rows", asCSV, "1,2\n1,2\n1,2\n", small, 2, "", "2 rows"},

		{"libsvm: only comments", asLIBSVM, "# 1 1:2\n", wire.Options{}, -1, "", "no rows"},
		{"libsvm: no features", asLIBSVM, "1\n2\n", wire.Options{}, -1, "", "feature"},
		{"libsvm: no label", asLIBSVM, "1 1:2\n1:2 2:3\n", wire.Options{}, 1, "", "label"},
		{"libsvm: two labels", asLIBSVM, "1 1:2\n1,2 1:2\n", uv, 1, "", "comma"},
		{"libsvm: csv", asLIBSVM, "label,u,v\n1,2,3\n", uv, 0, "", "comma"},
		{"libsvm: text", asLIBSVM, "1 1:red\n", wire.Options{}, 0, "", `index 1: "red" is not a number`},
		{"libsvm: index 0", asLIBSVM, "1 0:2\n", wire.Options{}, 0, "", "index 0"},
		{"libsvm: twice", asLIBSVM, "1 1:2\n1 1:2 1:3\n", wire.Options{}, 1, "", "twice"},
		{"libsvm: descending", asLIBSVM, "1 2:2 1:3\n", wire.Options{}, 0, "", "ascend"},
		{"libsvm: negative", asLIBSVM, "1 -2:2\n", wire.Options{}, 0, "", "index:value"},
		{"libsvm: huge index", asLIBSVM, "1 18446744073709551617:2\n", wire.Options{}, 0, "", "index:value"},
		{"libsvm: beyond the limit", asLIBSVM, "1 4:2\n", small, 0, "", "limit"},
		{"libsvm: beyond the width", asLIBSVM, "1 3:2\n", uv, 0, "", "only 2"},
		{"libsvm: query", asLIBSVM, "1 qid:3 1:2\n", wire.Options{}, 0, "", "qid"},
		{"libsvm: no value", asLIBSVM, "1 1:2\n1 1:\n", wire.Options{}, 1, "", "missing"},
		{"libsvm: no colon", asLIBSVM, "1 1\n", wire.Options{}, 0, "", "index:value"},
		{"libsvm: NaN", asLIBSVM, "1 1:nan\n", wire.Options{}, 0, "", "nan"},
		{"libsvm: overflow", asLIBSVM, "1 1:1e999\n", wire.Options{}, 0, "", "overflows"},
		{"libsvm: NaN label", asLIBSVM, "NaN 1:2\n", wire.Options{}, 0, "", "NaN"},
		{"libsvm: rows", asLIBSVM, "1 1:2\n1 1:2\n1 1:2\n", small, 2, "", "2 rows"},
		{"libsvm: unfolds", asLIBSVM, "1\n1 3:1\n",
			wire.Options{Limits: wire.Limits{Bytes: 11}}, 1, "", "4 numbers"},

		{"arrow: text", asArrow, "label,u\n1,2\n", wire.Options{}, -1, "", "not an Arrow"},
		{"arrow: file", asArrow, "ARROW1\x00\x00\xff\xff\xff\xff", wire.Options{}, -1, "", "stream format"},
		{"arrow: ended", asArrow, "\xff\xff\xff\xff\x00\x00\x00\x00", wire.Options{}, -1, "", "no rows"},
		{"arrow: truncated", asArrow, "\xff\xff\xff\xff\x00\x01\x00\x00xx", wire.Options{}, -1, "", "truncated"},
		{"arrow: noise", asArrow, "\xff\xff\xff\xff\x08\x00\x00\x00\x04\x00\x00\x00\x04\x00\x00\x00", wire.Options{}, -1, "", "malformed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := newDecoder(t, c.opts).Decode(c.contentType, []byte(c.payload))
			var e *wire.Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v, want an *Error", err)
			}
			if e.Row != c.row || e.Column != c.column && c.column != "" || !strings.Contains(e.Reason, c.reason) {
				t.Errorf("row %d, column %q: %s\nwant row %d, column %q: …%s…", e.Row, e.Column, e.Reason, c.row, c.column, c.reason)
			}
		})
	}
}

// TestHeaderOfAnother: whether the first line is a header depends on its payload and
// content type alone, not on a header that the decoder has met before.
func TestHeaderOfAnother(t *testing.T) {
	for _, c := range []struct {
		name, before, beforeType, payload string
		opts                              wire.Options
		rows                              int
		features                          string
	}{
		{"a name goes on", "label,u", "text/csv", "label,u2,v\na,1,2\n", wire.Options{}, 1, "u2,v"},
		{"numbers for names", "0,1,2\na,5,6\n", "text/csv; header=present", "0,1,2\n1,5,6\n", wire.Options{Label: "first"}, 2, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDecoder(t, c.opts)
			// Whether these have rows makes no difference.
			_, _ = d.Decode(c.beforeType, []byte(c.before))
			b, err := d.Decode("text/csv", []byte(c.payload))
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(b.Features, ","); b.Rows() != c.rows || got != c.features {
				t.Errorf("%d rows of %q, want %d of %q", b.Rows(), got, c.rows, c.features)
			}
		})
	}
}
