package daemon

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/ingest/wire"
)

// scaledRows are blocks of two classes that differ in a, whose values are of the given scale,
// beside b, which is noise of scale 1.
func scaledRows(scale float64) (messages []message) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 12 {
		var rows strings.Builder
		rows.WriteString("label,a,b\n")
		for i := range 60 {
			fmt.Fprintf(&rows, "%d,%v,%v\n", i%2, scale*(float64(i%2)+0.2*r.NormFloat64()), r.NormFloat64())
		}
		messages = append(messages, message{value: []byte(rows.String()), contentType: wire.CSV.ContentType()})
	}
	return messages
}

// A daemon whose settings are plain looks whether auto would classify held-out blocks better. It
// then says by how much, with the lines that switch it on, in /v1/quality, on the page and in the
// log. Where it would not, or is on, nothing is said. Without rows the sums of the folds tell.
func TestPlainSettingsThatAutoBeats(t *testing.T) {
	both := []string{"model.nu: auto", "model.standardise: auto"}
	for name, c := range map[string]struct {
		scale     float64
		flags     map[string]string
		criterion string // "": nothing is better
		settings  []string
	}{
		"rows":      {0.001, nil, "correctness", both},
		"balanced":  {0.001, map[string]string{"model.objective": "balanced"}, "balanced correctness", both},
		"sums":      {0.001, map[string]string{"sample.rows": "0"}, "loss", both},
		"no better": {1, nil, "", nil},
		"auto":      {0.001, map[string]string{"model.nu": "auto"}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			topic := topic(t, 1)
			produce(t, topic, scaledRows(c.scale)...)
			d, log := logging(t, topic, filepath.Join(t.TempDir(), "streamd.db"), c.flags)
			s := d.wait("a study of all rows", func(s *model.Served) bool {
				return s.Rows == 12*60 && (s.Quality != nil && s.Quality.Rows == s.Rows || c.criterion == "loss" && s.Better != nil)
			})
			hint := func() bool {
				return slices.ContainsFunc(d.Status().Problems, func(p httpapi.Problem) bool { return p.Kind == httpapi.ProblemSettings })
			}
			if c.criterion == "" {
				if s.Better != nil || hint() {
					t.Errorf("better settings: %+v", s.Better)
				}
				d.stop()
				return
			}
			b := s.Better
			if b == nil || b.Criterion != c.criterion || !slices.Equal(b.Settings, c.settings) || !(b.Gain > b.StandardError && b.StandardError > 0) {
				t.Fatalf("better settings: %+v", b)
			}
			if c.criterion != "loss" && !(b.Gain > 0.2 && b.Chosen > 0.95 && b.Chosen-b.Given == b.Gain) {
				t.Errorf("better settings: %+v", b)
			}
			for end := time.Now().Add(20 * time.Second); !hint() && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
			if !hint() {
				t.Errorf("there is no hint: %s", d.problems())
			}
			for _, p := range d.Status().Problems {
				if p.Kind == httpapi.ProblemSettings && (p.Level() != httpapi.LevelHint || p.Text != b.String()) {
					t.Errorf("a hint of level %s: %s", p.Level(), p.Text)
				}
			}
			if c.criterion != "loss" {
				var q model.Quality
				if status, body := d.ask(http.MethodGet, "/v1/quality"); status != http.StatusOK || json.Unmarshal([]byte(body), &q) != nil || q.Better == nil || q.Better.Gain != b.Gain {
					t.Errorf("/v1/quality: %d %s", status, body)
				}
			}
			d.stop()
			if text := log.String(); !strings.Contains(text, "by model.nu: auto and model.standardise: auto the") {
				t.Errorf("the log is\n%s", text)
			}
		})
	}
}
