package main

import (
	"context"
	"fmt"
	"slices"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/incremental/confusion"
	"streamd/incremental/decision"
	"streamd/incremental/study"
	"streamd/incremental/tuning"
)

// decisionFlags choose the rule of labels, as model.calibration, model.decision and model.costs
// do.
type decisionFlags struct {
	Calibration config.Calibration `enum:"auto,platt,isotonic,softmax,none" default:"auto" placeholder:"CURVE" help:"Curve from values to probabilities, fitted over the --folds: ${enum}. auto is the best of platt, isotonic, given 1000 rows, and softmax, of all planes together, given 3 to 16 classes."`
	Decision    config.Decision    `enum:"probability,value,cost" default:"probability" placeholder:"RULE" help:"Rule of labels: the largest probability, given a calibration, the largest value, or the least expected cost. Accuracies are by this rule, over the folds by one that has not seen the fold."`
	Costs       map[string]float64 `mapsep:"," placeholder:"A>B=10" help:"Costs of wrong answers: here 10 for a row of class A that is labelled B. Others cost 1. Goes with --decision cost."`
}

// Limits of the out-of-fold values that the rule is fitted to: rows, numbers of these rows, and
// values (512 MiB), the daemon's.
const (
	mostDecided = 50_000
	mostNumbers = 1 << 26
	mostValues  = 1 << 26
)

// demanding says whether a rule or curves are wanted that take folds.
func (c *decisionFlags) demanding() bool {
	return c.Decision == config.DecisionCost || c.Calibration != config.CalibrationAuto && c.Calibration != config.CalibrationNone
}

// decide calibrates the planes and settles the rule of labels, as a daemon does: on a sample
// of rows, each scored by planes without its fold. It returns the areas under the ROC curves,
// nil without folds.
func (f *fit) decide(ctx context.Context, c *decisionFlags, r *fitReport) (auc []float64, err error) {
	k := len(f.model.Classes)
	f.rules = &study.Decided{Rule: decision.ByValue(k)}
	reason := ""
	if c.Decision != config.DecisionValue {
		reason = "there are no folds"
	}
	if f.folds > 0 {
		if auc, reason, err = f.decideOn(ctx, c, r); err != nil {
			return nil, fmt.Errorf("decide the labels of %s: %w", f.data.Path, err)
		}
	}
	r.Decision = model.NewDecisionJSON(f.rules.Rule, k, reason)
	return auc, nil
}

// decideOn is decide with folds. reason says why the rule is not the default one, unless a flag
// asked for a rule: then that is an error.
func (f *fit) decideOn(ctx context.Context, c *decisionFlags, r *fitReport) (auc []float64, reason string, err error) {
	demanded := c.demanding()
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
	how, err := c.judging(f.objective)
	if err != nil {
		return nil, "", err
	}
	settled, err := h.Settle(ctx, how)
	switch {
	case err != nil:
		return nil, "", err
	case demanded && settled.Failed != nil:
		return nil, "", settled.Failed
	case c.Decision == config.DecisionCost && settled.Unruled:
		return nil, "", decision.ErrCurves
	case settled.Unruled && how.Uncalibrated:
		reason = "--calibration is none"
	case settled.Unruled:
		reason = settled.Failed.Error()
	case settled.Decided.Rule.Kind() != decision.Kind(c.Decision):
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
	p := &study.Problem{Whole: f.sums.dealt, Folds: f.sums.folds}
	if f.in != nil {
		p.Regulariser = f.in.Regulariser
	}
	y := study.New(p, study.Options{Planes: f.options, Refine: f.refiner(f.in)})
	y.Use(f.model, f.refining == study.Always)
	if f.blocks == nil && f.foldIn == nil && f.knowledge == nil {
		y.UseWithout(f.foldModels)
	}
	return y.HoldOut(ctx, rows.study(f.in, p.Whole, p.Folds), mostValues)
}

// judging says how labels are decided on held-out rows.
func (c *decisionFlags) judging(by tuning.Objective) (study.Judging, error) {
	prices, err := model.Prices(c.Costs)
	return study.Judging{
		Values: mostValues, Curves: model.Curves(c.Calibration), Uncalibrated: c.Calibration == config.CalibrationNone,
		Decision: study.Decision{Kind: decision.Kind(c.Decision), Prices: prices, Objective: by},
	}, err
}

// decided are the rows that the rule is fitted to: the sample of whole blocks, or one of all
// rows, with their folds.
func (f *fit) decided(ctx context.Context) (*rowSample, error) {
	if f.blocks != nil {
		return f.rows, nil
	}
	limit := max(1, min(mostDecided, mostNumbers/max(1, len(f.data.Features))))
	of := &fit{s: f.s, data: f.data, folds: f.folds, seed: f.seed, method: f.method}
	if err := of.sample(ctx, limit); err != nil {
		return nil, err
	}
	return of.rows.random(), nil
}

// judgement counts rows by their weights.
type judgement struct {
	tally
	matrix *confusion.Matrix // of the classes of the model of all rows
	scores
}

func (f *fit) newJudgement() judgement { return judgement{matrix: confusion.New(len(f.model.Classes))} }

func (j *judgement) merge(o judgement) {
	j.add(o.tally)
	j.matrix.Merge(o.matrix)
	j.append(o.scores)
}

// scores are rows' decision values, one of each plane, for the areas under the ROC curves.
type scores struct {
	values  []float64
	codes   []int // classes of the model of all rows; −1: another
	weights []float64
	cut     bool // there were more than mostValues
}

func (s *scores) append(o scores) {
	if s.cut = s.cut || len(s.values)+len(o.values) > mostValues; s.cut {
		*s = scores{cut: true}
		return
	}
	s.values, s.codes, s.weights = append(s.values, o.values...), append(s.codes, o.codes...), append(s.weights, o.weights...)
}

// areas are the areas under the ROC curves of the classes, nil where rows have too many values.
func (f *fit) areas(s *scores) ([]float64, error) {
	if s.cut {
		return nil, nil
	}
	planes := f.model.Planes
	auc, values, positive := make([]float64, len(f.model.Classes)), make([]float64, len(s.codes)), make([]bool, len(s.codes))
	for c, class := range f.model.Classes {
		sign, plane := 1.0, slices.IndexFunc(planes, func(p incremental.Plane) bool { return p.Class == class })
		if plane < 0 { // the other class of one plane
			sign, plane = -1, 0
		}
		for row, code := range s.codes {
			values[row], positive[row] = sign*s.values[row*len(planes)+plane], code == c
		}
		o, err := calibration.NewOutcomes(values, positive, s.weights)
		if err != nil {
			return nil, err
		}
		auc[c] = o.AUC()
	}
	return auc, nil
}

// answers reports a judgement. It is nil where no row weighs anything.
func (f *fit) answers(j judgement, auc []float64) *model.Answers {
	if j.weight == 0 {
		return nil
	}
	a := model.NewAnswers(f.rules.Rule.Kind(), f.model.Classes, j.matrix, auc)
	return &a
}

// judge counts the labels of a block by a model, with the rule of all rows or that without a
// fold. keep says whether to keep the decision values.
func (f *fit) judge(m *incremental.Model, fold int, b *incremental.Block, keep bool) judgement {
	j := f.newJudgement()
	class, values := make([]int32, b.Rows()), make([]float64, b.Rows()*len(m.Planes))
	m.Classify(class, values, b.Columns)
	at := (&incremental.Block{Classes: m.Classes}).ClassesIn(f.model.Classes)
	if len(m.Classes) == len(f.model.Classes) { // else the rule is of other planes
		rule := f.rules.Rule
		if fold != none {
			rule = f.rules.Without(fold)
		}
		rule.Decide(class, values)
	}
	of := b.ClassesIn(f.model.Classes)
	for i, code := range b.Codes {
		said := at[class[i]]
		j.count(b, i, of[code] == said)
		weight := b.Weight(i)
		if weight > 0 {
			j.matrix.Add(int32(of[code]), int32(said), weight)
		}
		if keep {
			j.codes, j.weights = append(j.codes, of[code]), append(j.weights, weight)
		}
	}
	if keep {
		j.values = values
	}
	return j
}
