// Command paired runs the benchmarks of two revisions in turn and prints the medians beside each
// other. Run it from the module's root, on a machine that does nothing else:
//
//	go run ./testdata/paired -base main~5
//
// A line is the median of base, that of head, their ratio, and the spread: half the distance
// between the smallest and the largest figure, as a share of the median, of the side where it is
// larger. The run fails when a figure of head is larger by more than 5 % and more than the spread.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// cases are the benchmarks: a name, and the arguments of streamd bench.
var cases = []struct{ name, args string }{
	{"gram", "gram --features 10,32,100,256,784 --type float32 --threads 1 --rounds 1"},
	{"wire", "wire --threads 1 --rounds 1"},
	{"ingest", "ingest --rows 20000000 --rounds 1"},
	{"ledger", "ledger --blocks 100000 --together 10000"},
	{"predict", "predict --threads 1 --rounds 1"},
}

// The worst that passes for noise, as a share of base's median.
const tolerance = 0.05

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "paired:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var base, head, names, brokers string
	var rounds int
	flag.StringVar(&base, "base", "", "revision that head is measured beside")
	flag.StringVar(&head, "head", "HEAD", "revision that is measured")
	flag.StringVar(&names, "cases", "gram,wire,ingest,ledger,predict", "benchmarks")
	flag.StringVar(&brokers, "brokers", "", "addresses of an Apache Kafka: it is read in place of the embedded broker")
	flag.IntVar(&rounds, "rounds", 5, "rounds: each runs every benchmark of both revisions")
	flag.Parse()
	if base == "" || flag.NArg() > 0 || rounds < 1 {
		flag.Usage()
		return errors.New("-base is needed, and at least one round")
	}
	dir, err := os.MkdirTemp("", "paired")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	sides := [2]string{filepath.Join(dir, "base"), filepath.Join(dir, "head")}
	for i, revision := range []string{base, head} {
		if err := build(ctx, revision, sides[i]); err != nil {
			return err
		}
	}

	var order []string
	figures := make(map[string]*[2][]float64)
	for round := range rounds {
		for _, name := range strings.Split(names, ",") {
			i := slices.IndexFunc(cases, func(c struct{ name, args string }) bool { return c.name == name })
			if i < 0 {
				return fmt.Errorf("there is no benchmark %q", name)
			}
			args := append([]string{"bench"}, strings.Fields(cases[i].args)...)
			if brokers != "" && name == "ingest" {
				args = append(args, "--brokers", brokers)
			}
			for side, program := range sides {
				fmt.Fprintf(os.Stderr, "round %d of %d: %s, %s\n", round+1, rounds, name, filepath.Base(program))
				var failed bytes.Buffer
				command := exec.CommandContext(ctx, program, args...)
				command.Stderr = &failed
				out, err := command.Output()
				if err != nil {
					return fmt.Errorf("%s: %w\n%s", command, err, failed.Bytes())
				}
				for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
					benchmark, value, ok := figure(lines.Text())
					if !ok {
						continue
					}
					if figures[benchmark] == nil {
						figures[benchmark] = new([2][]float64)
						order = append(order, benchmark)
					}
					figures[benchmark][side] = append(figures[benchmark][side], value)
				}
			}
		}
	}
	return report(order, figures)
}

// build makes the program of a revision, in a work tree of its own.
func build(ctx context.Context, revision, program string) error {
	tree := program + ".tree"
	for _, command := range []*exec.Cmd{
		exec.CommandContext(ctx, "git", "worktree", "add", "--quiet", "--detach", tree, revision),
		exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/streamd"),
		exec.Command("git", "worktree", "remove", "--force", tree),
	} {
		if command.Args[0] == "go" {
			command.Dir = tree
		}
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", command, err, out)
		}
	}
	return nil
}

// figure reads a line of Go's benchmark format: nanoseconds a row, or an operation where there
// are no rows.
func figure(line string) (benchmark string, value float64, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
		return "", 0, false
	}
	benchmark = fields[0]
	if i := strings.LastIndex(benchmark, "-"); i >= 0 { // the number of cores
		benchmark = benchmark[:i]
	}
	for _, unit := range []string{"ns/row", "ns/op"} {
		if i := slices.Index(fields, unit); i > 0 {
			value, err := strconv.ParseFloat(fields[i-1], 64)
			return benchmark + " " + unit, value, err == nil
		}
	}
	return "", 0, false
}

func report(order []string, figures map[string]*[2][]float64) error {
	slower, compared := 0, 0
	for _, benchmark := range order {
		sides := figures[benchmark]
		if len(sides[0]) == 0 || len(sides[1]) == 0 {
			side := "base"
			if len(sides[0]) == 0 {
				side = "head"
			}
			fmt.Printf("only %s has %s\n", side, benchmark)
			continue
		}
		compared++
		var medians [2]float64
		spread := 0.0
		for i, values := range sides {
			slices.Sort(values)
			medians[i] = (values[(len(values)-1)/2] + values[len(values)/2]) / 2
			spread = max(spread, (values[len(values)-1]-values[0])/2/medians[i])
		}
		verdict, ratio := "", medians[1]/medians[0]
		if ratio-1 > max(tolerance, spread) {
			verdict = "slower"
			slower++
		}
		fmt.Printf("%6.3f  %12.2f -> %12.2f  (spread %3.0f %%)  %-6s  %s\n",
			ratio, medians[0], medians[1], 100*spread, verdict, strings.TrimPrefix(benchmark, "Benchmark"))
	}
	switch {
	case compared == 0:
		return errors.New("nothing was compared")
	case slower > 0:
		return fmt.Errorf("%d of %d figures are larger", slower, compared)
	}
	return nil
}
