package output

import (
	"io"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
)

// load returns a configuration.
func load(t *testing.T, flags map[string]string) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Sources{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestAnnouncingFails: a daemon that cannot write its models says so.
func TestAnnouncingFails(t *testing.T) {
	a := &announcing{Environment: &loop.Environment{Config: load(t, map[string]string{"kafka.topic": "a", "model.topic": "models"})}}
	a.note(io.ErrUnexpectedEOF)
	now := time.Now()
	if all := a.problem(now); all != nil {
		t.Errorf("%v, want no problem yet", all)
	}
	all := a.problem(now.Add(2 * retriedFailing))
	if len(all) != 1 || all[0].Kind != httpapi.ProblemModelTopic || !strings.Contains(all[0].Text, io.ErrUnexpectedEOF.Error()) {
		t.Errorf("%v, want one problem", all)
	}
}

// TestAnswersFail: a daemon that cannot answer says so, and learns on.
func TestAnswersFail(t *testing.T) {
	e := &loop.Environment{}
	p := &predicting{Environment: e}
	now := time.Now()
	if all := p.problem(now); all != nil {
		t.Errorf("%v, want no problem", all)
	}
	e.Config = load(t, map[string]string{"kafka.topic": "a", "predict.topic": "asked"})
	p.since, p.why = now.Add(-retriedFailing), io.ErrUnexpectedEOF
	all := p.problem(now)
	if len(all) != 1 || all[0].Kind != httpapi.ProblemPredict || !strings.Contains(all[0].Text, io.ErrUnexpectedEOF.Error()) {
		t.Errorf("%v, want one problem", all)
	}
}
