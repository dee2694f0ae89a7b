package bench

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"streamd/incremental"
	"streamd/ingest/ndc"
)

// Peers compares streamd with other tools, on the same blocks. Most read files; the consumer
// that feeds numpy reads a topic. Each tool is a Python script in the folder peers.
type Peers struct {
	Total    int64         `name:"rows" default:"5000000" help:"Points to learn from."`
	TestRows int64         `default:"1000000" help:"Fresh points to test the models on."`
	Python   string        `default:"python3" placeholder:"PROGRAM" help:"Python that has the tools; cmd/streamd/bench/peers/requirements.txt lists them. A tool that is not installed is reported as missing."`
	Budget   time.Duration `default:"10s" help:"Time after which a tool that is still learning stops. Its rate is that of the rows it has seen."`
	Points
	Through
	Repeats
}

// Check implements Benchmark.
func (c Peers) Check() error {
	if c.Budget <= 0 {
		return fmt.Errorf("--budget %v: must be positive", c.Budget)
	}
	return cmp.Or(
		c.Points.Check(c.Total), Within("test-rows", 1, ndc.MaxPoints, c.TestRows),
		c.Through.Check(), c.Repeats.check())
}

//go:embed peers/*.py
var peerScripts embed.FS

// peers are the tools beside streamd.
var peers = []struct {
	name, script, way, source string
}{
	{"numpy loop", "numpy_gram.py", "", fromFiles},
	{"oneDAL incremental covariance", "onedal_incremental.py", "covariance", fromFiles},
	{"oneDAL incremental ridge", "onedal_incremental.py", "ridge", fromFiles},
	{"oneDAL incremental linear regression", "onedal_incremental.py", "linear", fromFiles},
	{"DuckDB, sums of products", "engines.py", "duckdb", fromFiles},
	{"polars, sums of products", "engines.py", "polars", fromFiles},
	{"Spark WeightedLeastSquares", "spark_wls.py", "", fromFiles},
	{"scikit-learn SGDClassifier", "sklearn_sgd.py", "", fromFiles},
	{"LIBLINEAR -s 2 -B 1", "liblinear_l2svc.py", "", fromFiles},
	{"Vowpal Wabbit", "vowpal_wabbit.py", "", fromFiles},
	{"CapyMOA HoeffdingTree", "capymoa_tree.py", "", fromFiles},
	{"River LogisticRegression", "river_logistic.py", "rows", fromFiles},
	{"River LogisticRegression, small batches", "river_logistic.py", "batches", fromFiles},
	{"confluent-kafka, numpy loop", "kafka_numpy.py", "", fromKafka},
}

const (
	fromFiles = "files"
	fromKafka = "kafka"
)

// A tool is streamd or a peer.
type tool struct {
	name, source string
	run          func(ctx context.Context) (toolRun, error)
	last         toolRun
}

// toolRun is the output of a script, and the same for streamd.
type toolRun struct {
	Version      string
	Missing      string
	Rows         int64
	Seconds      float64
	LearnSeconds float64 `json:"learn_seconds"` // 0: unknown
	Accuracy     float64
}

// Measure implements Benchmark. It runs streamd and the tools in turn. Files are in the page
// cache for all of them. Streamd comes first for each source. A tool that is not installed has
// a result and a comment that name the missing module.
func (c Peers) Measure(ctx context.Context, run *Run) error {
	return c.with(ctx, func(t *topic) error { return c.measure(ctx, run, t) })
}

func (c Peers) measure(ctx context.Context, run *Run, t *topic) error {
	scripts, err := fs.Sub(peerScripts, "peers")
	if err != nil {
		return err
	}
	if err := os.CopyFS(t.dir, scripts); err != nil {
		return err
	}
	p := &workshop{Peers: c, reading: &reading{topic: t}}
	var tools []*tool
	var missing []Result
	for _, source := range []string{fromFiles, fromKafka} {
		tools = append(tools, &tool{name: "streamd", source: source, run: func(ctx context.Context) (toolRun, error) { return p.streamd(ctx, source) }})
		for _, peer := range peers {
			if peer.source != source {
				continue
			}
			way := []string{"--way", peer.way, "--features", strconv.Itoa(c.Features)}
			check, err := p.python(ctx, peer.script, append(way, "--check")...)
			if err != nil {
				return fmt.Errorf("look whether there is %s: %w", peer.name, err)
			}
			if check.Missing != "" {
				r := c.result(peer.name, source)
				r.Details = []Parameter{{"missing", check.Missing}}
				missing = append(missing, r)
				if err := run.lack(peer.name, check.Missing); err != nil {
					return err
				}
				continue
			}
			tools = append(tools, &tool{name: peer.name, source: source, run: func(ctx context.Context) (toolRun, error) {
				return p.peer(ctx, peer.script, source, way...)
			}})
		}
	}
	if err := p.fill(ctx, run); err != nil {
		return err
	}
	var sides []side
	for _, t := range tools {
		sides = append(sides, side{t.name + ", " + t.source, func(ctx context.Context, _ time.Duration) (s Sample, err error) {
			t.last, err = t.run(ctx)
			return Sample{Ops: 1, Rows: t.last.Rows, Seconds: t.last.Seconds}, err
		}})
	}
	run.plan(c.Repeats, 0, 1)
	run.cold = true // rounds take minutes
	samples, err := run.alternate(ctx, "peers", sides...)
	if err != nil {
		return err
	}
	var results []Result
	for i, t := range tools {
		streamd := slices.IndexFunc(tools, func(other *tool) bool { return other.source == t.source })
		r := c.result(t.name, t.source)
		r.Samples = samples[i]
		r.addRows()
		r.addRatio("streamd_ratio", Sample.nsPerRow, samples[i], samples[streamd])
		if t.last.Version != "" {
			r.Details = []Parameter{{"version", t.last.Version}}
		}
		if t.last.LearnSeconds > 0 {
			r.set("learn_rows_per_second", float64(t.last.Rows)/t.last.LearnSeconds) // without reading and converting
		}
		r.set("learnt_rows", float64(t.last.Rows)) // until the budget's end
		r.set("accuracy", t.last.Accuracy)
		results = append(results, r)
	}
	for _, r := range append(results, missing...) {
		if err := run.Add(r); err != nil {
			return err
		}
	}
	return nil
}

func (c Peers) result(tool, source string) Result {
	return Result{Benchmark: "peers", Parameters: append(c.of(c.Total).parameters(),
		Parameter{"test_rows", c.TestRows}, Parameter{"source", source}, Parameter{"tool", tool})}
}

// workshop has the inputs of the tools.
type workshop struct {
	Peers
	*reading             // of the topic, by streamd
	train, test []string // files
}

// fill writes the files and the rows of the topic.
func (p *workshop) fill(ctx context.Context, run *Run) (err error) {
	points := p.of(p.Total)
	const files = 2 // streamd learns from both at once, on two CPUs
	if p.train, _, err = points.write(ctx, p.dir, "train", ndc.Train, "arrow", files); err != nil {
		return err
	}
	if p.test, _, err = p.of(p.TestRows).write(ctx, p.dir, "test", ndc.Test, "arrow", 1); err != nil {
		return err
	}
	p.reading, err = fill(ctx, run, p.topic, points)
	return err
}

// streamd runs streamd: its mathematics on the files, or the daemon on the topic.
func (p *workshop) streamd(ctx context.Context, source string) (r toolRun, err error) {
	var model *incremental.Model
	if source == fromKafka {
		sample, err := p.learn(ctx, 0)
		if err != nil {
			return r, err
		}
		r.Seconds, model = sample.Seconds, p.model
	} else {
		b := &Billion{Points: p.of(p.Total)}
		began := time.Now()
		learnt, err := b.learnFiles(ctx, &longRun{Course: Course{Step: b.Rows}, began: began}, p.train)
		if err != nil {
			return r, err
		}
		r.Seconds, model = time.Since(began).Seconds(), learnt.model
	}
	generator, err := p.generator()
	if err != nil {
		return r, err
	}
	r.Rows = p.Total
	r.Accuracy, err = ShareRight(ctx, model, generator, ndc.Test, p.TestRows)
	return r, err
}

// peer runs a script on the files or the topic.
func (p *workshop) peer(ctx context.Context, script, source string, way ...string) (toolRun, error) {
	args := append(append(way, []string{
		"--nu", strconv.FormatFloat(Nu, 'g', -1, 64),
		"--seconds", strconv.FormatFloat(p.Budget.Seconds(), 'g', -1, 64), "--test",
	}...), p.test...)
	if source == fromKafka {
		args = append(args, "--brokers", strings.Join(p.cluster.Brokers, ","),
			"--topic", p.name, "--rows", strconv.FormatInt(p.Total, 10))
	} else {
		args = append(append(args, "--train"), p.train...)
	}
	r, err := p.python(ctx, script, args...)
	if err == nil && (r.Rows < 1 || !(r.Seconds > 0)) {
		err = fmt.Errorf("%s: %d rows in %v s", script, r.Rows, r.Seconds)
	}
	return r, err
}

// python runs a script.
func (p *workshop) python(ctx context.Context, script string, args ...string) (r toolRun, err error) {
	err = runPython(ctx, p.Python, p.dir, &r, script, args...)
	return r, err
}

// runPython runs a script of the folder peers, of which dir has a copy, and reads the JSON of the
// last line that it prints. Libraries print warnings before it. If there is no such Python, the
// JSON is that of a missing module, with its name.
func runPython(ctx context.Context, python, dir string, into any, script string, args ...string) error {
	cmd := exec.CommandContext(ctx, python, append([]string{filepath.Join(dir, script)}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		missing, err := json.Marshal(map[string]string{"missing": python})
		if err != nil {
			return err
		}
		return json.Unmarshal(missing, into)
	}
	if err != nil {
		err = fmt.Errorf("run %s with %s: %w", script, python, err)
		if text := strings.TrimSpace(stderr.String()); text != "" {
			err = fmt.Errorf("%w: %s", err, text[strings.LastIndexByte(text, '\n')+1:])
		}
		return err
	}
	out := bytes.TrimSpace(stdout.Bytes())
	if err := json.Unmarshal(out[bytes.LastIndexByte(out, '\n')+1:], into); err != nil {
		return fmt.Errorf("%s printed %q: %w", script, stdout.String(), err)
	}
	return nil
}
