package model

import (
	"math"
	"time"

	"streamd/incremental/tuning"
)

// Tuning is the body of GET /v1/tuning: how ν was chosen, see package tuning.
type Tuning struct {
	Digest   string    `json:"state_digest"` // of the live rows that it was for
	ChosenAt time.Time `json:"chosen_at"`    // when that was
	Seconds  float64   `json:"seconds"`      // that it took
	// Folds of whole blocks that were held out in turn: those of the model.folds
	// that have rows.
	Folds     int    `json:"folds"`
	Criterion string `json:"criterion"` // loss or correctness, or the balanced one of the two

	Nu          float64 `json:"nu"`          // the choice
	Standardise bool    `json:"standardise"` // whether it is for standardised features
	Balanced    bool    `json:"balanced"`    // whether it is for balanced classes
	Best        float64 `json:"best"`        // what the criterion says of it

	Curves []TuningCurve `json:"curves"` // of all options that were tried
}

// TuningCurve is what every ν was worth on held-out folds, under one set of
// options.
type TuningCurve struct {
	Standardise bool          `json:"standardise"` // the option
	Balanced    bool          `json:"balanced"`    // the option
	Rows        int64         `json:"scored_rows"` // 0: there is no correctness
	Points      []TuningPoint `json:"points"`      // by ν
}

// TuningPoint is what one ν is worth on the held-out folds. What was not measured
// is null.
type TuningPoint struct {
	Nu                  float64  `json:"nu"`                   // that was tried
	Loss                *float64 `json:"loss"`                 // mean of (x'w − γ ∓ 1)² over rows and planes
	BalancedLoss        *float64 `json:"balanced_loss"`        // the same, with both sides of a plane weighing the same
	Correctness         *float64 `json:"correctness"`          // share of the rows classified right
	BalancedCorrectness *float64 `json:"balanced_correctness"` // mean of the classes' shares
}

// NewTuning says what was chosen from the curve with the given index. The
// caller adds where and when.
func NewTuning(curves []tuning.Curve, index int, by tuning.Criterion, chosen tuning.Point) *Tuning {
	o := curves[index].Options
	t := &Tuning{
		Criterion: by.String(), Nu: chosen.Nu, Standardise: o.Standardise, Balanced: o.Balanced, Best: by.Of(&chosen),
	}
	for _, loss := range chosen.FoldLoss {
		if !math.IsNaN(loss) { // which says that a fold has no rows
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

// Value is what Criterion looks at, nil where it was not measured, and whether
// more of it is better.
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

// number is x, or nil for what JSON cannot carry.
func number(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
