package reproduce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/plot"
	"streamd/incremental"
	"streamd/incremental/decision"
	"streamd/incremental/newton"
	"streamd/kernels"
	"streamd/kernels/svm"
)

// minimalTable is table 4.3: the minimal kernel classifier beside the SVM of the full kernel.
type minimalTable struct {
	kernels      exponents // the Gaussian's μ
	nus, svmNus  exponents
	price        float64 // μ of svm.Minimal
	tuningPoints float64 // the most points of the basis while tuning
	entries      []minimalEntry
}

type minimalEntry struct {
	name, file string
	remark     string
	share      float64 // of the training rows that are the basis, as in RSVM; 1: all
	fewer      float64 // known reduction of the points, where it is less than leastFewerPoints
	mkc        figures
	svm        figures // without a test figure the SVM is not run, as in the thesis
}

func (e minimalEntry) dataSet() (name, file, remark string) { return e.name, e.file, e.remark }

// The methods of table 4.3.
const (
	mkcName = "MKC"
	svmName = "SVM"
)

func (t minimalTable) run(ctx context.Context, c *Config) ([]Result, error) {
	return eachSet(c, t.entries, func(e minimalEntry, s *set) ([]Result, error) {
		if err := s.standardise(); err != nil {
			return nil, err
		}
		divisions, err := divideOften(s, c, c.Seeds)
		if err != nil {
			return nil, err
		}
		shares := []float64{e.share, 1} // of MKC and of the full kernel's SVM
		if e.svm.test == 0 {
			shares = shares[:1]
		}
		trials, err := scored(ctx, c, divisions, len(shares), func(ctx context.Context, i, d, f int) (score, error) {
			return t.fold(ctx, &divisions[d][f], shares[i], i == 1)
		})
		if err != nil {
			return nil, err
		}
		mkc := s.result(e.name, e.remark, mkcName, trials[0], e.mkc, mkcName, trials[0])
		if e.svm.test == 0 {
			return []Result{mkc}, nil
		}
		full := s.result(e.name, e.remark, svmName, trials[1], e.svm, mkcName, trials[0])
		if fewer, least := 1 - *mkc.Used / *full.Used, cmp.Or(e.fewer, leastFewerPoints); fewer < least {
			mkc.Broken = fmt.Sprintf("it uses %.1f %% fewer points than the SVM's support vectors; at least %.0f %% are expected", 100*fewer, 100*least)
		}
		return []Result{mkc, full}, nil
	})
}

// leastFewerPoints is what table 4.3 shows, and minimalTolerance how far the correctness may be
// from the thesis's, in points. The kernel's μ and ν are tuned on few rows, and there is one
// division.
const leastFewerPoints, minimalTolerance = 0.9, 2

// fold tunes and tests the minimal kernel classifier, or the SVM of the full kernel, in a fold.
func (t minimalTable) fold(ctx context.Context, f *fold, share float64, full bool) (score, error) {
	return f.inKernels(ctx, t.kernels, share, t.tuningPoints, full, func(mu float64) ([]candidate, error) {
		return t.candidates(mu, full)
	})
}

// inKernels tunes and tests candidates of each μ in a fold. A share of the training rows is the
// kernel's columns, while tuning at most as many as tuningPoints. Of a full kernel the best
// candidate is taken, else the one with the fewest points among those that are nearly as good.
func (f *fold) inKernels(ctx context.Context, mus exponents, share, tuningPoints float64, full bool, among func(mu float64) ([]candidate, error)) (score, error) {
	began := time.Now()
	var all []tried
	for _, mu := range mus.ascending() {
		candidates, err := among(mu)
		if err != nil {
			return score{}, err
		}
		var sets []tuning
		for _, split := range f.splits() {
			few := min(share, tuningPoints/float64(joined(split.rest).Rows()))
			learned, _, tune, err := inKernel(mu, few, full, split.rest, split.tune)
			if err != nil {
				return score{}, err
			}
			sets = append(sets, tuning{tune, learned})
		}
		more, err := try(ctx, sets, candidates)
		if err != nil {
			return score{}, fmt.Errorf("μ = %g: %w", mu, err)
		}
		all = append(all, more...)
	}
	best := firstOf(all)
	if !full {
		best = fewest(all, best)
	}
	tuned := time.Since(began)
	learned, train, test, err := inKernel(best.mu, share, full, f.train.rows, f.test)
	if err != nil {
		return score{}, err
	}
	s, err := best.score(ctx, learned, train, test)
	s.total += tuned
	return s, err
}

// fewest returns the candidate with the fewest points among those that are as good as the best,
// within one standard error of its correctness (Breiman, Friedman, Olshen and Stone 1984, section
// 3.4.3). Tuning sets of some hundred rows do not tell these apart, and one may have many times the
// points of another.
func fewest(all []tried, best tried) tried {
	share := float64(best.right) / float64(best.rows)
	least := float64(best.right) - math.Sqrt(float64(best.rows)*share*(1-share))
	for _, c := range all {
		if float64(c.right) >= least && c.used < best.used {
			best = c
		}
	}
	return best
}

func (t minimalTable) candidates(mu float64, full bool) (all []candidate, err error) {
	if full {
		kernel, err := kernels.Gaussian(mu)
		for _, nu := range t.svmNus.ascending() {
			all = append(all, candidate{svm.SMO{Kernel: kernel}, nu, mu})
		}
		return all, err
	}
	for _, nu := range t.nus.ascending() {
		all = append(all, candidate{svm.Minimal{Mu: t.price}, nu, mu})
	}
	return all, nil
}

// inKernel returns what a machine learns from, and rows to test it on: those it learns from, and
// others. The full kernel is learned from the features.
func inKernel(mu, share float64, full bool, rows, others newton.Blocks) (learned, train, test *svm.Rows, err error) {
	z := chosen(rows, share)
	if full {
		learned = problem(rows, positive, false)
		z = pointsOf(learned)
	}
	in, err := gaussian(mu, z, rows)
	if err != nil {
		return nil, nil, nil, err
	}
	train, test = problem(lifted(rows, in), positive, true), problem(lifted(others, in), positive, true)
	if !full {
		learned = train
	}
	return learned, train, test, nil
}

// pointsOf returns rows one after the other.
func pointsOf(rows *svm.Rows) (z []float64) {
	for i := range rows.D {
		for _, c := range rows.Columns {
			z = append(z, c.At(i))
		}
	}
	return z
}

var table43 = minimalTable{
	kernels:      exponents{low: -10, high: -4, step: 2},
	nus:          exponents{low: -2, high: 8, step: 2},
	svmNus:       exponents{low: -2, high: 8, step: 2},
	price:        1,
	tuningPoints: 80,
	entries: []minimalEntry{
		{
			name: "Ionosphere", file: "ionosphere", share: 1, fewer: 0.75,
			remark: "the SVM tuned here has 115 support vectors. 90 % fewer than the thesis's, some 290 of 316 rows, are 29 points.",
			mkc:    figures{test: 94.9, used: 15.7, vectors: 30.2, within: minimalTolerance}, svm: figures{test: 92.9, known: 2, within: closeTolerance},
		},
		{name: "Cleveland Heart", file: "cleveland", share: 1, mkc: figures{test: 85.8, used: 7.6, vectors: 64.6, within: minimalTolerance}, svm: figures{test: 85.5}},
		{name: "Pima Indians", file: "pima", share: 150. / 768, mkc: figures{test: 77.7, used: 7.8, vectors: 263.1, within: minimalTolerance}, svm: figures{test: 76.6}},
		{name: "BUPA Liver", file: "bupa", share: 1, mkc: figures{test: 75.0, used: 10.5, vectors: 144.4, within: minimalTolerance}, svm: figures{test: 72.7}},
		{
			name: "Tic-Tac-Toe", file: "tic-tac-toe", share: 96. / 958, fewer: 0.45,
			remark: "the SVM tuned here has 86 support vectors, so 90 % fewer are 9 points. The thesis's 14.3 are 90 % fewer than its some 840 of 862 rows.",
			mkc:    figures{test: 98.4, used: 14.3, vectors: 31.3, within: minimalTolerance}, svm: figures{test: 98.3, known: 1.7, within: closeTolerance},
		},
		{
			name: "Mushroom", file: "mushroom", share: 400. / 8124,
			remark: "its coding in the thesis is not known, as in table 2.3; the thesis has no SVM.",
			mkc:    figures{test: 89.3, used: 47.9, vectors: 933.8, known: 10.7, within: closeTolerance},
		},
	},
}

// minimalBoard is figure 4.4: the thesis's points, and a tenth of them for the kernel's columns.
// The parameters are those with the fewest points among 24 that are as good, within a standard
// error, on the ten tenths of the points, each learned without its tenth.
type minimalBoard struct {
	surface surface
	plane   *svm.Plane
}

// Claims of figure 4.4: the share of the grid, and the points.
const leastBoard, mostBoard = 0.97, 40

func newMinimalBoard(ctx context.Context, c *Config) (*minimalBoard, string, error) {
	const mu, nu, price, share = 0.0003, 1 << 8, 32, 0.1
	s, absent, err := c.open("checkerboard")
	if s == nil {
		return nil, absent, err
	}
	order, _ := dealt(s.codes, folds, c.Seed)
	s = s.pick(order)
	rows := newton.Blocks{s.block(0, s.rows())}
	z := chosen(rows, share)
	in, err := gaussian(mu, z, rows)
	if err != nil {
		return nil, "", err
	}
	p, err := svm.Minimal{Mu: price}.Fit(ctx, problem(lifted(rows, in), positive, true), nu)
	if err != nil {
		return nil, "", err
	}
	// The classifier has no other points than those that it uses.
	plane := incremental.Plane{Class: positive, Gamma: p.Gamma}
	var used []float64
	for j, w := range p.W {
		if n := len(s.columns); w != 0 {
			plane.W, used = append(plane.W, w), append(used, z[j*n:][:n]...)
		}
	}
	if in, err = gaussian(mu, used, rows); err != nil {
		return nil, "", err
	}
	learned := &incremental.Model{
		Features: in.Names, Classes: []string{"-1", positive}, Planes: []incremental.Plane{plane},
		Options: incremental.Options{Nu: nu},
	}
	return &minimalBoard{plane: p, surface: surface{
		method: mkcName, points: s, rows: lifted(rows, in), mu: mu,
		by: &model.Classifier{Features: s.features, Map: in.Map, Model: learned, Rule: decision.ByValue(len(learned.Classes))},
	}}, "", nil
}

func minimalBoardTable(ctx context.Context, c *Config) ([]Result, error) {
	const name = "Checkerboard"
	b, absent, err := newMinimalBoard(ctx, c)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return []Result{{DataSet: name, Absent: absent, missing: true}}, nil
	}
	r := b.surface.result(name, checkerboardGrid(), figures{used: 27, vectors: 30})
	r.Used, r.SupportVectors, r.Programs = new(float64(b.plane.Features())), new(float64(b.plane.SupportVectors())), float64(b.plane.Programs)
	return []Result{r}, nil
}

// judgeBoard holds the means against the claims.
func judgeBoard(r *Result) {
	r.hold(*r.Test+r.allowed(0) >= leastBoard && *r.Used <= mostBoard, "%.1f %% of the grid with %.0f points; at least %.0f %% with at most %d are expected",
		100**r.Test, *r.Used, 100*leastBoard, mostBoard)
}

// judgeDigits holds the means of table 4.2 against what the thesis says of it.
func judgeDigits(r *Result) {
	const mostWrong, mostUsed = 0.075, 450
	r.hold(1-*r.Test <= r.allowed(mostWrong) && *r.Used <= mostUsed, "%.2f %% wrong with %.0f points; at most %.1f %% with at most %d are expected",
		100*(1-*r.Test), *r.Used, 100*mostWrong, mostUsed)
}

// drawMinimalBoard draws the regions, the kernel's points and, as the only rows, the support
// vectors.
func drawMinimalBoard(ctx context.Context, w io.Writer, c *Config) error {
	b, absent, err := newMinimalBoard(ctx, c)
	if err != nil {
		return err
	}
	if b == nil {
		return errors.New(absent)
	}
	var vectors []int
	for i, a := range b.plane.Alpha {
		if a > 0 {
			vectors = append(vectors, i)
		}
	}
	picture := plot.Regions{Classifier: b.surface.by, Rows: b.surface.points.pick(vectors).block(0, len(vectors))}
	return picture.SVG(w)
}

// uspsMinimal is table 4.2: ten minimal kernel classifiers, one-vs-rest. They choose from a
// twentieth of the rows.
func uspsMinimal(ctx context.Context, c *Config) ([]Result, error) {
	const (
		name                 = "USPS"
		mu, nu, price, share = 1. / 128, 2, 4, 0.05
	)
	train, test, absent, err := c.openBoth("usps-train", "usps-test")
	if err != nil {
		return nil, err
	}
	if absent != "" {
		return []Result{{DataSet: name, Absent: absent, missing: true}}, nil
	}
	order, _ := dealt(train.codes, folds, c.Seed)
	train = train.pick(order)
	rows := newton.Blocks{train.block(0, train.rows())}
	in, err := gaussian(mu, chosen(rows, share), rows)
	if err != nil {
		return nil, err
	}
	rows = lifted(rows, in)
	tests := lifted(newton.Blocks{test.block(0, test.rows())}, in)
	planes := make([]*svm.Plane, len(train.classes))
	c.progress(name)
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.workers())
	for k, class := range train.classes {
		group.Go(func() (err error) {
			planes[k], err = svm.Minimal{Mu: price}.Fit(ctx, problem(rows, class, true), nu)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	took := time.Since(began).Seconds()
	learned := &incremental.Model{Features: in.Names, Classes: train.classes}
	var used, vectors, programs float64
	for k, p := range planes {
		learned.Planes = append(learned.Planes, incremental.Plane{Class: train.classes[k], W: p.W, Gamma: p.Gamma})
		used, vectors = used+float64(p.Features()), vectors+float64(p.SupportVectors())
		programs += float64(p.Programs) / float64(len(planes))
	}
	r := Result{
		DataSet: name, Rows: train.rows(), Features: len(train.features), Method: mkcName, Nu: nu, Mu: mu,
		Train: new(correctness(learned, rows)), Test: new(correctness(learned, tests)),
		Used: &used, SupportVectors: &vectors, Programs: programs, Seconds: took,
	}
	r.estimated(estimateOfShare(*r.Test, test.rows()))
	figures{test: 93.3, used: 376}.compare(&r)
	return []Result{r}, nil
}
