package calibration

import (
	"fmt"
	"math"
)

// FitSigmoid fits Platt's sigmoid (1999) by the Newton method of Lin, Lin and
// Weng (2007): it minimises
//
//	−Σ v (t log p + (1 − t) log(1 − p)),  p = 1/(1 + exp(A·value + B)),  A ≤ 0
//
// with t = (N₊+1)/(N₊+2) for rows that came true and 1/(N₋+2) for the others, N
// their weights, so that neither separable rows nor rows of one class make A or
// B infinite. Where probabilities would fall as values rise, A = 0 is the
// minimum.
//
// Values are taken to mean 0 and variance 1 first. The steps end when the
// larger of the gradient's two components is at most 10^-10 Σv, each step O(m);
// that takes some 5 to 10, and 100 without reaching it are an error.
func (o *Outcomes) FitSigmoid() (Sigmoid, error) {
	rows, err := o.groups()
	if err != nil {
		return Sigmoid{}, err
	}
	f := newPlatt(rows)
	if f.scale == 0 {
		return Sigmoid{B: f.level()}, nil
	}
	const (
		settled = 1e-10
		steps   = 100
		armijo  = 1e-4
	)
	now := Sigmoid{B: math.Log((f.minus + 1) / (f.plus + 1))} // where Lin, Lin and Weng begin
	cost, g, h := f.evaluate(now)
	for range steps {
		if max(math.Abs(g[0]), math.Abs(g[1])) <= settled*f.weight {
			if now.A >= 0 {
				return Sigmoid{B: f.level()}, nil
			}
			// A(value − mean)/scale + B
			a := now.A / f.scale
			return Sigmoid{A: a, B: now.B - float64(a*f.mean)}, nil
		}
		const ridge = 1e-12 // of Lin, Lin and Weng: keeps flat Hessians regular
		h[0], h[2] = h[0]+ridge*f.weight, h[2]+ridge*f.weight
		determinant := float64(h[0]*h[2]) - float64(h[1]*h[1])
		step := Sigmoid{
			A: -(float64(h[2]*g[0]) - float64(h[1]*g[1])) / determinant,
			B: -(float64(h[0]*g[1]) - float64(h[1]*g[0])) / determinant,
		}
		slope := float64(g[0]*step.A) + float64(g[1]*step.B)
		// Next to the minimum the cost changes by less than its rounding.
		rounding := 0x1p-48 * cost
		for length := 1.0; ; length /= 2 {
			if length < 1e-10 {
				return Sigmoid{}, fmt.Errorf("calibrate: no step from A = %v, B = %v lowers the cost", now.A, now.B)
			}
			next := Sigmoid{A: now.A + float64(length*step.A), B: now.B + float64(length*step.B)}
			// Nearly every first length is taken, so the derivatives are not for nothing.
			c, gradient, hessian := f.evaluate(next)
			if c <= cost+armijo*length*slope+rounding {
				now, cost, g, h = next, c, gradient, hessian
				break
			}
		}
	}
	return Sigmoid{}, fmt.Errorf("calibrate: not settled after %d steps", steps)
}

// platt is the rows, with values scaled and targets in the place of outcomes.
type platt struct {
	u, target, v        []float64
	mean, scale         float64 // scale 0: one value
	plus, minus, weight float64
}

func newPlatt(rows []group) *platt {
	m := len(rows)
	f := &platt{u: make([]float64, 0, m), target: make([]float64, 0, m), v: make([]float64, 0, m)}
	for i := range rows {
		f.plus += rows[i].plus
		f.minus += rows[i].minus
	}
	f.weight = f.plus + f.minus
	for i := range rows {
		f.mean += rows[i].value * (rows[i].weight() / f.weight)
	}
	high, low := (f.plus+1)/(f.plus+2), 1/(f.minus+2)
	var largest float64
	for i := range rows {
		v := rows[i].weight()
		u := rows[i].value - f.mean
		largest = max(largest, math.Abs(u))
		f.u, f.v = append(f.u, u), append(f.v, v)
		f.target = append(f.target, (float64(rows[i].plus*high)+float64(rows[i].minus*low))/v)
	}
	if len(rows) == 1 {
		return f
	}
	var variance float64
	for i, u := range f.u {
		u /= largest
		variance += u * u * (f.v[i] / f.weight)
	}
	f.scale = largest * math.Sqrt(variance)
	for i := range f.u {
		f.u[i] /= f.scale
	}
	return f
}

// level is the best B for A = 0: p is the mean target.
func (f *platt) level() float64 {
	var sum float64
	for i, t := range f.target {
		sum += float64(t * f.v[i])
	}
	p := sum / f.weight
	return math.Log((1 - p) / p)
}

// evaluate gives the cost, its gradient and its Hessian AA, AB, BB.
func (f *platt) evaluate(s Sigmoid) (cost float64, g [2]float64, h [3]float64) {
	for i, u := range f.u {
		x, t, v := float64(s.A*u)+s.B, f.target[i], f.v[i]
		e := math.Exp(-math.Abs(x))
		p, q, c := e/(1+e), 1/(1+e), float64(t*x)
		if x < 0 {
			p, q, c = q, p, float64((t-1)*x)
		}
		cost += float64(v * (c + math.Log1p(e)))
		d1, d2 := v*(t-p), v*p*q
		g[0] += float64(u * d1)
		g[1] += d1
		h[0] += float64(u * u * d2)
		h[1] += float64(u * d2)
		h[2] += d2
	}
	return cost, g, h
}
