// Package tuning chooses ν, the weight of the errors against the size of the
// plane (Fung 2003, 2.8), by cross-validation on folds of the live rows.
//
// A Trial has, for one set of options, the planes of every ν without each fold in turn:
// New solves the whole path, Refined takes planes that were refined. It judges them on the
// fold that they have not seen, in two ways:
//
//   - by squared loss, Σ av (x'w − γ − d)², computed without rows from the sums of the
//     fold: z'E'Ez − 2z'E'De + m. Refined planes have the loss that refinement lowers,
//     Σ av (1 − d(x'w − γ))₊² or Σ av (−log p), from the scored rows;
//   - by correctness, on rows of the fold: all of them or a sample.
//
// A Curve holds both for every ν. Curve.Choose picks a ν, and Curve.Solve solves the
// model of all rows with it. The correctness of curves can be compared, and the losses of
// curves of solved planes.
//
// # Costs
//
// Hold takes O(n³), and O(n²) per plane and ν; each of k > 2 balanced classes takes
// O(n³). Score takes a multiplication per row, feature, plane and ν. A trial keeps 8n
// bytes per fold, plane and ν.
//
// # Determinism
//
// A curve is a function of the options, the grid, the sums of the folds in order, and
// the set of scored blocks. Blocks may be scored in any order, because their counts are
// summed exactly. A fold should be a function of its blocks' content, so that the choice
// is a function of the set of live blocks.
package tuning

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"streamd/incremental"
	"streamd/incremental/exact"
)

// Grid is the default grid of ν: 2^-20, 2^-19, …, 2^20, powers of two as in Fung 2003. A
// plane changes where 1/ν passes the eigenvalues of E'E. These are the number of rows
// times the variances in the directions of the data. For standardised features the grid
// covers all of them up to a million rows.
func Grid() []float64 {
	const span = 20
	nus := make([]float64, 0, 2*span+1)
	for i := -span; i <= span; i++ {
		nus = append(nus, math.Ldexp(1, i))
	}
	return nus
}

// GridOf is Grid, or one ν where the Solver of the options has no use for it.
func GridOf(o incremental.Options) []float64 {
	if o.Solver != nil {
		if _, nu := o.Solver.Uses(); !nu {
			return []float64{1}
		}
	}
	return Grid()
}

// Trial is the path of ν under one set of options, solved without each fold in turn.
// Score may be called from several goroutines, all other methods from one at a time.
type Trial struct {
	options incremental.Options
	nus     []float64
	classes []string
	models  [][]*incremental.Model // [fold][ν]
	losses  [][][]incremental.Loss // [fold][ν][plane]

	rows   int64
	weight []*exact.Vector // [fold]: [class]
	right  []*exact.Vector // [fold]: [ν][class]
	errors []*exact.Vector // [fold]: [ν][class][side], sums of the loss; nil: planes were solved

	method   string // of the refinement; "": planes were solved
	logistic bool   // the loss of refined planes is −log p, not (1 − d(x'w − γ))₊²
}

// New begins a trial of o, with each of nus in place of o.Nu, on rows of the given
// classes.
func New(o incremental.Options, nus []float64, classes []string) *Trial {
	o.Nu = 0
	return &Trial{options: o, nus: slices.Clone(nus), classes: classes}
}

// Refined begins a trial of planes that were refined by a method, logistic or not. models are
// those without each fold, for every ν; without a fold that has no rows there are none.
func Refined(o incremental.Options, nus []float64, classes []string, models [][]*incremental.Model, method string, logistic bool) *Trial {
	t := New(o, nus, classes)
	t.method, t.logistic = method, logistic
	t.models = models
	for range models {
		t.weight = append(t.weight, exact.NewVector(len(classes)))
		t.right = append(t.right, exact.NewVector(len(nus)*len(classes)))
		t.errors = append(t.errors, exact.NewVector(2*len(nus)*len(classes)))
	}
	return t
}

// Hold adds a fold; folds are numbered from 0 in the order of the calls. held are the
// sums of its rows and rest those of all others, usually from State.Without. held may be
// empty. A single fold is a tuning set.
//
// rest, held and the blocks scored for the fold are in the same coordinates. Other folds
// may have other coordinates, because a kernel's basis that was learned without a fold
// must not have seen its rows.
//
// A class with all of its rows in one fold has no plane without that fold. Its rows there
// count as misclassified, and in the losses as negative rows of every plane.
//
// Hold fails like Moments.Path, for instance with incremental.ErrClasses when rest has
// fewer than two classes.
func (t *Trial) Hold(rest, held *incremental.Moments) error {
	models, err := rest.Path(t.options, t.nus)
	if err != nil {
		return err
	}
	t.models = append(t.models, models)
	t.losses = append(t.losses, held.Losses(t.options.ClassWeights, models))
	t.weight = append(t.weight, exact.NewVector(len(t.classes)))
	t.right = append(t.right, exact.NewVector(len(t.nus)*len(t.classes)))
	return nil
}

// A Score counts the rows of one block.
type Score struct {
	fold   int
	rows   int64
	weight []float64 // [class]
	right  []float64 // [ν][class]
	errors []float64 // [ν][class][side], sums of the loss; nil: planes were solved
}

// Score classifies rows of a fold by the models without it, for every ν. The
// block's columns must be in the order of the features, and its classes among
// those of the trial. Rows of weight 0 are ignored. The block is not kept.
func (t *Trial) Score(fold int, b *incremental.Block) *Score {
	k, m := len(t.classes), b.Rows()
	s := &Score{fold: fold, weight: make([]float64, k), right: make([]float64, len(t.nus)*k)}
	at := b.ClassesIn(t.classes)
	weights := make([]float64, m) // in losses: with those of the classes
	for i, code := range b.Codes {
		v := b.Weight(i)
		if v == 0 {
			continue
		}
		weights[i] = float64(t.options.ClassWeight(b.Classes[code]) * v)
		if at[code] < 0 {
			panic(fmt.Sprintf("tuning: a row of class %q, which the sums do not have", b.Classes[code]))
		}
		s.rows++
		s.weight[at[code]] += v
	}
	if t.errors != nil {
		s.errors = make([]float64, 2*len(t.nus)*k)
	}
	class := make([]int32, m)
	var values []float64
	for i, model := range t.models[fold] {
		values = slices.Grow(values[:0], m*len(model.Planes))[:m*len(model.Planes)]
		model.Classify(class, values, b.Columns)
		right := s.right[i*k:][:k]
		for row, code := range b.Codes {
			if c := at[code]; c >= 0 && model.Classes[class[row]] == b.Classes[code] {
				right[c] += b.Weight(row)
			}
		}
		switch {
		case s.errors == nil:
		case t.logistic:
			t.surprise(s.errors[2*i*k:][:2*k], model, values, weights, b, at)
		default:
			t.margins(s.errors[2*i*k:][:2*k], model, values, weights, b, at)
		}
	}
	return s
}

// margins adds Σ av (1 − d(x'w − γ))₊² of each plane's sides to sums, av being the weights of rows.
func (t *Trial) margins(sums []float64, model *incremental.Model, values, weights []float64, b *incremental.Block, at []int) {
	planes := len(model.Planes)
	for p, plane := range model.Planes {
		class := slices.Index(t.classes, plane.Class)
		for row, code := range b.Codes {
			v := weights[row]
			if v == 0 {
				continue
			}
			side, d := 1, -1.0
			if at[code] == class {
				side, d = 0, 1
			}
			r := max(0, 1-float64(d*values[row*planes+p]))
			sums[2*class+side] += float64(v * float64(r*r))
		}
	}
}

// surprise adds Σ av (−log p) to sums, p = exp s_own / Σ exp s_r with the scores s_r = x'w_r − γ_r.
// Two classes have one plane; the other's score is 0. Rows of a class without a plane are left out.
func (t *Trial) surprise(sums []float64, model *incremental.Model, values, weights []float64, b *incremental.Block, at []int) {
	planes := len(model.Planes)
	plane := make([]int, len(t.classes)) // of each class
	for c, label := range t.classes {
		plane[c] = slices.IndexFunc(model.Planes, func(p incremental.Plane) bool { return p.Class == label })
	}
	for row, code := range b.Codes {
		v := weights[row]
		if v == 0 {
			continue
		}
		scores := values[row*planes:][:planes]
		own, to := 0.0, 2*at[code]
		switch p := plane[at[code]]; {
		case p >= 0:
			own = scores[p]
		case planes == 1:
			to = 2*slices.Index(t.classes, model.Planes[0].Class) + 1
		default:
			continue
		}
		most, all := slices.Max(scores), 0.0
		if planes == 1 {
			most = max(most, 0)
			all = math.Exp(-most)
		}
		for _, s := range scores {
			all += math.Exp(s - most)
		}
		sums[to] += float64(v * (most - own + math.Log(all)))
	}
}

// Add counts a score.
func (t *Trial) Add(s *Score) {
	t.rows += s.rows
	for i, v := range s.weight {
		t.weight[s.fold].Add(i, v)
	}
	for i, v := range s.right {
		t.right[s.fold].Add(i, v)
	}
	for i, v := range s.errors {
		// A multiple of 2^-64, and no more than what an exact sum has room for: errors beyond
		// are those of planes that nobody chooses, as are those that are no number.
		if !(v < 0x1p300) {
			v = 0x1p300
		}
		if v < 0x1p52 {
			v = math.RoundToEven(v*0x1p64) * 0x1p-64
		}
		t.errors[s.fold].Add(i, v)
	}
}

// Curve is the result of a trial on held-out rows that weigh something. Every figure of its
// points can be compared: none is NaN. A trial without such rows has no curve.
type Curve struct {
	Options incremental.Options // Nu is 0
	Method  string              // by which the planes were refined; "": they were solved
	rows    int64
	points  []Point
}

// Point is the out-of-fold performance of one ν. Rows count by their weights, in losses
// also by those of their classes.
type Point struct {
	Nu float64
	// Loss is the mean of (x'w − γ − d)² over rows and planes, or of (1 − d(x'w − γ))₊²
	// where these were refined; of logistic planes it is that of −log p over rows. It is
	// infinite where it overflows.
	Loss float64
	// BalancedLoss weighs the two sides of each plane equally.
	BalancedLoss float64
	// FoldLoss is the Loss of each fold that has rows.
	FoldLoss []float64
	// Scores are nil on a curve without scored rows.
	Scores *Scores
}

// Scores are the figures of scored rows.
type Scores struct {
	Correctness         float64 // the share of correctly classified rows
	BalancedCorrectness float64 // the mean of the classes' correctness

	// Standard errors of the two: those of as many rows as were scored, of other rows of the same
	// kind.
	Error, BalancedError float64
}

var (
	// ErrRows says that there is nothing to choose by.
	ErrRows = errors.New("no held-out row has a label and weighs anything")

	errWeights = errors.New("the weights of the held-out rows overflow")
)

// Curve returns the losses, and the correctness of the rows scored so far. It fails with
// ErrRows when no held-out row weighs anything.
func (t *Trial) Curve() (*Curve, error) {
	c := &Curve{Options: t.options, Method: t.method, rows: t.rows}
	if t.errors != nil {
		t.losses = t.refinedLosses()
	}
	for i, nu := range t.nus {
		p, err := t.loss(i)
		if err == nil && t.rows > 0 {
			p.Scores, err = t.scores(i)
		}
		if err != nil {
			return nil, err
		}
		p.Nu = nu
		c.points = append(c.points, p)
	}
	if len(c.points) == 0 {
		return nil, ErrRows
	}
	return c, nil
}

// Rows is the number of scored rows. Without any there are only losses.
func (c *Curve) Rows() int64 { return c.rows }

// Points are those of the grid, in its order. They must not be changed.
func (c *Curve) Points() []Point { return c.points }

// By returns the criterion of an objective: correctness if rows were scored, otherwise loss.
func (c *Curve) By(o Objective) Criterion { return For(o, c.rows > 0) }

// refinedLosses are the losses of refined planes on the rows scored so far.
func (t *Trial) refinedLosses() [][][]incremental.Loss {
	k := len(t.classes)
	losses := make([][][]incremental.Loss, len(t.models))
	for fold, models := range t.models {
		weight, all := make([]float64, k), 0.0
		for c, label := range t.classes {
			v, _ := t.weight[fold].Split(c)
			weight[c] = float64(t.options.ClassWeight(label) * v)
			all += weight[c]
		}
		losses[fold] = make([][]incremental.Loss, len(t.nus))
		for i, model := range models {
			for _, plane := range model.Planes {
				c := slices.Index(t.classes, plane.Class)
				plus, _ := t.errors[fold].Split(2 * (i*k + c))
				minus, _ := t.errors[fold].Split(2*(i*k+c) + 1)
				loss := incremental.Loss{Plus: plus, Minus: minus, PlusWeight: weight[c], MinusWeight: all - weight[c]}
				if t.logistic && len(model.Planes) > 1 {
					loss.MinusWeight = 0 // each row counts for the plane of its class
				}
				losses[fold][i] = append(losses[fold][i], loss)
			}
		}
	}
	return losses
}

// loss returns the losses of a ν.
func (t *Trial) loss(nu int) (p Point, err error) {
	sides := map[string]*incremental.Loss{} // the loss of each class's plane over all folds
	var all, weight float64
	for fold := range t.losses {
		var own, ownWeight float64
		for p, l := range t.losses[fold][nu] {
			class := t.models[fold][nu].Planes[p].Class
			if sides[class] == nil {
				sides[class] = new(incremental.Loss)
			}
			s := sides[class]
			s.Plus, s.PlusWeight = s.Plus+l.Plus, s.PlusWeight+l.PlusWeight
			s.Minus, s.MinusWeight = s.Minus+l.Minus, s.MinusWeight+l.MinusWeight
			own, ownWeight = own+l.Plus+l.Minus, ownWeight+l.PlusWeight+l.MinusWeight
		}
		all, weight = all+own, weight+ownWeight
		if ownWeight > 0 {
			p.FoldLoss = append(p.FoldLoss, orInfinite(own/ownWeight))
		}
	}
	var balanced, count float64
	for _, class := range t.classes {
		s := sides[class]
		if s == nil {
			continue
		}
		for _, side := range [...][2]float64{{s.Plus, s.PlusWeight}, {s.Minus, s.MinusWeight}} {
			if side[1] > 0 {
				balanced += side[0] / side[1]
				count++
			}
		}
	}
	switch {
	case math.IsInf(weight, 0):
		return p, errWeights
	case !(weight > 0) || count == 0:
		return p, ErrRows
	}
	p.Loss, p.BalancedLoss = orInfinite(all/weight), orInfinite(balanced/count)
	return p, nil
}

// orInfinite returns a loss, infinite instead of NaN: a difference of infinities has
// overflowed, too.
func orInfinite(loss float64) float64 {
	if math.IsNaN(loss) {
		return math.Inf(1)
	}
	return loss
}

// scores returns the scores of a ν on rows that weigh something.
func (t *Trial) scores(nu int) (*Scores, error) {
	k := len(t.classes)
	right, weight := make([]float64, k), make([]float64, k)
	for fold := range t.models {
		for c := range t.classes {
			hit, _ := t.right[fold].Split(nu*k + c)
			all, _ := t.weight[fold].Split(c)
			right[c], weight[c] = right[c]+hit, weight[c]+all
		}
	}
	var r, v, seen, balanced float64
	for c := range weight {
		r, v = r+right[c], v+weight[c]
		if weight[c] > 0 {
			balanced += right[c] / weight[c]
			seen++
		}
	}
	if math.IsInf(v, 0) {
		return nil, errWeights
	}
	s := &Scores{Correctness: r / v, BalancedCorrectness: balanced / seen}
	s.Error = deviation(s.Correctness, float64(t.rows))
	for c := range weight {
		if weight[c] > 0 {
			e := deviation(right[c]/weight[c], float64(float64(t.rows)*(weight[c]/v))) / seen
			s.BalancedError += float64(e * e)
		}
	}
	s.BalancedError = math.Sqrt(s.BalancedError)
	return s, nil
}

// deviation is the standard error of a share of n rows. It counts one more that is right and one
// that is wrong: where all rows are right, the next may be wrong.
func deviation(share, n float64) float64 {
	p := (float64(share*n) + 1) / (n + 2)
	return math.Sqrt(p * (1 - p) / (n + 2))
}

// Objective is the figure by which classifiers are chosen.
type Objective int

const (
	Accuracy Objective = iota // the share of rows that are classified right
	Balanced                  // the mean of the classes' shares
)

// Of returns the objective's of two figures.
func (o Objective) Of(correctness, balanced float64) float64 {
	if o == Balanced {
		return balanced
	}
	return correctness
}

// Criterion is a figure by which ν is chosen.
type Criterion int

// Curves without scored rows have only losses. A loss does not count rows on the wrong
// side: on a quarter of the benchmark sets the least loss costs more than half a
// percentage point of correctness.
const (
	Loss Criterion = iota + 1
	BalancedLoss
	Correctness
	BalancedCorrectness
)

func (c Criterion) String() string {
	return [...]string{Loss: "loss", BalancedLoss: "balanced loss", Correctness: "correctness", BalancedCorrectness: "balanced correctness"}[c]
}

// Of returns the criterion's figure of a point. Lower losses and higher correctness are
// better. It panics when correctness is asked of a point without Scores.
func (c Criterion) Of(p *Point) float64 {
	switch c {
	case Loss:
		return p.Loss
	case BalancedLoss:
		return p.BalancedLoss
	case Correctness:
		return p.Scores.Correctness
	}
	return p.Scores.BalancedCorrectness
}

// deviation is the standard error of a point's correctness.
func (c Criterion) deviation(p *Point) float64 {
	if c == BalancedCorrectness {
		return p.Scores.BalancedError
	}
	return p.Scores.Error
}

// For returns the criterion of an objective: correctness if there are scored rows, otherwise
// loss.
func For(o Objective, rows bool) Criterion {
	switch {
	case rows && o == Balanced:
		return BalancedCorrectness
	case rows:
		return Correctness
	case o == Balanced:
		return BalancedLoss
	}
	return Loss
}

// sameLoss is above the relative rounding error of a loss.
const sameLoss = 0x1p-30

// Choose picks the best point: the least ν among the points of least loss, by
// correctness only among the most correct points. It panics when correctness is asked of a
// curve without scored rows: By has the criterion of a curve.
func (c *Curve) Choose(by Criterion) Point { return c.choose(by, math.Inf(1), 0) }

// steady is how many standard errors less correct than the best a point may be whose loss is
// taken for better. The most correct of forty points of a few hundred rows is the luckiest one:
// the correctness of other rows falls behind that of these by several percentage points, and
// behind that of the point of least loss by one or two. Where rows are many, the errors are
// small, and correctness decides.
const steady = 1

// settle is Choose among the points with ν < below. By correctness it takes the point of least
// loss among those that are as correct as the most correct one within its standard error.
func (c *Curve) settle(by Criterion, below float64) Point { return c.choose(by, below, steady) }

// choose is Choose among the points with ν < below, and those that are some standard errors less
// correct.
func (c *Curve) choose(by Criterion, below, errors float64) Point {
	loss, correctness := by, Criterion(0)
	switch by {
	case Correctness:
		loss, correctness = Loss, by
	case BalancedCorrectness:
		loss, correctness = BalancedLoss, by
	}
	if correctness != 0 && c.rows == 0 {
		panic("tuning: no rows were scored that correctness could be told from")
	}
	most := math.Inf(-1)
	good := func(p *Point) bool {
		return p.Nu < below && (correctness == 0 || correctness.Of(p) >= most)
	}
	if correctness != 0 {
		var best *Point
		for i := range c.points {
			if p := &c.points[i]; p.Nu < below && (best == nil || correctness.Of(p) > correctness.Of(best)) {
				best = p
			}
		}
		most = correctness.Of(best) - float64(errors*correctness.deviation(best))
	}
	least := math.Inf(1)
	for i := range c.points {
		if p := &c.points[i]; good(p) {
			least = min(least, loss.Of(p))
		}
	}
	var best *Point
	for i := range c.points {
		p := &c.points[i]
		if good(p) && loss.Of(p) <= least*(1+sameLoss) && (best == nil || p.Nu < best.Nu) {
			best = p
		}
	}
	return *best
}

// preferred is how many standard errors less correct than the best curve a preferred one may be.
// The standard error is that of one figure. That of the difference of two figures of the same
// rows is smaller, as far as both are right about the same rows.
const preferred = 1.5

// Best returns the index of the curve whose choice by Solve is best: the first that is as
// correct as the most correct one within 1.5 of its standard errors, or the first of least loss.
// Preferred options come first. All curves must be of the same rows.
func Best(by Criterion, curves []*Curve) int {
	figures := make([]float64, len(curves)) // higher is better
	enough, loss := math.Inf(-1), by == Loss || by == BalancedLoss
	most := math.Inf(-1)
	for i := range curves {
		p := curves[i].settle(by, math.Inf(1))
		if figures[i] = by.Of(&p); loss {
			figures[i] = -figures[i]
		}
		if figures[i] <= most {
			continue
		}
		if most = figures[i]; loss {
			enough = most * (1 + sameLoss)
		} else {
			enough = most - float64(preferred*by.deviation(&p))
		}
	}
	return slices.IndexFunc(figures, func(x float64) bool { return x >= enough })
}

// Solve solves the model of all rows with the ν of least loss, by correctness only among the
// points that are as correct as the most correct one within its standard error. If that system
// is too ill-conditioned, so is that of every larger ν, and Solve chooses among the smaller
// ones. An *incremental.ConditionError means that no ν is left.
func (c *Curve) Solve(total *incremental.Moments, by Criterion) (*incremental.Model, Point, error) {
	below := math.Inf(1)
	for {
		p := c.settle(by, below)
		o := c.Options
		o.Nu = p.Nu
		model, err := total.Solve(o)
		condition := (*incremental.ConditionError)(nil)
		if err == nil || !errors.As(err, &condition) || p.Nu <= c.least() {
			return model, p, err
		}
		below = p.Nu
	}
}

func (c *Curve) least() float64 {
	least := math.Inf(1)
	for i := range c.points {
		least = min(least, c.points[i].Nu)
	}
	return least
}
