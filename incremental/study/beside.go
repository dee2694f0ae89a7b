package study

import (
	"context"
	"errors"
	"fmt"
	"math"

	"streamd/incremental/tuning"
)

// Beside compares the planes of a study, whose settings were given, with those that Tune chooses.
type Beside struct {
	Nu          float64
	Standardise bool
	Criterion   tuning.Criterion // Correctness, or Loss where there are no rows
	// Given and Chosen are the criterion's figures on the held-out rows of all folds. Those of
	// Chosen flatter a little, since the same folds chose.
	Given, Chosen float64
	// Gain is how much better the chosen planes are, and Error its standard error: over rows
	// or, for losses, over folds.
	Gain, Error float64
}

// Better says whether the gain is more than its standard error.
func (b *Beside) Better() bool { return b.Gain > b.Error && b.Gain > 0 }

// Look compares planes that were read off the sums with those of the ν, and with anyScale of the
// scaling, that Tune would choose. rows are those of a sample, in the study's coordinates; nil:
// the squared loss of the folds' sums is compared. It takes a Tune and two HoldOut. It is an
// error when the folds do not tell.
func (s *Study) Look(ctx context.Context, rows *Sample, anyScale bool) (*Beside, error) {
	of := rows
	if of != nil {
		of = rows.some(refinedRows)
	}
	other := &Study{problem: s.problem, total: s.total, options: Options{
		Planes: s.options.Planes, AnyScale: anyScale, Objective: s.options.Objective, Held: s.options.Held,
	}}
	var parts Parts
	if of != nil {
		parts = of
	}
	t, err := other.Tune(ctx, parts)
	if err != nil {
		return nil, err
	}
	planes := other.Options()
	b := &Beside{Nu: planes.Nu, Standardise: planes.Standardise, Criterion: t.Criterion}
	if of == nil || t.Criterion == tuning.Loss || t.Criterion == tuning.BalancedLoss {
		return b, s.besideLoss(b, t)
	}
	if _, err := other.Solve(); err != nil {
		return nil, err
	}
	var held [2]*Settled
	var rowsOf [2]*HeldOut
	for i, y := range []*Study{s, other} {
		if rowsOf[i], err = y.HoldOut(ctx, of, s.options.Held.Values); err != nil {
			return nil, err
		}
		if held[i], err = rowsOf[i].Settle(ctx, s.options.Held); err != nil {
			return nil, err
		}
	}
	b.besideRows(s.options.Objective, rowsOf, held)
	return b, nil
}

// besideRows compares the labels of the same rows.
func (b *Beside) besideRows(by tuning.Objective, of [2]*HeldOut, settled [2]*Settled) {
	figure := func(i int) float64 {
		q := &settled[i].Quality
		return by.Of(q.Correctness, q.BalancedCorrectness)
	}
	b.Given, b.Chosen = figure(0), figure(1)
	b.Gain = b.Chosen - b.Given
	// A row counts by its share of the figure.
	h := of[0]
	weight, all, seen := make([]float64, len(h.model.Classes)), 0.0, 0.0
	for i, c := range h.codes {
		weight[c] += h.weight[i]
		all += h.weight[i]
	}
	for _, w := range weight {
		if w > 0 {
			seen++
		}
	}
	var square float64
	for i, c := range h.codes {
		share := h.weight[i] / all
		if by == tuning.Balanced {
			share = h.weight[i] / weight[c] / seen
		}
		d := -b.Gain
		if settled[1].Decided.said[i] == c {
			d++
		}
		if settled[0].Decided.said[i] == c {
			d--
		}
		square += float64(share * d * (share * d))
	}
	b.Error = math.Sqrt(square)
}

// besideLoss compares the mean squared losses of the folds, which are read off their sums.
func (s *Study) besideLoss(b *Beside, t *Tuning) error {
	trial := tuning.New(s.options.Planes, []float64{s.options.Planes.Nu}, s.total.Classes())
	for i, held := range s.problem.Folds {
		if err := trial.Hold(s.without(i), held.Moments()); err != nil {
			return fmt.Errorf("without fold %d of %d: %w", i+1, len(s.problem.Folds), err)
		}
	}
	curve, err := trial.Curve()
	if err != nil {
		return err
	}
	given, chosen := curve.Points()[0], t.Point
	b.Given, b.Chosen = b.Criterion.Of(&given), b.Criterion.Of(&chosen)
	b.Gain = b.Given - b.Chosen
	var n, sum, square float64
	for i, x := range given.FoldLoss {
		if d := x - chosen.FoldLoss[i]; !math.IsNaN(d) {
			n, sum, square = n+1, sum+d, square+float64(d*d)
		}
	}
	if n < 2 {
		return errors.New("fewer than two folds have rows")
	}
	b.Error = math.Sqrt(max(0, square-sum*sum/n) / (n - 1) / n)
	if math.IsNaN(b.Gain) || math.IsInf(b.Gain, 0) || math.IsNaN(b.Error) || math.IsInf(b.Error, 0) {
		return errors.New("the losses of the folds are not finite")
	}
	return nil
}
