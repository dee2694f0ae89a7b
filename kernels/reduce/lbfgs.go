package reduce

import (
	"context"
	"math"
	"slices"
)

const (
	memory     = 20    // the number of pairs of steps and gradient changes to keep
	sufficient = 1e-4  // share of the decrease that the gradient promises (Armijo)
	curvature  = 1e-12 // least cosine of a step and its gradient change
)

// descent is the outcome of minimise.
type descent struct {
	value     float64
	converged bool // false: the limit was reached, or ctx ended
}

// minimise finds a local minimum of f over the box lo ≤ x ≤ hi, starting at x, which it
// overwrites. f returns its value at x and writes its gradient to g.
//
// It is L-BFGS (Nocedal and Wright 2006, algorithm 7.4) in the variables that
// the gradient does not hold at a bound, with a backtracking search along the
// path projected onto the box (Bertsekas 1982). It has converged when no
// component of the projected gradient P(x − g) − x is above tolerance, when ten iterations
// together lower the value by less than the share decrease of it, or when rounding leaves no
// decrease even along the gradient. An iteration costs slightly more than one evaluation.
func minimise(ctx context.Context, f func(x, g []float64) float64, x, lo, hi []float64, tolerance, decrease float64, limit int) descent {
	n := len(x)
	for i := range x {
		x[i] = min(max(x[i], lo[i]), hi[i])
	}
	g, d, next, nextG := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	var latest []*pair // in reverse order
	var held []int
	value := f(x, g)
	var past [10]float64 // values of the latest iterations
	for iteration := 0; ; iteration++ {
		if at := iteration % len(past); iteration < len(past) || past[at]-value > decrease*math.Abs(value) {
			past[at] = value
		} else if decrease > 0 {
			return descent{value, true}
		}
		largest := 0.0
		held = held[:0]
		for i := range x {
			if x[i] <= lo[i] && g[i] > 0 || x[i] >= hi[i] && g[i] < 0 {
				held = append(held, i)
			}
			largest = max(largest, math.Abs(min(max(x[i]-g[i], lo[i]), hi[i])-x[i]))
		}
		if largest <= tolerance {
			return descent{value, true}
		}
		if iteration == limit || ctx.Err() != nil {
			return descent{value, false}
		}
		direction(d, g, latest, held)
		slope := dot(d, g)
		if !(slope < 0) {
			latest = nil
			direction(d, g, nil, held)
			slope = dot(d, g)
		}
		step := 1.0
		if latest == nil {
			step = min(1, 1/math.Sqrt(-slope))
		}
		accepted := false
		for range 40 {
			promised := 0.0
			for i := range x {
				next[i] = min(max(math.FMA(step, d[i], x[i]), lo[i]), hi[i])
				promised = math.FMA(g[i], next[i]-x[i], promised)
			}
			nextValue := f(next, nextG)
			if nextValue <= value+float64(sufficient*promised) && nextValue < value {
				value, accepted = nextValue, true
				break
			}
			// Go to the minimum of the parabola through both values and the slope,
			// but at least a tenth and at most half of the step.
			shorter := -step * slope / (2 * ((nextValue-value)/step - slope))
			if !(shorter > 0.1*step) {
				shorter = 0.1 * step
			}
			step = min(shorter, 0.5*step)
		}
		if !accepted {
			if latest == nil {
				return descent{value, true}
			}
			latest = nil
			continue
		}
		p := &pair{}
		if len(latest) == memory {
			p, latest = latest[memory-1], latest[:memory-1]
		} else {
			p.s, p.y = make([]float64, n), make([]float64, n)
		}
		for i := range x {
			p.s[i], p.y[i] = next[i]-x[i], nextG[i]-g[i]
		}
		p.sy, p.yy = dot(p.s, p.y), dot(p.y, p.y)
		if p.sy > curvature*math.Sqrt(dot(p.s, p.s)*p.yy) {
			latest = slices.Insert(latest, 0, p)
		}
		copy(x, next)
		copy(g, nextG)
	}
}

// A pair is a step and its change of the gradient.
type pair struct {
	s, y   []float64
	sy, yy float64 // s'y, y'y
}

// direction sets d to 0 in the held variables and to −Hg in the others. H is that of the
// two-loop recursion (algorithm 7.4) over the pairs, from the latest on, restricted to
// the variables that are not held.
func direction(d, g []float64, latest []*pair, held []int) {
	for i := range d {
		d[i] = -g[i]
	}
	hold := func() {
		for _, i := range held {
			d[i] = 0
		}
	}
	hold()
	var alpha, sys [memory]float64
	scale := 1.0
	for k, p := range latest {
		sy, yy := p.sy, p.yy
		for _, i := range held {
			sy -= float64(p.s[i] * p.y[i])
			yy -= float64(p.y[i] * p.y[i])
		}
		if !(sy > curvature*p.sy) {
			continue // the pair is mostly in the held variables
		}
		if scale == 1 {
			scale = sy / yy
		}
		sys[k] = sy
		alpha[k] = dot(p.s, d) / sy
		axpy(-alpha[k], p.y, d)
		hold()
	}
	for i := range d {
		d[i] *= scale
	}
	for k := len(latest) - 1; k >= 0; k-- {
		if p := latest[k]; sys[k] > 0 {
			axpy(alpha[k]-dot(p.y, d)/sys[k], p.s, d)
			hold()
		}
	}
}

func dot(x, y []float64) float64 {
	var a0, a1, a2, a3 float64
	for len(x) >= 4 && len(y) >= 4 {
		a0 = math.FMA(x[0], y[0], a0)
		a1 = math.FMA(x[1], y[1], a1)
		a2 = math.FMA(x[2], y[2], a2)
		a3 = math.FMA(x[3], y[3], a3)
		x, y = x[4:], y[4:]
	}
	for i := range x {
		a0 = math.FMA(x[i], y[i], a0)
	}
	return (a0 + a1) + (a2 + a3)
}

func axpy(a float64, x, y []float64) {
	y = y[:len(x)]
	for j, xj := range x {
		y[j] = math.FMA(a, xj, y[j])
	}
}
