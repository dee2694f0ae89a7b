package scoring

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/predictions"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
)

// The headers of an answer, behind those of the record, which keep their order. The content type is
// that of the answer.
const (
	typeHeader      = "content-type"
	modelHeader     = intake.ModelHeader  // fingerprint of the model
	positionsHeader = "streamd.positions" // what it has learned from: the offsets of /v1/model
	sourceHeader    = "streamd.source"    // topic/partition/offset of the record
)

// answer is an answer. Its memory is used again for the next one.
type answer struct {
	table predictions.Table
	by    *Model
	form  predictions.Form
	value bytes.Buffer

	remembered bool // the answer is a header, and the value that of the record

	headers []kafka.Header  // of the last answer or tombstone
	own     [3]kafka.Header // those that the model and the form decide
	source  []byte
}

// begin has a model answer. Remembered answers are headers.
func (a *answer) begin(by *Model, form predictions.Form, remembered bool) {
	labels, values := a.table.Labels, a.table.Values
	a.by, a.form, a.table = by, form, predictions.NewTable(by.Classifier, by.Fingerprint, by.Method)
	a.table.Labels, a.table.Values = labels, values
	positions, _ := json.Marshal(by.Offsets) // texts and numbers
	a.own = [3]kafka.Header{
		{Key: typeHeader, Value: []byte(form.ContentType())},
		{Key: modelHeader, Value: []byte(by.Fingerprint)},
		{Key: positionsHeader, Value: positions},
	}
	if a.remembered = remembered; remembered {
		a.own[0] = kafka.Header{Key: intake.AnswerHeader}
	}
}

// make predicts rows and writes the predictions.
func (a *answer) make(rows wire.Table) error {
	if err := a.table.Predict(a.by.Classifier, rows.Columns, rows.Rows); err != nil {
		return err
	}
	a.value.Reset()
	return a.table.Write(&a.value, a.form)
}

// head makes the headers of the answer to a record. Those of a record without a value, which no
// model has answered, have the position alone behind them.
func (a *answer) head(r *kafka.Record, topic string, partition int) {
	own := a.own[:]
	switch {
	case r.Value == nil:
		own = nil
	case a.remembered:
		own[0].Value = bytes.TrimSpace(a.value.Bytes())
	}
	a.headers = a.headers[:0]
	for _, h := range r.Headers {
		if h.Key != sourceHeader && !slices.ContainsFunc(own, func(o kafka.Header) bool { return o.Key == h.Key }) {
			a.headers = append(a.headers, h)
		}
	}
	a.source = append(a.source[:0], topic...)
	a.source = strconv.AppendInt(append(a.source, '/'), int64(partition), 10)
	a.source = strconv.AppendInt(append(a.source, '/'), r.Offset, 10)
	a.headers = append(append(a.headers, own...), kafka.Header{Key: sourceHeader, Value: a.source})
}
