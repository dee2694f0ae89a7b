package incremental

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Correctness is what sums know of the rows on their own side of one plane x'w = γ:
// x'w − γ ≥ 0 for rows of the plane's class, and x'w − γ < 0 for all others.
type Correctness struct {
	Plus, Minus             Right   // of the rows of the plane's class, and of the others
	PlusWeight, MinusWeight float64 // Σv
}

// Right is the weight Σv of the rows on their own side of a plane.
type Right struct {
	// Estimate is the weight if the values x'w − γ of each class are normally distributed.
	Estimate float64
	// Least and Most are bounds of the weight for any rows with these sums.
	Least, Most float64
}

// Correctness computes how many of the summed rows are on their own side of planes,
// without the rows: one Correctness per model and plane. It is that of each plane alone.
// Where several planes decide together, the label by the largest value may be right
// though a plane is wrong, and the other way round. The shapes of the models are those of
// Losses.
//
// The sums of a class have the exact mean and covariance of its rows, each with its
// weight v, and so the mean and the variance of the values x'w − γ on these rows:
//
//	μ = x̄'w − γ    σ² = w'(Σvxx'/Σv − x̄x̄')w    x̄ = Σvx/Σv
//
// The variance is that of the rows themselves, divided by Σv. So the one-sided inequality
// of Chebyshev (Cantelli 1928) holds for the rows, whatever their distribution:
//
//	share of the rows on the other side of 0 than μ  ≤  σ²/(σ² + μ²)
//
// That is Least of a class whose mean is on its own side, and Most of one whose mean is
// not; the other bound is all or nothing. No better bound follows from the mean and the
// variance: two values can attain it. Estimate is Φ(±μ/σ), the share of a normal
// distribution, as linear discriminant analysis assumes, and lies between the bounds. The
// sides of a plane are the sums over their classes.
//
// Sums are centred in double-double arithmetic, and a variance that rounding has made
// negative is zero. The bounds allow for rounding: of the sums of a block, here, and of
// the values of rows. They are those of a μ that is nearer to 0, and of a σ that is
// larger, by 2^-40 times the terms that these are made of, which is 8192 roundings of
// float64. A mean within that of 0 bounds nothing.
//
// The cost is O(n²) for each class and plane, so O(n²·k²) for all.
func (m *Moments) Correctness(models []*Model) [][]Correctness {
	out := make([][]Correctness, len(models))
	for i, model := range models {
		out[i] = make([]Correctness, len(model.Planes))
	}
	if len(models) == 0 || len(m.classes) == 0 {
		return out
	}
	n := len(m.features)
	x := m.coordinates(true)
	var planes []*Plane
	for r := range models[0].Planes {
		for _, model := range models {
			planes = append(planes, &model.Planes[r])
		}
	}
	columns := x.planes(planes)
	w := columns.Slice(0, n, 0, len(planes))
	var product mat.Dense
	mean, reach := make([]float64, n), make([]float64, n)
	values := make([]decisionValues, len(planes))
	for c := range m.classes {
		class := &m.classes[c]
		weight := class.weight.hi
		if weight == 0 {
			continue
		}
		product.Mul(x.covariance(class, mean, reach), w)
		for i, gamma := range columns.RawRowView(n) {
			values[i] = decisionValues{mean: -gamma, terms: math.Abs(gamma)}
		}
		for j := range n {
			offset, products := math.Abs(x.mean[j].hi/x.scale[j].hi), product.RawRowView(j)
			for i, u := range columns.RawRowView(j) {
				v, size := &values[i], math.Abs(u)
				v.mean += float64(u * mean[j])
				v.variance += float64(u * products[i])
				v.reach += float64(size * reach[j])
				v.terms += float64(size * (reach[j] + offset))
			}
		}
		for i, p := range planes {
			to := &out[i%len(models)][i/len(models)]
			if class.label == p.Class {
				to.PlusWeight += weight
				to.Plus.add(weight, values[i].above())
			} else {
				to.MinusWeight += weight
				to.Minus.add(weight, values[i].below())
			}
		}
	}
	return out
}

// covariance returns Σv(x̂−m)(x̂−m)'/Σv of the rows of a class. It fills mean with m = Σvx̂/Σv, and
// reach with the roots of Σvx̂²/Σv.
func (x coordinates) covariance(c *classMoments, mean, reach []float64) *mat.SymDense {
	n := len(mean)
	s := x.part(c)
	centre := make([]double, n)
	for j := range centre {
		centre[j] = s.right[j].div(c.weight)
		mean[j] = centre[j].hi
	}
	out := mat.NewSymDense(n, nil)
	p := 0
	for j := range n {
		for k := range j + 1 {
			square := s.matrix[p].div(c.weight)
			out.SetSym(j, k, square.sub(centre[j].mul(centre[k])).hi)
			if j == k {
				reach[j] = math.Sqrt(max(0, square.hi))
			}
			p++
		}
	}
	return out
}

// decisionValues describes the values x'w − γ of a plane on the rows of a class.
type decisionValues struct {
	mean, variance float64 // μ, and σ² with its rounding error
	terms          float64 // size of the terms of a value: Σ|w|·√(Σvx²/Σv) + |γ|, or more
	reach          float64 // the same about the mean of all rows, whose square is the size of the terms of σ²
}

// above is the share of the rows with a value of 0 or more.
func (v decisionValues) above() Right {
	const rounding = 0x1p-40
	variance := max(0, v.variance)
	r := Right{Most: 1}
	switch {
	case variance > 0:
		r.Estimate = math.Erfc(-v.mean/math.Sqrt(2*variance)) / 2
	case v.mean >= 0: // all values are μ
		r.Estimate = 1
	}
	slack := float64(rounding * v.terms)
	if distance := math.Abs(v.mean) - slack; distance > 0 {
		ratio := (math.Sqrt(variance+float64(rounding*v.reach*v.reach)) + slack) / distance
		least := 1 / (1 + float64(ratio*ratio)) // on the side of the mean
		if v.mean > 0 {
			r.Least = least
		} else {
			r.Most = 1 - least
		}
	}
	return r
}

// below is the share of the rows with a value below 0.
func (v decisionValues) below() Right {
	r := v.above()
	return Right{Estimate: 1 - r.Estimate, Least: 1 - r.Most, Most: 1 - r.Least}
}

func (r *Right) add(weight float64, share Right) {
	r.Estimate += float64(weight * share.Estimate)
	r.Least += float64(weight * share.Least)
	r.Most += float64(weight * share.Most)
}
