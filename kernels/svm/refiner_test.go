package svm

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/newton"
	"streamd/incremental/study"
)

// Machines are study.Refiners.
var _ study.Refiner = Refiner{}

// three returns rows of three classes and three features of different scales, in two blocks.
// Some have the weight 0.
func three(seed uint64, m int) newton.Blocks {
	r := rand.New(rand.NewPCG(seed, 4))
	columns := [3][]float64{}
	b := &incremental.Block{Features: []string{"a", "b", "c"}, Classes: []string{"x", "y", "z"}}
	for i := range m {
		c := i % 5 % 3
		b.Codes = append(b.Codes, int32(c))
		b.Weights = append(b.Weights, float64(i%4))
		columns[0] = append(columns[0], 100+10*r.NormFloat64()+20*float64(c&1))
		columns[1] = append(columns[1], r.NormFloat64()+2*float64(c>>1))
		columns[2] = append(columns[2], r.NormFloat64()/100)
	}
	for _, c := range columns {
		b.Columns = append(b.Columns, gram.ColumnOf(c))
	}
	return newton.Blocks{b.Slice(0, m/3), b.Slice(m/3, m)}
}

// solved is the model of the sums of the blocks, with its scale.
func solved(t *testing.T, blocks newton.Blocks, o incremental.Options) (*incremental.Model, newton.Options) {
	t.Helper()
	sums := incremental.NewState(blocks[0].Features)
	var summariser incremental.Summariser
	for _, b := range blocks {
		s, err := summariser.Summarise(b)
		if err != nil {
			t.Fatal(err)
		}
		sums.Add(s)
	}
	moments := sums.Moments()
	model, err := moments.Solve(o)
	if err != nil {
		t.Fatal(err)
	}
	n := newton.Options{Workers: 1}
	if o.Standardise {
		n.Mean, n.Sigma = moments.Scale()
	}
	return model, n
}

// unlabelledBlock returns a block of rows like those of three, none of which has a label.
func unlabelledBlock(seed uint64, m int) *incremental.Block {
	b := *three(seed, 3*m)[1].Slice(0, m)
	b.Classes, b.Codes = []string{"none", incremental.Unlabelled}, slices.Repeat([]int32{1}, m)
	return &b
}

// The planes are those of the machine on rows that are written down by the documented formula.
func TestRefinerFormula(t *testing.T) {
	t.Run("sparse", func(t *testing.T) { testRefinerFormula(t, Sparse{}, three(1, 150)) })
	t.Run("unlabelled", func(t *testing.T) {
		testRefinerFormula(t, Unlabelled{}, append(three(1, 150), unlabelledBlock(7, 90)))
	})
}

func testRefinerFormula(t *testing.T, machine Machine, blocks newton.Blocks) {
	weights, standFor := map[string]float64{"y": 3}, map[string]float64{"x": 2, "z": 5, incremental.Unlabelled: 4}
	for _, o := range []incremental.Options{
		{Nu: 0.01},
		{Nu: 0.3, Standardise: true},
		{Nu: 0.3, Balanced: true, Standardise: true},
		{Nu: 0.03, ClassWeights: weights},
	} {
		model, n := solved(t, blocks, o)
		n.Multipliers = standFor
		got, err := (Refiner{Name: "a name", Machine: machine}).Refine(t.Context(), model, blocks, n)
		if err != nil {
			t.Fatal(err)
		}
		for p, plane := range model.Planes {
			rows, m, unlabelled := &Rows{}, 0, int64(0)
			columns := make([][]float64, 3)
			var own, rest float64
			each := func(visit func(b *incremental.Block, i int, label string, u float64)) {
				for _, b := range blocks {
					for i, code := range b.Codes {
						label := b.Classes[code]
						u := 1.0
						if v, ok := standFor[label]; ok {
							u = v
						}
						if b.Weights[i] > 0 {
							visit(b, i, label, u)
						}
					}
				}
			}
			each(func(b *incremental.Block, i int, label string, u float64) {
				m++
				switch label {
				case plane.Class:
					own += u * b.Weights[i]
				case incremental.Unlabelled:
					unlabelled++
				default:
					rest += u * b.Weights[i]
				}
			})
			each(func(b *incremental.Block, i int, label string, u float64) {
				d, cost, side := -1.0, o.ClassWeight(label)*u*b.Weights[i], rest
				if label == plane.Class {
					d, side = 1, own
				}
				if o.Balanced {
					cost *= (own + rest) / 2 / side
				}
				if label == incremental.Unlabelled {
					d, cost = 0, u*b.Weights[i]
				}
				rows.D, rows.Costs = append(rows.D, d), append(rows.Costs, cost)
				for j, c := range b.Columns {
					x := c.At(i)
					if o.Standardise {
						x = (x - n.Mean[j]) / n.Sigma[j]
					}
					columns[j] = append(columns[j], x)
				}
			})
			for _, c := range columns {
				rows.Columns = append(rows.Columns, gram.ColumnOf(c))
			}
			want, err := machine.Fit(t.Context(), rows, o.Nu)
			if err != nil {
				t.Fatal(err)
			}
			report, q := got.Planes[p], got.Model.Planes[p]
			if math.Abs(report.Objective-want.Objective) > 1e-9*want.Objective || got.Rows != int64(m) || got.Unlabelled != unlabelled || report.Class != plane.Class || q.Class != plane.Class {
				t.Errorf("%+v, plane %d: objective %v of %d rows, not %v of %d", o, p, report.Objective, got.Rows, want.Objective, m)
			}
			for i := range 3 { // values at three rows
				b := blocks[0]
				v, w := -q.Gamma, -want.Gamma
				for j, c := range b.Columns {
					x := c.At(i)
					v += q.W[j] * x
					if o.Standardise {
						x = (x - n.Mean[j]) / n.Sigma[j]
					}
					w += want.W[j] * x
				}
				if math.Abs(v-w) > 1e-7*(1+math.Abs(w)) {
					t.Errorf("%+v, plane %d: a row has the value %v, not %v", o, p, v, w)
				}
			}
			if want.Features() != q.Features() || report.SupportVectors == 0 || report.Programs != want.Programs || !(math.Abs(report.Gap) <= 1e-8*report.Objective) {
				t.Errorf("%+v, plane %d: report %+v of a plane of %d features", o, p, report, q.Features())
			}
		}
	}
}

// Planes have the same bits for any order and any blocks of the rows, and for any number of
// workers.
func TestRefinerSet(t *testing.T) {
	blocks := three(2, 300)
	model, n := solved(t, blocks, incremental.Options{Nu: 0.1, Standardise: true, Balanced: true})
	n.Multipliers = map[string]float64{"x": 1.7}
	all := *blocks[0]
	all.Columns = slices.Clone(all.Columns)
	for j := range all.Columns {
		var c []float64
		for _, b := range blocks {
			for i := range b.Codes {
				c = append(c, b.Columns[j].At(i))
			}
		}
		all.Columns[j] = gram.ColumnOf(c)
	}
	all.Codes, all.Weights = slices.Concat(blocks[0].Codes, blocks[1].Codes), slices.Concat(blocks[0].Weights, blocks[1].Weights)
	all.Classes = append(all.Classes, incremental.Unlabelled)
	labelled := all.Codes
	r := rand.New(rand.NewPCG(1, 1))
	for _, name := range Names() {
		machine, _ := Named(name, Settings{})
		refiner := Refiner{Name: name, Machine: machine}
		if all.Codes = labelled; refiner.Unlabelled() {
			all.Codes = slices.Clone(labelled)
			for i := range all.Codes {
				if i%3 > 0 {
					all.Codes[i] = 3
				}
			}
		}
		want, err := refiner.Refine(t.Context(), model, newton.Blocks{&all}, n)
		if err != nil {
			t.Fatal(err)
		}
		for workers := range 3 {
			shuffled := all.Pick(r.Perm(300))
			shuffled.Classes = []string{"z", "", "y", "x"} // other codes of the same labels
			for i, code := range shuffled.Codes {
				shuffled.Codes[i] = [4]int32{3, 2, 0, 1}[code]
			}
			n.Workers = workers
			got, err := refiner.Refine(t.Context(), model, newton.Blocks{shuffled.Slice(0, 70), shuffled.Slice(70, 70), shuffled.Slice(70, 300)}, n)
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range got.Model.Planes {
				if q := want.Model.Planes[i]; !reflect.DeepEqual(p.W, q.W) || p.Gamma != q.Gamma {
					t.Fatalf("%s: the rows in another order have another plane: %v, not %v", name, p, q)
				}
			}
		}
	}
}

// No row with α = 0 is on the wrong side of a plane that is made without it: the bound (4.14) of
// Fung 2003 holds.
func TestLeaveOneOut(t *testing.T) {
	rows := clouds(30, 60, 3)
	for i := range rows.D {
		if i%8 == 0 {
			rows.D[i] = -rows.D[i]
		}
	}
	for _, nu := range []float64{0.05, 1} {
		p, err := Sparse{}.Fit(t.Context(), rows, nu)
		if err != nil {
			t.Fatal(err)
		}
		wrong := 0
		for i := range rows.D {
			without := *rows
			without.Costs = ones(len(rows.D))
			without.Costs[i] = 0
			q, err := Sparse{}.Fit(t.Context(), &without, nu)
			if err != nil {
				t.Fatal(err)
			}
			if rows.D[i]*rows.value(q, i) <= 0 {
				wrong++
				if p.Alpha[i] == 0 {
					t.Errorf("ν = %v: row %d has α = 0 and is on the wrong side without it", nu, i)
				}
			}
		}
		bound := Refiner{Machine: Sparse{}}.leaveOneOut(p)
		if share := float64(wrong) / 60; !(share <= bound) || bound > 0.5 {
			t.Errorf("ν = %v: %v of the rows are wrong, the bound is %v", nu, share, bound)
		}
		with := Refiner{Machine: Sparse{}, Basis: true}.leaveOneOut(p)
		if want := bound + float64(p.Features())/60; math.Abs(with-want) > 1e-15 {
			t.Errorf("ν = %v: the bound with a basis is %v, not %v", nu, with, want)
		}
	}
	if bound := (Refiner{Machine: changed(nil)}).leaveOneOut(&Plane{Alpha: []float64{1}}); !math.IsNaN(bound) {
		t.Errorf("a machine without the property has the bound %v", bound)
	}
}

func TestRefinerErrors(t *testing.T) {
	blocks := three(3, 60)
	model, n := solved(t, blocks, incremental.Options{Nu: 1})
	refiner := Refiner{Name: "sparse", Machine: Sparse{}}
	change := func(change func(b *incremental.Block)) newton.Blocks {
		b := *blocks[0]
		b.Columns, b.Classes = append([]gram.Column{}, b.Columns...), append([]string{}, b.Classes...)
		change(&b)
		return newton.Blocks{blocks[1], &b}
	}
	for _, c := range []struct {
		rows newton.Blocks
		want string
	}{
		{change(func(b *incremental.Block) { b.Columns = b.Columns[:2] }), "it has 2 features, the model 3"},
		{change(func(b *incremental.Block) { b.Features = []string{"a", "c", "b"} }), "its features are not the model's"},
		{change(func(b *incremental.Block) { b.Classes[1] = "w" }), `row 1 is of class "w"`},
		{append(newton.Blocks{unlabelledBlock(3, 9)}, blocks...), `row 0 is of class ""`},
		{change(func(b *incremental.Block) { b.Columns[1] = gram.ColumnOf(append(make([]float64, 19), math.NaN())) }), `row 19: feature "b": the value is NaN`},
		{newton.Blocks{blocks[0].Pick([]int{1, 2, 3, 5, 6})}, ""},
		{newton.Blocks{blocks[0].Pick([]int{1, 6})}, `class "x" has no rows`},
	} {
		_, err := refiner.Refine(t.Context(), model, c.rows, n)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("the error is %v, not %q", err, c.want)
		}
	}
	n.Regulariser = make([]float64, 6)
	if _, err := refiner.Refine(t.Context(), model, blocks, n); !errors.Is(err, errRegulariser) {
		t.Errorf("with a regulariser the error is %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := refiner.Refine(ended, model, blocks, n); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context the error is %v", err)
	}
}

// Successive programs end at the same plane without a row that none of them holds, or a
// coordinate that none of them uses.
func TestLeaveOneOutOfSuccessivePrograms(t *testing.T) {
	same := func(p, q *Plane) bool {
		for j := range p.W {
			if !(math.Abs(p.W[j]-q.W[j]) <= 1e-8) {
				return false
			}
		}
		return math.Abs(p.Gamma-q.Gamma) <= 1e-8
	}
	for _, c := range []struct {
		machine Machine
		rows    *Rows
		nu      float64
	}{
		{Minimal{Begin: 0.1}, planeRows(), 1},
		{Features{}, planeRows(), 0.1},
		{Minimal{Begin: 1}, boardRows(), 10},
	} {
		p, err := c.machine.Fit(t.Context(), c.rows, c.nu)
		if err != nil {
			t.Fatal(err)
		}
		free := 0
		for i, d := range c.rows.D {
			if p.held[i] {
				continue
			}
			free++
			without := *c.rows
			without.Costs = ones(len(c.rows.D))
			without.Costs[i] = 0
			q, err := c.machine.Fit(t.Context(), &without, c.nu)
			if err != nil {
				t.Fatal(err)
			}
			if !same(p, q) || d*c.rows.value(q, i) < 1-1e-8 {
				t.Errorf("%T: row %d, which no program holds, has the value %v without it", c.machine, i, d*c.rows.value(q, i))
			}
		}
		for j, entered := range p.entered {
			if entered {
				continue
			}
			free++
			without := *c.rows
			without.Columns = slices.Clone(without.Columns)
			without.Columns[j] = gram.ColumnOf(make([]float64, len(c.rows.D)))
			q, err := c.machine.Fit(t.Context(), &without, c.nu)
			if err != nil {
				t.Fatal(err)
			}
			if !same(p, q) {
				t.Errorf("%T: without coordinate %d, which no program uses, the plane is another", c.machine, j)
			}
		}
		m := len(c.rows.D)
		bound := Refiner{Machine: c.machine, Basis: true}.leaveOneOut(p)
		if want := float64(m+len(p.W)-free) / float64(m); bound != min(1, want) || bound <= float64(p.SupportVectors())/float64(m) || bound > 0.9 {
			t.Errorf("%T: the bound is %v, of %d rows %d may be missed", c.machine, bound, m, m+len(p.W)-free)
		}
		t.Logf("%T: bound %.3f, %d of %d support vectors", c.machine, bound, p.SupportVectors(), m)
	}
}
