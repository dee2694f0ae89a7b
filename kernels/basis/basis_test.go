package basis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/kernels"
	"streamd/kernels/reduce"
)

// scattered is rows of two classes with weights 1, 2 and 3. One feature is constant.
func scattered(rows int) *incremental.Block {
	r := rand.New(rand.NewPCG(9, uint64(rows)))
	x := make([][]float64, 3)
	b := &incremental.Block{Features: []string{"x", "y", "z"}, Classes: []string{"in", "out"}}
	for i := range rows {
		u, v := 100*r.NormFloat64(), 5+r.NormFloat64()
		x[0], x[1], x[2] = append(x[0], u), append(x[1], v), append(x[2], 0.1)
		code := int32(0)
		if math.Hypot(u/100, v-5) > 1.2 {
			code = 1
		}
		b.Codes, b.Weights = append(b.Codes, code), append(b.Weights, float64(1+i%3))
	}
	for _, column := range x {
		b.Columns = append(b.Columns, gram.ColumnOf(column))
	}
	return b
}

func summed(t *testing.T, names []string, b *incremental.Block) *incremental.State {
	t.Helper()
	var z incremental.Summariser
	s, err := z.Summarise(b)
	if err != nil {
		t.Fatal(err)
	}
	state := incremental.NewState(names)
	state.Add(s)
	return state
}

// Scale uses the weights, leaves a constant feature alone, and has the bits of the
// scaling by the sums of all features.
func TestScale(t *testing.T) {
	b := &incremental.Block{
		Features: []string{"x", "y", "z"}, Classes: []string{"a", "b"}, Codes: []int32{0, 1}, Weights: []float64{1, 3},
		Columns: []gram.Column{gram.ColumnOf([]float64{2, 6}), gram.ColumnOf([]float64{7, 7}), gram.ColumnOf([]float64{0.1, 0.1})},
	}
	mean, sigma, err := Scale(b)
	if err != nil {
		t.Fatal(err)
	}
	if want := math.Sqrt(3); mean[0] != 5 || !(math.Abs(sigma[0]-want) < 1e-15) || sigma[1] != 1 || sigma[2] != 1 {
		t.Errorf("mean %v, sigma %v", mean, sigma)
	}
	scaled := (&Problem{Rows: b, Mean: mean, Sigma: sigma}).scaled()
	if got := scaled.Columns[0].At(1); got != 1*(1/sigma[0]) || scaled.Columns[1].At(0) != 0 {
		t.Errorf("scaled to %v and %v", got, scaled.Columns[1].At(0))
	}

	b = scattered(500)
	mean, sigma, err = Scale(b)
	if err != nil {
		t.Fatal(err)
	}
	wantMean, wantSigma := summed(t, b.Features, b).Moments().Scale()
	if !slices.Equal(mean, wantMean) || !slices.Equal(sigma, wantSigma) {
		t.Errorf("%v, %v; of the sums %v, %v", mean, sigma, wantMean, wantSigma)
	}
	b.Columns[1] = gram.ColumnOf(slices.Repeat([]float64{math.Inf(1)}, 500))
	if row := (*incremental.RowError)(nil); !errors.As(func() error { _, _, err := Scale(b); return err }(), &row) {
		t.Error("an infinite number is scaled")
	}
}

// Without a reducer every row is a point. The map takes unscaled features to the scaled
// points: a row's own coordinate is K(x, x) = 1.
func TestEveryRowIsAPoint(t *testing.T) {
	b := scattered(30)
	mean, sigma, err := Scale(b)
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := kernels.Gaussian(0.5)
	if err != nil {
		t.Fatal(err)
	}
	m, stages, err := (&Problem{Rows: b, Mean: mean, Sigma: sigma}).Choose(t.Context(), kernel)
	if err != nil || m.Points() != 30 || stages != nil {
		t.Fatalf("%d points, %v, %v", m.Points(), stages, err)
	}
	columns := kernels.NewMapper(m).Map(b.Columns)
	for i, c := range columns {
		if c.At(i) != 1 {
			t.Errorf("row %d has %v at its own point", i, c.At(i))
		}
	}
}

// The basis does not depend on the number of workers. An Order that lists the rows as they
// are changes nothing.
func TestChoicesAreFunctionsOfTheProblem(t *testing.T) {
	b := scattered(600)
	mean, sigma := summed(t, b.Features, b).Moments().Scale()
	p := Problem{
		Rows: b, Mean: mean, Sigma: sigma, Planes: incremental.Options{Nu: 10}, Points: 12,
		Reducer: reduce.Clusters{Nu: 1}, Seed: 3, Workers: 1,
	}
	gamma, err := p.Gamma(t.Context())
	if err != nil || gamma.Unjudged != nil || len(gamma.Trials) != 12 {
		t.Fatalf("%+v, %v", gamma, err)
	}
	listed := p
	for i := range 600 {
		listed.Order = append(listed.Order, i)
	}
	if again, err := listed.Gamma(t.Context()); err != nil || !reflect.DeepEqual(again, gamma) {
		t.Errorf("%+v of listed rows, %+v as they are; %v", again, gamma, err)
	}
	// Rows are sorted by class, and the folds still have equal shares of each.
	listed.Order = rand.New(rand.NewPCG(1, 1)).Perm(600)
	listed.Rows = b.Pick(byClass(b))
	first, folds := listed.first(listed.scaled())
	if first.Rows() != 600 || !slices.IsSorted(first.Codes) {
		t.Error("rows to judge by are not in the order of the problem's")
	}
	for _, fold := range folds {
		of := [2]int{}
		for _, i := range fold {
			of[first.Codes[i]]++
		}
		if len(fold) != 120 || of[0] < 30 || of[1] < 30 {
			t.Errorf("a fold of %d and %d rows", of[0], of[1])
		}
	}
	kernel, err := kernels.Gaussian(gamma.Gamma)
	if err != nil {
		t.Fatal(err)
	}
	reported := p
	reported.Progress = func(reduce.Stage) {}
	one, stages, err := reported.Choose(t.Context(), kernel)
	if err != nil || len(stages) == 0 || one.Points() > 12 {
		t.Fatalf("%d points, %v, %v", one.Points(), stages, err)
	}
	p.Workers = 5
	other, _, err := p.Choose(t.Context(), kernel)
	if err != nil || other.Digest() != one.Digest() {
		t.Errorf("five workers choose another basis: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Gamma(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, _, err := p.Choose(ctx, kernel); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// byClass lists the rows class by class.
func byClass(b *incremental.Block) []int {
	var rows []int
	for i := range b.Rows() {
		rows = append(rows, i)
	}
	slices.SortStableFunc(rows, func(i, j int) int { return int(b.Codes[i]) - int(b.Codes[j]) })
	return rows
}

// The rows of a sample count for the rows of their class that they stand for.
func TestGammaByRowsThatStandForOthers(t *testing.T) {
	b := scattered(600)
	b.Weights = nil
	totals := []incremental.ClassTotal{{Label: "in", Rows: 3000, Weight: 3000}, {Label: "out", Rows: 100, Weight: 100}}
	p := Problem{Rows: b, Totals: totals, Planes: incremental.Options{Nu: 10}, Points: 12}
	got, err := p.Gamma(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counts := map[int32]float64{}
	for _, code := range b.Codes {
		counts[code]++
	}
	weighted := *b
	for _, code := range b.Codes {
		weighted.Weights = append(weighted.Weights, totals[code].Weight/counts[code]*1)
	}
	p.Rows, p.Totals = &weighted, nil
	if want, err := p.Gamma(t.Context()); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v; %v", got, want, err)
	}
}

// Where a class has too few rows to judge γ, the median heuristic is used.
func TestGammaWithoutTrials(t *testing.T) {
	b := scattered(60)
	clear(b.Codes)
	b.Codes[0] = 1
	p := Problem{Rows: b, Planes: incremental.Options{Nu: 10}, Points: 12}
	gamma, err := p.Gamma(t.Context())
	median, _ := kernels.MedianGamma(b.Columns)
	if err != nil || !errors.Is(gamma.Unjudged, incremental.ErrClasses) || gamma.Gamma != median || gamma.Trials != nil {
		t.Errorf("%+v, %v; the median is %v", gamma, err, median)
	}
}

// deal puts copies of a row into one fold, and deals other rows in turn.
func TestDeal(t *testing.T) {
	b := &incremental.Block{
		Columns: []gram.Column{gram.ColumnOf([]float64{1, 1, 1, 2, 3, 4, 5, 6, 6}), gram.ColumnOf([]float64{0, 0, 1, 1, 1, 1, 1, 1, 1})},
		Codes:   make([]int32, 9),
	}
	if got, want := fmt.Sprint(deal(b)), "[[0 1 6] [2 7 8] [3] [4] [5]]"; got != want {
		t.Errorf("dealt %s, not %s", got, want)
	}
}

// A lifter gives the columns of a mapper and the coordinates' names, whichever
// coordinates it had before. Nil means the features.
func TestLifter(t *testing.T) {
	b := scattered(20)
	kernel, err := kernels.Gaussian(1e-4)
	if err != nil {
		t.Fatal(err)
	}
	var in []*Coordinates
	for points := range 3 {
		var z []float64
		for i := range points + 1 {
			z = append(z, b.Columns[0].At(i), b.Columns[1].At(i), b.Columns[2].At(i))
		}
		m, err := kernels.NewMap(kernel, 3, z)
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, New(m, points == 1))
	}
	var l Lifter
	for _, i := range []int{0, 1, 2, 0, 2, 2, 1} {
		got, err := l.Block(t.Context(), b, in[i])
		if err != nil {
			t.Fatal(err)
		}
		want := kernels.NewMapper(in[i].Map).Map(b.Columns)
		if len(got.Columns) != i+1 || got.Features[i] != []string{"z1", "z2", "z3"}[i] || !slices.Equal(got.Codes, b.Codes) {
			t.Fatalf("%d columns, %q", len(got.Columns), got.Features)
		}
		for j := range want {
			for row := range got.Codes {
				if got.Columns[j].At(row) != want[j].At(row) {
					t.Fatalf("row %d has %v at point %d", row, got.Columns[j].At(row), j)
				}
			}
		}
	}
	if got, err := l.Block(t.Context(), b, nil); got != b || err != nil {
		t.Errorf("the features are %p of %p, %v", got, b, err)
	}
	state := summed(t, in[1].Names, func() *incremental.Block { b, _ := l.Block(t.Context(), b, in[1]); return b }())
	plain, err := state.Moments().Solve(incremental.Options{Nu: 1})
	if err != nil {
		t.Fatal(err)
	}
	own, err := in[1].Moments(state).Solve(incremental.Options{Nu: 1})
	if err != nil {
		t.Fatal(err)
	}
	if reflect.DeepEqual(plain.Planes, own.Planes) {
		t.Error("the regulariser does not count")
	}
}
