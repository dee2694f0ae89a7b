package model

import (
	"math"
	"time"

	"streamd/incremental/tuning"
)

// Tuning reports how ν was chosen: see package tuning.
type Tuning struct {
	Digest   string    `json:"state_digest"` // digest of the live rows it was chosen for
	ChosenAt time.Time `json:"chosen_at"`    // time of the choice
	Seconds  float64   `json:"seconds"`      // time it took
	// Number of folds of whole blocks that were held out in turn: those of model.folds
	// that have rows.
	Folds     int    `json:"folds"`
	Criterion string `json:"criterion"` // loss, balanced loss, correctness or balanced correctness

	Nu          float64 `json:"nu"`          // ν chosen
	Standardise bool    `json:"standardise"` // whether ν is for standardised features
	Balanced    bool    `json:"balanced"`    // whether ν is for balanced classes
	Best        float64 `json:"best"`        // value of the criterion at this ν

	Curves []TuningCurve `json:"curves"` // one for each set of options tried
}

// TuningCurve has the results of every ν on held-out folds, for one set of options.
type TuningCurve struct {
	Standardise bool          `json:"standardise"` // whether features were standardised
	Balanced    bool          `json:"balanced"`    // whether classes were balanced
	Rows        int64         `json:"scored_rows"` // rows that correctness was measured on; 0: none
	Points      []TuningPoint `json:"points"`      // in ascending order of ν
}

// TuningPoint has the results of one ν on the held-out folds. A figure that was not
// measured is null.
type TuningPoint struct {
	Nu                  float64  `json:"nu"`                   // ν tried
	Loss                *float64 `json:"loss"`                 // mean of (x'w − γ ∓ 1)² over rows and planes
	BalancedLoss        *float64 `json:"balanced_loss"`        // the same with equal weight for both sides of a plane
	Correctness         *float64 `json:"correctness"`          // share of rows classified right
	BalancedCorrectness *float64 `json:"balanced_correctness"` // mean of the classes' shares classified right
}

// NewTuning reports the point chosen from the curve with the given index. The caller
// adds the digest and the times.
func NewTuning(curves []tuning.Curve, index int, by tuning.Criterion, chosen tuning.Point) *Tuning {
	o := curves[index].Options
	t := &Tuning{
		Criterion: by.String(), Nu: chosen.Nu, Standardise: o.Standardise, Balanced: o.Balanced, Best: by.Of(&chosen),
	}
	for _, loss := range chosen.FoldLoss {
		if !math.IsNaN(loss) { // NaN: the fold has no rows
			t.Folds++
		}
	}
	for _, c := range curves {
		curve := TuningCurve{Standardise: c.Options.Standardise, Balanced: c.Options.Balanced, Rows: c.Rows}
		for _, p := range c.Points {
			point := TuningPoint{Nu: p.Nu, Loss: number(p.Loss), BalancedLoss: number(p.BalancedLoss)}
			if c.Rows > 0 {
				point.Correctness, point.BalancedCorrectness = number(p.Correctness), number(p.BalancedCorrectness)
			}
			curve.Points = append(curve.Points, point)
		}
		t.Curves = append(t.Curves, curve)
	}
	return t
}

// Value is the figure of p that Criterion compares, nil when it was not measured, and
// whether more of it is better.
func (t *Tuning) Value(p TuningPoint) (value *float64, more bool) {
	switch t.Criterion {
	case tuning.Loss.String():
		return p.Loss, false
	case tuning.BalancedLoss.String():
		return p.BalancedLoss, false
	case tuning.BalancedCorrectness.String():
		return p.BalancedCorrectness, true
	}
	return p.Correctness, true
}

// number is x, or nil when JSON has no number for it.
func number(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
