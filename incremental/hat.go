package incremental

import (
	"fmt"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"streamd/incremental/gram"
)

// Hat is the factorised matrix behind a model's planes, kept to say how far a
// row z = [x; −1] is from the rows that were learned from. Its leverage is
//
//	h = z'(I/ν + Σ_c a_c Σ v z z')^-1 z
//
// in the coordinates in which the planes were solved. The hat matrix that takes
// the labels d to their fitted values (Hoaglin and Welsch 1978) has v·a·h of the
// rows themselves on its diagonal.
//
// All planes share one matrix unless they are balanced, when each of k > 2 has
// its own. A Hat is immutable. It takes 4n² bytes per matrix (2.5 MB for n =
// 784, 67 MB for n = 4096), which is why Solve does not keep it.
type Hat struct {
	mean, sigma []float64 // nil: x as it is
	weights     []float64 // of the classes, balance aside
	factors     []hatFactor
}

type hatFactor struct {
	scale       []float64 // D, powers of two
	lower       []float64 // L of D(I/ν + …)D = LL', packed
	plus, minus float64   // a_c by the class's weight, for d_c = 1 and −1
	typical     float64
}

func newHat(m *Moments, o Options, x coordinates, factors []hatFactor) *Hat {
	h := &Hat{factors: factors}
	for c := range m.classes {
		h.weights = append(h.weights, o.weight(m.classes[c].label))
	}
	if x.mean != nil {
		h.mean, h.sigma = m.Scale()
	}
	return h
}

func newHatFactor(f *factor, m *Moments, s planeSystem, nu float64) hatFactor {
	var lower mat.TriDense
	f.cholesky.LTo(&lower)
	n := len(f.scale)
	k := hatFactor{scale: f.scale, lower: make([]float64, 0, gram.PackedLen(n)), plus: s.plus.hi, minus: s.minus.hi}
	for i := range n {
		for j := range i + 1 {
			k.lower = append(k.lower, lower.At(i, j))
		}
	}
	// Σ avh = tr(I − (R/ν + H)^-1 R/ν) with R of the regulariser, where the last
	// trace is that of BRB' for B = L^-1 D. The error says again how
	// ill-conditioned the factor is.
	_ = lower.InverseTri(&lower)
	freedom := float64(n)
	if m.regulariser == nil {
		for i := range n {
			for j, scale := range f.scale[:i+1] {
				t := lower.At(i, j) * scale
				freedom -= t * t / nu
			}
		}
	} else {
		b := mat.NewDense(n, n, nil)
		for i := range n {
			for j, scale := range f.scale[:i+1] {
				b.Set(i, j, lower.At(i, j)*scale)
			}
		}
		freedom -= mat.Trace(m.enclose(b)) / nu
	}
	if cancelled := 0x1p-10 * float64(n); freedom < cancelled {
		freedom = m.freedom(f, nu)
	}
	k.typical = max(0, freedom) / s.mass
	return k
}

// freedom is tr((R/ν + H)^-1 H) of an H that is next to nothing, from H itself.
func (m *Moments) freedom(f *factor, nu float64) (sum float64) {
	var inverse mat.SymDense
	_ = f.cholesky.InverseTo(&inverse)
	ridge := toDouble(1).div(toDouble(nu))
	p := 0
	for j, scale := range f.scale {
		for k := range j + 1 {
			h := f.matrix[p]
			s := scale * f.scale[k]
			switch {
			case m.regulariser != nil && j < len(m.features):
				r := ridge.mul(toDouble(m.regulariser[p]))
				h = h.sub(double{r.hi * s, r.lo * s})
			case j == k:
				h = h.sub(double{ridge.hi * s, ridge.lo * s})
			}
			t := float64(h.hi * inverse.At(j, k))
			if k < j {
				t *= 2
			}
			sum += t
			p++
		}
	}
	return sum
}

// Matrices is how many leverages a row has: 1, or one per plane.
func (h *Hat) Matrices() int { return len(h.factors) }

// hatRows is how many rows are solved for at once, so that an entry of the
// factor is loaded once for all of them: their solutions stay in a second-level
// cache of 512 KiB up to n = 1000.
const hatRows = 64

// Leverage fills dst (m × Matrices, row by row) with the leverages of rows in
// columns, at n²/2 multiplications each and 1 KiB of working memory per feature. See
// Typical for what is large.
func (h *Hat) Leverage(dst []float64, columns []gram.Column) {
	n, k := h.features(), len(h.factors)
	if len(columns) != n {
		panic(fmt.Sprintf("incremental: leverage of rows of %d features of %d", len(columns), n))
	}
	for _, c := range columns {
		if c.Len()*k != len(dst) {
			panic("incremental: leverage of another number of rows")
		}
	}
	z := make([]float64, (n+1)*hatRows)
	y := make([]float64, (n+1)*hatRows)
	for from := 0; from < len(dst)/k; from += hatRows {
		rows := min(hatRows, len(dst)/k-from)
		for j, c := range columns {
			x := z[j*hatRows:][:rows]
			c.Copy(x, from)
			if h.mean != nil {
				for i := range x {
					x[i] = (x[i] - h.mean[j]) / h.sigma[j]
				}
			}
		}
		for i := range rows {
			z[n*hatRows+i] = -1
		}
		for f := range h.factors {
			h.factors[f].leverage(dst[from*k+f:], k, y, z, rows)
		}
	}
}

// leverage is ‖L^-1 D z‖² by forward substitution, for rows side by side.
func (f *hatFactor) leverage(dst []float64, stride int, y, z []float64, rows int) {
	for i := range rows {
		dst[i*stride] = 0
	}
	p := 0
	for j, scale := range f.scale {
		right := y[j*hatRows:][:rows]
		for i, t := range z[j*hatRows:][:rows] {
			right[i] = scale * t
		}
		for k, l := range f.lower[p : p+j] {
			floats.AddScaled(right, -l, y[k*hatRows:][:rows])
		}
		pivot := f.lower[p+j]
		for i, t := range right {
			t /= pivot
			right[i] = t
			dst[i*stride] += float64(t * t)
		}
		p += j + 1
	}
}

// Typical is, for each matrix, the mean leverage of the rows that were learned
// from, as they weigh in it: tr(H(I/ν + H)^-1) / Σ av, where the trace is the
// effective number of parameters. A row of several times that lies far from
// anything seen.
func (h *Hat) Typical() []float64 {
	typical := make([]float64, len(h.factors))
	for f := range typical {
		typical[f] = h.factors[f].typical
	}
	return typical
}

// LeaveOneOut classifies each row of b, which are among the rows that the model
// and the hat were solved from, as the model without that row would: class (m)
// and values (m × planes, row by row) are filled as by Model.Classify. A model
// without row i of weight v in class c has the decision value
//
//	f_{-i} = (f − a_c v h d) / (1 − a_c v h)
//
// which is (2.16) by the formula of Sherman and Morrison, at the cost of
// Leverage instead of a factorisation for each row. The model without the row
// is that of the same ν, class weights a and coordinates: the row that is left
// out still counts in μ, σ and the class totals that Standardise and Balanced
// divide by. A row of weight 0 has the values of the model itself. The relative error
// is some 2^-53 times the condition number, over 1 − a_c v h: rows that the model
// follows whatever they say, such as the only one with a huge value of a feature, have
// no digits left where that is as small.
func (h *Hat) LeaveOneOut(m *Model, class []int32, values []float64, b *Block) {
	planes := len(m.Planes)
	m.Classify(class, values, b.Columns)
	leverage := make([]float64, len(class)*len(h.factors))
	h.Leverage(leverage, b.Columns)
	known := b.ClassesIn(m.Classes)
	for i, code := range b.Codes {
		v := b.Weight(i)
		if v == 0 {
			continue
		}
		c := known[code]
		if c < 0 {
			panic(fmt.Sprintf("incremental: class %q is not among those that were learned from", b.Classes[code]))
		}
		row := values[i*planes:][:planes]
		for p := range row {
			matrix := min(p, len(h.factors)-1)
			f := &h.factors[matrix]
			d, a := -1.0, h.weights[c]*f.minus
			if m.Planes[p].Class == m.Classes[c] {
				d, a = 1, h.weights[c]*f.plus
			}
			t := v * a * leverage[i*len(h.factors)+matrix]
			row[p] = (row[p] - t*d) / (1 - t)
		}
		class[i] = int32(m.decide(row))
	}
}

func (h *Hat) features() int { return len(h.factors[0].scale) - 1 }
