package incremental

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// Rows without a label have no effect on the sums of the classes, on the digest that
// decides about fold and sample, and on the planes: to the last bit, also where they are
// outliers, have weights, or are the probes of the origin.
func TestUnlabelledRowsChangeNoPlane(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 1))
	for try := range 60 {
		rows := randomTable(r, 40+r.IntN(200), 3, 3)
		if try%2 == 0 {
			rows.weights = make([]float64, len(rows.x))
			for i := range rows.weights {
				rows.weights[i] = float64(r.IntN(3)) * (1 + r.Float64())
			}
		}
		for i := range rows.x {
			if i == 0 || i == len(rows.x)-1 || r.IntN(3) == 0 {
				rows.label[i] = Unlabelled
				rows.x[i][1] *= 1e9
			} else if try%3 == 0 && r.IntN(20) == 0 {
				rows.x[i][2] = -1e8 // moves the origin of the others
			}
		}
		b := rows.block(0, len(rows.x))
		with, without := summarise(t, b), summarise(t, b.Labelled())
		if with.Digest() == without.Digest() || with.LabelledDigest() != without.Digest() || without.LabelledDigest() != without.Digest() {
			t.Fatal("the labelled digest is not that of the rows with labels")
		}
		if got := with.Unlabelled() + without.Rows(); without.Unlabelled() != 0 || got != with.Rows() {
			t.Fatalf("%d rows, want %d", got, with.Rows())
		}
		labelled := slices.DeleteFunc(slices.Clone(with.classes), func(c classSummary) bool { return c.label == Unlabelled })
		kept := &Summary{origin: with.origin, classes: labelled}
		if !bytes.Equal(kept.AppendBinary(nil), without.AppendBinary(nil)) {
			t.Fatal("rows without a label show in the sums of the classes")
		}
		again, err := new(Summariser).SummariseLike(t.Context(), with, b)
		if err != nil || again.Digest() != with.Digest() {
			t.Fatal("the same rows have another summary the second time")
		}

		both, alone := sumOf(3, with), sumOf(3, without)
		if both.Classes() != 3 || !slices.Equal(both.Labels(), alone.Labels()) || !slices.Equal(both.Totals(), alone.Totals()) {
			t.Fatalf("classes %v, want %v", both.Totals(), alone.Totals())
		}
		if got := both.Unlabelled(); got.Rows != with.Unlabelled() || got.Rows == 0 || alone.Has(Unlabelled) {
			t.Fatalf("%d rows without a label, want %d", got.Rows, with.Unlabelled())
		}
		o := Options{Nu: 1, Standardise: try%4 < 2, Balanced: try%8 < 4}
		planes, err := both.Moments().Solve(o)
		want, failed := alone.Moments().Solve(o)
		if err != nil || failed != nil || !reflect.DeepEqual(planes, want) {
			t.Fatalf("planes %+v, %v\nwant %+v, %v", planes, err, want, failed)
		}

		decoded, err := DecodeState(both.AppendBinary(nil))
		if err != nil || decoded.Digest() != both.Digest() {
			t.Fatalf("the state is decoded as another one: %v", err)
		}
		if s, err := DecodeSummary(with.AppendBinary(nil)); err != nil || s.Digest() != with.Digest() {
			t.Fatalf("the summary is decoded as another one: %v", err)
		}
		both.Remove(with)
		if both.Digest() != NewState(nil).Digest() {
			t.Fatal("rows without a label stay after their block")
		}
	}
}

// A block of rows without a label alone has an origin and sums like any other.
func TestBlockWithoutLabels(t *testing.T) {
	rows := randomTable(rand.New(rand.NewPCG(9, 2)), 100, 3, 1)
	labelled := summarise(t, rows.block(0, 100))
	for i := range rows.label {
		rows.label[i] = Unlabelled
	}
	s := summarise(t, rows.block(0, 100))
	if s.Unlabelled() != 100 || s.LabelledDigest() != s.Digest() || !slices.Equal(s.origin, labelled.origin) ||
		!slices.Equal(s.classes[0].cross, labelled.classes[0].cross) {
		t.Error("the sums depend on the label")
	}
	state := sumOf(3, s)
	if _, err := state.Moments().Solve(Options{Nu: 1}); err != ErrClasses || state.Classes() != 0 || state.Rows() != 100 {
		t.Errorf("%d classes, %d rows, %v", state.Classes(), state.Rows(), err)
	}
}
