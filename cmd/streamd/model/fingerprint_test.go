package model

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/incremental/decision"
)

func identified() *Identity {
	return &Identity{
		Digest: "d", Weighted: "w", Basis: "b", Regulariser: "kernel",
		Features: []string{"x", "y"}, Classes: []string{"0", "1"},
		Options: OptionsJSON{Nu: 2, ClassWeights: map[string]float64{"0": 3, "1": 4}},
		Missing: []MissingJSON{{Feature: "x", Policy: "mean", Column: "x missing", Mean: new(0.5)}},
		Method:  "psvm",
		Planes:  []PlaneJSON{{Class: "1", W: []float64{1, -2}, Gamma: 0.25, Condition: new(9.0)}},
		Calibration: NewCalibrationJSON([]calibration.Curve{
			calibration.Isotonic{Values: []float64{-1, 1}, Probabilities: []float64{0.25, 0.75}},
		}),
		Decision: &DecisionJSON{Rule: decision.Cost, Threshold: new(0.125), Costs: []PriceJSON{{Class: "0", Answer: "1", Cost: 5}}},
	}
}

// Each change of what is served changes the fingerprint, and a value never passes for its
// neighbour in the encoding.
func TestFingerprintCoversWhatIsServed(t *testing.T) {
	seen := map[string]int{}
	changes := []func(*Identity){
		func(*Identity) {},
		func(i *Identity) { i.Digest = "e" },
		func(i *Identity) { i.Weighted = "" },
		func(i *Identity) { i.Digest, i.Weighted = "dw", "" },
		func(i *Identity) { i.Basis = "" },
		func(i *Identity) { i.Regulariser = "identity" },
		func(i *Identity) { i.Features = []string{"y", "x"} },
		func(i *Identity) { i.Features = []string{"xy"} },
		func(i *Identity) { i.Classes = []string{"0", "2"} },
		func(i *Identity) { i.Options.Nu = math.Nextafter(2, 3) },
		func(i *Identity) { i.Options.Balanced = true },
		func(i *Identity) { i.Options.Standardise = true },
		func(i *Identity) { i.Options.ClassWeights = map[string]float64{"0": 4, "1": 3} },
		func(i *Identity) { i.Options.ClassWeights = nil },
		func(i *Identity) { i.Missing = nil },
		func(i *Identity) { i.Missing[0].Policy = "zero" },
		func(i *Identity) { i.Missing[0].Column = "" },
		func(i *Identity) { i.Missing[0].Mean = nil },
		func(i *Identity) { i.Missing[0].Mean = new(0.0) },
		func(i *Identity) { i.Method = "line" },
		func(i *Identity) { i.Planes[0].Class = "0" },
		func(i *Identity) { i.Planes[0].W[1] = 2 },
		func(i *Identity) { i.Planes[0].Gamma = 0 },
		func(i *Identity) { i.Planes = append(i.Planes, i.Planes[0]) },
		func(i *Identity) { i.Calibration = nil },
		func(i *Identity) { i.Calibration.Planes[0].Values[0] = -2 },
		func(i *Identity) { i.Calibration.Planes[0].Probabilities[0] = 0 },
		func(i *Identity) {
			i.Calibration = NewCalibrationJSON([]calibration.Curve{calibration.Sigmoid{A: -1, B: 2}})
		},
		func(i *Identity) {
			i.Calibration = NewCalibrationJSON([]calibration.Curve{calibration.Sigmoid{A: -1, B: 3}})
		},
		func(i *Identity) {
			i.Calibration = NewCalibrationJSON([]calibration.Curve{calibration.Softmax{Weights: []float64{1}, Bias: 2}})
		},
		func(i *Identity) { i.Decision.Rule = decision.Value },
		func(i *Identity) { i.Decision.Threshold = nil },
		func(i *Identity) { i.Decision.Threshold = new(0.25) },
		func(i *Identity) { i.Decision.Costs = nil },
		func(i *Identity) { i.Decision.Costs[0].Cost = 6 },
		func(i *Identity) { i.Decision.Costs[0].Answer = "2" },
		func(i *Identity) { i.Schema = "ab" },
	}
	for at, change := range changes {
		i := identified()
		change(i)
		f := i.Fingerprint()
		if before, twice := seen[f]; twice {
			t.Errorf("changes %d and %d have the fingerprint %s", before, at, f)
		}
		seen[f] = at
	}
	// A new part of what is served must be in the encoding, and in a change above.
	if parts := reflect.TypeFor[Identity]().NumField(); parts != 13 {
		t.Errorf("an identity has %d parts", parts)
	}
}

// The estimate of a condition number, the reason of a decision and the sign of a zero are no part
// of it.
func TestFingerprintOfEqualModels(t *testing.T) {
	i := identified()
	want := i.Fingerprint()
	i.Planes[0].Condition, i.Decision.Reason = nil, "there is no calibration"
	if got := i.Fingerprint(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	i.Planes[0].Gamma = 0
	want = i.Fingerprint()
	if i.Planes[0].Gamma = math.Copysign(0, -1); i.Fingerprint() != want {
		t.Error("-0 is another number than 0")
	}
}

// Clocks, offsets, counts and reports are no part of a served value's identity. JSON is one of its
// two forms, and keeps it.
func TestFingerprintWithoutClocks(t *testing.T) {
	s := &Served{
		Digest: "d", Rows: 3, Blocks: 2, MadeAt: time.Unix(1, 0), Offsets: []Offset{{Topic: "t", Next: 4}},
		Model: &incremental.Model{
			Features: []string{"x"}, Classes: []string{"a", "b"}, Rows: []int64{1, 2}, Options: incremental.Options{Nu: 1},
			Planes: []incremental.Plane{{Class: "b", W: []float64{0.1}, Gamma: 1e-300}},
		},
	}
	want := s.Identity().Fingerprint()
	again := *s
	again.Blocks, again.MadeAt, again.Offsets, again.Moves = 1, time.Unix(2, 0), nil, 7
	again.Tuning, again.Absent.Quality = &Tuning{Seconds: 3}, "there is none"
	if got := again.Identity().Fingerprint(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	text, err := json.Marshal(s.Identity())
	if err != nil {
		t.Fatal(err)
	}
	var read Identity
	if err := json.Unmarshal(text, &read); err != nil || read.Fingerprint() != want {
		t.Errorf("%s after JSON, %v, want %s", read.Fingerprint(), err, want)
	}
	again.Model = nil
	none := again.Identity().Fingerprint()
	if again.Digest = "e"; none == want || again.Identity().Fingerprint() == none {
		t.Error("without a model the digests do not count")
	}
}
