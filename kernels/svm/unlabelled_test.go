package svm

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"streamd/incremental/gram"
)

// unlabel takes the labels off all rows but every nth.
func unlabel(rows *Rows, n int) *Rows {
	out := *rows
	out.D = slices.Clone(rows.D)
	for i := range out.D {
		if i/2%n != 0 { // clouds gives neighbours different labels
			out.D[i] = 0
		}
	}
	return &out
}

// concave is the objective of (5.1), by a loop over rows and columns. mu is μ/ν.
func concave(rows *Rows, p *Plane, nu, mu float64) (sum float64) {
	for i, d := range rows.D {
		f := rows.value(p, i)
		if d == 0 {
			sum += nu * mu * rows.cost(i) * min(max(1-f, 0), max(1+f, 0))
		} else {
			sum += nu * rows.cost(i) * max(1-d*f, 0)
		}
	}
	for _, w := range p.W {
		sum += math.Abs(w)
	}
	return sum
}

// assigned is the plane of the 1-norm program in which row i without a label has label 1 to the
// part of its weight that positive says, and label −1 for the rest.
func assigned(t *testing.T, rows *Rows, positive func(i int) float64, nu, mu float64) *Plane {
	t.Helper()
	var at []int
	var d, costs []float64
	for i, label := range rows.D {
		c := rows.cost(i)
		if label != 0 {
			at, d, costs = append(at, i), append(d, label), append(costs, c)
			continue
		}
		part := positive(i)
		at, d, costs = append(at, i, i), append(d, 1, -1), append(costs, c*mu*part, c*mu*(1-part))
	}
	p, err := fit(Sparse{}, &Rows{Columns: rows.pick(at).Columns, D: d, Costs: costs}, nu)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// side is 1 on the positive side of a plane, 0 on the negative one, and ½ on the plane.
func side(value float64) float64 {
	switch {
	case value > 0:
		return 1
	case value < 0:
		return 0
	}
	return 0.5
}

// The plane is stationary: no plane is better while all rows keep their sides (5.3), by the
// 1-norm program with the labels of these sides. Its objective is (5.1)'s, and no larger than
// that of the first program's plane, which begins with both labels (5.5).
func TestUnlabelledIsStationary(t *testing.T) {
	noisy := clouds(30, 300, 6)
	for i := range noisy.D {
		if i%5 == 0 {
			noisy.D[i] = -noisy.D[i]
		}
		noisy.Costs = append(noisy.Costs, float64(i%4)/2)
	}
	most := 0
	for name, rows := range map[string]*Rows{"clouds": unlabel(clouds(31, 200, 4), 10), "noisy": unlabel(noisy, 5), "board": unlabel(board(32, 200, 15), 4)} {
		for _, nu := range []float64{0.01, 1, 50} {
			for _, mu := range []float64{0.01, 0.3, 1} {
				p, err := fit(Unlabelled{Mu: mu}, rows, nu)
				if err != nil {
					t.Fatal(name, nu, mu, err)
				}
				most = max(most, p.Programs)
				const tolerance = 1e-7 // 1e-8 of a program, and of the stopping rule
				if got := concave(rows, p, nu, mu); math.Abs(got-p.Objective) > tolerance*got {
					t.Errorf("%s, ν %v, μ %v: the objective is %v, reported %v", name, nu, mu, got, p.Objective)
				}
				kept := assigned(t, rows, func(i int) float64 { return side(rows.value(p, i)) }, nu, mu)
				if kept.Objective < p.Objective*(1-tolerance) {
					t.Errorf("%s, ν %v, μ %v: with the same sides %v is better than %v", name, nu, mu, kept.Objective, p.Objective)
				}
				first := assigned(t, rows, func(int) float64 { return 0.5 }, nu, mu)
				if start := concave(rows, first, nu, mu); p.Objective > start*(1+tolerance) {
					t.Errorf("%s, ν %v, μ %v: the objective rises from %v to %v", name, nu, mu, start, p.Objective)
				}
			}
		}
	}
	if most < 3 || most > 20 {
		t.Errorf("%d programs at most: rows do not change sides, or for ever", most)
	}
}

// No way to label the rows is better than the best of all; between clusters that one is mostly
// found.
func TestUnlabelledFindsTheBestLabels(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 3))
	found := 0
	const trials = 10
	for range trials {
		const free = 8
		x, y := make([]float64, free+2), make([]float64, free+2)
		rows := &Rows{D: make([]float64, free+2), Columns: []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}}
		for i := range x {
			side := float64(i%2)*2 - 1
			x[i], y[i] = 4*side+r.NormFloat64(), 3*r.NormFloat64()
			if i < 2 {
				rows.D[i] = side
			}
		}
		const nu, mu = 1, 0.5
		p, err := fit(Unlabelled{Mu: mu}, rows, nu)
		if err != nil {
			t.Fatal(err)
		}
		best := math.Inf(1)
		for labels := range 1 << free {
			q := assigned(t, rows, func(i int) float64 { return float64(labels >> (i - 2) & 1) }, nu, mu)
			best = min(best, q.Objective)
		}
		if p.Objective < best*(1-1e-7) {
			t.Errorf("the objective is %v, of the best labels %v", p.Objective, best)
		}
		if p.Objective < best*(1+1e-7) {
			found++
		}
	}
	if found < trials-2 {
		t.Errorf("the best labels are found in %d of %d trials", found, trials)
	}
}

// Rows without a label move the plane of two labelled rows into the gap between the classes.
func TestUnlabelledRowsHelp(t *testing.T) {
	var with, without float64
	for seed := range uint64(20) {
		test := clouds(100+seed, 1000, 3)
		rows := unlabel(clouds(200+seed, 200, 3), 100) // 2 labels
		p, err := fit(Unlabelled{}, rows, 1)
		if err != nil {
			t.Fatal(err)
		}
		q, err := fit(Sparse{}, rows.pick([]int{0, 1}), 1)
		if err != nil {
			t.Fatal(err)
		}
		with, without = with+test.wrong(p)/20, without+test.wrong(q)/20
	}
	if with > without/2 {
		t.Errorf("%v of 1000 rows are wrong with rows without a label, %v without them", with, without)
	}
}

// All rows without a label are one side; bad μ and a context that ends are errors; the dual
// variables of a row without a label are within its μ.
func TestUnlabelledEdges(t *testing.T) {
	none := clouds(34, 50, 2)
	clear(none.D)
	if p, err := fit(Unlabelled{}, none, 1); err != nil || p.Objective != 0 || p.Features() != 0 {
		t.Errorf("without any label: %+v, %v", p, err)
	}
	rows := unlabel(clouds(35, 60, 2), 5)
	for _, mu := range []float64{-1, math.NaN(), math.Inf(1)} {
		if _, err := (Unlabelled{Mu: mu}).Fit(context.Background(), rows, 1); err == nil {
			t.Errorf("μ = %v is not refused", mu)
		}
	}
	rows.Regulariser = make([]float64, 3)
	if _, err := (Unlabelled{}).Fit(context.Background(), rows, 1); !errors.Is(err, errRegulariser) {
		t.Errorf("the error of a regulariser is %v", err)
	}
	rows.Regulariser = nil
	const nu, mu = 0.2, 0.25
	p, err := fit(Unlabelled{Mu: mu}, rows, nu)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for i, a := range p.Alpha {
		most := nu
		if rows.D[i] == 0 {
			most, sum = nu*mu, sum+a
		}
		if a > most*(1+1e-12) {
			t.Errorf("α of row %d is %v, above %v", i, a, most)
		}
	}
	if sum == 0 {
		t.Error("no row without a label supports the plane")
	}
}
