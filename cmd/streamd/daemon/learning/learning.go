// Package learning makes the model of a live set. Planes, ν, curves and the rule of labels are a
// function of the set and of [Settings], and of nothing else: no clock, no history. The daemon
// calls it for what it serves, and an auditor calls it with a copy of the snapshot and compares.
package learning

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/decision"
	"streamd/kernels/rules"
	"streamd/retire"
)

// Learner makes models by a configuration. It is immutable.
type Learner struct {
	Config  *config.Config
	Options incremental.Options // of the planes, as configured
	Rules   *rules.Rules        // of model.knowledge; nil: there are none
	Values  int                 // bound of the decision values of held-out rows
	Log     zerolog.Logger      // of reasons that have no other place

	prices []decision.Price // of wrong answers
}

// New makes a Learner. It reads the file of model.knowledge, if there is one.
func New(cfg *config.Config, values int, log zerolog.Logger) (l *Learner, err error) {
	var known *rules.Rules
	if cfg.Model.Knowledge != "" {
		if known, err = rules.Load(cfg.Model.Knowledge); err != nil {
			return nil, fmt.Errorf("model.knowledge: %w", err)
		}
	}
	return newLearner(cfg, values, known, log)
}

// newLearner makes a Learner with the rules of model.knowledge, which are nil if there are none.
func newLearner(cfg *config.Config, values int, known *rules.Rules, log zerolog.Logger) (l *Learner, err error) {
	l = &Learner{Config: cfg, Options: model.Options(cfg.Model), Rules: known, Values: values, Log: log}
	if l.prices, err = model.Prices(cfg.Model.Costs); err != nil {
		return nil, fmt.Errorf("model.costs: %w", err)
	}
	if known == nil {
		return l, nil
	}
	mu := float64(cfg.Model.Mu)
	if cfg.Model.Mu == config.NuAuto {
		mu = model.FirstMu
	}
	l.Options.Solver = model.NewRules(known, mu)
	return l, nil
}

// With is the Learner of a configuration that differs in the features.
func (l *Learner) With(cfg *config.Config) *Learner {
	next := *l
	next.Config = cfg
	return &next
}

// Portable reports whether solved planes have the same bits on every processor. Those of the
// programs of package svm do not.
func (l *Learner) Portable() bool {
	return l.Rules == nil && l.Config.Model.Method != config.MethodLasso
}

// Refines reports whether planes are refined, or may be.
func (l *Learner) Refines() bool { return l.Config.Model.Refine != config.RefineNone }

// Tunes reports whether ν is chosen.
func (l *Learner) Tunes() bool { return l.Config.Model.Nu == config.NuAuto }

// Judges reports whether planes are judged on held-out rows.
func (l *Learner) Judges() bool { return l.Config.Model.Folds > 0 && l.Config.Sample.Rows > 0 }

// Fades reports whether blocks are weighted by a half-life.
func (l *Learner) Fades() bool { return live.HalfLife(l.Config) != retire.HalfLife{} }

// OptionsIn returns the solve's options in the given coordinates of a set. Features are scaled
// before the kernel. The kernel's values are not scaled again.
func (l *Learner) OptionsIn(set *live.Set, in *live.Coordinates) incremental.Options {
	o := l.Options
	o.Standardise = o.Standardise && in == nil
	if rules, ok := o.Solver.(*model.Rules); ok && in != nil {
		o.Solver = rules.In(in.Map, set.Features().Names())
	}
	if in == nil {
		missing := model.MissingOf(l.Config.Format)
		o.Mean = missing.Means(set.Features().Names())
	}
	return o
}

// Basis is the basis in use, or nil.
func (l *Learner) Basis(set *live.Set) *model.Basis {
	c := set.InUse().Coordinates
	if c == nil {
		return nil
	}
	return &model.Basis{ID: c.ID, Map: c.Map, Features: set.Features().Names(), Regulariser: l.Config.Kernel.Regulariser}
}

// Begin is a served value of a set, without a model and without results of a study. The caller
// knows its time and its offsets. weighted is nil without a half-life.
func (l *Learner) Begin(set *live.Set, weighted *live.Weighted) *model.Served {
	s := &model.Served{
		Rows:       set.Rows(),
		Unlabelled: set.Unlabelled(),
		Blocks:     set.Blocks(),
		Digest:     set.Digest(),
		Missing:    model.MissingOf(l.Config.Format),
		Schema:     l.Config.Format.Schema,
		Forgetting: forgettingOf(l.Config.Retire, weighted),
		Basis:      l.Basis(set),
	}
	if s.Schema != nil {
		names, columns := s.Schema.Others()
		for i, name := range names {
			if j := slices.Index(set.Features().Names(), columns[i]); j >= 0 {
				s.Undeclared = append(s.Undeclared, model.Undeclared{Feature: name, Share: set.Features().Total().Mean(j)})
			}
		}
	}
	const soon = "it is not known yet"
	a := &s.Absent
	a.Tuning, a.Refinement, a.Quality, a.Calibration = soon, soon, soon, soon
	m := l.Config.Model
	if !l.Tunes() {
		a.Tuning = "model.nu is a number"
	}
	if !l.Refines() {
		a.Refinement = "model.refine is none"
	}
	switch {
	case m.Folds == 0:
		a.Quality = "model.folds is 0"
	case l.Config.Sample.Rows == 0:
		a.Quality = "sample.rows is 0"
	}
	if a.Calibration = a.Quality; m.Calibration == config.CalibrationNone {
		a.Calibration = "model.calibration is none"
	}
	switch m.Decision {
	case config.DecisionProbability:
		a.Decision = a.Calibration
	case config.DecisionCost:
		a.Decision = a.Quality
	}
	return s
}

// forgettingOf reports the weights of blocks, if there are any.
func forgettingOf(c config.Retire, w *live.Weighted) *model.Forgetting {
	if w == nil {
		return nil
	}
	f := &model.Forgetting{
		HalfLifeSeconds: c.HalfLife.Seconds(), HalfLifeRows: c.HalfLifeRows,
		Rows: w.Whole.Rows(), Weight: w.Whole.Unlabelled().Weight, Digest: w.Digest,
	}
	for _, t := range w.Whole.Totals() {
		f.Weight += t.Weight
	}
	return f
}

// Sums are those that the planes of a set are solved from: with a half-life the weighted ones.
func Sums(set *live.Set, weighted *live.Weighted) *incremental.State {
	if weighted != nil {
		return weighted.Whole
	}
	return set.InUse().Total()
}

// Solve solves the planes of moments, and puts them into next, or the reason why there are none.
// features are those of the rows, and labels those of the moments.
func Solve(ctx context.Context, next *model.Served, moments *incremental.Moments, o incremental.Options, features, labels []string) {
	planes, hat, err := moments.SolveWithHat(o)
	if err != nil {
		planes, err = model.Alone(err, features, o)
	}
	if err != nil {
		next.Problem = NoPlanes(err, next.Rows, labels)
		return
	}
	next.Model, next.Hat = planes, hat
	next.Knowledge = model.NewKnowledge(ctx, planes)
}

// NoPlanes says why rows that have these labels make no planes.
func NoPlanes(err error, rows int64, labels []string) string {
	switch {
	case !errors.Is(err, incremental.ErrClasses):
		return err.Error()
	case rows == 0:
		return "there are no rows"
	case len(labels) == 0:
		return "no row has a label"
	}
	return fmt.Sprintf("all rows with a label are of the class %q", labels[0])
}
