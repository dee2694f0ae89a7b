package reduce

import (
	"context"
	"fmt"
	"math"

	"streamd/incremental/gram"
	"streamd/kernels"
)

// Discriminant takes rows by forward selection (SSVM(L); Iwamura and Abe 2009, section 3). Each
// step adds the row that most increases the criterion of linear discriminant analysis in the
// coordinates h(x) = K(x, Z),
//
//	J = (c₁ − c₂)'Q⁻¹(c₁ − c₂)    with Q = Σ v_i h(x_i)h(x_i)' / Σ v_i − cc'          (8–10)
//
// where v are the weights of the rows, and c₁, c₂ and c the means of the two sides of a plane and
// of all rows. Q is the total scatter, as in the paper's formula. A candidate whose pivot in the
// Cholesky factor of Q is below 1e-6 of the mean K(x, x) adds nothing and is out for good. The
// selection ends with t points, without candidates, or when a step increases J by less than the
// share Eta of its new value (13).
//
// With more than two classes each plane has points of its own, ⌊t/k⌋ or ⌈t/k⌉ of them.
//
// The sums of m rows and s candidates cost ms²/2 multiply-adds. After that, point k costs sk.
type Discriminant struct {
	Eta float64 // η of (13), between 0 and 1; 0: 1e-3
	// Candidates is the number of random rows to choose from; 0: 2000. If there are no more
	// rows, all are candidates, and the basis does not depend on the seed.
	Candidates int
	Nu         float64 // ν of the 1-norm program for the coefficients
}

const (
	defaultEta    = 1e-3
	selectionRows = 2000
	// singular is the least pivot of a candidate, for kernels with K(x, x) = 1.
	singular = 1e-6
)

func checkEta(eta float64) error {
	if !(eta > 0 && eta < 1) {
		return fmt.Errorf("η is %v, not between 0 and 1", eta)
	}
	return nil
}

// Reduce implements Reducer.
func (d Discriminant) Reduce(ctx context.Context, p *Problem) (*Result, error) {
	s, err := newSample(p)
	if err != nil {
		return nil, err
	}
	setDefault(&d.Eta, defaultEta)
	setDefault(&d.Candidates, selectionRows)
	if err := checkEta(d.Eta); err != nil {
		return nil, err
	}
	if d.Candidates < 1 {
		return nil, fmt.Errorf("%d candidates", d.Candidates)
	}
	which := s.live
	if d.Candidates < len(which) {
		which = shuffled(s.random(4), which)[:d.Candidates]
	}
	n := len(p.Columns)
	var candidates []float64
	for _, i := range which {
		candidates = s.point(candidates, i)
	}
	candidates = Distinct(candidates, n)
	m, err := kernels.NewMap(p.Kernel, n, candidates)
	if err != nil {
		return nil, err
	}
	all := s.take(s.live, s.planes[0])
	k, err := kernels.NewMapper(m).MapContext(ctx, all.columns)
	if err != nil {
		return nil, err
	}
	total := totalScatter(k, all.weights)
	scale, _ := s.diagonal()
	var z []float64
	for _, side := range s.sides() {
		between := differences(k, s.take(s.live, side.class))
		for _, c := range forward(total, between, side.points, d.Eta, singular*scale) {
			z = append(z, candidates[c*n:][:n]...)
		}
	}
	if len(z) == 0 {
		return nil, fmt.Errorf("%w: K(x, z) is the same number for all of them", ErrRows)
	}
	return s.given(ctx, Distinct(z, n), d.Nu, 0)
}

// diagonal returns the mean of |K(x, x)| over the live rows, the scale of a kernel, and the
// largest.
func (s *sample) diagonal() (mean, largest float64) {
	var x []float64
	for _, i := range s.live {
		x = s.point(x[:0], i)
		k := math.Abs(s.Kernel.Value(argument(s.Kernel, x, x)))
		mean += k / float64(len(s.live))
		largest = max(largest, k)
	}
	return mean, largest
}

// totalScatter is Q of (8) for coordinates k, packed.
func totalScatter(k []gram.Column, weights []float64) []float64 {
	rows := k[0].Len()
	center := make([]float64, len(k))
	var sums [1]gram.Sums
	new(gram.Kernel).Sum(sums[:], k, make([]int32, rows), weights, center)
	total := &sums[0]
	for i, si := range total.S {
		r := total.Cross[gram.PackedLen(i):][:i+1]
		for j := range r {
			r[j] = r[j]/total.Weight - float64(si/total.Weight*(total.S[j]/total.Weight))
		}
	}
	return total.Cross
}

// differences are c₁ − c₂ for coordinates k and the sides of r.
func differences(k []gram.Column, r rows) []float64 {
	// As a product with the weights v/Σv of one side, less those of the other.
	var sum [2]float64
	y := make([]float64, len(r.d))
	for i := range y {
		if y[i] = 1; r.weights != nil {
			y[i] = r.weights[i]
		}
		sum[r.side(i)] += y[i]
	}
	for i, d := range r.d {
		y[i] *= d / sum[r.side(i)]
	}
	between := make([]float64, len(k))
	gram.AddDots(between, k, 0, nil, y)
	return between
}

// forward selects coordinates with the scatter Q, packed, and c₁ − c₂: up to points of them, in
// their order.
//
// It keeps what is left of each coordinate without its projection on those that are selected:
// its variance, the pivot of a Cholesky factor, and its difference. J is the sum of the squared
// differences of the selected ones in units of their pivots.
func forward(q, between []float64, points int, eta, least float64) []int {
	s := len(between)
	pivot, left := make([]float64, s), append([]float64(nil), between...)
	for c := range pivot {
		pivot[c] = q[gram.PackedLen(c)+c]
	}
	var selected []int
	var columns [][]float64 // of the Cholesky factor
	criterion := 0.0
	for len(selected) < points {
		best, gain := -1, 0.0
		for c, p := range pivot {
			if p < least || !(p > 0) {
				pivot[c] = math.Inf(-1) // singular: out for good
			} else if g := left[c] * left[c] / p; g > gain {
				best, gain = c, g
			}
		}
		if criterion += gain; best < 0 || gain < eta*criterion {
			return selected
		}
		column, root := make([]float64, s), math.Sqrt(pivot[best])
		for c := range column {
			column[c] = q[gram.PackedLen(max(c, best))+min(c, best)]
		}
		for _, earlier := range columns {
			axpy(-earlier[best], earlier, column)
		}
		step := left[best] / root
		for c := range column {
			column[c] /= root
			pivot[c] -= float64(column[c] * column[c])
			left[c] -= float64(column[c] * step)
		}
		pivot[best] = math.Inf(-1)
		selected, columns = append(selected, best), append(columns, column)
	}
	return selected
}

// Cholesky takes the rows that are far from the span of the earlier ones in the kernel's space
// (SSVM(C); Iwamura and Abe 2009, after their reference 7): in the order of the rows, a row is
// kept if its pivot in the Cholesky factor of K(Z, Z) is above η·K, with K the mean K(x, x). So
// the classes do not matter, nor does the seed.
//
// With more than t such rows, a larger η is bisected for that keeps as nearly t of them as it
// can, so that the basis does not come from the first rows alone. A pass costs m(tn + t²/2)
// multiply-adds, and there are up to 41. It refuses kernels that are not positive semidefinite.
type Cholesky struct {
	Eta float64 // η, between 0 and 1; 0: 1e-3
	Nu  float64 // ν of the 1-norm program for the coefficients
}

const bisections = 40

// Reduce implements Reducer.
func (c Cholesky) Reduce(ctx context.Context, p *Problem) (*Result, error) {
	s, err := newSample(p)
	if err != nil {
		return nil, err
	}
	setDefault(&c.Eta, defaultEta)
	if err := checkEta(c.Eta); err != nil {
		return nil, err
	}
	if !p.Kernel.Semidefinite() {
		return nil, fmt.Errorf("a Cholesky factor needs a positive semidefinite kernel, and %v is none", p.Kernel)
	}
	mean, largest := s.diagonal()
	z, complete, err := s.independent(ctx, c.Eta*mean)
	if err != nil {
		return nil, err
	}
	if len(z) == 0 {
		return nil, fmt.Errorf("%w: no row has K(x, x) above %v", ErrRows, c.Eta*mean)
	}
	if !complete {
		var most []float64
		few, many := largest, c.Eta*mean // pivots that leave too few rows, and too many
		for turn := 0; turn < bisections && len(most) < s.Points*len(s.Columns); turn++ {
			least := few + float64((many-few)/2)
			some, complete, err := s.independent(ctx, least)
			if err != nil {
				return nil, err
			}
			if !complete {
				many = least
				continue
			}
			if few = least; len(some) > len(most) {
				most = some
			}
		}
		// Without any, the rows are all as far from each other, and the first ones do.
		if len(most) > 0 {
			z = most
		}
	}
	return s.given(ctx, z, c.Nu, 0)
}

// independent returns the live rows whose pivots are above least. It stops after t of them, and
// is incomplete if there are more.
func (s *sample) independent(ctx context.Context, least float64) (z []float64, complete bool, err error) {
	n := len(s.Columns)
	f := &factor{}
	var x []float64
	for count, i := range s.live {
		if count%gram.TileRows == 0 && ctx.Err() != nil {
			return nil, false, ctx.Err()
		}
		x = s.point(x[:0], i)
		first := len(f.l)
		for l := range f.t {
			f.l = append(f.l, s.Kernel.Value(argument(s.Kernel, x, z[l*n:][:n])))
		}
		row := f.l[first:]
		f.forward(row)
		pivot := s.Kernel.Value(argument(s.Kernel, x, x)) - dot(row, row)
		switch {
		case math.IsNaN(pivot):
			return nil, false, fmt.Errorf("row %d has numbers that no kernel takes", i)
		case !(pivot > least):
			f.l = f.l[:first]
		case f.t == s.Points:
			return z, false, nil
		default:
			f.l, f.t, z = append(f.l, math.Sqrt(pivot)), f.t+1, append(z, x...)
		}
	}
	return z, true, nil
}
