package model

import (
	"time"

	"streamd/config"
	"streamd/incremental/calibration"
)

// Quality reports how good the model's answers are out of fold: each row is judged by
// planes that were fitted without its fold.
type Quality struct {
	Digest     string    `json:"state_digest"` // digest of the live rows it was measured for
	MeasuredAt time.Time `json:"measured_at"`  // time of the measurement
	Source     string    `json:"source"`       // source of the rows: sample or log
	Rows       int64     `json:"rows"`         // rows held out and judged
	Sample     *Sampled  `json:"sample"`       // whether the sample had all of its rows
	// Number of folds of whole blocks that were held out in turn: those of model.folds
	// that have rows in the sample and leave rows of every class to the others.
	Folds  int    `json:"folds"`
	Method string `json:"method"` // method of the planes: psvm or that of a refinement

	// The labels are decided out of fold, too: by curves or a threshold that were fitted to the
	// other folds.
	Answers

	Calibration config.Calibration `json:"calibration"` // platt, isotonic or softmax; "" for none
	Before      *Reliability       `json:"before"`      // all classes together, before calibration
	After       *Reliability       `json:"after"`       // all classes together, after calibration; null without one
	// One for each plane: its class against the rest, in the order of the model's planes.
	Planes []PlaneQuality `json:"planes"`

	// Settings that classify held-out blocks better than those that are given, by more than the
	// standard error, and the lines that switch them on. Absent where there are none, and where ν
	// is chosen anyway.
	Better *Better `json:"better_settings,omitempty"`

	// How good solved planes are in fewer coordinates of the basis, pruned by lda without the rows
	// that they are judged by. The last entry has all coordinates. Absent without a basis.
	Sizes []SizeQuality `json:"sizes,omitempty"`
	// Why there are none for the basis in use.
	SizesAbsent string `json:"sizes_absent,omitempty"`
}

// SizeQuality reports the labels of planes in some of the coordinates of a basis, by the planes'
// values. A decision by probability or cost may label otherwise.
type SizeQuality struct {
	Coordinates         int     `json:"coordinates"`          // number of coordinates
	Correctness         float64 `json:"correctness"`          // share of rows classified right
	BalancedCorrectness float64 `json:"balanced_correctness"` // mean of the classes' recalls
}

// PlaneQuality reports the reliability of one plane's probabilities. Before calibration
// the probability is (1 + value)/2, cut to 0 and 1.
type PlaneQuality struct {
	Class  string       `json:"class"`  // class of the plane
	Before *Reliability `json:"before"` // before calibration
	After  *Reliability `json:"after"`  // after calibration; null without one
}

// Reliability compares probabilities with outcomes: see package calibration.
type Reliability struct {
	Weight  float64 `json:"weight"`                     // weight of all rows
	Brier   float64 `json:"brier"`                      // mean squared error of the probabilities
	LogLoss float64 `json:"log_loss"`                   // mean of −log of the probability of the true outcome
	Error   float64 `json:"expected_calibration_error"` // weighted mean over the bins of |probability − share|
	Bins    []Bin   `json:"bins"`                       // in ascending order of probability
}

// Bin has the rows of nearly the same probability.
type Bin struct {
	Low         float64 `json:"low"`         // least probability in the bin
	High        float64 `json:"high"`        // largest probability in the bin
	Weight      float64 `json:"weight"`      // weight of its rows
	Probability float64 `json:"probability"` // mean probability
	Share       float64 `json:"share"`       // weighted share of rows for which it came true
}

// NewReliability is r as a report.
func NewReliability(r calibration.Reliability) *Reliability {
	a := &Reliability{Weight: r.Weight, Brier: r.Brier, LogLoss: r.LogLoss, Error: r.Error, Bins: []Bin{}}
	for _, b := range r.Bins {
		a.Bins = append(a.Bins, Bin(b))
	}
	return a
}
