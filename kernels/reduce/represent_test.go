package reduce

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"streamd/incremental/gram"
)

// permuted returns the rows in another order, and where each comes from.
func permuted(r Representatives, random *rand.Rand) (Representatives, []int) {
	from := random.Perm(r.Columns[0].Len())
	out := r
	out.Columns = pick(r.Columns, from)
	if r.Weights != nil {
		out.Weights = make([]float64, len(from))
		for k, i := range from {
			out.Weights[k] = r.Weights[i]
		}
	}
	return out, from
}

// scattered returns rows of which many are equal.
func scattered(random *rand.Rand, m, n int) Representatives {
	r := Representatives{Weights: make([]float64, m), Seed: random.Uint64()}
	for range n {
		x := make([]float64, m)
		for i := range x {
			x[i] = math.Round(3 * random.NormFloat64())
		}
		r.Columns = append(r.Columns, gram.ColumnOf(x))
	}
	for i := range r.Weights {
		r.Weights[i] = float64(random.IntN(4)) / 2
	}
	return r
}

// In any order and with any number of workers, rows of the same numbers and weights are chosen.
func TestRepresentativesAreOfTheSet(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for trial := range 20 {
		r := scattered(random, 300, 1+trial%4)
		r.Count = 1 + random.IntN(40)
		if trial%2 == 0 {
			r.Weights = nil
		}
		want, err := r.Choose(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for workers := 1; workers < 4; workers++ {
			other, from := permuted(r, random)
			other.Workers = workers
			got, err := other.Choose(context.Background())
			if err != nil || len(got) != len(want) {
				t.Fatalf("trial %d: %d rows, %v, want %d", trial, len(got), err, len(want))
			}
			for k := range got {
				if math.Float64bits(got[k].Weight) != math.Float64bits(want[k].Weight) {
					t.Errorf("trial %d: a cluster weighs %v, want %v", trial, got[k].Weight, want[k].Weight)
				}
				for _, c := range r.Columns {
					if a, b := c.At(from[got[k].Row]), c.At(want[k].Row); a != b {
						t.Errorf("trial %d: representative %d has %v, want %v", trial, k, a, b)
					}
				}
			}
		}
	}
}

// Clusters of known centres are found: each representative is the row at the centre of one,
// and weighs as much as its rows.
func TestRepresentativesOfKnownClusters(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var x, y, weights []float64
	centres := map[[2]float64]float64{}
	for k := range 7 {
		at := [2]float64{float64(100 * (k % 3)), float64(100 * (k / 3))}
		for _, away := range [][2]float64{{0, 0}, {3, 1}, {-3, 2}, {1, -4}, {-1, 4}} {
			v := 1 + float64(k)/8
			x, y, weights = append(x, at[0]+away[0]), append(y, at[1]+away[1]), append(weights, v)
			centres[at] += v
		}
	}
	x, y, weights = append(x, 1e6), append(y, 1e6), append(weights, 0) // ignored
	r, _ := permuted(Representatives{Columns: []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}, Weights: weights, Count: 7, Seed: 5}, random)
	chosen, err := r.Choose(context.Background())
	if err != nil || len(chosen) != 7 {
		t.Fatal(chosen, err)
	}
	if !slices.IsSortedFunc(chosen, func(a, b Representative) int { return int(8 * (b.Weight - a.Weight)) }) {
		t.Errorf("%v: the heaviest cluster does not come first", chosen)
	}
	for _, c := range chosen {
		at := [2]float64{r.Columns[0].At(c.Row), r.Columns[1].At(c.Row)}
		if centres[at] != c.Weight {
			t.Errorf("row %v weighs %v, want %v", at, c.Weight, centres[at])
		}
		delete(centres, at)
	}
}

// More representatives than different rows are all different rows.
func TestRepresentativesOfFewRows(t *testing.T) {
	r := Representatives{Columns: []gram.Column{gram.ColumnOf([]float64{2, 1, 2, 2, 3})}, Count: 9}
	chosen, err := r.Choose(context.Background())
	want := []Representative{{Row: 0, Weight: 3}, {Row: 1, Weight: 1}, {Row: 4, Weight: 1}}
	if err != nil || !slices.Equal(chosen, want) && !slices.Equal(chosen, []Representative{want[0], want[2], want[1]}) {
		t.Errorf("%v, %v; want %v", chosen, err, want)
	}
	r.Weights = make([]float64, 5)
	if _, err := r.Choose(context.Background()); !errors.Is(err, ErrRows) {
		t.Errorf("rows without weight: %v", err)
	}
	r.Weights, r.Count = nil, 0
	if _, err := r.Choose(context.Background()); err == nil {
		t.Error("no rows are wanted, but there is no error")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r.Count = 2
	if _, err := r.Choose(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the context has ended: %v", err)
	}
}
