package incremental

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/gonum"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"
)

// Path solves for every ν in nus at about the price of one. models[i] is the result of
// Solve for nus[i], within the accuracy below and without Plane.Condition; o.Nu is
// ignored. Path fails like Solve, for all ν or for none: with a *ConditionError when
// H + τI below is too ill-conditioned.
//
// With τ = 1/√(ν_min ν_max) and H = Σ a_c Σ v z z', let D be the powers of two
// that scale H + τI to a diagonal near 1, LL' = D(H + τI)D, B = L^-1 D, and
// BB' = QTQ', T tridiagonal with eigenvalues in (0, 1/τ]. Then
//
//	(I/ν + H)^-1 = B'Q (I + (1/ν − τ)T)^-1 Q'B
//
// One Cholesky factorisation and one reduction to tridiagonal form, O(n³), serve all ν
// at O(n²) each (compare Eldén 1977). Reducing D(H + τI)D instead of H keeps the
// features of small scale beside those of large: the relative error is about
// 2^-53·√(ν_max/ν_min) times the condition number of D(H + τI)D. A regulariser R takes
// the place of I, and BRB' that of BB'.
func (m *Moments) Path(o Options, nus []float64) ([]*Model, error) {
	if len(nus) == 0 {
		panic("incremental: a path without ν")
	}
	for _, nu := range nus {
		o.Nu = nu
		if err := m.accepts(o); err != nil {
			return nil, err
		}
	}
	if len(o.Mean) > 0 {
		models, _, err := m.imputing(o, func(in *Moments, o Options) ([]*Model, error) { return in.Path(o, nus) })
		return models, err
	}
	if len(m.classes) < 2 {
		return nil, ErrClasses
	}
	if o.Solver != nil {
		return m.solveBy(o, nus)
	}
	models, like := make([]*Model, len(nus)), m.model(o)
	for i, nu := range nus {
		model := *like
		model.Options.Nu = nu
		models[i] = &model
	}
	tau := 1 / math.Sqrt(slices.Min(nus)) / math.Sqrt(slices.Max(nus))
	coordinates := m.coordinates(o.Standardise)
	var f *pencil
	for r, s := range m.systems(o, m.parts(coordinates)) {
		if f == nil || o.Balanced {
			var condition float64
			if f, condition = m.newPencil(s.matrix, tau); f == nil {
				return nil, &ConditionError{Class: m.classes[r].label, Condition: condition}
			}
		}
		right := f.project(s.right)
		for i, nu := range nus {
			z, ok := f.solve(right, nu)
			if !ok {
				return nil, &ConditionError{Class: m.classes[r].label, Condition: math.Inf(1)}
			}
			w, gamma := coordinates.back(z)
			models[i].Planes = append(models[i].Planes, Plane{Class: m.classes[r].label, W: w, Gamma: gamma})
		}
	}
	return models, nil
}

// pencil is the pair (I, H), or (R, H), in coordinates in which I or R becomes T and
// τT + H becomes the identity.
type pencil struct {
	tau             float64
	basis           *mat.Dense // Q'B
	diagonal, below []float64  // of T
}

// onPath bounds the condition number of a factor in float64 in the place of R for I. There is no
// refinement on the path, and large ν need the directions that H hardly restrains.
const onPath = 0x1p30

// newPencil returns nil when the condition number is too large for float64.
func (m *Moments) newPencil(matrix []double, tau float64) (p *pencil, condition float64) {
	f := m.factorise(matrix, 1/tau)
	if m.regulariser != nil && !f.exact && !(f.condition < onPath) {
		f.factoriseExactly()
	}
	if !f.exact && !(f.condition < 0x1p52) {
		return nil, f.condition
	}
	n := len(f.scale)
	b := mat.DenseCopyOf(f.whitening())
	p = &pencil{tau: tau, basis: b, diagonal: make([]float64, n), below: make([]float64, n-1)}
	if f.exact {
		if !p.diagonalise(m.enclose(b)) {
			return nil, f.condition
		}
		return p, f.condition
	}
	t := m.enclose(b).RawSymmetric()
	for i := range n {
		for j := range i {
			t.Data[i*t.Stride+j] = t.Data[j*t.Stride+i] // SymDense stores the upper triangle
		}
	}
	var lapack gonum.Implementation
	var size [1]float64
	factors := make([]float64, n-1)
	lapack.Dsytrd(blas.Lower, n, t.Data, t.Stride, p.diagonal, p.below, factors, size[:], -1)
	work := make([]float64, int(size[0]))
	lapack.Dsytrd(blas.Lower, n, t.Data, t.Stride, p.diagonal, p.below, factors, work, len(work))
	// The first row of Q is that of I. The reflectors are stored like those of a QR
	// factorisation of the rows below.
	reflectors := blas64.General{Rows: n - 1, Cols: n - 1, Stride: t.Stride, Data: t.Data[t.Stride:]}
	rows := b.Slice(1, n, 0, n).(*mat.Dense).RawMatrix()
	lapack64.Ormqr(blas.Left, blas.Trans, reflectors, factors, rows, size[:], -1)
	work = make([]float64, int(size[0]))
	lapack64.Ormqr(blas.Left, blas.Trans, reflectors, factors, rows, work, len(work))
	return p, f.condition
}

// diagonalise makes the reduction of T to tridiagonal form one to eigenvalues. Those that rounding
// of the sums has made larger than 1/τ, or negative, are brought back to where they were: then no ν
// makes the matrix indefinite.
func (p *pencil) diagonalise(t *mat.SymDense) bool {
	var of mat.EigenSym
	if !of.Factorize(t, true) {
		return false
	}
	var q mat.Dense
	of.VectorsTo(&q)
	of.Values(p.diagonal)
	for j, v := range p.diagonal {
		p.diagonal[j] = min(max(v, 0), 1/p.tau)
	}
	basis := new(mat.Dense)
	basis.Mul(q.T(), p.basis)
	p.basis = basis
	return true
}

// enclose returns B [R 0; 0 1] B'.
func (m *Moments) enclose(b *mat.Dense) *mat.SymDense {
	n, _ := b.Dims()
	out := mat.NewSymDense(n, nil)
	if m.regulariser == nil {
		out.SymOuterK(1, b)
		return out
	}
	r := mat.NewSymDense(n, nil)
	p := 0
	for j := range n - 1 {
		for k := range j + 1 {
			r.SetSym(j, k, m.regulariser[p])
			p++
		}
	}
	r.SetSym(n-1, n-1, 1)
	var half, whole mat.Dense
	half.Mul(b, r)
	whole.Mul(&half, b.T())
	for j := range n {
		for k := range j + 1 {
			out.SetSym(j, k, (whole.At(j, k)+whole.At(k, j))/2)
		}
	}
	return out
}

// project returns Q'B·b.
func (p *pencil) project(b []double) *mat.VecDense {
	right := mat.NewVecDense(len(b), nil)
	for j, t := range b {
		right.SetVec(j, t.hi)
	}
	right.MulVec(p.basis, right)
	return right
}

// solve fails when rounding makes the matrix indefinite, which takes a range of ν that
// float64 cannot hold.
func (p *pencil) solve(projected *mat.VecDense, nu float64) (out []double, ok bool) {
	n := len(p.diagonal)
	diagonal, below, z := make([]float64, n), make([]float64, n-1), make([]float64, n)
	// I + (1/ν − τ)T, without cancelling where 1/ν ≪ τ and T ≈ 1/τ.
	for j, t := range p.diagonal {
		diagonal[j] = (1 - float64(p.tau*t)) + t/nu
	}
	for j, t := range p.below {
		below[j] = t/nu - float64(p.tau*t)
	}
	var lapack gonum.Implementation
	if !lapack.Dpttrf(n, diagonal, below) {
		return nil, false
	}
	copy(z, projected.RawVector().Data)
	lapack.Dpttrs(n, 1, diagonal, below, z, 1)
	x := mat.NewVecDense(n, z)
	x.MulVec(p.basis.T(), x)
	out = make([]double, n)
	for j := range out {
		out[j] = toDouble(x.AtVec(j))
	}
	return out, true
}

// Loss is the squared error of one plane x'w = γ on summed rows. The target of x'w − γ
// is 1 for rows of the plane's class and −1 for all others.
type Loss struct {
	Plus, Minus             float64 // Σ av (x'w − γ ∓ 1)² over the rows of the plane's class, and over the others
	PlusWeight, MinusWeight float64 // Σ av
}

// Losses computes the loss of planes on the summed rows, without the rows: one Loss per
// model and plane. A row of a class in classWeights counts by that weight. All models
// have the same features and, in the same order, planes of the same classes; m may
// lack rows of some of them. The cost is O(n²) for each plane, and O(n²·k·log k) for
// the sums.
//
// The terms of a loss, w'Sw − 2w's + m and so on, cancel when means are large against
// spreads or when the fit is close. Sums and planes are therefore moved in
// double-double arithmetic to the coordinates of mean 0 and variance 1. The remaining
// error is about 2^-50·Σv. A loss is never negative.
func (m *Moments) Losses(classWeights map[string]float64, models []*Model) [][]Loss {
	n := len(m.features)
	out := make([][]Loss, len(models))
	for i, model := range models {
		if len(model.Features) != n || len(model.Planes) != len(models[0].Planes) {
			panic("incremental: models of different shape")
		}
		out[i] = make([]Loss, len(model.Planes))
	}
	if len(models) == 0 || len(m.classes) == 0 {
		return out
	}
	x := m.coordinates(true)
	parts := m.parts(x)
	planes := make([]*mat.Dense, len(models[0].Planes))
	for r := range planes {
		of := make([]*Plane, len(models))
		for i, model := range models {
			of[i] = &model.Planes[r]
		}
		planes[r] = x.planes(of)
	}
	// Weigh every class, rounding to float64.
	weights := Options{ClassWeights: classWeights}
	for c := range parts {
		a := weights.ClassWeight(m.classes[c].label)
		for p, t := range parts[c].matrix {
			parts[c].matrix[p] = toDouble(float64(a * t.hi))
		}
		for j, t := range parts[c].right {
			parts[c].right[j] = toDouble(float64(a * t.hi))
		}
	}
	judge := func(r int, plus, minus lossSums) {
		atPlus, atMinus := plus.of(planes[r], 1), minus.of(planes[r], -1)
		for i := range out {
			out[i][r] = Loss{Plus: atPlus[i], Minus: atMinus[i], PlusWeight: plus.weight, MinusWeight: minus.weight}
		}
	}
	at := map[string]int{} // the plane of each class
	for r, p := range models[0].Planes {
		at[p.Class] = r
	}
	apart(parts, func(c int, others system) bool {
		if r, ok := at[m.classes[c].label]; ok {
			judge(r, lossSumsOf(parts[c]), lossSumsOf(others))
			delete(at, m.classes[c].label)
		}
		return true
	})
	if len(at) > 0 {
		none, all := lossSumsOf(parts[0].like()), lossSumsOf(sum(parts[0].like(), parts))
		for _, r := range at {
			judge(r, none, all)
		}
	}
	return out
}

// planes returns planes as columns [w; γ] in the coordinates x.
func (x coordinates) planes(of []*Plane) *mat.Dense {
	n := len(x.mean)
	out := mat.NewDense(n+1, len(of), nil)
	for i, p := range of {
		gamma := toDouble(p.Gamma)
		for j, w := range p.W {
			out.Set(j, i, x.scale[j].mul(toDouble(w)).hi)
			gamma = gamma.sub(x.mean[j].mul(toDouble(w)))
		}
		out.Set(n, i, gamma.hi)
	}
	return out
}

// lossSums is Σ v z z', Σ v z and Σ v, in float64.
type lossSums struct {
	matrix *mat.SymDense
	first  *mat.VecDense
	weight float64
}

func lossSumsOf(s system) lossSums {
	n := len(s.right)
	out := lossSums{matrix: mat.NewSymDense(n, nil), first: mat.NewVecDense(n, nil)}
	p := 0
	for j, t := range s.right {
		for k := range j + 1 {
			out.matrix.SetSym(j, k, s.matrix[p].hi)
			p++
		}
		out.first.SetVec(j, t.hi)
	}
	out.weight = s.mass().hi
	return out
}

// of returns Σ v (z'y − d)² = y'(Σ v z z')y − 2d·(Σ v z)'y + Σ v for every column y.
func (s *lossSums) of(planes *mat.Dense, d float64) []float64 {
	n, count := planes.Dims()
	var product mat.Dense
	product.Mul(s.matrix, planes)
	out := make([]float64, count)
	for i := range out {
		var quadratic, linear float64
		for j := range n {
			y := planes.At(j, i)
			quadratic += float64(product.At(j, i) * y)
			linear += float64(s.first.AtVec(j) * y)
		}
		out[i] = max(0, quadratic-float64(2*d*linear)+s.weight)
	}
	return out
}
