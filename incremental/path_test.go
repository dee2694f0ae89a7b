package incremental

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
)

// grid is ν = 2^-20, 2^-15, …, 2^20.
func grid() []float64 {
	var nus []float64
	for i := -20; i <= 20; i += 5 {
		nus = append(nus, math.Ldexp(1, i))
	}
	return nus
}

func TestPathIsSolveForEveryNu(t *testing.T) {
	// The tolerance is 2^-53 times 2^20 times a condition number near 10. Rows of odd
	// seeds have spreads from 10^-3 to 10^3 and means of 100 spreads, which raise the
	// condition number unless they are standardised.
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(11, seed))
		n, k := 4, 2+r.IntN(3)
		rows := randomTable(r, 150, n, k)
		spread := slices.Repeat([]float64{1}, n)
		tolerance := 1e-9
		if seed%2 == 1 {
			tolerance = 1e-6
			spread = []float64{1e-3, 1, 1e3, 1e3}
			for _, row := range rows.x {
				for j := range row {
					row[j] = (row[j] + 100) * spread[j]
				}
			}
		}
		moments := sumOf(n, blocksOf(t, r, rows)...).Moments()
		for _, o := range []Options{{}, {Standardise: true}, {Balanced: true}, {ClassWeights: map[string]float64{"c1": 0.1}}} {
			models, err := moments.Path(o, grid())
			if err != nil {
				t.Fatal(err)
			}
			for i, nu := range grid() {
				o.Nu = nu
				want, err := moments.Solve(o)
				if err != nil {
					t.Fatal(err)
				}
				got := models[i]
				if got.Options.Nu != nu || !slices.Equal(got.Classes, want.Classes) || !slices.Equal(got.Mean, want.Mean) || len(got.Planes) != len(want.Planes) {
					t.Fatalf("ν = %g: %+v instead of %+v", nu, got, want)
				}
				for p := range want.Planes {
					a, b := &got.Planes[p], &want.Planes[p]
					if d := distance(a.W, a.Gamma, b.W, b.Gamma, spread); !(d < tolerance) || a.Class != b.Class {
						t.Errorf("seed %d, %+v: off by %.1e", seed, o, d)
					}
				}
			}
		}
	}
}

func TestPathFailsAsSolveDoes(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 1))
	rows := randomTable(r, 40, 2, 1)
	if _, err := sumOf(2, blocksOf(t, r, rows)...).Moments().Path(Options{}, []float64{1}); !errors.Is(err, ErrClasses) {
		t.Errorf("one class: %v", err)
	}
	rows = randomTable(r, 40, 2, 2)
	moments := sumOf(2, blocksOf(t, r, rows)...).Moments()
	for _, nu := range []float64{0, -1, math.Inf(1), math.NaN()} {
		if _, err := moments.Path(Options{}, []float64{1, nu}); err == nil {
			t.Errorf("ν = %v is taken", nu)
		}
	}
	// With so wide a range of ν, rounding makes a matrix that is singular without its
	// regulariser indefinite half of the time.
	condition, short := (*ConditionError)(nil), 0
	for range 20 {
		rows := randomTable(r, 40, 2, 2)
		for _, row := range rows.x {
			row[1] = row[0]
		}
		if _, err := sumOf(2, blocksOf(t, r, rows)...).Moments().Path(Options{}, []float64{1e-40, 1e40}); errors.As(err, &condition) {
			short++
		} else if err != nil {
			t.Errorf("ν from 1e-40 to 1e40: %v", err)
		}
	}
	if short == 0 {
		t.Error("ν from 1e-40 to 1e40: no matrix is short of anything")
	}
	for _, row := range rows.x {
		row[0] *= 1e17
		row[1] = row[0]
	}
	if _, err := sumOf(2, blocksOf(t, r, rows)...).Moments().Path(Options{}, []float64{1}); !errors.As(err, &condition) {
		t.Errorf("a feature that repeats another at 10^17: %v", err)
	}
}

// Without a part, a state has the same bits as one that never had it, even if the part's
// numbers dwarf all others.
func TestWithoutIsNeverAdded(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 1))
	rows := randomTable(r, 300, 3, 3)
	for i := range rows.label[:100] {
		rows.label[i] = "only here"
	}
	rows.x[120][1] = 9.96921e36 // netCDF's fill value
	parts := blocksOf(t, r, table{x: rows.x[:150], label: rows.label[:150]})
	others := blocksOf(t, r, table{x: rows.x[150:], label: rows.label[150:]})
	part, whole := sumOf(3, parts...), sumOf(3, append(parts, others...)...)
	before := whole.Digest()
	if got, want := whole.Without(part), sumOf(3, others...); got.Digest() != want.Digest() || got.Classes() != 3 {
		t.Errorf("%d classes, with another digest than of the others alone", got.Classes())
	}
	if whole.Digest() != before {
		t.Error("the whole has changed")
	}
	if none := part.Without(part); none.Classes() != 0 {
		t.Errorf("a part without itself has %d classes", none.Classes())
	}
	for what, stranger := range map[string]*State{
		"more rows": whole, "another class": sumOf(3, blocksOf(t, r, randomTable(r, 10, 3, 2))...), "other features": NewState(DefaultFeatures(2)),
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: a part that was never in is taken out", what)
				}
			}()
			sumOf(3, blocksOf(t, r, table{x: rows.x[:10], label: rows.label[:10]})...).Without(stranger)
		}()
	}
}

// Less is Without, and says of what was never in that it was not, where the sums show it.
func TestLessFindsStrangers(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 1))
	rows := randomTable(r, 300, 3, 3)
	parts := blocksOf(t, r, table{x: rows.x[:150], label: rows.label[:150]})
	others := blocksOf(t, r, table{x: rows.x[150:], label: rows.label[150:]})
	part, whole := sumOf(3, parts...), sumOf(3, append(parts, others...)...)
	before := whole.Digest()
	if rest, ok := whole.Less(part); !ok || rest.Digest() != sumOf(3, others...).Digest() {
		t.Error("another digest than that of the others alone")
	}
	if rest, ok := part.Less(part); !ok || rest.Classes() != 0 {
		t.Error("a part less itself is not empty")
	}
	moved := table{x: [][]float64{{1, 2, 3}}, label: []string{"a"}}
	one := sumOf(3, blocksOf(t, r, moved)...)
	moved.x[0][1] = 2.5
	for what, less := range map[string][2]*State{
		"more rows":     {part, whole},
		"another class": {part, sumOf(3, blocksOf(t, r, table{x: moved.x, label: []string{"nowhere"}})...)},
		"another row":   {one, sumOf(3, blocksOf(t, r, moved)...)},
	} {
		if _, ok := less[0].Less(less[1]); ok {
			t.Errorf("%s: a part that was never in is taken out", what)
		}
	}
	if whole.Digest() != before {
		t.Error("the whole has changed")
	}
}

// Losses from sums agree with losses from rows, also for features whose means are 10^6
// spreads, and for a fold without one of the classes.
func TestLossesAreThoseOfTheRows(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(14, seed))
		n, k := 3, 2+r.IntN(3)
		rows := randomTable(r, 200, n, k)
		rows.weights = make([]float64, 200)
		for i, row := range rows.x {
			rows.weights[i] = math.Round(r.ExpFloat64() * 4)
			if seed%2 == 1 {
				for j := range row {
					row[j] = 1e3*row[j] + 1e9
				}
			}
		}
		models, err := sumOf(n, blocksOf(t, r, rows)...).Moments().Path(Options{Standardise: true}, grid())
		if err != nil {
			t.Fatal(err)
		}
		held := randomTable(r, 60, n, k)
		held.weights = make([]float64, len(held.x))
		for i, row := range held.x {
			held.weights[i] = float64(1 + r.IntN(3))
			if held.label[i] == "c0" {
				held.weights[i] = 0
			}
			if seed%2 == 1 {
				for j := range row {
					row[j] = 1e3*row[j] + 1e9
				}
			}
		}
		weights := map[string]float64{"c1": 3}
		losses := sumOf(n, blocksOf(t, r, held)...).Moments().Losses(weights, models)
		for i, model := range models {
			for p, plane := range model.Planes {
				var want Loss
				for row, x := range held.x {
					v := held.weights[row]
					if held.label[row] == "c1" {
						v *= 3
					}
					_, values := model.decideRow(nil, x)
					if held.label[row] == plane.Class {
						want.Plus += v * (values[p] - 1) * (values[p] - 1)
						want.PlusWeight += v
					} else {
						want.Minus += v * (values[p] + 1) * (values[p] + 1)
						want.MinusWeight += v
					}
				}
				got := losses[i][p]
				near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-8*(1+math.Abs(b)) }
				if !near(got.Plus, want.Plus) || !near(got.Minus, want.Minus) || got.PlusWeight != want.PlusWeight || got.MinusWeight != want.MinusWeight {
					t.Errorf("seed %d, ν = %g, class %s: %+v instead of %+v", seed, model.Options.Nu, plane.Class, got, want)
				}
			}
		}
	}
}

// Leave-one-out values agree with models fitted without the row.
func TestLeaveOneOutIsARefit(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(15, seed))
		const n, m = 3, 40
		k := 2 + r.IntN(3)
		rows := randomTable(r, m, n, k)
		rows.weights = make([]float64, m)
		for i := range rows.weights {
			rows.weights[i] = float64(r.IntN(4))
		}
		for c := range k {
			rows.label[c], rows.weights[c] = fmt.Sprint("c", c), 2
		}
		whole := rows.block(0, m)
		moments := sumOf(n, summarise(t, whole)).Moments()
		o := Options{Nu: 0.5, ClassWeights: map[string]float64{"c1": 2}, Standardise: seed%2 == 1}
		o.Balanced = seed%4 >= 2
		model, hat, err := moments.SolveWithHat(o)
		if err != nil {
			t.Fatal(err)
		}
		class, values := make([]int32, m), make([]float64, m*len(model.Planes))
		hat.LeaveOneOut(model, class, values, whole)
		mean, sigma := moments.Scale()
		if !o.Standardise {
			mean, sigma = make([]float64, n), slices.Repeat([]float64{1}, n)
		}
		for i := range m {
			// Fit scaled rows without row i; the class weights still come from the
			// totals of all rows.
			for p, plane := range model.Planes {
				if rows.weights[i] == 0 {
					continue
				}
				system := table{}
				totals := map[bool]float64{}
				for row := range m {
					totals[rows.label[row] == plane.Class] += rows.weights[row]
				}
				for row := range m {
					if row == i {
						continue
					}
					x := make([]float64, n)
					for j := range x {
						x[j] = (rows.x[row][j] - mean[j]) / sigma[j]
					}
					v := rows.weights[row]
					if rows.label[row] == "c1" {
						v *= 2
					}
					if o.Balanced {
						v *= (totals[true] + totals[false]) / 2 / totals[rows.label[row] == plane.Class]
					}
					system.x, system.label, system.weights = append(system.x, x), append(system.label, rows.label[row]), append(system.weights, v)
				}
				w, gamma := bigPlane(system, plane.Class, Options{Nu: o.Nu})
				want := -gamma
				for j := range w {
					want += w[j] * (rows.x[i][j] - mean[j]) / sigma[j]
				}
				if got := values[i*len(model.Planes)+p]; math.Abs(got-want) > 1e-10 {
					t.Errorf("seed %d, row %d, class %s: %v instead of %v", seed, i, plane.Class, got, want)
				}
			}
			if int(class[i]) != Decide(values[i*len(model.Planes):][:len(model.Planes)]) {
				t.Errorf("seed %d, row %d: class %d of values %v", seed, i, class[i], values[i*len(model.Planes):])
			}
		}
	}
}

func TestLeverageSumsToTheParameters(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 1))
	const n, m = 5, 300
	rows := randomTable(r, m, n, 3)
	block := rows.block(0, m)
	moments := sumOf(n, summarise(t, block)).Moments()
	for _, o := range []Options{
		{Nu: 1e9}, {Nu: 1, Standardise: true}, {Nu: 1e9, Balanced: true},
		{Nu: 1e-5}, {Nu: 1e-14}, {Nu: 1e-25, Standardise: true}, {Nu: 1e-10, Balanced: true},
	} {
		model, hat, err := moments.SolveWithHat(o)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := moments.Solve(o)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprintf("%x", model.Planes) != fmt.Sprintf("%x", plain.Planes) {
			t.Errorf("%+v: keeping the factor changes the planes", o)
		}
		k := hat.Matrices()
		if want := map[bool]int{false: 1, true: 3}[o.Balanced]; k != want {
			t.Fatalf("%+v: %d matrices", o, k)
		}
		h := make([]float64, m*k)
		hat.Leverage(h, block.Columns)
		for p := range k {
			var sum, mass float64
			for i := range m {
				a := hat.weights[slices.Index(model.Classes, rows.label[i])]
				if model.Planes[p].Class == rows.label[i] {
					a *= hat.factors[p].plus
				} else {
					a *= hat.factors[p].minus
				}
				sum += a * h[i*k+p]
				mass += a
			}
			if o.Nu == 1e9 && math.Abs(sum-(n+1)) > 1e-6 {
				t.Errorf("%+v: leverages add up to %v for %d parameters", o, sum, n+1)
			}
			if typical := hat.Typical()[p]; math.Abs(sum/mass-typical) > 1e-12*typical {
				t.Errorf("%+v: the mean leverage is %v, not %v", o, sum/mass, typical)
			}
		}
	}
}

func TestContributionsAddUpToTheValue(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 1))
	const n, m = 4, 300 // more than a stretch
	rows := randomTable(r, m, n, 3)
	block := rows.block(0, m)
	model, err := sumOf(n, summarise(t, block)).Moments().Solve(Options{Nu: 1})
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float64, m*n)
	for p := range model.Planes {
		model.Contributions(got, p, block.Columns)
		var total float64
		for i := range m {
			sum := model.Base(p)
			for _, t := range got[i*n:][:n] {
				sum += t
				total += t
			}
			if _, values := model.decideRow(nil, rows.x[i]); math.Abs(sum-values[p]) > 1e-13 {
				t.Errorf("row %d: contributions and base are %v, the value %v", i, sum, values[p])
			}
		}
		if math.Abs(total) > 1e-10 {
			t.Errorf("contributions of all rows add up to %v, not 0", total)
		}
	}
}

// The bits of matrices that are multiplied in parallel do not depend on the number of
// processors.
func TestProcessorsDoNotShow(t *testing.T) {
	block, moments := wide(t, 200, 400)
	var want string
	for _, processors := range []int{1, 2, 5} {
		before := runtime.GOMAXPROCS(processors)
		models, err := moments.Path(Options{Standardise: true}, grid())
		if err != nil {
			t.Fatal(err)
		}
		_, hat, err := moments.SolveWithHat(Options{Nu: 1})
		if err != nil {
			t.Fatal(err)
		}
		leverage := make([]float64, 400)
		hat.Leverage(leverage, block.Columns)
		got := fmt.Sprintf("%x", leverage)
		for _, m := range models {
			got += fmt.Sprintf("%x", m.Planes)
		}
		for _, l := range moments.Losses(nil, models) {
			got += fmt.Sprintf("%x", l)
		}
		runtime.GOMAXPROCS(before)
		if want == "" {
			want = got
		} else if got != want {
			t.Errorf("with %d processors the bits are others than with one", processors)
		}
	}
}

func wide(tb testing.TB, n, m int) (*Block, *Moments) {
	r := rand.New(rand.NewPCG(18, 1))
	block := randomTable(r, m, n, 2).block(0, m)
	return block, sumOf(n, summarise(tb, block)).Moments()
}

// The memory of a solve grows with the number of classes, not with its square.
func TestManyClasses(t *testing.T) {
	const k, n, perClass = 2000, 2, 8 << 10
	moments := manyClasses(t, k, n)
	for what, solve := range map[string]func() error{
		"solve":    func() error { _, _, err := moments.SolveWithHat(Options{Nu: 1}); return err },
		"balanced": func() error { _, _, err := moments.SolveWithHat(Options{Nu: 1, Balanced: true}); return err },
		"path":     func() error { _, err := moments.Path(Options{}, []float64{1}); return err },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := solve(); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if took := (after.TotalAlloc - before.TotalAlloc) / k; took > perClass {
			t.Errorf("%s: %d bytes for each of %d classes", what, took, k)
		}
	}
}

// manyClasses returns the sums of two rows of each class.
func manyClasses(tb testing.TB, k, n int) *Moments {
	rows := randomTable(rand.New(rand.NewPCG(19, 1)), 2*k, n, 2)
	for i := range rows.label {
		rows.label[i] = fmt.Sprint(i % k)
	}
	return sumOf(n, summarise(tb, rows.block(0, 2*k))).Moments()
}

func BenchmarkManyClasses(b *testing.B) {
	for _, k := range []int{10, 100, 1000} {
		moments := manyClasses(b, k, 10)
		models, err := moments.Path(Options{}, grid())
		if err != nil {
			b.Fatal(err)
		}
		run := func(what string, do func() error) {
			b.Run(fmt.Sprintf("%s/k=%d", what, k), func(b *testing.B) {
				for b.Loop() {
					if err := do(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed())/float64(b.N*k)/float64(time.Microsecond), "µs/class")
			})
		}
		run("solve", func() error { _, err := moments.Solve(Options{Nu: 1}); return err })
		run("balanced", func() error { _, err := moments.Solve(Options{Nu: 1, Balanced: true}); return err })
		run("losses", func() error { moments.Losses(nil, models); return nil })
	}
}

func TestAnswersAllocateNothingPerRow(t *testing.T) {
	block, moments := wide(t, 10, 2000)
	model, hat, err := moments.SolveWithHat(Options{Nu: 1, Standardise: true})
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float64, 2000*10)
	if got := testing.AllocsPerRun(5, func() {
		hat.Leverage(out[:2000], block.Columns)
		model.Contributions(out, 0, block.Columns)
	}); got > 4 {
		t.Errorf("%v allocations for 2,000 rows", got)
	}
}

func BenchmarkLeverage(b *testing.B) {
	for _, n := range []int{30, 300} {
		b.Run(fmt.Sprint("n=", n), func(b *testing.B) {
			block, moments := wide(b, n, 1024)
			_, hat, err := moments.SolveWithHat(Options{Nu: 1})
			if err != nil {
				b.Fatal(err)
			}
			out := make([]float64, 1024)
			for b.Loop() {
				hat.Leverage(out, block.Columns)
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/1024/float64(time.Nanosecond), "ns/row")
		})
	}
}

func BenchmarkPath(b *testing.B) {
	for _, n := range []int{30, 300} {
		b.Run(fmt.Sprint("n=", n), func(b *testing.B) {
			_, moments := wide(b, n, 1024)
			var nus []float64
			for i := -20; i <= 20; i++ {
				nus = append(nus, math.Ldexp(1, i))
			}
			for b.Loop() {
				models, err := moments.Path(Options{Standardise: true}, nus)
				if err != nil {
					b.Fatal(err)
				}
				moments.Losses(nil, models)
			}
		})
	}
}
