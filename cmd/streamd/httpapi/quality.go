package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"streamd/incremental/calibration"
)

// The calibrations, as they are named.
const (
	methodPlatt    = "platt"
	methodIsotonic = "isotonic"
)

// calibrationMethod names the type of curves, "" for none.
func calibrationMethod(curves []calibration.Curve) string {
	if len(curves) == 0 {
		return ""
	}
	switch c := curves[0].(type) {
	case calibration.Sigmoid:
		return methodPlatt
	case calibration.Isotonic:
		return methodIsotonic
	default:
		panic(fmt.Sprintf("httpapi: served with a calibration curve of type %T", c))
	}
}

// CalibrationAnswer turns decision values into probabilities. With one plane,
// its curve gives the probability of its class; with k, those of the k curves
// are divided by their sum.
type CalibrationAnswer struct {
	Method string        `json:"method"` // platt or isotonic
	Planes []CurveAnswer `json:"planes"` // in the order of the model's
}

// CurveAnswer is, for platt, 1/(1 + exp(a·value + b)), and for isotonic the
// straight lines between knots, level beyond them.
type CurveAnswer struct {
	A             *float64  `json:"a,omitempty"`             // of platt
	B             *float64  `json:"b,omitempty"`             // of platt
	Values        []float64 `json:"values,omitempty"`        // of the knots of isotonic, rising
	Probabilities []float64 `json:"probabilities,omitempty"` // at these values
}

func calibrationAnswer(curves []calibration.Curve) *CalibrationAnswer {
	if len(curves) == 0 {
		return nil
	}
	a := &CalibrationAnswer{Method: calibrationMethod(curves)}
	for _, curve := range curves {
		switch c := curve.(type) {
		case calibration.Sigmoid:
			a.Planes = append(a.Planes, CurveAnswer{A: &c.A, B: &c.B})
		case calibration.Isotonic:
			a.Planes = append(a.Planes, CurveAnswer{Values: c.Values, Probabilities: c.Probabilities})
		}
	}
	return a
}

// Curves are those of an answer that may have been saved and changed.
func (a *CalibrationAnswer) Curves(planes int) ([]calibration.Curve, error) {
	if len(a.Planes) != planes {
		return nil, fmt.Errorf("the calibration has %d curves for %d planes", len(a.Planes), planes)
	}
	curves := make([]calibration.Curve, planes)
	for i, p := range a.Planes {
		switch {
		case a.Method == methodPlatt && p.A != nil && p.B != nil && *p.A <= 0:
			curves[i] = calibration.Sigmoid{A: *p.A, B: *p.B}
		case a.Method == methodIsotonic && len(p.Values) > 0 && len(p.Values) == len(p.Probabilities) &&
			slices.IsSorted(p.Probabilities) && p.Probabilities[0] >= 0 && p.Probabilities[len(p.Probabilities)-1] <= 1 &&
			rise(p.Values):
			curves[i] = calibration.Isotonic{Values: p.Values, Probabilities: p.Probabilities}
		default:
			return nil, fmt.Errorf("curve %d of the calibration is no %q curve", i, a.Method)
		}
	}
	return curves, nil
}

// rise says whether each number is above the one before.
func rise(values []float64) bool {
	for i := 1; i < len(values); i++ {
		if !(values[i-1] < values[i]) {
			return false
		}
	}
	return true
}

// Quality is the body of GET /v1/quality: what the model is worth on rows that
// its planes were not fitted on, those of each fold by planes without it.
type Quality struct {
	Digest     string    `json:"state_digest"` // of the live rows that it was for
	MeasuredAt time.Time `json:"measured_at"`  // when that was
	Source     string    `json:"source"`       // of the rows: sample or log
	Rows       int64     `json:"rows"`         // held out and judged
	// Folds of whole blocks that were held out in turn: those of the model.folds
	// that have rows in the sample and leave rows of every class to the others.
	Folds  int    `json:"folds"`
	Method string `json:"method"` // of the planes: psvm, line or full

	Correctness         float64 `json:"correctness"`          // share of the rows classified right
	BalancedCorrectness float64 `json:"balanced_correctness"` // mean of the classes' shares

	Calibration string       `json:"calibration"` // platt or isotonic; "" for none
	Before      *Reliability `json:"before"`      // of all classes together, before calibration
	After       *Reliability `json:"after"`       // after it; null without one
	// Each plane's class against the rest, in the order of the model's planes.
	Planes []PlaneQuality `json:"planes"`
}

// PlaneQuality is how well the probabilities of one plane hold: before
// calibration those of calibration.Linear, (1 + value)/2 cut to 0 and 1.
type PlaneQuality struct {
	Class  string       `json:"class"`  // the plane's
	Before *Reliability `json:"before"` // before calibration
	After  *Reliability `json:"after"`  // after it; null without one
}

// Reliability is how well probabilities hold: see package calibration.
type Reliability struct {
	Weight  float64 `json:"weight"`                     // of all rows
	Brier   float64 `json:"brier"`                      // mean squared error of the probabilities
	LogLoss float64 `json:"log_loss"`                   // mean of −log of the probability of what came true
	Error   float64 `json:"expected_calibration_error"` // mean over the bins of |probability − share|, by weight
	Bins    []Bin   `json:"bins"`                       // by rising probability
}

// Bin is rows of nearly the same probability.
type Bin struct {
	Low         float64 `json:"low"`         // the least probability in it
	High        float64 `json:"high"`        // the largest
	Weight      float64 `json:"weight"`      // of its rows
	Probability float64 `json:"probability"` // the mean
	Share       float64 `json:"share"`       // of the rows for which it came true
}

// NewReliability is r as JSON shows it.
func NewReliability(r calibration.Reliability) *Reliability {
	a := &Reliability{Weight: r.Weight, Brier: r.Brier, LogLoss: r.LogLoss, Error: r.Error, Bins: []Bin{}}
	for _, b := range r.Bins {
		a.Bins = append(a.Bins, Bin(b))
	}
	return a
}

func (s *Server) quality(w http.ResponseWriter, r *http.Request) error {
	served, _ := s.service.Served()
	if served.Model == nil {
		return noModel(served)
	}
	if served.Quality == nil {
		return absent("measured quality", served.Absent.Quality)
	}
	if notModified(w, r, served.Fingerprint) {
		return nil
	}
	return answerJSON(w, served.Quality)
}
