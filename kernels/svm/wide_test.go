package svm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/kernels/lp"
)

// wideRows are rows of more features than programs of their own order are solved for. Most numbers
// are 0, and the first ten features tell the sides apart. Columns are sparse or dense.
func wideRows(m, n int, sparse bool) *Rows {
	r := rand.New(rand.NewPCG(uint64(m), uint64(n)))
	rows := &Rows{Workers: 1}
	for i := range m {
		rows.D = append(rows.D, float64(1-2*(i%2)))
		rows.Costs = append(rows.Costs, float64(1+i%3))
	}
	rows.Costs[3] = 0 // absent
	for j := range n {
		x := make([]float64, m)
		var at []int32
		var numbers []float64
		for i := range x {
			if j < 10 || r.IntN(20) == 0 {
				if x[i] = r.NormFloat64(); j < 10 {
					x[i] += 0.7 * rows.D[i]
				}
				at, numbers = append(at, int32(i)), append(numbers, x[i])
			}
		}
		if sparse {
			rows.Columns = append(rows.Columns, gram.SparseColumn(m, at, numbers))
		} else {
			rows.Columns = append(rows.Columns, gram.ColumnOf(x))
		}
	}
	return rows
}

// Machines in many features need no matrix of their square. Planes are optimal: no subgradient of
// the objective is off. Sparse columns give the planes of dense ones.
func TestWide(t *testing.T) {
	const m, n = 24, manyFeatures + 50
	for name, machine := range map[string]Machine{"hinge": Hinge{}, "sparse": Sparse{}, "nlp": NewtonLP{}, "full": Squared{}} {
		t.Run(name, func(t *testing.T) {
			for _, nu := range []float64{0.02, 1} {
				dense, sparse := wideRows(m, n, false), wideRows(m, n, true)
				p, err := machine.Fit(t.Context(), dense, nu)
				if err != nil {
					t.Fatal(err)
				}
				if len(p.W) != n || len(p.Alpha) != m || p.Alpha[3] != 0 || p.Gap > 1e-6*(1+p.Objective) {
					t.Fatalf("ν %v: %d weights, %d multipliers, α %v of an absent row, gap %v of %v", nu, len(p.W), len(p.Alpha), p.Alpha[3], p.Gap, p.Objective)
				}
				other, err := machine.Fit(t.Context(), sparse, nu)
				if err != nil {
					t.Fatal(err)
				}
				optimal(t, fmt.Sprintf("ν %v", nu), name, dense, p, nu)
				optimal(t, fmt.Sprintf("ν %v, sparse columns", nu), name, dense, other, nu)
				if !(math.Abs(p.Objective-other.Objective) <= 1e-6*(1+p.Objective)) {
					t.Errorf("ν %v: objective %v, and %v of sparse columns", nu, p.Objective, other.Objective)
				}
			}
		})
	}
}

// optimal compares the dual variables of a plane with its weights.
func optimal(t *testing.T, name, machine string, rows *Rows, p *Plane, nu float64) {
	t.Helper()
	const tolerance = 2e-4
	var balance float64
	for i, a := range p.Alpha {
		if bound := nu * rows.Costs[i]; a < 0 || (machine == "hinge" || machine == "sparse") && a > bound*(1+tolerance) {
			t.Errorf("%s: row %d: α = %v of %v", name, i, a, bound)
		}
		balance += a * rows.D[i]
	}
	switch machine {
	case "full", "nlp":
		balance += p.Gamma * map[string]float64{"full": 1, "nlp": defaultEpsilon}[machine]
	}
	if math.Abs(balance) > tolerance {
		t.Errorf("%s: Σαd is off by %v", name, balance)
	}
	for j, c := range rows.Columns {
		var pull float64
		for i, a := range p.Alpha {
			pull += a * rows.D[i] * c.At(i)
		}
		want := p.W[j]
		switch machine {
		case "sparse":
			if want != 0 {
				want = math.Copysign(1, want)
			} else {
				want = max(-1, min(1, pull))
			}
		case "nlp":
			want = excess(pull) / defaultEpsilon
			pull = p.W[j]
		}
		if math.Abs(pull-want) > tolerance*(1+math.Abs(want)) {
			t.Fatalf("%s: feature %d: w = %v, pulled by %v, want %v", name, j, p.W[j], pull, want)
		}
	}
}

// Of few features the same rows have the planes of the programs of all features.
func TestGenerated(t *testing.T) {
	for _, nu := range []float64{0.05, 0.5, 5} {
		rows := wideRows(30, 90, false)
		got, err := Sparse{}.generate(t.Context(), rows, nu)
		if err != nil {
			t.Fatal(err)
		}
		program := lp.Program{Columns: rows.Columns, D: rows.D, Nu: nu, Costs: rows.Costs}
		want, err := program.Solve(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.Objective-want.Objective) > 1e-8*want.Objective {
			t.Errorf("ν %v: %v by generated columns, %v of all", nu, got.Objective, want.Objective)
		}
		dual, err := Hinge{}.dual(t.Context(), rows, nu)
		if err != nil {
			t.Fatal(err)
		}
		primal, err := Hinge{}.Fit(t.Context(), rows, nu)
		if err != nil || math.Abs(dual.Objective-primal.Objective) > 1e-6*primal.Objective {
			t.Errorf("ν %v: hinge %v by the dual, %v by the program; %v", nu, dual.Objective, primal.Objective, err)
		}
	}
}

// Classify needs no sums: planes of a machine are those of its own program, by class.
func TestClassifyByMachine(t *testing.T) {
	b := threeGroups(60)
	b.Weights = nil
	o := incremental.Options{Nu: 2, ClassWeights: map[string]float64{b.Classes[0]: 3}}
	var fits []*Fit
	if err := Classify(t.Context(), Sparse{}, b, nil, o, []float64{0.5, 2}, func(f *Fit) error {
		fits = append(fits, f)
		return nil
	}); err != nil || len(fits) != 2 || len(fits[0].Planes) != 3 {
		t.Fatalf("%d fits, %v", len(fits), err)
	}
	for c := range b.Classes {
		rows := &Rows{Columns: b.Columns}
		for _, code := range b.Codes {
			d, cost := -1.0, 1.0
			if int(code) == c {
				d = 1
			}
			if code == 0 {
				cost = 3
			}
			rows.D, rows.Costs = append(rows.D, d), append(rows.Costs, cost)
		}
		want, err := Sparse{}.Fit(t.Context(), rows, 2)
		if err != nil {
			t.Fatal(err)
		}
		got := fits[1].Planes[c]
		if got.Objective != want.Objective || got.Gamma != want.Gamma {
			t.Errorf("class %d: %v and γ %v, want %v and %v", c, got.Objective, got.Gamma, want.Objective, want.Gamma)
		}
		for i, v := range fits[1].Values[c:] {
			if i%3 == 0 && math.Abs(v-(b.Columns[0].At(i/3)*want.W[0]+b.Columns[1].At(i/3)*want.W[1]-want.Gamma)) > 1e-12 {
				t.Fatalf("class %d: row %d has %v", c, i/3, v)
			}
		}
	}
}
