package wire_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/wire"
)

// labelled is a record batch of a feature and labels of the type, given as JSON.
func labelled(t *testing.T, typ arrow.DataType, labels ...string) arrow.RecordBatch {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "label", Type: typ, Nullable: true}, {Name: "u", Type: arrow.PrimitiveTypes.Float64}}, nil)
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for i, label := range labels {
		if err := builder.UnmarshalJSON(fmt.Appendf(nil, `{"label":%s,"u":%d}`, label, i)); err != nil {
			t.Fatal(err)
		}
	}
	return builder.NewRecordBatch()
}

// labelsOf lists the labels of a block's rows.
func labelsOf(b *incremental.Block) (labels []string) {
	for _, code := range b.Codes {
		labels = append(labels, b.Classes[code])
	}
	return labels
}

// absentCases are payloads whose rows 1 and 3 have no label, if text stands for none.
func absentCases(t *testing.T) []absentCase {
	dictionary := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	texts, dates := []string{"a", "", "b", "", "a"}, []string{"2024-01-31", "", "2024-02-01", "", "2024-01-31"}
	numbers, booleans := []string{"1", "", "2", "", "1"}, []string{"true", "", "false", "", "true"}
	arrowOf := func(typ arrow.DataType, labels ...string) []byte { return stream(t, labelled(t, typ, labels...)) }
	return []absentCase{
		{"json", wire.JSON, []byte(`[{"label":"a","u":0},{"label":null,"u":1},{"u":2,"label":"b"},{"u":3},{"label":"a","u":4}]`), "", texts},
		{"json, empty", wire.JSON, []byte(`[{"label":"a","u":0},{"label":"","u":1},{"u":2,"label":"b"},{"label":"?","u":3},{"label":"a","u":4}]`), "?", texts},
		{"json, numbers", wire.JSON, []byte(`[{"label":1,"u":0},{"label":-1,"u":1},{"u":2,"label":2},{"label":"-1.0","u":3},{"label":"1","u":4}]`), "-1", numbers},
		{"csv", wire.CSV, []byte("label,u\na,0\n,1\nb,2\n\"\",3\na,4\n"), "", texts},
		{"csv, no header", wire.CSV, []byte("1,0\n ,1\n2,2\nunknown,3\n1,4\n"), "unknown", numbers},
		{"csv, last", wire.CSV, []byte("u;label\n0;a\n1;\n2;b\n3;?\n4;a\n"), "?", texts},
		{"csv, nan", wire.CSV, []byte("label,u\n1,0\nnan,1\n2,2\nNaN,3\n1,4\n"), "NaN", numbers},
		{"libsvm", wire.LIBSVM, []byte("a 1:0\n? 1:1\nb 1:2\n? 1:3\na 1:4\n"), "?", texts},
		{"libsvm, numbers", wire.LIBSVM, []byte("1 1:0\n0 1:1\n2 1:2\n-0 1:3\n+1 1:4\n"), "0.0", numbers},
		{"arrow, texts", wire.Arrow, arrowOf(arrow.BinaryTypes.String, `"a"`, `null`, `"b"`, `""`, `"a"`), "", texts},
		{"arrow, views", wire.Arrow, arrowOf(arrow.BinaryTypes.StringView, `"a"`, `null`, `"b"`, `"?"`, `"a"`), "?", texts},
		{"arrow, integers", wire.Arrow, arrowOf(arrow.PrimitiveTypes.Int64, `1`, `null`, `2`, `-1`, `1`), "-1", numbers},
		{"arrow, floats", wire.Arrow, arrowOf(arrow.PrimitiveTypes.Float64, `1`, `null`, `2`, `"NaN"`, `1`), "nan", numbers},
		{"arrow, booleans", wire.Arrow, arrowOf(arrow.FixedWidthTypes.Boolean, `true`, `null`, `false`, `null`, `true`), "", booleans},
		{"arrow, dates", wire.Arrow, arrowOf(arrow.FixedWidthTypes.Date32, `"2024-01-31"`, `null`, `"2024-02-01"`, `null`, `"2024-01-31"`), "", dates},
		{"arrow, decimals", wire.Arrow, arrowOf(&arrow.Decimal128Type{Precision: 5, Scale: 1}, `"1.0"`, `null`, `"2.0"`, `"-1.0"`, `"1.0"`), "-1", numbers},
		{"arrow, dictionary", wire.Arrow, arrowOf(dictionary, `"a"`, `null`, `"b"`, `"?"`, `"a"`), "?", texts},
	}
}

type absentCase struct {
	name    string
	format  wire.Format
	payload []byte
	text    string
	want    []string
}

// A row has no label by the same rule in every format. It is refused with advice, or kept
// as a row of the class that no label names.
func TestRowsWithoutLabels(t *testing.T) {
	for _, c := range absentCases(t) {
		opts := wire.Options{UnlabelledText: c.text}
		if c.name == "csv, last" {
			opts.Label = "label"
		}
		_, err := newDecoder(t, opts).Decode(c.format.ContentType(), c.payload)
		if err == nil || !strings.Contains(err.Error(), "row 1: ") && c.format != wire.LIBSVM ||
			!strings.HasSuffix(err.Error(), ": send one, or keep rows without labels (unlabelled: keep)") {
			t.Errorf("%s: %v, want row 1 refused with advice", c.name, err)
		}
		opts.KeepUnlabelled = true
		d := newDecoder(t, opts)
		for range 2 { // a decoder is used again
			b, err := d.Decode(c.format.ContentType(), c.payload)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			if got := labelsOf(b); !slices.Equal(got, c.want) {
				t.Errorf("%s: labels %q, want %q", c.name, got, c.want)
			}
			for i := range b.Codes {
				if got := b.Columns[0].At(i); got != float64(i) {
					t.Errorf("%s: row %d has %v", c.name, i, got)
				}
			}
		}
		// Without the text its label names a class, or is refused.
		if c.text != "" {
			b, err := newDecoder(t, wire.Options{KeepUnlabelled: true}).Decode(c.format.ContentType(), c.payload)
			switch isNaN := strings.EqualFold(c.text, "nan"); {
			case isNaN && (err == nil || !strings.Contains(err.Error(), "the label is ")):
				t.Errorf("%s: %v, want NaN refused", c.name, err)
			case !isNaN && (err != nil || labelsOf(b)[3] == incremental.Unlabelled):
				t.Errorf("%s: %v, want the label of row 3 kept", c.name, err)
			}
		}
	}
}

// All rows may be without a label: then null is the type of a column, too.
func TestNoLabelsAtAll(t *testing.T) {
	nulls := []string{"null", "null", "null"}
	dictionary := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	for name, payload := range map[string][]byte{
		"null": stream(t, labelled(t, arrow.Null, nulls...)), "texts": stream(t, labelled(t, arrow.BinaryTypes.String, nulls...)),
		"floats": stream(t, labelled(t, arrow.PrimitiveTypes.Float64, nulls...)), "dictionary": stream(t, labelled(t, dictionary, nulls...)),
	} {
		d := newDecoder(t, wire.Options{KeepUnlabelled: true})
		b, err := d.Decode(arrowType, payload)
		if err != nil || !slices.Equal(labelsOf(b), []string{"", "", ""}) || len(b.Classes) != 1 {
			t.Errorf("%s: %v, %v", name, b, err)
		}
		if table, err := d.DecodeUnlabelled(arrowType, payload); err != nil || table.Rows != 3 {
			t.Errorf("%s: %d rows, %v", name, table.Rows, err)
		}
		if _, err := newDecoder(t, wire.Options{}).Decode(arrowType, payload); err == nil || !strings.Contains(err.Error(), "row 0: column \"label\": the label is null: send one") {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
	// A column that is missing as a whole more likely has another name.
	for contentType, payload := range map[string]string{"text/csv": "lable,u\na,1\n"} {
		if _, err := newDecoder(t, wire.Options{KeepUnlabelled: true}).Decode(contentType, []byte(payload)); err == nil {
			t.Errorf("%s: a payload without a label column is taken", contentType)
		}
	}
}

// Rows without a label count for no limit of classes, and nothing that a label can say
// makes a row one of them.
func TestUnlabelledIsNoClass(t *testing.T) {
	opts := wire.Options{KeepUnlabelled: true, Limits: wire.Limits{Classes: 2}}
	for text, ok := range map[string]bool{"a,1\n,2\nb,3\n": true, ",1\na,2\nb,3\n,4\n": true, "a,1\nb,2\n,3\n": true, "a,1\n,2\nb,3\nc,4\n": false, ",1\na,2\nb,3\nc,4\n": false} {
		if _, err := newDecoder(t, opts).Decode("text/csv", []byte("label,u\n"+text)); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, label := range []string{`" "`, `"\u0000"`, `"null"`, `"NULL"`, `"None"`, `"NA"`, `"unlabelled"`, `"Unlabelled"`, `"\ufeff"`, `0`, `false`} {
		b := decode(t, opts, "application/json", []byte(`{"label":`+label+`,"u":1}`))
		if b.Classes[0] == incremental.Unlabelled {
			t.Errorf("label %s is none", label)
		}
	}
	for _, bad := range []string{"\xff", "inf", "1e999", strings.Repeat("x", 200)} {
		if _, err := wire.NewDecoder(wire.Options{UnlabelledText: bad}); err == nil {
			t.Errorf("the text for no label may be %q", bad)
		}
	}
}

// Encoded rows without a label are read as such rows.
func TestUnlabelledComesBack(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 3))
	for _, classes := range [][]string{{"1", "-1", ""}, {"spam", "", "ham"}, {""}} {
		for _, format := range []wire.Format{wire.Arrow, wire.JSON, wire.CSV} {
			want := randomBlock(r, 60, 3, classes, []gram.Kind{gram.Float64})
			payload, err := wire.Encode(nil, format, want)
			if err != nil {
				t.Fatal(err)
			}
			got := decode(t, wire.Options{KeepUnlabelled: true, Header: wire.HeaderAbsent}, format.ContentType(), payload)
			if !slices.Equal(labelsOf(got), labelsOf(want)) {
				t.Errorf("%v, classes %q: %q, want %q", format, classes, labelsOf(got), labelsOf(want))
			}
		}
	}
	b := &incremental.Block{Classes: []string{""}, Codes: []int32{0}, Columns: []gram.Column{gram.ColumnOf([]float64{1})}}
	if _, err := wire.Encode(nil, wire.LIBSVM, b); err == nil || !strings.Contains(err.Error(), "no place for rows without a label") {
		t.Errorf("LIBSVM: %v", err)
	}
}

// Files have the same rule.
func TestFilesWithoutLabels(t *testing.T) {
	for _, c := range absentCases(t) {
		path := writeFile(t, "rows."+c.format.String(), c.payload)
		got, err := readAll(path, wire.Options{KeepUnlabelled: true, UnlabelledText: c.text}, 2)
		if err != nil || !slices.Equal(labelsOf(got), c.want) {
			t.Errorf("%s: %v, %v, want %q", c.name, got, err, c.want)
		}
	}
	// age is an integer column of pandas with gaps.
	var first string
	for _, name := range strings.Fields("frame.parquet frame_v1.parquet frame.arrows frame.feather frame.csv frame.tsv frame.json frame.ndjson") {
		b, err := readAll("../../testdata/wire/"+name, wire.Options{Label: "age", KeepUnlabelled: true, Ignore: []string{"id", "city", "label"}}, 5)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		labels := strings.Join(labelsOf(b), ",")
		if first == "" {
			first = labels
		}
		if labels != first || b.Rows() != 24 || b.Labelled().Rows() == 24 || b.Labelled().Rows() == 0 {
			t.Errorf("%s: labels %s, want %s", name, labels, first)
		}
	}
}
