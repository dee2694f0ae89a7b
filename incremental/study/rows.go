package study

import (
	"context"
	"maps"
	"math"
	"slices"

	"streamd/incremental"
	"streamd/incremental/newton"
	"streamd/incremental/sample"
)

// Parts are labelled rows in folds, in the coordinates of the sums.
type Parts interface {
	// Parts calls visit for all rows of every fold, in parts of any size, and returns the
	// first error of visit or its own. Rows count by their weights. Calls may run at the
	// same time. A part is valid until its call returns.
	Parts(ctx context.Context, visit func(fold int, part *incremental.Block) error) error
}

// Sample is rows in memory that stand for all rows of their class. It belongs to one
// goroutine at a time.
type Sample struct {
	block    *incremental.Block
	in       [][]int                  // the rows of each fold
	totals   []incremental.ClassTotal // of all rows
	apart    []*incremental.State     // the sums of each fold
	weighted []*incremental.Block     // the weighted rows of each fold, once Parts was called

	unlabelled *Sample // the rows without a label, or nil
}

// NewSample makes a Sample of a view in the coordinates of the sums, with the totals of
// all rows and the sums of each fold, if there are any. Nothing is copied.
func NewSample(view *sample.View, totals []incremental.ClassTotal, folds []*incremental.State) *Sample {
	s := &Sample{block: view.Block, totals: totals, apart: folds, in: make([][]int, len(folds))}
	if len(folds) == 0 {
		return s
	}
	for i, f := range view.Fold {
		s.in[f] = append(s.in[f], i)
	}
	return s
}

// AddUnlabelled adds rows without a label to those of All and Without, for a Refiner that takes
// them. They are not judged. total counts all such rows.
func (s *Sample) AddUnlabelled(view *sample.View, total incremental.ClassTotal) {
	s.unlabelled = NewSample(view, []incremental.ClassTotal{total}, s.apart)
}

// some returns about so many of the rows, or all. Every class has its share of them, and at
// least its part of half of them: the rows of rare classes cost little. Those without a label
// are about so many more.
func (s *Sample) some(rows int) *Sample {
	if s.unlabelled != nil {
		few := *s
		few.unlabelled = nil
		few = *few.some(rows)
		few.unlabelled = s.unlabelled.some(rows)
		return &few
	}
	if s.block.Rows() <= rows {
		return s
	}
	k := len(s.block.Classes)
	room := make([]int, k)
	for _, c := range s.block.Codes {
		room[c]++
	}
	for c, all := range room {
		share := int(math.Ceil(float64(rows) * float64(all) / float64(s.block.Rows())))
		room[c] = min(all, max(share, rows/(2*k)))
	}
	var picked []int
	kept := make([]int, s.block.Rows()) // the place of a row, or −1
	for i, c := range s.block.Codes {
		kept[i] = -1
		if room[c] > 0 {
			room[c]--
			kept[i] = len(picked)
			picked = append(picked, i)
		}
	}
	few := &Sample{block: s.block.Pick(picked), totals: s.totals, apart: s.apart, in: make([][]int, len(s.in))}
	for fold, in := range s.in {
		for _, i := range in {
			if kept[i] >= 0 {
				few.in[fold] = append(few.in[fold], kept[i])
			}
		}
	}
	return few
}

// partRows is the most rows of a part. A study looks at its context between parts; a part of
// 1,000 classes and 100 features takes seconds.
const partRows = 500

// Parts visits the folds one after the other. It keeps a copy of the sample.
func (s *Sample) Parts(ctx context.Context, visit func(fold int, part *incremental.Block) error) error {
	return s.parts(ctx, len(s.in), visit)
}

func (s *Sample) parts(ctx context.Context, folds int, visit func(fold int, part *incremental.Block) error) error {
	if s.weighted == nil {
		weighted := sample.Weigh(s.block, s.totals)
		for _, rows := range s.in {
			s.weighted = append(s.weighted, weighted.Pick(rows))
		}
	}
	for fold, b := range s.weighted[:folds] {
		for from := 0; from < b.Rows(); from += partRows {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := visit(fold, b.Slice(from, min(from+partRows, b.Rows()))); err != nil {
				return err
			}
		}
	}
	return nil
}

// scoredRows is as many scored rows as a choice needs: the standard error of a share of them is
// half a point or less.
const scoredRows = 10_000

// Enough is the number of the first folds that Tune holds out: those that have 10,000 rows
// together, and two folds with rows at least.
func (s *Sample) Enough() int {
	rows, folds := 0, 0
	for i, in := range s.in {
		if len(in) > 0 {
			rows, folds = rows+len(in), folds+1
		}
		if rows >= scoredRows && folds > 1 {
			return i + 1
		}
	}
	return len(s.in)
}

// firstFolds is the parts of the first folds of a Sample.
type firstFolds struct {
	*Sample
	folds int
}

// Parts implements Parts.
func (f firstFolds) Parts(ctx context.Context, visit func(fold int, part *incremental.Block) error) error {
	return f.parts(ctx, f.folds, visit)
}

// All returns all rows and, by class, the number of rows that a row stands for.
func (s *Sample) All() (rows newton.Rows, standFor map[string]float64) {
	return s.standing(func(s *Sample) (*incremental.Block, []incremental.ClassTotal) { return s.block, s.totals })
}

// Without returns the same for the rows outside a fold.
func (s *Sample) Without(fold int) (rows newton.Rows, standFor map[string]float64) {
	return s.standing(func(s *Sample) (*incremental.Block, []incremental.ClassTotal) { return s.without(fold) })
}

// standing returns the rows of some, and of s.unlabelled, with what they stand for.
func (s *Sample) standing(some func(*Sample) (*incremental.Block, []incremental.ClassTotal)) (newton.Blocks, map[string]float64) {
	b, totals := some(s)
	rows, standFor := newton.Blocks{b}, sample.StandFor(b, totals)
	if s.unlabelled != nil {
		more, of := s.unlabelled.standing(some)
		rows = append(rows, more...)
		maps.Copy(standFor, of)
	}
	return rows, standFor
}

// without returns the rows outside a fold, with the totals that they stand for.
func (s *Sample) without(fold int) (*incremental.Block, []incremental.ClassTotal) {
	var rest []int
	for i, in := range s.in {
		if i != fold {
			rest = append(rest, in...)
		}
	}
	slices.Sort(rest)
	less := map[string]float64{incremental.Unlabelled: s.apart[fold].Unlabelled().Weight}
	for _, t := range s.apart[fold].Totals() {
		less[t.Label] = t.Weight
	}
	totals := slices.Clone(s.totals)
	for i := range totals {
		totals[i].Weight -= less[totals[i].Label]
	}
	return s.block.Pick(rest), totals
}
