package fit

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"streamd/cmd/streamd/dataset"
	"streamd/config"
	"streamd/ingest/wire"
)

// The expected values are those of numpy 2.4.6 and scikit-learn 1.9.1. On elec2, with planes of
// every 100 rows, River 0.26.1's progressive_val_score of the same planes has the accuracy 73.49 %
// and the kappa 42.39 %, as fit has.
//
//	i = np.arange(1200); X = np.c_[i*37 % 101/128, i*53 % 89/128]
//	y = np.where(X[:, 0] + (i//20 % 3 - 1)*0.25 > X[:, 1] + np.where(i > 700, 0.3, 0), 1, -1)
//	E = np.c_[X, -np.ones(len(X))]; S = np.eye(3)/2; t = np.zeros(3); z = None; p = np.zeros(len(y), int)
//	for a in range(0, len(y), 50):
//	    b = slice(a, a + 50)
//	    if z is not None: p[b] = np.where(E[b] @ z >= 0, 1, -1)
//	    S += E[b].T @ E[b]; t += E[b].T @ y[b]; z = np.linalg.solve(S, t)
//	last = np.r_[0, y[:-1]][50:]; y, p = y[50:], p[50:]
//	acc, per = (y == p).mean(), (y == last).mean()
//	acc, (y == 1).mean(), (y == -1).mean(), per, cohen_kappa_score(y, p), (acc - per)/(1 - per)
func TestProgressiveAgainstScikitLearn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.csv")
	var text strings.Builder
	text.WriteString("label,x,y\n")
	for i := range 1200 {
		x, y, label := float64(i*37%101)/128, float64(i*53%89)/128, -1
		bend := 0.
		if i > 700 {
			bend = 0.3
		}
		if x+float64(i/20%3-1)*0.25 > y+bend {
			label = 1
		}
		fmt.Fprintf(&text, "%d,%v,%v\n", label, x, y)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var first *Progressive
	for _, c := range []struct{ blockRows, every, workers int }{{0, 50, 4}, {0, 50, 1}, {50, 1, 4}, {50, 1, 2}, {25, 2, 3}} {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(c.workers))
		data, err := dataset.Open(path, wire.Options{}, func(string, func() (int64, float64)) func() { return func() {} })
		if err != nil {
			t.Fatal(err)
		}
		want := settings(2, 0, 1)
		want.BlockRows, want.Progressive = c.blockRows, c.every
		report, err := Learn(t.Context(), data, nil, want, func(string, func() string) func() { return func() {} })
		if err != nil {
			t.Fatal(err)
		}
		r := report.Progressive
		for name, x := range map[string][2]float64{
			"rows": {r.Weight, 1150}, "right": {r.Confusion[0][0] + r.Confusion[1][1], 904},
			"correctness": {r.Correctness, 0.7860869565217391}, "largest class": {r.LargestClass, 0.5730434782608695},
			"last label": {*r.LastLabel, 0.5478260869565217}, "kappa": {*r.Kappa, 0.5739059972467309},
			"kappa-temporal": {*r.KappaTemporal, 0.5269230769230769}, "waited": {float64(r.Waited), 50},
		} {
			if math.Abs(x[0]-x[1]) > 1e-14*x[1] {
				t.Errorf("%+v: %s %v, not %v", c, name, x[0], x[1])
			}
		}
		if r.NoBetter != "" || len(r.Course) != 23 {
			t.Errorf("%+v: %q, %d pieces", c, r.NoBetter, len(r.Course))
		}
		switch r.Every = 50; { // the settings differ, and cuts are at the same rows
		case first == nil:
			first = r
		case c.blockRows != 25 && !reflect.DeepEqual(r, first): // blocks of other rows have sums of other last digits
			t.Errorf("%+v: %+v, not %+v", c, r, first)
		}
	}
}

// Without a choice that would look ahead, what is auto is fixed.
func TestProgressiveTakesNoChoice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.csv")
	writeRows(t, path, 600)
	f := opened(t, path, settings(1, 0, 1))
	f.want.Model.Nu, f.want.Model.Standardise, f.want.Model.Balanced = config.NuAuto, config.SwitchAuto, config.SwitchAuto
	f.want.Progressive = EveryDefault
	r, err := f.progress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o := r.Options; o.Nu != 1 || !o.Standardise || o.Balanced || r.Every != 100 || r.Waited != 100 || r.Weight != 500 {
		t.Errorf("%+v", r)
	}
	f.want.Progressive = 600
	if _, err := f.progress(t.Context()); err == nil || !strings.Contains(err.Error(), "smaller --progressive-every") {
		t.Errorf("without judged rows %v", err)
	}
}
