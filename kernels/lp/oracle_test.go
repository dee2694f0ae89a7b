package lp

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"streamd/incremental/gram"
)

// A splitMix is the generator of testdata/highs.py.
type splitMix uint64

func (s *splitMix) uniform() float64 {
	*s += 0x9E3779B97F4A7C15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return float64((z^z>>31)>>11) / (1 << 53)
}

func checkerboard() dense {
	r := splitMix(1)
	const m, t = 2000, 40
	var x [m][2]float64
	d, k := make([]float64, m), make([][]float64, t)
	for i := range x {
		x[i][0] = r.uniform()
		x[i][1] = r.uniform()
		d[i] = 1 - 2*float64((int(4*x[i][0])+int(4*x[i][1]))&1)
		if i%10 == 0 {
			d[i] = -d[i]
		}
	}
	for j := range k {
		k[j] = make([]float64, m)
		for i := range k[j] {
			k[j][i] = math.Exp(-20 * (math.Pow(x[i][0]-x[j][0], 2) + math.Pow(x[i][1]-x[j][1], 2)))
		}
	}
	p := newDense(k, d, 5)
	for i := range m {
		p.Costs = append(p.Costs, float64(1+i%3))
	}
	return p
}

func plane(seed splitMix, m int) (k [][]float64, d []float64) {
	k = make([][]float64, 10)
	for range m {
		for j := range k {
			k[j] = append(k[j], 2*seed.uniform()-1)
		}
	}
	for i := range m {
		d = append(d, 1)
		if k[0][i]+k[1][i]-k[2][i]+seed.uniform()-0.5 <= 0 {
			d[i] = -1
		}
	}
	return k, d
}

// knowledge returns a program with a knowledge set (Fung 2003, 3.15): the box
// −1 ≤ x ≤ 0.2, or Bx ≤ b, belongs to the positive class.
func knowledge() dense {
	k, d := plane(2, 400)
	p := newDense(k, d, 2)
	p.Variables = make([]Variable, 20) // v ≥ 0
	inside := Row{Terms: []Term{{10, -1}}, Bound: 1, Cost: 3}
	for j := range 10 { // B'v + u = 0
		p.Rows = append(p.Rows, Row{Terms: []Term{{j, 1}, {11 + j, 1}, {21 + j, -1}}, Equal: true, Cost: 3})
	}
	for j := range 20 { // −b'v − γ ≥ 1
		b := 0.2
		if j >= 10 {
			b = 1
		}
		inside.Terms = append(inside.Terms, Term{11 + j, -b})
		p.Rows = append(p.Rows, Row{Terms: []Term{{11 + j, 1}}, Cost: Hard})
	}
	p.Rows = append(p.Rows, inside)
	return p
}

// unlabelled returns a program with 200 rows of unknown class (Fung 2003, 5.5), each of
// which occurs with both labels.
func unlabelled() dense {
	k, d := plane(3, 500)
	for j := range k {
		k[j] = append(k[j], k[j][300:]...)
	}
	p := newDense(k, make([]float64, 700), 1)
	for i := range p.D {
		switch {
		case i < 300:
			p.D[i] = d[i]
			p.Costs = append(p.Costs, 2)
		default:
			p.D[i] = float64(1 - 2*((i-300)/200))
			p.Costs = append(p.Costs, 0.5)
		}
	}
	return p
}

// sums returns a program with variables w and γ and Q = I/ν + E'E, f = −E'De, E = [A −e],
// for ν = 2: without further terms its plane is the proximal one (Fung 2003, 2.28).
func sums() dense {
	k, d := plane(2, 400)
	p := newDense(make([][]float64, 10), nil, 0)
	e := append(k, make([]float64, 400))
	for i := range 400 {
		e[10][i] = -1
	}
	for i := range e {
		var f float64
		for r, d := range d {
			f -= e[i][r] * d
		}
		p.Linear = append(p.Linear, f)
		for j := range i + 1 {
			p.Quadratic = append(p.Quadratic, dot(e[i], e[j]))
		}
		p.Quadratic[len(p.Quadratic)-1] += 0.5
	}
	return p
}

// boxOnSums is the knowledge set of knowledge, with squared errors of the rows.
func boxOnSums() dense {
	p, set := sums(), knowledge()
	p.Variables = set.Variables
	for _, row := range set.Rows {
		if row.Cost != Hard {
			row.Cost = 300
		}
		p.Rows = append(p.Rows, row)
	}
	return p
}

// sparseOnSums chooses features by a 1-norm, and bounds γ.
func sparseOnSums() dense {
	p := sums()
	for range 10 {
		p.Penalties = append(p.Penalties, 30)
	}
	p.Rows = []Row{{Terms: []Term{{10, 1}}, Bound: 0.5, Cost: Hard}}
	return p
}

// The optimal values are those of HiGHS 1.15.1: python3 testdata/highs.py.
func TestHiGHS(t *testing.T) {
	for _, c := range []struct {
		name    string
		program dense
		want    float64
	}{
		{"checkerboard", checkerboard(), 8729.604551376013},
		{"knowledge", knowledge(), 141.91185585974935},
		{"unlabelled", unlabelled(), 403.11807112830127},
		{"box on sums", boxOnSums(), 180.30428331848287},
		{"sparse on sums", sparseOnSums(), -20.061582607829692},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := c.program.Solve(context.Background(), 2)
			if err != nil {
				t.Fatal(err)
			}
			c.program.optimal(t, s)
			if math.Abs(s.Objective-c.want) > gapTolerance*math.Abs(c.want) {
				t.Errorf("objective %v, by HiGHS %v", s.Objective, c.want)
			}
			t.Logf("%d passes, %d pivots, %d support vectors", s.Passes, s.Pivots, s.SupportVectors())
		})
	}
}

// The hinge loss with ½w'w is the problem of libsvm, whose bias is free, too: python3
// testdata/alpha.py.
func TestLIBSVM(t *testing.T) {
	var want struct {
		Objective, Gamma float64
		Alpha            []float64
	}
	text, err := os.ReadFile("testdata/libsvm.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil || len(want.Alpha) != 400 {
		t.Fatalf("%v, %d dual variables", err, len(want.Alpha))
	}
	k, d := plane(2, 400)
	for _, v := range k {
		for i := range v { // libsvm's kernel values are float32, and exact now
			v[i] = math.Floor(64*v[i]) / 64
		}
	}
	p := newDense(k, d, 2)
	p.Quadratic = identity(10)
	s, err := p.Solve(context.Background(), 2)
	if err != nil {
		t.Fatal(err)
	}
	p.optimal(t, s)
	if math.Abs(s.Objective-want.Objective) > 1e-9*want.Objective || math.Abs(s.Gamma-want.Gamma) > 1e-6 {
		t.Errorf("objective %v, γ %v; by libsvm %v, %v", s.Objective, s.Gamma, want.Objective, want.Gamma)
	}
	bounds := 0
	for i, alpha := range s.Alpha {
		if math.Abs(alpha-want.Alpha[i]) > 1e-6 {
			t.Errorf("row %d: α = %v, by libsvm %v", i, alpha, want.Alpha[i])
		}
		if alpha == 0 || alpha == 2 {
			bounds++
		}
	}
	if bounds < 400-11 {
		t.Errorf("%d of 400 dual variables are exactly at a bound", bounds)
	}
}

// identity returns the packed identity of order n.
func identity(n int) []float64 {
	q := make([]float64, gram.PackedLen(n))
	for i := range n {
		q[gram.PackedLen(i)+i] = 1
	}
	return q
}

// The optimal values are those of gonum's simplex method. It cycles on degenerate
// programs, so these are not degenerate.
func TestSimplex(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		m, n := 1+r.IntN(25), 1+r.IntN(6)
		k, d := make([][]float64, n), make([]float64, m)
		for i := range d {
			d[i] = float64(1 - 2*r.IntN(2))
		}
		for j := range k {
			k[j] = make([]float64, m)
			for i := range k[j] {
				k[j][i] = r.NormFloat64() + d[i]*r.Float64()
			}
		}
		p := newDense(k, d, math.Exp(2*r.NormFloat64()))
		for range m {
			p.Costs = append(p.Costs, 0.1+r.Float64())
		}
		if seed%2 == 0 {
			p.Variables = []Variable{{Cost: r.NormFloat64(), Penalty: 3}}
			for range 1 + r.IntN(3) {
				row := Row{Equal: r.IntN(2) == 0, Bound: r.NormFloat64(), Cost: 1 + r.Float64()}
				if !row.Equal && len(p.Rows) == 0 {
					row.Cost = Hard
				}
				for j := range p.variables() {
					row.Terms = append(row.Terms, Term{j, r.NormFloat64()})
				}
				p.Rows = append(p.Rows, row)
			}
		}
		s, err := p.Solve(context.Background(), 1)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		p.optimal(t, s)
		want, err := p.simplex()
		if err != nil {
			t.Fatalf("seed %d: gonum: %v", seed, err)
		}
		if math.Abs(s.Objective-want) > 1e-8*(1+math.Abs(want)) {
			t.Errorf("seed %d: objective %v, by gonum %v", seed, s.Objective, want)
		}
	}
}

// BenchmarkSolve solves a program of the size of the last stage of chunking-synthetic
// reduction, LP(S, C) of González-Castaño and Meyer with |S| = 7291 and |C| = 100, on
// points that are as hard to separate.
func BenchmarkSolve(b *testing.B) {
	const m, t, n = 7291, 100, 8
	r := rand.New(rand.NewPCG(1, 1))
	x := make([][n]float64, m)
	d := make([]float64, m)
	for i := range x {
		var s float64
		for q := range x[i] {
			x[i][q] = r.NormFloat64()
			s += x[i][q] * x[i][(q+1)%n]
		}
		d[i] = 1
		if s+r.NormFloat64() < 2 {
			d[i] = -1
		}
	}
	p := &Program{D: d, Nu: 12}
	for j := range t {
		v := make([]float32, m)
		for i := range v {
			var s float64
			for q := range x[i] {
				s += (x[i][q] - x[j][q]) * (x[i][q] - x[j][q])
			}
			v[i] = float32(math.Exp(-s / 16))
		}
		p.Columns = append(p.Columns, gram.ColumnOf(v))
	}
	for _, workers := range []int{1, 2} {
		b.Run(map[int]string{1: "workers=1", 2: "workers=2"}[workers], func(b *testing.B) {
			for b.Loop() {
				s, err := p.Solve(context.Background(), workers)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(s.Passes), "passes")
			}
		})
	}
}
