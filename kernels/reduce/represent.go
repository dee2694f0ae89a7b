package reduce

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"

	"streamd/incremental/gram"
)

// Representatives are rows that stand for all rows, whatever their classes: those that are
// worth a label before the others (Fung 2003, section 5.2).
type Representatives struct {
	Columns []gram.Column // n columns of m finite numbers, in comparable units
	Weights []float64     // m numbers ≥ 0, of which a row of 0 is ignored; nil: 1 each
	Count   int           // k ≥ 1
	Seed    uint64
	Workers int // goroutines; 0: GOMAXPROCS. The result does not depend on it.
}

// A Representative is the row that lies nearest to the centre of its cluster.
type Representative struct {
	Row    int
	Weight float64 // Σv over the rows of the cluster
}

// Choose clusters all rows about k medians in the 1-norm (k-median; Fung 2003, algorithm
// 5.3.1) and returns, for each cluster, its row nearest to the centre, heaviest cluster
// first. There are fewer than k where the rows have fewer different values. Clusters says
// how the centres begin, when they stop, and what an iteration costs.
//
// The rows are taken in the order of their numbers, so the result is a function of the set
// of rows and the seed. Of equal rows, the first is the representative.
func (r *Representatives) Choose(ctx context.Context) ([]Representative, error) {
	if len(r.Columns) == 0 {
		return nil, fmt.Errorf("%w: they have no features", ErrRows)
	}
	if r.Count < 1 {
		return nil, fmt.Errorf("%d rows are wanted: 1 is the least", r.Count)
	}
	order := r.order()
	if len(order) == 0 {
		return nil, fmt.Errorf("%w: none has a weight", ErrRows)
	}
	workers := r.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	in := rows{columns: pick(r.Columns, order)}
	if r.Weights != nil {
		in.weights = make([]float64, len(order))
		for k, i := range order {
			in.weights[k] = r.Weights[i]
		}
	}
	c := newClustering(in, OneNorm, workers)
	c.seed(rand.New(rand.NewPCG(r.Seed, 0)), r.Count)
	if _, err := c.run(ctx); err != nil {
		return nil, err
	}
	var chosen []Representative
	for _, members := range c.members() {
		if len(members) == 0 {
			continue
		}
		nearest, weight := members[0], 0.0
		for _, i := range members {
			weight += c.weight(i)
			if c.away[i] < c.away[nearest] {
				nearest = i
			}
		}
		chosen = append(chosen, Representative{Row: order[nearest], Weight: weight})
	}
	slices.SortStableFunc(chosen, func(a, b Representative) int { return cmp.Compare(b.Weight, a.Weight) })
	return chosen, nil
}

// order sorts the rows of positive weight by their numbers, and equal ones by their weight.
func (r *Representatives) order() []int {
	m := r.Columns[0].Len()
	order := make([]int, 0, m)
	for i := range m {
		if r.Weights == nil || r.Weights[i] > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		for _, c := range r.Columns {
			if d := cmp.Compare(c.At(a), c.At(b)); d != 0 {
				return d
			}
		}
		if r.Weights != nil {
			return cmp.Compare(r.Weights[b], r.Weights[a])
		}
		return 0
	})
	return order
}
