package sample

import (
	"slices"
	"testing"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// A row stands for its share of the rows of its class: for exactly itself if all are
// there. A class without a row has no entry.
func TestStandFor(t *testing.T) {
	b := &incremental.Block{
		Classes: []string{"a", "b", "c"}, Codes: []int32{0, 1, 0, 1}, Weights: []float64{0.1, 3, 0.2, 0},
		Columns: []gram.Column{gram.ColumnOf([]float64{1, 2, 3, 4})},
	}
	var z incremental.Summariser
	s, err := z.Summarise(b)
	if err != nil {
		t.Fatal(err)
	}
	if u := StandFor(b, s.Totals()); len(u) != 2 || u["a"] != 1 || u["b"] != 1 {
		t.Errorf("of all rows: %v", u)
	}
	if w := Weigh(b, s.Totals()); !slices.Equal(w.Weights, b.Weights) {
		t.Errorf("all rows weigh %v", w.Weights)
	}
	totals := []incremental.ClassTotal{{Label: "a", Rows: 9, Weight: 0.5}, {Label: "b", Rows: 9, Weight: 12}, {Label: "c", Rows: 1, Weight: 1}}
	some := b.Slice(1, 4)
	w := Weigh(some, totals)
	if !slices.Equal(w.Weights, []float64{12, 0.5, 0}) || some.Weights[0] != 3 || w.Columns[0].At(1) != 3 {
		t.Errorf("rows weigh %v, and %v before", w.Weights, some.Weights)
	}
	b.Weights = nil
	if w := Weigh(b.Slice(0, 2), totals); !slices.Equal(w.Weights, []float64{0.5, 12}) {
		t.Errorf("rows without weights weigh %v", w.Weights)
	}
}
