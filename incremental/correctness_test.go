package incremental

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// countRight counts the rows on their own side of a plane, by weight.
func countRight(rows table, model *Model, plane int) (plus, minus float64) {
	for i, x := range rows.x {
		v := 1.
		if rows.weights != nil {
			v = rows.weights[i]
		}
		_, values := model.decideRow(nil, x)
		switch own := rows.label[i] == model.Planes[plane].Class; {
		case own && values[plane] >= 0:
			plus += v
		case !own && values[plane] < 0:
			minus += v
		}
	}
	return plus, minus
}

// cantelli is the bounds of one class by its definition, from the values of its rows. Values of
// 0 or more are right for up, and others for down.
func cantelli(values, weights []float64, up bool) (least, most float64) {
	var weight, mean, variance float64
	for i, y := range values {
		weight += weights[i]
		mean += weights[i] * y
	}
	mean /= weight
	for i, y := range values {
		variance += weights[i] * (y - mean) * (y - mean)
	}
	variance /= weight
	far := mean * mean / (mean*mean + variance)
	if mean > 0 == up {
		return weight * far, weight
	}
	return 0, weight * (1 - far)
}

// The values of normal rows are normal. The estimate is within the sampling error of the rows
// that are counted, also where the other side of a plane is several classes.
func TestEstimateOfNormalRows(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(71, seed))
		n, k := 1+r.IntN(4), 2+int(seed%3)
		rows := table{}
		for c := range k {
			centre, mix := make([]float64, n), make([]float64, n*n)
			for j := range centre {
				centre[j] = 1e4 + 2*r.NormFloat64()
			}
			for p := range mix {
				mix[p] = r.NormFloat64()
			}
			for range 4000 * (c + 1) {
				x := slices.Clone(centre)
				for j := range n {
					z := r.NormFloat64()
					for i := range n {
						x[i] += mix[i*n+j] * z
					}
				}
				rows.x, rows.label = append(rows.x, x), append(rows.label, string(rune('a'+c)))
			}
		}
		moments := sumOf(n, summarise(t, rows.block(0, len(rows.x)))).Moments()
		model, err := moments.Solve(Options{Nu: 1, Standardise: true, Balanced: true})
		if err != nil {
			t.Fatal(err)
		}
		for p, got := range moments.Correctness([]*Model{model})[0] {
			plus, minus := countRight(rows, model, p)
			for _, side := range []struct {
				name          string
				right         Right
				count, weight float64
			}{{"plus", got.Plus, plus, got.PlusWeight}, {"minus", got.Minus, minus, got.MinusWeight}} {
				sampling := math.Sqrt(side.right.Estimate * (1 - side.right.Estimate/side.weight))
				if off := math.Abs(side.right.Estimate - side.count); off > 4*sampling+1 {
					t.Errorf("seed %d, plane %d, %s: %v of %v rows are right, estimated %v", seed, p, side.name, side.count, side.weight, side.right.Estimate)
				}
			}
		}
	}
}

// The rows that are counted are within the bounds, however they are distributed, and the bounds are
// those of Cantelli's inequality for the values of the rows.
func TestRowsAreWithinBounds(t *testing.T) {
	draws := map[string]func(r *rand.Rand) float64{
		"normal":  (*rand.Rand).NormFloat64,
		"skewed":  (*rand.Rand).ExpFloat64,
		"heavy":   func(r *rand.Rand) float64 { return math.Exp(4 * r.NormFloat64()) },
		"few":     func(r *rand.Rand) float64 { return float64(r.IntN(3)) },
		"rare":    func(r *rand.Rand) float64 { return math.Floor(r.Float64() * 1.02) },
		"signs":   func(r *rand.Rand) float64 { return float64(2*r.IntN(2) - 1) },
		"mixture": func(r *rand.Rand) float64 { return 10*float64(r.IntN(2)) + r.NormFloat64() },
	}
	const tries = 150
	for name, draw := range draws {
		for seed := range uint64(tries) {
			r := rand.New(rand.NewPCG(72, seed))
			n, k, m := 1+r.IntN(4), 2+r.IntN(3), 5+r.IntN(200)
			rows := table{}
			offset := []float64{0, 1, 1e3, 1e6}[r.IntN(4)]
			if r.IntN(2) == 0 {
				rows.weights = []float64{}
			}
			for range m {
				c := r.IntN(k)
				x := make([]float64, n)
				for j := range x {
					x[j] = draw(r) + offset + float64(c*(j+1)%k)
				}
				rows.x, rows.label = append(rows.x, x), append(rows.label, string(rune('a'+c)))
				if rows.weights != nil {
					rows.weights = append(rows.weights, float64(1+r.IntN(5)))
				}
			}
			moments := sumOf(n, blocksOf(t, r, rows)...).Moments()
			solved, err := moments.Solve(Options{Nu: math.Exp(3 * r.NormFloat64()), Standardise: r.IntN(2) == 0, Balanced: r.IntN(2) == 0})
			if err != nil {
				t.Fatalf("%s, seed %d: %v", name, seed, err)
			}
			// Beside the solved planes, planes near to some row, where shares are far from 0 and 1.
			moved := *solved
			moved.Planes = slices.Clone(solved.Planes)
			for p := range moved.Planes {
				plane := &moved.Planes[p]
				plane.W, plane.Gamma = slices.Clone(plane.W), r.NormFloat64()
				for j, x := range rows.x[r.IntN(m)] {
					plane.W[j] = float64(r.IntN(5) - 2)
					plane.Gamma += plane.W[j] * x
				}
			}
			models := []*Model{solved, &moved}
			for i, all := range moments.Correctness(models) {
				for p, got := range all {
					var least, most [2]float64 // plus, minus
					for _, class := range solved.Classes {
						var values, weights []float64
						for row, x := range rows.x {
							if rows.label[row] != class {
								continue
							}
							_, y := models[i].decideRow(nil, x)
							values, weights = append(values, y[p]), append(weights, 1)
							if rows.weights != nil {
								weights[len(weights)-1] = rows.weights[row]
							}
						}
						side := 1
						if class == solved.Planes[p].Class {
							side = 0
						}
						low, high := cantelli(values, weights, side == 0)
						least[side] += low
						most[side] += high
					}
					plus, minus := countRight(rows, models[i], p)
					for side, right := range []Right{got.Plus, got.Minus} {
						count, weight := []float64{plus, minus}[side], []float64{got.PlusWeight, got.MinusWeight}[side]
						if !(right.Least <= count && count <= right.Most) {
							t.Errorf("%s, seed %d, model %d, plane %d, side %d: %v of %v rows are right, bounds %v and %v", name, seed, i, p, side, count, weight, right.Least, right.Most)
						}
						if !(right.Least <= right.Estimate && right.Estimate <= right.Most) {
							t.Errorf("%s, seed %d, model %d, plane %d, side %d: the estimate %v is not within %v and %v", name, seed, i, p, side, right.Estimate, right.Least, right.Most)
						}
						if off := math.Abs(right.Least-least[side]) + math.Abs(right.Most-most[side]); off > 1e-3*weight {
							t.Errorf("%s, seed %d, model %d, plane %d, side %d: bounds %v and %v, by the definition %v and %v", name, seed, i, p, side, right.Least, right.Most, least[side], most[side])
						}
					}
				}
			}
		}
	}
}

// Rows with two values attain the bound: no better one follows from the sums.
func TestBoundIsAttained(t *testing.T) {
	rows := table{}
	for i := range 100 {
		x := -1.
		if i%4 == 0 {
			x = 0 // on the plane, so on the positive side
		}
		rows.x, rows.label = append(rows.x, []float64{x}), append(rows.label, "no")
	}
	model := &Model{Features: DefaultFeatures(1), Planes: []Plane{{Class: "yes", W: []float64{1}}}}
	got := sumOf(1, summarise(t, rows.block(0, 100))).Moments().Correctness([]*Model{model})[0][0]
	if !(got.Minus.Least <= 75 && got.Minus.Least > 75-1e-6) || got.Minus.Most != 100 || got.MinusWeight != 100 {
		t.Errorf("75 of 100 rows are right: %+v", got)
	}
	if got.Plus != (Right{}) || got.PlusWeight != 0 {
		t.Errorf("there are no rows of the plane's class: %+v", got)
	}
}

// Classes of one row or of equal rows are all right or all wrong. Rows of no weight do not count.
// On the plane itself nothing is known.
func TestCorrectnessWithoutVariance(t *testing.T) {
	rows := table{
		x:       [][]float64{{3, 0.1}, {-2, 0.7}, {-2, 0.7}, {5, 0.3}, {2, 1e9}},
		label:   []string{"yes", "no", "no", "other", "yes"},
		weights: []float64{1, 1, 1, 2, 0},
	}
	moments := sumOf(2, summarise(t, rows.block(0, 5))).Moments()
	plane := func(w0, w1, gamma float64) *Model {
		return &Model{Features: DefaultFeatures(2), Planes: []Plane{{Class: "yes", W: []float64{w0, w1}, Gamma: gamma}}}
	}
	models := []*Model{plane(1, 0, 0), plane(-1, 0, 0), plane(0, 0, 0), plane(1, 0, -2)}
	const near = 1e-9
	for i, want := range []Correctness{
		{Plus: Right{1, 1, 1}, Minus: Right{2, 2, 2}},
		{Plus: Right{0, 0, 0}, Minus: Right{2, 2, 2}},
		{Plus: Right{1, 0, 1}, Minus: Right{0, 0, 4}}, // all are on the plane
		{Plus: Right{1, 1, 1}, Minus: Right{0, 0, 2}}, // those of no are
	} {
		got := moments.Correctness(models)[i][0]
		if got.PlusWeight != 1 || got.MinusWeight != 4 {
			t.Fatalf("the weights are %v and %v", got.PlusWeight, got.MinusWeight)
		}
		for side, of := range [][2]Right{{got.Plus, want.Plus}, {got.Minus, want.Minus}} {
			off := max(math.Abs(of[0].Estimate-of[1].Estimate), math.Abs(of[0].Least-of[1].Least), math.Abs(of[0].Most-of[1].Most))
			if off > near {
				t.Errorf("plane %d, side %d: %+v, want %+v", i, side, of[0], of[1])
			}
		}
	}
	if got := NewState(DefaultFeatures(2)).Moments().Correctness(models)[0][0]; got != (Correctness{}) {
		t.Errorf("without rows: %+v", got)
	}
}
