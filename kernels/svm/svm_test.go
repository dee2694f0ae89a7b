package svm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"streamd/incremental/gram"
	"streamd/kernels/lp"
)

// All machines keep the promises of Machine.
func TestMachines(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			machine, ok := Named(name, Settings{})
			if !ok {
				t.Fatal("no machine has the name")
			}
			testMachine(t, machine)
		})
	}
	if machine, ok := Named("no such machine", Settings{}); ok || machine != nil {
		t.Errorf("a machine of an unknown name: %v", machine)
	}
}

// testMachine runs a machine through all that machines promise.
func testMachine(t *testing.T, machine Machine) {
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			if err := p.broken(machine); err != nil {
				t.Error(err)
			}
		})
	}
}

// promises are what machines promise. broken says how a machine breaks a promise.
var promises = []struct {
	name   string
	broken func(Machine) error
}{
	{"classifies", classifies},
	{"workers", workers},
	{"types of columns", types},
	{"costs", costsCount},
	{"rows of cost 0", withoutCost},
	{"one class", oneClass},
	{"no columns", noColumns},
	{"zero columns", zeroColumns},
	{"equal rows", equalRows},
	{"huge scales", hugeScales},
	{"bad numbers", badNumbers},
	{"context", contextEnds},
}

// clouds returns m rows of n features, of which the first two tell the classes apart.
func clouds(seed uint64, m, n int) *Rows {
	r := rand.New(rand.NewPCG(seed, 3))
	rows, columns := &Rows{D: make([]float64, m)}, make([][]float64, n)
	for j := range columns {
		columns[j] = make([]float64, m)
	}
	for i := range rows.D {
		rows.D[i] = float64(1 - 2*(i&1))
		for j := range columns {
			columns[j][i] = r.NormFloat64()
			if j < 2 {
				columns[j][i] += 3*rows.D[i] + 1
			}
		}
	}
	for _, c := range columns {
		rows.Columns = append(rows.Columns, gram.ColumnOf(c))
	}
	return rows
}

// fit fits a plane and checks what holds for all planes.
func fit(machine Machine, rows *Rows, nu float64) (*Plane, error) {
	p, err := machine.Fit(context.Background(), rows, nu)
	if err != nil {
		return nil, err
	}
	if len(p.W) != len(rows.Columns) || p.Alpha != nil && len(p.Alpha) != len(rows.D) {
		return nil, fmt.Errorf("%d numbers w, %d numbers α for %d columns of %d rows", len(p.W), len(p.Alpha), len(rows.Columns), len(rows.D))
	}
	for _, v := range append([]float64{p.Gamma, p.Objective, p.Gap}, p.W...) {
		if !finite(v) {
			return nil, fmt.Errorf("the plane is not finite: %+v", p)
		}
	}
	for i, a := range p.Alpha {
		if !amount(a) {
			return nil, fmt.Errorf("α of row %d is %v", i, a)
		}
	}
	return p, nil
}

// wrong counts the rows, each with its cost, that a plane has on the wrong side.
func (r *Rows) wrong(p *Plane) (count float64) {
	for i, d := range r.D {
		if d*r.value(p, i) <= 0 {
			count += r.cost(i)
		}
	}
	return count
}

func (r *Rows) value(p *Plane, i int) float64 {
	v := -p.Gamma
	for j, c := range r.Columns {
		v += p.W[j] * c.At(i)
	}
	return v
}

func classifies(machine Machine) error {
	train, test := clouds(1, 300, 6), clouds(2, 2000, 6)
	p, err := fit(machine, train, 1)
	if err != nil {
		return err
	}
	if a, b := train.wrong(p), test.wrong(p); a > 3 || b > 20 { // none to a few by the best plane
		return fmt.Errorf("%v of 300 and %v of 2000 other rows are on the wrong side of %v, %v", a, b, p.W, p.Gamma)
	}
	return nil
}

func workers(machine Machine) error {
	rows := clouds(3, 3000, 5)
	for i := range rows.D {
		if i%9 == 0 {
			rows.D[i] = -rows.D[i]
		}
	}
	var first *Plane
	for _, workers := range []int{1, 2, 7, 0} {
		rows.Workers = workers
		p, err := fit(machine, rows, 0.5)
		if err != nil {
			return err
		}
		if first == nil {
			first = p
		}
		if !reflect.DeepEqual(p, first) {
			return fmt.Errorf("%d workers find another plane than 1", workers)
		}
	}
	return nil
}

// types: columns are of any type and layout.
func types(machine Machine) error {
	a := clouds(4, 200, 3)
	b, c := *a, *a
	b.Columns, c.Columns = nil, nil
	for _, column := range a.Columns {
		narrow, wide := make([]float32, 200), make([]float64, 400)
		for i := range narrow {
			narrow[i] = float32(column.At(i))
			wide[2*i+1] = float64(narrow[i])
		}
		b.Columns = append(b.Columns, gram.ColumnOf(narrow))
		c.Columns = append(c.Columns, gram.StridedColumn(wide, 1, 2, 200))
	}
	p, err := fit(machine, &b, 1)
	if err != nil {
		return err
	}
	q, err := fit(machine, &c, 1)
	if err == nil && !reflect.DeepEqual(p, q) {
		err = errors.New("float32 and interleaved float64 give different planes")
	}
	return err
}

// costsCount: a row of cost 3 counts like three rows.
func costsCount(machine Machine) error {
	a := clouds(5, 120, 3)
	for i := range a.D {
		if i%7 == 0 {
			a.D[i] = -a.D[i]
		}
	}
	var picked []int
	for i := range a.D {
		a.Costs = append(a.Costs, float64(1+i%3))
		for range 1 + i%3 {
			picked = append(picked, i)
		}
	}
	repeated := a.pick(picked)
	repeated.Costs = nil
	return same(machine, a, repeated, 1)
}

func withoutCost(machine Machine) error {
	a := clouds(6, 200, 4)
	var picked []int
	for i := range a.D {
		a.Costs = append(a.Costs, float64(i%4))
		if i%4 == 0 {
			a.D[i] = -a.D[i]
		} else {
			picked = append(picked, i)
		}
	}
	if err := same(machine, a, a.pick(picked), 1); err != nil {
		return err
	}
	p, err := fit(machine, a, 1)
	for i := 0; err == nil && i < len(p.Alpha); i += 4 {
		if p.Alpha[i] != 0 {
			err = fmt.Errorf("row %d of cost 0 has the dual variable %v", i, p.Alpha[i])
		}
	}
	return err
}

// pick returns some of the rows, with their costs.
func (r *Rows) pick(picked []int) *Rows {
	out := &Rows{Regulariser: r.Regulariser}
	for _, c := range r.Columns {
		v := make([]float64, len(picked))
		for i, at := range picked {
			v[i] = c.At(at)
		}
		out.Columns = append(out.Columns, gram.ColumnOf(v))
	}
	for _, at := range picked {
		out.D = append(out.D, r.D[at])
		if r.Costs != nil {
			out.Costs = append(out.Costs, r.Costs[at])
		}
	}
	return out
}

// same compares planes of rows that are the same problem in different words. A program may
// have several solutions; their objective is one.
func same(machine Machine, a, b *Rows, nu float64) error {
	const tolerance = 1e-6 // of the stopping rules of machines
	p, err := fit(machine, a, nu)
	if err != nil {
		return err
	}
	q, err := fit(machine, b, nu)
	if err == nil && math.Abs(p.Objective-q.Objective) > tolerance*math.Abs(p.Objective) {
		err = fmt.Errorf("the objective is %v and, of the same problem, %v", p.Objective, q.Objective)
	}
	return err
}

func oneClass(machine Machine) error {
	for _, d := range []float64{1, -1} {
		rows := clouds(7, 40, 3)
		for i := range rows.D {
			rows.D[i] = d
		}
		p, err := fit(machine, rows, 1)
		if err != nil {
			return err
		}
		if n := rows.wrong(p); n > 0 {
			return fmt.Errorf("%v of 40 rows of one class, %v, are on the other side", n, d)
		}
	}
	return nil
}

func noColumns(machine Machine) error {
	p, err := fit(machine, &Rows{D: []float64{1, -1, 1, 1}}, 1)
	if err == nil && p.Gamma >= 0 {
		err = fmt.Errorf("γ = %v with 3 rows of 4 of class 1", p.Gamma)
	}
	return err
}

// zeroColumns: no feature is used that is 0 in every row that counts, wherever it stands.
func zeroColumns(machine Machine) error {
	for seed := range uint64(8) {
		rows := clouds(80+seed, 100, 6)
		for i := range rows.D {
			rows.Costs = append(rows.Costs, float64(1+i%2))
			if i%5 == 0 {
				rows.D[i] = -rows.D[i] // many rows are at their margins
			}
		}
		rows.Costs[7] = 0
		absent := make([]float64, 100)
		absent[7] = 1
		zeros := map[int]gram.Column{
			0: gram.ColumnOf(make([]float32, 100)), 2: gram.SparseColumn(100, nil, nil),
			4: gram.ColumnOf(absent), 9: gram.ColumnOf(make([]float64, 100)),
		}
		var columns []gram.Column
		for _, c := range rows.Columns {
			for at := len(columns); zeros[at].Len() > 0; at++ {
				columns = append(columns, zeros[at])
			}
			columns = append(columns, c)
		}
		rows.Columns = append(columns, zeros[9])
		p, err := fit(machine, rows, 0.3)
		if err != nil {
			return err
		}
		for j := range zeros {
			if p.W[j] != 0 {
				return fmt.Errorf("w is %v for a column of zeros", p.W[j])
			}
		}
		if n := rows.wrong(p); n > 40 {
			return fmt.Errorf("%v of 149 rows are on the wrong side beside columns of zeros", n)
		}
	}
	return nil
}

// equalRows: all rows are the same but for their labels, two of three of class 1; and all
// columns are the same.
func equalRows(machine Machine) error {
	rows := &Rows{Columns: []gram.Column{gram.ColumnOf(make([]float64, 30)), gram.ColumnOf(ones(30))}}
	for i := range 30 {
		rows.D = append(rows.D, 1)
		if i%3 == 0 {
			rows.D[i] = -1
		}
	}
	p, err := fit(machine, rows, 10)
	if err != nil {
		return err
	}
	if n := rows.wrong(p); n != 10 {
		return fmt.Errorf("%v rows on the wrong side, not the 10 of the rarer label", n)
	}
	rows = clouds(9, 100, 1)
	rows.Columns = []gram.Column{rows.Columns[0], rows.Columns[0], rows.Columns[0]}
	if p, err = fit(machine, rows, 1); err != nil {
		return err
	}
	if n := rows.wrong(p); n > 4 {
		return fmt.Errorf("%v of 100 rows are on the wrong side where columns are the same", n)
	}
	return nil
}

func ones(m int) []float64 {
	v := make([]float64, m)
	for i := range v {
		v[i] = 1
	}
	return v
}

// hugeScales: where sizes leave no digits, an error is right; a plane is finite and classifies.
func hugeScales(machine Machine) error {
	for _, scale := range []float64{1e-12, 1e12, 1e-150, 1e150} {
		rows := clouds(10, 100, 2)
		for j, c := range rows.Columns {
			v := make([]float64, 100)
			for i := range v {
				v[i] = c.At(i)
				if j == 0 || scale > 1e12 || scale < 1e-12 {
					v[i] *= scale
				}
			}
			rows.Columns[j] = gram.ColumnOf(v)
		}
		if _, err := machine.Fit(context.Background(), rows, 1); err != nil {
			continue
		}
		p, err := fit(machine, rows, 1)
		if err != nil {
			return fmt.Errorf("scale %v: %w", scale, err)
		}
		// A tiny feature does not pay its price: half the rows are then right by γ alone, or
		// all are undecided.
		n := 0
		for i, d := range rows.D {
			if d*rows.value(p, i) < 0 {
				n++
			}
		}
		if n > 50 {
			return fmt.Errorf("scale %v: %v of 100 rows are on the wrong side", scale, n)
		}
	}
	return nil
}

func badNumbers(machine Machine) error {
	for what, rows := range map[string]*Rows{
		"a NaN":              {Columns: []gram.Column{gram.ColumnOf([]float64{1, math.NaN()})}, D: []float64{1, -1}},
		"an infinity":        {Columns: []gram.Column{gram.ColumnOf([]float32{float32(math.Inf(1)), 1})}, D: []float64{1, -1}},
		"a label of 2":       {D: []float64{1, 2}},
		"a cost below 0":     {D: []float64{1, -1}, Costs: []float64{1, -1}},
		"a cost that is NaN": {D: []float64{1, -1}, Costs: []float64{1, math.NaN()}},
	} {
		if _, err := machine.Fit(context.Background(), rows, 1); err == nil || !strings.HasPrefix(err.Error(), "svm: ") {
			return fmt.Errorf("%s: the error is %v", what, err)
		}
	}
	if _, semi := machine.(Unlabelled); !semi {
		if _, err := machine.Fit(context.Background(), &Rows{D: []float64{1, 0}}, 1); err == nil {
			return errors.New("a row without a label is not refused")
		}
	}
	for _, nu := range []float64{-1, math.NaN(), math.Inf(1)} {
		if _, err := machine.Fit(context.Background(), clouds(11, 10, 1), nu); err == nil {
			return fmt.Errorf("ν = %v is not refused", nu)
		}
	}
	return nil
}

// contextEnds: a context that has ended, or that ends soon, ends the fit.
func contextEnds(machine Machine) error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := machine.Fit(ended, clouds(12, 500, 4), 1); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the error after the end of the context is %v", err)
	}
	rows := clouds(13, 60_000, 60)
	for i := range rows.D {
		if i%5 == 0 {
			rows.D[i] = -rows.D[i]
		}
	}
	const most = 5 * time.Second
	soon, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := machine.Fit(soon, rows, 1); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the error after 50 ms is %v", err)
	}
	if took := time.Since(begin); took > most {
		return fmt.Errorf("the fit ends %v after its context", took)
	}
	return nil
}

// Wrong machines break the promises: each of these one of them.
func TestWrongMachines(t *testing.T) {
	for _, c := range []struct {
		promise string
		machine changed
	}{
		{"classifies", func(p *Plane, _ *Rows) { p.Gamma = 0.9 * -p.Gamma; p.W[0], p.W[1] = -p.W[0], -p.W[1] }},
		{"workers", func(p *Plane, r *Rows) { p.Gamma += float64(r.Workers) * 1e-15 }},
		{"costs", func(p *Plane, r *Rows) { p.Objective *= float64(len(r.D)) }},
		{"rows of cost 0", func(p *Plane, r *Rows) { p.Alpha[0] = 1 }},
		{"one class", func(p *Plane, r *Rows) { p.Gamma = math.Abs(p.Gamma) }},
		{"no columns", func(p *Plane, r *Rows) { p.Gamma = 0 }},
		{"zero columns", func(p *Plane, r *Rows) { p.W[2] = 1e-18 }},
		{"equal rows", func(p *Plane, r *Rows) { p.Gamma = -p.Gamma; p.W[1] = -p.W[1] }},
		{"huge scales", func(p *Plane, r *Rows) { p.Gamma = math.Inf(1) }},
		{"context", nil},
	} {
		found := false
		for _, p := range promises {
			if p.name != c.promise {
				continue
			}
			found = true
			if p.broken(c.machine) == nil {
				t.Errorf("%s: the wrong machine passes", c.promise)
			}
		}
		if !found {
			t.Errorf("there is no promise %q", c.promise)
		}
	}
}

// changed is Sparse with a change to its planes, or, nil, deaf to its context.
type changed func(*Plane, *Rows)

func (c changed) Fit(_ context.Context, rows *Rows, nu float64) (*Plane, error) {
	if c == nil {
		rows = rows.pick([]int{0, 1, 2})
	}
	p, err := Sparse{}.Fit(context.Background(), rows, nu)
	if err == nil && c != nil {
		c(p, rows)
	}
	return p, err
}

// Settings are those of their machines, and refused for others.
func TestSettings(t *testing.T) {
	for name, want := range map[string]Machine{
		"minimal": Minimal{Mu: 3}, "features": Features{Mu: 3}, "unlabelled": Unlabelled{Mu: 3}, "hinge": nil, "sparse": nil, "nlp": nil,
	} {
		machine, ok := Named(name, Settings{Mu: 3})
		if ok != (want != nil) || ok && machine != want {
			t.Errorf("%s: %+v, %v", name, machine, ok)
		}
		machine, ok = Named(name, Settings{Epsilon: 2, Delta: 5})
		if ok != (name == "nlp") || ok && machine != (NewtonLP{Epsilon: 2, Delta: 5}) {
			t.Errorf("%s: %+v, %v", name, machine, ok)
		}
	}
}

// A program that rounding keeps from its solution says what helps.
func TestAdvice(t *testing.T) {
	other := errors.New("another")
	for _, c := range []struct {
		err    error
		scaled bool
		want   string
	}{
		{lp.ErrNotConverged, false, "lp: not converged: standardise the features or make nu smaller"},
		{ErrNotConverged, false, "svm: not converged: standardise the features or make nu smaller"},
		{ErrNotConverged, true, "svm: not converged: make nu smaller"},
		{other, false, "another"},
	} {
		if got := advised(c.err, c.scaled); got.Error() != c.want || !errors.Is(got, c.err) {
			t.Errorf("%v, want %s", got, c.want)
		}
	}
}
