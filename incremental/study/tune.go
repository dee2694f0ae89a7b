package study

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"streamd/incremental"
	"streamd/incremental/tuning"
)

// Tuning reports how ν was chosen.
type Tuning struct {
	Curves    []tuning.Curve // of the options to choose from, then of Options.Others
	Chosen    int            // index of the chosen curve
	Criterion tuning.Criterion
	Point     tuning.Point // the choice
}

// cheap is the most classes × features × rows for curves of other options.
const cheap = 10_000_000

// Tune chooses ν, and with AnyScale whether to standardise, by one fold or more and their
// rows. Without rows (nil) the squared loss decides. When Tune fails, the options stay.
func (s *Study) Tune(ctx context.Context, rows Parts) (*Tuning, error) {
	offered, others := s.optionSets()
	t := &Tuning{}
	var failed error
	for _, o := range offered {
		c, err := s.curve(ctx, o, rows)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		t.Curves = append(t.Curves, c)
	}
	if len(t.Curves) == 0 {
		return nil, failed
	}
	scored := t.Curves[0].Rows
	t.Criterion = tuning.For(s.options.Planes, scored > 0)
	t.Chosen = tuning.Best(t.Criterion, t.Curves)
	var err error
	if _, t.Point, err = t.Curves[t.Chosen].Solve(s.total, t.Criterion); err != nil {
		return nil, err
	}
	size := int64(len(s.total.Classes())*len(s.problem.Whole.Features())) * scored
	if s.options.Others && rows != nil && size <= cheap {
		for _, o := range others {
			// Other options that cannot be solved are left out.
			if c, err := s.curve(ctx, o, rows); err == nil {
				t.Curves = append(t.Curves, c)
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.options.Planes.Nu, s.options.Planes.Standardise = t.Point.Nu, t.Curves[t.Chosen].Options.Standardise
	return t, nil
}

// optionSets returns the options to choose from, the preferred ones first, and others to
// compare with.
func (s *Study) optionSets() (offered, others []incremental.Options) {
	planes := s.options.Planes
	for _, balanced := range []bool{planes.Balanced, !planes.Balanced} {
		for _, scaled := range []bool{false, true} {
			o := planes
			o.Balanced, o.Standardise = balanced, scaled
			switch {
			case balanced == planes.Balanced && (s.options.AnyScale || scaled == planes.Standardise):
				offered = append(offered, o)
			case !balanced || len(o.ClassWeights) == 0:
				others = append(others, o)
			}
		}
	}
	return offered, others
}

// curve tries every ν with one set of options.
func (s *Study) curve(ctx context.Context, o incremental.Options, rows Parts) (c tuning.Curve, err error) {
	t := tuning.New(o, tuning.Grid(), s.total.Classes())
	for i, held := range s.problem.Folds {
		if err := ctx.Err(); err != nil {
			return c, err
		}
		if err := t.Hold(s.without(i), held.Moments()); err != nil {
			return c, fmt.Errorf("without fold %d of %d: %w", i+1, len(s.problem.Folds), err)
		}
	}
	if rows != nil {
		var mu sync.Mutex
		err = rows.Parts(ctx, func(fold int, part *incremental.Block) error {
			score := t.Score(fold, part)
			mu.Lock()
			defer mu.Unlock()
			t.Add(score)
			return nil
		})
		if err != nil {
			return c, err
		}
	}
	return t.Curve(), nil
}
