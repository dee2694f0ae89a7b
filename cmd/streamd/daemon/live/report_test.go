package live

import (
	"reflect"
	"testing"
	"time"

	"streamd/cmd/streamd/model"
)

// A reduction's record restores every field.
func TestReportHasAllFields(t *testing.T) {
	want := &model.Reduction{
		Basis: "5a", Kernel: "gaussian(gamma=0.3)", Points: 12, Method: "cs", Digest: "09a7", Rows: 5000, Live: 1 << 40,
		MadeAt: time.Unix(1_700_000_000, 123_456_789).UTC(), Seconds: 1.0 / 3, Unjudged: "too few rows", Pruned: 40,
		Gammas: []model.Gamma{{Gamma: 0.1, Nu: 1, Correctness: 0.9, Loss: 0.25}, {}},
		Stages: []model.Stage{{
			Class: "spam", Stage: 1, Rows: 2, Runs: 3, Nu: 4.5, Candidates: 6, Points: 7.5,
			SupportVectors: 8.5, Training: 0.75, Testing: 0.5, Unconverged: 9,
		}, {}},
	}
	for _, v := range []reflect.Value{reflect.ValueOf(*want), reflect.ValueOf(want.Gammas[0]), reflect.ValueOf(want.Stages[0])} {
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s has no %s: this test shows nothing of it", v.Type(), v.Type().Field(i).Name)
			}
		}
	}
	got, err := reductionOf(reportOf(want))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}
