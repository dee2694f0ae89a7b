package model

import (
	"errors"
	"fmt"
	"math"

	"streamd/config"
	"streamd/incremental/calibration"
	"streamd/incremental/decision"
	"streamd/ingest/wire"
)

// DecisionJSON is the rule that decides labels, and all that it takes beside the planes and
// the calibration: see package decision.
//
// With two classes a row is of the plane's class where x'w − γ is at least the threshold,
// under every rule. With more classes the label is, under value, the class with the largest
// x'w − γ; under probability, the class with the largest probability of the calibration,
// before the division by their sum; under cost, the class a with the least Σ_c p_c cost(c, a)
// for the probabilities p, where cost(a, a) is 0 and other pairs cost 1 or what costs lists.
// The first of equal ones is taken.
type DecisionJSON struct {
	Rule   decision.Kind `json:"rule"`             // rule: probability, value or cost
	Reason string        `json:"reason,omitempty"` // why the rule is not that of model.decision; absent where it is
	// Least x'w − γ of a row of the plane's class; absent for more than two classes. It is
	// 1.7976931348623157e308 where no row is of that class, and the negative where all are.
	Threshold *float64    `json:"threshold,omitempty"`
	Costs     []PriceJSON `json:"costs,omitempty"` // costs of wrong answers that are not 1, under cost
}

// PriceJSON is the cost of answering a row of one class with another.
type PriceJSON struct {
	Class  string  `json:"class"`  // class of the row
	Answer string  `json:"answer"` // its label
	Cost   float64 `json:"cost"`   // cost of the answer
}

// NewDecisionJSON writes a rule for k classes down. The reason is "" for the rule that was
// wanted.
func NewDecisionJSON(r *decision.Rule, k int, reason string) *DecisionJSON {
	a := &DecisionJSON{Rule: r.Kind(), Reason: reason}
	if k == 2 {
		a.Threshold = new(r.Threshold())
	}
	for _, p := range r.Prices() {
		a.Costs = append(a.Costs, PriceJSON(p))
	}
	return a
}

// RuleOf reads the rule for planes of some classes back, with their calibration, nil for
// none. Without a record, as in answers of earlier versions, probabilities decide where there
// is a calibration. The threshold of curves is computed from these.
func RuleOf(a *DecisionJSON, classes []string, curves []calibration.Curve) (*decision.Rule, error) {
	if a == nil {
		a = &DecisionJSON{Rule: decision.Probability}
		if curves == nil {
			a.Rule = decision.Value
		}
	}
	var prices []decision.Price
	for _, p := range a.Costs {
		prices = append(prices, decision.Price(p))
	}
	if err := decision.CheckPrices(prices); err != nil {
		return nil, fmt.Errorf("the decision: %w", err)
	}
	switch {
	case a.Rule == decision.Value:
		return decision.ByValue(len(classes)), nil
	case a.Rule == decision.Probability && curves != nil:
		return decision.ByProbability(curves), nil
	case a.Rule == decision.Cost && curves != nil:
		return decision.ByCost(classes, curves, prices), nil
	case a.Rule == decision.Cost && len(classes) == 2:
		if a.Threshold == nil || math.IsNaN(*a.Threshold) {
			return nil, errors.New("the decision by cost has neither a threshold nor a calibration")
		}
		return decision.ByThreshold(*a.Threshold, prices), nil
	case a.Rule == decision.Probability || a.Rule == decision.Cost:
		return nil, fmt.Errorf("the decision by %s: %w", a.Rule, decision.ErrCurves)
	}
	return nil, fmt.Errorf("the decision has rule %q: want probability, value or cost", a.Rule)
}

// Prices are costs by CLASS>ANSWER (config.ParsePrices), with the classes' own names.
func Prices(costs map[string]float64) ([]decision.Price, error) {
	prices, err := config.ParsePrices(costs)
	for i := range prices {
		for _, label := range []*string{&prices[i].Class, &prices[i].Answer} {
			if class, err := wire.Label(*label); err == nil {
				*label = class
			}
		}
	}
	if err == nil {
		err = decision.CheckPrices(prices)
	}
	return prices, err
}
