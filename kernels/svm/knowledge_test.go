package svm

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/kernels"
	"streamd/kernels/lp"
)

// literal builds (3.15), or (3.36), as it is printed: every condition has a variable u ≥ 0, and
// every set n + 1 rows of its own. A projection P multiplies K(Z, B') and both sides of K(Z, Z).
func (k Knowledge) literal(rows *Rows, nu float64) *lp.Program {
	t := len(rows.Columns)
	p := &lp.Program{Columns: rows.Columns, D: rows.D, Nu: nu, Costs: rows.Costs}
	projected := func(j int, of func(z []float64) float64) (value float64) {
		if k.Map.Projection() == nil {
			return of(k.Map.Point(j))
		}
		for i, x := range k.Map.Projection()[j*k.Map.Points():][:k.Map.Points()] {
			value += x * of(k.Map.Point(i))
		}
		return value
	}
	at := func(j int, x []float64) float64 {
		return projected(j, func(z []float64) float64 { return k.Map.Kernel().Value(k.Map.Kernel().Argument(z, x)) })
	}
	for i := range k.Sets {
		s := k.Sets[i]
		if k.Map != nil {
			if mean, sigma := k.Map.Scaling(); mean != nil {
				s = s.Scaled(mean, sigma)
			}
		}
		d, cost := -1.0, k.Mu*s.Weight
		if s.Class == k.Positive {
			d = 1
		}
		margin := lp.Row{Terms: []lp.Term{{Variable: t, Value: -d}}, Bound: 1, Cost: cost}
		each := make([]lp.Row, t)
		for j := range each {
			each[j] = lp.Row{Terms: []lp.Term{{Variable: j, Value: d}}, Equal: true, Cost: cost}
			if k.Map != nil {
				each[j].Terms = nil
				for l := range t {
					value := projected(l, func(z []float64) float64 { return at(j, z) })
					each[j].Terms = append(each[j].Terms, lp.Term{Variable: l, Value: d * value})
				}
			}
		}
		for _, c := range s.polyhedron() {
			p.Variables = append(p.Variables, lp.Variable{})
			u := t + len(p.Variables)
			p.Rows = append(p.Rows, lp.Row{Terms: []lp.Term{{Variable: u, Value: 1}}, Cost: lp.Hard})
			scale := 1.0
			if k.Map != nil {
				scale = 0
				point := make([]float64, len(k.Map.Point(0)))
				for _, term := range c.Terms {
					point[term.Variable] = term.Value
					scale = max(scale, math.Abs(term.Value))
				}
				for j := range point {
					point[j] /= scale
				}
				for j := range each {
					each[j].Terms = append(each[j].Terms, lp.Term{Variable: u, Value: at(j, point)})
				}
			} else {
				for _, term := range c.Terms {
					each[term.Variable].Terms = append(each[term.Variable].Terms, lp.Term{Variable: u, Value: term.Value})
				}
			}
			margin.Terms = append(margin.Terms, lp.Term{Variable: u, Value: -c.Bound / scale})
		}
		p.Rows = append(append(p.Rows, each...), margin)
	}
	return p
}

func condition(bound float64, terms ...float64) Condition {
	c := Condition{Bound: bound}
	for j, v := range terms {
		if v != 0 {
			c.Terms = append(c.Terms, lp.Term{Variable: j, Value: v})
		}
	}
	return c
}

// drawSets returns sets over n features: some of bounds, within [−1, 1] or beyond, some with
// conditions on several features, some with groups of the first features.
func drawSets(r *rand.Rand, n int) (sets []Set) {
	for range 1 + r.IntN(4) {
		s := Set{Class: []string{"a", "b", "c"}[r.IntN(3)], Weight: 0.5 + r.Float64()}
		centre := make([]float64, n)
		size := []float64{0.3, 3}[r.IntN(2)]
		for j := range centre {
			centre[j] = size * (2*r.Float64() - 1)
		}
		grouped := 0
		if n > 3 && r.IntN(2) == 0 {
			grouped = 3
			s.OneOf = [][]int{{0, 1, 2}}
			one := r.IntN(3)
			for j := range 3 {
				centre[j] = 0
			}
			centre[one] = 1
			if r.IntN(2) == 0 {
				s.Conditions = append(s.Conditions, Condition{[]lp.Term{{Variable: one, Value: -2}}, -2})
			} else if r.IntN(2) == 0 {
				s.Conditions = append(s.Conditions, Condition{[]lp.Term{{Variable: (one + 1) % 3, Value: 1}}, 0})
			}
		}
		for j := grouped; j < n; j++ {
			value := 0.5 + r.Float64()
			switch r.IntN(4) {
			case 0: // nothing is known of it
			case 1:
				s.Conditions = append(s.Conditions, Condition{[]lp.Term{{Variable: j, Value: value}}, value * centre[j]})
				fallthrough
			case 2:
				s.Conditions = append(s.Conditions, Condition{[]lp.Term{{Variable: j, Value: -value}}, -value * (centre[j] - r.Float64())})
			case 3:
				half := 0.2 * size * float64(r.IntN(3)) // perhaps one value alone
				s.Conditions = append(s.Conditions, condition(centre[j]+half, append(make([]float64, j), 1)...), condition(half-centre[j], append(make([]float64, j), -1)...))
			}
		}
		for range r.IntN(3) {
			c := Condition{Bound: r.Float64()}
			for j, x := range centre {
				if r.IntN(2) == 0 {
					v := r.NormFloat64()
					c.Terms = append(c.Terms, lp.Term{Variable: j, Value: v})
					c.Bound += v * x
				}
			}
			if c.Terms != nil {
				s.Conditions = append(s.Conditions, c)
			}
		}
		sets = append(sets, s)
	}
	return sets
}

// The program without the multipliers that it can do without has the optimum of the printed
// one.
func TestKnowledgeLiteral(t *testing.T) {
	ctx := context.Background()
	var variables, grouped int
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 19))
		n := 1 + r.IntN(6)
		rows := clouds(seed+1, r.IntN(40), n)
		nu := []float64{0, 0.1, 5}[r.IntN(3)]
		k := Knowledge{Positive: "a", Mu: math.Exp(2 * r.NormFloat64()), Sets: drawSets(r, n)}
		if seed%5 == 0 {
			var z []float64
			const points = 5
			for range points * n {
				z = append(z, r.NormFloat64())
			}
			kernel, _ := kernels.Gaussian(0.5)
			var err error
			if k.Map, err = kernels.NewMap(kernel, n, z); err != nil {
				t.Fatal(err)
			}
			if seed%2 == 0 {
				if k.Map, err = k.Map.Scaled(make([]float64, n), slices.Repeat([]float64{2}, n)); err != nil {
					t.Fatal(err)
				}
			}
			if seed%3 == 0 {
				var projection []float64
				for range 2 * points {
					projection = append(projection, r.NormFloat64())
				}
				if k.Map, err = k.Map.Projected(projection); err != nil {
					t.Fatal(err)
				}
			}
			rows.Columns = kernels.NewMapper(k.Map).Map(rows.Columns)
		}
		got, grips, err := k.Solve(ctx, rows, nu)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		program := k.literal(rows, nu)
		want, err := program.Solve(ctx, 1)
		if err != nil {
			t.Fatalf("seed %d: as printed: %v", seed, err)
		}
		if math.Abs(got.Objective-want.Objective) > 1e-7*(1+want.Objective) {
			t.Errorf("seed %d: n = %d, ν = %v, μ = %v, %d rows: objective %v, as printed %v\n%+v", seed, n, nu, k.Mu, len(rows.D), got.Objective, want.Objective, k.Sets)
		}
		k.checkGrips(t, seed, rows, nu, got, grips)
		for _, s := range k.Sets {
			grouped += len(s.OneOf)
		}
		variables += len(want.S)
	}
	t.Logf("%d variables as printed, %d groups", variables, grouped)
}

// The optima are those of HiGHS 1.15.1, of the programs as they are printed: testdata/knowledge.py.
func TestKnowledgeHiGHS(t *testing.T) {
	text, err := os.ReadFile("testdata/knowledge.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Programs []struct {
			N                      int
			A                      [][]float64
			D                      []float64
			Nu, Mu, Gamma, Optimum float64
			Sets                   []struct {
				Sign, Weight float64
				BMatrix      [][]float64 `json:"b_matrix"`
				B            []float64
			}
		}
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Programs) != 12 {
		t.Fatalf("%d programs", len(golden.Programs))
	}
	for i, p := range golden.Programs {
		rows, k := &Rows{D: p.D}, Knowledge{Positive: "1", Mu: p.Mu}
		for j := range p.N {
			column := make([]float64, len(p.A))
			for i := range p.A {
				column[i] = p.A[i][j]
			}
			rows.Columns = append(rows.Columns, gram.ColumnOf(column))
		}
		for _, s := range p.Sets {
			set := Set{Class: strconv.Itoa(int(s.Sign)), Weight: s.Weight}
			for i, b := range s.B {
				set.Conditions = append(set.Conditions, condition(b, s.BMatrix[i]...))
			}
			k.Sets = append(k.Sets, set)
		}
		if p.Gamma > 0 {
			kernel, err := kernels.Gaussian(p.Gamma)
			if err != nil {
				t.Fatal(err)
			}
			if k.Map, err = kernels.NewMap(kernel, p.N, slices.Concat(p.A[:8]...)); err != nil {
				t.Fatal(err)
			}
			rows.Columns = kernels.NewMapper(k.Map).Map(rows.Columns)
		}
		plane, err := k.Fit(context.Background(), rows, p.Nu)
		if err != nil {
			t.Fatalf("program %d: %v", i, err)
		}
		if math.Abs(plane.Objective-p.Optimum) > 1e-8*(1+p.Optimum) {
			t.Errorf("program %d: %v, HiGHS %v", i, plane.Objective, p.Optimum)
		}
	}
}

// Without sets it is the 1-norm machine, in all that machines promise.
func TestKnowledgeMachine(t *testing.T) { testMachine(t, Knowledge{}) }

// checkGrips proves a plane's hold by the definition: the multipliers satisfy the constraints
// with the reported slack, and the objective is the sum of its parts.
func (k Knowledge) checkGrips(t *testing.T, seed uint64, rows *Rows, nu float64, p *Plane, grips []Grip) {
	t.Helper()
	objective := 0.0
	for _, w := range p.W {
		objective += math.Abs(w)
	}
	for i := range rows.D {
		objective += nu * rows.cost(i) * max(1-rows.D[i]*rows.value(p, i), 0)
	}
	for i, g := range grips {
		s := &k.Sets[i]
		objective += k.Mu * s.Weight * g.Slack
		if k.Map != nil || s.OneOf != nil {
			continue // multipliers of groups are not listed
		}
		d := -1.0
		if s.Class == k.Positive {
			d = 1
		}
		r, rho := make([]float64, len(p.W)), d*p.Gamma+1
		for j, w := range p.W {
			r[j] = d * w
		}
		for c, u := range g.Multipliers {
			if u < 0 {
				t.Errorf("seed %d: set %d: multiplier %v", seed, i, u)
			}
			rho += u * s.Conditions[c].Bound
			for _, term := range s.Conditions[c].Terms {
				r[term.Variable] += u * term.Value
			}
		}
		slack := max(rho, 0)
		for _, v := range r {
			slack += math.Abs(v)
		}
		if math.Abs(slack-g.Slack) > 1e-7*(1+slack) {
			t.Errorf("seed %d: set %d: slack %v, reported %v", seed, i, slack, g.Slack)
		}
	}
	if math.Abs(objective-p.Objective) > 1e-7*(1+objective) {
		t.Errorf("seed %d: objective %v, reported %v", seed, objective, p.Objective)
	}
}

// Column generation finds the optimum of all features at once.
func TestKnowledgeGenerates(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 41))
		const n, m = 100, 30
		rows := clouds(seed+1, m, n)
		for i := range rows.D {
			if i%7 == 0 {
				rows.D[i] = -rows.D[i]
			}
		}
		if seed == 0 {
			rows.Costs = slices.Repeat([]float64{0.5, 2}, m/2)
		}
		k := Knowledge{Positive: "a", Mu: 0.3, Sets: drawSets(r, 8)}
		for i := range k.Sets {
			if r.IntN(3) == 0 {
				continue // nothing is known of the other features
			}
			for j := 8; j < n; j++ {
				low := []float64{0, -1, 0.5}[r.IntN(3)]
				k.Sets[i].Conditions = append(k.Sets[i].Conditions,
					Condition{[]lp.Term{{Variable: j, Value: -2}}, -2 * low},
					Condition{[]lp.Term{{Variable: j, Value: 1}}, low + 0.5*float64(r.IntN(2))})
			}
		}
		if seed > 0 {
			k.Mu = math.Exp(2 * r.NormFloat64())
		}
		for _, nu := range []float64{0, 0.1} {
			got, grips, err := k.Solve(ctx, rows, nu)
			if err != nil {
				t.Fatal(err)
			}
			want, _, _, err := k.solve(ctx, rows, nu)
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(got.Objective-want.Objective) > 1e-8*(1+want.Objective) {
				t.Errorf("seed %d, ν = %v: %v in %d programs, %v at once", seed, nu, got.Objective, got.Programs, want.Objective)
			}
			k.checkGrips(t, seed, rows, nu, got, grips)
		}
	}
}

// A set of no slack lies beyond its bounding plane (proposition 3.1.1).
func TestKnowledgeBeyond(t *testing.T) {
	var held int
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 31))
		const n = 4
		k := Knowledge{Positive: "a", Mu: 1e3, Sets: drawSets(r, n)}
		p, grips, err := k.Solve(context.Background(), clouds(seed+1, 0, n), 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range k.Sets {
			s := &k.Sets[i]
			if grips[i].Slack > 1e-9 {
				continue
			}
			d := -1.0
			if s.Class == k.Positive {
				d = 1
			}
			// Minimise d(x'w − γ) over the set.
			least := &lp.Program{}
			for _, w := range p.W {
				least.Variables = append(least.Variables, lp.Variable{Cost: d * w})
			}
			for _, c := range s.polyhedron() {
				row := lp.Row{Bound: -c.Bound, Cost: lp.Hard}
				for _, term := range c.Terms {
					row.Terms = append(row.Terms, lp.Term{Variable: 1 + term.Variable, Value: -term.Value})
				}
				least.Rows = append(least.Rows, row)
			}
			v, err := least.Solve(context.Background(), 1)
			if err != nil {
				t.Fatalf("seed %d: set %d: %v", seed, i, err)
			}
			held++
			if margin := v.Objective - d*p.Gamma; margin < 1-1e-7 {
				t.Errorf("seed %d: set %d reaches %v in front of its bounding plane", seed, i, margin)
			}
		}
	}
	if held < 20 {
		t.Errorf("only %d sets are held", held)
	}
}

func TestContradiction(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name string
		set  Set
		want []int
	}{
		{"bounds", Set{Conditions: []Condition{condition(5, 0, 1), condition(4, 1), condition(-4.5, -1)}}, []int{1, 2}},
		{"touching", Set{Conditions: []Condition{condition(4, 1), condition(-4, -1)}}, nil},
		{"several", Set{Conditions: []Condition{condition(1, 1, 1), condition(-2, -1), condition(9, 0, 0, 1), condition(0, 0, -1)}}, []int{0, 1, 3}},
		{"group", Set{Conditions: []Condition{condition(-1, 0, -1), condition(-1, 0, 0, -1)}, OneOf: [][]int{{0, 1, 2}}}, []int{0, 1, 2}},
		{"another group", Set{Conditions: []Condition{condition(-1, 0, -1), condition(-1, 0, 0, 0, -1)}, OneOf: [][]int{{0, 1, 2}, {3, 4}}}, nil},
		{"nothing known", Set{}, nil},
	} {
		got, err := c.set.Contradiction(ctx)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
	}
	for seed := range uint64(20) {
		for i, s := range drawSets(rand.New(rand.NewPCG(seed, 7)), 5) {
			if members, err := s.Contradiction(ctx); err != nil || members != nil {
				t.Errorf("seed %d: set %d, which has its centre: %v, %v", seed, i, members, err)
			}
		}
	}
}

func TestContains(t *testing.T) {
	s := Set{Conditions: []Condition{condition(-4, -1), condition(6, 1, 2)}, OneOf: [][]int{{2, 3}}}
	for _, c := range []struct {
		x    []float64
		want bool
	}{
		{[]float64{4, 1, 0, 1}, true},
		{[]float64{4, 1, 1, 1}, false},
		{[]float64{4, 1, 0.5, 0.5}, false},
		{[]float64{3.999, 1, 0, 1}, false},
		{[]float64{4, 1.001, 0, 1}, false},
		{[]float64{math.NaN(), 1, 0, 1}, false},
	} {
		if got := s.Contains(func(j int) float64 { return c.x[j] }); got != c.want {
			t.Errorf("%v: %v", c.x, got)
		}
	}
}

// A set in other coordinates has the same rows.
func TestScaledSet(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const n = 5
	mean, sigma := make([]float64, n), make([]float64, n)
	for j := range mean {
		mean[j], sigma[j] = r.NormFloat64(), math.Exp(r.NormFloat64())
	}
	inside := 0
	for range 300 {
		for _, s := range drawSets(r, n) {
			s.OneOf = nil
			scaled := s.Scaled(mean, sigma)
			x := make([]float64, n)
			for j := range x {
				x[j] = r.NormFloat64()
			}
			in := s.Contains(func(j int) float64 { return mean[j] + sigma[j]*x[j] })
			if in {
				inside++
			}
			if got := scaled.Contains(func(j int) float64 { return x[j] }); got != in {
				t.Errorf("%+v: %v is inside: %v, scaled %v", s, x, in, got)
			}
		}
	}
	if inside < 10 {
		t.Errorf("%d rows were inside", inside)
	}
}

func TestKnowledgeErrors(t *testing.T) {
	rows := &Rows{Columns: []gram.Column{gram.ColumnOf([]float64{1, 2})}, D: []float64{1, -1}}
	for _, k := range []Knowledge{
		{Mu: -1},
		{Mu: math.NaN()},
		{Sets: []Set{{Weight: -1}}},
		{Sets: []Set{{Conditions: []Condition{{}}}}},
		{Sets: []Set{{Conditions: []Condition{condition(1, 0, 1)}}}},
		{Sets: []Set{{Conditions: []Condition{condition(math.Inf(1), 1)}}}},
		{Sets: []Set{{Conditions: []Condition{condition(1, math.NaN())}}}},
		{Sets: []Set{{OneOf: [][]int{{1}}}}},
	} {
		if p, err := k.Fit(context.Background(), rows, 1); err == nil {
			t.Errorf("%+v: %+v", k, p)
		} else {
			t.Log(err)
		}
	}
}

// As a Refiner's machine it knows the class of each plane, and its sets are in the features' own
// coordinates, whatever those of the program.
func TestKnowledgeRefiner(t *testing.T) {
	blocks := three(1, 150)
	sets := []Set{
		{Class: "x", Weight: 1, Conditions: []Condition{condition(95, 1), condition(0.01, 0, 0, 1)}},
		{Class: "z", Weight: 2, Conditions: []Condition{condition(-3, 0, -1), condition(-100, -1, 2)}},
	}
	model, n := solved(t, blocks, incremental.Options{Nu: 0.1, Standardise: true})
	reports := 0
	k := Knowledge{Sets: sets, Mu: 3, Report: func(held []Grip) {
		if reports++; len(held) != len(sets) {
			t.Errorf("the hold on %d sets", len(held))
		}
	}}
	got, err := (Refiner{Name: "knowledge", Machine: k}).Refine(t.Context(), model, blocks, n)
	if err != nil {
		t.Fatal(err)
	}
	if reports != 3 {
		t.Errorf("%d reports of 3 planes", reports)
	}
	for i, class := range []string{"x", "y", "z"} {
		rows := &Rows{Columns: make([]gram.Column, 3)}
		columns := make([][]float64, 3)
		for _, b := range blocks {
			for row, code := range b.Codes {
				if b.Weight(row) == 0 {
					continue
				}
				d := -1.0
				if b.Classes[code] == class {
					d = 1
				}
				rows.D, rows.Costs = append(rows.D, d), append(rows.Costs, b.Weight(row))
				for j := range columns {
					columns[j] = append(columns[j], (b.Columns[j].At(row)-n.Mean[j])/n.Sigma[j])
				}
			}
		}
		for j := range columns {
			rows.Columns[j] = gram.ColumnOf(columns[j])
		}
		direct := Knowledge{Positive: class, Mu: 3}
		for _, s := range sets {
			direct.Sets = append(direct.Sets, s.Scaled(n.Mean, n.Sigma))
		}
		want, err := direct.Fit(t.Context(), rows, 0.1)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.Planes[i].Objective-want.Objective) > 1e-9*want.Objective {
			t.Errorf("class %s: objective %v, want %v", class, got.Planes[i].Objective, want.Objective)
		}
		for j, w := range want.W {
			if v := got.Model.Planes[i].W[j] * n.Sigma[j]; math.Abs(v-w) > 1e-7*(1+math.Abs(w)) {
				t.Errorf("class %s: w %d is %v, want %v", class, j, v, w)
			}
		}
	}
	k.Alone = true
	if got, err = (Refiner{Name: "knowledge", Machine: k}).Refine(t.Context(), model, blocks, n); err != nil {
		t.Fatal(err)
	}
	if !math.IsNaN(got.Planes[0].LeaveOneOut) {
		t.Errorf("with rows that do not count leaving one out is said to cost %v", got.Planes[0].LeaveOneOut)
	}
}
