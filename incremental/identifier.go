package incremental

import (
	"math"
	"slices"
)

const (
	// fewRows may all differ in any number.
	fewRows = 10
	// mostNumbered rows are looked at. Integers that are quantities repeat among them.
	mostNumbered = 10_000
)

// Identifiers lists the columns of integers that are all different, as numbers of rows are.
// Such a column tells nothing about rows that are yet to come. Blocks of fewer than ten
// rows have none.
func (b *Block) Identifiers() (columns []int) {
	m := min(b.Rows(), mostNumbered)
	if m < fewRows {
		return nil
	}
	x := make([]float64, m)
	for j, c := range b.Columns {
		// Most columns repeat themselves among a few rows.
		if few := x[:min(m, 256)]; differs(c.Copy, few) && (len(few) == m || differs(c.Copy, x)) {
			columns = append(columns, j)
		}
	}
	return columns
}

// differs reports whether the first numbers of a column are integers that are all different.
// It sorts them.
func differs(copy func(dst []float64, from int), x []float64) bool {
	copy(x, 0)
	for _, v := range x {
		if v != math.Trunc(v) {
			return false
		}
	}
	slices.Sort(x)
	return len(slices.Compact(x)) == len(x)
}
