package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/ingest/wire"
)

const (
	maxInputs  = 40  // features with a field of their own
	maxExample = 256 // features of an example row
)

// formView is the form that classifies rows.
type formView struct {
	Key      string // identifies the features
	Linear   bool   // features have contributions of their own
	Features int
	Inputs   []inputView // fields; empty: rows are written in a text
	Mean     string      // the mean row in JSON, where there are no fields
}

// HasMean reports whether there is a mean row to fill in.
func (v *formView) HasMean() bool {
	return v.Mean != "" || len(v.Inputs) > 0 && !v.Inputs[0].Column
}

type inputView struct {
	Feature, Mean string
	Optional      bool // a row may lack the value
	Column        bool // of which a schema makes features: a number, a time or a text
}

// newFormView makes an empty form that shows the mean row, if that is known: nobody has that
// row, so it is no row to begin with.
func newFormView(served *model.Served) *formView {
	if served.Schema != nil {
		return newColumnsView(served)
	}
	columns, mean := served.RowFeatures(), served.Model.Mean
	if served.Basis != nil {
		mean, _ = served.Basis.Map.Scaling()
	}
	features := served.Missing.Base(columns)
	v := &formView{Linear: served.Basis == nil, Features: len(features)}
	h := sha256.New()
	for _, name := range features {
		h.Write([]byte(strconv.Itoa(len(name)) + " " + name))
	}
	v.Key = hex.EncodeToString(h.Sum(nil)[:8])
	if len(features) > maxExample {
		return v
	}
	values := make([]json.Number, len(features))
	for j, name := range features {
		values[j] = json.Number(strconv.FormatFloat(formMean(served, name, columns, mean), 'g', 4, 64))
	}
	if len(features) <= maxInputs {
		for j, name := range features {
			v.Inputs = append(v.Inputs, inputView{Feature: name, Mean: values[j].String(), Optional: served.Missing.Of(name) != wire.MissingReject})
		}
		return v
	}
	row, err := json.Marshal(map[string]any{"features": values})
	if err != nil {
		panic(err) // numbers
	}
	v.Mean = string(row)
	return v
}

// newColumnsView is the form for the columns that a schema makes features of.
func newColumnsView(served *model.Served) *formView {
	sources := served.Schema.Sources()
	v := &formView{Key: served.Schema.Digest()[:16], Linear: served.Basis == nil, Features: len(sources)}
	if len(sources) <= maxInputs {
		for _, source := range sources {
			v.Inputs = append(v.Inputs, inputView{Feature: source.Name, Optional: source.Gaps, Column: true})
		}
	}
	return v
}

// formMean is the mean of the values of a feature that are not missing; 0 if it is not
// known. A missing value counts as 0 in the mean of all.
func formMean(served *model.Served, name string, columns []string, mean []float64) float64 {
	if len(mean) != len(columns) {
		return 0
	}
	x := mean[slices.Index(columns, name)]
	switch served.Missing.Of(name) {
	case wire.MissingMean, wire.MissingIndicator:
		x /= 1 - mean[slices.Index(columns, incremental.MissingName(name))]
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}
