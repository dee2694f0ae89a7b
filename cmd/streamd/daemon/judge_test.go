package daemon

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
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

// The baseline of the last label is that of counting the rows of the log one by one: over messages,
// runs of messages, partitions, keys that come again, rows that count as absent, and a restart
// in the middle.
func TestLastLabel(t *testing.T) {
	const seed = 11
	for what, flags := range map[string]map[string]string{
		"message": {},
		"offsets": {"blocks.unit": "offsets", "blocks.offsets": "5"},
		"key":     {"blocks.unit": "key"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, uint64(len(what))))
			flags = maps.Clone(flags)
			flags["format.weight"], flags["blocks.unlabelled"] = "weight", "keep"
			last, ofKey := map[int]string{}, map[string]string{}
			rows, repeats := int64(0), 0.
			next := func(key string, n int) message {
				m := message{partition: random.IntN(2), key: []byte(key)}
				if what == "key" { // a key stays in its partition
					m.partition = int(key[0]) % 2
				}
				before := ofKey[key]
				if before == "" {
					before = last[m.partition]
				}
				labels := map[string]bool{}
				for range n {
					label, weight := []string{"ham", "spam"}[random.IntN(2)], min(1, random.IntN(5))
					text := fmt.Sprintf("%q", label)
					if random.IntN(5) == 0 {
						text = "null"
					}
					m.value = fmt.Appendf(m.value, `{"label":%s,"a":%v,"b":1,"weight":%d}`+"\n", text, random.NormFloat64(), weight)
					if weight == 0 {
						continue
					}
					if labels[text] = true; text == "null" {
						continue
					}
					if rows++; label == before {
						repeats++
					}
					before = label
					last[m.partition] = label
				}
				delete(ofKey, key)
				for text := range labels {
					if what == "key" && len(labels) == 1 && text != "null" {
						ofKey[key] = strings.Trim(text, `"`)
					}
				}
				return m
			}
			name, file := topic(t, 2), filepath.Join(t.TempDir(), "streamd.db")
			produce(t, name, next("k", 30), next("l", 30))
			d := start(t, name, file, flags) // whose model may judge some of these
			// What is not in the live set yet comes again, and is judged then.
			d.waitForOffsets(2)
			d.stop()
			for restart := range 3 {
				d := start(t, name, file, flags)
				d.wait("a model", func(s *model.Served) bool { return s.Model != nil })
				rows, repeats = 0, 0
				for range 40 {
					produce(t, name, next(string(rune('a'+random.IntN(9))), random.IntN(4)))
				}
				d.until("the rows are judged", func() bool { return d.Prequential().Rows == rows })
				if w := d.Prequential().Window; math.Abs(*w.LastLabel-repeats/float64(rows)) > 1e-15 {
					t.Errorf("after %d restarts %v of %d rows repeat, not %v (seed %d)", restart, *w.LastLabel*float64(rows), rows, repeats, seed)
				}
				d.stop()
			}
		})
	}
}
