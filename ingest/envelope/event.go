package envelope

import (
	"encoding/base64"
	"slices"
	"strings"

	"streamd/ingest/kafka"
)

const (
	eventType = "application/cloudevents"
	specName  = "ce_specversion"
)

// mediaOf is a content type without parameters.
func mediaOf(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// isJSON is whether a media type is JSON's, or one of its kinds.
func isJSON(media string) bool {
	return media == "" || strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json")
}

// dataType is the content type of an event's data for package wire.
func dataType(contentType string) string {
	if media := mediaOf(contentType); media != "" && isJSON(media) {
		return jsonType
	}
	return contentType
}

// header is the last header of that name, or nil.
func header(r *kafka.Record, name string) []byte {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key == name {
			return h.Value
		}
	}
	return nil
}

// event opens an event of CloudEvents.
func (o *Opener) event(r *kafka.Record, contentType string) (Message, error) {
	media := mediaOf(contentType)
	switch {
	case media == eventType+"+json":
		return o.structured(r.Value)
	case strings.HasPrefix(media, eventType):
		return o.fail("the content type is %.60q: events are read in JSON (%s+json), one in each message", contentType, eventType)
	}
	if version := header(r, specName); version != nil {
		if !strings.HasPrefix(string(version), "1.") {
			return o.fail("the header %s is %.20q: want 1.0", specName, version)
		}
		return Message{ContentType: dataType(contentType), Payload: r.Value}, nil
	}
	if contentType == "" {
		return o.structured(r.Value)
	}
	return o.fail("the message is no event: it has no header %s, and its content type is %.60q", specName, contentType)
}

// structured opens an event with its attributes beside its data.
func (o *Opener) structured(b []byte) (Message, error) {
	var s shape
	i := start(b)
	if reason := s.read(b, i); reason != "" {
		return o.fail("the event is no JSON: %s", reason)
	}
	switch version, ok := textOf(s.raw(fieldSpec)); {
	case s.twice:
		return o.fail("an attribute is given twice")
	case skipSpace(b, s.span.to) != len(b):
		return o.fail("there is something behind the event")
	case !ok:
		return o.fail("the message is no event: it has no specversion")
	case !strings.HasPrefix(version, "1."):
		return o.fail("specversion is %.20q: want 1.0", version)
	}
	if raw := s.raw(fieldDataType); raw != nil && string(raw) != "null" {
		media, ok := textOf(raw)
		if !ok {
			return o.fail("datacontenttype is no text")
		}
		if media != o.media {
			o.media = media
		}
	} else {
		o.media = jsonType
	}
	m := Message{ContentType: dataType(o.media)}
	data, binary := s.raw(fieldData), s.raw(fieldBase64)
	if string(data) == "null" {
		data = nil
	}
	switch {
	case data != nil && binary != nil:
		return o.fail("the event has data and data_base64")
	case binary != nil:
		text, ok := textOf(binary)
		if !ok {
			return o.fail("data_base64 is no text")
		}
		decoded, err := base64.StdEncoding.AppendDecode(o.decoded[:0], []byte(text))
		if err != nil {
			return o.fail("data_base64 is no base64: %v", err)
		}
		o.keep(decoded)
		m.Payload = decoded
	case data == nil:
		return o.fail("the event has no data; a message without a value retires the block of its key")
	case isJSON(mediaOf(o.media)):
		m.Payload = data
	default:
		text, ok := textOf(data)
		if !ok {
			return o.fail("the data is no text, and its type, %.60q, is not JSON's", o.media)
		}
		m.Payload = []byte(text)
	}
	return m, nil
}

// keep keeps memory for the next event.
func (o *Opener) keep(b []byte) {
	if o.decoded = b; cap(b) > keptOut {
		o.decoded = nil
	}
}
