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

// framed is a schema of the registry.
type framed struct {
	kind  registry.Kind
	avro  *wire.ConnectSchema // of Avro
	known *known              // the same in Connect's JSON
	bad   string              // why it cannot be used
}

// keptFramed bounds the schemas of the registry that are kept: mostly those of the value and the
// key, before and after a change of the table.
const keptFramed = 16

// framedBy is the schema of an id. The error is a *registry.AwayError.
func (o *Opener) framedBy(id uint32) (*framed, error) {
	if f := o.framed[id]; f != nil {
		return f, nil
	}
	s, err := o.opts.Schemas.Get(id)
	if bad := (*registry.BadIDError)(nil); errors.As(err, &bad) {
		return &framed{bad: bad.Error()}, nil // it may be known soon
	}
	if err != nil {
		return nil, err
	}
	f := &framed{kind: s.Kind}
	if f.kind == registry.Avro {
		if f.avro, err = wire.NewConnectSchema(s); err == nil {
			var reason string
			if f.known, reason = newKnown(f.avro.Text); reason != "" {
				err = errors.New(reason)
			}
		}
		if err != nil {
			f.bad = fmt.Sprintf("schema id %d cannot be used: %v", id, err)
		} else if f.avro.Has("op", "string") && f.avro.Has("after", "struct") { // a change: what it was, and where, is of no interest
			f.avro.Leave("before", "source", "transaction")
		}
	}
	if o.framed == nil || len(o.framed) >= keptFramed {
		o.framed = map[uint32]*framed{}
	}
	o.framed[id] = f
	return f, nil
}

// unframe turns a message of Avro into the JSON that Kafka Connect makes of the same values, in
// memory, and opens it. The error is a *registry.AwayError.
func (o *Opener) unframe(id uint32, rest, memory []byte, most int, to *opened) (out []byte, reason string, err error) {
	f, err := o.framedBy(id)
	switch {
	case err != nil:
		return memory, "", err
	case f.bad != "":
		return memory, f.bad, nil
	case f.kind != registry.Avro:
		return memory, fmt.Sprintf("schema id %d is one of %v", id, f.kind), nil
	}
	out, err = f.avro.Append(memory[:0], rest, most)
	if err != nil {
		return memory, fmt.Sprintf("as Avro of schema id %d: %v", id, err), nil
	}
	if out[0] == '{' {
		reason = to.read(out, 0)
	} else {
		to.shape = shape{b: out, span: span{0, len(out)}}
	}
	to.value, to.schema = to.span, f.known
	return out, reason, nil
}

// notAvro is the reason to refuse a framed message of Debezium that is not Avro.
const notAvro = "changes are read in Avro, and in JSON without a frame: have the connector write one of these " +
	"(value.converter=io.confluent.connect.avro.AvroConverter or org.apache.kafka.connect.json.JsonConverter)"

// debeziumFramed opens a framed message of Debezium.
func (o *Opener) debeziumFramed(id uint32, rest []byte) (Message, error) {
	if o.opts.Schemas == nil {
		return o.fail("the message is framed for a schema registry (schema id %d): say where that is (format.registry.url)", id)
	}
	if f, err := o.framedBy(id); err == nil && f.bad == "" && f.kind != registry.Avro {
		return o.fail("the message is framed with schema id %d, which is one of %v; %s", id, f.kind, notAvro)
	}
	var m opened
	var reason string
	var err error
	if o.transcoded, reason, err = o.unframe(id, rest, o.transcoded, o.opts.Bytes, &m); err != nil {
		return Message{}, err
	}
	if reason != "" {
		return o.fail("the message is no Avro of Debezium: %s", reason)
	}
	o.inAvro = true
	return o.debezium(&m)
}

// InAvro reports whether the last message was one of Avro, whose row is opened as JSON.
func (o *Opener) InAvro() bool { return o.inAvro }

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
	f, err := o.framedBy(id)
	if err != nil {
		return nil, err
	}
	switch f.kind {
	case registry.JSON:
		return o.textKey(rest), nil
	case registry.Protobuf:
		return nil, &KeyError{fmt.Sprintf("the key is framed with schema id %d, which is one of Protobuf: keys are read in Avro and JSON (key.converter of the connector)", id)}
	}
	var m opened
	var reason string
	if o.keyText, reason, err = o.unframe(id, rest, o.keyText, maxKey, &m); err != nil {
		return nil, err
	}
	if reason != "" {
		return nil, &KeyError{"the key cannot be read: " + reason}
	}
	return o.openedKey(&m, m.value.of(m.b)), nil
}
