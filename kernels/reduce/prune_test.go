package reduce

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/kernels"
)

// pruned is rows with a basis to prune: their coordinates, and their sums.
type pruned struct {
	m    *kernels.Map
	k    []gram.Column
	b    *incremental.Block
	sums *incremental.Moments
}

func newPruned(t *testing.T, seed uint64, classes, points, rows int) *pruned {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	p := blobs(r, classes, rows)
	var z []float64
	for range points {
		i := r.IntN(rows)
		z = append(z, p.Columns[0].At(i)+r.NormFloat64(), p.Columns[1].At(i)+r.NormFloat64())
	}
	m, err := kernels.NewMap(p.Kernel, 2, z)
	if err != nil {
		t.Fatal(err)
	}
	q := &pruned{m: m, k: kernels.NewMapper(m).Map(p.Columns)}
	q.b = &incremental.Block{Features: m.Names(), Columns: q.k, Codes: p.Codes}
	for c := range classes {
		q.b.Classes = append(q.b.Classes, fmt.Sprint("c", c))
	}
	for range rows {
		q.b.Weights = append(q.b.Weights, float64(r.IntN(4)))
	}
	q.sums = q.sumsOf(t)
	return q
}

func (q *pruned) sumsOf(t *testing.T) *incremental.Moments {
	t.Helper()
	s, err := new(incremental.Summariser).Summarise(q.b)
	if err != nil {
		t.Fatal(err)
	}
	state := incremental.NewState(q.b.Features)
	state.Add(s)
	return state.Moments()
}

// dense is Q and c₁ − c₂ of a plane by gonum, from the rows.
func (q *pruned) dense(class int32, o incremental.Options) (*mat.SymDense, *mat.VecDense) {
	t := len(q.k)
	weight := make([]float64, q.b.Rows())
	var side [2]float64
	of := func(i int) int {
		if q.b.Codes[i] == class {
			return 1
		}
		return 0
	}
	for i := range weight {
		weight[i] = q.b.Weights[i] * o.ClassWeight(q.b.Classes[q.b.Codes[i]])
		side[of(i)] += q.b.Weights[i]
	}
	if o.Balanced {
		for i := range weight {
			weight[i] /= side[of(i)]
		}
	}
	all, mean := 0.0, mat.NewVecDense(t, nil)
	var total [2]float64
	means := [2]*mat.VecDense{mat.NewVecDense(t, nil), mat.NewVecDense(t, nil)}
	row := func(i int) *mat.VecDense {
		x := mat.NewVecDense(t, nil)
		for j := range t {
			x.SetVec(j, q.k[j].At(i))
		}
		return x
	}
	for i, v := range weight {
		all += v
		total[of(i)] += v
		mean.AddScaledVec(mean, v, row(i))
		means[of(i)].AddScaledVec(means[of(i)], v, row(i))
	}
	mean.ScaleVec(1/all, mean)
	scatter, between := mat.NewSymDense(t, nil), mat.NewVecDense(t, nil)
	for i, v := range weight {
		x := row(i)
		x.SubVec(x, mean)
		scatter.SymRankOne(scatter, v/all, x)
	}
	between.AddScaledVec(between, 1/total[1], means[1])
	between.AddScaledVec(between, -1/total[0], means[0])
	return scatter, between
}

// within is δ'Q⁻¹δ of some coordinates.
func within(q mat.Symmetric, delta *mat.VecDense, some []int) float64 {
	if len(some) == 0 {
		return 0
	}
	part, d := mat.NewSymDense(len(some), nil), mat.NewVecDense(len(some), nil)
	for i, a := range some {
		d.SetVec(i, delta.AtVec(a))
		for j, b := range some[:i+1] {
			part.SetSym(i, j, q.At(a, b))
		}
	}
	var u mat.VecDense
	if err := u.SolveVec(part, d); err != nil {
		return math.NaN()
	}
	return mat.Dot(d, &u)
}

var pruneOptions = map[string]incremental.Options{
	"as they are":   {},
	"class weights": {ClassWeights: map[string]float64{"c0": 5}},
	"balanced":      {Balanced: true, ClassWeights: map[string]float64{"c1": 0.5}},
}

// The first step of each plane, and of two classes every step, takes the coordinate of the largest
// criterion, of the rows themselves.
func TestPruneByDiscriminant(t *testing.T) {
	for name, o := range pruneOptions {
		q := newPruned(t, 81, 2, 12, 90)
		rank, err := PruneLDA.Rank(context.Background(), q.m, q.sums, o, 6)
		if err != nil || len(rank) != 6 {
			t.Fatalf("%s: %v, %v", name, rank, err)
		}
		scatter, between := q.dense(1, o)
		for step := range rank {
			own := within(scatter, between, rank[:step+1])
			for c := range q.k {
				if slices.Contains(rank[:step], c) {
					continue
				}
				if other := within(scatter, between, append(slices.Clone(rank[:step]), c)); !(other <= own*(1+1e-9)) {
					t.Errorf("%s: step %d takes %d with %v, and %d has %v", name, step, rank[step], own, c, other)
				}
			}
		}
		more, err := PruneLDA.Rank(context.Background(), q.m, q.sums, o, 9)
		if err != nil || !slices.Equal(more[:6], rank) {
			t.Errorf("%s: the rank of nine is %v, that of six %v: %v", name, more, rank, err)
		}

		var first []int // each plane's best, on the first set where these differ
		for seed := uint64(82); len(first) < 3 && seed < 102; seed++ {
			q = newPruned(t, seed, 3, 12, 120)
			first = first[:0]
			for class := range int32(3) {
				scatter, between := q.dense(class, o)
				alone := func(c int) float64 { return within(scatter, between, []int{c}) }
				best := slices.MaxFunc([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, func(a, b int) int {
					if alone(a) < alone(b) {
						return -1
					}
					return 1
				})
				if slices.Contains(first, best) {
					break
				}
				first = append(first, best)
			}
		}
		if len(first) < 3 {
			t.Fatalf("%s: two planes want the same coordinate on all sets", name)
		}
		if rank, err = PruneLDA.Rank(context.Background(), q.m, q.sums, o, 12); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(rank[:3], first) {
			t.Errorf("%s: the planes take %v first, want %v", name, rank[:3], first)
		}
		if set := slices.Sorted(slices.Values(rank)); !slices.Equal(set, slices.Compact(slices.Clone(set))) {
			t.Errorf("%s: a coordinate is taken twice: %v", name, rank)
		}
	}
}

// Every coordinate that goes is the one whose loss costs the planes least, by gonum and the rows.
func TestPruneByFisher(t *testing.T) {
	for name, o := range pruneOptions {
		for classes, first := range map[int]int32{2: 1, 3: 0} {
			q := newPruned(t, 83, classes, 10, 100)
			rank, err := PruneFisher.Rank(context.Background(), q.m, q.sums, o, 10)
			if err != nil || len(rank) != 10 {
				t.Fatalf("%s: %v, %v", name, rank, err)
			}
			metric := q.m.Gram()
			criterion := func(some []int) (sum float64) {
				for class := first; class < int32(classes); class++ {
					scatter, between := q.dense(class, o)
					for i := range q.k {
						for j := range i + 1 {
							scatter.SetSym(i, j, scatter.At(i, j)+pruneMu*metric[gram.PackedLen(i)+j])
						}
					}
					sum += within(scatter, between, some)
				}
				return sum
			}
			for left := len(rank); left > 1; left-- {
				own := criterion(rank[:left-1])
				for c := range left - 1 {
					other := criterion(slices.Delete(slices.Clone(rank[:left]), c, c+1))
					if !(other <= own*(1+1e-9)) {
						t.Errorf("%s, %d classes: of %v the last goes, which leaves %v; without %d it is %v", name, classes, rank[:left], own, rank[c], other)
					}
				}
			}
			few, err := PruneFisher.Rank(context.Background(), q.m, q.sums, o, 4)
			if err != nil || !slices.Equal(few, rank[:4]) {
				t.Errorf("%s: the best four are %v of %v: %v", name, few, rank, err)
			}
		}
	}
}

// The next point is the farthest from the span of the earlier ones, by determinants of gonum.
func TestPruneByCholesky(t *testing.T) {
	q := newPruned(t, 84, 2, 11, 30)
	rank, err := PruneCholesky.Rank(context.Background(), q.m, nil, incremental.Options{}, 8)
	if err != nil || len(rank) != 8 {
		t.Fatalf("%v, %v", rank, err)
	}
	all := symmetric(q.m.Gram(), q.m.Points())
	volume := func(some []int) float64 {
		part := mat.NewDense(len(some), len(some), nil)
		for i, a := range some {
			for j, b := range some {
				part.Set(i, j, all.At(a, b))
			}
		}
		return mat.Det(part)
	}
	for step := range rank {
		own := volume(rank[:step+1])
		for c := range q.m.Points() {
			if !slices.Contains(rank[:step], c) {
				if other := volume(append(slices.Clone(rank[:step]), c)); other > own*(1+1e-9) {
					t.Errorf("step %d takes %d with volume %v, and %d has %v", step, rank[step], own, c, other)
				}
			}
		}
	}

	// A linear kernel of two features has two independent points.
	flat, err := kernels.NewMap(kernels.Linear(), 2, []float64{1, 2, 3, 4, 0, 1, 5, 5, 2, 1})
	if err != nil {
		t.Fatal(err)
	}
	if rank, err := PruneCholesky.Rank(context.Background(), flat, nil, incremental.Options{}, 5); err != nil || len(rank) != 2 || rank[0] != 3 {
		t.Errorf("of a plane it takes %v: %v", rank, err)
	}
}

// Eigen keeps the leading coordinates of an eigen-subspace. Other combinations that sums do not
// support are refused with the way out.
func TestPruneRefuses(t *testing.T) {
	q := newPruned(t, 85, 2, 6, 40)
	eigen, err := q.m.Projected(make([]float64, 4*6))
	if err != nil {
		t.Fatal(err)
	}
	if rank, err := PruneEigen.Rank(context.Background(), eigen, nil, incremental.Options{}, 3); err != nil || !slices.Equal(rank, []int{0, 1, 2}) {
		t.Errorf("eigen keeps %v: %v", rank, err)
	}
	one := *q
	few := *q.b
	few.Codes = make([]int32, q.b.Rows())
	one.b = &few
	sigmoid, err := kernels.Sigmoid(1, -1)
	if err != nil {
		t.Fatal(err)
	}
	crooked, err := kernels.NewMap(sigmoid, 2, []float64{1, 2, 3, 4})
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		p    Pruning
		ctx  context.Context
		m    *kernels.Map
		sums *incremental.Moments
		want error
	}{
		"eigen of points":     {PruneEigen, context.Background(), q.m, q.sums, ErrUnfit},
		"cholesky of eigen":   {PruneCholesky, context.Background(), eigen, q.sums, ErrUnfit},
		"cholesky of sigmoid": {PruneCholesky, context.Background(), crooked, q.sums, ErrUnfit},
		"fisher of sigmoid":   {PruneFisher, context.Background(), crooked, q.sums, ErrUnfit},
		"lda of one class":    {PruneLDA, context.Background(), q.m, one.sumsOf(t), incremental.ErrClasses},
		"fisher of one class": {PruneFisher, context.Background(), q.m, one.sumsOf(t), incremental.ErrClasses},
		"lda without time":    {PruneLDA, ended, q.m, q.sums, context.Canceled},
		"fisher without time": {PruneFisher, ended, q.m, q.sums, context.Canceled},
	} {
		if rank, err := c.p.Rank(c.ctx, c.m, c.sums, incremental.Options{}, 2); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v", name, rank, err)
		}
	}
	// Rows that are all alike tell no classes apart.
	for j := range q.k {
		q.b.Columns[j] = gram.ColumnOf(make([]float64, q.b.Rows()))
	}
	if _, err := PruneLDA.Rank(context.Background(), q.m, q.sumsOf(t), incremental.Options{}, 2); !errors.Is(err, ErrUnfit) {
		t.Errorf("of constant coordinates: %v", err)
	}
}
