package summarise

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"streamd/cmd/streamd/access"
	"streamd/config"
)

// serving is the health and the metrics of a stage over HTTP, under the daemon's settings of http.
//
//	GET /healthz  200 while the process answers
//	GET /readyz   200 while it is a member of the group and its partitions can be read, else 503
//	              with the reason
//	GET /metrics  for Prometheus; with the role read
type serving struct {
	listener net.Listener
	server   *http.Server
	guard    *access.Guard
	stage    *Stage
	scraped  http.Handler
	stopped  chan struct{}
}

// Timeouts of HTTP. Answers are small.
const (
	requestTimeout = 10 * time.Second
	stopTimeout    = 2 * time.Second
)

func newServing(z *Stage) (*serving, error) {
	guard, err := access.New(z.cfg.HTTP, z.log)
	if err != nil {
		return nil, err
	}
	s := &serving{guard: guard, stage: z, stopped: make(chan struct{})}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{z}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.scraped = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if why := z.notReady(time.Now()); why != "" {
			answer(w, http.StatusServiceUnavailable, "not ready: "+why)
			return
		}
		answer(w, http.StatusOK, "ready")
	})
	mux.HandleFunc("GET /metrics", s.metrics)
	s.server = &http.Server{
		Handler: mux, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: stdlog.New(z.log, "", 0),
	}
	if s.listener, err = net.Listen("tcp", z.cfg.HTTP.Listen); err != nil {
		return nil, fmt.Errorf("http.listen: %w", err)
	}
	return s, nil
}

// serve answers requests until close.
func (s *serving) serve(context.Context) error {
	defer close(s.stopped)
	ln := s.listener
	if c := s.guard.TLS(); c != nil {
		ln = tls.NewListener(ln, c)
	}
	if err := s.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP on %s: %w", s.listener.Addr(), err)
	}
	return nil
}

func (s *serving) close() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		s.server.Close()
	}
}

func (s *serving) metrics(w http.ResponseWriter, r *http.Request) {
	caller, err := s.guard.Caller(r)
	switch {
	case err != nil:
		answer(w, http.StatusUnauthorized, err.Error())
	case s.guard.CheckHost(r) != nil:
		answer(w, http.StatusForbidden, s.guard.CheckHost(r).Error())
	case !caller.Roles.Has(config.RoleRead):
		answer(w, http.StatusForbidden, fmt.Sprintf("%s: this call wants the role %s", caller, config.RoleRead))
	default:
		s.scraped.ServeHTTP(w, r)
	}
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"status": text})
}

// failingFor is how long the partitions of a stage may fail to be read, or its member be out of the
// group, until it is not ready. Rebalances take less.
const failingFor = 15 * time.Second

// notReady says why the stage does not work; empty: it does.
func (z *Stage) notReady(now time.Time) string {
	z.mu.Lock()
	c := z.consumer
	z.mu.Unlock()
	if c == nil {
		return "the brokers have not answered yet"
	}
	s := c.Stats()
	if s.Assignments == 0 || !s.OutSince.IsZero() && now.Sub(s.OutSince) >= failingFor {
		if s.OutBecause != nil {
			return fmt.Sprintf("it is no member of the group: %v", s.OutBecause)
		}
		return "it is no member of the group"
	}
	for _, p := range s.Partitions {
		if p.Assigned && !p.Failing.IsZero() && now.Sub(p.Failing) >= failingFor {
			return fmt.Sprintf("partition %d cannot be read: %v", p.Partition, p.Because)
		}
	}
	return ""
}

// collector makes the metrics.
type collector struct{ z *Stage }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("streamd_summarise_"+name, help, labels, nil)
}

var (
	buildInfo   = desc("build_info", "1, with the version as a label.", "version")
	isReady     = desc("ready", "1 when the stage is ready, else 0.")
	records     = desc("records_total", "Records processed since the start, by outcome: summed, forwarded as they are, tombstone, or rejected.", "outcome")
	rows        = desc("rows_total", "Rows processed since the start, of records that could be decoded, by outcome: summed or forwarded (used), zero_weight, or rejected.", "outcome")
	blocks      = desc("blocks_total", "Blocks written since the start as sums: complete, or growing, which are written again.", "state")
	written     = desc("written_bytes_total", "Bytes of keys and values written since the start, before compression.")
	ahead       = desc("records_ahead_total", "Records since the start whose event time was beyond retire.max_future after their partition's clock, and was cut to that.")
	restarts    = desc("lost_transactions_total", "Times since the start that a transaction was lost and the group joined anew.")
	assignments = desc("assignments_total", "Times since the start that partitions were assigned, by the present member.")
	lag         = desc("lag_records", "Records between the committed offset and the end of an assigned partition.", "partition")
)

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{buildInfo, isReady, records, rows, blocks, written, ahead, restarts, assignments, lag} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, x float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, labels...)
	}
	z, n := c.z, c.z.stage.Counts()
	gauge(buildInfo, 1, z.version)
	ready := 0.0
	if z.notReady(time.Now()) == "" {
		ready = 1
	}
	gauge(isReady, ready)
	count(records, n.Records-n.Forwarded-n.Tombstones-n.Rejected, "summed")
	count(records, n.Forwarded, "forwarded")
	count(records, n.Tombstones, "tombstone")
	count(records, n.Rejected, "rejected")
	count(rows, n.Rows, "used")
	count(rows, n.ZeroWeight, "zero_weight")
	count(rows, n.RejectedRows, "rejected")
	count(blocks, n.Blocks, "complete")
	count(blocks, n.Grown, "growing")
	count(written, n.Bytes)
	count(ahead, n.Ahead)
	z.mu.Lock()
	consumer, lost := z.consumer, z.restarts
	z.mu.Unlock()
	count(restarts, lost)
	if consumer == nil {
		return
	}
	s := consumer.Stats()
	count(assignments, s.Assignments)
	for _, p := range s.Partitions {
		y := z.lane(p.Partition)
		if !p.Assigned || y == nil || p.HighWatermark < 0 {
			continue
		}
		gauge(lag, float64(max(0, p.HighWatermark-y.committed.Load())), strconv.Itoa(p.Partition))
	}
}
