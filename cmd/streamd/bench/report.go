package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// Report writes results as they come.
type Report struct {
	out     io.Writer
	each    bool
	results []Result
}

// NewReport starts a report with what Go's benchmarks say of the machine. With
// each there is a line per round, from which benchstat computes intervals,
// instead of one with the medians.
func NewReport(out io.Writer, each bool) (*Report, error) {
	_, err := fmt.Fprintf(out, "goos: %s\ngoarch: %s\npkg: streamd/cmd/streamd/bench\n", runtime.GOOS, runtime.GOARCH)
	if name := processor(); name != "" && err == nil {
		_, err = fmt.Fprintf(out, "cpu: %s\n", name)
	}
	return &Report{out: out, each: each, results: []Result{}}, err
}

// Add writes a result. One without samples, of what could not be run, is in
// JSON only.
func (r *Report) Add(result Result) error {
	r.results = append(r.results, result)
	if len(result.Samples) == 0 {
		return nil
	}
	from, to := -1, 0
	if r.each {
		from, to = 0, len(result.Samples)
	}
	for round := from; round < to; round++ {
		if _, err := fmt.Fprintln(r.out, result.line(round, runtime.GOMAXPROCS(0))); err != nil {
			return err
		}
	}
	return nil
}

// MarshalJSON is the report as one object.
func (r *Report) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"results": r.results})
}

// processor is the model of the processor, where the system tells: Linux does.
func processor() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
