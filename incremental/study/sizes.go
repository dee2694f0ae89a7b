package study

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"streamd/incremental"
	"streamd/incremental/confusion"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
)

// Sized says how well planes in some of the coordinates label held-out rows, by their values.
type Sized struct {
	Coordinates         int
	Correctness         float64
	BalancedCorrectness float64
}

// BySize judges solved planes in ever more of the coordinates on the held-out rows of a sample, as
// HoldOut judges those in all of them. rank orders up to most coordinates, the best first. It gets
// the sums without a fold, so that it does not see the rows that it is judged by. Sizes are 1, 2,
// 3, 5, 7, 10, 15, … and, last, that of all coordinates. A size is left out where a fold's rank is
// shorter or its planes cannot be solved.
//
// The cost is that of the ranks and up to three times that of HoldOut for planes that are not
// refined.
func (s *Study) BySize(ctx context.Context, of *Sample, values int, rank func(ctx context.Context, sums *incremental.Moments, most int) ([]int, error)) ([]Sized, error) {
	n, planes, classes := len(of.block.Columns), len(s.model.Planes), s.model.Classes
	rows := min(of.block.Rows(), max(1, values/planes))
	weighted := sample.Weigh(of.block.Slice(0, rows), of.totals)
	sizes := sizesTo(n)
	most := 0 // of the coordinates of a rank
	if len(sizes) > 1 {
		most = sizes[len(sizes)-2]
	}
	answers, missing := make([]*confusion.Matrix, len(sizes)), make([]bool, len(sizes))
	for i := range answers {
		answers[i] = confusion.New(len(classes))
	}
	folds := 0
	for i, in := range of.in {
		judged, _ := slices.BinarySearch(in, rows)
		rest, b := s.without(i), weighted.Pick(in[:judged])
		if !weighs(b) || !slices.Equal(rest.Classes(), classes) {
			continue
		}
		order, err := rank(ctx, rest, most)
		if err != nil {
			return nil, fmt.Errorf("without fold %d of %d: %w", i+1, len(of.in), err)
		}
		folds++
		said, scores := make([]int32, judged), make([]float64, judged*planes)
		for k, size := range sizes {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			sums, columns := rest, b.Columns
			if size < n {
				if missing[k] = missing[k] || len(order) < size; missing[k] {
					continue
				}
				at := slices.Sorted(slices.Values(order[:size]))
				sums, columns = rest.Select(at), make([]gram.Column, size)
				for j, from := range at {
					columns[j] = b.Columns[from]
				}
			}
			without, err := sums.Solve(s.options.Planes)
			var condition *incremental.ConditionError
			switch {
			case errors.As(err, &condition):
				missing[k] = true
				continue
			case err != nil:
				return nil, fmt.Errorf("%d coordinates without fold %d of %d: %w", size, i+1, len(of.in), err)
			}
			without.Classify(said, scores, columns)
			for r, code := range b.Codes {
				answers[k].Add(code, said[r], b.Weights[r])
			}
		}
	}
	if folds == 0 {
		return nil, fmt.Errorf("none of the %d folds of blocks has rows and leaves rows of every class to the others", len(of.in))
	}
	var sized []Sized
	for k, size := range sizes {
		if !missing[k] {
			f := answers[k].Figures()
			sized = append(sized, Sized{size, f.Correctness, f.BalancedCorrectness})
		}
	}
	return sized, nil
}

// sizesTo lists sizes below n, six in each power of ten, and n.
func sizesTo(n int) (sizes []int) {
	for ten := 1; ; ten *= 10 {
		for _, tenths := range []int{10, 15, 20, 30, 50, 70} {
			size := tenths * ten / 10
			if size >= n {
				return append(sizes, n)
			}
			if tenths*ten%10 == 0 {
				sizes = append(sizes, size)
			}
		}
	}
}
