package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/cpuid/v2"
	"github.com/rs/zerolog"

	"streamd/cmd/streamd/listing"
)

// Sample is the work of one side in one round. None of its numbers is zero.
type Sample struct {
	Ops     int64 // operations: the N of a benchmark line
	Rows    int64
	Seconds float64
}

func (s Sample) nsPerRow() float64 { return s.Seconds * 1e9 / float64(s.Rows) }

func (s Sample) nsPerOp() float64 { return s.Seconds * 1e9 / float64(s.Ops) }

func (s Sample) rowsPerSecond() float64 { return float64(s.Rows) / s.Seconds }

// A side is a case itself or one of its baselines.
type side struct {
	name string // for progress and errors
	// run works for about d. Work that cannot be divided may take longer.
	run func(ctx context.Context, d time.Duration) (Sample, error)
}

// A work does one operation, and returns its number of rows.
type work = func() (rows int64, err error)

// loop makes a side that repeats works, each on a goroutine of its own. The sample has the
// sum of their rates.
func loop(name string, works ...work) side {
	return side{name, func(ctx context.Context, d time.Duration) (Sample, error) {
		samples, errs := make([]Sample, len(works)), make([]error, len(works))
		var ready, done sync.WaitGroup
		begin := make(chan struct{})
		for i := range works {
			ready.Add(1)
			done.Go(func() {
				ready.Done()
				<-begin
				samples[i], errs[i] = repeat(ctx, d, works[i])
			})
		}
		ready.Wait()
		close(begin)
		done.Wait()
		var all Sample
		rate := 0.0
		for i, s := range samples {
			if errs[i] != nil {
				return Sample{}, errs[i]
			}
			all.Ops += s.Ops
			all.Rows += s.Rows
			rate += s.rowsPerSecond()
		}
		// The goroutines end at different times. This is how long all rows would have
		// taken at their joint rate.
		all.Seconds = float64(all.Rows) / rate
		return all, nil
	}}
}

// parallel makes a side of n goroutines, each with a work of its own.
func parallel(name string, n int, newWork func(thread int) work) side {
	works := make([]work, n)
	for i := range works {
		works[i] = newWork(i)
	}
	return loop(name, works...)
}

// repeat repeats work until d is over. It doubles the batch of short work, so that the
// clock costs nothing.
func repeat(ctx context.Context, d time.Duration, work work) (s Sample, err error) {
	began, took := time.Now(), time.Duration(0)
	for batch := 1; s.Ops == 0 || took < d; {
		if err := ctx.Err(); err != nil {
			return Sample{}, err
		}
		for range batch {
			rows, err := work()
			if err != nil {
				return Sample{}, err
			}
			s.Ops++
			s.Rows += rows
		}
		before := took
		if took = time.Since(began); took-before < d/100 {
			batch *= 2
		}
	}
	s.Seconds = took.Seconds()
	return s, nil
}

// timed makes a side that repeats op until d is over, where only part of op counts: op
// returns the time of that part.
func timed(name string, op func() (ops, rows int64, took time.Duration, err error)) side {
	return side{name, func(ctx context.Context, d time.Duration) (s Sample, err error) {
		for all := time.Duration(0); s.Ops == 0 || all < d; s.Seconds = all.Seconds() {
			if err := ctx.Err(); err != nil {
				return Sample{}, err
			}
			ops, rows, took, err := op()
			if err != nil {
				return Sample{}, err
			}
			s.Ops += ops
			s.Rows += rows
			all += took
		}
		return s, nil
	}}
}

// A Benchmark has the flags of a benchmark as its fields.
type Benchmark interface {
	// Check returns an error for a value that is out of range.
	Check() error
	// Measure adds a result for each of its cases to a run.
	Measure(ctx context.Context, run *Run) error
}

// A Run measures cases, and writes and keeps their results.
type Run struct {
	Program Program        // streamd, for benchmarks of all of it
	Log     zerolog.Logger // of daemons and brokers
	// Progress, if not nil, is called before each side runs, with its name and the share
	// of the work that is done.
	Progress func(what string, done float64)

	out     io.Writer
	results []Result

	repeats     Repeats
	time        time.Duration // of a side in a round
	cold        bool          // no round to warm up
	cases, done int

	lacks []string // comments on tools that cannot run
}

// NewRun starts a run, and writes the header of Go's benchmark format.
func NewRun(out io.Writer) (*Run, error) {
	_, err := fmt.Fprintf(out, "goos: %s\ngoarch: %s\npkg: streamd/cmd/streamd/bench\n", runtime.GOOS, runtime.GOARCH)
	if name := cpuid.CPU.BrandName; name != "" && err == nil {
		_, err = fmt.Fprintf(out, "cpu: %s\n", name)
	}
	return &Run{out: out, results: []Result{}}, err
}

// plan sets how often each of so many cases runs.
func (run *Run) plan(repeats Repeats, time time.Duration, cases int) {
	run.repeats, run.time, run.cases = repeats, time, cases
}

// alternate runs the sides of a case in turn, round after round. It returns a sample for
// each round of each side.
func (run *Run) alternate(ctx context.Context, name string, sides ...side) ([][]Sample, error) {
	samples := make([][]Sample, len(sides))
	first := -1 // the round to warm up
	if run.cold {
		first = 0
	}
	rounds := run.repeats.Rounds
	for round := first; round < rounds; round++ {
		for i, side := range sides {
			if run.Progress != nil {
				share := float64((round-first)*len(sides)+i) / float64((rounds-first)*len(sides))
				run.Progress(name+" "+side.name, (float64(run.done)+share)/float64(run.cases))
			}
			sample, err := side.run(ctx, run.time)
			if err != nil {
				return nil, fmt.Errorf("measure %s: %w", side.name, err)
			}
			if round >= 0 {
				samples[i] = append(samples[i], sample)
			}
		}
	}
	run.done++
	return samples, nil
}

// measure runs a case: its own side first, and its baselines. The figures are read off the
// samples of each side.
func (run *Run) measure(ctx context.Context, r Result, sides []side, figures func(r *Result, samples [][]Sample)) error {
	samples, err := run.alternate(ctx, r.name(), sides...)
	if err != nil {
		return err
	}
	r.Samples = samples[0]
	figures(&r, samples)
	return run.Add(r)
}

// lack writes a comment on a tool that cannot run, because a module or a program is missing. The
// same comment comes once.
func (run *Run) lack(tool, missing string) error {
	line := fmt.Sprintf("# %s: %s is not installed", tool, missing)
	if slices.Contains(run.lacks, line) {
		return nil
	}
	run.lacks = append(run.lacks, line)
	_, err := fmt.Fprintln(run.out, line)
	return err
}

// table writes rows of cells as comments, the first row as a heading.
func (run *Run) table(rows [][]string) error {
	t := listing.New(run.out, "# ")
	for _, row := range rows {
		t.Row(row...)
	}
	return t.Flush()
}

// Add writes a result. A result without samples, of a case that could not run, is in JSON
// only. See lack.
func (run *Run) Add(result Result) error {
	run.results = append(run.results, result)
	if len(result.Samples) == 0 {
		return nil
	}
	from, to := -1, 0
	if run.repeats.Each {
		from, to = 0, len(result.Samples)
	}
	for round := from; round < to; round++ {
		if _, err := fmt.Fprintln(run.out, result.line(round, runtime.GOMAXPROCS(0))); err != nil {
			return err
		}
	}
	return nil
}

// Results returns the results so far.
func (run *Run) Results() []Result { return run.results }

// MarshalJSON writes all results as one object.
func (run *Run) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"results": run.results})
}
