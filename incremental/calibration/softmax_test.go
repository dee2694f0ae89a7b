package calibration

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// softmaxRows are rows of k classes: the value of a row's own class is larger, that of class 0
// half as much, and class 1 is rare.
func softmaxRows(m, k int) (values []float64, classes []int32, weights []float64) {
	r := rand.New(rand.NewPCG(31, uint64(k)))
	for range m {
		c := r.IntN(k)
		if c == 1 && r.IntN(4) > 0 {
			c = 2
		}
		for j := range k {
			v := 0.7 * r.NormFloat64()
			if j == c {
				v += 1.5
			}
			if j == 0 {
				v /= 2
			}
			values = append(values, v)
		}
		classes, weights = append(classes, int32(c)), append(weights, float64(1+r.IntN(3)))
	}
	return values, classes, weights
}

// The fit is a minimum of the cost, which is convex: no other point near it has less, along
// any coordinate, and the search ends there from another point, too.
func TestSoftmaxIsTheMinimum(t *testing.T) {
	const m = 400
	for _, k := range []int{3, 5} {
		values, classes, weights := softmaxRows(m, k)
		got, err := FitSoftmax(values, classes, weights, k, 10, nil)
		if err != nil {
			t.Fatal(err)
		}
		var total float64
		for _, v := range weights {
			total += v
		}
		cost := func(rows []Curve) (sum float64) {
			p := make([]float64, k)
			for i, c := range classes {
				Probabilities(p, rows, values[i*k:][:k])
				sum -= weights[i] * m / total * math.Log(p[c])
			}
			var a float64 // the best one
			for c, row := range rows {
				a += row.(Softmax).Weights[c] / float64(k)
			}
			for c, row := range rows {
				s := row.(Softmax)
				sum += 5 * s.Bias * s.Bias
				for j, w := range s.Weights {
					if j == c {
						w -= a
					}
					sum += 5 * w * w
				}
			}
			return sum
		}
		least := cost(got)
		for c := range k {
			for j := range k + 1 {
				for _, d := range []float64{-0.01, 0.01} {
					moved := append([]Curve(nil), got...)
					s := got[c].(Softmax)
					s.Weights = append([]float64(nil), s.Weights...)
					if j < k {
						s.Weights[j] += d
					} else {
						s.Bias += d
					}
					moved[c] = s
					if near := cost(moved); near < least-1e-9 {
						t.Errorf("%d classes: coordinate %d of row %d moved by %v lowers the cost from %v to %v", k, j, c, d, least, near)
					}
				}
			}
		}
		far := append([]Curve(nil), got...)
		for c := range far {
			far[c] = Softmax{Weights: make([]float64, k), Bias: float64(c)}
		}
		again, err := FitSoftmax(values, classes, weights, k, 10, far)
		if err != nil {
			t.Fatal(err)
		}
		for c := range k {
			for j, w := range got[c].(Softmax).Weights {
				if v := again[c].(Softmax).Weights[j]; math.Abs(v-w) > 0.01 {
					t.Errorf("%d classes: from elsewhere A[%d][%d] is %v, not %v", k, c, j, v, w)
				}
			}
		}
		if classes := func() (best int) {
			p := make([]float64, k)
			for i, c := range classes {
				Apart(p, got, values[i*k:][:k])
				most := 0
				for j := range p {
					if p[j] > p[most] {
						most = j
					}
				}
				if most == int(c) {
					best++
				}
			}
			return best
		}(); classes < m*6/10 {
			t.Errorf("%d classes: %d of %d rows are right", k, classes, m)
		}
	}
}

// With much shrinking only the temperature is fitted, and the order of the values stays.
func TestSoftmaxShrinksToTemperature(t *testing.T) {
	const m, k = 300, 4
	values, classes, weights := softmaxRows(m, k)
	rows, err := FitSoftmax(values, classes, weights, k, 1e9, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := rows[0].(Softmax).Weights[0]
	for c := range k {
		s := rows[c].(Softmax)
		for j, w := range s.Weights {
			want := 0.0
			if j == c {
				want = a
			}
			if math.Abs(w-want) > 1e-4 || math.Abs(s.Bias) > 1e-4 {
				t.Errorf("row %d: %v and %v, a = %v", c, s.Weights, s.Bias, a)
			}
		}
	}
	if !(a > 1) {
		t.Errorf("a = %v", a)
	}
	if _, err := FitSoftmax(values, classes, make([]float64, m), k, 10, nil); err != ErrNoRows {
		t.Errorf("rows that weigh nothing: %v", err)
	}
}

// A temperature is that of a Softmax that is shrunk to it, and of one plane the minimum of the
// log loss.
func TestTemperature(t *testing.T) {
	const m, k = 300, 4
	values, classes, weights := softmaxRows(m, k)
	rows, err := FitSoftmax(values, classes, weights, k, 1e9, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := rows[0].(Softmax).Weights[0]
	got := FitTemperature(values, classes, weights, k, 0)
	scale := got[0].(Temperature).Scale
	if len(got) != k || math.Abs(scale-want) > 0.01 || got[k-1] != got[0] {
		t.Errorf("%v, a = %v", got, want)
	}
	// Its probabilities are those of the Softmax with this diagonal, in place, too.
	same := make([]Curve, k)
	for c := range same {
		same[c] = Softmax{Weights: make([]float64, k)}
		same[c].(Softmax).Weights[c] = scale
	}
	for i := range m {
		p, q := slices.Clone(values[i*k:][:k]), make([]float64, k)
		Probabilities(p, got, p)
		Probabilities(q, same, values[i*k:][:k])
		if !slices.Equal(p, q) {
			t.Fatalf("row %d: %v, not %v", i, p, q)
		}
	}
	// The minimum is that of a search over scales, wherever it begins.
	cost := func(a float64) (sum float64) {
		p, curves := make([]float64, k), slices.Repeat([]Curve{Temperature{a}}, k)
		for i, class := range classes {
			Probabilities(p, curves, values[i*k:][:k])
			sum -= weights[i] * math.Log(p[class])
		}
		return sum
	}
	best := 1e-3
	for a := best; a < 1e3; a *= 1.001 {
		if cost(a) < cost(best) {
			best = a
		}
	}
	for _, from := range []float64{0, 1e-9, 0.01, 3, 50, 1e9} {
		if a := FitTemperature(values, classes, weights, k, from)[0].(Temperature).Scale; math.Abs(a/best-1) > 0.001 || math.Abs(a/scale-1) > 1e-8 {
			t.Errorf("from %v: %v, and %v costs least", from, a, best)
		}
	}

	one, two := values[:m], make([]int32, m)
	for i := range two {
		two[i] = int32(i % 2)
		one[i] = one[i]/4 + float64(two[i]) - 0.4
	}
	a := FitTemperature(one, two, weights, 1, 0)[0].(Sigmoid).A
	loss := func(a float64) (sum float64) {
		for i, v := range one {
			p := Sigmoid{A: a}.Probability(v)
			if two[i] == 0 {
				p = 1 - p
			}
			sum -= weights[i] * math.Log(p)
		}
		return sum
	}
	if least := loss(a); !(a < 0) || loss(a*1.01) < least || loss(a*0.99) < least {
		t.Errorf("a = %v is not the minimum", a)
	}
}
