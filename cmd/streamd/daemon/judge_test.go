package daemon

import (
	"bytes"
	"maps"
	"path/filepath"
	"testing"

	"streamd/cmd/streamd/model"
)

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
			before := d.Status().Prequential
			if before != (model.Prequential{}) {
				t.Fatalf("without a model %+v", before)
			}
			for i, step := range []struct {
				row  string
				want model.Prequential
			}{
				{ham, model.Prequential{Rows: 50, Right: 50, Recent: 50, Correctness: 1, BalancedCorrectness: 1}},
				{spam, model.Prequential{Rows: 100, Right: 100, Recent: 100, Correctness: 1, BalancedCorrectness: 1}},
				{absent, model.Prequential{Rows: 100, Right: 100, Recent: 100, Correctness: 1, BalancedCorrectness: 1}},
				{turned, model.Prequential{Rows: 150, Right: 100, Recent: 150, Correctness: 100. / 150, BalancedCorrectness: 0.75}},
				{eggs, model.Prequential{Rows: 200, Right: 100, Recent: 200, Correctness: 0.5, BalancedCorrectness: 0.5}},
			} {
				produce(t, name, message(50, step.row))
				d.waitForOffsets(int64(i + 2))
				if got := d.Status().Prequential; got != step.want {
					t.Errorf("after %s: %+v, want %+v", step.row, got, step.want)
				}
			}
			d.stop()
		})
	}
}
