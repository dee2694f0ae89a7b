package reproduce

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"streamd/incremental/newton"
	"streamd/kernels/reduce"
)

// writeSet writes a set as the data folder has them, with numbers of classes as labels.
func writeSet(t *testing.T, folder, name string, s *set) {
	t.Helper()
	numbered := *s
	numbered.classes = nil
	for k := range s.classes {
		numbered.classes = append(numbered.classes, fmt.Sprint(k))
	}
	writeLabelled(t, folder, name, &numbered)
}

// writeLabelled writes a set with its classes as labels.
func writeLabelled(t *testing.T, folder, name string, s *set) {
	t.Helper()
	var text bytes.Buffer
	for i, code := range s.codes {
		fmt.Fprint(&text, s.classes[code])
		for _, c := range s.columns {
			fmt.Fprintf(&text, ",%g", c[i])
		}
		text.WriteByte('\n')
	}
	writeZipped(t, filepath.Join(folder, name+".csv.gz"), text.Bytes())
}

func writeZipped(t *testing.T, path string, text []byte) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, name string, c *Config) []Result {
	t.Helper()
	table, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	results, err := table.Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// Data sets of the folder are measured, and missing ones are named. The number of workers does not
// matter.
func TestCrossValidationTable(t *testing.T) {
	c := &Config{Data: t.TempDir(), Seed: 1, Seeds: 2, Workers: 1}
	writeSet(t, c.Data, "iris", randomSet(rand.New(rand.NewPCG(1, 1)), 120, 3, 3))
	writeSet(t, c.Data, "wine", randomSet(rand.New(rand.NewPCG(1, 2)), 130, 2, 3))
	results := run(t, "fung-2.5", c)
	c.Workers = 4
	again := run(t, "fung-2.5", c)
	var names, faults []string
	for i := range results {
		r := &results[i]
		r.Seconds, r.TotalSeconds, again[i].Seconds, again[i].TotalSeconds = 0, 0, 0, 0
		if !reflect.DeepEqual(r, &again[i]) {
			t.Errorf("with one worker\n%+v\nwith four\n%+v", *r, again[i])
		}
		if r.Absent != "" {
			faults = append(faults, r.Fault())
			continue
		}
		names = append(names, r.DataSet+" "+r.Method)
		if !(*r.Test > 0.5 && *r.Test <= 1 && *r.Train > 0.5 && r.Nu >= 1) || (r.Method != "OFR L2-SVM") != (r.P != nil) {
			t.Errorf("%+v", *r)
		}
		if got := *r.Test - *r.PaperTest; math.Abs(got-*r.Difference) > 1e-15 {
			t.Errorf("%s %s: a difference of %v, not %v", r.DataSet, r.Method, *r.Difference, got)
		}
	}
	want := []string{
		"Wine OFR L2-SVM", "Wine MPSVM", "Wine B-MPSVM", "Wine BR-MPSVM",
		"Iris OFR L2-SVM", "Iris MPSVM", "Iris B-MPSVM", "Iris BR-MPSVM",
	}
	if !slices.Equal(names, want) {
		t.Errorf("measured are %v", names)
	}
	missing := []string{"Glass: there is no glass.csv.gz", "Vowel: ", "Vehicle: ", "Segment: "}
	if len(faults) != len(missing) {
		t.Fatalf("missing are %v", faults)
	}
	for i, text := range missing {
		if !strings.HasPrefix(faults[i], "fung-2.5: "+text) {
			t.Errorf("missing is %s", faults[i])
		}
	}
}

func TestAdult(t *testing.T) {
	c := &Config{Data: t.TempDir(), Seed: 1, Seeds: 1}
	writeSet(t, c.Data, "adult-a9a-train", randomSet(rand.New(rand.NewPCG(2, 1)), 400, 3, 2))
	writeSet(t, c.Data, "adult-a9a-test", randomSet(rand.New(rand.NewPCG(2, 2)), 200, 3, 2))
	splits, err := json.Marshal(map[string]map[string][]int{"a1a": {"train": identity(100)}, "a6a": {"train": identity(399)}})
	if err != nil {
		t.Fatal(err)
	}
	writeZipped(t, filepath.Join(c.Data, "adult.splits.json.gz"), splits)
	var got []string
	for _, r := range run(t, "fung-2.1", c) {
		if r.Absent == "" {
			got = append(got, fmt.Sprintf("%s %s %d", r.DataSet, r.Method, r.Rows))
		} else if (r.Fault() != "") != (r.DataSet == "Adult 22697") {
			t.Errorf("%s: %q is a fault of the folder: %v", r.DataSet, r.Absent, r.Fault() != "")
		}
	}
	want := []string{
		"Adult 1605 PSVM 100", "Adult 1605 SSVM 100", "Adult 11221 PSVM 399", "Adult 11221 SSVM 399",
		"Adult 32562 PSVM 400", "Adult 32562 SSVM 400",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

func TestHoldOutTestsOnTheRowsThatAreLeft(t *testing.T) {
	if got, want := others([]int{4, 1, 0}, 6), []int{2, 3, 5}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestClusters(t *testing.T) {
	c := &Config{Seed: 1, Workers: 3}
	results, err := clusters{rows: 40_000}.run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		paper := []float64{0.9113, 0.9123, 0.6952, 0.6944}[i]
		if math.Abs(*r.PaperTest-paper) > 1e-9 || math.Abs(*r.Test-paper) > 0.02 || math.Abs(*r.Train-*r.Test) > 0.01 {
			t.Errorf("%s %s: %v of the training and %v of the test set", r.DataSet, r.Method, *r.Train, *r.Test)
		}
	}
}

// As in the thesis's figures, the plain plane ignores the small class, the balanced one cuts into
// the large class, and the refined one does neither.
func TestUnbalanced(t *testing.T) {
	for seed := range uint64(20) {
		planes, s, err := unbalancedPlanes(context.Background(), seed)
		if err != nil {
			t.Fatal(err)
		}
		plain, balanced, refined := planes[0], planes[1], planes[2]
		if s.rows() != 100 || plain.large != 1 || plain.small > 0.5 {
			t.Errorf("seed %d: plain: %.2f and %.2f of %d", seed, plain.large, plain.small, s.rows())
		}
		if balanced.small < 0.9 || balanced.large > 0.95 {
			t.Errorf("seed %d: balanced: %.2f and %.2f", seed, balanced.large, balanced.small)
		}
		if refined.all < 0.9 || refined.all <= max(plain.all, balanced.all) {
			t.Errorf("seed %d: refined: %.2f", seed, refined.all)
		}
	}
}

func TestDrawUnbalanced(t *testing.T) {
	var b bytes.Buffer
	if err := drawUnbalanced(context.Background(), &b, &Config{Seed: 1}); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	decoder := xml.NewDecoder(&b)
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if element, ok := token.(xml.StartElement); ok {
			count[element.Name.Local]++
		}
	}
	// Circles and diamonds have a rim each; beside them there are planes and frames.
	if count["circle"] != 3*2*85 || count["path"] != 3*(2*15+3+1) {
		t.Errorf("elements: %v", count)
	}
}

func TestPrint(t *testing.T) {
	share := func(x float64) *float64 { return &x }
	table := &Table{Name: "t", Title: "a title", Notes: []string{"a note"}}
	report := &Report{Results: []Result{
		{Table: "t", DataSet: "Iris", Rows: 150, Features: 4, Method: "X", Nu: 0.25, Test: share(0.9), PaperTest: share(0.967), Difference: share(-0.067), StandardError: share(0.008), Freedom: 9, Allowed: 0.053, Seeds: 10, P: share(1.2e-6), Tolerance: 0.015, Seconds: 0.0123, Remark: "odd"},
		{Table: "t", DataSet: "Galaxy", Absent: "gone"},
		{Table: "other", DataSet: "Nowhere"},
	}}
	var b strings.Builder
	if err := report.Print(&b, table); err != nil {
		t.Fatal(err)
	}
	want := `t: a title
  a note
  data set  rows × n  method  ν     test   paper  difference       allowed       p      seconds
  Iris      150 × 4   X       2^-2   90.0   96.7   -6.7 ± 0.8 (!)  -5.3 to +5.3  1e-06  0.012
  Iris: odd
  ± is the standard error of the mean of 10 seeds.
  (!) is farther from the paper, or from a known difference, than is allowed.
  Galaxy is not at hand: gone

`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	if fault := report.Results[0].Fault(); fault != "t: Iris: X: -6.7 ± 0.8 points beside the published figure, where at most 1.5 are allowed, and 3.8 by chance" {
		t.Errorf("the fault is %q", fault)
	}
	if fault := report.Results[1].Fault(); fault != "" {
		t.Errorf("a set that is not to be had is a fault: %q", fault)
	}
}

// Numbers of features and support vectors have columns where a table has them. A statement that
// does not hold is shown, and is a fault.
func TestPrintCounts(t *testing.T) {
	table := &Table{Name: "t", Title: "a title"}
	report := &Report{Results: []Result{
		{Table: "t", DataSet: "BUPA", Rows: 345, Features: 6, Method: "X", Nu: 1, Used: new(float64), PaperUsed: 4.5, SupportVectors: new(91.94), Programs: 6, Broken: "6.0 features are not fewer than 6.0"},
	}}
	var b strings.Builder
	if err := report.Print(&b, table); err != nil {
		t.Fatal(err)
	}
	want := `t: a title
  data set  rows × n  method  ν    used  paper  SVs   programs
  BUPA      345 × 6   X       2^0  0.0   4.5    91.9  6.0
  (!) BUPA: X: 6.0 features are not fewer than 6.0

`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	if fault := report.Results[0].Fault(); fault != "t: BUPA: X: 6.0 features are not fewer than 6.0" {
		t.Errorf("the fault is %q", fault)
	}
}

// twoClasses returns rows of 1 and −1. Of n features one tells most of them apart, and the others
// are noise.
func twoClasses(r *rand.Rand, m, n int) *set {
	s := randomSet(r, m, n, 2)
	s.classes = []string{"-1", positive}
	for i, code := range s.codes {
		for j := range s.columns {
			s.columns[j][i] = math.Round(100*r.NormFloat64()) / 100
		}
		s.columns[0][i] += 2 * float64(code)
	}
	return s
}

// The figures of a table of rows are the same for any number of workers.
func anyWorkers(t *testing.T, run func(context.Context, *Config) ([]Result, error), c *Config) []Result {
	t.Helper()
	var first []Result
	for _, workers := range []int{1, 3} {
		c.Workers = workers
		results, err := run(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		for i := range results {
			results[i].Seconds, results[i].TotalSeconds = 0, 0
		}
		if first == nil {
			first = results
		}
		if !reflect.DeepEqual(results, first) {
			t.Errorf("with one worker\n%+v\nwith three\n%+v", first, results)
		}
	}
	return first
}

// Few support vectors and few features are counted. What does not hold is a fault: a plane between
// two classes that are far apart has no support vectors to lose.
func TestSparseTable(t *testing.T) {
	c := &Config{Data: t.TempDir(), Seed: 1, Seeds: 1}
	table := sparseTable{
		nus: exponents{low: -4, high: -2, step: 2}, minimal: exponents{low: 5, high: 9, step: 4}, features: exponents{low: -2, high: 2, step: 4},
		entries: []sparseEntry{{name: "Made", file: "made"}, {name: "Missing", file: "missing"}, {name: "Gone", remark: "it is gone"}},
	}
	writeLabelled(t, c.Data, "made", twoClasses(rand.New(rand.NewPCG(7, 1)), 200, 4))
	results := anyWorkers(t, table.run, c)
	if len(results) != 7 || results[3].Fault() == "" || results[4].Fault() != "" || results[4].Absent != "it is gone" {
		t.Fatalf("%+v", results)
	}
	sparse, minimal, features, vectors, used := &results[0], &results[1], &results[2], &results[5], &results[6]
	if *minimal.SupportVectors > 0.7**sparse.SupportVectors || *features.Used > *sparse.Used || *sparse.Test < 0.75 || minimal.Programs < 3 {
		t.Errorf("%+v\n%+v\n%+v", *sparse, *minimal, *features)
	}
	// On some sets the 1-norm alone leaves as few features.
	fewer := *features.Used < *sparse.Used
	if vectors.Broken != "" || !strings.Contains(vectors.Remark, "% fewer support vectors") || (used.Broken == "") != fewer {
		t.Errorf("%+v\n%+v", *vectors, *used)
	}

	apart := twoClasses(rand.New(rand.NewPCG(7, 2)), 200, 4)
	for i, code := range apart.codes {
		apart.columns[0][i] = 100 * float64(code)
	}
	writeLabelled(t, c.Data, "made", apart)
	table.nus = exponents{low: 9, high: 9}
	results = anyWorkers(t, table.run, c)
	if fault := results[5].Fault(); !strings.Contains(fault, "at least 55 % fewer support vectors are expected") {
		t.Errorf("the fault is %q: %+v", fault, results)
	}
}

// The kernel's points and the support vectors of the full kernel are counted. Where these are few,
// too, it is a fault.
func TestMinimalTable(t *testing.T) {
	c := &Config{Data: t.TempDir(), Seed: 1, Seeds: 1}
	table := minimalTable{
		kernels: exponents{low: -4, high: -2, step: 2}, nus: exponents{low: 0, high: 3, step: 3}, svmNus: exponents{low: -2, high: 1, step: 3},
		price: 4, tuningPoints: 20,
		entries: []minimalEntry{{name: "Made", file: "made", share: 0.3, svm: figures{test: 80}}, {name: "Missing", file: "missing"}},
	}
	writeLabelled(t, c.Data, "made", twoClasses(rand.New(rand.NewPCG(8, 1)), 150, 2))
	results := anyWorkers(t, table.run, c)
	if len(results) != 3 || results[2].Fault() == "" {
		t.Fatalf("%+v", results)
	}
	mkc, full := &results[0], &results[1]
	if *mkc.Used > *full.Used/4 || *full.Used != *full.SupportVectors || math.Abs(*mkc.Test-*full.Test) > 0.1 || *full.Train < 0.75 || mkc.Mu == 0 {
		t.Errorf("%+v, %v\n%+v, %v", *mkc, *mkc.Used, *full, *full.Used)
	}

	apart := twoClasses(rand.New(rand.NewPCG(8, 2)), 150, 2)
	for i, code := range apart.codes {
		apart.columns[0][i] = 3 * float64(code)
	}
	writeLabelled(t, c.Data, "made", apart)
	table.svmNus = exponents{low: 6, high: 6}
	results = anyWorkers(t, table.run, c)
	if fault := results[0].Fault(); !strings.Contains(fault, "at least 90 % are expected") {
		t.Errorf("the fault is %q: %v, %v", fault, *results[0].Used, *results[1].Used)
	}
}

// The board comes out of a few of its points, and is drawn. A board of one colour does not.
func TestMinimalBoard(t *testing.T) {
	c := &Config{Data: t.TempDir(), Seed: 1}
	writeLabelled(t, c.Data, "checkerboard", checkerboardPoints(3))
	r := run(t, "fig-4.4", c)[0]
	if *r.Test < 0.95 || *r.Used > 40 || *r.SupportVectors > 60 || r.Fault() != "" {
		t.Errorf("%+v, %v, %v, %v", r, *r.Test, *r.Used, *r.SupportVectors)
	}
	var b bytes.Buffer
	if err := drawMinimalBoard(context.Background(), &b, c); err != nil || !strings.HasPrefix(b.String(), "<?xml") && !strings.Contains(b.String(), "<svg") {
		t.Errorf("%v: %.60s", err, b.String())
	}
	half := checkerboardPoints(3)
	for i, x := range half.columns[0] {
		half.codes[i] = int32(x) / 100
	}
	writeLabelled(t, c.Data, "checkerboard", half)
	if fault := run(t, "fig-4.4", c)[0].Fault(); !strings.Contains(fault, "at least 97 % with at most 40 are expected") {
		t.Errorf("the fault is %q", fault)
	}
}

// Ten planes, or three, decide by the largest value.
func TestMinimalDigits(t *testing.T) {
	c := &Config{Data: t.TempDir(), Seed: 1}
	digits := randomSet(rand.New(rand.NewPCG(9, 1)), 400, 3, 3)
	for _, column := range digits.columns {
		for i := range column {
			column[i] /= 10
		}
	}
	writeSet(t, c.Data, "usps-train", digits)
	writeSet(t, c.Data, "usps-test", digits.pick(identity(150)))
	r := run(t, "fung-4.2", c)[0]
	if *r.Test < 0.6 || *r.Used < 3 || *r.Used > 60 || !strings.Contains(r.Broken, "at most 7.5 % with at most 450 are expected") {
		t.Errorf("%+v: %v, %v", r, *r.Test, *r.Used)
	}
}

func TestFind(t *testing.T) {
	if _, err := Find("fung-9.9"); err == nil || !strings.Contains(err.Error(), "fung-2.5") {
		t.Errorf("%v", err)
	}
	names := map[string]bool{}
	for _, table := range Tables() {
		if names[table.Name] || table.Title == "" {
			t.Errorf("%q is there twice, or has no title", table.Name)
		}
		names[table.Name] = true
	}
}

// A missing folder is an error for tables that read from it. The others need no folder.
func TestNoFolder(t *testing.T) {
	made := []string{"fig-2.8", "fig-2.11", "fig-3.3", "fig-5.1", "fung-6.1", "spiral", "checkerboard", "xor", "checkerboard-knowledge"}
	for _, table := range Tables() {
		if table.Name == "fung-2.4" || table.Name == "fig-2.7" || table.Name == "fung-4.4" || table.Name == "drift" {
			continue // make millions of numbers
		}
		_, err := table.Run(context.Background(), &Config{Data: filepath.Join(t.TempDir(), "none"), Seeds: 1})
		if slices.Contains(made, table.Name) {
			if err != nil {
				t.Errorf("%s: %v", table.Name, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), "the folder of the data sets") || !strings.Contains(err.Error(), "none") {
			t.Errorf("%s: %v", table.Name, err)
		}
	}
}

func TestDamagedFileIsAnError(t *testing.T) {
	c := &Config{Data: t.TempDir(), Seeds: 1}
	writeZipped(t, filepath.Join(c.Data, "wine.csv.gz"), []byte("1,2,3\n1,x,3\n"))
	table, err := Find("fung-2.5")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Run(context.Background(), c); err == nil || !strings.Contains(err.Error(), "wine.csv.gz") {
		t.Errorf("%v", err)
	}
}

// Some points of the spirals are published: the first of each, and the second and the last of the
// first.
func TestSpiral(t *testing.T) {
	s := spiralPoints()
	for row, want := range map[int][3]float64{0: {-1, 0, -6.5}, 1: {1, 0, 6.5}, 3: {1, 1.255893948, 6.313805243}, 193: {1, 0, 0.5}} {
		label := map[string]float64{"-1": -1, "1": 1}[s.classes[s.codes[row]]]
		if label != want[0] || math.Abs(s.columns[0][row]-want[1]) > 1e-9 || math.Abs(s.columns[1][row]-want[2]) > 1e-9 {
			t.Errorf("point %d is %v, %v, of class %v", row, s.columns[0][row], s.columns[1][row], label)
		}
	}
	results := run(t, "spiral", &Config{Seed: 1, Seeds: 1})
	if len(results) != 1 || *results[0].Train != 1 || results[0].Rows != 194 {
		t.Errorf("%+v", results)
	}
}

func TestCheckerboard(t *testing.T) {
	for seed := range uint64(3) {
		results := run(t, "checkerboard", &Config{Seed: seed, Seeds: 1})
		if len(results) != 2 || *results[0].Test < 0.9 || *results[1].Test < 0.97 {
			t.Errorf("seed %d: the grid: %.3f proximal, %.3f refined", seed, *results[0].Test, *results[1].Test)
		}
	}
	grid := checkerboardGrid()
	ones := 0
	for _, code := range grid.codes {
		ones += int(code)
	}
	if grid.rows() != 39601 || ones != 19800 {
		t.Errorf("the grid has %d points, %d of class 1", grid.rows(), ones)
	}
}

// The picture of a table has its points and its basis. The tests of package plot look closer.
func TestDrawSurfaces(t *testing.T) {
	for name, want := range map[string]string{"spiral": "194 points", "fig-2.11": "500 points", "checkerboard": "40 points"} {
		table, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := table.Draw(context.Background(), &b, &Config{Seed: 1}); err != nil {
			t.Fatal(err)
		}
		if text := b.String(); !strings.Contains(text, want) || !strings.Contains(text, "basis point") || strings.Count(text, "<circle") < 2*194 {
			t.Errorf("%s: the picture lacks something", name)
		}
	}
}

// randomRings makes rows of two classes, one around the other.
func randomRings(r *rand.Rand, m int) *set {
	s := &set{features: []string{"x1", "x2"}, classes: []string{"in", "out"}, columns: make([][]float64, 2)}
	for i := range m {
		angle, radius := 2*math.Pi*r.Float64(), 1+float64(i%2)+0.2*r.NormFloat64()
		s.columns[0], s.columns[1] = append(s.columns[0], radius*math.Cos(angle)), append(s.columns[1], radius*math.Sin(angle))
		s.codes = append(s.codes, int32(i%2))
	}
	return s
}

// The tuned pair does best on the tuning sets together, with classifiers that are fitted again. As
// many sets are used as make tuningRows, here eight of some 18 rows.
func TestTunedKernel(t *testing.T) {
	division, err := divide(randomRings(rand.New(rand.NewPCG(10, 10)), 200), 3)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	v := variant{method: psvm, share: 0.1}
	mus, nus := exponents{low: -5, high: 1}.ascending(), exponents{low: -4, high: 8, step: 4}.ascending()
	const sets = 8
	different := map[[2]float64]bool{}
	for f := range division[:4] {
		d := &division[f]
		right := map[[2]float64]int{}
		most := 0
		for _, mu := range mus {
			for _, nu := range nus {
				pair, all := [2]float64{mu, nu}, 0
				for _, split := range d.tuning[:sets] {
					k, err := newKernelPart(mu, chosen(split.rest, v.share), split.rest)
					if err != nil {
						t.Fatal(err)
					}
					model, err := v.learn(ctx, k.part, nu, false)
					if err != nil {
						t.Fatal(err)
					}
					more, rows := count(model, lifted(split.tune, k.in))
					right[pair] += more
					all += rows
				}
				if all < tuningRows || all >= tuningRows+19 {
					t.Fatalf("%d sets have %d rows", sets, all)
				}
				most = max(most, right[pair])
			}
		}
		mu, nu, err := d.tuneKernel(ctx, v, mus, nus)
		if err != nil {
			t.Fatal(err)
		}
		if got := right[[2]float64{mu, nu}]; got != most {
			t.Errorf("fold %d: with μ, ν = %v, %v %d rows are right, not %d", f, mu, nu, got, most)
		}
		different[[2]float64{mu, nu}] = true
	}
	if len(different) < 2 {
		t.Errorf("it is always %v, so that nothing was tested", different)
	}
}

func TestMiddle(t *testing.T) {
	for _, c := range []struct {
		grid        []int
		row, column int
	}{
		{[]int{1, 2, 0, 0, 0, 1}, 0, 1},
		{[]int{7, 7, 7, 7, 7, 7, 7, 7, 7}, 1, 1},
		{[]int{9, 9, 0, 0, 9, 0, 0, 9, 0}, 1, 1},
		{[]int{9, 0, 9, 0, 0, 0, 9, 0, 0}, 0, 0},
	} {
		if row, column := middle(c.grid, 3); row != c.row || column != c.column {
			t.Errorf("%v: row %d, column %d", c.grid, row, column)
		}
	}
}

func TestKernelTable(t *testing.T) {
	table := kernelTable{
		mus: exponents{low: -8, high: 0, step: 4}, nus: exponents{low: 0, high: 4, step: 4},
		entries: []kernelEntry{
			{name: "Rings", file: "rings", variants: []variant{
				{method: psvm, share: 0.2, parameters: best, published: figures{test: 90}},
				{method: ssvm, share: 0.2, parameters: same, published: figures{test: 90}},
			}},
			{name: "Nothing", file: "nothing"},
		},
	}
	c := &Config{Data: t.TempDir(), Seed: 1, Seeds: 2, Workers: 1}
	writeSet(t, c.Data, "rings", randomRings(rand.New(rand.NewPCG(6, 6)), 150))
	var begun []string
	c.Progress = func(name string) { begun = append(begun, name) }
	results, err := table.run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(begun, []string{"Rings"}) || len(results) != 3 || !results[2].missing {
		t.Fatalf("begun are %v, %d results", begun, len(results))
	}
	for i, r := range results[:2] {
		if *r.Test < 0.9 || r.Mu == 0 || r.Nu == 0 || (i == 1) != (r.P != nil) || r.StandardError == nil {
			t.Errorf("%+v", r)
		}
	}
	if results[0].Mu != results[1].Mu || results[0].Nu != results[1].Nu {
		t.Errorf("SSVM has parameters of its own")
	}
	for _, mu := range table.mus.ascending() { // no parameters are better
		exponent := int(math.Log2(mu))
		other := table
		other.mus = exponents{low: exponent, high: exponent}
		if fixed, err := other.run(context.Background(), &Config{Data: c.Data, Seed: 1, Seeds: 2}); err != nil || *fixed[0].Test > *results[0].Test {
			t.Errorf("μ = %v: %v is better than %v: %v", mu, *fixed[0].Test, *results[0].Test, err)
		}
	}
	table.entries[0].variants[0].parameters = tuned
	inFolds, err := table.run(context.Background(), c)
	if err != nil || *inFolds[0].Test < 0.9 || *inFolds[0].Test > *results[0].Test {
		t.Errorf("tuned on the tuning sets: %v, %v", *inFolds[0].Test, err)
	}
	table.entries[0].variants[0].parameters = best
	c.Workers, c.Progress = 3, nil
	again, err := table.run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range again {
		again[i].Seconds, again[i].TotalSeconds, results[i].Seconds, results[i].TotalSeconds = 0, 0, 0, 0
	}
	if !reflect.DeepEqual(results, again) {
		t.Errorf("the number of workers shows")
	}
}

// The basis has the requested share of each class.
func TestChosen(t *testing.T) {
	s := &set{classes: []string{"a", "b"}, columns: [][]float64{nil}}
	for i := range 60 {
		s.columns[0] = append(s.columns[0], float64(i))
		s.codes = append(s.codes, int32(min(1, i%4))) // 15 and 45
	}
	blocks := newton.Blocks{s.block(0, 7), s.block(7, 60)}
	for share, want := range map[float64][2]int{1: {15, 45}, 0.2: {3, 9}, 0.01: {1, 1}} {
		var got [2]int
		z := chosen(blocks, share)
		for _, x := range z {
			got[s.codes[int(x)]]++
		}
		if got != want || len(slices.Compact(slices.Sorted(slices.Values(z)))) != len(z) {
			t.Errorf("a share of %v: %v of the classes, want %v", share, got, want)
		}
	}
}

func TestStandardise(t *testing.T) {
	s := &set{features: []string{"x1", "x2"}, classes: []string{"a", "b"}, codes: []int32{0, 1, 1, 0}, columns: [][]float64{{1, 3, 1, 3}, {7, 7, 7, 7}}}
	if err := s.standardise(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.columns[0], []float64{-1, 1, -1, 1}) || !slices.Equal(s.columns[1], []float64{0, 0, 0, 0}) {
		t.Errorf("%v", s.columns)
	}
}

func TestChunking(t *testing.T) {
	c := &Config{Data: t.TempDir(), Seed: 1, Seeds: 1}
	for i, name := range []string{"usps-train", "usps-test"} {
		s := randomSet(rand.New(rand.NewPCG(7, uint64(i))), 800, 4, 10)
		for _, column := range s.columns {
			for k := range column {
				column[k] /= 20
			}
		}
		writeSet(t, c.Data, name, s)
	}
	results := run(t, "cs-1", c)
	var methods []string
	for _, r := range results {
		methods = append(methods, fmt.Sprint(r.Rows, " ", r.Method))
		if !(*r.Test > 0.8 && *r.Test <= 1) || !(*r.Train > 0.8 && *r.Train <= 1) || !(*r.Used > 0) {
			t.Errorf("%+v", r)
		}
	}
	want := []string{"500 10 synthetic", "500 10 synthetic, (c) alone", "500 10 synthetic, (c) alone, without a box", "500 10 rows, largest multipliers", "800 28 synthetic", "800 --reduce cs, five seeds"}
	if !slices.Equal(methods, want) {
		t.Errorf("%q", methods)
	}
}

// Without noise the rows are the patterns themselves: 90 eights and 10 of every other digit. With
// noise they spread by the roots.
func TestNoisy(t *testing.T) {
	const m, scale, expansion = 6000, 0.5, 10
	digits := randomSet(rand.New(rand.NewPCG(8, 8)), 1200, 3, 10)
	for k := range digits.classes {
		digits.classes[k] = fmt.Sprint(k)
	}
	for i := range digits.codes {
		digits.columns[0][i] = float64(i) // names the pattern
	}
	still := digits.noisy(rand.New(rand.NewPCG(9, 9)), m, scale, 0)
	patterns := map[int]int{}
	for i, x := range still.columns[0] {
		row := int(x / scale)
		patterns[row]++
		if (digits.codes[row] == 8) != (still.codes[i] == 1) {
			t.Fatalf("row %d is of class %d, its pattern of %d", i, still.codes[i], digits.codes[row])
		}
	}
	perDigit := make([]int, 10)
	for row := range patterns {
		perDigit[digits.codes[row]]++
	}
	// A pattern whose share is very small has no row.
	for digit, most := range []int{10, 10, 10, 10, 10, 10, 10, 10, 90, 10} {
		if perDigit[digit] > most || perDigit[digit] < most*4/5 {
			t.Errorf("%d patterns of digit %d", perDigit[digit], digit)
		}
	}
	// The noise is a sum of n products of a normal number and a uniform one from 0 to e. Its
	// variance is about ne²/3.
	const e = expansion * 2 * scale / 50.
	moved := digits.noisy(rand.New(rand.NewPCG(9, 9)), m, scale, expansion)
	var square float64
	for j := range moved.columns {
		for i, x := range moved.columns[j] {
			square += (x - still.columns[j][i]) * (x - still.columns[j][i]) / (3 * m)
		}
	}
	if ratio := square / (3 * e * e / 3); ratio < 0.8 || ratio > 1.2 {
		t.Errorf("the noise has %.2f of its variance", ratio)
	}
}

// halfway is a reducer that is interrupted when it has some classifier.
type halfway struct{}

func (halfway) Reduce(context.Context, *reduce.Problem) (*reduce.Result, error) {
	return &reduce.Result{Interrupted: true}, nil
}

// NLPSVM and the linear program have nearly the same correctness, linear and with a kernel. Another
// number of features than the thesis's is a fault.
func TestNewtonTable(t *testing.T) {
	c := &Config{Data: t.TempDir(), Seed: 1, Seeds: 1}
	entries := []newtonEntry{
		{name: "Made", file: "made", published: [2]figures{{test: 85, used: 4, within: 20}}},
		{name: "Missing", file: "missing"}, {name: "Gone", remark: "it is gone"},
	}
	writeLabelled(t, c.Data, "made", twoClasses(rand.New(rand.NewPCG(12, 1)), 100, 4))
	linear := newtonTable{nus: exponents{low: 0, high: 2, step: 2}, entries: entries}
	lifted := newtonTable{nus: linear.nus, kernels: exponents{low: -4, high: -4}, share: 0.1, entries: entries}
	for _, table := range []newtonTable{linear, lifted} {
		results := anyWorkers(t, table.run, c)
		if len(results) != 4 || results[2].Fault() == "" || results[3].Fault() != "" || results[3].Absent != "it is gone" {
			t.Fatalf("%+v", results)
		}
		nlp, cplex := &results[0], &results[1]
		if nlp.Fault() != "" || math.Abs(*nlp.Test-*cplex.Test) > 0.05 || *nlp.Test < 0.75 || *nlp.Used < 1 || (nlp.Mu != 0) != (table.share > 0) {
			t.Errorf("%s: %+v, %v, %v\n%+v", nlp.Fault(), *nlp, *nlp.Test, *nlp.Used, *cplex)
		}
	}
	entries[0].published[0].used = 9 // of four
	results := anyWorkers(t, linear.run, c)
	if fault := results[0].Fault(); !strings.Contains(fault, "features; 6.0 to 12.0 are expected") {
		t.Errorf("the fault is %q", fault)
	}
}

// An objective that is not LIBSVM's is a fault.
func TestOptima(t *testing.T) {
	c := &Config{Data: t.TempDir(), Seed: 1}
	// Standardised, the classes are at −1 and 1.
	writeLabelled(t, c.Data, "pairs", &set{classes: []string{"-1", "1"}, codes: []int32{0, 0, 1, 1}, columns: [][]float64{{3, 3, 5, 5}}})
	// The dual 2s − s²(1 − exp(−γ·4)), s = Σα of a class, has the maximum 1/(1 − exp(−2)) for γ =
	// ½.
	o := optima{{"pairs", 8, -1, 1 / (1 - math.Exp(-2))}, {"missing", 1, 0, 1}}
	results := anyWorkers(t, o.run, c)
	if len(results) != 2 || results[0].Fault() != "" || !strings.Contains(results[1].Fault(), "missing.csv.gz") {
		t.Fatalf("%+v", results)
	}
	o[0].objective *= 1 + 2e-6
	if fault := anyWorkers(t, o.run, c)[0].Fault(); !strings.Contains(fault, "differ by 2e-06") {
		t.Errorf("the fault is %q", fault)
	}
}

// Few genes of a hundred tell the classes apart. Where none does, more are used than the thesis
// has.
func TestExpressions(t *testing.T) {
	e := expressions{patients: 20, donors: 10, genes: 100, telling: 5, apart: 6}
	s := e.set(1)
	for i := range s.rows() {
		for g := range e.genes {
			var calls float64
			for _, c := range s.columns[4*g+1 : 4*g+4] {
				calls += c[i]
			}
			if calls != 1 {
				t.Fatalf("gene %d of row %d has %v calls", g, i, calls)
			}
		}
	}
	c := &Config{Seed: 1}
	if r := anyWorkers(t, e.run, c)[0]; r.Fault() != "" || *r.Test != 1 || *r.Train != 1 || *r.Used > 20 || r.Features != 400 || r.Rows != 30 {
		t.Errorf("%s: %+v, %v, %v", r.Fault(), r, *r.Test, *r.Used)
	}
	e = expressions{patients: 35, donors: 35, genes: 50}
	results, err := e.run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r := results[0]; !strings.Contains(r.Fault(), "published figure") || !strings.Contains(r.Broken, "at most 28") {
		t.Errorf("%s: %+v", r.Fault(), r)
	}
}

func TestInterruptedChunkingIsAnError(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if found, err := complete(ctx, halfway{}, nil); found != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", found, err)
	}
}

// Every file that a table reads has a source, and the text about a missing one names it.
func TestSources(t *testing.T) {
	files := map[string]bool{"adult-a9a-train": true, "adult-a9a-test": true, "promoters": true, "usps-train": true, "usps-test": true, "checkerboard": true, "mnist-train-images-idx3-ubyte": true, "mnist-t10k-images-idx3-ubyte": true}
	for _, e := range table41.entries {
		if e.file != "" {
			files[e.file] = true
		}
	}
	for _, e := range table43.entries {
		files[e.file] = true
	}
	for _, table := range []crossValidation{table23, table25, table62} {
		for _, e := range table.entries {
			if e.file != "" {
				files[e.file] = true
			}
		}
	}
	for _, table := range []kernelTable{table22, table26, table63} {
		for _, e := range table.entries {
			files[e.file] = true
		}
	}
	for _, e := range slices.Concat(table45.entries, table46.entries) {
		if e.file != "" {
			files[e.file] = true
		}
	}
	for _, e := range table51.entries {
		if e.file != "" {
			files[e.file] = true
		}
	}
	files["elec2"], files["weather-noaa"] = true, true // of prequential
	for _, of := range tableIwamura.sets {
		files[of.file] = true
	}
	for _, s := range sources {
		if !files[s.name] || s.from == "" || s.made == "" {
			t.Errorf("%+v is of no table, or says too little", s)
		}
		if text := missing("data", s.name); !strings.Contains(text, "there is no "+fileOf(s.name)+" in data; the original is at http") {
			t.Error(text)
		}
		delete(files, s.name)
	}
	if len(files) > 0 {
		t.Errorf("the sources of %v are not known", files)
	}
	if text := strings.Join(Sources(), "\n"); strings.Count(text, "://") < len(sources)+1 {
		t.Error(text)
	}
}

// A check of a claim that holds, and hardly, is refused once in a thousand times or less, for any
// number of seeds. A claim that is wrong by more than chance allows is refused nearly always.
func TestClaims(t *testing.T) {
	const draws, deviation = 20_000, 0.02
	r := rand.New(rand.NewPCG(11, 13))
	for _, seeds := range []int{3, 5, 10, 30} {
		fails := func(wrong float64, better bool) (count int, bound float64) {
			for range draws {
				var tests []float64
				for range seeds {
					tests = append(tests, 0.9+wrong+deviation*r.NormFloat64())
				}
				e := estimateOf(tests)
				x := Result{Test: &e.mean, Better: better}
				x.estimated(e)
				figures{test: 90}.compare(&x)
				if bound += x.Allowed / draws; x.Fault() != "" {
					count++
				}
			}
			return count, bound
		}
		limit := int(draws*refusal/2 + 4*math.Sqrt(draws*refusal/2))
		for _, side := range []float64{-1, 1} {
			if count, _ := fails(side*usualTolerance/100, false); count > limit {
				t.Errorf("%d seeds: %d of %d checks refuse a claim that holds", seeds, count, draws)
			}
		}
		_, bound := fails(0, false)
		if bound <= usualTolerance/100 {
			t.Errorf("%d seeds: %v is allowed", seeds, bound)
		}
		for _, side := range []float64{-1, 1} {
			if count, _ := fails(side*3*bound, false); count < draws*9/10 {
				t.Errorf("%d seeds: %d of %d checks refuse a claim that is wrong by %v", seeds, count, draws, 3*bound)
			}
		}
		if count, _ := fails(3*bound, true); count > 0 {
			t.Errorf("%d seeds: %d checks refuse what may be better", seeds, count)
		}
	}
	claim := Result{}
	claim.estimated(estimate{deviation: 0.01, freedom: 9})
	if allowed := claim.allowed(0.02); math.Abs(allowed-0.0678091) > 1e-6 { // 4.78091 in tables of Student's t
		t.Errorf("a claim on a share of 0.02 holds to %v", allowed)
	}
	if certain := (&Result{}).allowed(0.02); certain != 0.02 {
		t.Errorf("a certain claim holds to %v", certain)
	}
}

// A single seed has the standard error of its folds, or of its rows.
func TestOneSeed(t *testing.T) {
	one := trial{{{test: 0.8}, {test: 0.9}, {test: 1}}}
	var r Result
	if one.summarise(&r); r.Freedom != 2 || math.Abs(*r.StandardError-0.1/math.Sqrt(3)) > 1e-15 || r.Seeds != 1 {
		t.Errorf("%+v", r)
	}
	two := append(trial{{{test: 0.7}, {test: 0.8}, {test: 0.9}}}, one...)
	if two.summarise(&r); r.Freedom != 1 || math.Abs(*r.StandardError-0.05) > 1e-15 || r.Seeds != 2 {
		t.Errorf("%+v", r)
	}
	if e := estimateOfShare(0.9, 100); math.Abs(e.deviation-0.03) > 1e-15 || e.freedom != 99 {
		t.Errorf("%+v", e)
	}
}

// Tables of made points have the means of their seeds, and statements are about the means.
func TestEachSeed(t *testing.T) {
	run := func(_ context.Context, c *Config) ([]Result, error) {
		r := Result{DataSet: "A", Method: "X", Test: new(float64(c.Seed) / 100), Used: new(float64(c.Seed)), Remark: "of this seed"}
		figures{test: 3}.compare(&r)
		return []Result{r, {DataSet: "B", Absent: "gone"}}, nil
	}
	judged := 0
	judge := func(r *Result) {
		judged++
		r.hold(*r.Used < 5, "%v used", *r.Used)
	}
	for seeds, want := range map[int]struct{ mean, deviation float64 }{1: {4, 0}, 3: {5, 1 / math.Sqrt(3)}} {
		of, err := eachSeed(run, judge)(t.Context(), &Config{Seed: 4, Seeds: seeds})
		if err != nil || len(of) != 2 || of[1].Absent != "gone" {
			t.Fatalf("%+v, %v", of, err)
		}
		r := of[0]
		if math.Abs(100**r.Test-want.mean) > 1e-12 || math.Abs(100**r.Difference-want.mean+3) > 1e-12 || r.Seeds != seeds ||
			*r.Used != want.mean || (r.Broken != "") != (seeds == 3) || (r.Remark != "") != (seeds == 1) {
			t.Errorf("%d seeds: %+v", seeds, r)
		}
		if seeds > 1 && math.Abs(100**r.StandardError-want.deviation) > 1e-12 {
			t.Errorf("%d seeds: a standard error of %v", seeds, *r.StandardError)
		}
	}
	if judged != 2 {
		t.Errorf("%d results were judged", judged)
	}
}

// A known difference is marked, and is held as closely as one that is not.
func TestKnownDifference(t *testing.T) {
	for test, fault := range map[float64]string{
		86.8: "", 86.1: "", 87.5: "",
		85.9: "t: X: A: -4.1 points beside the published figure, where -3.2 ± 0.8 is known",
		89.9: "t: X: A: -0.1 points beside the published figure, where -3.2 ± 0.8 is known",
	} {
		ours := test / 100
		r := Result{Table: "t", DataSet: "X", Method: "A", Test: &ours}
		figures{test: 90, known: -3.2, within: 0.8}.compare(&r)
		if got := r.Fault(); got != fault {
			t.Errorf("%v: %q, want %q", test, got, fault)
		}
		var b strings.Builder
		if err := (&Report{Results: []Result{r}}).Print(&b, &Table{Name: "t"}); err != nil {
			t.Fatal(err)
		}
		mark, other := "(*)", "(!)"
		if fault != "" {
			mark, other = other, mark
		}
		if strings.Count(b.String(), mark) != 2 || strings.Contains(b.String(), other) {
			t.Errorf("%v:\n%s", test, b.String())
		}
	}
}
