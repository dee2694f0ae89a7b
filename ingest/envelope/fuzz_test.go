package envelope

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"streamd/ingest/kafka"
	"streamd/ingest/registry"
	"streamd/ingest/registry/registrytest"
	"streamd/ingest/wire"
)

// seeds adds the recorded messages of testdata.
func seeds(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) < 20 {
		f.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		r := recorded(f, strings.TrimSuffix(filepath.Base(file), ".json"), true)
		for kind := None; kind <= CloudEvents; kind++ {
			f.Add(uint8(kind), r.Key, r.Value, "")
		}
	}
	f.Add(uint8(Debezium), []byte(`{"b":1,"a":"\ud800"}`), []byte(`{"op":"c","after":{"a":{"scale":2,"value":"AQ=="}}}`), "")
	f.Add(uint8(CloudEvents), []byte(nil), []byte(`a,b`), "text/csv")
}

// FuzzOpen opens messages of strangers. Whatever they are, an opener says the same of one when it
// has seen others before, keeps the record as it is, and names the same key. Of a message that
// encoding/json can read, the fate is that of a plain reading.
func FuzzOpen(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, kind uint8, key, value []byte, contentType string) {
		k := Kind(kind % uint8(CloudEvents+1))
		used, fresh := New(k, Options{Label: "label"}), New(k, Options{Label: "label"})
		r := &kafka.Record{Key: key, Value: value}
		keyBefore, before := bytes.Clone(key), bytes.Clone(value)
		used.Open(&kafka.Record{Value: []byte(`{"schema":{"type":"struct","fields":[{"field":"a","type":"bytes"}]},"payload":{"a":"AQ=="}}`)}, "")
		used.Open(r, contentType)
		used.Key(key)
		m, err := fresh.Open(r, contentType)
		m.Payload = bytes.Clone(m.Payload)
		again, errAgain := used.Open(r, contentType)
		if (err == nil) != (errAgain == nil) || err != nil && err.Error() != errAgain.Error() {
			t.Fatalf("%s: %v, and then %v", k, err, errAgain)
		}
		if m.Fate != again.Fate || m.ContentType != again.ContentType || !bytes.Equal(m.Payload, again.Payload) {
			t.Fatalf("%s: %+v, and then %+v", k, m, again)
		}
		text, err2 := fresh.Key(key)
		text = bytes.Clone(text)
		if again, errAgain := used.Key(key); !bytes.Equal(text, again) || (text == nil) != (again == nil) || (err2 == nil) != (errAgain == nil) {
			t.Fatalf("%s: the key %q, %v, and then %q, %v", k, text, err2, again, errAgain)
		}
		if !bytes.Equal(key, keyBefore) || !bytes.Equal(value, before) {
			t.Fatal("the record has changed")
		}
		Detect(r, contentType)
		fresh.Reason("a")
		if k == Debezium {
			if fate, ok := plainFate(value); ok && err == nil && fate != m.Fate {
				t.Fatalf("the fate is %v, and by a plain reading %v", m.Fate, fate)
			}
		}
		if err == nil && m.Fate == Row && json.Valid(value) && k == Debezium && !json.Valid(m.Payload) {
			t.Fatalf("the message is JSON, and its row is not: %s", m.Payload)
		}
		if d, errDecoder := wire.NewDecoder(wire.Options{Format: wire.JSON}); errDecoder == nil && err == nil && m.Fate == Row {
			d.Decode(m.ContentType, m.Payload)
		}
	})
}

// plainFate reads a message of Debezium by encoding/json; ok is false where it cannot.
func plainFate(value []byte) (fate Fate, ok bool) {
	var m map[string]json.RawMessage
	value = bytes.TrimPrefix(value, []byte("\xef\xbb\xbf"))
	if json.Unmarshal(value, &m) != nil || m == nil {
		return 0, false
	}
	if payload, has := m["payload"]; has && m["schema"] != nil && len(m) == 2 {
		if string(payload) == "null" {
			return Retire, true
		}
		m = nil
		if json.Unmarshal(payload, &m) != nil || m == nil {
			return 0, false
		}
	}
	isImage := func(name string) bool {
		v, has := m[name]
		return has && (v[0] == '{' || string(v) == "null")
	}
	var op string
	if raw, has := m["op"]; has && raw[0] == '"' && (len(m["source"]) > 0 && m["source"][0] == '{' || isImage("before") || isImage("after")) {
		if json.Unmarshal(raw, &op) != nil {
			return 0, false
		}
		fates := map[string]Fate{"c": Row, "u": Row, "r": Row, "d": Retire, "t": Truncate, "m": Pass}
		fate, ok = fates[op]
		return fate, ok
	}
	if _, has := m["ts_ms"]; has && len(m) == 1 {
		return Pass, true
	}
	if deleted := string(m["__deleted"]); deleted == "true" || deleted == `"true"` {
		return Retire, true
	}
	return Row, true
}

// FuzzFramed opens framed messages and keys of strangers, whatever their schema is. An opener says
// the same of one when it has seen it before, and a row is JSON.
func FuzzFramed(f *testing.F) {
	for _, name := range []string{"create", "update", "delete", "read_plain", "update_toast", "truncate", "heartbeat", "unwrapped_deleted"} {
		for _, kind := range []registry.Kind{registry.Avro, registry.Protobuf, registry.JSON} {
			all := schemaMap{}
			framed := framedAs(f, all, registrytest.Converter{Kind: kind}, recorded(f, name, true).Value)
			id, payload, _ := registry.Unframe(framed)
			f.Add(byte(kind), all[id].Text, payload)
		}
	}
	f.Add(byte(registry.Avro), `{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"]},{"name":"m","type":{"type":"map","values":"L"}}]}`, []byte{2, 0, 2, 2, 'k', 0, 0, 0})
	f.Add(byte(registry.Avro), `["null",{"type":"array","items":{"type":"fixed","name":"F","size":0}}]`, []byte{2, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add(byte(registry.Avro), `{"type":"bytes","connect.name":"org.apache.kafka.connect.data.Decimal","connect.parameters":{"scale":"-9"},"logicalType":"decimal","scale":-9}`, []byte{4, 4, 0xd2})
	f.Add(byte(registry.Protobuf), `syntax = "proto3"; message M { M m = 1; map<string, M> all = 2; repeated bool b = 3; }`, []byte{0, 0x0a, 4, 0x12, 2, 0x0a, 0, 0x1a, 2, 1, 0})
	f.Fuzz(func(t *testing.T, kind byte, text string, payload []byte) {
		all := schemaMap{1: {ID: 1, Kind: registry.Kind(kind%3) + registry.Avro, Text: text}}
		o := New(Debezium, Options{Label: "label", Schemas: all, Bytes: 1 << 16})
		framed := registrytest.Frame(1, payload)
		m, err := o.Open(&kafka.Record{Value: framed}, "")
		if err == nil && m.Fate == Row && (!json.Valid(m.Payload) || len(m.Payload) > 1<<18) {
			t.Fatalf("the row is %.1000s", m.Payload)
		}
		m.Payload = bytes.Clone(m.Payload)
		key, errKey := o.Key(framed)
		key = bytes.Clone(key)
		again, errAgain := o.Open(&kafka.Record{Value: framed}, "")
		if fmt.Sprint(err) != fmt.Sprint(errAgain) || m.Fate != again.Fate || !bytes.Equal(m.Payload, again.Payload) {
			t.Fatalf("%+v, %v, and then %+v, %v", m, err, again, errAgain)
		}
		if keyAgain, errAgain := o.Key(framed); !bytes.Equal(key, keyAgain) || fmt.Sprint(errKey) != fmt.Sprint(errAgain) {
			t.Fatalf("the key %q, %v, and then %q, %v", key, errKey, keyAgain, errAgain)
		}
	})
}
