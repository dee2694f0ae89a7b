package reduce

import (
	"context"
	"math"

	"streamd/kernels"
)

// An approximation is the program NLP(u, C, t), the approximation of one
// classifier term by another of fewer points (González-Castaño and Meyer, (2)):
//
//	min ‖u f(C) − w f(Z)‖² = uK(C,C)u − 2uK(C,Z)w + wK(Z,Z)w   over w and Z
//
// where f is the kernel's feature map. It is divided by uK(C,C)u, so that its value is
// the squared relative error of the approximation. w and Z are measured in units of the
// size of u and of the spread of C.
type approximation struct {
	kernel  kernels.Kernel
	n, t    int
	c, u    []float64 // the points, s×n, and their coefficients
	norm    float64   // uK(C,C)u
	unitW   float64
	unitZ   float64
	w, z    []float64 // the evaluated point
	towards []float64 // n: the sum of points times their weights in a gradient
}

func newApproximation(kernel kernels.Kernel, n int, c, u []float64, t int) *approximation {
	a := &approximation{
		kernel: kernel, n: n, t: t, c: c, u: u,
		w: make([]float64, t), z: make([]float64, t*n), towards: make([]float64, n),
	}
	for i, ui := range u {
		a.unitW = max(a.unitW, math.Abs(ui))
		for k, uk := range u {
			a.norm = math.FMA(float64(ui*uk), kernel.Value(argument(kernel, a.point(c, i), a.point(c, k))), a.norm)
		}
	}
	mean := make([]float64, n)
	for i := range u {
		for j, x := range a.point(c, i) {
			mean[j] += x / float64(len(u))
		}
	}
	spread := 0.0
	for i := range u {
		for j, x := range a.point(c, i) {
			spread = math.FMA(x-mean[j], x-mean[j], spread)
		}
	}
	a.unitZ = math.Sqrt(spread / float64(len(u)))
	if !(a.unitZ > 0) {
		a.unitZ = 1
	}
	return a
}

func (a *approximation) point(z []float64, i int) []float64 { return z[i*a.n:][:a.n] }

// argument is the kernel's argument, in four independent sums for speed.
func argument(kernel kernels.Kernel, x, z []float64) float64 {
	if !kernel.Radial() {
		return dot(x, z)
	}
	var s0, s1, s2, s3 float64
	for len(x) >= 4 && len(z) >= 4 {
		d0, d1, d2, d3 := x[0]-z[0], x[1]-z[1], x[2]-z[2], x[3]-z[3]
		s0, s1, s2, s3 = math.FMA(d0, d0, s0), math.FMA(d1, d1, s1), math.FMA(d2, d2, s2), math.FMA(d3, d3, s3)
		x, z = x[4:], z[4:]
	}
	for j := range x {
		d := x[j] - z[j]
		s0 = math.FMA(d, d, s0)
	}
	return (s0 + s1) + (s2 + s3)
}

// evaluate returns the value at v = (w, Z), in units, and writes the gradient to g.
func (a *approximation) evaluate(v, g []float64) float64 {
	for l := range a.w {
		a.w[l] = v[l] * a.unitW
	}
	for i := range a.z {
		a.z[i] = v[a.t+i] * a.unitZ
	}
	value := a.norm
	for l := range a.w {
		z := a.point(a.z, l)
		gw, own := 0.0, 0.0 // ∂/∂w_l, and the weight of z in ∂/∂z_l
		clear(a.towards)
		// ∂/∂z_l = 2w_l (Σ_k w_k ∂K(z_k,z_l)/∂z_l − Σ_i u_i ∂K(c_i,z_l)/∂z_l)
		add := func(x []float64, coefficient float64) float64 {
			s := argument(a.kernel, x, z)
			k, derivative := a.kernel.ValueAndDerivative(s)
			gw = math.FMA(2*coefficient, k, gw)
			slope := 2 * a.w[l] * coefficient * derivative
			if a.kernel.Radial() {
				slope = float64(-2 * slope)
				own -= slope
			}
			axpy(slope, x, a.towards)
			return k
		}
		for i, ui := range a.u {
			k := add(a.point(a.c, i), -ui)
			value = math.FMA(float64(-2*a.w[l]*ui), k, value)
		}
		for i, wi := range a.w {
			k := add(a.point(a.z, i), wi)
			value = math.FMA(float64(a.w[l]*wi), k, value)
		}
		g[l] = gw * a.unitW / a.norm
		gz := g[a.t+l*a.n:][:a.n]
		for j, zj := range z {
			gz[j] = math.FMA(own, zj, a.towards[j]) * a.unitZ / a.norm
		}
	}
	return value / a.norm
}

const (
	// reducedGradient bounds the components of the projected gradient at a solution,
	// in units of the squared relative error per unit of w and Z.
	reducedGradient = 1e-5
	iterations      = 1000
)

// solve improves w and Z in place, within the box |w_l| ≤ α·max|u_i|.
//
// The paper's box is −α|u| ≤ w ≤ α|u| for vectors of different lengths. A bound for each
// w_l by its first u_i would hold points with a small first coefficient in place. The
// maximum leaves them free and still bounds w.
func (a *approximation) solve(ctx context.Context, w, z []float64, alpha float64) descent {
	n := len(w) + len(z)
	v, lo, hi := make([]float64, n), make([]float64, n), make([]float64, n)
	for l := range w {
		v[l] = w[l] / a.unitW
		lo[l], hi[l] = -alpha, alpha
	}
	for i := range z {
		v[a.t+i] = z[i] / a.unitZ
		lo[a.t+i], hi[a.t+i] = math.Inf(-1), math.Inf(1)
	}
	d := minimise(ctx, a.evaluate, v, lo, hi, reducedGradient, 0, iterations)
	for l := range w {
		w[l] = v[l] * a.unitW
	}
	for i := range z {
		z[i] = v[a.t+i] * a.unitZ
	}
	return d
}
