package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/twmb/avro"

	"streamd/incremental"
	"streamd/ingest/registry"
	"streamd/ingest/schema"
	"streamd/ingest/wire"
)

const nestedAvro = `{"type":"array","items":{"type":"record","name":"Row","fields":[
	{"name":"meta","type":{"type":"record","name":"Meta","fields":[{"name":"label","type":"string"}]}},
	{"name":"address","type":["null",{"type":"record","name":"Address","fields":[
		{"name":"country","type":"string"},
		{"name":"geo","type":["null",{"type":"record","name":"Geo","fields":[{"name":"lat","type":"float"},{"name":"lon","type":["null","double"]}]}]},
		{"name":"since","type":{"type":"string"}},{"name":"open","type":"double"},{"name":"own","type":"boolean"}]}]},
	{"name":"x","type":"double"},
	{"name":"v","type":{"type":"record","name":"V","fields":[{"name":"emb","type":{"type":"array","items":"float"}}]}}]}}`

// nestedRows are the rows of testdata/wire/nested.*: flat as in the file, and with objects in
// objects, as text and as the encoder of Avro takes them.
func nestedRows(t *testing.T) (flat, text []byte, rows []any) {
	t.Helper()
	flat, err := os.ReadFile("../../testdata/wire/nested.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(flat) {
		var of map[string]any
		if err := json.Unmarshal(line, &of); err != nil {
			t.Fatal(err)
		}
		row := map[string]any{"meta": map[string]any{"label": of["meta.label"]}, "x": of["x"], "address": nil, "v": map[string]any{"emb": of["v.emb"]}}
		if of["address.country"] != nil {
			address := map[string]any{"country": of["address.country"], "geo": nil, "since": of["address.since"], "open": of["address.open"], "own": of["address.own"]}
			if of["address.geo.lat"] != nil {
				address["geo"] = map[string]any{"lat": of["address.geo.lat"], "lon": of["address.geo.lon"]}
			}
			row["address"] = address
		}
		asObject := maps.Clone(row)
		asObject["meta.label"] = of["meta.label"] // paths lead to features alone
		delete(asObject, "meta")
		b, err := json.Marshal(asObject)
		if err != nil {
			t.Fatal(err)
		}
		text, rows = append(append(text, b...), '\n'), append(rows, row)
	}
	if len(rows) != 200 {
		t.Fatalf("%d rows", len(rows))
	}
	return flat, text, rows
}

// Fields of structs have the names of their path in all formats, and what is in a struct that is
// null is missing, whatever lies there. The files are written by another implementation.
func TestNested(t *testing.T) {
	flat, objects, rows := nestedRows(t)
	payload, err := avro.MustParse(nestedAvro).Encode(rows)
	if err != nil {
		t.Fatal(err)
	}
	stream := fixture(t, "nested")
	made, err := schema.Parse([]byte(`{country: {kind: category, from: address.country, values: [at, ch], other: true, missing: own},
		north: {kind: number, from: address.geo.lat, missing: mean}, east: {kind: number, from: address.geo.lon, missing: indicator},
		hour: {kind: time, from: address.since, parts: [hour], missing: zero}, own: {kind: bool, from: address.own, missing: zero}, x: number,
		emb: {kind: list, from: v.emb, length: 2}, address.open: ignore}`))
	if err != nil {
		t.Fatal(err)
	}
	of := schemas{1: {ID: 1, Kind: registry.Avro, Text: nestedAvro}}
	for name, opts := range map[string]wire.Options{
		"missing is zero":   {Missing: wire.Missing{Default: wire.MissingZero}, Ignore: []string{"*.country", "address.tags"}},
		"marks":             {Missing: wire.Missing{Default: wire.MissingIndicator}, Ignore: []string{"address.country", "*.tags"}},
		"named":             {Missing: wire.Missing{Default: wire.MissingMean}, Features: []string{"v.emb[0]", "address.geo.lon", "x", "address.own"}, IgnoreUnknown: true},
		"a schema":          {Schema: made, IgnoreUnknown: true},
		"a group is not":    {Missing: wire.Missing{Default: wire.MissingZero}, Ignore: []string{"address"}},
		"nor one in it":     {Missing: wire.Missing{Default: wire.MissingZero}, Ignore: []string{"address.geo", "address.country", "address.tags"}},
		"time is the label": {Label: "address.open", KeepUnlabelled: true, Missing: wire.Missing{Default: wire.MissingZero}, Ignore: []string{"meta", "address.country", "address.tags"}},
	} {
		t.Run(name, func(t *testing.T) {
			if opts.Label == "" {
				opts.Label = "meta.label"
			}
			flatly := opts
			if slices.Contains(opts.Ignore, "address") || slices.Contains(opts.Ignore, "address.geo") || slices.Contains(opts.Ignore, "meta") {
				flatly.Ignore = nil
				for _, pattern := range opts.Ignore { // flat rows have no groups
					flatly.Ignore = append(flatly.Ignore, pattern, pattern+".*")
				}
			}
			want := decode(t, flatly, wire.JSON.ContentType(), flat)
			opts.Schemas = of
			check := func(format string, got *incremental.Block, err error) {
				t.Helper()
				if err != nil {
					t.Fatalf("%s: %v", format, err)
				}
				requireSame(t, got, want)
				if fmt.Sprint(got.Features) != fmt.Sprint(want.Features) {
					t.Fatalf("%s: features %q, want %q", format, got.Features, want.Features)
				}
			}
			d := newDecoder(t, opts)
			for shift := range 3 {
				b, err := d.Decode(arrowType, append(make([]byte, shift, shift+len(stream)), stream...)[shift:])
				check("Arrow", b, err)
			}
			b, err := d.Decode("", frame(1, payload))
			check("Avro", b, err)
			for _, rowsPerBlock := range []int{1000, 60} {
				b, err = readAll("../../testdata/wire/nested.parquet", opts, rowsPerBlock)
				check("Parquet", b, err)
				b, err = readAll("../../testdata/wire/nested.arrow", opts, rowsPerBlock)
				check("a file of Arrow", b, err)
			}
			if opts.Schema != nil {
				b, err = d.Decode(wire.JSON.ContentType(), objects)
				check("JSON", b, err)
			}
		})
	}
}

// Random structs in structs, with and without nulls and with hidden values in those that are null,
// are the rows that JSON has.
func TestNestedArrow(t *testing.T) {
	rng := rand.New(rand.NewPCG(92, 1))
	d, plain := newDecoder(t, wire.Options{Missing: wire.Missing{Default: wire.MissingZero}}), newDecoder(t, wire.Options{Missing: wire.Missing{Default: wire.MissingZero}})
	for trial := range 200 {
		rows, gaps := 1+rng.IntN(70), trial%2 == 0
		text := make([]map[string]any, rows)
		for i := range text {
			text[i] = map[string]any{"label": string(rune('a' + rng.IntN(2)))}
		}
		hidden := make([]bool, rows)
		var build func(path string, depth int, hidden []bool) (arrow.Field, arrow.Array)
		leaf := func(path string, hidden []bool) arrow.Array {
			b := array.NewInt16Builder(memory.DefaultAllocator)
			for i := range rows {
				x, isNull := int16(rng.IntN(1000)-500), gaps && rng.IntN(4) == 0
				if text[i][path] = any(x); isNull || hidden[i] {
					text[i][path] = nil
				}
				if isNull {
					b.AppendNull()
				} else {
					b.Append(x)
				}
			}
			return b.NewArray()
		}
		names := 0
		build = func(path string, depth int, hidden []bool) (arrow.Field, arrow.Array) {
			names++
			name := fmt.Sprint("f", names)
			if path != "" {
				path += "."
			}
			path += name
			if depth == 3 || rng.IntN(2) == 0 {
				return arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int16, Nullable: true}, leaf(path, hidden)
			}
			inner, nulls, bits := slices.Clone(hidden), 0, make([]byte, (rows+7)/8)
			for i := range rows {
				if gaps && rng.IntN(4) == 0 {
					inner[i] = true
					nulls++
				} else {
					bits[i/8] |= 1 << (i % 8)
				}
			}
			var fields []arrow.Field
			var arrays []arrow.Array
			for range 1 + rng.IntN(3) {
				field, values := build(path, depth+1, inner)
				fields, arrays = append(fields, field), append(arrays, values)
			}
			s, err := array.NewStructArrayWithFieldsAndNulls(arrays, fields, memory.NewBufferBytes(bits), nulls, 0)
			if err != nil {
				t.Fatal(err)
			}
			return arrow.Field{Name: name, Type: s.DataType(), Nullable: true}, s
		}
		labels := array.NewStringBuilder(memory.DefaultAllocator)
		for i := range text {
			labels.Append(text[i]["label"].(string))
		}
		fields, arrays := []arrow.Field{{Name: "label", Type: arrow.BinaryTypes.String}}, []arrow.Array{labels.NewArray()}
		for range 1 + rng.IntN(4) {
			field, values := build("", 0, hidden)
			fields, arrays = append(fields, field), append(arrays, values)
		}
		var lines []byte
		for _, row := range text {
			b, err := json.Marshal(row)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(append(lines, b...), '\n')
		}
		want, err := plain.Decode(wire.JSON.ContentType(), lines)
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Decode(arrowType, stream(t, array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, int64(rows))))
		if err != nil {
			t.Fatalf("trial %d: %v", trial, err)
		}
		requireSame(t, got, want)
		if fmt.Sprint(got.Features) != fmt.Sprint(want.Features) {
			t.Fatalf("trial %d: features %q, want %q", trial, got.Features, want.Features)
		}
	}
}

// What is in a struct is refused under the name of its path, and structs nest so deep as records of
// Avro do.
func TestNestedRefused(t *testing.T) {
	structOf := func(depth int, of arrow.DataType) arrow.DataType {
		for range depth {
			of = arrow.StructOf(arrow.Field{Name: "a", Type: of, Nullable: true})
		}
		return of
	}
	wrapped := func(depth int, value string) string {
		return strings.Repeat(`{"a":`, depth) + value + strings.Repeat("}", depth)
	}
	text := arrow.BinaryTypes.String
	var wide []arrow.Field
	for i := range 100 {
		wide = append(wide, arrow.Field{Name: fmt.Sprint("f", i), Type: arrow.PrimitiveTypes.Int8, Nullable: true})
	}
	for _, c := range []struct {
		name   string
		opts   wire.Options
		typ    arrow.DataType
		value  string
		row    int
		column string
		reason string
	}{
		{"a text", wire.Options{}, structOf(1, text), `{"a":"red"}`, 0, "s.a", `"red" is not a number`},
		{"a null", wire.Options{}, structOf(1, arrow.PrimitiveTypes.Int8), `{"a":null}`, 0, "s.a", "null"},
		{"a null struct", wire.Options{}, structOf(2, arrow.PrimitiveTypes.Int8), `null`, 0, "s.a.a", "null"},
		{"a null struct of lists", wire.Options{Missing: wire.Missing{Default: wire.MissingZero}}, structOf(1, arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int8)), `null`, 0, "s.a", "null"},
		{"a struct of nothing", wire.Options{}, arrow.StructOf(), `{}`, -1, "s", "type struct is not supported"},
		{"a map", wire.Options{}, structOf(1, arrow.MapOf(text, text)), `{"a":[]}`, -1, "s.a", "type map is not supported"},
		{"the label", wire.Options{Label: "s"}, structOf(1, text), `{"a":"red"}`, -1, "s", "labels of type struct are not supported"},
		{"deep", wire.Options{}, structOf(40, text), wrapped(40, `"1"`), -1, "s" + strings.Repeat(".a", 32), "more than 32 deep"},
		{"a null label", wire.Options{Label: "s.a"}, structOf(1, text), `null`, 0, "s.a", "null"},
		{"unknown", wire.Options{Features: []string{"x"}}, structOf(1, text), `{"a":"1"}`, -1, "s.a", "the feature is unknown"},
		{"wide", wire.Options{Limits: wire.Limits{Features: 90}}, arrow.StructOf(wide...), `{}`, -1, "", "more than 92 fields"},
	} {
		labels, _, err := array.FromJSON(memory.DefaultAllocator, text, strings.NewReader(`["a"]`))
		if err != nil {
			t.Fatal(err)
		}
		x, _, err := array.FromJSON(memory.DefaultAllocator, arrow.PrimitiveTypes.Int8, strings.NewReader(`[1]`))
		if err != nil {
			t.Fatal(err)
		}
		values, _, err := array.FromJSON(memory.DefaultAllocator, c.typ, strings.NewReader("["+c.value+"]"))
		if err != nil {
			t.Fatal(err)
		}
		fields := []arrow.Field{{Name: "label", Type: text}, {Name: "x", Type: arrow.PrimitiveTypes.Int8}, {Name: "s", Type: c.typ, Nullable: true}}
		batch := array.NewRecordBatch(arrow.NewSchema(fields, nil), []arrow.Array{labels, x, values}, 1)
		if c.opts.Label != "" {
			c.opts.Ignore = []string{"label"}
		}
		_, err = newDecoder(t, c.opts).Decode(arrowType, stream(t, batch))
		var e *wire.Error
		if !errors.As(err, &e) || e.Row != c.row || e.Column != c.column || !strings.Contains(e.Reason, c.reason) {
			t.Errorf("%s: error %v, want row %d, column %s: …%s…", c.name, err, c.row, c.column, c.reason)
		}
	}
}
