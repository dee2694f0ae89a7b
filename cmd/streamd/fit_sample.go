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

// rowSample is some rows of a file, in memory, in their order.
type rowSample struct {
	numbers []int64 // of the rows in the file
	columns []gram.Column
	classes []string // in canonical order
	codes   []int32
	weights []float64 // nil: 1 each
}

func (r *rowSample) rows() int { return len(r.codes) }

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
				c := candidate{number: firstRow + int64(i), class: b.Classes[code], weight: 1}
				if b.Weights != nil {
					c.weight = b.Weights[i]
				}
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
		r.classes = append(r.classes, pool[i].class)
	}
	slices.SortFunc(r.classes, incremental.CompareLabels)
	r.classes = slices.Compact(r.classes)
	weighted := false
	columns := make([][]float64, len(d.features))
	for _, c := range pool {
		r.numbers = append(r.numbers, c.number)
		r.codes = append(r.codes, int32(slices.Index(r.classes, c.class)))
		r.weights = append(r.weights, c.weight)
		weighted = weighted || c.weight != 1
		for j, x := range c.x {
			columns[j] = append(columns[j], x)
		}
	}
	if !weighted {
		r.weights = nil
	}
	for _, column := range columns {
		r.columns = append(r.columns, gram.ColumnOf(column))
	}
	return r, nil
}

// inRange refuses what sums of the features would: no kernel of such numbers
// means anything.
func inRange(b *incremental.Block, features []string) error {
	for j, column := range b.Columns {
		for i := range b.Codes {
			if x := column.At(i); !(math.Abs(x) <= math.MaxFloat32) && (b.Weights == nil || b.Weights[i] > 0) {
				return &incremental.RowError{Row: i, Feature: features[j], Reason: fmt.Sprintf("the value is %v, beyond 3.4e38 in magnitude", x)}
			}
		}
	}
	return nil
}

// pick has the given rows of the sample.
func (r *rowSample) pick(rows []int) *rowSample {
	p := &rowSample{classes: r.classes}
	for _, c := range r.columns {
		column := make([]float64, len(rows))
		for i, row := range rows {
			column[i] = c.At(row)
		}
		p.columns = append(p.columns, gram.ColumnOf(column))
	}
	for _, row := range rows {
		p.numbers, p.codes = append(p.numbers, r.numbers[row]), append(p.codes, r.codes[row])
		if r.weights != nil {
			p.weights = append(p.weights, r.weights[row])
		}
	}
	return p
}

// without leaves out a fold.
func (r *rowSample) without(fold int, deal *dealer) *rowSample {
	var rows []int
	for i, number := range r.numbers {
		if deal.of(number) != fold {
			rows = append(rows, i)
		}
	}
	return r.pick(rows)
}

func (r *rowSample) block() *incremental.Block {
	return &incremental.Block{Columns: r.columns, Classes: r.classes, Codes: r.codes, Weights: r.weights}
}

// scaled takes the features to mean 0 and variance 1 over the sample; those that
// are constant are only centred.
func (r *rowSample) scaled() (s *rowSample, mean, scale []float64) {
	s = &rowSample{numbers: r.numbers, classes: r.classes, codes: r.codes, weights: r.weights}
	m := r.rows()
	for _, c := range r.columns {
		x := make([]float64, m)
		c.Copy(x, 0)
		sum := func(of func(x float64) float64) (mean float64) {
			var all float64
			for i, x := range x {
				v := 1.0
				if r.weights != nil {
					v = r.weights[i]
				}
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
		s.columns = append(s.columns, gram.ColumnOf(x))
	}
	return s, mean, scale
}
