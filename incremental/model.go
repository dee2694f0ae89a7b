package incremental

import (
	"math"

	"streamd/incremental/gram"
)

// Options choose the hyperplane that Moments.Solve computes.
type Options struct {
	// Nu is ν > 0, the weight of the errors against ‖(w,γ)‖² (Fung 2003, 2.8).
	Nu float64
	// Balanced gives each side of a plane half of the weight of all rows (2.34–2.35, in the
	// scale of Moments.Solve).
	Balanced bool
	// ClassWeights multiplies the weight of every row of a class. A class that is
	// not named has weight 1.
	ClassWeights map[string]float64
	// Mean lists features whose missing values count as the mean of the others: see
	// Imputed. It does not go together with a regulariser.
	Mean []string
	// Standardise solves in coordinates of mean 0 and variance 1 over all live
	// rows. The plane is returned in the features' own coordinates.
	Standardise bool
	// Solver finds the planes; nil: the proximal ones of Moments.Solve.
	Solver Solver
}

// Plane is the hyperplane x'w = γ. Rows of its class are on the positive side,
// x'w − γ ≥ 0.
type Plane struct {
	Class string
	W     []float64 // n
	Gamma float64
	// Condition estimates the condition number (1-norm) of the plane's linear
	// system, scaled to a diagonal near 1. NaN: it was not found by a linear system.
	Condition float64
}

// Features is the number of features that the plane uses, w ≠ 0.
func (p *Plane) Features() int {
	count := 0
	for _, w := range p.W {
		if w != 0 {
			count++
		}
	}
	return count
}

// Angle is the angle between the normals of two planes in degrees, from 0 to 180. Features count
// in units of scale (n), nil: their own. It is NaN if a normal is zero.
func (p *Plane) Angle(q *Plane, scale []float64) float64 {
	unit := func(w []float64) []float64 {
		out := make([]float64, len(w))
		var largest, square float64
		for j, x := range w {
			if scale != nil {
				x *= scale[j]
			}
			out[j], largest = x, max(largest, math.Abs(x))
		}
		for j := range out { // squares of small weights must not vanish
			out[j] /= largest
			square += float64(out[j] * out[j])
		}
		for j := range out {
			out[j] /= math.Sqrt(square)
		}
		return out
	}
	// Kahan's formula, which is exact to rounding at all angles, unlike acos and asin.
	u, v := unit(p.W), unit(q.W)
	var apart, together float64
	for j := range u {
		apart += float64((u[j] - v[j]) * (u[j] - v[j]))
		together += float64((u[j] + v[j]) * (u[j] + v[j]))
	}
	return 2 * math.Atan2(math.Sqrt(apart), math.Sqrt(together)) * 180 / math.Pi
}

// Model is a classifier computed from Moments. It is immutable.
//
// With two classes it has one plane, that of the second class. With k > 2 it has k
// one-vs-rest planes (Fung 2003, 2.46–2.49), in the order of Classes.
type Model struct {
	Features []string  // n
	Classes  []string  // k ≥ 2, in canonical order
	Rows     []int64   // rows per class
	Mean     []float64 // n: the mean of each feature over all rows
	// Deviation is the standard deviation of each feature over all rows: n numbers, 0
	// for a constant feature. A missing value of an imputed feature counts as the mean. Nil: it
	// is not known, as in a model read from JSON.
	Deviation []float64
	Imputed   []Imputed // the features of Options.Mean
	Planes    []Plane
	Options   Options
}

// Decide returns the class of a row with these values, one for each plane. With one plane,
// it is the plane's class when the value is zero or above. With more planes, the largest
// value decides, the first of equal ones. A value that is NaN is below all others.
func Decide(values []float64) (class int) {
	if len(values) == 1 {
		if values[0] >= 0 {
			class = 1
		}
		return class
	}
	most := math.Inf(-1)
	for i, value := range values {
		if value > most {
			class, most = i, value
		}
	}
	return class
}

// Classify fills class (m) with the class indices of m rows in columns, and values
// (m × planes, row by row) with their decision values x'w − γ, as Decide does. Package
// decision has other rules.
func (m *Model) Classify(class []int32, values []float64, columns []gram.Column) {
	k := len(m.Planes)
	if len(columns) != len(m.Features) || len(values) != len(class)*k {
		panic("incremental: rows of another width, or values of another length, than the model's")
	}
	// Four columns of 256 rows stay in the first-level cache for all planes, and each
	// decision value is loaded and stored once for all four.
	const together = 4
	var x [together][256]float64
	for from := 0; from < len(class); from += len(x[0]) {
		rows := min(len(x[0]), len(class)-from)
		stretch := values[from*k:][:rows*k]
		for i := range stretch {
			stretch[i] = -m.Planes[i%k].Gamma
		}
		for j := 0; j < len(columns); j += together {
			some := columns[j:min(j+together, len(columns))]
			for b, c := range some {
				c.Copy(x[b][:rows], from)
			}
			x0, x1, x2, x3 := x[0][:rows], x[1][:rows], x[2][:rows], x[3][:rows]
			for p := range m.Planes {
				w := m.Planes[p].W[j:][:len(some)]
				if len(w) < together {
					for b, w := range w {
						for i, x := range x[b][:rows] {
							stretch[i*k+p] += float64(w * x)
						}
					}
					continue
				}
				w0, w1, w2, w3 := w[0], w[1], w[2], w[3]
				for i, at := 0, p; i < rows; i, at = i+1, at+k {
					stretch[at] = stretch[at] + float64(w0*x0[i]) + float64(w1*x1[i]) + float64(w2*x2[i]) + float64(w3*x3[i])
				}
			}
		}
		for i := range rows {
			class[from+i] = int32(Decide(stretch[i*k:][:k]))
		}
	}
}

// Contributions fills dst (m × n, row by row) with each feature's part of one plane's
// decision values: w_j (x_j − mean_j). That of an imputed feature is w_j (x_j + μ r − mean)
// with the mean of all rows, and that of its column of missing values is 0. A row's contributions
// and Base add up to its decision value, up to rounding.
func (m *Model) Contributions(dst []float64, plane int, columns []gram.Column) {
	n := len(m.Features)
	if len(columns) != n || len(m.Mean) != n {
		panic("incremental: rows or means of another width than the model's")
	}
	p := &m.Planes[plane]
	var buffer [256]float64
	for j, c := range columns {
		if c.Len()*n != len(dst) {
			panic("incremental: contributions for another number of rows")
		}
		w, mean := p.W[j], m.Mean[j]
		for from := 0; from < c.Len(); from += len(buffer) {
			x := buffer[:min(len(buffer), c.Len()-from)]
			c.Copy(x, from)
			for i := range x {
				dst[(from+i)*n+j] = w * (x[i] - mean)
			}
		}
	}
	for _, x := range m.Imputed {
		for row := 0; row < len(dst); row += n {
			dst[row+x.Feature] += dst[row+x.Missing]
			dst[row+x.Missing] = 0
		}
	}
}

// Base is the decision value of the mean row: mean'w − γ.
func (m *Model) Base(plane int) float64 {
	p := &m.Planes[plane]
	value := -p.Gamma
	for j, w := range p.W {
		value += float64(w * m.Mean[j])
	}
	return value
}
