// Package width chooses the width of the Gaussian kernel exp(−γ‖x − z‖²) by what
// classifies held-out rows best.
//
// The median heuristic (kernels.MedianGamma) knows distances and no labels: it is
// far too wide where classes alternate several times within the median distance,
// as on a checkerboard. Search therefore tries γ = 4^i times the heuristic's, for
// i from −3 to 6, and then half and twice the best of these. Every γ is tried on
// the same points Z, up to 100 of the rows, evenly spaced in their order, and
// with the proximal planes in the coordinates K(x, Z) (Fung 2003, 2.55), which
// cost one solve per fold: it is them that are judged, also where planes are to be
// refined or the basis is to be a better one. Points are the same for all folds
// and may be rows of the fold that is judged, but their classes are not used.
//
// For each γ the planes without a fold classify the fold's rows. The most correct
// γ is chosen, of several the one of least loss, of several the narrower one.
// Correctness is balanced where the options are (package tuning). With
// Options.Nu 0, ν is the best of tuning.Grid for each γ.
//
// The choice is a function of the Problem. For m rows of n features, t points, k
// planes, f folds and v values of ν, each of the 12 γ takes O(m·t·(n + t)) and
// O(f·t³) for the sums and planes, O(m·t·k·v) to judge them; one goroutine.
package width

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"streamd/incremental"
	"streamd/incremental/tuning"
	"streamd/kernels"
)

// Problem is what γ is chosen for. It is only read.
type Problem struct {
	// Block has the rows; its columns are finite and what the kernel is to take.
	// Their order matters: no part of it should differ from another.
	Block *incremental.Block
	// Folds are disjoint lists of rows; what is in none is not used, but may be a
	// point.
	Folds   [][]int
	Options incremental.Options // of the planes; Nu 0: to be chosen
	Points  int                 // that the basis is to have, at most; 1 or more
	// Gram: u'K(Z, Z)u is small, instead of ‖u‖² (Wu, Schölkopf and Bakır 2006, 28).
	Gram bool
	// Tried, unless nil, is called after each γ.
	Tried func()
}

// Trial is what one γ is worth on held-out rows.
type Trial struct {
	Gamma       float64
	Nu          float64
	Correctness float64 // balanced where the options are
	Loss        float64 // the same
}

// ErrNone is returned where no γ gives a system that can be solved.
var ErrNone = errors.New("no gamma gives a system that can be solved: take another regulariser")

const (
	maxPoints = 100
	low, high = -3, 6 // powers of four
)

// Search chooses γ and says what else it has tried, by ascending γ. A γ so wide
// that its system is too ill-conditioned is left out, and one whose figures are not
// finite (ErrNone: all are). It fails
// with kernels.ErrOnePoint, with incremental.ErrClasses where the rows, or those
// without a fold, are of fewer than two classes, and with ctx, which it looks at
// once for each γ and fold.
func Search(ctx context.Context, p *Problem) (float64, []Trial, error) {
	median, err := kernels.MedianGamma(p.Block.Columns)
	if err != nil {
		return 0, nil, err
	}
	s := &search{Problem: p, nus: []float64{p.Options.Nu}, by: tuning.For(p.Options, true)}
	if p.Options.Nu == 0 {
		s.nus = tuning.Grid()
	}
	points := min(p.Points, maxPoints, p.Block.Rows())
	for i := range points {
		for _, column := range p.Block.Columns {
			s.z = append(s.z, column.At(i*p.Block.Rows()/points))
		}
	}
	s.names = incremental.DefaultFeatures(points)
	for _, rows := range p.Folds {
		if len(rows) > 0 {
			s.parts = append(s.parts, p.Block.Pick(rows))
		}
	}
	for power := low; power <= high; power++ {
		if err := s.try(ctx, math.Ldexp(median, 2*power)); err != nil {
			return 0, nil, err
		}
	}
	if s.trials == nil {
		return 0, nil, ErrNone
	}
	coarse := s.best()
	for _, gamma := range []float64{coarse / 2, coarse * 2} {
		if err := s.try(ctx, gamma); err != nil {
			return 0, nil, err
		}
	}
	gamma := s.best()
	slices.SortFunc(s.trials, func(a, b Trial) int { return cmp.Compare(a.Gamma, b.Gamma) })
	return gamma, s.trials, nil
}

type search struct {
	*Problem
	nus    []float64
	by     tuning.Criterion
	z      []float64 // the points
	names  []string  // of the coordinates
	parts  []*incremental.Block
	trials []Trial
}

func (s *search) best() float64 {
	return slices.MaxFunc(s.trials, func(a, b Trial) int {
		return cmp.Or(cmp.Compare(a.Correctness, b.Correctness), cmp.Compare(b.Loss, a.Loss), cmp.Compare(a.Gamma, b.Gamma))
	}).Gamma
}

// try adds a trial, unless the kernel is so wide that its points are all the same.
func (s *search) try(ctx context.Context, gamma float64) error {
	gamma = threeDigits(gamma)
	kernel, err := kernels.Gaussian(gamma)
	if err != nil {
		return err
	}
	basis, err := kernels.NewMap(kernel, len(s.Block.Columns), s.z)
	if err != nil {
		return err
	}
	point, err := s.heldOut(ctx, basis)
	if s.Tried != nil {
		s.Tried()
	}
	if condition := (*incremental.ConditionError)(nil); errors.As(err, &condition) {
		return nil
	}
	if err != nil {
		return err
	}
	loss := point.Loss
	if s.by == tuning.BalancedCorrectness {
		loss = point.BalancedLoss
	}
	t := Trial{gamma, point.Nu, s.by.Of(&point), loss}
	if t.Correctness-t.Correctness == 0 && t.Loss-t.Loss == 0 { // weights may overflow
		s.trials = append(s.trials, t)
	}
	return nil
}

// heldOut is the best ν on rows that its planes have not seen.
func (s *search) heldOut(ctx context.Context, basis *kernels.Map) (none tuning.Point, err error) {
	mapper := kernels.NewMapper(basis)
	mapped := func(part *incremental.Block) *incremental.Block { // until the next call
		in := *part
		in.Features, in.Columns = s.names, mapper.Map(part.Columns)
		return &in
	}
	moments := func(sum *incremental.State) *incremental.Moments {
		if s.Gram {
			return sum.Moments().WithRegulariser(basis.Gram())
		}
		return sum.Moments()
	}
	var z incremental.Summariser
	total := incremental.NewState(s.names)
	folds := make([]*incremental.State, len(s.parts))
	for i, part := range s.parts {
		if err := ctx.Err(); err != nil {
			return none, err
		}
		summary, err := z.Summarise(mapped(part))
		if err != nil {
			return none, err
		}
		folds[i] = incremental.NewState(s.names)
		folds[i].Add(summary)
		total.Add(summary)
	}
	trial := tuning.New(s.Options, s.nus, total.Moments().Classes())
	for i, part := range s.parts {
		if err := ctx.Err(); err != nil {
			return none, err
		}
		if err := trial.Hold(moments(total.Without(folds[i])), folds[i].Moments()); err != nil {
			return none, fmt.Errorf("without fold %d of %d: %w", i+1, len(folds), err)
		}
		trial.Add(trial.Score(i, mapped(part)))
	}
	curve := trial.Curve()
	return curve.Choose(s.by), nil
}

// threeDigits is for numbers that people read, and no better for more digits.
func threeDigits(x float64) float64 {
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64) // of a float64
	return x
}
