package basis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
	"streamd/incremental/tuning"
	"streamd/kernels"
	"streamd/kernels/reduce"
)

// Trial is the result of one γ on held-out rows.
type Trial struct {
	Gamma       float64
	Nu          float64
	Correctness float64 // balanced if the objective is
	Loss        float64 // balanced if the objective is
}

// ErrNoGamma is returned where no γ gives a system that can be solved.
var ErrNoGamma = errors.New("no gamma gives a system that can be solved: take another regulariser")

const (
	// gammaRows bounds the rows that γ is chosen by. They determine correctness to about a
	// percentage point.
	gammaRows  = 4000
	gammaFolds = 5
	// judgedRows bounds them where a Judge has planes of its own.
	judgedRows = 1000
	// gammaPoints bounds the points that γ is judged with.
	gammaPoints = 100
	low, high   = -3, 6 // powers of four
)

// A Judge says how well planes without each of some folds classify its rows, with the best of some
// ν. It leaves Trial.Gamma alone. Folds are lists of rows and may be empty.
type Judge func(ctx context.Context, k kernels.Kernel, rows *incremental.Block, folds [][]int) (Trial, error)

// Gamma is a Gaussian's γ and how it was chosen.
type Gamma struct {
	Gamma  float64
	Trials []Trial // ordered by γ
	// Unjudged says why γ comes from the median heuristic without a trial: a class has
	// too few rows.
	Unjudged error
}

// Gamma chooses the γ of a Gaussian exp(−γ‖x − z‖²). Reducer, Seed and Workers have no
// effect.
//
// The median heuristic (kernels.MedianGamma) uses distances and no labels. Its kernel is
// far too wide where classes alternate several times within the median distance, as on a
// checkerboard. So γ is searched on the first 4,000 rows in five folds. The candidates
// are 4^i times the heuristic's γ, for i from −3 to 6, and then half and twice the best
// of these. Every γ has the same points Z: up to 100 of these rows, evenly spaced in their order.
// Equal rows count once. It is judged by proximal planes in the coordinates K(x, Z) (Fung 2003,
// 2.55), which cost one solve per fold, also where planes will be refined. A point may be a row of
// the held-out fold; its class is not used. With Planes.Nu 0 each γ has the best ν of
// tuning.GridOf. A Judge, if there is one, takes the place of the proximal planes, on the first
// 1,000 rows.
//
// The planes without a fold classify the fold's rows. The γ with the highest correctness
// is chosen. Ties go to the least loss, and then to the narrower kernel. Correctness is
// balanced if the objective is. A γ is skipped if its system is too
// ill-conditioned, or its figures are not finite.
//
// It fails with kernels.ErrOnePoint, with ErrNoGamma, and with ctx, which it checks once
// for each γ and fold. For m rows of n features, t points, k planes, f folds and v values
// of ν, each of the 12 γ takes O(m·t·(n + t)) and O(f·t³) for the sums and planes, and
// O(m·t·k·v) for the scores, on one goroutine.
func (p *Problem) Gamma(ctx context.Context) (*Gamma, error) {
	scaled := p.scaled()
	first, folds := p.first(scaled)
	if p.Totals != nil {
		first = sample.Weigh(first, p.Totals)
	}
	s := &search{Problem: p, block: first, folds: folds}
	gamma, err := s.choose(ctx)
	if errors.Is(err, incremental.ErrClasses) {
		median, failed := kernels.MedianGamma(scaled.Columns)
		return &Gamma{Gamma: median, Unjudged: err}, failed
	}
	if err != nil {
		return nil, err
	}
	return &Gamma{Gamma: gamma, Trials: s.trials}, nil
}

// first returns the rows that γ is judged by, in the order of the Problem's rows, and their
// folds.
func (p *Problem) first(all *incremental.Block) (*incremental.Block, [][]int) {
	most := gammaRows
	if p.Judge != nil {
		most = judgedRows
	}
	if p.Order == nil {
		b := all.Slice(0, min(all.Rows(), most))
		return b, deal(b)
	}
	order := p.Order[:min(len(p.Order), most)]
	folds := deal(all.Pick(order))
	rows := slices.Sorted(slices.Values(order))
	for _, fold := range folds {
		for i, at := range fold {
			fold[i], _ = slices.BinarySearch(rows, order[at])
		}
		slices.Sort(fold)
	}
	return all.Pick(rows), folds
}

// deal deals rows to folds in turn. Copies of a row, which follow each other in a sample,
// stay together: in another fold a copy would reveal the class of the other.
func deal(b *incremental.Block) [][]int {
	folds := make([][]int, gammaFolds)
	fold := 0
	for i := range b.Rows() {
		if i > 0 && slices.ContainsFunc(b.Columns, func(c gram.Column) bool { return c.At(i) != c.At(i-1) }) {
			fold = (fold + 1) % gammaFolds
		}
		folds[fold] = append(folds[fold], i)
	}
	return folds
}

// choose tries every γ. It fails with incremental.ErrClasses if the rows, or those
// outside of a fold, have fewer than two classes.
func (s *search) choose(ctx context.Context) (float64, error) {
	median, err := kernels.MedianGamma(s.block.Columns)
	if err != nil {
		return 0, err
	}
	if s.Judge != nil {
		return s.search(ctx, median)
	}
	s.nus = []float64{s.Planes.Nu}
	if s.Planes.Nu == 0 {
		s.nus = tuning.GridOf(s.Planes)
	}
	n := len(s.block.Columns)
	candidates := reduce.Distinct(points(s.block), n)
	distinct := len(candidates) / n
	count := min(s.Points, gammaPoints, distinct)
	for i := range count {
		s.z = append(s.z, candidates[i*distinct/count*n:][:n]...)
	}
	for _, rows := range s.folds {
		if len(rows) > 0 {
			s.parts = append(s.parts, s.block.Pick(rows))
		}
	}
	return s.search(ctx, median)
}

// search tries γ around the median heuristic's.
func (s *search) search(ctx context.Context, median float64) (float64, error) {
	for power := low; power <= high; power++ {
		if err := s.try(ctx, math.Ldexp(median, 2*power)); err != nil {
			return 0, err
		}
	}
	if s.trials == nil {
		return 0, ErrNoGamma
	}
	coarse := s.best()
	for _, gamma := range []float64{coarse / 2, coarse * 2} {
		if err := s.try(ctx, gamma); err != nil {
			return 0, err
		}
	}
	gamma := s.best()
	slices.SortFunc(s.trials, func(a, b Trial) int { return cmp.Compare(a.Gamma, b.Gamma) })
	return gamma, nil
}

// search looks for γ on some rows of a Problem.
type search struct {
	*Problem
	block  *incremental.Block
	folds  [][]int
	nus    []float64
	z      []float64 // the points
	parts  []*incremental.Block
	trials []Trial
}

func (s *search) best() float64 {
	return slices.MaxFunc(s.trials, func(a, b Trial) int {
		return cmp.Or(cmp.Compare(a.Correctness, b.Correctness), cmp.Compare(b.Loss, a.Loss), cmp.Compare(a.Gamma, b.Gamma))
	}).Gamma
}

// try adds a trial, unless the kernel is so wide that all of its points coincide.
func (s *search) try(ctx context.Context, gamma float64) error {
	gamma = threeDigits(gamma)
	kernel, err := kernels.Gaussian(gamma)
	if err != nil {
		return err
	}
	if s.Judge != nil {
		t, err := s.Judge(ctx, kernel, s.block, s.folds)
		if s.Tried != nil {
			s.Tried()
		}
		if err != nil {
			return err
		}
		t.Gamma = gamma
		s.trials = append(s.trials, t)
		return nil
	}
	z, err := kernels.NewMap(kernel, len(s.block.Columns), s.z)
	if err != nil {
		return err
	}
	if s.Gram {
		z = independent(z)
	}
	point, err := s.heldOut(ctx, New(z, s.Gram))
	if s.Tried != nil {
		s.Tried()
	}
	if condition := (*incremental.ConditionError)(nil); errors.As(err, &condition) {
		return nil
	}
	if err != nil {
		return err
	}
	loss, correctness := point.Loss, point.Scores.Correctness
	if s.Objective == tuning.Balanced {
		loss, correctness = point.BalancedLoss, point.Scores.BalancedCorrectness
	}
	if !math.IsInf(loss, 0) {
		s.trials = append(s.trials, Trial{gamma, point.Nu, correctness, loss})
	}
	return nil
}

// heldOut returns the best ν on rows that its planes have not seen.
func (s *search) heldOut(ctx context.Context, in *Coordinates) (none tuning.Point, err error) {
	var lifter Lifter
	var z incremental.Summariser
	total := incremental.NewState(in.Names)
	folds := make([]*incremental.State, len(s.parts))
	for i, part := range s.parts {
		lifted, err := lifter.Block(ctx, part, in)
		if err != nil {
			return none, err
		}
		summary, err := z.Summarise(lifted)
		if err != nil {
			return none, err
		}
		folds[i] = incremental.NewState(in.Names)
		folds[i].Add(summary)
		total.Add(summary)
	}
	trial := tuning.New(s.Planes, s.nus, total.Moments().Classes())
	for i, part := range s.parts {
		if err := ctx.Err(); err != nil {
			return none, err
		}
		if err := trial.Hold(in.Moments(total.Without(folds[i])), folds[i].Moments()); err != nil {
			return none, fmt.Errorf("without fold %d of %d: %w", i+1, len(folds), err)
		}
		lifted, err := lifter.Block(ctx, part, in)
		if err != nil {
			return none, err
		}
		trial.Add(trial.Score(i, lifted))
	}
	curve, err := trial.Curve()
	if err != nil {
		return none, err
	}
	if curve.Rows() == 0 {
		return none, tuning.ErrRows
	}
	return curve.Choose(curve.By(s.Objective)), nil
}

// threeDigits rounds a number for display.
func threeDigits(x float64) float64 {
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64) // of a float64
	return x
}
