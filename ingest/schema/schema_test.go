package schema

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"streamd/incremental"
	"streamd/ingest/wire"
)

// rows decodes a payload of JSON by a schema.
func rows(t *testing.T, text, payload string) (names []string, values [][]float64) {
	t.Helper()
	s, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	d, err := wire.NewDecoder(wire.Options{Format: wire.JSON, Schema: s, IgnoreUnknown: true})
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Decode("", []byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.Rows() {
		var row []float64
		for _, c := range b.Columns {
			row = append(row, c.At(i))
		}
		values = append(values, row)
	}
	return b.Features, values
}

// The columns of each kind, by hand.
func TestColumns(t *testing.T) {
	const h = 0.7071067811865476 // sine and cosine of 45 degrees
	for _, c := range []struct {
		schema, payload string
		names           string
		want            [][]float64
	}{
		{"x: number", `{"label":1,"x":2.5}`, "x", [][]float64{{2.5}}},
		{"x: {kind: number, missing: mean}", `[{"label":1,"x":2},{"label":1,"x":null},{"label":0}]`, "x,x missing", [][]float64{{2, 0}, {0, 1}, {0, 1}}},
		{"x: {kind: number, missing: -1, clip: [0, 3]}", `[{"label":1,"x":7},{"label":1,"x":"NA"},{"label":0,"x":-2}]`, "x", [][]float64{{3}, {-1}, {0}}},
		{"x: {kind: number, log1p: true}", `[{"label":1,"x":0},{"label":1,"x":1.718281828459045}]`, "x", [][]float64{{0}, {1}}},
		{"y: {kind: number, from: a.b.c}", `{"label":1,"a":{"z":[1,{}],"b":{"c":4,"d":"no"}},"q":"no"}`, "y", [][]float64{{4}}},
		{"{y: {kind: number, from: a.b.c}, z: {kind: number, from: a.d}, u: {kind: number, from: e, missing: 9}}", `[{"label":1,"a":{"b":{"c":4},"d":5},"e":6},{"a":{"d":7,"b":{"x":{},"c":8}},"label":1}]`, "u,y,z", [][]float64{{6, 4, 5}, {9, 8, 7}}},
		{"m: bool", `[{"label":1,"m":true},{"label":1,"m":"False"},{"label":1,"m":1}]`, "m", [][]float64{{1}, {0}, {1}}},
		{"m: {kind: bool, true: [yes], false: [no], missing: indicator}", `[{"label":1,"m":"yes"},{"label":1,"m":"no"},{"label":1,"m":""}]`, "m,m missing", [][]float64{{1, 0}, {0, 0}, {0, 1}}},
		{"c: {kind: category, values: [red, 1, true], other: true, missing: own}", `[{"label":1,"c":"red"},{"label":1,"c":1},{"label":1,"c":"1.0"},{"label":1,"c":"True"},{"label":1,"c":"blue"},{"label":1,"c":null}]`,
			"c=(missing),c=(other),c=1,c=red,c=true", [][]float64{{0, 0, 0, 1, 0}, {0, 0, 1, 0, 0}, {0, 0, 1, 0, 0}, {0, 0, 0, 0, 1}, {0, 1, 0, 0, 0}, {1, 0, 0, 0, 0}}},
		{"b: {kind: buckets, from: x, bounds: [0, 10]}", `[{"label":1,"x":-1},{"label":1,"x":0},{"label":1,"x":10}]`, "b=0..10,b=<0,b=>=10", [][]float64{{0, 1, 0}, {1, 0, 0}, {0, 0, 1}}},
		{"t: {kind: time, parts: [hour], zone: Europe/Vienna}", `{"label":1,"t":"2024-07-01T01:30:00Z"}`, "t hour cos,t hour sin", [][]float64{{h, h}}},
		{"{a: bool, c: {kind: category, values: [x, y]}, ac: {kind: interaction, of: [a, c]}}", `[{"label":1,"a":1,"c":"y"},{"label":0,"a":0,"c":"y"}]`, "a,a*c=x,a*c=y,c=x,c=y", [][]float64{{1, 0, 1, 0, 1}, {0, 0, 0, 0, 1}}},
		{"{a: number, b: number, ab: {kind: interaction, of: [a, b]}}", `{"label":1,"a":3,"b":-2}`, "a,a*b,b", [][]float64{{3, -6, -2}}},
		{"e: {kind: list, length: 2}", `{"label":1,"e":[1,2]}`, "e[0],e[1]", [][]float64{{1, 2}}},
		{"{e: {kind: list, length: 2}, second: {kind: number, from: 'e[1]', missing: 7}}", `{"label":1,"e":[1,2]}`, "e[0],e[1],second", [][]float64{{1, 2, 2}}},
	} {
		names, got := rows(t, c.schema, c.payload)
		if strings.Join(names, ",") != c.names {
			t.Errorf("%s: columns %q, want %s", c.schema, names, c.names)
		}
		for i := range got {
			if !slices.Equal(got[i], c.want[i]) {
				t.Errorf("%s: row %d is %v, want %v", c.schema, i, got[i], c.want[i])
			}
		}
	}
}

// What is wrong is named.
func TestBadSchemas(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "no features",
		"x: numbr":                       `feature "x": kind "numbr": want number, bool`,
		"x: {kind: number, words: true}": "there is no words of a feature of kind number",
		"x: {kind: category}":            "values: want a list",
		"x: {kind: category, values: [1, '1.0']}":                `"1" is given twice`,
		"x: {kind: number, missing: own}":                        "missing: own: want reject, zero, mean, indicator or a number",
		"x: {kind: hash, bits: 11}":                              "bits: 11: want 1 to 10",
		"x: {kind: hash, bits: many}":                            "bits is a string, want int",
		"x: {kind: time, zone: Vienna}":                          "no time zone",
		"x: {kind: interaction, of: [a, b]}":                     `"a" is no feature`,
		"{a: number, x: {kind: category, from: a, values: [1]}}": "read as a number by one feature and as a text by another",
		"{'a=1': number, a: {kind: category, values: [1]}}":      `makes column "a=1" twice`,
		"x: {kind: number, clip: [3, 1]}":                        "clip: want two numbers",
		"x: {kind: number, clip: [-2, 1], log1p: true}":          "log1p takes numbers above -1",
		"x: {kind: category, values: [NA]}":                      `"NA" stands for a missing value`,
		"x: {kind: category, values: {most: 0}}":                 "want a list, or {most: K}",
		"x: {kind: category, values: {most: 2.5}}":               "want a list, or {most: K}",
		"x: {kind: category, values: {most: '2'}}":               "want a list, or {most: K}",
		"x: {kind: category, values: {most: 5000}}":              "1 to 4096",
		"x: {kind: category, values: {most: 2, least: 1}}":       "want a list, or {most: K}",
		"x: {kind: category, values: {most: 2}, other: false}":   "other: false does not go with",
		"x: {kind: bool, values: {most: 2}}":                     "there is no values of a feature of kind bool",
		"x: ignore":                                              "no features",
		"x: [1]":                                                 "want the name of a kind",
		"x: {kind: buckets, bounds: [1, 1]}":                     "ascending",
		"x: {kind: buckets, bounds: [1], names: [a]}":            "1 names for 2 buckets",
		"x: {kind: category, values: [a], missing: other}":       "goes with other: true",
		"x: {kind: bool, true: [a], false: [a]}":                 "both true and false",
		"{a: {kind: category, values: [x, [y]]}}":                "is no value",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// A refused row names its column and says what helps.
func TestRefusedRows(t *testing.T) {
	for _, c := range []struct{ schema, payload, want string }{
		{"c: {kind: category, values: [a]}", `[{"label":1,"c":"a"},{"label":1,"c":"z"}]`, `row 1: column "c": "z" is none of the values of category "c"`},
		{"c: {kind: category, values: [a]}", `[{"label":1,"c":null}]`, `row 0: column "c": the value is missing`},
		{"c: {kind: category, values: [a]}", `[{"label":1,"d":"a"}]`, `column "c": the feature is missing`},
		{"m: bool", `{"label":1,"m":2}`, "2 is neither 0 nor 1"},
		{"x: {kind: number, log1p: true}", `{"label":1,"x":-1}`, "-1 has no log1p"},
		{"t: time", `{"label":1,"t":1e13}`, "is no time"},
		{"{a: {kind: number, from: x}, b: {kind: number, from: x, missing: zero}}", `{"label":1}`, "the value is missing"},
	} {
		s, err := Parse([]byte(c.schema))
		if err != nil {
			t.Fatal(err)
		}
		d, err := wire.NewDecoder(wire.Options{Format: wire.JSON, Schema: s, IgnoreUnknown: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = d.Decode("", []byte(c.payload)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %s: %v, want %s", c.schema, c.payload, err, c.want)
		}
	}
}

// Texts that all differ take no more memory than the limit, also across blocks.
func TestTextsAreBounded(t *testing.T) {
	s, err := Parse([]byte("{c: {kind: hash, bits: 1}, d: {kind: category, values: [a], other: true}}"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := wire.NewDecoder(wire.Options{Format: wire.CSV, Schema: s, Limits: wire.Limits{Numbers: 8 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	rows := func(from, to int) []byte {
		text := []byte("label,c,d\n")
		for i := from; i < to; i++ {
			text = fmt.Appendf(text, "x,c%d,d%d\n", i, i)
		}
		return text
	}
	for block := range 20 { // of 2 MB
		if _, err := d.Decode("", rows(5000*block, 5000*(block+1))); err != nil {
			t.Fatalf("block %d: %v", block, err)
		}
	}
	var bad *wire.Error
	if _, err := d.Decode("", rows(0, 200_000)); !errors.As(err, &bad) || !bad.Memory || !strings.Contains(bad.Reason, "the texts of the block take more than 8388608 bytes") {
		t.Errorf("texts of 40 MB: %v", err)
	}
	if b, err := d.Decode("", rows(0, 10)); err != nil || b.Rows() != 10 {
		t.Errorf("behind them: %v", err)
	}
}

// The canonical text of a schema is a schema, and the same one.
func TestTextIsTheSchema(t *testing.T) {
	s, err := Parse([]byte("features:\n  b: {kind: hash, bits: 3, signed: true}\n  a: {kind: number, missing: 0}\n  c: {kind: category, values: [1, true, x]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse([]byte(s.String()))
	if err != nil || again.String() != s.String() || !slices.Equal(again.Columns(), s.Columns()) {
		t.Errorf("%v: %s is not %s", err, again.String(), s.String())
	}
}

// log1p is that of package math, which is plain Go on amd64 and fuses nothing there.
func TestLog1p(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("elsewhere a compiler may fuse the products of package math")
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 1_000_000 {
		x := math.Ldexp(r.Float64()*2-1, r.IntN(130)-70)
		if x <= -1 {
			x = -x
		}
		if got, want := log1p(x), math.Log1p(x); got != want {
			t.Fatalf("log1p(%v) is %v, want %v", x, got, want)
		}
	}
}

// A hash is that of FeatureHasher(n_features=64, input_type="string") of scikit-learn 1.9.1, whose
// columns and signs for these 10,000 texts have this SHA-256.
func TestHashIsThatOfFeatureHasher(t *testing.T) {
	h := sha256.New()
	for i := range 10_000 {
		text := []rune(fmt.Sprintf("text %d %d ü%d", i, i*i%977, i%13))
		column, sign := hashed(string(text[:min(len(text), i%23+1)]), 64)
		fmt.Fprintf(h, "%d %d %d\n", i, column, sign)
	}
	const want = "752177a169f3399d001d78b8736b55d5b2b9faa9d79bde8cff7381b0eb2d17b6"
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		t.Errorf("the hashes have the digest %s, want %s", got, want)
	}
}

// The same rows are the same block in every format: texts, numbers, booleans and missing values.
func TestFormats(t *testing.T) {
	s, err := Parse([]byte(`{
		c: {kind: category, values: [red, 1, true], other: true, missing: own},
		b: {kind: bool, missing: indicator},
		x: {kind: number, missing: mean, log1p: true},
		t: {kind: hash, bits: 3, words: true, missing: zero},
		d: {kind: time, parts: [weekday, month]},
	}`))
	if err != nil {
		t.Fatal(err)
	}
	digest := func(name string, d *wire.Decoder, contentType string, payload []byte) string {
		t.Helper()
		b, err := d.Decode(contentType, payload)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		sums, err := new(incremental.Summariser).Summarise(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		sum := sums.Digest()
		return fmt.Sprintf("%x", sum)
	}
	open := func() *wire.Decoder {
		d, err := wire.NewDecoder(wire.Options{Schema: s, IgnoreUnknown: true, Label: "y"})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	inJSON := `{"y":"a","c":"red","b":true,"x":2.5,"t":"one two one","d":"2024-01-31","id":1}
{"y":"b","c":1,"b":0,"x":null,"t":"two","d":"2024-06-01T12:00:00Z","id":2}
{"y":"a","c":"1.0","x":0,"t":null,"d":"1999-12-31"}
{"y":"b","c":"blue","b":"False","x":"7","t":"","d":"2024-01-31"}
{"y":"b","c":true,"b":"1","x":1e2,"t":"NA","d":"2024-01-31"}
{"y":"a","c":null,"b":true,"x":3,"t":"3","d":"2024-01-31"}`
	inCSV := "id,d,t,x,b,c,y\n1,2024-01-31,one two one,2.5,true,red,a\n2,2024-06-01T12:00:00Z,two,,0,1,b\n,1999-12-31,,0,,1.0,a\n,2024-01-31,,7,False,blue,b\n,2024-01-31,NA,1e2,1,True,b\n,2024-01-31,3,3,TRUE,NA,a\n"
	want := digest("JSON", open(), "application/json", []byte(inJSON))
	if got := digest("CSV", open(), "text/csv", []byte(inCSV)); got != want {
		t.Errorf("CSV has digest %s, JSON %s", got, want)
	}
	for _, encoded := range []bool{false, true} {
		if got := digest("Arrow", open(), wire.Arrow.ContentType(), arrowRows(t, encoded)); got != want {
			t.Errorf("Arrow, with dictionaries %v, has digest %s, JSON %s", encoded, got, want)
		}
	}
}

// arrowRows are the rows of TestFormats as an Arrow stream. Texts are in dictionaries, or plain.
func arrowRows(t *testing.T, encoded bool) []byte {
	t.Helper()
	typ := arrow.DataType(arrow.BinaryTypes.String)
	if encoded {
		typ = &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	}
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "c", Type: typ, Nullable: true}, {Name: "b", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		{Name: "x", Type: arrow.PrimitiveTypes.Float32, Nullable: true}, {Name: "t", Type: typ, Nullable: true},
		{Name: "d", Type: arrow.FixedWidthTypes.Timestamp_s}, {Name: "y", Type: arrow.BinaryTypes.String},
	}, nil)
	batch := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	texts := func(column int, values ...string) {
		for _, v := range values {
			var err error
			switch to := batch.Field(column).(type) {
			case *array.StringBuilder:
				to.Append(v)
			case *array.BinaryDictionaryBuilder:
				err = to.AppendString(v)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	texts(0, "red", "1", "1.0", "blue", "true", "NA")
	batch.Field(1).(*array.BooleanBuilder).AppendValues([]bool{true, false, false, false, true, true}, []bool{true, true, false, true, true, true})
	batch.Field(2).(*array.Float32Builder).AppendValues([]float32{2.5, 0, 0, 7, 100, 3}, []bool{true, false, true, true, true, true})
	texts(3, "one two one", "two", "", "", "NA", "3")
	times := batch.Field(4).(*array.TimestampBuilder)
	for _, at := range []string{"2024-01-31T00:00:00Z", "2024-06-01T12:00:00Z", "1999-12-31T00:00:00Z", "2024-01-31T00:00:00Z", "2024-01-31T00:00:00Z", "2024-01-31T00:00:00Z"} {
		v, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		times.Append(arrow.Timestamp(v.Unix()))
	}
	texts(5, "a", "b", "a", "b", "b", "a")
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(schema))
	if err := errors.Join(w.Write(batch.NewRecordBatch()), w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// No text makes Parse panic, and what it takes is a schema again, with as many columns as it makes.
func FuzzParse(f *testing.F) {
	f.Add("features: {x: number}", `{"label":1,"x":2}`)
	f.Add("{c: {kind: category, values: [1, a], other: true}, d: {kind: interaction, of: [c, e]}, e: bool}", `[{"label":1,"c":"a","e":1}]`)
	f.Add("{h: {kind: hash, bits: 2, words: true, from: a.b}, t: time, l: {kind: list, length: 2}}", `{"label":1,"a":{"b":"x y"},"t":"2024-01-01","l":[1,2]}`)
	f.Add("{c: {kind: category, values: {most: 2}, missing: own}}", `{"label":1,"c":"x"}`)
	f.Add("{b: {kind: buckets, from: x, bounds: [1, 2], missing: own}}", `{"label":1,"x":null}`)
	f.Fuzz(func(t *testing.T, text, payload string) {
		s, err := Parse([]byte(text))
		if err != nil {
			return
		}
		again, err := Parse([]byte(s.String()))
		if err != nil || again.Digest() != s.Digest() {
			t.Fatalf("%s is no schema again: %v", s.String(), err)
		}
		d, err := wire.NewDecoder(wire.Options{Format: wire.JSON, Schema: s, IgnoreUnknown: true, Limits: wire.Limits{Bytes: 1 << 16}})
		if err != nil {
			return
		}
		b, err := d.Decode("", []byte(payload))
		if err != nil {
			return
		}
		for j, c := range b.Columns {
			if c.Len() != b.Rows() {
				t.Errorf("column %q has %d rows of %d", b.Features[j], c.Len(), b.Rows())
			}
		}
	})
}
