package envelope

import (
	"fmt"
	"strings"

	"streamd/ingest/kafka"
)

// Detect guesses the envelope of a record that was refused: None if it has none that is known.
func Detect(r *kafka.Record, contentType string) Kind {
	if header(r, specName) != nil || strings.HasPrefix(mediaOf(contentType), eventType) {
		return CloudEvents
	}
	var s shape
	if s.read(r.Value, start(r.Value)) != "" {
		return None
	}
	kind := None
	if s.hasSchema() && (s.has[fieldSchema].isObject(r.Value) || s.has[fieldSchema].isNull(r.Value)) {
		kind = Connect
		if payload := s.has[fieldPayload]; payload.isNull(r.Value) || s.read(r.Value, payload.from) != "" {
			return kind
		}
	}
	switch {
	case s.isChange() || s.has[fieldDeleted].is():
		return Debezium
	case s.has[fieldSpec].is() && (s.has[fieldData].is() || s.has[fieldBase64].is()):
		return CloudEvents
	}
	return kind
}

// Mistaken is the error of a record that was refused, and has an envelope that is not configured.
type Mistaken struct {
	Kind Kind  // of the record
	Why  error // the refusal
}

func (m *Mistaken) Unwrap() error { return m.Why }

func (m *Mistaken) Error() string {
	return fmt.Sprintf("the message looks like %s: %s; as a row as it is: %v", kindTexts[m.Kind], m.Settles(), m.Why)
}

var kindTexts = [...]string{Debezium: "one of Debezium", Connect: "one of Kafka Connect's JSON converter", CloudEvents: "an event of CloudEvents", None: "a row"}

// Settles says which settings learn from such messages.
func (m *Mistaken) Settles() string {
	if m.Kind == Debezium {
		return "set format.envelope: debezium and blocks.unit: key"
	}
	return "set format.envelope: " + m.Kind.String()
}
