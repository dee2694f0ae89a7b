package reduce

import (
	"context"
	"math"
)

const (
	memory     = 20    // pairs of steps and gradient changes that are kept
	sufficient = 1e-4  // share of the decrease that the gradient promises (Armijo)
	curvature  = 1e-12 // least cosine of a step and its gradient change
)

// descent is how minimise went.
type descent struct {
	value      float64
	iterations int
	converged  bool // false: the iterations ran out, or ctx was done
}

// minimise finds a local minimum of f over the box lo ≤ x ≤ hi, from x, which it
// overwrites. f gives its value at x and writes its gradient to g.
//
// It is L-BFGS (Nocedal and Wright 2006, algorithm 7.4) in the variables that
// are not held at a bound by the gradient, with a backtracking search along the
// path projected onto the box (Bertsekas 1982). It has converged when no
// component of the projected gradient P(x − g) − x is above tolerance, or when
// no step in the direction of the gradient itself gives a decrease any more,
// which is what rounding comes to. An iteration costs a little above one
// evaluation.
func minimise(ctx context.Context, f func(x, g []float64) float64, x, lo, hi []float64, tolerance float64, limit int) descent {
	n := len(x)
	for i := range x {
		x[i] = min(max(x[i], lo[i]), hi[i])
	}
	numbers := make([]float64, (4+2*memory)*n)
	take := func() []float64 {
		v := numbers[:n:n]
		numbers = numbers[n:]
		return v
	}
	g, d, next, nextG := take(), take(), take(), take()
	var s, y [memory][]float64
	for i := range s {
		s[i], y[i] = take(), take()
	}
	free := make([]bool, n)
	pairs, last := 0, -1
	value := f(x, g)
	for iteration := 0; ; iteration++ {
		largest := 0.0
		for i := range x {
			free[i] = !(x[i] <= lo[i] && g[i] > 0 || x[i] >= hi[i] && g[i] < 0)
			largest = max(largest, math.Abs(min(max(x[i]-g[i], lo[i]), hi[i])-x[i]))
		}
		if largest <= tolerance {
			return descent{value, iteration, true}
		}
		if iteration == limit || ctx.Err() != nil {
			return descent{value, iteration, false}
		}
		direction(d, g, s[:], y[:], pairs, last, free)
		slope := dot(d, g)
		if !(slope < 0) {
			pairs = 0
			direction(d, g, nil, nil, 0, 0, free)
			slope = dot(d, g)
		}
		step := 1.0
		if pairs == 0 {
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
			// The minimum of the parabola through both values and the slope,
			// within a tenth and a half of the step.
			shorter := -step * slope / (2 * ((nextValue-value)/step - slope))
			if !(shorter > 0.1*step) {
				shorter = 0.1 * step
			}
			step = min(shorter, 0.5*step)
		}
		if !accepted {
			if pairs == 0 {
				return descent{value, iteration, true}
			}
			pairs = 0
			continue
		}
		at := (last + 1) % memory
		var sy, ss, yy float64
		for i := range x {
			s[at][i], y[at][i] = next[i]-x[i], nextG[i]-g[i]
			sy = math.FMA(s[at][i], y[at][i], sy)
			ss = math.FMA(s[at][i], s[at][i], ss)
			yy = math.FMA(y[at][i], y[at][i], yy)
		}
		if sy > curvature*math.Sqrt(ss*yy) {
			last, pairs = at, min(pairs+1, memory)
		}
		copy(x, next)
		copy(g, nextG)
	}
}

// direction sets d to −Hg in the free variables and to 0 in the others, H being
// the two-loop recursion's (algorithm 7.4) over the pairs as they are in the
// free variables.
func direction(d, g []float64, s, y [][]float64, pairs, last int, free []bool) {
	for i := range d {
		d[i] = 0
		if free[i] {
			d[i] = -g[i]
		}
	}
	var rho, alpha [memory]float64
	scale := 1.0
	for k := range pairs {
		p := (last - k + memory) % memory
		var sy, yy, sd float64
		for i, is := range free {
			if is {
				sy = math.FMA(s[p][i], y[p][i], sy)
				yy = math.FMA(y[p][i], y[p][i], yy)
				sd = math.FMA(s[p][i], d[i], sd)
			}
		}
		if !(sy > 0) {
			continue
		}
		if scale == 1 {
			scale = sy / yy
		}
		rho[p] = 1 / sy
		alpha[p] = rho[p] * sd
		for i, is := range free {
			if is {
				d[i] = math.FMA(-alpha[p], y[p][i], d[i])
			}
		}
	}
	for i := range d {
		d[i] *= scale
	}
	for k := pairs - 1; k >= 0; k-- {
		p := (last - k + memory) % memory
		if rho[p] == 0 {
			continue
		}
		var yd float64
		for i, is := range free {
			if is {
				yd = math.FMA(y[p][i], d[i], yd)
			}
		}
		beta := alpha[p] - float64(rho[p]*yd)
		for i, is := range free {
			if is {
				d[i] = math.FMA(beta, s[p][i], d[i])
			}
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
