package reproduce

import (
	"context"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// The methods are measured on sets of the folder, the lead over random rows is their mean, and
// missing sets are named. The number of workers does not matter.
func TestSemi(t *testing.T) {
	c := &Config{Data: t.TempDir(), Seed: 1, Seeds: 2, Workers: 1}
	writeSet(t, c.Data, "one", randomSet(rand.New(rand.NewPCG(7, 1)), 150, 3, 2))
	writeSet(t, c.Data, "two", randomSet(rand.New(rand.NewPCG(7, 2)), 120, 2, 2))
	table := semi{
		mus: exponents{low: -3, high: -2}, nus: exponents{low: 0, high: 1},
		entries: []semiEntry{{name: "One", file: "one", share: 0.1}, {name: "Two", file: "two", share: 0.1}},
	}
	results, err := table.run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	c.Workers = 4
	again, err := table.run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	methods := len(semiMethods)
	if len(results) != 2*methods+2 {
		t.Fatalf("%d results", len(results))
	}
	for i := range results {
		r, s := &results[i], &again[i]
		r.Seconds, r.TotalSeconds, s.Seconds, s.TotalSeconds = 0, 0, 0, 0
		if !reflect.DeepEqual(r, s) {
			t.Errorf("with one worker\n%+v\nwith four\n%+v", *r, *s)
		}
		if i < 2*methods && (r.Method != semiMethods[i%methods] || !(*r.Test > 0.5) || *r.Test > 1 || !(r.Programs >= 1)) {
			t.Errorf("%+v", *r)
		}
		if i < 2*methods && i%methods == cvs3vmOne && *r.Test > *results[i-1].Test {
			t.Errorf("%s: one μ is better than the best of each division", r.DataSet)
		}
	}
	for k := range 2 {
		lead := 0.0
		for i := 0; i < 2*methods; i += methods {
			lead += (*results[i+cvs3vm+k].Test - *results[i+randomSVM].Test) / 2
		}
		if mean := results[2*methods+k]; math.Abs(*mean.Test-lead) > 1e-12 || !(*mean.StandardError > 0) || mean.Seeds != 2 {
			t.Errorf("a lead of %v: %+v", lead, mean)
		}
	}
	table.entries[0].file = "none"
	if results, err = table.run(context.Background(), c); err != nil || len(results) != 1+methods || !strings.Contains(results[0].Fault(), "no none.csv.gz") {
		t.Errorf("without a file: %+v, %v", results, err)
	}
}

// The planes of the figures have the order of the thesis.
func TestSemiFigure(t *testing.T) {
	results := run(t, "fig-5.1", &Config{Seed: 1})
	if len(results) != 3 {
		t.Fatalf("%d results", len(results))
	}
	for i, r := range results {
		if i > 0 && *r.Test >= *results[i-1].Test || r.Fault() != "" {
			t.Errorf("%+v", r)
		}
	}
}
