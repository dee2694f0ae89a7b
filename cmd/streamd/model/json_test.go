package model

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"streamd/incremental/calibration"
)

func TestCalibrationJSONRoundTrips(t *testing.T) {
	for _, curves := range [][]calibration.Curve{
		{calibration.Sigmoid{A: -1.5, B: 0.1}},
		{
			calibration.Softmax{Weights: []float64{1, 0.5, 0}, Bias: -1}, calibration.Softmax{Weights: []float64{0, 2, 0.25}},
			calibration.Softmax{Weights: []float64{-1, 0, 3}, Bias: 0.5},
		},
		{calibration.Temperature{Scale: 2.5}, calibration.Temperature{Scale: 2.5}, calibration.Temperature{Scale: 2.5}},
		{calibration.Isotonic{Values: []float64{-1, 0, 2}, Probabilities: []float64{0, 0.25, 1}}, calibration.Isotonic{Values: []float64{0}, Probabilities: []float64{0.5}}},
	} {
		text, err := json.Marshal(NewCalibrationJSON(curves))
		if err != nil {
			t.Fatal(err)
		}
		var a CalibrationJSON
		if err := json.Unmarshal(text, &a); err != nil {
			t.Fatal(err)
		}
		if got, err := a.Curves(len(curves)); err != nil || !reflect.DeepEqual(got, curves) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		if _, err := a.Curves(len(curves) + 1); err == nil {
			t.Errorf("%s: taken for a plane more", text)
		}
	}
	for _, bad := range []string{
		`{"method":"platt","planes":[{"a":-1}]}`,
		`{"method":"platt","planes":[{"a":1,"b":0}]}`,
		`{"method":"isotonic","planes":[{"a":-1,"b":0}]}`,
		`{"method":"isotonic","planes":[{"values":[0,0],"probabilities":[0,1]}]}`,
		`{"method":"isotonic","planes":[{"values":[0,1],"probabilities":[1,0]}]}`,
		`{"method":"isotonic","planes":[{"values":[0,1],"probabilities":[0,2]}]}`,
		`{"method":"isotonic","planes":[{"values":[0,1],"probabilities":[0]}]}`,
		`{"method":"beta","planes":[{"a":-1,"b":0}]}`,
		`{"method":"softmax","planes":[{"weights":[1],"bias":0}]}`,
		`{"method":"temperature","planes":[{"scale":1}]}`,
		`{"method":"platt"}`,
	} {
		var a CalibrationJSON
		if err := json.Unmarshal([]byte(bad), &a); err != nil {
			t.Fatal(err)
		}
		if curves, err := a.Curves(1); err == nil {
			t.Errorf("%s is taken for %v", bad, curves)
		}
	}
}

// An edited calibration is refused or gives probabilities.
func FuzzCalibrationJSON(f *testing.F) {
	f.Add([]byte(`{"method":"platt","planes":[{"a":-1.5,"b":0.1}]}`), 0.5)
	f.Add([]byte(`{"method":"isotonic","planes":[{"values":[-1,0,2],"probabilities":[0,0.25,1]}]}`), 1.0)
	f.Add([]byte(`{"method":"isotonic","planes":[{"values":[-1.7e308,1.7e308],"probabilities":[0,1]}]}`), 1e308)
	f.Fuzz(func(t *testing.T, text []byte, value float64) {
		var a CalibrationJSON
		if json.Unmarshal(text, &a) != nil || math.IsNaN(value) || math.IsInf(value, 0) {
			return
		}
		curves, err := a.Curves(1)
		if err != nil {
			return
		}
		p := make([]float64, 2)
		calibration.Probabilities(p, curves, []float64{value})
		if !(p[0] >= 0 && p[1] >= 0 && math.Abs(p[0]+p[1]-1) < 1e-9) {
			t.Fatalf("%s gives %v at %v", text, p, value)
		}
	})
}
