package intake

import (
	"slices"

	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/envelope"
	"streamd/ingest/kafka"
	"streamd/ingest/summary"
	"streamd/ingest/wire"
	"streamd/retire"
)

// Decoder makes a block from a record. It belongs to one goroutine.
type Decoder struct {
	options  wire.Options
	features *[]string // the model's features that decoder is for; nil if they are not fixed
	decoder  *wire.Decoder
	summary  summary.Decoder
	format   string           // the last content type
	keyed    bool             // a key names a block
	labels   *wire.Decoder    // of a label and any columns beside it; made when it is needed
	idField  string           // with labels.id, the field of a row that is its id
	ids      [2]*wire.Decoder // of the id of a label, in each of idFields; made when they are needed
	enveloping
}

// NewDecoder makes a decoder for features, which are nil if not fixed. numbers limits the
// bytes of a decoded block; 0 leaves the limit to the options.
func NewDecoder(cfg *config.Config, o wire.Options, features *[]string, numbers int) (*Decoder, error) {
	if numbers > 0 {
		o.Limits.Numbers = numbers
	}
	d := newDecoder(cfg, o)
	return &d, d.prepare(features)
}

func newDecoder(cfg *config.Config, o wire.Options) Decoder {
	d := Decoder{
		options: o, enveloping: newEnveloping(cfg, o), keyed: cfg.Blocks.Unit == config.UnitKey, idField: cfg.Labels.ID,
	}
	d.options.WeighUnlabelled = cfg.Labels.Topic != ""
	if d.deletes {
		d.options.Refused = deletedField
	}
	return d
}

// prepare makes the decoder one for the given features, which are nil if not fixed.
func (d *Decoder) prepare(features *[]string) (err error) {
	if d.decoder != nil && d.features == features {
		return nil
	}
	o := d.options
	if features != nil {
		o.Features = *features
	}
	if d.idField != "" { // the id is read in the label's place, and a label in a row is passed over
		o.Label, o.LabelIsID = d.idField, true
		o.Ignore = append(slices.Clone(o.Ignore), wire.PatternOf(d.options.Label))
	}
	d.decoder, err = wire.NewDecoder(o)
	d.features = features
	return err
}

// Features are the features that the decoder is for; nil if they are not fixed.
func (d *Decoder) Features() *[]string { return d.features }

// Decode makes a block from a record. Its memory is valid until the next call.
func (d *Decoder) Decode(r *kafka.Record) (*incremental.Block, error) {
	m, err := d.openRow(r)
	if err != nil {
		return nil, err
	}
	return d.decode(r, m)
}

// openRow takes the envelope off a record that has rows.
func (d *Decoder) openRow(r *kafka.Record) (envelope.Message, error) {
	m, err := d.open(r, d.contentType(r))
	if err == nil && m.Fate != envelope.Row {
		err = unusablef(kindNull, "the message has no row")
	}
	return m, err
}

// decode makes a block from the message of a record.
func (d *Decoder) decode(r *kafka.Record, m envelope.Message) (*incremental.Block, error) {
	if err := d.takes(r, m); err != nil {
		return nil, err
	}
	b, err := d.decoder.Decode(m.ContentType, m.Payload)
	if err != nil {
		return nil, d.undecoded(r, m, err)
	}
	return b, nil
}

// decodeUnlabelled is decode for rows whose labels come later. A label in them is passed over.
func (d *Decoder) decodeUnlabelled(r *kafka.Record, m envelope.Message) (wire.Table, error) {
	if err := d.takes(r, m); err != nil {
		return wire.Table{}, err
	}
	rows, err := d.decoder.DecodeUnlabelled(m.ContentType, m.Payload)
	if err != nil {
		return wire.Table{}, d.undecoded(r, m, err)
	}
	return rows, nil
}

// takes says why a record is not decoded at all.
func (d *Decoder) takes(r *kafka.Record, m envelope.Message) error {
	if err := check(r); err != nil {
		return err
	}
	return d.heedsDeletions(m)
}

// undecoded is the reason for which a record is refused that cannot be decoded.
func (d *Decoder) undecoded(r *kafka.Record, m envelope.Message, err error) error {
	if !IsAway(err) && d.hasLabelAlone(m) {
		return &labelAlone{err}
	}
	return d.explained(r, err)
}

// Texts are those of the block that was decoded last: see wire.Decoder.Texts.
func (d *Decoder) Texts() [][]string { return d.decoder.Texts() }

// check says why no record like this can be a block.
func check(r *kafka.Record) error {
	if r.OmittedHeaders > 0 {
		return unusablef(kindHeaders, "the record has %d headers, more than can be taken", r.OmittedHeaders)
	}
	if !retire.ValidTime(r.Time) {
		return unusablef(kindTime, "the event time is %d ms since 1970, which is not in the years 1 to 9999: is it in milliseconds?", r.Time.UnixMilli())
	}
	if r.Value == nil {
		return unusablef(kindNull, "the value is null")
	}
	return nil
}

// contentType is a record's content type.
func (d *Decoder) contentType(r *kafka.Record) string { return ContentType(r, &d.format) }

// ContentType is a record's content type: of several headers the last, as everywhere in Kafka. It
// is mostly the previous record's, which last has.
func ContentType(r *kafka.Record, last *string) string {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key == "content-type" {
			if string(h.Value) != *last {
				*last = string(h.Value)
			}
			return *last
		}
	}
	return ""
}

// positionOf is a record's position in the log.
func positionOf(cfg *config.Config, partition int, r *kafka.Record) incremental.Position {
	return incremental.Position{Topic: cfg.Kafka.Topic, Partition: partition, Offset: r.Offset}
}

// BlockID names the block that a record makes or changes. It is empty where records are
// gathered, because the first record of a block names it.
func (d *Decoder) BlockID(cfg *config.Config, partition int, r *kafka.Record) (string, error) {
	switch cfg.Blocks.Unit {
	case config.UnitMessage:
		return positionOf(cfg, partition, r).String(), nil
	case config.UnitKey:
		key, err := d.keyOf(r)
		if err != nil {
			return "", err
		}
		if key == nil {
			return "", unusablef(kindKey, "%s", noKey[d.kind == envelope.Debezium])
		}
		if len(key) > maxKey {
			return "", unusablef(kindKey, "the key has %d bytes, more than %d", len(key), maxKey)
		}
		return retire.KeyID(string(key)), nil
	}
	return "", nil
}

// maxKey bounds a key, which names its block in the ledger and in URLs.
const maxKey = 512
