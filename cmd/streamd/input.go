package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/listing"
	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/pipeline"
	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/wire"
)

// columnFlags name the columns of a file.
type columnFlags struct {
	Label  string       `default:"label" placeholder:"NAME" help:"Column or field of the labels: its name, first, last, or its number from 1. Without a header, CSV has them in the first column by default. LIBSVM always has them first."`
	Weight string       `placeholder:"NAME" help:"Column or field with the weights of the rows. Without it every row has weight 1."`
	Ignore namePatterns `placeholder:"NAME,..." help:"Columns to pass over, of any type: names or patterns such as id or *_at. Columns without names are x1, x2, and so on."`
	csvFlags
}

func (f *columnFlags) options(format string) wire.Options {
	o := wire.Options{Format: formatOf(format), Label: f.Label, Weight: f.Weight, Ignore: f.Ignore}
	o.Limits.Pages, o.Limits.Classes = mostPage(), classesOfFile
	f.csvFlags.choose(&o)
	return o
}

// classesOfFile bounds the classes of a file.
const classesOfFile = 10_000

// mostPage bounds a page of Parquet by the memory: a file's pages are as large as its writer
// likes, but those of DuckDB have 100 MB.
func mostPage() int {
	const least = 64 << 20
	limit, err := memory.Limit(new(config.Config))
	if err != nil {
		return least
	}
	return int(max(least, limit/4))
}

// csvFlags say how a CSV file is written. They have the values of the configuration's format.csv_*.
type csvFlags struct {
	CSVHeader    string              `name:"csv-header" enum:"auto,present,absent" default:"auto" help:"Whether CSV begins with a line of column names: ${enum}. With auto it does where that line has the label's name, or texts and no numbers."`
	CSVComment   commentText         `name:"csv-comment" placeholder:"TEXT" help:"Start of lines of CSV that are passed over, such as #."`
	CSVDecimal   config.CSVDecimal   `name:"csv-decimal" enum:"point,comma" default:"point" help:"Mark before the decimals of numbers in CSV: ${enum}."`
	CSVThousands config.CSVThousands `name:"csv-thousands" enum:"none,comma,point,blank,apostrophe" default:"none" help:"Mark between the thousands of numbers in CSV: ${enum}."`
}

// choose puts the flags, which have been checked, into options.
func (f *csvFlags) choose(o *wire.Options) {
	o.Comment = string(f.CSVComment)
	o.Header, _ = wire.ParseHeader(cmp.Or(f.CSVHeader, "auto"))
	o.Numbers, _ = config.Format{CSVDecimal: f.CSVDecimal, CSVThousands: cmp.Or(f.CSVThousands, config.CSVThousandsNone)}.Notation()
}

// commentText is the start of comments.
type commentText string

// Validate is called by kong.
func (c commentText) Validate() error { return wire.CheckComment(string(c)) }

// namePatterns are patterns of names of columns.
type namePatterns []string

// Validate is called by kong.
func (p namePatterns) Validate() error {
	for _, pattern := range p {
		if err := wire.CheckPattern(pattern); err != nil {
			return err
		}
	}
	return nil
}

// missingFlags choose the treatment of missing values.
type missingFlags struct {
	Missing         config.Missing            `enum:"reject,zero,mean,indicator" default:"reject" help:"Missing values: refuse the file, or count them as 0, as the mean of the rows learned from, or as 0 with a feature that marks them."`
	MissingFeatures map[string]config.Missing `mapsep:"," placeholder:"A=mean,B=zero" help:"Features whose missing values are treated otherwise than by --missing."`
}

func (f *missingFlags) treatment() (wire.Missing, error) {
	for name, text := range f.MissingFeatures {
		if _, err := wire.ParseMissing(string(text)); err != nil {
			return wire.Missing{}, usagef("--missing-features %s: %w", name, err)
		}
	}
	return model.MissingOf(config.Format{Missing: f.Missing, MissingFeatures: f.MissingFeatures}), nil
}

// unlabelledFlags choose the treatment of rows without a label.
type unlabelledFlags struct {
	Unlabelled     config.Unlabelled `enum:"reject,keep" default:"reject" help:"Rows without a label: refuse the file, or keep them. Kept rows count in the rows and the digest, but only --refine unlabelled learns from them, and no accuracy counts them."`
	UnlabelledText string            `placeholder:"TEXT" help:"Label that means a row has none, such as ? or -1. An empty label always does."`
}

// choose puts the treatment into options.
func (f *unlabelledFlags) choose(o *wire.Options) error {
	o.KeepUnlabelled, o.UnlabelledText = f.Unlabelled == config.UnlabelledKeep, f.UnlabelledText
	if err := wire.CheckUnlabelledText(f.UnlabelledText); err != nil {
		return usagef("--unlabelled-text: %w", err)
	}
	return nil
}

// featureFlags choose the features to learn from a file.
type featureFlags struct {
	columnFlags
	Features []string `placeholder:"NAME,..." help:"Features to learn from, in this order. All other columns are ignored. By default every column is a feature that is not to be ignored."`
}

func (f *featureFlags) options(format string) wire.Options {
	o := f.columnFlags.options(format)
	if len(f.Features) > 0 {
		o.Features, o.IgnoreUnknown = f.Features, true
	}
	return o
}

// optionsFor is options for rows of a model, which may have other columns, too.
func (f *columnFlags) optionsFor(format string, by *model.Classifier) wire.Options {
	o := f.options(format)
	o.Features, o.Missing, o.IgnoreUnknown = by.Features, by.Missing, true
	o.Limits.Features = mostFeatures
	return o
}

// formatOf is the format that a flag names. It is 0 for auto.
func formatOf(name string) wire.Format {
	if name == "auto" {
		return 0
	}
	format, err := wire.ParseFormat(name)
	if err != nil {
		panic(err) // the flag's enum has checked it
	}
	return format
}

// dataset is a file of labelled rows that can be read in blocks many times. The cuts between
// blocks depend only on its number of features, so a file always gives the same bits.
type dataset struct {
	path      string
	options   wire.Options
	features  []string // names; x1, x2, … for data without names
	format    wire.Format
	blockRows int
	doubt     string // how the file was taken that could mean something else; empty: none
}

const (
	// mostFeatures is the most features of a file. Sums of them take fewer: see mostNeeded.
	mostFeatures  = 1 << 20
	maxBlockRows  = 8192
	maxBlockCells = 1 << 21 // rows × features, 16 MiB of numbers
)

// openDataset reads the beginning of a file to find its features. Later reads use them.
func openDataset(path string, options wire.Options) (*dataset, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, errors.Unwrap(err))
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: it is read more than once, so it must be a regular file", path)
	}
	options.Limits.Features = mostFeatures
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
	d := &dataset{path: path, options: options, features: b.Features, format: reader.Format(), doubt: reader.Doubt()}
	if d.features == nil {
		d.features = incremental.DefaultFeatures(len(b.Columns))
	}
	d.options.Features = d.features
	d.blockRows = max(1, min(maxBlockRows, maxBlockCells/max(1, len(d.features))))
	return d, nil
}

// warn warns of what may be wrong with the file.
func (d *dataset) warn(s *surroundings) error {
	s.warnOfDoubt(d.path, d.doubt)
	return d.warnOfIdentifiers(s)
}

// warnOfDoubt says how a file is taken that could mean something else.
func (s *surroundings) warnOfDoubt(path, doubt string) {
	if doubt != "" {
		fmt.Fprintf(s.stderr, "streamd: warning: %s: %s\n", path, listing.OneLine(doubt))
	}
}

// warnOfIdentifiers names features whose values are integers that are all different among the
// first rows.
func (d *dataset) warnOfIdentifiers(s *surroundings) error {
	reader, err := wire.OpenFile(d.path, d.options, d.blockRows)
	if err != nil {
		return err
	}
	defer reader.Close()
	b, err := reader.Next()
	if err != nil {
		return d.place(err, 0)
	}
	const mostNamed = 20
	all := b.Identifiers()
	for _, j := range all[:min(len(all), mostNamed)] {
		fmt.Fprintf(s.stderr, "streamd: warning: column %q has integers that are all different, as an identifier has; --ignore %s leaves it out\n", d.features[j], listing.OneLine(d.features[j]))
	}
	return nil
}

// aligned opens a second file of rows with d's features. Other columns are ignored, since no
// model has weights for them.
func (d *dataset) aligned(path string) (*dataset, error) {
	options := d.options
	options.IgnoreUnknown = true
	return openDataset(path, options)
}

// each reads the file once. On one goroutine per worker, work gets each block, in memory of
// its own, with the number of its first row. take gets the results in the order of the
// rows. A result may keep the block's strings only.
func each[Result any](ctx context.Context, s *surroundings, task string, d *dataset,
	work func(worker int, b *incremental.Block, firstRow int64) (Result, error),
	take func(Result) error,
) error {
	reader, err := wire.OpenFile(d.path, d.options, d.blockRows)
	if err != nil {
		return err
	}
	defer reader.Close()
	var rows atomic.Int64
	defer s.watch(task, func() advance {
		read, size := reader.Progress()
		return advance{rows: rows.Load(), done: float64(read) / float64(size)}
	})()

	type job struct {
		piece    *wire.Piece
		firstRow int64
	}
	free := newPieces()
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
func (d *dataset) place(err error, firstRow int64) error {
	if row := (*incremental.RowError)(nil); errors.As(err, &row) {
		inFile := *row
		inFile.Row += int(firstRow)
		return fmt.Errorf("read %s: %w", d.path, &inFile)
	}
	return err
}

// newPieces returns as many pieces as are in use at a time: one for each worker, and one that
// is being cut or waits for a worker.
func newPieces() chan *wire.Piece {
	free := make(chan *wire.Piece, pipeline.Workers()+1)
	for range cap(free) {
		free <- new(wire.Piece)
	}
	return free
}
