package svm

import (
	"context"
	"math"
	"testing"

	"streamd/incremental/gram"
)

// The plane and its dual variables prove each other, by loops over the rows: α is feasible
// for the dual program max e'α, |A'Dα| ≤ 1, e'Dα = 0, 0 ≤ α ≤ νc (Fung 2003, 4.12), and has
// the objective of the plane.
func TestSparseOptimal(t *testing.T) {
	noisy := clouds(20, 400, 8)
	for i := range noisy.D {
		if i%6 == 0 {
			noisy.D[i] = -noisy.D[i]
		}
		noisy.Costs = append(noisy.Costs, 0.5+float64(i%4))
	}
	for _, c := range []struct {
		name string
		rows *Rows
		nus  []float64
	}{
		{"separable", clouds(21, 200, 5), []float64{1e-4, 1e-2, 1, 1e4}},
		{"noisy", noisy, []float64{1e-5, 1e-3, 0.1, 10}},
		{"basis", board(22, 300, 25), []float64{0.1, 1, 100}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var features []int
			for _, nu := range c.nus {
				p, err := fit(Sparse{}, c.rows, nu)
				if err != nil {
					t.Fatal(err)
				}
				features = append(features, p.Features())
				primal, dual := 0.0, 0.0
				sums := make([]float64, len(p.W)) // A'Dα
				var balance float64
				for i, d := range c.rows.D {
					most := nu * c.rows.cost(i)
					primal += most * max(1-d*c.rows.value(p, i), 0)
					a := p.Alpha[i]
					dual += a
					balance += d * a
					if a > most*(1+1e-12) {
						t.Fatalf("ν = %v: α of row %d is %v, above %v", nu, i, a, most)
					}
					for j, column := range c.rows.Columns {
						sums[j] += d * a * column.At(i)
					}
				}
				for j, w := range p.W {
					primal += math.Abs(w)
					if math.Abs(sums[j]) > 1+1e-8 {
						t.Errorf("ν = %v: |A'Dα| is %v in column %d", nu, sums[j], j)
					}
				}
				if math.Abs(balance) > 1e-8*dual {
					t.Errorf("ν = %v: e'Dα = %v", nu, balance)
				}
				const tolerance = 1e-8 // of package lp
				if math.Abs(primal-p.Objective) > tolerance*primal || math.Abs(primal-dual) > tolerance*primal || math.Abs(p.Gap) > tolerance*primal {
					t.Errorf("ν = %v: the plane costs %v, its dual is worth %v; reported are %v and a gap of %v", nu, primal, dual, p.Objective, p.Gap)
				}
			}
			t.Logf("ν %v: features %v", c.nus, features)
			if features[0] >= features[len(features)-1] || features[0] > 2 {
				t.Errorf("ν %v: features %v do not grow from few", c.nus, features)
			}
		})
	}
}

// board returns m points of a checkerboard in the coordinates K(x, z) = exp(−0.2‖x−z‖²) of the
// first t of them.
func board(seed uint64, m, t int) *Rows {
	points := clouds(seed, m, 2)
	x, y := points.Columns[0], points.Columns[1]
	rows := &Rows{D: points.D}
	for i := range rows.D {
		rows.D[i] = float64(1 - 2*(int(math.Floor(x.At(i)/2)+math.Floor(y.At(i)/2))&1))
	}
	for j := range t {
		column := make([]float64, m)
		for i := range column {
			a, b := x.At(i)-x.At(j), y.At(i)-y.At(j)
			column[i] = math.Exp(-0.2 * (a*a + b*b))
		}
		rows.Columns = append(rows.Columns, gram.ColumnOf(column))
	}
	return rows
}

// A refused regulariser names the reason.
func TestSparseRegulariser(t *testing.T) {
	rows := clouds(23, 10, 1)
	rows.Regulariser = []float64{1}
	if _, err := (Sparse{}).Fit(context.Background(), rows, 1); err != errRegulariser {
		t.Errorf("the error is %v", err)
	}
}
