// Package tuning chooses ν, the weight of the errors against the size of the
// plane (Fung 2003, 2.8), by holding out parts of the live rows: folds.
//
// A Trial solves, for one set of options, the whole path of ν without each fold
// in turn. What the planes are worth on the fold that they have not seen is
// judged in two ways:
//
//   - by squared loss, Σ av (x'w − γ − d)², from sums alone: z'E'Ez − 2z'E'De + m
//     of the fold, with no row at hand;
//   - by correctness, from rows of the fold: all of them or a sample.
//
// Curve has both for every ν; Curve.Choose picks one, and Curve.Solve has the
// model of all rows with it.
//
// # Costs
//
// Hold takes O(n³), and O(n²) per plane and ν; balanced, k > 2 classes take O(n³)
// each. Score takes a multiplication per row, feature, plane
// and ν. A trial keeps 8n bytes per fold, plane and ν.
//
// # Determinism
//
// A curve is a function of the options, the grid, the folds' sums in order, and
// the set of scored blocks: those may come in any order, as their counts are
// summed exactly. A fold should be a function of its blocks' content, so that
// the choice is one of the set of live blocks.
package tuning

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"streamd/incremental"
	"streamd/incremental/exact"
)

// Grid is the ν that are tried unless there is reason to try others: 2^-20,
// 2^-19, …, 2^20, as Fung tunes by powers of two. A plane changes where 1/ν
// passes the eigenvalues of E'E, which are the rows times the variances in the
// directions of the data (the variances alone when balanced): for standardised
// features the grid spans all that makes a difference up to a million rows.
func Grid() []float64 {
	const span = 20
	nus := make([]float64, 0, 2*span+1)
	for i := -span; i <= span; i++ {
		nus = append(nus, math.Ldexp(1, i))
	}
	return nus
}

// Trial is the path of ν under one set of options, solved without each fold in
// turn. Score may be called from several goroutines; all else is one
// goroutine's at a time.
type Trial struct {
	options incremental.Options
	nus     []float64
	classes []string
	models  [][]*incremental.Model // [fold][ν]
	losses  [][][]incremental.Loss // [fold][ν][plane]

	rows   int64
	weight []*exact.Vector // [fold]: [class]
	right  []*exact.Vector // [fold]: [ν][class]
}

// New begins a trial of o, with each of nus in the place of o.Nu, on rows of the
// given classes.
func New(o incremental.Options, nus []float64, classes []string) *Trial {
	o.Nu = 0
	return &Trial{options: o, nus: slices.Clone(nus), classes: classes}
}

// Hold adds a fold, numbered from 0 in the order of the calls: held are the sums
// of its rows and rest those of all others, usually (State.Without); it may be
// empty, and a single one is a tuning set. Both are in the same coordinates, which
// are also those of the blocks that are scored for it, and may be others than those
// of the next: what is learned without a fold, a kernel's basis for instance, must not
// have seen its rows. A class all of whose rows are in one fold has no plane without
// that fold: its rows there count as classified wrong, and in the losses as the
// others' of all planes that there are.
//
// It fails as Moments.Path does, for instance with incremental.ErrClasses when
// a fold leaves fewer than two classes.
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
}

// Score classifies rows of a fold by the models without it, for every ν. The
// block's columns must be in the order of the features, and its classes among
// those of total; rows of weight 0 are as if absent. The block is not kept.
func (t *Trial) Score(fold int, b *incremental.Block) *Score {
	k, m := len(t.classes), b.Rows()
	s := &Score{fold: fold, weight: make([]float64, k), right: make([]float64, len(t.nus)*k)}
	at := b.ClassesIn(t.classes)
	for i, code := range b.Codes {
		v := b.Weight(i)
		if v == 0 {
			continue
		}
		if at[code] < 0 {
			panic(fmt.Sprintf("tuning: a row of class %q, which the sums do not have", b.Classes[code]))
		}
		s.rows++
		s.weight[at[code]] += v
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
	}
	return s
}

// Add counts what was scored.
func (t *Trial) Add(s *Score) {
	t.rows += s.rows
	for i, v := range s.weight {
		t.weight[s.fold].Add(i, v)
	}
	for i, v := range s.right {
		t.right[s.fold].Add(i, v)
	}
}

// Curve is what came out of a trial.
type Curve struct {
	Options incremental.Options // Nu is 0
	Rows    int64               // rows that were scored; 0: there is no correctness
	Points  []Point             // in the order of the grid
}

// Point is what one ν is worth on rows that its planes have not seen. Rows
// count by their weights and those of their classes.
type Point struct {
	Nu float64
	// Loss is the mean of (x'w − γ − d)² over rows and planes.
	Loss float64
	// BalancedLoss gives the two sides of each plane the same weight.
	BalancedLoss float64
	// FoldLoss is Loss of each fold, NaN for a fold without rows.
	FoldLoss []float64
	// Correctness is the share of the rows that are classified right.
	Correctness float64
	// BalancedCorrectness is the mean of the classes' shares.
	BalancedCorrectness float64
}

// Curve reads the curve off the sums, and off what has been scored so far.
func (t *Trial) Curve() Curve {
	c := Curve{Options: t.options, Rows: t.rows}
	for i, nu := range t.nus {
		p := Point{Nu: nu}
		p.Loss, p.BalancedLoss, p.FoldLoss = t.loss(i)
		p.Correctness, p.BalancedCorrectness = t.correctness(i)
		c.Points = append(c.Points, p)
	}
	return c
}

func (t *Trial) loss(nu int) (loss, balanced float64, folds []float64) {
	sides := map[string]*incremental.Loss{} // of each class's plane, over the folds
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
		folds = append(folds, own/ownWeight)
	}
	var count float64
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
	return all / weight, balanced / count, folds
}

func (t *Trial) correctness(nu int) (correctness, balanced float64) {
	k := len(t.classes)
	right, weight := make([]float64, k), make([]float64, k)
	for fold := range t.models {
		for c, label := range t.classes {
			a, ok := t.options.ClassWeights[label]
			if !ok {
				a = 1
			}
			hit, _ := t.right[fold].Split(nu*k + c)
			all, _ := t.weight[fold].Split(c)
			right[c], weight[c] = right[c]+float64(a*hit), weight[c]+float64(a*all)
		}
	}
	if t.rows == 0 {
		return 0, 0
	}
	var r, v, seen float64
	for c := range weight {
		r, v = r+right[c], v+weight[c]
		if weight[c] > 0 {
			balanced += right[c] / weight[c]
			seen++
		}
	}
	return r / v, balanced / seen
}

// Models are those of one ν of the grid, without each fold in turn.
func (t *Trial) Models(nu float64) []*incremental.Model {
	i := slices.Index(t.nus, nu)
	if i < 0 {
		panic(fmt.Sprintf("tuning: ν = %v is not on the grid", nu))
	}
	models := make([]*incremental.Model, len(t.models))
	for fold := range models {
		models[fold] = t.models[fold][i]
	}
	return models
}

// Criterion is what ν is chosen by.
type Criterion int

// Of curves without scored rows only the losses can be asked for. They know
// nothing of which rows end up on the wrong side: on a quarter of the benchmark
// sets the least loss costs more than half a point of correctness.
const (
	Loss Criterion = iota + 1
	BalancedLoss
	Correctness
	BalancedCorrectness
)

func (c Criterion) String() string {
	return [...]string{Loss: "loss", BalancedLoss: "balanced loss", Correctness: "correctness", BalancedCorrectness: "balanced correctness"}[c]
}

// Of is what the criterion says of a point: less is better of losses, more of
// correctness.
func (c Criterion) Of(p *Point) float64 {
	return [...]float64{Loss: p.Loss, BalancedLoss: p.BalancedLoss, Correctness: p.Correctness, BalancedCorrectness: p.BalancedCorrectness}[c]
}

// For is the criterion that suits options: balanced if they are, and
// correctness if there are rows to tell it.
func For(o incremental.Options, rows bool) Criterion {
	switch {
	case rows && o.Balanced:
		return BalancedCorrectness
	case rows:
		return Correctness
	case o.Balanced:
		return BalancedLoss
	}
	return Loss
}

const (
	// slack is how far below the best a point counts as being as good: a quarter
	// of a percentage point. Correctness jumps by whole rows, and the loss, which
	// does not, tells better which of nearly equal points holds elsewhere.
	slack = 0.0025
	// sameLoss is more than what rounding makes of a loss.
	sameLoss = 0x1p-30
)

// Choose picks the best point. By a loss that is the least ν among those of
// least loss; by correctness the same among the points within 0.0025 of the
// most correct. It panics when correctness is asked of a curve without rows.
func (c *Curve) Choose(by Criterion) Point { return c.choose(by, math.Inf(1)) }

// choose takes the points with ν < below into account.
func (c *Curve) choose(by Criterion, below float64) Point {
	loss, correctness := by, Criterion(0)
	switch by {
	case Correctness:
		loss, correctness = Loss, by
	case BalancedCorrectness:
		loss, correctness = BalancedLoss, by
	}
	if correctness != 0 && c.Rows == 0 {
		panic("tuning: no rows were scored that correctness could be told from")
	}
	most := math.Inf(-1)
	good := func(p *Point) bool {
		return p.Nu < below && (correctness == 0 || correctness.Of(p) >= most-slack)
	}
	if correctness != 0 {
		for i := range c.Points {
			if p := &c.Points[i]; p.Nu < below {
				most = max(most, correctness.Of(p))
			}
		}
	}
	least := math.Inf(1)
	for i := range c.Points {
		if p := &c.Points[i]; good(p) {
			least = min(least, loss.Of(p))
		}
	}
	var best *Point
	for i := range c.Points {
		p := &c.Points[i]
		if good(p) && loss.Of(p) <= least*(1+sameLoss) && (best == nil || p.Nu < best.Nu) {
			best = p
		}
	}
	return *best
}

// Best is the index of the curve, of several sets of options, whose choice is
// best: the first of those within 0.0025 of the most correct, or of those of the
// least loss. The options that are preferred come first. Curves must be of the
// same rows and class weights to be compared.
func Best(by Criterion, curves []Curve) int {
	best := make([]float64, len(curves)) // more is better
	for i := range curves {
		p := curves[i].Choose(by)
		best[i] = by.Of(&p)
		if by == Loss || by == BalancedLoss {
			best[i] = -best[i]
		}
	}
	enough := slices.Max(best) - slack
	if by == Loss || by == BalancedLoss {
		enough = slices.Max(best) * (1 + sameLoss)
	}
	return slices.IndexFunc(best, func(x float64) bool { return x >= enough })
}

// Solve reads the model off all rows with the chosen ν. Where that system is
// too ill-conditioned, which it is for every larger ν as well, the choice is
// among the smaller ones; an *incremental.ConditionError means that none is
// left.
func (c *Curve) Solve(total *incremental.Moments, by Criterion) (*incremental.Model, Point, error) {
	below := math.Inf(1)
	for {
		p := c.choose(by, below)
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
	for i := range c.Points {
		least = min(least, c.Points[i].Nu)
	}
	return least
}
