package reproduce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"streamd/incremental"
)

// Config has the data and the settings of cross-validation.
type Config struct {
	Data string // folder, for tables of sets that are not made
	Seed uint64
	// Seeds is the number of seeds from Seed on: of divisions into folds, made data and random
	// starts. Figures are their means. 0 means the table's own number.
	Seeds   int
	Workers int // goroutines; 0 means GOMAXPROCS
	DayRows int // points of a day of figure 2.7; 0 means a million
	// Windows, if not nil, returns the planes of the windows of figure 2.7, the first window
	// first, as a daemon has made them that has read the points from Kafka. They are compared with
	// those of this package.
	Windows func(ctx context.Context, days *DriftingDays) ([]*incremental.Model, error)
	// Progress, if not nil, is called with the name of a data set before work that may take
	// minutes.
	Progress func(dataSet string)
}

func (c *Config) progress(dataSet string) {
	if c.Progress != nil {
		c.Progress(dataSet)
	}
}

// day is the number of points of a day of figure 2.7.
func (c *Config) day() int { return cmp.Or(c.DayRows, defaultDay) }

func (c *Config) workers() int {
	if c.Workers > 0 {
		return c.Workers
	}
	return runtime.GOMAXPROCS(0)
}

// A Table is a table of a paper, or the figures of one.
type Table struct {
	Name  string
	Title string
	Notes []string // lines on how it was reproduced
	seeds int      // default number of seeds, such that a core takes less than a minute; 0: usualSeeds
	run   func(ctx context.Context, c *Config) ([]Result, error)
	draw  func(ctx context.Context, w io.Writer, c *Config) error // nil: there is no picture
}

// usualSeeds is the default number of seeds, and leastSeeds that of a check: the standard error
// of fewer is hardly known.
const usualSeeds, leastSeeds = 10, 5

// Checkable refuses a number of seeds that are too few to check the table by.
func (t *Table) Checkable(seeds int) error {
	if least := min(leastSeeds, cmp.Or(t.seeds, usualSeeds)); seeds > 0 && seeds < least {
		return fmt.Errorf("a check of %s takes %d seeds or more: the standard error of %d is hardly known", t.Name, least, seeds)
	}
	return nil
}

// Drawn reports whether there is a picture.
func (t *Table) Drawn() bool { return t.draw != nil }

// Draw writes the picture as SVG. It panics without one.
func (t *Table) Draw(ctx context.Context, w io.Writer, c *Config) error {
	if err := t.draw(ctx, w, c); err != nil {
		return fmt.Errorf("%s: %w", t.Name, err)
	}
	return nil
}

// Tables returns all tables.
func Tables() []*Table { return tables }

// Find returns the table of a name.
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

// Run reproduces a table. A data set that is missing has a result that says so. Every other
// failure is an error.
func (t *Table) Run(ctx context.Context, c *Config) ([]Result, error) {
	own := *c
	if own.Seeds == 0 {
		own.Seeds = cmp.Or(t.seeds, usualSeeds)
	}
	results, err := t.run(ctx, &own)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	for i := range results {
		results[i].Table = t.Name
	}
	return results, nil
}

// open reads a data set. If there is none, absent says why. A missing folder is an error.
func (c *Config) open(file string) (s *set, absent string, err error) {
	s, err = readSet(c.Data, file)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(c.Data); err != nil {
			return nil, "", fmt.Errorf("the folder of the data sets, %s: %w", c.Data, errors.Unwrap(err))
		}
		return nil, missing(c.Data, file), nil
	}
	return s, "", err
}

// openBoth opens the training rows and the test rows of a data set. absent says why one of them is
// not at hand.
func (c *Config) openBoth(trainFile, testFile string) (train, test *set, absent string, err error) {
	if train, absent, err = c.open(trainFile); err == nil && absent == "" {
		test, absent, err = c.open(testFile)
	}
	return train, test, absent, err
}
