package svm

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/newton"
	"streamd/incremental/parallel"
)

// Refiner makes a machine a study.Refiner. It finds the planes of a model's classes,
// one-vs-rest, by the machine's program with
//
//	ν c_i = C_i = ν·a_c·u_c·v_i
//
// as the cost of a row i of class c: the costs of package newton, with the model's ν, class
// weights a_c and balance, the number u_c of rows that a sampled row stands for, and the row's
// weight v_i. The cost of a row without a label is C_i = ν·u·v_i, and it is such a row in the
// problem of every class. A model with Standardise has w in the coordinates (x − μ)/σ in the
// program, and in the features' own in its planes. The model's own planes are of no account.
//
// Refine holds all rows in memory, ordered by their contents, so that the result depends on the
// set of rows alone. Workers are divided among the planes.
type Refiner struct {
	Name    string // as in Names
	Machine Machine
	// Basis says that the features are coordinates K(x, Z) of points that are rows themselves.
	// Leaving out a row then may take its coordinate away, too.
	Basis bool
}

// mostNumbers bounds the memory of the rows. It is 8 GiB.
const mostNumbers = 1 << 30

// String is the name.
func (r Refiner) String() string { return r.Name }

// Continues implements study.Refiner: a program begins anew.
func (r Refiner) Continues() bool { return false }

// Unlabelled implements study.Refiner.
func (r Refiner) Unlabelled() bool {
	_, ok := r.Machine.(partly)
	return ok
}

// partly marks machines that learn from rows without a label, too.
type partly interface{ partly() }

// Refine implements study.Refiner. Its errors are those of rows, of the machine,
// *incremental.RowError for a number that is not finite, and errors that name a class without
// rows or a row without a class.
func (r Refiner) Refine(ctx context.Context, model *incremental.Model, rows newton.Rows, o newton.Options) (*newton.Result, error) {
	g := gathering{model: model, partly: r.Unlabelled(), columns: make([][]float64, len(model.Features))}
	if err := rows.Pass(ctx, g.add); err != nil {
		return nil, err
	}
	if err := g.arrange(o.Mean, o.Sigma); err != nil {
		return nil, err
	}
	cost, err := g.costs(o.Multipliers)
	if err != nil {
		return nil, err
	}
	workers := o.Workers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	k := len(model.Planes)
	refined := *model
	refined.Planes = make([]incremental.Plane, k)
	out := &newton.Result{Model: &refined, Planes: make([]newton.Report, k), Rows: int64(len(g.class)), Passes: 1}
	for _, class := range g.class {
		if class == noClass {
			out.Unlabelled++
		}
	}
	err = parallel.For(workers, k, func(i int) error {
		label := model.Planes[i].Class
		problem := g.problem(slices.Index(model.Classes, label), cost)
		problem.Regulariser, problem.Basis, problem.Workers = o.Regulariser, r.Basis, max(1, workers/k)
		machine := r.Machine
		if m, ok := machine.(placed); ok {
			machine = m.of(label, o.Mean, o.Sigma)
		}
		p, err := machine.Fit(ctx, problem, model.Options.Nu)
		if err != nil {
			return fmt.Errorf("class %q: %w", label, advised(err, o.Mean != nil))
		}
		refined.Planes[i] = incremental.Plane{Class: label, W: p.W, Gamma: p.Gamma, Condition: math.NaN()}
		for j := range o.Mean { // leave the coordinates (x − μ)/σ
			p.W[j] /= o.Sigma[j]
			refined.Planes[i].Gamma += float64(p.W[j] * o.Mean[j])
		}
		out.Planes[i] = newton.Report{
			Class: label, Objective: p.Objective, Gradient: math.NaN(), Gap: p.Gap, Programs: p.Programs, Iterations: p.Steps,
			SupportVectors: int64(p.SupportVectors()), LeaveOneOut: r.leaveOneOut(p),
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// placed machines depend on the class of the plane, and on the coordinates (x − μ)/σ.
type placed interface {
	of(class string, mean, sigma []float64) Machine
}

// convex marks machines whose plane stays a solution when a row with α = 0 is left out.
type convex interface{ convex() }

// leaveOneOut is the bound (4.14) of Fung 2003 on the share of rows that planes made without
// them have on the wrong side. A row can be such only if its α > 0 or, with a basis of rows, if
// its coordinate is used. For successive programs it is so in any of them.
func (r Refiner) leaveOneOut(p *Plane) float64 {
	held, entered := count(p.held), count(p.entered)
	if _, ok := r.Machine.(convex); ok {
		held, entered = p.SupportVectors(), p.Features()
	} else if p.held == nil {
		return math.NaN()
	}
	if len(p.Alpha) == 0 {
		return math.NaN()
	}
	if r.Basis {
		held += entered
	}
	return min(1, float64(held)/float64(len(p.Alpha)))
}

func count(marked []bool) (sum int) {
	for _, is := range marked {
		if is {
			sum++
		}
	}
	return sum
}

// gathering is the rows of weight > 0 of all blocks.
type gathering struct {
	model  *incremental.Model
	partly bool // rows may have no label

	mutex   sync.Mutex  // guards the rows during a pass
	columns [][]float64 // n × m
	class   []int       // of the model, or noClass
	weight  []float64
}

// noClass is the class of rows without a label.
const noClass = -1

// add copies the rows of a block.
func (g *gathering) add(b *incremental.Block) error {
	n := len(g.columns)
	switch {
	case len(b.Columns) != n:
		return fmt.Errorf("refine on block %v: it has %d features, the model %d", b.Position, len(b.Columns), n)
	case b.Features != nil && !slices.Equal(b.Features, g.model.Features):
		return fmt.Errorf("refine on block %v: its features are not the model's, or in another order", b.Position)
	}
	class := b.ClassesIn(g.model.Classes)
	g.mutex.Lock()
	defer g.mutex.Unlock()
	from := len(g.class)
	if m := int64(from + b.Rows()); m*int64(n) > mostNumbers {
		return fmt.Errorf("refine: %d rows and more of %d features do not fit into %d GiB: refine on a sample of them", m, n, mostNumbers*8>>30)
	}
	for i, code := range b.Codes {
		v := b.Weight(i)
		switch {
		case v == 0:
			continue
		case class[code] < 0 && !(g.partly && b.Classes[code] == incremental.Unlabelled):
			return fmt.Errorf("refine on block %v: row %d is of class %q, which the model does not have", b.Position, i, b.Classes[code])
		}
		g.class, g.weight = append(g.class, class[code]), append(g.weight, v)
		for j, c := range b.Columns {
			x := c.At(i)
			if !finite(x) {
				bad := &incremental.RowError{Row: i, Feature: g.model.Features[j], Reason: fmt.Sprintf("the value is %v", x)}
				return fmt.Errorf("refine on block %v: %w", b.Position, bad)
			}
			g.columns[j] = append(g.columns[j], x)
		}
	}
	return nil
}

// arrange puts the rows into the order of their contents, and into the coordinates (x − μ)/σ if
// mean is not nil.
func (g *gathering) arrange(mean, sigma []float64) error {
	order := make([]int, len(g.class))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		by := cmp.Compare(g.class[a], g.class[b])
		for j := 0; by == 0 && j < len(g.columns); j++ {
			by = cmp.Compare(g.columns[j][a], g.columns[j][b])
		}
		return cmp.Or(by, cmp.Compare(g.weight[a], g.weight[b]))
	})
	g.class, g.weight = ordered(g.class, order), ordered(g.weight, order)
	for j, column := range g.columns {
		column = ordered(column, order)
		for i, x := range column {
			if mean != nil {
				x = (x - mean[j]) / sigma[j]
			}
			column[i] = x + 0 // −0 and 0 compare equal and have to be equal
			if !finite(column[i]) {
				return fmt.Errorf("refine: a number of feature %q is %v after it was standardised", g.model.Features[j], column[i])
			}
		}
		g.columns[j] = column
	}
	return nil
}

func ordered[T any](values []T, order []int) []T {
	out := make([]T, len(values))
	for to, from := range order {
		out[to] = values[from]
	}
	return out
}

// costs are those of rows, and of classes.
type costs struct {
	row  []float64 // a·u·v; without a label u·v
	side []float64 // u Σv of each class
}

// costs weighs the rows, before balance.
func (g *gathering) costs(multipliers map[string]float64) (c costs, err error) {
	k := len(g.model.Classes)
	u, a := make([]float64, k), make([]float64, k)
	for i, label := range g.model.Classes {
		a[i], u[i] = g.model.Options.ClassWeight(label), 1
		if multiplier, ok := multipliers[label]; ok {
			u[i] = multiplier
		}
	}
	without := 1.0
	if multiplier, ok := multipliers[incremental.Unlabelled]; ok {
		without = multiplier
	}
	c.side, c.row = make([]float64, k), make([]float64, len(g.class))
	for i, class := range g.class {
		if class == noClass {
			c.row[i] = without * g.weight[i]
			continue
		}
		c.side[class] += float64(u[class] * g.weight[i])
		c.row[i] = a[class] * u[class] * g.weight[i]
	}
	for i, weight := range c.side {
		if weight == 0 {
			return c, fmt.Errorf("class %q has no rows to refine on", g.model.Classes[i])
		}
	}
	return c, nil
}

// problem is that of one class against the rest.
func (g *gathering) problem(class int, of costs) *Rows {
	own, rest := 1.0, 1.0
	if g.model.Options.Balanced { // half of the weight of all rows for each side
		var others float64
		for c, weight := range of.side {
			if c != class {
				others += weight
			}
		}
		half := (of.side[class] + others) / 2
		own, rest = of.side[class]/half, others/half
	}
	rows := &Rows{D: make([]float64, len(g.class)), Costs: make([]float64, len(g.class))}
	for i, c := range g.class {
		switch c {
		case class:
			rows.D[i], rows.Costs[i] = 1, of.row[i]/own
		case noClass:
			rows.Costs[i] = of.row[i]
		default:
			rows.D[i], rows.Costs[i] = -1, of.row[i]/rest
		}
	}
	for _, column := range g.columns {
		rows.Columns = append(rows.Columns, gram.ColumnOf(column))
	}
	return rows
}
