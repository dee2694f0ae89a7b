package registrytest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// wrappers are the messages of google/protobuf/wrappers.proto, in its order, with the types of
// Connect that ProtobufConverter writes them for where a value has no record around it.
var wrappers = []struct {
	name, typ string
	connect   []string
}{
	{"DoubleValue", "double", []string{"double"}},
	{"FloatValue", "float", []string{"float"}},
	{"Int64Value", "int64", []string{"int64"}},
	{"UInt64Value", "uint64", nil},
	{"Int32Value", "int32", []string{"int8", "int16", "int32"}},
	{"UInt32Value", "uint32", nil},
	{"BoolValue", "bool", []string{"boolean"}},
	{"StringValue", "string", []string{"string"}},
	{"BytesValue", "bytes", []string{"bytes"}},
}

// messageTypes are the messages that stand for Connect's own types.
var messageTypes = map[string]string{
	"org.apache.kafka.connect.data.Decimal":   "confluent.type.Decimal",
	"org.apache.kafka.connect.data.Date":      "google.type.Date",
	"org.apache.kafka.connect.data.Time":      "google.type.TimeOfDay",
	"org.apache.kafka.connect.data.Timestamp": "google.protobuf.Timestamp",
}

var messageFiles = map[string]string{
	"confluent.type.Decimal": "confluent/type/decimal.proto", "google.type.Date": "google/type/date.proto",
	"google.type.TimeOfDay": "google/type/timeofday.proto", "google.protobuf.Timestamp": "google/protobuf/timestamp.proto",
}

var scalarTypes = map[string]string{
	"int8": "int32", "int16": "int32", "int32": "int32", "int64": "int64", "float": "float", "double": "double", "boolean": "bool", "string": "string", "bytes": "bytes",
}

// encodeProto returns the schema of a value, and the value behind the indexes of its message.
func (c *Converter) encodeProto(of *connectType, v any) (text, payload []byte, err error) {
	if of.Type != "struct" {
		var file strings.Builder
		file.WriteString("syntax = \"proto3\";\npackage google.protobuf;\n")
		index := -1
		for i, w := range wrappers {
			fmt.Fprintf(&file, "message %s { %s value = 1; }\n", w.name, w.typ)
			if slices.Contains(w.connect, of.Type) {
				index = i
			}
		}
		if index < 0 {
			return nil, nil, fmt.Errorf("a value of type %s alone", of.Type)
		}
		payload = protowire.AppendVarint(protowire.AppendVarint(nil, 2), uint64(2*index)) // zigzag
		if index == 0 {
			payload = []byte{0}
		}
		payload, err = c.appendProto(payload, 1, of, v)
		return []byte(file.String()), payload, err
	}
	imports := map[string]bool{}
	name := of.Name
	if name == "" {
		name = "ConnectDefault1"
	}
	pkg := ""
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		pkg, name = "package "+name[:i]+";\n", name[i+1:]
	}
	var body strings.Builder
	c.writeMessage(&body, name, of, imports)
	var head strings.Builder
	head.WriteString("syntax = \"proto3\";\n" + pkg)
	for _, file := range slices.Sorted(maps.Keys(imports)) {
		fmt.Fprintf(&head, "import %q;\n", file)
	}
	payload, err = c.appendMessage([]byte{0}, of, v)
	return []byte(head.String() + body.String()), payload, err
}

// typeName is the type of a field in Protobuf.
func (t *connectType) typeName() string {
	switch {
	case messageTypes[t.Name] != "":
		return messageTypes[t.Name]
	case t.Type != "struct":
		return scalarTypes[t.Type]
	}
	name := t.Name[strings.LastIndexByte(t.Name, '.')+1:]
	if name == "" {
		name = "ConnectDefault_" + t.Field
	}
	if name == t.Field {
		name += "Message"
	}
	return name
}

func (c *Converter) writeMessage(to *strings.Builder, name string, t *connectType, imports map[string]bool) {
	fmt.Fprintf(to, "message %s {\n", name)
	within := map[string]bool{}
	for i := range t.Fields {
		f := &t.Fields[i]
		typ, label, meta := f.typeName(), "", ""
		switch file := messageFiles[typ]; {
		case file != "":
			imports[file] = true
			if typ == "confluent.type.Decimal" {
				imports["confluent/meta.proto"] = true
				meta = fmt.Sprintf(` [(confluent.field_meta) = { params: [ { key: "scale", value: %q } ] }]`, f.Parameters["scale"])
			}
		case f.Type == "struct":
			if !within[typ] {
				within[typ] = true
				c.writeMessage(to, typ, f, imports)
			}
		case f.Optional && !c.Lossy:
			label = "optional "
		}
		fmt.Fprintf(to, "%s%s %s = %d%s;\n", label, typ, f.Field, i+1, meta)
	}
	to.WriteString("}\n")
}

func (c *Converter) appendMessage(dst []byte, t *connectType, v any) (_ []byte, err error) {
	fields, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%v is no record", v)
	}
	for i := range t.Fields {
		f := &t.Fields[i]
		value, has := fields[f.Field]
		if !has || value == nil {
			continue
		}
		if dst, err = c.appendProto(dst, protowire.Number(i+1), f, value); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// appendProto appends a field. One without presence is left out where it is its default.
func (c *Converter) appendProto(dst []byte, n protowire.Number, t *connectType, v any) ([]byte, error) {
	asBytes := func(b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(dst, n, protowire.BytesType), b)
	}
	integer := func() int64 {
		number, _ := v.(json.Number)
		i, _ := number.Int64()
		return i
	}
	var parts []byte
	part := func(n protowire.Number, x int64) {
		if x != 0 {
			parts = protowire.AppendVarint(protowire.AppendTag(parts, n, protowire.VarintType), uint64(x))
		}
	}
	switch messageTypes[t.Name] {
	case "confluent.type.Decimal":
		text, _ := v.(string)
		digits, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, err
		}
		scale, err := strconv.Atoi(t.Parameters["scale"])
		if err != nil {
			return nil, err
		}
		parts = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), digits)
		part(2, 30)
		part(3, int64(scale))
		return asBytes(parts), nil
	case "google.type.Date":
		year, month, day := time.Unix(86400*integer(), 0).UTC().Date()
		part(1, int64(year))
		part(2, int64(month))
		part(3, int64(day))
		return asBytes(parts), nil
	case "google.type.TimeOfDay":
		part(1, integer()/3_600_000)
		return asBytes(parts), nil
	case "google.protobuf.Timestamp":
		at := time.UnixMilli(integer())
		part(1, at.Unix())
		part(2, int64(at.Nanosecond()))
		return asBytes(parts), nil
	}
	keeps := t.Optional && !c.Lossy // its default, too
	switch t.Type {
	case "struct":
		b, err := c.appendMessage(nil, t, v)
		if err != nil {
			return nil, err
		}
		return asBytes(b), nil
	case "string", "bytes":
		text, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("%v is no text", v)
		}
		b := []byte(text)
		if t.Type == "bytes" {
			var err error
			if b, err = base64.StdEncoding.DecodeString(text); err != nil {
				return nil, err
			}
		}
		if len(b) == 0 && !keeps {
			return dst, nil
		}
		return asBytes(b), nil
	case "boolean":
		if v != true && !keeps {
			return dst, nil
		}
		return protowire.AppendVarint(protowire.AppendTag(dst, n, protowire.VarintType), protowire.EncodeBool(v == true)), nil
	case "float", "double":
		number, _ := v.(json.Number)
		x, err := number.Float64()
		if err != nil {
			return nil, err
		}
		switch {
		case x == 0 && !keeps:
			return dst, nil
		case t.Type == "float":
			return protowire.AppendFixed32(protowire.AppendTag(dst, n, protowire.Fixed32Type), math.Float32bits(float32(x))), nil
		}
		return protowire.AppendFixed64(protowire.AppendTag(dst, n, protowire.Fixed64Type), math.Float64bits(x)), nil
	case "int8", "int16", "int32", "int64":
		if integer() == 0 && !keeps {
			return dst, nil
		}
		return protowire.AppendVarint(protowire.AppendTag(dst, n, protowire.VarintType), uint64(integer())), nil
	}
	return nil, errors.New("a value of type " + t.Type)
}
