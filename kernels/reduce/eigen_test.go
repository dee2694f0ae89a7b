package reduce

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"

	"streamd/incremental/gram"
	"streamd/kernels"
)

// The leading pairs are those of gonum's decomposition of the whole matrix: of slowly and of
// quickly falling spectra, of low rank, and where all eigenvalues are equal.
func TestLeadingEigenpairs(t *testing.T) {
	r := rand.New(rand.NewPCG(81, 1))
	polynomial, err := kernels.Polynomial(0.1, 0, 7)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name        string
		kernel      kernels.Kernel
		n, l, count int
	}{
		{name: "smooth", kernel: gaussian(0.05), n: 3, l: 150, count: 12},
		{name: "rough", kernel: gaussian(0.5), n: 6, l: 250, count: 20},
		{name: "polynomial", kernel: polynomial, n: 8, l: 200, count: 30},
		{name: "rank 3", kernel: kernels.Linear(), n: 3, l: 100, count: 10},
		{name: "identity", kernel: gaussian(1e6), n: 2, l: 80, count: 5},
		{name: "all pairs", kernel: gaussian(0.3), n: 2, l: 20, count: 20},
		{name: "one point", kernel: gaussian(1), n: 2, l: 1, count: 3},
	} {
		z := make([]float64, c.l*c.n)
		for i := range z {
			z[i] = r.NormFloat64()
		}
		m, err := kernels.NewMap(c.kernel, c.n, z)
		if err != nil {
			t.Fatal(err)
		}
		k := symmetric(m.Gram(), c.l)
		got, err := leading(context.Background(), k, c.count, r)
		if err != nil || got.unconverged > 0 {
			t.Fatalf("%s: %v, %d unconverged", c.name, err, got.unconverged)
		}
		var whole mat.EigenSym
		if !whole.Factorize(mat.NewSymDense(c.l, k.RawMatrix().Data), true) {
			t.Fatal("gonum has no eigenvalues")
		}
		want := whole.Values(nil)
		if len(got.values) != min(c.count, c.l) {
			t.Fatalf("%s: %d of %d pairs", c.name, len(got.values), c.count)
		}
		for j, value := range got.values {
			if math.Abs(value-want[c.l-1-j]) > 1e-12*want[c.l-1] {
				t.Errorf("%s: eigenvalue %d is %v, not %v", c.name, j, value, want[c.l-1-j])
			}
		}
		var product, unit, residual, scaled mat.Dense
		unit.Mul(got.vectors.T(), got.vectors)
		for i := range got.values {
			unit.Set(i, i, unit.At(i, i)-1)
		}
		product.Mul(k, got.vectors)
		scaled.Mul(got.vectors, mat.NewDiagDense(len(got.values), got.values))
		residual.Sub(&product, &scaled)
		if o, e := mat.Norm(&unit, 2), mat.Norm(&residual, 2); o > 1e-12 || e > 1e-7*want[c.l-1] {
			t.Errorf("%s: V'V is %v from I, KV %v from VΛ", c.name, o, e)
		}
		// The subspace is gonum's where its last eigenvalue is apart from the next.
		if s := len(got.values); s < c.l && want[c.l-s]-want[c.l-s-1] > 1e-3*want[c.l-1] {
			var vectors, inside mat.Dense
			whole.VectorsTo(&vectors)
			inside.Mul(vectors.Slice(0, c.l, c.l-s, c.l).T(), got.vectors)
			if size := mat.Norm(&inside, 2); math.Abs(size*size-float64(s)) > 1e-9 {
				t.Errorf("%s: %v of %d dimensions are gonum's", c.name, size*size, s)
			}
		}
	}
}

// The coordinates are those of an orthonormal basis (lemma 3.2), and those of the points themselves
// are √λv (lemma 3.3), so that they are the nearest to K(Z, Z) of their rank.
func TestEigenCoordinates(t *testing.T) {
	p := blobs(rand.New(rand.NewPCG(82, 1)), 2, 300)
	found, err := Eigen{Points: 120, Nu: 1}.Reduce(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	m, err := found.Map(p.Kernel)
	if err != nil {
		t.Fatal(err)
	}
	if m.Points() != 120 || m.Size() != 12 {
		t.Fatalf("%d coordinates of %d points", m.Size(), m.Points())
	}
	for i, g := 0, m.Gram(); i < m.Size(); i++ {
		for j := range i + 1 {
			want := 0.0
			if i == j {
				want = 1
			}
			if got := g[gram.PackedLen(i)+j]; math.Abs(got-want) > 1e-10 {
				t.Errorf("⟨v%d, v%d⟩ is %v", i+1, j+1, got)
			}
		}
	}
	plain, err := kernels.NewMap(p.Kernel, 2, found.Z)
	if err != nil {
		t.Fatal(err)
	}
	k := mat.NewSymDense(120, symmetric(plain.Gram(), 120).RawMatrix().Data)
	var whole mat.EigenSym
	if !whole.Factorize(k, false) {
		t.Fatal("gonum has no eigenvalues")
	}
	d := mat.NewDense(120, 12, nil)
	for i := range 120 {
		d.SetRow(i, m.At(m.Point(i)))
	}
	var low, rest mat.Dense
	low.Mul(d, d.T())
	rest.Sub(k, &low)
	var nearest float64 // ‖K − D_S D_S'‖² of the best of rank S
	for _, value := range whole.Values(nil)[:108] {
		nearest += value * value
	}
	if got := mat.Norm(&rest, 2); math.Abs(got-math.Sqrt(nearest)) > 1e-9*got {
		t.Errorf("K − DD' is %v; the least is %v", got, math.Sqrt(nearest))
	}
}

func TestEigenRefusesOtherKernels(t *testing.T) {
	p := blobs(rand.New(rand.NewPCG(83, 1)), 2, 60)
	var err error
	if p.Kernel, err = kernels.Sigmoid(1, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := (Eigen{Nu: 1}).Reduce(context.Background(), p); err == nil {
		t.Error("eigenvectors of a sigmoid")
	}
	p = &Problem{Classes: 2, Points: 3, Columns: []gram.Column{gram.ColumnOf([]float64{0, 0, 0})}, Codes: []int32{0, 1, 0}}
	if r, err := (Eigen{Nu: 1}).Reduce(context.Background(), p); !errors.Is(err, ErrRows) {
		t.Errorf("a kernel that is 0: %+v, %v", r, err)
	}
}
