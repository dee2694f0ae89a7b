package incremental

import (
	"fmt"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"streamd/incremental/gram"
)

// Hat holds the factorised matrix of a model's planes. It measures how far a row
// z = [x; −1] is from the training rows by its leverage
//
//	h = z'(I/ν + Σ_c a_c Σ v z z')^-1 z
//
// in the coordinates in which the planes were solved. For a training row, v·a·h is
// its diagonal entry of the hat matrix, which maps the labels d to the fitted values
// (Hoaglin and Welsch 1978).
//
// All planes share one matrix, except that each of k > 2 balanced planes has its
// own. A Hat is immutable. It takes 4n² bytes per matrix (67 MB for n = 4096), so
// Solve does not return one.
type Hat struct {
	imputed     []Imputed // of the columns of a row
	mean, sigma []float64 // nil: x as it is
	weights     []float64 // class weights without the balancing factor
	factors     []hatFactor
}

type hatFactor struct {
	scale       []float64 // D, powers of two
	lower       []float64 // L of D(I/ν + …)D = LL', packed
	plus, minus float64   // balancing factor of a row, for d_c = 1 and −1
	typical     float64
}

// SolveWithHat is Solve that also returns the factorised matrices. With Options.Solver these are
// still those of the proximal planes.
func (m *Moments) SolveWithHat(o Options) (*Model, *Hat, error) {
	if o.Solver != nil {
		model, err := m.Solve(o)
		if err != nil {
			return nil, nil, err
		}
		o.Solver = nil
		_, hat, err := m.SolveWithHat(o)
		return model, hat, err
	}
	if len(o.Mean) > 0 {
		var h *Hat
		models, imputed, err := m.imputing(o, func(in *Moments, o Options) ([]*Model, error) {
			model, hat, err := in.SolveWithHat(o)
			h = hat
			return []*Model{model}, err
		})
		if err != nil {
			return nil, nil, err
		}
		h.imputed = imputed
		return models[0], h, nil
	}
	h := &Hat{factors: make([]hatFactor, len(m.classes))}
	model, err := m.solve(o, func(plane int, f *factor, s planeSystem) { h.factors[plane] = newHatFactor(f, m, s, o.Nu) })
	if err != nil {
		return nil, nil, err
	}
	h.factors = h.factors[:1]
	if o.Balanced {
		h.factors = h.factors[:len(model.Planes)]
	}
	for c := range m.classes {
		h.weights = append(h.weights, o.ClassWeight(m.classes[c].label))
	}
	if o.Standardise {
		h.mean, h.sigma = m.Scale()
	}
	return model, h, nil
}

func newHatFactor(f *factor, m *Moments, s planeSystem, nu float64) hatFactor {
	n := len(f.scale)
	k := hatFactor{scale: f.scale, lower: make([]float64, 0, gram.PackedLen(n)), plus: s.plus.hi, minus: s.minus.hi}
	var lower mat.TriDense
	f.cholesky.LTo(&lower)
	for i := range n {
		for j := range i + 1 {
			k.lower = append(k.lower, lower.At(i, j))
		}
	}
	// Σ avh = tr(I − (R/ν + H)^-1 R/ν) with the regulariser R, and
	// tr((R/ν + H)^-1 R) = tr(BRB') for B = L^-1 D.
	b := f.whitening()
	freedom := float64(n)
	if m.regulariser == nil {
		for i := range n {
			for j := range i + 1 {
				t := b.At(i, j)
				freedom -= t * t / nu
			}
		}
	} else {
		freedom -= mat.Trace(m.enclose(mat.DenseCopyOf(b))) / nu
	}
	if cancelled := 0x1p-10 * float64(n); freedom < cancelled {
		freedom = m.freedom(f, nu)
	}
	k.typical = max(0, freedom) / s.mass
	return k
}

// freedom is tr((R/ν + H)^-1 H), computed from H for an H so small that the
// difference of traces cancels.
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

// Matrices is the number of leverages of a row: 1, or one per plane.
func (h *Hat) Matrices() int { return len(h.factors) }

// hatRows rows are solved at once, so that each entry of the factor is loaded once
// for all of them. Up to n = 1000 their solutions fit into 512 KiB of second-level
// cache.
const hatRows = 64

// Leverage fills dst (m × Matrices, row by row) with the leverages of m rows in
// columns. Each costs n²/2 multiplications; the working memory is 1 KiB per feature.
// Compare leverages with Typical.
func (h *Hat) Leverage(dst []float64, columns []gram.Column) {
	n, k := h.features(), len(h.factors)
	if len(columns) != n+len(h.imputed) {
		panic(fmt.Sprintf("incremental: leverage of rows of %d features of %d", len(columns), n+len(h.imputed)))
	}
	columns = ImputeColumns(columns, h.imputed)
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

// leverage computes ‖L^-1 D z‖² by forward substitution, for several rows side by side.
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

// Typical is the weighted mean leverage of the training rows, for each matrix:
// tr(H(I/ν + H)^-1) / Σ av. The trace is the effective number of parameters. A row of
// several times this leverage lies far from all training rows.
func (h *Hat) Typical() []float64 {
	typical := make([]float64, len(h.factors))
	for f := range typical {
		typical[f] = h.factors[f].typical
	}
	return typical
}

// LeaveOneOut classifies each training row of b by the model without that row: it
// fills class (m) and values (m × planes, row by row) like Model.Classify. All rows of
// b must have been in the sums that m and h were solved from. Without row i of weight
// v in class c, the decision value is
//
//	f_{-i} = (f − a_c v h d) / (1 − a_c v h)
//
// This is Fung 2003, (2.16), by the formula of Sherman and Morrison, at the cost of
// Leverage instead of a factorisation for each row. The model without the row has the
// same ν, class weights a and coordinates: the row still counts in μ, σ and the class
// totals that Standardise and Balanced divide by. A row of weight 0 has the values of
// the model itself.
//
// The relative error is about 2^-53 times the condition number, over 1 − a_c v h. Where
// that denominator is as small, no digits are left: the model follows such a row
// whatever its label, for example the only row with a huge value of a feature.
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
			t := float64(v * a * leverage[i*len(h.factors)+matrix])
			row[p] = (row[p] - float64(t*d)) / (1 - t)
		}
		class[i] = int32(Decide(row))
	}
}

func (h *Hat) features() int { return len(h.factors[0].scale) - 1 }
