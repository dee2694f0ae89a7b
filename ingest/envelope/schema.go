package envelope

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// maxSchema bounds the bytes of a schema.
const maxSchema = 1 << 20

// keptSchemas is the number of schemas that are kept: those of the value and the key, before and
// after a change of the table.
const keptSchemas = 4

// schema is a schema of Kafka Connect in JSON.
type schema struct {
	Type       string            `json:"type"`
	Name       string            `json:"name"`
	Field      string            `json:"field"`
	Parameters map[string]string `json:"parameters"`
	Fields     []schema          `json:"fields"`
}

// conversion turns a value of Connect's JSON into one that package wire knows.
type conversion struct {
	do    func(dst, raw []byte, c *conversion) (out []byte, reason string)
	scale int // of decimals; of times and durations the digits of a second
}

// table has the columns of a row whose values are converted.
type table struct {
	names []string // of all columns, in order
	by    []*conversion
	place map[string]int
	any   bool // some column is converted
}

// at returns the conversion of a column, or nil. next is where the column is likely to be.
func (t *table) at(name []byte, next int) *conversion {
	if next < len(t.names) && t.names[next] == string(name) {
		return t.by[next]
	}
	if i, ok := t.place[string(name)]; ok {
		return t.by[i]
	}
	return nil
}

// tableOf makes the table of a struct; nil for no struct.
func tableOf(s *schema) *table {
	if s == nil || s.Type != "struct" {
		return nil
	}
	t := &table{place: make(map[string]int, len(s.Fields))}
	for i := range s.Fields {
		f := &s.Fields[i]
		c := conversionOf(f)
		t.place[f.Field] = len(t.names)
		t.names, t.by = append(t.names, f.Field), append(t.by, c)
		t.any = t.any || c != nil
	}
	return t
}

// conversionOf is the conversion of values of a schema. It is nil if they stay as they are.
func conversionOf(s *schema) *conversion {
	switch s.Name {
	case "org.apache.kafka.connect.data.Decimal":
		scale, err := strconv.Atoi(s.Parameters["scale"])
		if err != nil || scale < -maxScale || scale > maxScale {
			return &conversion{do: badScale}
		}
		return &conversion{do: decimal, scale: scale}
	case variableName:
		return &conversion{do: variable}
	case "io.debezium.time.Date", "org.apache.kafka.connect.data.Date":
		return &conversion{do: days}
	case "io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp":
		return &conversion{do: instant, scale: 3}
	case "io.debezium.time.MicroTimestamp":
		return &conversion{do: instant, scale: 6}
	case "io.debezium.time.NanoTimestamp":
		return &conversion{do: instant, scale: 9}
	case "io.debezium.time.MicroDuration":
		return &conversion{do: duration, scale: 6}
	case "io.debezium.time.NanoDuration":
		return &conversion{do: duration, scale: 9}
	case "io.debezium.time.Time", "io.debezium.time.MicroTime", "io.debezium.time.NanoTime", "org.apache.kafka.connect.data.Time":
		return &conversion{do: timeOfDay}
	}
	if s.Type == "bytes" {
		return &conversion{do: untyped}
	}
	return nil
}

const variableName = "io.debezium.data.VariableScaleDecimal"

// known is a schema that has been read.
type known struct {
	text   []byte      // of the schema
	prefix []byte      // of a message that begins with the schema, up to its payload; nil: none has
	row    *table      // of the struct that it is of
	after  *table      // of the row in a change of Debezium; nil: it is of no change
	value  *conversion // of a value that is no struct
}

// schemas keeps the last schemas, the latest first.
type schemas struct{ list []*known }

// byPrefix finds the schema that a message begins with, with the place of its payload.
func (s *schemas) byPrefix(b []byte) (k *known, payload int) {
	for i, k := range s.list {
		if k.prefix != nil && bytes.HasPrefix(b, k.prefix) {
			s.first(i)
			return k, len(k.prefix)
		}
	}
	return nil, 0
}

func (s *schemas) first(i int) {
	if i > 0 {
		k := s.list[i]
		copy(s.list[1:i+1], s.list[:i])
		s.list[0] = k
	}
}

// read reads a schema. A null one is that of values that stay as they are.
func (s *schemas) read(text []byte) (*known, string) {
	if len(text) > maxSchema {
		return nil, "the schema has " + strconv.Itoa(len(text)) + " bytes, more than " + strconv.Itoa(maxSchema)
	}
	for i, k := range s.list {
		if bytes.Equal(k.text, text) {
			s.first(i)
			return k, ""
		}
	}
	k, reason := newKnown(bytes.Clone(text))
	if reason != "" {
		return nil, reason
	}
	if len(s.list) < keptSchemas {
		s.list = append(s.list, nil)
	}
	copy(s.list[1:], s.list)
	s.list[0] = k
	return k, ""
}

// newKnown reads the text of a schema.
func newKnown(text []byte) (*known, string) {
	var root *schema
	if err := json.Unmarshal(text, &root); err != nil {
		return nil, "the schema is none of Kafka Connect's: " + err.Error()
	}
	return knownOf(text, root), ""
}

// knownOf is a schema of Connect that has been read. It is nil for values without one.
func knownOf(text []byte, root *schema) *known {
	k := &known{text: text, row: tableOf(root)}
	if root != nil {
		k.value = conversionOf(root)
		for i := range root.Fields {
			if root.Fields[i].Field == "after" {
				k.after = tableOf(&root.Fields[i])
			}
		}
	}
	return k
}
