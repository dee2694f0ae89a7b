package reduce

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/kernels"
)

func gaussian(gamma float64) kernels.Kernel {
	k, err := kernels.Gaussian(gamma)
	if err != nil {
		panic(err)
	}
	return k
}

// correct is the share of a problem's rows that the first plane classifies correctly.
func correct(t testing.TB, r *Result, k kernels.Kernel, p *Problem) float64 {
	s := &sample{Problem: &Problem{Columns: p.Columns, Codes: p.Codes, Kernel: k}}
	all := make([]int, len(p.Codes))
	for i := range all {
		all[i] = i
	}
	m, err := r.Map(k)
	if err != nil {
		t.Fatal(err)
	}
	return correctness(kernels.NewMapper(m).Map(p.Columns), s.take(all, r.Planes[0].Class), r.Planes[0].U, r.Planes[0].Gamma)
}

// spirals returns the two spirals of A. Wieland's benchmark (figure 2.3 of Fung
// 2003), 97 points each.
func spirals() *Problem {
	p := &Problem{Classes: 2}
	var x, y []float64
	for i := range 97 {
		angle, radius := float64(i)*math.Pi/16, 6.5*float64(104-i)/104
		for _, sign := range []float64{1, -1} {
			x = append(x, sign*radius*math.Sin(angle))
			y = append(y, sign*radius*math.Cos(angle))
			p.Codes = append(p.Codes, int32((sign+1)/2))
		}
	}
	p.Columns = []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}
	return p
}

// 60 synthetic points, which replace some 145 of the 194, classify every point of the
// spirals correctly.
func TestSpirals(t *testing.T) {
	p := spirals()
	p.Kernel, p.Points, p.Seed = gaussian(0.5), 60, 1
	r, err := ChunkingSynthetic{Candidates: 194, Nu: 100, Runs: 2}.Reduce(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d points, (c) in error by %.3f", r.Points, r.Stages[0].Approximation.Error)
	if share := correct(t, r, p.Kernel, p); r.Points > 60 || share < 1 {
		t.Errorf("%d points have %.0f of 194 right", r.Points, 194*share)
	}
}

// checkerboard draws m points of the 4×4 board of Ho and Kleinberg, 50 units
// to a square; 0: its grid of 39,601 points.
func checkerboard(r *rand.Rand, m int) *Problem {
	p := &Problem{Classes: 2}
	var x, y []float32
	add := func(a, b int) {
		x, y = append(x, float32(a)), append(y, float32(b))
		p.Codes = append(p.Codes, int32((a/50+b/50)%2))
	}
	for range m {
		add(r.IntN(200), r.IntN(200))
	}
	if m == 0 {
		for a := 1; a < 200; a++ {
			for b := 1; b < 200; b++ {
				add(a, b)
			}
		}
	}
	p.Columns = []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}
	return p
}

// proximal fits the proximal SVM to rows in the coordinates of a basis, and returns its
// correctness on test rows.
func proximal(t testing.TB, k kernels.Kernel, r *Result, rows, tests *Problem, nu float64) float64 {
	m, err := kernels.NewMap(k, r.Features, r.Z)
	if err != nil {
		t.Fatal(err)
	}
	mapper := kernels.NewMapper(m)
	block := &incremental.Block{Columns: mapper.Map(rows.Columns), Classes: []string{"-1", "1"}, Codes: rows.Codes}
	summary, err := new(incremental.Summariser).Summarise(block)
	if err != nil {
		t.Fatal(err)
	}
	state := incremental.NewState(incremental.DefaultFeatures(r.Points))
	state.Add(summary)
	model, err := state.Moments().Solve(incremental.Options{Nu: nu})
	if err != nil {
		t.Fatal(err)
	}
	class := make([]int32, len(tests.Codes))
	model.Classify(class, make([]float64, len(class)), mapper.Map(tests.Columns))
	right := 0
	for i, c := range class {
		if c == tests.Codes[i] {
			right++
		}
	}
	return float64(right) / float64(len(class))
}

// 40 points from a sample of the checkerboard classify more than 97 % of the grid
// correctly, with their first coefficients and with the proximal SVM of a larger stream.
func TestCheckerboard(t *testing.T) {
	rows := checkerboard(rand.New(rand.NewPCG(1, 1)), 4000)
	stream := checkerboard(rand.New(rand.NewPCG(2, 2)), 100000)
	grid := checkerboard(nil, 0)
	rows.Kernel, rows.Points, rows.Seed = gaussian(0.001), 40, 1
	r, err := ChunkingSynthetic{Chunks: []Chunk{{500, 10}, {1000, 10}}, Nu: 10, Runs: 4, Fresh: 200}.Reduce(context.Background(), rows)
	if err != nil {
		t.Fatal(err)
	}
	first := correct(t, r, rows.Kernel, grid)
	fitted := proximal(t, rows.Kernel, r, stream, grid, 1)
	t.Logf("%d points: %.2f %% of %d, the proximal SVM %.2f %%", r.Points, 100*first, len(grid.Codes), 100*fitted)
	if r.Points > 40 || first < 0.97 || fitted < 0.97 {
		t.Errorf("%d points have %.2f %% and %.2f %% right", r.Points, 100*first, 100*fitted)
	}
}
