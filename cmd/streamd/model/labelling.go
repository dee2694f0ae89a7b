package model

import (
	"context"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/kernels/reduce"
)

// MostClustered bounds the rows that are clustered for label requests: as many with a label, and
// as many without.
const MostClustered = 10_000

// ToLabel says which rows to label next.
type ToLabel struct {
	Rows     int // that were clustered
	Clusters int
	Labelled int // clusters whose middle has a label already
	Requests []struct {
		Row   int     // of the rows without a label
		Share float64 // of all rows in its cluster, by weight
	}
}

// ChooseToLabel divides rows with and without a label into up to count clusters. A cluster whose
// middle has a label needs no other. sigma is the standard deviation of each feature, in whose
// units distances are measured. Both blocks have weights.
func ChooseToLabel(ctx context.Context, labelled, open *incremental.Block, sigma []float64, count int) (*ToLabel, error) {
	known, m := labelled.Rows(), labelled.Rows()+open.Rows()
	clustering := reduce.Representatives{Count: count, Weights: append(labelled.Weights[:known:known], open.Weights...)}
	for j := range open.Columns {
		x := make([]float64, m)
		if known > 0 {
			labelled.Columns[j].Copy(x[:known], 0)
		}
		open.Columns[j].Copy(x[known:], 0)
		for i := range x {
			x[i] /= sigma[j]
		}
		clustering.Columns = append(clustering.Columns, gram.ColumnOf(x))
	}
	chosen, err := clustering.Choose(ctx)
	if err != nil {
		return nil, err
	}
	var all float64
	for _, c := range chosen {
		all += c.Weight
	}
	out := &ToLabel{Rows: m, Clusters: len(chosen)}
	for _, c := range chosen {
		if c.Row < known {
			out.Labelled++
			continue
		}
		out.Requests = append(out.Requests, struct {
			Row   int
			Share float64
		}{c.Row - known, c.Weight / all})
	}
	return out, nil
}
