package daemon

import (
	"bytes"
	"maps"
	"path/filepath"
	"testing"

	"streamd/cmd/streamd/model"
)

// judged are some figures of model.Prequential.
type judged struct {
	rows, right       int64
	correct, balanced float64 // of the window
}

// Rows are judged by the model before them. Rows like the learned ones are all right. Once
// labels are swapped all rows are wrong. Rows of an unknown class are wrong, too. Rows of
// weight 0 are not judged.
func TestPrequential(t *testing.T) {
	message := func(rows int, row string) message {
		return message{value: bytes.Repeat([]byte(row+"\n"), rows)}
	}
	const (
		ham, spam = `{"label":"ham","a":0,"b":1,"weight":2}`, `{"label":"spam","a":9,"b":1,"weight":1}`
		turned    = `{"label":"ham","a":9,"b":1,"weight":1}`
		eggs      = `{"label":"eggs","a":4,"b":1,"weight":1}`
		absent    = `{"label":"ham","a":9,"b":1,"weight":0}`
	)
	kernel := map[string]string{"kernel.function": "gaussian(gamma=0.1)", "kernel.basis": "2", "kernel.rows": "20"}
	for what, flags := range map[string]map[string]string{
		"message": {},
		"offsets": {"blocks.unit": "offsets", "blocks.offsets": "1000"},
		"kernel":  kernel,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			flags = maps.Clone(flags)
			flags["format.weight"] = "weight"
			name := topic(t, 1)
			d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
			produce(t, name, message(20, ham+"\n"+spam))
			d.wait("a model", func(s *model.Served) bool {
				return s.Model != nil && (s.Basis != nil || what != "kernel")
			})
			if before := d.Prequential(); before.Rows != 0 || before.Window != nil || before.Fading != nil {
				t.Fatalf("without a model %+v", before)
			}
			for i, step := range []struct {
				row  string
				want judged
			}{
				{ham, judged{50, 50, 1, 1}},
				{spam, judged{100, 100, 1, 1}},
				{absent, judged{100, 100, 1, 1}},
				{turned, judged{150, 100, 100. / 150, 0.75}},
				{eggs, judged{200, 100, 0.5, 0.5}},
			} {
				produce(t, name, message(50, step.row))
				d.waitForOffsets(int64(i + 2))
				p := d.Prequential()
				if got := (judged{p.Rows, p.Right, p.Window.Correctness, p.Window.BalancedCorrectness}); got != step.want || p.Window.Weight != float64(p.Rows) {
					t.Errorf("after %s: %+v of %v, want %+v", step.row, got, p.Window.Weight, step.want)
				}
			}
			d.stop()
		})
	}
}
