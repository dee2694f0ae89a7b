package intake

import (
	"errors"
	"slices"

	"streamd/incremental"
	"streamd/ingest/envelope"
	"streamd/ingest/wire"
)

// labelAlone says that a record under a key has the label of a row, and nothing of the row itself.
// It is no later value of the row: a producer that learns a label later has taken the topic of
// rows for that of labels. So it retires nothing, as another unusable value of the key would.
type labelAlone struct{ error }

func (l *labelAlone) Error() string {
	return "the record has a label and none of the features: a label that comes after its row belongs into a topic of labels, which labels.topic names; the row of the key stays as it is"
}

func (l *labelAlone) Unwrap() error { return l.error }

// isLabelAlone reports whether an error says that a record has a label alone.
func isLabelAlone(err error) bool {
	_, is := errors.AsType[*labelAlone](err)
	return is
}

// labelOptions reads a label and any columns beside it, also that of labels.id.
func (d *Decoder) labelOptions() wire.Options {
	o := d.options
	o.Features, o.Schema, o.Missing, o.Weight = nil, nil, wire.Missing{}, ""
	o.AsTexts, o.LabelAlone, o.IgnoreUnknown, o.KeepUnlabelled = true, true, true, true
	if d.idField != "" {
		id := wire.PatternOf(d.idField)
		o.Ignore = slices.DeleteFunc(slices.Clone(o.Ignore), func(pattern string) bool { return pattern == id })
	}
	return o
}

// labelID and labelTime are the names of columns that a record of a label may have beside it.
const (
	labelID   = "id"
	labelTime = "time"
)

// readLabel reads a message as one of a label, with any columns beside it. The block is valid until
// the next call.
func (d *Decoder) readLabel(m envelope.Message) (b *incremental.Block, err error) {
	if d.labels == nil {
		if d.labels, err = wire.NewDecoder(d.labelOptions()); err != nil {
			return nil, err
		}
	}
	return d.labels.Decode(m.ContentType, m.Payload)
}

// hasLabelAlone reports whether the message of a record that cannot be decoded is one row with a
// label and nothing of the row: no column that a feature is made of, and where other columns are
// not passed over, none but those that a label may have beside it.
func (d *Decoder) hasLabelAlone(m envelope.Message) bool {
	if !d.keyed {
		return false
	}
	b, err := d.readLabel(m)
	if err != nil || b.Rows() != 1 || b.Classes[b.Codes[0]] == incremental.Unlabelled {
		return false
	}
	known := d.options.Features
	if d.features != nil {
		known = *d.features
	}
	if s := d.options.Schema; s != nil {
		known = known[:0:0]
		for _, source := range s.Sources() {
			known = append(known, source.Name)
		}
	}
	return !slices.ContainsFunc(b.Features, func(name string) bool {
		beside := name == labelID || name == labelTime || name == d.idField || d.options.IgnoreUnknown
		return !beside || slices.Contains(known, name)
	})
}
