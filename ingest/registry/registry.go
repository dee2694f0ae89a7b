package registry

import (
	"encoding/binary"
	"fmt"
)

// Kind is the language of a schema.
type Kind uint8

// The kinds of schemas.
const (
	Avro Kind = iota + 1
	JSON
	Protobuf
)

var kindNames = map[string]Kind{"": Avro, "AVRO": Avro, "JSON": JSON, "PROTOBUF": Protobuf}

// String is the kind's name for people.
func (k Kind) String() string {
	switch k {
	case Avro:
		return "Avro"
	case JSON:
		return "JSON"
	case Protobuf:
		return "Protobuf"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// MaxText bounds the text of a schema.
const MaxText = 1 << 20

// Schema is a schema with all that it refers to. It is immutable.
type Schema struct {
	ID   uint32
	Kind Kind
	Text string
	// Message is the full name of a message of Protobuf, where Text is not the text of a registry,
	// but a FileDescriptorSet. Empty: the only one of its last file.
	Message string
	// References are the schemas that this one needs, each after those that it needs itself.
	References []Reference
}

// Reference is a schema that another one names.
type Reference struct {
	Name string // as the other schema has it: of a type in Avro, of a file in Protobuf
	Text string
}

// bytes is the size of the texts.
func (s *Schema) bytes() int {
	n := len(s.Text)
	for _, r := range s.References {
		n += len(r.Name) + len(r.Text)
	}
	return n
}

// frame is the length of the frame before a payload.
const frame = 5

// Unframe takes the frame off a payload. It is not ok if there is none.
func Unframe(b []byte) (id uint32, payload []byte, ok bool) {
	if len(b) < frame || b[0] != 0 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint32(b[1:]), b[frame:], true
}

// AwayError says why the registry has not answered. Ask again later.
type AwayError struct {
	ID  uint32
	Why error
}

func (e *AwayError) Error() string {
	return fmt.Sprintf("the schema registry has no answer for schema id %d: %v", e.ID, e.Why)
}

// Unwrap returns the reason.
func (e *AwayError) Unwrap() error { return e.Why }

// BadIDError says why an id stands for no schema that can be used.
type BadIDError struct {
	ID     uint32
	Reason string
}

func (e *BadIDError) Error() string { return fmt.Sprintf("schema id %d: %s", e.ID, e.Reason) }
