package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon"
	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/kafka"
)

// Ingest compares the daemon with a drain: the same consumer, with the same
// configuration, on the same topic, which fetches every batch and drops it. What
// the drain takes is moving the bytes; what the daemon takes beyond it is all
// that streamd does with them.
type Ingest struct {
	Setting
	Format string // of the messages, as replay has it
}

// Measure fills a topic, reads it with the daemon and the drain in turn, and
// clears it away. Both are timed from the moment their partitions are assigned,
// the daemon until every row is in its state and the drain until it has seen
// every message. drain_ratio is the daemon's rate over the drain's.
//
// The daemon runs in this process with an empty snapshot each time, and its
// digest must be the same each time.
func (c Ingest) Measure(ctx context.Context, plan Plan) (r Result, err error) {
	p, err := c.open(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	written, err := c.Program.replay(ctx, p.dir, c.Points, 0, p.topic, "--format", c.Format)
	if err != nil {
		return r, err
	}
	reading := reading{place: p, features: c.Points.names(), written: written, log: c.Log}
	samples, err := plan.alternate(ctx,
		side{"daemon", reading.learn},
		side{"drain", reading.drain})
	if err != nil {
		return r, err
	}
	r = Result{
		Benchmark: "ingest",
		Parameters: append(c.Points.parameters(),
			Parameter{"format", c.Format},
			Parameter{"partitions", p.topic.partitions},
			Parameter{"broker", p.topic.kind()}),
		Samples: samples[0],
	}
	r.addRows()
	r.add("gb_per_second", func(i int) float64 { return float64(written.Bytes) / samples[0][i].Seconds / 1e9 })
	r.add("drain_rows_per_second", func(i int) float64 { return samples[1][i].rowsPerSecond() })
	r.add("drain_ratio", func(i int) float64 { return samples[0][i].rowsPerSecond() / samples[1][i].rowsPerSecond() })
	r.set("bytes", float64(written.Bytes)) // of the messages' payloads
	r.Details = append(r.Details, Parameter{"state_digest", reading.digest})
	return r, nil
}

// reading reads a topic that is full, as often as wanted.
type reading struct {
	*place
	features string // format.features
	written  replayed
	log      zerolog.Logger

	times  int
	digest string // of the state after the first time
	model  *incremental.Model
}

// look is how often a daemon or a drain is asked how far it is. It is what a
// time can be wrong by.
const look = time.Millisecond

func (r *reading) config(group string) (*config.Config, error) {
	r.times++
	return config.Load(config.Sources{Flags: map[string]string{
		"kafka.brokers":   strings.Join(r.topic.cluster.Brokers, ","),
		"kafka.topic":     r.topic.name,
		"kafka.group":     r.topic.group(group),
		"format.features": r.features,
		"snapshot.file":   filepath.Join(r.dir, fmt.Sprintf("streamd-%d.db", r.times)),
		"http.listen":     "127.0.0.1:0",
		"model.nu":        strconv.FormatFloat(Nu, 'g', -1, 64),
	}})
}

// learn is a daemon from its start until all rows are in its state.
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
	running, stop := context.WithCancel(ctx)
	working, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var done sync.WaitGroup
	done.Go(func() { fail(d.Run(running)) })
	defer done.Wait()
	defer stop()

	if err := poll(working, func() bool { return len(d.Status().Partitions) > 0 }); err != nil {
		return s, err
	}
	began := time.Now()
	if err := poll(working, func() bool { return d.Status().Rows.Read >= r.written.Rows }); err != nil {
		return s, err
	}
	s = Sample{Ops: 1, Rows: r.written.Rows, Seconds: time.Since(began).Seconds()}
	if rows := d.Status().Rows; rows.Summarised != r.written.Rows {
		return s, fmt.Errorf("of %d rows %d were summarised and %d rejected", r.written.Rows, rows.Summarised, rows.Rejected)
	}
	for {
		served, replaced := d.Served()
		if served.Rows == r.written.Rows {
			if r.digest == "" {
				r.digest = served.Digest
			}
			if served.Digest != r.digest {
				return s, fmt.Errorf("the state's digest is %s, and was %s before", served.Digest, r.digest)
			}
			r.model = served.Model
			return s, nil
		}
		select {
		case <-replaced:
		case <-working.Done():
			return s, context.Cause(working)
		}
	}
}

// drain is the daemon's consumer from its start until it has read all messages.
func (r *reading) drain(ctx context.Context, _ time.Duration) (s Sample, err error) {
	cfg, err := r.config("drain")
	if err != nil {
		return s, err
	}
	sink := &drain{}
	c, err := kafka.NewConsumer(kafka.Config{
		Cluster:  r.topic.cluster,
		Topic:    r.topic.name,
		Group:    cfg.Kafka.Group,
		Fetching: daemon.Fetching(cfg.Kafka),
	}, sink, r.log)
	if err != nil {
		return s, err
	}
	running, stop := context.WithCancel(ctx)
	working, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var done sync.WaitGroup
	done.Go(func() { fail(c.Run(running)) })
	defer done.Wait()
	defer stop()

	if err := poll(working, func() bool { return c.Stats().Rebalances > 0 }); err != nil {
		return s, err
	}
	began := time.Now()
	if err := poll(working, func() bool { return sink.records.Load() >= r.written.Blocks }); err != nil {
		return s, err
	}
	return Sample{Ops: 1, Rows: r.written.Rows, Seconds: time.Since(began).Seconds()}, nil
}

// poll waits until ready.
func poll(ctx context.Context, ready func() bool) error {
	for !ready() {
		if err := pause(ctx, look); err != nil {
			return err
		}
	}
	return nil
}

// drain is a sink that drops everything.
type drain struct{ records atomic.Int64 }

func (d *drain) Position(int) (kafka.Saved, bool) { return kafka.Saved{}, false }

func (d *drain) Deliver(_ context.Context, b *kafka.Batch) error {
	n := len(b.Records)
	b.Release()
	d.records.Add(int64(n))
	return nil
}

func (d *drain) Former() string { return "" }

func (d *drain) Joined(string) {}

func (d *drain) Partitions() []int { return nil }

func (d *drain) Jumped(*kafka.GapError, int64) {}

func (d *drain) Revoked(context.Context, []int) {}
