//go:build !production

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/bench"
	"streamd/cmd/streamd/daemon"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/kafka/embedded"
	"streamd/ingest/ndc"
)

// demoCommand is the part of the grammar that needs an embedded broker.
type demoCommand struct {
	Demo demoCmd `cmd:"" help:"Show everything at once: a broker, a stream of a few million points, the daemon and its page, in one process."`
}

// demoCmd is the whole product in one process.
type demoCmd struct {
	Rows         int64            `default:"5000000" help:"Points to learn from."`
	Features     int              `default:"10" help:"Features of a point."`
	Separability ndc.Separability `default:"easy" placeholder:"easy|hard|X" help:"How well a plane separates the points: easy (about 90.5 %), hard (70 %), or an expansion factor of the clusters."`
	Seed         uint64           `default:"1" help:"Seed of clusters and points."`
	Partitions   int              `default:"4" help:"Partitions of the topic."`
	BlockRows    int              `default:"20000" help:"Rows per block."`
	Workers      int              `default:"0" help:"Goroutines that decode and summarise blocks; the model does not depend on it. 0: as many as there are CPUs."`
	Listen       string           `default:"127.0.0.1:8080" help:"Address to serve the model and the page on; another port is taken when it is in use."`
	Rate         float64          `default:"20000" placeholder:"ROWS" help:"Points to write per second once the report is printed, for as long as the demo serves. 0: none."`
	Topics       []string         `placeholder:"NAME,..." help:"Further topics of the broker, without records and of one partition, for rows of your own: streamd run reads them, with the broker's address in --kafka.brokers."`
	Exit         bool             `help:"End when the report is printed instead of going on serving."`
	jsonFlag
}

// Validate implements kong's interface.
func (c *demoCmd) Validate() error {
	if err := cmp.Or(
		bench.Within("rows", 1, ndc.MaxPoints, c.Rows),
		bench.Within("partitions", 1, 1024, c.Partitions),
		bench.Within("block-rows", 1, 1<<20, c.BlockRows)); err != nil {
		return err
	}
	if !(c.Rate >= 0 && c.Rate <= maxDemoRate) {
		return fmt.Errorf("--rate %v: must be 0 to %d", c.Rate, maxDemoRate)
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil { // else the error would name a key of the configuration
		return fmt.Errorf("--listen %s: want an address host:port", c.Listen)
	}
	return nil
}

// demoReport is the report of a demo.
type demoReport struct {
	Rows          int64     `json:"rows"`
	Seconds       float64   `json:"seconds"` // from the first point written to the model of all of them
	RowsPerSecond float64   `json:"rows_per_second"`
	FreshSeconds  float64   `json:"fresh_seconds"` // from the acknowledgement of the last block to the model of all of them
	TrainAccuracy float64   `json:"train_accuracy"`
	TrainRows     int64     `json:"train_rows"` // rows that train_accuracy was measured on
	TestAccuracy  float64   `json:"test_accuracy"`
	TestRows      int64     `json:"test_rows"`
	Blocks        int       `json:"blocks"`
	StateDigest   string    `json:"state_digest"`
	W             []float64 `json:"w"`
	Gamma         float64   `json:"gamma"`
	Expansion     float64   `json:"expansion"` // factor of the clusters
}

const (
	demoTopic = "streamd.demo"

	// demoRetention is the number of bytes that the topic keeps of each partition. The replay
	// is less than that ahead of the daemon: by at most demoLag messages of about a megabyte.
	demoRetention = 128 << 20
	demoLag       = 32

	// Once the report is printed, a second has demoBlocks blocks, and the model is of the
	// latest demoWindow blocks and as many as the report was of.
	demoBlocks  = 4
	demoWindow  = 3600
	maxDemoRate = 100_000_000 // rows/s, more than any machine takes

	demoShutdown = 5 * time.Second // there is nothing that a restart would need

	demoTestRows  = 1_000_000
	demoTrainRows = 10_000_000 // most training rows that the accuracy is measured on
)

// stopsWithin is the daemon's shutdown_timeout, and a second for the broker and the files of both.
func (*demoCmd) stopsWithin() time.Duration { return demoShutdown + time.Second }

func (c *demoCmd) Run(ctx context.Context, s *surroundings) (err error) {
	generator, err := ndc.New(ndc.Config{Features: c.Features, Separability: c.Separability, Seed: c.Seed})
	if err != nil {
		return usageError{err}
	}
	dir, err := os.MkdirTemp("", "streamd-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	broker, err := embedded.Start(dir)
	if err != nil {
		return err
	}
	defer broker.Close()
	if err := broker.CreateTopic(demoTopic, c.Partitions, demoRetention); err != nil {
		return err
	}
	for _, topic := range c.Topics {
		if err := broker.CreateTopic(topic, 1, -1); err != nil {
			return fmt.Errorf("--topics: %w", err)
		}
	}
	d, err := c.open(s, broker, dir)
	if err != nil {
		return err
	}

	// The daemon outlives an interruption until its state is saved, as it would
	// on its own.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	working, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var daemonErr error
	var done sync.WaitGroup
	done.Go(func() {
		daemonErr = d.Run(running)
		fail(fmt.Errorf("the daemon has ended: %w", daemonErr))
	})
	defer func() {
		stop()
		done.Wait()
		if err == nil {
			err = daemonErr
		}
	}()
	fmt.Fprintf(s.stderr, "broker on %s, topic %s; the model and its page are on http://%s/\n", broker.Addr(), demoTopic, d.Addr())

	report, err := c.learn(working, s, d, broker.Addr(), generator)
	if err != nil {
		if cause := context.Cause(working); cause != nil && ctx.Err() == nil {
			return cause
		}
		return err
	}
	if err := c.print(s, report); err != nil {
		return err
	}
	if c.Exit {
		return nil
	}
	if c.Rate > 0 && c.Rows < ndc.MaxPoints {
		fmt.Fprintf(s.stderr, "streaming on at %s rows/s and serving on http://%s/ until interrupted\n", short(c.Rate), d.Addr())
		err = c.stream(working, s, broker.Addr())
	} else {
		fmt.Fprintf(s.stderr, "still serving on http://%s/ until interrupted\n", d.Addr())
	}
	if err == nil {
		<-working.Done() // all points are written, or none
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case working.Err() != nil:
		return context.Cause(working)
	}
	return err
}

// stream writes points at the rate until ctx ends. The broker's retention bounds the log, and
// retire.keep the live blocks.
func (c *demoCmd) stream(ctx context.Context, s *surroundings, broker string) error {
	replay := c.replay(broker, c.Rows, ndc.MaxPoints-c.Rows)
	replay.Rate = c.Rate
	replay.BlockRows = max(1, min(c.BlockRows, int(c.Rate/demoBlocks)))
	quiet := *s
	quiet.stdout, quiet.stderr = io.Discard, io.Discard // it has no end to report
	return replay.Run(ctx, &quiet)
}

// replay replays points of the demo from the first one on.
func (c *demoCmd) replay(broker string, first, rows int64) *replayNDCCmd {
	return &replayNDCCmd{
		Rows: rows, FirstRow: first, Features: c.Features, Separability: c.Separability, Seed: c.Seed,
		replayFlags: replayFlags{
			Brokers: []string{broker}, Topic: demoTopic, Partitions: c.Partitions, Format: "arrow",
			BlockRows: c.BlockRows, WaitGroup: demoTopic, MaxLag: demoLag,
		},
	}
}

func (c *demoCmd) open(s *surroundings, broker *embedded.Broker, dir string) (*daemon.Daemon, error) {
	flags := map[string]string{
		"kafka.brokers":     broker.Addr(),
		"kafka.topic":       demoTopic,
		"kafka.group":       demoTopic,
		"format.default":    "arrow",
		"format.features":   strings.Join(incremental.DefaultFeatures(c.Features), ","),
		"model.nu":          strconv.FormatFloat(bench.Nu, 'g', -1, 64),
		"snapshot.file":     filepath.Join(dir, "streamd.db"),
		"snapshot.interval": "50ms", // the replay waits for offsets, which are committed after a save
		"http.listen":       c.Listen,
		"http.open":         "true", // the points are generated and need no protection
		"workers":           strconv.Itoa(c.Workers),
		"shutdown_timeout":  demoShutdown.String(),
		"retire.keep":       "blocks",
		"retire.blocks":     strconv.FormatInt((c.Rows+int64(c.BlockRows)-1)/int64(c.BlockRows)+demoWindow, 10),
	}
	if l, err := net.Listen("tcp", c.Listen); err == nil {
		l.Close()
	} else if host, _, splitErr := net.SplitHostPort(c.Listen); splitErr == nil {
		fmt.Fprintf(s.stderr, "%v; taking another port\n", err)
		flags["http.listen"] = net.JoinHostPort(host, "0")
	}
	cfg, err := config.Load(config.Sources{Flags: flags})
	if err != nil {
		return nil, usageError{err}
	}
	return daemon.New(daemon.Options{Config: cfg, Log: consoleLog(s.stderr).Level(zerolog.WarnLevel), Version: thisBuild().String()})
}

// learn replays the points, waits for the model of all of them, and measures it.
func (c *demoCmd) learn(ctx context.Context, s *surroundings, d *daemon.Daemon, broker string, generator *ndc.Generator) (*demoReport, error) {
	began := time.Now()
	quiet := *s
	quiet.stdout = io.Discard
	if err := c.replay(broker, 0, c.Rows).Run(ctx, &quiet); err != nil {
		return nil, err
	}
	written := time.Now()
	served, err := waitForRows(ctx, d, c.Rows)
	if err != nil {
		return nil, err
	}
	seconds, fresh := time.Since(began).Seconds(), time.Since(written).Seconds()
	if served.Model == nil {
		return nil, fmt.Errorf("there is no model of the %d points: %s", c.Rows, served.Problem)
	}
	p := served.Model.Planes[0]
	r := &demoReport{
		Rows: served.Rows, Seconds: seconds, RowsPerSecond: float64(served.Rows) / seconds, FreshSeconds: fresh,
		TrainRows: min(c.Rows, demoTrainRows), TestRows: demoTestRows,
		Blocks: served.Blocks, StateDigest: served.Digest,
		W: p.W, Gamma: p.Gamma, Expansion: generator.Expansion(),
	}
	if r.TrainAccuracy, err = bench.ShareRight(ctx, served.Model, generator, ndc.Train, r.TrainRows); err != nil {
		return nil, err
	}
	if r.TestAccuracy, err = bench.ShareRight(ctx, served.Model, generator, ndc.Test, r.TestRows); err != nil {
		return nil, err
	}
	return r, nil
}

// waitForRows waits until the served model has so many rows or more.
func waitForRows(ctx context.Context, d *daemon.Daemon, rows int64) (*model.Served, error) {
	for {
		served, replaced := d.Served()
		if served.Rows >= rows {
			return served, nil
		}
		select {
		case <-replaced:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *demoCmd) print(s *surroundings, r *demoReport) error {
	if c.JSON {
		return printJSON(s.stdout, r)
	}
	t := newTable(s.stdout)
	t.row("rows", strconv.FormatInt(r.Rows, 10), "in "+counted(r.Blocks, "block"))
	t.row("seconds", fmt.Sprintf("%.2f", r.Seconds), short(r.RowsPerSecond)+" rows/s from generator to model")
	t.row("freshness", fmt.Sprintf("%.1f ms", 1e3*r.FreshSeconds), "from the last block's acknowledgement to the model of all")
	t.row("training accuracy", fmt.Sprintf("%.2f %%", 100*r.TrainAccuracy), fmt.Sprintf("of %d points", r.TrainRows))
	t.row("test accuracy", fmt.Sprintf("%.2f %%", 100*r.TestAccuracy), fmt.Sprintf("of %d fresh points", r.TestRows))
	t.row("state digest", r.StateDigest)
	return t.flush()
}
