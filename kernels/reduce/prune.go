package reduce

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/kernels"
)

// A Pruning ranks the coordinates of a basis without a row, from K(Z, Z) and the sums of the rows
// in these coordinates. The first s of a rank, for any s, are the basis of s coordinates. Their
// sums are parts of those that there are, bit for bit.
type Pruning string

const (
	// PruneLDA is the forward selection of Discriminant among the coordinates: the next one is that
	// which most increases J. The planes take turns. Since the number of coordinates is given, it
	// has no η, and a coordinate is singular only where its pivot is a rounding error.
	PruneLDA Pruning = "lda"
	// PruneFisher is a backward elimination. The next coordinate to go is the one whose loss least
	// decreases δ'(B + μK(Z, Z))⁻¹δ, the criterion of Fisher, summed over the planes. It is
	// u_j²/(B + μK)⁻¹_jj with Fisher's direction u = (B + μK)⁻¹δ.
	PruneFisher Pruning = "fisher"
	// PruneCholesky takes the point that is farthest from the span of those that it has, in the
	// kernel's space: the largest pivot of the Cholesky factor of K(Z, Z). Cholesky does not choose
	// so, since rows come in an order and need not be kept. Classes do not matter.
	PruneCholesky Pruning = "cholesky"
	// PruneEigen takes the leading coordinates of Eigen. It refuses coordinates of points:
	// eigenvectors mix these, and the mixed coordinates of rows are rounded before they are summed.
	// So their sums do not follow from those that there are.
	PruneEigen Pruning = "eigen"
)

// Prunings lists all of them.
func Prunings() []Pruning { return []Pruning{PruneLDA, PruneFisher, PruneCholesky, PruneEigen} }

// ErrUnfit reports a basis that cannot be pruned so.
var ErrUnfit = errors.New("the basis cannot be pruned so")

const (
	// pruneMu is μ of PruneFisher, the default of Fisher.
	pruneMu = 1e-3
	// pruneNoise is in units of the largest mean square of a coordinate, whose rounding error is
	// 1e-16. A pivot has the errors of all steps before it.
	pruneNoise = 1e-12
)

// Check says why a map cannot be pruned so, whatever the sums are. The error is ErrUnfit.
func (p Pruning) Check(m *kernels.Map) error {
	switch {
	case p == PruneEigen && m.Projection() == nil:
		return fmt.Errorf("%w: its coordinates are those of points. Sums do not have the coordinates of eigenvectors, which take the rows: set kernel.reduce: eigen and choose a basis anew, or prune by lda, fisher or cholesky", ErrUnfit)
	case p == PruneCholesky && m.Projection() != nil:
		return fmt.Errorf("%w: its coordinates are orthonormal, so none is far from the span of the others: prune by eigen, lda or fisher", ErrUnfit)
	case (p == PruneCholesky || p == PruneFisher) && !m.Kernel().Semidefinite():
		return fmt.Errorf("%w: %s needs a positive semidefinite kernel, and %v is none: prune by lda", ErrUnfit, p, m.Kernel())
	}
	return nil
}

// Rank returns up to the given number of coordinates of m, the best first. It returns fewer if no
// other adds anything. sums are those of the rows in the coordinates. The weights and the balance
// of o count in the scatter of the rows.
//
// For t coordinates and k planes, PruneLDA of s coordinates costs O(kt(t + s²)), PruneFisher
// O(kt³), and PruneCholesky O(t(t + s²)). Rank fails with ErrUnfit, incremental.ErrClasses for rows
// of fewer than two classes, and the error of ctx.
func (p Pruning) Rank(ctx context.Context, m *kernels.Map, sums *incremental.Moments, o incremental.Options, most int) ([]int, error) {
	if err := p.Check(m); err != nil {
		return nil, err
	}
	most = min(most, m.Size())
	switch p {
	case PruneEigen:
		rank := make([]int, most)
		for i := range rank {
			rank[i] = i
		}
		return rank, nil
	case PruneCholesky:
		return pivots(m.Gram(), m.Size(), most), nil
	}
	var planes []scatter
	for program := range sums.Programs(o) {
		planes = append(planes, scatterOf(program))
	}
	if len(planes) == 0 {
		return nil, incremental.ErrClasses
	}
	if p == PruneFisher {
		return eliminate(ctx, planes, m.Gram(), most)
	}
	return turns(ctx, planes, most)
}

// scatter is Q of (8), packed, and c₁ − c₂, for one plane.
type scatter struct {
	total, between []float64
	noise          float64 // pivots below are rounding errors
}

// scatterOf takes both off the sums of a plane: Σ a v z z' and Σ a d v z for z = [x; −1].
func scatterOf(p *incremental.Program) scatter {
	n := len(p.Right) - 1
	s := scatter{total: make([]float64, 0, gram.PackedLen(n)), between: make([]float64, n)}
	first := p.Matrix[gram.PackedLen(n):] // −Σ a v x
	plus, minus := (p.Mass-p.Right[n])/2, (p.Mass+p.Right[n])/2
	for i := range n {
		s.noise = max(s.noise, pruneNoise*p.Matrix[gram.PackedLen(i)+i]/p.Mass)
		mean := first[i] / p.Mass
		for j := range i + 1 {
			s.total = append(s.total, p.Matrix[gram.PackedLen(i)+j]/p.Mass-float64(mean*(first[j]/p.Mass)))
		}
		s.between[i] = (p.Right[i]-first[i])/2/plus + (p.Right[i]+first[i])/2/minus
	}
	return s
}

// turns lets each plane in turn select its next coordinate that no other has.
func turns(ctx context.Context, planes []scatter, most int) (rank []int, err error) {
	orders := make([][]int, len(planes))
	for i, p := range planes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		orders[i] = forward(p.total, p.between, most, 0, p.noise)
	}
	taken := map[int]bool{}
	for more := true; more && len(rank) < most; {
		more = false
		for i := range orders {
			for len(orders[i]) > 0 && taken[orders[i][0]] {
				orders[i] = orders[i][1:]
			}
			if len(orders[i]) > 0 && len(rank) < most {
				rank, more = append(rank, orders[i][0]), true
				taken[orders[i][0]] = true
			}
		}
	}
	if len(rank) == 0 {
		return nil, fmt.Errorf("%w: no coordinate tells the classes apart", ErrUnfit)
	}
	return rank, nil
}

// pivots takes the largest pivot of a positive semidefinite matrix, packed, time and again. It ends
// when the rest is rounding error.
func pivots(a []float64, t, most int) (rank []int) {
	pivot := make([]float64, t)
	for i := range pivot {
		pivot[i] = a[gram.PackedLen(i)+i]
	}
	least := float64(t) * 0x1p-52 * slices.Max(pivot)
	var columns [][]float64 // of the factor
	for len(rank) < most {
		best := 0
		for i, p := range pivot {
			if p > pivot[best] {
				best = i
			}
		}
		if !(pivot[best] > least) {
			break
		}
		column, root := make([]float64, t), math.Sqrt(pivot[best])
		for i := range column {
			column[i] = a[gram.PackedLen(max(i, best))+min(i, best)]
		}
		for _, earlier := range columns {
			axpy(-earlier[best], earlier, column)
		}
		for i := range column {
			column[i] /= root
			pivot[i] -= float64(column[i] * column[i])
		}
		pivot[best] = math.Inf(-1)
		rank, columns = append(rank, best), append(columns, column)
	}
	return rank
}

// A direction is Fisher's for one plane, with the inverse of its matrix.
type fisherDirection struct {
	inverse [][]float64
	u       []float64
}

// eliminate ranks the coordinates in the reverse order in which they go. With the inverse H of a
// plane's matrix, that of the matrix without coordinate j is H − h_j h_j'/H_jj, and u loses
// (u_j/H_jj)h_j.
func eliminate(ctx context.Context, planes []scatter, metric []float64, most int) ([]int, error) {
	t := len(planes[0].between)
	var directions []*fisherDirection
	for _, p := range planes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d, err := newFisherDirection(p, metric)
		if err != nil {
			return nil, err
		}
		directions = append(directions, d)
	}
	left := make([]int, t)
	for j := range left {
		left[j] = j
	}
	var gone []int
	for len(left) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		least, loss := 0, math.Inf(1)
		for i, j := range left {
			sum := 0.0
			for _, d := range directions {
				sum += d.u[j] * d.u[j] / d.inverse[j][j]
			}
			if sum < loss {
				least, loss = i, sum
			}
		}
		j := left[least]
		left = slices.Delete(left, least, least+1)
		for _, d := range directions {
			h := d.inverse[j]
			for _, i := range left {
				f := h[i] / h[j]
				d.u[i] -= float64(f * d.u[j])
				row := d.inverse[i]
				for _, l := range left {
					row[l] -= float64(f * h[l])
				}
			}
		}
		gone = append(gone, j)
	}
	slices.Reverse(gone)
	return gone[:most], nil
}

// newFisherDirection solves (B + μK)u = δ. Where the matrix is singular, a multiple of I is added.
func newFisherDirection(p scatter, metric []float64) (*fisherDirection, error) {
	t := len(p.between)
	a := make([]float64, len(metric))
	largest := 0.0
	for i := range a {
		a[i] = p.total[i] + float64(pruneMu*metric[i])
	}
	for i := range t {
		largest = max(largest, a[gram.PackedLen(i)+i])
	}
	ridge := float64(t) * 0x1p-52 * largest
	f, ok := newFactor(slices.Clone(a), t)
	for ; !ok; ridge *= 1024 {
		if !(ridge > 0 && ridge <= largest) {
			return nil, fmt.Errorf("%w: its scatter is not positive definite", ErrUnfit)
		}
		more := slices.Clone(a)
		for i := range t {
			more[gram.PackedLen(i)+i] += ridge
		}
		f, ok = newFactor(more, t)
	}
	d := &fisherDirection{u: slices.Clone(p.between)}
	f.forward(d.u)
	f.back(d.u)
	for j := range t {
		e := make([]float64, t)
		e[j] = 1
		f.forward(e)
		f.back(e)
		d.inverse = append(d.inverse, e)
	}
	return d, nil
}
