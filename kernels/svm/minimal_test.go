package svm

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"streamd/incremental/gram"
)

// The minimal kernel classifier keeps the promises, too.
func TestMinimalKernel(t *testing.T) { testMachine(t, inBasis{}) }

// inBasis is Minimal with all columns taken for the coordinates of a basis.
type inBasis struct{}

func (inBasis) Fit(ctx context.Context, rows *Rows, nu float64) (*Plane, error) {
	r := *rows
	r.Basis = true
	return Minimal{}.Fit(ctx, &r, nu)
}

// A splitMix is the generator of testdata/successive.py.
type splitMix uint64

func (s *splitMix) uniform() float64 {
	*s += 0x9E3779B97F4A7C15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return float64((z^z>>31)>>11) / (1 << 53)
}

// planeRows and boardRows are plane and board of testdata/successive.py.
func planeRows() *Rows {
	const m, n = 150, 12
	r := splitMix(1)
	columns, rows := make([][]float64, n), new(Rows)
	for range m {
		for j := range columns {
			columns[j] = append(columns[j], 2*r.uniform()-1)
		}
	}
	for i := range m {
		d := -1.0
		if columns[0][i]+columns[1][i]-columns[2][i]+1.5*(r.uniform()-0.5) > 0 {
			d = 1
		}
		rows.D = append(rows.D, d)
	}
	for _, c := range columns {
		rows.Columns = append(rows.Columns, gram.ColumnOf(c))
	}
	return rows
}

func boardRows() *Rows {
	const m, t = 300, 60
	r := splitMix(2)
	var x [m][2]float64
	rows := &Rows{Basis: true}
	for i := range x {
		x[i] = [2]float64{r.uniform(), r.uniform()}
		d := 1 - 2*float64((int(4*x[i][0])+int(4*x[i][1]))&1)
		if i%10 == 0 {
			d = -d
		}
		rows.D = append(rows.D, d)
	}
	for j := range t {
		column := make([]float64, m)
		for i := range column {
			a, b := x[i][0]-x[j][0], x[i][1]-x[j][1]
			column[i] = math.Exp(-20 * (a*a + b*b))
		}
		rows.Columns = append(rows.Columns, gram.ColumnOf(column))
	}
	return rows
}

// HiGHS comes by the same programs to the same local minima. But for Minimal without a basis it
// keeps the columns that Sparse does not use, and does not use them either.
func TestSuccessiveHiGHS(t *testing.T) {
	f, err := os.Open("testdata/successive.golden")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := 0
	for scan := bufio.NewScanner(f); scan.Scan(); {
		if strings.HasPrefix(scan.Text(), "#") {
			continue
		}
		lines++
		var name, set string
		var nu, mu, objective float64
		var features, errors, programs int
		if _, err := fmt.Sscan(scan.Text(), &name, &set, &nu, &mu, &objective, &features, &errors, &programs); err != nil {
			t.Fatalf("%s: %v", scan.Text(), err)
		}
		machine := map[string]Machine{"minimal": Minimal{Mu: mu}, "features": Features{Mu: mu}}[name]
		rows := map[string]*Rows{"plane": planeRows(), "board": boardRows()}[set]
		p, err := fit(machine, rows, nu)
		if err != nil {
			t.Fatalf("%s: %v", scan.Text(), err)
		}
		missed := 0
		for i, d := range rows.D {
			if d*rows.value(p, i) < 1-1e-9 {
				missed++
			}
		}
		if math.Abs(p.Objective-objective) > 1e-8*objective || p.Features() != features || missed != errors || p.Programs != programs {
			t.Errorf("%s: ours has %.12g %d %d %d", scan.Text(), p.Objective, p.Features(), missed, p.Programs)
		}
	}
	if lines != 7 {
		t.Errorf("there are %d problems", lines)
	}
}

// Loops over the rows prove that a plane is stationary: α is feasible for the dual program of
// the linearisation at the plane, and is worth as much as the linearisation costs there. So by
// the minimum principle nothing is gained to first order. The plane costs less than that of
// Sparse, where the search begins.
func TestStationary(t *testing.T) {
	weighed := clouds(30, 250, 8)
	for i := range weighed.D {
		if i%5 == 0 {
			weighed.D[i] = -weighed.D[i]
		}
		weighed.Costs = append(weighed.Costs, 0.5+float64(i%3))
	}
	for _, c := range []struct {
		name                 string
		machine              Machine
		errors, coefficients float64
		rows                 *Rows
		begin, nu            float64
	}{
		{"minimal", Minimal{Mu: 20}, 20, 0, weighed, 0.1, 0.1},
		{"usual minimal", Minimal{}, minimalMu, 0, planeRows(), 1, 1},
		{"few features", Minimal{Mu: 8, Begin: 0.06}, 8, 0, planeRows(), 0.06, 1},
		{"points", Minimal{Mu: 8}, 8, 8, boardRows(), 4, 4},
		{"features", Features{Mu: 2}, 0, 2, weighed, 0.1, 0.1},
		{"usual features", Features{}, 0, featuresMu, planeRows(), 0.5, 0.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			began, err := fit(Sparse{}, c.rows, c.begin)
			if err != nil {
				t.Fatal(err)
			}
			p, err := fit(c.machine, c.rows, c.nu)
			if err != nil {
				t.Fatal(err)
			}
			cost := func(p *Plane) (objective float64) {
				for i, d := range c.rows.D {
					objective += c.nu * c.rows.cost(i) * step(max(1-d*c.rows.value(p, i), 0), c.errors)
				}
				for _, w := range p.W {
					objective += step(math.Abs(w), c.coefficients)
				}
				return objective
			}
			const tolerance = 1e-8 // of package lp
			if got := cost(p); math.Abs(got-p.Objective) > tolerance*got {
				t.Errorf("the plane costs %v, not %v", got, p.Objective)
			}
			if first := cost(began); p.Objective >= first {
				t.Errorf("the plane costs %v, that of Sparse %v", p.Objective, first)
			}
			var linear, dual, balance float64
			sums := make([]float64, len(p.W)) // A'Dα
			for i, d := range c.rows.D {
				e := max(1-d*c.rows.value(p, i), 0)
				most := c.nu * c.rows.cost(i) * slope(e, c.errors)
				linear += most * e
				a := p.Alpha[i]
				dual += a
				balance += d * a
				// slope is steep: an error of 1e-10 changes it by 1e-9 of its size.
				if a > most*(1+1e-7) {
					t.Errorf("α of row %d is %v, above %v", i, a, most)
				}
				for j, column := range c.rows.Columns {
					sums[j] += d * a * column.At(i)
				}
			}
			for j, w := range p.W {
				most := slope(math.Abs(w), c.coefficients)
				linear += most * math.Abs(w)
				if began.W[j] != 0 && math.Abs(sums[j]) > most+tolerance*dual {
					t.Errorf("|A'Dα| is %v, above %v, in column %d", sums[j], most, j)
				}
				if began.W[j] == 0 && w != 0 {
					t.Errorf("column %d, which Sparse does not use, has %v", j, w)
				}
			}
			if math.Abs(balance) > tolerance*dual || math.Abs(linear-dual) > 2*tolerance*linear || math.Abs(p.Gap) > 2*tolerance*linear {
				t.Errorf("the linearisation costs %v, its dual is worth %v with e'Dα = %v; reported is a gap of %v", linear, dual, balance, p.Gap)
			}
			t.Logf("%d programs: features %d to %d, support vectors %d to %d", p.Programs, began.Features(), p.Features(), began.SupportVectors(), p.SupportVectors())
		})
	}
}

// With one feature all vertices of the feasible set can be tried, so the global minimum of the
// concave objective is known. No plane is below it, and many more are at it than of those of
// Sparse, where the search begins.
func TestMinimalGlobal(t *testing.T) {
	const m, nu, seeds = 14, 1, 60
	machine, global, began := Minimal{Mu: 4}, 0, 0
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 30))
		rows, x := &Rows{}, make([]float64, m)
		for i := range x {
			rows.D = append(rows.D, float64(1-2*(i&1)))
			x[i] = r.NormFloat64() + 1.5*rows.D[i]
		}
		rows.Columns = []gram.Column{gram.ColumnOf(x)}
		p, err := fit(machine, rows, nu)
		if err != nil {
			t.Fatal(err)
		}
		sparse, err := fit(Sparse{}, rows, nu)
		if err != nil {
			t.Fatal(err)
		}
		cost := func(w, gamma float64) float64 {
			cost := math.Abs(w)
			for i, d := range rows.D {
				cost += nu * step(max(1-d*(w*x[i]-gamma), 0), machine.Mu)
			}
			return cost
		}
		least := math.Inf(1)
		try := func(w, gamma float64) { least = min(least, cost(w, gamma)) }
		for i, a := range rows.D {
			try(0, -a) // a row is at its margin, and w is 0
			for j, b := range rows.D[:i] {
				// Two rows are at their margins: wx_i − γ = a, wx_j − γ = b.
				if w := (a - b) / (x[i] - x[j]); finite(w) {
					try(w, w*x[i]-a)
				}
			}
		}
		if p.Objective < least*(1-1e-9) {
			t.Fatalf("seed %d: the plane costs %v, below the minimum %v", seed, p.Objective, least)
		}
		if p.Objective < least*(1+1e-9) {
			global++
		}
		if cost(sparse.W[0], sparse.Gamma) < least*(1+1e-9) {
			began++
		}
	}
	t.Logf("%d of %d local minima are global, and %d of the planes where they begin", global, seeds, began)
	if global < 2*began || global < seeds/3 {
		t.Errorf("%d of %d local minima are global, and %d of the planes where they begin", global, seeds, began)
	}
}

// A higher price leaves fewer support vectors, or fewer features. Without a price the machines
// are Sparse.
func TestPrices(t *testing.T) {
	sparse, err := fit(Sparse{}, planeRows(), 1)
	if err != nil {
		t.Fatal(err)
	}
	vectors, features := []int{sparse.SupportVectors()}, []int{sparse.Features()}
	for _, mu := range []float64{1e-12, 0.5, 4, 100} {
		p, err := fit(Minimal{Mu: mu}, planeRows(), 1)
		if err != nil {
			t.Fatal(err)
		}
		q, err := fit(Features{Mu: mu}, planeRows(), 1)
		if err != nil {
			t.Fatal(err)
		}
		vectors, features = append(vectors, p.SupportVectors()), append(features, q.Features())
		if mu < 1e-9 && (math.Abs(p.Objective-sparse.Objective) > 1e-8*sparse.Objective || math.Abs(q.Objective-sparse.Objective) > 1e-8*sparse.Objective) {
			t.Errorf("without a price the objectives are %v and %v, not %v", p.Objective, q.Objective, sparse.Objective)
		}
	}
	t.Logf("support vectors %v, features %v", vectors, features)
	for i := range vectors[1:] {
		if vectors[i+1] > vectors[i] || features[i+1] > features[i] {
			t.Fatalf("support vectors %v or features %v grow with their price", vectors, features)
		}
	}
	if last := len(vectors) - 1; vectors[last] > vectors[0]/2 || features[last] > features[0]/2 {
		t.Errorf("support vectors %v, features %v", vectors, features)
	}
}

// A regulariser, and prices that no program can have, are refused.
func TestPricesRefused(t *testing.T) {
	rows := clouds(31, 10, 1)
	for _, mu := range []float64{-1, math.NaN(), math.Inf(1), 1e308} {
		for _, machine := range []Machine{Minimal{Mu: mu}, Features{Mu: mu}} {
			if _, err := machine.Fit(context.Background(), rows, 10); err == nil || !strings.HasPrefix(err.Error(), "svm: μ is ") {
				t.Errorf("%+v: the error is %v", machine, err)
			}
		}
	}
	for _, begin := range []float64{-1, math.NaN(), math.Inf(1)} {
		if _, err := (Minimal{Begin: begin}).Fit(context.Background(), rows, 1); err == nil || !strings.HasPrefix(err.Error(), "svm: the search begins with") {
			t.Errorf("ν = %v to begin with: the error is %v", begin, err)
		}
	}
	rows.Regulariser = []float64{1}
	for _, machine := range []Machine{Minimal{}, Features{}} {
		if _, err := machine.Fit(context.Background(), rows, 1); err != errRegulariser {
			t.Errorf("%+v: the error is %v", machine, err)
		}
	}
}
