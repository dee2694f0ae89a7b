package predictions

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/incremental/decision"
	"streamd/incremental/gram"
	"streamd/ingest/wire"
)

// hostile are labels that a producer may send. encoding/csv reads CRLF as LF, so that one is
// tested with the reader of package wire alone.
var hostile = []string{
	"ham", "-1", "=1+2", "+1", "@SUM(A1)", "a,b", `say "no"`, "two\nlines", " blank ", "\ttab", "\ufeffmark", `"`, ",", "'", "\u2028<script>", "NA", "a;b;c", "x|y", "t\tt", "naïve", "\\.", "#",
}

// decoded are predictions as a client reads them.
type decoded struct {
	labels                []string
	values, probabilities [][]float64
}

// newTable makes predictions of random numbers for k classes.
func newTable(r *rand.Rand, classes []string, rows int, curves bool) *Table {
	t := &Table{Model: "f1", Method: "psvm", Classes: classes, Planes: classes}
	if len(classes) == 2 {
		t.Planes = classes[1:]
	}
	for range rows {
		t.Labels = append(t.Labels, int32(r.IntN(len(classes))))
		for range t.Planes {
			t.Values = append(t.Values, r.NormFloat64()*math.Pow(10, float64(r.IntN(40)-20)))
		}
	}
	t.Rule = decision.ByValue(len(classes))
	if curves {
		var of []calibration.Curve
		for range t.Planes {
			of = append(of, calibration.Sigmoid{A: -1, B: r.NormFloat64()})
		}
		t.Rule = decision.ByProbability(of)
	}
	return t
}

// itself is the table as a client should read it.
func (t *Table) itself() decoded {
	var d decoded
	for i, label := range t.Labels {
		d.labels = append(d.labels, t.Classes[label])
		d.values = append(d.values, slices.Clone(t.Shown(i)))
		if t.Probable() {
			p := make([]float64, len(t.Classes))
			t.Probabilities(p, i)
			d.probabilities = append(d.probabilities, p)
		}
	}
	return d
}

func written(t *testing.T, table *Table, form Form) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := table.Write(&out, form); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// requireSame compares labels and the bits of all numbers.
func requireSame(t *testing.T, how string, got, want decoded) {
	t.Helper()
	if !slices.Equal(got.labels, want.labels) {
		t.Fatalf("%s: the labels are %.200q, want %.200q", how, got.labels, want.labels)
	}
	for name, pair := range map[string][2][][]float64{"values": {got.values, want.values}, "probabilities": {got.probabilities, want.probabilities}} {
		same := slices.EqualFunc(pair[0], pair[1], func(a, b []float64) bool {
			return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
		})
		if !same {
			t.Fatalf("%s: the %s are %.200v, want %.200v", how, name, pair[0], pair[1])
		}
	}
}

// All forms, read by other libraries, have the labels and the bits of the table.
func TestForms(t *testing.T) {
	r := rand.New(rand.NewPCG(18, 8))
	for _, test := range []struct {
		classes []string
		rows    int
		curves  bool
	}{
		{[]string{"ham", "spam"}, 1, true},
		{[]string{"ham", "spam"}, 3, false},
		{hostile, 2000, true},
		{hostile, 5, false},
		{hostile[:2], 70_000, true}, // several batches of Arrow
	} {
		table := newTable(r, test.classes, test.rows, test.curves)
		want := table.itself()
		requireSame(t, "columns", readColumns(t, written(t, table, Columns)), want)
		requireSame(t, "rows", readRows(t, table, written(t, table, Rows)), want)
		requireSame(t, "csv", readCSV(t, table, written(t, table, CSV)), want)
		requireSame(t, "arrow", readArrow(t, table, written(t, table, Arrow)), want)
	}
}

func readColumns(t *testing.T, text []byte) decoded {
	t.Helper()
	var a PredictAnswer
	strictly(t, text, &a)
	if a.Model != "f1" || a.Method != "psvm" {
		t.Fatalf("the model is %q, by %q", a.Model, a.Method)
	}
	return decoded{a.Labels, a.Values, a.Probabilities}
}

func readRows(t *testing.T, table *Table, text []byte) (d decoded) {
	t.Helper()
	var a PredictRowsAnswer
	strictly(t, text, &a)
	if a.Model != "f1" || a.Method != "psvm" || a.Decision != table.Rule.Kind() || a.Calibration != table.calibration() {
		t.Fatalf("the model is %q, by %q, with %q", a.Model, a.Method, a.Calibration)
	}
	byName := func(names []string, of map[string]float64) (list []float64) {
		if len(of) != len(names) {
			t.Fatalf("%v are not of %q", of, names)
		}
		for _, name := range names {
			list = append(list, of[name])
		}
		return list
	}
	for _, row := range a.Rows {
		d.labels = append(d.labels, row.Label)
		d.values = append(d.values, byName(table.Planes, row.Values))
		if table.Probable() {
			d.probabilities = append(d.probabilities, byName(table.Classes, row.Probabilities))
		}
	}
	return d
}

func strictly(t *testing.T, text []byte, into any) {
	t.Helper()
	reader := json.NewDecoder(bytes.NewReader(text))
	reader.DisallowUnknownFields()
	if err := reader.Decode(into); err != nil {
		t.Fatalf("%v: %.200s", err, text)
	}
}

func readCSV(t *testing.T, table *Table, text []byte) (d decoded) {
	t.Helper()
	lines, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	requireNames(t, table, lines[0])
	for _, line := range lines[1:] {
		d.labels = append(d.labels, line[0])
		var numbers []float64
		for _, field := range line[1:] {
			x, err := strconv.ParseFloat(field, 64)
			if err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, x)
		}
		d.values = append(d.values, numbers[:len(table.Planes)])
		if table.Probable() {
			d.probabilities = append(d.probabilities, numbers[len(table.Planes):])
		}
	}
	return d
}

func requireNames(t *testing.T, table *Table, names []string) {
	t.Helper()
	want := []string{"label"}
	for _, class := range table.Planes {
		want = append(want, "value_"+class)
	}
	for _, class := range table.Classes {
		if table.Probable() {
			want = append(want, "probability_"+class)
		}
	}
	if !slices.Equal(names, want) {
		t.Fatalf("the columns are %q, want %q", names, want)
	}
}

func readArrow(t *testing.T, table *Table, stream []byte) (d decoded) {
	t.Helper()
	reader, err := ipc.NewReader(bytes.NewReader(stream))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Release()
	var names []string
	for _, f := range reader.Schema().Fields() {
		names = append(names, f.Name)
	}
	requireNames(t, table, names)
	metadata := reader.Schema().Metadata().ToMap()
	if metadata["model"] != "f1" || metadata["method"] != "psvm" || metadata["decision"] != string(table.Rule.Kind()) || metadata["calibration"] != string(table.calibration()) {
		t.Fatalf("the metadata are %q", metadata)
	}
	for reader.Next() {
		batch := reader.RecordBatch()
		labels := batch.Column(0).(*array.Dictionary)
		texts := labels.Dictionary().(*array.String)
		if numbers := int(batch.NumRows()) * len(names); numbers > batchNumbers+len(names) {
			t.Fatalf("a batch has %d numbers", numbers)
		}
		for i := range int(batch.NumRows()) {
			d.labels = append(d.labels, texts.Value(labels.GetValueIndex(i)))
			var numbers []float64
			for j := 1; j < len(names); j++ {
				numbers = append(numbers, batch.Column(j).(*array.Float64).Value(i))
			}
			d.values = append(d.values, numbers[:len(table.Planes)])
			if table.Probable() {
				d.probabilities = append(d.probabilities, numbers[len(table.Planes):])
			}
		}
	}
	if err := reader.Err(); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return d
}

// Labels with CRLF, and all hostile ones, come back when the daemon itself reads the CSV.
func TestLabelsSurviveCSV(t *testing.T) {
	classes := append([]string{"cr\r\nlf", "\r"}, hostile...)
	table := newTable(rand.New(rand.NewPCG(1, 1)), classes, 300, false)
	d, err := wire.NewDecoder(wire.Options{Label: "label"})
	if err != nil {
		t.Fatal(err)
	}
	block, err := d.Decode(CSV.ContentType(), written(t, table, CSV))
	if err != nil {
		t.Fatal(err)
	}
	for i, code := range block.Codes {
		if got, want := block.Classes[code], classes[table.Labels[i]]; got != want && got != strings.TrimPrefix(want, "+") {
			t.Errorf("row %d: %q, want %q", i, got, want) // +1 is the number 1
		}
	}
}

// Contributions and leverages by rows are those by columns.
func TestRowsHaveAllParts(t *testing.T) {
	m := &incremental.Model{
		Features: []string{"len", `"caps"`}, Classes: []string{"ham", "spam"}, Mean: []float64{1, 0.25},
		Planes: []incremental.Plane{{Class: "spam", W: []float64{1, -2}, Gamma: 0.5}},
	}
	columns := []gram.Column{gram.ColumnOf([]float64{2, 0}), gram.ColumnOf([]float64{0.5, 1})}
	table := newTable(rand.New(rand.NewPCG(2, 2)), m.Classes, 2, true)
	table.Features, table.Contributions = m.Features, model.NewContributions(m, columns, 1)
	table.Leverages, table.Typical = []float64{0.5, 0.75}, []float64{0.25}
	var byColumns PredictAnswer
	strictly(t, written(t, table, Columns), &byColumns)
	var byRows PredictRowsAnswer
	strictly(t, written(t, table, Rows), &byRows)
	if byRows.AtMean["spam"] != byColumns.Contributions.AtMean[0] || !slices.Equal(byRows.TypicalLeverage, byColumns.Leverage.Typical) {
		t.Errorf("%+v", byRows)
	}
	for i, row := range byRows.Rows {
		if !slices.Equal(row.Leverage, byColumns.Leverage.Rows[i]) || fmt.Sprint(row.Contributions["spam"]) != fmt.Sprint(byColumns.Contributions.Rows[i][0]) || len(row.Contributions["spam"]) != 1 {
			t.Errorf("row %d: %+v", i, row)
		}
	}
}

// The first error of the writer is returned, and nothing is written after it. No number
// that JSON lacks is written.
func TestErrors(t *testing.T) {
	broken := errors.New("broken pipe")
	for form := range Form(4) {
		table := newTable(rand.New(rand.NewPCG(3, 3)), hostile, 20_000, true)
		calls := 0
		err := table.Write(writerFunc(func(p []byte) (int, error) {
			calls++
			if calls == 2 {
				return 0, broken
			}
			return len(p), nil
		}), form)
		if !errors.Is(err, broken) || calls != 2 {
			t.Errorf("form %d: %v after %d calls", form, err, calls)
		}
		table.Values[0] = math.NaN()
		if err := table.Write(iotest.TruncateWriter(io.Discard, 0), form); form != Arrow && (err == nil || !strings.Contains(err.Error(), "NaN")) {
			t.Errorf("form %d: %v", form, err)
		}
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// The memory for an answer does not depend on the number of rows.
func TestAllocations(t *testing.T) {
	for _, form := range []Form{Columns, Rows, CSV} {
		table := newTable(rand.New(rand.NewPCG(4, 4)), hostile, 10_000, true)
		got := testing.AllocsPerRun(3, func() {
			if err := table.Write(io.Discard, form); err != nil {
				t.Fatal(err)
			}
		})
		if got > 200 { // a few for each class
			t.Errorf("form %d: %v allocations", form, got)
		}
	}
}
