package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"streamd/cmd/streamd/httpapi"
)

// statusCmd shows what the first screen of the page shows.
type statusCmd struct {
	daemonFlags
	jsonFlag
}

// Help implements kong's interface.
func (*statusCmd) Help() string {
	return "The exit status is 1 where the daemon is not ready or has a problem that needs somebody. A hint is none."
}

func (c *statusCmd) Run(ctx context.Context, s *surroundings) error {
	var needs error
	daemon, err := c.client(s)
	if err != nil {
		return err
	}
	a := new(httpapi.StatusAnswer)
	body, err := daemon.call(ctx, http.MethodGet, "/v1/status", answerTimeout, a)
	if err != nil {
		return err
	}
	if len(a.Answers) == 0 {
		return fmt.Errorf("the answer of %s has no answers: is it streamd?", daemon.base)
	}
	if last := a.Answers[len(a.Answers)-1]; last.State != httpapi.ReplyGood {
		needs = fmt.Errorf("the daemon needs somebody: %s", last.Text)
	}
	if c.JSON {
		err = printAnswer(s.stdout, body)
	} else {
		t := newTable(s.stdout)
		t.status(a)
		err = t.flush()
	}
	if err != nil {
		return err
	}
	return needs
}

func (t *table) status(a *httpapi.StatusAnswer) {
	for _, r := range a.Answers {
		t.row(r.Question, r.Text, strings.Join(r.Notes, "; "))
	}
	if p := a.Predict; p != nil {
		how := map[string]string{
			"transactions": "each once, in transactions", "positions": "each once, by source positions: the brokers have no transactions",
		}[p.Delivery]
		t.row("Is "+p.Topic+" answered?", fmt.Sprintf("%s answered on %s, %d rejected", counted(p.Answered, "record"), p.Output, p.Rejected), how)
	}
	for _, p := range a.Problems {
		t.row(string(p.Level), string(p.Kind), p.String())
	}
}
