package reproduce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
)

// Config says where the data are and how to cross-validate.
type Config struct {
	Data      string // folder, for tables of sets that are not made
	Seed      uint64
	Divisions int // into folds, to take the mean of; at least 1
	Workers   int // goroutines; 0 means GOMAXPROCS
	// Progress, if any, is called where work begins that may take a minute or
	// more, with the name of the data set.
	Progress func(dataSet string)
}

func (c *Config) progress(dataSet string) {
	if c.Progress != nil {
		c.Progress(dataSet)
	}
}

func (c *Config) workers() int {
	if c.Workers > 0 {
		return c.Workers
	}
	return runtime.GOMAXPROCS(0)
}

// A Table is one of the papers' tables, or the figures that go with it.
type Table struct {
	Name  string
	Title string
	Notes []string // how it was reproduced, a line each
	run   func(ctx context.Context, c *Config) ([]Result, error)
	draw  func(ctx context.Context, w io.Writer, c *Config) error // nil: there is no picture
}

// Drawn says whether there is a picture.
func (t *Table) Drawn() bool { return t.draw != nil }

// Draw writes the picture, in SVG. It panics unless there is one.
func (t *Table) Draw(ctx context.Context, w io.Writer, c *Config) error {
	if err := t.draw(ctx, w, c); err != nil {
		return fmt.Errorf("%s: %w", t.Name, err)
	}
	return nil
}

// Tables are all tables.
func Tables() []*Table { return tables }

// Find gives a table by its name.
func Find(name string) (*Table, error) {
	var names []string
	for _, t := range tables {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	return nil, fmt.Errorf("there is no table %q; there are %s", name, strings.Join(names, ", "))
}

// Run reproduces a table. Data that are not at hand are results too, which say
// so; every other trouble is an error.
func (t *Table) Run(ctx context.Context, c *Config) ([]Result, error) {
	results, err := t.run(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	for i := range results {
		results[i].Table = t.Name
	}
	return results, nil
}

// open reads a data set; absent says why there is none. Without a folder there
// is nothing to look in, which is an error.
func (c *Config) open(file string) (s *set, absent string, err error) {
	s, err = readSet(c.Data, file)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(c.Data); err != nil {
			return nil, "", fmt.Errorf("the folder of the data sets, %s: %w", c.Data, errors.Unwrap(err))
		}
		return nil, fmt.Sprintf("there is no %s.csv.gz in %s", file, c.Data), nil
	}
	return s, "", err
}
