package httpapi

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
)

// NewProbes makes a server of GET /healthz, /readyz and /metrics alone, for a process that serves
// no model. notReady says why it is not ready; empty: it is. The metrics are those of the
// collector, of the requests, and of the Go runtime and the process.
func NewProbes(config Config, notReady func() string, of prometheus.Collector, log zerolog.Logger) *Server {
	m := &Metrics{requests: requestSeconds(), registry: prometheus.NewRegistry()}
	m.registry.MustRegister(of, m.requests, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	paths := []string{"/healthz", "/readyz", "/metrics"}
	all := slices.DeleteFunc(slices.Clone(routes), func(r route) bool { return !slices.Contains(paths, r.path) })
	return newServerOf(config, probed{notReady: notReady}, m, all, fail(CodeNotFound, "there is nothing at this path; there are %q", paths), log)
}

// probed is a Service of which the routes of probes ask for nothing but the reason not to be ready.
type probed struct {
	Service
	notReady func() string
}

// Status implements Service.
func (p probed) Status() Status { return Status{NotReady: p.notReady()} }
