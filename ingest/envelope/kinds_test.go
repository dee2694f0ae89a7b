package envelope

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"streamd/ingest/kafka"
	"streamd/ingest/registry"
	"streamd/ingest/registry/registrytest"
	"streamd/ingest/wire"
)

// framedAs is a message of JSON, with a schema or without, as a converter writes it.
func framedAs(t testing.TB, all schemaMap, to registrytest.Converter, message []byte) []byte {
	t.Helper()
	if message == nil {
		return nil
	}
	to.First = uint32(1<<31 + len(all))
	to.Put = func(id uint32, text string) { all[id] = &registry.Schema{ID: id, Kind: to.Kind, Text: text} }
	b, err := to.Convert(message)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// lostNames are the names that Debezium has for types, which have none in Protobuf.
var lostNames = regexp.MustCompile(`"name":"io\.debezium\.(time\.\w+|data\.Enum)",`)

// The recorded messages of Debezium have the same fate, the same row and the same key in Protobuf
// and by a JSON Schema as in JSON. Protobuf does not have Debezium's names of types, and is
// compared with JSON without them.
func TestRecordedInKinds(t *testing.T) {
	for _, kind := range []registry.Kind{registry.Protobuf, registry.JSON} {
		n := 0
		for _, name := range []string{"create", "update", "delete", "read_plain", "update_toast", "create_base64", "delete_plain", "truncate", "message",
			"heartbeat", "unwrapped", "unwrapped_deleted"} {
			r := recorded(t, name, true)
			if kind == registry.Protobuf {
				r.Value = lostNames.ReplaceAll(r.Value, nil)
				r.Key = lostNames.ReplaceAll(r.Key, nil)
			}
			all := schemaMap{}
			to := registrytest.Converter{Kind: kind}
			framed := &kafka.Record{Key: framedAs(t, all, to, r.Key), Value: framedAs(t, all, to, r.Value)}
			inJSON, inKind := New(Debezium, Options{Label: "label"}), New(Debezium, Options{Label: "label", Schemas: all})
			for range 2 { // the schema is known the second time
				want, err := inJSON.Open(r, "")
				if err != nil {
					t.Fatal(err)
				}
				got, err := inKind.Open(framed, "")
				if err != nil || got.Fate != want.Fate || got.ContentType != want.ContentType {
					t.Fatalf("%v, %s: got %+v, %v, want %+v", kind, name, got, err, want)
				}
				if transcoded := inKind.Transcoded(); (transcoded == wire.Protobuf) != (kind == registry.Protobuf) {
					t.Errorf("%v, %s: it was turned from format %d", kind, name, transcoded)
				}
				if want.Fate == Row && !sameJSON(t, got.Payload, want.Payload) {
					t.Errorf("%v, %s: got  %s\nwant %s", kind, name, got.Payload, want.Payload)
				}
				for _, column := range []string{"opens", "photo", "a"} {
					if got, want := inKind.Reason(column), inJSON.Reason(column); name != "create_base64" && got != want {
						t.Errorf("%v, %s: the reason for %s is %q, want %q", kind, name, column, got, want)
					}
				}
				if got, want := keyOf(t, inKind, framed.Key), keyOf(t, inJSON, r.Key); got != want {
					t.Errorf("%v, %s: the key is %q, want %q", kind, name, got, want)
				}
			}
			n++
		}
		if n != 12 {
			t.Errorf("%d messages", n)
		}
	}
}

// Values of Connect's own types are the same in all kinds of schemas, whatever they are: decimals
// of many digits, dates, time stamps before 1970, and what is null.
func TestValuesInKinds(t *testing.T) {
	const logical = "org.apache.kafka.connect.data."
	field := func(name, typ, of string) string {
		if of != "" {
			of = fmt.Sprintf(`"name":%q,"parameters":{"scale":"3"},`, of)
		}
		return fmt.Sprintf(`{"type":%q,%s"optional":true,"field":%q}`, typ, of, name)
	}
	columns := strings.Join([]string{
		field("i", "int32", ""), field("l", "int64", ""), field("f", "float", ""), field("d", "double", ""), field("b", "boolean", ""), field("s", "string", ""),
		field("p", "bytes", logical+"Decimal"), field("day", "int32", logical+"Date"), field("at", "int64", logical+"Timestamp"), field("clock", "int32", logical+"Time"),
		`{"type":"struct","optional":true,"name":"io.debezium.data.VariableScaleDecimal","fields":[{"type":"int32","field":"scale"},{"type":"bytes","field":"value"}],"field":"own"}`,
		`{"type":"struct","optional":true,"name":"db.Place","fields":[{"type":"double","optional":true,"field":"x"}],"field":"place"}`,
	}, ",")
	schema := `{"type":"struct","name":"db.t.Envelope","fields":[{"type":"struct","optional":true,"name":"db.t.Value","fields":[` + columns + `],"field":"after"},{"type":"string","field":"op"}]}`
	r := rand.New(rand.NewPCG(96, 1))
	all := schemaMap{}
	o, inJSON := New(Debezium, Options{Label: "label", Schemas: all}), New(Debezium, Options{Label: "label"})
	for i := range 300 {
		or := func(format string, v any) string {
			if r.IntN(4) == 0 {
				return "null"
			}
			return fmt.Sprintf(format, v)
		}
		number := func() string { return fmt.Sprintf("%.3f", r.NormFloat64()*1000) }
		digits := []string{"BNI=", "AQAAAAAAAAAA", "/w==", "AA=="}
		value := fmt.Sprintf(`{"schema":%s,"payload":{"after":{"i":%s,"l":%s,"f":%s,"d":%s,"b":%s,"s":%s,"p":%s,"day":%s,"at":%s,"clock":%s,"own":%s,"place":%s},"op":"c"}}`, schema,
			or("%d", r.Int32N(3)-1), or("%d", r.Int64()-r.Int64()), or("%v", float32(r.IntN(3))+0.5), or("%s", number()), or("%t", r.IntN(2) == 0), or("%q", []string{"", "x\"\n", "ü"}[r.IntN(3)]),
			or("%q", digits[r.IntN(4)]), or("%d", r.IntN(100000)-50000), or("%d", r.Int64N(1e14)-5e13), or("%d", r.IntN(1000)),
			or(`{"scale":2,"value":%q}`, digits[r.IntN(4)]), or(`{"x":%s}`, or("%s", number())))
		want, err := inJSON.Open(&kafka.Record{Value: []byte(value)}, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []registry.Kind{registry.Avro, registry.Protobuf, registry.JSON} {
			if kind == registry.Avro && strings.Contains(value, `"s":null`) {
				continue // its encoder refuses a null that a union has behind a text
			}
			got, err := o.Open(&kafka.Record{Value: framedAs(t, all, registrytest.Converter{Kind: kind}, []byte(value))}, "")
			if err != nil {
				t.Fatalf("%v: %v: %s", kind, err, value)
			}
			if normal(t, got.Payload) != normal(t, want.Payload) {
				t.Fatalf("message %d in %v: got  %s\nwant %s", i, kind, got.Payload, want.Payload)
			}
			if got, want := o.Reason("clock"), inJSON.Reason("clock"); got != want {
				t.Fatalf("%v: the reason is %q, want %q", kind, got, want)
			}
		}
	}
}

// normal is a value of JSON in which equal numbers and equal texts are written equally.
func normal(t *testing.T, b []byte) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	var of func(v any) any
	of = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for name := range v {
				v[name] = of(v[name])
			}
		case json.Number:
			x, _ := new(big.Rat).SetString(v.String())
			return x.RatString() + " as a number"
		}
		return v
	}
	text, err := json.Marshal(of(v))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Keys of Protobuf and by a JSON Schema are the same text as those of JSON.
func TestKeysInKinds(t *testing.T) {
	all := schemaMap{}
	o, inJSON := New(Debezium, Options{Schemas: all}), New(Debezium, Options{})
	for _, key := range []string{
		`{"schema":{"type":"struct","name":"db.t.Key","fields":[{"type":"int32","field":"id"}]},"payload":{"id":17}}`,
		`{"schema":{"type":"struct","name":"db.t.Key","fields":[{"type":"int32","field":"id"}]},"payload":{"id":0}}`,
		`{"schema":{"type":"struct","name":"db.t.Key","fields":[{"type":"string","field":"id"}]},"payload":{"id":"a/b\"c"}}`,
		`{"schema":{"type":"struct","name":"db.t.Key","fields":[{"type":"int64","field":"id"},{"type":"string","optional":true,"field":"country"}]},"payload":{"id":-5,"country":"at"}}`,
		`{"schema":{"type":"struct","name":"db.t.Key","fields":[{"type":"int64","field":"id"},{"type":"string","optional":true,"field":"country"}]},"payload":{"id":-5,"country":null}}`,
		`{"schema":{"type":"struct","name":"db.t.Key","fields":[{"type":"int32","name":"org.apache.kafka.connect.data.Date","field":"d"}]},"payload":{"d":1}}`,
		`{"schema":{"type":"struct","name":"db.t.Key","fields":[{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"},"field":"p"}]},"payload":{"p":"BNI="}}`,
		`{"schema":{"type":"string"},"payload":"carol"}`,
		`{"schema":{"type":"int64"},"payload":5}`,
		`{"schema":{"type":"int32"},"payload":0}`,
		`{"schema":{"type":"double"},"payload":12.5}`,
		`{"schema":{"type":"boolean"},"payload":true}`,
	} {
		want := keyOf(t, inJSON, []byte(key))
		for _, kind := range []registry.Kind{registry.Protobuf, registry.JSON} {
			framed := framedAs(t, all, registrytest.Converter{Kind: kind}, []byte(key))
			for range 2 {
				if got := keyOf(t, o, framed); got != want {
					t.Errorf("%v: the key %s is %q, want %q", kind, key, got, want)
				}
			}
		}
	}
}

// What cannot be read of Protobuf says so, and memory is bounded by Options.Bytes.
func TestRefusedInProtobuf(t *testing.T) {
	all := schemaMap{}
	put := func(id uint32, text string) {
		all[id] = &registry.Schema{ID: id, Kind: registry.Protobuf, Text: "syntax = \"proto3\"; " + text}
	}
	put(1, `message Envelope { Value after = 1; string op = 2; map<int32, string> m = 3; repeated int32 l = 4; message Value { double a = 1; Value next = 2; } }`)
	put(2, `message Key { }`)
	put(3, `message Broken {`)
	put(4, `import "other.proto"; message M { Other o = 1; }`)
	put(9, `message Row { map<int32, string> m = 3; repeated int32 l = 4; }`)
	put(5, `message M { repeated E many = 1; message E { double `+strings.Repeat("x", 1000)+` = 1; } }`)
	var wide strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&wide, "Inner f%d = %d;", i, i+1)
	}
	var inner strings.Builder
	for i := range 500 {
		fmt.Fprintf(&inner, "int32 g%d = %d;", i, i+1)
	}
	put(6, `message M { `+wide.String()+` message Inner { `+inner.String()+` } }`)
	for i, c := range []struct {
		id      uint32
		payload []byte
		want    string
	}{
		{1, nil, "indexes of the message's type"},
		{1, []byte{4, 0}, "indexes of the message's type"},
		{1, []byte{0x80}, "indexes of the message's type"},
		{1, []byte{2, 8}, "no message with the indexes [4]"},
		{1, []byte{0, 0x0a}, "cut off or malformed"},
		{1, []byte{0, 0x0a, 1, 9}, "cut off or malformed"},
		{1, []byte{0, 0x12, 1, 'u'}, "no after image"},
		{1, []byte{0, 0x0a, 0, 0x12, 1, 'x'}, "op is"},
		{1, []byte{0, 0x08, 0, 0x12, 1, 'c'}, "cut off or malformed"},
		{1, []byte{0, 0x12, 1, 'u', 0x12, 1, 'c'}, `the field "op" is given twice`},
		{1, []byte{0, 0x20, 1, 0x12, 1, 'c', 0x20, 1}, `the field "l" is given twice`},
		{1, []byte{0, 0x12, 2, 0xff, 0xfe}, "no UTF-8"},
		{2, []byte{0}, "its message Key has no fields"},
		{3, []byte{0}, "cannot be used"},
		{4, []byte{0}, "other.proto"},
		{5, append([]byte{0}, bytes.Repeat([]byte{0x0a, 0}, 100)...), "more than 4096 bytes"},
		{6, []byte{0}, "cannot be used: its columns take more than"},
		{8, []byte{0}, "does not know it"},
	} {
		m, err := New(Debezium, Options{Schemas: all, Bytes: 4096}).Open(&kafka.Record{Value: registrytest.Frame(c.id, c.payload)}, "")
		if bad := (*Error)(nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("message %d: got %+v, %v, want %q", i, m, err, c.want)
		}
	}
	_, err := New(Debezium, Options{Schemas: all}).Key(registrytest.Frame(2, []byte{0}))
	if bad := (*KeyError)(nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), "its message Key has no fields") {
		t.Errorf("a key without fields: %v", err)
	}
	// Messages within themselves are read, up to a depth.
	nested := []byte{}
	for range 200 {
		nested = append(appendLength([]byte{0x12}, len(nested)), nested...)
	}
	after := append(appendLength([]byte{0x0a}, len(nested)), nested...)
	_, err = New(Debezium, Options{Schemas: all}).Open(&kafka.Record{Value: registrytest.Frame(1, append([]byte{0}, after...))}, "")
	if err == nil || !strings.Contains(err.Error(), "nested too deeply") {
		t.Errorf("nested messages: %v", err)
	}
	// Maps and lists, packed or not.
	m, err := New(Debezium, Options{Schemas: all}).Open(&kafka.Record{Value: registrytest.Frame(9, []byte{0,
		0x1a, 5, 0x08, 7, 0x12, 1, 'v', 0x1a, 0, 0x22, 2, 5, 6, 0x20, 9})}, "")
	if want := `{"m":{"7":"v","0":""},"l":[5,6,9]}`; err != nil || string(m.Payload) != want {
		t.Errorf("got %s, %v, want %s", m.Payload, err, want)
	}
}

func appendLength(b []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// Without optional.for.nullables Protobuf does not tell null from the default of a type.
func TestLossyProtobuf(t *testing.T) {
	all := schemaMap{}
	value := `{"schema":{"type":"struct","name":"V","fields":[{"type":"double","optional":true,"field":"x"},{"type":"string","optional":true,"field":"s"},` +
		`{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"},"field":"p"}]},"payload":{"x":null,"s":null,"p":null}}`
	for lossy, want := range map[bool]string{true: `{"x":0.0,"s":"","p":null}`, false: `{"x":null,"s":null,"p":null}`} {
		m, err := New(Debezium, Options{Schemas: all}).Open(&kafka.Record{Value: framedAs(t, all, registrytest.Converter{Kind: registry.Protobuf, Lossy: lossy}, []byte(value))}, "")
		if err != nil || string(m.Payload) != want {
			t.Errorf("lossy %t: got %s, %v, want %s", lossy, m.Payload, err, want)
		}
	}
}

// A JSON Schema of another writer gives no types, and one with them in other words gives those.
func TestOtherJSONSchemas(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:   `{"d":1,"x":"BNI="}`,
		`true`: `{"d":1,"x":"BNI="}`,
		`{"type":"object","properties":{"d":true,"x":{"type":["null","string"]}}}`:                                                                              `{"d":1,"x":"BNI="}`,
		`{"type":["object","null"],"properties":{"d":{"anyOf":[{"type":"integer","title":"org.apache.kafka.connect.data.Date"},{"type":"null"}]}}}`:             `{"d":"1970-01-02","x":"BNI="}`,
		`{"type":"object","properties":{"d":{"oneOf":[{"type":"integer","title":"io.debezium.time.Date"},{"type":"string"}]}}}`:                                 `{"d":1,"x":"BNI="}`,
		`{"type":"object","properties":{"x":{"title":"org.apache.kafka.connect.data.Decimal","connect.type":"bytes","connect.parameters":{"scale":2,"a":[]}}}}`: `{"d":1,"x":12.34}`,
	} {
		all := schemaMap{1: {ID: 1, Kind: registry.JSON, Text: text}}
		m, err := New(Debezium, Options{Schemas: all}).Open(&kafka.Record{Value: registrytest.Frame(1, []byte(` {"d":1,"x":"BNI="}`))}, "")
		if err != nil || string(m.Payload) != want {
			t.Errorf("%s: got %s, %v, want %s", text, m.Payload, err, want)
		}
	}
	for payload, want := range map[string]string{"": "JSON", "{": "JSON", "{}x": "behind it", "[1]": "neither a change nor a row", `"x"`: "neither"} {
		all := schemaMap{1: {ID: 1, Kind: registry.JSON, Text: "{}"}}
		if m, err := New(Debezium, Options{Schemas: all}).Open(&kafka.Record{Value: registrytest.Frame(1, []byte(payload))}, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %+v, %v, want %q", payload, m, err, want)
		}
	}
}
