package newton

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"streamd/incremental"
	"streamd/incremental/exact"
	"streamd/incremental/gram"
	"streamd/incremental/parallel"
)

const (
	// tolerance bounds the gain of another step relative to the objective. It is
	// the rounding error of the objective.
	tolerance = 0x1p-53
	// noise bounds the rounding error of a comparison of two objectives.
	noise  = 0x1p-44
	armijo = 0.1
	// dampingLeast is the least damping that matters beside the identity.
	dampingLeast = 0x1p-4
	// fixed is the number of bits of the largest possible entry of a Hessian.
	fixed = 61
	// largestNumber bounds a feature, less its mean, and the sum of all costs,
	// so that no entry of a Hessian overflows. Blocks hold less than 2^128.
	largestNumber = 0x1p200
	// largestTerm bounds a term of an exact sum, so that exact.Vector.Split has room
	// for the sum of 2^63 terms.
	largestTerm = 0x1p320
)

// minimise moves every plane from its point to the minimum. The rows have been surveyed.
func (s *solver) minimise(ctx context.Context) error {
	for {
		var left []*plane
		for _, p := range s.planes {
			if !p.done {
				left = append(left, p)
			}
		}
		if len(left) == 0 {
			return nil
		}
		if err := s.evaluate(ctx, left); err != nil {
			return err
		}
		if err := parallel.For(s.workers, len(left), func(i int) error { return s.advance(left[i]) }); err != nil {
			return err
		}
	}
}

// survey counts the rows, bounds the columns, and sets up the planes' costs and
// units.
func (s *solver) survey(ctx context.Context) error {
	if s.seen = s.scaling; s.direction != nil {
		s.seen = identity(s.width)
	}
	if blocks, ok := s.rows.(Blocks); ok {
		if err := s.hold(blocks); err != nil {
			return err
		}
	}
	k := len(s.model.Classes)
	s.classRows = make([]int64, k)
	weights := exact.NewVector(k)
	top := make([]float64, s.width)
	err := s.pass(ctx, func(c *chunk, z *scratch) error {
		rows := make([]int64, len(c.class))
		weight := make([]float64, len(c.class))
		for i, code := range c.codes {
			v := 1.0
			if c.weights != nil {
				v = c.weights[i]
			}
			rows[code]++
			weight[code] += v
		}
		largest := make([]float64, s.width)
		for j, column := range c.columns {
			if largest[j] = gram.Largest(column, s.seen.mean[j]); !(largest[j] <= largestNumber) {
				return s.badRow(c)
			}
		}
		s.mutex.Lock()
		defer s.mutex.Unlock()
		for code, class := range c.class {
			switch {
			case rows[code] == 0:
			case class < 0:
				return fmt.Errorf("refine on block %v: %d rows are of a class that the model does not have", c.position, rows[code])
			case !(weight[code] > 0) || !exact.Fits(weight[code]):
				return errRange
			default:
				s.classRows[class] += rows[code]
				weights.Add(class, weight[code])
			}
		}
		for j, t := range largest {
			top[j] = max(top[j], t)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.top, s.classWeight = top, make([]float64, k)
	for c, label := range s.model.Classes {
		if s.classRows[c] == 0 {
			return fmt.Errorf("class %q has no rows to refine on", label)
		}
		s.classWeight[c], _ = weights.Split(c)
	}
	return s.weigh(1)
}

// badRow names the first number in a chunk that is not finite or too large.
func (s *solver) badRow(c *chunk) error {
	bad := (&incremental.Block{Features: s.model.Features, Columns: c.source, Codes: c.codes}).FirstBadRow()
	if bad == nil {
		return errRange
	}
	bad.Row += c.first
	if c.kept != nil {
		bad.Row = c.kept[bad.Row]
	}
	return fmt.Errorf("refine on block %v: %w", c.position, bad)
}

// weigh sets the planes' costs ν·a·u per unit of row weight, and the units of their
// Hessians, from each class's Σv and each column's largest magnitude. ν is ratio times what it was
// at the last call, if there was one.
func (s *solver) weigh(ratio float64) error {
	o := &s.model.Options
	weight, top := s.classWeight, s.top
	k := len(weight)
	cost, rows, mass := make([]float64, k), make([]float64, k), make([]float64, k)
	for c, label := range s.model.Classes {
		u, ok := s.multipliers[label]
		if !ok {
			u = 1
		}
		cost[c], rows[c] = o.Nu*o.ClassWeight(label)*u, float64(u*weight[c])
		mass[c] = float64(cost[c] * weight[c])
	}
	otherRows, otherMass := others(rows), others(mass)
	all := rows[0] + otherRows[0]
	if o.Balanced && s.together {
		for c := range cost {
			cost[c] /= rows[c] / (all / float64(k))
			mass[c] = float64(cost[c] * weight[c])
		}
		otherMass = others(mass)
	}
	for i, p := range s.planes {
		p.index, p.cost, p.own, p.rest = i, cost, 1, 1
		if o.Balanced && s.direction == nil && !s.together { // (2.38) has no balance
			p.own, p.rest = rows[p.class]/(all/2), otherRows[p.class]/(all/2)
		}
		least, most := slices.Min(cost)/max(p.own, p.rest), slices.Max(cost)/min(p.own, p.rest)
		if !(least > 0) || math.IsInf(most, 0) {
			return fmt.Errorf("class %q: the costs of rows, ν·a·u, are from %v to %v: they must be positive and finite", p.label, least, most)
		}
		if err := p.fix(mass[p.class]/p.own+otherMass[p.class]/p.rest, top[p.low:p.high], ratio); err != nil {
			return err
		}
	}
	return nil
}

// others returns, for each number, the sum of all other numbers.
func others(x []float64) []float64 {
	out := make([]float64, len(x))
	var before, after float64
	for i := range x {
		out[i] = before
		before += x[i]
	}
	for i := len(x) - 1; i >= 0; i-- {
		out[i] += after
		after += x[i]
	}
	return out
}

// classCost is the cost C of a row of weight 1.
func (p *plane) classCost(class int) float64 {
	if class == p.class {
		return p.cost[class] / p.own
	}
	return p.cost[class] / p.rest
}

// fix chooses the units of the Hessian's entries so that no entry can overflow its
// integer: |Σ C z_j z_k| ≤ max|z_j| max|z_k| Σ C for any set of active rows. total is
// Σ C of all rows, and top holds max|z_j|. All C are ratio times what they were: where the units
// are, too, the entries stay.
func (h *hessian) fix(total float64, top []float64, ratio float64) error {
	n := len(top)
	if total > largestNumber {
		return errRange
	}
	_, exponent := math.Frexp(total)
	// A smaller Hessian has no effect beside the identity.
	exponent = max(exponent, -600)
	common := math.Ldexp(1, exponent-fixed)
	stay := h.entries != nil && common == h.common*ratio
	if h.common = common; stay {
		h.built *= ratio
		return nil
	}
	h.unit = make([]float64, n+1)
	for j := range n {
		h.unit[j] = 1
		if t := top[j]; t > 0 {
			_, e := math.Frexp(t)
			h.unit[j] = math.Ldexp(1, e)
		}
	}
	h.unit[n] = 1
	h.inverse = make([]float64, n+1)
	for j, u := range h.unit {
		h.inverse[j] = 1 / u
	}
	h.entries = make([]int64, gram.PackedLen(n+1))
	h.rebuild = true
	return nil
}

// evaluate computes the objective, the gradient and the Hessian of each plane at its
// point, in one pass over the rows.
func (s *solver) evaluate(ctx context.Context, planes []*plane) error {
	for _, p := range planes {
		p.sums = exact.NewVector(p.high - p.low + 2 + halvings)
		p.active, p.changed = 0, 0
		if s.chunks == nil || p.rebuild {
			p.rebuild = true
			clear(p.entries)
		}
	}
	err := s.pass(ctx, func(c *chunk, z *scratch) error {
		for _, p := range planes {
			if err := s.visit(p, c, z); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, p := range planes {
		p.collect(s.seen)
	}
	return nil
}

// visit adds a chunk's part to a plane's sums.
func (s *solver) visit(p *plane, c *chunk, z *scratch) error {
	m, n := c.rows(), p.high-p.low
	z.tabulate(p, c)
	residual := z.residual[1][:m]
	var base []float64
	switch {
	case c.held != nil:
		residual = c.held[p.index].residual[1-p.baseAt]
	case p.base != nil:
		base = z.residual[0][:m]
	}
	z.gradient = append(z.gradient[:0], make([]float64, n+1)...)
	var loss float64
	for from := 0; from < m; from += stretchRows {
		to := min(from+stretchRows, m)
		y := z.y[:to-from]
		z.residuals(residual, from, to, c, p, p.point, s.seen)
		part, sum := z.lose(y, residual[from:to], from)
		loss += part
		z.gradient[n] += sum
		gram.AddDots(z.gradient[:n], c.columns[p.low:p.high], from, s.seen.mean[p.low:p.high], y)
		if base != nil {
			z.residuals(base, from, to, c, p, p.base, s.seen)
		}
	}
	var halved [halvings]float64
	if base != nil {
		halved = z.halve(base, residual)
	}
	active, changed, summed := z.compare(p, c, base, residual)
	if summed {
		z.kernel.Sum(z.sums[:], c.columns[p.low:p.high], z.codes[:m], z.weights[:m], s.seen.mean[p.low:p.high])
	}

	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.active += active
	p.changed += changed
	if summed {
		p.hessian.add(&z.sums[0], &z.sums[1])
	}
	return errors.Join(
		addExactly(p.sums, 0, loss),
		addExactly(p.sums, 1, z.gradient...),
		addExactly(p.sums, n+2, halved[:]...),
	)
}

// addExactly adds the terms to the sums from i on.
func addExactly(sums *exact.Vector, i int, terms ...float64) error {
	for k, x := range terms {
		if !(math.Abs(x) < largestTerm) {
			return errRange
		}
		if !exact.Fits(x) {
			// Bits below the lowest one have no effect beside any gradient.
			x = math.RoundToEven(x*0x1p512) * 0x1p-512
		}
		sums.Add(i+k, x)
	}
	return nil
}

// tabulate fills in the costs and the sides of a chunk's rows.
func (z *scratch) tabulate(p *plane, c *chunk) {
	for i, code := range c.codes {
		class := c.class[code]
		z.cost[i], z.side[i] = p.classCost(class), -1
		if class == p.class {
			z.side[i] = 1
		}
		if c.weights != nil {
			z.cost[i] *= c.weights[i]
		}
	}
}

// residuals fills in 1 − d(x'w − γ) of rows from to to−1.
func (z *scratch) residuals(residual []float64, from, to int, c *chunk, p *plane, point []float64, seen scaling) {
	n := p.high - p.low
	z.omega = z.omega[:0]
	for j, w := range point[:n] {
		z.omega = append(z.omega, w/seen.sigma[p.low+j])
	}
	r := residual[from:to]
	for i := range r {
		r[i] = -point[n]
	}
	gram.AddProducts(r, c.columns[p.low:p.high], from, seen.mean[p.low:p.high], z.omega)
	for i, side := range z.side[from:to] {
		r[i] = 1 - float64(side*r[i])
	}
}

// lose returns Σ C r₊² and Σ y over the rows that begin with row from, and fills in
// y = C d r₊. A NaN propagates to the sums, where it is checked.
func (z *scratch) lose(y, r []float64, from int) (loss, sum float64) {
	for i, r := range r {
		y[i] = 0
		if r <= 0 {
			continue
		}
		t := float64(z.cost[from+i] * r)
		loss += float64(t * r)
		t = float64(t * z.side[from+i])
		y[i] = t
		sum += t
	}
	return loss, sum
}

// halve returns Σ C r₊² at ½, ¼, … of the way from the base to the point. A row that is
// active at both ends is active between them, where its loss is quadratic.
func (z *scratch) halve(base, point []float64) (halved [halvings]float64) {
	var square, cross, step float64
	for i, b := range base {
		q := point[i]
		if b <= 0 && q <= 0 {
			continue
		}
		t, d := z.cost[i], q-b
		if b > 0 && q > 0 {
			square += float64(t * float64(b*b))
			cross += float64(t * float64(b*d))
			step += float64(t * float64(d*d))
			continue
		}
		for h := range halved {
			d /= 2
			if r := b + d; r > 0 {
				halved[h] += float64(t * float64(r*r))
			}
		}
	}
	t := 1.0
	for h := range halved {
		t /= 2
		halved[h] += square + float64(2*t*cross) + float64(t*t*step)
	}
	return halved
}

// compare counts the active rows and the rows that have become active or inactive. It
// prepares the kernel's input: rows to add to the Hessian have code 0, rows to subtract
// have code 1. A rebuild adds all active rows.
func (z *scratch) compare(p *plane, c *chunk, base, residual []float64) (active, changed int64, summed bool) {
	for i, r := range residual {
		is, was := r > 0, false
		switch {
		case c.held != nil:
			was = c.held[p.index].active[i]
			c.held[p.index].active[i] = is
		case base != nil:
			was = base[i] > 0
		}
		if is {
			active++
		}
		if is != was {
			changed++
		}
		if p.rebuild {
			was = false
		}
		z.weights[i] = 0
		if is != was {
			summed = true
			z.weights[i] = z.cost[i]
			z.codes[i] = 0
			if was {
				z.codes[i] = 1
			}
		}
	}
	return active, changed, summed
}

// add adds the sums of added rows and subtracts those of removed rows.
func (h *hessian) add(added, removed *gram.Sums) {
	n := len(h.unit) - 1
	at := 0
	add := func(j int, plus, minus []float64) {
		row := h.entries[at : at+j+1]
		at += j + 1
		inverse := 1 / (h.unit[j] * h.common)
		for k, u := range h.inverse[:len(row)] {
			var t float64
			if plus != nil {
				t = plus[k]
			}
			if minus != nil {
				t -= minus[k]
			}
			row[k] += int64(t * inverse * u)
		}
	}
	for j := range n {
		from, to := gram.PackedLen(j), gram.PackedLen(j+1)
		var plus, minus []float64
		if added.Rows > 0 {
			plus = added.Cross[from:to]
		}
		if removed.Rows > 0 {
			minus = removed.Cross[from:to]
		}
		add(j, plus, minus)
	}
	var last [2][]float64
	for i, sums := range []*gram.Sums{added, removed} {
		if sums.Rows == 0 {
			continue
		}
		for _, t := range sums.S {
			last[i] = append(last[i], -t)
		}
		last[i] = append(last[i], sums.Weight)
	}
	add(n, last[0], last[1])
}

// collect turns the sums of a pass into the objective and its gradient.
func (p *plane) collect(seen scaling) {
	n := p.high - p.low
	value := func(i int) float64 {
		hi, _ := p.sums.Split(i)
		return hi
	}
	p.objective = (value(0) + p.size.of(p.point)) / 2
	p.gradient = slices.Clone(p.size.times(p.point))
	for j := range n {
		p.gradient[j] -= value(1+j) / seen.sigma[p.low+j]
	}
	p.gradient[n] += value(1 + n)
	if p.base != nil {
		for h := range p.halved {
			p.halved[h] = value(n + 2 + h)
		}
	}
}

// A size is R of w'Rw + γ², a packed lower triangle; nil: I.
type size []float64

// of is w'Rw + γ².
func (r size) of(z []float64) float64 {
	if r == nil {
		return square(z)
	}
	var sum float64
	for j, x := range r.times(z) {
		sum += float64(x * z[j])
	}
	return sum
}

// times is [Rw; γ].
func (r size) times(z []float64) []float64 {
	if r == nil {
		return z
	}
	n := len(z) - 1
	out := make([]float64, n+1)
	out[n] = z[n]
	at := 0
	for j := range n {
		for k := range j {
			out[j] += float64(r[at] * z[k])
			out[k] += float64(r[at] * z[j])
			at++
		}
		out[j] += float64(r[at] * z[j])
		at++
	}
	return out
}

func square(x []float64) (sum float64) {
	for _, v := range x {
		sum += float64(v * v)
	}
	return sum
}

// advance accepts or rejects the point of a pass and sets the next one.
func (s *solver) advance(p *plane) error {
	moved := p.base != nil
	if moved && !p.descends(p.objective, p.scale) {
		return s.shorten(p)
	}
	full := moved && p.scale == 1 && p.damped == 0
	if moved {
		p.damp()
	}
	p.base, p.baseObjective = p.point, p.objective
	p.norm = norm(p.gradient)
	p.baseAt = 1 - p.baseAt
	before, wasSettled, same := p.decrement, p.settled, full && p.changed == 0
	if fresh := p.rebuild; (!same || fresh) && !p.factorise(s.seen) {
		if fresh {
			return &incremental.ConditionError{Class: p.label, Condition: p.condition}
		}
		// The rounding errors of removed rows may have spoilt it, so rebuild it.
		p.rebuild, p.point, p.base = true, p.base, nil
		return nil
	}
	p.solve()
	p.decrement = -p.slope / 2
	p.settled = p.damped == 0 && p.decrement <= tolerance*p.baseObjective
	switch {
	case s.coarse && p.damped == 0 && p.decrement <= coarse*p.baseObjective:
		p.step(1) // it is there, and brings the plane nearer
		p.base, p.done = p.point, true
		return nil
	case p.size == nil && p.norm*p.norm/2 <= tolerance*p.baseObjective,
		p.settled && same,
		p.settled && wasSettled && full:
		p.done = true
		return nil
	case same && !(p.decrement <= before/4):
		// The quadratic is the same as before, so steps should settle. The
		// factor or the gradient is not accurate enough.
		return p.stalled()
	case p.iterations == s.limit:
		return &LimitError{p.report()}
	}
	p.iterations++
	p.step(1)
	return nil
}

// damp chooses μ from the last step. A step that had to be shortened to t met rows with
// 1/t times the curvature of the Hessian along it. They would shorten the next step,
// too.
func (p *plane) damp() {
	switch {
	case p.scale < 1:
		p.damping += -p.slope * (1/p.scale - 1) / p.size.of(p.direction)
	case p.changed == 0 || p.damping < dampingLeast:
		p.damping = 0
	default:
		p.damping /= 4
	}
}

// descends is Armijo's rule for the point at scale along the direction, with room for
// rounding.
func (p *plane) descends(objective, scale float64) bool {
	return objective <= p.baseObjective+float64(armijo*scale*p.slope)+noise*p.baseObjective
}

// step sets the point at scale along the direction.
func (p *plane) step(scale float64) {
	p.scale = scale
	p.point = make([]float64, len(p.base))
	for j := range p.point {
		p.point[j] = p.base[j] + float64(scale*p.direction[j])
	}
}

// shorten sets the point to the best halving of a step. It needs no pass over the
// columns.
func (s *solver) shorten(p *plane) error {
	if s.chunks != nil {
		sums := exact.NewVector(halvings)
		var z scratch
		for _, c := range s.chunks {
			z.tabulate(p, c)
			h := &c.held[p.index]
			halved := z.halve(h.residual[p.baseAt], h.residual[1-p.baseAt])
			if err := addExactly(sums, 0, halved[:]...); err != nil {
				return err
			}
		}
		for h := range p.halved {
			p.halved[h], _ = sums.Split(h)
		}
	}
	scale := p.scale
	best, least := 0.0, math.Inf(1)
	for _, loss := range p.halved {
		scale /= 2
		p.step(scale)
		if f := (loss + p.size.of(p.point)) / 2; f < least && p.descends(f, scale) {
			best, least = scale, f
		}
	}
	switch {
	case best > 0:
		p.step(best)
	case scale > 0x1p-60:
		p.step(scale / 2)
	default:
		return p.stalled()
	}
	return nil
}

// factorise adds 1 + μ times the regulariser to the Hessian, scales it to a diagonal near 1 and
// factorises it. It reports whether the matrix is positive definite.
func (p *plane) factorise(seen scaling) bool {
	n := p.high - p.low + 1
	unit := p.coordinates(seen.sigma[p.low:p.high])
	data := make([]float64, n*n) // SymDense reads the upper triangle
	p.equil = make([]float64, n)
	at := 0
	for j := range n {
		for k := range j + 1 {
			data[k*n+j] = float64(p.entries[at]) * p.common * unit[j] * unit[k]
			if p.size != nil && j < n-1 {
				data[k*n+j] += (1 + p.damping) * p.size[at]
			}
			at++
		}
		d := data[j*n+j]
		if p.size == nil || j == n-1 {
			d = d + 1 + p.damping
		}
		_, exponent := math.Frexp(d)
		p.equil[j] = math.Ldexp(1, -exponent/2)
		for k := range j {
			data[k*n+j] *= p.equil[j] * p.equil[k]
		}
		data[j*n+j] = d * p.equil[j] * p.equil[j]
	}
	p.condition, p.damped = math.Inf(1), p.damping
	if !p.factor.Factorize(mat.NewSymDense(n, data)) {
		return false
	}
	p.condition = p.factor.Cond()
	// When most of the weight has been subtracted, the difference has lost digits.
	active := float64(p.entries[at-1]) * p.common
	if p.rebuild {
		p.built = active
	}
	p.rebuild = active < p.built/4
	return true
}

// coordinates are the units of the columns [w; γ] in scaled coordinates.
func (h *hessian) coordinates(sigma []float64) []float64 {
	unit := slices.Clone(h.unit)
	for j, t := range sigma {
		unit[j] /= t
	}
	return unit
}

// apply solves the factorised system for a right side.
func (s *system) apply(right []float64) []float64 {
	x := mat.NewVecDense(len(right), nil)
	for j, t := range right {
		x.SetVec(j, t*s.equil[j])
	}
	_ = s.factor.SolveVecTo(x, x) // its error repeats the condition
	out := x.RawVector().Data
	for j := range out {
		out[j] *= s.equil[j]
	}
	return out
}

// solve sets the direction to the Newton step.
func (p *plane) solve() {
	p.direction = p.apply(p.gradient)
	p.slope = 0
	for j, g := range p.gradient {
		p.direction[j] = -p.direction[j]
		p.slope += float64(p.direction[j] * g)
	}
}
