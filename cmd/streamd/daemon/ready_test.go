package daemon

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
)

// An instance is ready when it can answer, and says why not when it cannot.
func TestNotReady(t *testing.T) {
	type state = struct {
		out       bool // some partitions cannot be read
		lags      []int64
		noModel   bool
		saveFails bool
		want      string // "" means ready
	}
	const (
		reading    = "still reading: more records are left than http.ready_lag, 100"
		noModelYet = "there is no model: GET /v1/model says why"
		saving     = "the state cannot be saved: the log says why"
	)
	for name, states := range map[string][]state{
		"no topic yet":    {{out: true, want: "the topic's partitions are not known yet"}},
		"no model":        {{lags: []int64{0}, noModel: true, want: noModelYet}},
		"failing saves":   {{lags: []int64{0}, saveFails: true, want: saving}, {lags: []int64{0}}},
		"all at once":     {{lags: []int64{200}, noModel: true, saveFails: true, want: reading + "; " + noModelYet + "; " + saving}},
		"unknown lag":     {{lags: []int64{0, -1}, want: reading}},
		"behind":          {{lags: []int64{60, 41}, want: reading}, {lags: []int64{60, 40}}},
		"behind again":    {{lags: []int64{100}}, {lags: []int64{1e9}}, {lags: []int64{-1}}},
		"brokers away":    {{lags: []int64{0}}, {out: true}, {out: true, noModel: true, want: noModelYet}},
		"away too early":  {{out: true, lags: []int64{0}, want: reading}},
		"more partitions": {{lags: []int64{0}}, {}, {lags: []int64{0, -1, 5000}}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &Daemon{Loop: coreWith(&config.Config{HTTP: config.HTTP{ReadyLag: 100}})}
			for i, at := range states {
				served := &model.Served{Model: &incremental.Model{}}
				if at.noModel {
					served.Model = nil
				}
				d.Front.Replace(served, nil)
				s := httpapi.Status{Reading: !at.out, SaveFails: at.saveFails}
				for p, lag := range at.lags {
					part := model.Partition{Partition: p, Next: 10, HighWatermark: 10 + lag}
					if lag < 0 {
						part.Next = -1
					}
					s.Partitions = append(s.Partitions, part)
				}
				if got := strings.Join(d.notReady(&s), "; "); got != at.want {
					t.Errorf("state %d: %q, want %q", i, got, at.want)
				}
			}
			close(d.Stopping)
			if got := d.notReady(&httpapi.Status{}); len(got) != 1 || got[0] != "stopping" {
				t.Errorf("stopping: %q", got)
			}
		})
	}
}

// Without a model an instance is alive, but not ready.
func TestReadyWithAModel(t *testing.T) {
	name := topic(t, 1)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), nil)
	produce(t, name, message{value: jsonRow(1, 2, 3)})
	d.waitForOffsets(1)
	if status, body := d.ask(http.MethodGet, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, `"message":"not ready: there is no model`) {
		t.Errorf("with rows of one class: %d: %s", status, body)
	}
	if status, body := d.ask(http.MethodGet, "/healthz"); status != http.StatusOK {
		t.Errorf("alive: %d: %s", status, body)
	}
	produce(t, name, message{value: jsonRow(-1, 4, 5)})
	d.wait("a model", func(s *model.Served) bool { return s.Model != nil })
	if status, body := d.ask(http.MethodGet, "/readyz"); status != http.StatusOK {
		t.Errorf("with two classes: %d: %s", status, body)
	}
	d.stop()
}
