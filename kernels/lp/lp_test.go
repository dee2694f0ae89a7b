package lp

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
	gonumlp "gonum.org/v1/gonum/optimize/convex/lp"
	"pgregory.net/rapid"

	"streamd/incremental/gram"
)

// The accuracy to which optimal conditions are checked, relative to the sizes
// that meet in them.
const accuracy = 1e-8

// A reporter is a *testing.T or a *rapid.T.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// dense is a program whose columns are at hand.
type dense struct {
	*Program
	k [][]float64 // columns
}

func newDense(k [][]float64, d []float64, nu float64) dense {
	p := dense{&Program{D: d, Nu: nu}, k}
	for _, v := range k {
		p.Columns = append(p.Columns, gram.ColumnOf(v))
	}
	return p
}

func (p dense) cost(i int) float64 {
	if p.Costs == nil {
		return p.Nu
	}
	return p.Nu * p.Costs[i]
}

// optimal checks feasibility of both solutions, complementarity, and that the
// objectives are what the solution says and equal.
func (p dense) optimal(t reporter, s *Solution) {
	t.Helper()
	n := len(p.k) + 1
	if len(s.U) != len(p.k) || len(s.E) != len(p.D) || len(s.Alpha) != len(p.D) {
		t.Fatalf("lengths of the solution: %d, %d, %d", len(s.U), len(s.E), len(s.Alpha))
	}
	x := slices.Concat(s.U, []float64{s.Gamma})
	var objective, dual, size float64
	balance, balanceSize := make([]float64, n), make([]float64, n)
	for i, d := range p.D {
		margin, marginSize := -d*s.Gamma, 1+math.Abs(s.Gamma)
		for j, v := range p.k {
			margin += d * v[i] * x[j]
			marginSize += math.Abs(v[i] * x[j])
			balance[j] += d * v[i] * s.Alpha[i]
			balanceSize[j] += math.Abs(v[i] * s.Alpha[i])
		}
		balance[len(p.k)] -= d * s.Alpha[i]
		balanceSize[len(p.k)] += s.Alpha[i]
		if s.E[i] < 0 || margin+s.E[i] < 1-accuracy*marginSize || s.E[i] > 0 && math.Abs(margin+s.E[i]-1) > accuracy*marginSize {
			t.Errorf("row %d: margin %v, E %v", i, margin, s.E[i])
		}
		c := p.cost(i)
		if s.Alpha[i] < 0 || s.Alpha[i] > c*(1+1e-15) {
			t.Errorf("row %d: α = %v, cost %v", i, s.Alpha[i], c)
		}
		objective += c * s.E[i]
		dual += s.Alpha[i]
		size += c
	}
	largest := max(1, slices.Max(balanceSize))
	for j := range x {
		g := 1.0 // the cost of |u_j|; γ has none
		if j == len(p.k) {
			g = 0
		}
		objective += g * math.Abs(x[j])
		size += g * maxAbs(x)
		// −g ≤ A'β ≤ g.
		if off := math.Abs(balance[j]) - g; off > accuracy*g+1e-11*largest {
			t.Errorf("variable %d: balance of the dual variables is off by %v (g = %v, sum %v)", j, off, g, balanceSize[j])
		}
	}
	if math.Abs(objective-s.Objective) > accuracy*math.Abs(objective)+1e-13*size {
		t.Errorf("objective %v, said to be %v", objective, s.Objective)
	}
	if math.Abs(objective-dual) > accuracy*math.Abs(objective)+1e-12*size {
		t.Errorf("objective %v, dual objective %v", objective, dual)
	}
	// A vertex has as many conditions that hold with equality as variables: a
	// dual variable strictly between its bounds is basic, and so is a zero's.
	between := 0
	for i := range p.D {
		if s.Alpha[i] > 0 && s.Alpha[i] < p.cost(i) {
			between++
			if s.E[i] != 0 {
				t.Errorf("row %d: E %v, but 0 < α = %v < %v", i, s.E[i], s.Alpha[i], p.cost(i))
			}
		}
	}
	nonzero := 0
	for _, v := range x {
		if v != 0 {
			nonzero++
		}
	}
	if between > n || nonzero > len(p.D) {
		t.Errorf("%d of %d variables are not zero, and %d dual variables of %d rows between their bounds", nonzero, n, between, len(p.D))
	}
}

// simplex is the program solved by gonum, in standard form: x = x⁺ − x⁻, and
// for each row two slacks.
func (p dense) simplex() (float64, error) {
	t, m := len(p.k), len(p.D)
	n := t + 1
	a := mat.NewDense(m, 2*n+2*m, nil)
	b, c := make([]float64, m), make([]float64, 2*n+2*m)
	for j := range t {
		c[j], c[n+j] = 1, 1
	}
	for i, d := range p.D {
		for j, v := range p.k {
			a.Set(i, j, d*v[i])
			a.Set(i, n+j, -d*v[i])
		}
		a.Set(i, t, -d)
		a.Set(i, n+t, d)
		a.Set(i, 2*n+2*i, 1)
		a.Set(i, 2*n+2*i+1, -1)
		b[i], c[2*n+2*i] = 1, p.cost(i)
	}
	value, _, err := gonumlp.Simplex(c, a, b, 1e-10, nil)
	return value, err
}

// drawProgram draws a program whose numbers are small integers, or any: with
// ties, duplicates and zeros, or without.
func drawProgram(r *rapid.T) dense {
	m := rapid.IntRange(0, 12).Draw(r, "m")
	columns := rapid.IntRange(0, 4).Draw(r, "t")
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 1))
	integers := rapid.Bool().Draw(r, "integers")
	number := func() float64 {
		if integers {
			return float64(rng.IntN(5) - 2)
		}
		return rng.NormFloat64()
	}
	d := make([]float64, m)
	kind := rapid.SampledFrom([]string{"random", "separable", "one class"}).Draw(r, "labels")
	for i := range d {
		d[i] = float64(1 - 2*rng.IntN(2))
		if kind == "one class" {
			d[i] = -1
		}
	}
	k := make([][]float64, columns)
	for j := range k {
		k[j] = make([]float64, m)
		switch rapid.SampledFrom([]string{"plain", "plain", "plain", "zero", "duplicate", "large"}).Draw(r, "column") {
		case "zero":
		case "duplicate":
			copy(k[j], k[rng.IntN(j+1)])
		case "large":
			for i := range k[j] {
				k[j][i] = 1e3 * number()
			}
		default:
			for i := range k[j] {
				k[j][i] = number()
				if kind == "separable" && j == 0 {
					k[j][i] = d[i] * (1 + math.Abs(k[j][i]))
				}
			}
		}
	}
	p := newDense(k, d, rapid.SampledFrom([]float64{1, 1.4, 12, 0.1, 0, 1e-6, 1e5}).Draw(r, "nu"))
	if rapid.Bool().Draw(r, "costs") {
		for range m {
			p.Costs = append(p.Costs, float64(rng.IntN(4)))
		}
	}
	return p
}

// TestPrograms solves programs of all kinds, and checks the proof that comes with
// the solution: dual variables of equal objective.
func TestPrograms(t *testing.T) {
	property := func(r *rapid.T) {
		p := drawProgram(r)
		s, err := p.Solve(context.Background(), 1)
		if err != nil {
			r.Error(err)
		} else {
			p.optimal(r, s)
		}
		if r.Failed() {
			r.Fatalf("%+v, K = %v", *p.Program, p.k)
		}
	}
	for range 30 { // the programs are small, and 100 of them few
		rapid.Check(t, property)
	}
}
