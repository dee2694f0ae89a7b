package reproduce

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"streamd/cmd/streamd/plot"
	"streamd/incremental"
	"streamd/ingest/ndc"
	"streamd/kernels/reduce"
	"streamd/kernels/svm"
)

// semi is table 5.1: a small share of the rows has labels.
type semi struct {
	mus     exponents // of μ/ν
	nus     exponents // where all rows have labels
	entries []semiEntry
	lead    float64 // of CVS3VM over random + SVM, the thesis's mean over the entries
	known   float64 // difference of ours from it, in points
}

type semiEntry struct {
	name, file string  // no file: points of NDC
	share      float64 // of the rows, to label
	remark     string
	published  [len(semiMethods)]figures
}

// semiMethods are those of table 5.1, and the last one again with one μ for all divisions.
var semiMethods = [...]string{"total + SVM", "random + SVM", "clusters + SVM", "CVS3VM", "CVS3VM, one μ"}

const (
	totalSVM = iota
	randomSVM
	clustersSVM
	cvs3vm
	cvs3vmOne
)

func (t semi) run(ctx context.Context, c *Config) ([]Result, error) {
	var results []Result
	leads := [2][]float64{make([]float64, c.Seeds), make([]float64, c.Seeds)} // of cvs3vm and of cvs3vmOne, by seed
	for _, e := range t.entries {
		sets, absent, err := e.open(ctx, c)
		if err != nil {
			return nil, err
		}
		if sets == nil {
			results = append(results, Result{DataSet: e.name, Absent: absent, missing: true})
			continue
		}
		c.progress(e.name)
		trials, err := t.trials(ctx, c, sets, e.share)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		var of [len(semiMethods)]Result
		for i, name := range semiMethods {
			against := randomSVM
			if i == totalSVM {
				against = i // its folds are others
			}
			of[i] = sets[0].result(e.name, e.remark, name, trials[i], e.published[i], semiMethods[against], trials[against])
		}
		for i := range leads {
			own, random := trials[cvs3vm+i], trials[randomSVM]
			for d := range leads[i] {
				leads[i][d] += own[d:][:1].ahead(random[d:][:1]).mean / float64(len(t.entries))
			}
			ahead := own.ahead(random)
			of[cvs3vm+i].hold(ahead.mean > -ahead.doubt(), "%.1f ± %.1f points are not ahead of random rows", 100*ahead.mean, 100*ahead.deviation)
		}
		results = append(results, of[:]...)
	}
	if slices.ContainsFunc(results, func(r Result) bool { return r.missing }) {
		return results, nil
	}
	for i, of := range leads {
		lead := estimateOf(of)
		r := Result{DataSet: "mean of all", Method: semiMethods[cvs3vm+i] + ", its lead", Seeds: len(of), Test: &lead.mean}
		r.estimated(lead)
		if i == 0 {
			figures{test: 100 * t.lead, within: closeTolerance, known: t.known}.compare(&r)
		}
		results = append(results, r)
	}
	return results, nil
}

// open returns a set for each seed: the same one, or other points of NDC.
func (e semiEntry) open(ctx context.Context, c *Config) (sets []*set, absent string, err error) {
	if e.file != "" {
		s, absent, err := c.open(e.file)
		if s == nil {
			return nil, absent, err
		}
		return slices.Repeat([]*set{s}, c.Seeds), "", err
	}
	for i := range c.Seeds {
		s, err := ndcSet(ctx, c, ndc.Config{Features: 32, Separability: ndc.Hard, Seed: c.Seed + uint64(i)}, 1000)
		if err != nil {
			return nil, "", err
		}
		sets = append(sets, s)
	}
	return sets, "", nil
}

// ndcSet has the first points of a generator.
func ndcSet(ctx context.Context, c *Config, of ndc.Config, rows int) (*set, error) {
	generator, err := ndc.New(of)
	if err != nil {
		return nil, err
	}
	made, err := points(ctx, generator, ndc.Train, rows, c.workers())
	if err != nil {
		return nil, err
	}
	s := &set{features: incremental.DefaultFeatures(of.Features), classes: ndc.Classes(), columns: make([][]float64, of.Features)}
	for _, b := range made {
		s.codes = append(s.codes, b.Codes...)
		for j, c := range b.Columns {
			column := make([]float64, c.Len())
			c.Copy(column, 0)
			s.columns[j] = append(s.columns[j], column...)
		}
	}
	return s, nil
}

// trials are those of the methods.
func (t semi) trials(ctx context.Context, c *Config, sets []*set, share float64) (trials [len(semiMethods)]trial, err error) {
	divisions := make([][]fold, c.Seeds) // only their shape
	for d := range divisions {
		divisions[d] = make([]fold, folds)
	}
	nus, mus := t.nus.values(), t.mus.values()
	all, cvs := make([]trial, len(nus)), make([]trial, len(mus))
	for _, group := range [][]trial{all, cvs, trials[randomSVM : clustersSVM+1]} {
		copy(group, newTrials(len(group), divisions))
	}
	labelled := make([][]int, c.Seeds)
	for d, s := range sets {
		if labelled[d], err = s.representatives(ctx, s.labels(share), c.Seed+uint64(d), c.workers()); err != nil {
			return trials, err
		}
	}
	err = each(ctx, c, divisions, func(ctx context.Context, d, f int) (err error) {
		s, few := sets[d], len(labelled[d])
		m := s.rows()
		rest := others(labelled[d], m)
		r := rand.New(rand.NewPCG(c.Seed+uint64(d), uint64(m)))
		r.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
		whole, drawn := r.Perm(m), rand.New(rand.NewPCG(c.Seed+uint64(d), uint64(f))).Perm(m)
		part := func(rows []int) (in, out []int) {
			from, to := f*len(rows)/folds, (f+1)*len(rows)/folds
			return rows[from:to], slices.Concat(rows[:from], rows[to:])
		}
		in, out := part(whole)
		for i, nu := range nus {
			if all[i][d][f], err = s.semi(ctx, svm.Sparse{}, out, nil, in, nu); err != nil {
				return err
			}
		}
		in, out = part(rest)
		for i, mu := range mus {
			if cvs[i][d][f], err = s.semi(ctx, svm.Unlabelled{Mu: mu}, labelled[d], out, in, semiNu(few+len(out))); err != nil {
				return err
			}
			cvs[i][d][f].mu = mu
		}
		if trials[clustersSVM][d][f], err = s.semi(ctx, svm.Sparse{}, labelled[d], nil, in, semiNu(few)); err != nil {
			return err
		}
		trials[randomSVM][d][f], err = s.semi(ctx, svm.Sparse{}, drawn[:few], nil, drawn[few:], semiNu(few))
		return err
	})
	if err != nil {
		return trials, err
	}
	trials[totalSVM], trials[cvs3vm], trials[cvs3vmOne] = bestTrials(all), bestTrials(cvs), bestTrial(cvs)
	return trials, nil
}

// semiNu is the thesis's ν for m labelled and p other rows.
func semiNu(rows int) float64 { return 1000 / float64(rows) }

// bestTrial is the first of the trials that test best.
func bestTrial(trials []trial) trial {
	tests := make([]float64, len(trials))
	for i, t := range trials {
		for d := range t {
			tests[i] += t.mean(d, func(s score) float64 { return s.test })
		}
	}
	return trials[first(tests)]
}

// bestTrials is the best one of each division.
func bestTrials(trials []trial) (best trial) {
	for d := range trials[0] {
		some := make([]trial, len(trials))
		for i, t := range trials {
			some[i] = t[d:][:1]
		}
		best = append(best, bestTrial(some)...)
	}
	return best
}

// labels is the number of rows that get labels.
func (s *set) labels(share float64) int { return int(math.Round(share * float64(s.rows()))) }

// representatives are the rows to label.
func (s *set) representatives(ctx context.Context, count int, seed uint64, workers int) ([]int, error) {
	r := reduce.Representatives{Columns: s.block(0, s.rows()).Columns, Count: count, Seed: seed, Workers: workers}
	chosen, err := r.Choose(ctx)
	rows := make([]int, len(chosen))
	for i := range chosen {
		rows[i] = chosen[i].Row
	}
	return rows, err
}

// semi tests a machine on some rows. Those without get no label.
func (s *set) semi(ctx context.Context, machine svm.Machine, labelled, without, test []int, nu float64) (score, error) {
	learned := s.semiRows(labelled, without)
	return candidate{Machine: machine, nu: nu}.score(ctx, learned, s.pick(labelled).svmRows(), s.pick(test).svmRows())
}

// semiRows are labelled rows, and others without their labels.
func (s *set) semiRows(labelled, without []int) *svm.Rows {
	rows := s.pick(slices.Concat(labelled, without)).svmRows()
	clear(rows.D[len(labelled):])
	return rows
}

// known are differences by method, in points.
type known map[int]float64

// semiTolerance is in points, beside the standard error: the labelled rows are few, and from one
// choice of them to the next figures move by 1 to 5 points.
const semiTolerance = 2

// semiPublished are the figures of an entry.
func semiPublished(total, random, clusters, cvs, clustersP, cvsP float64, k known) (of [len(semiMethods)]figures) {
	of = [...]figures{{test: total}, {test: random}, {test: clusters, p: clustersP}, {test: cvs, p: cvsP}, {}}
	for i := range of {
		of[i].within, of[i].known = semiTolerance, k[i]
	}
	return of
}

var table51 = semi{
	lead:  (9.0 + 7.0 + 11.4 + 5.9 + 13.1) / 500,
	known: -4.2,
	mus:   exponents{low: -8, high: 0},
	nus:   exponents{low: -8, high: 4, step: 2},
	entries: []semiEntry{
		{name: "Heart", file: "cleveland", share: 0.10, remark: "the thesis has one choice of 30 rows.", published: semiPublished(83.2, 69, 73.3, 76, 0.01, 0.01, known{randomSVM: 3.1, clustersSVM: -3.2})},
		{
			name: "Housing", file: "housing", share: 0.05, remark: "the share is not published; with 10 % random + SVM has 80 %.",
			published: semiPublished(86.2, 70, 73.3, 81.4, 0.18, 0.05, known{randomSVM: 4.2, clustersSVM: 3.6, cvs3vm: -1.4}),
		},
		{name: "Ionosphere", file: "ionosphere", share: 0.10, published: semiPublished(87.1, 78.3, 78.5, 84.2, 0.93, 0.05, known{clustersSVM: 3.7, cvs3vm: 1.6})},
		{
			name: "Sonar", file: "sonar", share: 0.10, remark: "the thesis has one choice of 21 rows; from one to the next CVS3VM moves by 4 points.",
			published: semiPublished(77.4, 64, 74.6, 77.1, 0.04, 0.02, known{randomSVM: 1.8, clustersSVM: -6.4, cvs3vm: -6.6}),
		},
		{
			name: "NDC", share: 0.05, remark: "other points than the thesis's, of each seed its own; planes with all labels are 4 points worse, too.",
			published: semiPublished(72.6, 58, 60, 67, 0.38, 0.01, known{totalSVM: -4.3, clustersSVM: -2.6, cvs3vm: -6}),
		},
	},
}

// semiFigure is figures 5.1 to 5.3: 100 points of NDC in the plane, of which ten have labels.
type semiFigure struct {
	figure, name string
	nu           float64
	plane        *svm.Plane
	labelled     []int
	right        float64 // of all points
}

func semiFigures(ctx context.Context, c *Config) ([]semiFigure, *set, error) {
	const (
		rows, labels, mu = 100, 10, 0.125
		// An example in the thesis's order. Other seeds also have planes that the other points make
		// worse.
		seed, expansion = 3, 20
	)
	s, err := ndcSet(ctx, c, ndc.Config{Features: 2, Separability: ndc.Expansion(expansion), Seed: seed}, rows)
	if err != nil {
		return nil, nil, err
	}
	central, err := s.representatives(ctx, labels, seed, c.workers())
	if err != nil {
		return nil, nil, err
	}
	random := rand.New(rand.NewPCG(seed, rows)).Perm(rows)[:labels]
	all := []semiFigure{
		{figure: "Figure 5.1", name: "CVS3VM", labelled: central},
		{figure: "Figure 5.2", name: "clusters + SVM", labelled: central},
		{figure: "Figure 5.3", name: "random + SVM", labelled: random},
	}
	for i := range all {
		f := &all[i]
		var machine svm.Machine = svm.Sparse{}
		var without []int
		if i == 0 {
			machine, without = svm.Unlabelled{Mu: mu}, others(central, rows)
		}
		f.nu = semiNu(len(f.labelled) + len(without))
		if f.plane, err = machine.Fit(ctx, s.semiRows(f.labelled, without), f.nu); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f.name, err)
		}
		f.right = float64(hits(f.plane, s.svmRows())) / rows
	}
	return all, s, nil
}

func semiFigureTable(ctx context.Context, c *Config) ([]Result, error) {
	all, s, err := semiFigures(ctx, c)
	if err != nil {
		return nil, err
	}
	published := []float64{0.81, 0.72, 0.69}
	var results []Result
	for i := range all {
		f := &all[i]
		results = append(results, Result{
			DataSet: f.figure, Rows: s.rows(), Features: len(s.features), Method: f.name, Nu: f.nu,
			Test: &f.right, PaperTest: &published[i], Programs: float64(f.plane.Programs),
		})
		if r := &results[i]; f.right >= all[0].right && i > 0 {
			r.Broken = "the plane without the other points is no worse"
		}
	}
	return results, nil
}

// drawSemi draws figures 5.1 to 5.3 side by side, as SVG: filled points have labels.
func drawSemi(ctx context.Context, w io.Writer, c *Config) error {
	all, s, err := semiFigures(ctx, c)
	if err != nil {
		return err
	}
	var panels []plot.Panel
	for _, f := range all {
		panel := plot.Panel{
			Title: f.figure + ": " + f.name, Note: fmt.Sprintf("%.0f %% of the points are right", 100*f.right),
			W: [2]float64(f.plane.W), Gamma: f.plane.Gamma,
		}
		for i, code := range s.codes {
			to := [2]*plot.XYs{&panel.Diamonds, &panel.Circles}[code]
			if slices.Contains(f.labelled, i) {
				to = [2]*plot.XYs{&panel.FilledDiamonds, &panel.FilledCircles}[code]
			}
			*to = append(*to, plot.XY{X: s.columns[0][i], Y: s.columns[1][i]})
		}
		panels = append(panels, panel)
	}
	return plot.Panels(w, panels...)
}
