package newton

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"gonum.org/v1/gonum/mat"

	"streamd/incremental"
	"streamd/incremental/exact"
	"streamd/incremental/gram"
)

const (
	// MostLogistic is the most numbers of all planes together, k(n+1), for Logistic. The
	// square of it is the size of the Hessian: 32 MiB.
	MostLogistic = 2048
	// negligible weights of the Hessian, relative to the row's cost, are left out: those of rows
	// that are clear.
	negligible = 0x1p-40
	// least is the weight of such a row that stays beside others. It moves no step.
	least = 0x1p-80
	// apart is the weight of a row for two planes, relative to the largest, below which it is left
	// out. The Hessian stays positive definite: it becomes a little larger.
	apart = 0x1p-12
	// contraction is the least by which a step has to lower the decrement that the Hessian stays.
	// A pass that sums it takes as long as several others.
	contraction = 1. / 3
	// remembered steps correct a Hessian.
	remembered = 12
	// settled is the decrement, relative to the objective, at which Logistic is done. Steps
	// contract less than Newton's, so it is below tolerance.
	settled = 0x1p-60
	// coarse is the share of the objective that Options.Coarse leaves.
	coarse = 0x1p-44
)

// joint is the search for all planes together. Points, gradients and steps are the planes'
// numbers [w; γ], one plane after the other.
type joint struct {
	s       *solver
	numbers int          // of a plane: n + 1
	plane   []int        // of each class; −1: the class has none, and the score 0
	cross   [][]*hessian // [r][s] for s < r: Σ C p_r p_s z z'. The plane r has Σ C p_r (1 − p_r) z z'

	mutex     sync.Mutex
	sums      *exact.Vector // Σ C ℓ and its gradient
	objective float64
	gradient  []float64

	kept   bool         // there are sums of a Hessian
	factor mat.Cholesky // of it
	steps  []secant     // since it was summed, the last ones
}

// A secant is a step and the change of the gradient along it.
type secant struct {
	step, change []float64
	curvature    float64
}

// joint begins the search at the planes' points.
func (s *solver) joint(ctx context.Context) (j *joint, point []float64, err error) {
	k := len(s.planes)
	j = &joint{s: s, numbers: s.width + 1, plane: make([]int, len(s.model.Classes))}
	if size := k * j.numbers; size > MostLogistic {
		return nil, nil, fmt.Errorf("refine %d planes of %d features together: these are %d numbers, at most %d go: use full", k, s.width, size, MostLogistic)
	}
	s.together = true
	if err := s.survey(ctx); err != nil {
		return nil, nil, err
	}
	for c := range j.plane {
		j.plane[c] = -1
	}
	for r, p := range s.planes {
		j.plane[p.class] = r
		point, p.rebuild = append(point, p.point...), false // rebuild is for rows that are active
		j.cross = append(j.cross, make([]*hessian, r))
		for other := range r {
			// All planes have the same costs, and so the same units.
			j.cross[r][other] = &hessian{entries: make([]int64, len(p.entries)), unit: p.unit, inverse: p.inverse, common: p.common}
		}
	}
	return j, j.centred(point), nil
}

// minimise is Newton's method with Armijo's rule. A Hessian stays while the steps contract,
// corrected by these (limited-memory BFGS, Nocedal 1980): a pass without it takes a fraction of the
// time. It is summed in every pass over rows that are not in memory, which take more time to read.
func (j *joint) minimise(ctx context.Context, point []float64) error {
	var base, direction, before []float64 // the last accepted point, the step from it, and its gradient
	var objective, slope float64          // at the base
	scale, iterations := 1.0, 0
	enough := settled
	if j.s.coarse {
		enough = coarse
	}
	sum := !j.kept // the next pass sums the Hessian
	for {
		if err := j.evaluate(ctx, point, sum); err != nil {
			return err
		}
		moved := base != nil
		if moved && !(j.objective <= objective+float64(armijo*scale*slope)+noise*objective) {
			if scale /= 2; scale < 0x1p-60 {
				return j.s.planes[0].stalled()
			}
			point, sum = j.centred(along(base, direction, scale)), j.s.chunks == nil
			continue
		}
		if scale < 1 && !sum { // where the step had to be shortened, the Hessian is another one
			sum = true
			continue
		}
		if sum || !moved {
			if sum {
				j.kept, j.steps = true, nil
			}
			if err := j.factorise(); err != nil {
				return err
			}
		} else {
			j.remember(secant{step: along(point, base, -1), change: along(j.gradient, before, -1)})
		}
		last := -slope / 2
		base, objective, before = point, j.objective, j.gradient
		direction = j.newton()
		slope = dot(direction, j.gradient)
		j.settle(base, iterations)
		decrement := -slope / 2
		slow := moved && !(decrement <= contraction*last)
		switch {
		case decrement <= enough*objective:
			// The step is there, and brings the planes nearer without a gain to be seen.
			j.settle(j.centred(along(base, direction, 1)), iterations)
			return nil
		case slow && scale == 1 && sum && last <= noise*objective:
			// Steps this small should settle. The gradient is not accurate enough.
			return j.s.planes[0].stalled()
		case iterations == j.s.limit:
			return &LimitError{j.s.planes[0].report()}
		}
		sum = slow || j.s.chunks == nil
		iterations++
		scale = 1
		point = j.centred(along(base, direction, scale))
	}
}

// centred subtracts their mean from the planes, if there are several. That changes no
// probability, and makes the planes shorter: at the minimum they add up to zero.
func (j *joint) centred(point []float64) []float64 {
	k := len(j.s.planes)
	for f := 0; k > 1 && f < j.numbers; f++ {
		var sum float64
		for r := range k {
			sum += point[r*j.numbers+f]
		}
		for r := range k {
			point[r*j.numbers+f] -= sum / float64(k)
		}
	}
	return point
}

// along returns the point at scale along the direction.
func along(base, direction []float64, scale float64) []float64 {
	point := make([]float64, len(base))
	for i := range point {
		point[i] = base[i] + float64(scale*direction[i])
	}
	return point
}

// settle hands an accepted point to the planes.
func (j *joint) settle(point []float64, iterations int) {
	for r, p := range j.s.planes {
		p.base = point[r*j.numbers:][:j.numbers]
		p.baseObjective, p.norm, p.iterations, p.active = j.objective, norm(j.gradient), iterations, j.s.total()
		p.gap = p.norm * p.norm / 2 // with the dual variables C (y − p)
	}
}

// evaluate computes the objective, the gradient and, if wanted, the Hessian at a point, in one
// pass over the rows.
func (j *joint) evaluate(ctx context.Context, point []float64, hessian bool) error {
	j.sums = exact.NewVector(1 + len(point))
	for r, p := range j.s.planes {
		if !hessian {
			break
		}
		clear(p.entries)
		for _, h := range j.cross[r] {
			clear(h.entries)
		}
	}
	if err := j.s.pass(ctx, func(c *chunk, z *scratch) error { return j.visit(point, hessian, c, z) }); err != nil {
		return err
	}
	value := func(i int) float64 {
		hi, _ := j.sums.Split(i)
		return hi
	}
	j.objective = value(0) + square(point)/2
	j.gradient = make([]float64, len(point))
	for i := range point {
		j.gradient[i] = value(1 + i)
		if f := i % j.numbers; f < j.s.width {
			j.gradient[i] /= j.s.seen.sigma[f]
		}
		j.gradient[i] += point[i]
	}
	return nil
}

// visit adds a chunk's part to the sums.
func (j *joint) visit(point []float64, hessian bool, c *chunk, z *scratch) error {
	m, n, k := c.rows(), j.s.width, len(j.s.planes)
	z.likely = grown(z.likely, k*m)
	z.gradient = grown(z.gradient, len(point))
	clear(z.gradient)
	for i, code := range c.codes {
		z.cost[i] = j.s.planes[0].cost[c.class[code]]
		if c.weights != nil {
			z.cost[i] *= c.weights[i]
		}
	}
	var loss float64
	for from := 0; from < m; from += stretchRows {
		to := min(from+stretchRows, m)
		for r := range k {
			s := z.likely[r*m:][from:to]
			for i := range s {
				s[i] = -point[r*j.numbers+n]
			}
			z.omega = z.omega[:0]
			for f, w := range point[r*j.numbers:][:n] {
				z.omega = append(z.omega, w/j.s.seen.sigma[f])
			}
			gram.AddProducts(s, c.columns, from, j.s.seen.mean, z.omega)
		}
		for i := from; i < to; i++ {
			t, missed := normalise(z.likely[i:], m, k, j.plane[c.class[c.codes[i]]])
			loss += float64(z.cost[i] * t)
			z.missed[i-from] = missed
		}
		for r := range k {
			y, p, sum := z.y[:to-from], z.likely[r*m:][from:to], 0.0
			for i := range y {
				t := p[i]
				if j.plane[c.class[c.codes[from+i]]] == r {
					t = -z.missed[i]
				}
				y[i] = float64(t * z.cost[from+i])
				sum += y[i]
			}
			gradient := z.gradient[r*j.numbers:][:j.numbers]
			gram.AddDots(gradient[:n], c.columns, from, j.s.seen.mean, y)
			gradient[n] -= sum
		}
	}
	for r := range k {
		for other := 0; hessian && other <= r; other++ {
			j.weigh(c, z, r, other)
		}
	}
	j.mutex.Lock()
	defer j.mutex.Unlock()
	return errors.Join(addExactly(j.sums, 0, loss), addExactly(j.sums, 1, z.gradient...))
}

// normalise turns the scores of a row, one for each plane at distances of m, into
// probabilities. It returns the loss −log p and 1 − p of the row's class, both to full
// precision where p is near 1. own is the plane of the class, −1 for the one of two classes
// that has the score 0.
func normalise(scores []float64, m, planes, own int) (loss, missed float64) {
	var most, score float64
	if planes > 1 {
		most = math.Inf(-1)
	}
	for r := range planes {
		most = max(most, scores[r*m])
	}
	if own >= 0 {
		score = scores[own*m]
	}
	var others float64
	if planes == 1 && own >= 0 {
		others = math.Exp(-most)
	}
	for r := range planes {
		e := math.Exp(scores[r*m] - most)
		scores[r*m] = e
		if r != own {
			others += e
		}
	}
	right := math.Exp(score - most)
	for r := range planes {
		scores[r*m] /= right + others
	}
	if score == most {
		loss = math.Log1p(others)
	} else {
		loss = most - score + math.Log(right+others)
	}
	return loss, others / (right + others)
}

// weigh adds a chunk's part to the Hessian's block of two planes.
func (j *joint) weigh(c *chunk, z *scratch, r, other int) {
	m := c.rows()
	p, q := z.likely[r*m:][:m], z.likely[other*m:][:m]
	left := 0
	for i, t := range p {
		h := q[i]
		if r == other {
			h = 1 - t
		}
		if h *= t; !(h >= negligible) {
			h = least
			left++
		}
		z.weights[i] = float64(h * z.cost[i])
	}
	if left == m {
		return
	}
	lowest := 0.0
	if r != other {
		left, lowest = 0, apart*slices.Max(z.weights[:m])
		for _, h := range z.weights[:m] {
			if h < lowest {
				left++
			}
		}
	}
	if 4*left > m { // taking few rows out takes longer than their products
		for i, h := range z.weights[:m] {
			if h < max(lowest, negligible*z.cost[i]) {
				z.weights[i] = 0
			}
		}
	}
	clear(z.codes[:m])
	z.kernel.Sum(z.sums[:1], c.columns, z.codes[:m], z.weights[:m], j.s.seen.mean)
	block := &j.s.planes[r].hessian
	if r != other {
		block = j.cross[r][other]
	}
	z.sums[1] = gram.Sums{}
	j.mutex.Lock()
	defer j.mutex.Unlock()
	block.add(&z.sums[0], &z.sums[1])
}

// factorise takes the sums of a pass for the Hessian of the next steps.
func (j *joint) factorise() error {
	if j.factor.Factorize(j.matrix()) {
		j.s.planes[0].condition = j.factor.Cond()
		return nil
	}
	return &incremental.ConditionError{Class: j.s.planes[0].label, Condition: math.Inf(1)}
}

// remember keeps a step along which the gradient has grown, and forgets the oldest one.
func (j *joint) remember(s secant) {
	if s.curvature = dot(s.step, s.change); !(s.curvature > 0) {
		return
	}
	if len(j.steps) == remembered {
		j.steps = j.steps[1:]
	}
	j.steps = append(j.steps, s)
}

// newton is the step that the Hessian and the steps since predict. It is always one of descent.
func (j *joint) newton() []float64 {
	direction := along(make([]float64, len(j.gradient)), j.gradient, -1)
	part := make([]float64, len(j.steps))
	for i, s := range slices.Backward(j.steps) {
		part[i] = dot(s.step, direction) / s.curvature
		direction = along(direction, s.change, -part[i])
	}
	x := mat.NewVecDense(len(direction), direction)
	_ = j.factor.SolveVecTo(x, x) // its error repeats the condition
	for i, s := range j.steps {
		direction = along(direction, s.step, part[i]-dot(s.change, direction)/s.curvature)
	}
	return direction
}

// matrix is I + ∇²Σ C ℓ.
func (j *joint) matrix() *mat.SymDense {
	size := len(j.gradient)
	data := make([]float64, size*size) // SymDense reads the upper triangle
	fill := func(h *hessian, r, s int, sign float64) {
		at := 0
		unit := h.coordinates(j.s.seen.sigma)
		for f := range unit {
			for g := range f + 1 {
				t := sign * float64(h.entries[at]) * h.common * unit[f] * unit[g]
				data[(s*j.numbers+g)*size+r*j.numbers+f] = t
				data[(s*j.numbers+f)*size+r*j.numbers+g] = t
				at++
			}
		}
	}
	for r, p := range j.s.planes {
		fill(&p.hessian, r, r, 1)
		for s, h := range j.cross[r] {
			fill(h, r, s, -1)
		}
	}
	for i := range size {
		data[i*size+i]++
	}
	return mat.NewSymDense(size, data)
}

// grown returns a slice of that length, x if it has room.
func grown(x []float64, n int) []float64 {
	if cap(x) < n {
		return make([]float64, n)
	}
	return x[:n]
}
