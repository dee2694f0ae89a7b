package wire_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"streamd/incremental"
	"streamd/ingest/wire"
)

// valueKind is a column of values in the ways in which formats write them. An element of
// arrow is a type and the JSON of an array of it.
type valueKind struct {
	name   string
	value  []float64
	label  []string
	csv    [][]string // LIBSVM too
	json   [][]string
	arrow  [][2]string
	arrows []arrow.DataType
}

var valueKinds = []valueKind{
	{
		name: "integers", value: []float64{1, -20, 0}, label: []string{"1", "-20", "0"},
		csv:  [][]string{{"1", "-20", "0"}, {"+1", "-20.0", "0.0"}, {"1e0", "-2e1", "0e5"}, {`"1"`, `"-20"`, `"0"`}},
		json: [][]string{{"1", "-20", "0"}, {"1.0", "-2e1", "0.0"}, {`"1"`, `"-20.00"`, `"+0"`}},
		arrows: []arrow.DataType{arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64,
			arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64},
		arrow: [][2]string{{"decimal", `["1", "-20", "0"]`}, {"text", `["1", "-20", "0.0"]`}},
	},
	{
		name: "decimals", value: []float64{0.1, -12345678901234.567, 0.000001}, label: []string{"0.1", "-12345678901234.566", "1e-06"},
		csv:    [][]string{{"0.1", "-12345678901234.567", "0.000001"}, {"0.10", "-12345678901234567e-3", "1e-6"}},
		json:   [][]string{{"0.1", "-12345678901234.567", "0.000001"}, {`".1"`, `"-12345678901234.5670"`, `"1E-6"`}},
		arrows: []arrow.DataType{arrow.PrimitiveTypes.Float64},
		arrow:  [][2]string{{"decimal", `["0.1", "-12345678901234.567", "0.000001"]`}, {"text", `["0.1", "-12345678901234.567", "0.000001"]`}},
	},
	{
		name: "booleans", value: []float64{1, 0, 1}, label: []string{"true", "false", "true"},
		csv:    [][]string{{"true", "false", "true"}, {"True", "False", "TRUE"}, {`"TRUE"`, `"FALSE"`, `"True"`}},
		json:   [][]string{{"true", "false", "true"}, {`"True"`, `"False"`, `"TRUE"`}},
		arrows: []arrow.DataType{arrow.FixedWidthTypes.Boolean},
		arrow:  [][2]string{{"text", `["True", "False", "TRUE"]`}},
	},
	{
		name: "dates", value: []float64{0, 1706659200, -86400}, label: []string{"1970-01-01", "2024-01-31", "1969-12-31"},
		csv:  [][]string{{"1970-01-01", "2024-01-31", "1969-12-31"}, {"1970-01-01 00:00:00", "2024-01-31T01:00:00+01:00", "1969-12-31T00:00Z"}},
		json: [][]string{{`"1970-01-01"`, `"2024-01-31"`, `"1969-12-31"`}, {`"1970-01-01"`, `"2024-01-31T00:00:00.000"`, `"1969-12-31 00:00"`}},
		arrows: []arrow.DataType{arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Date64, arrow.FixedWidthTypes.Timestamp_s,
			arrow.FixedWidthTypes.Timestamp_ns},
		arrow: [][2]string{{"text", `["1970-01-01", "2024-01-31", "1969-12-31"]`}},
	},
	{
		name: "times", value: []float64{1709210096.789, -0.001, 1e9}, label: []string{"2024-02-29T12:34:56.789Z", "1969-12-31T23:59:59.999Z", "2001-09-09T01:46:40Z"},
		csv:    [][]string{{"2024-02-29 12:34:56.789", "1969-12-31 23:59:59.999000", "2001-09-09 01:46:40+00:00"}},
		json:   [][]string{{`"2024-02-29T12:34:56.789Z"`, `"1969-12-31T23:59:59.999Z"`, `"2001-09-09T03:46:40.000+0200"`}},
		arrows: []arrow.DataType{arrow.FixedWidthTypes.Timestamp_ms, arrow.FixedWidthTypes.Timestamp_us, arrow.FixedWidthTypes.Timestamp_ns, &arrow.TimestampType{Unit: arrow.Microsecond}},
		arrow:  [][2]string{{"text", `["2024-02-29 12:34:56.789", "1969-12-31 23:59:59.999000", "2001-09-09 01:46:40+00:00"]`}},
	},
}

var textTypes = []arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.StringView}

var decimalTypes = []arrow.DataType{&arrow.Decimal64Type{Precision: 18, Scale: 3}, &arrow.Decimal128Type{Precision: 38, Scale: 18},
	&arrow.Decimal256Type{Precision: 76, Scale: 40}}

// arrays are all Arrow arrays of the kind, each also encoded by a dictionary.
func (k *valueKind) arrays(t *testing.T) (all []arrow.Array) {
	t.Helper()
	add := func(dt arrow.DataType, text string) {
		values, _, err := array.FromJSON(memory.DefaultAllocator, dt, strings.NewReader(text))
		if err != nil {
			t.Fatalf("%v of %s: %v", dt, text, err)
		}
		indices := array.NewUint16Builder(memory.DefaultAllocator)
		for i := range values.Len() {
			indices.Append(uint16(i))
		}
		encoded := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint16, ValueType: dt}
		all = append(all, values, array.NewDictionaryArray(encoded, indices.NewArray(), values))
	}
	for _, dt := range k.arrows {
		cells := slices.Clone(k.json[0])
		if stamp, ok := dt.(*arrow.TimestampType); ok {
			for i, label := range k.label {
				if len(label) == len(time.DateOnly) {
					label += "T00:00:00Z"
				}
				if stamp.TimeZone == "" {
					label = strings.TrimSuffix(label, "Z")
				}
				cells[i] = strconv.Quote(label)
			}
		}
		add(dt, "["+strings.Join(cells, ",")+"]")
	}
	for _, a := range k.arrow {
		types := textTypes
		if a[0] == "decimal" {
			types = decimalTypes
		}
		for _, dt := range types {
			if d, ok := dt.(arrow.DecimalType); ok && k.name == "decimals" && d.GetScale() < 6 {
				continue // too coarse
			}
			add(dt, a[1])
		}
	}
	return all
}

// digest is the digest of a state of the block's labels and its first n features alone.
func digest(t *testing.T, b *incremental.Block, n int) [sha256.Size]byte {
	t.Helper()
	var summariser incremental.Summariser
	summary, err := summariser.Summarise(&incremental.Block{Classes: b.Classes, Codes: b.Codes, Columns: b.Columns[:n]})
	if err != nil {
		t.Fatal(err)
	}
	state := incremental.NewState(incremental.DefaultFeatures(n))
	state.Add(summary)
	return state.Digest()
}

// TestValues: the same rows in every format, with the values as features and as labels,
// are the same block.
func TestValues(t *testing.T) {
	for _, kind := range valueKinds {
		t.Run(kind.name, func(t *testing.T) {
			ways := 0
			var first [sha256.Size]byte
			check := func(way, contentType string, payload []byte) {
				t.Helper()
				ways++
				d := newDecoder(t, wire.Options{Weight: map[bool]string{true: "w"}[slices.Min(kind.value) >= 0 && contentType != "application/x-libsvm"]})
				for range 2 {
					b, err := d.Decode(contentType, payload)
					if err != nil {
						t.Errorf("%s: %v", way, err)
						return
					}
					if ways == 1 {
						first = digest(t, b, 1)
					}
					if digest(t, b, 1) != first {
						t.Errorf("%s: another digest", way)
					}
					for i, want := range kind.value {
						if got := b.Columns[0].At(i); math.Float64bits(got) != math.Float64bits(want) {
							t.Errorf("%s: row %d is %v, want %v", way, i, got, want)
						}
						if got := b.Classes[b.Codes[i]]; got != kind.label[i] {
							t.Errorf("%s: row %d has label %q, want %q", way, i, got, kind.label[i])
						}
						if b.Weights != nil && b.Weights[i] != want {
							t.Errorf("%s: row %d has weight %v, want %v", way, i, b.Weights[i], want)
						}
					}
				}
			}
			for _, cells := range kind.csv {
				for _, separator := range []string{",", ";", "\t", "|"} {
					text := strings.Join([]string{"label", "u", "w"}, separator) + "\n"
					for _, cell := range cells {
						text += strings.Join([]string{cell, cell, cell}, separator) + "\n"
					}
					check("csv "+cells[0]+separator, "text/csv", []byte(text))
				}
				if strings.ContainsAny(strings.Join(cells, ""), "\": ") {
					continue
				}
				text := ""
				for _, cell := range cells {
					text += cell + " 1:" + cell + "\n"
				}
				check("libsvm "+cells[0], "application/x-libsvm", []byte(text))
			}
			for _, cells := range kind.json {
				text := ""
				for _, cell := range cells {
					text += fmt.Sprintf(`{"label":%s,"u":%s,"w":%s}`+"\n", cell, cell, cell)
				}
				check("json "+cells[0], "application/json", []byte(text))
			}
			for _, values := range kind.arrays(t) {
				var fields []arrow.Field
				for _, name := range []string{"label", "u", "w"} {
					fields = append(fields, arrow.Field{Name: name, Type: values.DataType()})
				}
				batch := array.NewRecordBatch(arrow.NewSchema(fields, nil), []arrow.Array{values, values, values}, int64(values.Len()))
				check("arrow "+values.DataType().String(), arrowType, stream(t, batch))
			}
			if ways < 10 {
				t.Errorf("%d ways", ways)
			}
		})
	}
}

// TestArrowValuesRefused: errors of converted columns name the row and the column.
func TestArrowValuesRefused(t *testing.T) {
	text, date, days := arrow.BinaryTypes.String, arrow.FixedWidthTypes.Timestamp_s, arrow.FixedWidthTypes.Date32
	encoded := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: text}
	for _, c := range []struct {
		name   string
		dt     arrow.DataType
		json   string
		row    int
		reason string
	}{
		{"text", text, `["1", "red"]`, 1, `"red" is not a number`},
		{"null text", text, `["1", null]`, 1, "null"},
		{"empty text", text, `["", "1"]`, 0, "missing"},
		{"null date", date, `[0, null]`, 1, "null"},
		{"null day", days, `[null, 1]`, 0, "null"},
		{"null decimal", &arrow.Decimal128Type{Precision: 5, Scale: 1}, `[null, "1"]`, 0, "null"},
		{"category", encoded, `["1", "red"]`, 1, `"red" is not a number`},
		{"null category", encoded, `["1", null]`, 1, "null"},
		{"time", arrow.FixedWidthTypes.Time32s, `["12:00:00", "13:00:00"]`, -1, "type time is not supported"},
		{"lists of two lengths", arrow.ListOf(arrow.PrimitiveTypes.Float32), `[[1, 2], [3]]`, 1, "the list has 1 numbers, want 2"},
		{"empty list", arrow.ListOf(arrow.PrimitiveTypes.Int8), `[[], []]`, 0, "the list is empty"},
		{"null list", arrow.ListOf(arrow.PrimitiveTypes.Int8), `[[1], null]`, 1, "null"},
		{"null in a list", arrow.LargeListOf(arrow.PrimitiveTypes.Float64), `[[1, 2], [3, null]]`, 1, "null"},
		{"long list", arrow.ListOf(arrow.PrimitiveTypes.Int8), `[[` + strings.Repeat("1,", 4096) + `1], [1]]`, 1, "want 4097"},
		{"longer list", arrow.FixedSizeListOf(4097, arrow.PrimitiveTypes.Int8), `[[` + strings.Repeat("1,", 4096) + `1], [` + strings.Repeat("1,", 4096) + `1]]`, -1, "lists of up to 4096 numbers"},
		{"list of texts", arrow.ListOf(text), `[["1"], ["2"]]`, -1, "type list of utf8 is not supported"},
		{"list of lists", arrow.ListOf(arrow.ListOf(text)), `[[["1"]], [["2"]]]`, -1, "type list of list is not supported"},
		{"binary", arrow.BinaryTypes.Binary, `["MQ==", "AAAA"]`, 1, `"\x00\x00\x00" is not a number`},
		{"fixed_size_binary", &arrow.FixedSizeBinaryType{ByteWidth: 3}, `["MS41", "AAAA"]`, 1, `"\x00\x00\x00" is not a number`},
	} {
		t.Run(c.name, func(t *testing.T) {
			labels, _, err := array.FromJSON(memory.DefaultAllocator, text, strings.NewReader(`["a", "b"]`))
			if err != nil {
				t.Fatal(err)
			}
			values, _, err := array.FromJSON(memory.DefaultAllocator, c.dt, strings.NewReader(c.json))
			if err != nil {
				t.Fatal(err)
			}
			schema := arrow.NewSchema([]arrow.Field{{Name: "label", Type: text}, {Name: "u", Type: c.dt, Nullable: true}}, nil)
			_, err = newDecoder(t, wire.Options{}).Decode(arrowType, stream(t, array.NewRecordBatch(schema, []arrow.Array{labels, values}, 2)))
			var e *wire.Error
			if !errors.As(err, &e) || e.Row != c.row || e.Column != "u" || !strings.Contains(e.Reason, c.reason) {
				t.Errorf("error %v, want row %d: …%s…", err, c.row, c.reason)
			}
		})
	}
}

// TestConvertedAllocations: decoding columns that are converted costs no memory.
func TestConvertedAllocations(t *testing.T) {
	for _, kind := range valueKinds {
		for _, values := range kind.arrays(t) {
			fields := []arrow.Field{{Name: "label", Type: values.DataType()}, {Name: "u", Type: values.DataType()}}
			payload := stream(t, array.NewRecordBatch(arrow.NewSchema(fields, nil), []arrow.Array{values, values}, int64(values.Len())))
			d := newDecoder(t, wire.Options{})
			if n := testing.AllocsPerRun(20, func() {
				if _, err := d.Decode(arrowType, payload); err != nil {
					t.Fatal(err)
				}
			}); n > 0 && !strings.Contains(values.DataType().String(), "string_view") {
				t.Errorf("%s, %v: %v allocations per block", kind.name, values.DataType(), n)
			}
		}
	}
}

// TestLists: the elements of lists are features with names of their own in every format,
// and a decoder that has met lists of one length reads those of another.
func TestLists(t *testing.T) {
	arrowOf := func(json string) []byte {
		dt := arrow.StructOf(arrow.Field{Name: "label", Type: arrow.BinaryTypes.String}, arrow.Field{Name: "u", Type: arrow.PrimitiveTypes.Int8},
			arrow.Field{Name: "emb", Type: arrow.ListOf(arrow.PrimitiveTypes.Float64)})
		rows, _, err := array.FromJSON(memory.DefaultAllocator, dt, strings.NewReader(json))
		if err != nil {
			t.Fatal(err)
		}
		return stream(t, array.RecordFromStructArray(rows.(*array.Struct), nil))
	}
	three := `[{"label":"a","u":7,"emb":[1,2.5,3]},{"label":"b","u":8,"emb":[4,5,-6]}]`
	two := `[{"label":"a","u":7,"emb":[1,2.5]},{"label":"b","u":8,"emb":[4,5]}]`
	escaped := `[{"label":"a","u":7,"em\u0062":["1","2\u002e5",true]},{"emb" : [ 4 , 5 , -6 ] ,"label":"b","u":8}]`
	arrowDecoder, jsonDecoder := newDecoder(t, wire.Options{}), newDecoder(t, wire.Options{})
	for _, c := range []struct {
		d           *wire.Decoder
		contentType string
		payload     []byte
		features    string
		row1        []float64
	}{
		{arrowDecoder, arrowType, arrowOf(three), "emb[0] emb[1] emb[2] u", []float64{4, 5, -6, 8}},
		{arrowDecoder, arrowType, arrowOf(two), "emb[0] emb[1] u", []float64{4, 5, 8}},
		{arrowDecoder, arrowType, arrowOf(three), "emb[0] emb[1] emb[2] u", []float64{4, 5, -6, 8}},
		{jsonDecoder, "application/json", []byte(three), "emb[0] emb[1] emb[2] u", []float64{4, 5, -6, 8}},
		{jsonDecoder, "application/json", []byte(two), "emb[0] emb[1] u", []float64{4, 5, 8}},
		{jsonDecoder, "application/json", []byte(escaped), "emb[0] emb[1] emb[2] u", []float64{4, 5, -6, 8}},
		{newDecoder(t, wire.Options{}), "text/csv", []byte("label,emb[0],emb[1],u\na,1,2.5,7\nb,4,5,8\n"), "emb[0] emb[1] u", []float64{4, 5, 8}},
		{newDecoder(t, wire.Options{Features: []string{"u", "emb[2]"}, IgnoreUnknown: true}), arrowType, arrowOf(three), "u emb[2]", []float64{8, -6}},
		{newDecoder(t, wire.Options{Features: []string{"u", "emb[2]"}, IgnoreUnknown: true}), "application/json", []byte(three), "u emb[2]", []float64{8, -6}},
		{newDecoder(t, wire.Options{Features: []string{"u"}, IgnoreUnknown: true}), arrowType, arrowOf(three), "u", []float64{8}},
		{newDecoder(t, wire.Options{Features: []string{"u"}, IgnoreUnknown: true}), "application/json", []byte(`[{"label":"a","u":7,"emb":[]},{"label":"b","u":8,"emb":["x",{}]}]`), "u", []float64{8}},
		{newDecoder(t, wire.Options{Ignore: []string{"emb"}}), arrowType, arrowOf(two), "u", []float64{8}},
		{newDecoder(t, wire.Options{Ignore: []string{"emb"}}), "application/json", []byte(two), "u", []float64{8}},
	} {
		for range 2 {
			b, err := c.d.Decode(c.contentType, c.payload)
			if err != nil {
				t.Errorf("%s, want %s: %v", c.contentType, c.features, err)
				break
			}
			if got := strings.Join(b.Features, " "); got != c.features || len(b.Columns) != len(c.row1) {
				t.Errorf("%s: features %s, want %s", c.contentType, got, c.features)
				continue
			}
			for j, want := range c.row1 {
				if got := b.Columns[j].At(1); got != want {
					t.Errorf("%s: %s is %v, want %v", c.contentType, b.Features[j], got, want)
				}
			}
		}
	}
	for text, reason := range map[string]string{
		`{"label":1,"emb":[]}`:                            `column "emb": the list is empty`,
		`{"label":1,"emb":[1,"red"]}`:                     `column "emb[1]": "red" is not a number`,
		`{"label":1,"emb":[1,2`:                           `column "emb": want a comma or the end of the list`,
		`{"label":1,"emb":[1,[2]]}`:                       `column "emb[1]": want a number, but there is an array`,
		`[{"label":1,"emb":[1,2]},{"label":1,"emb":[1]}]`: `column "emb[1]": the feature is missing`,
		`[{"label":1,"emb":[1]},{"label":1,"emb":[1,2]}]`: `column "emb[1]": the feature is unknown`,
		`{"label":1,"emb":[1],"emb":[1]}`:                 `column "emb[0]": the field is given twice`,
	} {
		if _, err := newDecoder(t, wire.Options{}).Decode("application/json", []byte(text)); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v, want …%s…", text, err, reason)
		}
	}
	for contentType, payload := range map[string][]byte{arrowType: arrowOf(three), "application/json": []byte(three)} {
		d := newDecoder(t, wire.Options{})
		if n := testing.AllocsPerRun(20, func() {
			if _, err := d.Decode(contentType, payload); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations per block", contentType, n)
		}
	}
}
