package reduce

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"

	"streamd/incremental/gram"
	"streamd/kernels"
)

// Eigen takes L random rows as points and projects to the t leading eigenvectors of K(Z, Z):
// with K(Z, Z)v = λv, coordinate v'K(Z, x)/√λ is that of φ(x) along a unit vector of the
// kernel's space, orthogonal to the others (Yajima, Ohi and Mori 2003, 3.4–3.6). The planes
// solve (3.3), the 1-norm program, in these coordinates; C of the paper is 1/ν.
//
// All planes share the coordinates. There are fewer than t when there are fewer distinct rows,
// or fewer eigenvalues above 1e-10 of the largest. It refuses kernels that are not positive
// semidefinite. The product of K(Z, Z) with one vector costs L² multiply-adds, and there are
// some tens of products with 2t vectors, on all processors; K(Z, Z) takes 12L² bytes.
type Eigen struct {
	Points int     // L, up to 5000; 0: 1000, or t if that is more
	Nu     float64 // ν of the 1-norm program for the coefficients
}

const (
	eigenRows = 1000
	// mostEigenRows bounds K(Z, Z) to 300 MB.
	mostEigenRows = 5000
	// leastEigenvalue is in units of the largest. The rounding errors of a coordinate are about
	// 1e-16 of that over its own eigenvalue.
	leastEigenvalue = 1e-10
)

// Reduce implements Reducer.
func (e Eigen) Reduce(ctx context.Context, p *Problem) (*Result, error) {
	s, err := newSample(p)
	if err != nil {
		return nil, err
	}
	setDefault(&e.Points, max(eigenRows, p.Points))
	if e.Points < 1 || e.Points > mostEigenRows {
		return nil, fmt.Errorf("eigenvectors of %d points; 1 to %d are possible", e.Points, mostEigenRows)
	}
	if err := checkNu(e.Nu); err != nil {
		return nil, err
	}
	if !p.Kernel.Semidefinite() {
		return nil, fmt.Errorf("an eigen-subspace needs a positive semidefinite kernel, and %v is none", p.Kernel)
	}
	random := s.random(5)
	z := s.draw(random, s.live, e.Points)
	m, err := kernels.NewMap(p.Kernel, len(p.Columns), z)
	if err != nil {
		return nil, err
	}
	found, err := leading(ctx, symmetric(m.Gram(), m.Points()), p.Points, random)
	if err != nil {
		return nil, err
	}
	var projection []float64
	for k, value := range found.values {
		if !(value > leastEigenvalue*found.values[0]) {
			break
		}
		v, root := found.vectors.ColView(k), math.Sqrt(value)
		for i := range m.Points() {
			projection = append(projection, v.AtVec(i)/root)
		}
	}
	if len(projection) == 0 {
		return nil, fmt.Errorf("%w: K(z, z) is 0 for all of them", ErrRows)
	}
	result := &Result{Features: len(p.Columns), Points: m.Points(), Z: z, Projection: projection}
	if m, err = result.Map(p.Kernel); err != nil {
		return nil, err
	}
	return s.on(ctx, m, result, e.Nu, found.unconverged)
}

// symmetric unpacks a matrix of order t.
func symmetric(packed []float64, t int) *mat.Dense {
	a := mat.NewDense(t, t, nil)
	for i := range t {
		for j, x := range packed[gram.PackedLen(i):][:i+1] {
			a.Set(i, j, x)
			a.Set(j, i, x)
		}
	}
	return a
}

// eigenpairs are the leading ones of a symmetric matrix.
type eigenpairs struct {
	values      []float64  // descending
	vectors     *mat.Dense // orthonormal columns
	unconverged int        // 1 if a residual was still above eigenResidual at the limit
}

const (
	// eigenResidual bounds ‖Kv − λv‖, in units of the largest eigenvalue. The pairs are those of
	// a matrix that is as near to K.
	eigenResidual = 1e-8
	eigenProducts = 4  // between two Rayleigh–Ritz steps, which cost as much as a few products
	eigenTurns    = 40 // limit of these steps
)

// leading returns the count largest eigenvalues of a symmetric positive semidefinite matrix,
// or all if there are fewer, with their eigenvectors, by subspace iteration (Rutishauser 1969).
//
// A random block Q of twice as many columns becomes an orthonormal basis of the range of KQ, time
// and again. The eigenvectors of Q'KQ then turn Q into approximate eigenvectors of K
// (Rayleigh–Ritz). An error falls by λ_(p+1)/λ_k with each product, for p columns. The iteration
// ends when the residuals of all pairs are small, or at its limit. With p of the matrix's order the
// first step is exact.
func leading(ctx context.Context, k *mat.Dense, count int, random *rand.Rand) (*eigenpairs, error) {
	l, _ := k.Dims()
	count = min(count, l)
	p := min(l, 2*count+8)
	q := mat.NewDense(l, p, nil)
	for i := range l {
		for j := range p {
			q.Set(i, j, random.NormFloat64())
		}
	}
	orthonormalise(q)
	found := &eigenpairs{unconverged: 1}
	var kq mat.Dense
	for range eigenTurns {
		for range eigenProducts {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			kq.Mul(k, q)
			q.Copy(&kq)
			orthonormalise(q)
		}
		kq.Mul(k, q)
		if err := found.ritz(q, &kq, count); err != nil {
			return nil, err
		}
		if found.unconverged == 0 {
			break
		}
		q.Copy(&kq)
		orthonormalise(q)
	}
	return found, nil
}

// ritz takes the leading pairs of Q'KQ as those of K, and their residuals.
func (e *eigenpairs) ritz(q, kq *mat.Dense, count int) error {
	_, p := q.Dims()
	var product mat.Dense
	product.Mul(q.T(), kq)
	small := mat.NewSymDense(p, nil)
	for i := range p {
		for j := range i + 1 {
			small.SetSym(i, j, (product.At(i, j)+product.At(j, i))/2)
		}
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(small, true) {
		return fmt.Errorf("the eigenvalues of a matrix of order %d could not be found", p)
	}
	ascending := eigen.Values(nil)
	var all mat.Dense
	eigen.VectorsTo(&all)
	turn := mat.NewDense(p, count, nil)
	e.values = make([]float64, count)
	for j := range count {
		e.values[j] = ascending[p-1-j]
		turn.SetCol(j, mat.Col(nil, p-1-j, &all))
	}
	e.vectors = new(mat.Dense)
	e.vectors.Mul(q, turn)
	var residual mat.Dense
	residual.Mul(kq, turn)
	e.unconverged = 0
	for j, value := range e.values {
		r := mat.VecDenseCopyOf(residual.ColView(j))
		if r.AddScaledVec(r, -value, e.vectors.ColView(j)); !(mat.Norm(r, 2) <= eigenResidual*e.values[0]) {
			e.unconverged = 1
		}
	}
	return nil
}

// orthonormalise replaces the columns by an orthonormal basis of their span, the factor Q of a QR
// decomposition. Where columns are dependent, the rest is arbitrary but orthonormal, too.
func orthonormalise(a *mat.Dense) {
	raw := a.RawMatrix()
	tau := make([]float64, raw.Cols)
	work := make([]float64, 1)
	for _, step := range []func(a blas64.General, tau, work []float64, size int){lapack64.Geqrf, lapack64.Orgqr} {
		step(raw, tau, work, -1)
		if size := int(work[0]); size > len(work) {
			work = make([]float64, size)
		}
		step(raw, tau, work, len(work))
	}
}
