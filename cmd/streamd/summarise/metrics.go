package summarise

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"streamd/cmd/streamd/stage"
)

// collector makes the metrics.
type collector struct{ z *Stage }

var (
	common    = stage.NewMetrics("streamd_summarise_")
	desc      = common.Desc
	buildInfo = desc("build_info", "1, with the version as a label.", "version")
	isReady   = desc("ready", "1 when the stage is ready, else 0.")
	records   = desc("records_total", "Records processed since the start, by outcome: summed, forwarded as they are, tombstone, or rejected.", "outcome")
	rows      = desc("rows_total", "Rows processed since the start, of records that could be decoded, by outcome: summed or forwarded (used), zero_weight, or rejected.", "outcome")
	blocks    = desc("blocks_total", "Blocks written since the start as sums: complete, or growing, which are written again.", "state")
	written   = desc("written_bytes_total", "Bytes of keys and values written since the start, before compression.")
	ahead     = desc("records_ahead_total", "Records since the start whose event time was beyond retire.max_future after their partition's clock, and was cut to that.")
)

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{buildInfo, isReady, records, rows, blocks, written, ahead} {
		to <- d
	}
	common.Describe(to)
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, x float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, labels...)
	}
	z, n := c.z, c.z.sums.Counts()
	gauge(buildInfo, 1, z.version)
	ready := 0.0
	if z.NotReady(time.Now()) == "" {
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
	common.Collect(z.Stage, to)
}
