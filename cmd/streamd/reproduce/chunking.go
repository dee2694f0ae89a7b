package reproduce

import (
	"context"
	"fmt"
	"time"

	"streamd/incremental"
	"streamd/incremental/newton"
	"streamd/kernels"
	"streamd/kernels/basis"
	"streamd/kernels/reduce"
)

// eight is the class of USPS against the rest.
const eight = "8"

// chunkTolerance is in points. A share of 98 % of the 2007 test rows has a standard error of 0.3,
// and the stages are means of ten runs.
const chunkTolerance = 0.5

// chunking is table 1 of González-Castaño and Meyer: the digit 8 of USPS against the rest,
// stage by stage, with the settings of their section 3.
func chunking(ctx context.Context, c *Config) ([]Result, error) {
	const mu, points = 1. / 128, 28
	train, absent, err := c.open("usps-train")
	if err != nil {
		return nil, err
	}
	test, noTest, err := c.open("usps-test")
	if err != nil {
		return nil, err
	}
	const name = "USPS 8"
	if absent == "" {
		absent = noTest
	}
	if absent != "" {
		return []Result{{DataSet: name, Absent: absent, missing: true}}, nil
	}
	train.against(eight)
	test.against(eight)
	kernel, err := kernels.Gaussian(mu)
	if err != nil {
		return nil, err
	}
	rows := train.block(0, train.rows())
	problem := reduce.Problem{
		Columns: rows.Columns, Codes: rows.Codes, Classes: len(train.classes),
		Kernel: kernel, Points: points, Seed: c.Seed, Workers: c.workers(),
	}
	var results []Result
	for _, how := range []struct {
		name    string
		reducer reduce.ChunkingSynthetic
		stages  [4]float64 // known differences
		all     float64
	}{
		{"", reduce.ChunkingSynthetic{}, [4]float64{}, -1.1},
		{", 300 fresh rows", reduce.ChunkingSynthetic{Fresh: 300, Nu: 6}, [4]float64{2: 0.7, 3: 0.9}, 0},
	} {
		c.progress(name + how.name)
		began := time.Now()
		found, err := complete(ctx, how.reducer, &problem)
		if err != nil {
			return nil, err
		}
		took := time.Since(began).Seconds()
		results = append(results, stages(name+how.name, found, mu, how.stages)...)
		ofTrain, ofTest, err := correctnessOf(found, kernel, train, test)
		if err != nil {
			return nil, err
		}
		r := Result{
			DataSet: name + how.name + ", all rows", Rows: train.rows(), Features: len(train.features),
			Method: fmt.Sprintf("%d points", found.Points),
			Nu:     found.Stages[len(found.Stages)-1].Nu, Mu: mu, Train: &ofTrain, Test: &ofTest, Seconds: took,
		}
		if how.all != 0 {
			r.Remark = "with the paper's settings 28 points are 1.1 points of test correctness behind; with 300 fresh rows for candidates they are not."
		}
		figures{train: 98.30, test: 98.28, known: how.all, within: chunkTolerance}.compare(&r)
		results = append(results, r)
	}
	return results, nil
}

// stages returns the rows of the table for the stages before the last.
func stages(name string, found *reduce.Result, mu float64, known [4]float64) []Result {
	published := []struct {
		figures
		vectors int
	}{
		{figures{train: 98.24, test: 96.04}, 48}, {figures{train: 98.38, test: 97.77}, 69},
		{figures{train: 97.99, test: 97.77}, 128}, {figures{train: 97.92, test: 97.83}, 231},
	}
	var results []Result
	for i, stage := range found.Stages[:min(len(published), len(found.Stages)-1)] {
		step := stage.Reduced
		r := Result{
			DataSet: fmt.Sprintf("%s, stage %d", name, stage.Stage), Rows: stage.Rows, Features: found.Features,
			Method: fmt.Sprintf("%.0f points", step.Points), Nu: stage.Nu, Mu: mu, Train: &step.Training, Test: &step.Testing,
			Remark: fmt.Sprintf("%.0f support vectors; the paper has %d.", step.SupportVectors, published[i].vectors),
		}
		published[i].known, published[i].within = known[i], chunkTolerance
		published[i].compare(&r)
		results = append(results, r)
	}
	return results
}

// complete reduces to the last stage. A result that ctx has interrupted is no figure of a
// table.
func complete(ctx context.Context, r reduce.Reducer, p *reduce.Problem) (*reduce.Result, error) {
	found, err := r.Reduce(ctx, p)
	if err == nil && found.Interrupted {
		return nil, ctx.Err()
	}
	return found, err
}

// correctnessOf returns the correctness of the planes of a basis on two sets.
func correctnessOf(found *reduce.Result, kernel kernels.Kernel, train, test *set) (ofTrain, ofTest float64, err error) {
	if ofTrain, err = correctnessOn(train, found, kernel, train.classes); err == nil {
		ofTest, err = correctnessOn(test, found, kernel, train.classes)
	}
	return ofTrain, ofTest, err
}

// correctnessOn returns the correctness on a set of the planes of a basis, for the classes of the
// rows that it is made from.
func correctnessOn(s *set, found *reduce.Result, kernel kernels.Kernel, classes []string) (float64, error) {
	m, err := found.Map(kernel)
	if err != nil {
		return 0, err
	}
	model := &incremental.Model{Features: m.Names(), Classes: classes}
	for _, p := range found.Planes {
		model.Planes = append(model.Planes, incremental.Plane{Class: classes[p.Class], W: p.U, Gamma: p.Gamma})
	}
	return correctness(model, lifted(newton.Blocks{s.block(0, s.rows())}, basis.New(m, false))), nil
}

// against makes two classes: 1 for the rows of a class, and -1 for the rest.
func (s *set) against(class string) {
	for i, code := range s.codes {
		s.codes[i] = 0
		if s.classes[code] == class {
			s.codes[i] = 1
		}
	}
	s.classes = []string{"-1", "1"}
}
