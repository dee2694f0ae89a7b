package newton

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize"
	"pgregory.net/rapid"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// table holds labelled rows, row by row.
type table struct {
	x      [][]float64
	class  []string
	weight []float64 // nil: 1 each
}

func (t table) rows(i, j int) table {
	out := table{x: t.x[i:j], class: t.class[i:j]}
	if t.weight != nil {
		out.weight = t.weight[i:j]
	}
	return out
}

func (t table) block() *incremental.Block {
	b := &incremental.Block{Weights: t.weight}
	for _, label := range t.class {
		code := slices.Index(b.Classes, label)
		if code < 0 {
			code = len(b.Classes)
			b.Classes = append(b.Classes, label)
		}
		b.Codes = append(b.Codes, int32(code))
	}
	for j := range t.x[0] {
		column := make([]float64, len(t.x))
		for i := range t.x {
			column[i] = t.x[i][j]
		}
		b.Columns = append(b.Columns, gram.ColumnOf(column))
	}
	return b
}

// cut divides the table into blocks of at most that many rows.
func (t table) cut(rows int) Blocks {
	var blocks Blocks
	for i := 0; i < len(t.x); i += rows {
		blocks = append(blocks, t.rows(i, min(i+rows, len(t.x))).block())
	}
	return blocks
}

// clouds draws m rows of n features and k classes whose clouds overlap.
func clouds(r *rand.Rand, m, n, k int) table {
	var t table
	for i := range m {
		c := i % k
		row := make([]float64, n)
		for j := range row {
			row[j] = r.NormFloat64()*float64(1+j%3) + float64((c*(j+2))%k)
		}
		t.x = append(t.x, row)
		t.class = append(t.class, fmt.Sprint("c", c))
	}
	return t
}

func moments(t testing.TB, blocks Blocks) *incremental.Moments {
	t.Helper()
	var z incremental.Summariser
	state := incremental.NewState(incremental.DefaultFeatures(len(blocks[0].Columns)))
	for _, b := range blocks {
		summary, err := z.Summarise(b)
		if err != nil {
			t.Fatal(err)
		}
		state.Add(summary)
	}
	return state.Moments()
}

// proximal returns the model to begin with, and its refinement options.
func proximal(t testing.TB, blocks Blocks, o incremental.Options) (*incremental.Model, Options) {
	t.Helper()
	m := moments(t, blocks)
	model, err := m.Solve(o)
	if err != nil {
		t.Fatal(err)
	}
	var with Options
	if o.Standardise {
		with.Mean, with.Sigma = m.Scale()
	}
	return model, with
}

func refine(t testing.TB, model *incremental.Model, rows Rows, o Options) *Result {
	t.Helper()
	result, err := Refine(context.Background(), model, rows, o)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// problem is the package's objective for one plane, row by row, in scaled
// coordinates.
type problem struct {
	x    [][]float64
	d, c []float64
}

func (t table) problem(class string, o incremental.Options, with Options) problem {
	var p problem
	var own, rest float64
	weight := func(i int) float64 {
		u := 1.0
		if v, ok := with.Multipliers[t.class[i]]; ok {
			u = v
		}
		if t.weight != nil {
			u *= t.weight[i]
		}
		return u
	}
	for i := range t.x {
		if t.class[i] == class {
			own += weight(i)
		} else {
			rest += weight(i)
		}
	}
	for i, row := range t.x {
		x := slices.Clone(row)
		for j := range x {
			if with.Mean != nil {
				x[j] = (x[j] - with.Mean[j]) / with.Sigma[j]
			}
		}
		d, side := -1.0, rest
		if t.class[i] == class {
			d, side = 1, own
		}
		c := o.Nu * weight(i)
		if a, ok := o.ClassWeights[t.class[i]]; ok {
			c *= a
		}
		if o.Balanced && with.Method != Line {
			c *= (own + rest) / 2 / side
		}
		p.x, p.d, p.c = append(p.x, x), append(p.d, d), append(p.c, c)
	}
	return p
}

// value is f at z = [w; γ]; gradient, if any, is filled in, and so is the number
// of active rows.
func (p problem) value(z, gradient []float64) (f float64, active int64) {
	n := len(z) - 1
	f = square(z) / 2
	copy(gradient, z)
	for i, x := range p.x {
		r := 1 - p.d[i]*(dot(x, z)-z[n])
		if r <= 0 || p.c[i] == 0 {
			continue
		}
		active++
		f += p.c[i] * r * r / 2
		if gradient != nil {
			for j, v := range x {
				gradient[j] -= p.c[i] * p.d[i] * r * v
			}
			gradient[n] += p.c[i] * p.d[i] * r
		}
	}
	return f, active
}

// scaled returns a plane in the coordinates of the objective.
func scaled(p incremental.Plane, with Options) []float64 {
	s := identity(len(p.W))
	if with.Mean != nil {
		s = scaling{with.Mean, with.Sigma}
	}
	return s.enter(p.W, p.Gamma)
}

func near(a, b, relative float64) bool {
	return math.Abs(a-b) <= relative*max(math.Abs(a), math.Abs(b))
}

type testCase struct {
	name    string
	classes int
	weights bool
	options incremental.Options
	with    Options
}

var cases = []testCase{
	{name: "plain", classes: 2, options: incremental.Options{Nu: 3}},
	{name: "standardised", classes: 2, options: incremental.Options{Nu: 0.5, Standardise: true}},
	{name: "balanced", classes: 3, options: incremental.Options{Nu: 200, Balanced: true}},
	{name: "weights", classes: 2, weights: true, options: incremental.Options{Nu: 3, ClassWeights: map[string]float64{"c1": 7}}},
	{
		name: "everything", classes: 4, weights: true,
		options: incremental.Options{Nu: 500, Balanced: true, Standardise: true, ClassWeights: map[string]float64{"c0": 0.3, "c3": 2}},
		with:    Options{Multipliers: map[string]float64{"c0": 10, "c2": 1.5}},
	},
}

// draw returns m rows of n features for the case.
func (c *testCase) draw(r *rand.Rand, m, n int) table {
	data := clouds(r, m, n, c.classes)
	if c.weights {
		data = data.weighted(r)
	}
	return data
}

func (t table) weighted(r *rand.Rand) table {
	t.weight = make([]float64, len(t.x))
	for i := range t.weight {
		t.weight[i] = float64(r.IntN(4)) // 0 too
	}
	return t
}

// stream shows blocks in another order in each pass, some at the same time, and
// overwrites their memory after each call.
type stream struct {
	blocks Blocks
	order  *rand.Rand
}

func (s stream) Pass(ctx context.Context, visit func(*incremental.Block) error) error {
	var all sync.WaitGroup
	errs := make([]error, len(s.blocks))
	for _, i := range s.order.Perm(len(s.blocks)) {
		all.Go(func() {
			b := *s.blocks[i]
			b.Columns = slices.Clone(b.Columns)
			errs[i] = visit(&b)
			clear(b.Columns)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Refine finds the minimum that BFGS finds on the objective by its definition, and
// reports the figures of that definition.
func TestMinimum(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			data := c.draw(r, 400, 5)
			blocks := data.cut(150)
			model, with := proximal(t, blocks, c.options)
			with.Multipliers = c.with.Multipliers
			result := refine(t, model, blocks, with)
			lines := with
			lines.Method = Line
			line := refine(t, model, blocks, lines)
			for i, plane := range result.Model.Planes {
				p := data.problem(plane.Class, c.options, with)
				start := scaled(model.Planes[i], with)
				best, err := optimize.Minimize(optimize.Problem{
					Func: func(z []float64) float64 { f, _ := p.value(z, nil); return f },
					Grad: func(g, z []float64) { p.value(z, g) },
				}, slices.Clone(start), &optimize.Settings{GradientThreshold: 1e-9, MajorIterations: 1000}, &optimize.BFGS{})
				if best == nil {
					t.Fatal(err)
				}
				gradient := make([]float64, len(start))
				f, active := p.value(scaled(plane, with), gradient)
				report := result.Planes[i]
				if !near(f, best.F, 1e-10) || f > best.F*(1+1e-13) {
					t.Errorf("class %s: objective %.15g, BFGS %.15g", plane.Class, f, best.F)
				}
				if report.Class != plane.Class || !near(report.Objective, f, 1e-12) || report.SupportVectors != active {
					t.Errorf("class %s: report %+v, but the objective is %.15g with %d active rows", plane.Class, report, f, active)
				}
				if norm(gradient) > 1e-9*f || report.Gradient > 1e-9*f {
					t.Errorf("class %s: gradient %g, reported %g", plane.Class, norm(gradient), report.Gradient)
				}
				along := scaled(line.Model.Planes[i], with)
				if g, _ := p.value(along, nil); !(f <= g) {
					t.Errorf("class %s: full %g, line %g", plane.Class, f, g)
				}
				p = data.problem(plane.Class, c.options, lines)
				before, _ := p.value(start, nil)
				after, _ := p.value(along, nil)
				if !(after <= before) || !near(after, line.Planes[i].Objective, 1e-12) {
					t.Errorf("class %s: line %g (reported %g), proximal %g", plane.Class, after, line.Planes[i].Objective, before)
				}
			}
			var rows int64
			for i := range data.x {
				if data.weight == nil || data.weight[i] > 0 {
					rows++
				}
			}
			if result.Rows != rows || result.Model.Options.Nu != c.options.Nu || !slices.Equal(result.Model.Rows, model.Rows) {
				t.Errorf("%d rows of %d, model %+v", result.Rows, rows, result.Model)
			}
		})
	}
}

// The gradient and the Hessian of a pass agree with finite differences.
func TestDerivatives(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 4))
			data := c.draw(r, 300, 4)
			blocks := data.cut(100)
			model, with := proximal(t, blocks, c.options)
			s := &solver{rows: blocks, model: model, multipliers: c.with.Multipliers, limit: 1, workers: 2, scaling: identity(4), width: 4}
			if with.Mean != nil {
				s.scaling = scaling{with.Mean, with.Sigma}
			}
			with.Multipliers = c.with.Multipliers
			z := []float64{0.3, -0.2, 0.1, 0.25, 0.4}
			p := &plane{label: "c1", class: 1, high: 4, lineSearch: lineSearch{point: z}}
			s.planes = []*plane{p}
			if err := s.survey(context.Background()); err != nil {
				t.Fatal(err)
			}
			if err := s.evaluate(context.Background(), s.planes); err != nil {
				t.Fatal(err)
			}
			oracle := data.problem("c1", c.options, with)
			const h = 1e-6 // no row's loss begins or ends within it
			for j := range z {
				shifted := slices.Clone(z)
				plus, minus := make([]float64, 5), make([]float64, 5)
				shifted[j] += h
				up, _ := oracle.value(shifted, plus)
				shifted[j] -= 2 * h
				down, _ := oracle.value(shifted, minus)
				if slope := (up - down) / (2 * h); math.Abs(slope-p.gradient[j]) > 1e-6*p.objective {
					t.Errorf("gradient %d is %g, by differences %g", j, p.gradient[j], slope)
				}
				for k := range j + 1 {
					entry := float64(p.entries[gram.PackedLen(j)+k]) * p.common * p.unit[j] * p.unit[k]
					for _, i := range []int{j, k} {
						if i < 4 {
							entry /= s.seen.sigma[i]
						}
					}
					if j == k {
						entry++
					}
					if curvature := (plus[k] - minus[k]) / (2 * h); math.Abs(curvature-entry) > 1e-6*p.objective {
						t.Errorf("Hessian %d, %d is %g, by differences %g", j, k, entry, curvature)
					}
				}
			}
		})
	}
}

// The objectives are those of LIBLINEAR 2.50 for r = 0, 1, 2:
//
//	x = np.array([[(i+1)*(j+2)*(i+3*j+5) % 101 / 50 - 1 for j in range(5)] for i in range(60)])
//	k = np.array([i*i*7 % 11 % 3 for i in range(60)])
//	x[:, 0] += k
//	d = np.where(k == r, 1., -1.)
//	m = liblinear.train(problem(d, x, bias=1), parameter(f'-s 2 -B 1 -e 1e-12 -c {nu/2}'))
func TestLIBLINEAR(t *testing.T) {
	var data table
	for i := range 60 {
		k := i * i * 7 % 11 % 3
		row := make([]float64, 5)
		for j := range row {
			row[j] = float64((i+1)*(j+2)*(i+3*j+5)%101)/50 - 1
		}
		row[0] += float64(k)
		data.x, data.class = append(data.x, row), append(data.class, fmt.Sprint(k))
	}
	for _, want := range []struct {
		nu        float64
		objective [3]float64
	}{
		{0.1, [3]float64{1.336203603397, 2.604890902982, 1.706829653001}},
		{2, [3]float64{19.42720081772, 50.90007042719, 19.10126823503}},
		{1000, [3]float64{9052.504250144, 25409.05278703, 7635.366706474}},
	} {
		blocks := data.cut(60)
		model, with := proximal(t, blocks, incremental.Options{Nu: want.nu})
		for _, with.Method = range []Method{Full, Dual} {
			for i, p := range refine(t, model, blocks, with).Planes {
				if !near(p.Objective, want.objective[i], 1e-11) {
					t.Errorf("ν = %g, class %s, %v: objective %.13g, LIBLINEAR's %.13g", want.nu, p.Class, with.Method, p.Objective, want.objective[i])
				}
			}
		}
	}
}

// The dual algorithm and Newton's method in the primal find the same planes, with more
// features than rows and with fewer.
func TestDual(t *testing.T) {
	for _, c := range cases {
		for _, n := range []int{3, 40} {
			t.Run(fmt.Sprint(c.name, "/", n), func(t *testing.T) {
				r := rand.New(rand.NewPCG(5, uint64(n)))
				data := c.draw(r, 36, n)
				blocks := data.cut(20)
				model, with := proximal(t, blocks, c.options)
				with.Multipliers = c.with.Multipliers
				full := refine(t, model, blocks, with)
				with.Method = Dual
				dual := refine(t, model, blocks, with)
				for i := range full.Planes {
					f, d := full.Planes[i], dual.Planes[i]
					if !near(f.Objective, d.Objective, 1e-10) || d.Gradient > 1e-6*d.Objective || f.SupportVectors != d.SupportVectors {
						t.Errorf("class %s: primal %+v, dual %+v", f.Class, f, d)
					}
					a, b := scaled(full.Model.Planes[i], with), scaled(dual.Model.Planes[i], with)
					for j := range a {
						if math.Abs(a[j]-b[j]) > 1e-6*norm(a) {
							t.Errorf("class %s: coordinate %d is %g and %g", f.Class, j, a[j], b[j])
						}
					}
				}
				want := bits(dual)
				// The rows are ordered by their contents, so blocks do not matter.
				if got := bits(refine(t, model, stream{data.cut(7), r}, with)); !slices.Equal(got, want) {
					t.Errorf("other blocks: %v, not %v", got, want)
				}
			})
		}
	}
}

// Line finds the minimum that a direct search over (λ, γ) finds.
func TestLine(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(7, 8))
			data := c.draw(r, 120, 3)
			blocks := data.cut(50)
			model, with := proximal(t, blocks, c.options)
			with.Multipliers = c.with.Multipliers
			with.Method = Line
			result := refine(t, model, blocks, with)
			streamed := refine(t, model, stream{blocks, r}, with)
			for i, plane := range result.Model.Planes {
				p := data.problem(plane.Class, c.options, with)
				start, got := scaled(model.Planes[i], with), scaled(plane, with)
				w, n := start[:3], 3
				at := func(lambda, gamma float64) float64 {
					f, _ := p.value([]float64{lambda * w[0], lambda * w[1], lambda * w[2], gamma}, nil)
					return f
				}
				best := search(-20, 20, func(lambda float64) float64 {
					return search(-20, 20, func(gamma float64) float64 { return at(lambda, gamma) })
				})
				f, _ := p.value(got, nil)
				if !near(f, best, 1e-9) || f > best*(1+1e-13) {
					t.Errorf("class %s: objective %.12g, searched %.12g", plane.Class, f, best)
				}
				for j := range w {
					if !near(got[j]*w[0], got[0]*w[j], 1e-9) {
						t.Errorf("class %s: w is %v, not along %v", plane.Class, got[:n], w)
					}
				}
				if s := streamed.Planes[i]; !near(s.Objective, f, 1e-13) {
					t.Errorf("class %s: %g from a stream, %g from memory", plane.Class, s.Objective, f)
				}
			}
		})
	}
}

// search returns the least value of a convex function, by golden sections.
func search(low, high float64, f func(float64) float64) float64 {
	const ratio = 0.6180339887498949
	a, b := high-ratio*(high-low), low+ratio*(high-low)
	fa, fb := f(a), f(b)
	for range 60 {
		if fa < fb {
			high, b, fb = b, a, fa
			a = high - ratio*(high-low)
			fa = f(a)
		} else {
			low, a, fa = a, b, fb
			b = low + ratio*(high-low)
			fb = f(b)
		}
	}
	return min(fa, fb)
}

// bits are all numbers of a result.
func bits(r *Result) (out []uint64) {
	for i, p := range r.Model.Planes {
		for _, w := range p.W {
			out = append(out, math.Float64bits(w))
		}
		q := r.Planes[i]
		out = append(out, math.Float64bits(p.Gamma), math.Float64bits(p.Condition), math.Float64bits(q.Objective),
			math.Float64bits(q.Gradient), uint64(q.Iterations), uint64(q.SupportVectors))
	}
	return out
}

// The order of blocks, the number of workers and earlier contents of the state do not
// change the bits.
func TestSameBits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		r := rand.New(rand.NewPCG(seed, 9))
		c := cases[rapid.IntRange(0, len(cases)-1).Draw(rt, "case")]
		data := c.draw(r, rapid.SampledFrom([]int{40, 300, 5000}).Draw(rt, "rows"), rapid.IntRange(1, 6).Draw(rt, "features"))
		blocks := data.cut(rapid.SampledFrom([]int{20, 256, 2100}).Draw(rt, "block"))
		model, with := proximal(t, blocks, c.options)
		with.Multipliers = c.with.Multipliers
		with.Method = rapid.SampledFrom([]Method{Full, Line, Logistic}).Draw(rt, "method")

		// Solve the same model from a state that has had more blocks.
		extra := clouds(r, 30, len(data.x[0]), 5).block()
		var z incremental.Summariser
		state := incremental.NewState(model.Features)
		gone, err := z.Summarise(extra)
		if err != nil {
			rt.Fatal(err)
		}
		state.Add(gone)
		shuffled := slices.Clone(blocks)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for _, b := range shuffled {
			summary, err := z.Summarise(b)
			if err != nil {
				rt.Fatal(err)
			}
			state.Add(summary)
		}
		state.Remove(gone)
		again, err := state.Moments().Solve(c.options)
		if err != nil {
			rt.Fatal(err)
		}

		with.Workers = 1
		memory := bits(refine(t, model, blocks, with))
		with.Workers = rapid.IntRange(1, 5).Draw(rt, "workers")
		with.room = rapid.SampledFrom([]int{0, 1, 1 << 16}).Draw(rt, "room") // as many planes at a time as workers, or more
		if got := bits(refine(t, again, shuffled, with)); !slices.Equal(got, memory) {
			rt.Errorf("from memory: %x, not %x", got, memory)
		}
		streamed := bits(refine(t, model, stream{blocks, r}, with))
		if got := bits(refine(t, again, stream{shuffled, r}, with)); !slices.Equal(got, streamed) {
			rt.Errorf("from a stream: %x, not %x", got, streamed)
		}
	})
}

// Rows of weight 0 have no effect, whatever they contain.
func TestAbsentRows(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 11))
	data := clouds(r, 3000, 4, 2).weighted(r)
	var present table
	present.weight = []float64{}
	for i, v := range data.weight {
		if v > 0 {
			present.x, present.class, present.weight = append(present.x, data.x[i]), append(present.class, data.class[i]), append(present.weight, v)
		} else {
			data.x[i] = []float64{math.NaN(), 1e300, 0, -1e300}
			data.class[i] = "no such class"
		}
	}
	model, with := proximal(t, present.cut(3000), incremental.Options{Nu: 1})
	for _, with.Method = range []Method{Full, Line, Logistic} {
		want := bits(refine(t, model, present.cut(3000), with))
		if got := bits(refine(t, model, data.cut(3000), with)); !slices.Equal(got, want) {
			t.Errorf("%v: %x, not %x", with.Method, got, want)
		}
	}
}

// A row with multiplier three counts like three rows.
func TestMultipliers(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 13))
	data := clouds(r, 90, 3, 3)
	thrice := data
	for i := range data.x {
		if data.class[i] == "c1" {
			for range 2 {
				thrice.x, thrice.class = append(thrice.x, data.x[i]), append(thrice.class, data.class[i])
			}
		}
	}
	model, with := proximal(t, thrice.cut(1000), incremental.Options{Nu: 4, Balanced: true})
	for _, with.Method = range []Method{Full, Line, Dual, Logistic} {
		with.Multipliers = nil
		want := refine(t, model, thrice.cut(1000), with)
		with.Multipliers = map[string]float64{"c1": 3}
		got := refine(t, model, data.cut(1000), with)
		for i := range want.Planes {
			if !near(got.Planes[i].Objective, want.Planes[i].Objective, 1e-12) {
				t.Errorf("%v: %g, not %g", with.Method, got.Planes[i].Objective, want.Planes[i].Objective)
			}
		}
	}
}

// Full steps overshoot from a plane with all rows of separable data on the right side:
// the Hessian is the identity there, and the step goes to zero.
func TestLongSteps(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 15))
	data := clouds(r, 2000, 3, 2)
	for i := range data.x {
		data.x[i][0] += float64(40 * (i % 2))
	}
	blocks := data.cut(700)
	for _, nu := range []float64{1e-1, 1e2, 1e6, 1e9} {
		model, with := proximal(t, blocks, incremental.Options{Nu: nu})
		want := refine(t, model, blocks, with)
		from := *model
		from.Planes = []incremental.Plane{{Class: "c1", W: []float64{10, 0, 0}, Gamma: 200}}
		for name, rows := range map[string]Rows{"memory": blocks, "stream": stream{blocks, r}} {
			got := refine(t, &from, rows, with)
			if !near(got.Planes[0].Objective, want.Planes[0].Objective, 1e-12) {
				t.Errorf("ν = %g, %s: %.15g, not %.15g", nu, name, got.Planes[0].Objective, want.Planes[0].Objective)
			}
			// There is a pass for the survey, one for the beginning, one for each
			// step, and one for each step that was too long.
			if nu > 100 && got.Passes <= got.Planes[0].Iterations+2 {
				t.Errorf("ν = %g, %s: no step was too long", nu, name)
			}
		}
	}
}

// At the end there are fewer active rows than features. Rows that a step would make
// active restrain the plane in the remaining directions.
func TestFewActiveRows(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 23))
	data := clouds(r, 600, 60, 2)
	blocks := data.cut(250)
	model, with := proximal(t, blocks, incremental.Options{Nu: 1e5, Standardise: true})
	full := refine(t, model, blocks, with)
	streamed := refine(t, model, stream{blocks, r}, with)
	with.Method = Dual
	dual := refine(t, model, blocks, with).Planes[0]
	for _, result := range []*Result{full, streamed} {
		p := result.Planes[0]
		if p.SupportVectors > 60 {
			t.Errorf("%d active rows: the test shows nothing", p.SupportVectors)
		}
		if !near(p.Objective, dual.Objective, 1e-10) || p.Iterations > 200 {
			t.Errorf("objective %.12g after %d steps; the dual's is %.12g", p.Objective, p.Iterations, dual.Objective)
		}
	}
}

// With R = CC', rows x and planes w are those of the rows y = C⁻¹x and the planes C'w with I.
// Also where long steps are damped.
func TestRegulariser(t *testing.T) {
	for _, c := range []struct {
		name    string
		m, n, k int
		options incremental.Options
	}{
		{"balanced", 400, 6, 3, incremental.Options{Nu: 20, Balanced: true, ClassWeights: map[string]float64{"c1": 3}}},
		{"few active rows", 300, 30, 2, incremental.Options{Nu: 1e4}},
	} {
		r := rand.New(rand.NewPCG(24, uint64(c.n)))
		y := clouds(r, c.m, c.n, c.k).weighted(r)
		factor := mat.NewTriDense(c.n, mat.Lower, nil)
		for i := range c.n {
			for j := range i {
				factor.SetTri(i, j, r.NormFloat64()/4)
			}
			factor.SetTri(i, i, math.Exp(r.NormFloat64()))
		}
		x := y
		x.x = nil
		for _, row := range y.x {
			var v mat.VecDense
			v.MulVec(factor, mat.NewVecDense(c.n, row))
			x.x = append(x.x, v.RawVector().Data)
		}
		var product mat.Dense
		product.Mul(factor, factor.T())
		var with Options
		for i := range c.n {
			with.Regulariser = append(with.Regulariser, product.RawRowView(i)[:i+1]...)
		}
		start, _ := proximal(t, y.cut(150), c.options)
		want := refine(t, start, y.cut(150), Options{})
		model, err := moments(t, x.cut(150)).WithRegulariser(with.Regulariser).Solve(c.options)
		if err != nil {
			t.Fatal(err)
		}
		for name, rows := range map[string]Rows{"memory": x.cut(150), "stream": stream{x.cut(150), r}} {
			got := refine(t, model, rows, with)
			for i, p := range got.Model.Planes {
				var w mat.VecDense
				w.MulVec(factor.T(), mat.NewVecDense(c.n, p.W))
				q := want.Model.Planes[i]
				tolerance := 1e-7 * norm(q.W)
				for j, v := range q.W {
					if math.Abs(w.AtVec(j)-v) > tolerance {
						t.Errorf("%s, %s: C'w = %v, not %v", c.name, name, w.RawVector().Data, q.W)
						break
					}
				}
				if math.Abs(p.Gamma-q.Gamma) > tolerance {
					t.Errorf("%s, %s: γ = %v, not %v", c.name, name, p.Gamma, q.Gamma)
				}
				if g, h := got.Planes[i], want.Planes[i]; !near(g.Objective, h.Objective, 1e-12) || g.SupportVectors != h.SupportVectors || g.Iterations > 2*h.Iterations+5 {
					t.Errorf("%s, %s: %+v, not %+v", c.name, name, g, h)
				}
			}
		}
	}
}

// Data at the edge of what can be separated or solved has a minimum or an error.
func TestExtremes(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 17))
	transform := func(change func(i int, x []float64)) table {
		data := clouds(r, 200, 3, 2)
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
		{"separable", transform(func(i int, x []float64) { x[0] += float64(1000 * (i % 2)) }), incremental.Options{Nu: 1e6, Standardise: true}},
		{"constant feature", transform(func(i int, x []float64) { x[1] = 7.25 }), incremental.Options{Nu: 10, Standardise: true}},
		{"constant feature, plain", transform(func(i int, x []float64) { x[1] = 7.25 }), incremental.Options{Nu: 10}},
		{"zero feature", transform(func(i int, x []float64) { x[2] = 0 }), incremental.Options{Nu: 10}},
		{"one feature twice", transform(func(i int, x []float64) { x[2] = x[0] }), incremental.Options{Nu: 1e3}},
		{"equal rows", transform(func(i int, x []float64) { x[0], x[1], x[2] = float64(i%2), 1, 0 }), incremental.Options{Nu: 1e6}},
		{"all rows equal", transform(func(i int, x []float64) { x[0], x[1], x[2] = 1, 2, 3 }), incremental.Options{Nu: 10}},
		{"huge", transform(func(i int, x []float64) { x[0] *= 1e30; x[1] *= 1e25 }), incremental.Options{Nu: 1, Standardise: true}},
		{"huge, plain", transform(func(i int, x []float64) {
			for j := range x {
				x[j] *= 1e30
			}
		}), incremental.Options{Nu: 1e-60}},
		{"tiny", transform(func(i int, x []float64) { x[0] *= 1e-30; x[1] *= 1e-35 }), incremental.Options{Nu: 1, Standardise: true}},
		{"tiny, plain", transform(func(i int, x []float64) {
			for j := range x {
				x[j] *= 1e-30
			}
		}), incremental.Options{Nu: 1}},
		{"far away", transform(func(i int, x []float64) { x[0] += 1e6; x[1] = x[1]*1e-6 + 1 }), incremental.Options{Nu: 1, Standardise: true}},
		{"little weight of errors", clouds(r, 200, 3, 2), incremental.Options{Nu: 1e-12}},
		{"much weight of errors", clouds(r, 200, 3, 2), incremental.Options{Nu: 1e12}},
	} {
		t.Run(c.name, func(t *testing.T) {
			blocks := c.data.cut(90)
			model, with := proximal(t, blocks, c.options)
			p := c.data.problem("c1", c.options, with)
			for _, with.Method = range []Method{Full, Dual, Line} {
				if with.Method == Dual && c.options.Nu > 1e9 {
					// Q is all but singular with more rows than features. Most draws stall.
					_, err := Refine(context.Background(), model, blocks, with)
					if !errors.As(err, new(*StallError)) && !errors.As(err, new(*LimitError)) {
						t.Errorf("dual: %v, neither a stall nor too many steps", err)
					}
					continue
				}
				result := refine(t, model, blocks, with)
				z := scaled(result.Model.Planes[0], with)
				f, _ := p.value(z, nil)
				before, _ := p.value(scaled(model.Planes[0], with), nil)
				if !near(f, result.Planes[0].Objective, 1e-9) || f > before*(1+1e-12) {
					t.Errorf("%v: objective %g, reported %g; the proximal plane's is %g", with.Method, f, result.Planes[0].Objective, before)
				}
				if with.Method == Line {
					continue
				}
				// f is strongly convex: it is at most ½‖∇f‖² above its minimum
				// and must rise along every coordinate, both ways.
				for j := range z {
					for _, h := range []float64{-1e-3, 1e-3} {
						beside := slices.Clone(z)
						beside[j] += h * max(math.Abs(z[j]), norm(z)*1e-3)
						if g, _ := p.value(beside, nil); g < f*(1-1e-12) {
							t.Errorf("%v: %g is below %g, at coordinate %d by %g", with.Method, g, f, j, h)
						}
					}
				}
			}
		})
	}
}

// Refine returns an error and no result where it cannot find the minimum.
func TestErrors(t *testing.T) {
	r := rand.New(rand.NewPCG(18, 19))
	data := clouds(r, 300, 3, 2)
	for i := range data.x {
		data.x[i][0] += float64(4 * (i % 2))
	}
	blocks := data.cut(100)
	model, _ := proximal(t, blocks, incremental.Options{Nu: 100})
	stopped, stop := context.WithCancel(context.Background())
	stop()
	long := clouds(r, 3000, 3, 2)
	long.weight = make([]float64, 3000)
	for i := range long.weight {
		long.weight[i] = float64(min(i%10, 1)) // every tenth is absent
	}
	long.x[20][1], long.x[2503][1] = math.NaN(), math.NaN()
	bad := data.cut(300)
	bad[0].Columns = slices.Clone(bad[0].Columns)
	infinite := make([]float64, 300)
	infinite[123] = math.Inf(1)
	bad[0].Columns[1] = gram.ColumnOf(infinite)
	foreign := data.cut(300)
	foreign[0].Classes = []string{"c0", "c7"}
	narrow := data.cut(300)
	narrow[0].Columns = narrow[0].Columns[:2]
	swapped := data.cut(300)
	swapped[0].Features = []string{"x2", "x1", "x3"}
	one := table{x: data.x[:1], class: data.class[:1]}.cut(1)
	failed := errors.New("the log is gone")
	for _, c := range []struct {
		name string
		ctx  context.Context
		rows Rows
		with Options
		want string
	}{
		{"limit", nil, blocks, Options{limit: 1}, "not done after 1 iterations"},
		{"limit of the dual", nil, blocks, Options{limit: 1, Method: Dual}, "not done after 1 iterations"},
		{"limit of logistic", nil, blocks, Options{limit: 1, Method: Logistic}, "not done after 1 iterations"},
		{"cancelled", stopped, blocks, Options{}, "context canceled"},
		{"cancelled stream", stopped, stream{blocks, r}, Options{}, "context canceled"},
		{"cancelled dual", stopped, blocks, Options{Method: Dual}, "context canceled"},
		{"cancelled logistic", stopped, blocks, Options{Method: Logistic}, "context canceled"},
		{"rows fail", nil, failing{failed}, Options{}, "the log is gone"},
		{"infinite", nil, bad, Options{}, `row 123: feature "x2": the value is +Inf`},
		{"infinite, on a line", nil, bad, Options{Method: Line}, `row 123: feature "x2": the value is +Inf`},
		{"infinite, logistic", nil, bad, Options{Method: Logistic}, `row 123: feature "x2": the value is +Inf`},
		{"not a number, far down", nil, long.cut(3000), Options{}, `row 2503: feature "x2": the value is NaN`},
		{"unknown class", nil, foreign, Options{}, "class that the model does not have"},
		{"one class", nil, one, Options{}, `class "c1" has no rows`},
		{"no rows", nil, Blocks{}, Options{}, `class "c0" has no rows`},
		{"no blocks in a stream", nil, stream{nil, r}, Options{}, `class "c0" has no rows`},
		{"narrow", nil, narrow, Options{}, "2 features, the model 3"},
		{"other order", nil, swapped, Options{}, "another order"},
		{"line with a regulariser", nil, blocks, Options{Method: Line, Regulariser: make([]float64, 6)}, "line measures planes by ‖w‖² and has no other regulariser"},
		{"logistic with a regulariser", nil, blocks, Options{Method: Logistic, Regulariser: make([]float64, 6)}, "logistic measures planes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.ctx == nil {
				c.ctx = context.Background()
			}
			result, err := Refine(c.ctx, model, c.rows, c.with)
			if err == nil || !strings.Contains(err.Error(), c.want) || result != nil {
				t.Errorf("error %v, result %v; want %q", err, result, c.want)
			}
		})
	}
	_, err := Refine(context.Background(), model, blocks, Options{limit: 1})
	var limit *LimitError
	if !errors.As(err, &limit) || limit.Iterations != 1 || !(limit.Objective > 0) || !(limit.Gradient > 0) {
		t.Errorf("%#v says not where the plane was", err)
	}
	// Every seventh row is so far out that its rounding hides the others, although the
	// system is well-conditioned.
	// Some draws stall. Others end, take too many steps, or are out of the range of sums.
	var apart table
	var fitted *incremental.Model
	var stall *StallError
	for draws := 0; stall == nil && draws < 200; draws++ {
		apart = clouds(r, 20, 1, 2)
		fitted, _ = proximal(t, apart.cut(20), incremental.Options{Nu: 1e-4})
		for i := 0; i < len(apart.x); i += 7 {
			apart.x[i][0] *= 1e40
		}
		_, err = Refine(context.Background(), fitted, apart.cut(20), Options{})
		if err != nil && !errors.As(err, &stall) && !errors.As(err, &limit) && !errors.Is(err, errRange) {
			t.Errorf("%v says not why it stopped", err)
		}
	}
	if stall == nil || !(stall.Objective > 0) || !(stall.Gradient > 0) || !(stall.Condition < 10) {
		t.Errorf("%#v says not why it stopped", stall)
	}
	// The cost of each row fits an exact term, but the total does not fit a sum.
	fitted.Planes[0].W[0] = 1
	for i := range apart.x {
		apart.x[i][0] = 3e59 * float64(1-2*(i%2))
	}
	if _, err = Refine(context.Background(), fitted, apart.cut(1), Options{}); !errors.Is(err, errRange) {
		t.Errorf("%v, not out of range", err)
	}
	var row *incremental.RowError
	if _, err := Refine(context.Background(), model, bad, Options{}); !errors.As(err, &row) || row.Row != 123 {
		t.Errorf("%v does not name the row", err)
	}
}

type failing struct{ err error }

func (f failing) Pass(context.Context, func(*incremental.Block) error) error { return f.err }

// Columns of all types give the same result as float64 columns.
func TestColumnTypes(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 21))
	const m = 500
	var single [2][m]float32
	var small [m]int16
	var wide [2 * m]float64
	codes := make([]int32, m)
	for i := range m {
		codes[i] = int32(i % 2)
		single[0][i], single[1][i] = float32(r.NormFloat64()), float32(r.NormFloat64())
		small[i], wide[2*i] = int16(r.IntN(5)), r.NormFloat64()+float64(codes[i])
	}
	for _, columns := range [][]gram.Column{
		{gram.ColumnOf(single[0][:]), gram.ColumnOf(single[1][:])},
		{gram.ColumnOf(single[0][:]), gram.ColumnOf(small[:]), gram.StridedColumn(wide[:], 0, 2, m)},
	} {
		b := &incremental.Block{Columns: columns, Codes: codes, Classes: []string{"a", "b"}}
		doubles := &incremental.Block{Codes: codes, Classes: b.Classes}
		for _, c := range columns {
			v := make([]float64, m)
			c.Copy(v, 0)
			doubles.Columns = append(doubles.Columns, gram.ColumnOf(v))
		}
		model, with := proximal(t, Blocks{b}, incremental.Options{Nu: 1, Standardise: true})
		for _, with.Method = range []Method{Full, Line, Dual, Logistic} {
			want := bits(refine(t, model, Blocks{doubles}, with))
			if got := bits(refine(t, model, Blocks{b}, with)); !slices.Equal(got, want) {
				t.Errorf("%v: %x, not %x", with.Method, got, want)
			}
		}
	}
}
