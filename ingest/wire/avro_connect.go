package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"streamd/ingest/registry"
)

// ConnectSchema reads messages of Avro and writes them as the JSON that Kafka Connect's
// JsonConverter makes of the same values: decimals and other bytes are in base64, times are
// integers of their unit, and Text says which columns are which. So what is said of messages of
// Kafka Connect in JSON holds for those in Avro.
//
// Numbers have their shortest decimals that are read back to the same float or double, as Java
// writes them. Those that are not finite are texts: "NaN", "Infinity" and "-Infinity". Maps are
// objects.
//
// It belongs to one goroutine.
type ConnectSchema struct {
	// Text is the schema in Connect's JSON. A row's columns have their types in it, alone or as
	// fields of a record of the message; what is within columns has none.
	Text []byte

	root   *avroType
	left   []bool // of the root's fields: Leave names them
	cursor avroCursor
	most   int // bytes that dst may have
}

// maxConnectText bounds the bytes of ConnectSchema.Text.
const maxConnectText = 1 << 20

// NewConnectSchema reads a schema of Avro.
func NewConnectSchema(s *registry.Schema) (*ConnectSchema, error) {
	if s.Kind != registry.Avro {
		return nil, fmt.Errorf("it is one of %v", s.Kind)
	}
	schema, err := readAvroSchema(s)
	if err != nil {
		return nil, err
	}
	c := &ConnectSchema{root: schema.root}
	c.left = make([]bool, len(soleBranch(c.root).fields))
	const levels = 2 // of records: of the message, and of the row in it
	if c.Text = appendConnectType(nil, c.root, "", levels); len(c.Text) > maxConnectText {
		return nil, fmt.Errorf("its columns take more than %d bytes of text", maxConnectText)
	}
	return c, nil
}

// soleBranch is the type beside null of a union, or the type itself.
func soleBranch(t *avroType) *avroType {
	if t.kind != avroUnion {
		return t
	}
	var sole *avroType
	for _, b := range t.branches {
		if b.kind != avroNull {
			if sole != nil {
				return t
			}
			sole = b
		}
	}
	if sole == nil {
		return t
	}
	return sole
}

// connectTypes are Connect's names of Avro's types.
var connectTypes = [...]string{
	avroNull: "null", avroBoolean: "boolean", avroInt: "int64", avroFloat: "float", avroDouble: "double", avroBytes: "bytes",
	avroString: "string", avroFixed: "bytes", avroEnum: "string", avroArray: "array", avroMap: "map", avroUnion: "union", avroRecord: "struct",
}

// connectName is the name that Connect and Debezium have for the meaning of a type, or "".
func (t *avroType) connectName() string {
	switch t.means {
	case meansDate:
		return "io.debezium.time.Date"
	case meansTime:
		return map[int64]string{1e3: "io.debezium.time.Timestamp", 1e6: "io.debezium.time.MicroTimestamp", 1e9: "io.debezium.time.NanoTimestamp"}[t.perSecond]
	case meansSeconds:
		return map[int64]string{1e6: "io.debezium.time.MicroDuration", 1e9: "io.debezium.time.NanoDuration"}[t.perSecond]
	case meansClock:
		return "io.debezium.time.Time"
	case meansDecimal:
		return connectDecimal
	case meansScaled:
		return connectScaled
	}
	return ""
}

// appendConnectType appends a type in Connect's JSON, with the fields of so many levels of records.
// What is too long is cut off.
func appendConnectType(dst []byte, t *avroType, field string, levels int) []byte {
	t = soleBranch(t)
	kind := connectTypes[t.kind]
	if t.means == meansUUID {
		kind = "string"
	}
	dst = fmt.Appendf(dst, `{"type":%q`, kind)
	if name := t.connectName(); name != "" {
		dst = fmt.Appendf(dst, `,"name":%q`, name)
	}
	if t.means == meansDecimal {
		dst = fmt.Appendf(dst, `,"parameters":{"scale":"%d"}`, t.scale)
	}
	if field != "" {
		dst = appendConnectText(append(dst, `,"field":`...), field)
	}
	if t.kind == avroRecord && levels > 0 {
		dst = append(dst, `,"fields":[`...)
		for i := range t.fields {
			if len(dst) > maxConnectText {
				break
			}
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendConnectType(dst, t.fields[i].typ, t.fields[i].name, levels-1)
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// Has reports whether messages are records with a field of a type in Connect's words, such as
// struct, or of that and null.
func (c *ConnectSchema) Has(name, typ string) bool {
	return slices.ContainsFunc(soleBranch(c.root).fields, func(f avroField) bool {
		return f.name == name && connectTypes[soleBranch(f.typ).kind] == typ
	})
}

// Leave has fields of the messages written as {}, whatever they are.
func (c *ConnectSchema) Leave(names ...string) {
	for i, f := range soleBranch(c.root).fields {
		c.left[i] = c.left[i] || slices.Contains(names, f.name)
	}
}

var (
	errAvroEnds = errors.New("the data ends within the record, or a length in it is malformed: is its schema another one?")
	errAvroMore = errors.New("the record has more values than its bytes could have, or is nested too deeply")
)

// Append appends the JSON of a message, without its frame. It has up to most bytes.
func (c *ConnectSchema) Append(dst, message []byte, most int) ([]byte, error) {
	c.cursor.start(message)
	c.most = len(dst) + most
	dst, err := c.value(dst, c.root, 0)
	switch {
	case err != nil:
		return nil, err
	case c.cursor.at < len(message):
		return nil, fmt.Errorf("there are %d bytes behind the record: its schema is another one", len(message)-c.cursor.at)
	}
	return dst, nil
}

// value appends a value, which is so deep within others.
func (c *ConnectSchema) value(dst []byte, t *avroType, depth int) ([]byte, error) {
	r := &c.cursor
	if r.steps--; r.steps < 0 || depth > maxAvroDepth {
		return nil, errAvroMore
	}
	if len(dst) > c.most {
		return nil, fmt.Errorf("as JSON it has more than %d bytes", c.most)
	}
	switch t.kind {
	case avroNull:
		dst = append(dst, "null"...)
	case avroBoolean:
		b := r.take(1)
		if b != nil && b[0] > 1 {
			return nil, fmt.Errorf("the byte %d is no boolean", b[0])
		}
		dst = strconv.AppendBool(dst, b != nil && b[0] == 1)
	case avroInt:
		dst = strconv.AppendInt(dst, r.long(), 10)
	case avroFloat:
		if b := r.take(4); b != nil {
			dst = appendConnectFloat(dst, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), 32)
		}
	case avroDouble:
		if b := r.take(8); b != nil {
			dst = appendConnectFloat(dst, math.Float64frombits(binary.LittleEndian.Uint64(b)), 64)
		}
	case avroString:
		dst = appendConnectText(dst, r.bytes())
	case avroEnum:
		i := r.long()
		if i < 0 || i >= int64(len(t.symbols)) {
			return nil, fmt.Errorf("the enum has no symbol %d", i)
		}
		dst = appendConnectText(dst, t.symbols[i])
	case avroBytes:
		dst = appendBase64(dst, r.bytes())
	case avroFixed:
		b := r.take(t.size)
		if t.means == meansUUID && b != nil {
			dst = append(appendUUID(append(dst, '"'), b), '"')
		} else {
			dst = appendBase64(dst, b)
		}
	case avroUnion:
		i := r.long()
		if r.cut || i < 0 || i >= int64(len(t.branches)) {
			return nil, errAvroEnds
		}
		return c.value(dst, t.branches[i], depth+1)
	case avroRecord:
		return c.record(dst, t, depth)
	case avroArray, avroMap:
		return c.items(dst, t, depth)
	}
	if r.cut {
		return nil, errAvroEnds
	}
	return dst, nil
}

// record appends a record.
func (c *ConnectSchema) record(dst []byte, t *avroType, depth int) (_ []byte, err error) {
	dst = append(dst, '{')
	outermost := depth == 0 || depth == 1 && c.root.kind == avroUnion
	for i := range t.fields {
		f := &t.fields[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendConnectText(dst, f.name), ':')
		if outermost && c.left[i] {
			c.cursor.skip(f.typ, depth+1)
			if dst = append(dst, "{}"...); c.cursor.cut {
				return nil, c.ended()
			}
			continue
		}
		if dst, err = c.value(dst, f.typ, depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// items appends the elements of an array or a map.
func (c *ConnectSchema) items(dst []byte, t *avroType, depth int) (_ []byte, err error) {
	r := &c.cursor
	opens, closes := byte('['), byte(']')
	if t.kind == avroMap {
		opens, closes = '{', '}'
	}
	dst = append(dst, opens)
	begin := len(dst)
	for n := r.blockCount(); n > 0; n = r.blockCount() {
		for ; n > 0; n-- {
			if len(dst) > begin {
				dst = append(dst, ',')
			}
			if t.kind == avroMap {
				dst = append(appendConnectText(dst, r.bytes()), ':')
			}
			if dst, err = c.value(dst, t.items, depth+1); err != nil {
				return nil, err
			}
		}
	}
	if r.cut {
		return nil, c.ended()
	}
	return append(dst, closes), nil
}

// ended is the error of data that is cut.
func (c *ConnectSchema) ended() error {
	if c.cursor.steps < 0 {
		return errAvroMore
	}
	return errAvroEnds
}

// appendConnectFloat appends a number of so many bits.
func appendConnectFloat(dst []byte, x float64, bits int) []byte {
	switch {
	case math.IsNaN(x):
		return append(dst, `"NaN"`...)
	case math.IsInf(x, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(x, -1):
		return append(dst, `"-Infinity"`...)
	}
	// As Java writes them, so that a key has one text in JSON and in Avro.
	if size := math.Abs(x); size == 0 || size >= 1e-3 && size < 1e7 {
		begin := len(dst)
		if dst = strconv.AppendFloat(dst, x, 'f', -1, bits); bytes.IndexByte(dst[begin:], '.') < 0 {
			dst = append(dst, ".0"...)
		}
		return dst
	}
	var room [32]byte
	digits, exponent, _ := bytes.Cut(strconv.AppendFloat(room[:0], x, 'e', -1, bits), []byte("e"))
	if dst = append(dst, digits...); bytes.IndexByte(digits, '.') < 0 {
		dst = append(dst, ".0"...)
	}
	sign, exponent := exponent[0], bytes.TrimLeft(exponent[1:], "0")
	if dst = append(dst, 'E'); sign == '-' {
		dst = append(dst, '-')
	}
	return append(dst, exponent...)
}

// appendConnectText appends a text of JSON with the escapes that it needs, and no others.
func appendConnectText[T string | []byte](dst []byte, text T) []byte {
	dst = append(dst, '"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = fmt.Appendf(dst, "\\u%04x", c)
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

func appendBase64(dst, b []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), b), '"')
}

// appendUUID appends the text of a UUID of 16 bytes.
func appendUUID(dst, b []byte) []byte {
	return fmt.Appendf(dst, "%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
