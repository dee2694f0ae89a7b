package reproduce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"streamd/incremental/newton"
	"streamd/kernels/svm"
)

// problem returns rows as machines take them: those of a class are 1, and all others −1.
func problem(rows newton.Blocks, class string, basis bool) *svm.Rows {
	b := rows[0]
	if len(rows) > 1 {
		b = joined(rows)
	}
	p := &svm.Rows{Columns: b.Columns, Basis: basis, D: make([]float64, b.Rows()), Workers: 1}
	for i, code := range b.Codes {
		p.D[i] = -1
		if b.Classes[code] == class {
			p.D[i] = 1
		}
	}
	return p
}

// values returns x'w − γ of rows.
func values(p *svm.Plane, rows *svm.Rows) []float64 {
	v := make([]float64, len(rows.D))
	for i := range v {
		v[i] = -p.Gamma
	}
	for j, w := range p.W {
		if w == 0 {
			continue
		}
		for i := range v {
			v[i] += float64(w * rows.Columns[j].At(i))
		}
	}
	return v
}

// hits is the number of rows on their side of a plane.
func hits(p *svm.Plane, rows *svm.Rows) (count int) {
	for i, v := range values(p, rows) {
		if (v > 0) == (rows.D[i] > 0) {
			count++
		}
	}
	return count
}

// A candidate is a machine with its ν.
type candidate struct {
	svm.Machine
	nu float64
	mu float64 // of the Gaussian kernel; 0: none
}

// score learns from rows with a candidate, and tests it on these and others. For a full kernel,
// which is learned from the features, train and test are in its coordinates.
func (c candidate) score(ctx context.Context, learned, train, test *svm.Rows) (score, error) {
	began := time.Now()
	p, err := c.Fit(ctx, learned, c.nu)
	if err != nil {
		return score{}, fmt.Errorf("%T: ν = %g: %w", c.Machine, c.nu, err)
	}
	took := time.Since(began)
	return score{
		nu: c.nu, mu: c.mu, training: took, total: took,
		train: float64(hits(p, train)) / float64(len(train.D)), test: float64(hits(p, test)) / float64(len(test.D)),
		used: float64(p.Features()), vectors: float64(p.SupportVectors()), programs: p.Programs,
	}, nil
}

// A tuning is a tuning set and what is learned from the rest of the training data.
type tuning struct{ tune, rest *svm.Rows }

// machineRows is the least number of rows that machines are tuned on, where there are as many.
const machineRows = 300

// splits are as many tuning sets of a fold as have machineRows rows.
func (f *fold) splits() []split {
	for i, has := 0, 0; i < len(f.tuning); i++ {
		for _, b := range f.tuning[i].tune {
			has += b.Rows()
		}
		if has >= machineRows {
			return f.tuning[:i+1]
		}
	}
	return f.tuning
}

// positive is the class of 1 in sets of two classes.
const positive = "1"

// tried is what became of a candidate on tuning sets.
type tried struct {
	candidate
	rows, right int // rows of the tuning sets, and those that the rest puts on their side
	used        int // features or points of the planes
}

// try tunes on sets. A candidate that does not converge on one of them is not right at all.
func try(ctx context.Context, sets []tuning, candidates []candidate) ([]tried, error) {
	all := make([]tried, len(candidates))
	for i, c := range candidates {
		all[i].candidate = c
		for _, s := range sets {
			p, err := c.Fit(ctx, s.rest, c.nu)
			if errors.Is(err, svm.ErrNotConverged) {
				all[i].right = -1
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%T: ν = %g: %w", c.Machine, c.nu, err)
			}
			all[i].right += hits(p, s.tune)
			all[i].rows += len(s.tune.D)
			all[i].used += p.Features()
		}
	}
	return all, nil
}

// firstOf returns the first of those that are right most often.
func firstOf(all []tried) tried {
	return slices.MaxFunc(all, func(a, b tried) int { return cmp.Compare(a.right, b.right) })
}

// sparseTable is table 4.1: the 1-norm SVM, few support vectors, few features.
type sparseTable struct {
	nus, minimal, features exponents // of ν, and of μ
	entries                []sparseEntry
}

type sparseEntry struct {
	name, file string // no file: not available, for the reason in remark
	remark     string
	published  [3]figures // of sparseMethods
}

func (e sparseEntry) dataSet() (name, file, remark string) { return e.name, e.file, e.remark }

// sparseMethods are those of table 4.1, by their names in the thesis.
var sparseMethods = [3]string{"SVM ‖·‖₁", "MSVM", "FSV"}

func (t sparseTable) run(ctx context.Context, c *Config) ([]Result, error) {
	var fewer, sets, lean float64 // reductions of support vectors, data sets, those with fewer features
	results, err := eachSet(c, t.entries, func(e sparseEntry, s *set) ([]Result, error) {
		trials, err := t.trials(ctx, c, s)
		if err != nil {
			return nil, err
		}
		var of [3]Result
		for i, name := range sparseMethods {
			of[i] = s.result(e.name, e.remark, name, trials[i], e.published[i], sparseMethods[0], trials[0])
		}
		sparse, minimal, features := &of[0], &of[1], &of[2]
		if ahead := trials[1].ahead(trials[0]); ahead.mean < -mostLost-ahead.doubt() {
			minimal.Broken = fmt.Sprintf("the correctness is %.1f ± %.1f points below that of %s; at most %.1f is allowed", -100*ahead.mean, 100*ahead.deviation, sparse.Method, 100*mostLost)
		}
		sets++
		fewer += 1 - *minimal.SupportVectors / *sparse.SupportVectors
		if *features.Used < *sparse.Used {
			lean++
		}
		return of[:], nil
	})
	if err != nil || sets == 0 {
		return results, err
	}
	const name = "all sets"
	vectors := Result{DataSet: name, Method: sparseMethods[1], Remark: fmt.Sprintf("%s has %.1f %% fewer support vectors than %s, on average; the thesis, with seven sets, 65.8 %%.", sparseMethods[1], 100*fewer/sets, sparseMethods[0])}
	if fewer/sets < leastFewer {
		vectors.Broken = fmt.Sprintf("at least %.0f %% fewer support vectors are expected", 100*leastFewer)
	}
	used := Result{DataSet: name, Method: sparseMethods[2], Remark: fmt.Sprintf("%s uses fewer features than %s on %.0f of %.0f.", sparseMethods[2], sparseMethods[0], lean, sets)}
	if lean/sets < leastLean {
		used.Broken = "fewer features are expected on three of five sets"
	}
	return append(results, vectors, used), nil
}

// Claims of table 4.1, of the figures that are computed here.
const (
	mostLost   = 0.015 // correctness that few support vectors may cost
	leastFewer = 0.55  // mean reduction of support vectors
	leastLean  = 0.6   // share of the sets with fewer features
)

// minimalNu is ν of MSVM, next to its μ, which is in units of ν. Larger ones change hardly a
// figure.
const minimalNu = 1

// trials cross-validates the three machines. In each fold ν is tuned for the 1-norm SVM. MSVM
// begins at its plane, FSV has its ν, and both have a μ that is tuned with it. Of equally good
// candidates the sparsest is taken: the least ν, the largest μ.
func (t sparseTable) trials(ctx context.Context, c *Config, s *set) ([]trial, error) {
	if err := s.standardise(); err != nil {
		return nil, err
	}
	divisions, err := divideOften(s, c, c.Seeds)
	if err != nil {
		return nil, err
	}
	trials := newTrials(len(sparseMethods), divisions)
	return trials, each(ctx, c, divisions, func(ctx context.Context, d, f int) error {
		fold := &divisions[d][f]
		var sets []tuning
		for _, split := range fold.splits() {
			sets = append(sets, tuning{problem(split.tune, positive, false), problem(split.rest, positive, false)})
		}
		train, test := problem(fold.train.rows, positive, false), problem(fold.test, positive, false)
		var nu float64 // of the 1-norm SVM
		for i, among := range []func() []candidate{
			func() (all []candidate) {
				for _, nu := range t.nus.ascending() {
					all = append(all, candidate{Machine: svm.Sparse{}, nu: nu})
				}
				return all
			},
			func() (all []candidate) {
				for _, mu := range t.minimal.descending() {
					all = append(all, candidate{Machine: svm.Minimal{Mu: mu, Begin: nu}, nu: minimalNu})
				}
				return all
			},
			func() (all []candidate) {
				for _, mu := range t.features.descending() {
					all = append(all, candidate{Machine: svm.Features{Mu: mu}, nu: nu})
				}
				return all
			},
		} {
			began := time.Now()
			all, err := try(ctx, sets, among())
			if err != nil {
				return err
			}
			chosen := firstOf(all)
			if i == 0 {
				nu = chosen.nu
			}
			tuned := time.Since(began)
			if trials[i][d][f], err = chosen.score(ctx, train, train, test); err != nil {
				return err
			}
			trials[i][d][f].total += tuned
		}
		return nil
	})
}

var table41 = sparseTable{
	nus:      exponents{low: -6, high: -2},
	minimal:  exponents{low: 3, high: 9, step: 3},
	features: exponents{low: -4, high: 2, step: 2},
	entries: []sparseEntry{
		{name: "WPBC (60 mo.)", file: "wpbc60", remark: "MSVM is no better than SVM ‖·‖₁ here, and both are near the 62.7 % of the larger class.", published: [3]figures{
			{train: 69.5, test: 62.1, used: 4.3, vectors: 69.4},
			{train: 76.4, test: 68.3, used: 5.0, vectors: 29.6, known: -7.4, within: usualTolerance},
			{train: 69.5, test: 62.1, used: 2.6, vectors: 69.1},
		}},
		{name: "Ionosphere", file: "ionosphere", remark: "the thesis's SVM ‖·‖₁ uses half as many features and is 2.6 points behind ours, so its MSVM has more to gain.", published: [3]figures{
			{train: 84.6, test: 84.2, used: 7.2, vectors: 179.9, known: 2.6, within: closeTolerance},
			{train: 91.4, test: 88.9, used: 7.0, vectors: 34.2, p: 3e-4, known: -2.2, within: closeTolerance},
			{train: 91.2, test: 86.5, used: 8.1, vectors: 80.8},
		}},
		{name: "Cleveland Heart", file: "cleveland", remark: "these 297 rows come out lower than the thesis's by all methods (table 2.3).", published: [3]figures{
			{train: 86.8, test: 85.8, used: 8.8, vectors: 109.8, known: -2.6, within: closeTolerance},
			{train: 89.5, test: 86.9, used: 9.2, vectors: 38.5, known: -4.4, within: closeTolerance},
			{train: 87.0, test: 85.2, used: 8.9, vectors: 92.4, known: -2.1, within: closeTolerance},
		}},
		{name: "Pima Indians", file: "pima", remark: "the thesis's MSVM has 3 points more of the test than of the training data; ours has fewer.", published: [3]figures{
			{train: 77.1, test: 76.5, used: 6.8, vectors: 374.8},
			{train: 76.6, test: 79.6, used: 7.5, vectors: 150.1, known: -2.7, within: closeTolerance},
			{train: 76.9, test: 75.9, used: 5.0, vectors: 396.3},
		}},
		{name: "BUPA Liver", file: "bupa", remark: "the first two machines come out 1.5 points lower, which is five rows.", published: [3]figures{
			{train: 71.3, test: 69.9, used: 6.0, vectors: 236.8, known: -1.5, within: closeTolerance},
			{train: 72.7, test: 70.0, used: 6.0, vectors: 91.9, known: -1.6, within: closeTolerance},
			{train: 70.0, test: 67.3, used: 4.5, vectors: 236.7},
		}},
		{name: "Galaxy Dim", remark: galaxyDim},
		{name: "Census", remark: "the version of the Adult set with ten features (20,000 × 10) is no longer offered"},
	},
}
