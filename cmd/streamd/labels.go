package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	"streamd/cmd/streamd/dataset"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/sample"
)

// labelsCmd shows which rows should be labelled next, of a running daemon or of a file.
type labelsCmd struct {
	File  string `arg:"" optional:"" help:"File of rows with and without labels. Without one the daemon is asked for its live rows."`
	Count int    `default:"20" placeholder:"K" help:"Clusters that the rows are divided into. The row in the middle of each is shown, unless it has a label."`

	featureFlags
	missingFlags
	Format         string `enum:"auto,arrow,json,csv,libsvm" default:"auto" help:"Format of a file whose name does not end in one: ${enum}. With auto the first line decides."`
	UnlabelledText string `placeholder:"TEXT" help:"Label that means a row of the file has none, such as ? or -1. An empty label always does."`
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
	if c.File != "" {
		a, err := c.ofFile(ctx, s)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(s.stdout, a)
		}
		p := newTable(s.stdout)
		p.labels(a)
		return p.flush()
	}
	path := fmt.Sprintf("/v1/label-requests?count=%d", c.Count)
	return show(ctx, s, question{c.daemonFlags, c.jsonFlag, http.MethodGet, path, httpapi.MaxWait + answerTimeout}, (*table).labels)
}

// ofFile chooses among the rows of the file as a daemon does among its live rows. A row's place is
// its number in the file, from 0.
func (c *labelsCmd) ofFile(ctx context.Context, s *surroundings) (*httpapi.LabelRequestsAnswer, error) {
	options := c.options(c.Format)
	var err error
	if options.Missing, err = c.treatment(); err != nil {
		return nil, err
	}
	if err := (&unlabelledFlags{"keep", c.UnlabelledText}).choose(&options); err != nil {
		return nil, err
	}
	data, err := dataset.Open(c.File, options, s.watchRows)
	if err != nil {
		return nil, err
	}
	if data.Wide() {
		return nil, fmt.Errorf("choose rows to label of %s: it has %d features, of %d at most", c.File, len(data.Features), dataset.MostSummed)
	}
	sums, err := data.Sum(ctx)
	if err != nil {
		return nil, err
	}
	digest := sums.Digest()
	a := &httpapi.LabelRequestsAnswer{Digest: hex.EncodeToString(digest[:]), Features: data.Features, Requests: []httpapi.LabelRequest{}}
	without := sums.Unlabelled()
	if without.Rows == 0 {
		return a, nil
	}
	labelled, err := data.Sample(ctx, model.MostClustered, 0, false)
	if err != nil {
		return nil, err
	}
	open, err := data.Sample(ctx, model.MostClustered, 0, true)
	if err != nil {
		return nil, err
	}
	_, sigma := sums.Scale()
	known, rest := sample.Weigh(labelled.Block, sums.Totals()), sample.Weigh(open.Block, []incremental.ClassTotal{without})
	chosen, err := model.ChooseToLabel(ctx, known, rest, sigma, c.Count)
	if err != nil {
		return nil, fmt.Errorf("choose rows to label of %s: %w", c.File, err)
	}
	a.Rows, a.Clusters, a.Labelled = chosen.Rows, chosen.Clusters, chosen.Labelled
	for _, of := range chosen.Requests {
		request := httpapi.LabelRequest{Block: c.File, Row: int(open.Numbers[of.Row]), Share: of.Share}
		for _, column := range open.Columns {
			request.Values = append(request.Values, column.At(of.Row))
		}
		a.Requests = append(a.Requests, request)
	}
	return a, nil
}

func (t *table) labels(a *httpapi.LabelRequestsAnswer) {
	if a.Clusters == 0 {
		t.row("labels", "every row has one")
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
