package study

import (
	"context"
	"fmt"
	"math"

	"streamd/incremental/calibration"
	"streamd/incremental/confusion"
	"streamd/incremental/decision"
	"streamd/incremental/tuning"
)

// Decision says by which rule labels are wanted.
type Decision struct {
	Kind   decision.Kind
	Prices []decision.Price // of Cost
	// Objective is the figure that labels are wanted for. Probability maximises accuracy. With
	// Balanced it becomes the Cost of wrong answers that weighs all classes alike, which
	// maximises the balanced figure.
	Objective tuning.Objective
}

// mostEven is the most classes that are weighed alike by costs: each pair of classes has one.
const mostEven = 64

// even returns the decision with the costs that weigh all classes alike, in place of
// Probability for the balanced objective. The rows of each class cost as much in all.
func (h *HeldOut) even(want Decision) Decision {
	classes := h.model.Classes
	if want.Kind != decision.Probability || want.Objective != tuning.Balanced {
		return want
	}
	if len(classes) > mostEven {
		return Decision{Kind: decision.Value}
	}
	weight, all, seen := make([]float64, len(classes)), 0.0, 0.0
	for i, c := range h.codes {
		weight[c] += h.weight[i]
		all += h.weight[i]
	}
	for _, w := range weight {
		if w > 0 {
			seen++
		}
	}
	out := Decision{Kind: decision.Cost}
	for c, class := range classes {
		if weight[c] == 0 {
			continue
		}
		cost := min(all/weight[c]/seen, decision.MostCost)
		for a, answer := range classes {
			if a != c {
				out.Prices = append(out.Prices, decision.Price{Class: class, Answer: answer, Cost: cost})
			}
		}
	}
	return out
}

// Decided is a rule with its answers for held-out rows.
type Decided struct {
	Rule  *decision.Rule // of all rows
	apart map[int]*decision.Rule
	said  []int32 // the class of each held-out row, by the rule without its fold
}

// Without returns the rule that has not seen a fold; for a fold without held-out rows that is
// the rule of all.
func (d *Decided) Without(fold int) *decision.Rule {
	if r, ok := d.apart[fold]; ok {
		return r
	}
	return d.Rule
}

// Decide settles the rule, and decides each held-out row by a rule that has not seen its
// fold: with curves, or a threshold, that were fitted to the other folds. c is nil without a
// calibration. Probability then fails with decision.ErrCurves, and so does Cost for more than
// two classes. For two it takes the threshold of least cost on the held-out rows.
func (h *HeldOut) Decide(want Decision, c *Calibrated) (*Decided, error) {
	want = h.even(want)
	d := &Decided{said: make([]int32, len(h.codes)), apart: map[int]*decision.Rule{}}
	classes := h.model.Classes
	var rule func(fold int) *decision.Rule // none: of all rows
	switch {
	case want.Kind == decision.Value:
		rule = func(int) *decision.Rule { return decision.ByValue(len(classes)) }
	case want.Kind == decision.Probability && c != nil:
		rule = func(fold int) *decision.Rule { return decision.ByProbability(c.of(fold)) }
	case want.Kind == decision.Cost && c != nil:
		rule = func(fold int) *decision.Rule { return decision.ByCost(classes, c.of(fold), want.Prices) }
	case want.Kind == decision.Cost && len(classes) == 2:
		outcomes, err := h.outcomes(0)
		if err != nil {
			return nil, fmt.Errorf("choose a threshold: %w", err)
		}
		missed, alarm := 1.0, 1.0
		for _, p := range want.Prices {
			switch (decision.Price{Class: p.Class, Answer: p.Answer}) {
			case decision.Price{Class: classes[1], Answer: classes[0]}:
				missed = p.Cost
			case decision.Price{Class: classes[0], Answer: classes[1]}:
				alarm = p.Cost
			}
		}
		rule = func(fold int) *decision.Rule {
			others := outcomes
			if fold != none {
				others = h.outside(outcomes, fold)
			}
			return decision.ByThreshold(others.Threshold(missed, alarm), want.Prices)
		}
	default:
		return nil, fmt.Errorf("decide by %s: %w", want.Kind, decision.ErrCurves)
	}
	d.Rule = rule(none)
	planes := len(h.model.Planes)
	for f, in := range h.folds {
		without := rule(f)
		d.apart[in.fold] = without
		without.Decide(d.said[in.from:in.to], h.values[in.from*planes:in.to*planes])
	}
	return d, nil
}

// none stands for all rows in place of those outside a fold.
const none = -1

// outside has the outcomes of the rows outside a fold.
func (h *HeldOut) outside(o *calibration.Outcomes, fold int) *calibration.Outcomes {
	in := h.folds[fold]
	return o.Only(func(row int) bool { return row < in.from || row >= in.to })
}

// Quality says how good the answers for held-out rows are. Rows count by their weights.
type Quality struct {
	Rows  int64 // scored
	Folds int   // of these rows
	confusion.Figures
	Matrix *confusion.Matrix
	// AUC is, for each class, the area under the ROC curve of its plane's out-of-fold decision
	// values, of all folds together, against all other classes. Two classes share one plane
	// and one area. It does not depend on the rule. NaN: all rows are of the class, or none.
	AUC []float64
}

// Quality judges the decisions.
func (h *HeldOut) Quality(ctx context.Context, d *Decided) (q Quality, err error) {
	k := len(h.model.Classes)
	q = Quality{Rows: int64(len(h.codes)), Folds: len(h.folds), Matrix: confusion.New(k), AUC: make([]float64, k)}
	for i, c := range h.codes {
		q.Matrix.Add(c, d.said[i], h.weight[i])
	}
	if q.Figures = q.Matrix.Figures(); !(q.Weight > 0) || math.IsInf(q.Weight, 0) {
		return q, fmt.Errorf("the held-out rows weigh %v", q.Weight) // shares of them are no numbers
	}
	for p := range h.model.Planes {
		if err := ctx.Err(); err != nil {
			return q, err
		}
		if h.areas == nil || h.areas[p] < 0 {
			if _, err := h.outcomes(p); err != nil {
				return q, err
			}
		}
		q.AUC[p] = h.areas[p]
	}
	if k == 2 {
		q.AUC[1] = q.AUC[0]
	}
	return q, nil
}
