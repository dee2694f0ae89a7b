package newton

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"streamd/incremental"
)

// likelihood is Logistic's objective at the planes z, one after the other in scaled
// coordinates, row by row from its definition. gradient, if any, is filled in.
func (t table) likelihood(classes []string, o incremental.Options, with Options, z, gradient []float64) (f float64) {
	weight, total := make([]float64, len(classes)), 0.0
	each := make([]float64, len(t.x))
	for i, class := range t.class {
		each[i] = 1
		if u, ok := with.Multipliers[class]; ok {
			each[i] = u
		}
		if t.weight != nil {
			each[i] *= t.weight[i]
		}
		weight[slices.Index(classes, class)] += each[i]
		total += each[i]
	}
	n := len(t.x[0])
	f = square(z) / 2
	copy(gradient, z)
	for i, row := range t.x {
		c := slices.Index(classes, t.class[i])
		cost := o.Nu * each[i]
		if a, ok := o.ClassWeights[t.class[i]]; ok {
			cost *= a
		}
		if o.Balanced {
			cost *= total / float64(len(classes)) / weight[c]
		}
		if cost == 0 {
			continue
		}
		x := append(slices.Clone(row), -1)
		for j := range row {
			if with.Mean != nil {
				x[j] = (x[j] - with.Mean[j]) / with.Sigma[j]
			}
		}
		scores := make([]float64, len(classes))
		for at := 0; at < len(z); at += n + 1 {
			scores[len(classes)-(len(z)-at)/(n+1)] = dot(x, z[at:])
		}
		others := 0.0
		for r, s := range scores {
			if r != c {
				others += math.Exp(s - scores[c])
			}
		}
		f += cost * math.Log1p(others)
		if gradient == nil {
			continue
		}
		for at := 0; at < len(z); at += n + 1 {
			r := len(classes) - (len(z)-at)/(n+1)
			p := math.Exp(scores[r]-scores[c]) / (1 + others)
			if r == c {
				p = -others / (1 + others)
			}
			for j, v := range x {
				gradient[at+j] += cost * p * v
			}
		}
	}
	return f
}

// joined are the planes of a model in the coordinates of the objective, one after the other.
func joined(m *incremental.Model, with Options) (z []float64) {
	for _, p := range m.Planes {
		z = append(z, scaled(p, with)...)
	}
	return z
}

// The optima are those of scikit-learn 1.9.1, for three classes and for two:
//
//	x = np.array([[(i+1)*(j+2)*(i+3*j+5) % 101 / 50 - 1 for j in range(5)] for i in range(60)])
//	k = np.array([i*i*7 % 11 % 3 for i in range(60)])
//	x[:, 0] += k
//	m = LogisticRegression(C=nu, fit_intercept=False, class_weight=None or 'balanced', tol=1e-10,
//	    max_iter=100000, solver='newton-cg').fit(np.c_[x, -np.ones(60)], k or k % 2)
//
// At each of them half of the squared gradient is below 1e-13.
func TestScikitLearn(t *testing.T) {
	var data table
	for i := range 60 {
		row := make([]float64, 5)
		for j := range row {
			row[j] = float64((i+1)*(j+2)*(i+3*j+5)%101)/50 - 1
		}
		row[0] += float64(i * i * 7 % 11 % 3)
		data.x = append(data.x, row)
	}
	for _, want := range []struct {
		classes   int
		balanced  bool
		objective [3]float64 // of ν = 0.1, 2, 1000
		planes    []float64  // of ν = 2
	}{
		{3, false, [3]float64{5.1689825423605, 68.801725319587, 25173.834334986}, []float64{
			-2.210670737, 0.219689631, -0.486601902, 0.070203066, 0.138139497, -1.506768885,
			0.085298878, -0.063935621, 0.038902422, -0.253271889, -0.626886223, -0.719207811,
			2.125371859, -0.15575401, 0.447699479, 0.183068823, 0.488746726, 2.225976696,
		}},
		{3, true, [3]float64{5.2172610272745, 69.156981312986, 25388.182573903}, nil},
		{2, false, [3]float64{3.8559120418057, 73.868722719287, 36738.047669958}, []float64{
			-0.19654839, -0.249503237, 0.004241586, 0.0047897, -0.690786996, 0.386241352,
		}},
		{2, true, [3]float64{4.0643269604135, 78.827219960158, 39241.391884599}, nil},
	} {
		data.class = nil
		for i := range 60 {
			data.class = append(data.class, fmt.Sprint(i*i*7%11%3%want.classes))
		}
		blocks := data.cut(25)
		for i, nu := range []float64{0.1, 2, 1000} {
			model, with := proximal(t, blocks, incremental.Options{Nu: nu, Balanced: want.balanced})
			with.Method = Logistic
			got := refine(t, model, blocks, with)
			for _, p := range got.Planes {
				if !near(p.Objective, want.objective[i], 1e-12) {
					t.Errorf("%d classes, balanced %v, ν = %g: objective %.14g, scikit-learn's %.14g", want.classes, want.balanced, nu, p.Objective, want.objective[i])
				}
			}
			if nu != 2 || want.planes == nil {
				continue
			}
			for at, z := range joined(got.Model, with) {
				if math.Abs(z-want.planes[at]) > 2e-9 {
					t.Errorf("%d classes: number %d is %.10g, scikit-learn's %.10g", want.classes, at, z, want.planes[at])
				}
			}
		}
	}
}

// Logistic ends at the minimum of the objective by its definition: the gradient, whose half
// square is the duality gap, is nothing beside the objective. It begins anywhere.
func TestLogisticMinimum(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			data := c.draw(r, 400, 5)
			blocks := data.cut(150)
			model, with := proximal(t, blocks, c.options)
			with.Multipliers, with.Method = c.with.Multipliers, Logistic
			result := refine(t, model, blocks, with)
			z := joined(result.Model, with)
			gradient := make([]float64, len(z))
			f := data.likelihood(model.Classes, c.options, with, z, gradient)
			if gap := square(gradient) / 2; !(gap <= 1e-13*f) {
				t.Errorf("the gap is %g of %g", gap, f)
			}
			sum := make([]float64, 6)
			for i, p := range result.Planes {
				if !near(p.Objective, f, 1e-12) || !(p.Gap <= 1e-13*f) || p.Iterations < 2 {
					t.Errorf("report %+v, but the objective is %.15g", p, f)
				}
				for j := range sum {
					sum[j] += z[6*i+j]
				}
			}
			// The gradients of the loss add up to nothing, and so do the planes that balance them.
			if len(model.Planes) > 1 && norm(sum) > 1e-14*norm(z) {
				t.Errorf("the planes add up to %v", sum)
			}
			far := *model
			far.Planes = slices.Clone(model.Planes)
			for i := range far.Planes {
				far.Planes[i].W = make([]float64, 5)
				far.Planes[i].W[i] = 10
			}
			again := joined(refine(t, &far, blocks, with).Model, with)
			for j := range z {
				if math.Abs(z[j]-again[j]) > 1e-7*norm(z) {
					t.Errorf("from elsewhere number %d is %g, not %g", j, again[j], z[j])
				}
			}
		})
	}
}

// The gradient and the Hessian of a pass agree with finite differences of the definition.
func TestLogisticDerivatives(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 4))
			data := c.draw(r, 300, 4)
			blocks := data.cut(100)
			model, with := proximal(t, blocks, c.options)
			with.Multipliers = c.with.Multipliers
			s := newSolver(model, blocks, with)
			for i := range model.Planes {
				s.add(&model.Planes[i])
			}
			j, point, err := s.joint(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			for i := range point {
				point[i] = r.NormFloat64() / 3
			}
			if err := j.evaluate(context.Background(), point, true); err != nil {
				t.Fatal(err)
			}
			value := func(z, gradient []float64) float64 {
				return data.likelihood(model.Classes, c.options, with, z, gradient)
			}
			hessian := j.matrix()
			const h = 1e-5
			for a := range point {
				plus, minus := make([]float64, len(point)), make([]float64, len(point))
				shifted := slices.Clone(point)
				shifted[a] += h
				up := value(shifted, plus)
				shifted[a] -= 2 * h
				down := value(shifted, minus)
				if slope := (up - down) / (2 * h); math.Abs(slope-j.gradient[a]) > 1e-7*j.objective {
					t.Errorf("gradient %d is %g, by differences %g", a, j.gradient[a], slope)
				}
				for b := range point {
					if curvature := (plus[b] - minus[b]) / (2 * h); math.Abs(curvature-hessian.At(a, b)) > 1e-7*j.objective {
						t.Errorf("Hessian %d, %d is %g, by differences %g", a, b, hessian.At(a, b), curvature)
					}
				}
			}
		})
	}
}

// Separable classes, features of any size and much or little weight of errors have a minimum
// or an error.
func TestLogisticExtremes(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 17))
	transform := func(change func(i int, x []float64)) table {
		data := clouds(r, 200, 3, 4)
		for i := range data.x {
			change(i, data.x[i])
		}
		return data
	}
	for _, c := range []struct {
		name    string
		data    table
		options incremental.Options
	}{
		{"separable", transform(func(i int, x []float64) { x[0] += float64(1000 * (i % 4)); x[1] += float64(1000 * (i % 2)) }), incremental.Options{Nu: 1e6, Standardise: true}},
		{"constant feature", transform(func(i int, x []float64) { x[1] = 7.25 }), incremental.Options{Nu: 10, Standardise: true}},
		{"one feature twice", transform(func(i int, x []float64) { x[2] = x[0] }), incremental.Options{Nu: 1e3}},
		{"equal rows", transform(func(i int, x []float64) { x[0], x[1], x[2] = float64(i%2), 1, 0 }), incremental.Options{Nu: 1e6}},
		{"huge", transform(func(i int, x []float64) { x[0] *= 1e30; x[1] *= 1e25 }), incremental.Options{Nu: 1, Standardise: true}},
		{"large, plain", transform(func(i int, x []float64) { x[0] *= 3000; x[1] *= 1e-3 }), incremental.Options{Nu: 100}},
		{"far away", transform(func(i int, x []float64) { x[0] += 1e6; x[1] = x[1]*1e-6 + 1 }), incremental.Options{Nu: 1, Standardise: true}},
		{"little weight of errors", clouds(r, 200, 3, 4), incremental.Options{Nu: 1e-12}},
		{"much weight of errors", clouds(r, 200, 3, 4), incremental.Options{Nu: 1e12}},
	} {
		t.Run(c.name, func(t *testing.T) {
			blocks := c.data.cut(90)
			model, with := proximal(t, blocks, c.options)
			with.Method = Logistic
			result := refine(t, model, blocks, with)
			z := joined(result.Model, with)
			f := c.data.likelihood(model.Classes, c.options, with, z, nil)
			if !near(f, result.Planes[0].Objective, 1e-9) {
				t.Errorf("objective %g, reported %g", f, result.Planes[0].Objective)
			}
			for j := range z {
				for _, h := range []float64{-1e-3, 1e-3} {
					beside := slices.Clone(z)
					beside[j] += h * max(math.Abs(z[j]), norm(z)*1e-3)
					if g := c.data.likelihood(model.Classes, c.options, with, beside, nil); g < f*(1-1e-12) {
						t.Errorf("%g is below %g, at number %d by %g", g, f, j, h)
					}
				}
			}
		})
	}
}

// Planes that are too many numbers together are refused before a row is read.
func TestLogisticSize(t *testing.T) {
	model := &incremental.Model{Features: incremental.DefaultFeatures(MostLogistic / 2), Classes: []string{"a", "b"}}
	model.Planes = []incremental.Plane{{Class: "a"}, {Class: "b"}}
	for i := range model.Planes {
		model.Planes[i].W = make([]float64, MostLogistic/2)
	}
	_, err := Refine(context.Background(), model, failing{fmt.Errorf("read")}, Options{Method: Logistic})
	if err == nil || !strings.Contains(err.Error(), "2050 numbers, at most 2048") {
		t.Error(err)
	}
}
