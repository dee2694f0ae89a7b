package httpapi

import (
	"slices"
	"testing"

	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/ingest/schema"
	"streamd/ingest/wire"
)

// With a schema the form asks for the columns that features are made of, texts among them.
func TestFormOfASchema(t *testing.T) {
	s, err := schema.Parse([]byte(`{c: {kind: category, from: a.b, values: [x], missing: own}, n: number}`))
	if err != nil {
		t.Fatal(err)
	}
	served := &model.Served{Schema: s, Model: &incremental.Model{Features: s.Columns(), Mean: make([]float64, len(s.Columns()))}}
	want := []inputView{{Feature: "a.b", Optional: true, Column: true}, {Feature: "n", Column: true}}
	if v := newFormView(served); v.Features != 2 || !slices.Equal(v.Inputs, want) || v.HasMean() {
		t.Errorf("a form of %d features: %+v, want %+v", v.Features, v.Inputs, want)
	}
}

// The form asks for the features of a row, and not for the columns that mark missing values.
// Its values are the means of those that were not missing.
func TestFormOfMissingValues(t *testing.T) {
	served := &model.Served{
		Model: &incremental.Model{
			Features: []string{"age", "age missing", "income", "income missing", "member"},
			Mean:     []float64{36, 0.1, 0, 1, 0.5},
		},
		Missing: wire.Missing{Default: wire.MissingMean, Features: map[string]wire.MissingPolicy{"member": wire.MissingReject}},
	}
	want := []inputView{{Feature: "age", Mean: "40", Optional: true}, {Feature: "income", Mean: "0", Optional: true}, {Feature: "member", Mean: "0.5"}}
	if v := newFormView(served); v.Features != 3 || !slices.Equal(v.Inputs, want) {
		t.Errorf("a form of %d features: %+v, want %+v", v.Features, v.Inputs, want)
	}
}
