package lp

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"streamd/incremental/gram"
)

// Programs with obvious solutions are solved, with exact zeros.
func TestByHand(t *testing.T) {
	for _, c := range []struct {
		name    string
		program dense
		u       []float64
		e       []float64
		vectors int // support vectors
	}{
		// min ν(E_1 + E_2) + |u|, −(−u − γ) + E_1 ≥ 1, u − γ + E_2 ≥ 1
		{"separable", newDense([][]float64{{-1, 1}, {0, 0}}, []float64{-1, 1}, 10), []float64{1, 0}, []float64{0, 0}, 2},
		{"errors are cheaper", newDense([][]float64{{-1, 1}}, []float64{-1, 1}, 0.25), []float64{0}, nil, 2},
		{"one class", newDense([][]float64{{3, 1, 4, 1}}, []float64{1, 1, 1, 1}, 10), []float64{0}, []float64{0, 0, 0, 0}, 0},
		{"no columns", newDense(nil, []float64{1, 1, -1}, 1), nil, []float64{0, 0, 2}, -1},
		{"no cost", newDense([][]float64{{-1, 1}}, []float64{-1, 1}, 0), []float64{0}, nil, 0},
		{"nothing", newDense(nil, nil, 1), nil, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := c.program.Solve(context.Background(), 1)
			if err != nil {
				t.Fatal(err)
			}
			c.program.optimal(t, s)
			for j, u := range c.u {
				if s.U[j] != u {
					t.Errorf("u = %v, not %v", s.U, c.u)
				}
			}
			for i, e := range c.e {
				if s.E[i] != e {
					t.Errorf("E = %v, not %v", s.E, c.e)
				}
			}
			if c.vectors >= 0 && s.SupportVectors() != c.vectors {
				t.Errorf("%d support vectors, not %d: α = %v", s.SupportVectors(), c.vectors, s.Alpha)
			}
		})
	}
}

// tied returns a program on a grid, with many equal rows and even more on the margin.
func tied(m int, nu float64) dense {
	r := rand.New(rand.NewPCG(7, 7))
	k, d := make([][]float64, 12), make([]float64, m)
	for j := range k {
		k[j] = make([]float64, m)
		for i := range k[j] {
			k[j][i] = float64(r.IntN(3))
		}
	}
	copy(k[11], k[10])
	for i := range d {
		d[i] = 1
		if k[0][i]+k[1][i]-k[2][i]+float64(r.IntN(2)) < 2 {
			d[i] = -1
		}
	}
	return newDense(k, d, nu)
}

func TestTies(t *testing.T) {
	for _, nu := range []float64{1e-4, 0.03, 1, 1e4} {
		p := tied(3000, nu)
		s, err := p.Solve(context.Background(), 2)
		if err != nil {
			t.Fatalf("ν = %v: %v", nu, err)
		}
		p.optimal(t, s)
		t.Logf("ν = %v: %d passes, %d pivots, %d support vectors", nu, s.Passes, s.Pivots, s.SupportVectors())
	}
}

// The solution does not depend on the number of workers.
func TestWorkers(t *testing.T) {
	p := tied(9000, 1)
	want, err := p.Solve(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	q := p
	q.Program = new(Program)
	*q.Program = *p.Program
	q.Quadratic = identity(len(p.k))
	quadratic, err := q.Solve(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	q.optimal(t, quadratic)
	for _, workers := range []int{2, 3, 20} {
		got, err := p.Solve(context.Background(), workers)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%d workers: %v, another solution than one worker's", workers, err)
		}
		got, err = q.Solve(context.Background(), workers)
		if err != nil || !reflect.DeepEqual(got, quadratic) {
			t.Errorf("%d workers, with a quadratic term: %v, another solution than one worker's", workers, err)
		}
	}
}

// From the solution of a like program there are few pivots and no passes. A start that is far
// off costs time alone.
func TestRestart(t *testing.T) {
	anew := 0 // programs that the interior point method solves after all
	for name, p := range map[string]dense{"checkerboard": checkerboard(), "knowledge": knowledge(), "unlabelled": unlabelled(), "ties": tied(3000, 1)} {
		first, err := p.Solve(context.Background(), 2)
		if err != nil {
			t.Fatal(err)
		}
		next := *p.Program
		next.Nu, next.Start = 1.2*p.Nu, first
		s, err := next.Solve(context.Background(), 2)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		dense{&next, p.k}.optimal(t, s)
		if s.Passes != 0 {
			t.Errorf("%s: %d passes from the solution of a like program", name, s.Passes)
		}
		t.Logf("%s: %d passes and %d pivots, then %d pivots", name, first.Passes, first.Pivots, s.Pivots)
		if one, err := next.Solve(context.Background(), 1); err != nil || !reflect.DeepEqual(one, s) {
			t.Errorf("%s: %v, another solution with one worker", name, err)
		}

		r := rand.New(rand.NewPCG(3, 3))
		far := &Solution{U: make([]float64, len(first.U)), S: make([]float64, len(first.S)), Alpha: make([]float64, len(first.Alpha)), Beta: make([]float64, len(first.Beta))}
		for _, numbers := range [][]float64{far.U, far.S, far.Alpha, far.Beta} {
			for i := range numbers {
				numbers[i] = 1e6 * r.NormFloat64()
			}
		}
		next.Start = far
		again, err := next.Solve(context.Background(), 2)
		if err != nil {
			t.Fatalf("%s from far off: %v", name, err)
		}
		dense{&next, p.k}.optimal(t, again)
		if math.Abs(again.Objective-s.Objective) > gapTolerance*s.Objective {
			t.Errorf("%s: objective %v from far off, %v from near", name, again.Objective, s.Objective)
		}
		if again.Passes > 0 {
			anew++
		}
	}
	if anew == 0 {
		t.Error("no start was so far off that the search began anew")
	}
}

// The solution does not depend on the type or the layout of the columns.
func TestColumns(t *testing.T) {
	p := tied(700, 0.5)
	for j, v := range p.k {
		switch j % 4 {
		case 0:
			w := make([]float32, len(v))
			for i := range v {
				w[i] = float32(v[i])
			}
			p.Columns[j] = gram.ColumnOf(w)
		case 1:
			w := make([]int8, len(v))
			for i := range v {
				w[i] = int8(v[i])
			}
			p.Columns[j] = gram.ColumnOf(w)
		case 2:
			w := make([]float64, 3*len(v))
			for i := range v {
				w[3*i+1] = v[i]
			}
			p.Columns[j] = gram.StridedColumn(w, 1, 3, len(v))
		}
	}
	s, err := p.Solve(context.Background(), 2)
	if err != nil {
		t.Fatal(err)
	}
	p.optimal(t, s)
}

func TestErrors(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		spoil func(p *dense)
		want  string
	}{
		{func(p *dense) { p.k[1][2] = nan }, "column 1: row 2 is NaN"},
		{func(p *dense) { p.k[0][1] = -inf }, "column 0: row 1 is -Inf"},
		{func(p *dense) { p.D[1] = 0 }, "row 1: label 0"},
		{func(p *dense) { p.Nu = -1 }, "ν is -1"},
		{func(p *dense) { p.Nu = inf }, "ν is +Inf"},
		{func(p *dense) { p.Costs = []float64{1, nan, 1} }, "row 1: cost NaN"},
		{func(p *dense) { p.Nu, p.Costs = 1e300, []float64{1, 1e300, 1} }, "row 1: cost 1e+300"},
		{func(p *dense) { p.Penalties = []float64{1, -1} }, "column 1: penalty -1"},
		{func(p *dense) { p.Variables = []Variable{{Cost: nan}} }, "extra variable 0"},
		{func(p *dense) { p.Rows = []Row{{Bound: inf}} }, "extra row 0: bound +Inf"},
		{func(p *dense) { p.Rows = []Row{{Cost: -1}} }, "extra row 0: bound 0, cost -1"},
		{func(p *dense) { p.Linear = []float64{0, inf} }, "variable 1: linear cost +Inf"},
		{func(p *dense) { p.Quadratic = []float64{1, nan, 1} }, "number 1 of the quadratic term is NaN"},
		{func(p *dense) { p.Quadratic = []float64{1, 2, 1} }, "not positive semidefinite, as found in row 1"},
		{func(p *dense) { p.Quadratic = []float64{-1} }, "not positive semidefinite, as found in row 0"},
		{func(p *dense) { p.Quadratic = []float64{0, 1, 1} }, "its diagonal has 0 in row 0"},
		{func(p *dense) { p.Rows = []Row{{Terms: []Term{{3, 1}}}} }, "extra row 0: 1 times variable 3 of 3"},
		{func(p *dense) { p.Rows = []Row{{Terms: []Term{{0, nan}}}} }, "extra row 0: NaN times variable 0"},
	} {
		p := newDense([][]float64{{1, 2, 3}, {4, 5, 6}}, []float64{1, -1, 1}, 1)
		c.spoil(&p)
		if s, err := p.Solve(context.Background(), 1); s != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, not %q", err, c.want)
		}
	}
	for _, p := range []*Program{
		{D: []float64{1}, Columns: []gram.Column{gram.ColumnOf([]float64{1, 2})}},
		{D: []float64{1}, Costs: []float64{1, 1}},
		{D: []float64{1}, Penalties: []float64{1}},
		{D: []float64{1}, Quadratic: []float64{1, 0}},
		{D: []float64{1}, Quadratic: []float64{1, 0, 1}},
		{D: []float64{1}, Linear: []float64{1, 0}},
		{D: []float64{1}, Start: &Solution{}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("no panic for lengths that do not fit: %+v", p)
				}
			}()
			p.Solve(context.Background(), 1)
		}()
	}
}

// Each outcome other than an optimum is found.
func TestOutcomes(t *testing.T) {
	p := newDense([][]float64{{1, -1}}, []float64{1, -1}, 1)
	p.Variables = []Variable{{}}
	p.Rows = []Row{{Terms: []Term{{2, 1}}, Bound: 1, Cost: Hard}, {Terms: []Term{{2, -1}, {0, 0}}, Bound: -0.999, Cost: Hard}}
	s, err := p.Solve(context.Background(), 1)
	if !errors.Is(err, ErrInfeasible) {
		t.Fatal(err)
	}
	p.infeasible(t, s)

	p.Rows[1].Bound = -1 // only s = 1 is feasible
	if s, err = p.Solve(context.Background(), 1); err != nil || math.Abs(s.S[0]-1) > accuracy {
		t.Fatalf("%v, s = %v", err, s)
	}
	p.optimal(t, s)

	p.Rows, p.Variables[0].Cost = p.Rows[:1], -1
	if s, err = p.Solve(context.Background(), 1); !errors.Is(err, ErrUnbounded) {
		t.Fatal(err)
	}
	p.unbounded(t, s)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.Solve(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context: %v", err)
	}
}

// Where no row and no penalty pulls, the dual variables and the gap are exactly zero, although
// the way there leads past terms with large ones.
func TestNothingPulls(t *testing.T) {
	k := [][]float64{
		{-1, -2, 0, -1, 2, 2, 2, 0, 1, 0, -1},
		{-1000, -1000, -1000, -2000, 1000, -2000, 0, 2000, -2000, -1000, -2000},
	}
	p := newDense(k, []float64{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}, 1.4)
	p.Costs = []float64{0, 3, 3, 0, 1, 2, 2, 1, 3, 2, 1}
	p.Quadratic = []float64{0}
	p.Rows = []Row{
		{Terms: []Term{{0, 1}, {2, 2}}, Bound: 1, Cost: Hard},
		{Terms: []Term{{0, 2}, {1, -2}}, Bound: 1, Cost: Hard},
		{Terms: []Term{{1, -1}}, Equal: true, Bound: 2, Cost: Hard},
		{Terms: []Term{{0, 2}, {1, -1}}, Equal: true, Bound: -1, Cost: Hard},
	}
	s, err := p.Solve(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	p.optimal(t, s)
	for k, beta := range append(s.Alpha, s.Beta...) {
		if beta != 0 {
			t.Errorf("dual variable %d is %v", k, beta)
		}
	}
	if s.Objective != 0 || s.Gap != 0 {
		t.Errorf("objective %v, gap %v", s.Objective, s.Gap)
	}
}
