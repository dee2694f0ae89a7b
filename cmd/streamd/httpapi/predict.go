package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/wire"
)

// PredictAnswer is the body that answers POST /v1/predict for m rows. It goes
// by columns: Labels[i] and Values[i] belong to row i of the request.
type PredictAnswer struct {
	Model   string      `json:"model"`   // fingerprint
	Classes []string    `json:"classes"` // k
	Planes  []string    `json:"planes"`  // p: the class of each plane
	Labels  []string    `json:"labels"`  // m
	Values  [][]float64 `json:"values"`  // m of p: x'w − γ for each plane
}

// maxValues bounds m·p, and with it the memory of one answer (32 MiB).
const maxValues = 4 << 20

// slotWait is how long a prediction waits for others to end.
const slotWait = 5 * time.Second

func (s *Server) predict(w http.ResponseWriter, r *http.Request) error {
	served, _ := s.service.Served()
	if served.Model == nil {
		return noModel(served)
	}
	contentType := r.Header.Get("Content-Type")
	if _, _, ok := wire.FormatOf(contentType); !ok {
		return fail(CodeUnsupportedMediaType, "Content-Type %q: want %s, %s, %s or %s", contentType,
			wire.JSON.ContentType(), wire.CSV.ContentType(), wire.LIBSVM.ContentType(), wire.Arrow.ContentType())
	}
	if err := s.acquireSlot(r); err != nil {
		return err
	}
	defer func() { <-s.slots }()

	body, err := s.readBody(r)
	if err != nil {
		return err
	}
	rows, err := s.decode(contentType, body, served.Model.Features)
	if err != nil {
		return err
	}
	planes := len(served.Model.Planes)
	if rows.Rows > s.maxRows || rows.Rows*planes > maxValues {
		return fail(CodeTooLarge, "%d rows by %d planes: a prediction takes at most %d rows and %d values", rows.Rows, planes, s.maxRows, maxValues)
	}
	labels, values, err := score(served.Model, rows.Columns, rows.Rows)
	if err != nil {
		return err
	}
	return writePrediction(w, served, labels, values)
}

// acquireSlot bounds how many bodies and answers are in memory.
func (s *Server) acquireSlot(r *http.Request) error {
	timer := time.NewTimer(slotWait)
	defer timer.Stop()
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-timer.C:
		return fail(CodeUnavailable, "too many predictions at a time")
	case <-r.Context().Done():
		return r.Context().Err()
	}
}

func (s *Server) readBody(r *http.Request) ([]byte, error) {
	tooLarge := fail(CodeTooLarge, "the body is larger than %d bytes", s.maxBody)
	if r.ContentLength > int64(s.maxBody) {
		return nil, tooLarge
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, tooLarge
		}
		return nil, fail(CodeBadRequest, "the body ended early")
	}
	return body, nil
}

// decode reads the rows in body, whose memory the table may share.
func (s *Server) decode(contentType string, body []byte, features []string) (wire.Table, error) {
	options := s.rows
	options.Format, options.Features = 0, features
	// Arrow bodies may grow no larger unpacked, and the bytes bound the rows:
	// The rows are checked by the caller, who has a code for it.
	options.Limits.Bytes, options.Limits.Rows = s.maxBody, s.maxBody
	decoder, err := wire.NewDecoder(options)
	if err != nil {
		return wire.Table{}, fmt.Errorf("predict: %w", err)
	}
	table, err := decoder.DecodeUnlabelled(contentType, body)
	if err != nil {
		return wire.Table{}, fail(CodeBadRequest, "%v", err)
	}
	return table, nil
}

// score classifies the rows: labels[i] is the index of row i's class, and
// values[i·p:][:p] are its decision values.
func score(m *incremental.Model, columns []gram.Column, rows int) (labels []int32, values []float64, err error) {
	p := len(m.Planes)
	labels, values = make([]int32, rows), make([]float64, rows*p)
	m.Classify(labels, values, columns)
	for i, value := range values {
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return nil, nil, fail(CodeBadRequest, "row %d: its value for class %q is %v; are its features finite?", i/p, m.Planes[i%p].Class, value)
		}
	}
	return labels, values, nil
}

// writePrediction writes the JSON of a PredictAnswer piece by piece, without
// an allocation per row.
func writePrediction(w http.ResponseWriter, served *Served, labels []int32, values []float64) error {
	m := served.Model
	names := make([]string, len(m.Planes))
	for i, p := range m.Planes {
		names[i] = p.Class
	}
	quoted := make([][]byte, len(m.Classes))
	var err error
	for i, class := range m.Classes {
		if quoted[i], err = json.Marshal(class); err != nil {
			return fmt.Errorf("encode class %q: %w", class, err)
		}
	}
	head, err := json.Marshal(PredictAnswer{Model: served.Fingerprint, Classes: m.Classes, Planes: names, Labels: []string{}})
	if err != nil {
		return fmt.Errorf("encode the prediction: %w", err)
	}
	const tail = `],"values":null}`
	out := buffered{w: w, piece: append(make([]byte, 0, flushBytes+4<<10), head[:len(head)-len(tail)]...)}

	w.Header().Set("Content-Type", "application/json")
	for i, label := range labels {
		out.separate(i)
		out.piece = append(out.piece, quoted[label]...)
		out.flushFull()
	}
	out.piece = append(out.piece, `],"values":[`...)
	planes := len(m.Planes)
	for i := range labels {
		out.separate(i)
		out.piece = append(out.piece, '[')
		for p, value := range values[i*planes:][:planes] {
			out.separate(p)
			out.piece = strconv.AppendFloat(out.piece, value, 'g', -1, 64)
		}
		out.piece = append(out.piece, ']')
		out.flushFull()
	}
	out.piece = append(out.piece, "]}\n"...)
	out.flush()
	return nil
}

const flushBytes = 32 << 10

// buffered gathers an answer; errors of w mean that the client has gone.
type buffered struct {
	w     io.Writer
	piece []byte
}

func (b *buffered) separate(i int) {
	if i > 0 {
		b.piece = append(b.piece, ',')
	}
}

func (b *buffered) flushFull() {
	if len(b.piece) >= flushBytes {
		b.flush()
	}
}

func (b *buffered) flush() {
	b.w.Write(b.piece)
	b.piece = b.piece[:0]
}
