package svm

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/newton"
	"streamd/kernels"
	"streamd/kernels/lp"
)

var _ incremental.Solver = (*KnownSums)(nil)

// tenRules are rules over ten features, in turns for two classes.
func tenRules(seed uint64, classes ...string) []Set {
	const n = 10
	r := rand.New(rand.NewPCG(seed, 10))
	var sets []Set
	for i := range 10 {
		s := Set{Class: classes[i%len(classes)], Weight: 1}
		centre := float64(1 - 2*(i%2))
		for j := range n {
			at := centre + r.NormFloat64()
			one := make([]float64, j+1)
			one[j] = 1
			minus := make([]float64, j+1)
			minus[j] = -1
			s.Conditions = append(s.Conditions, condition(at+0.5, one...), condition(0.5-at, minus...))
		}
		sum := Condition{Bound: 40}
		for j := range n {
			sum.Terms = append(sum.Terms, lp.Term{Variable: j, Value: r.NormFloat64()})
		}
		s.Conditions = append(s.Conditions, sum)
		sets = append(sets, s)
	}
	return sets
}

// sums are the moments of m rows of ten features of two classes, and their block.
func tenFeatures(t testing.TB, seed uint64, m int) (*incremental.State, newton.Blocks) {
	t.Helper()
	const n = 10
	rows := clouds(seed, m, n)
	b := &incremental.Block{Features: incremental.DefaultFeatures(n), Classes: []string{"a", "b"}, Columns: rows.Columns}
	for _, d := range rows.D {
		b.Codes = append(b.Codes, int32((d+1)/2))
	}
	blocks := newton.Blocks{b.Slice(0, m/3), b.Slice(m/3, m)}
	state := incremental.NewState(b.Features)
	var summariser incremental.Summariser
	for _, part := range blocks {
		s, err := summariser.Summarise(part)
		if err != nil {
			t.Fatal(err)
		}
		state.Add(s)
	}
	return state, blocks
}

// Without weight of the sets the plane is the proximal one (2.28); with it, no plane nearby is
// better, by the definition of the objective on the rows themselves.
func TestKnownSums(t *testing.T) {
	state, blocks := tenFeatures(t, 3, 200)
	for _, standardise := range []bool{false, true} {
		o := incremental.Options{Nu: 0.3, Standardise: standardise}
		proximal, err := state.Moments().Solve(o)
		if err != nil {
			t.Fatal(err)
		}
		k := &KnownSums{Sets: tenRules(5, "a", "b")}
		o.Solver = k
		model, err := state.Moments().Solve(o)
		if err != nil {
			t.Fatal(err)
		}
		for j, w := range append(proximal.Planes[0].W, proximal.Planes[0].Gamma) {
			if v := append(model.Planes[0].W, model.Planes[0].Gamma)[j]; math.Abs(v-w) > 1e-9*(1+math.Abs(w)) {
				t.Errorf("standardised %v: without knowledge z %d is %v, proximal %v", standardise, j, v, w)
			}
		}
		k.Mu = 20
		if model, err = state.Moments().Solve(o); err != nil {
			t.Fatal(err)
		}
		mean, sigma := make([]float64, 10), slices.Repeat([]float64{1}, 10)
		if standardise {
			mean, sigma = state.Moments().Scale()
		}
		// In the program's coordinates.
		z := append([]float64(nil), model.Planes[0].W...)
		z = append(z, model.Planes[0].Gamma)
		for j := range mean {
			z[10] -= z[j] * mean[j]
			z[j] *= sigma[j]
		}
		objective := func(z []float64) float64 {
			sum := 0.0
			for _, v := range z {
				sum += v * v / 2 / o.Nu
			}
			for _, b := range blocks {
				for i, code := range b.Codes {
					value := -z[10]
					for j, c := range b.Columns {
						value += z[j] * (c.At(i) - mean[j]) / sigma[j]
					}
					e := value - float64(2*code-1)
					sum += e * e / 2
				}
			}
			for i := range k.Sets {
				scaled := k.Sets[i].Scaled(mean, sigma)
				sum += k.Mu * k.Sets[i].Weight * leastSlack(t, &scaled, z, k.Sets[i].Class == "b")
			}
			return sum
		}
		best := objective(z)
		if before := objective(append(slices.Clone(proximal.Planes[0].W), proximal.Planes[0].Gamma)); !standardise && before <= best {
			t.Errorf("the proximal plane costs %v, that of the knowledge %v", before, best)
		}
		r := rand.New(rand.NewPCG(7, 7))
		for range 60 {
			near := slices.Clone(z)
			step := math.Pow(10, -1-4*r.Float64())
			for j := range near {
				near[j] += step * r.NormFloat64()
			}
			if other := objective(near); other < best-1e-9*best {
				t.Errorf("standardised %v: a plane at %v costs %v, less than %v", standardise, step, other, best)
			}
		}
	}
}

// The program without the multipliers that it can do without has the optimum of the printed one,
// with (3.13) and (3.15), and (3.36) in the coordinates of a basis, with R = I or K(Z, Z).
func TestKnownSumsLiteral(t *testing.T) {
	bases := 0
	for seed := range uint64(90) {
		r := rand.New(rand.NewPCG(seed, 36))
		n := 1 + r.IntN(5)
		rows := clouds(seed+1, 5+r.IntN(40), n)
		nu := []float64{0.1, 1, 30}[r.IntN(3)]
		known := Knowledge{Positive: "a", Mu: math.Exp(2 * r.NormFloat64()), Sets: drawSets(r, n)}
		p := &incremental.Program{Class: "a"}
		if seed%3 != 0 {
			var z []float64
			for range 6 * n {
				z = append(z, r.NormFloat64())
			}
			kernel, _ := kernels.Gaussian(0.5)
			var err error
			if known.Map, err = kernels.NewMap(kernel, n, z); err != nil {
				t.Fatal(err)
			}
			if rows.Columns = kernels.NewMapper(known.Map).Map(rows.Columns); seed%3 == 1 {
				p.Regulariser = known.Map.Gram()
			}
			bases++
		}
		width := len(rows.Columns) + 1
		at := func(i, j int) float64 {
			if j == width-1 {
				return -1
			}
			return rows.Columns[j].At(i)
		}
		p.Matrix, p.Right = make([]float64, gram.PackedLen(width)), make([]float64, width)
		for i, d := range rows.D {
			for j := range width {
				p.Right[j] += d * at(i, j)
				for l := range j + 1 {
					p.Matrix[gram.PackedLen(j)+l] += at(i, j) * at(i, l)
				}
			}
		}
		z, held, err := (&KnownSums{Sets: known.Sets, Mu: known.Mu, Map: known.Map}).Solve(p, nu)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		printed := known.literal(&Rows{Columns: slices.Repeat([]gram.Column{gram.ColumnOf([]float64{})}, width-1)}, 0)
		printed.Quadratic, printed.Linear = slices.Clone(p.Matrix), make([]float64, width)
		var got float64
		for j := range width {
			printed.Linear[j] = -p.Right[j]
			got -= p.Right[j] * z[j]
			for l := range j + 1 {
				q := &printed.Quadratic[gram.PackedLen(j)+l]
				switch {
				case p.Regulariser != nil && j < width-1:
					*q += p.Regulariser[gram.PackedLen(j)+l] / nu
				case j == l:
					*q += 1 / nu
				}
				if half := *q * z[j] * z[l] / 2; l < j {
					got += 2 * half
				} else {
					got += half
				}
			}
		}
		for i := range held {
			got += known.Mu * known.Sets[i].Weight * held[i].Slack
		}
		want, err := printed.Solve(t.Context(), 1)
		if err != nil {
			t.Fatalf("seed %d: as printed: %v", seed, err)
		}
		// K(Z, Z) of points on a line is nearly singular.
		if math.Abs(got-want.Objective) > 1e-6*(1+math.Abs(want.Objective)) {
			t.Errorf("seed %d: n = %d, ν = %v, μ = %v: objective %v, as printed %v", seed, n, nu, known.Mu, got, want.Objective)
		}
		// The hold of the plane alone has no more slack, and no less.
		of, err := known.Hold(t.Context(), z[:width-1], z[width-1])
		if err != nil {
			t.Fatalf("seed %d: hold: %v", seed, err)
		}
		var sum, least float64
		for i := range held {
			sum, least = sum+known.Sets[i].Weight*held[i].Slack, least+known.Sets[i].Weight*of[i].Slack
		}
		if math.Abs(sum-least) > 1e-6*(1+least) {
			t.Errorf("seed %d: slack %v, of the plane alone %v", seed, sum, least)
		}
	}
	if bases != 60 {
		t.Errorf("%d programs in the coordinates of a basis", bases)
	}
}

// leastSlack is the least e'r + ρ of a set for a plane, by a program of its multipliers alone.
func leastSlack(t *testing.T, s *Set, z []float64, positive bool) float64 {
	t.Helper()
	d, n := -1.0, len(z)-1
	if positive {
		d = 1
	}
	p := &lp.Program{}
	rows := make([]lp.Row, n)
	for j := range rows {
		rows[j] = lp.Row{Equal: true, Bound: -d * z[j], Cost: 1}
	}
	margin := lp.Row{Bound: 1 + d*z[n], Cost: 1}
	for _, c := range s.polyhedron() {
		p.Variables = append(p.Variables, lp.Variable{})
		u := len(p.Variables)
		p.Rows = append(p.Rows, lp.Row{Terms: []lp.Term{{Variable: u, Value: 1}}, Cost: lp.Hard})
		margin.Terms = append(margin.Terms, lp.Term{Variable: u, Value: -c.Bound})
		for _, term := range c.Terms {
			rows[term.Variable].Terms = append(rows[term.Variable].Terms, lp.Term{Variable: u, Value: term.Value})
		}
	}
	p.Rows = append(append(p.Rows, rows...), margin)
	v, err := p.Solve(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return v.Objective
}

// The hold on the sets can be had of the plane alone.
func TestHold(t *testing.T) {
	state, _ := tenFeatures(t, 3, 200)
	sets := tenRules(5, "a", "b")
	model, err := state.Moments().Solve(incremental.Options{Nu: 0.3, Solver: &KnownSums{Sets: sets, Mu: 20}})
	if err != nil {
		t.Fatal(err)
	}
	plane := model.Planes[0]
	held, err := Knowledge{Sets: sets, Positive: plane.Class, Mu: 1}.Hold(t.Context(), plane.W, plane.Gamma)
	if err != nil {
		t.Fatal(err)
	}
	var some float64
	for i := range sets {
		want := leastSlack(t, &sets[i], append(slices.Clone(plane.W), plane.Gamma), sets[i].Class == "b")
		if some += want; math.Abs(held[i].Slack-want) > 1e-7*(1+want) {
			t.Errorf("set %d: slack %v, want %v", i, held[i].Slack, want)
		}
	}
	if len(held) != len(sets) || some == 0 {
		t.Errorf("%d sets, slack %v", len(held), some)
	}
	if _, err := (Knowledge{Sets: []Set{{Weight: -1}}}).Hold(t.Context(), plane.W, 0); err == nil {
		t.Error("a weight below 0")
	}
}

// Blocks that came and went leave no trace, in any order.
func TestKnownSumsForget(t *testing.T) {
	_, blocks := tenFeatures(t, 3, 200)
	_, others := tenFeatures(t, 4, 90)
	var summariser incremental.Summariser
	summary := func(b *incremental.Block) *incremental.Summary {
		s, err := summariser.Summarise(b)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	plane := func(s *incremental.State) incremental.Plane {
		m, err := s.Moments().Solve(incremental.Options{Nu: 1, Standardise: true, Solver: &KnownSums{Sets: tenRules(5, "a", "b"), Mu: 3}})
		if err != nil {
			t.Fatal(err)
		}
		return m.Planes[0]
	}
	once, often := incremental.NewState(blocks[0].Features), incremental.NewState(blocks[0].Features)
	once.Add(summary(blocks[0]))
	once.Add(summary(blocks[1]))
	for _, b := range []*incremental.Block{others[1], blocks[1], others[0], blocks[0]} {
		often.Add(summary(b))
	}
	often.Remove(summary(others[0]))
	often.Remove(summary(others[1]))
	a, b := plane(once), plane(often)
	if !slices.Equal(a.W, b.W) || a.Gamma != b.Gamma {
		t.Errorf("%v is not %v", b, a)
	}
}

// Without rows the plane is that of the sets.
func TestKnownSumsAlone(t *testing.T) {
	k := &KnownSums{Mu: 100, Sets: []Set{
		{Class: "b", Weight: 1, Conditions: []Condition{condition(-5, -1)}},
		{Class: "a", Weight: 1, Conditions: []Condition{condition(0, 1)}},
	}}
	z, held, err := k.Solve(&incremental.Program{Class: "b", Matrix: make([]float64, gram.PackedLen(3)), Right: make([]float64, 3)}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for j, want := range []float64{0.4, 0, 1} { // x1 ≥ 5 against x1 ≤ 0
		if math.Abs(z[j]-want) > 1e-9 {
			t.Errorf("z is %v, want 0.4·x1 = 1", z)
		}
	}
	if held[0].Slack > 1e-9 || held[1].Slack > 1e-9 || held[0].Multipliers[0] < 0.3 {
		t.Errorf("held %+v", held)
	}
}

func BenchmarkKnownSums(b *testing.B) {
	state, _ := tenFeatures(b, 3, 1000)
	moments := state.Moments()
	all := tenRules(5, "a", "b")
	few, boxes := slices.Clone(all), slices.Clone(all)
	for i := range few {
		few[i].Conditions, boxes[i].Conditions = few[i].Conditions[:3], boxes[i].Conditions[:20]
	}
	for _, c := range []struct {
		name string
		sets []Set
	}{{"3 conditions", few}, {"bounds of all", boxes}, {"and a sum of all", all}} {
		b.Run(c.name, func(b *testing.B) {
			o := incremental.Options{Nu: 1, Standardise: true, Solver: &KnownSums{Sets: c.sets, Mu: 3}}
			for b.Loop() {
				if _, err := moments.Solve(o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
