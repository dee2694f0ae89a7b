package main

import (
	"context"
	"iter"
	"strconv"

	"streamd/cmd/streamd/dataset"
	"streamd/cmd/streamd/pipeline"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
	"streamd/kernels/basis"
)

// blocks are the blocks that streamd replay file makes of a file. Their content decides which
// fold a block is in and which rows are in the sample, as in a daemon that reads them.
type blocks struct {
	rows   int // of each block, but for the last
	k      int // folds; 0: none
	count  int
	folds  []int // of each block
	sample *sample.Sample
}

// maxReplayed is the most rows of a block that streamd replay writes.
const maxReplayed = 1 << 24

// replay cuts the file into blocks and samples rows.
func (f *fit) replay(blockRows, sampleRows int) {
	f.data.Cut(blockRows)
	f.blocks = &blocks{
		rows: blockRows, k: f.folds,
		sample: sample.New(sample.Settings{Rows: sampleRows, Seed: f.seed}, func(func(string) bool) {
			panic("fit: the sample lacks rows of blocks that stay")
		}),
	}
}

// add deals the next block of the file to its fold, and its rows to the sample.
func (p *blocks) add(s *incremental.Summary, rows *sample.Part) {
	if p.k > 0 {
		p.folds = append(p.folds, sample.Fold(s.LabelledDigest(), p.k))
	}
	p.sample.Add(strconv.Itoa(p.count), rows)
	p.count++
}

// Of is the fold of a row.
func (p *blocks) Of(row int64) int { return p.folds[row/int64(p.rows)] }

// chosen returns the sample of all blocks, with the rows without a label if wanted. It needs the
// sums of the blocks.
func (p *blocks) chosen(sums *incremental.State, unlabelled bool) *rowSample {
	snap := p.sample.Snapshot(sums, p.k)
	view := snap.View()
	rows := &rowSample{Block: view.Block, fold: view.Fold, totals: view.Totals}
	if unlabelled {
		without := snap.Unlabelled()
		rows.unlabelled = &rowSample{Block: without.Block, fold: without.Fold}
	}
	return rows
}

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

	block   incremental.Block // of enter
	columns []gram.Column
	zeros   []float64
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
			z.folds = dataset.NewDealer(f.folds, f.seed)
		}
	}
	return all
}

// enter maps the rows of a block that have a label to coordinates. The result is valid
// until the next call for the same ones.
func (z *tools) enter(b *incremental.Block, in *basis.Coordinates) *incremental.Block {
	return z.enterAll(b.Labelled(), in)
}

// enterAll maps all rows of a block to coordinates. The result is valid until the next
// call for the same ones. Features that the block lacks, as in a LIBSVM file, are zero; others are
// ignored.
func (z *tools) enterAll(b *incremental.Block, in *basis.Coordinates) *incremental.Block {
	z.block = *b
	z.block.Features = z.fit.data.Features
	if n := len(z.block.Features); len(b.Columns) != n {
		z.columns = append(z.columns[:0], b.Columns[:min(len(b.Columns), n)]...)
		if len(z.zeros) < b.Rows() {
			z.zeros = make([]float64, b.Rows())
		}
		for len(z.columns) < n {
			z.columns = append(z.columns, gram.ColumnOf(z.zeros[:b.Rows()]))
		}
		z.block.Columns = z.columns
	}
	if in != nil && z.lifters[in] == nil {
		z.lifters[in] = new(basis.Lifter)
	}
	lifted, _ := z.lifters[in].Block(context.Background(), &z.block, in) // a context that does not end
	return lifted
}

// parts yields the rows of each fold that has any. A part is valid until the next.
func (z *tools) parts(b *incremental.Block, firstRow int64) iter.Seq2[int, *incremental.Block] {
	return func(yield func(int, *incremental.Block) bool) {
		for fold := range z.in {
			z.in[fold] = z.in[fold][:0]
		}
		for i := range b.Rows() {
			fold := z.folds.Of(firstRow + int64(i))
			z.in[fold] = append(z.in[fold], i)
		}
		for fold, rows := range z.in {
			if len(rows) > 0 && !yield(fold, z.gather(b, rows)) {
				return
			}
		}
	}
}

// without gathers the rows outside a fold.
func (z *tools) without(b *incremental.Block, firstRow int64, fold int) *incremental.Block {
	var rest []int
	for i := range b.Rows() {
		if z.folds.Of(firstRow+int64(i)) != fold {
			rest = append(rest, i)
		}
	}
	return z.gather(b, rest)
}

// gather copies the given rows. The copy is valid until the next call.
func (z *tools) gather(b *incremental.Block, rows []int) *incremental.Block {
	m := len(rows)
	if cap(z.numbers) < m*len(b.Columns) {
		z.numbers = make([]float64, m*len(b.Columns))
	}
	part := &z.part
	*part = incremental.Block{Features: b.Features, Classes: b.Classes, Columns: part.Columns[:0], Codes: part.Codes[:0]}
	for j, column := range b.Columns {
		numbers := z.numbers[j*m:][:m]
		for i, row := range rows {
			numbers[i] = column.At(row)
		}
		part.Columns = append(part.Columns, gram.ColumnOf(numbers))
	}
	for _, row := range rows {
		part.Codes = append(part.Codes, b.Codes[row])
	}
	if b.Weights != nil {
		z.weights = z.weights[:0]
		for _, row := range rows {
			z.weights = append(z.weights, b.Weights[row])
		}
		part.Weights = z.weights
	}
	return part
}
