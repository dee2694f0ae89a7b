package fit

import (
	"context"
	"iter"

	"streamd/cmd/streamd/dataset"
	"streamd/cmd/streamd/pipeline"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
	"streamd/kernels/basis"
)

// tools belong to one worker in one reading of the file.
type tools struct {
	fit        *fit
	folds      interface{ Of(row int64) int }
	summariser incremental.Summariser
	taker      sample.Taker
	lifters    map[*basis.Coordinates]*basis.Lifter

	in      [][]int           // of parts: the rows of each fold
	part    incremental.Block // of gather
	numbers []float64
	weights []float64

	block incremental.Block // of enter
}

// tools makes the tools of every worker.
func (f *fit) tools() []tools {
	all := make([]tools, pipeline.Workers())
	for i := range all {
		z := &all[i]
		z.fit, z.in, z.lifters = f, make([][]int, f.folds), map[*basis.Coordinates]*basis.Lifter{}
		switch {
		case f.blocks != nil:
			z.folds = f.blocks
		case f.folds > 0:
			z.folds = dataset.NewDealer(f.folds, f.want.Seed)
		}
	}
	return all
}

// enter maps the rows of a block that have a label to coordinates. The result is valid
// until the next call for the same ones.
func (t *tools) enter(b *incremental.Block, in *basis.Coordinates) *incremental.Block {
	return t.enterAll(b.Labelled(), in)
}

// enterAll maps all rows of a block to coordinates. The result is valid until the next
// call for the same ones.
func (t *tools) enterAll(b *incremental.Block, in *basis.Coordinates) *incremental.Block {
	t.block = *b
	t.block.Features = t.fit.data.Features
	if in != nil && t.lifters[in] == nil {
		t.lifters[in] = new(basis.Lifter)
	}
	lifted, _ := t.lifters[in].Block(context.Background(), &t.block, in) // a context that does not end
	return lifted
}

// parts yields the rows of each fold that has any. A part is valid until the next.
func (t *tools) parts(b *incremental.Block, firstRow int64) iter.Seq2[int, *incremental.Block] {
	return func(yield func(int, *incremental.Block) bool) {
		for fold := range t.in {
			t.in[fold] = t.in[fold][:0]
		}
		for i := range b.Rows() {
			fold := t.folds.Of(firstRow + int64(i))
			t.in[fold] = append(t.in[fold], i)
		}
		for fold, rows := range t.in {
			if len(rows) > 0 && !yield(fold, t.gather(b, rows)) {
				return
			}
		}
	}
}

// without gathers the rows outside a fold.
func (t *tools) without(b *incremental.Block, firstRow int64, fold int) *incremental.Block {
	var rest []int
	for i := range b.Rows() {
		if t.folds.Of(firstRow+int64(i)) != fold {
			rest = append(rest, i)
		}
	}
	return t.gather(b, rest)
}

// gather copies the given rows. The copy is valid until the next call.
func (t *tools) gather(b *incremental.Block, rows []int) *incremental.Block {
	m := len(rows)
	if cap(t.numbers) < m*len(b.Columns) {
		t.numbers = make([]float64, m*len(b.Columns))
	}
	part := &t.part
	*part = incremental.Block{Features: b.Features, Classes: b.Classes, Columns: part.Columns[:0], Codes: part.Codes[:0]}
	for j, column := range b.Columns {
		numbers := t.numbers[j*m:][:m]
		for i, row := range rows {
			numbers[i] = column.At(row)
		}
		part.Columns = append(part.Columns, gram.ColumnOf(numbers))
	}
	for _, row := range rows {
		part.Codes = append(part.Codes, b.Codes[row])
	}
	if b.Weights != nil {
		t.weights = t.weights[:0]
		for _, row := range rows {
			t.weights = append(t.weights, b.Weights[row])
		}
		part.Weights = t.weights
	}
	return part
}
