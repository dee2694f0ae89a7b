package stage

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
)

// failingFor is how long the partitions of a stage may fail to be read, or its member be out of the
// group, until it is not ready. Rebalances take less.
const failingFor = 15 * time.Second

// NotReady says why the stage does not work; empty: it does.
func (z *Stage) NotReady(now time.Time) string {
	c := z.Consumer()
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
	if z.cfg.Registry != nil {
		if since, why := z.cfg.Registry.Away(); !since.IsZero() {
			return fmt.Sprintf("messages wait for their schemas, since the schema registry does not answer: %v", why)
		}
	}
	return ""
}

// Listen begins to listen for Run, which serves readiness and metrics there. key names the setting
// of the address in errors.
func (z *Stage) Listen(key string, on config.HTTP, metrics prometheus.Collector) error {
	guard, err := access.New(on, z.log)
	if err != nil {
		return err
	}
	z.probes = httpapi.NewProbes(httpapi.Config{Access: guard, MaxConnections: on.MaxConnections},
		func() string { return z.NotReady(time.Now()) }, metrics, z.log)
	if z.listener, err = net.Listen("tcp", on.Listen); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// Addr is the address that Listen listens on.
func (z *Stage) Addr() net.Addr { return z.listener.Addr() }

// Metrics are those of a stage whose names begin with a prefix.
type Metrics struct {
	Prefix string // such as streamd_summarise_

	restarts, assignments, lag *prometheus.Desc
}

// NewMetrics makes the metrics.
func NewMetrics(prefix string) *Metrics {
	m := &Metrics{Prefix: prefix}
	m.restarts = m.Desc("lost_transactions_total", "Times since the start that a transaction or a partition was lost and the group joined anew.")
	m.assignments = m.Desc("assignments_total", "Times since the start that partitions were assigned, by the present member.")
	m.lag = m.Desc("lag_records", "Records between the committed offset and the end of an assigned partition.", "partition")
	return m
}

// Desc describes another metric of the stage.
func (m *Metrics) Desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(m.Prefix+name, help, labels, nil)
}

// Describe is a part of prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.restarts
	to <- m.assignments
	to <- m.lag
}

// Collect collects the metrics of a stage.
func (m *Metrics) Collect(z *Stage, to chan<- prometheus.Metric) {
	z.mu.Lock()
	consumer, lost := z.consumer, z.restarts
	z.mu.Unlock()
	to <- prometheus.MustNewConstMetric(m.restarts, prometheus.CounterValue, float64(lost))
	if consumer == nil {
		return
	}
	s := consumer.Stats()
	to <- prometheus.MustNewConstMetric(m.assignments, prometheus.CounterValue, float64(s.Assignments))
	for _, p := range s.Partitions {
		y := z.lane(p.Partition)
		if !p.Assigned || y == nil || p.HighWatermark < 0 {
			continue
		}
		lag := float64(max(0, p.HighWatermark-y.committed.Load()))
		to <- prometheus.MustNewConstMetric(m.lag, prometheus.GaugeValue, lag, strconv.Itoa(p.Partition))
	}
}
