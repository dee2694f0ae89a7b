package incremental

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"streamd/incremental/gram"
)

// solverTable has weights, and features far from 0.
func solverTable(r *rand.Rand, m, n, k int) table {
	rows := randomTable(r, m, n, k)
	for i := range rows.x {
		rows.weights = append(rows.weights, float64(r.IntN(4))/2)
		for j := range rows.x[i] {
			rows.x[i][j] = rows.x[i][j]*float64(j+1) + 100
		}
	}
	return rows
}

// sides calls visit with a plane's rows: their coordinates, sides, and weights with those of the
// class and of balance.
func (t table) sides(class string, o Options, mean, sigma []float64, visit func(x []float64, d, weight float64)) {
	var own, all float64
	for i := range t.x {
		all += t.weights[i]
		if t.label[i] == class {
			own += t.weights[i]
		}
	}
	for i, row := range t.x {
		d, weight := -1.0, t.weights[i]*o.ClassWeight(t.label[i])
		if t.label[i] == class {
			d = 1
		}
		if o.Balanced {
			weight *= all / 2 / map[float64]float64{1: own, -1: all - own}[d]
		}
		x := make([]float64, len(row))
		for j := range x {
			x[j] = row[j]
			if o.Standardise {
				x[j] = (x[j] - mean[j]) / sigma[j]
			}
		}
		visit(x, d, weight)
	}
}

var solverOptions = []Options{
	{Nu: 1}, {Nu: 1, Standardise: true}, {Nu: 1, Balanced: true, Standardise: true},
	{Nu: 1, ClassWeights: map[string]float64{"c1": 3}}, {Nu: 1, Balanced: true, ClassWeights: map[string]float64{"c0": 0.5}},
}

// Planes of means are those of loops over the rows: u = (ν/2) Σ a v d x and γ = −(ν/2) Σ a v d with
// ν = 4/Σav. ν of the options is without effect, for one ν and for a path.
func TestMeansAreThoseOfTheRows(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(31, seed))
		n, k := 1+r.IntN(5), 2+int(seed%3)
		rows := solverTable(r, 150, n, k)
		m := sumOf(n, blocksOf(t, r, rows)...).Moments()
		mean, sigma := m.Scale()
		for _, o := range solverOptions {
			o.Solver = Means{}
			model, err := m.Solve(o)
			if err != nil {
				t.Fatal(err)
			}
			if len(model.Planes) != len(m.Classes())-firstPlane(k) {
				t.Fatalf("%d planes for %d classes", len(model.Planes), k)
			}
			for _, p := range model.Planes {
				var mass, gamma float64
				w := make([]float64, n)
				rows.sides(p.Class, o, mean, sigma, func(x []float64, d, weight float64) {
					mass += weight
					gamma -= weight * d
					for j := range x {
						w[j] += weight * d * x[j]
					}
				})
				gamma *= 2 / mass
				for j := range w {
					w[j] *= 2 / mass
					if o.Standardise {
						w[j] /= sigma[j]
						gamma += w[j] * mean[j]
					}
				}
				for j := range w {
					if math.Abs(w[j]-p.W[j]) > 1e-11*(1+math.Abs(w[j])) {
						t.Errorf("seed %d, %+v, plane %s: w%d is %v, of the rows %v", seed, o, p.Class, j, p.W[j], w[j])
					}
				}
				if math.Abs(gamma-p.Gamma) > 1e-10*(1+math.Abs(gamma)) {
					t.Errorf("seed %d, %+v, plane %s: γ is %v, of the rows %v", seed, o, p.Class, p.Gamma, gamma)
				}
				if o.Balanced && o.ClassWeights == nil && !o.Standardise && p.Gamma != 0 {
					t.Errorf("seed %d: γ is %v with balance", seed, p.Gamma)
				}
			}
			path, err := m.Path(o, []float64{1e-3, 1, 7})
			if err != nil {
				t.Fatal(err)
			}
			o.Nu = 1e5
			other, err := m.Solve(o)
			if err != nil {
				t.Fatal(err)
			}
			withHat, hat, err := m.SolveWithHat(o)
			if err != nil || hat == nil {
				t.Fatal(err)
			}
			for _, same := range append(path, other, withHat) {
				if fmt.Sprintf("%x", same.Planes) != fmt.Sprintf("%x", model.Planes) {
					t.Errorf("seed %d: ν = %v changes the planes", seed, same.Options.Nu)
				}
			}
			if path[2].Options.Nu != 7 || path[2].Options.Solver != o.Solver {
				t.Errorf("a path has the options %+v", path[2].Options)
			}
		}
	}
}

// asked is a Solver that keeps what it is asked.
type asked struct{ programs *[]Program }

func (asked) String() string          { return "asked" }
func (asked) Uses() (matrix, nu bool) { return true, true }
func (s asked) Plane(p *Program, nu float64) ([]float64, error) {
	*s.programs = append(*s.programs, *p)
	z := make([]float64, len(p.Right))
	z[0] = nu
	return z, nil
}

// A program's squared error is that of the rows in its coordinates, at any plane.
func TestProgramsAreThoseOfTheRows(t *testing.T) {
	r := rand.New(rand.NewPCG(32, 1))
	for _, k := range []int{2, 3} {
		const n = 4
		rows := solverTable(r, 120, n, k)
		m := sumOf(n, blocksOf(t, r, rows)...).Moments()
		for _, o := range solverOptions {
			var programs []Program
			o.Solver = asked{&programs}
			models, err := m.Path(o, []float64{2, 5})
			if err != nil {
				t.Fatal(err)
			}
			if want := 2 * len(models[0].Planes); len(programs) != want {
				t.Fatalf("%d programs, want %d", len(programs), want)
			}
			for i, p := range programs {
				z := make([]float64, n+1)
				for j := range z {
					z[j] = r.NormFloat64()
				}
				got, want := p.Mass, 0.0
				at := 0
				for j := range z {
					got -= 2 * z[j] * p.Right[j]
					for k := range j {
						got += 2 * z[j] * z[k] * p.Matrix[at+k]
					}
					got += z[j] * z[j] * p.Matrix[at+j]
					at += j + 1
				}
				rows.sides(p.Class, o, p.Mean, p.Sigma, func(x []float64, d, weight float64) {
					e := -z[n] - d
					for j := range x {
						e += z[j] * x[j]
					}
					want += weight * e * e
				})
				if math.Abs(got-want) > 1e-9*want {
					t.Errorf("%+v, plane %s: the squared error is %v, of the rows %v", o, p.Class, got, want)
				}
				plane, nu := models[i%2].Planes[i/2], models[i%2].Options.Nu
				if o.Standardise {
					nu /= p.Sigma[0]
				}
				if plane.Class != p.Class || math.Abs(plane.W[0]-nu) > 1e-15*nu {
					t.Errorf("plane %s is %v, want w1 = %v", plane.Class, plane, nu)
				}
			}
		}
	}
}

// Missing values count as means for a solver, too: the planes are those of imputed rows.
func TestMeansImpute(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 1))
	const m = 60
	var x, missing, y []float64
	b := &Block{Features: []string{"x", "x missing", "y"}, Classes: []string{"a", "b"}}
	var sum, there float64
	for i := range m {
		x, missing, y = append(x, r.NormFloat64()+float64(i%2)), append(missing, 0), append(y, r.NormFloat64()-float64(i%2))
		if i%5 == 0 {
			x[i], missing[i] = 0, 1
		} else {
			sum, there = sum+x[i], there+1
		}
		b.Codes = append(b.Codes, int32(i%2))
	}
	b.Columns = []gram.Column{gram.ColumnOf(x), gram.ColumnOf(missing), gram.ColumnOf(y)}
	state := NewState(b.Features)
	state.Add(summarise(t, b))
	o := Options{Nu: 1, Standardise: true, Mean: []string{"x"}, Solver: Means{}}
	got, err := state.Moments().Solve(o)
	if err != nil {
		t.Fatal(err)
	}
	filled := append([]float64(nil), x...)
	for i := range filled {
		if missing[i] == 1 {
			filled[i] = sum / there
		}
	}
	plain := &Block{Features: []string{"x", "y"}, Classes: b.Classes, Codes: b.Codes, Columns: []gram.Column{gram.ColumnOf(filled), gram.ColumnOf(y)}}
	state = NewState(plain.Features)
	state.Add(summarise(t, plain))
	o.Mean = nil
	want, err := state.Moments().Solve(o)
	if err != nil {
		t.Fatal(err)
	}
	p, q := got.Planes[0], want.Planes[0]
	for j, w := range []float64{p.W[0] - q.W[0], p.W[1] - got.Imputed[0].Mean*q.W[0], p.W[2] - q.W[1], p.Gamma - q.Gamma} {
		if math.Abs(w) > 1e-13 {
			t.Errorf("number %d of the plane is %v off", j, w)
		}
	}
}

// The refusal of a solver is the error of Solve and of Path; classes and weights are checked
// before.
func TestSolverRefuses(t *testing.T) {
	r := rand.New(rand.NewPCG(34, 1))
	m := sumOf(2, blocksOf(t, r, randomTable(r, 50, 2, 2))...).Moments()
	o := Options{Nu: 1, Solver: Means{}}
	with := m.WithRegulariser([]float64{1, 0, 1})
	_, err := with.Solve(o)
	_, paths := with.Path(o, []float64{1})
	if err == nil || !reflect.DeepEqual(err, paths) {
		t.Errorf("the errors of a regulariser are %v and %v", err, paths)
	}
	if _, err := NewState(DefaultFeatures(2)).Moments().Solve(o); !errors.Is(err, ErrClasses) {
		t.Errorf("no rows: %v", err)
	}
	o.ClassWeights = map[string]float64{"c0": math.NaN()}
	if _, err := m.Solve(o); err == nil {
		t.Error("a class weight that is NaN is not refused")
	}
}

// The moments of some features are those of the rows with these columns alone, bit for bit.
func TestMomentsSelect(t *testing.T) {
	r := rand.New(rand.NewPCG(73, 1))
	const n, rows = 6, 50
	block := &Block{Features: DefaultFeatures(n), Classes: []string{"a", "b", "c"}, Codes: make([]int32, rows)}
	for range n {
		x := make([]float64, rows)
		for i := range x {
			x[i] = 3 + r.NormFloat64()
		}
		block.Columns = append(block.Columns, gram.ColumnOf(x))
	}
	for i := range block.Codes {
		block.Codes[i] = int32(i % 3)
	}
	regulariser := make([]float64, gram.PackedLen(n))
	for i := range n {
		for j := range i + 1 {
			regulariser[gram.PackedLen(i)+j] = 1 / float64(1+i-j)
		}
	}
	momentsOf := func(b *Block) *Moments {
		s, err := new(Summariser).Summarise(b)
		if err != nil {
			t.Fatal(err)
		}
		state := NewState(b.Features)
		state.Add(s)
		return state.Moments()
	}
	at := []int{1, 2, 5}
	some := *block
	some.Features, some.Columns = nil, nil
	part := make([]float64, 0, gram.PackedLen(len(at)))
	for i, from := range at {
		some.Features, some.Columns = append(some.Features, block.Features[from]), append(some.Columns, block.Columns[from])
		for _, other := range at[:i+1] {
			part = append(part, regulariser[gram.PackedLen(from)+other])
		}
	}
	for _, o := range []Options{{Nu: 3}, {Nu: 1, Balanced: true}} {
		got, err := momentsOf(block).WithRegulariser(regulariser).Select(at).Solve(o)
		if err != nil {
			t.Fatal(err)
		}
		want, err := momentsOf(&some).WithRegulariser(part).Solve(o)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
