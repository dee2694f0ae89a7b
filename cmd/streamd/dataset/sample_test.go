package dataset

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"streamd/ingest/wire"
)

// unwatched shows nothing.
func unwatched(string, func() (int64, float64)) (stop func()) { return func() {} }

// A sample is the rows of the least hashes among those that weigh anything, in
// their order.
func TestSampleIsTheLeastHashes(t *testing.T) {
	const rows, limit, seed = 20_000, 700, 9
	path := filepath.Join(t.TempDir(), "rows.csv")
	var text strings.Builder
	text.WriteString("label,v,x\n")
	type row struct {
		number int
		hash   uint64
	}
	var all []row
	for i := range rows {
		weight := i % 3
		fmt.Fprintf(&text, "%c,%d,%d\n", "ab"[i%2], weight, i)
		if weight > 0 {
			all = append(all, row{i, mix(mix(seed) + uint64(i))})
		}
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	data, err := Open(path, wire.Options{Weight: "v"}, unwatched)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b row) int { return cmp.Compare(a.hash, b.hash) })
	all = all[:limit]
	slices.SortFunc(all, func(a, b row) int { return a.number - b.number })
	sample, err := data.Sample(t.Context(), limit, seed, false)
	if err != nil {
		t.Fatal(err)
	}
	if sample.Rows() != limit || !slices.Equal(sample.Classes, []string{"a", "b"}) {
		t.Fatalf("%d rows of classes %q", sample.Rows(), sample.Classes)
	}
	for i, want := range all {
		if sample.Numbers[i] != int64(want.number) || sample.Columns[0].At(i) != float64(want.number) ||
			sample.Codes[i] != int32(want.number%2) || sample.Weights[i] != float64(want.number%3) {
			t.Fatalf("row %d of the sample is row %d with %v, of class %d and weight %v; it should be row %d",
				i, sample.Numbers[i], sample.Columns[0].At(i), sample.Codes[i], sample.Weights[i], want.number)
		}
	}
}
