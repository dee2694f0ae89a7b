package reproduce

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"streamd/ingest/wire"
	"streamd/kernels"
	"streamd/kernels/reduce"
	"streamd/kernels/svm"
)

// division is one of the benchmarks' divisions into rows to learn from and rows to test on,
// counted from 0.
type division struct{ Train, Test []int }

// readDivisions reads the divisions of a benchmark of Rätsch, the IDA repository.
func readDivisions(folder, name string) ([]division, error) {
	path := filepath.Join(folder, name)
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, errors.Unwrap(err))
	}
	defer f.Close()
	z, err := wire.Unzipped(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	var all []division
	if err := json.NewDecoder(z).Decode(&all); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return all, nil
}

// benchmark is a set of the IDA repository.
type benchmark struct {
	name, file string
	made       bool // the divisions are not the published ones, which are lost
}

// outcome is what a method comes to on a division.
type outcome struct{ train, test, used, seconds float64 }

// outcomes calls do for each division of a benchmark with seeds of its own, in parallel, and
// returns the means of its outcomes as results, one for each method. The standard error has the
// differences of the divisions, too, which are the paper's as well: it is an upper bound of what
// other seeds may change.
func (b *benchmark) outcomes(ctx context.Context, c *Config, do func(ctx context.Context, train, test *set, seed uint64) ([]outcome, error)) ([]Result, error) {
	s, absent, err := c.open(b.file)
	if err != nil {
		return nil, err
	}
	if absent != "" {
		return []Result{{DataSet: b.name, Absent: absent, missing: true}}, nil
	}
	splits := b.file
	if b.made {
		splits += ".splits-regenerated.json.gz"
	} else {
		splits += ".splits.json.gz"
	}
	divisions, err := readDivisions(c.Data, splits)
	if err != nil {
		return nil, err
	}
	for k, d := range divisions {
		for _, row := range slices.Concat(d.Train, d.Test) {
			if row < 0 || row >= s.rows() {
				return nil, fmt.Errorf("%s: division %d: row %d of a set of %d", splits, k+1, row, s.rows())
			}
		}
		if len(d.Train) == 0 || len(d.Test) == 0 {
			return nil, fmt.Errorf("%s: division %d has no rows to learn from, or none to test on", splits, k+1)
		}
	}
	if len(divisions) == 0 {
		return nil, fmt.Errorf("%s has no divisions", splits)
	}
	c.progress(b.name)
	all := make([][]outcome, max(1, c.Seeds)*len(divisions))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.workers())
	for k := range all {
		d := divisions[k%len(divisions)]
		group.Go(func() (err error) {
			all[k], err = do(ctx, s.pick(d.Train), s.pick(d.Test), c.Seed+uint64(k))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("%s: %w", b.name, err)
	}
	var results []Result
	for i := range all[0] {
		var mean outcome
		var tests []float64
		for _, of := range all {
			tests = append(tests, of[i].test)
			share := 1 / float64(len(all))
			mean.train += share * of[i].train
			mean.test += share * of[i].test
			mean.used += share * of[i].used
			mean.seconds += of[i].seconds * share * float64(len(divisions))
		}
		remark := ""
		if b.made {
			remark = "the published divisions are lost; these have their sizes."
		}
		r := Result{
			DataSet: b.name, Remark: remark, Rows: len(divisions[0].Train), Features: len(s.features),
			Train: &mean.train, Test: &mean.test, Used: &mean.used, Seconds: mean.seconds,
			Seeds: len(all),
		}
		r.estimated(estimateOf(tests))
		results = append(results, r)
	}
	return results, nil
}

// reduction is the problem of choosing points for a set, in one goroutine.
func (s *set) reduction(kernel kernels.Kernel, points int, seed uint64) *reduce.Problem {
	rows := s.block(0, s.rows())
	return &reduce.Problem{
		Columns: rows.Columns, Codes: rows.Codes, Classes: len(s.classes),
		Kernel: kernel, Points: points, Seed: seed, Workers: 1,
	}
}

// hinge gives the points of a basis the plane of the hinge loss, regularised by K(Z, Z) or by I.
func hinge(ctx context.Context, kernel kernels.Kernel, found *reduce.Result, train *set, nu float64, gram bool) error {
	m, err := found.Map(kernel)
	if err != nil {
		return err
	}
	b := train.block(0, train.rows())
	rows := &svm.Rows{Columns: kernels.NewMapper(m).Map(b.Columns), Basis: true, D: signs(b.Codes), Workers: 1}
	if gram {
		rows.Regulariser = m.Gram()
	}
	plane, err := svm.Hinge{}.Fit(ctx, rows, nu)
	if err != nil {
		return err
	}
	found.Planes[0].U, found.Planes[0].Gamma = plane.W, plane.Gamma
	return nil
}

// signs are 1 for the second class and -1 for the first.
func signs(codes []int32) []float64 {
	d := make([]float64, len(codes))
	for i, code := range codes {
		d[i] = float64(2*cmp.Compare(code, 0) - 1)
	}
	return d
}

// supportVectors returns the support vector machine of a full kernel, the second class on the
// positive side, as a basis of its support vectors.
func supportVectors(ctx context.Context, kernel kernels.Kernel, train *set, nu float64) (*reduce.Result, error) {
	b := train.block(0, train.rows())
	machine, err := svm.SMO{Kernel: kernel}.Open(b.Columns, 1)
	if err != nil {
		return nil, err
	}
	plane, _, err := machine.Fit(ctx, signs(b.Codes), nil, nu, nil)
	if err != nil {
		return nil, err
	}
	r := &reduce.Result{Features: len(b.Columns)}
	p := reduce.Plane{Class: 1, Gamma: plane.Gamma}
	for i, w := range plane.W {
		if w != 0 {
			r.Z = append(r.Z, machine.Point(i)...)
			p.U = append(p.U, w)
			r.Points++
		}
	}
	r.Planes = []reduce.Plane{p}
	return r, nil
}
