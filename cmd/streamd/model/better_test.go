package model

import (
	"strings"
	"testing"
)

// The two figures of the sentence differ, also where the gain is small beside them.
func TestBetterShowsItsGain(t *testing.T) {
	for _, test := range []struct {
		given, gain float64
		want        string
	}{
		{1.0047, 0.00445, "1.0002 in place of 1.0047"},
		{0.5, 0.25, "0.25 in place of 0.5"},
		{0.123456, 0.000004, "0.123452 in place of 0.123456"},
	} {
		b := &Better{Settings: []string{"model.nu: auto"}, Criterion: "loss", Given: test.given, Chosen: test.given - test.gain, Gain: test.gain}
		if got := b.String(); !strings.HasSuffix(got, test.want) {
			t.Errorf("%s: want %s", got, test.want)
		}
	}
}
