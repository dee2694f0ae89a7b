package study

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"streamd/incremental"
	"streamd/incremental/confusion"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
)

// byDeviation ranks features by their deviations over the rows that it sees.
func byDeviation(_ context.Context, sums *incremental.Moments, _ int) ([]int, error) {
	_, sigma := sums.Scale()
	order := []int{0, 1, 2}
	slices.SortFunc(order, func(a, b int) int {
		if sigma[a] < sigma[b] {
			return -1
		}
		return 1
	})
	return order, nil
}

// Planes of each size are those of the rows outside the fold, with these columns alone.
func TestBySize(t *testing.T) {
	const folds = 4
	l := newLive(t, overlapping(24, 50), folds, 700, nil)
	for _, o := range []incremental.Options{{Nu: 2}, {Nu: 1, Balanced: true}} {
		s := New(&l.Problem, Options{Planes: o})
		if _, err := s.Solve(); err != nil {
			t.Fatal(err)
		}
		got, err := s.BySize(t.Context(), l.sample(), everyRow, byDeviation)
		if err != nil {
			t.Fatal(err)
		}
		weighted := sample.Weigh(l.view.Block, l.Whole.Totals())
		answers := []*confusion.Matrix{confusion.New(3), confusion.New(3), confusion.New(3)}
		for fold := range folds {
			var in []int
			for i, f := range l.view.Fold {
				if int(f) == fold {
					in = append(in, i)
				}
			}
			held := weighted.Pick(in)
			sumsOf := func(at []int) *incremental.Moments {
				var names []string
				for _, j := range at {
					names = append(names, l.Whole.Features()[j])
				}
				state := incremental.NewState(names)
				var z incremental.Summariser
				for i, b := range l.blocks {
					if l.fold[i] == fold {
						continue
					}
					some := *b
					some.Features, some.Columns = names, columnsAt(b, at)
					summary, err := z.Summarise(&some)
					if err != nil {
						t.Fatal(err)
					}
					state.Add(summary)
				}
				return state.Moments()
			}
			order, _ := byDeviation(t.Context(), sumsOf([]int{0, 1, 2}), 2)
			for size := 1; size <= 3; size++ {
				at := slices.Sorted(slices.Values(order[:size]))
				model, err := sumsOf(at).Solve(o)
				if err != nil {
					t.Fatal(err)
				}
				said, values := make([]int32, held.Rows()), make([]float64, 3*held.Rows())
				model.Classify(said, values, columnsAt(held, at))
				for i := range said {
					answers[size-1].Add(held.Codes[i], said[i], held.Weights[i])
				}
			}
		}
		var want []Sized
		for k, m := range answers {
			f := m.Figures()
			want = append(want, Sized{k + 1, f.Correctness, f.BalancedCorrectness})
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		if want[0].Correctness >= want[2].Correctness {
			t.Errorf("the sizes make no difference: %+v", want)
		}
	}
}

func columnsAt(b *incremental.Block, at []int) (columns []gram.Column) {
	for _, j := range at {
		columns = append(columns, b.Columns[j])
	}
	return columns
}

// A size that a fold's rank does not reach is left out, and all coordinates need no rank.
func TestBySizeOfShortRanks(t *testing.T) {
	l := newLive(t, overlapping(24, 50), 4, 700, nil)
	s := New(&l.Problem, Options{Planes: incremental.Options{Nu: 1}})
	if _, err := s.Solve(); err != nil {
		t.Fatal(err)
	}
	turn := 0
	got, err := s.BySize(t.Context(), l.sample(), everyRow, func(_ context.Context, _ *incremental.Moments, most int) ([]int, error) {
		if turn++; most != 2 {
			t.Errorf("%d coordinates are wanted, and the third has no choice", most)
		}
		return []int{2, 1}[:min(turn, 2)], nil // the first fold has a single one
	})
	if err != nil || len(got) != 2 || got[0].Coordinates != 1 || got[1].Coordinates != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	bad := errors.New("it has no rank")
	if _, err := s.BySize(t.Context(), l.sample(), everyRow, func(context.Context, *incremental.Moments, int) ([]int, error) { return nil, bad }); !errors.Is(err, bad) {
		t.Errorf("%v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.BySize(ended, l.sample(), everyRow, byDeviation); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	narrow := overlapping(24, 50)
	for _, b := range narrow {
		b.Features, b.Columns = b.Features[:2], b.Columns[:2]
	}
	two := newLive(t, narrow, 4, 700, nil)
	s = New(&two.Problem, Options{Planes: incremental.Options{Nu: 1}})
	if _, err := s.Solve(); err != nil {
		t.Fatal(err)
	}
	got, err = s.BySize(t.Context(), two.sample(), everyRow, func(_ context.Context, _ *incremental.Moments, most int) ([]int, error) {
		return []int{1, 0}[:most], nil
	})
	if err != nil || len(got) != 2 || got[0].Coordinates != 1 || got[1].Coordinates != 2 {
		t.Errorf("of two coordinates %+v, %v", got, err)
	}
	want := []int{1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500}
	if got := sizesTo(500); !slices.Equal(got, want) {
		t.Errorf("sizes to 500 are %v", got)
	}
	if got := sizesTo(1); !slices.Equal(got, []int{1}) {
		t.Errorf("sizes to 1 are %v", got)
	}
}

// One fold that leaves rows of every class to the others is enough to judge by. Without any there
// are no figures.
func TestBySizeOfFewFolds(t *testing.T) {
	blocks := overlapping(24, 50)
	for _, fold := range []int{0, 1} { // the other one lacks a class
		full := newLive(t, blocks, 2, 700, func(of int) bool { return of == fold })
		lacking := newLive(t, someClasses(24, 50, 2), 2, 700, func(of int) bool { return of != fold })
		l := newLive(t, slices.Concat(full.blocks, lacking.blocks), 2, 700, nil)
		got, err := solvedOf(t, l, Options{}).BySize(t.Context(), l.sample(), everyRow, byDeviation)
		if err != nil || len(got) != 3 || got[2].Correctness < 0.5 || got[2].Correctness >= 1 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	one := newLive(t, blocks, 1, 700, nil)
	if got, err := solvedOf(t, one, Options{}).BySize(t.Context(), one.sample(), everyRow, byDeviation); err == nil || !strings.Contains(err.Error(), "none of the 1 folds") {
		t.Errorf("%+v, %v", got, err)
	}
}

// failing is a solver that fails after some planes.
type failing struct {
	incremental.Means
	left *atomic.Int64
}

var errFailing = errors.New("no more planes")

func (f failing) Plane(p *incremental.Program, nu float64) ([]float64, error) {
	if f.left.Add(-1) < 0 {
		return nil, errFailing
	}
	return f.Means.Plane(p, nu)
}

// Where the rows outside a fold make no planes, the error names it.
func TestFoldWithoutPlanesIsNamed(t *testing.T) {
	const folds, planes = 4, 3
	l := newLive(t, overlapping(24, 50), folds, 700, nil)
	for fold := range folds {
		solver := failing{left: new(atomic.Int64)}
		solver.left.Store(planes)
		s := solvedOf(t, l, Options{Planes: incremental.Options{Solver: solver}})
		solver.left.Store(int64(fold * planes))
		if _, err := s.HoldOut(t.Context(), l.sample(), everyRow); !errors.Is(err, errFailing) || !strings.HasPrefix(err.Error(), fmt.Sprintf("without fold %d of 4: ", fold+1)) {
			t.Errorf("fold %d: %v", fold, err)
		}
	}
}
