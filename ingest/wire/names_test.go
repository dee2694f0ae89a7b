package wire_test

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"streamd/ingest/wire"
)

// TestNamesThatLookAlike: names that nobody can tell apart are refused where they are two, and are
// named where one is looked for and the other is there.
func TestNamesThatLookAlike(t *testing.T) {
	const composed, decomposed = "gr\u00f6\u00dfe", "gro\u0308\u00dfe"
	fixed := wire.Options{Features: []string{composed, "v"}}
	loose := wire.Options{Features: []string{composed, "v"}, IgnoreUnknown: true}
	type payload struct{ contentType, text string }
	arrowOf := func(names ...string) string {
		var fields []arrow.Field
		var columns []arrow.Array
		b := array.NewFloat64Builder(memory.DefaultAllocator)
		b.Append(1)
		column := b.NewFloat64Array()
		for _, name := range names {
			fields, columns = append(fields, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Float64}), append(columns, column)
		}
		return string(stream(t, array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 1)))
	}
	of := func(names ...string) []payload {
		json := "{"
		for i, name := range names {
			if i > 0 {
				json += ","
			}
			json += `"` + name + `":1`
		}
		return []payload{{"application/json", json + "}"}, {"text/csv; header=present", strings.Join(names, ",") + "\n1" + strings.Repeat(",1", len(names)-1) + "\n"}, {arrowType, arrowOf(names...)}}
	}
	for _, c := range []struct {
		name     string
		payloads []payload
		opts     wire.Options
		reason   string
	}{
		{"two of them", of("label", composed, decomposed), wire.Options{}, `two names look alike, "gr\u00f6\u00dfe" and "gro\u0308\u00dfe"`},
		{"another form", of("label", decomposed, "v"), fixed, `"gro\u0308\u00dfe", which looks alike`[1:]},
		{"another form of an ignored one", of("label", decomposed, "v"), loose, `there is "gro\u0308\u00dfe", which looks alike, but is not "gr\u00f6\u00dfe"`},
		{"an invisible sign", of("label\u200b", "u"), wire.Options{}, `there is "label\u200b", which looks alike`},
		{"another case", of("Label", "u"), wire.Options{}, `there is "Label", which looks alike`},
		{"a byte order mark", of("label", "\ufeffv", composed), loose, `there is "\ufeffv"`},
	} {
		for _, p := range c.payloads {
			_, err := newDecoder(t, c.opts).Decode(p.contentType, []byte(p.text))
			if c.name == "another form" {
				if err == nil || !strings.Contains(err.Error(), "looks alike") {
					t.Errorf("%s, %s: %v", c.name, p.contentType, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("%s, %s: %v, want …%s…", c.name, p.contentType, err, c.reason)
			}
		}
	}
	// Each form alone is a name.
	for _, p := range of("label", decomposed, "v") {
		if b := decode(t, wire.Options{}, p.contentType, []byte(p.text)); len(b.Features) != 2 {
			t.Errorf("features %q", b.Features)
		}
	}
}

// TestIgnoredIsNotJudged: in texts, too, the value of an ignored column may be anything.
func TestIgnoredIsNotJudged(t *testing.T) {
	junk := []string{`"\ud83d"`, `"\udc00\ud83d"`, "\"\xff\"", `NaN`, `-Infinity`, `Infinity`, `01`, `+1`, `.5`, `tru`, `"\x"`, "\"a\tb\"", `"\u12"`, `[1, NaN, "\ud83d", {"a": nan, "\ud800": [[]]}]`, `{}`, strings.Repeat("[", 500) + strings.Repeat("]", 500)}
	for _, value := range junk {
		for _, opts := range []wire.Options{{Ignore: []string{"q"}}, {Features: []string{"x"}, IgnoreUnknown: true}} {
			for _, text := range []string{`[{"label":"a","q":` + value + `,"x":1},{"label":"b","x":2,"q":` + value + `}]`, `{"label":"a","x":1,"q":` + value + "}\r{\"q\": " + value + `,"label":"b","x":2}`} {
				b := decode(t, opts, "application/json", []byte("\xef\xbb\xbf"+text))
				if b.Rows() != 2 || b.Columns[0].At(1) != 2 {
					t.Errorf("%s: %d rows", value, b.Rows())
				}
				if b, err := readAll(writeFile(t, "rows.json", []byte("\xef\xbb\xbf"+text)), opts, 1); err != nil || b.Rows() != 2 {
					t.Errorf("%s: %v, %v", text, b, err)
				}
			}
		}
		// Nobody asks for labels and weights in a prediction.
		table, err := newDecoder(t, wire.Options{Weight: "w"}).DecodeUnlabelled("application/json", []byte(`{"label":`+value+`,"x":1,"w":`+value+`}`))
		if err != nil || table.Rows != 1 || len(table.Columns) != 1 {
			t.Errorf("%s as a label: %v, %v", value, table, err)
		}
	}
	b := decode(t, wire.Options{Ignore: []string{"x2"}}, "application/x-libsvm", []byte("1 1:5 2:red 3:6\n2 2:1e999 3:7\n"))
	if b.Rows() != 2 || len(b.Columns) != 2 || b.Columns[1].At(1) != 7 {
		t.Errorf("%v", b)
	}
}
