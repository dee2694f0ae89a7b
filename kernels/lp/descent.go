package lp

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// A descent is a point that moves along directions in which the objective falls, past
// kinks of the objective. The terms of its basis have residuals b − a'x of zero. The dual
// variables of all other terms are at one of their bounds: at hi if the residual is
// positive, at lo if it is negative.
type descent struct {
	*solver
	basis  []int
	basic  []bool
	g      []float64 // the gradient f + Qx − A_N'β_N
	eta    []float64 // the direction
	along  []float64 // Aη
	row    []float64
	found  [][]kink        // the kinks along η, for each range of terms
	kinks  []kink          // all kinks along η
	taken  []kink          // the kinks that search has taken, in their order
	edge   float64         // max |η|
	noise  []float64       // the rounding error of each basic dual variable
	shifts map[int]float64 // perturbations of b
	hard   float64         // |β| of a hard row that is missed
	size   float64         // Σ|β| of the terms added to g
	fresh  int             // steps since all was computed from the basis
	moved  bool            // one of them changed a dual variable that is not basic
}

func newDescent(s *solver) descent {
	return descent{
		solver: s,
		basic:  make([]bool, s.a.terms()),
		g:      make([]float64, s.n),
		eta:    make([]float64, s.n),
		along:  make([]float64, s.a.terms()),
		row:    make([]float64, s.n),
		found:  make([][]kink, s.a.ranges()),
		noise:  make([]float64, s.n),
		shifts: map[int]float64{},
		hard:   1e3 * max(1, maxAbs(s.beta)),
	}
}

// A kink is a term whose residual becomes zero after a step of length at.
type kink struct {
	at   float64
	term int
}

// choose chooses a basis of independent terms. It prefers dual variables that are far
// from their bounds relative to their residuals, because at an optimum basic terms have
// zero residuals, and takes none below the least ratio. Unit terms, which span the space,
// complete the basis on request.
func (d *descent) choose(least float64, complete bool) {
	s, n := d.solver, d.n
	d.a.over(d.a.ranges(), func(c int) { d.a.mul(d.residual, c, s.x) })
	var candidates []kink
	for k := range d.beta {
		r := math.Abs(s.b[k] - d.residual[k])
		room := min(s.hi[k]-s.beta[k], s.beta[k]-s.lo[k])
		if width := s.hi[k] - s.lo[k]; !math.IsInf(width, 1) {
			room /= width
		}
		if math.IsInf(room, 1) {
			candidates = append(candidates, kink{2, k})
		} else if measure := room / (room + r); measure > least {
			candidates = append(candidates, kink{measure, k})
		}
	}
	slices.SortFunc(candidates, func(x, y kink) int {
		return cmp.Or(cmp.Compare(y.at, x.at), cmp.Compare(x.term, y.term))
	})
	for j := range n {
		if complete {
			candidates = append(candidates, kink{term: d.a.m + j})
		}
	}
	type eliminated struct {
		row   []float64
		pivot int
	}
	var done []eliminated
	row := d.row
	for _, c := range candidates {
		if len(done) == n {
			break
		}
		if d.basic[c.term] {
			continue
		}
		d.a.row(row, c.term)
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
		d.basis = append(d.basis, c.term)
		d.basic[c.term] = true
	}
}

// fromX computes the residuals, the dual variables of the terms that are not basic, and g
// without Qx.
func (d *descent) fromX() {
	s := d.solver
	d.a.over(d.a.ranges(), func(c int) {
		d.a.mul(s.residual, c, s.x)
		from, to := d.a.rangeOf(c)
		for k := from; k < to; k++ {
			s.residual[k] = s.b[k] - s.residual[k]
		}
	})
	for k, b := range d.shifts {
		s.residual[k] += b
	}
	for _, k := range d.basis {
		s.residual[k] = 0
	}
	for k := range s.beta {
		s.beta[k] = d.side(k)
	}
	d.a.mulTransposed(d.g, s.beta)
	for j := range d.g {
		d.g[j] = s.f[j] - d.g[j]
	}
	d.size = 0
	for _, b := range s.beta {
		d.size += math.Abs(b)
	}
	d.fresh, d.moved = 0, false
}

// side is the bound at which the residual puts the dual variable of term k, or 0 if the
// term is basic.
func (d *descent) side(k int) float64 {
	lo, hi, r, beta := d.lo[k], d.hi[k], d.residual[k], d.beta[k]
	if d.basic[k] || lo == hi {
		return 0
	}
	if r > d.tolerance {
		return min(hi, d.hard)
	}
	if r < -d.tolerance {
		return max(lo, -d.hard)
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
func (d *descent) bounds(k int) (lo, hi float64) {
	lo, hi = d.lo[k], d.hi[k]
	if d.basic[k] {
		return lo, hi
	}
	if math.IsInf(hi, 1) && d.beta[k] == d.hard {
		hi = d.hard
	}
	if math.IsInf(lo, -1) && d.beta[k] == -d.hard {
		lo = -d.hard
	}
	return lo, hi
}

// gather computes the changes of all residuals along η, and the kinks on the way.
func (d *descent) gather() {
	s, a := d.solver, d.a
	d.edge = maxAbs(d.eta)
	a.over(a.ranges(), func(c int) {
		a.mul(d.along, c, d.eta)
		from, to := a.rangeOf(c)
		found := d.found[c][:0]
		for k := from; k < to; k++ {
			move := d.along[k] // the decrease of the residual per step
			if d.basic[k] || math.Abs(move) <= pivotTolerance*d.edge || s.lo[k] == s.hi[k] {
				continue
			}
			r := s.residual[k]
			lo, hi := d.bounds(k)
			switch beta := s.beta[k]; {
			case move > 0 && beta > lo:
				found = append(found, kink{max(r, 0) / move, k})
			case move < 0 && beta < hi:
				found = append(found, kink{min(r, 0) / move, k})
			}
		}
		d.found[c] = found
	})
	d.kinks = d.kinks[:0]
	for _, found := range d.found {
		d.kinks = append(d.kinks, found...)
	}
}

// pass moves the dual variables of the first kinks that search took to their other bound.
func (d *descent) pass(count int) {
	s := d.solver
	for _, c := range d.taken[:count] {
		k := c.term
		to := s.lo[k]
		if d.along[k] < 0 {
			to = s.hi[k]
		}
		d.a.addRow(d.g, k, s.beta[k]-to)
		d.size += math.Abs(s.beta[k]) + math.Abs(to)
		s.beta[k] = to
		d.moved = true
	}
}

// advance moves x by a step along η.
func (d *descent) advance(step float64) {
	addTo(d.x, step, d.eta)
	for k, move := range d.along {
		d.residual[k] -= float64(step * move)
	}
}

// leave puts the dual variable of the basic term at a place, which is out of its bounds,
// at the bound that it violates.
func (d *descent) leave(place int) {
	out := d.basis[place]
	bound := d.hi[out]
	if d.beta[out] < d.lo[out] {
		bound = d.lo[out]
	}
	d.beta[out], d.basic[out], d.moved = bound, false, true
	d.size += math.Abs(bound)
	d.a.addRow(d.g, out, -bound)
}

// settle decides what follows when no basic dual variable violates its bounds. It reports
// whether the point is optimal. If not, refactor has computed it anew: without the rounding
// errors of steps, without perturbations, or with a higher price of missed hard rows.
func (d *descent) settle(refactor func() error) (optimal bool, err error) {
	if d.moved || len(d.shifts) > 0 {
		clear(d.shifts)
		return false, refactor()
	}
	missed := d.missed()
	if missed == 0 {
		d.round()
		return true, nil
	}
	if d.hard > 1e12 {
		return false, fmt.Errorf("%w: %d hard rows are missed after %d pivots", ErrNotConverged, missed, d.pivots)
	}
	d.hard *= 1e3
	return false, refactor()
}

// descends reports whether the objective falls without end along the direction, by more
// than rounding, and no hard row forbids it.
func (d *descent) descends() bool {
	var slope, size float64
	add := func(x float64) { slope += x; size += math.Abs(x) }
	for j, x := range d.eta {
		add(d.f[j] * x)
	}
	for k, move := range d.along {
		lo, hi := d.lo[k], d.hi[k]
		if math.Abs(move) <= pivotTolerance*d.edge && math.IsInf(hi-lo, 1) {
			continue // a hard row along the direction
		}
		if move != 0 {
			add(max(-move*hi, -move*lo))
		}
	}
	return slope < -1e-12*size
}

// violation is the distance of the dual variable at a place from its bounds, and the
// width of these (1 if one is infinite).
func (d *descent) violation(place int) (out, width float64) {
	k := d.basis[place]
	lo, hi, beta := d.lo[k], d.hi[k], d.beta[k]
	width = hi - lo
	if math.IsInf(width, 1) {
		width = 1
	}
	return max(beta-hi, lo-beta), width
}

// round moves basic dual variables that are at a bound or at zero, up to rounding, exactly
// there, so that all are within their bounds.
func (d *descent) round() {
	for i, k := range d.basis {
		beta, near := &d.beta[k], d.noise[i]
		switch {
		case *beta-d.lo[k] <= near:
			*beta = d.lo[k]
		case d.hi[k]-*beta <= near:
			*beta = d.hi[k]
		case math.Abs(*beta) <= near:
			*beta = 0
		}
	}
}

// missed counts the hard rows that do not hold.
func (d *descent) missed() int {
	count, top := 0, 1+maxAbs(d.x)
	for k := d.a.m; k < d.a.terms(); k++ {
		r, slack := d.residual[k], feasibility*(math.Abs(d.b[k])+top)
		if r > slack && math.IsInf(d.hi[k], 1) || r < -slack && math.IsInf(d.lo[k], -1) {
			count++
		}
	}
	return count
}

// search takes kinks in their order along the direction until the slope, which grows by
// curvature per step and jumps at each kink, becomes positive. It returns the length of
// the step to there and the number of kinks that it passes, or −1 if the slope stays
// negative. If the step ends at a kink, this term enters the basis: of those within the
// tolerance, the one with the largest pivot (Harris 1973).
func (d *descent) search(slope, curvature, noise float64) (at float64, passed int, enters bool) {
	// A step passes few of many kinks, so a heap is faster than sorting.
	h := d.kinks
	flat := 1e-12*slope - noise
	for i := len(h)/2 - 1; i >= 0; i-- {
		siftDown(h, i)
	}
	d.taken = d.taken[:0]
	take := func() kink {
		c := h[0]
		d.taken = append(d.taken, c)
		h[0] = h[len(h)-1]
		h = h[:len(h)-1]
		siftDown(h, 0)
		return c
	}
	for len(h) > 0 {
		if curvature > 0 && slope+curvature*h[0].at >= 0 {
			break
		}
		c := take()
		lo, hi := d.bounds(c.term)
		move := math.Abs(d.along[c.term])
		if slope += (hi - lo) * move; slope+curvature*c.at < flat {
			continue
		}
		last := len(d.taken) - 1
		best, most := last, 10*move
		for len(h) > 0 && h[0].at-c.at <= d.tolerance/d.edge {
			if other := math.Abs(d.along[take().term]); other > most {
				best, most = len(d.taken)-1, other
			}
		}
		d.taken[last], d.taken[best] = d.taken[best], d.taken[last]
		return d.taken[last].at, last, true
	}
	if curvature > 0 {
		return -slope / curvature, len(d.taken), false
	}
	return 0, -1, false
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
func (d *descent) perturb(random *rand.Rand) {
	for k, r := range d.residual {
		if d.basic[k] || d.lo[k] == d.hi[k] || math.Abs(r) > shift {
			continue
		}
		by := shift * (1 + random.Float64())
		switch d.beta[k] {
		case d.hi[k]:
		case d.lo[k]:
			by = -by
		default:
			continue
		}
		d.shifts[k] += by
		d.residual[k] += by
	}
}
