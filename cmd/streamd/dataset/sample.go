package dataset

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// Sample is a sample of a file's rows. Its classes are in canonical order.
type Sample struct {
	*incremental.Block
	Numbers []int64 // of the rows in the file, from 0, ascending
	Order   []int   // a random order of the rows
}

// Sample reads a sample of up to limit rows of weight > 0, with a label or without. The rows
// have the least hashes of seed and number, and so are the same however the file is read.
func (d *Dataset) Sample(ctx context.Context, limit int, seed uint64, unlabelled bool) (*Sample, error) {
	type candidate struct {
		hash   uint64
		number int64
		x      []float64
		at     []int32 // features of x; nil: all, or x has none
		class  string
		weight float64
	}
	var pool []candidate
	var below atomic.Uint64 // larger hashes are not among the least
	below.Store(math.MaxUint64)
	least := func() {
		slices.SortFunc(pool, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.number, b.number))
		})
		pool = pool[:min(len(pool), limit)]
		if len(pool) == limit {
			below.Store(pool[limit-1].hash)
		}
	}
	key := mix(seed)
	numbers := 0 // that have been read
	err := Each(ctx, d, "taking a sample",
		func(_ int, b *incremental.Block, firstRow int64) (some []candidate, err error) {
			bound := below.Load()
			for i, code := range b.Codes {
				c := candidate{number: firstRow + int64(i), class: b.Classes[code], weight: b.Weight(i)}
				c.hash = mix(key + uint64(c.number))
				if c.weight == 0 || (c.class == incremental.Unlabelled) != unlabelled || c.hash > bound {
					continue
				}
				if d.Wide() {
					c.at, c.x = nonZero(b.Columns, i)
				} else {
					c.x = make([]float64, len(b.Columns))
					for j, column := range b.Columns {
						c.x[j] = column.At(i)
					}
				}
				some = append(some, c)
			}
			return some, inRange(b, d.Features)
		},
		func(some []candidate) error {
			pool = append(pool, some...)
			for i := range some {
				numbers += len(some[i].x)
			}
			if numbers > d.most {
				return fmt.Errorf("read %s: rows of %d features have more than %d numbers other than 0, which do not fit into memory", d.Path, len(d.Features), d.most)
			}
			if len(pool) >= 2*limit {
				least()
			}
			return nil
		})
	if err != nil {
		return nil, err
	}
	least()
	slices.SortFunc(pool, func(a, b candidate) int { return cmp.Compare(a.number, b.number) })

	r := &Sample{Block: new(incremental.Block)}
	for i := range pool {
		r.Order = append(r.Order, i)
	}
	slices.SortFunc(r.Order, func(i, j int) int { return cmp.Compare(pool[i].hash, pool[j].hash) })
	for i := range pool {
		r.Classes = append(r.Classes, pool[i].class)
	}
	slices.SortFunc(r.Classes, incremental.CompareLabels)
	r.Classes = slices.Compact(r.Classes)
	weighted := false
	columns := make([][]float64, len(d.Features))
	places := make([][]int32, len(d.Features)) // of the numbers of a column; nil: all rows
	for row, c := range pool {
		r.Numbers = append(r.Numbers, c.number)
		at, _ := slices.BinarySearchFunc(r.Classes, c.class, incremental.CompareLabels)
		r.Codes = append(r.Codes, int32(at))
		r.Weights = append(r.Weights, c.weight)
		weighted = weighted || c.weight != 1
		for k, x := range c.x {
			j := k
			if c.at != nil {
				j = int(c.at[k])
				places[j] = append(places[j], int32(row))
			}
			columns[j] = append(columns[j], x)
		}
	}
	if !weighted {
		r.Weights = nil
	}
	for j, column := range columns {
		switch {
		case !d.Wide() || len(column) == len(pool):
			r.Columns = append(r.Columns, gram.ColumnOf(column))
		case 3*len(column) < 2*len(pool): // 12 bytes for a number and its place
			r.Columns = append(r.Columns, gram.SparseColumn(len(pool), places[j], column))
		default:
			dense := make([]float64, len(pool))
			for k, row := range places[j] {
				dense[row] = column[k]
			}
			r.Columns = append(r.Columns, gram.ColumnOf(dense))
		}
	}
	return r, nil
}

// mostNumbersRead bounds the numbers of the rows in memory. With their places it is 3 GiB.
const mostNumbersRead = 1 << 28

// nonZero returns the numbers of a row that are not 0, with their features.
func nonZero(columns []gram.Column, row int) (at []int32, x []float64) {
	for j, column := range columns {
		if v := column.At(row); v != 0 {
			at, x = append(at, int32(j)), append(x, v)
		}
	}
	return at, x
}

// inRange refuses numbers that are out of range for sums of the features. Kernels of such
// numbers are meaningless.
func inRange(b *incremental.Block, features []string) error {
	for j, column := range b.Columns {
		for i := range b.Codes {
			if x := column.At(i); !(math.Abs(x) <= math.MaxFloat32) && b.Weight(i) > 0 {
				return &incremental.RowError{Row: i, Feature: features[j], Reason: fmt.Sprintf("the value is %v, beyond 3.4e38 in magnitude", x)}
			}
		}
	}
	return nil
}
