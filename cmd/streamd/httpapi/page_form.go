package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"strconv"

	"streamd/cmd/streamd/model"
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
	Inputs   []inputView // fields; empty: Rows are written in a text
	Rows     string      // the mean row, as an example
}

type inputView struct {
	Feature, Value string
}

// newFormView makes a form whose values are those of the mean row, if that is known.
func newFormView(served *model.Served) *formView {
	features, mean := served.RowFeatures(), served.Model.Mean
	if served.Basis != nil {
		mean, _ = served.Basis.Map.Scaling()
	}
	v := &formView{Linear: served.Basis == nil, Features: len(features)}
	h := sha256.New()
	for _, name := range features {
		h.Write([]byte(strconv.Itoa(len(name)) + " " + name))
	}
	v.Key = hex.EncodeToString(h.Sum(nil)[:8])
	values := make([]json.Number, len(features))
	for j := range values {
		values[j] = "0"
		if len(mean) == len(values) && !math.IsNaN(mean[j]) && !math.IsInf(mean[j], 0) {
			values[j] = json.Number(strconv.FormatFloat(mean[j], 'g', 5, 64))
		}
	}
	switch {
	case len(features) <= maxInputs:
		for j, name := range features {
			v.Inputs = append(v.Inputs, inputView{name, values[j].String()})
		}
	case len(features) <= maxExample:
		row, err := json.Marshal(map[string]any{"features": values})
		if err != nil {
			panic(err) // numbers
		}
		v.Rows = string(row)
	}
	return v
}
