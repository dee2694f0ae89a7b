package envelope

import (
	"errors"
	"fmt"

	"streamd/ingest/registry"
	"streamd/ingest/wire"
)

// Schemas has the schemas of messages and keys that are framed for a schema registry, as
// registry.Client does.
type Schemas interface {
	// Get returns the schema of an id. The error is a *registry.AwayError, which the message is not
	// to blame for, or a *registry.BadIDError.
	Get(id uint32) (*registry.Schema, error)
}

// transcoder turns messages into the JSON that Kafka Connect makes of the same values.
type transcoder interface {
	// Append appends the JSON of a message, which has up to most bytes.
	Append(dst, message []byte, most int) ([]byte, error)
	// Has reports whether messages have a field of a type in Connect's words.
	Has(name, typ string) bool
	// Leave has fields of the messages passed over.
	Leave(names ...string)
}

// framed is a schema of the registry.
type framed struct {
	kind     registry.Kind
	to       transcoder // nil: messages are JSON
	known    *known     // the schema in Connect's words
	bad      string     // why it cannot be used
	messages map[string]*framed
	schema   *registry.Schema // of Protobuf, whose messages tell their types by indexes
}

// keptFramed bounds the schemas of the registry that are kept, and the types of messages of each:
// mostly those of the value and the key, before and after a change of the table.
const keptFramed = 16

// framedBy is the schema of an id, and the message without the indexes of its type, which Protobuf
// has. The error is a *registry.AwayError.
func (o *Opener) framedBy(id uint32, rest []byte) (f *framed, message []byte, err error) {
	if f = o.framed[id]; f == nil {
		s, err := o.opts.Schemas.Get(id)
		if bad := (*registry.BadIDError)(nil); errors.As(err, &bad) {
			return &framed{bad: bad.Error()}, rest, nil // it may be known soon
		}
		if err != nil {
			return nil, rest, err
		}
		f = newFramed(s)
		if o.framed == nil || len(o.framed) >= keptFramed {
			o.framed = map[uint32]*framed{}
		}
		o.framed[id] = f
	}
	if f.kind != registry.Protobuf || f.bad != "" {
		return f, rest, nil
	}
	indexes, n := wire.ProtoIndexes(rest)
	if n == 0 {
		return &framed{kind: f.kind, bad: "the indexes of the message's type behind the frame are cut off or malformed"}, rest, nil
	}
	if of := f.messages[string(rest[:n])]; of != nil {
		return of, rest[n:], nil
	}
	of := &framed{kind: f.kind}
	if m, err := wire.NewConnectMessage(f.schema, indexes); err != nil {
		of.bad = cannotUse(id, err)
	} else {
		of.use(m, m.Text, id)
	}
	if f.messages == nil || len(f.messages) >= keptFramed {
		f.messages = map[string]*framed{}
	}
	f.messages[string(rest[:n])] = of
	return of, rest[n:], nil
}

func cannotUse(id uint32, err error) string {
	return fmt.Sprintf("schema id %d cannot be used: %v", id, err)
}

func newFramed(s *registry.Schema) *framed {
	f := &framed{kind: s.Kind}
	switch s.Kind {
	case registry.Avro:
		if c, err := wire.NewConnectSchema(s); err != nil {
			f.bad = cannotUse(s.ID, err)
		} else {
			f.use(c, c.Text, s.ID)
		}
	case registry.JSON:
		var reason string
		if f.known, reason = knownByJSONSchema([]byte(s.Text)); reason != "" {
			f.bad = cannotUse(s.ID, errors.New(reason))
		}
	case registry.Protobuf:
		f.schema = s
	}
	return f
}

// use has messages read by a transcoder, whose schema is text in Connect's JSON.
func (f *framed) use(t transcoder, text []byte, id uint32) {
	var reason string
	if f.known, reason = newKnown(text); reason != "" {
		f.bad = cannotUse(id, errors.New(reason))
		return
	}
	if f.to = t; t.Has("op", "string") && t.Has("after", "struct") { // a change: what it was, and where, is of no interest
		t.Leave("before", "source", "transaction")
	}
}

// unframe reads a framed message, in JSON or turned into it, which is out in memory then. The error
// is a *registry.AwayError.
func (o *Opener) unframe(id uint32, rest, memory []byte, most int, to *opened) (out []byte, kind registry.Kind, reason string, err error) {
	f, message, err := o.framedBy(id, rest)
	switch {
	case err != nil:
		return memory, 0, "", err
	case f.bad != "":
		return memory, f.kind, f.bad, nil
	}
	text, out := message, memory
	if f.to != nil {
		if out, err = f.to.Append(memory[:0], message, most); err != nil {
			return memory, f.kind, fmt.Sprintf("as %v of schema id %d: %v", f.kind, id, err), nil
		}
		text = out
	}
	if reason = to.readPlain(text); reason != "" {
		reason = fmt.Sprintf("as JSON of schema id %d: %s", id, reason)
	}
	to.schema = f.known
	return out, f.kind, reason, nil
}

// readPlain reads a text of JSON that is the payload itself.
func (m *opened) readPlain(b []byte) (reason string) {
	i := start(b)
	if i < len(b) && b[i] == '{' {
		reason = m.read(b, i)
		m.value = m.span
	} else {
		var end int
		m.shape = shape{b: b}
		end, _, reason = skipValue(b, i)
		m.value = span{i, end}
	}
	if reason == "" && skipSpace(b, m.value.to) != len(b) {
		reason = "there is something behind it"
	}
	return reason
}

// debeziumFramed opens a framed message of Debezium.
func (o *Opener) debeziumFramed(id uint32, rest []byte) (Message, error) {
	if o.opts.Schemas == nil {
		return o.fail("the message is framed for a schema registry (schema id %d): say where that is (format.registry.url)", id)
	}
	var m opened
	out, kind, reason, err := o.unframe(id, rest, o.transcoded, o.opts.Bytes, &m)
	if o.transcoded = out; err != nil {
		return Message{}, err
	}
	switch {
	case reason != "" && kind == 0:
		return o.fail("the message cannot be read: %s", reason)
	case reason != "":
		return o.fail("the message is no %v of Debezium: %s", kind, reason)
	}
	switch kind {
	case registry.Avro:
		o.from = wire.Avro
	case registry.Protobuf:
		o.from = wire.Protobuf
	}
	return o.debezium(&m)
}

// Transcoded is the format of the last message, if its row was turned into JSON; zero: it was not.
func (o *Opener) Transcoded() wire.Format { return o.from }

// A KeyError says why a key cannot be read.
type KeyError struct{ Reason string }

func (e *KeyError) Error() string { return e.Reason }

// framedKey is Key for a framed key.
func (o *Opener) framedKey(id uint32, key, rest []byte) ([]byte, error) {
	if o.opts.Schemas == nil {
		if o.kind == Connect { // a number of eight bytes begins so, too
			return key, nil
		}
		return nil, &KeyError{fmt.Sprintf("the key is framed for a schema registry (schema id %d): say where that is (format.registry.url)", id)}
	}
	var m opened
	out, _, reason, err := o.unframe(id, rest, o.keyText, maxKey, &m)
	if o.keyText = out; err != nil {
		return nil, err
	}
	if reason != "" {
		return nil, &KeyError{"the key cannot be read: " + reason}
	}
	return o.openedKey(&m, m.value.of(m.b)), nil
}
