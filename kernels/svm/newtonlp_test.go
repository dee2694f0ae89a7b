package svm

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"streamd/kernels/lp"
)

// newtonSizes has fewer features than rows, and more.
var newtonSizes = [][2]int{{300, 6}, {400, 13}, {60, 200}}

// As ε falls, the plane comes to the optimum of the linear program, with the same exact zeros.
func TestNewtonLPComesToTheLinearProgram(t *testing.T) {
	for _, size := range newtonSizes {
		rows := ringnorm(31, size[0], size[1], true)
		for _, nu := range []float64{0.05, 1, 5} {
			program := lp.Program{Columns: rows.Columns, D: rows.D, Nu: nu}
			want, err := program.Solve(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			var off []float64
			var features int
			for _, epsilon := range []float64{0.1, 1e-2, 1e-4} {
				p, err := NewtonLP{Epsilon: epsilon}.Fit(t.Context(), rows, nu)
				if err != nil {
					t.Fatalf("%v, ν = %v, ε = %v: %v", size, nu, epsilon, err)
				}
				objective := 0.0
				for _, w := range p.W {
					objective += math.Abs(w)
				}
				for i, d := range rows.D {
					objective += nu * max(0, 1-d*rows.value(p, i))
				}
				off = append(off, objective/want.Objective-1)
				features = p.Features()
			}
			used := (&Plane{W: want.U}).Features()
			if features != used || size[1] > size[0] && features == size[1] {
				t.Errorf("%v, ν = %v: %d features, the linear program has %d", size, nu, features, used)
			}
			const rounding = 1e-7 // of the stopping rules
			if off[2] > 1e-6 || off[1] > off[0]+rounding || off[2] > off[1]+rounding || off[2] < -rounding {
				t.Errorf("%v, ν = %v: above the linear program's objective by %.2g of it", size, nu, off)
			}
		}
	}
}

// A large ν takes not many more steps than a small one. Many rows are at their bounds then.
func TestNewtonLPSteps(t *testing.T) {
	for _, size := range newtonSizes {
		rows := ringnorm(36, size[0], size[1], true)
		for nu := 1. / 4096; nu <= 512; nu *= 8 {
			p, err := NewtonLP{}.Fit(t.Context(), rows, nu)
			if err != nil {
				t.Errorf("%v, ν = %v: %v", size, nu, err)
				continue
			}
			if p.Steps > 300 || p.Gap > 1e-8*p.Objective {
				t.Errorf("%v, ν = %v: %d steps to a gap of %.2g of %v", size, nu, p.Steps, p.Gap, p.Objective)
			}
		}
	}
}

// The objective and the gap are those of program (4.37) and its dual, by plain loops.
func TestNewtonLPCertificate(t *testing.T) {
	const epsilon, nu = 0.1, 0.7
	for _, size := range newtonSizes {
		rows := ringnorm(32, size[0], size[1], true)
		for i := range rows.D {
			rows.Costs = append(rows.Costs, float64(i%4))
		}
		p, err := NewtonLP{Epsilon: epsilon}.Fit(t.Context(), rows, nu)
		if err != nil {
			t.Fatal(err)
		}
		primal, dual := epsilon/2*p.Gamma*p.Gamma, 0.0
		for _, w := range p.W {
			primal += math.Abs(w) + epsilon/2*w*w
		}
		var balance float64
		for i, d := range rows.D {
			c, a := rows.Costs[i], p.Alpha[i]
			e := max(0, 1-d*rows.value(p, i))
			primal += nu*c*e + epsilon/2*c*e*e
			dual += a
			balance += d * a
			if c == 0 {
				if a != 0 {
					t.Errorf("row %d of cost 0 has the dual variable %v", i, a)
				}
				continue
			}
			over := max(0, a-nu*c)
			dual -= over * over / (2 * epsilon * c)
		}
		dual -= balance * balance / (2 * epsilon)
		for _, column := range rows.Columns {
			var sum float64
			for i, d := range rows.D {
				sum += column.At(i) * d * p.Alpha[i]
			}
			over := max(0, math.Abs(sum)-1)
			dual -= over * over / (2 * epsilon)
		}
		if math.Abs(primal-p.Objective) > 1e-9*primal || math.Abs(primal-dual-p.Gap) > 1e-9*primal || p.Gap > 1e-8*primal {
			t.Errorf("%v: objective %v and gap %v, not %v and %v", size, p.Objective, p.Gap, primal, primal-dual)
		}
	}
}

// Steps solve (HH' + F)dir = −∇f (4.54), whichever system they come from: loops compute HH'dir.
func TestNewtonLPSystems(t *testing.T) {
	byRows, byFeatures := 0, 0
	for _, size := range newtonSizes {
		rows := ringnorm(35, size[0], size[1], true)
		p := newPenalty(NewtonLP{Epsilon: 0.1, Delta: 1e-3}, rows, 1)
		r := rand.New(rand.NewPCG(35, 2))
		for k := range 30 {
			for i := range p.u {
				p.u[i] = math.Ldexp(2*r.Float64()-0.7, -k%6) // u < 0 and u > ν, too
			}
			p.gradient()
			if !p.direction() {
				t.Fatalf("%v: no direction", size)
			}
			left, largest := make([]float64, size[0]), 0.0
			for i := range left {
				left[i] = p.f[i]*p.dir[i] + p.g[i]
				largest = max(largest, math.Abs(p.g[i]))
			}
			h := 0
			add := func(column func(i int) float64) {
				h++
				var sum float64
				for i, v := range p.dir {
					sum += rows.D[i] * column(i) * v
				}
				for i := range left {
					left[i] += rows.D[i] * column(i) * sum
				}
			}
			add(func(int) float64 { return 1 })
			for _, c := range rows.Columns {
				var sum float64
				for i, u := range p.u {
					sum += c.At(i) * rows.D[i] * u
				}
				if math.Abs(sum) > 1 {
					add(c.At)
				}
			}
			for i, v := range left {
				if math.Abs(v) > 1e-9*largest {
					t.Fatalf("%v: row %d of the system is off by %v of %v", size, i, v, largest)
				}
			}
			if h >= size[0] {
				byRows++
			} else {
				byFeatures++
			}
		}
	}
	if byRows < 10 || byFeatures < 10 {
		t.Errorf("%d systems of the rows and %d of the features", byRows, byFeatures)
	}
}

// δ damps the steps and moves no plane.
func TestNewtonLPDelta(t *testing.T) {
	rows := ringnorm(33, 200, 5, true)
	var objective float64
	for _, delta := range []float64{1e-6, 1e-4, 1e-3} {
		p, err := NewtonLP{Delta: delta}.Fit(t.Context(), rows, 1)
		if err != nil {
			t.Fatal(err)
		}
		if objective != 0 && math.Abs(p.Objective-objective) > 1e-7*objective {
			t.Errorf("the objective is %v with δ = %v, and %v with another", p.Objective, delta, objective)
		}
		objective = p.Objective
	}
}

func TestNewtonLPRefuses(t *testing.T) {
	rows := ringnorm(34, 20, 2, true)
	for _, n := range []NewtonLP{{Epsilon: -1}, {Epsilon: math.NaN()}, {Delta: -1}, {Delta: math.NaN()}} {
		if _, err := n.Fit(t.Context(), rows, 1); err == nil || !strings.Contains(err.Error(), "must be positive") {
			t.Errorf("%+v: the error is %v", n, err)
		}
	}
	// Steps of 10⁻¹² never arrive.
	if _, err := (NewtonLP{Delta: 1e12}).Fit(t.Context(), rows, 1); !errors.Is(err, ErrNotConverged) {
		t.Errorf("the error at the limit of steps is %v", err)
	}
}

// BenchmarkNewtonLP has the shape of the myeloma set of Fung 2003, table 4.4.
func BenchmarkNewtonLP(b *testing.B) {
	rows := clouds(1, 105, 28_032)
	for b.Loop() {
		p, err := NewtonLP{}.Fit(b.Context(), rows, 1)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(p.Features()), "features")
		b.ReportMetric(float64(p.Steps), "steps")
	}
}
