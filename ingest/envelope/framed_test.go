package envelope

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/avro"

	"streamd/ingest/kafka"
	"streamd/ingest/registry"
	"streamd/ingest/registry/registrytest"
	"streamd/ingest/wire"
)

// schemaMap are the schemas of a registry that is always there.
type schemaMap map[uint32]*registry.Schema

func (s schemaMap) Get(id uint32) (*registry.Schema, error) {
	if id == awayID {
		return nil, &registry.AwayError{ID: id, Why: errors.New("503")}
	}
	if found := s[id]; found != nil {
		return found, nil
	}
	return nil, &registry.BadIDError{ID: id, Reason: "the schema registry does not know it"}
}

const awayID = 99

// put adds a schema of Avro.
func (s schemaMap) put(id uint32, text string) {
	s[id] = &registry.Schema{ID: id, Kind: registry.Avro, Text: text}
}

// inAvro is a message of JSON, with a schema or without, as the converter to Avro writes it.
func inAvro(t testing.TB, all schemaMap, message []byte) []byte {
	t.Helper()
	if message == nil {
		return nil
	}
	b, err := (&registrytest.Converter{First: uint32(1<<31 + len(all)), Put: all.put}).Convert(message)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The recorded messages of Debezium have the same fate, the same row and the same key in Avro as in
// JSON.
func TestRecordedInAvro(t *testing.T) {
	n := 0
	for _, name := range []string{"create", "update", "delete", "read_plain", "update_toast", "create_base64", "delete_plain", "truncate", "message",
		"heartbeat", "schema_change", "transaction", "unwrapped", "unwrapped_deleted"} {
		r := recorded(t, name, true)
		if name == "schema_change" || name == "transaction" { // arrays of records
			r.Value = bytes.ReplaceAll(r.Value, []byte(`"tableChanges":[]`), []byte(`"tableChanges":null`))
			if i := bytes.Index(r.Value, []byte(`"data_collections":[`)); i >= 0 {
				r.Value = append(bytes.Clone(r.Value[:i]), `"data_collections":null}`...)
			}
		}
		all := schemaMap{}
		framed := &kafka.Record{Key: inAvro(t, all, r.Key), Value: inAvro(t, all, r.Value)}
		inJSON, inAvro := New(Debezium, Options{Label: "label"}), New(Debezium, Options{Label: "label", Schemas: all})
		for range 2 { // the schema is known the second time
			want, errWant := inJSON.Open(r, "")
			got, err := inAvro.Open(framed, "")
			if (err == nil) != (errWant == nil) || got.Fate != want.Fate || got.ContentType != want.ContentType {
				t.Fatalf("%s: got %+v, %v, want %+v, %v", name, got, err, want, errWant)
			}
			if err != nil && (inAvro.Transcoded() != wire.Avro || err.Error() != errWant.Error()) {
				t.Errorf("%s: got %v, want %v", name, err, errWant)
			}
			if want.Fate == Row && err == nil && !sameJSON(t, got.Payload, want.Payload) {
				t.Errorf("%s: got  %s\nwant %s", name, got.Payload, want.Payload)
			}
			for _, column := range []string{"opens", "photo", "a"} {
				if got, want := inAvro.Reason(column), inJSON.Reason(column); name != "create_base64" && got != want {
					t.Errorf("%s: the reason for %s is %q, want %q", name, column, got, want)
				}
			}
			if got, want := keyOf(t, inAvro, framed.Key), keyOf(t, inJSON, r.Key); got != want {
				t.Errorf("%s: the key is %q, want %q", name, got, want)
			}
		}
		n++
	}
	if n != 14 {
		t.Errorf("%d messages", n)
	}
}

// sameJSON is whether two texts have the same fields with the same texts.
func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y map[string]json.RawMessage
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		t.Fatalf("no JSON: %s, %s", a, b)
	}
	if len(x) != len(y) {
		return false
	}
	for name := range x {
		if string(x[name]) != string(y[name]) {
			return false
		}
	}
	return true
}

// Keys of Avro are the same text as those of JSON, so a block has one id.
func TestKeysInAvro(t *testing.T) {
	all := schemaMap{}
	o := New(Debezium, Options{Schemas: all})
	record := func(fields string) string {
		return `{"type":"record","name":"Key","namespace":"db.t","fields":[` + fields + `]}`
	}
	for i, c := range []struct {
		schema string
		value  any
		want   string
	}{
		{record(`{"name":"id","type":"int"}`), map[string]any{"id": int32(17)}, "17"},
		{record(`{"name":"id","type":"string"}`), map[string]any{"id": `a/b"c`}, `a/b"c`},
		{record(`{"name":"id","type":{"type":"long","connect.type":"int64"}},{"name":"country","type":["null","string"]}`), map[string]any{"id": int64(-5), "country": "at"}, `{"country":"at","id":-5}`},
		{record(`{"name":"b","type":["null","string"]},{"name":"a","type":"string"}`), map[string]any{"a": "x\"\n", "b": nil}, `{"a":"x\"\u000a","b":null}`},
		{record(`{"name":"d","type":{"type":"int","connect.name":"io.debezium.time.Date"}},{"name":"a","type":"int"}`), map[string]any{"d": int32(1), "a": int32(5)}, `{"a":5,"d":"1970-01-02"}`},
		{record(`{"name":"d","type":{"type":"int","logicalType":"date"}}`), map[string]any{"d": int32(1)}, "1970-01-02"},
		{record(`{"name":"p","type":{"type":"bytes","logicalType":"decimal","scale":2,"precision":9}}`), map[string]any{"p": []byte{4, 0xd2}}, "12.34"},
		{record(`{"name":"x","type":"double"}`), map[string]any{"x": 1e7}, "1.0E7"},
		{record(`{"name":"x","type":"double"}`), map[string]any{"x": -0.001}, "-0.001"},
		{record(`{"name":"x","type":"double"}`), map[string]any{"x": 12.0}, "12.0"},
		{record(`{"name":"x","type":"float"}`), map[string]any{"x": float32(1.5e-5)}, "1.5E-5"},
		{`"long"`, int64(5), "5"},
		{`"string"`, "carol", "carol"},
		{`["null","string"]`, "carol", "carol"},
		{record(""), map[string]any{}, "{}"},
	} {
		all.put(uint32(i+1), c.schema)
		b, err := avro.MustParse(c.schema).Encode(c.value)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got := keyOf(t, o, registrytest.Frame(uint32(i+1), b)); got != c.want {
				t.Errorf("the key %v of %s is %s, want %s", c.value, c.schema, got, c.want)
			}
		}
	}
	all.put(50, `["null","string"]`)
	if got, err := o.Key(registrytest.Frame(50, []byte{0})); got != nil || err != nil {
		t.Errorf("a null key is %q, %v", got, err)
	}
	all[51] = &registry.Schema{ID: 51, Kind: registry.JSON, Text: "{}"}
	if got := keyOf(t, o, registrytest.Frame(51, []byte(`{"id":17}`))); got != "17" {
		t.Errorf("a key with a schema of JSON is %s", got)
	}

	all[52] = &registry.Schema{ID: 52, Kind: registry.Protobuf, Text: `syntax = "proto3";`}
	for id, want := range map[uint32]string{1: "behind the record", 2: "the data ends", 52: "indexes of the message's type", 53: "does not know it"} {
		_, err := o.Key(registrytest.Frame(id, []byte{0x22, 0x22, 0x22}))
		if bad := (*KeyError)(nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("schema %d: got %v, want %s", id, err, want)
		}
	}
	if _, err := o.Key(registrytest.Frame(awayID, []byte{0})); err == nil || errors.As(err, new(*KeyError)) {
		t.Errorf("a registry that is away: %v", err)
	}
	eight := []byte{0, 0, 0, 0, 0, 0, 0, 17}
	if _, err := New(Debezium, Options{}).Key(eight); err == nil || !strings.Contains(err.Error(), "format.registry.url") {
		t.Errorf("without a registry: %v", err)
	}
	if got := keyOf(t, New(Connect, Options{}), eight); got != string(eight) {
		t.Errorf("a number of eight bytes is %q", got)
	}
}

// What cannot be read says so, and memory is bounded by Options.Bytes.
func TestRefusedInAvro(t *testing.T) {
	all := schemaMap{}
	all.put(1, `{"type":"record","name":"Envelope","fields":[{"name":"after","type":["null",{"type":"record","name":"Value","fields":[{"name":"a","type":"double"}]}]},{"name":"op","type":"string"}]}`)
	all.put(2, `{"type":"array","items":"int"}`)
	all.put(3, `{"type":"nothing"}`)
	all.put(4, `{"type":"record","name":"R","fields":[{"name":"many","type":{"type":"array","items":{"type":"record","name":"E","fields":[{"name":"`+strings.Repeat("x", 1000)+`","type":"null"}]}}}]}`)
	all.put(5, `{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"]}]}`)
	var wide strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&wide, `,{"name":"f%d","type":"Inner"}`, i)
	}
	all.put(6, `{"type":"record","name":"R","fields":[{"name":"f","type":{"type":"record","name":"Inner","fields":[`+innerFields(500)+`]}}`+wide.String()+`]}`)
	all[7] = &registry.Schema{ID: 7, Kind: registry.JSON, Text: "{}"}
	for _, c := range []struct {
		id      uint32
		payload []byte
		want    string
	}{
		{1, []byte{2}, "the data ends"},
		{1, []byte{0, 2, 'd', 7}, "behind the record"},
		{1, []byte{4, 2, 'd'}, "the data ends"},
		{1, []byte{0, 2, 'u'}, "no after image"},
		{1, []byte{0, 2, 'x'}, "op is"},
		{2, []byte{0}, "neither a change nor a row"},
		{3, []byte{0}, "cannot be used"},
		{4, []byte{0x80, 0x80, 1, 0}, "more than 4096 bytes"},
		{5, bytes.Repeat([]byte{2}, 2000), "nested too deeply"},
		{6, []byte{0}, "cannot be used: its columns take more than"},
		{7, []byte("{]"), "no JSON of Debezium"},
		{8, []byte{0}, "does not know it"},
	} {
		m, err := New(Debezium, Options{Schemas: all, Bytes: 4096}).Open(&kafka.Record{Value: registrytest.Frame(c.id, c.payload)}, "")
		if bad := (*Error)(nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("schema %d: got %+v, %v, want %q", c.id, m, err, c.want)
		}
	}
	if _, err := New(Debezium, Options{}).Open(&kafka.Record{Value: registrytest.Frame(1, []byte{0})}, ""); err == nil || !strings.Contains(err.Error(), "format.registry.url") {
		t.Errorf("without a registry: %v", err)
	}
	if _, err := New(Debezium, Options{Schemas: all}).Open(&kafka.Record{Value: registrytest.Frame(awayID, []byte{0})}, ""); err == nil || errors.As(err, new(*Error)) {
		t.Errorf("a registry that is away: %v", err)
	}
	// With Connect what is framed is a row as it is.
	value := registrytest.Frame(1, []byte{0})
	if m, err := New(Connect, Options{Schemas: all}).Open(&kafka.Record{Value: value}, "application/avro"); err != nil || !bytes.Equal(m.Payload, value) || m.ContentType != "application/avro" {
		t.Errorf("got %+v, %v", m, err)
	}
}

func innerFields(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`{"name":"g%d","type":"int"}`, i))
	}
	return strings.Join(list, ",")
}

// Values of Avro are those of Connect's JSON: numbers have all their digits, what is within columns
// is written, and decimals that Avro does not know are read by Connect's names.
func TestValuesInAvro(t *testing.T) {
	all := schemaMap{}
	text := `{"type":"record","name":"Row","fields":[
		{"name":"f","type":"float"},{"name":"d","type":"double"},{"name":"e","type":{"type":"enum","name":"E","symbols":["no","yes"]}},
		{"name":"u","type":{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}},{"name":"a","type":{"type":"array","items":["null","long"]}},
		{"name":"m","type":{"type":"map","values":"string"}},{"name":"t","type":{"type":"long","logicalType":"timestamp-micros"}},
		{"name":"n","type":{"type":"record","name":"N","fields":[{"name":"x","type":["null","double"]}]}},
		{"name":"big","type":{"type":"bytes","connect.name":"org.apache.kafka.connect.data.Decimal","connect.parameters":{"scale":"-2"},"logicalType":"decimal","scale":-2,"precision":64}},
		{"name":"raw","type":"bytes"},{"name":"two","type":["null","int","string"]}]}`
	all.put(1, text)
	lax := strings.Replace(text, `"logicalType":"decimal",`, "", 1) // as the encoder takes it
	s := avro.MustParse(lax)
	o := New(Debezium, Options{Label: "label", Schemas: all})
	r := rand.New(rand.NewPCG(91, 1))
	for range 500 {
		f, d := float32(r.NormFloat64()*math.Pow(10, float64(r.IntN(40)-20))), r.NormFloat64()*math.Pow(10, float64(r.IntN(400)-200))
		b, err := s.Encode(map[string]any{
			"f": f, "d": d, "e": "yes", "u": []byte("0123456789abcdef"), "a": []any{nil, int64(3)}, "m": map[string]string{"k": "v"}, "t": int64(1500000),
			"n": map[string]any{"x": 0.5}, "big": []byte{0xfe}, "raw": []byte{1}, "two": "x",
		})
		if err != nil {
			t.Fatal(err)
		}
		m, err := o.Open(&kafka.Record{Value: registrytest.Frame(1, b)}, "")
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			F json.Number
			D float64
		}
		if err := json.Unmarshal(m.Payload, &got); err != nil || got.D != d {
			t.Fatalf("%v is %v: %s: %v", d, got.D, m.Payload, err)
		}
		if back, err := strconv.ParseFloat(got.F.String(), 32); err != nil || float32(back) != f {
			t.Fatalf("%v is %v: %v", f, got.F, err)
		}
		_, rest, _ := bytes.Cut(m.Payload, []byte(`,"e":`))
		if want := `"yes","u":"30313233-3435-3637-3839-616263646566","a":[null,3],"m":{"k":"v"},"t":"1970-01-01T00:00:01.5Z","n":{"x":0.5},"big":-200,"raw":{},"two":"x"}`; string(rest) != want {
			t.Fatalf("got  %s\nwant %s", rest, want)
		}
	}
	for _, c := range []struct {
		x    float64
		want string
	}{{math.NaN(), `"NaN"`}, {math.Inf(1), `"Infinity"`}, {math.Inf(-1), `"-Infinity"`}, {0, "0.0"}} {
		b, err := s.Encode(map[string]any{
			"f": float32(c.x), "d": c.x, "e": "no", "u": []byte("0123456789abcdef"), "a": []any{}, "m": map[string]string{}, "t": int64(1),
			"n": map[string]any{"x": nil}, "big": []byte{0}, "raw": []byte{}, "two": nil,
		})
		if err != nil {
			t.Fatal(err)
		}
		m, err := o.Open(&kafka.Record{Value: registrytest.Frame(1, b)}, "")
		if want := fmt.Sprintf(`{"f":%s,"d":%s,`, c.want, c.want); err != nil || !bytes.HasPrefix(m.Payload, []byte(want)) {
			t.Errorf("got %s, %v, want %s", m.Payload, err, want)
		}
	}
}
