// Package dataset reads a file of labelled rows in blocks, as often as wanted, and never holds all
// of it in memory.
//
// The cuts between blocks depend on the number of features alone, and what is computed on several
// goroutines is put together in the order of the rows. So a file always gives the same bits.
//
// Errors name the file, and the row in it where they are about one.
package dataset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"streamd/cmd/streamd/pipeline"
	"streamd/incremental"
	"streamd/ingest/wire"
)

const (
	// MostFeatures is the most features of a file.
	MostFeatures = 1 << 20
	// MostSummed is the most features that sums are made of.
	MostSummed = 4096

	maxBlockRows  = 8192
	maxBlockCells = 2 * MostFeatures // rows × features, 16 MiB of numbers
)

// Dataset is a file of labelled rows. Its fields must not be changed.
type Dataset struct {
	Path     string
	Features []string // names; x1, x2, … for data without names
	Missing  wire.Missing
	Doubt    string // how the file was taken that could mean something else; empty: none

	options   wire.Options
	blockRows int
	most      int // numbers that are read for a sample
	watch     Watch
}

// Watch shows the progress of a reading until stop is called. at has the rows that have been read
// and the share of the file that these are, 0 to 1. It may be called on any goroutine.
type Watch func(task string, at func() (rows int64, share float64)) (stop func())

// Open reads the beginning of a file to find its features. Later reads use them. The file must be a
// regular one.
func Open(path string, options wire.Options, watch Watch) (*Dataset, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, errors.Unwrap(err))
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: it is read more than once, so it must be a regular file", path)
	}
	options.Limits.Features = MostFeatures
	const fewRows = 64 // the number of features is not known yet
	reader, err := wire.OpenFile(path, options, fewRows)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	b, err := reader.Next()
	if err != nil {
		return nil, err
	}
	d := &Dataset{Path: path, Features: b.Features, Missing: options.Missing, Doubt: reader.Doubt(), options: options, most: mostNumbersRead, watch: watch}
	if d.Features == nil {
		d.Features = incremental.DefaultFeatures(len(b.Columns))
	}
	d.options.Features = d.Features
	d.blockRows = min(maxBlockRows, maxBlockCells/max(1, len(d.Features)))
	return d, nil
}

// Aligned opens a second file of rows with d's features. Other columns are ignored, since no
// model has weights for them.
func (d *Dataset) Aligned(path string) (*Dataset, error) {
	options := d.options
	options.IgnoreUnknown = true
	return Open(path, options, d.watch)
}

// Cut makes blocks of so many rows, but for the last.
func (d *Dataset) Cut(rows int) { d.blockRows = rows }

// Wide says whether there are too many features for sums of them.
func (d *Dataset) Wide() bool { return len(d.Features) > MostSummed }

// Identifiers names features whose values are integers that are all different among the first rows.
func (d *Dataset) Identifiers() (names []string, err error) {
	reader, err := wire.OpenFile(d.Path, d.options, d.blockRows)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	b, err := reader.Next()
	if err != nil {
		return nil, d.place(err, 0)
	}
	for _, j := range b.Identifiers() {
		names = append(names, d.Features[j])
	}
	return names, nil
}

// Each reads the file once. On one goroutine per worker, work gets each block, in memory of
// its own, with the number of its first row. take gets the results in the order of the
// rows. A result may keep the block's strings only. The workers are numbered from 0, and as many as
// pipeline.Workers.
func Each[Result any](ctx context.Context, d *Dataset, task string,
	work func(worker int, b *incremental.Block, firstRow int64) (Result, error),
	take func(Result) error,
) error {
	reader, err := wire.OpenFile(d.Path, d.options, d.blockRows)
	if err != nil {
		return err
	}
	defer reader.Close()
	var rows atomic.Int64
	defer d.watch(task, func() (int64, float64) {
		read, size := reader.Progress()
		return rows.Load(), float64(read) / float64(size)
	})()

	type job struct {
		piece    *wire.Piece
		firstRow int64
	}
	free := Pieces()
	return pipeline.Run(ctx, pipeline.Workers(),
		func() (job, error) {
			j := job{<-free, rows.Load()}
			n, err := reader.Cut(j.piece)
			rows.Add(int64(n))
			return j, err
		},
		func(worker int, j job) (r Result, err error) {
			defer func() { free <- j.piece }()
			b, err := j.piece.Block()
			if err != nil {
				return r, err
			}
			r, err = work(worker, b, j.firstRow)
			return r, d.place(err, j.firstRow)
		},
		take)
}

// place puts the file's name and row into an error about a block's row.
func (d *Dataset) place(err error, firstRow int64) error {
	if row := (*incremental.RowError)(nil); errors.As(err, &row) {
		inFile := *row
		inFile.Row += int(firstRow)
		return fmt.Errorf("read %s: %w", d.Path, &inFile)
	}
	return err
}

// Pieces returns as many pieces of a file as are in use at a time: one for each worker, and one
// that is being cut or waits for a worker.
func Pieces() chan *wire.Piece {
	free := make(chan *wire.Piece, pipeline.Workers()+1)
	for range cap(free) {
		free <- new(wire.Piece)
	}
	return free
}

// Sum sums the rows in their features. Of more than MostSummed features the state has none: it
// counts rows alone.
func (d *Dataset) Sum(ctx context.Context) (*incremental.State, error) {
	names := d.Features
	if d.Wide() {
		names = nil
	}
	sums := incremental.NewState(names)
	summarisers := make([]incremental.Summariser, pipeline.Workers())
	err := Each(ctx, d, "learning",
		func(worker int, b *incremental.Block, _ int64) (*incremental.Summary, error) {
			b.Features, b.Columns = names, b.Columns[:len(names)]
			return summarisers[worker].Summarise(b)
		},
		func(s *incremental.Summary) error {
			sums.Add(s)
			return nil
		})
	return sums, err
}
