package model

import (
	"time"

	"streamd/config"
	"streamd/incremental/calibration"
)

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

	Calibration config.Calibration `json:"calibration"` // platt or isotonic; "" for none
	Before      *Reliability       `json:"before"`      // of all classes together, before calibration
	After       *Reliability       `json:"after"`       // after it; null without one
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
