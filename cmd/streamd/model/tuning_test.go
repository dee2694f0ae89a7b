package model

import "testing"

// The report names the most correct planes of the chosen method, where others are served.
func TestLuckier(t *testing.T) {
	at := func(nu, right, balanced float64) TuningPoint {
		return TuningPoint{Nu: nu, Correctness: &right, BalancedCorrectness: &balanced}
	}
	tuned := Choice{
		Criterion: "correctness", Method: MethodPSVM, Standardise: true, Nu: 2, Best: 0.9,
		Curves: []TuningCurve{
			{Method: MethodPSVM, Standardise: true, Points: []TuningPoint{at(1, 0.89, 0.8), at(2, 0.9, 0.8)}},
			{Method: MethodPSVM, Points: []TuningPoint{at(1, 0.91, 0.7), at(2, 0.92, 0.7), {Nu: 4}}},
			{Method: "full", Points: []TuningPoint{at(8, 0.99, 0.99)}}, // judged with the finals
		},
	}
	if c, p := tuned.Luckier(); c != &tuned.Curves[1] || p == nil || p.Nu != 2 {
		t.Errorf("%+v, %+v", c, p)
	}
	tuned.Criterion, tuned.Best = "balanced correctness", 0.8
	if _, p := tuned.Luckier(); p != nil {
		t.Errorf("%+v is no better", p)
	}
	tuned.Criterion, tuned.Best = "loss", 0.1
	if _, p := tuned.Luckier(); p != nil {
		t.Errorf("%+v, where the loss chose", p)
	}
}
