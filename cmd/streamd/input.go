package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/wire"
)

// columnFlags say what the columns of a file are.
type columnFlags struct {
	Label  string `default:"label" placeholder:"NAME" help:"Column or field of the labels: its name, first, last, or its number from 1. CSV without a header has them in the first column unless told otherwise, LIBSVM always."`
	Weight string `placeholder:"NAME" help:"Column or field with the weights of the rows. Every row weighs 1 without it."`
}

func (f *columnFlags) options(format string) (o wire.Options, err error) {
	o = wire.Options{Label: f.Label, Weight: f.Weight}
	if format != "auto" {
		o.Format, err = wire.ParseFormat(format)
	}
	return o, err
}

// dataset is a file of labelled rows that is read in blocks, as many times as
// it takes. How it is cut depends on nothing but its number of features, and
// so do the bits of what is learned from it.
type dataset struct {
	path      string
	options   wire.Options
	features  []string // their names; of data without names, x1, x2, …
	format    wire.Format
	blockRows int
}

const (
	maxBlockRows  = 8192
	maxBlockCells = 1 << 21 // rows × features, 16 MiB of numbers
)

// openDataset looks at the beginning of a file. The options' features are its
// features from then on.
func openDataset(path string, options wire.Options) (*dataset, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, errors.Unwrap(err))
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: it is read more than once, so it must be a regular file", path)
	}
	const fewRows = 64 // as the features are not known yet, nor how wide they are
	reader, err := wire.OpenFile(path, options, fewRows)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	b, err := reader.Next()
	if err != nil {
		return nil, err
	}
	d := &dataset{path: path, options: options, features: b.Features, format: reader.Format()}
	if d.features == nil {
		d.features = incremental.DefaultFeatures(len(b.Columns))
	}
	d.options.Features = d.features
	d.blockRows = max(1, min(maxBlockRows, maxBlockCells/max(1, len(d.features))))
	return d, nil
}

// aligned opens a second file, of rows with d's features. Only a LIBSVM file may
// be narrower or wider: absent features are zero, and those that d does not have
// are ignored, as LIBLINEAR does, since no model has weights for them.
func (d *dataset) aligned(path string) (*dataset, error) {
	if d.format == wire.LIBSVM {
		options := d.options
		options.Features = nil
		other, err := openDataset(path, options)
		if err != nil || other.format == wire.LIBSVM {
			return other, err
		}
	}
	return openDataset(path, d.options)
}

// each reads the file once: work gets each block, in memory of its own, with
// the number of its first row, on one goroutine per worker; take gets the
// results in the order of the rows. What work returns may hold on to the
// block's strings only.
func each[Result any](ctx context.Context, s *surroundings, what string, d *dataset,
	work func(worker int, b *incremental.Block, firstRow int64) (Result, error),
	take func(Result) error,
) error {
	reader, err := wire.OpenFile(d.path, d.options, d.blockRows)
	if err != nil {
		return err
	}
	defer reader.Close()
	var rows atomic.Int64
	defer s.watch(what, func() advance {
		read, size := reader.Progress()
		return advance{rows: rows.Load(), done: float64(read) / float64(size)}
	})()

	type job struct {
		block    *blockCopy
		firstRow int64
	}
	free := newBlockCopies()
	return pipeline(ctx, workers(),
		func() (job, error) {
			b, err := reader.Next()
			if err != nil {
				return job{}, err
			}
			j := job{<-free, rows.Load()}
			j.block.copy(b)
			rows.Add(int64(b.Rows()))
			return j, nil
		},
		func(worker int, j job) (Result, error) {
			r, err := work(worker, &j.block.Block, j.firstRow)
			free <- j.block
			return r, d.place(err, j.firstRow)
		},
		take)
}

// place puts the file's name and row into an error about a block's row.
func (d *dataset) place(err error, firstRow int64) error {
	if row := (*incremental.RowError)(nil); errors.As(err, &row) {
		inFile := *row
		inFile.Row += int(firstRow)
		return fmt.Errorf("read %s: %w", d.path, &inFile)
	}
	return err
}

// workers is how many goroutines decode, summarise and score.
func workers() int { return runtime.GOMAXPROCS(0) }

// blockCopy is a block that owns its numbers, in memory that is used again.
type blockCopy struct {
	incremental.Block
	numbers []float64
	weights []float64

	piece        incremental.Block // what slice returns
	pieceColumns []gram.Column
}

// newBlockCopies returns as many as a pipeline can have in hand.
func newBlockCopies() chan *blockCopy {
	free := make(chan *blockCopy, inFlight(workers()))
	for range cap(free) {
		free <- new(blockCopy)
	}
	return free
}

func (c *blockCopy) copy(b *incremental.Block) {
	m, n := b.Rows(), len(b.Columns)
	if cap(c.numbers) < m*n {
		c.numbers = make([]float64, m*n)
	}
	columns := c.Columns[:0]
	for j, column := range b.Columns {
		numbers := c.numbers[j*m : (j+1)*m]
		column.Copy(numbers, 0)
		columns = append(columns, gram.ColumnOf(numbers))
	}
	codes, classes := append(c.Codes[:0], b.Codes...), append(c.Classes[:0], b.Classes...)
	c.Block = *b
	c.Columns, c.Codes, c.Classes = columns, codes, classes
	if b.Weights != nil {
		c.weights = append(c.weights[:0], b.Weights...)
		c.Weights = c.weights
	}
}

// slice is the block of rows i to j, j not included. It is valid until the next
// call.
func (c *blockCopy) slice(i, j int) *incremental.Block {
	c.piece = c.Block
	c.pieceColumns = c.pieceColumns[:0]
	for _, column := range c.Columns {
		c.pieceColumns = append(c.pieceColumns, column.Slice(i, j))
	}
	c.piece.Columns, c.piece.Codes = c.pieceColumns, c.Codes[i:j]
	if c.Weights != nil {
		c.piece.Weights = c.Weights[i:j]
	}
	return &c.piece
}
