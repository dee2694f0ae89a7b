package dataset

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"streamd/incremental"
	"streamd/ingest/wire"
)

// opened is the dataset of a file with this text.
func opened(t *testing.T, name, text string, options wire.Options, watch Watch) *Dataset {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Open(path, options, watch)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A reading gives every row once, in order, with its number, and its progress is a share of the
// file that grows to all of it. The sums are those of the rows.
func TestEachReadsAllRows(t *testing.T) {
	const rows = 20_000
	var text strings.Builder
	for i := range rows {
		fmt.Fprintf(&text, "%d,%d,%d\n", i%2, i, i%7)
	}
	var at func() (int64, float64)
	tasks, stopped := []string{}, 0
	d := opened(t, "rows.csv", text.String(), wire.Options{}, func(task string, now func() (int64, float64)) func() {
		tasks, at = append(tasks, task), now
		return func() { stopped++ }
	})
	if !slices.Equal(d.Features, []string{"x1", "x2"}) {
		t.Errorf("the features are %q", d.Features)
	}
	d.Cut(1000)
	var mu sync.Mutex
	var shares []float64
	next := int64(0)
	err := Each(t.Context(), d, "counting", func(_ int, b *incremental.Block, firstRow int64) (int64, error) {
		for i := range b.Rows() {
			if got := b.Columns[0].At(i); got != float64(firstRow+int64(i)) {
				return 0, fmt.Errorf("row %d is %v", firstRow+int64(i), got)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		_, share := at()
		shares = append(shares, share)
		return firstRow, nil
	}, func(firstRow int64) error {
		if firstRow != next {
			return fmt.Errorf("the block of row %d comes when that of %d is due", firstRow, next)
		}
		next += 1000
		return nil
	})
	if err != nil || next != rows {
		t.Fatal(next, err)
	}
	read, all := at()
	if read != rows || all != 1 || slices.Min(shares) <= 0 || slices.Max(shares) > 1 || !slices.Equal(tasks, []string{"counting"}) || stopped != 1 {
		t.Errorf("%d rows were read, and %v of the file; on the way %v; tasks %q", read, all, shares, tasks)
	}
	sums, err := d.Sum(t.Context())
	if err != nil || sums.Rows() != rows || sums.Classes() != 2 {
		t.Errorf("sums of %d rows, %v", sums.Rows(), err)
	}
}

// An error about a row names its place in the file, and not in its block.
func TestErrorsNameTheRowOfTheFile(t *testing.T) {
	const bad = 2345
	var text strings.Builder
	text.WriteString("label,v,x\n")
	for i := range 3000 {
		switch i {
		case bad:
			text.WriteString("a,1,1e39\n")
		case 7: // weighs nothing
			text.WriteString("a,0,1e39\n")
		case 8: // as large as a number may be
			fmt.Fprintf(&text, "a,1,%v\n", -math.MaxFloat32)
		default:
			fmt.Fprintf(&text, "%c,1,%d\n", "ab"[i%2], i)
		}
	}
	d := opened(t, "rows.csv", text.String(), wire.Options{Weight: "v"}, unwatched)
	d.Cut(100)
	_, err := d.Sample(t.Context(), 10, 1, false)
	row := (*incremental.RowError)(nil)
	if !errors.As(err, &row) || row.Row != bad || row.Feature != "x" || !strings.Contains(err.Error(), d.Path) {
		t.Errorf("%v", err)
	}
}

// A feature that counts the rows is an identifier, by the first rows of the file.
func TestIdentifiers(t *testing.T) {
	var text strings.Builder
	text.WriteString("label,id,x\n")
	for i := range 500 {
		fmt.Fprintf(&text, "%c,%d,%d\n", "ab"[i%2], 1000+i, i%5)
	}
	d := opened(t, "rows.csv", text.String(), wire.Options{}, unwatched)
	if names, err := d.Identifiers(); err != nil || !slices.Equal(names, []string{"id"}) {
		t.Errorf("%q, %v", names, err)
	}
	if err := os.Remove(d.Path); err != nil {
		t.Fatal(err)
	}
	if names, err := d.Identifiers(); err == nil {
		t.Errorf("without the file %q", names)
	}
}

// A sample of sparse rows, wide or not, has their numbers, whatever share of a column is not 0, and
// fewer rows than asked for if the file has no more. Rows without a label are apart.
func TestSampleHasTheNumbersOfTheRows(t *testing.T) {
	const rows = 300
	for _, features := range []int{40, MostSummed + 40} {
		for _, limit := range []int{7, 250, rows, 2 * rows} {
			value := func(i, j int) float64 {
				switch {
				case j == 0: // of every row
					return float64(i + 1)
				case j == 1 && i%5 > 0, j == 2 && i%9 == 0, j == 3+i%30, j == features-1 && i == rows-1:
					return float64(j) - 0.5*float64(i)
				}
				return 0
			}
			var text strings.Builder
			for i := range rows {
				text.WriteString([]string{"b", "a", "?"}[i%3])
				for j := range features {
					if x := value(i, j); x != 0 {
						fmt.Fprintf(&text, " %d:%v", j+1, x)
					}
				}
				text.WriteByte('\n')
			}
			d := opened(t, "rows.libsvm", text.String(), wire.Options{KeepUnlabelled: true, UnlabelledText: "?", Features: incremental.DefaultFeatures(features)}, unwatched)
			d.Cut(32)
			if d.Wide() != (features > MostSummed) || len(d.Features) != features {
				t.Fatalf("%d features, wide %t", len(d.Features), d.Wide())
			}
			for unlabelled, classes := range map[bool][]string{false: {"a", "b"}, true: {incremental.Unlabelled}} {
				s, err := d.Sample(t.Context(), limit, 3, unlabelled)
				if err != nil {
					t.Fatal(err)
				}
				all := rows / 3
				if !unlabelled {
					all = rows - all
				}
				if s.Rows() != min(limit, all) || !slices.Equal(s.Classes, classes) || s.Weights != nil || !slices.IsSorted(s.Numbers) || len(s.Order) != s.Rows() {
					t.Fatalf("%d of %d rows, of %q, in the order %v", s.Rows(), all, s.Classes, s.Order)
				}
				for row, number := range s.Numbers {
					if s.Classes[s.Codes[row]] != []string{"b", "a", incremental.Unlabelled}[number%3] {
						t.Fatalf("row %d is of class %q", number, s.Classes[s.Codes[row]])
					}
					for j, column := range s.Columns {
						if got := column.At(row); got != value(int(number), j) {
							t.Fatalf("%d features, %d rows: x%d of row %d is %v, want %v", features, limit, j+1, number, got, value(int(number), j))
						}
					}
				}
			}
		}
	}
}

// A reading ends with its context.
func TestEachEndsWithItsContext(t *testing.T) {
	d := opened(t, "rows.csv", strings.Repeat("1,2\n0,3\n", 5000), wire.Options{}, unwatched)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Sum(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A second file may have the columns in another order, and further ones. It must have all of them.
func TestAlignedFile(t *testing.T) {
	d := opened(t, "rows.csv", "label,x,y\na,1,2\nb,3,4\n", wire.Options{}, unwatched)
	path := filepath.Join(t.TempDir(), "other.csv")
	for text, ok := range map[string]bool{"y,more,label,x\n20,7,a,10\n": true, "y,label\n20,a\n": false} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		other, err := d.Aligned(path)
		if ok != (err == nil) {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil {
			continue
		}
		err = Each(t.Context(), other, "reading", func(_ int, b *incremental.Block, _ int64) ([2]float64, error) {
			return [2]float64{b.Columns[0].At(0), b.Columns[1].At(0)}, nil
		}, func(row [2]float64) error {
			if row != [2]float64{10, 20} {
				t.Errorf("the row is %v", row)
			}
			return nil
		})
		if err != nil || !slices.Equal(other.Features, d.Features) {
			t.Errorf("%q, %v", other.Features, err)
		}
	}
}

// Sums of a wide file count its rows by class, and have no features.
func TestSumOfAWideFile(t *testing.T) {
	d := opened(t, "rows.libsvm", fmt.Sprintf("a 1:1 %d:2\nb 2:3\na 3:4\n", MostSummed+1), wire.Options{}, unwatched)
	sums, err := d.Sum(t.Context())
	if err != nil || sums.Rows() != 3 || len(sums.Features()) != 0 || sums.Totals()[0].Rows != 2 {
		t.Errorf("%d rows of %d features, %+v, %v", sums.Rows(), len(sums.Features()), sums.Totals(), err)
	}
}

// Blocks of wide rows have fewer of them, so that their memory is bounded.
func TestBlocksOfWideRowsAreBounded(t *testing.T) {
	const n = 1000
	d := opened(t, "wide.csv", "0"+strings.Repeat(",1", n)+"\n1"+strings.Repeat(",2", n)+"\n", wire.Options{}, unwatched)
	if len(d.Features) != n || d.blockRows < 1 || d.blockRows*n > maxBlockCells {
		t.Errorf("blocks of %d rows of %d features, and at most %d numbers", d.blockRows, len(d.Features), maxBlockCells)
	}
}
