package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/kafka"
)

// Ingest compares the daemon with a drain: the same consumer, with the same configuration, on
// the same topic, which fetches every batch and drops it. The drain's time is that of moving
// the bytes. The daemon's time beyond it is the cost of everything that streamd does with them.
type Ingest struct {
	Total  int64  `name:"rows" default:"60000000" help:"Points in the topic."`
	Format string `default:"arrow" enum:"arrow,json,csv,libsvm" help:"Format of the messages: ${enum}."`
	Points
	Through
	Repeats
}

// Check implements Benchmark.
func (c Ingest) Check() error {
	return cmp.Or(c.Points.Check(c.Total), c.Through.Check(), c.Repeats.check())
}

// Measure implements Benchmark. It fills a topic, reads it with the daemon and the drain in
// turn, and deletes it. Both are timed from the moment when their partitions are assigned: the
// daemon until every row is in its state, and the drain until it has seen every message.
// drain_ratio is the daemon's rate over the drain's.
//
// The daemon runs in this process, with an empty snapshot in each round, and its digest must
// be the same in each round.
func (c Ingest) Measure(ctx context.Context, run *Run) error {
	run.plan(c.Repeats, 0, 1)
	return c.with(ctx, func(t *topic) error { return c.measure(ctx, run, t) })
}

func (c Ingest) measure(ctx context.Context, run *Run, t *topic) error {
	points := c.of(c.Total)
	reading, err := fill(ctx, run, t, points, "--format", c.Format)
	if err != nil {
		return err
	}
	r := Result{Benchmark: "ingest", Parameters: append(points.parameters(),
		Parameter{"format", c.Format}, Parameter{"partitions", t.partitions}, Parameter{"broker", t.kind()})}
	return run.measure(ctx, r, []side{{"daemon", reading.learn}, {"drain", reading.drain}}, func(r *Result, samples [][]Sample) {
		bytes := float64(reading.written.Bytes)
		r.addRows()
		r.add("gb_per_second", func(i int) float64 { return bytes / samples[0][i].Seconds / 1e9 })
		r.add("drain_rows_per_second", func(i int) float64 { return samples[1][i].rowsPerSecond() })
		r.addRatio("drain_ratio", Sample.rowsPerSecond, samples[0], samples[1])
		r.set("bytes", bytes) // of the messages' payloads
		r.Details = []Parameter{{"state_digest", reading.digest}}
	})
}

// reading reads a full topic again and again.
type reading struct {
	*topic
	learns  map[string]string // the settings of the rows
	written replayed
	log     zerolog.Logger

	times  int
	digest string // of the state after the first time
	model  *incremental.Model
}

// fill writes points to a topic.
func fill(ctx context.Context, run *Run, t *topic, points Points, more ...string) (*reading, error) {
	written, err := run.Program.replay(ctx, t, points, 0, more...)
	return &reading{topic: t, learns: points.settings(), written: written, log: run.Log}, err
}

func (r *reading) config(group string) (*config.Config, error) {
	r.times++
	return config.Load(config.Sources{Flags: r.settings(group, r.learns, map[string]string{
		"snapshot.file": filepath.Join(r.dir, fmt.Sprintf("streamd-%d.db", r.times)),
		"http.listen":   "127.0.0.1:0",
		"model.nu":      strconv.FormatFloat(Nu, 'g', -1, 64),
	})})
}

// learn is a daemon that reads all rows into its state.
func (r *reading) learn(ctx context.Context, _ time.Duration) (s Sample, err error) {
	cfg, err := r.config("daemon")
	if err != nil {
		return s, err
	}
	d, err := daemon.New(daemon.Options{Config: cfg, Log: r.log, Version: "bench"})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, os.Remove(cfg.Snapshot.File)) }()
	return r.timed(ctx, d.Run,
		func() bool { return len(d.Status().Partitions) > 0 },
		func() bool { return d.Status().Rows.Read >= r.written.Rows },
		func(ctx context.Context) error { return r.judge(ctx, d) })
}

// judge waits for the model of all rows, and compares the digest with that of earlier rounds.
func (r *reading) judge(ctx context.Context, d *daemon.Daemon) error {
	if rows := d.Status().Rows; rows.Rejected > 0 {
		return fmt.Errorf("of %d rows %d were summarised and %d rejected", r.written.Rows, rows.Summarised, rows.Rejected)
	}
	for {
		served, replaced := d.Served()
		if served.Rows == r.written.Rows {
			r.digest, r.model = cmp.Or(r.digest, served.Digest), served.Model
			if served.Digest != r.digest {
				return fmt.Errorf("the state's digest is %s, and was %s before", served.Digest, r.digest)
			}
			return nil
		}
		select {
		case <-replaced:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// drain is the daemon's consumer, which reads all messages.
func (r *reading) drain(ctx context.Context, _ time.Duration) (s Sample, err error) {
	cfg, err := r.config("drain")
	if err != nil {
		return s, err
	}
	sink := &drain{}
	c, err := kafka.NewConsumer(kafka.Config{
		Cluster:  r.cluster,
		Topic:    r.name,
		Group:    cfg.Kafka.Group,
		Fetching: settings.Fetching(cfg.Kafka),
	}, sink, r.log)
	if err != nil {
		return s, err
	}
	return r.timed(ctx, c.Run,
		func() bool { return c.Stats().Assignments > 0 },
		func() bool { return sink.records.Load() >= r.written.Blocks },
		func(context.Context) error { return nil })
}

// timed runs a reader of the topic from the moment when it is ready until it is done. Then it
// calls last, and stops the reader.
func (r *reading) timed(ctx context.Context, reader func(context.Context) error, ready, done func() bool, last func(context.Context) error) (s Sample, err error) {
	running, stop := context.WithCancel(ctx)
	working, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var ended sync.WaitGroup
	ended.Go(func() { fail(reader(running)) })
	defer ended.Wait()
	defer stop()

	const look = time.Millisecond // bounds the error of the time
	until := func(reached func() bool) error {
		for !reached() {
			if err := pause(working, look); err != nil {
				return err
			}
		}
		return nil
	}
	if err := until(ready); err != nil {
		return s, err
	}
	began := time.Now()
	if err := until(done); err != nil {
		return s, err
	}
	s = Sample{Ops: 1, Rows: r.written.Rows, Seconds: time.Since(began).Seconds()}
	return s, last(working)
}

// pause waits, or returns why ctx has ended.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// drain is a sink that drops everything.
type drain struct{ records atomic.Int64 }

func (d *drain) Deliver(_ context.Context, b *kafka.Batch) error {
	n := len(b.Records)
	b.Release()
	d.records.Add(int64(n))
	return nil
}

func (d *drain) Position(int) (kafka.Saved, bool) { return kafka.Saved{}, false }

func (d *drain) Partitions() []int { return nil }

func (d *drain) Jumped(*kafka.GapError, int64) {}

func (*drain) Assigned(context.Context, []int) error { return nil }

func (d *drain) Revoked(context.Context, []int) {}
