package summarise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/pipeline"
	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/ingest/summary"
	"streamd/ingest/wire"
)

// Files are files of rows, or standard input, that are summed.
type Files struct {
	Paths     []string // "-": standard input
	Stdin     io.Reader
	Source    string       // name of standard input
	Options   wire.Options // the features of the first one are those of all
	BlockRows int          // rows of a block; the last one of a file may have fewer
	Time      time.Time    // event time of all blocks; zero: the time of each file, and of standard input none
	Sample    sample.Settings

	Doubt func(path, doubt string) // called for a file that could also mean something else

	rows atomic.Int64
	read atomic.Int64 // bytes
	size int64
}

// Made is a block of a file as a record.
type Made struct {
	ID       string
	Source   string
	FirstRow int64
	Rows     int64 // those of weight 0 included
	Digest   string
	Time     time.Time
	Value    []byte
}

// Check says why there are no such files.
func (f *Files) Check() error {
	named := map[string]string{}
	for _, path := range f.Paths {
		name := f.source(path)
		if former, ok := named[name]; ok {
			return fmt.Errorf("%s and %s have one name, %s, by which blocks are known: sum them apart, or rename one", former, path, name)
		}
		named[name] = path
		if path == "-" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, errors.Unwrap(err))
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("read %s: it is no regular file", path)
		}
		f.size += info.Size()
	}
	return nil
}

// source is the topic of the rows of a file.
func (f *Files) source(path string) string {
	if path == "-" {
		return "file:" + f.Source
	}
	return "file:" + filepath.Base(path)
}

// Progress is the rows that have been read, and their share of all, 0 where nobody knows. It may be
// called at any time.
func (f *Files) Progress() (rows int64, share float64) {
	if f.size > 0 {
		share = float64(f.read.Load()) / float64(f.size)
	}
	return f.rows.Load(), share
}

// cut is the rows of a block.
type cut struct {
	rows   *intake.Rows
	source string
	first  int64
	time   time.Time
}

// Sum has take get the blocks in the order of their rows, one call at a time. A block has
// BlockRows rows of one file, whatever batches, pages and row groups the file has. A value is valid
// until take returns.
func (f *Files) Sum(ctx context.Context, take func(*Made) error) error {
	workers := pipeline.Workers()
	free := make(chan *intake.Rows, pipeline.InFlight(workers)+1)
	for range cap(free) {
		free <- new(intake.Rows)
	}
	makers := make([]summary.Maker, workers)
	var levels *sample.Levels
	if f.Sample.Rows > 0 {
		levels = sample.New(f.Sample, nil).Levels()
	}
	in := &cutting{files: f, options: f.Options, paths: slices.Clone(f.Paths), free: free}
	defer in.close()
	return pipeline.Run(ctx, workers,
		in.next,
		func(worker int, c *cut) (*Made, error) {
			defer func() { c.rows.Empty(); free <- c.rows }()
			b := c.rows.Block()
			b.Features = in.features
			of := summary.Block{Position: incremental.Position{Topic: c.source, Offset: c.first}, Last: c.first + int64(b.Rows()) - 1, Time: c.time}
			of.ID = of.Position.String()
			if err := makers[worker].Make(ctx, &of, b, levels); err != nil {
				return nil, inFile(err, c)
			}
			value, err := of.AppendBinary(nil)
			if err != nil {
				return nil, inFile(err, c)
			}
			digest := of.Summary.Digest()
			return &Made{
				ID: of.ID, Source: c.source, FirstRow: c.first, Rows: int64(b.Rows()),
				Digest: fmt.Sprintf("%x", digest), Time: c.time, Value: value,
			}, nil
		},
		take)
}

// inFile names the row of the file in an error.
func inFile(err error, c *cut) error {
	name := strings.TrimPrefix(c.source, "file:")
	if row := (*incremental.RowError)(nil); errors.As(err, &row) {
		at := *row
		at.Row += int(c.first)
		return fmt.Errorf("read %s: %w", name, &at)
	}
	return fmt.Errorf("sum rows %d and following of %s: %w", c.first, name, err)
}

// cutting reads files one after the other, and cuts their rows into blocks. It belongs to one
// goroutine, but for features, which are known with the first block.
type cutting struct {
	files    *Files
	options  wire.Options
	paths    []string // not opened yet
	free     chan *intake.Rows
	features []string

	reader *wire.Reader // of the present file; nil: none is open
	path   string
	first  int64 // the row that begins the next block
	time   time.Time
	block  *incremental.Block // rows that have been read and not taken, from row at
	at     int
	done   int64 // bytes of the files before
}

// next is the next block; io.EOF behind the last one.
func (c *cutting) next() (*cut, error) {
	for {
		if c.reader == nil {
			if len(c.paths) == 0 {
				return nil, io.EOF
			}
			if err := c.open(); err != nil {
				return nil, err
			}
		}
		rows := <-c.free
		for rows.Len() < c.files.BlockRows {
			if c.block == nil {
				b, err := c.reader.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					return nil, err
				}
				if err := c.begin(b); err != nil {
					return nil, err
				}
			}
			n := min(c.files.BlockRows-rows.Len(), c.block.Rows()-c.at)
			rows.AppendBlock(c.block.Slice(c.at, c.at+n))
			if c.at += n; c.at == c.block.Rows() {
				c.block = nil
			}
		}
		if rows.Len() == 0 {
			c.free <- rows
			c.close()
			continue
		}
		made := &cut{rows: rows, source: c.files.source(c.path), first: c.first, time: c.time}
		c.first += int64(rows.Len())
		return made, nil
	}
}

func (c *cutting) open() (err error) {
	c.path, c.paths, c.first, c.time = c.paths[0], c.paths[1:], 0, c.files.Time
	if c.path == "-" {
		if c.time.IsZero() {
			c.time = time.UnixMilli(0).UTC()
		}
		c.reader, err = wire.OpenStream(c.files.Stdin, "standard input", c.options, c.files.BlockRows)
		return err
	}
	if c.time.IsZero() {
		info, err := os.Stat(c.path)
		if err != nil {
			return err
		}
		c.time = info.ModTime()
	}
	c.reader, err = wire.OpenFile(c.path, c.options, c.files.BlockRows)
	return err
}

// begin takes rows that have been read. The first ones decide which features all have.
func (c *cutting) begin(b *incremental.Block) error {
	c.block, c.at = b, 0
	c.files.rows.Add(int64(b.Rows()))
	if read, size := c.reader.Progress(); size > 0 {
		c.files.read.Store(c.done + read)
	}
	if c.features == nil {
		c.features = b.FeatureNames()
		c.options.Features = b.FeatureNames()
	}
	if !slices.Equal(b.FeatureNames(), c.features) {
		return fmt.Errorf("read %s: its features are %.200q, and those of the file before are %.200q", c.path, b.FeatureNames(), c.features)
	}
	if doubt := c.reader.Doubt(); doubt != "" && c.first == 0 && c.files.Doubt != nil {
		c.files.Doubt(c.path, doubt)
	}
	return nil
}

// close closes the present file.
func (c *cutting) close() {
	if c.reader == nil {
		return
	}
	if _, size := c.reader.Progress(); size > 0 {
		c.done += size
		c.files.read.Store(c.done)
	}
	c.reader.Close() // it was only read
	c.reader, c.block = nil, nil
}
