package reproduce

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// figures are those of a paper for a method and a data set; 0 where it has none.
type figures struct {
	train, test float64 // percent
	seconds     float64
	p           float64
	within      float64 // tolerance in points; 0: usualTolerance
	known       float64 // difference in points that is known, larger than the tolerance
	used        float64 // features, or points of a basis
	vectors     float64 // support vectors
}

// entry is the part of a table that is about one data set.
type entry struct {
	name      string // in the paper
	file      string // empty: not available, for the reason in remark
	raw       bool   // not standardised
	remark    string
	published []figures // of the methods, in their order
}

func (e entry) dataSet() (name, file, remark string) { return e.name, e.file, e.remark }

// Tolerances, in points. A paper's figure is that of one division into folds, ours is a mean over
// several. From one division to the next a figure moves by 1 point for some hundred rows, by up to
// 2.7 for the smallest sets, and by 0.1 to 1 for sets of 500 rows and more.
//
// A larger difference is known: it stands in the table with its size, the report marks it, and the
// remark has the reason. Our own means move less than a single division, so they are held closely.
// No figure of a table can fall unseen.
const (
	usualTolerance = 1.5
	closeTolerance = 1.0 // of 500 rows and more, and around known differences
)

// crossValidation is a table of ten-fold correctness.
type crossValidation struct {
	validation // whether features are standardised is the entry's; p-values are relative to the first method
	entries    []entry
}

func (v crossValidation) run(ctx context.Context, c *Config) ([]Result, error) {
	return eachSet(c, v.entries, func(e entry, s *set) (results []Result, err error) {
		v.standardise = !e.raw
		trials, err := v.validation.run(ctx, s, c)
		if err != nil {
			return nil, err
		}
		for i, m := range v.methods {
			results = append(results, s.result(e.name, e.remark, m.name, trials[i], e.published[i], v.methods[0].name, trials[0]))
		}
		return results, nil
	})
}

// result compares a method's trial on a data set with a paper's figures, and with the trial
// of the first method.
func (s *set) result(name, remark, method string, t trial, published figures, first string, firstTrial trial) Result {
	r := Result{DataSet: name, Rows: s.rows(), Features: len(s.features), Method: method, Remark: remark}
	t.summarise(&r)
	if method != first {
		r.Against, r.P = first, new(t.against(firstTrial))
	}
	published.compare(&r)
	return r
}

// summarise fills in the means of all divisions.
func (t trial) summarise(r *Result) {
	var train, test, training, total float64
	var nus, mus []float64
	n := float64(len(t))
	for d := range t {
		train += t.mean(d, func(s score) float64 { return s.train }) / n
		test += t.mean(d, func(s score) float64 { return s.test }) / n
		for _, s := range t[d] {
			nus, mus = append(nus, s.nu), append(mus, s.mu)
			training += s.training.Seconds() / n
			total += s.total.Seconds() / n
		}
	}
	r.Mu = median(mus)
	if used, vectors := t.all(func(s score) float64 { return s.used }), t.all(func(s score) float64 { return s.vectors }); vectors > 0 {
		r.Used, r.SupportVectors = &used, &vectors
	}
	r.Programs = t.all(func(s score) float64 { return float64(s.programs) })
	r.Train, r.Test, r.Nu, r.Seconds, r.TotalSeconds = &train, &test, median(nus), training, total
	r.Seeds = len(t)
	r.estimated(t.estimate(func(d, f int) float64 { return t[d][f].test }))
}

// estimate is that of the mean of a figure. Its values are the means of the divisions or, of a
// single division, the folds.
func (t trial) estimate(of func(d, f int) float64) estimate {
	var means, folds []float64
	for d := range t {
		folds = folds[:0]
		for f := range t[d] {
			folds = append(folds, of(d, f))
		}
		means = append(means, estimateOf(folds).mean)
	}
	if len(means) == 1 {
		return estimateOf(folds)
	}
	return estimateOf(means)
}

// ahead is the mean difference of the test correctness from that of another method in the same
// folds.
func (t trial) ahead(other trial) estimate {
	return t.estimate(func(d, f int) float64 { return t[d][f].test - other[d][f].test })
}

// estimateOf returns the mean of values and its standard error.
func estimateOf(values []float64) estimate {
	n := float64(len(values))
	e := estimate{freedom: len(values) - 1}
	for _, v := range values {
		e.mean += v / n
	}
	for _, v := range values {
		e.deviation += (v - e.mean) * (v - e.mean)
	}
	if e.freedom > 0 {
		e.deviation = math.Sqrt(e.deviation / (n - 1) / n)
	}
	return e
}

// estimateOfShare is that of a share of rows.
func estimateOfShare(share float64, rows int) estimate {
	return estimate{share, math.Sqrt(share * (1 - share) / float64(rows)), rows - 1}
}

// all returns the mean of a figure over all folds.
func (t trial) all(of func(score) float64) (mean float64) {
	for d := range t {
		mean += t.mean(d, of) / float64(len(t))
	}
	return mean
}

// against returns the median of the divisions' p-values.
func (t trial) against(other trial) float64 {
	var ps []float64
	for d := range t {
		var a, b []float64
		for f := range t[d] {
			a, b = append(a, t[d][f].test), append(b, other[d][f].test)
		}
		ps = append(ps, pairedT(a, b))
	}
	return median(ps)
}

// median returns the value in the middle, the lower of two.
func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[(len(values)-1)/2]
}

// compare fills in the paper's figures.
func (f figures) compare(r *Result) {
	share := func(percent float64) *float64 {
		if percent == 0 {
			return nil
		}
		percent /= 100
		return &percent
	}
	r.PaperTrain, r.PaperTest, r.PaperSeconds = share(f.train), share(f.test), f.seconds
	r.PaperP = share(100 * f.p)
	r.PaperUsed, r.PaperSupportVectors = f.used, f.vectors
	ours, paper := r.Test, r.PaperTest
	if paper == nil {
		ours, paper = r.Train, r.PaperTrain
	}
	if ours == nil || paper == nil {
		return
	}
	difference := *ours - *paper
	r.Difference = &difference
	r.Tolerance, r.Known = cmp.Or(f.within, usualTolerance)/100, f.known/100
	r.Allowed = r.allowed(r.Tolerance)
}

const galaxyDim = "the Galaxy Dim set (4192 × 14) is no longer offered"

var table23 = crossValidation{
	validation: validation{methods: []method{psvm, ssvm}, nus: exponents{low: -12, high: 12}, one: true},
	entries: []entry{
		{name: "WPBC (60 mo.)", file: "wpbc60", published: []figures{
			{train: 70.8, test: 68.5, seconds: 0.02},
			{train: 70.8, test: 68.5, seconds: 0.17, p: 1},
		}},
		{name: "Ionosphere", file: "ionosphere", published: []figures{
			{train: 90.7, test: 87.3, seconds: 0.17},
			{train: 94.3, test: 88.7, seconds: 1.23, p: 0.55},
		}},
		{name: "Cleveland Heart", file: "cleveland", raw: true, remark: clevelandRemark, published: []figures{
			{train: 87.0, test: 85.9, seconds: 0.01},
			{train: 87.3, test: 86.2, seconds: 0.7, p: 0.91, known: -1.9, within: closeTolerance},
		}},
		{name: "Pima Indians", file: "pima", published: []figures{
			{train: 77.9, test: 77.5, seconds: 0.02, within: closeTolerance},
			{train: 78.2, test: 77.6, seconds: 0.78, p: 0.95, within: closeTolerance},
		}},
		{name: "BUPA Liver", file: "bupa", published: []figures{
			{train: 70.1, test: 69.4, seconds: 0.02},
			{train: 70.2, test: 70.0, seconds: 0.78, p: 0.84},
		}},
		{name: "Galaxy Dim", remark: galaxyDim},
		{
			name: "Mushroom", file: "mushroom",
			remark: "no coding of the 22 nominal attributes gives the published 81 %; these are numbered in the order of the set's description, and all others give more.",
			published: []figures{
				{train: 81.0, test: 81.0, seconds: 1.15, known: 13.2, within: closeTolerance},
				{train: 81.7, test: 81.5, seconds: 11.73, p: 0.49, known: 14.8, within: closeTolerance},
			},
		},
	},
}

const clevelandRemark = "with the best ν for these divisions PSVM has 84.6 % of the test and 85.5 % of the training data (table 2.3); the thesis has 87 % of those."

var table25 = crossValidation{
	validation: validation{methods: []method{ofr, mpsvm, bMPSVM, brMPSVM}, nus: exponents{low: 0, high: 25}},
	entries: []entry{
		{name: "Wine", file: "wine", remark: "balanced comes out 1.8 points lower, which is three rows.", published: []figures{
			{train: 100, test: 96.1, seconds: 1.39, known: 2.3, within: closeTolerance},
			{train: 100, test: 98.9, seconds: 0.02, p: 0.20},
			{train: 99.9, test: 98.9, seconds: 0.02, p: 0.80, known: -1.8, within: closeTolerance},
			{train: 100, test: 99.4, seconds: 0.11, p: 0.10},
		}},
		{
			name: "Glass", file: "glass",
			remark: "six classes, the smallest of nine rows: a division into folds moves the correctness by 2 points, and most ν are as good as each other on a tuning set of 19 rows.",
			published: []figures{
				{train: 72.9, test: 67.2, seconds: 1.80, known: -2.8},
				{train: 66.5, test: 60.6, seconds: 0.02, p: 0.19},
				{train: 68.29, test: 61.6, seconds: 0.03, p: 0.28, known: -3.1},
				{train: 68.9, test: 63.0, seconds: 0.14, p: 0.35, known: -3.2},
			},
		},
		{name: "Iris", file: "iris", raw: true, remark: "balanced comes out 2.6 points lower, which is four rows.", published: []figures{
			{train: 98.7, test: 98.0, seconds: 0.73, known: -2.3, within: closeTolerance},
			{train: 85.6, test: 83.3, seconds: 0.02, p: 1.2e-6},
			{train: 86.9, test: 86.7, seconds: 0.02, p: 2e-4, known: -2.6, within: closeTolerance},
			{train: 97.6, test: 97.3, seconds: 0.11, p: 0.66},
		}},
		{
			name: "Vowel", file: "vowel528",
			remark: "plain and balanced come out better than published. Plain's published training correctness, which hardly depends on ν, the scaling or the folds, does not come out of these 528 rows either.",
			published: []figures{
				{train: 68.7, test: 57.2, seconds: 5.56, known: 1.5, within: closeTolerance},
				{train: 54.6, test: 45.5, seconds: 0.05, p: 9.9e-3, known: 2.4, within: closeTolerance},
				{train: 56.1, test: 47.0, seconds: 0.05, p: 1.8e-2, known: 4.6, within: closeTolerance},
				{train: 64.5, test: 57.6, seconds: 0.14, p: 0.93, known: -1.4, within: closeTolerance},
			},
		},
		{name: "Vehicle", file: "vehicle", published: []figures{
			{train: 83.3, test: 79.0, seconds: 2.88, within: closeTolerance},
			{train: 79.1, test: 76.2, seconds: 0.11, p: 8.8e-2, within: closeTolerance},
			{train: 81.0, test: 77.4, seconds: 0.11, p: 0.33, within: closeTolerance},
			{train: 81.1, test: 77.5, seconds: 0.34, p: 0.30, within: closeTolerance},
		}},
		{name: "Segment", file: "segment", published: []figures{
			{train: 93.0, test: 91.9, seconds: 18.57, within: closeTolerance},
			{train: 85.5, test: 84.8, seconds: 0.22, p: 7.5e-7, within: closeTolerance},
			{train: 90.3, test: 90.1, seconds: 0.31, p: 2.2e-2, within: closeTolerance},
			{train: 91.3, test: 90.8, seconds: 0.67, p: 0.14, within: closeTolerance},
		}},
	},
}

var table62 = crossValidation{
	validation: validation{methods: []method{nsvm}, nus: exponents{low: -12, high: 12}},
	entries: []entry{
		{name: "Ionosphere", file: "ionosphere", published: []figures{{train: 93.2, test: 89.8, seconds: 0.95}}},
		{
			name: "BUPA Liver", file: "bupa",
			remark:    "with the best ν for these divisions PSVM has 68.8 % (table 2.3).",
			published: []figures{{train: 70.3, test: 70.2, seconds: 0.19, known: -2.0, within: closeTolerance}},
		},
		{name: "Pima Indians", file: "pima", published: []figures{{train: 77.7, test: 77.0, seconds: 0.48, within: closeTolerance}}},
		{name: "Cleveland Heart", file: "cleveland", raw: true, remark: clevelandRemark, published: []figures{{train: 87.3, test: 86.3, seconds: 0.31, known: -2.9, within: closeTolerance}}},
		{name: "Housing", file: "housing", published: []figures{{train: 87.2, test: 86.6, seconds: 0.58, within: closeTolerance}}},
		{name: "Galaxy Dim", remark: galaxyDim},
	},
}

// myeloma is table 6.1. Its only data set is not available.
func myeloma(context.Context, *Config) ([]Result, error) {
	return []Result{{DataSet: "Multiple Myeloma", Absent: "the gene expressions of the 105 cells (28032 features) are no longer offered"}}, nil
}
