//go:build !production

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/bench"
	"streamd/ingest/ndc"
)

// measureCommands are the part of the grammar that measures streamd itself.
type measureCommands struct {
	Bench     benchCmd     `cmd:"" help:"Measure streamd's speed beside baselines."`
	Reproduce reproduceCmd `cmd:"" help:"Put the papers' tables beside our own results."`
}

// benchCmd has the benchmarks of the whole program, and of its parts.
type benchCmd struct {
	Ingest     benchmarkCmd[bench.Ingest]     `cmd:"" help:"Reading a topic with the daemon, against fetching and dropping it."`
	Census     benchmarkCmd[bench.Census]     `cmd:"" help:"Reading a topic of rows with texts, against fetching and dropping it."`
	Freshness  benchmarkCmd[bench.Freshness]  `cmd:"" help:"The time from the acknowledged produce of a block until a client that polls has a model of it."`
	Answers    benchmarkCmd[bench.Answers]    `cmd:"" help:"Predicting the rows of a topic, against learning from them, and how long an answer takes."`
	Background benchmarkCmd[bench.Background] `cmd:"" help:"Throughput that reading a topic and serving lose to a refinement, and to a reduction and its rebuild."`
	Billion    benchBillionCmd                `cmd:"" help:"A billion points through a broker: time, memory, correctness, and a straight line."`
	Trillion   benchTrillionCmd               `cmd:"" help:"A trillion points that come as a million blocks of sums: time, memory, snapshot, and the model against a second computation."`
	Peers      benchPeersCmd                  `cmd:"" help:"Other tools on the same blocks: numpy, oneDAL, DuckDB, polars, scikit-learn, LIBLINEAR, Vowpal Wabbit, CapyMOA, River."`

	Gram     benchmarkCmd[bench.Gram]     `cmd:"" help:"Summing up blocks, against reading them, the processor's peak, pure Go, and gonum's Dsyrk."`
	Wire     benchmarkCmd[bench.Wire]     `cmd:"" help:"Decoding payloads, against copying them, encoding/json and encoding/csv."`
	Solve    benchmarkCmd[bench.Solve]    `cmd:"" help:"Reading the planes off the sums, against a Cholesky solution by gonum."`
	Ledger   benchmarkCmd[bench.Ledger]   `cmd:"" help:"A million live blocks: memory, restart, adding, retiring, receipts, and how long the loop is held; also against numpy and scikit-learn: time, and digits lost."`
	Snapshot benchmarkCmd[bench.Snapshot] `cmd:"" help:"Saving, opening and verifying a snapshot, against writing and reading as many bytes."`
	Predict  benchmarkCmd[bench.Predict]  `cmd:"" help:"Classifying rows, in process and over HTTP, against reading them, and a server that does nothing."`
}

// benchmarkCmd is the command of a benchmark.
type benchmarkCmd[B bench.Benchmark] struct {
	Of B `embed:""`
	jsonFlag
}

// Validate implements kong's interface.
func (c *benchmarkCmd[B]) Validate() error { return c.Of.Check() }

func (c *benchmarkCmd[B]) Run(ctx context.Context, s *surroundings) error {
	return s.measure(c.JSON, func(run *bench.Run) error { return c.Of.Measure(ctx, run) })
}

// measure runs a benchmark and reports its results. On a terminal it shows progress.
func (s *surroundings) measure(json bool, benchmark func(*bench.Run) error) error {
	out := s.stdout
	var progress func(task string, done float64)
	if isTerminal(s.stderr) {
		began := time.Now()
		progress = func(task string, done float64) {
			line := fmt.Sprintf("%.0f %%", 100*done)
			if done > 0 {
				left := time.Duration(float64(time.Since(began)) * (1 - done) / done)
				line += fmt.Sprintf(", %s left", left.Round(time.Second))
			}
			line += ": " + strings.TrimPrefix(task, "Benchmark")
			// A line that is wrapped could not be erased.
			line = line[:min(len(line), 79)]
			fmt.Fprint(s.stderr, eraseLine+line)
		}
		out = &erasing{out, s.stderr}
		defer fmt.Fprint(s.stderr, eraseLine)
	}
	program, err := s.program()
	if err != nil {
		return err
	}
	run, err := bench.NewRun(out)
	if err != nil {
		return err
	}
	run.Program, run.Log, run.Progress = program, consoleLog(s.stderr).Level(zerolog.WarnLevel), progress
	if err := benchmark(run); err != nil {
		return err
	}
	if json {
		return printJSON(out, run)
	}
	return nil
}

// erasing erases the line of progress before it writes, because both may go to the same
// terminal.
type erasing struct {
	io.Writer
	terminal io.Writer
}

func (w *erasing) Write(p []byte) (int, error) {
	if _, err := fmt.Fprint(w.terminal, eraseLine); err != nil {
		return 0, err
	}
	return w.Writer.Write(p)
}

// program is this program, as a benchmark starts it.
func (s *surroundings) program() (bench.Program, error) {
	path, err := os.Executable()
	return bench.Program{
		Run: func(ctx context.Context, args []string, stdout io.Writer) error {
			return run(ctx, args, nil, s.stdin, stdout, s.stderr)
		},
		Path: path,
	}, err
}

type benchBillionCmd struct {
	Rows      int64  `default:"1000000000" help:"Points to learn from."`
	Source    string `default:"kafka" enum:"kafka,generator,file" help:"Source of the points: ${enum}. The last two do without Kafka."`
	Format    string `default:"arrow" enum:"arrow,csv" help:"Format of the files of --source file, which are written first: ${enum}."`
	TrainRows int64  `default:"10000000" help:"Training points to test the model on, from the first one on. 0: all."`
	TestRows  int64  `default:"10000000" help:"Fresh points to test the model on."`
	Dir       string `type:"path" placeholder:"DIR" help:"Folder for the state of the run, so that the same command goes on with it after an interruption (not with --source file). It must be empty at first, and is empty again in the end."`
	SVG       string `name:"svg" type:"path" placeholder:"FILE" help:"Draw the time after every two million points."`
	bench.Points
	bench.Through
	jsonFlag
}

// Validate implements kong's interface.
func (c *benchBillionCmd) Validate() error {
	if err := c.Points.Check(c.Rows); err != nil {
		return err
	}
	if c.TrainRows < 0 || c.TestRows < 1 || c.TestRows > ndc.MaxPoints {
		return fmt.Errorf("--train-rows %d, --test-rows %d: must be 0 or more, and 1 to %d", c.TrainRows, c.TestRows, ndc.MaxPoints)
	}
	if c.Dir != "" && c.Source == "file" {
		return fmt.Errorf("--dir: files are read again from the beginning, so there is nothing to continue")
	}
	return c.Through.Check()
}

func (c *benchBillionCmd) Run(ctx context.Context, s *surroundings) error {
	b := bench.Billion{Points: c.Points, TrainRows: cmp.Or(c.TrainRows, c.Rows), TestRows: c.TestRows, Dir: c.Dir}
	b.Rows = c.Rows
	switch c.Source {
	case "kafka":
		b.Source = bench.KafkaSource{Through: c.Through}
	case "generator":
		b.Source = bench.GeneratorSource{}
	default:
		b.Source = bench.FileSource{Format: c.Format}
	}
	if c.Source != "kafka" { // a replay shows its progress
		var rows atomic.Int64
		b.Progress = rows.Store
		task := "learning"
		if c.Source == "file" {
			task = "writing files, then learning"
		}
		defer s.watch(task, func() advance {
			return advance{rows: rows.Load(), done: float64(rows.Load()) / float64(c.Rows)}
		})()
	}
	var course bench.Course
	err := s.measure(c.JSON, func(run *bench.Run) error {
		b.Program, b.Log = run.Program, run.Log
		result, all, err := b.Run(ctx)
		if err != nil {
			return err
		}
		course = all
		return run.Add(result)
	})
	if err != nil || c.SVG == "" {
		return err
	}
	return draw(c.SVG, course, fmt.Sprintf("%s points of %d features, source: %s", short(float64(c.Rows)), c.Features, c.Source))
}

func draw(path string, course bench.Course, title string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return course.Draw(file, title)
}

type benchTrillionCmd struct{ benchmarkCmd[bench.Trillion] }

func (c *benchTrillionCmd) Run(ctx context.Context, s *surroundings) error {
	var did atomic.Value
	did.Store("nothing is done yet")
	c.Of.Progress = func(text string) { did.Store(text) }
	defer s.report("trillion", func() string { return did.Load().(string) })()
	return c.benchmarkCmd.Run(ctx, s)
}

type benchPeersCmd struct{ benchmarkCmd[bench.Peers] }

func (c *benchPeersCmd) Run(ctx context.Context, s *surroundings) error {
	return s.measure(c.JSON, func(run *bench.Run) error {
		if err := c.Of.Measure(ctx, run); err != nil {
			return err
		}
		return peerTable(s.stdout, run.Results())
	})
}

// peerTable prints the results for people.
func peerTable(w io.Writer, results []bench.Result) error {
	t := newTable(w)
	t.row("tool", "source", "rows/s", "streamd is", "accuracy")
	for _, r := range results {
		tool, source := r.Text("tool"), r.Text("source")
		if missing := r.Text("missing"); missing != "" {
			t.row(tool, source, "missing: "+missing)
			continue
		}
		t.row(tool, source, short(r.Figure("rows_per_second")),
			fmt.Sprintf("%.3g×", r.Figure("streamd_ratio")), fmt.Sprintf("%.2f %%", 100*r.Figure("accuracy")))
	}
	return t.flush()
}
