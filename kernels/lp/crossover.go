package lp

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"
)

const (
	// refactorEvery is the number of pivots after which the inverse of the
	// basis is recomputed.
	refactorEvery = 64
	// independent is the least part of a row that elimination by the rows of a basis
	// must leave for the row to join them.
	independent = 1e-7
	// rounding bounds the relative error of a sum for well-conditioned bases. Larger
	// errors are detected by descends.
	rounding = 1e-14
	// A term that changes by less than pivotTolerance per unit of direction counts as
	// constant along it.
	pivotTolerance = 1e-9
	// pettyPivots is the allowed number of pivots whose gain is of the order of rounding.
	pettyPivots = 50
	// emptySteps consecutive steps of no length indicate a cycle rather than ties.
	emptySteps = 20
	// shift is the size of the perturbation that ends a run of empty steps.
	shift = 1e-6
)

// A vertex is the state of the simplex method: a descent with a basis of n terms. The
// basic dual variables follow from A'β = f, and the vertex is optimal when they are within
// their bounds. If one is not, x moves along the edge on which, of the basis, only its
// term changes. It passes kinks of the objective up to the minimum along the edge, where
// another term becomes basic. For the dual program this is the bounded dual simplex method
// with the long-step rule (Maros 2003) and the exact steepest edge.
type vertex struct {
	descent
	// inverse is the transposed inverse of the matrix of the basis' rows. Row i is
	// the direction in which term basis[i] changes by 1 and the others do not.
	inverse *mat.Dense
	floor   map[int]float64 // the least noise of forgiven terms
}

// crossover turns the interior solution into an optimal vertex, by the simplex method
// from the basis that the interior point suggests. A bad interior point costs time, not
// accuracy.
func (s *solver) crossover(ctx context.Context) error {
	v := &vertex{descent: newDescent(s), floor: map[int]float64{}}
	v.choose(1e-6, true)
	if err := v.refactor(); err != nil {
		return err
	}
	empty, petty := 0, 0
	random := rand.New(rand.NewPCG(1, uint64(s.n)))
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		leaving := v.leaving()
		if leaving < 0 {
			if optimal, err := v.settle(v.refactor); optimal || err != nil {
				return err
			}
			continue
		}
		// A tiny violation is resolved like any other. When there is no end to them,
		// rounding moves x along a flat edge and back, and they are forgiven.
		if out, width := v.violation(leaving); out <= feasibility*width {
			if petty++; petty > pettyPivots {
				v.forgive(leaving)
				continue
			}
		}
		if s.pivots >= s.limit {
			return fmt.Errorf("%w: %d passes, %d pivots", ErrNotConverged, s.passes, s.pivots)
		}
		s.pivots++
		step, ok := v.pivot(leaving)
		if !ok && v.fresh > 0 { // perhaps because of rounding
			if err := v.refactor(); err != nil {
				return err
			}
			continue
		}
		if !ok && !v.descends() {
			v.forgive(leaving)
			continue
		}
		if !ok {
			s.ray = true
			copy(s.x, v.eta)
			return ErrUnbounded
		}
		if empty++; step > s.tolerance {
			empty = 0
		}
		if empty > emptySteps {
			v.perturb(random)
			empty = 0
		}
		if v.fresh >= refactorEvery {
			if err := v.refactor(); err != nil {
				return err
			}
		}
	}
}

// refactor recomputes the vertex from the basis.
func (v *vertex) refactor() error {
	s, n := v.solver, v.n
	rows := mat.NewDense(n, n, nil)
	for i, k := range v.basis {
		v.a.row(rows.RawRowView(i), k)
	}
	var inverse mat.Dense
	if err := inverse.Inverse(rows); err != nil {
		if c, ok := err.(mat.Condition); !ok || math.IsInf(float64(c), 1) {
			return fmt.Errorf("%w: singular basis after %d pivots", ErrNotConverged, s.pivots)
		}
	}
	v.inverse = mat.DenseCopyOf(inverse.T())
	clear(s.x)
	clear(v.eta) // the sizes of the terms of x
	for i, k := range v.basis {
		b := s.b[k] + v.shifts[k]
		for j, e := range v.inverse.RawRowView(i) {
			s.x[j] += float64(b * e)
			v.eta[j] += math.Abs(b * e)
		}
	}
	for i, k := range v.basis { // one step of refinement
		v.row[i] = s.b[k] + v.shifts[k] - dot(rows.RawRowView(i), s.x)
	}
	for i := range v.basis {
		addTo(s.x, v.row[i], v.inverse.RawRowView(i))
	}
	// Make zeros exact: those of the basis, and those of a vertex where more terms meet.
	for _, k := range v.basis {
		if k >= v.a.m && k < v.a.m+n {
			s.x[k-v.a.m] = v.shifts[k]
		}
	}
	for j, size := range v.eta {
		if math.Abs(s.x[j]) <= rounding*size {
			s.x[j] = 0
		}
	}
	s.tolerance = 1e-11 * (1 + maxAbs(s.x))
	v.fromX()
	v.price()
	return nil
}

// price computes the basic dual variables and their rounding errors.
func (v *vertex) price() {
	for i, k := range v.basis {
		var sum, size, norm float64
		for j, x := range v.inverse.RawRowView(i) {
			product := x * v.g[j]
			sum += product
			size += math.Abs(product)
			norm += math.Abs(x)
		}
		v.beta[k] = sum
		v.noise[i] = max(rounding*(size+norm*v.size), v.floor[k])
	}
}

// leaving is the place in the basis of the dual variable that violates its bounds most,
// by steepest edge, or −1.
func (v *vertex) leaving() int {
	best, place := 0.0, -1
	for i := range v.basis {
		out, _ := v.violation(i)
		if !(out > v.noise[i]) {
			continue
		}
		edge := v.inverse.RawRowView(i)
		if gain := out * out / dot(edge, edge); gain > best {
			best, place = gain, i
		}
	}
	return place
}

// forgive treats the violation at a place as rounding from now on.
func (v *vertex) forgive(place int) {
	out, _ := v.violation(place)
	v.floor[v.basis[place]] = 2 * out
	v.price()
}

// pivot moves x along the edge on which the basic term at the given place changes. It
// reports false when the objective falls without end there.
func (v *vertex) pivot(place int) (step float64, ok bool) {
	s, a := v.solver, v.a
	out := v.basis[place]
	// The residual of the leaving term becomes positive or negative.
	sign, bound := 1.0, s.hi[out]
	if s.beta[out] < s.lo[out] {
		sign, bound = -1, s.lo[out]
	}
	slope := -math.Abs(s.beta[out] - bound)
	for j, x := range v.inverse.RawRowView(place) {
		v.eta[j] = -sign * x
	}
	v.gather()
	step, passed, ok := v.search(slope, 0, v.noise[place])
	if !ok {
		return 0, false
	}
	in := v.taken[passed].term
	v.pass(passed)
	v.leave(place)
	v.size += math.Abs(s.beta[in])
	a.addRow(v.g, in, s.beta[in])

	v.advance(step)
	s.residual[in] = 0
	a.row(v.row, in)
	v.basic[in] = true
	v.basis[place] = in
	edgeRow := v.inverse.RawRowView(place)
	w := 1 / dot(v.row, edgeRow)
	for j := range edgeRow {
		edgeRow[j] *= w
	}
	for i, k := range v.basis {
		if i != place {
			row := v.inverse.RawRowView(i)
			addTo(row, -dot(v.row, row), edgeRow)
		}
		s.residual[k] = 0
	}
	v.fresh++
	v.price()
	return step, true
}
