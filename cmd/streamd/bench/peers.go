package bench

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
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

// Peers compares streamd with what people use instead, on the same blocks: read
// from files by those that read files, and from a topic by the consumer that
// feeds numpy. Each of them is a Python script in the folder peers.
type Peers struct {
	Setting
	TestRows int64
	Python   string        // the interpreter
	Budget   time.Duration // after which a tool that learns bit by bit stops
}

//go:embed peers/*.py
var peerScripts embed.FS

// peers are the scripts, and what to call them.
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

// PeerResult is a tool's result, and what a table of them needs.
type PeerResult struct {
	Result
	Tool    string
	Source  string // files or kafka
	Missing string // the module that is not installed; empty: it ran
}

// peerRun is what a script prints.
type peerRun struct {
	Version      string
	Missing      string
	Rows         int64
	Seconds      float64
	LearnSeconds float64 `json:"learn_seconds"`
	Accuracy     float64
}

// Measure runs streamd and the tools in turn. Files are in the page cache, for
// all of them. streamd comes first for each source.
func (c Peers) Measure(ctx context.Context, plan Plan) (results []PeerResult, err error) {
	p, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	tools, err := c.tools(ctx, p)
	if err != nil {
		return nil, err
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
	samples, err := plan.alternate(ctx, sides...)
	if err != nil {
		return nil, err
	}
	for i, e := range entrants {
		r := c.result(e.tool, e.source, e.last.Version)
		r.Samples = samples[i]
		r.addRows()
		r.addBound("streamd_ratio", samples[e.streamd]) // streamd's rate from the same source over the tool's
		if i != e.streamd {
			r.set("learn_rows_per_second", float64(e.last.Rows)/e.last.LearnSeconds) // without reading and converting
		}
		r.set("learnt_rows", float64(e.last.Rows)) // when the budget ended it
		r.set("accuracy", e.last.Accuracy)
		results = append(results, r)
	}
	for i, module := range tools.missing {
		if module != "" {
			r := c.result(peers[i].name, peers[i].source, "")
			r.Missing = module
			r.Details = []Parameter{{"missing", module}}
			results = append(results, r)
		}
	}
	return results, nil
}

const (
	fromFiles = "files"
	fromKafka = "kafka"
)

func (c Peers) result(tool, source, version string) PeerResult {
	r := PeerResult{Tool: tool, Source: source, Result: Result{
		Benchmark: "peers",
		Parameters: append(c.Points.parameters(),
			Parameter{"test_rows", c.TestRows}, Parameter{"source", source}, Parameter{"tool", tool}),
	}}
	if version != "" {
		r.Details = []Parameter{{"version", version}}
	}
	return r
}

// toolbox is all that the sides need.
type toolbox struct {
	of          *Peers
	*reading             // by streamd
	train, test []string // files
	missing     []string // of each of peers, the module that is not installed
}

// tools writes the scripts, the files and the rows of the topic, and looks which
// tools there are.
func (c *Peers) tools(ctx context.Context, p *place) (t *toolbox, err error) {
	dir := p.dir
	t = &toolbox{of: c, reading: &reading{place: p, features: c.Points.names(), log: c.Log}}
	scripts, err := peerScripts.ReadDir("peers")
	if err != nil {
		return nil, err
	}
	for _, s := range scripts {
		text, err := peerScripts.ReadFile("peers/" + s.Name())
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, s.Name()), text, 0o644); err != nil {
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
	// Two files, so that streamd, which learns from all at once, has work for
	// two CPUs.
	const files = 2
	if t.train, _, err = c.Points.write(ctx, dir, "train", ndc.Train, "arrow", files); err != nil {
		return nil, err
	}
	test := c.Points
	test.Rows = c.TestRows
	if t.test, _, err = test.write(ctx, dir, "test", ndc.Test, "arrow", 1); err != nil {
		return nil, err
	}
	t.written, err = c.Program.replay(ctx, dir, c.Points, 0, t.topic)
	return t, err
}

// streamd is the side of streamd: its mathematics on the files, or the daemon.
func (t *toolbox) streamd(source string, last *peerRun) func(context.Context, time.Duration) (Sample, error) {
	var generator *ndc.Generator
	return func(ctx context.Context, d time.Duration) (s Sample, err error) {
		var model *incremental.Model
		if source == fromKafka {
			if s, err = t.learn(ctx, d); err != nil {
				return s, err
			}
			model = t.model
		} else {
			b := &Billion{Points: t.of.Points}
			state := incremental.NewState(incremental.DefaultFeatures(b.Features))
			began := time.Now()
			if err := b.sumFiles(ctx, &run{Course: Course{Step: b.Rows}, began: began}, state, t.train); err != nil {
				return s, err
			}
			learnt, err := solved(state)
			if err != nil {
				return s, err
			}
			s = Sample{Ops: 1, Rows: b.Rows, Seconds: time.Since(began).Seconds()}
			model = learnt.model
		}
		if generator == nil {
			if generator, err = t.of.generator(); err != nil {
				return s, err
			}
		}
		last.Rows = s.Rows
		last.Accuracy, err = ShareRight(ctx, model, generator, ndc.Test, t.of.TestRows)
		return s, err
	}
}

// peer is the side of a script.
func (t *toolbox) peer(i int, last *peerRun) func(context.Context, time.Duration) (Sample, error) {
	return func(ctx context.Context, _ time.Duration) (s Sample, err error) {
		args := append([]string{
			"--nu", strconv.FormatFloat(Nu, 'g', -1, 64),
			"--seconds", strconv.FormatFloat(t.of.Budget.Seconds(), 'g', -1, 64), "--test",
		}, t.test...)
		if peers[i].source == fromKafka {
			args = append(args, "--brokers", strings.Join(t.topic.cluster.Brokers, ","),
				"--topic", t.topic.name, "--rows", strconv.FormatInt(t.of.Rows, 10))
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
	cmd := exec.CommandContext(ctx, t.of.Python, append([]string{filepath.Join(t.dir, peers[i].script)}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		err = fmt.Errorf("run %s with %s: %w", peers[i].script, t.of.Python, err)
		if said := strings.TrimSpace(stderr.String()); said != "" {
			err = fmt.Errorf("%w: %s", err, said[strings.LastIndexByte(said, '\n')+1:])
		}
		return r, err
	}
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		return r, fmt.Errorf("%s printed %q: %w", peers[i].script, stdout.String(), err)
	}
	return r, nil
}
