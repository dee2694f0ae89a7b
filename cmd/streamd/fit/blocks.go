package fit

import (
	"strconv"

	"streamd/incremental"
	"streamd/incremental/sample"
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

// replay cuts the file into blocks and samples rows.
func (f *fit) replay() {
	f.data.Cut(f.want.BlockRows)
	f.blocks = &blocks{
		rows: f.want.BlockRows, k: f.folds,
		sample: sample.New(sample.Settings{Rows: f.sampled(), Seed: f.want.Seed}, func(func(string) bool) {
			panic("fit: the sample lacks rows of blocks that stay")
		}),
	}
}

// add deals the next block of the file to its fold, and its rows to the sample.
func (b *blocks) add(s *incremental.Summary, rows *sample.Part) {
	if b.k > 0 {
		b.folds = append(b.folds, sample.Fold(s.LabelledDigest(), b.k))
	}
	b.sample.Add(strconv.Itoa(b.count), rows)
	b.count++
}

// Of is the fold of a row.
func (b *blocks) Of(row int64) int { return b.folds[row/int64(b.rows)] }

// chosen returns the sample of all blocks, with the rows without a label if wanted. It needs the
// sums of the blocks.
func (b *blocks) chosen(sums *incremental.State, unlabelled bool) *rowSample {
	snap := b.sample.Snapshot(sums, b.k)
	view := snap.View()
	rows := &rowSample{Block: view.Block, fold: view.Fold, totals: view.Totals}
	if unlabelled {
		without := snap.Unlabelled()
		rows.unlabelled = &rowSample{Block: without.Block, fold: without.Fold}
	}
	return rows
}
