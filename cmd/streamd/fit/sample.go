package fit

import (
	"context"

	"streamd/cmd/streamd/dataset"
	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/incremental/study"
	"streamd/kernels/basis"
)

// rowSample is a sample of a file's rows. Its classes are in canonical order.
type rowSample struct {
	*incremental.Block
	order  []int                    // a random order of the rows; nil: they are in one
	fold   []int32                  // of each row; nil: there are no folds
	totals []incremental.ClassTotal // of the rows that the sample stands for; nil: for itself

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

// sample takes a sample of up to so many rows, and deals them to the folds like all rows.
func (f *fit) sample(ctx context.Context, rows int) (*rowSample, error) {
	drawn, err := f.draw(ctx, rows, false)
	if err == nil && f.method.Unlabelled() {
		drawn.unlabelled, err = f.draw(ctx, rows, true)
	}
	return drawn, err
}

// draw is sample of the rows with a label, or of those without.
func (f *fit) draw(ctx context.Context, rows int, unlabelled bool) (*rowSample, error) {
	s, err := f.data.Sample(ctx, rows, f.want.Seed, unlabelled)
	if err != nil {
		return nil, err
	}
	drawn := &rowSample{Block: s.Block, order: s.Order}
	if f.folds > 0 {
		deal := dataset.NewDealer(f.folds, f.want.Seed)
		for _, number := range s.Numbers {
			drawn.fold = append(drawn.fold, int32(deal.Of(number)))
		}
	}
	return drawn, nil
}
