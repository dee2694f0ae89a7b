package basis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"streamd/incremental"
	"streamd/incremental/parallel"
	"streamd/incremental/sample"
	"streamd/incremental/tuning"
	"streamd/kernels"
	"streamd/kernels/reduce"
)

// Candidate is a reducer and a size of the basis.
type Candidate struct {
	Name        string // of the reducer; candidates of one name share the time
	Reducer     reduce.Reducer
	Coordinates int // most coordinates
	Points      int // most points, which a prediction takes one value of the kernel for
}

// Judged is a candidate with its figures on held-out rows.
type Judged struct {
	Candidate
	// Failed says why the candidate gives no basis of these rows. All figures are then 0.
	Failed error
	Mean   float64 // mean number of coordinates over the folds
	Nu     float64 // ν of the planes; the best one where it is chosen, too
	// Correctness is balanced if the objective is. Deviation is its standard error over the
	// held-out rows.
	Correctness, Deviation float64
	// Loss is the mean of (x'w − γ ∓ 1)² over the planes and the held-out rows, weighted like
	// Correctness.
	Loss float64
	// Behind is the correctness of the most correct candidate less this one's. BehindDeviation is
	// the standard error of this difference over the same rows, which is much smaller than that of
	// either correctness where both are wrong about the same rows.
	Behind, BehindDeviation float64
	// LossBehind is this candidate's loss less that of the most correct one.
	LossBehind, LossBehindDeviation float64
	Seconds                         float64 // mean time of a fold: the basis, the sums and the planes
}

// Comparison has the results of the candidates that were tried.
type Comparison struct {
	Judged  []Judged // in the order of the candidates
	Chosen  int      // index of the recommended one
	Rows    int      // rows that each candidate was judged on
	Folds   int
	Untried int // candidates that there was no time for
}

// comparedRows bounds the rows that candidates are judged by. They determine the difference of
// two bases to about half a percentage point.
const comparedRows = 2000

// Compare judges candidates on held-out rows, and recommends one of them. It takes those that are
// no more than one standard error behind the most correct one, neither in correctness nor in loss.
// Of these it takes the fewest points, and then the most correct one.
//
// With a few hundred rows one standard error of the correctness is two or three percentage points,
// and the best of many small bases is lucky by as much. The loss, which the planes minimise, has a
// difference for every row, and tells such bases from good ones.
//
// It takes the first 2,000 rows. fold has the fold of each of the Problem's rows. A candidate
// chooses a basis from the rows outside a fold, so that points have not seen the fold. Proximal
// planes (Fung 2003, 2.55), solved from the sums of these rows, classify the fold's rows. With
// Planes.Nu 0 each candidate has the best ν of tuning.GridOf, of all folds together. A fold is
// left out when the other rows lack a class. Reducer and Points of the Problem have no effect.
//
// The first candidate is tried first, and then always the next one of the name that has taken the
// least time. When ctx ends after a candidate was judged, the others are untried, and there is no
// error. Otherwise results do not depend on time. It fails with the error of the first candidate if
// all of them fail.
func (p *Problem) Compare(ctx context.Context, kernel kernels.Kernel, candidates []Candidate, fold []int32) (*Comparison, error) {
	c, err := p.comparison(kernel, fold)
	if err != nil {
		return nil, err
	}
	out := &Comparison{Rows: len(c.codes), Folds: len(c.parts)}
	judged := make([]*Judged, len(candidates))
	all := make([]scores, len(candidates))
	took := map[string]time.Duration{}
	for range candidates {
		next := -1
		for i, of := range candidates {
			if judged[i] == nil && (next < 0 || took[of.Name] < took[candidates[next].Name]) {
				next = i
			}
		}
		began := time.Now()
		of := &Judged{Candidate: candidates[next]}
		all[next], err = c.judge(ctx, of)
		if ctx.Err() != nil {
			break
		}
		if of.Failed = err; err == nil {
			of.Correctness, of.Deviation = c.mean(all[next].right)
			of.Loss, _ = c.mean(all[next].loss)
		}
		judged[next] = of
		took[of.Name] += time.Since(began)
		if p.Tried != nil {
			p.Tried()
		}
	}
	var values []scores
	for i, of := range judged {
		if of == nil {
			out.Untried++
			continue
		}
		out.Judged, values = append(out.Judged, *of), append(values, all[i])
	}
	if len(out.Judged) == 0 {
		return nil, ctx.Err()
	}
	return out, out.choose(c, values)
}

// choose compares with the best and applies the rule.
func (o *Comparison) choose(c *comparison, all []scores) error {
	best := -1
	for i := range o.Judged {
		if of := &o.Judged[i]; of.Failed == nil && (best < 0 || of.Correctness > o.Judged[best].Correctness) {
			best = i
		}
	}
	if best < 0 {
		return o.Judged[0].Failed
	}
	o.Chosen = -1
	for i := range o.Judged {
		of := &o.Judged[i]
		if of.Failed != nil {
			continue
		}
		of.Behind, of.BehindDeviation = c.mean(minus(all[best].right, all[i].right))
		of.LossBehind, of.LossBehindDeviation = c.mean(minus(all[i].loss, all[best].loss))
		if of.Behind > of.BehindDeviation || of.LossBehind > of.LossBehindDeviation {
			continue
		}
		if o.Chosen < 0 || cmp.Or(
			cmp.Compare(of.Points, o.Judged[o.Chosen].Points),
			cmp.Compare(o.Judged[o.Chosen].Correctness, of.Correctness),
			cmp.Compare(of.Mean, o.Judged[o.Chosen].Mean)) < 0 {
			o.Chosen = i
		}
	}
	return nil
}

// scores are those of the held-out rows.
type scores struct {
	right []float64 // 1, or 0 for a row that is classified wrong
	loss  []float64
}

func minus(a, b []float64) []float64 {
	difference := make([]float64, len(a))
	for i := range a {
		difference[i] = a[i] - b[i]
	}
	return difference
}

// comparison is the rows that candidates are judged on, fold by fold.
type comparison struct {
	*Problem
	kernel  kernels.Kernel
	classes []string
	nus     []float64
	parts   []part
	workers int

	// The held-out rows, in the order of the folds.
	codes []int32
	share []float64 // of each row in the figure; the sum is 1
}

// part is a fold.
type part struct {
	rest     *incremental.Block // rows that the basis is chosen from
	weighted *incremental.Block // the same rows with the weights of what they stand for
	held     *incremental.Block
}

func (p *Problem) comparison(kernel kernels.Kernel, fold []int32) (*comparison, error) {
	order := p.Order
	if order == nil {
		for i := range p.Rows.Rows() {
			order = append(order, i)
		}
	}
	order = slices.Sorted(slices.Values(order[:min(len(order), comparedRows)]))
	first := p.Rows.Pick(order)
	weighted := first
	if p.Totals != nil {
		weighted = sample.Weigh(first, p.Totals)
	}
	c := &comparison{Problem: p, kernel: kernel, nus: []float64{p.Planes.Nu}, workers: p.Workers}
	if c.workers <= 0 {
		c.workers = runtime.GOMAXPROCS(0)
	}
	if p.Planes.Nu == 0 {
		c.nus = tuning.GridOf(p.Planes)
	}
	weight := make([]float64, len(first.Classes))
	for i, code := range first.Codes {
		weight[code] += weighted.Weight(i)
	}
	for code, w := range weight {
		if w > 0 {
			c.classes = append(c.classes, first.Classes[code])
		}
	}
	slices.SortFunc(c.classes, incremental.CompareLabels)
	if len(c.classes) < 2 {
		return nil, incremental.ErrClasses
	}
	for in := range slices.Max(fold) + 1 {
		var rest, held []int
		missing := slices.Clone(weight)
		for i, row := range order {
			if fold[row] == in {
				held = append(held, i)
			} else {
				rest = append(rest, i)
				missing[first.Codes[i]] = 0
			}
		}
		if len(held) == 0 || slices.Max(missing) > 0 {
			continue
		}
		var weighs float64
		for _, i := range held {
			weighs += weighted.Weight(i)
		}
		if !(weighs > 0) {
			continue
		}
		of := part{rest: first.Pick(rest), weighted: weighted.Pick(rest), held: weighted.Pick(held)}
		c.codes = append(c.codes, of.held.Codes...)
		for i := range held {
			c.share = append(c.share, of.held.Weight(i))
		}
		c.parts = append(c.parts, of)
	}
	if c.parts == nil {
		return nil, errors.New("none of the folds has rows and leaves rows of every class to the others")
	}
	c.shares()
	return c, nil
}

// shares turns weights into the rows' shares in the figure.
func (c *comparison) shares() {
	of := make([]float64, len(c.Rows.Classes)) // weights of the classes
	var all, seen float64
	for i, w := range c.share {
		of[c.codes[i]] += w
		all += w
	}
	for _, w := range of {
		if w > 0 {
			seen++
		}
	}
	for i := range c.share {
		if c.Objective == tuning.Balanced {
			c.share[i] /= seen * of[c.codes[i]]
		} else {
			c.share[i] /= all
		}
	}
}

// mean is the mean of a quantity of the held-out rows, and its standard error, with the numbers of
// rows of each class given.
func (c *comparison) mean(x []float64) (mean, deviation float64) {
	sum, share := make([]float64, len(c.Rows.Classes)), make([]float64, len(c.Rows.Classes))
	for i, g := range c.share {
		mean += float64(g * x[i])
		sum[c.codes[i]] += float64(g * x[i])
		share[c.codes[i]] += g
	}
	for i, g := range c.share {
		if g == 0 {
			continue // of a class that may have no share
		}
		d := g * (x[i] - sum[c.codes[i]]/share[c.codes[i]])
		deviation += float64(d * d)
	}
	return mean, math.Sqrt(deviation)
}

// judge tries a candidate.
func (c *comparison) judge(ctx context.Context, of *Judged) (s scores, err error) {
	trial := tuning.New(c.Planes, c.nus, c.classes)
	type fitted struct {
		rest, held *incremental.Moments
		rows       *incremental.Block // the held-out rows in the coordinates
		seconds    float64
	}
	folds := make([]fitted, len(c.parts))
	err = parallel.For(c.workers, len(c.parts), func(i int) error {
		began := time.Now()
		f, part := &folds[i], &c.parts[i]
		p := *c.Problem
		p.Rows, p.Order, p.Totals, p.Progress = part.rest, nil, nil, nil
		p.Reducer, p.Points, p.Workers = of.Reducer, of.Coordinates, max(1, c.workers/len(c.parts))
		m, _, err := p.Choose(ctx, c.kernel)
		if err != nil {
			return err
		}
		in := New(m, c.Gram)
		if f.rest, _, err = sums(ctx, part.weighted, in); err == nil {
			f.held, f.rows, err = sums(ctx, part.held, in)
		}
		f.seconds = time.Since(began).Seconds()
		return err
	})
	if err != nil {
		return s, err
	}
	for i, f := range folds {
		if err := ctx.Err(); err != nil {
			return s, err
		}
		began := time.Now()
		if err := trial.Hold(f.rest, f.held); err != nil {
			return s, fmt.Errorf("without fold %d of %d: %w", i+1, len(folds), err)
		}
		trial.Add(trial.Score(i, f.rows))
		of.Seconds += (f.seconds + time.Since(began).Seconds()) / float64(len(folds))
		of.Mean += float64(len(f.rows.Columns)) / float64(len(folds))
	}
	curve, err := trial.Curve()
	if err != nil {
		return s, err
	}
	options := c.Planes
	options.Nu = curve.Choose(curve.By(c.Objective)).Nu
	of.Nu = options.Nu
	for _, f := range folds {
		model, err := f.rest.Solve(options)
		if err != nil {
			return s, err
		}
		planes := len(model.Planes)
		class, values := make([]int32, f.rows.Rows()), make([]float64, f.rows.Rows()*planes)
		model.Classify(class, values, f.rows.Columns)
		for row, code := range f.rows.Codes {
			label, right, loss := f.rows.Classes[code], 0.0, 0.0
			if model.Classes[class[row]] == label {
				right = 1
			}
			for i, p := range model.Planes {
				e := values[row*planes+i] + 1
				if p.Class == label {
					e -= 2
				}
				loss += float64(e * e)
			}
			if loss-loss != 0 { // it cannot be compared
				return s, errors.New("the decision values of held-out rows overflow")
			}
			s.right, s.loss = append(s.right, right), append(s.loss, loss/float64(planes))
		}
	}
	return s, nil
}

// sums returns the sums of rows in coordinates, and the rows there.
func sums(ctx context.Context, rows *incremental.Block, in *Coordinates) (*incremental.Moments, *incremental.Block, error) {
	lifted, err := new(Lifter).Block(ctx, rows, in)
	if err != nil {
		return nil, nil, err
	}
	summary, err := new(incremental.Summariser).Summarise(lifted)
	if err != nil {
		return nil, nil, err
	}
	state := incremental.NewState(in.Names)
	state.Add(summary)
	return in.Moments(state), lifted, nil
}
