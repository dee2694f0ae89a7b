package httpapi

import (
	stdlog "log"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"streamd/cmd/streamd/model"
)

// Metrics are the metrics of GET /metrics. Durations are observed here. All else is read
// from the service's status at every scrape, so that the page and the metrics agree.
type Metrics struct {
	SolveSeconds     prometheus.Histogram
	FreshnessSeconds prometheus.Histogram
	TuneSeconds      prometheus.Histogram
	RefineSeconds    prometheus.Histogram
	ReduceSeconds    prometheus.Histogram
	SnapshotSeconds  prometheus.Histogram
	RememberSeconds  *prometheus.HistogramVec // by outcome
	TurnSeconds      prometheus.Histogram
	RecordsAhead     prometheus.Counter
	BlocksRefused    prometheus.Counter
	ArchiveDropped   prometheus.Counter
	JobFailures      *prometheus.CounterVec // by job

	requests *prometheus.HistogramVec
	registry *prometheus.Registry
}

// histogram has buckets each four times as wide as the one before.
func histogram(name, help string, least float64, buckets int) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Name: "streamd_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(least, 4, buckets)}
}

func requestSeconds() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(histogram("http_request_seconds",
		"Time to answer a request; waiting polls have a route of their own.", 1e-4, 10), // to 26 s
		[]string{"route", "code"})
}

// NewMetrics makes metrics in a registry of their own, together with those of the Go
// runtime and the process.
func NewMetrics() *Metrics {
	m := &Metrics{
		SolveSeconds: prometheus.NewHistogram(histogram("solve_seconds", "Time to read the hyperplanes off the summed state.", 1e-5, 11)), // to 10 s
		FreshnessSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "streamd_freshness_seconds",
			Help: "Time from the arrival of records until a model is served that has them: of the oldest of those that each model has first.", Buckets: prometheus.ExponentialBuckets(5e-4, 2, 16)}), // to 16 s
		TuneSeconds:     prometheus.NewHistogram(histogram("tune_seconds", "Time to choose ν.", 1e-3, 9)),                          // to 65 s
		RefineSeconds:   prometheus.NewHistogram(histogram("refine_seconds", "Time to refine the hyperplanes on rows.", 1e-3, 11)), // to 17 min
		ReduceSeconds:   prometheus.NewHistogram(histogram("reduce_seconds", "Time to choose the basis of a kernel.", 1e-2, 9)),    // to 11 min
		SnapshotSeconds: prometheus.NewHistogram(histogram("snapshot_seconds", "Time to save a snapshot.", 1e-3, 9)),               // to 65 s
		RememberSeconds: prometheus.NewHistogramVec(histogram("remember_seconds", // to 26 s
			"Time until the brokers have the predictions of a call that are remembered, by outcome: remembered or failed.", 1e-4, 10), []string{"outcome"}),
		TurnSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "streamd_loop_turn_seconds",
			Help:    "Time of a turn of the loop that owns the live set: records and requests wait for it. Of many blocks that are retired together each slice is a turn.",
			Buckets: []float64{1e-4, 1e-3, 5e-3, 1e-2, 1.5e-2, 2e-2, 3e-2, 4e-2, 5e-2, 7e-2, 0.1, 0.2, 0.5, 1, 2.5}}),
		RecordsAhead: prometheus.NewCounter(prometheus.CounterOpts{Name: "streamd_records_ahead_total",
			Help: "Records since the start whose event time was beyond retire.max_future after their partition's clock, and was cut to that."}),
		BlocksRefused: prometheus.NewCounter(prometheus.CounterOpts{Name: "streamd_blocks_refused_total",
			Help: "Blocks since the start that retire.keep retired on arrival, since their event time was too old."}),
		ArchiveDropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "streamd_archive_dropped_total",
			Help: "Blocks since the start that the archive (retire.archive) has dropped because it was full."}),
		JobFailures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "streamd_job_failures_total",
			Help: "Failures since the start of work beside the loop, by job, that are bugs: it is tried again, and what it made before is served."}, []string{"job"}),
		requests: requestSeconds(),
		registry: prometheus.NewRegistry(),
	}
	m.registry.MustRegister(m.SolveSeconds, m.FreshnessSeconds, m.TuneSeconds, m.RefineSeconds, m.ReduceSeconds, m.SnapshotSeconds, m.RememberSeconds, m.TurnSeconds, m.RecordsAhead, m.BlocksRefused, m.ArchiveDropped, m.JobFailures, m.requests,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Add adds metrics of others.
func (m *Metrics) Add(c prometheus.Collector) { m.registry.MustRegister(c) }

func (m *Metrics) watch(service Service) {
	m.registry.MustRegister(serviceCollector{service})
}

// request counts an answer. The route is a pattern of the mux and never the client's
// text, so a client cannot make new series.
func (m *Metrics) request(r *http.Request, status int, took time.Duration) {
	route := r.Pattern
	switch {
	case route == "": // refused before the mux saw it
		route = "none"
	case route == "GET /v1/model" && asks(r, []described{modelWait}):
		route = "GET /v1/model?wait"
	}
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Observe(took.Seconds())
}

func (m *Metrics) handler(log zerolog.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: stdlog.New(warnings{log}, "metrics: ", 0),
		// A collector that fails does not hide the numbers of the others.
		ErrorHandling: promhttp.ContinueOnError,
		// The answers of all routes are compressed in one place.
		DisableCompression: true,
	})
}

// descs has the descriptions of all metrics below.
var descs []*prometheus.Desc

func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("streamd_"+name, help, labels, nil)
	descs = append(descs, d)
	return d
}

var (
	buildInfo     = desc("build_info", "1, with the version as a label.", "version")
	ready         = desc("ready", "1 when the daemon is ready, else 0.")
	problems      = desc("problems", "Problems of now, as the status page shows them: failure where the daemon does not do its work until somebody acts, warning where it works but not as it should, hint where something would serve better.", "kind", "level")
	recordsRead   = desc("records_read_total", "Records read.")
	recordsTotal  = desc("records_total", "Records processed, by outcome: applied, tombstone or rejected; with streamd_records_in_hand they add up to streamd_records_read_total.", "outcome")
	recordsInHand = desc("records_in_hand", "Records read and not yet processed.")
	undecoded     = desc("records_undecoded_total", "Rejected records that could not be decoded, so that their rows are in no count of rows.")
	inARow        = desc("records_refused_in_a_row", "Records refused since the last good one, where streamd_problems of kind refused is above 0; else 0.")
	recordsLost   = desc("records_lost_total", "Records that were gone from the log before they were read, in gaps that kafka.on_gap has passed over. Offsets of compacted records count.")
	gaps          = desc("gaps_total", "Gaps in the log that kafka.on_gap has passed over.")
	rowsRead      = desc("rows_read_total", "Rows read, of records that could be decoded.")
	rowsTotal     = desc("rows_total", "Rows processed, by outcome; with streamd_rows_in_hand they add up to streamd_rows_read_total.", "outcome")
	rowsInHand    = desc("rows_in_hand", "Rows read and not yet processed.")
	blocksTotal   = desc("blocks_total", "Blocks, by outcome: added, retired or replaced.", "outcome")
	liveRows      = desc("live_rows", "Rows in the model's state.")
	unlabelled    = desc("unlabelled_rows", "Rows in the model's state without a label, which make no class.")
	liveBlocks    = desc("live_blocks", "Blocks in the model's state.")
	liveWeight    = desc("live_weight", "Sum of the weights of the served model's rows by age, where the newest weigh 1; absent without a half-life.")
	joinedRows    = desc("joined_rows", "Rows whose labels come on labels.topic, by what they are now: joined, defaulted, waiting, expired or superseded; they add up to the rows read. Absent without it.", "state")
	joinedLabels  = desc("joined_labels", "Labels of labels.topic by what they are now: joined, early, unmatched or superseded; they add up to the labels read. Absent without it.", "state")
	lateLabels    = desc("late_labels_total", "Labels of labels.topic that were later than labels.horizon. Absent without it.")
	letGoRows     = desc("waiting_rows_let_go_total", "Rows that were let go while they waited for their labels, since there was no room. Absent without labels.topic.")
	labelWait     = desc("label_wait_seconds", "Median of the event time from a row to its label since the start, up to an eighth below it; absent before the first.")
	waitingBytes  = desc("waiting_bytes", "Memory of rows and labels that wait for each other. Absent without labels.topic.")
	withdrawn     = desc("withdrawn_blocks", "Blocks that records of retire.topic keep out of the model's state, or out of the archive.")
	unreadable    = desc("unreadable_control_keys", "Keys of retire.topic whose latest record cannot be read, so that it retires and restores nothing.")
	archived      = desc("archived_blocks", "Blocks that retire.keep has let go, and that retire.archive keeps for windows of the past.")
	judged        = desc("prequential_rows_total", "Arriving rows that the served model classified before it learned from them, by outcome. Of a fast stream they are a part of all rows.", "outcome")
	judgedGiven   = desc("prequential_given_rows_total", "Of streamd_prequential_rows_total, the rows that were judged by a remembered answer, and not by one made when the model was about to learn from them.")
	givenRows     = desc("given_rows", "Live rows with a label whose prediction is remembered, by what their answer was: right or wrong. Absent without such rows.", "answer")
	asSums        = desc("prequential_sums_rows_total", "Rows of blocks that came as sums, which cannot be judged.")
	balanced      = desc("prequential_balanced_correctness", "Mean of the classes' shares classified right among the latest of these rows: 10,000 or more of the last minute or more; absent before the first.")
	judgedRight   = desc("prequential_correctness", "Share of these rows that was right: over the latest (window), with fading weights (fading), or by progressive planes (progressive), where drift.every is set.", "over")
	judgedBase    = desc("prequential_baseline", "Share of these rows that a baseline has right, likewise: the largest class for all (largest_class), or the label of the row before (last_label).", "over", "baseline")
	judgedKappa   = desc("prequential_kappa", "Cohen's kappa of these rows, likewise: 0 is no better than chance, 1 is always right.", "over")
	judgedInTime  = desc("prequential_kappa_temporal", "Kappa-temporal of these rows, likewise: 0 is no better than the label of the row before, 1 is always right.", "over")
	judgedLoss    = desc("prequential_squared_loss", "Mean squared error of the decision values of these rows, likewise.", "over")
	judgedRecall  = desc("prequential_class_recall", "Share of a class's latest judged rows that were labelled with it. Models of more than 50 classes have none of the metrics by class.", "class")
	judgedExact   = desc("prequential_class_precision", "Share of the latest judged rows labelled with a class that were of it; absent where none was.", "class")
	driftAlarms   = desc("drift_alarms_total", "Changes that a drift detector has found, also before a restart: of the error on arriving rows (error), or of the loss from the sums of the newest blocks (sums). Without drift.detect there is no streamd_drift_*.", "detector", "direction")
	driftHolds    = desc("drift_sums_alarm", "1 while the loss of the served planes on the newest blocks exceeds that on the rest, else 0.")
	driftError    = desc("drift_error", "Share of judged rows that were wrong since the last change of the error; absent before the first.")
	driftLoss     = desc("drift_squared_loss", "Mean squared error of the served planes on the newest blocks and on the rest, from their sums; absent with too few blocks.", "of")
	heldOut       = desc("heldout_correctness", "Share of held-out rows classified right, as in GET /v1/quality; absent without measured quality.")
	heldOutEven   = desc("heldout_balanced_correctness", "The same as the mean of the classes' shares.")
	undeclared    = desc("undeclared_share", "Share of the live rows whose value of a category the schema does not declare.", "feature")
	classWarnings = desc("classes_missed", "Classes that held-out rows are never labelled, or whose rows are found less than half as often as rows are right.")
	classRecall   = desc("class_recall", "Share of a class's held-out rows that are labelled with it. Models of more than 50 classes have none of the metrics by class.", "class")
	classExact    = desc("class_precision", "Share of the held-out rows labelled with a class that are of it; absent where none is.", "class")
	classF1       = desc("class_f1", "Harmonic mean of a class's precision and recall.", "class")
	classAUC      = desc("class_auc", "Area under the ROC curve of a class against the rest.", "class")
	modelMade     = desc("model_timestamp_seconds", "Unix time when the served planes were made, as made_at in GET /v1/model; 0 while there is no model. It stays while no rows come or are retired.")
	epoch         = desc("epoch", "The epoch in use, as in GET /v1/epoch; 0 for the features. Without a kernel it is absent, as are streamd_basis_stale, streamd_reducing and streamd_rebuild_*.")
	basisStale    = desc("basis_stale", "1 while source blocks of the basis in use have been retired or replaced, else 0.")
	reducing      = desc("reducing", "1 while a basis is being chosen, else 0.")
	rebuildBlocks = desc("rebuild_blocks_left", "Live blocks still to be mapped to the coordinates of the next basis; 0 without one.")
	rebuildRows   = desc("rebuild_rows_left", "Rows of the blocks in streamd_rebuild_blocks_left.")
	rebuildUnread = desc("rebuild_blocks_unread", "Blocks in streamd_rebuild_blocks_left that the log no longer has unchanged.")
	deadLetters   = desc("dead_letters_total", "Messages written to a dead-letter topic.")
	refused       = desc("refused_records_total", "Records refused since the start, by reason.", "reason")
	reading       = desc("reading", "1 while all partitions of the topic can be read, else 0. Before they are known streamd_partition_* are absent.")
	fetchErrors   = desc("fetch_errors_total", "Fetches that failed.")
	receipts      = desc("receipts", "Leaves of the log of receipts; absent where receipts are off.")
	cosigned      = desc("witness_cosigned_receipts", "Leaves of the log of receipts that a witness has cosigned.", "witness")
	unwitnessed   = desc("witness_failures_total", "Calls of a witness since the start that have brought no cosignature.", "witness")
	snapshotAge   = desc("snapshot_age_seconds", "Time since the last snapshot; absent before the first.")
	nextOffset    = desc("partition_next_offset", "Offset of the first record not yet processed.", "topic", "partition")
	highWatermark = desc("partition_high_watermark", "Offset after the partition's last record.", "topic", "partition")
	logStart      = desc("partition_log_start", "Offset of the partition's first record.", "topic", "partition")
	lag           = desc("partition_lag", "Records not yet processed.", "topic", "partition")
)

// serviceCollector reads the status and the served value once per scrape.
type serviceCollector struct{ service Service }

func (c serviceCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range descs {
		ch <- d
	}
}

func (c serviceCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.service.Status()
	served, _ := c.service.Served()
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}

	gauge(buildInfo, 1, s.Version)
	gauge(ready, oneIf(s.NotReady == ""))
	present := map[ProblemKind]int{}
	for _, p := range s.listed() {
		present[p.Kind]++
	}
	for _, k := range problemKinds {
		gauge(problems, float64(present[k.kind]), string(k.kind), string(k.level))
	}
	counter(recordsRead, s.Records.Read)
	counter(recordsTotal, s.Records.Applied, "applied")
	counter(recordsTotal, s.Records.Tombstones, "tombstone")
	counter(recordsTotal, s.Records.Rejected, "rejected")
	gauge(recordsInHand, float64(s.Records.Pending))
	counter(undecoded, s.Records.Undecoded)
	if p := problemOf(s.Problems, ProblemRefused); p != nil {
		gauge(inARow, float64(p.Count))
	} else {
		gauge(inARow, 0)
	}
	counter(recordsLost, s.Records.Lost)
	counter(gaps, s.Records.Gaps)
	counter(rowsRead, s.Rows.Read)
	counter(rowsTotal, s.Rows.Summarised, "summarised")
	counter(rowsTotal, s.Rows.Rejected, "rejected")
	counter(rowsTotal, s.Rows.ZeroWeight, "zero_weight")
	gauge(rowsInHand, float64(s.Rows.Pending))
	counter(blocksTotal, s.Blocks.Added, "added")
	counter(blocksTotal, s.Blocks.Retired, "retired")
	counter(blocksTotal, s.Blocks.Replaced, "replaced")
	gauge(liveRows, float64(s.LiveRows))
	gauge(unlabelled, float64(s.Unlabelled))
	gauge(liveBlocks, float64(s.LiveBlocks))
	gauge(withdrawn, float64(s.Withdrawn))
	if l := s.Labels; l != nil {
		r, b := &l.Rows, &l.Labels
		gauge(joinedRows, float64(r.Joined), "joined")
		gauge(joinedRows, float64(r.Defaulted), "defaulted")
		gauge(joinedRows, float64(r.Waiting), "waiting")
		gauge(joinedRows, float64(r.Expired), "expired")
		gauge(joinedRows, float64(r.Superseded), "superseded")
		gauge(joinedLabels, float64(b.Joined), "joined")
		gauge(joinedLabels, float64(b.Early), "early")
		gauge(joinedLabels, float64(b.Unmatched), "unmatched")
		gauge(joinedLabels, float64(b.Superseded), "superseded")
		counter(lateLabels, b.Late)
		counter(letGoRows, r.LetGo)
		gauge(waitingBytes, float64(l.Bytes))
		if l.MedianWait != nil {
			gauge(labelWait, *l.MedianWait)
		}
	}
	gauge(unreadable, float64(s.Unreadable))
	gauge(archived, float64(s.Archived))
	p := c.service.Prequential()
	counter(judged, p.Right, "right")
	counter(judged, p.Rows-p.Right, "wrong")
	if g := p.Given; g != nil {
		counter(judgedGiven, g.Judged)
		gauge(givenRows, float64(g.Right), "right")
		gauge(givenRows, float64(g.Rows-g.Right), "wrong")
	}
	if p.Sums != nil {
		counter(asSums, p.Sums.Rows)
	}
	if p.Window != nil {
		gauge(balanced, p.Window.BalancedCorrectness)
		classFigures(gauge, p.Window.Classes, judgedRecall, judgedExact)
		of := map[string]*model.Stretch{"window": p.Window, "fading": p.Fading}
		if p.Progressive != nil && p.Progressive.Figures != nil {
			of["progressive"] = p.Progressive.Figures
		}
		for over, figures := range of {
			gauge(judgedRight, figures.Correctness, over)
			gauge(judgedBase, figures.LargestClass, over, "largest_class")
			for _, x := range []struct {
				of     *prometheus.Desc
				value  *float64
				labels []string
			}{
				{judgedBase, figures.LastLabel, []string{over, "last_label"}},
				{judgedKappa, figures.Kappa, []string{over}},
				{judgedInTime, figures.KappaTemporal, []string{over}},
				{judgedLoss, figures.SquaredLoss, []string{over}},
			} {
				if x.value != nil {
					gauge(x.of, *x.value, x.labels...)
				}
			}
		}
	}
	if d := p.Drift; d != nil {
		counter(driftAlarms, d.Error.Rises, "error", "rise")
		counter(driftAlarms, d.Error.Falls, "error", "fall")
		counter(driftAlarms, d.Sums.Rises, "sums", "rise")
		gauge(driftHolds, oneIf(d.Sums.Holds))
		if d.Error.Share != nil {
			gauge(driftError, *d.Error.Share)
		}
		if d.Sums.Newest != nil {
			gauge(driftLoss, *d.Sums.Newest, "newest")
			gauge(driftLoss, *d.Sums.Rest, "rest")
		}
	}
	if f := served.Forgetting; f != nil {
		gauge(liveWeight, f.Weight)
	}
	for _, u := range served.Undeclared {
		gauge(undeclared, u.Share, u.Feature)
	}
	var made float64
	if served.Model != nil {
		made = float64(served.MadeAt.UnixNano()) / 1e9
	}
	gauge(modelMade, made)
	if q := served.Quality; served.Model != nil && q != nil {
		gauge(heldOut, q.Correctness)
		gauge(heldOutEven, q.BalancedCorrectness)
		gauge(classWarnings, float64(len(q.Warned())))
		classFigures(gauge, q.Classes, classRecall, classExact)
		if len(q.Classes) <= mostClassSeries {
			for _, c := range q.Classes {
				measured := func(d *prometheus.Desc, v *float64) {
					if v != nil {
						gauge(d, *v, c.Class)
					}
				}
				measured(classF1, c.F1)
				measured(classAUC, c.AUC)
			}
		}
	}
	if e := s.Epoch; e != nil {
		gauge(epoch, float64(e.Epoch))
		gauge(basisStale, oneIf(e.Stale))
		gauge(reducing, oneIf(e.Reducing != nil))
		var left RebuildAnswer
		if e.Rebuild != nil {
			left = *e.Rebuild
		}
		gauge(rebuildBlocks, float64(left.Missing))
		gauge(rebuildRows, float64(left.LiveRows-left.Rows))
		gauge(rebuildUnread, float64(left.Unread))
	}
	counter(deadLetters, s.DeadLetters)
	for _, r := range s.Refused {
		counter(refused, r.Records, r.Reason)
	}
	gauge(reading, oneIf(s.Reading))
	counter(fetchErrors, s.FetchErrors)
	if s.Receipts > 0 || len(s.Witnesses) > 0 {
		gauge(receipts, float64(s.Receipts))
	}
	for _, w := range s.Witnesses {
		gauge(cosigned, float64(w.Cosigned), w.Name)
		counter(unwitnessed, w.Failures, w.Name)
	}
	if !s.LastSnapshot.IsZero() {
		gauge(snapshotAge, time.Since(s.LastSnapshot).Seconds())
	}
	for _, p := range s.Partitions {
		number := strconv.Itoa(p.Partition)
		known := func(d *prometheus.Desc, offset int64) {
			if offset >= 0 {
				gauge(d, float64(offset), p.Topic, number)
			}
		}
		known(nextOffset, p.Next)
		known(logStart, p.LogStart)
		known(highWatermark, p.HighWatermark)
		known(lag, p.Lag())
	}
}

// classFigures shows recall and precision of each class, unless the classes are many.
func classFigures(gauge func(d *prometheus.Desc, v float64, labels ...string), classes []model.ClassAnswers, recall, precision *prometheus.Desc) {
	if len(classes) > mostClassSeries {
		return
	}
	for _, c := range classes {
		if c.Recall != nil {
			gauge(recall, *c.Recall, c.Class)
		}
		if c.Precision != nil {
			gauge(precision, *c.Precision, c.Class)
		}
	}
}

// mostClassSeries bounds the series of a metric by class: producers name the classes.
const mostClassSeries = 50

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// warnings logs each write as a warning.
type warnings struct{ log zerolog.Logger }

func (w warnings) Write(p []byte) (int, error) {
	w.log.Warn().Msg(strings.TrimSpace(string(p)))
	return len(p), nil
}
