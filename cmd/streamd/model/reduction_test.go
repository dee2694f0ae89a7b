package model

import "testing"

func TestStageInALine(t *testing.T) {
	for _, c := range []struct {
		stage Stage
		want  string
	}{
		{Stage{Class: "ham", Rows: 20, Points: 3, Training: 0.9}, "class ham, stage 0: 20 rows, 3 nonzero weights, 90.00 % right"},
		{Stage{Class: "ham", Rows: 1, Points: 1, Training: 1}, "class ham, stage 0: 1 row, 1 nonzero weight, 100.00 % right"},
		{Stage{Class: "ham", Stage: 1, Rows: 20, Points: 2.5, Training: 0.9, Testing: 0.8}, "class ham, stage 1: 20 rows, 2.5 nonzero weights, 80.00 % of other rows right"},
	} {
		if got := c.stage.String(); got != c.want {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
}
