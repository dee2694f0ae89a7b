package intake

import (
	"bytes"
	"errors"
	"fmt"

	"streamd/config"
	"streamd/ingest/envelope"
	"streamd/ingest/kafka"
	"streamd/ingest/summary"
	"streamd/ingest/wire"
)

// enveloping is a decoder's part in format.envelope.
type enveloping struct {
	kind    envelope.Kind
	opener  *envelope.Opener // nil: messages have no envelope
	deletes bool             // a row with a field __deleted is refused: its deletions would be learned from
}

// newEnveloping is that of a configuration, which has been checked.
func newEnveloping(cfg *config.Config, o wire.Options) (e enveloping) {
	if e.kind = kindOfEnvelopes(cfg); e.kind != envelope.None {
		e.opener = envelope.New(e.kind, envelope.Options{Label: cfg.Format.Label, Schemas: o.Schemas, Bytes: o.Limits.Bytes})
	}
	e.deletes = e.opener == nil && cfg.Blocks.Unit == config.UnitKey && !wire.Matches(cfg.Format.Ignore, deletedField)
	return e
}

func kindOfEnvelopes(cfg *config.Config) envelope.Kind {
	kind, _ := envelope.ParseKind(string(cfg.Format.Envelope))
	return kind
}

const deletedField = "__deleted"

var deletedName = []byte(`"` + deletedField + `"`)

// open takes the envelope off a record. A record without a value retires the block of its key, and
// one that comes as sums has no envelope. The payload is valid until the next call.
func (d *Decoder) open(r *kafka.Record, contentType string) (envelope.Message, error) {
	m := envelope.Message{ContentType: contentType, Payload: r.Value}
	switch {
	case r.OmittedHeaders > 0: // refused as it is
	case r.Value == nil:
		m.Fate = envelope.Retire
	case d.opener != nil && !summary.Is(contentType):
		opened, err := d.opener.Open(r, contentType)
		if err != nil {
			return m, d.explained(r, err)
		}
		return opened, nil
	}
	return m, nil
}

// keyOf is the key that names a record's block, or nil. It is valid until the next call.
func (d *Decoder) keyOf(r *kafka.Record) ([]byte, error) {
	if d.opener == nil {
		return r.Key, nil
	}
	key, err := d.opener.Key(r.Key)
	if err != nil && !IsAway(err) {
		err = &unusable{kindKey, err}
	}
	return key, err
}

// ShortKey is the key that stands for one as it is in the topic.
func ShortKey(cfg *config.Config, key string) string {
	if e := newEnveloping(cfg, wire.Options{}); e.opener != nil {
		if short, err := e.opener.Key([]byte(key)); err == nil {
			return string(short)
		}
	}
	return key
}

// noKey is the reason to refuse a record without a key, by whether it is Debezium's.
var noKey = map[bool]string{
	false: "the record has no key, which would name its block",
	true:  "the record has no key: its table has no primary key, so a DELETE could not name the block; give the table one, or name columns in message.key.columns of the connector",
}

// heedsDeletions refuses a row that says whether it was deleted, where nothing would heed it.
func (d *Decoder) heedsDeletions(m envelope.Message) error {
	// Rows of the connectors that add the field are in JSON. Other payloads are not searched.
	if d.deletes && len(m.Payload) > 0 && (m.Payload[0] == '{' || m.Payload[0] == '[') && bytes.Contains(m.Payload, deletedName) {
		why := fmt.Errorf("the row has a field %s, and a deleted one would be learned from; format.ignore: %s reads all rows as they are", deletedField, deletedField)
		return &envelope.Mistaken{Kind: envelope.Debezium, Why: why}
	}
	return nil
}

// explained adds to the reason for which a record is refused what its envelope says.
func (d *Decoder) explained(r *kafka.Record, err error) error {
	if IsAway(err) {
		return err
	}
	bad := (*wire.Error)(nil)
	errors.As(err, &bad)
	if bad != nil && d.opener != nil {
		if from := d.opener.Transcoded(); from != 0 {
			bad.Format, bad.Row, bad.Line = from, -1, 0
		}
	}
	if bad != nil && bad.Column != "" && d.opener != nil {
		if why := d.opener.Reason(bad.Column); why != "" {
			bad.Reason = why
			return err
		}
	}
	if kind := envelope.Detect(r, d.contentType(r)); kind != envelope.None && kind != d.kind {
		return &envelope.Mistaken{Kind: kind, Why: err}
	}
	return err
}

// truncates says why a TRUNCATE cannot retire all blocks, if it cannot. Records of other partitions
// have no order with it, so nobody could say which of their rows it has removed.
func (in *Intake) truncates() error {
	n := 1
	if in.Partitions != nil {
		n = in.Partitions()
	}
	if n != 1 {
		return fmt.Errorf("the topic has %d partitions, and the log does not say which records of the others came before", n)
	}
	return nil
}

// truncated is what a TRUNCATE says.
const truncated = "the table was truncated (op t)"

// truncate retires all blocks, or says why the daemon ends. The record of the partition is being
// applied.
func (in *Intake) truncate(number int, r *kafka.Record) error {
	what := fmt.Sprintf("record %s: %s", positionOf(in.Config, number, r), truncated)
	if in.Config.Format.Truncate != config.TruncateRetire {
		return fmt.Errorf("%s, and format.truncate is %s: set it to retire, which retires all blocks, or to reject, and retire them by streamd retire", what, in.Config.Format.Truncate)
	}
	if err := in.truncates(); err != nil {
		return fmt.Errorf("%s, and %w: let the topic have one partition, or set format.truncate: reject, and retire the blocks by streamd retire", what, err)
	}
	if err := in.Live.Settle(); err != nil { // some that depart would only be archived
		return err
	}
	var all []string
	for e := range in.Live.Everything {
		all = append(all, e.ID)
	}
	in.Log.Warn().Stringer("record", positionOf(in.Config, number, r)).Int("blocks", len(all)).Msg("the table was truncated: all blocks are retired")
	if err := in.RetireFormerLog(all, len(all)); err != nil {
		return err
	}
	in.dropRowsOf(number)
	return nil
}
