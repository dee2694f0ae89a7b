package reproduce

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"streamd/incremental"
	"streamd/incremental/newton"
	"streamd/kernels/svm"
)

// The methods of tables 4.4 to 4.6. Both solve the same linear program, NLPSVM as ε falls.
const (
	nlpName   = "NLPSVM"
	cplexName = "CPLEX SVM"
)

// Claims of tables 4.5 and 4.6. Both figures depend on ν, which is tuned on few rows.
const (
	nlpTolerance = 2 // points of correctness
	nlpFeatures  = 3 // features, either way
)

// newtonTable is a table of two solvers of the 1-norm SVM, linear or with a reduced kernel.
type newtonTable struct {
	nus     exponents
	kernels exponents // the Gaussian's μ; the zero value: linear
	share   float64   // of the training rows that are the kernel's columns
	entries []newtonEntry
}

type newtonEntry struct {
	name, file string // no file: not available, for the reason in remark
	remark     string
	most       float64    // features that NLPSVM is known to use, if more than nlpFeatures beyond the thesis's
	published  [2]figures // of newtonMethods
}

func (e newtonEntry) dataSet() (name, file, remark string) { return e.name, e.file, e.remark }

var newtonMethods = [2]struct {
	name     string
	machines []svm.Machine // to choose from
}{
	{nlpName, []svm.Machine{svm.NewtonLP{Epsilon: 0.1}, svm.NewtonLP{Epsilon: 0.01}}},
	{cplexName, []svm.Machine{svm.Sparse{}}},
}

func (t newtonTable) run(ctx context.Context, c *Config) ([]Result, error) {
	return eachSet(c, t.entries, func(e newtonEntry, s *set) (results []Result, err error) {
		if t.linear() {
			s.unit()
		} else if err := s.standardise(); err != nil {
			return nil, err
		}
		divisions, err := divideOften(s, c, c.Seeds)
		if err != nil {
			return nil, err
		}
		trials, err := scored(ctx, c, divisions, len(newtonMethods), func(ctx context.Context, i, d, f int) (score, error) {
			return t.fold(ctx, &divisions[d][f], newtonMethods[i].machines)
		})
		if err != nil {
			return nil, err
		}
		for i, m := range newtonMethods {
			r := s.result(e.name, e.remark, m.name, trials[i], e.published[i], nlpName, trials[0])
			least, most := e.published[i].used-nlpFeatures, max(e.published[i].used+nlpFeatures, e.most)
			if t.linear() && m.name == nlpName && (*r.Used < least || *r.Used > most) {
				r.Broken = fmt.Sprintf("it uses %.1f features; %.1f to %.1f are expected", *r.Used, least, most)
			}
			results = append(results, r)
		}
		return results, nil
	})
}

// unit scales features to [0, 1].
func (s *set) unit() {
	for _, column := range s.columns {
		least, most := slices.Min(column), slices.Max(column)
		for i, x := range column {
			if column[i] = 0; most > least {
				column[i] = (x - least) / (most - least)
			}
		}
	}
}

func (t newtonTable) linear() bool { return t.share == 0 }

// fold tunes and tests machines in a fold.
func (t newtonTable) fold(ctx context.Context, f *fold, machines []svm.Machine) (score, error) {
	among := func(mu float64) (all []candidate, err error) {
		for _, machine := range machines {
			for _, nu := range t.nus.ascending() {
				all = append(all, candidate{machine, nu, mu})
			}
		}
		return all, nil
	}
	if !t.linear() {
		return f.inKernels(ctx, t.kernels, t.share, math.Inf(1), false, among)
	}
	began := time.Now()
	var sets []tuning
	for _, split := range f.splits() {
		sets = append(sets, tuning{problem(split.tune, positive, false), problem(split.rest, positive, false)})
	}
	candidates, _ := among(0)
	all, err := try(ctx, sets, candidates)
	if err != nil {
		return score{}, err
	}
	tuned := time.Since(began)
	train, test := problem(f.train.rows, positive, false), problem(f.test, positive, false)
	s, err := fewest(all, firstOf(all)).score(ctx, train, train, test)
	s.total += tuned
	return s, err
}

var table45 = newtonTable{
	nus: exponents{low: -12, high: 4},
	entries: []newtonEntry{
		{name: "Ionosphere", file: "ionosphere", most: 17, remark: "fewer features cost correctness: tuned on 130 rows there are 11.3, and 85.5 % are right.", published: [2]figures{
			{train: 90.7, test: 88.0, used: 11.2, within: nlpTolerance},
			{train: 90.9, test: 88.3, used: 17.7, within: nlpTolerance},
		}},
		{name: "BUPA Liver", file: "bupa", published: [2]figures{
			{train: 70.6, test: 68.8, used: 4.8, within: nlpTolerance},
			{train: 71.2, test: 69.9, used: 6, within: nlpTolerance},
		}},
		{name: "Pima Indians", file: "pima", published: [2]figures{
			{train: 76.8, test: 77.1, used: 4.9, within: nlpTolerance},
			{train: 76.8, test: 77.0, used: 5, within: nlpTolerance},
		}},
		{name: "Cleveland Heart", file: "cleveland", remark: "these 297 rows come out lower than the thesis's by all methods (table 2.3).", published: [2]figures{
			{train: 86.5, test: 85.9, used: 7.1, known: -2.3, within: closeTolerance},
			{train: 85.9, test: 85.5, used: 7.5, known: -2.9, within: closeTolerance},
		}},
		{name: "Housing", file: "housing", most: 11, remark: "fewer features cost correctness: tuned on 130 rows there are 9.6, and 83.6 % are right.", published: [2]figures{
			{train: 87.0, test: 85.2, used: 6.5, within: nlpTolerance},
			{train: 87.7, test: 85.0, used: 10.9, within: nlpTolerance},
		}},
		{name: "Galaxy Dim", remark: galaxyDim},
	},
}

var table46 = newtonTable{
	nus:     exponents{low: -2, high: 4, step: 2},
	kernels: exponents{low: -8, high: -4, step: 2},
	share:   0.1,
	entries: []newtonEntry{
		{name: "Ionosphere", file: "ionosphere", remark: "few points are preferred here; CPLEX SVM has 26.9 in the thesis.", published: [2]figures{
			{train: 94.4, test: 95.1, used: 14.6, within: nlpTolerance},
			{train: 98.7, test: 95.5, used: 26.9, known: -2.3, within: closeTolerance},
		}},
		{name: "BUPA Liver", file: "bupa", published: [2]figures{
			{train: 74.5, test: 73.9, used: 16.4, within: nlpTolerance},
			{train: 76.4, test: 73.9, used: 18.7, within: nlpTolerance},
		}},
		{name: "Cleveland Heart", file: "cleveland", remark: "these 297 rows come out lower than the thesis's by all methods (table 2.3).", published: [2]figures{
			{train: 85.9, test: 86.5, used: 12.3, known: -4.3, within: closeTolerance},
			{train: 87.0, test: 85.6, used: 12.6, known: -2.7, within: closeTolerance},
		}},
	},
}

// expressions is a set with the shape of table 4.4's, which is no longer offered: of each gene a
// measurement, and a call of absent, marginal or present in one-of-three coding.
type expressions struct {
	patients, donors, genes int
	telling                 int     // genes that differ between patients and donors
	apart                   float64 // by so many standard deviations
}

// set makes the rows. A call follows the measurement, but for one in ten.
func (e expressions) set(seed uint64) *set {
	r := rand.New(rand.NewPCG(seed, 44))
	m := e.patients + e.donors
	s := &set{classes: []string{"-1", positive}, codes: make([]int32, m), columns: make([][]float64, 4*e.genes), features: incremental.DefaultFeatures(4 * e.genes)}
	for i := range e.patients {
		s.codes[i] = 1
	}
	for j := range s.columns {
		s.columns[j] = make([]float64, m)
	}
	for g := range e.genes {
		sign := float64(1 - 2*r.IntN(2))
		for i, code := range s.codes {
			x := r.NormFloat64()
			if g < e.telling {
				x += sign * e.apart * (float64(code) - 0.5)
			}
			call := 0
			switch {
			case r.IntN(10) == 0:
				call = r.IntN(3)
			case x > 0.5:
				call = 2
			case x > -0.5:
				call = 1
			}
			s.columns[4*g][i] = x
			s.columns[4*g+1+call][i] = 1
		}
	}
	return s
}

// run leaves out one row after the other, with ν = 1.
func (e expressions) run(ctx context.Context, c *Config) ([]Result, error) {
	const name, nu = "Made expressions", 1
	s := e.set(c.Seed)
	rows := problem(newton.Blocks{s.block(0, s.rows())}, positive, false)
	c.progress(name)
	of := trial{make([]score, s.rows())}
	err := each(ctx, c, [][]fold{make([]fold, s.rows())}, func(ctx context.Context, _, out int) error {
		rest := *rows
		rest.Costs = slices.Repeat([]float64{1}, s.rows())
		rest.Costs[out] = 0
		began := time.Now()
		p, err := svm.NewtonLP{}.Fit(ctx, &rest, nu)
		if err != nil {
			return fmt.Errorf("without row %d: %w", out, err)
		}
		took, right := time.Since(began), 0
		if v := values(p, rows)[out]; (v > 0) == (rows.D[out] > 0) {
			right = 1
		}
		of[0][out] = score{
			nu: nu, training: took, total: took, test: float64(right), train: float64(hits(p, rows)-right) / float64(s.rows()-1),
			used: float64(p.Features()), vectors: float64(p.SupportVectors()), programs: p.Programs,
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r := s.result(name, "", nlpName, of, figures{test: 100, used: 7, seconds: 7891.8}, nlpName, of)
	if *r.Used > mostExpressions {
		r.Broken = fmt.Sprintf("it uses %.1f features; at most %d, those of CPLEX in the thesis, are expected", *r.Used, mostExpressions)
	}
	return []Result{r}, nil
}

// mostExpressions is the number of features of the linear program in table 4.4.
const mostExpressions = 28

var table44 = expressions{patients: 74, donors: 31, genes: 7008, telling: 20, apart: 4}
