package httpapi

import (
	"slices"
	"testing"

	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/ingest/wire"
)

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
	want := []inputView{{"age", "40", true}, {"income", "0", true}, {"member", "0.5", false}}
	if v := newFormView(served); v.Features != 3 || !slices.Equal(v.Inputs, want) {
		t.Errorf("a form of %d features: %+v, want %+v", v.Features, v.Inputs, want)
	}
}
