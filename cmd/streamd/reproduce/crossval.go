package reproduce

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"streamd/incremental"
	"streamd/incremental/newton"
	"streamd/incremental/study"
)

// method learns a linear classifier.
type method struct {
	name     string
	balanced bool
	refine   bool          // with Newton refinement
	how      newton.Method // of the refinement; Line is Algorithm 2.4.1
	highest  int           // exponent of ν; 0: that of the table
}

// The methods, by their names in the thesis.
var (
	psvm = method{name: "PSVM"}
	// One-vs-rest. PSVM is the case of two classes.
	mpsvm   = method{name: "MPSVM"}
	bMPSVM  = method{name: "B-MPSVM", balanced: true}
	brMPSVM = method{name: "BR-MPSVM", balanced: true, refine: true, how: newton.Line}
	// SSVM, LSVM and NSVM find the minimum of (2.37) in three ways.
	ssvm = method{name: "SSVM", refine: true}
	nsvm = method{name: "NSVM", refine: true}
	// ofr is the same, one-vs-rest. Segment's features are nearly dependent, and at ν = 2^23
	// the steps do not settle to the last bit.
	ofr = method{name: "OFR L2-SVM", refine: true, highest: 20}
)

// learn makes the classifier of some rows.
func (m method) learn(ctx context.Context, p part, nu float64, standardise bool) (learned *incremental.Model, err error) {
	err = m.try(ctx, p, []float64{nu}, standardise, func(_ int, model *incremental.Model) { learned = model })
	return learned, err
}

// try makes the classifiers of some rows for each of nus, and calls judge with each and the
// index of its ν.
func (m method) try(ctx context.Context, p part, nus []float64, standardise bool, judge func(i int, model *incremental.Model)) error {
	order := make([]int, len(nus))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(nus[i], nus[j]) })
	y := study.Of(p.moments, study.Options{
		Planes: incremental.Options{Balanced: m.balanced, Standardise: standardise}, Refine: m.how, Workers: 1,
	})
	scale := m.scale(p.rows)
	for _, i := range order {
		model, err := m.at(ctx, y, p.rows, nus[i], scale)
		if err != nil {
			return fmt.Errorf("%s: ν = %g: %w", m.name, nus[i], err)
		}
		judge(i, model)
	}
	return nil
}

// scale is streamd's ν over the thesis's. A balanced plane of the thesis weighs a row by one over
// the rows of its side (2.34), which adds up to 2. Streamd's weights add up to the rows.
func (m method) scale(rows newton.Blocks) float64 {
	if !m.balanced {
		return 1
	}
	var all int
	for _, b := range rows {
		all += b.Rows()
	}
	return 2 / float64(all)
}

// at makes the classifier with one ν of the thesis.
func (m method) at(ctx context.Context, y *study.Study, rows newton.Blocks, nu, scale float64) (model *incremental.Model, err error) {
	if !y.Move(nu * scale) {
		model, err = y.Solve()
	}
	if err != nil || !m.refine {
		return model, err
	}
	var lineNu map[string]float64
	if m.how == newton.Line { // Algorithm 2.4.1 has no balance: its ν is the thesis's
		lineNu = map[string]float64{}
		for _, class := range model.Classes {
			lineNu[class] = 1 / scale
		}
	}
	result, err := y.Refine(ctx, rows, lineNu)
	if err != nil {
		return nil, err
	}
	return result.Model, nil
}

// part is rows to learn from, with their sums.
type part struct {
	moments *incremental.Moments
	rows    newton.Blocks
}

// newPart sums rows.
func newPart(features []string, rows newton.Blocks) (part, error) {
	var z incremental.Summariser
	state := incremental.NewState(features)
	for _, b := range rows {
		summary, err := z.Summarise(b)
		if err != nil {
			return part{}, err
		}
		state.Add(summary)
	}
	return part{state.Moments(), rows}, nil
}

// fold is one fold of a division, with its training data and the tuning sets that these are
// divided into.
type fold struct {
	train   part
	test    newton.Blocks
	tuning  []split              // the first is the thesis's
	rest    *incremental.Moments // of the first one's rest
	summing time.Duration        // its share of the time to sum up the division
}

// split is a tuning set and the rest of the training data.
type split struct{ tune, rest newton.Blocks }

// folds is the number of folds. A tuning set is as large a share of the training data.
const folds = 10

// divide deals a set into folds, and sums up the training data of each. Every cell of the grid is
// summed once. Removing the cells of a fold or a tuning set from the sum of all leaves the bits
// of a sum that never had them.
func divide(s *set, seed uint64) ([]fold, error) {
	order, start := dealt(s.codes, folds, seed)
	s = s.pick(order)
	began := time.Now()
	var z incremental.Summariser
	cells := make([]*incremental.Summary, folds*folds)
	state := incremental.NewState(s.features)
	for c := range cells {
		var err error
		if cells[c], err = z.Summarise(s.block(start[c], start[c+1])); err != nil {
			return nil, err
		}
		state.Add(cells[c])
	}
	// blocks returns the wanted cells, neighbours as one block.
	blocks := func(wanted func(row, column int) bool) newton.Blocks {
		var b newton.Blocks
		for c := 0; c < len(cells); {
			first := c
			for c < len(cells) && wanted(c/folds, c%folds) {
				c++
			}
			if start[first] < start[c] {
				b = append(b, s.block(start[first], start[c]))
			}
			if c == first {
				c++
			}
		}
		return b
	}
	division := make([]fold, folds)
	for f := range division {
		for column := range folds {
			state.Remove(cells[f*folds+column])
		}
		train := state.Moments()
		for row := range folds {
			if row != f {
				state.Remove(cells[row*folds+f])
			}
		}
		division[f] = fold{
			train: part{train, blocks(func(row, _ int) bool { return row != f })},
			test:  blocks(func(row, _ int) bool { return row == f }),
			rest:  state.Moments(),
		}
		for i := range folds {
			tuning := (f + i) % folds
			division[f].tuning = append(division[f].tuning, split{
				tune: blocks(func(row, column int) bool { return row != f && column == tuning }),
				rest: blocks(func(row, column int) bool { return row != f && column != tuning }),
			})
			if len(division[f].tuning[i].tune) == 0 || len(division[f].test) == 0 {
				return nil, fmt.Errorf("%d rows are too few for %d folds with tuning sets", s.rows(), folds)
			}
		}
		for c, cell := range cells {
			if c/folds == f || c%folds == f {
				state.Add(cell)
			}
		}
	}
	took := time.Since(began) / folds
	for f := range division {
		division[f].summing = took
	}
	return division, nil
}

// exponents are the candidates 2^i, from i = low to high in steps.
type exponents struct {
	low, high int
	step      int // 0: 1
}

func (e exponents) String() string {
	if e.step > 1 {
		return fmt.Sprintf("2^%d, 2^%d, … 2^%d", e.low, e.low+e.step, e.high)
	}
	return fmt.Sprintf("2^%d … 2^%d", e.low, e.high)
}

// values lists the candidates by preference: those near 1 first, and of two that are as near the
// smaller. On small tuning sets several are often equally good, and the thesis does not say which
// it takes.
func (e exponents) values() []float64 {
	v := e.ascending()
	slices.SortStableFunc(v, func(a, b float64) int {
		return int(math.Abs(math.Log2(a)) - math.Abs(math.Log2(b)))
	})
	return v
}

func (e exponents) ascending() []float64 {
	var v []float64
	for i := e.low; i <= e.high; i += max(1, e.step) {
		v = append(v, math.Ldexp(1, i))
	}
	return v
}

func (e exponents) descending() []float64 {
	v := e.ascending()
	slices.Reverse(v)
	return v
}

// score is the result of a method in one fold.
type score struct {
	nu, mu          float64       // μ of a Gaussian kernel; 0: none
	train, test     float64       // correctness
	training, total time.Duration // without and with tuning
	used, vectors   float64       // features or points used, and support vectors; 0: not counted
	programs        int           // mathematical programs solved; 0: none
}

// run takes the first ν with the best correctness on the tuning set, and learns from all training
// data.
func (f *fold) run(ctx context.Context, m method, nus []float64, standardise bool) (score, error) {
	began := time.Now()
	s := score{nu: nus[0]}
	if len(nus) > 1 {
		right := make([]float64, len(nus))
		err := m.try(ctx, part{f.rest, f.tuning[0].rest}, nus, standardise, func(i int, model *incremental.Model) {
			right[i] = correctness(model, f.tuning[0].tune)
		})
		if err != nil {
			return score{}, err
		}
		s.nu = nus[first(right)]
	}
	tuned := time.Now()
	model, err := m.learn(ctx, f.train, s.nu, standardise)
	if err != nil {
		return score{}, err
	}
	s.training = f.summing + time.Since(tuned)
	s.train, s.test = correctness(model, f.train.rows), correctness(model, f.test)
	s.total = f.summing + time.Since(began)
	return s, nil
}

// first returns the index of the first of the largest values.
func first(values []float64) int {
	best := 0
	for i, v := range values {
		if v > values[best] {
			best = i
		}
	}
	return best
}

// validation is the cross-validation of methods on a set.
type validation struct {
	methods     []method
	nus         exponents
	one         bool // one ν for all folds and methods: the best of the first method
	standardise bool
}

// trial has the scores of a method, by division and fold.
type trial [][]score

// mean returns the mean of a figure over the folds of a division.
func (t trial) mean(division int, of func(score) float64) float64 {
	var sum float64
	for _, s := range t[division] {
		sum += of(s)
	}
	return sum / float64(len(t[division]))
}

// run cross-validates on a division of a set for each seed. The trials are in the order of the
// methods. The scores are the same for any number of workers.
func (v validation) run(ctx context.Context, s *set, c *Config) ([]trial, error) {
	divisions, err := divideOften(s, c, c.Seeds)
	if err != nil {
		return nil, err
	}
	grid := func(m method) []float64 {
		if m.highest > 0 {
			return exponents{low: v.nus.low, high: m.highest}.values()
		}
		return v.nus.values()
	}
	if v.one {
		nu, err := v.best(ctx, c, divisions, v.nus.values())
		if err != nil {
			return nil, err
		}
		grid = func(method) []float64 { return []float64{nu} }
	}
	return scored(ctx, c, divisions, len(v.methods), func(ctx context.Context, i, d, f int) (score, error) {
		return divisions[d][f].run(ctx, v.methods[i], grid(v.methods[i]), v.standardise)
	})
}

// best returns the ν with which the first method is right most often in the folds.
func (v validation) best(ctx context.Context, c *Config, divisions [][]fold, nus []float64) (float64, error) {
	at, err := bestChoice(ctx, c, divisions, func(ctx context.Context, fold *fold) ([]float64, error) {
		right := make([]float64, len(nus))
		return right, v.methods[0].try(ctx, fold.train, nus, v.standardise, func(i int, model *incremental.Model) {
			right[i] = correctness(model, fold.test)
		})
	})
	return nus[at], err
}
