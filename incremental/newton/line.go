package newton

// restrict replaces the features by one for each plane: x̂'ŵ/‖ŵ‖.
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
