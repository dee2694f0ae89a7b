package calibration

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"streamd/incremental/gram"
)

// Softmax is one row of P_c = exp(s_c) / Σ_j exp(s_j), s = A·values + b, over k planes: matrix
// scaling (Guo, Pleiss, Sun and Weinberger 2017). Unlike curves of single planes it knows that
// only one class is right, and compares planes of different scale. The rows of all planes
// belong together: Apart and Probabilities use them, and Probability is only the row's own
// part, 1/(1 + exp(−A_cc·value − b_c)).
type Softmax struct {
	Weights []float64 // of the values of all planes: a row of A
	Bias    float64
}

// Probability implements Curve.
func (s Softmax) Probability(value float64) float64 { return logistic(value + s.Bias) }

// score is s_c.
func (s Softmax) score(values []float64) float64 {
	sum := s.Bias
	for j, w := range s.Weights {
		sum += float64(w * values[j])
	}
	return sum
}

// softmax fills dst with the probabilities of all classes, if the curves are rows of a
// Softmax or a Temperature. dst may be values.
func softmax(dst []float64, curves []Curve, values []float64) bool {
	if !Joint(curves) {
		return false
	}
	most := math.Inf(-1)
	var buffer [MostSoftmax]float64
	scores := dst
	if t, is := curves[0].(Temperature); is {
		for c, value := range values {
			scores[c] = float64(t.Scale * value)
			most = max(most, scores[c])
		}
	} else {
		scores = buffer[:len(curves)] // dst may be values
		for c, curve := range curves {
			scores[c] = curve.(Softmax).score(values)
			most = max(most, scores[c])
		}
	}
	var all float64
	for c := range scores {
		scores[c] = math.Exp(scores[c] - most)
		all += scores[c]
	}
	for c, p := range scores {
		dst[c] = p / all
	}
	return true
}

// Joint reports whether the curves belong together: the rows of a Softmax, or a Temperature.
func Joint(curves []Curve) bool {
	switch curves[0].(type) {
	case Softmax, Temperature:
		return true
	}
	return false
}

// Apart fills dst with the probability of each plane's class against the rest.
func Apart(dst []float64, curves []Curve, values []float64) {
	if softmax(dst, curves, values) {
		return
	}
	for p, curve := range curves {
		dst[p] = curve.Probability(values[p])
	}
}

const (
	// MostSoftmax is the most planes of a Softmax. Each step takes O(m·k⁴).
	MostSoftmax = 16
	softmaxEnds = 0x1p-20
	softmaxMost = 100
)

// FitSoftmax fits the rows of a Softmax to the values (m × k, row by row) of rows of classes
// 0 to k−1, by Newton's method: it minimises −Σ v log P_class + ½·shrink·(‖A − aI‖² + ‖b‖²)
// over A, b and a. A large shrink leaves temperature scaling, which keeps the order of the
// values. It begins at from, nil for the identity. Weights are scaled to mean 1. A step
// that does not lower the cost is halved; one whose gain is at most 2^-20 of the cost is the
// last. 100 steps without an end are an error.
func FitSoftmax(values []float64, classes []int32, weights []float64, k int, shrink float64, from []Curve) ([]Curve, error) {
	m := len(classes)
	if len(values) != m*k || len(weights) != m || k < 3 {
		panic(fmt.Sprintf("calibration: %d values and %d weights for %d rows of %d planes", len(values), len(weights), m, k))
	}
	var total float64
	for _, v := range weights {
		total += v
	}
	if !(total > 0) {
		return nil, ErrNoRows
	}
	if total > mostWeight {
		return nil, fmt.Errorf("the rows weigh %g together, more than %g", total, float64(mostWeight))
	}
	f := newSoftmaxFit(values, classes, weights, k, shrink, float64(m)/total)
	x := make([]float64, k*f.n+1) // rows of [A b], then a
	for c := range k {
		x[c*f.n+c] = 1
	}
	x[k*f.n] = 1
	if from != nil {
		var trace float64
		for c, curve := range from {
			s := curve.(Softmax)
			copy(x[c*f.n:], s.Weights)
			x[c*f.n+k] = s.Bias
			trace += s.Weights[c]
		}
		x[k*f.n] = trace / float64(k)
	}
	gradient, hessian := make([]float64, len(x)), mat.NewSymDense(len(x), nil)
	cost := f.cost(x, gradient, hessian)
	if math.IsNaN(cost) || math.IsInf(cost, 0) {
		return nil, errors.New("calibrate: the decision values are too large for probabilities of all classes")
	}
	for range softmaxMost {
		var factor mat.Cholesky
		if !factor.Factorize(hessian) {
			return nil, errors.New("calibrate: the probabilities of all classes have no best fit")
		}
		step := mat.NewVecDense(len(x), nil)
		if err := factor.SolveVecTo(step, mat.NewVecDense(len(x), gradient)); err != nil {
			var condition mat.Condition
			if !errors.As(err, &condition) {
				return nil, fmt.Errorf("calibrate: %w", err)
			}
		}
		if gain := mat.Dot(step, mat.NewVecDense(len(x), gradient)) / 2; gain <= softmaxEnds*cost {
			return f.rows(x), nil
		}
		// A step is seldom too long, so the next one is prepared with its cost.
		next, nextGradient, nextHessian := make([]float64, len(x)), make([]float64, len(x)), mat.NewSymDense(len(x), nil)
		lower := false
		for t := 1.0; t > 0x1p-30 && !lower; t /= 2 {
			for i := range x {
				next[i] = x[i] - float64(t*step.AtVec(i))
			}
			c := f.cost(next, nextGradient, nextHessian)
			if lower = c <= cost; lower {
				x, cost, gradient, hessian = next, c, nextGradient, nextHessian
			}
		}
		if !lower {
			return f.rows(x), nil
		}
	}
	return nil, fmt.Errorf("calibrate: the probabilities of all classes do not settle in %d steps", softmaxMost)
}

// softmaxFit is the rows of a fit, by columns, in chunks of gram.TileRows at most.
type softmaxFit struct {
	values  [][]float64   // of each plane
	columns []gram.Column // the same
	classes []int32
	weights []float64 // scaled
	k, n    int       // planes, and planes + 1
	shrink  float64

	// Of a chunk.
	p        [][]float64   // by class: scores, then probabilities
	term     []float64     // what the rows contribute to a sum
	products [][]float64   // of the values of each pair of planes, lower triangle
	pairs    []gram.Column // the same
}

// newSoftmaxFit leaves rows of weight 0 out.
func newSoftmaxFit(values []float64, classes []int32, weights []float64, k int, shrink, scale float64) *softmaxFit {
	f := &softmaxFit{k: k, n: k + 1, shrink: shrink, term: make([]float64, gram.TileRows)}
	var rows []int
	for i, v := range weights {
		if v != 0 {
			rows = append(rows, i)
			f.classes, f.weights = append(f.classes, classes[i]), append(f.weights, float64(v*scale))
		}
	}
	for c := range k {
		column := make([]float64, len(rows))
		for at, i := range rows {
			column[at] = values[i*k+c]
		}
		f.values, f.columns = append(f.values, column), append(f.columns, gram.ColumnOf(column))
		f.p = append(f.p, make([]float64, gram.TileRows))
		for range c + 1 {
			product := make([]float64, gram.TileRows)
			f.products, f.pairs = append(f.products, product), append(f.pairs, gram.ColumnOf(product))
		}
	}
	return f
}

func (f *softmaxFit) rows(x []float64) []Curve {
	var out []Curve
	for c := range f.k {
		row := x[c*f.n:][:f.n]
		out = append(out, Softmax{Weights: append([]float64(nil), row[:f.k]...), Bias: row[f.k]})
	}
	return out
}

// cost returns the cost at x, and fills in its gradient and its Hessian.
func (f *softmaxFit) cost(x, gradient []float64, hessian *mat.SymDense) (cost float64) {
	k, n := f.k, f.n
	a, shrink := x[k*n], f.shrink
	clear(gradient)
	second := make([][]float64, k*(k+1)/2) // of each pair of classes, Σ v h_cd z z', lower triangle
	for i := range second {
		second[i] = make([]float64, n*(n+1)/2)
	}
	for from := 0; from < len(f.classes); from += gram.TileRows {
		cost += f.chunk(x, gradient, second, from, min(from+gram.TileRows, len(f.classes)))
	}
	for c := range k {
		for j := range n {
			d := x[c*n+j]
			if j == c {
				d -= a
			}
			cost += float64(shrink / 2 * float64(d*d))
			gradient[c*n+j] += float64(shrink * d)
			if j == c {
				gradient[k*n] -= float64(shrink * d)
			}
		}
	}
	at := 0
	for c := range k {
		for d := range c + 1 {
			e := 0
			for j := range n {
				for l := range j + 1 {
					t := second[at][e]
					e++
					hessian.SetSym(c*n+j, d*n+l, t)
					hessian.SetSym(c*n+l, d*n+j, t)
				}
			}
			at++
		}
	}
	for i := range k * n {
		hessian.SetSym(i, i, hessian.At(i, i)+shrink)
		hessian.SetSym(i, k*n, 0)
	}
	for c := range k {
		hessian.SetSym(c*n+c, k*n, -shrink)
	}
	hessian.SetSym(k*n, k*n, float64(k)*shrink)
	return cost
}

// negligible is the least weight of the Hessian that counts.
const negligible = 1e-12

// chunk adds the rows from to to−1 to the sums of cost, and returns theirs.
func (f *softmaxFit) chunk(x, gradient []float64, second [][]float64, from, to int) (cost float64) {
	k, n, m := f.k, f.n, to-from
	weights, classes, term := f.weights[from:to], f.classes[from:to], f.term[:m]
	for c := range k {
		p := f.p[c][:m]
		for i := range p {
			p[i] = x[c*n+k]
		}
		gram.AddProducts(p, f.columns, from, nil, x[c*n:][:k])
	}
	for i, class := range classes {
		most, all := math.Inf(-1), 0.0
		for _, p := range f.p {
			most = max(most, p[i])
		}
		own := f.p[class][i] - most
		for _, p := range f.p {
			p[i] = math.Exp(p[i] - most)
			all += p[i]
		}
		for _, p := range f.p {
			p[i] /= all
		}
		cost += float64(weights[i] * (math.Log(all) - own))
	}
	for c, at := 0, 0; c < k; c++ {
		for d := range c + 1 {
			product, y := f.products[at], f.values[d][from:to]
			at++
			for i, x := range f.values[c][from:to] {
				product[i] = float64(x * y[i])
			}
		}
	}
	// sums adds those of the terms, beside the constant of the planes, to the last of dst.
	sums := func(dst []float64) {
		gram.AddDots(dst[:k], f.columns, from, nil, term)
		for _, t := range term {
			dst[k] += t
		}
	}
	for c, at := 0, 0; c < k; c++ {
		p := f.p[c][:m]
		for i, q := range p {
			if classes[i] == int32(c) {
				q--
			}
			term[i] = float64(q * weights[i])
		}
		sums(gradient[c*n:][:n])
		for d, r := range f.p[:c+1] {
			r = r[:m]
			for i, q := range p {
				h := -float64(q * r[i])
				if d == c {
					h += q
				}
				if h *= weights[i]; !(math.Abs(h) > negligible) {
					h = 0
				}
				term[i] = h
			}
			gram.AddDots(second[at][:len(f.pairs)], f.pairs, 0, nil, term)
			sums(second[at][len(f.pairs):])
			at++
		}
	}
	return cost
}
