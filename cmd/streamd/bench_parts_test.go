//go:build !production

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// partsBenchmarks are tiny runs of benchmarks, with the parameters and figures of their results.
var partsBenchmarks = []struct {
	args    string
	results int
	keys    string
}{
	{"gram --features 3,12 --type float32,float64 --threads 1,2 --rows 300 --megabytes 1", 8,
		"features type threads rows ns_per_row rows_per_second gb_per_second gflop_per_second read_ratio peak_gflop_per_second peak_share purego_ratio gonum_ratio"},
	{"wire --format arrow,libsvm --features 3 --threads 1,2 --rows 40", 4,
		"format features type threads rows ns_per_row rows_per_second gb_per_second bytes_per_row copy_ratio"},
	{"wire --format json --features 3,4 --threads 1 --rows 40 --type float64", 2,
		"format features type threads rows ns_per_row rows_per_second gb_per_second bytes_per_row copy_ratio encoding_json_ratio"},
	{"wire --format csv --features 3 --threads 0 --rows 40", 1,
		"format features type threads rows ns_per_row rows_per_second gb_per_second bytes_per_row copy_ratio encoding_csv_ratio"},
	{"solve --features 3,5 --classes 2,3", 12,
		"features classes options seconds copy_share gonum_ratio"},
	{"ledger --part sums --features 3 --rows 10,100", 2,
		"part features rows seconds flat_ratio add_ratio"},
	{"snapshot --features 3 --blocks 5,9 --changed 7", 6,
		"operation features blocks changed seconds file_bytes written_bytes"},
	{"predict --features 200 --rows 50 --threads 1 --classes 3 --format json", 2,
		"path features classes type threads rows ns_per_row rows_per_second"},
}

var (
	headerLine    = regexp.MustCompile(`^(goos|goarch|pkg|cpu): \S`)
	benchmarkLine = regexp.MustCompile(`^Benchmark[A-Z]\S*\t +[1-9][0-9]*(\t +[0-9.e+-]+ [A-Za-z/-]+)+$`)
)

func TestBenchParts(t *testing.T) {
	for _, c := range partsBenchmarks {
		t.Run(c.args, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			lines, results := benchmark(t, "bench "+c.args+" --rounds 2 --time 1us --json")
			if len(lines) != c.results || len(results) != c.results {
				t.Fatalf("%d lines and %d results, want %d", len(lines), len(results), c.results)
			}
			for i, r := range results {
				name, _, _ := strings.Cut(c.args, " ")
				if r["benchmark"] != name || r["rounds"] != 2.0 {
					t.Errorf("result %d is of %v rounds of %v", i, r["rounds"], r["benchmark"])
				}
				for _, key := range strings.Fields(c.keys) {
					switch value := r[key].(type) {
					case string:
						if value == "" {
							t.Errorf("result %d: %s is empty", i, key)
						}
					case float64:
						if value <= 0 {
							t.Errorf("result %d: %s is %v", i, key, value)
						}
					default:
						t.Errorf("result %d: %s is %v", i, key, value)
					}
				}
				// The parameters of the case are in the line's name.
				for _, key := range []string{"features", "type", "threads", "format", "rows", "operation", "path", "blocks"} {
					if value, ok := r[key]; ok && !strings.Contains(lines[i], fmt.Sprintf("/%s=%v", key, value)) {
						t.Errorf("%q lacks %s=%v", lines[i], key, value)
					}
				}
			}
		})
	}
}

// With --each there is a line per round, and without --json nothing else.
func TestBenchEachRound(t *testing.T) {
	lines, _ := benchmark(t, "bench gram --features 2 --type float32 --threads 1 --rows 100 --megabytes 1 --rounds 3 --time 1us --each")
	if len(lines) != 3 {
		t.Errorf("%d lines of 3 rounds: %q", len(lines), lines)
	}
}

// benchmark runs the program and parses its output.
func benchmark(t *testing.T, command string) (lines []string, results []map[string]any) {
	t.Helper()
	var out bytes.Buffer
	args := strings.Fields(command)
	if err := run(t.Context(), args, nil, nil, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	all := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if args[len(args)-1] == "--json" {
		var report struct{ Results []map[string]any }
		if err := json.Unmarshal([]byte(all[len(all)-1]), &report); err != nil {
			t.Fatalf("the last line is %q: %v", all[len(all)-1], err)
		}
		all, results = all[:len(all)-1], report.Results
	}
	for len(all) > 0 && headerLine.MatchString(all[0]) {
		all = all[1:]
	}
	for _, line := range all {
		if !benchmarkLine.MatchString(line) {
			t.Errorf("not a line of Go's benchmark format: %q", line)
		}
	}
	return all, results
}

func TestBenchUsage(t *testing.T) {
	for command, want := range map[string]string{
		"bench gram --features 0":                  "--features 0: must be 1 to 4096",
		"bench gram --type float32,float16":        "--type must be one of",
		"bench gram --threads=-1":                  "--threads -1: must be 0 to 1024",
		"bench gram --rounds 0":                    "--rounds 0: must be 1 to 10000",
		"bench wire --format avro":                 "--format must be one of",
		"bench wire --rows 0":                      "--rows 0: must be 1 to 10000000",
		"bench solve --classes 1":                  "--classes 1: must be 2 to 1000",
		"bench ledger --rows 1000,0":               "--rows 0: must be 1 to 10000000",
		"bench snapshot --blocks 0":                "--blocks 0: must be 1 to 1000000",
		"bench predict --time=-1s":                 "--time -1s: must be positive",
		"bench predict --rows 1 --threads 1,2000":  "--threads 2000: must be 0 to 1024",
		"bench snapshot --changed 0 --features 10": "--changed 0: must be 1 to 1000000",
	} {
		err := run(t.Context(), strings.Fields(command), nil, nil, t.Output(), t.Output())
		if exitStatus(err) != 2 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", command, err, want)
		}
	}
}
