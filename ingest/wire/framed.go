package wire

import (
	"errors"

	"streamd/ingest/registry"
)

// Schemas has the schemas of framed payloads, as registry.Client does.
type Schemas interface {
	// Get returns the schema of an id. The error is a *registry.AwayError, which the payload is not
	// to blame for, or a *registry.BadIDError.
	Get(id uint32) (*registry.Schema, error)
}

// formatOfKind are the formats of payloads by the kind of their schema.
var formatOfKind = map[registry.Kind]Format{registry.JSON: JSON, registry.Avro: Avro, registry.Protobuf: Protobuf}

// framed decodes a payload that is framed for a schema registry. The kind of its schema decides
// which format it has. An error is an *Error or a *registry.AwayError.
func (d *Decoder) framed(contentType string, payload []byte) error {
	id, rest, ok := registry.Unframe(payload)
	if !ok {
		return d.fail(-1, "", "the payload starts with a zero byte, which opens no format")
	}
	if d.opts.Schemas == nil {
		return d.fail(-1, "", "the payload is framed for a schema registry (schema id %d): say where that is (format.registry.url), "+
			"or produce it without the registry's serializer", id)
	}
	s := d.schema // mostly that of the last payload: an id stands for one schema for ever
	if s == nil || s.ID != id {
		var err error
		if s, err = d.opts.Schemas.Get(id); err != nil {
			if bad := (*registry.BadIDError)(nil); errors.As(err, &bad) {
				return d.fail(-1, "", "the payload is framed with %v", bad)
			}
			return err
		}
		d.schema = s
	}
	format := formatOfKind[s.Kind]
	if contentType != "" {
		switch declared, _, known := FormatOf(contentType); {
		case !known:
			return d.unsupported(contentType)
		case declared != format:
			return d.fail(-1, "", "content type %s is not that of schema id %d, which is one of %v", quoted([]byte(contentType)), id, s.Kind)
		}
	}
	if len(rest) == 0 {
		return d.fail(-1, "", "there is nothing behind the frame of the payload")
	}
	d.begin(format, rest)
	switch format {
	case Avro:
		return plainly(d.avro.framed(s, rest))
	case Protobuf:
		return plainly(d.proto.framed(s, rest))
	}
	return d.decodeAs(format, HeaderAuto, rest)
}

// plainly is an *Error as an error, which is nil if there is none.
func plainly(err *Error) error {
	if err == nil {
		return nil
	}
	return err
}

// isRaw reports whether a payload is Avro without a frame, though it may begin as a frame does: a
// null or a zero begins so, too.
func (d *Decoder) isRaw(contentType string) bool {
	if d.opts.Schemas != nil || d.opts.Written == nil {
		return false
	}
	format := d.opts.Format
	if contentType != "" {
		format, _, _ = FormatOf(contentType)
	}
	return format == Avro
}
