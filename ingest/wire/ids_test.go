package wire_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"streamd/ingest/registry"
	"streamd/ingest/wire"
)

// rowIDs are the ids that a decoder finds in the label's place.
func rowIDs(d *wire.Decoder, contentType string, payload []byte) (ids []string, weights []float64, err error) {
	b, err := d.Decode(contentType, payload)
	if err != nil {
		return nil, nil, err
	}
	for _, code := range b.Codes {
		ids = append(ids, b.Classes[code])
	}
	return ids, b.Weights, nil
}

// orders is a stream of Arrow with ids of a type, a feature and a weight.
func orders(t *testing.T, typ arrow.DataType, fill func(array.Builder), rows int) []byte {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "order", Type: typ, Nullable: true}, {Name: "u", Type: arrow.PrimitiveTypes.Float64}, {Name: "w", Type: arrow.PrimitiveTypes.Int32}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	fill(b.Field(0))
	for i := range rows {
		b.Field(1).(*array.Float64Builder).Append(float64(i))
		b.Field(2).(*array.Int32Builder).Append(int32(i))
	}
	return stream(t, b.NewRecordBatch())
}

// An id of a row is a text as it is, or an integer of any number of digits, in all formats that
// name their columns.
func TestRowIDs(t *testing.T) {
	avro := &registry.Schema{Kind: registry.Avro, Text: `{"type":"record","name":"r","fields":[{"name":"order","type":"long"},{"name":"u","type":"double"},{"name":"w","type":"double"}]}`}
	ofAvro := binary.AppendVarint(nil, 1<<62+1)
	for _, x := range []float64{1, 0.5} {
		ofAvro = binary.LittleEndian.AppendUint64(ofAvro, math.Float64bits(x))
	}
	dictionary := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	for _, c := range []struct {
		contentType string
		payload     []byte
		ids         []string
		weights     []float64
	}{
		{"application/json", []byte(`[{"order":"1e5","u":1,"w":1},{"order":"007","u":2,"w":0.25},{"order":9007199254740993,"u":1,"w":2},{"order":-3,"u":1,"w":1},{"order":"true","u":1,"w":1},{"order":"1e5","u":3,"w":1}]`),
			[]string{"1e5", "007", "9007199254740993", "-3", "true", "1e5"}, []float64{1, 0.25, 2, 1, 1, 1}},
		{"application/json", []byte(`{"order":7,"u":1,"w":1}` + "\n" + `{"order":"nan","u":1,"w":1}`), []string{"7", "nan"}, []float64{1, 1}},
		{"text/csv", []byte("u,order,w\n1,7.0,1\n2,\"a,b\",3\n3,18446744073709551615,1\n"), []string{"7.0", "a,b", "18446744073709551615"}, []float64{1, 3, 1}},
		{arrowType, orders(t, arrow.PrimitiveTypes.Int64, func(b array.Builder) { b.(*array.Int64Builder).AppendValues([]int64{1<<53 + 1, -5, 17}, nil) }, 3),
			[]string{"9007199254740993", "-5", "17"}, []float64{0, 1, 2}},
		{arrowType, orders(t, arrow.PrimitiveTypes.Uint64, func(b array.Builder) { b.(*array.Uint64Builder).AppendValues([]uint64{math.MaxUint64, 300}, nil) }, 2),
			[]string{"18446744073709551615", "300"}, []float64{0, 1}},
		{arrowType, orders(t, arrow.BinaryTypes.String, func(b array.Builder) { b.(*array.StringBuilder).AppendValues([]string{"1.0", "x"}, nil) }, 2), []string{"1.0", "x"}, []float64{0, 1}},
		{arrowType, orders(t, dictionary, func(b array.Builder) {
			for _, id := range []string{"1.0", "x", "1.0"} {
				b.(*array.BinaryDictionaryBuilder).AppendString(id)
			}
		}, 3), []string{"1.0", "x", "1.0"}, []float64{0, 1, 2}},
		{"application/avro", ofAvro, []string{"4611686018427387905"}, []float64{0.5}},
	} {
		d := newDecoder(t, wire.Options{Label: "order", LabelIsID: true, Weight: "w", Features: []string{"u"}, Written: avro, Limits: wire.Limits{Classes: 2}})
		for range 2 { // a decoder is used again
			ids, weights, err := rowIDs(d, c.contentType, c.payload)
			if err != nil || !slices.Equal(ids, c.ids) || !slices.Equal(weights, c.weights) {
				t.Errorf("%.80q has the ids %q and the weights %v, not %q %v: %v", c.payload, ids, weights, c.ids, c.weights, err)
			}
		}
		// The weights are those of rows without labels, too, if they are wanted.
		for _, wanted := range []bool{true, false} {
			d := newDecoder(t, wire.Options{Label: "order", Weight: "w", WeighUnlabelled: wanted, Features: []string{"u"}, Written: avro})
			table, err := d.DecodeUnlabelled(c.contentType, c.payload)
			if err != nil || table.Rows != len(c.ids) || wanted && !slices.Equal(table.Weights, c.weights) || !wanted && table.Weights != nil {
				t.Errorf("%.80q has %d rows with the weights %v, not %v: %v", c.payload, table.Rows, table.Weights, c.weights, err)
			}
		}
	}
}

// Ids of former blocks do not pile up, and each block has as many as it has rows.
func TestManyRowIDs(t *testing.T) {
	d := newDecoder(t, wire.Options{Label: "order", LabelIsID: true, Features: []string{"u"}, Limits: wire.Limits{Rows: 5000, Classes: 2}})
	for round := range 20 {
		var text strings.Builder
		var want []string
		for i := range 1000 + 200*round {
			want = append(want, fmt.Sprintf("order %d of %d", i, round))
			text.WriteString(`{"u":1,"order":"` + want[i] + `"}` + "\n")
		}
		if ids, _, err := rowIDs(d, "application/json", []byte(text.String())); err != nil || !slices.Equal(ids, want) {
			t.Fatalf("round %d: %d ids, not %d: %v", round, len(ids), len(want), err)
		}
	}
}

func TestRowIDsRefused(t *testing.T) {
	for _, c := range []struct{ contentType, payload, want string }{
		{"application/json", `{"u":1}`, `column "order": the id is missing`},
		{"application/json", `{"order":null,"u":1}`, `column "order": the id is null`},
		{"application/json", `{"order":"","u":1}`, `column "order": the id is empty`},
		{"application/json", `{"order":"` + strings.Repeat("a", 129) + `","u":1}`, "the id has 129 bytes"},
		{"application/json", `{"order":["a"],"u":1}`, `column "order"`},
		{"text/csv", "u,order\n1,\n", `column "order": the id is empty`},
		{"text/csv", "u\n1\n", `column "order": there is no such column`},
		{"application/x-libsvm", "7 1:2\n", "a row of LIBSVM has no place for an id"},
		{arrowType, string(orders(t, arrow.PrimitiveTypes.Float64, func(b array.Builder) { b.(*array.Float64Builder).Append(math.NaN()) }, 1)), "the id is NaN"},
		{arrowType, string(orders(t, arrow.BinaryTypes.String, func(b array.Builder) { b.AppendNull() }, 1)), "the id is null"},
	} {
		d := newDecoder(t, wire.Options{Label: "order", LabelIsID: true, Features: []string{"u"}, IgnoreUnknown: true})
		if ids, _, err := rowIDs(d, c.contentType, []byte(c.payload)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: %v %v, want %s", c.payload, ids, err, c.want)
		}
	}
	d := newDecoder(t, wire.Options{Weight: "w", WeighUnlabelled: true, Features: []string{"u"}})
	for contentType, payload := range map[string]string{"application/json": `[[1]]`, "text/csv": "u\n1\n"} {
		if _, err := d.DecodeUnlabelled(contentType, []byte(payload)); err == nil || !strings.Contains(err.Error(), "weight") {
			t.Errorf("%q without a weight: %v", payload, err)
		}
	}
}
