package summarise

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

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
	if z.registry != nil {
		if since, why := z.registry.Away(); !since.IsZero() {
			return fmt.Sprintf("messages wait for their schemas, since the schema registry does not answer: %v", why)
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
	count(records, n.Records.Load()-n.Forwarded.Load()-n.Tombstones.Load()-n.Rejected.Load(), "summed")
	count(records, n.Forwarded.Load(), "forwarded")
	count(records, n.Tombstones.Load(), "tombstone")
	count(records, n.Rejected.Load(), "rejected")
	count(rows, n.Rows.Load(), "used")
	count(rows, n.ZeroWeight.Load(), "zero_weight")
	count(rows, n.RejectedRows.Load(), "rejected")
	count(blocks, n.Blocks.Load(), "complete")
	count(blocks, n.Grown.Load(), "growing")
	count(written, n.Bytes.Load())
	count(ahead, n.Ahead.Load())
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
