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

// Billion is the benchmark of Fung 2003, section 2.3.1: the linear classifier of
// so many points as do not fit anywhere, which took 8,747 seconds for a billion
// points of ten features, 43 minutes of it to read the disk. Its figure 2.6 is
// the time after every two million points, a straight line.
type Billion struct {
	Points
	Source    Source
	TrainRows int64 // of which the model is tested on the first so many; at most all
	TestRows  int64 // fresh ones
	// Dir keeps what an interrupted run needs to be gone on with; a finished
	// run leaves nothing there. Empty: an interrupted run is lost.
	Dir     string
	Program Program
	Log     zerolog.Logger
	// Progress, if not nil, is told every now and then how far the run is.
	Progress func(rows int64)
}

// Source is where the points come from. It learns from them.
type Source interface {
	// parameters say which source it is.
	parameters() []Parameter
	// learn goes on with a run until its end or an interruption. What it has
	// put elsewhere than in the run's folder it clears away, unless the run is
	// interrupted and keeps.
	learn(ctx context.Context, b *Billion, r *run) (*learnt, error)
}

// learnt is what there is in the end.
type learnt struct {
	model  *incremental.Model
	digest string
}

// run is how far a benchmark has come, over all its sittings.
type run struct {
	dir   string // has what is needed to go on
	fresh bool   // nothing has been done yet
	keeps bool   // what it has when it is interrupted

	// What is saved.
	Of       json.RawMessage `json:"of"` // the points and the source, lest another run goes on
	Topic    string          `json:"topic,omitempty"`
	NextRow  int64           `json:"next_row"` // the first that the source has not given
	Bytes    int64           `json:"bytes"`    // that the source has given
	Seconds  float64         `json:"seconds"`
	Sittings int             `json:"sittings"`
	PeakRSS  int64           `json:"peak_rss_bytes"` // 0: not known
	Course   Course          `json:"course"`

	began time.Time // of this sitting
}

// now is the time that the run has taken.
func (r *run) now() float64 { return r.Seconds + time.Since(r.began).Seconds() }

// restart begins the time anew, for what comes before does not count.
func (r *run) restart() { r.Seconds, r.began = 0, time.Now() }

// stateFile holds a run that was interrupted. While a run goes on there is none:
// what a killed run leaves cannot be gone on with.
const stateFile = "billion.json"

// open starts a run or takes up the one in the folder.
func (b *Billion) open() (r *run, err error) {
	of, err := json.Marshal([]any{b.Points, b.Source.parameters()})
	if err != nil {
		return nil, err
	}
	r = &run{dir: b.Dir, fresh: true, keeps: b.Dir != "", Of: of, Course: Course{Step: courseStep(b.Rows)}}
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
			return nil, errors.Join(err, fmt.Errorf("%s is not empty and has no %s: it is no folder of an interrupted benchmark, or that was killed; take another one", b.Dir, stateFile))
		}
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	r = &run{dir: b.Dir, keeps: true}
	if err := json.Unmarshal(saved, r); err != nil {
		return nil, fmt.Errorf("%s: %w; take another folder", path, err)
	}
	if string(r.Of) != string(of) {
		return nil, fmt.Errorf("%s is of a run with %s, not %s: take another folder", path, r.Of, of)
	}
	return r, os.Remove(path)
}

// Run learns from the points, or from those that an interrupted run has left,
// and tests the model.
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
	result = Result{
		Benchmark: "billion",
		Parameters: slices.Concat(b.Points.parameters(), b.Source.parameters(), []Parameter{
			{"train_rows", trainRows}, {"test_rows", b.TestRows},
		}),
		Samples: []Sample{{Ops: 1, Rows: b.Rows, Seconds: r.Seconds}},
	}
	result.set("seconds", r.Seconds)
	result.addRows()
	train, err := ShareRight(ctx, done.model, generator, ndc.Train, trainRows)
	if err != nil {
		return result, course, err
	}
	test, err := ShareRight(ctx, done.model, generator, ndc.Test, b.TestRows)
	if err != nil {
		return result, course, err
	}
	result.set("train_correctness", train)
	result.set("test_correctness", test)
	if r.PeakRSS > 0 {
		result.set("peak_rss_bytes", float64(r.PeakRSS))
	}
	if r.Bytes > 0 {
		result.set("bytes", float64(r.Bytes)) // of the payloads, or the files
	}
	result.set("linearity", r.Course.linearity())
	result.set("sittings", float64(r.Sittings)) // interruptions + 1
	plane := done.model.Planes[0]
	result.Details = []Parameter{
		{"state_digest", done.digest}, {"w", plane.W}, {"gamma", plane.Gamma}, {"course", r.Course.Marks},
	}
	return result, r.Course, nil
}

// interrupt keeps what a run that was interrupted has, and says how to go on.
func (b *Billion) interrupt(ctx context.Context, r *run, why error) error {
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

// clear removes what the run has put into its folder, and the folder if it was
// the run's own.
func (b *Billion) clear(r *run) error {
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

// Nu is Fung's for these points (2003, table 2.4), and the demo's.
const Nu = 0.1
