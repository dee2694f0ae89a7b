//go:build !production

package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/bench"
	"streamd/cmd/streamd/daemon"
	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/reproduce"
	"streamd/config"
	"streamd/incremental"
)

// reproduceKafka has the points of figure 2.7 go to a daemon through Kafka.
type reproduceKafka struct {
	Brokers    []string `placeholder:"HOST:PORT" help:"Addresses of brokers. The points of fig-2.7 go through them to a daemon, which retires a day for each one that comes. The topic is made for it and deleted again. The word embedded starts a broker. By default sums are added and subtracted without Kafka."`
	Partitions int      `default:"4" help:"Partitions of the topic of --brokers."`
}

// driftTable is the table that may go through Kafka.
const driftTable = "fig-2.7"

func (c *reproduceKafka) check(tables []string) error {
	if len(c.Brokers) > 0 && !slices.Contains(tables, driftTable) {
		return fmt.Errorf("--brokers: of the tables only %s goes through Kafka", driftTable)
	}
	return bench.Through{Partitions: c.Partitions}.Check()
}

// windows returns what the configuration of a table asks, or nil without brokers. The planes are
// made once, also where there is a picture.
func (c *reproduceKafka) windows(s *surroundings) func(context.Context, *reproduce.DriftingDays) ([]*incremental.Model, error) {
	if len(c.Brokers) == 0 {
		return nil
	}
	through := bench.Through{Brokers: c.Brokers, Partitions: c.Partitions}
	if slices.Equal(c.Brokers, []string{"embedded"}) {
		through.Brokers = nil
	}
	var models []*incremental.Model
	return func(ctx context.Context, days *reproduce.DriftingDays) ([]*incremental.Model, error) {
		if models != nil {
			return models, nil
		}
		err := through.With(ctx, func(brokers []string, topic, dir string) error {
			k := &driftStream{days: days, brokers: brokers, topic: topic, partitions: c.Partitions, blockRows: min(days.Rows/4, 20_000)}
			d, err := k.open(s, dir)
			if err != nil {
				return err
			}
			models, err = k.learn(ctx, s, d)
			return err
		})
		return models, err
	}
}

// driftStream is a stream of days through a topic.
type driftStream struct {
	days       *reproduce.DriftingDays
	brokers    []string
	topic      string
	partitions int
	blockRows  int
}

// open makes a daemon that keeps the rows of a window.
func (k *driftStream) open(s *surroundings, dir string) (*daemon.Daemon, error) {
	cfg, err := config.Load(config.Sources{Flags: map[string]string{
		"kafka.brokers":     strings.Join(k.brokers, ","),
		"kafka.topic":       k.topic,
		"kafka.group":       k.topic,
		"format.features":   strings.Join(incremental.DefaultFeatures(k.days.Points.Features), ","),
		"model.nu":          strconv.FormatFloat(k.days.Nu, 'g', -1, 64),
		"snapshot.file":     filepath.Join(dir, "streamd.db"),
		"http.listen":       "127.0.0.1:0",
		"http.open":         "true",  // the points are generated and need no protection
		"drift.detect":      "false", // an alarm would be no news
		"retire.keep":       "rows",
		"retire.rows":       strconv.Itoa(k.days.Window * k.days.Rows),
		"retire.max_future": "1000h", // a replay's clock jumps by a day
	}})
	if err != nil {
		return nil, usageError{err}
	}
	return daemon.New(daemon.Options{Config: cfg, Log: consoleLog(s.stderr).Level(zerolog.WarnLevel), Version: thisBuild().String()})
}

// learn writes the days one by one. It returns the daemon's plane after each one that completes a
// window.
func (k *driftStream) learn(ctx context.Context, s *surroundings, d *daemon.Daemon) (models []*incremental.Model, err error) {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
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
	quiet := *s
	quiet.stdout, quiet.stderr = io.Discard, io.Discard
	var written int64 // blocks
	for day := range k.days.Days {
		of := k.days.Points
		replay := &replayNDCCmd{
			Rows: int64(k.days.Rows), FirstRow: int64(day) * int64(k.days.Rows),
			Features: of.Features, Separability: of.Separability, Seed: of.Seed, Drift: of.Drift,
			replayFlags: replayFlags{
				Brokers: k.brokers, Topic: k.topic, Partitions: k.partitions, Format: "arrow", BlockRows: k.blockRows,
				Time: time.Date(2003, 1, 1+day, 0, 0, 0, 0, time.UTC),
			},
		}
		if err := replay.Run(working, &quiet); err != nil {
			return nil, err
		}
		written += int64((k.days.Rows + k.blockRows - 1) / k.blockRows)
		served, err := k.after(working, d, written)
		if err != nil {
			return nil, err
		}
		if day+1 < k.days.Window {
			continue
		}
		if want := int64(k.days.Window * k.days.Rows); served.Model == nil || served.Rows != want {
			return nil, fmt.Errorf("after day %d the daemon has %d live rows, want %d: %s", day+1, served.Rows, want, served.Problem)
		}
		models = append(models, served.Model)
	}
	return models, nil
}

// after waits for the planes of all of the first so many blocks of the topic.
func (k *driftStream) after(ctx context.Context, d *daemon.Daemon, blocks int64) (*model.Served, error) {
	for {
		served, replaced := d.Served()
		var read int64
		for _, o := range served.Offsets {
			read += o.Next
		}
		if read == blocks {
			return served, nil
		}
		select {
		case <-replaced:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
