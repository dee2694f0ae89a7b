package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"streamd/cmd/streamd/httpapi"
	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/ingest/kafka"
	"streamd/ingest/ndc"
	"streamd/ingest/summary"
)

// Trillion is a trillion points that come as sums: a million summary blocks of a million rows each
// go through a topic into one daemon, which has them all live. The rows of Sums blocks are really
// summed, which is not timed. The other blocks are these again, at other positions, with other ids
// and times. So blocks share the rows of the sample, and nothing else: each is decoded, checked,
// added, put into the ledger and saved by itself.
//
// The time is from the first record until the model of all blocks is saved. Streamd run is in a
// process of its own and has its default settings, but Nu. Its digest and its plane must have the
// bits of those that are computed beside from the encoded sums, in integers of any size.
type Trillion struct {
	Blocks    int    `default:"1000000" help:"Summary blocks."`
	Sums      int    `default:"1000" help:"Blocks whose rows are summed. The others have the sums of these."`
	BlockRows int    `default:"1000000" help:"Rows per block."`
	Features  int    `default:"10" help:"Features of a point."`
	Seed      uint64 `default:"1" help:"Seed of clusters and points."`
	Through

	// Progress, if not nil, is called now and then with what is done, also from other goroutines.
	Progress func(did string) `kong:"-"`
}

// Check implements Benchmark.
func (c Trillion) Check() error {
	err := cmp.Or(
		Within("blocks", 1, 10*maxLive, c.Blocks), Within("sums", 1, 100_000, c.Sums),
		// Two rows are the least that have both classes.
		Within("block-rows", 2, maxRows, c.BlockRows), Within("features", 1, 100, c.Features), c.Through.Check())
	if err == nil && c.Sums > c.Blocks {
		err = fmt.Errorf("--sums %d: must be at most the --blocks, %d", c.Sums, c.Blocks)
	}
	return err
}

// Measure implements Benchmark.
func (c Trillion) Measure(ctx context.Context, run *Run) error {
	began := time.Now()
	made, err := c.sum(ctx)
	if err != nil {
		return err
	}
	prepared := time.Since(began)
	want, err := c.expected(made)
	if err != nil {
		return err
	}
	return c.with(ctx, func(t *topic) error {
		got, err := c.learn(ctx, run, t, made)
		if err != nil {
			return err
		}
		if err := want.compare(&got.model); err != nil {
			return err
		}
		plane := got.model.Planes[0]
		r := Result{
			Benchmark: "trillion",
			Parameters: []Parameter{
				{"blocks", c.Blocks}, {"sums", c.Sums}, {"block_rows", c.BlockRows}, {"features", c.Features},
				{"seed", c.Seed}, {"broker", t.kind()}, {"partitions", t.partitions},
			},
			Samples: []Sample{{Ops: int64(c.Blocks), Rows: got.model.LiveRows, Seconds: got.took.Seconds()}},
			Details: []Parameter{{"state_digest", got.model.Digest}, {"w", plane.W}, {"gamma", plane.Gamma}, {"live_rows", got.model.LiveRows}},
		}
		r.set("seconds", got.took.Seconds())
		r.set("blocks_per_second", float64(c.Blocks)/got.took.Seconds())
		r.set("core_us_per_block", got.core.Seconds()*1e6/float64(c.Blocks))
		if got.peak > 0 {
			r.set("peak_rss_bytes", float64(got.peak))
		}
		r.set("payload_bytes", float64(got.payload))
		r.set("snapshot_bytes", float64(got.snapshot))
		r.set("summing_seconds", prepared.Seconds())
		return run.Add(r)
	})
}

func (c Trillion) progress(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

// sum makes the blocks whose rows are summed. Their rows for the sample are about two each, as many
// as a stage before the daemon has to give of so many blocks.
func (c Trillion) sum(ctx context.Context) ([]*summary.Block, error) {
	generator, err := Points{Features: c.Features, Separability: ndc.Easy, Seed: c.Seed}.generator()
	if err != nil {
		return nil, err
	}
	made := make([]*summary.Block, c.Sums)
	all := sample.New(sample.Settings{Rows: c.Sums, Seed: 1}, nil)
	var mu sync.Mutex // of all, next and done
	next, done := 0, 0
	group, ctx := errgroup.WithContext(ctx)
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() error {
			var m summary.Maker
			for s := generator.NewSampler(); ctx.Err() == nil; {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= c.Sums {
					return nil
				}
				rows := s.Block(ndc.Train, int64(i)*int64(c.BlockRows), c.BlockRows)
				rows.Features = incremental.DefaultFeatures(c.Features)
				b := new(summary.Block)
				if err := m.Make(ctx, b, rows, all.Levels()); err != nil {
					return err
				}
				mu.Lock()
				made[i] = b
				all.Add(strconv.Itoa(i), b.Part)
				done++
				c.progress("%d of %d blocks of %d rows are summed", done, c.Sums, c.BlockRows)
				mu.Unlock()
			}
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, b := range made {
		b.Part = b.Part.Above(all.Levels())
	}
	return made, nil
}

// times is how often block i of those that are summed comes.
func (c Trillion) times(i int) int64 { return int64((c.Blocks - i + c.Sums - 1) / c.Sums) }

// trillionRun is what was measured.
type trillionRun struct {
	took              time.Duration
	core              time.Duration // of the daemon
	peak              int64         // bytes
	payload, snapshot int64         // bytes
	model             httpapi.ModelAnswer
}

// learn writes the blocks to the topic while a daemon learns from it.
func (c Trillion) learn(ctx context.Context, run *Run, t *topic, made []*summary.Block) (r trillionRun, err error) {
	file := filepath.Join(t.dir, "streamd.db")
	d, err := run.Program.start(t.dir, run.Log, t.settings("daemon", Points{Features: c.Features}.settings(), map[string]string{
		"model.nu": strconv.FormatFloat(Nu, 'g', -1, 64), "snapshot.file": file,
	}))
	if err != nil {
		return r, err
	}
	defer func() {
		err = errors.Join(err, d.stop())
		if info, failed := os.Stat(file); err == nil {
			if err = failed; err == nil {
				r.snapshot = info.Size()
			}
		}
	}()
	working, fail := d.while(ctx)
	defer fail(nil)
	p, err := kafka.OpenProducer(working, kafka.ProducerConfig{Cluster: t.cluster, Topic: t.name}, run.Log)
	if err != nil {
		return r, err
	}
	defer p.Close()
	began, cpu := time.Now(), processTime(d.cmd.Process.Pid)
	var payload, written atomic.Int64
	var writing sync.WaitGroup
	defer writing.Wait()
	defer fail(nil)
	for partition := range t.partitions {
		writing.Go(func() {
			if err := c.produce(working, p, t, partition, made, &payload, &written); err != nil {
				fail(err)
			}
		})
	}
	for {
		status, err := d.ask(working, http.MethodGet, "/v1/model", &r.model)
		if err != nil && (status != http.StatusServiceUnavailable || working.Err() != nil) { // no model yet
			return r, errors.Join(err, context.Cause(working))
		}
		if err == nil && r.model.LiveBlocks >= c.Blocks && r.model.Durable != nil && *r.model.Durable {
			break
		}
		c.progress("%d of %d blocks are written, %d are live, %.0f s", written.Load(), c.Blocks, r.model.LiveBlocks, time.Since(began).Seconds())
		r.model = httpapi.ModelAnswer{}
		if err := pause(working, 10*lookInterval); err != nil {
			return r, errors.Join(err, context.Cause(working))
		}
	}
	r.took, r.core = time.Since(began), processTime(d.cmd.Process.Pid)-cpu
	r.payload = payload.Load()
	_, r.peak = residentBytes(d.cmd.Process.Pid)
	return r, nil
}

var summaryHeaders = []kafka.Header{{Key: "content-type", Value: []byte(summary.ContentType)}}

// produce writes the blocks of a partition.
func (c Trillion) produce(ctx context.Context, p *kafka.Producer, t *topic, partition int, made []*summary.Block, payload, written *atomic.Int64) error {
	first := time.Now().Truncate(time.Millisecond)
	var value []byte
	for i := partition; i < c.Blocks; i += t.partitions {
		b := *made[i%len(made)]
		b.Position = incremental.Position{Topic: "rows", Partition: partition, Offset: int64(i / t.partitions)}
		b.ID, b.Last, b.Time = b.Position.String(), b.Position.Offset, first.Add(time.Duration(i)*time.Millisecond).UTC()
		var err error
		if value, err = b.AppendBinary(value[:0]); err != nil {
			return err
		}
		if err := p.Write(ctx, partition, nil, value, summaryHeaders, time.Time{}); err != nil {
			return err
		}
		payload.Add(int64(len(value)))
		written.Add(1)
	}
	return p.Flush(ctx)
}
