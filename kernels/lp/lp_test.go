package lp

import (
	"context"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"gonum.org/v1/gonum/mat"
	gonumlp "gonum.org/v1/gonum/optimize/convex/lp"
	"pgregory.net/rapid"

	"streamd/incremental/gram"
)

// accuracy is the tolerance of optimality conditions, relative to the sizes of their
// terms.
const accuracy = 1e-8

// A reporter is a *testing.T or a *rapid.T.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// dense is a program with its columns.
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

func (p dense) penalty(j int) float64 {
	switch t := len(p.k); {
	case j == t:
		return 0
	case j > t:
		return p.Variables[j-t-1].Penalty
	case p.Penalties != nil:
		return p.Penalties[j]
	case p.Quadratic != nil:
		return 0
	}
	return 1
}

func (p dense) linear(j int) (f float64) {
	if j < len(p.Linear) {
		f = p.Linear[j]
	}
	if j > len(p.k) {
		f += p.Variables[j-len(p.k)-1].Cost
	}
	return f
}

// quadratic returns Qx and the sizes of its sums.
func (p dense) quadratic(x []float64) (qx, size []float64) {
	qx, size = make([]float64, len(x)), make([]float64, len(x))
	at := 0
	for i := 0; at < len(p.Quadratic); i++ {
		for j := 0; j <= i; j++ {
			add := func(i, j int) {
				qx[i] += p.Quadratic[at] * x[j]
				size[i] += math.Abs(p.Quadratic[at] * x[j])
			}
			if add(i, j); i != j {
				add(j, i)
			}
			at++
		}
	}
	return qx, size
}

func (p dense) variables() int { return len(p.k) + 1 + len(p.Variables) }

// row returns the extra row k with its zeros.
func (p dense) row(k int) []float64 {
	a := make([]float64, p.variables())
	for _, term := range p.Rows[k].Terms {
		a[term.Variable] += term.Value
	}
	return a
}

// optimal checks that both solutions are feasible and complementary, and that their
// objectives are equal and as reported.
func (p dense) optimal(t reporter, s *Solution) {
	t.Helper()
	n := p.variables()
	x := append(append(append([]float64{}, s.U...), s.Gamma), s.S...)
	if len(x) != n || len(s.E) != len(p.D) || len(s.Alpha) != len(p.D) || len(s.Beta) != len(p.Rows) || len(s.Slack) != len(p.Rows) {
		t.Fatalf("lengths of the solution: %d, %d, %d, %d, %d", len(x), len(s.E), len(s.Alpha), len(s.Beta), len(s.Slack))
	}
	var objective, dual, size, most float64
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
		most = max(most, c)
		if s.Alpha[i] < 0 || s.Alpha[i] > c*(1+1e-15) {
			t.Errorf("row %d: α = %v, cost %v", i, s.Alpha[i], c)
		}
		objective += c * s.E[i]
		dual += s.Alpha[i]
		size += c
	}
	for k, row := range p.Rows {
		a := p.row(k)
		value, valueSize := 0.0, math.Abs(row.Bound)
		for j := range a {
			value += a[j] * x[j]
			valueSize += math.Abs(a[j] * x[j])
			balance[j] += a[j] * s.Beta[k]
			balanceSize[j] += math.Abs(a[j] * s.Beta[k])
		}
		missing := row.Bound - value
		if !row.Equal {
			missing = max(missing, 0)
		}
		if math.Abs(missing-s.Slack[k]) > accuracy*(1+valueSize) || row.Cost == Hard && s.Slack[k] > accuracy*(1+valueSize) {
			t.Errorf("extra row %d: missed by %v, said to be %v", k, missing, s.Slack[k])
		}
		if math.Abs(s.Beta[k]) > row.Cost*(1+1e-15) || !row.Equal && s.Beta[k] < 0 {
			t.Errorf("extra row %d: β = %v, cost %v", k, s.Beta[k], row.Cost)
		}
		if row.Cost != Hard {
			objective += row.Cost * math.Abs(s.Slack[k])
		}
		dual += row.Bound * s.Beta[k]
		size += math.Abs(row.Bound * s.Beta[k])
	}
	columnSize := func(j int) float64 {
		if j < len(p.k) {
			return 1 + maxAbs(p.k[j])
		}
		return 2
	}
	var largest float64
	qx, qxSize := p.quadratic(x)
	for j := range x {
		largest = max(largest, balanceSize[j], p.penalty(j), qxSize[j])
		if gram.PackedLen(j) < len(p.Quadratic) { // rounding of x, which is about 1
			largest = max(largest, p.Quadratic[gram.PackedLen(j)+j])
			size += p.Quadratic[gram.PackedLen(j)+j]
		}
	}
	for j := range x {
		g := p.penalty(j)
		objective += g*math.Abs(x[j]) + p.linear(j)*x[j]
		objective += qx[j] * x[j] / 2
		dual -= qx[j] * x[j] / 2
		size += (g + math.Abs(p.linear(j)) + qxSize[j]) * maxAbs(x)
		rounding := 1e-11 * largest
		if p.Quadratic != nil { // β is as exact as the largest term allows
			rounding += 1e-12 * max(most, largest) * columnSize(j)
		}
		// f + Qx − g ≤ A'β ≤ f + Qx + g.
		if off := math.Abs(balance[j]-p.linear(j)-qx[j]) - g; off > accuracy*(g+math.Abs(p.linear(j)))+rounding {
			t.Errorf("variable %d: balance of the dual variables is off by %v (g = %v, sum %v)", j, off, g, balanceSize[j])
		}
	}
	if math.Abs(objective-s.Objective) > accuracy*math.Abs(objective)+1e-13*size {
		t.Errorf("objective %v, said to be %v", objective, s.Objective)
	}
	if p.Quadratic != nil { // it ends at a point that is on all its kinks but for rounding
		size += 20 * largest * (1 + maxAbs(x))
	}
	if math.Abs(objective-dual) > accuracy*math.Abs(objective)+1e-12*size {
		t.Errorf("objective %v, dual objective %v", objective, dual)
	}
	// A vertex has at most as many basic terms as variables. A dual variable strictly
	// between its bounds is basic.
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
	if between > n || p.Quadratic == nil && len(p.Rows) == 0 && nonzero > len(p.D) {
		t.Errorf("%d of %d variables are not zero, and %d dual variables of %d rows between their bounds", nonzero, n, between, len(p.D))
	}
}

// simplex solves the program by gonum, in standard form: x = x⁺ − x⁻, and two slacks for
// each row. Hard rows must not be equalities.
func (p dense) simplex() (float64, error) {
	n, m, rows := p.variables(), len(p.D), len(p.Rows)
	columns := 2*n + 2*m + 2*rows
	a := mat.NewDense(max(m+rows, 1), columns, nil)
	b := make([]float64, max(m+rows, 1))
	c := make([]float64, columns)
	for j := range n {
		c[j], c[n+j] = p.penalty(j)+p.linear(j), p.penalty(j)-p.linear(j)
	}
	set := func(i int, row []float64, bound float64) {
		for j, v := range row {
			a.Set(i, j, v)
			a.Set(i, n+j, -v)
		}
		a.Set(i, 2*n+2*i, 1)
		a.Set(i, 2*n+2*i+1, -1)
		b[i] = bound
	}
	row := make([]float64, n)
	for i, d := range p.D {
		clear(row)
		for j, v := range p.k {
			row[j] = d * v[i]
		}
		row[len(p.k)] = -d
		set(i, row, 1)
		c[2*n+2*i] = p.cost(i)
	}
	for k, extra := range p.Rows {
		i := m + k
		set(i, p.row(k), extra.Bound)
		if extra.Cost == Hard { // gonum refuses a column of zeros: use −1 twice
			a.Set(i, 2*n+2*i, -1)
			continue
		}
		c[2*n+2*i] = extra.Cost
		if extra.Equal {
			c[2*n+2*i+1] = extra.Cost
		}
	}
	value, _, err := gonumlp.Simplex(c, a, b, 1e-10, nil)
	return value, err
}

// drawProgram draws a program of small integers, with ties, duplicates and zeros, or of
// any numbers.
func drawProgram(r *rapid.T, quadratic bool) dense {
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
	if rapid.Bool().Draw(r, "penalties") {
		for range columns {
			p.Penalties = append(p.Penalties, float64(rng.IntN(3)))
		}
	}
	linear := rapid.Bool().Draw(r, "linear costs")
	for range rapid.IntRange(0, 2).Draw(r, "variables") {
		v := Variable{Penalty: float64(rng.IntN(3))}
		if linear {
			v.Cost = float64(rng.IntN(5) - 2)
		}
		p.Variables = append(p.Variables, v)
	}
	for range rapid.IntRange(0, 4).Draw(r, "rows") {
		row := Row{Equal: rng.IntN(3) == 0, Bound: number(), Cost: rapid.SampledFrom([]float64{Hard, Hard, 0, 1, 30}).Draw(r, "cost")}
		for j := range p.variables() {
			if rng.IntN(3) > 0 {
				row.Terms = append(row.Terms, Term{j, number()})
			}
		}
		p.Rows = append(p.Rows, row)
	}
	if quadratic {
		drawQuadratic(r, rng, p.Program)
	}
	return p
}

// drawQuadratic draws a quadratic term of any order and rank, and linear costs of u and γ.
func drawQuadratic(r *rapid.T, rng *rand.Rand, p *Program) {
	order := rapid.IntRange(0, len(p.Columns)+1+len(p.Variables)).Draw(r, "order")
	p.Quadratic = make([]float64, gram.PackedLen(order))
	factor := make([][]float64, rapid.IntRange(0, order+1).Draw(r, "rank"))
	for k := range factor {
		factor[k] = make([]float64, order)
		for j := range factor[k] {
			factor[k][j] = float64(rng.IntN(5) - 2)
		}
	}
	for i := range order {
		for j := range i + 1 {
			for _, v := range factor {
				p.Quadratic[gram.PackedLen(i)+j] += v[i] * v[j]
			}
		}
	}
	if rapid.Bool().Draw(r, "identity") {
		for i := range order {
			p.Quadratic[gram.PackedLen(i)+i]++
		}
	}
	if rapid.Bool().Draw(r, "f") {
		for range rng.IntN(len(p.Columns) + 2) {
			p.Linear = append(p.Linear, float64(rng.IntN(5)-2))
		}
	}
}

// TestMain sets the seed and the number of the random programs, unless flags do. Longer runs
// have -rapid.checks 1000000. Of as many quadratic programs about three, with columns that
// differ by factors beyond 10^6, come to a wrong or no end.
func TestMain(m *testing.M) {
	flag.Parse()
	for name, value := range map[string]string{"rapid.seed": "1", "rapid.checks": "3000"} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			if err := f.Value.Set(value); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}

// Each outcome comes with its proof, for programs of all kinds: dual variables of equal
// objective, multipliers of rows that contradict each other, or a direction in which the
// objective falls.
func TestPrograms(t *testing.T)          { testPrograms(t, false) }
func TestQuadraticPrograms(t *testing.T) { testPrograms(t, true) }

func testPrograms(t *testing.T, quadratic bool) {
	outcomes := map[error]int{}
	property := func(r *rapid.T) {
		p := drawProgram(r, quadratic)
		s, err := p.Solve(context.Background(), 1)
		outcomes[err]++
		switch {
		case err == nil:
			p.optimal(r, s)
			if !quadratic {
				p.restarts(r, s)
			}
		case errors.Is(err, ErrInfeasible):
			p.infeasible(r, s)
		case errors.Is(err, ErrUnbounded):
			p.unbounded(r, s)
		default:
			r.Error(err)
		}
		if r.Failed() {
			r.Fatalf("%+v, K = %v", *p.Program, p.k)
		}
	}
	rapid.Check(t, property)
	for _, err := range []error{nil, ErrInfeasible, ErrUnbounded} {
		if outcomes[err] == 0 {
			t.Errorf("no program's outcome was %v, of %v", err, outcomes)
		}
	}
}

// restarts checks that a program with other costs ends alike from the solution and from none.
func (p dense) restarts(t *rapid.T, from *Solution) {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "costs' seed"), 2))
	q := *p.Program
	q.Nu *= rapid.SampledFrom([]float64{1, 0.3, 100}).Draw(t, "factor of nu")
	q.Costs, q.Penalties = make([]float64, len(q.D)), make([]float64, len(q.Columns))
	for i := range q.Costs {
		q.Costs[i] = float64(rng.IntN(4))
	}
	for j := range q.Penalties {
		q.Penalties[j] = float64(rng.IntN(3))
	}
	anew, want := q.Solve(context.Background(), 1)
	q.Start = from
	s, err := q.Solve(context.Background(), 1)
	if !errors.Is(err, want) {
		t.Errorf("%v from a solution, %v from none", err, want)
	}
	if err == nil {
		dense{&q, p.k}.optimal(t, s)
		if math.Abs(s.Objective-anew.Objective) > accuracy*(1+math.Abs(anew.Objective)) {
			t.Errorf("objective %v from a solution, %v from none", s.Objective, anew.Objective)
		}
	}
}

// infeasible checks the multipliers that prove infeasibility: Σβa = 0, Σβb > 0.
func (p dense) infeasible(t reporter, s *Solution) {
	t.Helper()
	sum, size := make([]float64, p.variables()), 0.0
	var bound float64
	for k, row := range p.Rows {
		if row.Cost != Hard && s.Beta[k] != 0 || !row.Equal && s.Beta[k] < 0 {
			t.Errorf("extra row %d, %+v: multiplier %v", k, row, s.Beta[k])
		}
		for j, a := range p.row(k) {
			sum[j] += s.Beta[k] * a
			size = max(size, math.Abs(s.Beta[k]*a))
		}
		bound += s.Beta[k] * row.Bound
	}
	for j := range sum {
		if math.Abs(sum[j]) > 1e-12*size {
			t.Errorf("variable %d: the multipliers leave %v", j, sum[j])
		}
	}
	if !(bound > accuracy) {
		t.Errorf("the multipliers prove %v ≤ 0", bound)
	}
}

// unbounded checks that the objective falls without end along the direction.
func (p dense) unbounded(t reporter, s *Solution) {
	t.Helper()
	x := append(append(append([]float64{}, s.U...), s.Gamma), s.S...)
	var slope, size float64
	for i, d := range p.D {
		margin := -d * s.Gamma
		for j, v := range p.k {
			margin += d * v[i] * x[j]
		}
		slope += p.cost(i) * max(0, -margin)
	}
	for k, row := range p.Rows {
		value := 0.0
		for j, a := range p.row(k) {
			value += a * x[j]
			size = max(size, math.Abs(a)*maxAbs(x))
		}
		if !row.Equal {
			value = min(value, 0)
		}
		if row.Cost == Hard {
			if math.Abs(value) > 1e-9*size {
				t.Errorf("extra row %d, %+v: the direction leads out by %v", k, row, value)
			}
			continue
		}
		slope += row.Cost * math.Abs(value)
	}
	for j, v := range x {
		slope += p.penalty(j)*math.Abs(v) + p.linear(j)*v
	}
	qx, qxSize := p.quadratic(x)
	for j := range qx {
		if math.Abs(qx[j]) > 1e-9*(qxSize[j]+maxAbs(x)*float64(1+len(p.Quadratic))) {
			t.Errorf("variable %d: the direction has a curvature of %v", j, qx[j])
		}
	}
	if !(slope < 0) {
		t.Errorf("the objective's slope is %v", slope)
	}
}
