package watching

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental/confusion"
	"streamd/incremental/decision"
	"streamd/incremental/prequential"
)

// The problem is over when the figures are better by more than chance makes them.
func TestNoBetterThanOneClassEnds(t *testing.T) {
	stretch := func(rows, right float64) *model.Stretch {
		matrix := confusion.New(2)
		for class := range int32(2) {
			matrix.Add(class, class, right*rows/2)
			matrix.Add(class, 1-class, (1-right)*rows/2)
		}
		return model.NewStretch(decision.Value, []string{"ham", "spam"}, prequential.Figures{Matrix: matrix})
	}
	for _, c := range []struct {
		window, fading *model.Stretch
		was, want      bool
	}{
		{nil, nil, false, false},
		{stretch(499, 0.1), stretch(400, 0.1), false, false}, // too few
		{stretch(500, 0.5), stretch(400, 0.5), false, true},
		{stretch(20_000, 0.05), stretch(1000, 0.05), false, true}, // labels are exchanged
		{stretch(20_000, 0.501), stretch(1000, 0.49), false, false},
		{stretch(20_000, 0.501), stretch(1000, 0.51), true, true},
		{stretch(20_000, 0.51), stretch(1000, 0.49), true, false},
		{stretch(20_000, 0.4), stretch(1000, 0.6), true, false}, // the latest are right again
	} {
		w := &Watching{}
		if c.was {
			w.useless = c.window
		}
		if got := w.noBetter(model.Prequential{Window: c.window, Fading: c.fading}); (got != nil) != c.want {
			t.Errorf("%+v, %+v, was %v: %v", c.window, c.fading, c.was, got)
		}
	}
}

// Each rise and each fall of the errors has one line in the log.
func TestAlarmsAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	cfg, err := config.Load(config.Sources{Flags: map[string]string{"kafka.topic": "t"}})
	if err != nil {
		t.Fatal(err)
	}
	e, err := loop.NewEnvironment(cfg, zerolog.New(&log), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	log.Reset()
	w := New(loop.New(e), nil, nil)
	for i, a := range []model.Alarm{{Before: 0.1, After: 0.5}, {Before: 0.1, After: 0.6}, {Before: 0.6, After: 0.1}} {
		a.Detector = model.DetectorError
		w.raise(a)
		if got := strings.Count(log.String(), "the stream has changed"); got != i+1 {
			t.Fatalf("%d lines after %d alarms: %s", got, i+1, &log)
		}
	}
}
