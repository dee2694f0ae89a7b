package ndc

import (
	"math"
	"os"
	"slices"
	"testing"
)

// requireGroups skips a test where there are no kernels. With STREAMD_REQUIRE_VARIANTS
// set it fails instead.
func requireGroups(t *testing.T) {
	t.Helper()
	if hasGroups {
		return
	}
	const why = "this processor has no AVX-512 with DQ, or this is a build without assembly"
	if os.Getenv("STREAMD_REQUIRE_VARIANTS") != "" {
		t.Fatal(why)
	}
	t.Skip("NOT TESTED: " + why)
}

// TestGroups compares the kernels' points with those of place, to the bit, and checks that
// nothing behind them is touched.
func TestGroups(t *testing.T) {
	requireGroups(t)
	const untouched = 77.5
	features := []int{63, 64, 65, 100, 255}
	for n := 1; n <= 35; n++ {
		features = append(features, n)
	}
	for _, n := range features {
		g := mustNew(t, Config{Features: n, Seed: uint64(n)})
		scalar, groups := g.newSampler(false), g.newSampler(true)
		for _, rows := range []int{0, 1, 2, 15, 16, 17, 100, 1000, groups.batch, groups.batch + 1} {
			if n*n*rows > 1<<20 {
				continue
			}
			for _, stream := range []Stream{Train, Test} {
				for _, first := range []int64{0, 12_345, MaxPoints - int64(rows)} {
					wantColumns, wantCodes := buffers(n, rows+1)
					columns, codes := buffers(n, rows+1)
					for j := range columns {
						columns[j][rows], wantColumns[j][rows] = untouched, untouched
					}
					scalar.Fill(wantColumns, wantCodes[:rows], stream, first)
					groups.Fill(columns, codes[:rows], stream, first)
					if !slices.Equal(codes, wantCodes) {
						t.Fatalf("n=%d, %d rows from %d of stream %d: other classes", n, rows, first, stream)
					}
					for j := range columns {
						for i, x := range columns[j] {
							if math.Float32bits(x) != math.Float32bits(wantColumns[j][i]) {
								t.Fatalf("n=%d, %d rows from %d of stream %d: coordinate %d of row %d is %v, not %v",
									n, rows, first, stream, j, i, x, wantColumns[j][i])
							}
						}
					}
				}
			}
		}
	}
}
