package reduce

import (
	"context"
	"errors"
	"fmt"
	"math"

	"streamd/incremental/gram"
	"streamd/kernels/lp"
	"streamd/kernels/svm"
)

// LargeMargin is the support vector machine with the hinge loss, of which Direct makes the
// sparse large margin classifier (SLMC; Wu, Schölkopf and Bakır 2006, section 3):
//
//	W(Z) = min ½β'K(Z, Z)β + ν Σ c_i E_i   s.t. D(K(X, Z)β − γ) + E ≥ 1, E ≥ 0   (28–30)
//
// whose solution has β = K(Z, Z)⁻¹K(Z, X)Dα (45) and the gradient (46).
type LargeMargin struct {
	Nu float64 // C of the paper, > 0
}

func (m LargeMargin) open(ctx context.Context, s *sample, r rows, workers int) (program, error) {
	return &largeMargin{ctx: ctx, nu: m.Nu, r: r, workers: workers}, checkNu(m.Nu)
}

type largeMargin struct {
	ctx     context.Context
	nu      float64
	r       rows
	workers int
}

func (p *largeMargin) size() float64 { return 1 }

func (p *largeMargin) solve(psi []gram.Column, metric *factor) (*optimum, error) {
	t := len(psi)
	identity := make([]float64, gram.PackedLen(t))
	for l := range t {
		identity[gram.PackedLen(l)+l] = 1
	}
	hinge := lp.Program{Columns: metric.whiten(psi), D: p.r.d, Nu: p.nu, Costs: p.r.weights, Quadratic: identity}
	v, err := hinge.Solve(p.ctx, p.workers)
	if err != nil {
		return nil, fmt.Errorf("the hinge loss of %d rows and %d points: %w", len(p.r.d), t, err)
	}
	o := &optimum{value: v.Objective, beta: v.U, gamma: v.Gamma, pull: v.Alpha, dual: v.SupportVectors()}
	metric.back(o.beta)
	for i, d := range p.r.d {
		o.pull[i] *= -d
	}
	return o, nil
}

// ReducedSet is the reduced set method of Burges (Wu, Schölkopf and Bakır 2006, (4)): it finds
// the support vector machine w of the rows and approximates it,
//
//	W(Z) = min ‖w − Σ_l β_l φ(z_l)‖²
//
// so that β = K(Z, Z)⁻¹K(Z, X)w (47). γ is that of the support vector machine. With Nu of Direct
// it is the modified method, MRS.
type ReducedSet struct {
	Nu float64 // C of the support vector machine, > 0
}

func (m ReducedSet) open(ctx context.Context, s *sample, r rows, workers int) (program, error) {
	if err := checkNu(m.Nu); err != nil {
		return nil, err
	}
	full, err := svm.SMO{Kernel: s.Kernel}.Open(r.columns, workers)
	if err != nil {
		return nil, err
	}
	plane, values, err := full.Fit(ctx, r.d, r.weights, m.Nu, nil)
	if err != nil {
		return nil, err
	}
	p := &reducedSet{w: plane.W, gamma: plane.Gamma, dual: plane.SupportVectors()}
	for i, w := range plane.W {
		p.norm = math.FMA(w, values[i]+plane.Gamma, p.norm)
	}
	return p, nil
}

type reducedSet struct {
	w     []float64
	norm  float64 // ‖w‖²
	gamma float64
	dual  int
}

func (p *reducedSet) size() float64 { return 2 }

func (p *reducedSet) solve(psi []gram.Column, metric *factor) (*optimum, error) {
	o := &optimum{beta: make([]float64, len(psi)), gamma: p.gamma, pull: make([]float64, len(p.w)), dual: p.dual}
	gram.AddDots(o.beta, metric.whiten(psi), 0, nil, p.w)
	o.value = p.norm - dot(o.beta, o.beta)
	metric.back(o.beta)
	for i, w := range p.w {
		o.pull[i] = -2 * w
	}
	return o, nil
}

// Fisher is the regularised kernel Fisher discriminant, of which Direct makes the sparse one
// (Wu, Schölkopf and Bakır 2006, appendix A). With δ the difference of the means of both sides
// and B their scatter Σ v_i (ψ_i − mean)(ψ_i − mean)' / Σ v_i,
//
//	W(Z) = −max (β'δ)² / β'(B + μK(Z, Z))β = −δ'(B + μK(Z, Z))⁻¹δ                 (57–62)
//
// and γ is halfway between the means, unless Nu of Direct gives it.
type Fisher struct {
	Mu float64 // μ > 0
}

func (m Fisher) open(_ context.Context, _ *sample, r rows, _ int) (program, error) {
	if !(m.Mu > 0) || math.IsInf(m.Mu, 0) {
		return nil, fmt.Errorf("μ is %v, not a positive number", m.Mu)
	}
	p := &fisher{mu: m.Mu, r: r, share: make([]float64, len(r.d))}
	all := 0.0
	for i := range r.d {
		v := 1.0
		if r.weights != nil {
			v = r.weights[i]
		}
		p.share[i] = v
		p.side[r.side(i)] += v
		all += v
	}
	for i := range p.share {
		p.share[i] /= all
	}
	p.side[0] /= all
	p.side[1] /= all
	return p, nil
}

type fisher struct {
	mu    float64
	r     rows
	share []float64  // v_i/Σv
	side  [2]float64 // the sums of both sides
}

func (p *fisher) size() float64 { return 2 * p.mu }

func (p *fisher) solve(psi []gram.Column, metric *factor) (*optimum, error) {
	t := len(psi)
	white := metric.whiten(psi)
	// In an orthonormal basis the metric is I. B is the sum of the products of all rows less
	// those of the means.
	var means [2][]float64
	for side := range means {
		y := make([]float64, len(p.share))
		for i, share := range p.share {
			if p.r.side(i) == side {
				y[i] = share / p.side[side]
			}
		}
		means[side] = make([]float64, t)
		gram.AddDots(means[side], white, 0, nil, y)
	}
	var sums [1]gram.Sums
	new(gram.Kernel).Sum(sums[:], white, make([]int32, len(p.share)), p.share, make([]float64, t))
	b := sums[0].Cross
	delta := make([]float64, t)
	for k := range t {
		row := b[gram.PackedLen(k):][:k+1]
		for l := range row {
			row[l] -= float64(p.side[0]*means[0][k]*means[0][l]) + float64(p.side[1]*means[1][k]*means[1][l])
		}
		row[k] += p.mu
		delta[k] = means[1][k] - means[0][k]
	}
	f, ok := newFactor(b, t)
	if !ok {
		return nil, errors.New("the scatter within the classes is not positive definite; a larger μ helps")
	}
	v := append([]float64(nil), delta...)
	f.forward(v)
	o := &optimum{value: -dot(v, v), pull: make([]float64, len(p.share))}
	f.back(v)
	mean := [2]float64{dot(v, means[0]), dot(v, means[1])}
	o.gamma = (mean[0] + mean[1]) / 2
	gram.AddProducts(o.pull, white, 0, nil, v)
	for i, share := range p.share {
		side := p.r.side(i)
		o.pull[i] = 2 * share * (o.pull[i] - mean[side] - p.r.d[i]/p.side[side])
	}
	metric.back(v)
	o.beta = v
	return o, nil
}
