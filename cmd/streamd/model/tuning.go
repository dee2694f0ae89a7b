package model

import (
	"math"
	"time"

	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/newton"
	"streamd/incremental/study"
	"streamd/incremental/tuning"
	"streamd/kernels/svm"
)

// Tuning reports how ν was chosen: see package tuning.
type Tuning struct {
	Digest   string    `json:"state_digest"` // digest of the live rows it was chosen for
	ChosenAt time.Time `json:"chosen_at"`    // time of the choice
	Seconds  float64   `json:"seconds"`      // time it took
	Choice
}

// Choice is a choice of ν, for the live rows or for those of a file.
type Choice struct {
	// Number of folds of whole blocks that were held out in turn: those of model.folds
	// that have rows.
	Folds     int    `json:"folds"`
	Criterion string `json:"criterion"` // loss, balanced loss, correctness or balanced correctness

	Nu          float64 `json:"nu"`           // ν chosen
	Method      string  `json:"method"`       // method of the planes that ν is for: psvm or that of a refinement
	Standardise bool    `json:"standardise"`  // whether ν is for standardised features
	Balanced    bool    `json:"balanced"`     // whether ν is for balanced classes
	Mu          float64 `json:"mu,omitempty"` // weight of the slack of the rules that ν is for; chosen, too, with model.mu: auto
	Best        float64 `json:"best"`         // value of the criterion at this ν

	Curves []TuningCurve `json:"curves"` // one for each set of options tried
	// Finals are the best planes of each method, judged like the served ones: the best of them
	// are chosen. None where the method is given.
	Finals []TuningFinal `json:"finals,omitempty"`
}

// TuningFinal has the figures of planes that were judged like the served ones: refined on as
// many rows, and by the rule of decision of the answers.
type TuningFinal struct {
	Nu                  float64 `json:"nu"`                   // ν of the planes
	Method              string  `json:"method"`               // method of the planes: psvm or that of a refinement
	Standardise         bool    `json:"standardise"`          // whether features were standardised
	Balanced            bool    `json:"balanced"`             // whether classes were balanced
	Mu                  float64 `json:"mu,omitempty"`         // weight of the slack of rules
	Correctness         float64 `json:"correctness"`          // share of held-out rows classified right
	BalancedCorrectness float64 `json:"balanced_correctness"` // mean of the classes' shares classified right
}

// TuningCurve has the results of every ν on held-out folds, for one set of options.
type TuningCurve struct {
	Method      string        `json:"method"`       // method of the planes: psvm or that of a refinement
	Standardise bool          `json:"standardise"`  // whether features were standardised
	Balanced    bool          `json:"balanced"`     // whether classes were balanced
	Mu          float64       `json:"mu,omitempty"` // weight of the slack of rules
	Rows        int64         `json:"scored_rows"`  // rows that correctness was measured on; 0: none
	Points      []TuningPoint `json:"points"`       // in ascending order of ν
}

// TuningPoint has the results of one ν on the held-out folds. A figure that was not
// measured is null.
type TuningPoint struct {
	Nu float64 `json:"nu"` // ν tried
	// Mean of (x'w − γ ∓ 1)² over rows and planes; of refined planes, of rows that are wrong or
	// within the margin.
	Loss                *float64 `json:"loss"`
	BalancedLoss        *float64 `json:"balanced_loss"`        // the same with equal weight for both sides of a plane
	Correctness         *float64 `json:"correctness"`          // share of rows classified right
	BalancedCorrectness *float64 `json:"balanced_correctness"` // mean of the classes' shares classified right
}

// Chose reports whether the choice is on a curve.
func (c *Choice) Chose(curve *TuningCurve) bool {
	return curve.Method == c.Method && curve.Standardise == c.Standardise && curve.Balanced == c.Balanced && curve.Mu == c.Mu
}

// Luckier returns the most correct point of the chosen method that was tried, with its curve, where
// it is more correct than the choice; nil where none is, or where the loss chose. It is so within
// the errors of package tuning: by chance as far as the held-out rows tell.
func (c *Choice) Luckier() (*TuningCurve, *TuningPoint) {
	var of *TuningCurve
	var best *TuningPoint
	most := c.Best
	for i := range c.Curves {
		curve := &c.Curves[i]
		for j := range curve.Points {
			p := &curve.Points[j]
			figure := map[string]*float64{
				tuning.Correctness.String(): p.Correctness, tuning.BalancedCorrectness.String(): p.BalancedCorrectness,
			}[c.Criterion]
			if curve.Method == c.Method && figure != nil && *figure > most {
				of, best, most = curve, p, *figure
			}
		}
	}
	return of, best
}

// NewChoice reports a choice.
func NewChoice(of *study.Tuning) *Choice {
	method := func(curve int) string {
		if by := of.Curves[curve].Method; by != "" {
			return by
		}
		return SolvedBy(of.Curves[curve].Options)
	}
	o := of.Curves[of.Chosen].Options
	out := &Choice{
		Criterion: of.Criterion.String(), Nu: of.Point.Nu, Method: method(of.Chosen),
		Standardise: o.Standardise, Balanced: o.Balanced, Mu: MuOf(of.Ways[of.Chosen]), Best: of.Criterion.Of(&of.Point),
		Folds: len(of.Point.FoldLoss),
	}
	for i, c := range of.Curves {
		curve := TuningCurve{Method: method(i), Standardise: c.Options.Standardise, Balanced: c.Options.Balanced, Mu: MuOf(of.Ways[i]), Rows: c.Rows()}
		for _, p := range c.Points() {
			point := TuningPoint{Nu: p.Nu, Loss: number(p.Loss), BalancedLoss: number(p.BalancedLoss)}
			if of := p.Scores; of != nil {
				point.Correctness, point.BalancedCorrectness = &of.Correctness, &of.BalancedCorrectness
			}
			curve.Points = append(curve.Points, point)
		}
		out.Curves = append(out.Curves, curve)
	}
	for _, f := range of.Finals {
		c := of.Curves[f.Curve].Options
		out.Finals = append(out.Finals, TuningFinal{
			Nu: f.Nu, Method: method(f.Curve), Standardise: c.Standardise, Balanced: c.Balanced, Mu: MuOf(of.Ways[f.Curve]),
			Correctness: f.Quality.Correctness, BalancedCorrectness: f.Quality.BalancedCorrectness,
		})
	}
	return out
}

// Objective is the figure that model.objective names.
func Objective(o config.Objective) tuning.Objective {
	if o == config.ObjectiveBalanced {
		return tuning.Balanced
	}
	return tuning.Accuracy
}

// Curves is the kind of curves of model.calibration, if there are any.
func Curves(method config.Calibration) study.Curves {
	switch method {
	case config.CalibrationPlatt:
		return study.Platt
	case config.CalibrationIsotonic:
		return study.Isotonic
	case config.CalibrationSoftmax:
		return study.Softmax
	case config.CalibrationTemperature:
		return study.Temperature
	}
	return study.Auto
}

// Refining says whether planes are refined, by model.refine.
func Refining(how config.Refine) study.Refining {
	switch how {
	case config.RefineNone:
		return study.Never
	case config.RefineAuto:
		return study.Either
	}
	return study.Always
}

// Refiner is the method of model.refine, if there is one, with the parameters of its machine, for
// planes with a Solver. basis says whether the planes are in the coordinates of a basis.
func Refiner(how config.Refine, settings svm.Settings, solver incremental.Solver, basis bool) study.Refiner {
	if rules, ok := solver.(*Rules); ok && how == config.RefineSparse {
		return rulesByRows{svm.Refiner{Name: string(how), Basis: basis}, rules}
	}
	if machine, ok := svm.Named(string(how), settings); ok {
		return svm.Refiner{Name: string(how), Machine: machine, Basis: basis}
	}
	switch how {
	case config.RefineLine:
		return newton.Line
	case config.RefineLogistic:
		return newton.Logistic
	}
	return newton.Full
}

// Value is the figure of p that Criterion compares, nil when it was not measured, and
// whether more of it is better.
func (c *Choice) Value(p TuningPoint) (value *float64, more bool) {
	switch c.Criterion {
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

// ProgressiveOptions are those of planes that judge a stream in its order. A choice by the rows
// would look ahead: where a setting is auto, ν is 1, features are scaled and classes not balanced.
func ProgressiveOptions(m config.Model) incremental.Options {
	if m.Nu == config.NuAuto {
		m.Nu = FirstNu
	}
	if m.Standardise == config.SwitchAuto {
		m.Standardise = config.SwitchOn
	}
	if m.Balanced == config.SwitchAuto {
		m.Balanced = config.SwitchOff
	}
	return Options(m)
}
