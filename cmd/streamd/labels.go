package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"streamd/cmd/streamd/httpapi"
)

// labelsCmd shows which rows should be labelled next.
type labelsCmd struct {
	Count int `default:"20" placeholder:"K" help:"Clusters that the live rows are divided into. The row in the middle of each is shown, unless it has a label."`
	daemonFlags
	jsonFlag
}

// Validate is called by kong.
func (c *labelsCmd) Validate() error {
	if c.Count < 1 {
		return fmt.Errorf("--count %d: must be at least 1", c.Count)
	}
	return nil
}

func (c *labelsCmd) Run(ctx context.Context, s *surroundings) error {
	path := fmt.Sprintf("/v1/label-requests?count=%d", c.Count)
	return show(ctx, s, question{c.daemonFlags, c.jsonFlag, http.MethodGet, path, httpapi.MaxWait + answerTimeout}, (*table).labels)
}

func (t *table) labels(a *httpapi.LabelRequestsAnswer) {
	if a.Clusters == 0 {
		t.row("labels", "every live row has one")
		return
	}
	t.row("clusters", fmt.Sprintf("%d of %s", a.Clusters, counted(a.Rows, "row")))
	t.row("labelled", fmt.Sprintf("%d of the rows in their middle", a.Labelled))
	const shown = 8 // values
	for _, r := range a.Requests {
		var values []string
		for j, x := range r.Values[:min(len(r.Values), shown)] {
			values = append(values, fmt.Sprintf("%s=%.6g", a.Features[j], x))
		}
		if len(r.Values) > shown {
			values = append(values, "…")
		}
		t.row(fmt.Sprintf("%s row %d", r.Block, r.Row), percent(r.Share)+" of the rows are like "+strings.Join(values, " "))
	}
}
