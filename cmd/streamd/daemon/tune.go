package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/incremental/tuning"
)

const (
	// firstNu is ν before one has been chosen, and where none can be.
	firstNu = 1
	// cheap is the most classes × features × rows for which the curves of options
	// that are not up for choice are shown, too: a second or so.
	cheap = 10_000_000
	// scored is how many rows are scored before the study looks whether it is given up:
	// with 1,000 classes of 100 features in two seconds.
	scored = 500
)

// tune chooses ν, and whether to standardise where that is left open, by folds and
// the rows of the sample in them.
func (s *study) tune(ctx context.Context, view *sample.View) {
	if !s.d.tunes() {
		return
	}
	from := time.Now()
	chosen, err := s.choose(ctx, view)
	if err != nil {
		s.served.Absent.Tuning = "ν is " + config.Nu(firstNu).String() + ", since none could be chosen: " + err.Error()
		return
	}
	s.options.Nu, s.options.Standardise = chosen.Nu, chosen.Standardise
	chosen.Digest, chosen.ChosenAt = s.served.Digest, from.UTC()
	took := time.Since(from).Seconds()
	chosen.Seconds = took
	s.d.metrics.TuneSeconds.Observe(took)
	s.served.Tuning, s.served.Absent.Tuning = chosen, ""
}

func (s *study) choose(ctx context.Context, view *sample.View) (*model.Tuning, error) {
	var blocks []*incremental.Block // of each fold
	rows := 0
	if view != nil && view.Block.Rows() > 0 {
		weighted := weighted(view.Block, s.totals)
		rows = weighted.Rows()
		for _, in := range byFold(view, len(s.folds)) {
			blocks = append(blocks, weighted.Pick(in))
		}
	}
	trial := func(o incremental.Options) (c tuning.Curve, err error) {
		t := tuning.New(o, tuning.Grid(), s.total.Classes())
		for i, f := range s.folds {
			if err := ctx.Err(); err != nil {
				return c, err
			}
			if err := t.Hold(s.without(i), f.Moments()); err != nil {
				return c, fmt.Errorf("without fold %d of %d: %w", i+1, len(s.folds), err)
			}
			if blocks == nil {
				continue
			}
			for from := 0; from < blocks[i].Rows(); from += scored {
				if err := ctx.Err(); err != nil {
					return c, err
				}
				t.Add(t.Score(i, stretch(blocks[i], from, min(from+scored, blocks[i].Rows()))))
			}
		}
		return t.Curve(), nil
	}

	offered, others := s.optionSets()
	var curves []tuning.Curve
	var failed error
	for _, o := range offered {
		c, err := trial(o)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		curves = append(curves, c)
	}
	if len(curves) == 0 {
		return nil, failed
	}
	by := tuning.For(s.options, rows > 0)
	best := tuning.Best(by, curves)
	_, point, err := curves[best].Solve(s.total, by)
	if err != nil {
		return nil, err
	}
	if view != nil && len(s.totals)*len(view.Block.Columns)*rows <= cheap {
		for _, o := range others {
			// What cannot be solved has no curve, and was not asked for.
			if c, err := trial(o); err == nil {
				curves = append(curves, c)
			}
		}
	}
	return model.NewTuning(curves, best, by, point), ctx.Err()
}

// optionSets are the options that are up for choice, the preferred ones first, and
// those that are worth a look beside them.
func (s *study) optionSets() (offered, others []incremental.Options) {
	standardise := s.d.cfg.Model.Standardise
	for _, balanced := range []bool{s.options.Balanced, !s.options.Balanced} {
		for _, scaled := range []bool{false, true} {
			o := s.options
			o.Balanced, o.Standardise = balanced, scaled
			switch {
			case balanced == s.options.Balanced && (standardise == config.SwitchAuto || scaled == s.options.Standardise):
				offered = append(offered, o)
			case !balanced || len(o.ClassWeights) == 0:
				others = append(others, o)
			}
		}
	}
	return offered, others
}
