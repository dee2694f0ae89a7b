package reduce

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"streamd/incremental/gram"
	"streamd/kernels"
	"streamd/kernels/lp"
	"streamd/kernels/svm"
)

// everyMarginal lists the machines of the direct method.
var everyMarginal = map[string]Marginal{
	"large margin": LargeMargin{Nu: 2}, "reduced set": ReducedSet{Nu: 2}, "fisher": Fisher{Mu: 0.01},
}

// opened returns the evaluation of W for weighted rows of two noisy classes.
func opened(t *testing.T, machine Marginal, k kernels.Kernel, z []float64, m, n int) (*mover, rows) {
	t.Helper()
	random := rand.New(rand.NewPCG(31, 1))
	r := rows{columns: make([]gram.Column, n), d: make([]float64, m), weights: make([]float64, m)}
	for j := range r.columns {
		r.columns[j] = gram.ColumnOf(normals(random, m))
	}
	for i := range r.d {
		r.d[i] = math.Copysign(1, r.columns[0].At(i)+r.columns[1].At(i)*r.columns[2].At(i)+0.3*random.NormFloat64())
		r.weights[i] = 1 + float64(i%3)
	}
	program, err := machine.open(context.Background(), &sample{Problem: &Problem{Kernel: k, Columns: r.columns}}, r, 1)
	if err != nil {
		t.Fatal(err)
	}
	return newMover(k, r, program, z), r
}

// The gradient of each machine's W agrees with differences of W, for each form of kernel.
func TestGradientOfDirect(t *testing.T) {
	polynomial, err := kernels.Polynomial(0.5, 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	const n, points, m = 3, 4, 60
	for name, machine := range everyMarginal {
		for _, k := range []kernels.Kernel{gaussian(0.4), polynomial} {
			z := normals(rand.New(rand.NewPCG(32, 2)), points*n)
			v, _ := opened(t, machine, k, z, m, n)
			at, g := make([]float64, len(z)), make([]float64, len(z))
			for i := range z {
				at[i] = z[i] / v.unit
			}
			v.evaluate(at, g)
			if v.err != nil {
				t.Fatal(v.err)
			}
			largest := 0.0
			for _, x := range g {
				largest = max(largest, math.Abs(x))
			}
			scratch := make([]float64, len(z))
			const h = 1e-5
			for i := range at {
				value := func(step float64) float64 {
					moved := slices.Clone(at)
					moved[i] += step
					return v.evaluate(moved, scratch)
				}
				numeric := (8*(value(h)-value(-h)) - (value(2*h) - value(-2*h))) / (12 * h)
				// The hinge loss has kinks, past which the gradient turns.
				if math.Abs(numeric-g[i]) > 1e-4*largest {
					t.Errorf("%s, %v: component %d of the gradient is %v, by differences %v", name, k, i, g[i], numeric)
				}
			}
		}
	}
}

// W of the hinge loss is the optimum of the program (28–30) as it stands, with its coefficients.
func TestLargeMarginSolvesItsProgram(t *testing.T) {
	const n, points, m = 3, 5, 80
	z := normals(rand.New(rand.NewPCG(33, 3)), points*n)
	v, r := opened(t, LargeMargin{Nu: 2}, gaussian(0.4), z, m, n)
	o, err := v.solve(z)
	if err != nil {
		t.Fatal(err)
	}
	basis, err := kernels.NewMap(v.kernel, n, z)
	if err != nil {
		t.Fatal(err)
	}
	p := lp.Program{Columns: kernels.NewMapper(basis).Map(r.columns), D: r.d, Nu: 2, Costs: r.weights, Quadratic: basis.Gram()}
	want, err := p.Solve(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(o.value-want.Objective) > 1e-6*want.Objective {
		t.Errorf("W is %v, not %v", o.value, want.Objective)
	}
	for l, u := range want.U {
		if math.Abs(o.beta[l]-u) > 1e-4*(1+math.Abs(u)) {
			t.Errorf("β[%d] is %v, not %v", l, o.beta[l], u)
		}
	}
}

// With all rows for points, W is the optimum of the full support vector machine (example 1 of
// section 5.7), and the reduced set has no error.
func TestAllRowsAreTheFullMachine(t *testing.T) {
	const n, m = 3, 40
	v, r := opened(t, LargeMargin{Nu: 2}, gaussian(0.4), nil, m, n)
	v.t = m
	o, err := v.solve(v.x)
	if err != nil {
		t.Fatal(err)
	}
	full, err := svm.SMO{Kernel: v.kernel, Tolerance: 1e-9}.Fit(context.Background(), &svm.Rows{Columns: r.columns, D: r.d, Costs: r.weights}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(o.value-full.Objective) > 1e-6*full.Objective {
		t.Errorf("W of all rows is %v, that of the full machine %v", o.value, full.Objective)
	}
	v, _ = opened(t, ReducedSet{Nu: 2}, gaussian(0.4), nil, m, n)
	v.t = m
	if o, err = v.solve(v.x); err != nil {
		t.Fatal(err)
	}
	if norm := v.program.(*reducedSet).norm; math.Abs(o.value) > 1e-6*norm {
		t.Errorf("the reduced set of all rows is %v away, of %v", o.value, norm)
	}
}

// W of a reduced set is ‖w − Σβφ(z)‖², summed pair by pair.
func TestReducedSetIsADistance(t *testing.T) {
	const n, points, m = 3, 4, 30
	z := normals(rand.New(rand.NewPCG(34, 4)), points*n)
	v, _ := opened(t, ReducedSet{Nu: 2}, gaussian(0.4), z, m, n)
	o, err := v.solve(z)
	if err != nil {
		t.Fatal(err)
	}
	all, c := slices.Concat(v.x, z), slices.Clone(v.program.(*reducedSet).w)
	for _, b := range o.beta {
		c = append(c, -b)
	}
	want := 0.0
	for i, ci := range c {
		for j, cj := range c {
			want += ci * cj * v.kernel.Value(v.kernel.Argument(all[i*n:][:n], all[j*n:][:n]))
		}
	}
	if math.Abs(o.value-want) > 1e-6*want {
		t.Errorf("W is %v, the distance %v", o.value, want)
	}
}

// W of Fisher's discriminant is the largest eigenvalue of the pencil (60), negated.
func TestFisherIsAnEigenvalue(t *testing.T) {
	const n, points, m, mu = 3, 4, 50, 0.01
	z := normals(rand.New(rand.NewPCG(35, 5)), points*n)
	v, r := opened(t, Fisher{Mu: mu}, gaussian(0.4), z, m, n)
	o, err := v.solve(z)
	if err != nil {
		t.Fatal(err)
	}
	psi := mat.NewDense(m, points, nil)
	var sum, mean = [2]float64{}, [2]*mat.VecDense{mat.NewVecDense(points, nil), mat.NewVecDense(points, nil)}
	all := 0.0
	for i := range m {
		for l := range points {
			psi.Set(i, l, v.kernel.Value(v.kernel.Argument(v.row(i), z[l*n:][:n])))
		}
		sum[r.side(i)] += r.weights[i]
		all += r.weights[i]
		mean[r.side(i)].AddScaledVec(mean[r.side(i)], r.weights[i], psi.RowView(i))
	}
	mean[0].ScaleVec(1/sum[0], mean[0])
	mean[1].ScaleVec(1/sum[1], mean[1])
	var a, b, delta mat.Dense
	delta.Sub(mean[1], mean[0])
	a.Mul(&delta, delta.T())
	b.ReuseAs(points, points)
	for k := range points {
		for l := range points {
			s := 0.0
			for i := range m {
				c := mean[r.side(i)]
				s += r.weights[i] / all * (psi.At(i, k) - c.AtVec(k)) * (psi.At(i, l) - c.AtVec(l))
			}
			b.Set(k, l, s+mu*v.kernel.Value(v.kernel.Argument(z[k*n:][:n], z[l*n:][:n])))
		}
	}
	var pencil mat.Dense
	if err := pencil.Solve(&b, &a); err != nil {
		t.Fatal(err)
	}
	var e mat.Eigen
	if !e.Factorize(&pencil, mat.EigenNone) {
		t.Fatal("no eigenvalues")
	}
	largest := 0.0
	for _, value := range e.Values(nil) {
		largest = max(largest, real(value))
	}
	if math.Abs(-o.value-largest) > 1e-6*largest {
		t.Errorf("W is %v, the largest eigenvalue %v", o.value, largest)
	}
}

// A descent lowers W. The least W of several starts counts: it is never more than that of the
// first, and less on some of a few sets.
func TestDirectDescends(t *testing.T) {
	ctx := context.Background()
	const sets, tolerance = 10, 1e-9
	for name, machine := range everyMarginal {
		lower := false
		for seed := uint64(36); seed < 36+sets && !lower; seed++ {
			p := blobs(rand.New(rand.NewPCG(seed, 6)), 2, 300)
			p.Points = 3 // fewer than the four blobs
			s, err := newSample(p)
			if err != nil {
				t.Fatal(err)
			}
			r := s.take(s.live, 1)
			value := func(z []float64) float64 {
				program, err := machine.open(ctx, s, r, 1)
				if err != nil {
					t.Fatal(err)
				}
				o, err := newMover(s.Kernel, r, program, z).solve(z)
				if err != nil {
					t.Fatal(err)
				}
				return o.value
			}
			began := value(s.draw(s.random(3, 0, 0), s.live, p.Points))
			one, err := Direct{Machine: machine}.Reduce(ctx, p)
			if err != nil {
				t.Fatal(err)
			}
			many, err := Direct{Machine: machine, Starts: 4}.Reduce(ctx, p)
			if err != nil {
				t.Fatal(err)
			}
			of, least := value(one.Z), value(many.Z)
			if !(of < began) || least > of+tolerance*math.Abs(of) {
				t.Errorf("%s, seed %d: W is %v at the start, %v at the end, %v of four starts", name, seed, began, of, least)
			}
			lower = least < of-tolerance*math.Abs(of)
		}
		if !lower {
			t.Errorf("%s: four starts end where the first one does, on %d sets", name, sets)
		}
	}
}

// Three points are enough for the four blobs when they are moved, and not when they are rows.
func TestDirectNeedsFewerPoints(t *testing.T) {
	ctx := context.Background()
	p := blobs(rand.New(rand.NewPCG(37, 7)), 2, 400)
	p.Points = 2
	moved, err := Direct{Machine: LargeMargin{Nu: 10}, Means: true, Starts: 3}.Reduce(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	stay, err := Subset{Nu: 10}.Reduce(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := correct(t, moved, p.Kernel, p), correct(t, stay, p.Kernel, p); a < 0.98 || b > 0.9 {
		t.Errorf("two points that move are right for %.1f %%, two rows for %.1f %%", 100*a, 100*b)
	}
}

func TestDirectRefuses(t *testing.T) {
	ctx := context.Background()
	p := blobs(rand.New(rand.NewPCG(1, 1)), 2, 50)
	for _, d := range []Direct{
		{Machine: LargeMargin{}}, {Machine: ReducedSet{Nu: -1}}, {Machine: Fisher{}}, {Machine: Fisher{Mu: math.Inf(1)}},
		{Machine: LargeMargin{Nu: 1}, Starts: -1}, {Machine: Fisher{Mu: 1}, Nu: math.NaN()},
	} {
		if _, err := d.Reduce(ctx, p); err == nil {
			t.Errorf("%+v is taken", d)
		}
	}
	sigmoid, err := kernels.Sigmoid(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.Kernel = sigmoid
	for _, r := range []Reducer{Direct{Machine: LargeMargin{Nu: 1}}, Cholesky{Nu: 1}} {
		if _, err := r.Reduce(ctx, p); err == nil {
			t.Errorf("%T takes a kernel without an inner product", r)
		}
	}
}
