package calibration

import (
	"fmt"
	"math"
)

// FitSigmoid fits Platt's sigmoid (1999) by Newton's method: it minimises
//
//	−Σ v (t log p + (1 − t) log(1 − p)),  p = 1/(1 + exp(A·value + B)),  A ≤ 0
//
// with t = (N₊+1)/(N₊+2) for positive rows and 1/(N₋+2) for the others, where N₊ and N₋
// are their weights, so that neither separable rows nor rows of one class make A or
// B infinite. If probabilities would fall as values rise, A = 0 is the minimum.
//
// A step is halved while it passes the least cost along its line and changes some row's
// log odds by more than 1.5. A step that changes all by less lowers the cost, which is
// convex (Bach 2010, proposition 1). A step that changes all by at most 2^-16 is the
// last one; it leaves an error of about 2^-32. Each step is O(m). Most fits take 4 to 8
// steps; 100 steps without an end are an error.
func (o *Outcomes) FitSigmoid() (Sigmoid, error) { return o.fitSigmoid(nil) }

// FitSigmoidFrom is FitSigmoid that begins at s. It takes about 3 steps if s was fitted
// to similar outcomes.
func (o *Outcomes) FitSigmoidFrom(s Sigmoid) (Sigmoid, error) { return o.fitSigmoid(&s) }

func (o *Outcomes) fitSigmoid(from *Sigmoid) (Sigmoid, error) {
	rows, err := o.groups()
	if err != nil {
		return Sigmoid{}, err
	}
	f := newPlatt(rows)
	if f.scale == 0 {
		return Sigmoid{B: f.level()}, nil
	}
	var start Sigmoid
	if from != nil {
		start = Sigmoid{A: from.A * f.scale, B: from.B + float64(from.A*f.mean)}
	} else {
		start = f.near()
	}
	s, err := f.minimise(start)
	if err != nil {
		return Sigmoid{}, fmt.Errorf("calibrate: %w", err)
	}
	if s.A >= 0 {
		return Sigmoid{B: f.level()}, nil
	}
	// A(value − mean)/scale + B
	a := s.A / f.scale
	return Sigmoid{A: a, B: s.B - float64(a*f.mean)}, nil
}

// near returns the starting point: the sigmoid of every sixteenth row, or for few rows
// that of Lin, Lin and Weng (2007). Fitting the subset takes less time than the steps it
// saves.
func (f *platt) near() Sigmoid {
	const every, enough = 16, 2000
	level := Sigmoid{B: math.Log((f.minus + 1) / (f.plus + 1))}
	if len(f.u) < enough {
		return level
	}
	var some platt
	for i := every / 2; i < len(f.u); i += every {
		some.u, some.v, some.target = append(some.u, f.u[i]), append(some.v, f.v[i]), append(some.target, f.target[i])
	}
	if s, err := some.minimise(level); err == nil {
		return s
	}
	return level
}

// minimise returns the sigmoid of least cost of the scaled values, beginning at now. It
// may have A > 0.
func (f *platt) minimise(now Sigmoid) (Sigmoid, error) {
	const (
		settled = 0x1p-16
		safe    = 1.5
		steps   = 100
	)
	g, h := f.derivatives(now)
	for range steps {
		const ridge = 1e-12 // keeps flat Hessians regular
		h[0], h[2] = h[0]*(1+ridge), h[2]*(1+ridge)
		determinant := float64(h[0]*h[2]) - float64(h[1]*h[1])
		step := Sigmoid{
			A: -(float64(h[2]*g[0]) - float64(h[1]*g[1])) / determinant,
			B: -(float64(h[0]*g[1]) - float64(h[1]*g[0])) / determinant,
		}
		moves := max(math.Abs(float64(step.A*f.u[0])+step.B), math.Abs(float64(step.A*f.u[len(f.u)-1])+step.B))
		if moves <= settled {
			return Sigmoid{A: now.A + step.A, B: now.B + step.B}, nil
		}
		for length := 1.0; ; length /= 2 {
			next := Sigmoid{A: now.A + float64(length*step.A), B: now.B + float64(length*step.B)}
			g, h = f.derivatives(next)
			if past := float64(g[0]*step.A)+float64(g[1]*step.B) > 0; !past || !(length*moves > safe) {
				now = next
				break
			}
		}
	}
	return now, fmt.Errorf("not settled after %d steps, at A = %v, B = %v", steps, now.A, now.B)
}

// platt holds the rows of a fit: scaled values u, targets and weights v.
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
		f.mean += float64(rows[i].value * (rows[i].weight() / f.weight))
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
		variance += float64(u * u * (f.v[i] / f.weight))
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

// derivatives returns the gradient of the cost, and its Hessian AA, AB, BB.
func (f *platt) derivatives(s Sigmoid) (g [2]float64, h [3]float64) {
	var x, e [256]float64
	for from := 0; from < len(f.u); from += len(x) {
		u := f.u[from:min(from+len(x), len(f.u))]
		v, target := f.v[from:][:len(u)], f.target[from:][:len(u)]
		x, e := x[:len(u)], e[:len(u)]
		for i, u := range u {
			x[i] = float64(s.A*u) + s.B
		}
		decays(e, x)
		for i, u := range u {
			q := 1 / (1 + e[i])
			p := float64(e[i] * q)
			d2 := float64(v[i] * float64(p*q))
			if x[i] < 0 {
				p = q
			}
			d1 := float64(v[i] * (target[i] - p))
			ud2 := float64(u * d2)
			g[0] += float64(u * d1)
			g[1] += d1
			h[0] += float64(u * ud2)
			h[1] += ud2
			h[2] += d2
		}
	}
	return g, h
}

// decays fills e with exp(−|x|), at least 2^-1000, with a relative error of 2^-51 at
// most: 2^(k/64) from a table times a polynomial (Tang 1989). It is several times as
// fast as math.Exp.
func decays(e, x []float64) {
	const (
		scale    = 64 / math.Ln2
		hi, lo   = 0x1.62e42fefap-7, 0x1.cf79abc9e3b39p-46 // ln 2/64; k·hi is exact
		rounding = 0x1.8p52                                // adding it rounds to an integer, in the last bits
		least    = -1000 * math.Ln2
	)
	for i, x := range x {
		x = max(-math.Abs(x), least)
		t := float64(x*scale) + rounding
		k := int64(math.Float64bits(t))
		t -= rounding
		r := (x - float64(t*hi)) - float64(t*lo)
		square := float64(r * r)
		p := r + float64(square*((1.0/2+float64(r*(1.0/6)))+float64(square*(1.0/24+float64(r*(1.0/120))))))
		two := twos[k&63]
		y := two + float64(two*p)
		e[i] = math.Float64frombits(math.Float64bits(y) + uint64(k>>6)<<52)
	}
}

// twos is 2^(i/64).
var twos = func() (t [64]float64) {
	for i := range t {
		t[i] = math.Exp2(float64(i) / 64)
	}
	return t
}()
