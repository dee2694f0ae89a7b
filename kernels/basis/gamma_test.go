package basis

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/tuning"
	"streamd/kernels"
	"streamd/kernels/reduce"
)

// board is points of a checkerboard of 4×4 squares on [0, 4]², in five folds.
func board(rows int, scale float64) *search {
	r := rand.New(rand.NewPCG(7, uint64(rows)))
	x, y := make([]float64, rows), make([]float64, rows)
	p := &search{
		Problem: &Problem{Planes: incremental.Options{Nu: 1000}, Points: 60},
		block:   &incremental.Block{Classes: []string{"black", "white"}, Codes: make([]int32, rows)},
		folds:   make([][]int, 5),
	}
	for i := range rows {
		u, v := 4*r.Float64(), 4*r.Float64()
		p.block.Codes[i] = int32(int(u)+int(v)) & 1
		x[i], y[i] = scale*u, scale*v
		p.folds[i%5] = append(p.folds[i%5], i)
	}
	p.block.Columns = []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}
	return p
}

func searched(t testing.TB, p *search) (float64, []Trial) {
	t.Helper()
	s := &search{Problem: p.Problem, block: p.block, folds: p.folds}
	gamma, err := s.choose(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return gamma, s.trials
}

// The figures of a γ equal those of planes that are solved one by one: for each fold from
// the coordinates of the other folds' rows.
func TestTrialsAreOfHeldOutRows(t *testing.T) {
	p := board(400, 1)
	p.Points = 20
	p.block.Weights = make([]float64, 400)
	for i := range p.block.Weights {
		p.block.Weights[i] = float64(1 + i%3)
	}
	for _, c := range []struct{ balanced, gram bool }{{false, false}, {true, false}, {false, true}} {
		p.Planes.Balanced, p.Objective, p.Gram = c.balanced, tuning.Accuracy, c.gram
		if c.balanced {
			p.Objective = tuning.Balanced
		}
		_, trials := searched(t, p)
		for _, trial := range trials[4:8] {
			kernel, err := kernels.Gaussian(trial.Gamma)
			if err != nil {
				t.Fatal(err)
			}
			var z []float64
			for i := range 20 {
				z = append(z, p.block.Columns[0].At(20*i), p.block.Columns[1].At(20*i))
			}
			basis, err := kernels.NewMap(kernel, 2, z)
			if err != nil {
				t.Fatal(err)
			}
			var right, weight [2]float64
			for fold := range p.folds {
				var rest []int
				for i := range 400 {
					if i%5 != fold {
						rest = append(rest, i)
					}
				}
				in := p.block.Pick(rest)
				in.Columns = kernels.NewMapper(basis).Map(in.Columns)
				var s incremental.Summariser
				summary, err := s.Summarise(in)
				if err != nil {
					t.Fatal(err)
				}
				state := incremental.NewState(incremental.DefaultFeatures(20))
				state.Add(summary)
				moments := state.Moments()
				if c.gram {
					moments = moments.WithRegulariser(basis.Gram())
				}
				model, err := moments.Solve(p.Planes)
				if err != nil {
					t.Fatal(err)
				}
				held := p.block.Pick(p.folds[fold])
				class, values := make([]int32, held.Rows()), make([]float64, held.Rows())
				model.Classify(class, values, kernels.NewMapper(basis).Map(held.Columns))
				for i, code := range held.Codes {
					weight[code] += held.Weights[i]
					if class[i] == code {
						right[code] += held.Weights[i]
					}
				}
			}
			want := (right[0] + right[1]) / (weight[0] + weight[1])
			if c.balanced {
				want = (right[0]/weight[0] + right[1]/weight[1]) / 2
			}
			// A value near 0 may round to either side.
			if !(math.Abs(trial.Correctness-want) < 0.006) || trial.Nu != p.Planes.Nu {
				t.Errorf("%+v: %+v, want correctness %v", c, trial, want)
			}
		}
	}
}

// The choice is the best of the candidates, which lie around the median heuristic. On a
// checkerboard it is much better than the heuristic.
func TestSearchOnABoard(t *testing.T) {
	p := board(1500, 1)
	median, err := kernels.MedianGamma(p.block.Columns)
	if err != nil {
		t.Fatal(err)
	}
	gamma, trials := searched(t, p)
	at := func(gamma float64, trials []Trial) Trial {
		i := slices.IndexFunc(trials, func(t Trial) bool { return t.Gamma == threeDigits(gamma) })
		if i < 0 {
			t.Fatalf("γ = %v is not among %+v", gamma, trials)
		}
		return trials[i]
	}
	best := at(gamma, trials)
	for i, trial := range trials {
		if trial.Correctness > best.Correctness || i > 0 && trials[i-1].Gamma >= trial.Gamma {
			t.Errorf("%+v of %+v", best, trials)
		}
	}
	// In other units ‖x − z‖² is exactly 4 times as large. γ is rounded.
	_, scaled := searched(t, board(1500, 2))
	for power := -3; power <= 6; power++ {
		one, other := at(math.Ldexp(median, 2*power), trials), at(math.Ldexp(median, 2*power-2), scaled)
		if !(math.Abs(one.Correctness-other.Correctness) < 0.02) {
			t.Errorf("%+v, and %+v for rows twice as far apart", one, other)
		}
	}
	if heuristic := at(median, trials); len(trials) != 12 || best.Correctness < 0.85 || best.Correctness < heuristic.Correctness+0.15 {
		t.Errorf("%d tried; chosen %+v, the heuristic's %+v", len(trials), best, heuristic)
	}
	again, same := searched(t, p)
	if again != gamma || !slices.Equal(trials, same) {
		t.Error("another search of the same rows finds something else")
	}
}

// Without a given ν each γ has the best of the grid, which is no worse than any fixed one.
func TestSearchOfBoth(t *testing.T) {
	p := board(400, 1)
	p.Points = 20
	tried := 0
	p.Tried = func() { tried++ }
	fixed, one := searched(t, p)
	p.Planes.Nu = 0
	_, both := searched(t, p)
	best := func(trials []Trial) (most float64) {
		for _, trial := range trials {
			most = max(most, trial.Correctness)
			if trial.Nu != 1000 && !slices.Contains(tuning.Grid(), trial.Nu) {
				t.Errorf("ν = %v", trial.Nu)
			}
		}
		return most
	}
	// Within the slack in which the least loss decides.
	if best(both) < best(one)-0.005 || fixed == 0 || tried != 24 {
		t.Errorf("%v with ν of the grid, %v with ν = 1000, %d tried", best(both), best(one), tried)
	}
}

func TestSearchFails(t *testing.T) {
	same := board(100, 0)
	oneClass := board(100, 1)
	clear(oneClass.block.Codes)
	oneFold := board(100, 1)
	clear(oneFold.block.Codes)
	for _, i := range oneFold.folds[2] {
		oneFold.block.Codes[i] = 1
	}
	few := board(2, 1)
	// H alone is left, which is singular: the coordinates of a wide kernel are as good as equal.
	singular := board(100, 1)
	singular.Planes.Nu = 1e300
	for i := range singular.block.Codes {
		for _, c := range singular.block.Columns {
			x, _ := gram.Values[float64](c)
			x[i] = float64(i & 1) // two points, and three unknowns
		}
	}
	singular.Gram = true
	for name, c := range map[string]struct {
		problem *search
		want    error
	}{
		"one point": {same, kernels.ErrOnePoint},
		"one class": {oneClass, incremental.ErrClasses},
		"one fold":  {oneFold, incremental.ErrClasses},
		"two rows":  {few, incremental.ErrClasses},
		"singular":  {singular, ErrNoGamma},
	} {
		if gamma, err := c.problem.choose(context.Background()); !errors.Is(err, c.want) || gamma != 0 || c.problem.trials != nil {
			t.Errorf("%s: %v, %+v, %v; want %v", name, gamma, c.problem.trials, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := board(100, 1)
	p.Tried = cancel
	if _, err := p.choose(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// BenchmarkSearch uses as many rows as the daemon does, with the largest basis.
func BenchmarkSearch(b *testing.B) {
	for name, nu := range map[string]float64{"ν given": 1000, "ν of the grid": 0} {
		b.Run(name, func(b *testing.B) {
			p := board(4000, 1)
			p.Points, p.Planes.Nu = 100, nu
			for b.Loop() {
				searched(b, p)
			}
		})
	}
}

// repeated is points of the corners of a cube, each several times, with a class of their own.
func repeated(rows int) *incremental.Block {
	x := make([][]float64, 3)
	b := &incremental.Block{Features: []string{"x", "y", "z"}, Classes: []string{"even", "odd"}}
	for i := range rows {
		corner := i * i % 8
		for j := range x {
			x[j] = append(x[j], float64(corner>>j&1))
		}
		b.Codes = append(b.Codes, int32(corner&1^corner>>1&1))
	}
	for _, column := range x {
		b.Columns = append(b.Columns, gram.ColumnOf(column))
	}
	return b
}

// Rows that occur several times do not make K(Z, Z) singular: each point counts once in the
// search for γ, and is one coordinate of the basis. Rows that occur once are points as they are.
func TestEqualRows(t *testing.T) {
	for name, c := range map[string]struct {
		block  *incremental.Block
		points int // of distinct rows
	}{
		"every row often": {repeated(400), 3}, // the squares modulo 8 are 0, 1 and 4
		"one row twice":   {twice(scattered(150), 0, 75), 149},
		"no row twice":    {scattered(150), 150},
	} {
		t.Run(name, func(t *testing.T) {
			p := Problem{Rows: c.block, Planes: incremental.Options{Nu: 10}, Points: 100, Gram: true}
			var err error
			if p.Mean, p.Sigma, err = Scale(c.block); err != nil {
				t.Fatal(err)
			}
			g, err := p.Gamma(t.Context())
			if err != nil || len(g.Trials) != 12 || g.Unjudged != nil {
				t.Fatalf("%+v, %v", g, err)
			}
			// So narrow a kernel that no two points depend on each other.
			kernel, err := kernels.Gaussian(1000)
			if err != nil {
				t.Fatal(err)
			}
			for reducer, by := range map[string]reduce.Reducer{"none": nil, "random": reduce.Subset{Nu: 1}} {
				if p.Reducer, p.Points = by, 1000; by == nil {
					p.Points = c.block.Rows()
				}
				m, _, err := p.Choose(t.Context(), kernel)
				if err != nil || m.Points() != c.points {
					t.Errorf("%s: %d points, want %d; %v", reducer, m.Points(), c.points, err)
					continue
				}
				in := New(m, true)
				lifted := *c.block
				lifted.Features, lifted.Columns = in.Names, kernels.NewMapper(m).Map(c.block.Columns)
				if _, err := in.Moments(summed(t, in.Names, &lifted)).Solve(p.Planes); err != nil {
					t.Errorf("%s: %v", reducer, err)
				}
			}
		})
	}
}

// twice puts a row in the place of another.
func twice(b *incremental.Block, of, at int) *incremental.Block {
	for _, c := range b.Columns {
		x, _ := gram.Values[float64](c)
		x[at] = x[of]
	}
	return b
}

// Coordinates that depend on others are left out, and the planes are the same functions: those
// of a polynomial in two features with three dimensions, from 30 points.
func TestDependentCoordinates(t *testing.T) {
	kernel, err := kernels.Polynomial(1, 0, 2) // x², xy and y²
	if err != nil {
		t.Fatal(err)
	}
	p := board(200, 1)
	p.block.Features = []string{"x", "y"}
	solve := func(points int) []float64 {
		chosen := Problem{Rows: p.block.Slice(0, points), Points: points, Gram: true}
		m, _, err := chosen.Choose(t.Context(), kernel)
		if err != nil || m.Size() != 3 {
			t.Fatalf("%d coordinates of %d points; %v", m.Size(), points, err)
		}
		in := New(m, true)
		lifted := *p.block
		lifted.Features, lifted.Columns = in.Names, kernels.NewMapper(m).Map(p.block.Columns)
		model, err := in.Moments(summed(t, in.Names, &lifted)).Solve(incremental.Options{Nu: 0.1})
		if err != nil {
			t.Fatal(err)
		}
		values := make([]float64, 200)
		model.Classify(make([]int32, 200), values, lifted.Columns)
		return values
	}
	few, many := solve(3), solve(30)
	for i := range few {
		if !(math.Abs(few[i]-many[i]) < 1e-9) {
			t.Fatalf("row %d: %v with three points, %v with thirty", i, few[i], many[i])
		}
	}
}

// A Judge takes the place of the proximal planes: γ is the one that it finds best, on at most a
// thousand rows, each in one fold.
func TestJudgeOfGamma(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 7))
	b := &incremental.Block{Classes: []string{"a", "b"}}
	x := make([]float64, 2*1500)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	for i := range 1500 {
		b.Codes = append(b.Codes, int32(i%2))
	}
	for j := range 2 {
		b.Columns = append(b.Columns, gram.StridedColumn(x, j, 2, 1500))
	}
	median, err := kernels.MedianGamma(b.Slice(0, 1000).Columns)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []float64{4 * median, 32 * median} {
		var asked []float64
		p := &Problem{Rows: b, Judge: func(_ context.Context, k kernels.Kernel, rows *incremental.Block, folds [][]int) (Trial, error) {
			seen := map[int]bool{}
			for _, fold := range folds {
				for _, row := range fold {
					seen[row] = true
				}
			}
			if rows.Rows() != 1000 || len(seen) != 1000 {
				t.Fatalf("%d rows, %d of them in folds", rows.Rows(), len(seen))
			}
			gamma := -math.Log(k.Value(0x1p-10)) * 0x1p10
			asked = append(asked, gamma)
			return Trial{Nu: 3, Correctness: -math.Abs(math.Log(gamma / want))}, nil
		}}
		got, err := p.Gamma(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.Gamma/want-1) > 0.01 || len(got.Trials) != 12 || len(asked) != 12 {
			t.Errorf("γ %v of %d trials, %d of them asked for, want %v", got.Gamma, len(got.Trials), len(asked), want)
		}
		for _, trial := range got.Trials {
			if trial.Nu != 3 || !slices.ContainsFunc(asked, func(gamma float64) bool { return math.Abs(trial.Gamma/gamma-1) < 1e-6 }) {
				t.Errorf("the trial %+v was not asked for", trial)
			}
		}
	}
	failed := errors.New("failed")
	p := &Problem{Rows: b, Judge: func(context.Context, kernels.Kernel, *incremental.Block, [][]int) (Trial, error) {
		return Trial{}, failed
	}}
	if _, err := p.Gamma(t.Context()); !errors.Is(err, failed) {
		t.Errorf("the judge's error: %v", err)
	}
}
