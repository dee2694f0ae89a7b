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
	const rows, seed = 20_000, 9
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
	data.Cut(500)
	for _, limit := range []int{1, 2, 3, 700} {
		least := slices.Clone(all[:limit])
		slices.SortFunc(least, func(a, b row) int { return a.number - b.number })
		sample, err := data.Sample(t.Context(), limit, seed, false)
		if err != nil {
			t.Fatal(err)
		}
		if sample.Rows() != limit || limit == 700 && !slices.Equal(sample.Classes, []string{"a", "b"}) {
			t.Fatalf("%d rows of classes %q", sample.Rows(), sample.Classes)
		}
		for i, want := range least {
			if sample.Numbers[i] != int64(want.number) || sample.Columns[0].At(i) != float64(want.number) ||
				sample.Classes[sample.Codes[i]] != "ab"[want.number%2:][:1] || sample.Weight(i) != float64(want.number%3) {
				t.Fatalf("row %d of the sample is row %d with %v, of class %d and weight %v; it should be row %d",
					i, sample.Numbers[i], sample.Columns[0].At(i), sample.Codes[i], sample.Weight(i), want.number)
			}
		}
	}
}

// A sample takes no memory for the rows that are not in it: those that come when the sample is full
// are not copied, but for the few of smaller hashes.
func TestSampleCopiesFewRows(t *testing.T) {
	const rows, limit = 20_000, 50
	d := opened(t, "rows.csv", strings.Repeat("a,1.5,2.5\nb,3.5,4.5\n", rows/2), wire.Options{}, unwatched)
	d.Cut(50)
	take := func() {
		if s, err := d.Sample(t.Context(), limit, 1, false); err != nil || s.Rows() != limit {
			t.Fatalf("%v, %v", s, err)
		}
	}
	read := testing.AllocsPerRun(1, func() {
		if _, err := d.Sum(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if n := testing.AllocsPerRun(1, take); n > read+rows/5 {
		t.Errorf("a sample of %d rows takes %v allocations, and reading the file %v", limit, n, read)
	}
}

// Rows that have more numbers than fit into memory are refused. Zeros of wide rows are none.
func TestSampleThatDoesNotFit(t *testing.T) {
	for _, c := range []struct {
		text    string
		numbers int // of the rows of a sample of all
	}{
		{strings.Repeat("0 1:1 4:2\n1 2:3 3:1\n", 15), 30 * 4},
		{strings.Repeat(fmt.Sprintf("0 1:1 %d:2\n1 2:3 3:1\n", MostSummed+1), 15), 30 * 2},
	} {
		d := opened(t, "rows.libsvm", c.text, wire.Options{}, unwatched)
		d.Cut(7)
		for most, fits := range map[int]bool{c.numbers: true, c.numbers - 1: false} {
			d.most = most
			s, err := d.Sample(t.Context(), 30, 1, false)
			if fits && (err != nil || s.Rows() != 30) || !fits && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("more than %d numbers", most))) {
				t.Errorf("of %d numbers %d fit: %v", c.numbers, most, err)
			}
		}
	}
}

// A column of a wide sample has the form that takes less memory.
func TestSampleOfSparseColumns(t *testing.T) {
	const rows = 20
	var text strings.Builder
	for i := range rows {
		fmt.Fprintf(&text, "%d", i%2)
		for j, filled := range []int{rows, 13, 14, 1} {
			if i < filled {
				fmt.Fprintf(&text, " %d:%d.5", j+1, i)
			}
		}
		fmt.Fprintf(&text, " %d:1.5\n", MostSummed+1)
	}
	s, err := opened(t, "rows.libsvm", text.String(), wire.Options{}, unwatched).Sample(t.Context(), rows, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	// A number takes 8 bytes, and with its place 12.
	for j, want := range []bool{false, true, false, true, true} {
		if _, _, sparse := s.Columns[j].NonZero(); sparse != want {
			t.Errorf("column %d is sparse: %t", j, sparse)
		}
	}
}
