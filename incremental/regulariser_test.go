package incremental

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// regularised holds rows x with a regulariser R = CC', and the rows y = C⁻¹x. In the
// coordinates of y, w'Rw = ‖C'w‖² is the plain size of a plane. C is lower triangular
// with small whole numbers and powers of two on its diagonal, so that x and y are exact.
type regularised struct {
	x, y table
	c    [][]float64
	r    []float64 // packed
}

func randomRegularised(r *rand.Rand, m, n, k int) regularised {
	z := regularised{y: randomTable(r, m, n, k), c: make([][]float64, n)}
	for i := range z.c {
		z.c[i] = make([]float64, n)
		for j := range i {
			z.c[i][j] = float64(r.IntN(5) - 2)
		}
		z.c[i][i] = math.Ldexp(1, r.IntN(4)-1)
	}
	for i := range n {
		for j := range i + 1 {
			var sum float64
			for l := range j + 1 {
				sum += z.c[i][l] * z.c[j][l]
			}
			z.r = append(z.r, sum)
		}
	}
	z.x = table{label: z.y.label}
	for _, y := range z.y.x {
		for j := range y {
			y[j] = math.Round(y[j]*256) / 256
		}
		x := make([]float64, n)
		for i := range x {
			for j := range i + 1 {
				x[i] += z.c[i][j] * y[j]
			}
		}
		z.x.x = append(z.x.x, x)
	}
	return z
}

// enter returns C'w, the plane in the coordinates of y.
func (z *regularised) enter(w []float64) []float64 {
	out := make([]float64, len(w))
	for j := range out {
		for i := j; i < len(w); i++ {
			out[j] += z.c[i][j] * w[i]
		}
	}
	return out
}

// In the coordinates of y, the plane with R is the plain plane, computed in 200 bits.
func TestRegulariserAgainst200Bits(t *testing.T) {
	const tolerance = 1e-14
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(31, seed))
		n, k := 1+r.IntN(5), 2+r.IntN(3)
		z := randomRegularised(r, 60, n, k)
		moments := sumOf(n, blocksOf(t, r, z.x)...).Moments().WithRegulariser(z.r)
		for _, o := range []Options{
			{Nu: 1}, {Nu: 0x1p-10}, {Nu: 100, Balanced: true}, {Nu: 0.1, ClassWeights: map[string]float64{"c1": 2.5}},
		} {
			model, err := moments.Solve(o)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range model.Planes {
				w, gamma := bigPlane(z.y, p.Class, o)
				if d := distance(z.enter(p.W), p.Gamma, w, gamma, slices.Repeat([]float64{1}, n)); !(d < tolerance) {
					t.Errorf("seed %d, %+v, class %s: off by %.1e", seed, o, p.Class, d)
				}
			}
		}
	}
}

// Paths and leverages with R are the plain ones in the coordinates of y.
func TestRegulariserInPathsAndHats(t *testing.T) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(32, seed))
		n, k := 4, 2+r.IntN(2)
		z := randomRegularised(r, 80, n, k)
		plain := sumOf(n, blocksOf(t, r, z.y)...).Moments()
		with := sumOf(n, blocksOf(t, r, z.x)...).Moments().WithRegulariser(z.r)
		for _, o := range []Options{{Nu: 0.5}, {Nu: 0.5, Balanced: true}, {Nu: 1e-14}} {
			models, err := with.Path(o, grid())
			if err != nil {
				t.Fatal(err)
			}
			for i, nu := range grid() {
				o := o
				o.Nu = nu
				want, err := plain.Solve(o)
				if err != nil {
					t.Fatal(err)
				}
				for p := range want.Planes {
					got := &models[i].Planes[p]
					if d := distance(z.enter(got.W), got.Gamma, want.Planes[p].W, want.Planes[p].Gamma, slices.Repeat([]float64{1}, n)); !(d < 1e-7) {
						t.Errorf("seed %d, ν = %g: off by %.1e", seed, nu, d)
					}
				}
			}
			_, hat, err := with.SolveWithHat(o)
			if err != nil {
				t.Fatal(err)
			}
			_, want, err := plain.SolveWithHat(o)
			if err != nil {
				t.Fatal(err)
			}
			b, c := z.x.block(0, 80), z.y.block(0, 80)
			got, expected := make([]float64, 80*hat.Matrices()), make([]float64, 80*hat.Matrices())
			hat.Leverage(got, b.Columns)
			want.Leverage(expected, c.Columns)
			for i := range got {
				if !(math.Abs(got[i]-expected[i]) < 1e-10) {
					t.Fatalf("row %d: leverage %v instead of %v", i, got[i], expected[i])
				}
			}
			for f, typical := range hat.Typical() {
				if !(math.Abs(typical-want.Typical()[f]) < 1e-10*typical) {
					t.Errorf("typical leverage %v instead of %v", typical, want.Typical()[f])
				}
			}
		}
	}
}

func TestRegulariserRefuses(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 1))
	z := randomRegularised(r, 20, 2, 2)
	moments := sumOf(2, blocksOf(t, r, z.x)...).Moments().WithRegulariser(z.r)
	if _, err := moments.Solve(Options{Nu: 1, Standardise: true}); err == nil {
		t.Error("standardised features are given a regulariser")
	}
	if _, err := moments.Path(Options{Standardise: true}, []float64{1}); err == nil {
		t.Error("standardised features are given a regulariser along a path")
	}
	defer func() {
		if recover() == nil {
			t.Error("a regulariser of another width is taken")
		}
	}()
	moments.WithRegulariser(make([]float64, 4))
}

// R is CC', as gonum computes it.
func TestRegularisedIsCC(t *testing.T) {
	z := randomRegularised(rand.New(rand.NewPCG(34, 1)), 1, 4, 2)
	c := mat.NewDense(4, 4, nil)
	for i, row := range z.c {
		c.SetRow(i, row)
	}
	var r mat.Dense
	r.Mul(c, c.T())
	p := 0
	for i := range 4 {
		for j := range i + 1 {
			if z.r[p] != r.At(i, j) {
				t.Errorf("entry %d, %d is %v, not %v", i, j, z.r[p], r.At(i, j))
			}
			p++
		}
	}
}
