package study

import (
	"context"
	"errors"

	"streamd/incremental/calibration"
	"streamd/incremental/decision"
)

// Settled is how labels are decided, and how good they are.
type Settled struct {
	Calibrated *Calibrated // nil: there are no curves
	// Failed says why there are no curves, where they are wanted.
	Failed  error
	Decided *Decided
	// Unruled reports that the decision values decide in place of the wanted rule, which needs
	// curves.
	Unruled bool
	Quality Quality
}

// Settle calibrates the decision values, settles the rule of labels, and judges these. Where
// a rule needs curves that there are not, the decision values decide. For the balanced
// objective the rule in place of Probability is Cost or Value, whichever is better.
func (h *HeldOut) Settle(ctx context.Context, how Judging) (s *Settled, err error) {
	s = &Settled{}
	if !how.Uncalibrated {
		if s.Calibrated, s.Failed = h.Calibrate(ctx, how.Curves); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	want := how.Decision
	if want.Kind == "" {
		want.Kind = decision.Value
	}
	if s.Decided, err = h.Decide(want, s.Calibrated); errors.Is(err, decision.ErrCurves) {
		s.Unruled = true
		s.Decided, err = h.Decide(Decision{Kind: decision.Value}, nil)
	}
	if err == nil {
		s.Quality, err = h.Quality(ctx, s.Decided)
	}
	if err != nil || s.Unruled {
		return s, err
	}
	if s.Decided.Rule.Kind() == want.Kind {
		if want.Kind == decision.Probability && how.Curves == Auto {
			err = h.keepOrder(ctx, s)
		}
		return s, err
	}
	// The balanced objective has costs that weigh classes alike. The values of balanced planes
	// do so, too, and do not take the curves of rare classes.
	byValue, err := h.Settle(ctx, Judging{Uncalibrated: true})
	if err == nil && byValue.Quality.BalancedCorrectness > s.Quality.BalancedCorrectness {
		s.Decided, s.Quality = byValue.Decided, byValue.Quality
	}
	return s, err
}

// muchBetter is how much more of the rows the decision values have to classify right than the
// most probable classes do, for curves that keep the labels of the values.
const muchBetter = 0.0025

// keepOrder takes curves that keep the labels of the decision values, where these are right
// about more rows: with few rows, curves of a plane are known less well than the planes.
func (h *HeldOut) keepOrder(ctx context.Context, s *Settled) error {
	if len(h.model.Planes) > calibration.MostSoftmax {
		return nil
	}
	byValue, err := h.Settle(ctx, Judging{Uncalibrated: true})
	if err != nil || byValue.Quality.Correctness <= s.Quality.Correctness+muchBetter {
		return err
	}
	c, err := h.temperature(ctx)
	if err != nil {
		return err
	}
	decided, err := h.Decide(Decision{Kind: decision.Probability}, c)
	if err == nil {
		s.Calibrated, s.Decided = c, decided
		s.Quality, err = h.Quality(ctx, decided)
	}
	return err
}

// EvenReason says why labels are not the most probable ones for the balanced objective.
const EvenReason = "the objective is balanced"
