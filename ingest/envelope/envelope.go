package envelope

import (
	"bytes"
	"fmt"
	"slices"

	"streamd/ingest/kafka"
	"streamd/ingest/registry"
	"streamd/ingest/wire"
)

// Kind is a kind of envelopes.
type Kind uint8

// The kinds.
const (
	None Kind = iota
	Debezium
	Connect
	CloudEvents
)

var kindNames = []string{"none", "debezium", "connect", "cloudevents"}

// String is the kind's name: none, debezium, connect or cloudevents.
func (k Kind) String() string { return kindNames[k] }

// ParseKind is the inverse of String.
func ParseKind(name string) (Kind, error) {
	i := slices.Index(kindNames, name)
	if i < 0 {
		return None, fmt.Errorf("unknown envelope %q: want none, debezium, connect or cloudevents", name)
	}
	return Kind(i), nil
}

// Fate is what a message does.
type Fate uint8

// The fates.
const (
	Row      Fate = iota // it has a payload for package wire
	Retire               // the block of its key is retired
	Truncate             // all blocks are retired
	Pass                 // it has no effect
)

// Message is a message without its envelope.
type Message struct {
	Fate        Fate
	ContentType string // of the payload; empty: it is not declared
	Payload     []byte // of a Row; valid until the next message is opened
}

// Error says why a message is refused.
type Error struct {
	Kind   Kind
	Column string // empty: the trouble is not with one column
	Reason string
}

func (e *Error) Error() string {
	if e.Column != "" {
		return fmt.Sprintf("%s: column %q: %s", e.Kind, e.Column, e.Reason)
	}
	return e.Kind.String() + ": " + e.Reason
}

// Opener takes the payloads out of messages of a kind. It belongs to one goroutine.
type Opener struct {
	kind       Kind
	opts       Options
	schemas    schemas
	framed     map[uint32]*framed // by id
	out        []byte             // of rows that were converted
	key        []byte             // of keys
	transcoded []byte             // of messages of Avro and Protobuf
	keyText    []byte             // of keys of these
	decoded    []byte             // of base64 and texts
	media      string             // the last content type within an event

	// Of the last message:
	row     []byte
	typed   bool        // it had a schema
	from    wire.Format // that was turned into JSON; zero: it was JSON
	reasons []reason    // of values that could not be converted
}

// reason is why a column's value cannot be used, if the column is learned from.
type reason struct{ column, why string }

const (
	mostReasons = 64
	keptOut     = 1 << 20 // bytes of memory that is kept for the next messages
)

// Options say what an opener needs beside the kind.
type Options struct {
	Label   string  // the name of the label's column
	Schemas Schemas // of framed messages and keys; nil: they are refused
	Bytes   int     // that a message of Avro or Protobuf may take as JSON; 0 means 64 MiB
}

// New makes an opener for messages of a kind.
func New(kind Kind, opts Options) *Opener {
	if opts.Bytes == 0 {
		opts.Bytes = 64 << 20
	}
	return &Opener{kind: kind, opts: opts}
}

// Open reads the envelope of a record that has a value. contentType is the record's, or empty. The
// error is an *Error, or the *registry.AwayError of Options.Schemas. A row that needs no conversion
// aliases the record's value.
func (o *Opener) Open(r *kafka.Record, contentType string) (Message, error) {
	o.row, o.typed, o.from, o.reasons = nil, false, 0, o.reasons[:0]
	if cap(o.out) > keptOut {
		o.out = nil
	}
	if cap(o.transcoded) > keptOut {
		o.transcoded = nil
	}
	switch o.kind {
	case Debezium:
		if id, rest, framed := registry.Unframe(r.Value); framed {
			return o.debeziumFramed(id, rest)
		}
		var m opened
		if reason := o.unwrap(r.Value, &m); reason != "" {
			return o.fail("the message is no JSON of Debezium: %s", reason)
		}
		return o.debezium(&m)
	case Connect:
		if _, _, framed := registry.Unframe(r.Value); framed { // what frames it has no schema and payload
			return Message{ContentType: contentType, Payload: r.Value}, nil
		}
		return o.connect(r.Value)
	case CloudEvents:
		return o.event(r, contentType)
	}
	return Message{ContentType: contentType, Payload: r.Value}, nil
}

func (o *Opener) fail(format string, args ...any) (Message, error) {
	return Message{}, &Error{Kind: o.kind, Reason: fmt.Sprintf(format, args...)}
}

const jsonType = "application/json"

// start is where the text of a message begins, behind a byte order mark and white space.
func start(b []byte) int {
	i := 0
	if bytes.HasPrefix(b, []byte("\xef\xbb\xbf")) {
		i = 3
	}
	return skipSpace(b, i)
}

// The fields that tell envelopes. A message that has one of them twice is refused.
const (
	fieldSchema = iota
	fieldPayload
	fieldBefore
	fieldAfter
	fieldOp
	fieldSource
	fieldTime
	fieldDeleted
	fieldDDL
	fieldDatabase
	fieldStatus
	fieldEvents
	fieldCollections
	fieldSpec
	fieldData
	fieldBase64
	fieldDataType
	fields
)

// fieldOf is the field of a name, or −1.
func fieldOf(name []byte) int {
	switch string(name) {
	case "schema":
		return fieldSchema
	case "payload":
		return fieldPayload
	case "before":
		return fieldBefore
	case "after":
		return fieldAfter
	case "op":
		return fieldOp
	case "source":
		return fieldSource
	case "ts_ms":
		return fieldTime
	case "__deleted":
		return fieldDeleted
	case "ddl":
		return fieldDDL
	case "databaseName":
		return fieldDatabase
	case "status":
		return fieldStatus
	case "event_count":
		return fieldEvents
	case "data_collections":
		return fieldCollections
	case "specversion":
		return fieldSpec
	case "data":
		return fieldData
	case "data_base64":
		return fieldBase64
	case "datacontenttype":
		return fieldDataType
	}
	return -1
}

// shape is what an object has on its outermost level.
type shape struct {
	b     []byte
	span  span // of the object
	n     int  // fields
	has   [fields]span
	deep  [fields]bool // the value has brackets within its own
	marks bool         // some name begins with __
	nests bool         // some value has brackets
	twice bool         // a field of has comes twice
}

// read reads the object at b[i].
func (s *shape) read(b []byte, i int) (reason string) {
	*s = shape{b: b}
	if i >= len(b) || b[i] != '{' {
		return "it is no object of JSON"
	}
	all := in(b, i)
	for all.next() {
		s.n++
		name := all.name
		if all.escaped {
			name = []byte(all.text())
		}
		c := all.value.opens(b)
		s.nests = s.nests || c == '{' || c == '['
		s.marks = s.marks || isMark(name, false)
		f := fieldOf(name)
		if f < 0 {
			continue
		}
		s.twice = s.twice || s.has[f].is()
		s.has[f], s.deep[f] = all.value, all.deep
	}
	s.span = span{i, all.at}
	return all.reason
}

// raw is the value of a field as it is written; nil: there is none.
func (s *shape) raw(field int) []byte {
	if !s.has[field].is() {
		return nil
	}
	return s.has[field].of(s.b)
}

// hasSchema reports whether the object is a schema and its payload, and nothing else.
func (s *shape) hasSchema() bool {
	return s.n == 2 && s.has[fieldSchema].is() && s.has[fieldPayload].is()
}

// isChange reports whether the object is a change of a row in Debezium's words.
func (s *shape) isChange() bool {
	if !s.has[fieldOp].is() || s.has[fieldOp].opens(s.b) != '"' {
		return false
	}
	image := func(f int) bool {
		v := s.has[f]
		return v.is() && (v.isObject(s.b) || v.isNull(s.b))
	}
	return image(fieldSource) && s.has[fieldSource].isObject(s.b) || image(fieldBefore) || image(fieldAfter)
}

// opened is a message whose schema has been taken off.
type opened struct {
	shape         // of the payload, if that is an object
	value  span   // the payload
	schema *known // nil: it has none
}

// unwrap takes the schema off a message, if it has one.
func (o *Opener) unwrap(b []byte, to *opened) (reason string) {
	i := start(b)
	if k, payload := o.schemas.byPrefix(b[i:]); k != nil {
		at := i + skipSpace(b[i:], payload)
		if at < len(b) && b[at] == '{' {
			if reason := to.read(b, at); reason != "" {
				return reason
			}
			if end := skipSpace(b, to.span.to); end < len(b) && b[end] == '}' && skipSpace(b, end+1) == len(b) {
				to.value, to.schema = to.span, k
				return ""
			}
		}
	}
	if reason := to.read(b, i); reason != "" {
		return reason
	}
	if skipSpace(b, to.span.to) != len(b) {
		return "there is something behind it"
	}
	to.value, to.schema = to.span, nil
	if !to.hasSchema() {
		return ""
	}
	if to.twice {
		return "a field is given twice"
	}
	payload := to.has[fieldPayload]
	k, reason := o.schemas.read(to.raw(fieldSchema))
	if reason != "" {
		return reason
	}
	if to.has[fieldSchema].to < payload.from && k.prefix == nil {
		k.prefix = bytes.Clone(b[i:payload.from])
	}
	to.schema, to.value = k, payload
	if payload.isObject(b) {
		return to.read(b, payload.from)
	}
	to.shape = shape{b: b}
	return ""
}

// debezium opens a message of Debezium.
func (o *Opener) debezium(m *opened) (Message, error) {
	b := m.b
	if !m.value.isObject(b) {
		if m.value.isNull(b) {
			return Message{Fate: Retire}, nil
		}
		return o.fail("the payload is neither a change nor a row")
	}
	if m.twice {
		return o.fail("a field of the envelope is given twice")
	}
	if m.isChange() {
		return o.change(m)
	}
	switch {
	case m.n == 1 && m.has[fieldTime].is():
		return Message{Fate: Pass}, nil // a heartbeat
	case m.has[fieldDDL].is() && (m.has[fieldSource].is() || m.has[fieldDatabase].is()):
		return o.fail("it is a change of a table's columns (ddl), which belongs to another topic: let kafka.topic be the topic of the table")
	case m.has[fieldStatus].is() && m.has[fieldEvents].is() && m.has[fieldCollections].is():
		return o.fail("it is the begin or end of a transaction, which belongs to another topic: let kafka.topic be the topic of the table")
	case isTrue(m.raw(fieldDeleted)):
		return Message{Fate: Retire}, nil
	}
	var t *table
	if m.schema != nil {
		t = m.schema.row
	}
	return o.take(b, m.span, t, m.marks, m.nests)
}

// isTrue is whether a value is true, as a boolean or a text.
func isTrue(raw []byte) bool { return string(raw) == "true" || string(raw) == `"true"` }

// change opens a change of a row.
func (o *Opener) change(m *opened) (Message, error) {
	switch op, _ := textOf(m.raw(fieldOp)); op {
	case "c", "u", "r":
		after := m.has[fieldAfter]
		if after.is() && after.opens(m.b) == '"' {
			return o.fail("the after image is a text, as that of MongoDB is: have the connector unwrap it (ExtractNewDocumentState)")
		}
		if !after.is() || !after.isObject(m.b) {
			return o.fail("a change with op %s has no after image", op)
		}
		var t *table
		if m.schema != nil {
			t = m.schema.after
		}
		return o.take(m.b, after, t, false, m.deep[fieldAfter])
	case "d":
		return Message{Fate: Retire}, nil
	case "t":
		return Message{Fate: Truncate}, nil
	case "m":
		return Message{Fate: Pass}, nil
	default:
		return o.fail("op is %.20q: want c, u, r, d, t or m", op)
	}
}

// connect opens a message of Connect's JSON converter.
func (o *Opener) connect(b []byte) (Message, error) {
	var m opened
	if reason := o.unwrap(b, &m); reason != "" {
		return o.fail("the message is no JSON of Kafka Connect: %s", reason)
	}
	switch {
	case m.schema == nil:
		return o.fail("the message has not just a schema and a payload: with schemas.enable=false it is a row as it is, and format.envelope: none reads it")
	case m.value.isNull(b):
		return Message{Fate: Retire}, nil
	case !m.value.isObject(b):
		return o.fail("the payload is no object, and a row is one")
	}
	return o.take(b, m.span, m.schema.row, false, m.nests)
}

// The texts that Debezium writes in place of a value that PostgreSQL has not logged: of texts, and
// of bytes in base64.
var (
	unavailable   = []byte(`"__debezium-unavailable-value"`)
	unavailable64 = []byte(`"X19kZWJleml1bS11bmF2YWlsYWJsZS12YWx1ZQ=="`)
)

const notLogged = "its value is large, has not changed, and PostgreSQL has not logged it: set REPLICA IDENTITY FULL on the table, or ignore the column"

// take makes the message of a row. marks is whether names with __ are left out, and nests whether
// some value has brackets. Values that are not logged are searched for where none is converted.
func (o *Opener) take(b []byte, row span, t *table, marks, nests bool) (Message, error) {
	o.row = row.of(b)
	m := Message{ContentType: jsonType, Payload: o.row}
	o.typed = t != nil
	converts := t != nil && t.any
	lacks := converts || bytes.Contains(o.row, unavailable) || bytes.Contains(o.row, unavailable64)
	if !converts && !marks && !lacks && !(nests && t == nil) {
		return m, nil
	}
	all := in(b, row.from)
	out := append(o.out[:0], '{')
	for i := 0; all.next(); i++ {
		if marks && isMark(all.name, all.escaped) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), all.name...), '"', ':')
		out = o.put(out, &all, t, i, lacks)
	}
	if o.out = append(out, '}'); all.reason != "" {
		return o.fail("the row is no JSON: %s", all.reason)
	}
	m.Payload = o.out
	return m, nil
}

// isMark is whether a name is one that Debezium adds to a row.
func isMark(name []byte, escaped bool) bool {
	if escaped {
		name = []byte(unescaped(name))
	}
	return len(name) > 1 && name[0] == '_' && name[1] == '_'
}

// put appends the value of a field, which is column i.
func (o *Opener) put(out []byte, field *object, t *table, i int, lacks bool) []byte {
	raw := field.value.of(field.b)
	if string(raw) == "null" {
		return append(out, raw...)
	}
	if lacks && (bytes.Equal(raw, unavailable) || bytes.Equal(raw, unavailable64)) {
		name := field.text()
		o.because(name, notLogged)
		if name == o.opts.Label {
			return append(out, "{}"...)
		}
		return append(out, "null"...)
	}
	var c *conversion
	switch {
	case t == nil && raw[0] == '{':
		if _, _, ok := scaleAndValue(raw); ok {
			c = &selfScaled
		}
	case t == nil:
	case field.escaped:
		c = t.at([]byte(field.text()), i)
	default:
		c = t.at(field.name, i)
	}
	if c == nil {
		return append(out, raw...)
	}
	converted, why := c.do(out, raw, c)
	if why != "" {
		o.because(field.text(), why)
		return append(out, "{}"...) // wire refuses it, if the column is learned from
	}
	return converted
}

var selfScaled = conversion{do: variable}

func (o *Opener) because(column, why string) {
	if len(o.reasons) < mostReasons {
		o.reasons = append(o.reasons, reason{column, why})
	}
}

// Reason says what is wrong with a column of the last row, which package wire has refused. It is
// empty if the envelope knows no more than wire.
func (o *Opener) Reason(column string) string {
	for _, r := range o.reasons {
		if r.column == column {
			return r.why
		}
	}
	if o.typed || o.row == nil || o.kind != Debezium {
		return ""
	}
	all := in(o.row, 0)
	for all.next() {
		if raw := all.value.of(o.row); all.text() == column && isBase64(raw) {
			return fmt.Sprintf("%.50s is no number: if it is a decimal in base64, set decimal.handling.mode to string or double in the connector, or have it write schemas (schemas.enable)", raw)
		}
	}
	return ""
}

// isBase64 is whether a value is a text in base64.
func isBase64(raw []byte) bool {
	if len(raw) < 6 || raw[0] != '"' || (len(raw)-2)%4 != 0 {
		return false
	}
	text := bytes.TrimRight(raw[1:len(raw)-1], "=")
	return len(raw)-2-len(text) <= 2 && !bytes.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '+' || r == '/')
	})
}
