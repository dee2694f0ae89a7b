package main

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

// rowSample is some rows of a file, in memory, in their order; its classes are in
// canonical order.
type rowSample struct {
	incremental.Block
	numbers []int64 // of the rows in the file
}

// sampleRows reads up to limit rows of weight > 0: those of the least hashes of
// seed and number, which are the same however the file is read.
func sampleRows(ctx context.Context, s *surroundings, d *dataset, limit int, seed uint64) (*rowSample, error) {
	type candidate struct {
		hash   uint64
		number int64
		x      []float64
		class  string
		weight float64
	}
	var pool []candidate
	var below atomic.Uint64 // hashes from here on are not among the least
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
	err := each(ctx, s, "taking a sample", d,
		func(_ int, b *incremental.Block, firstRow int64) (some []candidate, err error) {
			bound := below.Load()
			for i, code := range b.Codes {
				c := candidate{number: firstRow + int64(i), class: b.Classes[code], weight: b.Weight(i)}
				c.hash = mix(key + uint64(c.number))
				if c.weight == 0 || c.hash > bound {
					continue
				}
				c.x = make([]float64, len(b.Columns))
				for j, column := range b.Columns {
					c.x[j] = column.At(i)
				}
				some = append(some, c)
			}
			return some, inRange(b, d.features)
		},
		func(some []candidate) error {
			pool = append(pool, some...)
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

	r := &rowSample{}
	for i := range pool {
		r.Classes = append(r.Classes, pool[i].class)
	}
	slices.SortFunc(r.Classes, incremental.CompareLabels)
	r.Classes = slices.Compact(r.Classes)
	weighted := false
	columns := make([][]float64, len(d.features))
	for _, c := range pool {
		r.numbers = append(r.numbers, c.number)
		at, _ := slices.BinarySearchFunc(r.Classes, c.class, incremental.CompareLabels)
		r.Codes = append(r.Codes, int32(at))
		r.Weights = append(r.Weights, c.weight)
		weighted = weighted || c.weight != 1
		for j, x := range c.x {
			columns[j] = append(columns[j], x)
		}
	}
	if !weighted {
		r.Weights = nil
	}
	for _, column := range columns {
		r.Columns = append(r.Columns, gram.ColumnOf(column))
	}
	return r, nil
}

// inRange refuses what sums of the features would: no kernel of such numbers
// means anything.
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

// without leaves out a fold.
func (r *rowSample) without(fold int, deal *dealer) *incremental.Block {
	var rows []int
	for i, number := range r.numbers {
		if deal.of(number) != fold {
			rows = append(rows, i)
		}
	}
	return r.Pick(rows)
}

// scaled takes the features to mean 0 and variance 1 over the rows; those that
// are constant are only centred.
func scaled(b *incremental.Block) (s *incremental.Block, mean, scale []float64) {
	s = &incremental.Block{Classes: b.Classes, Codes: b.Codes, Weights: b.Weights}
	m := b.Rows()
	for _, c := range b.Columns {
		x := make([]float64, m)
		c.Copy(x, 0)
		sum := func(of func(x float64) float64) (mean float64) {
			var all float64
			for i, x := range x {
				v := b.Weight(i)
				all += v
				mean += float64(v * of(x))
			}
			return mean / all
		}
		center := sum(func(x float64) float64 { return x })
		deviation := math.Sqrt(sum(func(x float64) float64 { return float64((x - center) * (x - center)) }))
		const constant = 0x1p-40 // of the mean: what rounding leaves of a constant
		if !(deviation > constant*math.Abs(center)) {
			deviation = 1
		}
		mean, scale = append(mean, center), append(scale, deviation)
		inverse := 1 / deviation // as kernels.Map has it, so that points are among the rows
		for i := range x {
			x[i] = (x[i] - center) * inverse
		}
		s.Columns = append(s.Columns, gram.ColumnOf(x))
	}
	return s, mean, scale
}
