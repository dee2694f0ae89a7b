package incremental

// Options say which hyperplane is wanted of the summed state.
type Options struct {
	// Nu is ν > 0, the weight of the errors against ‖(w,γ)‖² (Fung 2003, 2.8).
	Nu float64
	// Balanced weighs each side of a plane by one over its rows (2.34–2.35).
	Balanced bool
	// ClassWeights multiplies every row of a class; a class that is not
	// named has weight 1.
	ClassWeights map[string]float64
	// Standardise solves in coordinates of mean 0 and variance 1 over all live
	// rows and gives the plane back in the features' own coordinates.
	Standardise bool
}

// Plane is the hyperplane x'w = γ that has the rows of its class on the
// positive side, where x'w − γ > 0.
type Plane struct {
	Class string
	W     []float64 // n
	Gamma float64
	// Condition estimates the condition number (1-norm) of the linear system
	// behind the plane, after its diagonal was scaled to ones.
	Condition float64
}

// Model is a classifier read off a summed state. It is immutable.
//
// With two classes it has one plane, that of the second class; with k > 2 it
// has k, one from the rest (2.46–2.49), in the order of Classes.
type Model struct {
	Features []string // n
	Classes  []string // k ≥ 2, in canonical order
	Rows     []int64  // rows per class
	Planes   []Plane
	Options  Options
}

// Decide classifies the row x of n features: it returns the index of the
// row's class and appends to dst each plane's decision value x'w − γ. Zero is
// on the positive side; among equal values the first class wins.
func (m *Model) Decide(dst, x []float64) (class int, values []float64) {
	if len(x) != len(m.Features) {
		panic("incremental: a row of another width than the model's")
	}
	first := len(dst)
	for i := range m.Planes {
		p := &m.Planes[i]
		value := -p.Gamma
		for j, w := range p.W {
			value += float64(w * x[j])
		}
		dst = append(dst, value)
	}
	values = dst[first:]
	if len(m.Planes) == 1 {
		if values[0] >= 0 {
			class = 1
		}
		return class, dst
	}
	for i, value := range values {
		if value > values[class] {
			class = i
		}
	}
	return class, dst
}
