package reproduce

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/newton"
	"streamd/incremental/study"
	"streamd/ingest/ndc"
)

// clusters is table 2.4: points of the NDC generator, with the thesis's ν. As many fresh points
// are tested on; the thesis does not say how many.
type clusters struct{ rows int }

func (t clusters) run(ctx context.Context, c *Config) ([]Result, error) {
	const features, nu = 10, 0.1
	var results []Result
	for _, set := range []struct {
		name         string
		separability ndc.Separability
		psvm, lsvm   figures
	}{
		{"NDC-easy", ndc.Easy, figures{train: 90.80, test: 91.13, seconds: 20.8}, figures{train: 90.86, test: 91.23, seconds: 658.5}},
		{"NDC-hard", ndc.Hard, figures{train: 69.84, test: 69.52, seconds: 20.6}, figures{train: 69.80, test: 69.44, seconds: 655.6}},
	} {
		generator, err := ndc.New(ndc.Config{Features: features, Separability: set.separability, Seed: c.Seed})
		if err != nil {
			return nil, err
		}
		train, err := points(ctx, generator, ndc.Train, t.rows, c.workers())
		if err != nil {
			return nil, err
		}
		test, err := points(ctx, generator, ndc.Test, t.rows, c.workers())
		if err != nil {
			return nil, err
		}
		add := func(name string, model *incremental.Model, began time.Time, published figures) {
			took := time.Since(began).Seconds()
			ofTrain, ofTest := correctness(model, train), correctness(model, test)
			r := Result{
				DataSet: set.name, Rows: t.rows, Features: features, Method: name, Nu: nu,
				Train: &ofTrain, Test: &ofTest, Seconds: took, TotalSeconds: time.Since(began).Seconds(),
			}
			published.within = closeTolerance // the clusters are others
			published.compare(&r)
			results = append(results, r)
		}
		began := time.Now()
		p, err := newPart(incremental.DefaultFeatures(features), train)
		if err != nil {
			return nil, err
		}
		y := study.Of(p.moments, study.Options{Planes: incremental.Options{Nu: nu}, Refine: newton.Full, Workers: 1})
		model, err := y.Solve()
		if err != nil {
			return nil, err
		}
		add(psvm.name, model, began, set.psvm)
		began = time.Now()
		refined, err := y.Refine(ctx, train, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", set.name, err)
		}
		add("LSVM", refined.Model, began, set.lsvm)
	}
	return results, nil
}

// points makes the first m points of a stream, in blocks.
func points(ctx context.Context, g *ndc.Generator, stream ndc.Stream, m, workers int) (newton.Blocks, error) {
	const blockRows = 8192
	blocks := make(newton.Blocks, (m+blockRows-1)/blockRows)
	group, ctx := errgroup.WithContext(ctx)
	for worker := range workers {
		group.Go(func() error {
			sampler := g.NewSampler()
			for i := worker; i < len(blocks); i += workers {
				if err := ctx.Err(); err != nil {
					return err
				}
				rows := min(blockRows, m-i*blockRows)
				columns := make([][]float32, g.Features())
				b := &incremental.Block{Classes: ndc.Classes(), Codes: make([]int32, rows)}
				for j := range columns {
					columns[j] = make([]float32, rows)
					b.Columns = append(b.Columns, gram.ColumnOf(columns[j]))
				}
				sampler.Fill(columns, b.Codes, stream, int64(i)*blockRows)
				blocks[i] = b
			}
			return nil
		})
	}
	return blocks, group.Wait()
}
