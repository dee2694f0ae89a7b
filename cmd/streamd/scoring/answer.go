package scoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"streamd/cmd/streamd/predictions"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
)

// The headers of an answer, behind those of the record, which keep their order. The content type is
// that of the answer.
const (
	modelHeader     = "streamd.model"     // fingerprint of the model
	positionsHeader = "streamd.positions" // what it has learned from: the offsets of /v1/model
	sourceHeader    = "streamd.source"    // topic/partition/offset of the record
	typeHeader      = "content-type"
)

// answer is an answer. Its memory is used again for the next one.
type answer struct {
	table     predictions.Table
	by        *Model
	positions []byte // of the model, in JSON
	value     bytes.Buffer
	headers   []kafka.Header
	source    []byte
}

// begin has a model answer.
func (a *answer) begin(by *Model) {
	a.by = by
	m := by.Classifier.Model
	a.table = predictions.Table{
		Model: by.Fingerprint, Method: by.Method, Classes: m.Classes, Rule: by.DecidesBy(),
		Labels: a.table.Labels, Values: a.table.Values,
	}
	for _, plane := range m.Planes {
		a.table.Planes = append(a.table.Planes, plane.Class)
	}
	a.positions, _ = json.Marshal(by.Offsets) // texts and numbers
}

// make predicts rows and writes the predictions.
func (a *answer) make(rows wire.Table, form predictions.Form) error {
	p, t := len(a.table.Planes), &a.table
	t.Labels = slices.Grow(t.Labels[:0], rows.Rows)[:rows.Rows]
	t.Values = slices.Grow(t.Values[:0], rows.Rows*p)[:rows.Rows*p]
	a.by.Classify(t.Labels, t.Values, rows.Columns)
	for i, value := range t.Values {
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return fmt.Errorf("row %d: its value for class %q is %v; are its features finite?", i/p, t.Planes[i%p], value)
		}
	}
	a.value.Reset()
	return t.Write(&a.value, form)
}

// head makes the headers of the answer to a record.
func (a *answer) head(r *kafka.Record, topic string, partition int, form predictions.Form) {
	a.headers = a.headers[:0]
	for _, h := range r.Headers {
		switch h.Key {
		case typeHeader, modelHeader, positionsHeader, sourceHeader:
		default:
			a.headers = append(a.headers, h)
		}
	}
	a.source = append(a.source[:0], topic...)
	a.source = strconv.AppendInt(append(a.source, '/'), int64(partition), 10)
	a.source = strconv.AppendInt(append(a.source, '/'), r.Offset, 10)
	a.headers = append(a.headers,
		kafka.Header{Key: typeHeader, Value: []byte(form.ContentType())},
		kafka.Header{Key: modelHeader, Value: []byte(a.by.Fingerprint)},
		kafka.Header{Key: positionsHeader, Value: a.positions},
		kafka.Header{Key: sourceHeader, Value: a.source})
}

// contentTypeOf is a record's content type: of several headers the last, as everywhere in Kafka.
func contentTypeOf(r *kafka.Record) string {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key == typeHeader {
			return string(h.Value)
		}
	}
	return ""
}
