package model

import (
	"cmp"
	"fmt"
	"slices"

	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/kernels"
)

// BasisJSON writes down the map of a kernel: a row x of n features has the coordinates
// K(x, z), or K((x − mean)/scale, z), for each of the t points z, or those of a projection.
type BasisJSON struct {
	Kernel      kernels.Kernel     `json:"kernel"`          // kernel with its parameters, as text
	Regulariser config.Regulariser `json:"regulariser"`     // regulariser of the planes: identity or kernel
	Mean        []float64          `json:"mean,omitempty"`  // mean of each feature, where features are scaled
	Scale       []float64          `json:"scale,omitempty"` // scale of each feature, where features are scaled
	Points      [][]float64        `json:"points"`          // t points of n numbers, scaled as the rows are
	// S lists of t numbers. Coordinate k is the sum of list k times the values K at the points.
	// Absent: these values are the coordinates.
	Projection [][]float64 `json:"projection,omitempty"`
}

// NewBasisJSON writes m down and shares its memory.
func NewBasisJSON(m *kernels.Map, regulariser config.Regulariser) *BasisJSON {
	b := &BasisJSON{Kernel: m.Kernel(), Regulariser: regulariser}
	b.Mean, b.Scale = m.Scaling()
	for i := range m.Points() {
		b.Points = append(b.Points, m.Point(i))
	}
	for p := m.Projection(); len(p) > 0; p = p[m.Points():] {
		b.Projection = append(b.Projection, p[:m.Points():m.Points()])
	}
	return b
}

// Size is the number of coordinates.
func (b *BasisJSON) Size() int {
	if b.Projection != nil {
		return len(b.Projection)
	}
	return len(b.Points)
}

// Map reads the map back, for rows of n features. Parts that do not fit together are an
// error.
func (b *BasisJSON) Map(n int) (*kernels.Map, error) {
	z := make([]float64, 0, len(b.Points)*n)
	for i, p := range b.Points {
		if len(p) != n {
			return nil, fmt.Errorf("basis: point %d has %d numbers for %d features", i+1, len(p), n)
		}
		z = append(z, p...)
	}
	m, err := kernels.NewMap(b.Kernel, n, z)
	if err == nil && (b.Mean != nil || b.Scale != nil) {
		m, err = m.Scaled(b.Mean, b.Scale)
	}
	if err != nil || b.Projection == nil {
		return m, err
	}
	var projection []float64
	for i, p := range b.Projection {
		if len(p) != len(b.Points) {
			return nil, fmt.Errorf("basis: coordinate %d has %d numbers for %d points", i+1, len(p), len(b.Points))
		}
		projection = append(projection, p...)
	}
	return m.Projected(projection)
}

// PlaneJSON is the plane x'w = γ. A row is on the side of Class where x'w − γ ≥ 0.
type PlaneJSON struct {
	Class     string    `json:"class"`     // class on the positive side
	W         []float64 `json:"w"`         // one number for each feature, or for each coordinate of a basis
	Gamma     float64   `json:"gamma"`     // γ
	Condition *float64  `json:"condition"` // condition number of the solved system; null if it is not finite
}

// NewPlanesJSON writes planes down and shares their memory.
func NewPlanesJSON(planes []incremental.Plane) (answers []PlaneJSON) {
	for _, p := range planes {
		answers = append(answers, PlaneJSON{Class: p.Class, W: p.W, Gamma: p.Gamma, Condition: number(p.Condition)})
	}
	return answers
}

// OptionsJSON has the options of the solve.
type OptionsJSON struct {
	Nu           float64            `json:"nu"`            // ν, the weight of the errors
	Balanced     bool               `json:"balanced"`      // whether both sides of a plane have equal weight
	ClassWeights map[string]float64 `json:"class_weights"` // weight by class; 1 for a class that is not listed
	Standardise  bool               `json:"standardise"`   // whether features are scaled to equal variance for the solve; w stays in their own units
}

// NewOptionsJSON writes o down.
func NewOptionsJSON(o incremental.Options) OptionsJSON {
	a := OptionsJSON{Nu: o.Nu, Balanced: o.Balanced, ClassWeights: o.ClassWeights, Standardise: o.Standardise}
	if a.ClassWeights == nil {
		a.ClassWeights = map[string]float64{}
	}
	return a
}

// CalibrationMethod is the type of the curves, "" for none.
func CalibrationMethod(curves []calibration.Curve) config.Calibration {
	if len(curves) == 0 {
		return ""
	}
	switch c := curves[0].(type) {
	case calibration.Sigmoid:
		return config.CalibrationPlatt
	case calibration.Isotonic:
		return config.CalibrationIsotonic
	case calibration.Softmax:
		return config.CalibrationSoftmax
	case calibration.Temperature:
		return config.CalibrationTemperature
	default:
		panic(fmt.Sprintf("model: served with a calibration curve of type %T", c))
	}
}

// CalibrationJSON turns decision values into probabilities. A single plane's curve gives
// the probability of its class. The probabilities of k curves are divided by their sum, and
// so are the powers exp(s) of softmax and temperature.
type CalibrationJSON struct {
	Method config.Calibration `json:"method"` // method: platt, isotonic, softmax or temperature
	Planes []CurveJSON        `json:"planes"` // one curve for each plane, in the order of the model's
}

// CurveJSON is 1/(1 + exp(a·value + b)) for platt. For isotonic it is the straight lines
// between knots, and level beyond them. For softmax s is the bias and the sum of weights times
// the values of all planes. For temperature s is the scale times the value, and all scales are
// equal.
type CurveJSON struct {
	A             *float64  `json:"a,omitempty"`             // a of platt
	B             *float64  `json:"b,omitempty"`             // b of platt
	Values        []float64 `json:"values,omitempty"`        // values at the knots of isotonic, ascending
	Probabilities []float64 `json:"probabilities,omitempty"` // probabilities at these values
	Weights       []float64 `json:"weights,omitempty"`       // weights of softmax, one for the value of each plane
	Bias          *float64  `json:"bias,omitempty"`          // bias of softmax
	Scale         *float64  `json:"scale,omitempty"`         // scale of temperature
}

// NewCalibrationJSON writes curves down: nil for none. It shares their memory.
func NewCalibrationJSON(curves []calibration.Curve) *CalibrationJSON {
	if len(curves) == 0 {
		return nil
	}
	a := &CalibrationJSON{Method: CalibrationMethod(curves)}
	for _, curve := range curves {
		switch c := curve.(type) {
		case calibration.Sigmoid:
			a.Planes = append(a.Planes, CurveJSON{A: &c.A, B: &c.B})
		case calibration.Isotonic:
			a.Planes = append(a.Planes, CurveJSON{Values: c.Values, Probabilities: c.Probabilities})
		case calibration.Softmax:
			a.Planes = append(a.Planes, CurveJSON{Weights: c.Weights, Bias: &c.Bias})
		case calibration.Temperature:
			a.Planes = append(a.Planes, CurveJSON{Scale: &c.Scale})
		}
	}
	return a
}

// Curves reads the curves for a number of planes back.
func (a *CalibrationJSON) Curves(planes int) ([]calibration.Curve, error) {
	if len(a.Planes) != planes {
		return nil, fmt.Errorf("the calibration has %d curves for %d planes", len(a.Planes), planes)
	}
	curves := make([]calibration.Curve, planes)
	for i, p := range a.Planes {
		switch {
		case a.Method == config.CalibrationPlatt && p.A != nil && p.B != nil && *p.A <= 0:
			curves[i] = calibration.Sigmoid{A: *p.A, B: *p.B}
		case a.Method == config.CalibrationIsotonic && len(p.Values) > 0 && len(p.Values) == len(p.Probabilities) &&
			slices.IsSorted(p.Probabilities) && p.Probabilities[0] >= 0 && p.Probabilities[len(p.Probabilities)-1] <= 1 &&
			rise(p.Values):
			curves[i] = calibration.Isotonic{Values: p.Values, Probabilities: p.Probabilities}
		case a.Method == config.CalibrationSoftmax && planes > 1 && planes <= calibration.MostSoftmax && len(p.Weights) == planes && p.Bias != nil:
			curves[i] = calibration.Softmax{Weights: p.Weights, Bias: *p.Bias}
		case a.Method == config.CalibrationTemperature && planes > 1 && p.Scale != nil && *p.Scale > 0 && *p.Scale == *cmp.Or(a.Planes[0].Scale, p.Scale):
			curves[i] = calibration.Temperature{Scale: *p.Scale}
		default:
			return nil, fmt.Errorf("curve %d of the calibration is no %q curve", i, a.Method)
		}
	}
	return curves, nil
}

// rise says whether each number is above its predecessor.
func rise(values []float64) bool {
	for i := 1; i < len(values); i++ {
		if !(values[i-1] < values[i]) {
			return false
		}
	}
	return true
}
