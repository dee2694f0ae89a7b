package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"streamd/ingest/registry"
)

// ConnectMessage reads messages of Protobuf and writes them as the JSON that Kafka Connect's
// JsonConverter makes of the same values, as ConnectSchema does with messages of Avro. What
// Connect's ProtobufConverter leaves out of its schemas is not known here either: the names that
// Debezium has for times, which are integers then. Decimals, dates and time stamps of Connect have
// types of their own.
//
// An absent field is null if its presence is told: messages, wrappers, and fields that are optional
// or in a oneof. Any other has its default.
//
// It belongs to one goroutine.
type ConnectMessage struct {
	// Text is the schema in Connect's JSON, as that of a ConnectSchema.
	Text []byte

	root  *connectMessage
	spots []protoSpot // of the fields of the messages that are being read
	most  int         // bytes that dst may have
}

// protoSpot is where a field is in its message, with its tags.
type protoSpot struct{ from, to int }

// connectMessage is a message's type. It may be within itself.
type connectMessage struct {
	fields []connectField // in the order of the schema
	places map[protowire.Number]int
	left   []bool // of the fields: Leave names them
}

// connectField is a field of a message.
type connectField struct {
	name    string
	kind    protoKind
	bits    int
	of      *protoField // how a scalar is written
	isBytes bool
	list    bool
	isMap   bool
	message *connectMessage // of protoMessages, and of a map its entry
	wrapped *connectField   // the value of a wrapper
	absent  string          // the JSON of an absent field
	typ     string          // Connect's type
	means   string          // Connect's name of what a value means; empty: nothing
}

// ProtoIndexes reads the indexes of a message's type in its file, which follow the frame: their
// number, and each of them, or a zero for the first message of the file. n is the bytes that they
// take; 0 if they are malformed, or more than 16.
func ProtoIndexes(payload []byte) (indexes []int64, n int) { return appendProtoIndexes(nil, payload) }

func appendProtoIndexes(indexes []int64, payload []byte) (_ []int64, n int) {
	at := 0
	next := func() (int64, bool) {
		u, n := binary.Uvarint(payload[at:])
		if n <= 0 {
			return 0, false
		}
		at += n
		return int64(u>>1) ^ -int64(u&1), true
	}
	left, ok := next()
	switch {
	case !ok || left < 0 || left > maxIndexes:
		return indexes, 0
	case left == 0:
		return append(indexes, 0), at
	}
	for ; left > 0; left-- {
		i, ok := next()
		if !ok {
			return indexes, 0
		}
		indexes = append(indexes, i)
	}
	return indexes, at
}

// NewConnectMessage reads a schema of Protobuf for the message that indexes lead to.
func NewConnectMessage(s *registry.Schema, indexes []int64) (*ConnectMessage, error) {
	if s.Kind != registry.Protobuf {
		return nil, fmt.Errorf("it is one of %v", s.Kind)
	}
	file, err := readProto(s)
	if err != nil {
		return nil, err
	}
	of, ok := messageAt(file, indexes)
	if !ok {
		return nil, fmt.Errorf("the schema has no message with the indexes %v", indexes)
	}
	c := &ConnectMessage{}
	known := &connectKnown{map[protoreflect.FullName]*connectMessage{}, map[protoreflect.FullName]map[int32][]byte{}}
	if isWrapper(of) { // of a value without a record around it
		f := newConnectField(of.Fields().Get(0), known)
		c.root = &connectMessage{fields: []connectField{{kind: protoMessages, wrapped: &f, typ: f.typ}}}
	} else if of.Fields().Len() == 0 {
		return nil, fmt.Errorf("its message %s has no fields", of.FullName())
	} else {
		c.root = newConnectMessage(of, known)
	}
	const levels = 2 // of records: of the message, and of the row in it
	if f := c.root.sole(); f != nil {
		c.Text = appendConnectField(nil, f, levels)
	} else {
		c.Text = appendConnectField(nil, &connectField{typ: "struct", message: c.root}, levels)
	}
	if len(c.Text) > maxConnectText {
		return nil, fmt.Errorf("its columns take more than %d bytes of text", maxConnectText)
	}
	return c, nil
}

// sole is the value of a message that is one; nil: it is a record.
func (m *connectMessage) sole() *connectField {
	if m.places == nil {
		return m.fields[0].wrapped
	}
	return nil
}

// connectKnown has the types of a schema that have been read: many fields may have one.
type connectKnown struct {
	messages map[protoreflect.FullName]*connectMessage
	symbols  map[protoreflect.FullName]map[int32][]byte // of enums
}

func (k *connectKnown) enum(of protoreflect.EnumDescriptor) map[int32][]byte {
	symbols := k.symbols[of.FullName()]
	if symbols == nil {
		symbols = protoSymbols(of)
		k.symbols[of.FullName()] = symbols
	}
	return symbols
}

func isWrapper(of protoreflect.MessageDescriptor) bool {
	name := string(of.FullName())
	return strings.HasPrefix(name, "google.protobuf.") && strings.HasSuffix(name, "Value") && of.Fields().Len() == 1 &&
		of.Fields().Get(0).Kind() != protoreflect.MessageKind
}

func newConnectMessage(of protoreflect.MessageDescriptor, known *connectKnown) *connectMessage {
	if m := known.messages[of.FullName()]; m != nil {
		return m
	}
	m := &connectMessage{places: map[protowire.Number]int{}}
	known.messages[of.FullName()] = m
	for i := range of.Fields().Len() {
		d := of.Fields().Get(i)
		m.places[d.Number()] = i
		m.fields = append(m.fields, newConnectField(d, known))
	}
	m.left = make([]bool, len(m.fields))
	return m
}

// connectScalars are Connect's types of Protobuf's scalars.
var connectScalars = map[protoKind]string{
	protoVarint: "int64", protoZigzag: "int64", protoBoolean: "boolean", protoEnum: "string", protoFixed32: "int64", protoSfixed32: "int64",
	protoFloat: "float", protoFixed64: "int64", protoSfixed64: "int64", protoDouble: "double", protoText: "string",
}

func newConnectField(d protoreflect.FieldDescriptor, known *connectKnown) connectField {
	made := protoKinds[d.Kind()]
	if d.Enum() != nil {
		made.symbols = known.enum(d.Enum())
	}
	f := connectField{
		name: string(d.Name()), kind: made.kind, bits: made.bits, of: &made, isBytes: d.Kind() == protoreflect.BytesKind,
		list: d.IsList(), isMap: d.IsMap(), absent: "null",
	}
	switch {
	case d.Kind() == protoreflect.GroupKind:
		f.typ = "struct" // Connect writes none
	case d.Message() == nil:
		if f.typ = connectScalars[f.kind]; f.isBytes {
			f.typ = "bytes"
		}
		if !d.HasPresence() || d.HasDefault() {
			f.absent = string(f.appendDefault(nil, d.Default()))
		}
	case isWrapper(d.Message()):
		f.kind = protoMessages
		wrapped := newConnectField(d.Message().Fields().Get(0), known)
		f.wrapped, f.typ = &wrapped, wrapped.typ
	default:
		f.setMeaning(d.Message())
		if f.kind == protoMessages {
			f.message = newConnectMessage(d.Message(), known)
		}
	}
	switch {
	case f.isMap:
		f.typ, f.absent, f.means = "map", "{}", ""
	case f.list:
		f.typ, f.absent, f.means = "array", "[]", ""
	}
	return f
}

// setMeaning sets the kind and the type of a field that is a message.
func (f *connectField) setMeaning(of protoreflect.MessageDescriptor) {
	f.typ = "int64"
	switch of.FullName() {
	case "google.protobuf.Timestamp":
		f.kind, f.means = protoInstant, "io.debezium.time.MicroTimestamp"
	case "google.protobuf.Duration":
		f.kind, f.means = protoSpan, "io.debezium.time.MicroDuration"
	case "confluent.type.Decimal":
		f.kind, f.typ, f.means = protoNumeral, "struct", connectScaled
	case "google.type.Date":
		f.kind, f.means = protoDate, "io.debezium.time.Date"
	case "google.type.TimeOfDay":
		f.kind, f.means = protoClock, "io.debezium.time.Time"
	default:
		f.kind, f.typ = protoMessages, "struct"
		if is := of.Fields(); of.Name() == "VariableScaleDecimal" && is.Len() == 2 && is.ByName("scale") != nil && is.ByName("value") != nil {
			f.means = connectScaled
		}
	}
}

// appendConnectField appends a type in Connect's JSON, with the fields of so many levels of
// records. What is too long is cut off.
func appendConnectField(dst []byte, f *connectField, levels int) []byte {
	dst = fmt.Appendf(dst, `{"type":%q`, f.typ)
	if f.means != "" {
		dst = fmt.Appendf(dst, `,"name":%q`, f.means)
	}
	if f.name != "" {
		dst = appendConnectText(append(dst, `,"field":`...), f.name)
	}
	if f.typ == "struct" && f.message != nil && levels > 0 {
		dst = append(dst, `,"fields":[`...)
		for i := range f.message.fields {
			if len(dst) > maxConnectText {
				break
			}
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendConnectField(dst, &f.message.fields[i], levels-1)
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// Has reports whether messages have a field of a type in Connect's words, such as struct.
func (c *ConnectMessage) Has(name, typ string) bool {
	return slices.ContainsFunc(c.root.fields, func(f connectField) bool { return f.name == name && f.typ == typ })
}

// Leave has fields of the messages written as {}, or as null where they are absent.
func (c *ConnectMessage) Leave(names ...string) {
	for i := range c.root.left {
		c.root.left[i] = c.root.left[i] || slices.Contains(names, c.root.fields[i].name)
	}
}

var errProtoCut = errors.New(protoCut)

// Append appends the JSON of a message, without its frame and its indexes. It has up to most bytes.
func (c *ConnectMessage) Append(dst, message []byte, most int) ([]byte, error) {
	c.most = len(dst) + most
	if f := c.root.sole(); f != nil {
		return c.unwrapped(dst, f, message, 0)
	}
	return c.record(dst, c.root, message, 0)
}

// record appends a message, which is so deep within others. What Connect writes has each field
// once, and the elements of a list behind each other.
func (c *ConnectMessage) record(dst []byte, m *connectMessage, b []byte, depth int) (_ []byte, err error) {
	if depth > maxProtoDepth {
		return nil, errors.New("the message is nested too deeply")
	}
	if len(dst) > c.most {
		return nil, fmt.Errorf("as JSON it has more than %d bytes", c.most)
	}
	begin := len(c.spots)
	c.spots = append(c.spots, make([]protoSpot, len(m.fields))...)
	spots := c.spots[begin:]
	defer func() { c.spots = c.spots[:begin] }()
	for at := 0; at < len(b); {
		number, _, _, n := nextProtoField(b[at:])
		if n == 0 {
			return nil, errProtoCut
		}
		if i, known := m.places[number]; known {
			f, s := &m.fields[i], &spots[i]
			switch {
			case s.to == 0:
				*s = protoSpot{at, at + n}
			case s.to == at && (f.list || f.isMap):
				s.to = at + n
			default:
				return nil, fmt.Errorf("the field %q is given twice", f.name)
			}
		}
		at += n
	}
	dst = append(dst, '{')
	for i := range m.fields {
		f, s := &m.fields[i], spots[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendConnectText(dst, f.name), ':')
		switch {
		case s.to == 0:
			dst = append(dst, f.absent...)
		case depth == 0 && m.left[i]:
			dst = append(dst, "{}"...)
		default:
			if dst, err = c.field(dst, f, b[s.from:s.to], depth); err != nil {
				return nil, err
			}
		}
		if len(dst) > c.most {
			return nil, fmt.Errorf("as JSON it has more than %d bytes", c.most)
		}
	}
	return append(dst, '}'), nil
}

// field appends a field that is there, with its tags.
func (c *ConnectMessage) field(dst []byte, f *connectField, b []byte, depth int) (_ []byte, err error) {
	if !f.list && !f.isMap {
		_, typ, value, _ := nextProtoField(b)
		return c.value(dst, f, typ, value, depth)
	}
	opens, closes := byte('['), byte(']')
	if f.isMap {
		opens, closes = '{', '}'
	}
	dst = append(dst, opens)
	begin := len(dst)
	element := func(typ protowire.Type, value []byte) error {
		if len(dst) > begin {
			dst = append(dst, ',')
		}
		if len(dst) > c.most {
			return fmt.Errorf("as JSON it has more than %d bytes", c.most)
		}
		if f.isMap {
			dst, err = c.entry(dst, f.message, value, depth)
		} else {
			dst, err = c.value(dst, f, typ, value, depth)
		}
		return err
	}
	for len(b) > 0 {
		_, typ, value, n := nextProtoField(b)
		b = b[n:]
		if f.of.wire == protowire.BytesType || typ != protowire.BytesType {
			if err := element(typ, value); err != nil {
				return nil, err
			}
			continue
		}
		packed, _ := protowire.ConsumeBytes(value)
		for len(packed) > 0 {
			k := protowire.ConsumeFieldValue(1, f.of.wire, packed)
			if k < 0 {
				return nil, errProtoCut
			}
			if err := element(f.of.wire, packed[:k]); err != nil {
				return nil, err
			}
			packed = packed[k:]
		}
	}
	return append(dst, closes), nil
}

// entry appends an entry of a map. In JSON its key is a text.
func (c *ConnectMessage) entry(dst []byte, m *connectMessage, value []byte, depth int) (_ []byte, err error) {
	b, _ := protowire.ConsumeBytes(value)
	var parts [2][]byte // the key and the value, with their tags
	for at := 0; at < len(b); {
		number, _, _, n := nextProtoField(b[at:])
		if n == 0 {
			return nil, errProtoCut
		}
		if number <= 2 {
			parts[number-1] = b[at : at+n]
		}
		at += n
	}
	for i, part := range parts {
		f := &m.fields[i]
		quoted := i == 0 && f.typ != "string"
		if quoted {
			dst = append(dst, '"')
		}
		if part == nil {
			dst = append(dst, f.absent...)
		} else if dst, err = c.field(dst, f, part, depth+1); err != nil {
			return nil, err
		}
		if quoted {
			dst = append(dst, '"')
		}
		if i == 0 {
			dst = append(dst, ':')
		}
	}
	return dst, nil
}

// value appends one value, which has the length of its type.
func (c *ConnectMessage) value(dst []byte, f *connectField, typ protowire.Type, b []byte, depth int) ([]byte, error) {
	if typ != f.of.wire {
		return nil, errProtoCut
	}
	switch typ {
	case protowire.Fixed32Type:
		u := binary.LittleEndian.Uint32(b)
		switch f.kind {
		case protoFloat:
			return appendConnectFloat(dst, float64(math.Float32frombits(u)), 32), nil
		case protoSfixed32:
			return strconv.AppendInt(dst, int64(int32(u)), 10), nil
		}
		return strconv.AppendUint(dst, uint64(u), 10), nil
	case protowire.Fixed64Type:
		u := binary.LittleEndian.Uint64(b)
		switch f.kind {
		case protoDouble:
			return appendConnectFloat(dst, math.Float64frombits(u), 64), nil
		case protoSfixed64:
			return strconv.AppendInt(dst, int64(u), 10), nil
		}
		return strconv.AppendUint(dst, u, 10), nil
	case protowire.VarintType:
		u, _ := protowire.ConsumeVarint(b)
		switch {
		case f.kind == protoBoolean:
			return strconv.AppendBool(dst, u != 0), nil
		case f.kind == protoEnum:
			return f.appendSymbol(dst, int32(u)), nil
		case f.kind == protoZigzag && f.bits == 32:
			return strconv.AppendInt(dst, protowire.DecodeZigZag(u&math.MaxUint32), 10), nil
		case f.kind == protoZigzag:
			return strconv.AppendInt(dst, protowire.DecodeZigZag(u), 10), nil
		case f.of.unsigned && f.bits == 32:
			return strconv.AppendUint(dst, uint64(uint32(u)), 10), nil
		case f.of.unsigned:
			return strconv.AppendUint(dst, u, 10), nil
		case f.bits == 32:
			return strconv.AppendInt(dst, int64(int32(u)), 10), nil
		}
		return strconv.AppendInt(dst, int64(u), 10), nil
	}
	b, _ = protowire.ConsumeBytes(b)
	switch {
	case f.isBytes:
		return appendBase64(dst, b), nil
	case f.kind == protoText:
		if !utf8.Valid(b) {
			return nil, fmt.Errorf("the text of the field %q is no UTF-8", f.name)
		}
		return appendConnectText(dst, b), nil
	case f.wrapped != nil:
		return c.unwrapped(dst, f.wrapped, b, depth)
	case f.message != nil:
		return c.record(dst, f.message, b, depth+1)
	}
	return f.appendMeant(dst, b)
}

// unwrapped appends the value of a wrapper, whose only field is the first.
func (c *ConnectMessage) unwrapped(dst []byte, f *connectField, b []byte, depth int) ([]byte, error) {
	given := false
	for len(b) > 0 {
		number, typ, value, n := nextProtoField(b)
		if n == 0 {
			return nil, errProtoCut
		}
		if b = b[n:]; number != 1 {
			continue
		}
		if given {
			return nil, fmt.Errorf("the value of the wrapper %q is given twice", f.name)
		}
		given = true
		var err error
		if dst, err = c.value(dst, f, typ, value, depth+1); err != nil {
			return nil, err
		}
	}
	if !given {
		dst = append(dst, f.absent...)
	}
	return dst, nil
}

// appendSymbol appends the name of an enum's value, or its number as a text if the schema has none.
func (f *connectField) appendSymbol(dst []byte, n int32) []byte {
	if name, ok := f.of.symbols[n]; ok {
		return appendConnectText(dst, name)
	}
	return append(strconv.AppendInt(append(dst, '"'), int64(n), 10), '"')
}

// appendDefault appends the value of an absent field.
func (f *connectField) appendDefault(dst []byte, v protoreflect.Value) []byte {
	switch x := v.Interface().(type) {
	case protoreflect.EnumNumber:
		return f.appendSymbol(dst, int32(x))
	case string:
		return appendConnectText(dst, x)
	case []byte:
		return appendBase64(dst, x)
	case float32:
		return appendConnectFloat(dst, float64(x), 32)
	case float64:
		return appendConnectFloat(dst, x, 64)
	}
	return fmt.Append(dst, v.Interface()) // an integer or a boolean
}

// appendMeant appends a message that is a value: a time, a duration, a date or a decimal.
func (f *connectField) appendMeant(dst, b []byte) ([]byte, error) {
	if f.kind == protoNumeral {
		digits, scale, ok := protoDecimal(b)
		if !ok {
			return nil, errProtoCut
		}
		dst = strconv.AppendInt(append(dst, `{"scale":`...), scale, 10)
		return append(appendBase64(append(dst, `,"value":`...), digits), '}'), nil
	}
	if f.kind == protoInstant || f.kind == protoSpan {
		seconds, nanos, ok := protoTime(b)
		if !ok {
			return nil, errProtoCut
		}
		at := spanOf(seconds, nanos)
		const most = 1 << 42 // seconds; beyond all years, and microseconds of it are integers
		return strconv.AppendInt(dst, min(max(at.seconds, -most), most)*1e6+at.nanos/1e3, 10), nil
	}
	if f.kind == protoClock {
		return append(dst, '0'), nil // a time of day is refused, whichever
	}
	day, reason := protoDay(b)
	switch reason {
	case "":
		return strconv.AppendInt(dst, day, 10), nil
	case protoCut:
		return nil, errProtoCut
	}
	return append(dst, "{}"...), nil // which is refused as a date, if the column is learned from
}
