package daemon

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"streamd/cmd/streamd/httpapi"
	"streamd/incremental/decision"
)

// The rule of model.decision is in force once its figures exist, and held-out rows are
// judged by it. A class that the rule misses is a problem in the status.
func TestLabelsGoByTheRule(t *testing.T) {
	name := topic(t, 1)
	r := rand.New(rand.NewPCG(18, 4))
	var all []message
	for range 30 {
		var text bytes.Buffer
		text.WriteByte('[')
		for i := range 100 {
			label, x := "ham", r.NormFloat64()
			if i < 3 {
				label, x = "fraud", 1.5+x
			}
			if i > 0 {
				text.WriteByte(',')
			}
			fmt.Fprintf(&text, `{"label":%q,"x":%g,"y":%g}`, label, x, r.NormFloat64())
		}
		text.WriteByte(']')
		all = append(all, message{value: text.Bytes()})
	}
	produce(t, name, all...)
	recall := map[string]float64{}
	for _, c := range []struct {
		name     string
		settings map[string]string
		kind     decision.Kind
		reason   string
		missed   bool // whether fraud is missed
	}{
		{"default", nil, decision.Probability, "", true},
		{"value", map[string]string{"model.decision": "value"}, decision.Value, "", true},
		{"cost", map[string]string{"model.decision": "cost", "model.costs": "fraud>ham=40"}, decision.Cost, "", false},
		{"threshold", map[string]string{"model.decision": "cost", "model.costs": "fraud>ham=40", "model.calibration": "none"}, decision.Cost, "", false},
		{"uncalibrated", map[string]string{"model.calibration": "none"}, decision.Value, "model.calibration is none", true},
	} {
		d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), c.settings)
		d.waitForOffsetsRead(30)
		s := d.settled()
		if got := s.DecidesBy().Kind(); got != c.kind || s.Absent.Decision != c.reason {
			t.Errorf("%s: by %s (%s), want %s (%s)", c.name, got, s.Absent.Decision, c.kind, c.reason)
		}
		missed := slices.ContainsFunc(d.Status().Problems, func(p httpapi.Problem) bool { return strings.Contains(p.Detail, `"fraud"`) })
		if missed != c.missed {
			t.Errorf("%s: problems %q", c.name, d.Status().Problems)
		}
		if q := s.Quality; q != nil {
			fraud := q.Classes[slices.Index(s.Model.Classes, "fraud")]
			if q.Decision != c.kind || q.Weight != 3000 || fraud.Weight != 90 || *fraud.AUC < 0.8 || q.Correctness < 0.5 {
				t.Errorf("%s: %+v", c.name, q.Answers)
			}
			recall[c.name] = *fraud.Recall
		} else {
			t.Errorf("%s: nothing is judged: %s", c.name, s.Absent.Quality)
		}
		d.stop()
	}
	if !(recall["cost"] > 0.6 && recall["threshold"] > 0.6 && recall["default"] < 0.4) {
		t.Errorf("recalls of fraud %v", recall)
	}
}
