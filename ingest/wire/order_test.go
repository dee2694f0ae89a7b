package wire_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/wire"
)

// The order of the features in a payload or a file makes no difference, unless the
// options have one.
func TestOrderOfFeatures(t *testing.T) {
	names := []string{"a", "x2", "x10", "y"}
	rng := rand.New(rand.NewPCG(51, 51))
	want := randomBlock(rng, 40, len(names), []string{"1", "-1"}, []gram.Kind{gram.Float32, gram.Int16})
	want.Features = names
	for _, format := range []wire.Format{wire.Arrow, wire.JSON, wire.CSV} {
		d := newDecoder(t, wire.Options{})
		for _, at := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}} {
			b := *want
			b.Features, b.Columns = nil, nil
			for _, j := range at {
				b.Features, b.Columns = append(b.Features, names[j]), append(b.Columns, want.Columns[j])
			}
			payload, err := wire.Encode(nil, format, &b)
			if err != nil {
				t.Fatal(err)
			}
			got, err := d.Decode(format.ContentType(), payload)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Features, names) {
				t.Errorf("%v in the order %v: features %q", format, at, got.Features)
			}
			requireSame(t, got, want)
			if n := testing.AllocsPerRun(20, func() { d.Decode(format.ContentType(), payload) }); n != 0 {
				t.Errorf("%v in the order %v: %v allocations per block", format, at, n)
			}
			given := decode(t, wire.Options{Features: b.Features}, format.ContentType(), payload)
			if !slices.Equal(given.Features, b.Features) {
				t.Errorf("%v: features %q, configured %q", format, given.Features, b.Features)
			}
			path := writeFile(t, "rows."+format.String(), payload)
			for _, rows := range []int{7, 100} {
				if got, err = readAll(path, wire.Options{}, rows); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got.Features, names) {
					t.Errorf("%v file in the order %v: features %q", format, at, got.Features)
				}
				requireSame(t, got, want)
			}
		}
	}
	// Unnamed columns keep their places, also where there are more than ten.
	wide := randomBlock(rng, 5, 12, []string{"1", "-1"}, []gram.Kind{gram.Float64})
	for _, format := range wire.Formats() {
		payload, err := wire.Encode(nil, format, wide)
		if err != nil {
			t.Fatal(err)
		}
		requireSame(t, decode(t, wire.Options{}, format.ContentType(), bytes.Clone(payload)), wide)
	}
	if !slices.IsSortedFunc(incremental.DefaultFeatures(120), incremental.CompareFeatures) {
		t.Error("the names of unnamed columns are not in the order of their places")
	}
}
