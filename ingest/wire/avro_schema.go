package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/avro"

	"streamd/ingest/registry"
)

// avroKind is a type of Avro, by how its values are written.
type avroKind uint8

const (
	avroNull avroKind = iota
	avroBoolean
	avroInt // and long
	avroFloat
	avroDouble
	avroBytes
	avroString
	avroFixed
	avroEnum
	avroArray
	avroMap
	avroUnion
	avroRecord
)

// avroMeaning is what the values of a type mean, if more than they are.
type avroMeaning uint8

const (
	meansItself avroMeaning = iota
	meansDate
	meansTime    // units since 1970
	meansSeconds // units
	meansDecimal
	meansScaled // Debezium's VariableScaleDecimal: a record of a scale and the bytes of a decimal
	meansUUID   // of 16 bytes
	meansClock  // a time of day
	meansMonths // Avro's duration, of months and days
)

// avroType is a type. A named type is one avroType wherever it is used, so that recursive types are
// circles.
type avroType struct {
	kind      avroKind
	means     avroMeaning
	perSecond int64 // units of meansTime and meansSeconds
	scale     int
	size      int // of avroFixed
	name      string
	fields    []avroField // of avroRecord
	branches  []*avroType // of avroUnion
	items     *avroType   // of avroArray and avroMap
	symbols   [][]byte
}

type avroField struct {
	name string
	typ  *avroType
}

// avroSchema is a schema that has been read.
type avroSchema struct {
	root        *avroType
	fingerprint [8]byte // CRC-64-AVRO of its canonical form, in the order of a payload
}

// maxAvroTypes bounds the types of a schema.
const maxAvroTypes = 1 << 16

// readAvroSchema reads a schema and those that it refers to.
func readAvroSchema(s *registry.Schema) (*avroSchema, error) {
	var all avro.SchemaCache
	t := avroTypes{named: map[string]*avroType{}}
	for _, reference := range s.References {
		of, err := parseAvro(&all, reference.Text)
		if err != nil {
			return nil, fmt.Errorf("the schema %q that it refers to: %w", reference.Name, err)
		}
		t.typeOf(of.Root(), "")
	}
	main, err := parseAvro(&all, s.Text)
	if err != nil {
		return nil, err
	}
	out := &avroSchema{root: t.typeOf(main.Root(), "")}
	if t.problem != nil {
		return nil, t.problem
	}
	sum := avro.NewRabin()
	sum.Write(main.Canonical())
	for i, n := 0, sum.Sum64(); i < len(out.fingerprint); i++ {
		out.fingerprint[i] = byte(n >> (8 * i))
	}
	return out, nil
}

// parseAvro reads the text of a schema. The parser refuses decimals that Avro does not know. Kafka
// Connect's converter writes them nevertheless: with a negative scale, for a NUMBER(5,-2) of
// Oracle, and with a scale beyond its precision, which is 64 where Connect knows of none.
func parseAvro(all *avro.SchemaCache, text string) (*avro.Schema, error) {
	lax := avro.WithLaxNames(nil)
	s, err := all.Parse(text, lax)
	if err == nil {
		return s, nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var root any
	if d.Decode(&root) != nil || !disarmDecimals(root) {
		return nil, err
	}
	again, errMarshal := json.Marshal(root)
	if errMarshal != nil {
		return nil, err
	}
	return all.Parse(string(again), lax)
}

// disarmDecimals takes the logical type off Connect's decimals, whose scale is in another place,
// too. It is false if there are none.
func disarmDecimals(v any) (some bool) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			some = disarmDecimals(x) || some
		}
	case map[string]any:
		if v["logicalType"] == "decimal" && v["connect.name"] == connectDecimal {
			delete(v, "logicalType")
			some = true
		}
		for _, x := range v {
			some = disarmDecimals(x) || some
		}
	}
	return some
}

// connectDecimal is Connect's name of decimals.
const connectDecimal = "org.apache.kafka.connect.data.Decimal"

// connectScaled is Debezium's name of decimals that have their own scale.
const connectScaled = "io.debezium.data.VariableScaleDecimal"

// connectScale is the scale of a decimal of Connect, which is bytes for Avro.
func connectScale(n *avro.SchemaNode) (scale int, ok bool) {
	if name, _ := n.Props["connect.name"].(string); name != connectDecimal {
		return 0, false
	}
	parameters, _ := n.Props["connect.parameters"].(map[string]any)
	text, _ := parameters["scale"].(string)
	scale, err := strconv.Atoi(text)
	return scale, err == nil && scale >= -maxAvroScale && scale <= maxAvroScale
}

// CheckWritten says why a schema cannot be Options.Written.
func CheckWritten(s *registry.Schema) error {
	if s.Kind == registry.Protobuf {
		_, err := readDescriptors([]byte(s.Text), s.Message)
		return err
	}
	_, err := readAvroSchema(s)
	return err
}

// avroTypes makes types of a parsed schema.
type avroTypes struct {
	named   map[string]*avroType // by full name
	count   int
	problem error
}

var avroKinds = map[string]avroKind{
	"null": avroNull, "boolean": avroBoolean, "int": avroInt, "long": avroInt, "float": avroFloat, "double": avroDouble,
	"bytes": avroBytes, "string": avroString, "fixed": avroFixed, "enum": avroEnum, "array": avroArray, "map": avroMap,
	"union": avroUnion, "record": avroRecord, "error": avroRecord,
}

// typeOf is the type of a node within a namespace. The parser has bounded the depth of nodes.
func (t *avroTypes) typeOf(n *avro.SchemaNode, namespace string) *avroType {
	if t.count++; t.count > maxAvroTypes {
		t.problem = fmt.Errorf("the schema has more than %d types", maxAvroTypes)
	}
	kind, known := avroKinds[n.Type]
	if t.problem != nil {
		return &avroType{}
	}
	if !known { // the name of a type
		for _, name := range []string{namespace + "." + n.Type, n.Type} {
			if of := t.named[name]; of != nil && (name == n.Type || !strings.Contains(n.Type, ".")) {
				return of
			}
		}
		t.problem = fmt.Errorf("the schema has a type %.100q, which it does not define", n.Type)
		return &avroType{}
	}
	typ := &avroType{kind: kind, size: n.Size, name: n.Name}
	switch kind {
	case avroRecord, avroEnum, avroFixed:
		full := n.Name
		if !strings.Contains(full, ".") && n.Namespace != "" {
			full = n.Namespace + "." + full
		}
		if namespace = ""; strings.Contains(full, ".") {
			namespace = full[:strings.LastIndexByte(full, '.')]
		}
		t.named[full] = typ
	}
	typ.setMeaning(n)
	for i := range n.Fields {
		f := &n.Fields[i]
		typ.fields = append(typ.fields, avroField{f.Name, t.typeOf(&f.Type, namespace)})
	}
	for i := range n.Branches {
		typ.branches = append(typ.branches, t.typeOf(&n.Branches[i], namespace))
	}
	switch {
	case kind == avroArray && n.Items != nil:
		typ.items = t.typeOf(n.Items, namespace)
	case kind == avroMap && n.Values != nil:
		typ.items = t.typeOf(n.Values, namespace)
	case kind == avroArray || kind == avroMap:
		t.problem = errors.New("the schema has an array or a map without a type of its elements")
	}
	for _, s := range n.Symbols {
		typ.symbols = append(typ.symbols, []byte(s))
	}
	return typ
}

// connectNames are the types of Kafka Connect and Debezium, whose converter to Avro keeps their
// names beside Avro's own.
var connectNames = map[string]struct {
	means     avroMeaning
	perSecond int64
}{
	"io.debezium.time.Date":                   {meansDate, 0},
	"io.debezium.time.Timestamp":              {meansTime, 1e3},
	"io.debezium.time.MicroTimestamp":         {meansTime, 1e6},
	"io.debezium.time.NanoTimestamp":          {meansTime, 1e9},
	"io.debezium.time.Time":                   {meansClock, 0},
	"io.debezium.time.MicroTime":              {meansClock, 0},
	"io.debezium.time.NanoTime":               {meansClock, 0},
	"io.debezium.time.MicroDuration":          {meansSeconds, 1e6},
	"io.debezium.time.NanoDuration":           {meansSeconds, 1e9},
	connectScaled:                             {meansScaled, 0},
	"org.apache.kafka.connect.data.Date":      {meansDate, 0},
	"org.apache.kafka.connect.data.Timestamp": {meansTime, 1e3},
	"org.apache.kafka.connect.data.Time":      {meansClock, 0},
}

// avroLogical are Avro's logical types, by the kind that they belong to.
var avroLogical = map[string]struct {
	means     avroMeaning
	perSecond int64
}{
	"date":                   {meansDate, 0},
	"timestamp-millis":       {meansTime, 1e3},
	"timestamp-micros":       {meansTime, 1e6},
	"timestamp-nanos":        {meansTime, 1e9},
	"local-timestamp-millis": {meansTime, 1e3},
	"local-timestamp-micros": {meansTime, 1e6},
	"local-timestamp-nanos":  {meansTime, 1e9},
	"time-millis":            {meansClock, 0},
	"time-micros":            {meansClock, 0},
}

// setMeaning reads the logical type. One that does not belong to the kind is none, as Avro says.
func (t *avroType) setMeaning(n *avro.SchemaNode) {
	name, _ := n.Props["connect.name"].(string)
	said, is := connectNames[name]
	if !is {
		said, is = avroLogical[n.LogicalType]
	}
	switch {
	case is && t.kind == avroInt && said.means != meansScaled, is && t.kind == avroRecord && said.means == meansScaled && t.isScaled(n):
		t.means, t.perSecond = said.means, said.perSecond
	case n.LogicalType == "decimal" && (t.kind == avroBytes || t.kind == avroFixed):
		t.means, t.scale = meansDecimal, n.Scale
	case n.LogicalType == "" && t.kind == avroBytes:
		if scale, ok := connectScale(n); ok {
			t.means, t.scale = meansDecimal, scale
		}
	case n.LogicalType == "uuid" && t.kind == avroFixed && t.size == 16:
		t.means = meansUUID
	case n.LogicalType == "duration" && t.kind == avroFixed:
		t.means = meansMonths
	}
}

// isScaled is whether a record has the fields of a VariableScaleDecimal.
func (*avroType) isScaled(n *avro.SchemaNode) bool {
	return len(n.Fields) == 2 && n.Fields[0].Name == "scale" && n.Fields[0].Type.Type == "int" &&
		n.Fields[1].Name == "value" && n.Fields[1].Type.Type == "bytes"
}

// isScalar is whether the values are single ones.
func (t *avroType) isScalar() bool {
	switch t.kind {
	case avroArray, avroMap, avroUnion:
		return false
	case avroRecord:
		return t.means == meansScaled
	}
	return true
}

// refusal is why values of the type are no features, or "".
func (t *avroType) refusal() string {
	switch {
	case t.kind == avroMap:
		return "it is a map, whose keys are no columns: ignore it"
	case t.means == meansClock:
		return "it is a time of day, which is no instant: ignore it"
	case t.means == meansMonths:
		return "it is a duration of months and days, which is no number: ignore it"
	}
	return ""
}
