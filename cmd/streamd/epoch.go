package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/kernels/reduce"
)

// reduceCmd makes the daemon choose a basis.
type reduceCmd struct {
	Abandon bool           `xor:"what" help:"Abandon the reduction or the rebuild that is under way. The basis in use stays."`
	NoWait  bool           `help:"Do not wait for the basis to be in use."`
	Prune   reduce.Pruning `xor:"what" and:"part" placeholder:"HOW" help:"Take a part of the basis in use, without reading a row: lda (forward selection), fisher (elimination by Fisher's direction), cholesky (points far from each other) or eigen (leading coordinates of an eigen-subspace)."`
	Basis   int            `and:"part" placeholder:"S" help:"Most coordinates of that part."`
	daemonFlags
	jsonFlag
}

// pollInterval is the time between two questions for the daemon's progress.
const pollInterval = 200 * time.Millisecond

// Validate checks what else would be a request that the daemon refuses.
func (c *reduceCmd) Validate() error {
	switch {
	case c.Prune != "" && !slices.Contains(reduce.Prunings(), c.Prune):
		return fmt.Errorf("--prune: %q is none of %s", c.Prune, strings.Trim(fmt.Sprint(reduce.Prunings()), "[]"))
	case c.Prune != "" && c.Basis < 1:
		return fmt.Errorf("--basis: a part has one coordinate or more, not %d", c.Basis)
	}
	return nil
}

func (c *reduceCmd) Run(ctx context.Context, s *surroundings) error {
	daemon, err := c.client(s)
	if err != nil {
		return err
	}
	method, path := http.MethodPost, "/v1/reduce"
	if c.Abandon {
		method = http.MethodDelete
	}
	if c.Prune != "" {
		path += fmt.Sprintf("?prune=%s&basis=%d", url.QueryEscape(string(c.Prune)), c.Basis)
	}
	a := new(httpapi.EpochAnswer)
	body, err := daemon.call(ctx, method, path, adminTimeout, a)
	if err != nil {
		return err
	}
	if !c.Abandon && !c.NoWait {
		if a, body, err = c.wait(ctx, s, daemon, a); err != nil {
			return err
		}
	}
	if c.JSON {
		return printAnswer(s.stdout, body)
	}
	t := newTable(s.stdout)
	t.epoch(a)
	return t.flush()
}

// wait waits until the basis is in use, or until there is a reason why it will not be.
func (c *reduceCmd) wait(ctx context.Context, s *surroundings, daemon *client, a *httpapi.EpochAnswer) (*httpapi.EpochAnswer, []byte, error) {
	var at atomic.Pointer[httpapi.EpochAnswer]
	at.Store(a)
	stop := s.report("reduce", func() string { return describeRebuild(at.Load()) })
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-time.After(pollInterval):
		}
		a := new(httpapi.EpochAnswer)
		body, err := daemon.call(ctx, http.MethodGet, "/v1/epoch", answerTimeout, a)
		if err != nil {
			return nil, nil, err
		}
		at.Store(a)
		switch b := a.Rebuild; {
		case a.Reducing != nil:
		case a.Problem != "":
			return nil, nil, errors.New("reduce: " + a.Problem)
		case b == nil && a.InUse == nil:
			return nil, nil, errors.New("reduce: the reduction or the rebuild was abandoned")
		case b == nil && a.Served != a.InUse.Basis: // the planes are being solved
		case b == nil:
			return a, body, nil
		case b.Unread == b.Missing && b.Missing > 0:
			return nil, nil, fmt.Errorf("reduce: the new basis waits for %s that the log no longer has; see streamd epoch", counted(b.Unread, "block"))
		}
	}
}

// describeRebuild writes the progress of a reduction or a rebuild in one line.
func describeRebuild(a *httpapi.EpochAnswer) string {
	switch b := a.Rebuild; {
	case a.Reducing != nil:
		return "choosing a basis, " + counted(len(a.Reducing.Stages), "stage") + " done"
	case b != nil:
		text := fmt.Sprintf("%d of %d blocks, %d of %d rows", b.Blocks, b.Blocks+b.Missing, b.Rows, b.LiveRows)
		if b.Seconds != nil {
			text += fmt.Sprintf(", about %.0f s left", *b.Seconds)
		}
		if b.Unread > 0 {
			text += ", " + counted(b.Unread, "block") + " could not be read"
		}
		return text
	}
	return "done"
}

// epochCmd shows the coordinates that the daemon learns in.
type epochCmd struct {
	daemonFlags
	jsonFlag
}

func (c *epochCmd) Run(ctx context.Context, s *surroundings) error {
	return show(ctx, s, question{c.daemonFlags, c.jsonFlag, http.MethodGet, "/v1/epoch", answerTimeout}, (*table).epoch)
}

func (t *table) epoch(a *httpapi.EpochAnswer) {
	if a.InUse == nil {
		t.row("in use", "the features")
	} else {
		t.reduction("in use", a.InUse)
	}
	if a.Stale {
		t.row("  stale", "it was chosen from blocks that have been retired or replaced since")
	}
	if a.Reducing != nil || a.Rebuild != nil {
		t.row("under way", describeRebuild(a))
	}
	if a.Rebuild != nil {
		t.reduction("next", a.Rebuild.Reduction)
		for _, u := range a.Rebuild.Reasons {
			t.row("  unread "+u.ID, u.Reason)
		}
	}
	for _, u := range a.Skipped {
		t.row("  retired "+u.ID, u.Reason)
	}
	if a.Problem != "" {
		t.row("problem", a.Problem)
	}
}

func (t *table) reduction(title string, r *model.Reduction) {
	t.row(title, fmt.Sprintf("basis %s", r.Basis))
	t.row("  kernel", r.Kernel)
	if r.Pruned > 0 {
		t.row("  points", fmt.Sprintf("%d, of a basis of %d coordinates pruned by %s with the sums of %d live rows in %.3g s", r.Points, r.Pruned, r.Method, r.Live, r.Seconds))
	} else {
		t.row("  points", fmt.Sprintf("%d, by %s of %d of %d live rows in %.3g s", r.Points, r.Method, r.Rows, r.Live, r.Seconds))
	}
	t.row("  digest", r.Digest)
	for i := range r.Gammas {
		t.gamma(&r.Gammas[i])
	}
	if r.Unjudged != "" {
		t.row("  gamma", "by the median heuristic: "+r.Unjudged)
	}
	for i := range r.Stages {
		t.row("  stage", r.Stages[i].String())
	}
}
