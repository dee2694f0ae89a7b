package httpapi

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/klauspost/compress/gzip"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental/calibration"
	"streamd/incremental/gram"
)

// PredictAnswer is the answer to POST /v1/predict, by columns: entry i of labels, values
// and so on belongs to row i of the request.
type PredictAnswer struct {
	Model   string      `json:"model"`   // fingerprint of the model
	Method  string      `json:"method"`  // method of the planes: psvm, line or full
	Classes []string    `json:"classes"` // the k classes of the model
	Planes  []string    `json:"planes"`  // class of each plane
	Labels  []string    `json:"labels"`  // class of each row, by its values
	Values  [][]float64 `json:"values"`  // for each row, x'w − γ for each plane

	Calibration   config.Calibration `json:"calibration,omitempty"`   // platt or isotonic; absent where the model has no calibration
	Probabilities [][]float64        `json:"probabilities,omitempty"` // for each row, the probability of each class; absent without a calibration

	Contributions *ContributionsAnswer `json:"contributions,omitempty"` // contributions, where the request asks for them
	Leverage      *LeverageAnswer      `json:"leverage,omitempty"`      // leverages, where the request asks for them
}

// ContributionsAnswer has the contribution of each feature to a row's values.
type ContributionsAnswer struct {
	// For each plane, the value of the mean row. A row's value is this plus the sum of
	// all its contributions, but for rounding.
	AtMean []float64 `json:"at_mean"`
	// For each row and plane, w_j (x_j − mean_j) by the name of feature j.
	Rows [][]map[string]float64 `json:"rows"`
}

// LeverageAnswer says how far rows are from the rows that the model was learned from: see
// incremental.Hat.
type LeverageAnswer struct {
	// Mean leverage of the rows that the model was learned from, about (n+1)/m for n
	// features and m rows. A row of several times that leverage is unlike any of them,
	// and its label is a guess. One for all planes, or one for each.
	Typical []float64   `json:"typical"`
	Rows    [][]float64 `json:"rows"` // for each row, as many leverages as in typical
}

// asked has the parts of a prediction beyond labels, values and probabilities.
type asked struct {
	contributions int // the largest for each row and plane; 0: none
	leverage      bool
}

// score classifies the rows: labels[i] is the index of row i's class, and
// values[i·p:][:p] are its decision values for p planes.
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

// prediction has the parts of an answer that are computed before it is written.
type prediction struct {
	served        *model.Served
	columns       []gram.Column
	labels        []int32   // m
	values        []float64 // m × planes
	contributions *model.Contributions
	leverages     []float64 // m × matrices; nil when the request asks for none
	long          bool      // the answer is worth compressing
}

func predict(served *model.Served, columns []gram.Column, rows int, ask asked) (p prediction, err error) {
	p = prediction{served: served, columns: columns}
	if p.labels, p.values, err = score(served, columns, rows); err != nil {
		return p, err
	}
	if ask.contributions > 0 {
		p.contributions = model.NewContributions(served.Model, columns, ask.contributions)
	}
	if ask.leverage {
		matrices := served.Hat.Matrices()
		p.leverages = make([]float64, rows*matrices)
		served.Classifier().InCoordinates(columns, func(from, to int, in []gram.Column) {
			served.Hat.Leverage(p.leverages[from*matrices:to*matrices], in)
		})
		for i, h := range p.leverages {
			if math.IsNaN(h) || math.IsInf(h, 0) {
				return p, fail(CodeBadRequest, "row %d: its leverage is %v; its features are out of range", i/matrices, h)
			}
		}
	}
	return p, nil
}

// write writes a PredictAnswer as JSON piece by piece, without an allocation per row.
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
	if p.contributions != nil {
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
	if z, ok := out.to.(*gzip.Writer); ok && !out.lost {
		z.Close() // an error means that the client went away
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
	out.numbers(p.contributions.AtMean)
	out.text(`,"rows":[`)
	for i := range p.labels {
		if out.lost {
			break
		}
		out.separate(i)
		out.text("[")
		for plane := range m.Planes {
			out.separate(plane)
			out.text("{")
			order, values := p.contributions.Of(i, plane)
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

// quoteAll encodes texts as JSON.
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

const (
	flushBytes = 32 << 10
	// stallTimeout bounds how long a client may take to read flushBytes.
	stallTimeout = 5 * time.Second
)

// buffered writes an answer in pieces. It drops them after end, and once the client went
// away or takes too long to read one.
type buffered struct {
	w     http.ResponseWriter
	to    io.Writer // w, or a *gzip.Writer into w
	end   time.Time
	piece []byte
	lost  bool
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
	for i := 0; i < len(xs) && !b.lost; i += width {
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
	if !b.lost {
		// A writer without deadlines, such as a test's recorder, never stalls.
		http.NewResponseController(b.w).SetWriteDeadline(time.Now().Add(min(stallTimeout, time.Until(b.end))))
		_, err := b.to.Write(b.piece)
		b.lost = err != nil
	}
	b.piece = b.piece[:0]
}
