package basis

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/tuning"
	"streamd/kernels"
)

const bits = 256

func exactly(x float64) *big.Float { return new(big.Float).SetPrec(bits).SetFloat64(x) }

// exactSums are Σ z z' (packed) of rows, and Σ d z for each side d, in 256 bits.
func exactSums(x [][]float64) (h []*big.Float, rows [][]*big.Float) {
	n := len(x[0])
	h = make([]*big.Float, gram.PackedLen(n+1))
	for p := range h {
		h[p] = exactly(0)
	}
	t := exactly(0)
	for i := range x {
		z := make([]*big.Float, n+1)
		for j := range n {
			z[j] = exactly(x[i][j])
		}
		z[n] = exactly(-1)
		rows = append(rows, z)
		for j := range z {
			for k := range j + 1 {
				p := gram.PackedLen(j) + k
				h[p].Add(h[p], t.Mul(z[j], z[k]))
			}
		}
	}
	return h, rows
}

// exactPlane is [w; γ] of (2.28) with R in place of I, from exactSums.
func exactPlane(sums []*big.Float, rows [][]*big.Float, d, r []float64, nu float64) []*big.Float {
	n := len(rows[0]) - 1
	h, b := make([]*big.Float, len(sums)), make([]*big.Float, n+1)
	entry := func(j, k int) *big.Float { return h[gram.PackedLen(j)+k] }
	t := exactly(0)
	for p := range h {
		h[p] = exactly(0).Set(sums[p])
		if p < len(r) {
			h[p].Add(h[p], t.Quo(exactly(r[p]), exactly(nu)))
		}
	}
	entry(n, n).Add(entry(n, n), t.Quo(exactly(1), exactly(nu)))
	for j := range b {
		b[j] = exactly(0)
		for i, z := range rows {
			b[j].Add(b[j], t.Mul(z[j], exactly(d[i])))
		}
	}
	for j := range b {
		for k := range j + 1 {
			for i := range k {
				entry(j, k).Sub(entry(j, k), t.Mul(entry(j, i), entry(k, i)))
			}
			if k < j {
				entry(j, k).Quo(entry(j, k), entry(k, k))
			} else {
				entry(j, j).Sqrt(entry(j, j))
			}
		}
		for i := range j {
			b[j].Sub(b[j], t.Mul(entry(j, i), b[i]))
		}
		b[j].Quo(b[j], entry(j, j))
	}
	for j := n; j >= 0; j-- {
		for i := j + 1; i <= n; i++ {
			b[j].Sub(b[j], t.Mul(entry(i, j), b[i]))
		}
		b[j].Quo(b[j], entry(j, j))
	}
	return b
}

// offBy is the root mean square of the difference of the values of two planes on rows.
func offBy(x [][]float64, w []float64, gamma float64, z []*big.Float) float64 {
	var sum float64
	t := exactly(0)
	for _, row := range x {
		value := exactly(-gamma)
		for j, v := range row {
			value.Add(value, t.Mul(exactly(v), t.Sub(exactly(w[j]), z[j])))
		}
		d, _ := value.Add(value, z[len(row)]).Float64()
		sum += d * d
	}
	return math.Sqrt(sum / float64(len(x)))
}

// flares are rows of nine features of a few whole numbers each, many of them equal.
func flares(rows int) *incremental.Block {
	r := rand.New(rand.NewPCG(11, 1))
	most := []int{7, 6, 4, 2, 3, 3, 2, 2, 2}
	return made(rows, len(most), []string{"-1", "1"}, func(x []float64) int {
		for j, m := range most {
			x[j] = float64(min(r.IntN(m), r.IntN(m)))
		}
		if x[0]+2*x[2]-x[4]+2*r.NormFloat64() > 2 {
			return 1
		}
		return 0
	})
}

// flowers are rows of three classes and four lengths, in tenths.
func flowers(rows int) *incremental.Block {
	r := rand.New(rand.NewPCG(11, 2))
	means := [][]float64{{5, 3.4, 1.5, 0.2}, {5.9, 2.8, 4.3, 1.3}, {6.6, 3, 5.6, 2}}
	return made(rows, 4, []string{"0", "1", "2"}, func(x []float64) int {
		class := r.IntN(3)
		for j, mu := range means[class] {
			x[j] = math.Round(10*mu*(1+0.1*r.NormFloat64())) / 10
		}
		return class
	})
}

func made(rows, n int, classes []string, row func(x []float64) int) *incremental.Block {
	b := &incremental.Block{Features: incremental.DefaultFeatures(n), Classes: classes}
	columns, x := make([][]float64, n), make([]float64, n)
	for range rows {
		b.Codes = append(b.Codes, int32(row(x)))
		for j := range columns {
			columns[j] = append(columns[j], x[j])
		}
	}
	for _, c := range columns {
		b.Columns = append(b.Columns, gram.ColumnOf(c))
	}
	return b
}

// Systems that are indefinite in float64 are solved as far as the sums determine the plane, and are
// refused beyond. The plane is compared with that of the rows in 256 bits.
func TestNearlySingularSystems(t *testing.T) {
	gaussian := func(gamma float64) kernels.Kernel {
		k, err := kernels.Gaussian(gamma)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	cubic := func(a float64) kernels.Kernel {
		k, err := kernels.Polynomial(a, 1, 3)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	for _, c := range []struct {
		name      string
		rows      *incremental.Block
		kernel    kernels.Kernel
		nu        float64
		tolerance float64 // of values, which are near 1; 0: refused
	}{
		{"flares", flares(200), gaussian(0.01), 1e4, 1e-5},
		{"flares", flares(200), gaussian(0.01), 1e6, 1e-3},
		{"flowers", flowers(150), cubic(0.25), 1, 1e-4},
		{"flowers", flowers(150), cubic(0.25), 64, 1e-2},
		{"flowers", flowers(150), cubic(1), 1, 1e-2},
		{"flowers", flowers(150), cubic(0.25), 1e6, 0},
	} {
		m, _, err := (&Problem{Rows: c.rows, Gram: true}).Choose(t.Context(), c.kernel)
		if err != nil {
			t.Fatal(err)
		}
		in := New(m, true)
		var lifter Lifter
		lifted, err := lifter.Block(t.Context(), c.rows, in)
		if err != nil {
			t.Fatal(err)
		}
		moments := in.Moments(summed(t, in.Names, lifted))
		model, err := moments.Solve(incremental.Options{Nu: c.nu})
		condition := (*incremental.ConditionError)(nil)
		if c.tolerance == 0 {
			if !errors.As(err, &condition) {
				t.Errorf("%s, %v, ν = %g: %v instead of a *ConditionError", c.name, c.kernel, c.nu, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s, %v, ν = %g: %v", c.name, c.kernel, c.nu, err)
			continue
		}
		if model.Planes[0].Condition < 0x1p51 {
			t.Errorf("%s, %v, ν = %g: the condition number %.1e is no test", c.name, c.kernel, c.nu, model.Planes[0].Condition)
		}
		x := make([][]float64, lifted.Rows())
		for i := range x {
			for _, column := range lifted.Columns {
				x[i] = append(x[i], column.At(i))
			}
		}
		sums, exactRows := exactSums(x)
		path, err := moments.Path(incremental.Options{}, tuning.Grid())
		if err != nil {
			t.Fatalf("%s, %v: path: %v", c.name, c.kernel, err)
		}
		for p, plane := range model.Planes {
			d := make([]float64, len(x))
			for i, code := range lifted.Codes {
				if d[i] = -1; lifted.Classes[code] == plane.Class {
					d[i] = 1
				}
			}
			off := offBy(x, plane.W, plane.Gamma, exactPlane(sums, exactRows, d, in.Regulariser, c.nu))
			t.Logf("%s, %v, ν = %g, class %s: %.1e", c.name, c.kernel, c.nu, plane.Class, off)
			if !(off < c.tolerance) {
				t.Errorf("%s, %v, ν = %g, class %s: values are off by %.1e", c.name, c.kernel, c.nu, plane.Class, off)
			}
			for i := 0; i < len(path) && path[i].Options.Nu <= c.nu; i += 7 {
				nu, of := path[i].Options.Nu, path[i].Planes[p]
				if off := offBy(x, of.W, of.Gamma, exactPlane(sums, exactRows, d, in.Regulariser, nu)); !(off < max(c.tolerance, 1e-3)) {
					t.Errorf("%s, %v, class %s: values of the path are off by %.1e at ν = %g", c.name, c.kernel, plane.Class, off, nu)
				}
			}
		}
	}
}
