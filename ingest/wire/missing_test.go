package wire_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
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

// gappyArrow is a table of every type that a feature may have, with gaps, in two batches of
// two rows.
func gappyArrow(t testing.TB) []byte {
	t.Helper()
	types := []arrow.Field{
		{Name: "int", Type: arrow.PrimitiveTypes.Int16, Nullable: true},
		{Name: "double", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "single", Type: arrow.PrimitiveTypes.Float32, Nullable: true},
		{Name: "half", Type: arrow.FixedWidthTypes.Float16, Nullable: true},
		{Name: "bool", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "none", Type: arrow.Null, Nullable: true},
		{Name: "day", Type: arrow.FixedWidthTypes.Date32, Nullable: true},
		{Name: "code", Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, Nullable: true},
		{Name: "full", Type: arrow.PrimitiveTypes.Float64},
		{Name: "label", Type: arrow.BinaryTypes.String},
	}
	schema := arrow.NewSchema(types, nil)
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(schema))
	row := 0
	for range 2 {
		builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for range 2 {
			err := builder.UnmarshalJSON([]byte([]string{
				`{"int":1,"double":null,"single":2.5,"half":1.5,"bool":true,"text":"7.5","none":null,"day":"2024-01-31","code":"4","full":1,"label":"a"}`,
				`{"int":null,"double":0.25,"single":null,"half":null,"bool":null,"text":"NA","none":null,"day":null,"code":null,"full":2,"label":"b"}`,
				`{"int":3,"double":-4,"single":1,"half":2,"bool":false,"text":null,"none":null,"day":"1970-01-02","code":"nan","full":3,"label":"a"}`,
				`{"int":null,"double":8,"single":null,"half":-1,"bool":true,"text":"","none":null,"day":null,"code":"-0.5","full":4,"label":"b"}`,
			}[row]))
			if err != nil {
				t.Fatal(err)
			}
			row++
		}
		if err := w.Write(builder.NewRecordBatch()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const gappyJSON = `[{"label":"a","int":1,"double":null,"single":2.5,"half":1.5,"bool":true,"text":"7.5","none":null,"day":"2024-01-31","code":4,"full":1},
{"label":"b","int":null,"double":0.25,"single":NaN,"half":null,"bool":null,"text":"NA","none":null,"day":null,"code":null,"full":2},
{"label":"a","int":3,"double":-4,"single":1,"half":2,"bool":false,"text":null,"none":null,"day":"1970-01-02","code":"nan","full":3},
{"label":"b","int":null,"double":8,"single":null,"half":-1,"bool":true,"text":"","none":null,"day":null,"code":-0.5,"full":4}]`

const gappyCSV = "label,int,double,single,half,bool,text,none,day,code,full\r\n" +
	"a,1,,2.5,1.5,True,7.5,,2024-01-31,4,1\r\nb,,0.25,nan,NA, ,NA,,null,,2\r\na,3,-4,1,2,False,\"\",,1970-01-02,nan,3\r\nb,,8,,-1,True,,,,-0.5,4\r\n"

// Without a type, columns have the order of the names; each is x and gaps.
var gappyWant = map[string][2][]float64{
	"int": {{1, 0, 3, 0}, {0, 1, 0, 1}}, "double": {{0, 0.25, -4, 8}, {1, 0, 0, 0}}, "single": {{2.5, 0, 1, 0}, {0, 1, 0, 1}},
	"half": {{1.5, 0, 2, -1}, {0, 1, 0, 0}}, "bool": {{1, 0, 0, 1}, {0, 1, 0, 0}}, "text": {{7.5, 0, 0, 0}, {0, 1, 1, 1}},
	"none": {{0, 0, 0, 0}, {1, 1, 1, 1}}, "day": {{1706659200, 0, 86400, 0}, {0, 1, 0, 1}}, "code": {{4, 0, 0, -0.5}, {0, 1, 1, 0}},
	"full": {{1, 2, 3, 4}, {0, 0, 0, 0}},
}

// The same rows with gaps are the same block in every format, and with every policy.
func TestMissingValues(t *testing.T) {
	payloads := map[string][]byte{arrowType: gappyArrow(t), "application/json": []byte(gappyJSON), "text/csv": []byte(gappyCSV)}
	for name, m := range map[string]wire.Missing{
		"zero":      {Default: wire.MissingZero},
		"indicator": {Default: wire.MissingIndicator},
		"mean":      {Default: wire.MissingMean, Features: map[string]wire.MissingPolicy{"full": wire.MissingReject, "none": wire.MissingZero}},
		"mixed": {Features: map[string]wire.MissingPolicy{"int": wire.MissingMean, "double": wire.MissingZero, "single": wire.MissingIndicator, "half": wire.MissingZero,
			"bool": wire.MissingIndicator, "text": wire.MissingMean, "none": wire.MissingIndicator, "day": wire.MissingMean, "code": wire.MissingZero}},
	} {
		var features []string
		for feature := range gappyWant {
			features = append(features, feature)
			if p := m.Of(feature); p == wire.MissingMean || p == wire.MissingIndicator {
				features = append(features, feature+" missing")
			}
		}
		slices.SortFunc(features, incremental.CompareFeatures)
		want := &incremental.Block{Classes: []string{"a", "b"}, Codes: []int32{0, 1, 0, 1}}
		for _, feature := range features {
			of, marks := strings.CutSuffix(feature, " missing")
			column := gappyWant[of][0]
			if marks {
				column = gappyWant[of][1]
			}
			want.Columns = append(want.Columns, gram.ColumnOf(column))
		}
		for contentType, payload := range payloads {
			t.Run(name+" "+contentType, func(t *testing.T) {
				for _, given := range [][]string{nil, features, m.Base(features)} {
					o := wire.Options{Missing: m, Features: given}
					d := newDecoder(t, o)
					for range 3 {
						got, err := d.Decode(contentType, payload)
						if err != nil {
							t.Fatal(err)
						}
						if !slices.Equal(got.Features, features) {
							t.Fatalf("features %q, want %q", got.Features, features)
						}
						requireSame(t, got, want)
					}
					if contentType == arrowType {
						payload = bytes.Clone(payload) // no dictionary of another stream
					}
					if n := testing.AllocsPerRun(20, func() { d.Decode(contentType, payload) }); n > 0 {
						t.Errorf("%v allocations per block", n)
					}
				}
				path := writeFile(t, "rows."+map[string]string{arrowType: "arrows", "application/json": "json", "text/csv": "csv"}[contentType], payload)
				for _, rows := range []int{1, 3, 100} {
					got, err := readAll(path, wire.Options{Missing: m}, rows)
					if err != nil {
						t.Fatal(err)
					}
					requireSame(t, got, want)
				}
			})
		}
	}
}

// Nameless columns get the names of their places where they have marks.
func TestMissingValuesWithoutNames(t *testing.T) {
	column := func(x ...float64) gram.Column { return gram.ColumnOf(x) }
	want := &incremental.Block{Classes: []string{"a", "b"}, Codes: []int32{0, 1}, Columns: []gram.Column{column(1, 0), column(0, 1), column(0, 5), column(1, 0)}}
	o := wire.Options{Missing: wire.Missing{Default: wire.MissingIndicator}}
	for contentType, payload := range map[string]string{
		"text/csv; header=absent": "a,1,\nb,,5\n", "application/x-libsvm": "a 1:1 2:nan\nb 1:NaN 2:5\n", "application/json": `[{"label":"a","features":[1,null]},{"label":"b","features":[NaN,5]}]`,
	} {
		for _, features := range [][]string{nil, {"x1", "x2"}, {"x1", "x1 missing", "x2", "x2 missing"}} {
			o.Features = features
			got := decode(t, o, contentType, []byte(payload))
			requireSame(t, got, want)
			if !slices.Equal(got.Features, []string{"x1", "x1 missing", "x2", "x2 missing"}) {
				t.Errorf("%s: features %q", contentType, got.Features)
			}
		}
	}
	// LIBSVM's absent values are zero, and not missing.
	requireSame(t, decode(t, wire.Options{Missing: wire.Missing{Default: wire.MissingIndicator}}, "application/x-libsvm", []byte("a 2:5\nb 1:nan\n")),
		&incremental.Block{Classes: want.Classes, Codes: want.Codes, Columns: []gram.Column{column(0, 0), column(0, 1), column(5, 0), column(0, 0)}})
}

// Rows without names have the names by default, whatever names the block before had.
func TestUnnamedRowsBehindNamedOnes(t *testing.T) {
	named, unnamed := `[{"label":1,"b":1,"a":2}]`, `[{"label":1,"features":[1,2]}]`
	for _, policy := range []wire.MissingPolicy{wire.MissingMean, wire.MissingZero, wire.MissingIndicator} {
		opts := wire.Options{Missing: wire.Missing{Default: policy}}
		for _, payloads := range [][2]string{{named, unnamed}, {unnamed, named}} {
			used := newDecoder(t, opts)
			if _, err := used.Decode("application/json", []byte(payloads[0])); err != nil {
				t.Fatal(err)
			}
			got, err := used.Decode("application/json", []byte(payloads[1]))
			want, freshErr := newDecoder(t, opts).Decode("application/json", []byte(payloads[1]))
			if err != nil || freshErr != nil {
				t.Fatal(err, freshErr)
			}
			requireSame(t, got, want)
			if !slices.Equal(got.Features, want.Features) {
				t.Errorf("%v: features %q behind %s, want %q", policy, got.Features, payloads[0], want.Features)
			}
		}
	}
}

// A value that may not be missing is refused as before, and so are names of marks, and
// values that are there and bad.
func TestMissingValuesRefused(t *testing.T) {
	some := wire.Missing{Features: map[string]wire.MissingPolicy{"u": wire.MissingMean}}
	uv := []string{"u", "v"}
	for _, c := range []struct {
		contentType, payload string
		opts                 wire.Options
		row                  int
		column, reason       string
	}{
		{"application/json", `{"label":1,"u":null,"v":null}`, wire.Options{Missing: some}, 0, "v", "null"},
		{"application/json", `{"label":1,"u":nul,"v":1}`, wire.Options{Missing: some}, 0, "u", "want a number"},
		{"application/json", `{"label":1,"u":"none","v":1}`, wire.Options{Missing: some}, 0, "u", "not a number"},
		{"application/json", `{"label":1,"v":1}`, wire.Options{Missing: some, Features: uv}, 0, "u", "missing"},
		{"application/json", `{"label":1,"u":1,"v":1,"u missing":0}`, wire.Options{Missing: some, Features: uv, IgnoreUnknown: true}, 0, "u missing", "marks"},
		{"application/json", `{"label":1,"u":1,"u missing":0}`, wire.Options{Missing: some}, -1, "u missing", "marks"},
		{"text/csv", "label,u,v\n1,,\n", wire.Options{Missing: some}, 0, "v", "missing"},
		{"text/csv", "label,u,u missing\n1,2,3\n", wire.Options{Missing: some}, -1, "u missing", "marks"},
		{"text/csv", "label,u,v,u missing\n1,2,3,4\n", wire.Options{Missing: some, Features: uv, IgnoreUnknown: true}, -1, "u missing", "marks"},
		{"text/csv", "label,u\n,1\n", wire.Options{Missing: some}, 0, "label", "empty"},
		{"application/x-libsvm", "1 1:1 2:nan\n", wire.Options{Missing: some, Features: uv}, 0, "", "index 2"},
		{"text/csv", "label,u,v\n1,2,3\n", wire.Options{Missing: wire.Missing{Default: wire.MissingMean}, Limits: wire.Limits{Features: 3}}, -1, "", "marks of missing values, the limit is 3"},
	} {
		_, err := newDecoder(t, c.opts).Decode(c.contentType, []byte(c.payload))
		var e *wire.Error
		if !errors.As(err, &e) || e.Row != c.row || e.Column != c.column || !strings.Contains(e.Reason, c.reason) {
			t.Errorf("%.60q: %v\nwant row %d, column %q: …%s…", c.payload, err, c.row, c.column, c.reason)
		}
	}
	if _, err := newDecoder(t, wire.Options{}).Decode(arrowType, gappyArrow(t)); err == nil {
		t.Error("gaps are accepted")
	}
}

// An encoder writes NaN as a missing value.
func TestMissingValuesComeBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	want := randomBlock(rng, 50, 3, []string{"a", "b"}, []gram.Kind{gram.Float64})
	want.Features = []string{"x1", "x2", "x3"}
	for j := range want.Columns {
		x := make([]float64, 50)
		want.Columns[j].Copy(x, 0)
		for i := range x {
			if rng.IntN(3) == 0 {
				x[i] = math.NaN()
			}
		}
		want.Columns[j] = gram.ColumnOf(x)
	}
	for _, format := range wire.Formats() {
		if _, err := wire.Encode(nil, format, want); err == nil {
			t.Errorf("%v: gaps are written unasked", format)
		}
		e := wire.NewEncoder(format)
		e.Missing = true
		payload, err := e.Append(nil, want)
		if err != nil {
			t.Fatal(err)
		}
		got := decode(t, wire.Options{Features: want.Features, Missing: wire.Missing{Default: wire.MissingNaN}}, format.ContentType(), payload)
		for j, c := range want.Columns {
			for i := range want.Rows() {
				if g, w := got.Columns[j].At(i), c.At(i); g != w && !(math.IsNaN(g) && math.IsNaN(w)) {
					t.Fatalf("%v: row %d, column %d: %v, want %v", format, i, j, g, w)
				}
			}
		}
	}
}
