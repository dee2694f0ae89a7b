package basis

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"streamd/incremental"
	"streamd/incremental/tuning"
	"streamd/kernels"
	"streamd/kernels/reduce"
)

// spy is a reducer that is seen at work.
type spy struct {
	reduce.Reducer
	see func(*reduce.Problem) error
}

func (s spy) Reduce(ctx context.Context, p *reduce.Problem) (*reduce.Result, error) {
	if err := s.see(p); err != nil {
		return nil, err
	}
	return s.Reducer.Reduce(ctx, p)
}

// dealt is rows in folds, and their problem.
func dealt(t *testing.T, rows, folds int) (*Problem, []int32, kernels.Kernel) {
	t.Helper()
	b := scattered(rows)
	fold := make([]int32, rows)
	for i := range fold {
		fold[i] = int32(i * 7 % folds)
	}
	kernel, err := kernels.Gaussian(0.5)
	if err != nil {
		t.Fatal(err)
	}
	p := &Problem{Rows: b, Planes: incremental.Options{Nu: 10}, Seed: 3}
	p.Mean, p.Sigma = summed(t, b.Features, b).Moments().Scale()
	return p, fold, kernel
}

func sized(name string, by reduce.Reducer, sizes ...int) (all []Candidate) {
	for _, size := range sizes {
		all = append(all, Candidate{Name: name, Reducer: by, Coordinates: size, Points: size})
	}
	return all
}

// The figures are those of planes that are solved, fold by fold, by other means, and each basis is
// chosen from the rows outside its fold.
func TestComparedFigures(t *testing.T) {
	const rows, folds = 300, 3
	for _, objective := range []tuning.Objective{tuning.Accuracy, tuning.Balanced} {
		p, fold, kernel := dealt(t, rows, folds)
		p.Objective = objective
		by := reduce.Subset{Nu: 1}
		seen := spy{by, func(q *reduce.Problem) error {
			if len(q.Codes) != rows-rows/folds {
				t.Errorf("a basis of %d rows", len(q.Codes))
			}
			return nil
		}}
		got, err := p.Compare(t.Context(), kernel, sized("random", seen, 9), fold)
		if err != nil {
			t.Fatal(err)
		}
		var right, weight, squares [2]float64
		var losses [2]float64
		var hits [][2]float64 // weight and 1 or 0 of each row of class 1, then of class 0
		var codes []int32
		for f := range int32(folds) {
			var rest, held []int
			for i := range fold {
				if fold[i] == f {
					held = append(held, i)
				} else {
					rest = append(rest, i)
				}
			}
			q := *p
			q.Rows, q.Reducer, q.Points = p.Rows.Pick(rest), by, 9
			m, _, err := q.Choose(t.Context(), kernel)
			if err != nil {
				t.Fatal(err)
			}
			in := New(m, false)
			lifted, _ := new(Lifter).Block(t.Context(), q.Rows, in)
			model, err := summed(t, in.Names, lifted).Moments().Solve(p.Planes)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range held {
				var x []float64
				for j, c := range p.Rows.Columns {
					x = append(x, (c.At(i)-p.Mean[j])*(1/p.Sigma[j]))
				}
				value := -model.Planes[0].Gamma
				for j, k := range m.At(x) {
					value += model.Planes[0].W[j] * k
				}
				code, v, hit := p.Rows.Codes[i], p.Rows.Weight(i), 0.0
				if (value >= 0) == (code == 1) {
					hit = 1
				}
				losses[code] += v * math.Pow(value-float64(2*code-1), 2)
				right[code] += v * hit
				weight[code] += v
				codes, hits = append(codes, code), append(hits, [2]float64{v, hit})
			}
		}
		for i, h := range hits {
			c := codes[i]
			d := h[0] / weight[c] * (h[1] - right[c]/weight[c])
			squares[c] += d * d
		}
		share := [2]float64{weight[0] / (weight[0] + weight[1]), weight[1] / (weight[0] + weight[1])}
		if objective == tuning.Balanced {
			share = [2]float64{0.5, 0.5}
		}
		want, loss, deviation := 0.0, 0.0, 0.0
		for c := range 2 {
			loss += share[c] * losses[c] / weight[c]
			want += share[c] * right[c] / weight[c]
			deviation += share[c] * share[c] * squares[c]
		}
		j := got.Judged[0]
		if math.Abs(j.Correctness-want) > 1e-12 || math.Abs(j.Deviation-math.Sqrt(deviation)) > 1e-12 || math.Abs(j.Loss-loss) > 1e-9 || want == 1 {
			t.Errorf("objective %d: %v ± %v and %v, not %v ± %v and %v", objective, j.Correctness, j.Deviation, j.Loss, want, math.Sqrt(deviation), loss)
		}
		if got.Rows != rows || got.Folds != folds || j.Mean != 9 || j.Nu != 10 || j.Behind != 0 || j.BehindDeviation != 0 {
			t.Errorf("%+v", got)
		}
	}
}

// Results depend neither on workers nor on time. ν is chosen where it is 0.
func TestComparisonIsAFunctionOfTheProblem(t *testing.T) {
	p, fold, kernel := dealt(t, 300, 4)
	p.Planes.Nu = 0
	candidates := slices.Concat(sized("kmeans", reduce.Clusters{Nu: 1}, 12, 6, 3), sized("lda", reduce.Discriminant{Nu: 1}, 12, 6, 3))
	var all []*Comparison
	for _, workers := range []int{1, 5} {
		p.Workers = workers
		c, err := p.Compare(t.Context(), kernel, candidates, fold)
		if err != nil || len(c.Judged) != 6 || c.Untried != 0 {
			t.Fatalf("%+v, %v", c, err)
		}
		for i := range c.Judged {
			if c.Judged[i].Name != candidates[i].Name || c.Judged[i].Coordinates != candidates[i].Coordinates || !(c.Judged[i].Seconds > 0) {
				t.Errorf("%d is %+v", i, c.Judged[i])
			}
			c.Judged[i].Seconds = 0
		}
		all = append(all, c)
	}
	if !reflect.DeepEqual(all[0], all[1]) {
		t.Errorf("%+v by one worker, %+v by five", all[0], all[1])
	}
	if slices.ContainsFunc(all[0].Judged, func(j Judged) bool { return j.Nu == 0 }) {
		t.Errorf("ν is not chosen: %+v", all[0].Judged)
	}
}

// Of the fewest points that are within a standard error of the best, in the difference of the
// correctness and of the loss, the best basis is recommended.
func TestRecommendedBasis(t *testing.T) {
	const rows = 100
	c := &comparison{Problem: &Problem{Rows: &incremental.Block{Classes: []string{"a", "b"}}}, codes: make([]int32, rows), share: make([]float64, rows)}
	for i := range rows {
		c.codes[i], c.share[i] = int32(i%2), 1
	}
	c.shares()
	wrong := func(which ...int) scores {
		s := scores{right: slices.Repeat([]float64{1}, rows), loss: slices.Repeat([]float64{0.5}, rows)}
		for _, i := range which {
			s.right[i] = 0
		}
		return s
	}
	lossy := wrong(1, 2)
	for i := range lossy.loss {
		lossy.loss[i] += 0.01 * float64(1+i%2)
	}
	of := func(points int, failed error) Judged {
		return Judged{Candidate: Candidate{Points: points, Coordinates: min(points, 50)}, Failed: failed}
	}
	for _, test := range []struct {
		name   string
		judged []Judged
		all    []scores
		want   int
	}{
		// Two more errors, one less: the difference 0.01 has a deviation of 0.017.
		{"smallest", []Judged{of(50, nil), of(25, nil), of(12, nil)}, []scores{wrong(1, 2), wrong(1, 2, 3, 4), wrong(1, 3, 4)}, 2},
		// One more error and none less is as much behind as its deviation, 0.0099.
		{"clearly behind", []Judged{of(50, nil), of(25, nil), of(12, nil)}, []scores{wrong(1, 2), wrong(2, 3), wrong(1, 2, 3)}, 1},
		{"more loss", []Judged{of(50, nil), of(25, nil), of(12, nil)}, []scores{wrong(1, 2), wrong(1, 3), lossy}, 1},
		{"best of its size", []Judged{of(50, nil), of(12, nil), of(12, nil)}, []scores{wrong(1, 2), wrong(1, 3, 4), wrong(3, 4)}, 2},
		{"many points", []Judged{of(1000, nil), of(50, nil)}, []scores{wrong(), wrong()}, 1},
		{"equals", []Judged{of(50, nil), of(50, nil)}, []scores{wrong(1), wrong(2)}, 0},
		{"failed", []Judged{of(3, errors.New("none")), of(50, nil)}, []scores{{}, wrong(1)}, 1},
	} {
		o := &Comparison{Judged: test.judged}
		for i, s := range test.all {
			if s.right != nil {
				o.Judged[i].Correctness, o.Judged[i].Deviation = c.mean(s.right)
			}
		}
		if err := o.choose(c, test.all); err != nil || o.Chosen != test.want {
			t.Errorf("%s: %d, not %d; %+v, %v", test.name, o.Chosen, test.want, o.Judged, err)
		}
	}
}

// A candidate without a basis is told, and does not end the others.
func TestCandidatesThatFail(t *testing.T) {
	p, fold, kernel := dealt(t, 200, 3)
	no := errors.New("no basis")
	fails := sized("fails", spy{nil, func(*reduce.Problem) error { return no }}, 5)
	c, err := p.Compare(t.Context(), kernel, slices.Concat(fails, sized("random", reduce.Subset{Nu: 1}, 5)), fold)
	if err != nil || !errors.Is(c.Judged[0].Failed, no) || c.Chosen != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := p.Compare(t.Context(), kernel, fails, fold); !errors.Is(err, no) {
		t.Errorf("all fail: %v", err)
	}
	clear(p.Rows.Codes)
	if _, err := p.Compare(t.Context(), kernel, fails, fold); !errors.Is(err, incremental.ErrClasses) {
		t.Errorf("one class: %v", err)
	}
	p.Rows.Codes[0] = 1
	p.Rows.Weights[0] = 2
	if _, err := p.Compare(t.Context(), kernel, fails, make([]int32, 200)); err == nil || errors.Is(err, no) {
		t.Errorf("one fold: %v", err)
	}
}

// A fold without which a class has no rows is left out.
func TestFoldWithAllRowsOfAClass(t *testing.T) {
	p, fold, kernel := dealt(t, 200, 4)
	for i, f := range fold {
		p.Rows.Codes[i] = min(f, 1)
	}
	c, err := p.Compare(t.Context(), kernel, sized("random", reduce.Subset{Nu: 1}, 5), fold)
	if err != nil || c.Folds != 3 || c.Rows != 150 {
		t.Errorf("%+v, %v", c, err)
	}
}

// When the time is over the candidates so far are compared. There must be one.
func TestTimeIsOver(t *testing.T) {
	p, fold, kernel := dealt(t, 200, 3)
	candidates := sized("random", reduce.Subset{Nu: 1}, 9, 6, 3)
	ctx, cancel := context.WithCancel(t.Context())
	p.Tried = cancel
	c, err := p.Compare(ctx, kernel, candidates, fold)
	if err != nil || len(c.Judged) != 1 || c.Untried != 2 || c.Judged[0].Coordinates != 9 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := p.Compare(ctx, kernel, candidates, fold); !errors.Is(err, context.Canceled) {
		t.Errorf("at once: %v", err)
	}
}
