package fit

import (
	"context"
	"fmt"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental/decision"
	"streamd/incremental/study"
)

// Limits of the out-of-fold values that the rule is fitted to: rows, numbers of these rows, and
// values (512 MiB), the daemon's.
const (
	mostDecided = 50_000
	mostNumbers = 1 << 26
	mostValues  = 1 << 26
)

// demanding says whether a rule or curves are wanted that take folds.
func (f *fit) demanding() bool {
	m := &f.want.Model
	return m.Decision == config.DecisionCost || m.Calibration != config.CalibrationAuto && m.Calibration != config.CalibrationNone
}

// decide calibrates the planes and settles the rule of labels, as a daemon does: on a sample
// of rows, each scored by planes without its fold. It returns the areas under the ROC curves,
// nil without folds.
func (f *fit) decide(ctx context.Context, r *Report) (auc []float64, err error) {
	k := len(f.model.Classes)
	f.rules = &study.Decided{Rule: decision.ByValue(k)}
	reason := ""
	if f.want.Model.Decision != config.DecisionValue {
		reason = "there are no folds"
	}
	if f.folds > 0 {
		if auc, reason, err = f.decideOn(ctx, r); err != nil {
			return nil, fmt.Errorf("decide the labels of %s: %w", f.data.Path, err)
		}
	}
	r.Decision = model.NewDecisionJSON(f.rules.Rule, k, reason)
	return auc, nil
}

// decideOn is decide with folds. reason says why the rule is not the default one, unless a flag
// asked for a rule: then that is an error.
func (f *fit) decideOn(ctx context.Context, r *Report) (auc []float64, reason string, err error) {
	demanded := f.demanding()
	h := f.held
	if h == nil {
		h, err = f.holdOut(ctx)
	}
	if err != nil {
		if demanded || ctx.Err() != nil {
			return nil, "", err
		}
		return nil, err.Error(), nil
	}
	how, err := f.judging()
	if err != nil {
		return nil, "", err
	}
	settled, err := h.Settle(ctx, how)
	switch {
	case err != nil:
		return nil, "", err
	case demanded && settled.Failed != nil && (settled.Unruled || f.want.Model.Calibration != config.CalibrationAuto):
		return nil, "", settled.Failed
	case f.want.Model.Decision == config.DecisionCost && settled.Unruled:
		return nil, "", decision.ErrCurves
	case settled.Unruled && how.Uncalibrated:
		reason = "--calibration is none"
	case settled.Unruled:
		reason = settled.Failed.Error()
	case settled.Decided.Rule.Kind() != decision.Kind(f.want.Model.Decision):
		reason = study.EvenReason
	}
	if curves := settled.Calibrated; curves != nil {
		r.Calibration = model.NewCalibrationJSON(curves.Curves)
	}
	f.rules = settled.Decided
	return settled.Quality.AUC, reason, nil
}

// holdOut scores rows of a sample by planes without their folds.
func (f *fit) holdOut(ctx context.Context) (*study.HeldOut, error) {
	rows, err := f.decided(ctx)
	if err != nil {
		return nil, err
	}
	p := f.dealt()
	y := study.New(p, study.Options{Planes: f.options, Refine: f.refiner(f.in)})
	y.Use(f.model, f.refining == study.Always)
	if f.blocks == nil && f.foldIn == nil && f.knowledge == nil {
		y.UseWithout(f.foldModels)
	}
	return y.HoldOut(ctx, rows.study(f.in, p.Whole, p.Folds), mostValues)
}

// judging says how labels are decided on held-out rows.
func (f *fit) judging() (study.Judging, error) {
	m := &f.want.Model
	prices, err := model.Prices(m.Costs)
	return study.Judging{
		Values: mostValues, Curves: model.Curves(m.Calibration), Uncalibrated: m.Calibration == config.CalibrationNone,
		Decision: study.Decision{Kind: decision.Kind(m.Decision), Prices: prices, Objective: f.objective},
	}, err
}

// decided are the rows that the rule is fitted to: the sample of whole blocks, or one of all
// rows, with their folds.
func (f *fit) decided(ctx context.Context) (*rowSample, error) {
	if f.blocks != nil {
		return f.rows, nil
	}
	limit := max(1, min(mostDecided, mostNumbers/max(1, len(f.data.Features))))
	rows, err := f.sample(ctx, limit)
	if err != nil {
		return nil, err
	}
	return rows.random(), nil
}
