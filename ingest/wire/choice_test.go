package wire_test

import (
	"bytes"
	"errors"
	"fmt"
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

// crowded is a table of two features and a label among columns of every other type of
// Arrow, in every place.
func crowded(t testing.TB, options ...ipc.Option) []byte {
	t.Helper()
	others := []arrow.DataType{
		arrow.BinaryTypes.String, arrow.Null, arrow.FixedWidthTypes.Timestamp_us, arrow.BinaryTypes.Binary,
		arrow.ListOf(arrow.StructOf(arrow.Field{Name: "a", Type: arrow.BinaryTypes.String}, arrow.Field{Name: "b", Type: arrow.PrimitiveTypes.Int8})),
		arrow.BinaryTypes.StringView, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String},
		arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Float64), arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Float32),
		&arrow.Decimal128Type{Precision: 9, Scale: 2}, arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Duration_s,
		arrow.BinaryTypes.LargeString, &arrow.FixedSizeBinaryType{ByteWidth: 5}, arrow.LargeListOf(arrow.BinaryTypes.LargeBinary),
		arrow.SparseUnionOf([]arrow.Field{{Name: "i", Type: arrow.PrimitiveTypes.Int32}, {Name: "s", Type: arrow.BinaryTypes.String}}, []arrow.UnionTypeCode{0, 1}),
		arrow.DenseUnionOf([]arrow.Field{{Name: "i", Type: arrow.PrimitiveTypes.Int32}, {Name: "s", Type: arrow.BinaryTypes.String}}, []arrow.UnionTypeCode{0, 1}),
		arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String), arrow.ListViewOf(arrow.BinaryTypes.StringView),
		arrow.FixedWidthTypes.Time64us, arrow.FixedWidthTypes.MonthDayNanoInterval, arrow.FixedWidthTypes.Boolean,
	}
	fields := []arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Float64}}
	for i, typ := range others {
		if i == len(others)/2 {
			fields = append(fields, arrow.Field{Name: "label", Type: arrow.BinaryTypes.String})
		}
		fields = append(fields, arrow.Field{Name: fmt.Sprintf("other %d", i), Type: typ, Nullable: true})
	}
	fields = append(fields, arrow.Field{Name: "u", Type: arrow.PrimitiveTypes.Int16})
	schema := arrow.NewSchema(fields, nil)
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for row := range 3 {
		for k, field := range fields {
			switch b := builder.Field(k).(type) {
			case *array.Float64Builder:
				b.Append([]float64{0.5, -3, 7}[row])
			case *array.Int16Builder:
				b.Append([]int16{1, 2, -3}[row])
			case *array.StringBuilder:
				b.Append([]string{"spam", "ham", "spam"}[row])
			case *array.StringViewBuilder:
				b.Append(strings.Repeat("long ", 10*row))
			default:
				if row == 1 || field.Type.ID() == arrow.RUN_END_ENCODED {
					b.AppendNull()
				} else {
					b.AppendEmptyValue()
				}
			}
		}
	}
	var out bytes.Buffer
	w := ipc.NewWriter(&out, append(options, ipc.WithSchema(schema))...)
	if err := w.Write(builder.NewRecordBatch()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

var ofCrowded = &incremental.Block{
	Features: []string{"u", "v"}, Classes: []string{"spam", "ham"}, Codes: []int32{0, 1, 0},
	Columns: []gram.Column{gram.ColumnOf([]float64{1, 2, -3}), gram.ColumnOf([]float64{0.5, -3, 7})},
}

// Columns that are not learned may be of any type and in any place, in every format, and
// leave the block that is there without them.
func TestIgnoredColumns(t *testing.T) {
	texts := map[string]string{
		"text/csv": "id,v,label,when,\"no, te\",u,\r\na7,0.5,spam,2026-11-23,\"say \"\"hi\"\"\r\n\",1,\nb8,-3,ham,,NA,2,x\nc9,7,spam,nan,1e999,-3,\n",
		"application/json": `[{"id":"a\u00e97","v":0.5,"label":"spam","nested":{"a":[1,{"b":[]}],"c":{}},"u":1},
			{"u":2,"label":"ham","none":null,"v":-3,"id":1e99},{"big":[[[true,false,NaN]]],"label":"spam","u":-3,"v":7,"id":"","":-0.5e-3}]`,
	}
	all := map[string][]byte{"application/vnd.apache.arrow.stream": crowded(t)}
	for contentType, text := range texts {
		all[contentType] = []byte(text)
	}
	for contentType, payload := range all {
		for name, o := range map[string]wire.Options{
			"selected": {Features: []string{"u", "v"}, IgnoreUnknown: true},
			"ignored":  {Ignore: []string{"other *", "id", "wh?n", "no, te", "nested", "none", "big", ""}},
			"both":     {Features: []string{"u", "v"}, Ignore: []string{"[i-w][d-t]*", "big", ""}},
		} {
			t.Run(contentType+" "+name, func(t *testing.T) {
				d := newDecoder(t, o)
				for range 3 {
					got, err := d.Decode(contentType, payload)
					if err != nil {
						t.Fatal(err)
					}
					requireSame(t, got, ofCrowded)
					if !slices.Equal(got.Features, ofCrowded.Features) {
						t.Errorf("features %q", got.Features)
					}
				}
				if n := testing.AllocsPerRun(20, func() { d.Decode(contentType, payload) }); n != 0 {
					t.Errorf("%v allocations per block", n)
				}
				o.Features = ofCrowded.Features
				table, err := newDecoder(t, o).DecodeUnlabelled(contentType, payload)
				if err != nil {
					t.Fatal(err)
				}
				requireSame(t, &incremental.Block{Columns: table.Columns, Classes: ofCrowded.Classes, Codes: ofCrowded.Codes}, ofCrowded)
			})
		}
	}
	for _, packed := range []ipc.Option{ipc.WithLZ4(), ipc.WithZstd()} {
		got := decode(t, wire.Options{Features: []string{"u", "v"}, IgnoreUnknown: true}, arrowType, crowded(t, packed))
		requireSame(t, got, ofCrowded)
	}
}

// In a file the ignored columns leave the same blocks, however it is cut.
func TestIgnoredColumnsOfFiles(t *testing.T) {
	var rows strings.Builder
	var table strings.Builder
	table.WriteString("id,u,text,v,label\n")
	want := &incremental.Block{Features: []string{"u", "v"}, Classes: []string{"a", "b"}}
	var u, v []float64
	for i := range 100 {
		label := want.Classes[i%2]
		fmt.Fprintf(&rows, "{\"text\":\"{[%d\",\"u\":%d,\"deep\":[{}],\"v\":%d,\"label\":%q}\n", i, i, -i, label)
		fmt.Fprintf(&table, "id-%d,%d,\"a\n\"\"b\",%d,%s\n", i, i, -i, label)
		want.Codes, u, v = append(want.Codes, int32(i%2)), append(u, float64(i)), append(v, float64(-i))
	}
	want.Columns = []gram.Column{gram.ColumnOf(u), gram.ColumnOf(v)}
	for name, text := range map[string]string{"rows.json": rows.String(), "rows.csv": table.String()} {
		path := writeFile(t, name, []byte(text))
		for _, o := range []wire.Options{{Ignore: []string{"id", "text", "d*"}}, {Features: []string{"u", "v"}, IgnoreUnknown: true}} {
			for _, atOnce := range []int{7, 1000} {
				got, err := readAll(path, o, atOnce)
				if err != nil {
					t.Fatal(err)
				}
				requireSame(t, got, want)
			}
		}
	}
	// A file of LIBSVM is as wide as the columns that are learned.
	path := writeFile(t, "rows.libsvm", []byte("1 2:5 4:1\n-1 1:9\n1 3:7 9:2\n-1 5:6\n"))
	for _, atOnce := range []int{1, 2, 100} {
		got, err := readAll(path, wire.Options{Ignore: []string{"x1", "x9", "x4"}}, atOnce)
		if err != nil {
			t.Fatal(err)
		}
		requireSame(t, got, &incremental.Block{Classes: []string{"1", "-1"}, Codes: []int32{0, 1, 0, 1}, Columns: []gram.Column{
			gram.ColumnOf([]float64{5, 0, 0, 0}), gram.ColumnOf([]float64{0, 0, 7, 0}), gram.ColumnOf([]float64{0, 0, 0, 6})}})
		if want := []string{"x2", "x3", "x5"}; !slices.Equal(got.Features, want) {
			t.Errorf("features %q, want %q", got.Features, want)
		}
	}
}

// Columns without names have the names of their places: x1, x2, ….
func TestNamelessColumnsAreChosen(t *testing.T) {
	const asCSV, asLIBSVM = "text/csv", "application/x-libsvm"
	column := func(x ...float64) gram.Column { return gram.ColumnOf(x) }
	for _, c := range []struct {
		contentType, payload string
		opts                 wire.Options
		features             []string
		columns              []gram.Column
	}{
		{asCSV, "a,1,x,3\nb,4,y,6\n", wire.Options{Ignore: []string{"x2"}, Header: wire.HeaderAbsent}, []string{"x1", "x3"}, []gram.Column{column(1, 4), column(3, 6)}},
		{asCSV, "a,1,2,3\nb,4,5,6\n", wire.Options{Features: []string{"x3", "x1"}, IgnoreUnknown: true}, []string{"x3", "x1"}, []gram.Column{column(3, 6), column(1, 4)}},
		{asCSV, "a,1,2,3\nb,4,5,6\n", wire.Options{Features: []string{"u", "v"}, Ignore: []string{"x1"}}, []string{"u", "v"}, []gram.Column{column(2, 5), column(3, 6)}},
		{asLIBSVM, "a 1:1 3:3\nb 2:5 3:6\n", wire.Options{Ignore: []string{"x2"}}, []string{"x1", "x3"}, []gram.Column{column(1, 0), column(3, 6)}},
		{asLIBSVM, "a 1:1 3:3\nb 2:5 3:6\n", wire.Options{Features: []string{"x3", "x9"}, IgnoreUnknown: true}, []string{"x3", "x9"}, []gram.Column{column(3, 6), column(0, 0)}},
		{asLIBSVM, "a 1:1 3:3\nb 2:5 900000000:6\n", wire.Options{Features: []string{"u", "v"}, IgnoreUnknown: true}, []string{"u", "v"}, []gram.Column{column(1, 0), column(0, 5)}},
		{asLIBSVM, "a 1:1 3:3\nb 2:5 900000000:6\n", wire.Options{Features: []string{"x900000000"}, IgnoreUnknown: true}, []string{"x900000000"}, []gram.Column{column(0, 6)}},
	} {
		d := newDecoder(t, c.opts)
		for range 2 {
			got, err := d.Decode(c.contentType, []byte(c.payload))
			if err != nil {
				t.Fatalf("%q with %+v: %v", c.payload, c.opts, err)
			}
			requireSame(t, got, &incremental.Block{Classes: []string{"a", "b"}, Codes: []int32{0, 1}, Columns: c.columns})
			if !slices.Equal(got.Features, c.features) {
				t.Errorf("features %q, want %q", got.Features, c.features)
			}
		}
	}
}

// A column that cannot be passed over, or must not be, is an error that says so.
func TestColumnsRefused(t *testing.T) {
	const asJSON, asCSV, asLIBSVM = "application/json", "text/csv", "application/x-libsvm"
	uv := []string{"u", "v"}
	deep := strings.Repeat("[", 20_000)
	for _, c := range []struct {
		contentType, payload string
		opts                 wire.Options
		row                  int
		column, reason       string
	}{
		{asJSON, `{"label":1,"u":1,"v":2,"w":3}`, wire.Options{Features: uv}, 0, "w", "not ignored"},
		{asJSON, `{"label":1,"u":1,"w":3}`, wire.Options{Features: uv, IgnoreUnknown: true}, 0, "v", "missing"},
		{asJSON, `{"label":1,"u":1,"v":2,"w":` + deep + `}`, wire.Options{Features: uv, IgnoreUnknown: true}, 0, "", "too deeply"},
		{asJSON, `{"label":1,"u":1,"v":2,"w":[1,}`, wire.Options{Features: uv, IgnoreUnknown: true}, 0, "", "want a value"},
		{asJSON, `{"label":1,"u":1,"v":2,"w":{"a" 1}}`, wire.Options{Features: uv, IgnoreUnknown: true}, 0, "", "colon"},
		{asJSON, `{"label":1,"u":1,"v":2,"w":[1}`, wire.Options{Features: uv, IgnoreUnknown: true}, 0, "w", "comma"},
		{asJSON, `{"label":1,"u":1,"v":2,"w":0:1}`, wire.Options{Features: uv, IgnoreUnknown: true}, 0, "", "want a comma"},
		{asJSON, `{"label":1,"u":1,"v":2,"w":1e999,"x":}`, wire.Options{Features: uv, IgnoreUnknown: true}, 0, "", "want a value, but there is \"}\""},
		{asJSON, `{"label":1,"u":1}`, wire.Options{Ignore: []string{"*"}}, 0, "", "no features"},
		{asCSV, "label,u,v,w\n1,1,2,3\n", wire.Options{Features: uv}, -1, "w", "not ignored"},
		{asCSV, "label,u,w\n1,1,2\n", wire.Options{Features: uv, IgnoreUnknown: true}, -1, "v", "missing"},
		{asCSV, "label,u\n1,1\n", wire.Options{Ignore: []string{"*"}}, -1, "", "no features"},
		{asCSV, "label" + strings.Repeat(",c", 9000) + "\n1\n", wire.Options{Features: uv, IgnoreUnknown: true}, -1, "", "columns, the limit"},
		{asCSV, "a,1,2,3\n", wire.Options{Features: uv, IgnoreUnknown: true}, 0, "", "there are 3 features, want 2"},
		{asLIBSVM, "1 1:1 3:1\n", wire.Options{Features: uv}, 0, "", "only 2"},
		{asLIBSVM, "1 1:1 3:1\n", wire.Options{Ignore: []string{"x1", "x3"}}, -1, "", "feature"},
		{asLIBSVM, "1 900000000:1\n", wire.Options{Ignore: []string{"x1"}}, 0, "", "limit"},
	} {
		_, err := newDecoder(t, c.opts).Decode(c.contentType, []byte(c.payload))
		var e *wire.Error
		if !errors.As(err, &e) || e.Row != c.row || e.Column != c.column || !strings.Contains(e.Reason, c.reason) {
			t.Errorf("%.60q: %v\nwant row %d, column %q: …%s…", c.payload, err, c.row, c.column, c.reason)
		}
	}
	for _, o := range []wire.Options{{Ignore: []string{"[a"}}, {Features: uv, Ignore: []string{"?"}}} {
		if _, err := wire.NewDecoder(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// TestUnusualCorrupted changes single bytes of a table with ignored columns of all types, and
// of one with gaps.
func TestUnusualCorrupted(t *testing.T) {
	for _, c := range []struct {
		whole []byte
		opts  wire.Options
	}{
		{crowded(t), wire.Options{Features: []string{"u", "v"}, IgnoreUnknown: true}},
		{gappyArrow(t), wire.Options{Missing: wire.Missing{Default: wire.MissingIndicator}, Limits: fuzzLimits}},
	} {
		d := newDecoder(t, c.opts)
		for i := range c.whole {
			for _, to := range []byte{0, 1, 0x7f, 0x80, 0xff} {
				corrupt := bytes.Clone(c.whole)
				corrupt[i] = to
				if b, err := d.Decode(arrowType, corrupt); err == nil {
					requireConsistent(t, b, false)
				}
			}
		}
	}
}
