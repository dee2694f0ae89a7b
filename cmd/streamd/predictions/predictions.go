// Package predictions writes the classes of rows in four forms: JSON by columns or by
// rows, CSV, and an Arrow stream. The daemon and streamd predict answer with the same
// bytes. The package renders: it decides no label.
//
//	Columns  one list of labels, one of values, one of probabilities   [PredictAnswer]
//	Rows     an object for each row, with the names of the classes     [PredictRowsAnswer]
//	CSV      a line for each row below a header
//	Arrow    the columns of CSV, in batches of about 64 Ki numbers
//
// CSV and Arrow have these columns: label, then value_C with the value for the plane of each
// class C, then probability_C for each class C where the rule goes by probabilities. Values
// and probabilities are those of the rule that decided the labels, so that they agree with
// them (package decision). Contributions and leverages have no place there. In Arrow, label
// is a dictionary of texts in the order of the model's classes, and the others are float64.
// The schema's metadata has decision, and model, method and calibration where they are known.
//
// All numbers are those of the table, bit for bit: text has the fewest digits that read
// back to the same float64.
//
// # Labels of strangers
//
// A label is any text that a producer sent. JSON escapes it, and CSV quotes it where it has
// a comma, a quote, a line end or white space at its ends (RFC 4180). A label is never
// changed. So a spreadsheet that opens the CSV may take a label such as =1+2 for a formula,
// as it takes -1 for a number: import the column as text there.
//
// # Memory
//
// A form is written piece by piece, 32 KiB of text or a batch at a time. The memory it takes
// does not depend on the number of rows, and no row of text allocates.
package predictions

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental/decision"
	"streamd/incremental/gram"
)

// Form is a way to write predictions.
type Form uint8

// The forms.
const (
	Columns Form = iota
	Rows
	CSV
	Arrow
)

// ContentType is the media type of the form, with its parameters.
func (f Form) ContentType() string {
	switch f {
	case CSV:
		return "text/csv; charset=utf-8; header=present"
	case Arrow:
		return "application/vnd.apache.arrow.stream"
	}
	return "application/json"
}

// Table has the predictions of m rows.
type Table struct {
	Model   string   // fingerprint of the model; "": it has none
	Method  string   // method of the planes; "": not known
	Classes []string // the k classes of the model
	Planes  []string // class of each of the p planes

	Rule   *decision.Rule // that decided the labels
	Labels []int32        // m: index of each row's class
	Values []float64      // m × p: x'w − γ, row by row

	shown []float64    // of values
	arrow *arrowStream // nil before the first stream

	Features      []string             // of Contributions
	Contributions *model.Contributions // nil: none
	Leverages     []float64            // m × len(Typical), row by row; nil: none
	Typical       []float64            // mean leverages of the rows that were learned from
}

// NewTable makes a table without rows, of a model's classes, planes and rule. fingerprint and
// method may be "".
func NewTable(by *model.Classifier, fingerprint, method string) Table {
	t := Table{Model: fingerprint, Method: method, Features: by.Model.Features, Classes: by.Model.Classes, Rule: by.DecidesBy()}
	for _, plane := range by.Model.Planes {
		t.Planes = append(t.Planes, plane.Class)
	}
	return t
}

// Predict fills the table with the labels and values of m rows, in place of others. The error names
// a row whose value is no number.
func (t *Table) Predict(by *model.Classifier, columns []gram.Column, m int) error {
	p := len(t.Planes)
	t.Labels = slices.Grow(t.Labels[:0], m)[:m]
	t.Values = slices.Grow(t.Values[:0], m*p)[:m*p]
	by.Classify(t.Labels, t.Values, columns)
	for i, value := range t.Values {
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return fmt.Errorf("row %d: its value for class %q is %v; are its features finite?", i/p, t.Planes[i%p], value)
		}
	}
	return nil
}

// Shown returns the values of row i on the scale of the rule, until the next call.
func (t *Table) Shown(i int) []float64 {
	p := len(t.Planes)
	if t.shown == nil {
		t.shown = make([]float64, p)
	}
	t.Rule.Values(t.shown, t.Values[i*p:][:p])
	return t.shown
}

// Probable says whether there are probabilities.
func (t *Table) Probable() bool { return t.Rule.HasProbabilities() }

// calibration is the method of the probabilities, "" without any.
func (t *Table) calibration() config.Calibration { return model.CalibrationMethod(t.Rule.Curves()) }

// Probabilities fills dst, with room for each class, with the probabilities of row i. The
// table must be Probable.
func (t *Table) Probabilities(dst []float64, i int) {
	p := len(t.Planes)
	t.Rule.Probabilities(dst, t.Values[i*p:][:p])
}

// leverages returns the leverages of row i. They alias the table.
func (t *Table) leverages(i int) []float64 {
	n := len(t.Typical)
	return t.Leverages[i*n:][:n]
}

// Write writes the predictions in a form. It returns the first error of w, and stops there.
// CSV and Arrow panic with contributions or leverages.
func (t *Table) Write(w io.Writer, form Form) error {
	if (form == CSV || form == Arrow) && (t.Contributions != nil || t.Leverages != nil) {
		panic("predictions: contributions and leverages have no place in this form")
	}
	switch form {
	case Columns:
		return t.writeColumns(w)
	case Rows:
		return t.writeRows(w)
	case CSV:
		return t.writeCSV(w)
	case Arrow:
		return t.writeArrow(w)
	}
	panic(fmt.Sprintf("predictions: there is no form %d", form))
}

// Row is the answer for row i alone, a PredictRowsAnswer without contributions and leverages.
func (t *Table) Row(i int) ([]byte, error) {
	one, p := *t, len(t.Planes)
	one.Labels, one.Values = t.Labels[i:i+1], t.Values[i*p:][:p]
	one.Contributions, one.Leverages, one.Typical = nil, nil, nil
	var b bytes.Buffer
	err := one.Write(&b, Rows)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// columnNames are the names of the columns of CSV and Arrow.
func (t *Table) columnNames() []string {
	names := []string{"label"}
	for _, class := range t.Planes {
		names = append(names, "value_"+class)
	}
	if t.Probable() {
		for _, class := range t.Classes {
			names = append(names, "probability_"+class)
		}
	}
	return names
}
