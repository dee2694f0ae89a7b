package reproduce

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// A table is data: entries, each about a data set, and methods. Its harness is eachSet, which calls
// the table for the set of each entry; divideOften, which makes the divisions into folds; scored,
// which has the scores of the methods in all folds; and set.result, which puts their means beside
// the paper's figures.

// An about is an entry of a table that is about one data set.
type about interface {
	// dataSet returns the name in the paper, and the file. Without a file the set is not available,
	// for the reason in remark.
	dataSet() (name, file, remark string)
}

// eachSet calls do with the data set of each entry, and collects its results. A set that is not at
// hand has a result that says so.
func eachSet[Entry about](c *Config, entries []Entry, do func(e Entry, s *set) ([]Result, error)) ([]Result, error) {
	var results []Result
	for _, e := range entries {
		name, file, absent := e.dataSet()
		var s *set
		if file != "" {
			var err error
			if s, absent, err = c.open(file); err != nil {
				return nil, err
			}
		}
		if s == nil {
			results = append(results, Result{DataSet: name, Absent: absent, missing: file != ""})
			continue
		}
		c.progress(name)
		of, err := do(e, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		results = append(results, of...)
	}
	return results, nil
}

// divideOften makes a division for each seed, at most so many.
func divideOften(s *set, c *Config, most int) ([][]fold, error) {
	divisions := make([][]fold, min(c.Seeds, most))
	for d := range divisions {
		var err error
		if divisions[d], err = divide(s, c.Seed+uint64(d)); err != nil {
			return nil, err
		}
	}
	return divisions, nil
}

// scored has the scores of methods in every fold of every division, in parallel. do scores one of
// the methods in fold f of division d.
func scored(ctx context.Context, c *Config, divisions [][]fold, methods int, do func(ctx context.Context, method, d, f int) (score, error)) ([]trial, error) {
	trials := newTrials(methods, divisions)
	return trials, each(ctx, c, divisions, func(ctx context.Context, d, f int) (err error) {
		for i := range trials {
			if trials[i][d][f], err = do(ctx, i, d, f); err != nil {
				return err
			}
		}
		return nil
	})
}

func newTrials(methods int, divisions [][]fold) []trial {
	trials := make([]trial, methods)
	for i := range trials {
		trials[i] = make(trial, len(divisions))
		for d, division := range divisions {
			trials[i][d] = make([]score, len(division))
		}
	}
	return trials
}

// bestChoice returns the index of the choice with the largest sum of shares, the first of several.
// Judge returns the share of each choice in a fold.
func bestChoice(ctx context.Context, c *Config, divisions [][]fold, judge func(context.Context, *fold) ([]float64, error)) (int, error) {
	right := make([][][]float64, len(divisions)) // [division][fold][choice]
	for d, division := range divisions {
		right[d] = make([][]float64, len(division))
	}
	err := each(ctx, c, divisions, func(ctx context.Context, d, f int) (err error) {
		right[d][f], err = judge(ctx, &divisions[d][f])
		return err
	})
	if err != nil {
		return 0, err
	}
	total := make([]float64, len(right[0][0]))
	for _, division := range right {
		for _, fold := range division {
			for i, share := range fold {
				total[i] += share
			}
		}
	}
	return first(total), nil
}

// each calls do for every fold of every division, in parallel.
func each(ctx context.Context, c *Config, divisions [][]fold, do func(ctx context.Context, d, f int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.workers())
	for d, division := range divisions {
		for f := range division {
			group.Go(func() error {
				if err := ctx.Err(); err != nil {
					return err
				}
				return do(ctx, d, f)
			})
		}
	}
	return group.Wait()
}
