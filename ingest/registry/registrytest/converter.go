package registrytest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/avro"

	"streamd/ingest/registry"
)

// Converter turns messages of Kafka Connect's JsonConverter into those that its AvroConverter,
// ProtobufConverter or JsonSchemaConverter writes of the same values: framed, in the schema that
// goes with the message's, or for a message without a schema in one that fits its values. It
// belongs to one goroutine.
type Converter struct {
	Kind  registry.Kind                  // of the schemas; zero: Avro
	Lossy bool                           // Protobuf does not tell null from the default (optional.for.nullables=false)
	First uint32                         // the first schema's id
	Put   func(id uint32, schema string) // is told of each schema

	ids map[string]uint32
}

// connectType is a schema of Kafka Connect, as its JsonConverter writes it.
type connectType struct {
	Type       string            `json:"type"`
	Name       string            `json:"name"`
	Field      string            `json:"field"`
	Optional   bool              `json:"optional"`
	Parameters map[string]string `json:"parameters"`
	Fields     []connectType     `json:"fields"`
}

// Convert converts a message. Arrays and maps are not known.
func (c *Converter) Convert(message []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(message))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	var of connectType
	if m, ok := v.(map[string]any); ok && len(m) == 2 && m["schema"] != nil {
		text, err := json.Marshal(m["schema"])
		if err == nil {
			err = json.Unmarshal(text, &of)
		}
		if err != nil {
			return nil, err
		}
		v = m["payload"]
		if fields, is := v.(map[string]any); is { // some schemas of tests leave out what is not read
			for _, name := range slices.Sorted(maps.Keys(fields)) {
				if !slices.ContainsFunc(of.Fields, func(f connectType) bool { return f.Field == name }) {
					of.Fields = append(of.Fields, typeOfValue(name, fields[name]))
				}
			}
		}
	} else {
		of = typeOfValue("", v)
	}
	text, payload, err := c.encode(&of, v)
	if err != nil {
		return nil, err
	}
	id, known := c.ids[string(text)]
	if !known {
		if id = c.First + uint32(len(c.ids)); c.ids == nil {
			c.ids = map[string]uint32{}
		}
		c.ids[string(text)] = id
		c.Put(id, string(text))
	}
	return Frame(id, payload), nil
}

// encode returns a schema and the bytes of a value in it.
func (c *Converter) encode(of *connectType, v any) (text, payload []byte, err error) {
	switch c.Kind {
	case registry.Protobuf:
		return c.encodeProto(of, v)
	case registry.JSON:
		if text, err = json.Marshal(of.inJSONSchema(-1)); err == nil {
			payload, err = of.appendJSON(nil, v)
		}
		return text, payload, err
	}
	if text, err = json.Marshal(of.inAvro(map[string]bool{})); err != nil {
		return nil, nil, err
	}
	schema, err := avro.Parse(string(text))
	if err == nil {
		payload, err = schema.Encode(of.value(v))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %s", err, text)
	}
	return text, payload, nil
}

// inAvro is the schema of Avro. Records that have been written are named again.
func (t *connectType) inAvro(named map[string]bool) any {
	of := map[string]any{"type": t.Type}
	var out any = of
	switch t.Type {
	case "int8", "int16", "int32":
		of["type"] = "int"
	case "int64":
		of["type"] = "long"
	case "struct":
		name := t.Name
		if name == "" {
			name = "Record_" + t.Field
		}
		if named[name] {
			out = name
			break
		}
		named[name] = true
		fields := []any{}
		for i := range t.Fields {
			fields = append(fields, map[string]any{"name": t.Fields[i].Field, "type": t.Fields[i].inAvro(named)})
		}
		of["type"], of["name"], of["fields"] = "record", name, fields
	}
	if t.Name != "" {
		of["connect.name"], of["connect.version"] = t.Name, 1
	}
	if t.Name == "org.apache.kafka.connect.data.Decimal" {
		scale, _ := strconv.Atoi(t.Parameters["scale"])
		of["logicalType"], of["scale"], of["precision"] = "decimal", scale, 64
		of["connect.parameters"] = map[string]any{"scale": t.Parameters["scale"]}
	}
	if t.Optional {
		return []any{"null", out}
	}
	return out
}

// typeOfValue is the schema of a value without one.
func typeOfValue(field string, v any) connectType {
	t := connectType{Field: field}
	switch v := v.(type) {
	case map[string]any:
		t.Type = "struct"
		for _, name := range slices.Sorted(maps.Keys(v)) {
			t.Fields = append(t.Fields, typeOfValue(name, v[name]))
		}
	case string:
		t.Type = "string"
	case bool:
		t.Type = "boolean"
	case json.Number:
		t.Type = "int64"
		if strings.ContainsAny(v.String(), ".e") {
			t.Type = "double"
		}
	default: // null
		t.Type, t.Optional = "string", true
	}
	return t
}

// value is a value as the encoder of Avro takes it.
func (t *connectType) value(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for i := range t.Fields {
			f := &t.Fields[i]
			out[f.Field] = f.value(v[f.Field])
		}
		return out
	case json.Number:
		n, _ := v.Int64()
		switch t.Type {
		case "int8", "int16", "int32":
			return int32(n)
		case "int64":
			return n
		}
		x, _ := v.Float64()
		return x
	case string:
		if t.Type != "bytes" {
			return v
		}
		b, err := base64.StdEncoding.DecodeString(v)
		if err != nil {
			return v // the encoder refuses it
		}
		return b
	}
	return v
}
