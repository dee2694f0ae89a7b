package newton

import (
	"streamd/incremental"
	"streamd/incremental/gram"
)

// restrict makes one feature for each plane: x̂'ŵ/‖ŵ‖.
func (s *solver) restrict() {
	s.width = len(s.planes)
	s.direction = make([][]float64, s.width)
	for i, p := range s.planes {
		w := p.point[:len(p.point)-1]
		size := norm(w)
		s.direction[i] = make([]float64, len(w))
		for j := range w {
			if size > 0 {
				s.direction[i][j] = w[j] / size
			}
		}
		p.low, p.high = i, i+1
		p.point = []float64{size, p.point[len(w)]}
	}
}

// expand undoes restrict.
func (s *solver) expand() {
	for i, p := range s.planes {
		z := make([]float64, 0, len(s.direction[i])+1)
		for _, d := range s.direction[i] {
			z = append(z, float64(p.base[0]*d))
		}
		p.base = append(z, p.base[1])
	}
}

// line sets up LineValues: rows of the one feature s/‖w̄‖, with their costs as
// weights.
func line(values []float64, positive []bool, cost []float64, norm, gamma float64) *solver {
	feature := make([]float64, len(values))
	codes := make([]int32, len(values))
	for i, v := range values {
		if norm > 0 {
			feature[i] = v / norm
		}
		if positive[i] {
			codes[i] = 1
		}
	}
	classes := []string{"-1", "1"}
	return &solver{
		rows: Blocks{{
			Columns: []gram.Column{gram.ColumnOf(feature)},
			Classes: classes, Codes: codes, Weights: cost,
		}},
		model:   &incremental.Model{Features: []string{"value"}, Classes: classes, Options: incremental.Options{Nu: 1}},
		limit:   defaultIterations,
		workers: 1,
		scaling: identity(1),
		width:   1,
		planes:  []*plane{{label: classes[1], class: 1, high: 1, point: []float64{norm, gamma}}},
	}
}
