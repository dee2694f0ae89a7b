package scoring

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"streamd/cmd/streamd/stage"
)

// Collector makes the metrics of a stage.
type Collector struct{ Stage *Stage }

var (
	common  = stage.NewMetrics("streamd_predict_")
	isReady = common.Desc("ready", "1 when the stage is ready, else 0.")
	records = common.Desc("records_total", "Records of predict.topic since the start, by outcome: answered, tombstone, or rejected.", "outcome")
	rows    = common.Desc("rows_total", "Rows predicted since the start.")
	written = common.Desc("written_bytes_total", "Bytes of answers written since the start, before compression.")
)

// Describe implements prometheus.Collector.
func (of Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{isReady, records, rows, written} {
		to <- d
	}
	common.Describe(to)
}

// Collect implements prometheus.Collector.
func (of Collector) Collect(to chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	z := of.Stage
	ready := 0.0
	if z.NotReady(time.Now()) == "" {
		ready = 1
	}
	to <- prometheus.MustNewConstMetric(isReady, prometheus.GaugeValue, ready)
	c := z.Counts()
	count(records, c.Answered, "answered")
	count(records, c.Tombstones, "tombstone")
	count(records, c.Rejected, "rejected")
	count(rows, c.Rows)
	count(written, z.counts.written.Load())
	common.Collect(z.Stage, to)
}
