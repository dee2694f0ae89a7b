package sample

import (
	"streamd/incremental"
	"streamd/incremental/exact"
)

// StandFor returns, by class and by weight, the number of rows of the totals that each
// row stands for. It is exactly 1 where the block has all rows of the class.
func StandFor(rows *incremental.Block, totals []incremental.ClassTotal) map[string]float64 {
	sums := exact.NewVector(len(rows.Classes))
	for i, c := range rows.Codes {
		sums.Add(int(c), rows.Weight(i))
	}
	seen := make(map[string]float64, len(rows.Classes))
	for c, label := range rows.Classes {
		seen[label], _ = sums.Split(c)
	}
	u := map[string]float64{}
	for _, t := range totals {
		if sum := seen[t.Label]; sum > 0 {
			u[t.Label] = t.Weight / sum
		}
	}
	return u
}

// Weigh multiplies each row's weight by the rows that it stands for. The result shares
// the rows' memory.
func Weigh(rows *incremental.Block, totals []incremental.ClassTotal) *incremental.Block {
	b := *rows
	u := StandFor(&b, totals)
	weights := make([]float64, b.Rows())
	for i, c := range b.Codes {
		weights[i] = u[b.Classes[c]] * b.Weight(i)
	}
	b.Weights = weights
	return &b
}
