//go:build !production

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/bench"
	"streamd/config"
	"streamd/ingest/ndc"
)

// benchPoints say which points a benchmark is about; Rows are for each to say.
type benchPoints struct {
	Features     int              `default:"10" help:"Features of a point."`
	Separability ndc.Separability `default:"easy" placeholder:"easy|hard|X" help:"How well a plane separates the points: easy (about 90.5 %), hard (70 %), or an expansion factor of the clusters."`
	Seed         uint64           `default:"1" help:"Seed of clusters and points."`
	BlockRows    int              `default:"20000" help:"Rows per block."`
}

func (f *benchPoints) check(rows int64) error {
	return cmp.Or(
		within("rows", 1, ndc.MaxPoints, rows),
		within("features", 1, ndc.MaxFeatures, f.Features),
		within("block-rows", 1, 1<<20, f.BlockRows))
}

func (f *benchPoints) points(rows int64) bench.Points {
	return bench.Points{Rows: rows, Features: f.Features, Separability: f.Separability, Seed: f.Seed, BlockRows: f.BlockRows}
}

// brokerFlags say through which brokers a benchmark goes.
type brokerFlags struct {
	Brokers    []string `placeholder:"HOST:PORT" help:"Addresses of the brokers, where a topic is made for the benchmark and deleted again. Without them an embedded broker is started."`
	Partitions int      `default:"4" help:"Partitions of the topic."`
}

func (f *brokerFlags) check() error {
	return within("partitions", 1, 1024, f.Partitions)
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

// benchLog is the log of what a benchmark runs: what goes wrong, and no more.
func (s *surroundings) benchLog() zerolog.Logger {
	return consoleLog(s.stderr).Level(zerolog.WarnLevel)
}

// setting is what the benchmarks that read a topic have in common.
func (s *surroundings) setting(points bench.Points, f brokerFlags) (bench.Setting, error) {
	program, err := s.program()
	return bench.Setting{Points: points, Partitions: f.Partitions, Brokers: f.Brokers, Program: program, Log: s.benchLog()}, err
}

type benchIngestCmd struct {
	Rows   int64  `default:"60000000" help:"Points in the topic."`
	Format string `default:"arrow" enum:"arrow,json,csv,libsvm" help:"Format of the messages: ${enum}."`
	benchPoints
	brokerFlags
	benchRounds
}

// Validate implements kong's interface.
func (c *benchIngestCmd) Validate() error {
	return cmp.Or(c.benchPoints.check(c.Rows), c.brokerFlags.check(), c.benchRounds.check())
}

func (c *benchIngestCmd) Run(ctx context.Context, s *surroundings) error {
	setting, err := s.setting(c.points(c.Rows), c.brokerFlags)
	if err != nil {
		return err
	}
	return c.run(ctx, s, func(ctx context.Context, plan bench.Plan, report *bench.Report) error {
		result, err := bench.Ingest{Setting: setting, Format: c.Format}.Measure(ctx, plan)
		if err != nil {
			return err
		}
		return report.Add(result)
	})
}

type benchBackgroundCmd struct {
	Work       []string      `default:"refine,reduce" enum:"refine,reduce" help:"Which work: studies, with refinement in full (refine), or the choice of another basis and the rebuild after it (reduce)."`
	Rows       int64         `default:"60000000" help:"Points that are read beside studies."`
	ReduceRows int64         `default:"60000000" help:"Points that are read beside a reduction and its rebuild; a quarter as many more are live before."`
	Method     config.Reduce `default:"kmeans" enum:"cs,random,stratified,kmeans,kmedian" help:"How the basis is chosen: ${enum}."`
	Basis      int           `default:"50" help:"Points of the basis, at most."`
	benchPoints
	brokerFlags
	benchRounds
}

// Validate implements kong's interface.
func (c *benchBackgroundCmd) Validate() error {
	return cmp.Or(
		c.benchPoints.check(c.Rows),
		within("reduce-rows", 4, ndc.MaxPoints/2, c.ReduceRows),
		within("basis", 1, mostFeatures, c.Basis),
		c.brokerFlags.check(), c.benchRounds.check())
}

func (c *benchBackgroundCmd) Run(ctx context.Context, s *surroundings) error {
	setting, err := s.setting(c.points(c.Rows), c.brokerFlags)
	if err != nil {
		return err
	}
	return c.run(ctx, s, func(ctx context.Context, plan bench.Plan, report *bench.Report) error {
		for i, work := range c.Work {
			b := bench.Background{Setting: setting}
			plan := plan.Case(i, len(c.Work), work)
			if work == "reduce" {
				first := c.ReduceRows / 4
				b.Rows = first + c.ReduceRows
				err = b.Reduce(ctx, plan, report, bench.Reduction{Method: c.Method, Basis: c.Basis, First: first})
			} else {
				err = b.Refine(ctx, plan, report)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

type benchBillionCmd struct {
	Rows      int64  `default:"1000000000" help:"Points to learn from."`
	Source    string `default:"kafka" enum:"kafka,generator,file" help:"Where the points come from: ${enum}. The last two do without Kafka."`
	Format    string `default:"arrow" enum:"arrow,csv" help:"Format of the files of --source file, which are written first: ${enum}."`
	TrainRows int64  `default:"10000000" help:"Points learned from that the model is tested on, from the first on. 0: all."`
	TestRows  int64  `default:"10000000" help:"Fresh points that the model is tested on."`
	Dir       string `type:"path" placeholder:"DIR" help:"Folder for the state of the run, so that the same command goes on with it after an interruption (not with --source file). It must be empty at first, and is in the end."`
	SVG       string `name:"svg" type:"path" placeholder:"FILE" help:"Draw the time after every two million points."`
	benchPoints
	brokerFlags
	jsonFlag
}

// Validate implements kong's interface.
func (c *benchBillionCmd) Validate() error {
	if err := c.benchPoints.check(c.Rows); err != nil {
		return err
	}
	if c.TrainRows < 0 || c.TestRows < 1 || c.TestRows > ndc.MaxPoints {
		return fmt.Errorf("--train-rows %d, --test-rows %d: must be 0 or more, and 1 to %d", c.TrainRows, c.TestRows, ndc.MaxPoints)
	}
	if c.Dir != "" && c.Source == "file" {
		return fmt.Errorf("--dir: files are read again from the beginning, so there is nothing to go on with")
	}
	return c.brokerFlags.check()
}

func (c *benchBillionCmd) Run(ctx context.Context, s *surroundings) error {
	program, err := s.program()
	if err != nil {
		return err
	}
	b := bench.Billion{
		Points: c.points(c.Rows), TrainRows: cmp.Or(c.TrainRows, c.Rows), TestRows: c.TestRows, Dir: c.Dir,
		Program: program, Log: s.benchLog(),
	}
	switch c.Source {
	case "kafka":
		b.Source = bench.KafkaSource{Brokers: c.Brokers, Partitions: c.Partitions}
	case "generator":
		b.Source = bench.GeneratorSource{}
	default:
		b.Source = bench.FileSource{Format: c.Format}
	}
	if c.Source != "kafka" { // a replay shows how far it is
		var rows atomic.Int64
		b.Progress = rows.Store
		what := "learning"
		if c.Source == "file" {
			what = "writing files, then learning"
		}
		defer s.watch(what, func() advance {
			return advance{rows: rows.Load(), done: float64(rows.Load()) / float64(c.Rows)}
		})()
	}
	once := &benchRounds{jsonFlag: c.jsonFlag}
	var course bench.Course
	err = once.run(ctx, s, func(ctx context.Context, _ bench.Plan, report *bench.Report) error {
		result, all, err := b.Run(ctx)
		if err != nil {
			return err
		}
		course = all
		return report.Add(result)
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

type benchPeersCmd struct {
	Rows     int64         `default:"5000000" help:"Points to learn from."`
	TestRows int64         `default:"1000000" help:"Fresh points that the models are tested on."`
	Python   string        `default:"python3" placeholder:"PROGRAM" help:"Python that has the tools; cmd/streamd/bench/peers/requirements.txt lists them. What is not installed is reported as missing."`
	Budget   time.Duration `default:"10s" help:"A tool that is still learning after so long stops there; its rate is that of the rows it has seen."`
	benchPoints
	brokerFlags
	benchRounds
}

// Validate implements kong's interface.
func (c *benchPeersCmd) Validate() error {
	if c.Budget <= 0 {
		return fmt.Errorf("--budget %v: must be positive", c.Budget)
	}
	return cmp.Or(
		c.benchPoints.check(c.Rows),
		within("test-rows", 1, ndc.MaxPoints, c.TestRows),
		c.brokerFlags.check(), c.benchRounds.check())
}

func (c *benchPeersCmd) Run(ctx context.Context, s *surroundings) error {
	setting, err := s.setting(c.points(c.Rows), c.brokerFlags)
	if err != nil {
		return err
	}
	return c.run(ctx, s, func(ctx context.Context, plan bench.Plan, report *bench.Report) error {
		plan.Cold = true // rounds of minutes
		results, err := bench.Peers{Setting: setting, TestRows: c.TestRows, Python: c.Python, Budget: c.Budget}.Measure(ctx, plan)
		if err != nil {
			return err
		}
		for _, r := range results {
			if err := report.Add(r.Result); err != nil {
				return err
			}
		}
		return peerTable(s.stdout, results)
	})
}

// peerTable is what the result lines say, for people.
func peerTable(w io.Writer, results []bench.PeerResult) error {
	t := newTable(w)
	t.row("tool", "source", "rows/s", "streamd is", "accuracy")
	for _, r := range results {
		if r.Missing != "" {
			t.row(r.Tool, r.Source, "missing: "+r.Missing)
			continue
		}
		t.row(r.Tool, r.Source, short(r.Figure("rows_per_second")),
			fmt.Sprintf("%.3g×", r.Figure("streamd_ratio")), fmt.Sprintf("%.2f %%", 100*r.Figure("accuracy")))
	}
	return t.flush()
}
