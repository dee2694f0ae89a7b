package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	engines = top + "/testdata/engines/stream.py"
	spark   = top + "/testdata/spark/cases.py"
)

// python is a Python with modules. Without them the test is skipped, and it fails where variable
// is set.
func python(t *testing.T, variable string, modules ...string) string {
	t.Helper()
	program := os.Getenv("STREAMD_TEST_PYTHON")
	if program == "" {
		program = "python3"
	}
	out, err := exec.Command(program, "-c", "import "+strings.Join(modules, ", ")).CombinedOutput()
	if err == nil {
		return program
	}
	why := fmt.Sprintf(" %s with the modules %s (STREAMD_TEST_PYTHON names another one): %v\n%s", program, strings.Join(modules, ", "), err, out)
	if os.Getenv(variable) != "" {
		t.Fatalf("%s is set, and there is no%s", variable, why)
	}
	t.Skip("NOT TESTED: there is no", why)
	return ""
}

// rowsOfEngines are rows in CSV: normal numbers, in double and in single precision, prices and
// one-hot columns.
func rowsOfEngines(r *rand.Rand, n int) []byte {
	var text bytes.Buffer
	text.WriteString("label,x,y,f,price,is_a,is_b\n")
	for range n {
		kind := r.IntN(3)
		fmt.Fprintf(&text, "%s,%g,%g,%g,%.2f,%d,%d\n", []string{"spam", "ham"}[r.IntN(2)], r.NormFloat64(), 1e6+1e-3*r.NormFloat64(),
			float64(float32(r.NormFloat64())), 1e4*r.Float64(), min(kind, 1), kind/2)
	}
	return text.Bytes()
}

// summed are the blocks of a table, in the order of their rows, without what their records have
// beside the sums, and their bytes.
func summed(t *testing.T, table []byte) (blocks []string) {
	t.Helper()
	for line := range bytes.Lines(table) {
		var b struct {
			ID       string
			Source   string
			FirstRow int64 `json:"first_row"`
			Rows     int64
			Digest   string
			Bytes    []byte
		}
		if err := json.Unmarshal(line, &b); err != nil || len(b.Bytes) == 0 {
			t.Fatalf("%v in the line %.200q", err, line)
		}
		blocks = append(blocks, fmt.Sprintf("%s of %s: %d rows from row %d, %s", b.ID, b.Source, b.Rows, b.FirstRow, b.Digest))
	}
	slices.Sort(blocks)
	return blocks
}

// Streams of Arrow that pyarrow, polars and DuckDB write into the program's standard input have
// the blocks that the file has of which they read the rows: ids, cuts and digests.
func TestStreamsOfEngines(t *testing.T) {
	program := python(t, "STREAMD_REQUIRE_PROGRAMS", "pyarrow", "polars", "duckdb")
	const rows, cut = 10_050, 500
	dir := t.TempDir()
	csv, parquet := filepath.Join(dir, "rows.csv"), filepath.Join(dir, "rows.parquet")
	if err := os.WriteFile(csv, rowsOfEngines(rand.New(rand.NewPCG(3, 6)), rows), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program, engines, "parquet", csv, parquet).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	table := func(t *testing.T, in io.Reader, args ...string) (blocks []string) {
		t.Helper()
		c := exec.Command(os.Args[0], slices.Concat([]string{"summarise"}, args, []string{"--out", "-", "--block-rows", fmt.Sprint(cut), "--time", "2026-01-02T00:00:00Z"})...)
		c.Args[0] = "streamd" // the name by which the test is the program
		c.Env = []string{}    // variables of the tests are no settings
		var out, said bytes.Buffer
		c.Stdin, c.Stdout, c.Stderr = in, &out, &said
		if err := c.Run(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, &said)
		}
		return summed(t, out.Bytes())
	}
	want := table(t, nil, parquet)
	if len(want) != (rows+cut-1)/cut || !strings.HasPrefix(want[0], "file:rows.parquet/0/0 of file:rows.parquet: 500 rows from row 0, ") {
		t.Fatalf("%d blocks, the first one is %s", len(want), want[0])
	}
	for i, b := range table(t, nil, csv) {
		if b = strings.ReplaceAll(b, "rows.csv", "rows.parquet"); b != want[i] {
			t.Errorf("of the CSV: %s, not %s", b, want[i])
		}
	}
	for _, engine := range []string{"pyarrow", "polars", "duckdb"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel() // each loads large modules
			c := exec.Command(program, engines, engine, parquet)
			c.Stderr = os.Stderr
			stream, err := c.StdoutPipe()
			if err == nil {
				err = c.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			got := table(t, stream, "-", "--source", "rows.parquet")
			if err := c.Wait(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("the stream has the blocks\n%s\nand the file\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// Tasks of Spark have the blocks of the file, whatever their number, also when a worker is killed
// among its rows. The ids are those of their tasks. A session takes a minute, so only make full
// asks for it.
func TestBlocksOfSpark(t *testing.T) {
	const variable = "STREAMD_REQUIRE_SPARK"
	if os.Getenv(variable) == "" {
		t.Skipf("NOT TESTED: %s=1 runs Spark, as make full does", variable)
	}
	program := python(t, variable, "pyspark", "pandas", "pyarrow")
	const rows, cut = 10_050, 500
	dir := t.TempDir()
	csv, numbered, parquet := filepath.Join(dir, "rows.csv"), filepath.Join(dir, "numbered.csv"), filepath.Join(dir, "rows.parquet")
	text := rowsOfEngines(rand.New(rand.NewPCG(3, 6)), rows)
	var with bytes.Buffer
	number := "row" // the header, then 0 and so on
	for line := range bytes.Lines(text) {
		fmt.Fprintf(&with, "%s,%s\n", bytes.TrimSpace(line), number)
		number = fmt.Sprint(bytes.Count(with.Bytes(), []byte("\n")) - 1)
	}
	for file, text := range map[string][]byte{csv: text, numbered: with.Bytes()} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The program is this test under its other name.
	streamd := filepath.Join(dir, "streamd")
	this, err := filepath.Abs(os.Args[0])
	if err == nil {
		err = os.Symlink(this, streamd)
	}
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{"--time", "2026-01-02T00:00:00Z"}
	run := func(name string, args ...string) []byte {
		t.Helper()
		c := exec.Command(name, args...)
		c.Env = append(os.Environ(), "STREAMD="+streamd)
		var said bytes.Buffer
		c.Stderr = &said
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, last(said.String(), 5000))
		}
		return out
	}
	run(program, engines, "parquet", numbered, parquet)
	// digests are those of the blocks, and their ids.
	digests := func(table []byte) (list []string, ids map[string]bool) {
		ids = map[string]bool{}
		for _, b := range summed(t, table) {
			id, _, _ := strings.Cut(b, " ")
			ids[id] = true
			list = append(list, b[strings.LastIndexByte(b, ' ')+1:])
		}
		slices.Sort(list)
		return list, ids
	}
	want, _ := digests(run(streamd, slices.Concat([]string{"summarise", csv, "--out", "-", "--block-rows", fmt.Sprint(cut)}, flags)...))
	if len(want) != (rows+cut-1)/cut {
		t.Fatalf("%d blocks", len(want))
	}
	run(program, slices.Concat([]string{spark, parquet, dir, fmt.Sprint(cut)}, flags)...)
	for _, of := range []string{"three", "seven", "sparse", "killed"} {
		parts, err := filepath.Glob(filepath.Join(dir, of, "part-*"))
		if err != nil || len(parts) == 0 {
			t.Fatalf("%s: %q, %v", of, parts, err)
		}
		var table []byte
		for _, part := range parts {
			table = append(table, readFile(t, part)...)
		}
		got, ids := digests(table)
		if !slices.Equal(got, want) || len(ids) != len(want) {
			t.Errorf("%s: %d ids of the blocks\n%s\nand of the file\n%s", of, len(ids), strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func last(text string, n int) string { return text[max(0, len(text)-n):] }
