package tuning

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"streamd/incremental"
	"streamd/incremental/gram"
)

type row struct {
	x      []float64
	class  string
	weight float64
	fold   int
}

func randomRows(r *rand.Rand, m, n, k, folds int) []row {
	rows := make([]row, m)
	for i := range rows {
		c := r.IntN(k)
		x := make([]float64, n)
		for j := range x {
			x[j] = r.NormFloat64() + float64((c*(j+1))%k)
		}
		rows[i] = row{x, fmt.Sprint("c", c), math.Round(r.ExpFloat64()*4) / 4, r.IntN(folds)}
	}
	return rows
}

func blockOf(rows []row) *incremental.Block {
	b := &incremental.Block{}
	n := 0
	for _, row := range rows {
		c := slices.Index(b.Classes, row.class)
		if c < 0 {
			c = len(b.Classes)
			b.Classes = append(b.Classes, row.class)
		}
		b.Codes, b.Weights = append(b.Codes, int32(c)), append(b.Weights, row.weight)
		n = len(row.x)
	}
	for j := range n {
		column := make([]float64, len(rows))
		for i := range rows {
			column[i] = rows[i].x[j]
		}
		b.Columns = append(b.Columns, gram.ColumnOf(column))
	}
	return b
}

func those(rows []row, which func(*row) bool) (out []row) {
	for i := range rows {
		if which(&rows[i]) {
			out = append(out, rows[i])
		}
	}
	return out
}

func moments(t testing.TB, rows []row, n int) *incremental.Moments {
	t.Helper()
	state := incremental.NewState(incremental.DefaultFeatures(n))
	if len(rows) > 0 {
		var z incremental.Summariser
		s, err := z.Summarise(blockOf(rows))
		if err != nil {
			t.Fatal(err)
		}
		state.Add(s)
	}
	return state.Moments()
}

func trial(t testing.TB, o incremental.Options, nus []float64, rows []row, folds int) *Trial {
	t.Helper()
	n := len(rows[0].x)
	out := New(o, nus, moments(t, rows, n).Classes())
	for fold := range folds {
		held := moments(t, those(rows, func(r *row) bool { return r.fold == fold }), n)
		if err := out.Hold(moments(t, those(rows, func(r *row) bool { return r.fold != fold }), n), held); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func curveOf(t testing.TB, of *Trial) *Curve {
	t.Helper()
	c, err := of.Curve()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// near allows for the rounding of sums of numbers of order 1.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9 }

// The curve from sums agrees with models that are solved without each fold and applied
// row by row.
func TestCurveIsThatOfRefits(t *testing.T) {
	nus := []float64{0x1p-20, 0.01, 1, 0x1p20}
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(1, seed))
		const n, folds = 3, 4
		k := 2 + int(seed%3)
		rows := randomRows(r, 160, n, k, folds)
		for i := range rows {
			rows[i].weight /= []float64{1, 256}[seed/2%2]
		}
		o := incremental.Options{Standardise: seed%2 == 1, Balanced: seed%4 >= 2}
		if seed >= 4 {
			o.ClassWeights = map[string]float64{"c1": 2.5}
		}
		got := trial(t, o, nus, rows, folds)
		for fold := range folds {
			got.Add(got.Score(fold, blockOf(those(rows, func(r *row) bool { return r.fold == fold }))))
		}
		curve := curveOf(t, got)
		for i, nu := range nus {
			o.Nu = nu
			var right, weight float64
			var foldLoss, lossWeight [folds]float64
			side := map[string]*[2]float64{} // of each plane and side: loss, weight
			hits := map[string]*[2]float64{}
			for fold := range folds {
				model, err := moments(t, those(rows, func(r *row) bool { return r.fold != fold }), n).Solve(o)
				if err != nil {
					t.Fatal(err)
				}
				held := those(rows, func(r *row) bool { return r.fold == fold })
				for j, row := range held {
					v := row.weight
					if a, ok := o.ClassWeights[row.class]; ok {
						v *= a
					}
					class, values := make([]int32, 1), make([]float64, len(model.Planes))
					model.Classify(class, values, blockOf(held[j:j+1]).Columns)
					if hits[row.class] == nil {
						hits[row.class] = new([2]float64)
					}
					hits[row.class][1] += row.weight
					weight += row.weight
					if model.Classes[class[0]] == row.class {
						hits[row.class][0] += row.weight
						right += row.weight
					}
					for p, plane := range model.Planes {
						d, name := -1.0, plane.Class+"-"
						if plane.Class == row.class {
							d, name = 1, plane.Class+"+"
						}
						if side[name] == nil {
							side[name] = new([2]float64)
						}
						loss := v * (values[p] - d) * (values[p] - d)
						side[name][0] += loss
						side[name][1] += v
						foldLoss[fold] += loss
						lossWeight[fold] += v
					}
				}
			}
			var loss, lossAll, balancedLoss, balanced float64
			for fold := range folds {
				loss, lossAll = loss+foldLoss[fold], lossAll+lossWeight[fold]
			}
			for _, s := range side {
				balancedLoss += s[0] / s[1] / float64(len(side))
			}
			for _, h := range hits {
				balanced += h[0] / h[1] / float64(k)
			}
			p := curve.points[i]
			n := float64(len(those(rows, func(r *row) bool { return r.weight > 0 })))
			wantError, wantBalancedError := standardErrors(n, hits)
			if !near(p.Scores.Error, wantError) || !near(p.Scores.BalancedError, wantBalancedError) || curve.Options.Nu != 0 || curve.Rows() != int64(n) {
				t.Errorf("seed %d, ν = %g: errors %+v, want %v and %v, of %d rows", seed, nu, p.Scores, wantError, wantBalancedError, curve.Rows())
			}
			if p.Nu != nu || !near(p.Loss, loss/lossAll) || !near(p.BalancedLoss, balancedLoss) ||
				!near(p.Scores.Correctness, right/weight) || !near(p.Scores.BalancedCorrectness, balanced) {
				t.Errorf("seed %d, ν = %g: %+v instead of loss %v, balanced %v, correctness %v, balanced %v",
					seed, nu, p, loss/lossAll, balancedLoss, right/weight, balanced)
			}
			for fold := range folds {
				if !near(p.FoldLoss[fold], foldLoss[fold]/lossWeight[fold]) {
					t.Errorf("seed %d, ν = %g, fold %d: loss %v instead of %v", seed, nu, fold, p.FoldLoss[fold], foldLoss[fold]/lossWeight[fold])
				}
			}
		}
	}
}

// standardErrors are those of the share of all rows that are right, and of the mean of the classes'
// shares, from the weights of each class that are right, and of all. n rows were scored.
func standardErrors(n float64, hits map[string]*[2]float64) (of, balanced float64) {
	single := func(right, all, n float64) float64 {
		p := (right/all*n + 1) / (n + 2)
		return math.Sqrt(p * (1 - p) / (n + 2))
	}
	var right, all, seen float64
	for _, h := range hits {
		right, all = right+h[0], all+h[1]
		if h[1] > 0 {
			seen++
		}
	}
	for _, h := range hits {
		if h[1] > 0 {
			balanced += math.Pow(single(h[0], h[1], n*h[1]/all)/seen, 2)
		}
	}
	return single(right, all, n), math.Sqrt(balanced)
}

// The curve of refined planes is that of their values, row by row: the truncated squares of the
// margins, or −log p. Folds may lack classes, and rows come in blocks of any size.
func TestRefinedCurveIsThatOfRows(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(9, seed))
		const n, folds = 2, 3
		k, logistic := 2+int(seed%3), seed%2 == 1
		nus := []float64{0.5, 3, 7}[:1+r.IntN(3)]
		rows := randomRows(r, 1+r.IntN(80), n, k, folds)
		var classes []string
		for c := range k {
			classes = append(classes, fmt.Sprint("c", c))
		}
		for i := range rows {
			rows[i].weight /= []float64{1, 256}[seed/4%2]
		}
		o := incremental.Options{}
		if seed%5 > 1 {
			o.ClassWeights = map[string]float64{"c1": 2.5, "c0": 0.25}
		}
		models := make([][]*incremental.Model, folds)
		for fold := range models {
			for range nus {
				m := &incremental.Model{Features: incremental.DefaultFeatures(n), Classes: classes}
				if k == 4 && fold == 1 {
					m.Classes = classes[:3]
				}
				with := m.Classes
				if k == 2 {
					with = classes[1:]
				}
				for _, class := range with {
					m.Planes = append(m.Planes, incremental.Plane{Class: class, W: []float64{r.NormFloat64(), r.NormFloat64()}, Gamma: r.NormFloat64()})
				}
				models[fold] = append(models[fold], m)
			}
		}
		trial := Refined(o, nus, classes, models, "way", logistic)
		scored := 0
		for fold := range folds {
			held := those(rows, func(r *row) bool { return r.fold == fold })
			for len(held) > 0 {
				m := 1 + r.IntN(len(held))
				trial.Add(trial.Score(fold, blockOf(held[:m])))
				held = held[m:]
			}
		}
		for _, row := range rows {
			if row.weight > 0 {
				scored++
			}
		}
		curve, err := trial.Curve()
		if scored == 0 {
			if !errors.Is(err, ErrRows) {
				t.Errorf("seed %d: no row, %v", seed, err)
			}
			continue
		}
		for i := range nus {
			side := map[string]*[2]float64{} // of each plane and side: loss, weight
			hits := map[string]*[2]float64{}
			of := [folds]*[2]float64{}
			for fold := range of {
				of[fold] = new([2]float64)
			}
			add := func(name string, fold int, loss, weight float64) {
				if side[name] == nil {
					side[name] = new([2]float64)
				}
				for _, to := range []*[2]float64{side[name], of[fold]} {
					to[0], to[1] = to[0]+loss, to[1]+weight
				}
			}
			for _, row := range rows {
				m, v := models[row.fold][i], row.weight
				if hits[row.class] == nil {
					hits[row.class] = new([2]float64)
				}
				hits[row.class][1] += v
				best, answer, all := math.Inf(-1), m.Classes[0], 0.0
				own := math.NaN()
				if k == 2 {
					best, all, own = 0, 1, 0
				}
				if a, ok := o.ClassWeights[row.class]; ok {
					v *= a
				}
				for _, p := range m.Planes {
					s := row.x[0]*p.W[0] + row.x[1]*p.W[1] - p.Gamma
					if s > best {
						best, answer = s, p.Class
					}
					if all += math.Exp(s); p.Class == row.class {
						own = s
					}
					d, name := -1.0, p.Class+"-"
					if p.Class == row.class {
						d, name = 1, p.Class+"+"
					}
					if !logistic {
						add(name, row.fold, v*math.Pow(max(0, 1-d*s), 2), v)
					}
				}
				if answer == row.class {
					hits[row.class][0] += row.weight
				}
				if logistic && !math.IsNaN(own) {
					add(row.class, row.fold, v*-math.Log(math.Exp(own)/all), v)
				}
			}
			var loss, weight, balanced, sides, right, all, shares, seen float64
			var foldLoss []float64
			for _, s := range side {
				if loss, weight = loss+s[0], weight+s[1]; s[1] > 0 {
					balanced, sides = balanced+s[0]/s[1], sides+1
				}
			}
			for _, f := range of {
				if f[1] > 0 {
					foldLoss = append(foldLoss, f[0]/f[1])
				}
			}
			for _, h := range hits {
				if right, all = right+h[0], all+h[1]; h[1] > 0 {
					shares, seen = shares+h[0]/h[1], seen+1
				}
			}
			if weight == 0 {
				if !errors.Is(err, ErrRows) {
					t.Errorf("seed %d: no row of a plane's class, %v", seed, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			p := curve.Points()[i]
			off, balancedOff := standardErrors(float64(scored), hits)
			if p.Nu != nus[i] || !near(p.Loss, loss/weight) || !near(p.BalancedLoss, balanced/sides) || !slices.EqualFunc(p.FoldLoss, foldLoss, near) ||
				!near(p.Scores.Correctness, right/all) || !near(p.Scores.BalancedCorrectness, shares/seen) || !near(p.Scores.Error, off) || !near(p.Scores.BalancedError, balancedOff) {
				t.Fatalf("seed %d, %d classes, ν = %v: %+v, %+v; want loss %v, balanced %v, folds %v, correct %v, %v within %v, %v", seed, k, nus[i], p, p.Scores,
					loss/weight, balanced/sides, foldLoss, right/all, shares/seen, off, balancedOff)
			}
			if curve.Method != "way" || curve.Rows() != int64(scored) || len(curve.Points()) != len(nus) {
				t.Errorf("seed %d: a curve by %q of %d rows", seed, curve.Method, curve.Rows())
			}
		}
	}
}

// Sums of losses of any size are exact: they do not depend on the order in which they come.
func TestLossesOfAnySize(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 1))
	scores := []*Score{}
	want := new(big.Float).SetPrec(2000)
	for range 200 {
		v := math.Ldexp(1+r.Float64(), r.IntN(700)-350)
		scores = append(scores, &Score{errors: []float64{v, 0, 0, 0}, weight: make([]float64, 2), right: make([]float64, 2)})
		unit := new(big.Float).SetPrec(2000).SetMantExp(big.NewFloat(1), -64)
		if v >= 0x1p300 {
			v = 0x1p300
		}
		rest := new(big.Float).SetPrec(2000).SetFloat64(v)
		whole, _ := new(big.Float).SetPrec(2000).Quo(rest, unit).Int(nil)
		low := new(big.Float).SetPrec(2000).Mul(new(big.Float).SetPrec(2000).SetInt(whole), unit)
		if rest.Sub(rest, low).Cmp(new(big.Float).Quo(unit, big.NewFloat(2))) > 0 { // ties do not occur
			low.Add(low, unit)
		}
		want.Add(want, low)
	}
	sum, _ := want.Float64()
	for range 3 {
		r.Shuffle(len(scores), func(i, j int) { scores[i], scores[j] = scores[j], scores[i] })
		trial := Refined(incremental.Options{}, []float64{1}, []string{"a", "b"}, make([][]*incremental.Model, 1), "way", false)
		for _, s := range scores {
			trial.Add(s)
		}
		if got, _ := trial.errors[0].Split(0); got != sum {
			t.Errorf("losses sum to %v, want %v", got, sum)
		}
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), 0x1p300, 0x1p301} {
		trial := Refined(incremental.Options{}, []float64{1}, []string{"a", "b"}, make([][]*incremental.Model, 1), "way", false)
		for range 3 {
			trial.Add(&Score{errors: []float64{v, 0x1p-65, 0x1.8p-64, 0x1p51}, weight: make([]float64, 2), right: make([]float64, 2)})
		}
		for i, want := range []float64{3 * 0x1p300, 0, 3 * 0x1p-63, 3 * 0x1p51} {
			if got, _ := trial.errors[0].Split(i); got != want {
				t.Errorf("thrice %v and others sum to %v, want %v", v, got, want)
			}
		}
	}
}

// The curve has the same bits however the scored rows are cut into blocks, and in
// whatever order these come.
func TestCurveIsAFunctionOfTheSet(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	rows := randomRows(r, 200, 2, 3, 3)
	for i := range rows {
		rows[i].weight = r.ExpFloat64()
	}
	o := incremental.Options{Standardise: true}
	var blocks []*incremental.Block
	var of []int
	for fold := range 3 {
		held := those(rows, func(r *row) bool { return r.fold == fold })
		for len(held) > 0 {
			m := min(1+r.IntN(9), len(held))
			blocks, of = append(blocks, blockOf(held[:m])), append(of, fold)
			held = held[m:]
		}
	}
	var want *Curve
	for round := range 5 {
		got := trial(t, o, Grid(), rows, 3)
		for _, i := range r.Perm(len(blocks)) {
			got.Add(got.Score(of[i], blocks[i]))
		}
		curve := curveOf(t, got)
		if round == 0 {
			want = curve
		} else if !reflect.DeepEqual(curve, want) {
			t.Fatalf("round %d: another curve", round)
		}
	}
	if want.rows != 200 {
		t.Errorf("%d rows were scored", want.rows)
	}
}

func TestClassOfOneFold(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	rows := randomRows(r, 90, 2, 3, 2)
	for i := range rows {
		rows[i].weight = 1
		if rows[i].class == "c2" {
			rows[i].fold = 1
		}
	}
	got := trial(t, incremental.Options{}, []float64{1}, rows, 2)
	got.Add(got.Score(1, blockOf(those(rows, func(r *row) bool { return r.class == "c2" }))))
	p := curveOf(t, got).points[0]
	if p.Scores.Correctness != 0 {
		t.Errorf("rows of a class that no model knows: correctness %v", p.Scores.Correctness)
	}
	if !(p.Loss > 0) || !(p.BalancedLoss > 0) || math.IsInf(p.Loss, 0) {
		t.Errorf("loss %v, balanced %v", p.Loss, p.BalancedLoss)
	}

	// All rows of c1 are in one of two folds.
	rows = those(rows, func(r *row) bool { return r.class != "c1" })
	in := func(fold int) *incremental.Moments {
		return moments(t, those(rows, func(r *row) bool { return r.fold == fold }), 2)
	}
	if err := New(incremental.Options{}, []float64{1}, moments(t, rows, 2).Classes()).Hold(in(0), in(1)); !errors.Is(err, incremental.ErrClasses) {
		t.Errorf("one class is left: %v", err)
	}
}

func TestChoose(t *testing.T) {
	points := func(values ...[2]float64) []Point { // loss, correctness
		var out []Point
		for i, v := range values {
			out = append(out, Point{Nu: math.Ldexp(1, i), Loss: v[0], BalancedLoss: 1 - v[0], Scores: &Scores{Correctness: v[1], BalancedCorrectness: 1 - v[1], Error: 0.05, BalancedError: 0.02}})
		}
		return out
	}
	for what, c := range map[string]struct {
		points []Point
		by     Criterion
		want   float64
	}{
		"the least loss":                            {points([2]float64{0.5, 0.9}, [2]float64{0.3, 0.6}, [2]float64{0.4, 0.8}), Loss, 2},
		"the smaller ν of equal losses":             {points([2]float64{0.5, 0}, [2]float64{0.3 * (1 + 1e-12), 0}, [2]float64{0.3, 0}), Loss, 2},
		"the least balanced loss":                   {points([2]float64{0.2, 0}, [2]float64{0.3, 0}, [2]float64{0.1, 0}), BalancedLoss, 2},
		"the most correct":                          {points([2]float64{0.5, 0.9}, [2]float64{0.3, 0.6}, [2]float64{0.4, 0.89}), Correctness, 1},
		"the most correct, be it by little":         {points([2]float64{0.5, 0.9}, [2]float64{0.3, 0.6}, [2]float64{0.4, 0.8999}), Correctness, 1},
		"the least loss of as correct":              {points([2]float64{0.5, 0.9}, [2]float64{0.3, 0.6}, [2]float64{0.4, 0.9}), Correctness, 4},
		"the smaller ν of equal loss, too":          {points([2]float64{0.4, 0.9}, [2]float64{0.3, 0.6}, [2]float64{0.4, 0.9}), Correctness, 1},
		"the most correct when classes count alike": {points([2]float64{0.5, 0.9}, [2]float64{0.3, 0.6}, [2]float64{0.4, 0.89}), BalancedCorrectness, 2},
	} {
		curve := Curve{rows: 1, points: c.points}
		if got := curve.Choose(c.by); got.Nu != c.want {
			t.Errorf("%s: ν = %v instead of %v", what, got.Nu, c.want)
		}
		slices.Reverse(curve.points)
		if got := curve.Choose(c.by); got.Nu != c.want {
			t.Errorf("%s, of a falling grid: ν = %v instead of %v", what, got.Nu, c.want)
		}
	}
	for o, want := range map[Objective][2]Criterion{
		Accuracy: {Loss, Correctness}, Balanced: {BalancedLoss, BalancedCorrectness},
	} {
		if For(o, false) != want[0] || For(o, true) != want[1] {
			t.Errorf("objective %d: by %v and %v", o, For(o, false), For(o, true))
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("correctness is told without rows")
		}
	}()
	(&Curve{points: points([2]float64{0.1, 0})}).Choose(Correctness)
}

// Within a standard error of the most correct point the loss decides, and beyond it correctness.
func TestSettle(t *testing.T) {
	curve := &Curve{rows: 100}
	for i, v := range [][2]float64{{0.5, 0.9}, {0.3, 0.84}, {0.4, 0.86}} {
		curve.points = append(curve.points, Point{
			Nu: float64(i + 1), Loss: v[0], BalancedLoss: v[0],
			Scores: &Scores{Correctness: v[1], BalancedCorrectness: v[1], Error: 0.05, BalancedError: 0.07},
		})
	}
	for by, want := range map[Criterion]float64{Loss: 2, Correctness: 3, BalancedCorrectness: 2} {
		if got := curve.settle(by, math.Inf(1)); got.Nu != want {
			t.Errorf("by %v: ν = %v, want %v", by, got.Nu, want)
		}
	}
	if got := curve.settle(Correctness, 3); got.Nu != 1 {
		t.Errorf("below 3: ν = %v", got.Nu)
	}
	if got := curve.Choose(Correctness); got.Nu != 1 {
		t.Errorf("the most correct: ν = %v", got.Nu)
	}
}

// With few rows the most correct point is a lucky one. What Solve takes classifies fresh rows
// better, though held-out rows say otherwise.
func TestChoiceIsNotLuck(t *testing.T) {
	const sets, rows, features, folds, fresh = 12, 120, 100, 5, 2000
	right := [2]float64{} // of the choice, and of the most correct point
	seen := [2]float64{}  // what the folds say
	for seed := range uint64(sets) {
		r := rand.New(rand.NewPCG(seed, 17))
		sample := func(m int) (out []row) {
			for i := range m {
				c, x, value := 0, make([]float64, features), 0.3*r.NormFloat64()
				for j := range x {
					if x[j] = r.NormFloat64(); j < 10 {
						value += x[j]
					}
				}
				if value > 0 {
					c = 1
				}
				out = append(out, row{x, fmt.Sprint("c", c), 1, i % folds})
			}
			return out
		}
		known, unseen := sample(rows), sample(fresh)
		trial := New(incremental.Options{Standardise: true}, Grid(), []string{"c0", "c1"})
		for f := range folds {
			held := those(known, func(x *row) bool { return x.fold == f })
			if err := trial.Hold(moments(t, those(known, func(x *row) bool { return x.fold != f }), features), moments(t, held, features)); err != nil {
				t.Fatal(err)
			}
			trial.Add(trial.Score(f, blockOf(held)))
		}
		curve, err := trial.Curve()
		if err != nil {
			t.Fatal(err)
		}
		_, settled, err := curve.Solve(moments(t, known, features), Correctness)
		if err != nil {
			t.Fatal(err)
		}
		b := blockOf(unseen)
		for i, p := range []Point{settled, curve.Choose(Correctness)} {
			m, err := moments(t, known, features).Solve(incremental.Options{Standardise: true, Nu: p.Nu})
			if err != nil {
				t.Fatal(err)
			}
			class, values := make([]int32, fresh), make([]float64, fresh)
			m.Classify(class, values, b.Columns)
			seen[i] += p.Scores.Correctness / sets
			for row, code := range b.Codes {
				if m.Classes[class[row]] == b.Classes[code] {
					right[i] += 1.0 / (sets * fresh)
				}
			}
		}
	}
	t.Logf("fresh rows: %.4f right by the choice, %.4f by the most correct; the folds say %.4f and %.4f", right[0], right[1], seen[0], seen[1])
	if !(right[0] > right[1]+0.003) || seen[0] > seen[1] {
		t.Error("the choice is no better than the most correct point")
	}
}

func TestBest(t *testing.T) {
	curve := func(loss, correctness float64) *Curve {
		return &Curve{rows: 1, points: []Point{{Nu: 1, Loss: loss, Scores: &Scores{Correctness: correctness}}}}
	}
	curves := []*Curve{curve(0.4, 0.8), curve(0.3*(1+1e-12), 0.899), curve(0.3, 0.9)}
	if got := Best(Loss, curves); got != 1 {
		t.Errorf("by loss curve %d", got)
	}
	if got := Best(Correctness, curves); got != 2 {
		t.Errorf("by correctness curve %d", got)
	}
	if got := Best(Correctness, []*Curve{curves[0], curves[2], curve(0, 0.9)}); got != 1 {
		t.Errorf("by correctness curve %d", got)
	}
	tied := []*Curve{curve(0.5, 0.88), curve(0.4, 0.9), curve(0.3, 0.9)}
	tied[2].points[0].Scores.Error = 0.1 // the first of equals counts
	if got := Best(Correctness, tied); got != 1 {
		t.Errorf("of tied ones curve %d", got)
	}
	for by, want := range map[Criterion]int{BalancedLoss: 1, BalancedCorrectness: 2} {
		of := []*Curve{curve(0.3, 0.9), curve(0.4, 0.8), curve(0.2, 0.7)}
		for i, c := range of {
			c.points[0].BalancedLoss = []float64{0.5, 0.1, 0.3}[i]
			c.points[0].Scores.BalancedCorrectness = []float64{0.5, 0.6, 0.7}[i]
		}
		if got := Best(by, of); got != want {
			t.Errorf("by %v curve %d", by, got)
		}
	}
	curves[2].points[0].Scores.Error = 0.001
	if got := Best(Correctness, curves); got != 1 { // within 1.5 standard errors
		t.Errorf("of nearly as correct ones curve %d", got)
	}
}

// With a feature that repeats another there is no plane at large ν. Solve chooses among
// the smaller ν.
func TestSolveTakesWhatCanBeSolved(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 1))
	rows := randomRows(r, 100, 2, 2, 2)
	for i := range rows {
		rows[i].x[0] *= 1e5
		rows[i].x[1] = rows[i].x[0]
	}
	total := moments(t, rows, 2)
	curve := Curve{}
	for i, nu := range []float64{1e-8, 1e-4, 1e18} {
		curve.points = append(curve.points, Point{Nu: nu, Loss: 1 / float64(i+1)})
	}
	if _, err := total.Solve(incremental.Options{Nu: 1e18}); err == nil {
		t.Fatal("the largest ν can be solved")
	}
	model, p, err := curve.Solve(total, Loss)
	if err != nil || p.Nu != 1e-4 || model.Options.Nu != 1e-4 || len(model.Planes) != 1 {
		t.Errorf("%+v, %+v, %v", model, p, err)
	}
	curve.points = curve.points[2:]
	condition := (*incremental.ConditionError)(nil)
	if _, _, err := curve.Solve(total, Loss); !errors.As(err, &condition) {
		t.Errorf("nothing can be solved: %v", err)
	}
}

func BenchmarkTrial(b *testing.B) {
	const n, folds = 100, 10
	rows := randomRows(rand.New(rand.NewPCG(5, 1)), 5000, n, 2, folds)
	o := incremental.Options{Standardise: true}
	blocks := make([]*incremental.Block, folds)
	for fold := range folds {
		blocks[fold] = blockOf(those(rows, func(r *row) bool { return r.fold == fold }))
	}
	b.Run("Hold", func(b *testing.B) {
		held, rest := moments(b, rows[:len(rows)/folds], n), moments(b, rows[len(rows)/folds:], n)
		for b.Loop() {
			if err := New(o, Grid(), rest.Classes()).Hold(rest, held); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Score", func(b *testing.B) {
		t := trial(b, o, Grid(), rows, folds)
		for b.Loop() {
			for fold, block := range blocks {
				t.Add(t.Score(fold, block))
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(rows)), "ns/row")
	})
}

// Each fold may have its own coordinates: reversing the order of the features, and the
// sign of some, does not change a plane's values.
func TestFoldsInTheirOwnCoordinates(t *testing.T) {
	const n, folds = 3, 4
	r := rand.New(rand.NewPCG(6, 1))
	nus := []float64{0.01, 1, 100}
	rows := randomRows(r, 120, n, 3, folds)
	want := trial(t, incremental.Options{}, nus, rows, folds)
	got := New(incremental.Options{}, nus, moments(t, rows, n).Classes())
	for fold := range folds {
		var turned []row
		for _, row := range rows {
			x := make([]float64, n)
			for j := range x {
				x[j] = row.x[(j+fold)%n]
			}
			x[0] = -x[0]
			row.x = x
			turned = append(turned, row)
		}
		inside := func(r *row) bool { return r.fold == fold }
		held := those(turned, inside)
		rest := those(turned, func(r *row) bool { return r.fold != fold })
		if err := got.Hold(moments(t, rest, n), moments(t, held, n)); err != nil {
			t.Fatal(err)
		}
		got.Add(got.Score(fold, blockOf(held)))
		want.Add(want.Score(fold, blockOf(those(rows, inside))))
	}
	a, b := curveOf(t, got), curveOf(t, want)
	if a.rows != b.rows || len(a.points) != len(nus) {
		t.Fatalf("%d rows and %d points", a.rows, len(a.points))
	}
	for i := range nus {
		p, q := a.points[i], b.points[i]
		if p.Nu != q.Nu || !near(p.Loss, q.Loss) || !near(p.BalancedLoss, q.BalancedLoss) || *p.Scores != *q.Scores {
			t.Errorf("%+v instead of %+v", p, q)
		}
	}
	if err := got.Hold(moments(t, nil, n), moments(t, rows, n)); !errors.Is(err, incremental.ErrClasses) {
		t.Errorf("a fold that leaves no rows: %v", err)
	}
}

// A trial without a held-out row that weighs something has no curve, whoever made its planes. With
// a fold without rows the others make one, and no figure of it is NaN.
func TestNoRowsNoCurve(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	nus := []float64{0.1, 1}
	rows := randomRows(r, 80, 2, 2, 2)
	weightless := slices.Clone(rows)
	for i := range rows {
		rows[i].weight, weightless[i].weight = 1, 0
	}
	classes := moments(t, rows, 2).Classes()
	path, err := moments(t, rows, 2).Path(incremental.Options{}, nus)
	if err != nil {
		t.Fatal(err)
	}
	solved := func() *Trial {
		s := New(incremental.Options{}, nus, classes)
		if err := s.Hold(moments(t, rows, 2), moments(t, nil, 2)); err != nil {
			t.Fatal(err)
		}
		return s
	}
	refined := func(folds ...[]*incremental.Model) *Trial {
		return Refined(incremental.Options{}, nus, classes, folds, "newton", false)
	}
	logistic := Refined(incremental.Options{}, nus, classes, [][]*incremental.Model{path}, "logistic", true)
	weighingNothing := map[string]*Trial{"refined": refined(path), "solved": solved(), "logistic": logistic}
	for _, trial := range weighingNothing {
		trial.Add(trial.Score(0, blockOf(weightless)))
	}
	for what, trial := range map[string]*Trial{
		"no fold":                      New(incremental.Options{}, nus, classes),
		"a fold without rows":          solved(),
		"refined without a fold":       refined(),
		"refined, folds without rows":  refined(nil, nil),
		"refined, no row scored":       refined(path, path),
		"no ν":                         Refined(incremental.Options{}, nil, classes, [][]*incremental.Model{{}}, "logistic", true),
		"refined, rows weigh nothing":  weighingNothing["refined"],
		"solved, rows weigh nothing":   weighingNothing["solved"],
		"logistic, rows weigh nothing": weighingNothing["logistic"],
	} {
		if c, err := trial.Curve(); c != nil || !errors.Is(err, ErrRows) {
			t.Errorf("%s: curve %+v, %v", what, c, err)
		}
	}
	some := refined(nil, path)
	some.Add(some.Score(1, blockOf(rows)))
	c := curveOf(t, some)
	for _, p := range c.Points() {
		if len(p.FoldLoss) != 1 || p.Scores == nil || math.IsNaN(p.Loss+p.BalancedLoss+p.FoldLoss[0]+p.Scores.Correctness+p.Scores.BalancedCorrectness) {
			t.Errorf("a fold without rows: %+v", p)
		}
	}
	if p := curveOf(t, trial(t, incremental.Options{}, nus, rows, 2)).Points()[0]; p.Scores != nil {
		t.Errorf("figures of rows that were not scored: %+v", p.Scores)
	}
	single := refined(path)
	single.Add(single.Score(0, blockOf(rows[:1])))
	if c := curveOf(t, single); c.Rows() != 1 || c.Points()[0].Scores == nil {
		t.Error("there are no figures of one row")
	}
	if c.By(Accuracy) != Correctness || curveOf(t, trial(t, incremental.Options{}, nus, rows, 2)).By(Balanced) != BalancedLoss {
		t.Error("the criterion does not follow the scored rows")
	}
}

// Planes whose values overflow are never chosen: their loss is larger than any other.
func TestOverflowIsNotChosen(t *testing.T) {
	rows := randomRows(rand.New(rand.NewPCG(8, 1)), 80, 2, 2, 1)
	for i := range rows {
		rows[i].weight = 1
	}
	classes := moments(t, rows, 2).Classes()
	good, err := moments(t, rows, 2).Solve(incremental.Options{Nu: 1})
	if err != nil {
		t.Fatal(err)
	}
	bad := *good
	bad.Planes = slices.Clone(good.Planes)
	bad.Planes[0].W, bad.Planes[0].Gamma = []float64{math.MaxFloat64, -math.MaxFloat64}, math.MaxFloat64
	for i := range rows {
		rows[i].x[0], rows[i].x[1] = rows[i].x[0]*1e3, rows[i].x[1]*1e3 // ∞ − ∞
	}
	for _, logistic := range []bool{false, true} {
		trial := Refined(incremental.Options{}, []float64{1, 2}, classes, [][]*incremental.Model{{&bad, good}}, "newton", logistic)
		trial.Add(trial.Score(0, blockOf(rows)))
		c := curveOf(t, trial)
		if p := c.Choose(Loss); p.Nu != 2 || c.points[0].Loss < 1e80 {
			t.Errorf("logistic %t: ν = %v of %+v", logistic, p.Nu, c.points)
		}
	}
}

// The standard error of a share is that of the mean of a list of ones and zeros which has one more
// of each.
func TestDeviationIsThatOfAList(t *testing.T) {
	for n := range 30 {
		for right := range n + 1 {
			if n == 0 {
				continue
			}
			list := append(slices.Repeat([]float64{1}, right+1), slices.Repeat([]float64{0}, n-right+1)...)
			mean, squares := 0., 0.
			for _, x := range list {
				mean += x / float64(len(list))
			}
			for _, x := range list {
				squares += (x - mean) * (x - mean) / float64(len(list))
			}
			want := math.Sqrt(squares / float64(len(list)))
			if got := deviation(float64(right)/float64(n), float64(n)); math.Abs(got-want) > 1e-12 {
				t.Errorf("%d of %d: %v, want %v", right, n, got, want)
			}
		}
	}
}

// The loss of logistic planes is −log of the softmax of a row's scores at its class: of two classes
// the first has the score 0. Rows of weight 0 and of classes without a plane have none.
func TestSurpriseIsThatOfASoftmax(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 8))
	for trial := range 200 {
		k := 2 + r.IntN(3)
		classes := []string{"a", "b", "c", "d"}[:k]
		model := &incremental.Model{}
		for _, class := range classes {
			if k == 2 && class == "a" || k == 4 && class == "c" && trial%2 == 0 {
				continue
			}
			model.Planes = append(model.Planes, incremental.Plane{Class: class})
		}
		b := &incremental.Block{Classes: slices.Clone(classes)}
		slices.Reverse(b.Classes) // another order than the trial's
		at := make([]int, k)
		for i, class := range b.Classes {
			at[i] = slices.Index(classes, class)
		}
		var values []float64
		want := make([]float64, 2*k)
		for range 1 + r.IntN(12) {
			code, v := r.IntN(k), float64(r.IntN(3))
			b.Codes, b.Weights = append(b.Codes, int32(code)), append(b.Weights, v)
			class, sum, own := b.Classes[code], 0., math.NaN()
			if k == 2 {
				sum, own = 1, 0
			}
			for _, p := range model.Planes {
				s := 3 * r.NormFloat64()
				if values = append(values, s); v == 0 {
					values[len(values)-1] = math.NaN()
				}
				if sum += math.Exp(s); p.Class == class {
					own = s
				}
			}
			if v == 0 || math.IsNaN(own) {
				continue
			}
			to := 2 * slices.Index(classes, class)
			if k == 2 && class == "a" {
				to = 2*1 + 1 // the other side of the plane of b
			}
			want[to] += v * -math.Log(math.Exp(own)/sum)
		}
		got := make([]float64, 2*k)
		(&Trial{classes: classes}).surprise(got, model, values, b.Weights, b, at)
		for i := range want {
			if !(math.Abs(got[i]-want[i]) < 1e-9) {
				t.Fatalf("trial %d: %v, want %v", trial, got, want)
			}
		}
	}
}

// solver is one of planes, which has a use for ν or not.
type solver bool

func (s solver) Uses() (matrix, nu bool) { return true, bool(s) }
func (solver) String() string            { return "solver" }
func (solver) Plane(*incremental.Program, float64) ([]float64, error) {
	return nil, errors.New("nobody solves")
}

// Where a solver has no use for ν, the grid has one.
func TestGrids(t *testing.T) {
	grid := Grid()
	if len(grid) != 41 || grid[0] != 0x1p-20 || grid[40] != 0x1p20 || grid[20] != 1 || grid[21] != 2 {
		t.Errorf("the grid is %v", grid)
	}
	for _, c := range []struct {
		o    incremental.Options
		want []float64
	}{{incremental.Options{}, grid}, {incremental.Options{Solver: solver(true)}, grid}, {incremental.Options{Solver: solver(false)}, []float64{1}}} {
		if got := GridOf(c.o); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.o.Solver, got, c.want)
		}
	}
}

// One scored row is enough to choose by correctness.
func TestCriterionOfScoredRows(t *testing.T) {
	for rows, want := range map[int64]Criterion{0: Loss, 1: Correctness, 2: Correctness} {
		if got := (&Curve{rows: rows}).By(Accuracy); got != want {
			t.Errorf("with %d scored rows the criterion is %v, want %v", rows, got, want)
		}
	}
}
