package lp

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

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

// A vertex is the state of the simplex method. The residuals b − a'x of a basis of n
// terms are zero. The dual variables of all other terms are at one of their bounds: at hi
// if the residual is positive, at lo if it is negative. The basic dual variables follow
// from A'β = f, and the vertex is optimal when they are within their bounds. If one is
// not, x moves along the edge on which, of the basis, only its term changes. It passes
// kinks of the objective up to the minimum along the edge, where another term becomes
// basic. For the dual program this is the bounded dual simplex method with the long-step
// rule (Maros 2003) and the exact steepest edge.
type vertex struct {
	*solver
	basis []int
	basic []bool
	// inverse is the transposed inverse of the matrix of the basis' rows. Row i is
	// the direction in which term basis[i] changes by 1 and the others do not.
	inverse *mat.Dense
	g       []float64 // f − A_N'β_N
	eta     []float64
	along   []float64 // Aη
	row     []float64
	found   [][]kink        // the kinks along η, for each range of terms
	kinks   []kink          // all kinks along η
	taken   []kink          // the kinks that search has taken, in their order
	edge    float64         // max |η|
	shifts  map[int]float64 // perturbations of b
	hard    float64         // |β| of a hard row that is missed
	noise   []float64       // the rounding error of each basic dual variable
	floor   map[int]float64 // the least noise of forgiven terms
	size    float64         // Σ|β| of the terms added to g
	fresh   int             // pivots since the inverse was computed
}

// A kink is a term whose residual becomes zero after a step of length at.
type kink struct {
	at   float64
	term int
}

// crossover turns the interior solution into an optimal vertex, by the simplex method
// from the basis that the interior point suggests. A bad interior point costs time, not
// accuracy.
func (s *solver) crossover(ctx context.Context) error {
	v := &vertex{
		solver: s,
		basic:  make([]bool, s.a.terms()),
		g:      make([]float64, s.n),
		eta:    make([]float64, s.n),
		along:  make([]float64, s.a.terms()),
		row:    make([]float64, s.n),
		found:  make([][]kink, s.a.ranges()),
		shifts: map[int]float64{},
		hard:   1e3 * max(1, maxAbs(s.beta)),
		noise:  make([]float64, s.n),
		floor:  map[int]float64{},
	}
	v.choose()
	if err := v.refactor(); err != nil {
		return err
	}
	limit := 1000 + 50*s.n
	empty, petty := 0, 0
	random := rand.New(rand.NewPCG(1, uint64(s.n)))
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		leaving := v.leaving()
		if leaving < 0 {
			if v.fresh > 0 || len(v.shifts) > 0 {
				clear(v.shifts)
				if err := v.refactor(); err != nil {
					return err
				}
				continue
			}
			missed := v.missed()
			if missed == 0 {
				v.round()
				return nil
			}
			if v.hard > 1e12 {
				return fmt.Errorf("%w: %d hard rows are missed after %d pivots", ErrNotConverged, missed, s.pivots)
			}
			v.hard *= 1e3
			if err := v.refactor(); err != nil {
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
		if s.pivots >= limit {
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

// choose chooses a basis of independent terms. It prefers dual variables that are far
// from their bounds relative to their residuals, because at an optimal vertex basic terms
// have zero residuals. Unit terms, which span the space, complete the basis.
func (v *vertex) choose() {
	s, n := v.solver, v.n
	v.a.over(v.a.ranges(), func(c int) { v.a.mul(v.residual, c, s.x) })
	var candidates []kink
	for k := range v.beta {
		r := math.Abs(s.b[k] - v.residual[k])
		room := min(s.hi[k]-s.beta[k], s.beta[k]-s.lo[k])
		if width := s.hi[k] - s.lo[k]; !math.IsInf(width, 1) {
			room /= width
		}
		if math.IsInf(room, 1) {
			candidates = append(candidates, kink{2, k})
		} else if measure := room / (room + r); measure > 1e-6 {
			candidates = append(candidates, kink{measure, k})
		}
	}
	slices.SortFunc(candidates, func(x, y kink) int {
		return cmp.Or(cmp.Compare(y.at, x.at), cmp.Compare(x.term, y.term))
	})
	for j := range n {
		candidates = append(candidates, kink{term: v.a.m + j})
	}
	type eliminated struct {
		row   []float64
		pivot int
	}
	var done []eliminated
	row := v.row
	for _, c := range candidates {
		if len(done) == n {
			break
		}
		if v.basic[c.term] {
			continue
		}
		v.a.row(row, c.term)
		size := maxAbs(row)
		for _, e := range done {
			if w := row[e.pivot]; w != 0 {
				addTo(row, -w, e.row)
				row[e.pivot] = 0
			}
		}
		pivot := 0
		for j, x := range row {
			if math.Abs(x) > math.Abs(row[pivot]) {
				pivot = j
			}
		}
		top := row[pivot]
		if !(math.Abs(top) > independent*size) {
			continue
		}
		e := eliminated{make([]float64, n), pivot}
		for j, x := range row {
			e.row[j] = x / top
		}
		done = append(done, e)
		v.basis = append(v.basis, c.term)
		v.basic[c.term] = true
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
	v.a.over(v.a.ranges(), func(c int) {
		v.a.mul(s.residual, c, s.x)
		from, to := v.a.rangeOf(c)
		for k := from; k < to; k++ {
			s.residual[k] = s.b[k] - s.residual[k]
		}
	})
	for k, b := range v.shifts {
		s.residual[k] += b
	}
	for _, k := range v.basis {
		s.residual[k] = 0
	}
	for k := range s.beta {
		s.beta[k] = v.side(k)
	}
	v.a.mulTransposed(v.g, s.beta)
	for j := range v.g {
		v.g[j] = s.f[j] - v.g[j]
	}
	v.size = 0
	for _, b := range s.beta {
		v.size += math.Abs(b)
	}
	v.fresh = 0
	v.price()
	return nil
}

// side is the bound at which the residual puts the dual variable of term k, or 0 if the
// term is basic.
func (v *vertex) side(k int) float64 {
	lo, hi, r, beta := v.lo[k], v.hi[k], v.residual[k], v.beta[k]
	if v.basic[k] || lo == hi {
		return 0
	}
	if r > v.tolerance {
		return min(hi, v.hard)
	}
	if r < -v.tolerance {
		return max(lo, -v.hard)
	}
	switch {
	case math.IsInf(hi, 1) && math.IsInf(lo, -1):
		return 0
	case math.IsInf(hi, 1):
		return lo
	case hi-beta < beta-lo:
		return hi
	}
	return lo
}

// bounds are the bounds of β_k. The β of a hard row that is missed has a finite bound
// until the row holds, as if a miss had a price.
func (v *vertex) bounds(k int) (lo, hi float64) {
	lo, hi = v.lo[k], v.hi[k]
	if v.basic[k] {
		return lo, hi
	}
	if math.IsInf(hi, 1) && v.beta[k] == v.hard {
		hi = v.hard
	}
	if math.IsInf(lo, -1) && v.beta[k] == -v.hard {
		lo = -v.hard
	}
	return lo, hi
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

// descends reports whether the objective falls without end along the edge, by more than
// rounding.
func (v *vertex) descends() bool {
	var slope, size float64
	add := func(x float64) { slope += x; size += math.Abs(x) }
	for j, x := range v.eta {
		add(v.f[j] * x)
	}
	for k, move := range v.along {
		lo, hi := v.bounds(k)
		if math.Abs(move) <= pivotTolerance*v.edge && math.IsInf(hi-lo, 1) {
			continue // a hard row along the direction
		}
		if move != 0 {
			add(max(-move*hi, -move*lo))
		}
	}
	return slope < -1e-12*size
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

// violation is the distance of the dual variable at a place from its bounds, and the
// width of these (1 if one is infinite).
func (v *vertex) violation(place int) (out, width float64) {
	k := v.basis[place]
	lo, hi, beta := v.lo[k], v.hi[k], v.beta[k]
	width = hi - lo
	if math.IsInf(width, 1) {
		width = 1
	}
	return max(beta-hi, lo-beta), width
}

// forgive treats the violation at a place as rounding from now on.
func (v *vertex) forgive(place int) {
	out, _ := v.violation(place)
	v.floor[v.basis[place]] = 2 * out
	v.price()
}

// round moves basic dual variables that are at a bound or at zero, up to rounding, exactly
// there, so that all are within their bounds.
func (v *vertex) round() {
	for i, k := range v.basis {
		beta, near := &v.beta[k], v.noise[i]
		switch {
		case *beta-v.lo[k] <= near:
			*beta = v.lo[k]
		case v.hi[k]-*beta <= near:
			*beta = v.hi[k]
		case math.Abs(*beta) <= near:
			*beta = 0
		}
	}
}

// missed counts the hard rows that do not hold.
func (v *vertex) missed() int {
	count := 0
	for k := v.a.m + v.n; k < v.a.terms(); k++ {
		r := v.residual[k]
		if r > v.slackOf(k) && math.IsInf(v.hi[k], 1) || r < -v.slackOf(k) && math.IsInf(v.lo[k], -1) {
			count++
		}
	}
	return count
}

func (v *vertex) slackOf(k int) float64 { return feasibility * (1 + math.Abs(v.b[k]) + maxAbs(v.x)) }

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
	v.edge = maxAbs(v.eta)
	a.over(a.ranges(), func(c int) {
		a.mul(v.along, c, v.eta)
		from, to := a.rangeOf(c)
		found := v.found[c][:0]
		for k := from; k < to; k++ {
			move := v.along[k] // the decrease of the residual per step
			if v.basic[k] || math.Abs(move) <= pivotTolerance*v.edge || s.lo[k] == s.hi[k] {
				continue
			}
			r := s.residual[k]
			lo, hi := v.bounds(k)
			switch beta := s.beta[k]; {
			case move > 0 && beta > lo:
				found = append(found, kink{max(r, 0) / move, k})
			case move < 0 && beta < hi:
				found = append(found, kink{min(r, 0) / move, k})
			}
		}
		v.found[c] = found
	})
	v.kinks = v.kinks[:0]
	for _, found := range v.found {
		v.kinks = append(v.kinks, found...)
	}
	passed := v.search(slope, v.noise[place])
	if passed < 0 {
		return 0, false
	}
	in := v.taken[passed].term
	step = v.taken[passed].at

	// The dual variables of the passed terms change sides.
	for _, c := range v.taken[:passed] {
		k := c.term
		to := s.lo[k]
		if v.along[k] < 0 {
			to = s.hi[k]
		}
		a.addRow(v.g, k, s.beta[k]-to)
		v.size += math.Abs(s.beta[k]) + math.Abs(to)
		s.beta[k] = to
	}
	s.beta[out] = bound
	v.size += math.Abs(bound) + math.Abs(s.beta[in])
	a.addRow(v.g, out, -bound)
	a.addRow(v.g, in, s.beta[in])

	addTo(s.x, step, v.eta)
	for k, move := range v.along {
		s.residual[k] -= float64(step * move)
	}
	s.residual[in] = 0
	a.row(v.row, in)
	v.basic[out], v.basic[in] = false, true
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

// search takes kinks in their order along the edge until the slope becomes positive. It
// returns the number of kinks that a step to there passes, or −1 if the slope stays
// negative. The next term enters the basis: of those within the tolerance, the one with
// the largest pivot (Harris 1973).
func (v *vertex) search(slope, noise float64) int {
	// A step passes few of many kinks, so a heap is faster than sorting.
	h := v.kinks
	flat := 1e-12*slope - noise
	for i := len(h)/2 - 1; i >= 0; i-- {
		siftDown(h, i)
	}
	v.taken = v.taken[:0]
	take := func() kink {
		c := h[0]
		v.taken = append(v.taken, c)
		h[0] = h[len(h)-1]
		h = h[:len(h)-1]
		siftDown(h, 0)
		return c
	}
	for len(h) > 0 {
		c := take()
		lo, hi := v.bounds(c.term)
		move := math.Abs(v.along[c.term])
		if slope += (hi - lo) * move; slope < flat {
			continue
		}
		last := len(v.taken) - 1
		best, most := last, 10*move
		for len(h) > 0 && h[0].at-c.at <= v.tolerance/v.edge {
			if other := math.Abs(v.along[take().term]); other > most {
				best, most = len(v.taken)-1, other
			}
		}
		v.taken[last], v.taken[best] = v.taken[best], v.taken[last]
		return last
	}
	return -1
}

func siftDown(h []kink, i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

func (c kink) before(d kink) bool { return c.at < d.at || c.at == d.at && c.term < d.term }

// perturb shifts the right-hand sides of nonbasic terms away from their kinks, so that
// steps are no longer empty.
func (v *vertex) perturb(random *rand.Rand) {
	for k, r := range v.residual {
		if v.basic[k] || v.lo[k] == v.hi[k] || math.Abs(r) > shift {
			continue
		}
		by := shift * (1 + random.Float64())
		switch v.beta[k] {
		case v.hi[k]:
		case v.lo[k]:
			by = -by
		default:
			continue
		}
		v.shifts[k] += by
		v.residual[k] += by
	}
}

// solution returns the solution in the program's coordinates, and the allowed gap: the
// tolerance, and the rounding error of the terms that cancel in the objective.
func (s *solver) solution(p *Program) (sol *Solution, allowed float64) {
	a, t := s.a, s.a.t
	x := make([]float64, s.n)
	for j := range x {
		x[j] = s.x[j] / a.scale[j]
	}
	sol = &Solution{U: x[:t:t], Gamma: x[t], S: x[t+1:], Passes: s.passes, Pivots: s.pivots}
	if s.ray {
		sol.Objective, sol.Gap = math.Inf(-1), math.Inf(1)
		return sol, 0
	}
	sol.E, sol.Alpha = make([]float64, a.m), make([]float64, a.m)
	sol.Slack, sol.Beta = make([]float64, len(p.Rows)), make([]float64, len(p.Rows))
	miss := func(k int, equal bool) float64 {
		r := s.residual[k]
		if math.Abs(r) <= s.tolerance || r < 0 && !equal {
			return 0
		}
		return r
	}
	var dual, size float64
	for i := range sol.E {
		sol.E[i] = miss(i, false)
		sol.Alpha[i] = s.beta[i] / s.unit
		sol.Objective += s.hi[i] / s.unit * sol.E[i]
		dual += sol.Alpha[i]
		size += sol.Alpha[i]
	}
	largest := maxAbs(s.x)
	for j, v := range s.x {
		sol.Objective += (s.hi[a.m+j]*math.Abs(v) + s.f[j]*v) / s.unit
		size += (s.hi[a.m+j] + math.Abs(s.f[j])) * largest / s.unit
	}
	for k, row := range p.Rows {
		i := a.m + s.n + k
		sol.Slack[k], sol.Beta[k] = miss(i, row.Equal), s.beta[i]/s.unit
		if row.Cost != Hard {
			sol.Objective += row.Cost * math.Abs(sol.Slack[k])
		}
		dual += row.Bound * sol.Beta[k]
		size += math.Abs(row.Bound * sol.Beta[k])
	}
	sol.Gap = sol.Objective - dual
	return sol, gapTolerance*math.Abs(sol.Objective) + 1e-12*size
}
