package bench

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"streamd/incremental"
	"streamd/ingest/ndc"
)

// Peers compares streamd with the tools that people use instead, on the same blocks. Most read
// files; the consumer that feeds numpy reads a topic. Each tool is a Python script in the
// folder peers.
type Peers struct {
	Total    int64         `name:"rows" default:"5000000" help:"Points to learn from."`
	TestRows int64         `default:"1000000" help:"Fresh points that the models are tested on."`
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

// peers are the tools.
var peers = []struct {
	name, script, source string
}{
	{"numpy loop", "numpy_gram.py", fromFiles},
	{"scikit-learn SGDClassifier", "sklearn_sgd.py", fromFiles},
	{"LIBLINEAR -s 2 -B 1", "liblinear_l2svc.py", fromFiles},
	{"Vowpal Wabbit", "vowpal_wabbit.py", fromFiles},
	{"River LogisticRegression", "river_logistic.py", fromFiles},
	{"confluent-kafka, numpy loop", "kafka_numpy.py", fromKafka},
}

const (
	fromFiles = "files"
	fromKafka = "kafka"
)

// peerRun is the output of a script.
type peerRun struct {
	Version      string
	Missing      string
	Rows         int64
	Seconds      float64
	LearnSeconds float64 `json:"learn_seconds"`
	Accuracy     float64
}

// Measure implements Benchmark. It runs streamd and the tools in turn. Files are in the page
// cache for all of them. Streamd comes first for each source. A tool that is not installed has
// a result that names the missing module.
func (c Peers) Measure(ctx context.Context, run *Run) error {
	return c.with(ctx, func(t *topic) error { return c.measure(ctx, run, t) })
}

func (c Peers) measure(ctx context.Context, run *Run, t *topic) error {
	tools, err := c.tools(ctx, run, t)
	if err != nil {
		return err
	}
	type entrant struct {
		tool, source string
		last         *peerRun
		streamd      int // the side that it is compared with; its own for streamd
	}
	var sides []side
	var entrants []entrant
	for _, source := range []string{fromFiles, fromKafka} {
		streamd, last := len(sides), new(peerRun)
		sides = append(sides, side{"streamd, " + source, tools.streamd(source, last)})
		entrants = append(entrants, entrant{"streamd", source, last, streamd})
		for i, p := range peers {
			if p.source == source && tools.missing[i] == "" {
				last := new(peerRun)
				sides = append(sides, side{p.name, tools.peer(i, last)})
				entrants = append(entrants, entrant{p.name, source, last, streamd})
			}
		}
	}
	run.plan(c.Repeats, 0, 1)
	run.cold = true // rounds take minutes
	samples, err := run.alternate(ctx, "peers", sides...)
	if err != nil {
		return err
	}
	for i, e := range entrants {
		r := c.result(e.tool, e.source)
		r.Samples = samples[i]
		r.addRows()
		r.addRatio("streamd_ratio", Sample.nsPerRow, samples[i], samples[e.streamd])
		if e.last.Version != "" {
			r.Details = []Parameter{{"version", e.last.Version}}
		}
		if i != e.streamd {
			r.set("learn_rows_per_second", float64(e.last.Rows)/e.last.LearnSeconds) // without reading and converting
		}
		r.set("learnt_rows", float64(e.last.Rows)) // until the budget's end
		r.set("accuracy", e.last.Accuracy)
		if err := run.Add(r); err != nil {
			return err
		}
	}
	for i, module := range tools.missing {
		if module != "" {
			r := c.result(peers[i].name, peers[i].source)
			r.Details = []Parameter{{"missing", module}}
			if err := run.Add(r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c Peers) result(tool, source string) Result {
	return Result{Benchmark: "peers", Parameters: append(c.of(c.Total).parameters(),
		Parameter{"test_rows", c.TestRows}, Parameter{"source", source}, Parameter{"tool", tool})}
}

// toolbox has the inputs of all sides.
type toolbox struct {
	*Peers
	*reading             // by streamd
	train, test []string // files
	missing     []string // of each of peers, the module that is not installed
}

// tools writes the scripts, the files and the rows of the topic, and looks for the tools.
func (c *Peers) tools(ctx context.Context, run *Run, topic *topic) (t *toolbox, err error) {
	t = &toolbox{Peers: c, reading: &reading{topic: topic}}
	scripts, err := peerScripts.ReadDir("peers")
	if err != nil {
		return nil, err
	}
	for _, s := range scripts {
		text, err := peerScripts.ReadFile("peers/" + s.Name())
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(t.dir, s.Name()), text, 0o644); err != nil {
			return nil, err
		}
	}
	for i, p := range peers {
		run, err := t.python(ctx, i, "--check")
		if err != nil {
			return nil, fmt.Errorf("look whether there is %s: %w", p.name, err)
		}
		t.missing = append(t.missing, run.Missing)
	}
	points := c.of(c.Total)
	const files = 2 // streamd learns from both at once, on two CPUs
	if t.train, _, err = points.write(ctx, t.dir, "train", ndc.Train, "arrow", files); err != nil {
		return nil, err
	}
	if t.test, _, err = c.of(c.TestRows).write(ctx, t.dir, "test", ndc.Test, "arrow", 1); err != nil {
		return nil, err
	}
	t.reading, err = fill(ctx, run, topic, points)
	return t, err
}

// streamd is the side of streamd: its mathematics on the files, or the daemon.
func (t *toolbox) streamd(source string, last *peerRun) func(context.Context, time.Duration) (Sample, error) {
	return func(ctx context.Context, d time.Duration) (s Sample, err error) {
		var model *incremental.Model
		if source == fromKafka {
			if s, err = t.learn(ctx, d); err != nil {
				return s, err
			}
			model = t.model
		} else {
			b := &Billion{Points: t.points}
			began := time.Now()
			learnt, err := b.learnFiles(ctx, &longRun{Course: Course{Step: b.Rows}, began: began}, t.train)
			if err != nil {
				return s, err
			}
			s = Sample{Ops: 1, Rows: b.Rows, Seconds: time.Since(began).Seconds()}
			model = learnt.model
		}
		generator, err := t.points.generator()
		if err != nil {
			return s, err
		}
		last.Rows = s.Rows
		last.Accuracy, err = ShareRight(ctx, model, generator, ndc.Test, t.TestRows)
		return s, err
	}
}

// peer is the side of a script.
func (t *toolbox) peer(i int, last *peerRun) func(context.Context, time.Duration) (Sample, error) {
	return func(ctx context.Context, _ time.Duration) (s Sample, err error) {
		args := append([]string{
			"--nu", strconv.FormatFloat(Nu, 'g', -1, 64),
			"--seconds", strconv.FormatFloat(t.Budget.Seconds(), 'g', -1, 64), "--test",
		}, t.test...)
		if peers[i].source == fromKafka {
			args = append(args, "--brokers", strings.Join(t.cluster.Brokers, ","),
				"--topic", t.name, "--rows", strconv.FormatInt(t.Total, 10))
		} else {
			args = append(append(args, "--train"), t.train...)
		}
		if *last, err = t.python(ctx, i, args...); err != nil {
			return s, err
		}
		if last.Rows < 1 || !(last.Seconds > 0) {
			return s, fmt.Errorf("%s: %d rows in %v s", peers[i].script, last.Rows, last.Seconds)
		}
		return Sample{Ops: 1, Rows: last.Rows, Seconds: last.Seconds}, nil
	}
}

// python runs a script.
func (t *toolbox) python(ctx context.Context, i int, args ...string) (r peerRun, err error) {
	cmd := exec.CommandContext(ctx, t.Python, append([]string{filepath.Join(t.dir, peers[i].script)}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		err = fmt.Errorf("run %s with %s: %w", peers[i].script, t.Python, err)
		if text := strings.TrimSpace(stderr.String()); text != "" {
			err = fmt.Errorf("%w: %s", err, text[strings.LastIndexByte(text, '\n')+1:])
		}
		return r, err
	}
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		return r, fmt.Errorf("%s printed %q: %w", peers[i].script, stdout.String(), err)
	}
	return r, nil
}
