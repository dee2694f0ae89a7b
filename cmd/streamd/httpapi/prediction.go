package httpapi

import (
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/klauspost/compress/gzip"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/incremental/gram"
)

// asked has the parts of a prediction beyond labels, values and probabilities.
type asked struct {
	contributions int // the largest for each row and plane; 0: none
	leverage      bool
	form          predictions.Form
}

// prediction has the parts of an answer that are computed before it is written.
type prediction struct {
	predictions.Table
	columns []gram.Column // of the contributions, which are computed as they are written
	form    predictions.Form
	infers  *predictions.Inference // form of the answer in the place of form; nil: form
	long    bool                   // the answer is worth compressing
}

func predict(served *model.Served, columns []gram.Column, rows int, ask asked) (p prediction, err error) {
	by := served.Classifier()
	p = prediction{Table: predictions.NewTable(by, served.Fingerprint, served.Method()), columns: columns, form: ask.form}
	if err := p.Predict(by, columns, rows); err != nil {
		return p, fail(CodeBadRequest, "%v", err)
	}
	if ask.contributions > 0 {
		p.Contributions = model.NewContributions(by.Model, columns, ask.contributions)
	}
	if ask.leverage {
		p.Typical = served.Hat.Typical()
		matrices := served.Hat.Matrices()
		p.Leverages = make([]float64, rows*matrices)
		by.InCoordinates(columns, func(from, to int, in []gram.Column) {
			served.Hat.Leverage(p.Leverages[from*matrices:to*matrices], in)
		})
		for i, h := range p.Leverages {
			if math.IsNaN(h) || math.IsInf(h, 0) {
				return p, fail(CodeBadRequest, "row %d: its leverage is %v; its features are out of range", i/matrices, h)
			}
		}
	}
	return p, nil
}

// modelHeader names the model that made the predictions, for forms that have no place for it.
const modelHeader = "Streamd-Model"

// write writes the answer piece by piece.
func (p *prediction) write(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", p.form.ContentType())
	w.Header().Set(modelHeader, p.Model)
	if p.infers != nil && p.infers.Binary() {
		n, err := p.InferenceJSONBytes(*p.infers)
		if err != nil {
			return fail(CodeBadRequest, "%v", err)
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set(inferHeader, strconv.Itoa(n))
	}
	client := &patient{w: w, end: time.Now().Add(WriteTimeout)}
	if !p.long || !beginZip(w) {
		return client.blame(p.render(client))
	}
	z := zippers.Get().(*gzip.Writer)
	defer zippers.Put(z)
	z.Reset(client)
	err := p.render(z)
	if err == nil {
		err = z.Close()
	}
	return client.blame(err)
}

// render writes the answer in its form.
func (p *prediction) render(w io.Writer) error {
	if p.infers != nil {
		return p.WriteInference(w, *p.infers)
	}
	return p.Write(w, p.form)
}

// stallTimeout bounds how long a client may take to read a piece.
const stallTimeout = 5 * time.Second

// patient writes to a client with a deadline for each piece. Nothing is written after end.
type patient struct {
	w    http.ResponseWriter
	end  time.Time
	sent bool // some of the answer is on its way
	lost bool // the client went away, or takes too long
}

func (p *patient) Write(piece []byte) (int, error) {
	// A writer without deadlines, such as a test's recorder, never stalls.
	http.NewResponseController(p.w).SetWriteDeadline(time.Now().Add(min(stallTimeout, time.Until(p.end))))
	p.sent = true
	n, err := p.w.Write(piece)
	p.lost = p.lost || err != nil
	return n, err
}

// blame ends an answer. An error that is not the client's is in the numbers. It is the answer
// if nothing has been sent; else the connection ends, so that the client does not take a part
// for the whole.
func (p *patient) blame(err error) error {
	switch {
	case err == nil || p.lost:
		return nil
	case p.sent:
		panic(http.ErrAbortHandler)
	}
	p.w.Header().Del("Content-Encoding")
	p.w.Header().Del(modelHeader)
	p.w.Header().Del(inferHeader)
	return fail(CodeBadRequest, "%v", err)
}
