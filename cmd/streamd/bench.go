//go:build !production

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"streamd/cmd/streamd/bench"
)

// measureCommands are the part of the grammar that measures streamd itself.
type measureCommands struct {
	Bench     benchCmd     `cmd:"" help:"Measure how fast it is, beside baselines."`
	Reproduce reproduceCmd `cmd:"" help:"Put the papers' tables beside what comes out here."`
}

// benchCmd measures, each time beside a baseline.
type benchCmd struct {
	Ingest     benchIngestCmd     `cmd:"" help:"Reading a topic with the daemon, against fetching and dropping it."`
	Background benchBackgroundCmd `cmd:"" help:"What refinement, a reduction and its rebuild take from reading a topic and from serving."`
	Billion    benchBillionCmd    `cmd:"" help:"A billion points through a broker: time, memory, correctness, and a straight line."`
	Peers      benchPeersCmd      `cmd:"" help:"What people use instead, on the same blocks: numpy, scikit-learn, LIBLINEAR, Vowpal Wabbit, River."`

	Gram     benchGramCmd     `cmd:"" help:"Summing up blocks: against reading them, the processor's peak, pure Go, and gonum's Dsyrk."`
	Wire     benchWireCmd     `cmd:"" help:"Decoding payloads: against copying them, encoding/json and encoding/csv."`
	Solve    benchSolveCmd    `cmd:"" help:"Reading the planes off the sums: against a Cholesky solution by gonum."`
	Retire   benchRetireCmd   `cmd:"" help:"Taking blocks of a thousand to a million rows out again, which takes the same time."`
	Snapshot benchSnapshotCmd `cmd:"" help:"Saving, opening and verifying a snapshot: against writing and reading as many bytes."`
	Predict  benchPredictCmd  `cmd:"" help:"Classifying rows, in process and over HTTP: against reading them, and a server that does nothing."`
}

// benchRounds are embedded by the benchmarks, which run in rounds.
type benchRounds struct {
	Rounds int  `default:"5" help:"How often each case and its baselines are run in turn. Reported are medians."`
	Each   bool `help:"Print a line for each round instead of the medians, for benchstat."`
	jsonFlag
}

// maxRounds bounds what is kept.
const maxRounds = 10_000

func (f *benchRounds) check() error { return within("rounds", 1, maxRounds, f.Rounds) }

// benchFlags are embedded where a run is so much time, and not so much work.
type benchFlags struct {
	benchRounds
	Time time.Duration `default:"50ms" help:"How long each of them is run in a round."`
}

func (f *benchFlags) check() error {
	if f.Time <= 0 {
		return fmt.Errorf("--time %v: must be positive", f.Time)
	}
	return f.benchRounds.check()
}

func (f *benchFlags) run(ctx context.Context, s *surroundings, measure measurement) error {
	return f.measure(ctx, s, bench.Plan{Rounds: f.Rounds, Time: f.Time}, measure)
}

func (f *benchRounds) run(ctx context.Context, s *surroundings, measure measurement) error {
	return f.measure(ctx, s, bench.Plan{Rounds: f.Rounds}, measure)
}

type measurement = func(context.Context, bench.Plan, *bench.Report) error

// measure measures and reports. On a terminal it says how far it has come.
func (f *benchRounds) measure(ctx context.Context, s *surroundings, plan bench.Plan, measure measurement) error {
	out := s.stdout
	if isTerminal(s.stderr) {
		began := time.Now()
		plan.Progress = func(what string, done float64) {
			line := fmt.Sprintf("%.0f %%", 100*done)
			if done > 0 {
				left := time.Duration(float64(time.Since(began)) * (1 - done) / done)
				line += fmt.Sprintf(", %s left", left.Round(time.Second))
			}
			line += ": " + strings.TrimPrefix(what, "Benchmark")
			// A line that is wrapped could not be taken away again.
			line = line[:min(len(line), 79)]
			fmt.Fprint(s.stderr, eraseLine+line)
		}
		out = &undrawing{out, s.stderr}
		defer fmt.Fprint(s.stderr, eraseLine)
	}
	report, err := bench.NewReport(out, f.Each)
	if err != nil {
		return err
	}
	if err := measure(ctx, plan, report); err != nil {
		return err
	}
	if f.JSON {
		return printJSON(out, report)
	}
	return nil
}

// undrawing takes the line of progress away before something is written, which
// may go to the same terminal.
type undrawing struct {
	io.Writer
	terminal io.Writer
}

func (w *undrawing) Write(p []byte) (int, error) {
	if _, err := fmt.Fprint(w.terminal, eraseLine); err != nil {
		return 0, err
	}
	return w.Writer.Write(p)
}

// within checks the values of a flag.
func within[N int | int64](flag string, least, most N, values ...N) error {
	for _, value := range values {
		if value < least || value > most {
			return fmt.Errorf("--%s %d: must be %d to %d", flag, value, least, most)
		}
	}
	return nil
}
