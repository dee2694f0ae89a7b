package svm

import (
	"encoding/json"
	"math"
	"os"
	"reflect"
	"slices"
	"testing"

	"streamd/incremental/gram"
)

// With all rows as the basis and K(A, A) as the regulariser, the program is that of the full
// kernel, and has the objective of LIBSVM. In features it is that of the linear kernel.
func TestHingeHasTheObjectiveOfLIBSVM(t *testing.T) {
	text, err := os.ReadFile("testdata/smo.json")
	if err != nil {
		t.Fatal(err)
	}
	var optima []fullOptimum
	if err := json.Unmarshal(text, &optima); err != nil {
		t.Fatal(err)
	}
	const relative = 1e-6 // LIBSVM's cache is of float32
	checked := 0
	for _, o := range optima {
		if o.Rows > 400 {
			continue // its program has as many variables
		}
		checked++
		rows := ringnorm(o.Seed, o.Rows, o.Features, o.Noise)
		problems := []*Rows{fullBasis(t, rows, o.Kernel)}
		if o.Kernel == "linear" {
			problems = append(problems, rows)
		}
		for _, problem := range problems {
			p, err := Hinge{}.Fit(t.Context(), problem, o.Nu)
			if err != nil {
				t.Errorf("%+v: %v", o, err)
				continue
			}
			t.Logf("%+v: %v, gap %v, %d support vectors, %d steps", o, p.Objective, p.Gap, p.SupportVectors(), p.Steps)
			if math.Abs(p.Objective-o.Objective) > relative*o.Objective || math.Abs(p.Gap) > 1e-8*o.Objective {
				t.Errorf("%+v: objective %v, gap %v", o, p.Objective, p.Gap)
			}
			if off := p.SupportVectors() - o.SupportVectors; off < -2 || off > 2 { // some are zero to rounding
				t.Errorf("%+v: %d support vectors", o, p.SupportVectors())
			}
		}
	}
	if checked < 5 {
		t.Fatalf("only %d optima", checked)
	}
}

// fullBasis returns the rows in the coordinates K(A, A), with K(A, A) as the regulariser.
func fullBasis(t *testing.T, rows *Rows, text string) *Rows {
	f, err := SMO{Kernel: kernel(t, text)}.Open(rows.Columns, 0)
	if err != nil {
		t.Fatal(err)
	}
	k := f.s.Kernel
	out := &Rows{D: rows.D, Basis: true}
	for i := range rows.D {
		column := make([]float64, len(rows.D))
		for j := range column {
			column[j] = k.Value(k.Argument(f.Point(max(i, j)), f.Point(min(i, j))))
		}
		out.Columns = append(out.Columns, gram.ColumnOf(column))
		out.Regulariser = append(out.Regulariser, column[:i+1]...)
	}
	return out
}

// The plane and its dual variables prove each other, by loops over the rows: Rw = A'Dα and
// e'Dα = 0, and where 0 < α < νc the row is on its margin.
func TestHingeOptimal(t *testing.T) {
	for _, regulariser := range [][]float64{nil, {2, 0.5, 1, 0, 0, 3, 0, 0.1, -1, 0.5}} {
		for _, nu := range []float64{1e-3, 1, 100} {
			rows := clouds(25, 500, 4)
			for i := range rows.D {
				if i%5 == 0 {
					rows.D[i] = -rows.D[i]
				}
				rows.Costs = append(rows.Costs, float64(i%3))
			}
			rows.Regulariser = regulariser
			p, err := fit(Hinge{}, rows, nu)
			if err != nil {
				t.Fatal(err)
			}
			rw := slices.Clone(p.W)
			if regulariser != nil {
				clear(rw)
				for i := range rw {
					for j := range rw {
						rw[i] += regulariser[gram.PackedLen(max(i, j))+min(i, j)] * p.W[j]
					}
				}
			}
			var balance, objective, size float64
			for j, v := range rw {
				objective += v * p.W[j] / 2
			}
			for i, d := range rows.D {
				a, c, margin := p.Alpha[i], nu*rows.Costs[i], d*rows.value(p, i)
				switch {
				case a == 0 && margin < 1-1e-9 && c > 0, a == c && margin > 1+1e-9 && c > 0, a > c,
					a > 0 && a < c && math.Abs(margin-1) > 1e-9:
					t.Errorf("ν = %v: row %d has α = %v of %v, margin %v", nu, i, a, c, margin)
				}
				objective += c * max(0, 1-margin)
				balance += d * a
				size += a
				for j := range rw {
					rw[j] -= d * a * rows.Columns[j].At(i)
				}
			}
			for j, off := range rw {
				if math.Abs(off) > 1e-9*size {
					t.Errorf("ν = %v: Rw − A'Dα is %v in column %d", nu, off, j)
				}
			}
			if math.Abs(objective-p.Objective) > 1e-9*objective || math.Abs(p.Gap) > 1e-8*objective {
				t.Errorf("ν = %v: the plane costs %v; reported are %v and a gap of %v", nu, objective, p.Objective, p.Gap)
			}
			if math.Abs(balance) > 1e-9*size {
				t.Errorf("ν = %v: e'Dα = %v", nu, balance)
			}
		}
	}
}

// Equal rows do not hinder, and a row that occurs twice counts like one of twice the cost.
func TestHingeEqualRows(t *testing.T) {
	rows := ringnorm(26, 200, 4, true)
	rows.Costs = slices.Repeat([]float64{2}, 200)
	once, err := fit(Hinge{}, rows, 1)
	if err != nil {
		t.Fatal(err)
	}
	twice := &Rows{D: slices.Concat(rows.D, rows.D)}
	for _, c := range rows.Columns {
		v := make([]float64, 400)
		for i := range v {
			v[i] = c.At(i % 200)
		}
		twice.Columns = append(twice.Columns, gram.ColumnOf(v))
	}
	p, err := fit(Hinge{}, twice, 1)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(p.Objective-once.Objective) > 1e-8*once.Objective {
		t.Errorf("objective %v, of rows twice %v", once.Objective, p.Objective)
	}
	if reflect.DeepEqual(p.Alpha[:200], once.Alpha) {
		t.Error("the dual variables of one of two equal rows are those of both")
	}
}
