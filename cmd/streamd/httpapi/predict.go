package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental/calibration"
	"streamd/incremental/gram"
	"streamd/ingest/wire"
)

// PredictAnswer is the body that answers POST /v1/predict. It goes by columns: what
// has place i in labels, values and so on belongs to row i of the request.
type PredictAnswer struct {
	Model   string      `json:"model"`   // its fingerprint
	Method  string      `json:"method"`  // that made the planes: psvm, line or full
	Classes []string    `json:"classes"` // the k of the model
	Planes  []string    `json:"planes"`  // the class of each plane
	Labels  []string    `json:"labels"`  // of each row: the class that its values say
	Values  [][]float64 `json:"values"`  // of each row: x'w − γ for each plane

	Calibration   config.Calibration `json:"calibration,omitempty"`   // platt or isotonic, where the model has one
	Probabilities [][]float64        `json:"probabilities,omitempty"` // of each row, where the model has a calibration: one for each class

	Contributions *ContributionsAnswer `json:"contributions,omitempty"` // where they were asked for
	Leverage      *LeverageAnswer      `json:"leverage,omitempty"`      // where it was asked for
}

// ContributionsAnswer says what each feature adds to the values of a row.
type ContributionsAnswer struct {
	// For each plane, the value of the mean row: a row's value is that and the sum
	// of all its contributions, but for rounding.
	AtMean []float64 `json:"at_mean"`
	// For each row and plane, w_j (x_j − mean_j) by the name of the feature.
	Rows [][]map[string]float64 `json:"rows"`
}

// LeverageAnswer says how far rows are from all that was learned from: see
// incremental.Hat.
type LeverageAnswer struct {
	// The mean leverage of the rows that were learned from, about (n+1)/m for n
	// features and m rows: a row of several times that is far from anything seen,
	// and what the model says of it is a guess. One for all planes, or one for each.
	Typical []float64   `json:"typical"`
	Rows    [][]float64 `json:"rows"` // of each row, as many
}

// What one answer may take. A request cannot make it longer than maxNumbers:
// values, probabilities, contributions and leverages (32 MiB of the first).
// Leverages take n² multiplications per row and matrix, some seconds at most.
const (
	maxNumbers            = 4 << 20
	maxLeverageWork int64 = 1 << 33
)

const (
	// stallTimeout is how long a client may take to read flushBytes more.
	stallTimeout = 5 * time.Second
	// shortBody is how much of a body is read before it counts as memory.
	shortBody = 64 << 10
)

func (s *Server) predict(w http.ResponseWriter, r *http.Request) error {
	served, _ := s.service.Served()
	if served.Model == nil {
		return noModel(served)
	}
	contentType := r.Header.Get("Content-Type")
	if _, _, ok := wire.FormatOf(contentType); !ok {
		return fail(CodeUnsupportedMediaType, "Content-Type %q: want one of %s", contentType, strings.Join(rowTypes, ", "))
	}
	coding := strings.ToLower(r.Header.Get("Content-Encoding"))
	switch coding {
	case "identity":
		coding = ""
	case "", "gzip":
	default:
		return fail(CodeUnsupportedMediaType, "Content-Encoding %q: want gzip or none", coding)
	}
	ask, err := askedOf(r, served)
	if err != nil {
		return err
	}
	memory := &share{memory: s.memory, most: s.mostMemory}
	defer memory.shrink(0)
	answer, err := s.answerTo(r, served, ask, coding != "", memory)
	if err != nil {
		return err
	}
	return answer.write(w) // nobody waits for a slot while the client reads
}

// answerTo reads the rows and predicts them. What is left in the share is for the
// answer.
func (s *Server) answerTo(r *http.Request, served *model.Served, ask asked, zipped bool, memory *share) (p prediction, err error) {
	content, err := s.content(r, zipped, memory)
	if err != nil {
		return p, err
	}
	contentType := r.Header.Get("Content-Type")
	format, _, _ := wire.FormatOf(contentType)
	// In a text a number of eight bytes takes two or more, a digit and what follows
	// it, and columns are twice as long while they grow. LIBSVM leaves zeros out,
	// and Arrow may be packed: to the limit that decode has for both.
	columns, rowsAtMost := 8*len(content), min(len(content)/2+1, s.maxRows)
	switch format {
	case wire.LIBSVM:
		rows := bytes.Count(content, []byte("\n")) + 1
		columns = min(max(columns, s.maxBody), 16*rows*len(served.RowFeatures()))
	case wire.Arrow:
		columns, rowsAtMost = s.maxBody, s.maxRows
	}
	perRow := answerNumbers(served, ask)
	price := int64(columns) + 8*int64(min(rowsAtMost*perRow, maxNumbers))
	if price > smallPrediction {
		if err := memory.grow(r.Context(), price+zipMemory); err != nil {
			return p, err
		}
	}
	if err := takeSlot(r.Context(), s.slots); err != nil {
		return p, err
	}
	defer func() { <-s.slots }()
	rows, err := s.decode(contentType, content, served.RowFeatures())
	if err != nil {
		return p, err
	}
	if err := s.checkSize(rows.Rows, served, ask); err != nil {
		return p, err
	}
	if p, err = predict(served, rows.Columns, rows.Rows, ask); err != nil {
		return p, err
	}
	p.long = memory.has > 0
	left := zipMemory + 8*int64(rows.Rows*perRow)
	if ask.contributions > 0 {
		left += int64(columns)
	} else {
		p.columns = nil
	}
	memory.shrink(left)
	return p, nil
}

// content reads the body, and decompresses it.
func (s *Server) content(r *http.Request, zipped bool, memory *share) ([]byte, error) {
	tooLarge := fail(CodeTooLarge, "the body is larger than %d bytes", s.maxBody)
	if r.ContentLength > int64(s.maxBody) {
		return nil, tooLarge
	}
	var body bytes.Buffer
	_, err := body.ReadFrom(io.LimitReader(r.Body, shortBody))
	if err == nil && body.Len() == shortBody {
		err = memory.read(r.Context(), &body, r.Body, s.maxBody+1)
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge
	}
	if known, ok := errors.AsType[*failure](err); ok {
		return nil, known
	}
	if err != nil {
		return nil, fail(CodeBadRequest, "the body ended early")
	}
	if !zipped {
		return body.Bytes(), nil
	}
	var content bytes.Buffer
	from, err := gzip.NewReader(&body)
	if err == nil {
		err = memory.read(r.Context(), &content, from, s.maxBody+1)
	}
	switch known, ok := errors.AsType[*failure](err); {
	case ok:
		return nil, known
	case err != nil:
		return nil, fail(CodeBadRequest, "the body cannot be decompressed: %v", err)
	case content.Len() > s.maxBody:
		return nil, fail(CodeTooLarge, "the body is larger than %d bytes when it is decompressed", s.maxBody)
	}
	return content.Bytes(), nil
}

// asked is what a prediction says beyond labels, values and probabilities.
type asked struct {
	contributions int // of each row and plane, the largest; 0: none
	leverage      bool
}

// askedOf reads ?contributions=true&top=N&leverage=true.
func askedOf(r *http.Request, served *model.Served) (a asked, err error) {
	contributions, most := contributionsQuery.of(r), topQuery.of(r)
	n := len(served.Model.Features)
	if contributions && served.Basis != nil {
		return a, fail(CodeBadRequest, "contributions: the planes are in the coordinates of a kernel's basis, in which features have none of their own")
	}
	switch {
	case contributions:
		a.contributions = min(cmp.Or(most, n), n)
	case most > 0:
		return a, fail(CodeBadRequest, "top says how many contributions to show: it goes with contributions=true")
	}
	if a.leverage = leverageQuery.of(r); a.leverage && served.Hat == nil {
		return a, fail(CodeUnavailable, "leverage: %s", served.Absent.Hat)
	}
	return a, nil
}

// answerNumbers is how many numbers an answer has for each row.
func answerNumbers(served *model.Served, ask asked) int {
	perRow := len(served.Model.Planes) * (1 + ask.contributions)
	if served.Calibration != nil {
		perRow += len(served.Model.Classes)
	}
	if ask.leverage {
		perRow += served.Hat.Matrices()
	}
	return perRow
}

// checkSize refuses what would make too long an answer, or take too long.
func (s *Server) checkSize(rows int, served *model.Served, ask asked) error {
	if rows > s.maxRows {
		return fail(CodeTooLarge, "%d rows: a prediction takes at most %d", rows, s.maxRows)
	}
	n, perRow := len(served.Model.Features), answerNumbers(served, ask)
	if rows*perRow > maxNumbers {
		hint := ""
		if ask.contributions > 1 {
			hint = ", or ask for fewer contributions with top=N"
		}
		return fail(CodeTooLarge, "%d rows with %d numbers each: an answer has at most %d numbers; send at most %d rows%s",
			rows, perRow, maxNumbers, maxNumbers/perRow, hint)
	}
	if ask.leverage {
		perRow := int64(n) * int64(n) * int64(served.Hat.Matrices())
		if most := max(1, maxLeverageWork/perRow); int64(rows) > most {
			return fail(CodeTooLarge, "%d rows: with leverage=true, a prediction of %d features takes at most %d", rows, n, most)
		}
	}
	return nil
}

// decode reads the rows in body, whose memory the table may share.
func (s *Server) decode(contentType string, body []byte, features []string) (wire.Table, error) {
	options := s.rows
	options.Format, options.Features = 0, features
	// Arrow bodies may grow no larger unpacked. The bytes bound the rows: how many
	// there may be is for the caller to check, who has a code for it.
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
func score(served *model.Served, columns []gram.Column, rows int) (labels []int32, values []float64, err error) {
	m := served.Model
	p := len(m.Planes)
	labels, values = make([]int32, rows), make([]float64, rows*p)
	served.Classifier().Classify(labels, values, columns)
	for i, value := range values {
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return nil, nil, fail(CodeBadRequest, "row %d: its value for class %q is %v; are its features finite?", i/p, m.Planes[i%p].Class, value)
		}
	}
	return labels, values, nil
}

// prediction is all of an answer that is not made while it is written.
type prediction struct {
	served    *model.Served
	columns   []gram.Column
	labels    []int32   // m
	values    []float64 // m × planes
	strongest *model.Strongest
	leverages []float64 // m × matrices; nil: not asked for
	long      bool      // the answer is worth compressing
}

func predict(served *model.Served, columns []gram.Column, rows int, ask asked) (p prediction, err error) {
	p = prediction{served: served, columns: columns}
	if p.labels, p.values, err = score(served, columns, rows); err != nil {
		return p, err
	}
	if ask.contributions > 0 {
		p.strongest = model.NewStrongest(served.Model, columns, ask.contributions)
	}
	if ask.leverage {
		matrices := served.Hat.Matrices()
		p.leverages = make([]float64, rows*matrices)
		if b := served.Basis; b == nil {
			served.Hat.Leverage(p.leverages, columns)
		} else {
			model.InCoordinates(b.Map, columns, func(from, to int, in []gram.Column) {
				served.Hat.Leverage(p.leverages[from*matrices:to*matrices], in)
			})
		}
		for i, h := range p.leverages {
			if math.IsNaN(h) || math.IsInf(h, 0) {
				return p, fail(CodeBadRequest, "row %d: its leverage is %v; its features are out of range", i/matrices, h)
			}
		}
	}
	return p, nil
}

// write writes the JSON of a PredictAnswer piece by piece, without an
// allocation per row.
func (p *prediction) write(w http.ResponseWriter) error {
	m := p.served.Model
	names := make([]string, len(m.Planes))
	for i, plane := range m.Planes {
		names[i] = plane.Class
	}
	quoted, err := quoteAll(m.Classes)
	if err != nil {
		return err
	}
	head, err := json.Marshal(PredictAnswer{
		Model: p.served.Fingerprint, Method: p.served.Method(), Classes: m.Classes, Planes: names, Labels: []string{},
	})
	if err != nil {
		return fmt.Errorf("encode the prediction: %w", err)
	}
	const tail = `],"values":null}`
	out := buffered{w: w, to: w, end: time.Now().Add(WriteTimeout), piece: append(make([]byte, 0, flushBytes+4<<10), head[:len(head)-len(tail)]...)}

	w.Header().Set("Content-Type", "application/json")
	if p.long && beginZip(w) {
		z := zippers.Get().(*gzip.Writer)
		defer zippers.Put(z)
		z.Reset(w)
		out.to = z
	}
	for i, label := range p.labels {
		out.separate(i)
		out.piece = append(out.piece, quoted[label]...)
		out.flushFull()
	}
	out.text(`],"values":`)
	out.table(p.values, len(m.Planes))
	if curves := p.served.Calibration; curves != nil {
		out.text(`,"calibration":"`, string(model.CalibrationMethod(curves)), `","probabilities":[`)
		row := make([]float64, len(m.Classes))
		for i := range p.labels {
			calibration.Probabilities(row, curves, p.values[i*len(m.Planes):][:len(m.Planes)])
			out.separate(i)
			out.numbers(row)
		}
		out.text("]")
	}
	if p.strongest != nil {
		if err := p.writeContributions(&out); err != nil {
			return err
		}
	}
	if p.leverages != nil {
		out.text(`,"leverage":{"typical":`)
		out.numbers(p.served.Hat.Typical())
		out.text(`,"rows":`)
		out.table(p.leverages, p.served.Hat.Matrices())
		out.text("}")
	}
	out.text("}\n")
	out.flush()
	if z, ok := out.to.(*gzip.Writer); ok && !out.gone {
		z.Close() // an error means that the client has gone
	}
	return nil
}

func (p *prediction) writeContributions(out *buffered) error {
	m := p.served.Model
	features, err := quoteAll(m.Features)
	if err != nil {
		return err
	}
	out.text(`,"contributions":{"at_mean":`)
	out.numbers(p.strongest.AtMean)
	out.text(`,"rows":[`)
	for i := range p.labels {
		if out.gone {
			break
		}
		out.separate(i)
		out.text("[")
		for plane := range m.Planes {
			out.separate(plane)
			out.text("{")
			order, values := p.strongest.Of(i, plane)
			for rank, j := range order {
				out.separate(rank)
				out.piece = append(append(out.piece, features[j]...), ':')
				out.number(values[j])
				out.flushFull()
			}
			out.text("}")
		}
		out.text("]")
	}
	out.text("]}")
	return nil
}

// quoteAll gives texts as JSON.
func quoteAll(texts []string) ([][]byte, error) {
	quoted := make([][]byte, len(texts))
	for i, text := range texts {
		var err error
		if quoted[i], err = json.Marshal(text); err != nil {
			return nil, fmt.Errorf("encode %q: %w", text, err)
		}
	}
	return quoted, nil
}

const flushBytes = 32 << 10

// buffered gathers an answer and writes it in pieces until end, or until the client
// has gone or takes too long to read one. From then on it drops them.
type buffered struct {
	w     http.ResponseWriter
	to    io.Writer // w, or a *gzip.Writer that writes to it
	end   time.Time
	piece []byte
	gone  bool
}

func (b *buffered) separate(i int) {
	if i > 0 {
		b.piece = append(b.piece, ',')
	}
}

func (b *buffered) text(pieces ...string) {
	for _, p := range pieces {
		b.piece = append(b.piece, p...)
	}
}

func (b *buffered) number(x float64) { b.piece = strconv.AppendFloat(b.piece, x, 'g', -1, 64) }

func (b *buffered) numbers(xs []float64) {
	b.piece = append(b.piece, '[')
	for i, x := range xs {
		b.separate(i)
		b.number(x)
	}
	b.piece = append(b.piece, ']')
	b.flushFull()
}

// table writes rows of the given width.
func (b *buffered) table(xs []float64, width int) {
	b.piece = append(b.piece, '[')
	for i := 0; i < len(xs) && !b.gone; i += width {
		b.separate(i)
		b.numbers(xs[i : i+width])
	}
	b.piece = append(b.piece, ']')
}

func (b *buffered) flushFull() {
	if len(b.piece) >= flushBytes {
		b.flush()
	}
}

func (b *buffered) flush() {
	if !b.gone {
		// A writer without deadlines, such as a test's recorder, never stalls.
		http.NewResponseController(b.w).SetWriteDeadline(time.Now().Add(min(stallTimeout, time.Until(b.end))))
		_, err := b.to.Write(b.piece)
		b.gone = err != nil
	}
	b.piece = b.piece[:0]
}
