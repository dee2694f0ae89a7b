package incremental

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"

	"streamd/incremental/gram"
)

// table holds labelled rows, row by row.
type table struct {
	x       [][]float64
	label   []string
	weights []float64
}

func randomTable(r *rand.Rand, m, n, k int) table {
	t := table{}
	for range m {
		c := r.IntN(k)
		row := make([]float64, n)
		for j := range row {
			row[j] = r.NormFloat64() + float64(c*(j+1)%k)
		}
		t.x = append(t.x, row)
		t.label = append(t.label, fmt.Sprint("c", c))
	}
	return t
}

// block returns rows i to j, j not included, in columns.
func (t table) block(i, j int) *Block {
	b := &Block{}
	code := map[string]int32{}
	for r := i; r < j; r++ {
		c, ok := code[t.label[r]]
		if !ok {
			c = int32(len(b.Classes))
			code[t.label[r]] = c
			b.Classes = append(b.Classes, t.label[r])
		}
		b.Codes = append(b.Codes, c)
	}
	for f := range t.x[0] {
		column := make([]float64, 0, j-i)
		for r := i; r < j; r++ {
			column = append(column, t.x[r][f])
		}
		b.Columns = append(b.Columns, gram.ColumnOf(column))
	}
	if t.weights != nil {
		b.Weights = t.weights[i:j]
	}
	return b
}

const oraclePrecision = 200

func big200(x float64) *big.Float { return new(big.Float).SetPrec(oraclePrecision).SetFloat64(x) }
func zero200() *big.Float         { return new(big.Float).SetPrec(oraclePrecision) }

// bigPlane solves the system of Moments.Solve for the plane of one class, from the rows
// and in 200-bit arithmetic.
func bigPlane(t table, class string, o Options) (w []float64, gamma float64) {
	m, n := len(t.x), len(t.x[0])
	v := make([]*big.Float, m)
	for i := range v {
		v[i] = big200(1)
		if t.weights != nil {
			v[i] = big200(t.weights[i])
		}
	}
	mean, scale := make([]*big.Float, n), make([]*big.Float, n)
	total, side := zero200(), map[bool]*big.Float{true: zero200(), false: zero200()}
	for i := range v {
		total.Add(total, v[i])
		s := side[t.label[i] == class]
		s.Add(s, v[i])
	}
	for j := range n {
		mean[j], scale[j] = zero200(), big200(1)
		if !o.Standardise {
			continue
		}
		for i := range m {
			mean[j].Add(mean[j], zero200().Mul(v[i], big200(t.x[i][j])))
		}
		mean[j].Quo(mean[j], total)
		variance := zero200()
		for i := range m {
			d := zero200().Sub(big200(t.x[i][j]), mean[j])
			variance.Add(variance, zero200().Mul(v[i], d.Mul(d, d)))
		}
		variance.Quo(variance, total)
		if f, _ := variance.Float64(); f > 1e-90 {
			scale[j].Sqrt(variance)
		}
	}
	h := make([][]*big.Float, n+1)
	for j := range h {
		h[j] = make([]*big.Float, n+2)
		for k := range h[j] {
			h[j][k] = zero200()
		}
		h[j][j].Quo(big200(1), big200(o.Nu))
	}
	z := make([]*big.Float, n+1)
	z[n] = big200(-1)
	for i := range m {
		for j := range n {
			z[j] = zero200().Sub(big200(t.x[i][j]), mean[j])
			z[j].Quo(z[j], scale[j])
		}
		a := zero200().Set(v[i])
		if c, ok := o.ClassWeights[t.label[i]]; ok {
			a.Mul(a, big200(c))
		}
		if o.Balanced {
			a.Mul(a, total)
			a.Quo(a, big200(2))
			a.Quo(a, side[t.label[i] == class])
		}
		for j := range z {
			az := zero200().Mul(a, z[j])
			for k := range z {
				h[j][k].Add(h[j][k], zero200().Mul(az, z[k]))
			}
			if t.label[i] == class {
				h[j][n+1].Add(h[j][n+1], az)
			} else {
				h[j][n+1].Sub(h[j][n+1], az)
			}
		}
	}
	// Gauss-Jordan; the matrix is positive definite and needs no pivoting.
	for j := range h {
		for i := range h {
			if i == j {
				continue
			}
			q := zero200().Quo(h[i][j], h[j][j])
			for k := j; k < n+2; k++ {
				h[i][k].Sub(h[i][k], zero200().Mul(q, h[j][k]))
			}
		}
	}
	g := zero200().Quo(h[n][n+1], h[n][n])
	for j := range n {
		x := zero200().Quo(h[j][n+1], h[j][j])
		x.Quo(x, scale[j])
		g.Add(g, zero200().Mul(x, mean[j]))
		f, _ := x.Float64()
		w = append(w, f)
	}
	gamma, _ = g.Float64()
	return w, gamma
}

// distance is the relative error of (w, γ). Each w_j is multiplied by the spread of its
// feature, so that features of small scale count like those of large scale.
func distance(w []float64, gamma float64, want []float64, wantGamma float64, spread []float64) float64 {
	var d, size float64
	for j := range w {
		d += math.Pow((w[j]-want[j])*spread[j], 2)
		size += math.Pow(want[j]*spread[j], 2)
	}
	return max(math.Sqrt(d/size), math.Abs(gamma-wantGamma)/math.Abs(wantGamma))
}
