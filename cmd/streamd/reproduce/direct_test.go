package reproduce

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writeDivisions writes three divisions of m rows, two thirds of them to learn from.
func writeDivisions(t *testing.T, folder, name string, m int) {
	t.Helper()
	var all []string
	for k := range 3 {
		rows := rand.New(rand.NewPCG(51, uint64(k))).Perm(m)
		text := func(rows []int) string { return strings.ReplaceAll(fmt.Sprint(rows), " ", ",") }
		all = append(all, fmt.Sprintf(`{"train":%s,"test":%s}`, text(rows[:2*m/3]), text(rows[2*m/3:])))
	}
	writeZipped(t, filepath.Join(folder, name), []byte("["+strings.Join(all, ",")+"]"))
}

// Every method of the tables learns rings from few points, whatever the number of workers. What is
// too far behind is a fault.
func TestDirectTable(t *testing.T) {
	c := &Config{Data: t.TempDir(), Seed: 1, Seeds: 1}
	writeLabelled(t, c.Data, "rings", randomRings(rand.New(rand.NewPCG(52, 1)), 180))
	writeDivisions(t, c.Data, "rings.splits.json.gz", 180)
	table := directTable{methods: []directMethod{
		{name: "SVM"},
		{"SLMC", 0.3, slmc(false, 2), 5}, {"SLMC, k-means", 0.3, slmc(true, 2), 5}, {"SKFD", 0.3, sparseFisher, 5},
		{"RS", 0.3, reducedSet(false), 5}, {"MRS", 0.3, reducedSet(true), 5},
		{"RSVM", 0.3, randomRows(false), 5}, {"MRSVM", 0.3, randomRows(true), 5},
	}}
	table.sets = []directSet{{benchmark{"Rings", "rings", false}, 10, 1, make([]float64, len(table.methods)), 30}, {benchmark: benchmark{"Gone", "gone", false}, width: 1}}
	results := anyWorkers(t, table.run, c)
	if len(results) != len(table.methods)+1 || results[len(results)-1].Fault() == "" {
		t.Fatalf("%+v", results)
	}
	vectors := *results[0].Used
	for i, r := range results[:len(table.methods)] {
		least := 0.85
		if strings.Contains(r.Method, "RSVM") {
			least = 0.7 // points that stay where they are drawn
		}
		if r.Rows != 120 || r.Features != 2 || *r.Test < least || i > 0 && *r.Used > 0.3*vectors+1 {
			t.Errorf("%s: %.1f points, %.3f right: %+v", r.Method, *r.Used, *r.Test, r)
		}
	}
	// No classifier has 500 % right, by any chance that three divisions allow.
	table.sets[0].errors = slices.Repeat([]float64{-400}, 8)
	results = anyWorkers(t, table.run, c)
	for _, r := range results[:len(table.methods)] {
		if r.Fault() == "" {
			t.Errorf("%s: no fault beside an impossible figure: %+v", r.Method, r)
		}
	}
}

// Ten machines are told from each other by the largest value, and distinct points are counted.
func TestDirectDigits(t *testing.T) {
	c := &Config{Data: t.TempDir(), Seed: 1, Seeds: 1}
	r := rand.New(rand.NewPCG(53, 1))
	for _, name := range []string{"usps-train", "usps-test"} {
		s := &set{features: []string{"a", "b"}, classes: []string{"0", "1", "2"}, columns: [][]float64{nil, nil}}
		for i := range 90 {
			s.codes = append(s.codes, int32(i%3))
			s.columns[0] = append(s.columns[0], 20*float64(i%3%2)+r.NormFloat64())
			s.columns[1] = append(s.columns[1], 20*float64(i%3/2)+r.NormFloat64())
		}
		writeLabelled(t, c.Data, name, s)
	}
	table := directDigits{[]directMethod{{name: "SVM"}, {"SLMC", 0.2, slmc(true, 2), 5}}, []float64{0, 0}}
	results := anyWorkers(t, table.run, c)
	if len(results) != 2 {
		t.Fatalf("%+v", results)
	}
	for _, r := range results {
		if *r.Test < 0.95 || *r.Used < 3 || *r.Used > *results[0].Used {
			t.Errorf("%s: %v points, %.3f right", r.Method, *r.Used, *r.Test)
		}
	}
}

// The published settings are checked by the number of rows that they select.
func TestSelectionTable(t *testing.T) {
	c := &Config{Data: t.TempDir(), Seed: 1, Seeds: 1}
	writeLabelled(t, c.Data, "rings", randomRings(rand.New(rand.NewPCG(54, 1)), 180))
	writeDivisions(t, c.Data, "rings.splits-regenerated.json.gz", 180)
	table := selectionTable{[]selectionSet{{
		benchmark{"Rings", "rings", true}, 20, 10, 100, 0.1, 100, 1e-3, 0.1,
		[3]figures{{test: 95, used: 50, within: 10}, {test: 95, used: 21, within: 10}, {test: 95, used: 1, within: 10}},
	}}}
	results := anyWorkers(t, table.run, c)
	if len(results) != 3 {
		t.Fatalf("%+v", results)
	}
	for i, r := range results {
		if *r.Test < 0.85 || !strings.Contains(r.Remark, "lost") || (r.Fault() != "") != (i == 2) {
			t.Errorf("%s: %.1f points, %.3f right, fault %q", r.Method, *r.Used, *r.Test, r.Fault())
		}
	}
	if !strings.Contains(results[2].Fault(), "1.0 ± 0.2 are expected") {
		t.Errorf("%+v", results)
	}
}

// Divisions that do not fit the set are refused.
func TestDivisionsThatAreRefused(t *testing.T) {
	c := &Config{Data: t.TempDir(), Seed: 1, Seeds: 1}
	writeLabelled(t, c.Data, "rings", randomRings(rand.New(rand.NewPCG(55, 1)), 30))
	table := directTable{methods: []directMethod{{name: "SVM"}}, sets: []directSet{{benchmark{"Rings", "rings", false}, 1, 1, []float64{0}, 1}}}
	for text, want := range map[string]string{
		`[{"train":[0,1],"test":[30]}]`: "row 30 of a set of 30", `[{"train":[-1],"test":[3]}]`: "row -1",
		`[{"train":[],"test":[3]}]`: "no rows", `[]`: "no divisions", `{`: "read ",
	} {
		writeZipped(t, filepath.Join(c.Data, "rings.splits.json.gz"), []byte(text))
		if _, err := table.run(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
