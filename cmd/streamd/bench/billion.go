package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"streamd/incremental"
	"streamd/ingest/ndc"
)

// Nu is Fung's ν for these points (2003, table 2.4), and the demo's.
const Nu = 0.1

// Billion is the benchmark of Fung 2003, section 2.3.1: the linear classifier of more points
// than fit into memory. There a billion points of ten features took 8,747 seconds, 43 minutes
// of them to read the disk. Figure 2.6 there is the time after every two million points, a
// straight line.
type Billion struct {
	Points
	Source    Source
	TrainRows int64 // the model is tested on so many of the points, from the first on
	TestRows  int64 // and on so many fresh points
	// Dir keeps the state of an interrupted run. A finished run leaves nothing there. Empty:
	// an interrupted run is lost.
	Dir     string
	Program Program
	Log     zerolog.Logger
	// Progress, if not nil, is called now and then with the number of points.
	Progress func(rows int64)
}

// Source gives points, and learns from them.
type Source interface {
	// parameters name the source.
	parameters() []Parameter
	// learn goes on with a run until its end or an interruption. It removes everything that it
	// made outside of the run's folder, unless the run is interrupted and keeps its state.
	learn(ctx context.Context, b *Billion, r *longRun) (*learnt, error)
}

// learnt is the result of a run.
type learnt struct {
	model  *incremental.Model
	digest string
}

// longRun is the progress of a run, over all its sittings. Exported fields are saved when it
// is interrupted.
type longRun struct {
	dir   string // of the state
	fresh bool   // nothing has been done yet
	keeps bool   // an interruption saves the state

	Of       json.RawMessage `json:"of"` // points and source; another run does not go on with it
	Topic    string          `json:"topic,omitempty"`
	NextRow  int64           `json:"next_row"` // the first row that the source has not given
	Bytes    int64           `json:"bytes"`    // that the source has given
	Seconds  float64         `json:"seconds"`
	Sittings int             `json:"sittings"`
	PeakRSS  int64           `json:"peak_rss_bytes"` // 0: unknown
	Course   Course          `json:"course"`

	began time.Time // of this sitting
}

// now is the time that the run has taken, in seconds.
func (r *longRun) now() float64 { return r.Seconds + time.Since(r.began).Seconds() }

// restart starts the clock again, so that the time before does not count.
func (r *longRun) restart() { r.Seconds, r.began = 0, time.Now() }

// stateFile holds an interrupted run. It does not exist while a run is under way, so a run that
// was killed cannot be continued by mistake.
const stateFile = "billion.json"

// open starts a run, or goes on with the one in the folder.
func (b *Billion) open() (r *longRun, err error) {
	of, err := json.Marshal([]any{b.Points, b.Source.parameters()})
	if err != nil {
		return nil, err
	}
	r = &longRun{dir: b.Dir, fresh: true, keeps: b.Dir != "", Of: of, Course: Course{Step: courseStep(b.Rows)}}
	if b.Dir == "" {
		r.dir, err = os.MkdirTemp("", "streamd-bench-")
		return r, err
	}
	if err := os.MkdirAll(b.Dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(b.Dir, stateFile)
	saved, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		if entries, err := os.ReadDir(b.Dir); err != nil || len(entries) > 0 {
			return nil, errors.Join(err, fmt.Errorf("%s is not empty and has no %s: it is not the folder of an interrupted benchmark, or the benchmark was killed; take another one", b.Dir, stateFile))
		}
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	r = &longRun{dir: b.Dir, keeps: true}
	if err := json.Unmarshal(saved, r); err != nil {
		return nil, fmt.Errorf("%s: %w; take another folder", path, err)
	}
	if string(r.Of) != string(of) {
		return nil, fmt.Errorf("%s is of a run with %s, not %s: take another folder", path, r.Of, of)
	}
	return r, os.Remove(path)
}

// Run learns from the points, or from those that an interrupted run has left, and tests the
// model.
func (b *Billion) Run(ctx context.Context) (result Result, course Course, err error) {
	r, err := b.open()
	if err != nil {
		return result, course, err
	}
	r.Sittings++
	r.began = time.Now()
	done, err := b.Source.learn(ctx, b, r)
	r.Seconds = r.now()
	if err != nil {
		return result, course, b.interrupt(ctx, r, err)
	}
	if err := b.clear(r); err != nil {
		return result, course, err
	}
	generator, err := b.generator()
	if err != nil {
		return result, course, err
	}
	trainRows := min(b.TrainRows, b.Rows)
	train, err := ShareRight(ctx, done.model, generator, ndc.Train, trainRows)
	if err != nil {
		return result, course, err
	}
	test, err := ShareRight(ctx, done.model, generator, ndc.Test, b.TestRows)
	if err != nil {
		return result, course, err
	}
	result = Result{
		Benchmark: "billion",
		Parameters: slices.Concat(b.Points.parameters(), b.Source.parameters(), []Parameter{
			{"train_rows", trainRows}, {"test_rows", b.TestRows},
		}),
		Samples: []Sample{{Ops: 1, Rows: b.Rows, Seconds: r.Seconds}},
	}
	result.set("seconds", r.Seconds)
	result.addRows()
	result.set("train_correctness", train)
	result.set("test_correctness", test)
	if r.PeakRSS > 0 {
		result.set("peak_rss_bytes", float64(r.PeakRSS))
	}
	if r.Bytes > 0 {
		result.set("bytes", float64(r.Bytes)) // of payloads or files
	}
	result.set("linearity", r.Course.linearity())
	result.set("sittings", float64(r.Sittings)) // interruptions + 1
	plane := done.model.Planes[0]
	result.Details = []Parameter{
		{"state_digest", done.digest}, {"w", plane.W}, {"gamma", plane.Gamma}, {"course", r.Course.Marks},
	}
	return result, r.Course, nil
}

// interrupt saves the state of an interrupted run, and returns an error that says how to go on.
func (b *Billion) interrupt(ctx context.Context, r *longRun, why error) error {
	if ctx.Err() != nil && r.keeps {
		saved, err := json.Marshal(r)
		if err == nil {
			err = os.WriteFile(filepath.Join(r.dir, stateFile), append(saved, '\n'), 0o644)
		}
		if err == nil {
			return fmt.Errorf("stopped before point %d of %d; the same command goes on from there: %w", r.NextRow, b.Rows, context.Canceled)
		}
		why = errors.Join(why, err)
	} else if ctx.Err() != nil {
		why = fmt.Errorf("stopped before point %d of %d, and nothing is kept: %w", r.NextRow, b.Rows, context.Canceled)
	}
	return errors.Join(why, b.clear(r))
}

// clear removes the run's files from its folder, and the folder if it was made for the run.
func (b *Billion) clear(r *longRun) error {
	if b.Dir == "" {
		return os.RemoveAll(r.dir)
	}
	entries, err := os.ReadDir(r.dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(r.dir, e.Name())))
	}
	return err
}

func (b *Billion) progress(rows int64) {
	if b.Progress != nil {
		b.Progress(rows)
	}
}
