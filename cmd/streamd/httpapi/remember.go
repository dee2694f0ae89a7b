package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/incremental/gram"
	"streamd/ingest/wire"
)

// Remembering keeps predictions until the labels of their rows come. It is safe for concurrent use.
type Remembering interface {
	// Read reads a row as it will be learned from: its value for each of the model's features. The
	// error is for the client.
	Read(contentType string, row []byte) ([]float64, error)

	// Remember returns once the log has the predictions for good. They may be in the log
	// nevertheless after an error. ErrUnavailable.
	Remember(ctx context.Context, all []Remembered) error
}

// Remembered is a prediction that is remembered.
type Remembered struct {
	ID          string
	ContentType string // of Row
	Row         []byte // the row as it was sent
	Model       string // fingerprint of the model that has answered
	Answer      []byte // the answer for the row, a PredictRowsAnswer
}

// Limits of predictions that are remembered.
const (
	maxID              = 512     // bytes: that of a key
	maxRememberedRows  = 1000    // of a body
	maxRememberedBytes = 500_000 // of a row with its id and its answer; a batch of Kafka has 1 MB, by default

	rememberTimeout = 5 * time.Second
)

var (
	idQuery = &parameter[string]{
		name: "id", kind: anyText,
		meaning: "The id of the row, under which its label comes later: the prediction is remembered (see `config/labels.md`). The body has one row. Rows may have a field or a column `id`, `inference_id` or that of `labels.id` in place of this.",
	}
	inferenceQuery = &parameter[string]{
		name: "inference_id", kind: anyText,
		meaning: "The same as `id`.",
	}
	rememberQuery = []described{idQuery, inferenceQuery}
)

// rememberNotes describes predictions with an id, for the document.
var rememberNotes = fmt.Sprintf("With an id the prediction is remembered: the row as it was sent, the answer and the model are in the topic of rows before the answer is given, and wait there for the label. "+
	"A daemon does so where `predict.output` is the topic of rows; others answer 409. Such a row must be one that can be learned from. An id has up to %d bytes, a call up to %d of them. "+
	"If the brokers do not take it within %d seconds, the answer is 503, and there is no prediction; ask again with the same id.", maxID, maxRememberedRows, rememberTimeout/time.Second)

// idFields are the fields of a row that may have its id, unless they are features.
func (s *Server) idFields(served *model.Served) (fields []string) {
	for _, name := range []string{s.config.IDField, "id", "inference_id"} {
		if name != "" && !slices.Contains(fields, name) && !isFeature(served, name) {
			fields = append(fields, name)
		}
	}
	return fields
}

// rememberedRow is a row with an id, before it is answered.
type rememberedRow struct {
	id          string
	contentType string
	row         []byte
}

// rememberedRows are the rows of a body that are to be remembered. There are none if the call does
// not ask for it.
func (s *Server) rememberedRows(r *http.Request, format wire.Format, contentType string, content []byte, served *model.Served) (rows []rememberedRow, err error) {
	asked := asks(r, rememberQuery)
	switch {
	case asked && s.config.Remember == nil:
		return nil, fail(CodeConflict, "id: predictions are not remembered here: that takes labels.topic, and predict.output set to the topic of rows")
	case asked && asks(r, windowQuery):
		return nil, fail(CodeBadRequest, "id: the model of a window gives no answers that are remembered")
	case asked && asks(r, []described{idQuery}) && asks(r, []described{inferenceQuery}):
		return nil, fail(CodeBadRequest, "id and inference_id are the same: give one of them")
	case s.config.Remember == nil || !asked && asks(r, windowQuery):
		return nil, nil
	case format == wire.JSON:
		if rows, err = rowsWithIDs(content, s.idFields(served)); err != nil {
			return nil, err
		}
	default:
		if rows, err = s.rowsWithIDColumn(format, contentType, content, served); err != nil {
			return nil, err
		}
	}
	if asked {
		if rows != nil {
			return nil, fail(CodeBadRequest, "the row has an id, and the query has one")
		}
		id := idQuery.of(r) + inferenceQuery.of(r)
		if err := checkID(id); err != nil {
			return nil, fail(CodeBadRequest, "id: %v", err)
		}
		rows = []rememberedRow{{id, contentType, content}}
	}
	if len(rows) > maxRememberedRows {
		return nil, fail(CodeTooLarge, "%d rows have ids: a call remembers at most %d predictions", len(rows), maxRememberedRows)
	}
	return rows, nil
}

// checkID says why a text is no id.
func checkID(id string) error {
	switch {
	case id == "":
		return errors.New("it is empty")
	case len(id) > maxID:
		return fmt.Errorf("it has %d bytes: want at most %d", len(id), maxID)
	case !utf8.ValidString(id):
		return errors.New("it is not valid UTF-8")
	}
	return nil
}

// rowsWithIDs takes rows of JSON apart whose fields have ids. There are none if no row has one.
// What cannot be taken apart is left to the decoder, which has an error for it.
func rowsWithIDs(content []byte, fields []string) (rows []rememberedRow, err error) {
	if !slices.ContainsFunc(fields, func(name string) bool { return bytes.Contains(content, strconv.AppendQuote(nil, name)) }) {
		return nil, nil
	}
	ids := rowIDs{known: map[string]bool{}}
	bad := eachObject(content, func(row map[string]json.RawMessage) bool {
		id, rest, failed := takeID(row, fields)
		if failed != nil {
			err = fail(CodeBadRequest, "row %d: %v", ids.rows, failed)
			return false
		}
		if rest != nil {
			rows = append(rows, rememberedRow{id, wire.JSON.ContentType(), rest})
		}
		err = ids.add(id)
		return err == nil && len(rows) <= maxRememberedRows
	})
	if err != nil {
		return nil, err
	}
	if bad != nil {
		return nil, nil
	}
	return rows, ids.check()
}

// rowIDs are the ids of rows, one after the other.
type rowIDs struct {
	known   map[string]bool
	rows    int
	without int // 1 + the last row without one; 0: all have one
}

// add adds the id of the next row, "" for none. It fails for one that an earlier row has.
func (x *rowIDs) add(id string) error {
	x.rows++
	switch {
	case id == "":
		x.without = x.rows
	case x.known[id]:
		return fail(CodeBadRequest, "row %d: the id %q is that of another row, too", x.rows-1, id)
	default:
		x.known[id] = true
	}
	return nil
}

// check fails where some rows have an id, and others none.
func (x *rowIDs) check() error {
	if len(x.known) > 0 && x.without > 0 {
		return fail(CodeBadRequest, "row %d has no id, and others have one: give all rows an id, or none", x.without-1)
	}
	return nil
}

// isFeature reports whether the model takes a column of that name.
func isFeature(served *model.Served, name string) bool {
	if served.Schema == nil {
		return slices.Contains(served.RowFeatures(), name)
	}
	return slices.ContainsFunc(served.Schema.Sources(), func(s wire.Source) bool { return s.Name == name })
}

// eachObject calls do for the objects of an array, or of a text with one after the other, until it
// returns false. It is an error if there is something else.
func eachObject(content []byte, do func(map[string]json.RawMessage) bool) error {
	content = bytes.TrimLeft(bytes.TrimPrefix(content, []byte("\xef\xbb\xbf")), " \t\r\n")
	d := json.NewDecoder(bytes.NewReader(content))
	if len(content) > 0 && content[0] == '[' {
		d.Token()
	}
	for d.More() {
		var row map[string]json.RawMessage
		if err := d.Decode(&row); err != nil {
			return err
		}
		if !do(row) {
			return nil
		}
	}
	return nil
}

// takeID takes the id out of a row. rest is the row without it, nil if there is no id.
func takeID(row map[string]json.RawMessage, fields []string) (id string, rest []byte, err error) {
	for _, name := range fields {
		value, is := row[name]
		if !is || string(value) == "null" {
			continue
		}
		if id != "" {
			return "", nil, fmt.Errorf("it has more than one of the fields %s: give one of them", strings.Join(fields, ", "))
		}
		if json.Unmarshal(value, &id) != nil {
			if _, err := strconv.ParseInt(string(value), 10, 64); err != nil {
				return "", nil, fmt.Errorf("the field %s is %.40s: want a text or a whole number", name, value)
			}
			id = string(value)
		}
		if err := checkID(id); err != nil {
			return "", nil, fmt.Errorf("the field %s: %w", name, err)
		}
	}
	if id == "" {
		return "", nil, nil
	}
	row = maps.Clone(row)
	for _, name := range fields {
		delete(row, name)
	}
	rest, err = json.Marshal(row)
	return id, rest, err
}

// readRemembered reads rows as they will be learned from, so that they are predicted on no others.
func (s *Server) readRemembered(rows []rememberedRow) (wire.Table, error) {
	var columns [][]float64
	for i, row := range rows {
		values, err := s.config.Remember.Read(row.contentType, row.row)
		if err != nil {
			return wire.Table{}, fail(CodeBadRequest, "row %d cannot be remembered: %v", i, err)
		}
		if columns == nil {
			columns = make([][]float64, len(values))
		}
		for j, x := range values {
			columns[j] = append(columns[j], x)
		}
	}
	t := wire.Table{Rows: len(rows)}
	for _, c := range columns {
		t.Columns = append(t.Columns, gram.ColumnOf(c))
	}
	return t, nil
}

// remember writes the predictions of rows into the log, and returns once they are there.
func (s *Server) remember(ctx context.Context, rows []rememberedRow, p *predictions.Table) error {
	all := make([]Remembered, len(rows))
	for i, row := range rows {
		answer, err := p.Row(i)
		if err != nil {
			return fail(CodeBadRequest, "%v", err)
		}
		if n := len(row.id) + len(row.row) + len(answer); n > maxRememberedBytes {
			return fail(CodeTooLarge, "row %d has %d bytes with its id and its answer: a prediction that is remembered has at most %d", i, n, maxRememberedBytes)
		}
		all[i] = Remembered{ID: row.id, ContentType: row.contentType, Row: row.row, Model: p.Model, Answer: answer}
	}
	ctx, cancel := context.WithTimeout(ctx, rememberTimeout)
	defer cancel()
	began := time.Now()
	err := s.config.Remember.Remember(ctx, all)
	s.metrics.RememberSeconds.WithLabelValues(map[bool]string{true: "remembered", false: "failed"}[err == nil]).Observe(time.Since(began).Seconds())
	return err
}
