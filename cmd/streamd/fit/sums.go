package fit

import (
	"context"
	"fmt"
	"sync"

	"streamd/cmd/streamd/dataset"
	"streamd/incremental"
	"streamd/incremental/newton"
	"streamd/incremental/sample"
	"streamd/kernels/basis"
)

// sums are the sums of the file in some coordinates.
type sums struct {
	whole *incremental.State   // of whole blocks
	dealt *incremental.State   // of the folds
	folds []*incremental.State // of each fold; nil: the folds are not summed
}

// sum sums the file in some coordinates, and each fold on its own. Where folds have whole blocks,
// the first call must sum the features: it deals the blocks to the folds.
func (f *fit) sum(ctx context.Context, in *basis.Coordinates) (*sums, error) {
	type summaries struct {
		whole    *incremental.Summary
		parts    []*incremental.Summary // of each fold; nil: it has no rows
		sampled  *sample.Part
		firstRow int64
	}
	names := f.data.Features
	if in != nil {
		names = in.Names
	}
	out := &sums{whole: incremental.NewState(names)}
	if out.dealt = out.whole; f.folds > 0 {
		for range f.folds {
			out.folds = append(out.folds, incremental.NewState(names))
		}
		if f.blocks == nil {
			out.dealt = incremental.NewState(names)
		}
	}
	tools := f.tools()
	err := dataset.Each(ctx, f.data, "learning",
		func(worker int, b *incremental.Block, firstRow int64) (r summaries, err error) {
			z := &tools[worker]
			b = z.enterAll(b, in)
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
				out.folds[f.blocks.Of(r.firstRow)].Add(r.whole)
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
	err := dataset.Each(ctx, f.data, fmt.Sprintf("learning without fold %d of %d", fold+1, f.folds),
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
func (f fileParts) Parts(ctx context.Context, visit func(fold int, part *incremental.Block) error) error {
	tools := f.tools()
	return dataset.Each(ctx, f.data, "choosing nu",
		func(worker int, b *incremental.Block, firstRow int64) (nothing struct{}, err error) {
			z := &tools[worker]
			for fold, part := range z.parts(b, firstRow) {
				if err := visit(fold, z.enter(part, f.in)); err != nil {
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
	return dataset.Each(ctx, r.f.data, "refining",
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

// heldBytes is the most memory for rows that stay there, and are not read again for each step.
const heldBytes = 64 << 20

// held reads the rows once if they are few enough to stay in memory.
func (r *rereading) held(ctx context.Context, rows, columns int) (newton.Rows, error) {
	if rows > heldBytes/8/(columns+2) { // with code and weight
		return r, nil
	}
	var mutex sync.Mutex
	var blocks newton.Blocks
	err := r.Pass(ctx, func(b *incremental.Block) error {
		b = b.Clone()
		mutex.Lock()
		defer mutex.Unlock()
		blocks = append(blocks, b)
		return nil
	})
	return blocks, err
}
