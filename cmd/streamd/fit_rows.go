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
	"streamd/incremental/sample"
	"streamd/incremental/study"
	"streamd/kernels/basis"
)

// sums are the sums of the file in some coordinates.
type sums struct {
	whole *incremental.State   // of whole blocks
	dealt *incremental.State   // of the folds
	folds []*incremental.State // of each fold; nil: the folds are not summed
}

// sum sums the file in some coordinates and, with apart, each fold on its own. Where folds
// have whole blocks, the first call must sum the features: it deals the blocks to the folds.
func (f *fit) sum(ctx context.Context, in *basis.Coordinates, apart bool) (*sums, error) {
	type summaries struct {
		whole    *incremental.Summary
		parts    []*incremental.Summary // of each fold; nil: it has no rows
		sampled  *sample.Part
		firstRow int64
	}
	names := f.data.features
	if in != nil {
		names = in.Names
	}
	if f.uncounted {
		names = nil
	}
	out := &sums{whole: incremental.NewState(names)}
	if out.dealt = out.whole; apart && f.folds > 0 {
		for range f.folds {
			out.folds = append(out.folds, incremental.NewState(names))
		}
		if f.blocks == nil {
			out.dealt = incremental.NewState(names)
		}
	}
	tools := f.tools()
	err := each(ctx, f.s, "learning", f.data,
		func(worker int, b *incremental.Block, firstRow int64) (r summaries, err error) {
			z := &tools[worker]
			b = z.enterAll(b, in)
			if f.uncounted {
				b.Features, b.Columns = nil, nil
			}
			r.firstRow = firstRow
			if r.whole, err = z.summariser.Summarise(b); err != nil {
				return r, err
			}
			if f.blocks != nil {
				if in == nil {
					r.sampled = z.taker.Take(b, r.whole.LabelledDigest(), r.whole.Totals(), f.blocks.sample.Levels())
				}
				return r, nil
			}
			r.parts = make([]*incremental.Summary, len(out.folds))
			if out.folds != nil {
				for fold, rows := range z.parts(b, firstRow) {
					if r.parts[fold], err = z.summariser.Summarise(rows); err != nil {
						return r, err
					}
				}
			}
			return r, nil
		},
		func(r summaries) error {
			out.whole.Add(r.whole)
			if r.sampled != nil {
				f.blocks.add(r.whole, r.sampled)
			}
			if f.blocks != nil && out.folds != nil {
				out.folds[f.blocks.of(r.firstRow)].Add(r.whole)
			}
			for fold, part := range r.parts {
				if part != nil {
					out.dealt.Add(part)
					out.folds[fold].Add(part)
				}
			}
			return nil
		})
	return out, err
}

// sumWithout sums the rows outside a fold, in the coordinates of the model without it.
func (f *fit) sumWithout(ctx context.Context, fold int) (*incremental.State, error) {
	in := f.foldIn[fold]
	rest := incremental.NewState(in.Names)
	tools := f.tools()
	err := each(ctx, f.s, fmt.Sprintf("learning without fold %d of %d", fold+1, f.folds), f.data,
		func(worker int, b *incremental.Block, firstRow int64) (*incremental.Summary, error) {
			z := &tools[worker]
			return z.summariser.Summarise(z.enter(z.without(b, firstRow, fold), in))
		},
		func(s *incremental.Summary) error {
			rest.Add(s)
			return nil
		})
	return rest, err
}

// fileParts are the rows of the file by fold, in the coordinates of the model.
type fileParts struct{ *fit }

// Parts implements study.Parts.
func (p fileParts) Parts(ctx context.Context, visit func(fold int, part *incremental.Block) error) error {
	tools := p.tools()
	return each(ctx, p.s, "choosing nu", p.data,
		func(worker int, b *incremental.Block, firstRow int64) (nothing struct{}, err error) {
			z := &tools[worker]
			for fold, part := range z.parts(b, firstRow) {
				if err := visit(fold, z.enter(part, p.in)); err != nil {
					return nothing, err
				}
			}
			return nothing, nil
		},
		func(struct{}) error { return nil })
}

const none = -1

// rereading reads the rows of the file outside a fold again, or all rows for none.
type rereading struct {
	f          *fit
	in         *basis.Coordinates
	without    int
	unlabelled bool // with the rows that have no label
}

// Pass implements newton.Rows.
func (r *rereading) Pass(ctx context.Context, visit func(*incremental.Block) error) error {
	tools := r.f.tools()
	return each(ctx, r.f.s, "refining", r.f.data,
		func(worker int, b *incremental.Block, firstRow int64) (nothing struct{}, err error) {
			z := &tools[worker]
			if r.without != none {
				b = z.without(b, firstRow, r.without)
			}
			if !r.unlabelled {
				b = b.Labelled()
			}
			return nothing, visit(z.enterAll(b, r.in))
		},
		func(struct{}) error { return nil })
}

// rowSample is a sample of a file's rows. Its classes are in canonical order.
type rowSample struct {
	*incremental.Block
	numbers []int64                  // of the rows in the file, ascending; nil: rows are in a random order
	order   []int                    // a random order of the rows; nil: they are in one
	fold    []int32                  // of each row; nil: there are no folds
	totals  []incremental.ClassTotal // of the rows that the sample stands for; nil: for itself

	unlabelled *rowSample // rows without a label, or nil
}

// without leaves out a fold, if not none.
func (r *rowSample) without(fold int) *rowSample {
	if fold == none {
		return r
	}
	var rows []int
	for i, of := range r.fold {
		if int(of) != fold {
			rows = append(rows, i)
		}
	}
	out := &rowSample{Block: r.Pick(rows)}
	if r.unlabelled != nil {
		out.unlabelled = r.unlabelled.without(fold)
	}
	return out
}

// stands says whether the rows are some of many.
func (r *rowSample) stands(sums *incremental.State) bool {
	return r != nil && int64(r.Rows()) < sums.Rows()-sums.Unlabelled().Rows
}

// random has the rows in a random order, so that the first of them are a sample, too.
func (r *rowSample) random() *rowSample {
	if r.order == nil {
		return r
	}
	out := &rowSample{Block: r.Pick(r.order), totals: r.totals}
	for _, i := range r.order {
		out.fold = append(out.fold, r.fold[i])
	}
	if r.unlabelled != nil {
		out.unlabelled = r.unlabelled.random()
	}
	return out
}

// view has the rows in some coordinates.
func (r *rowSample) view(in *basis.Coordinates) *sample.View {
	b, _ := new(basis.Lifter).Block(context.Background(), r.Block, in) // a context that does not end
	return &sample.View{Block: b, Fold: r.fold}
}

// study has the rows, in some coordinates, for a study of sums with folds or without.
func (r *rowSample) study(in *basis.Coordinates, whole *incremental.State, folds []*incremental.State) *study.Sample {
	out := study.NewSample(r.view(in), whole.Totals(), folds)
	if r.unlabelled != nil {
		out.AddUnlabelled(r.unlabelled.view(in), whole.Unlabelled())
	}
	return out
}

// sampleRows reads a sample of up to limit rows of weight > 0, with a label or without. The rows
// have the least hashes of seed and number, and so are the same however the file is read.
func sampleRows(ctx context.Context, s *surroundings, d *dataset, limit int, seed uint64, unlabelled bool) (*rowSample, error) {
	type candidate struct {
		hash   uint64
		number int64
		x      []float64
		at     []int32 // features of x; nil: all
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
	err := each(ctx, s, "taking a sample", d,
		func(_ int, b *incremental.Block, firstRow int64) (some []candidate, err error) {
			bound := below.Load()
			for i, code := range b.Codes {
				c := candidate{number: firstRow + int64(i), class: b.Classes[code], weight: b.Weight(i)}
				c.hash = mix(key + uint64(c.number))
				if c.weight == 0 || (c.class == incremental.Unlabelled) != unlabelled || c.hash > bound {
					continue
				}
				if len(b.Columns) > mostNeeded {
					c.at, c.x = nonZero(b.Columns, i)
				} else {
					c.x = make([]float64, len(b.Columns))
					for j, column := range b.Columns {
						c.x[j] = column.At(i)
					}
				}
				some = append(some, c)
			}
			return some, inRange(b, d.features)
		},
		func(some []candidate) error {
			pool = append(pool, some...)
			for i := range some {
				numbers += len(some[i].x)
			}
			if numbers > mostNumbersRead {
				return fmt.Errorf("read %s: rows of %d features have more than %d numbers other than 0, which do not fit into memory", d.path, len(d.features), mostNumbersRead)
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

	r := &rowSample{Block: new(incremental.Block)}
	for i := range pool {
		r.order = append(r.order, i)
	}
	slices.SortFunc(r.order, func(i, j int) int { return cmp.Compare(pool[i].hash, pool[j].hash) })
	for i := range pool {
		r.Classes = append(r.Classes, pool[i].class)
	}
	slices.SortFunc(r.Classes, incremental.CompareLabels)
	r.Classes = slices.Compact(r.Classes)
	weighted := false
	columns := make([][]float64, len(d.features))
	places := make([][]int32, len(d.features)) // of the numbers of a column; nil: all rows
	for row, c := range pool {
		r.numbers = append(r.numbers, c.number)
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
		case len(d.features) <= mostNeeded || len(column) == len(pool):
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
	at = []int32{}
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
