package main

import (
	"context"
	"net/http"

	"streamd/cmd/streamd/httpapi"
)

// healthCmd asks a daemon whether it is alive. Images without a shell use it as their health
// check.
type healthCmd struct {
	Ready bool `help:"Ask whether the daemon is ready to answer, and fail with the reason if it is not."`
	daemonFlags
	jsonFlag
}

func (c *healthCmd) Run(ctx context.Context, s *surroundings) error {
	path := "/healthz"
	if c.Ready {
		path = "/readyz"
	}
	q := question{c.daemonFlags, c.jsonFlag, http.MethodGet, path, answerTimeout}
	return show(ctx, s, q, func(t *table, h *httpapi.Health) { t.row(h.Status) })
}
