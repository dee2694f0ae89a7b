package incremental

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"
	"sync"

	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"

	"streamd/incremental/exact"
	"streamd/incremental/gram"
	"streamd/incremental/parallel"
)

// Moments are an immutable copy of the sums of a State's classes in double-double arithmetic (about
// 32 digits), to solve with while the state changes.
type Moments struct {
	features    []string
	classes     []classMoments
	regulariser []float64 // R of w'Rw, packed lower triangle; nil: I
}

type classMoments struct {
	label  string
	rows   int64
	weight double   // Σv
	s      []double // Σvx, n
	cross  []double // Σvxx', packed lower triangle
}

// Moments copies the sums of the state's classes, without Unlabelled, in O(k·n²), on up
// to GOMAXPROCS goroutines.
func (s *State) Moments() *Moments {
	classes := s.classes
	if at, found := s.find(Unlabelled); found {
		classes = slices.Delete(slices.Clone(classes), at, at+1)
	}
	return s.moments(classes)
}

// Scale is Moments.Scale over all rows of the state, also those without a label.
func (s *State) Scale() (mean, sigma []float64) { return s.moments(s.classes).Scale() }

// Mean is the mean of feature j over all rows of the state, also those without a label; 0 if there
// are none. Of whole numbers and rows of weight 1 it is rounded once.
func (s *State) Mean(j int) float64 {
	var first, weight float64
	for _, c := range s.classes {
		x, _ := c.s.Split(j)
		v, _ := c.weight.Split(0)
		first, weight = first+x, weight+v
	}
	if weight == 0 {
		return 0
	}
	return first / weight
}

func (s *State) moments(classes []*classState) *Moments {
	m := &Moments{features: slices.Clone(s.features), classes: make([]classMoments, len(classes))}
	_ = parallel.For(runtime.GOMAXPROCS(0), len(classes), func(i int) error {
		c := classes[i]
		cm := classMoments{label: c.label, rows: c.rows, s: make([]double, c.s.Len()), cross: make([]double, c.cross.Len())}
		cm.weight = s.split(c.weight, 0)
		for j := range cm.s {
			cm.s[j] = s.split(c.s, j)
		}
		for p := range cm.cross {
			cm.cross[p] = s.split(c.cross, p)
		}
		m.classes[i] = cm
		return nil
	})
	return m
}

// split is a sum in double-double arithmetic.
func (s *State) split(v *exact.Vector, i int) (x double) {
	if x.hi, x.lo = v.Split(i); s.scale != 0 {
		x.hi, x.lo = math.Ldexp(x.hi, -s.scale), math.Ldexp(x.lo, -s.scale)
	}
	return x
}

// WithRegulariser returns m with w'Rw instead of ‖w‖² as the size of a plane: every
// solve uses [R 0; 0 1]/ν instead of I/ν. With kernel coordinates K(x, Z) and
// R = K(Z, Z), w'Rw is the squared norm of the plane's function in the kernel's space
// (Wu, Schölkopf and Bakır 2006, 28). r is the packed lower triangle of a positive
// semidefinite n×n matrix and is not copied. Solving then refuses Options.Standardise.
func (m *Moments) WithRegulariser(r []float64) *Moments {
	if n := len(m.features); len(r) != n*(n+1)/2 {
		panic("incremental: a regulariser of another width")
	}
	with := *m
	with.regulariser = r
	return &with
}

// Select returns the moments of some of the features, in an order: feature at[j] becomes feature
// j. They are those of the rows with these columns alone.
func (m *Moments) Select(at []int) *Moments {
	out := &Moments{features: make([]string, len(at)), classes: slices.Clone(m.classes)}
	for j, from := range at {
		out.features[j] = m.features[from]
	}
	if m.regulariser != nil {
		out.regulariser = selectedProducts(m.regulariser, at)
	}
	for i := range out.classes {
		c := &out.classes[i]
		s := c.s
		c.s = make([]double, len(at))
		for j, from := range at {
			c.s[j] = s[from]
		}
		c.cross = selectedProducts(c.cross, at)
	}
	return out
}

// selectedProducts are the products of some features, of a packed lower triangle of those of all.
func selectedProducts[T any](cross []T, at []int) []T {
	out := make([]T, 0, gram.PackedLen(len(at)))
	for j, p := range at {
		for _, q := range at[:j+1] {
			out = append(out, cross[gram.PackedLen(max(p, q))+min(p, q)])
		}
	}
	return out
}

// Regulariser is R of WithRegulariser; nil: I.
func (m *Moments) Regulariser() []float64 { return m.regulariser }

// A ConditionError says that a plane's linear system is too ill-conditioned to
// be solved.
type ConditionError struct {
	Class     string
	Condition float64 // estimate; +Inf: not positive definite in float64
}

func (e *ConditionError) Error() string {
	return fmt.Sprintf("class %q: the linear system is ill-conditioned (condition number about %.1e): standardise the features, drop those that repeat others, or make nu smaller", e.Class, e.Condition)
}

// Solve computes the classifier from the sums, by Options.Solver if there is one, or else as
// follows.
//
// For the plane of class r let d_c = 1 for c = r and −1 otherwise. Let a_c be the weight
// of class c: Options.ClassWeights, times the balancing factor when balanced. That factor
// is Σv of all rows over twice that of class r, or over twice that of all other classes.
// With z = [x; −1] and sums over the rows of class c,
//
// (I/ν + Σ_c a_c Σ v z z') [w; γ] = Σ_c a_c d_c Σ v z
//
// which is Fung 2003, (2.28) without balance, (2.35–2.36) with, and (2.46–2.49) for k
// classes. The weights of (2.34), 1/Σv for each side, add up to 2, so there the same ν
// counts errors Σv/2 times less when balanced. Here the weights of balanced rows add up
// to Σv like those of others, and ν means the same with and without balance. With
// Standardise the system is that of (x − μ)/σ, with the mean μ and the variance σ² of all
// labelled live rows (a constant feature keeps σ = 1 and gets w = 0). The returned w and γ are for
// x.
//
// The matrix is formed in double-double arithmetic, so that centring loses no digits
// that matter. It is scaled by powers of two to a diagonal near 1 and factorised by
// Cholesky in float64. The solution is then refined against the double-double system
// until it is settled beyond float64's last bit.
//
// Solve fails with ErrClasses, with a *ConditionError when the refinement does not
// converge (a condition number of about 10^15; with a regulariser see factoriseExactly), and on
// invalid options. The cost is
// O(n³), once if all planes share their matrix and else per class, and O(n²) per class,
// on up to GOMAXPROCS goroutines.
func (m *Moments) Solve(o Options) (*Model, error) {
	return m.solve(o, nil)
}

// solve is Solve. It calls factorised, unless nil, with each plane whose matrix no
// earlier plane has, from several goroutines.
func (m *Moments) solve(o Options, factorised func(plane int, f *factor, s planeSystem)) (*Model, error) {
	if err := m.accepts(o); err != nil {
		return nil, err
	}
	if len(o.Mean) > 0 {
		models, _, err := m.imputing(o, func(in *Moments, o Options) ([]*Model, error) {
			model, err := in.solve(o, factorised)
			return []*Model{model}, err
		})
		if err != nil {
			return nil, err
		}
		return models[0], nil
	}
	k := len(m.classes)
	if k < 2 {
		return nil, ErrClasses
	}
	if o.Solver != nil {
		models, err := m.solveBy(o, []float64{o.Nu})
		if err != nil {
			return nil, err
		}
		return models[0], nil
	}
	coordinates := m.coordinates(o.Standardise)
	first := firstPlane(k)
	planes, failed := make([]Plane, k-first), make([]error, k-first)
	next, stop := iter.Pull2(m.systems(o, m.parts(coordinates)))
	defer stop()
	var (
		mutex  sync.Mutex // guards next and shared
		shared *factor
	)
	// Systems come in the order of the planes. When one fails, all planes before it have
	// been solved or have failed, so the first failure is always the same one.
	err := parallel.For(runtime.GOMAXPROCS(0), len(planes), func(int) error {
		mutex.Lock()
		r, s, _ := next()
		own := o.Balanced || shared == nil
		if own && !o.Balanced {
			shared = m.factorise(s.matrix, o.Nu) // all others wait for it
		}
		f := shared
		mutex.Unlock()
		if o.Balanced {
			f = m.factorise(s.matrix, o.Nu)
		}
		at, class := r-first, m.classes[r].label
		z, ok := f.solve(s.right)
		if !ok {
			failed[at] = &ConditionError{Class: class, Condition: f.condition}
			return failed[at]
		}
		if factorised != nil && own {
			factorised(at, f, s)
		}
		w, gamma := coordinates.back(z)
		planes[at] = Plane{Class: class, W: w, Gamma: gamma, Condition: f.condition}
		return nil
	})
	if err != nil {
		return nil, failed[slices.IndexFunc(failed, func(err error) bool { return err != nil })]
	}
	model := m.model(o)
	model.Planes = planes
	return model, nil
}

// model returns a model without planes.
func (m *Moments) model(o Options) *Model {
	model := &Model{Features: m.features, Options: o}
	for i := range m.classes {
		model.Classes = append(model.Classes, m.classes[i].label)
		model.Rows = append(model.Rows, m.classes[i].rows)
	}
	model.Mean, model.Deviation = m.meanAndDeviation()
	return model
}

// firstPlane is the first class of k that has a plane.
func firstPlane(k int) int {
	if k == 2 {
		return 1
	}
	return 0
}

func (o Options) check() error {
	if !(o.Nu > 0) || math.IsInf(o.Nu, 0) {
		return fmt.Errorf("ν = %v: it must be positive and finite", o.Nu)
	}
	for class, a := range o.ClassWeights {
		if !(a > 0) || math.IsInf(a, 0) {
			return fmt.Errorf("the weight of class %q is %v: it must be positive and finite", class, a)
		}
	}
	return nil
}

func (m *Moments) accepts(o Options) error {
	if o.Standardise && m.regulariser != nil {
		return errors.New("standardised features have no regulariser of their own")
	}
	return o.check()
}

// ClassWeight is the weight of a class without the balancing factor.
func (o *Options) ClassWeight(class string) float64 {
	if a, ok := o.ClassWeights[class]; ok {
		return a
	}
	return 1
}

// coordinates are x̂ = (x − mean)/scale; both are nil for x̂ = x.
type coordinates struct {
	mean, scale []double
}

// weight is Σv over all rows.
func (m *Moments) weight() (weight double) {
	for i := range m.classes {
		weight = weight.add(m.classes[i].weight)
	}
	return weight
}

// spread returns the mean and the standard deviation of feature j over rows of the given
// weight. The deviation of a constant feature is 0.
func (m *Moments) spread(j int, weight double) (mean, deviation double) {
	var s, q double
	for i := range m.classes {
		s = s.add(m.classes[i].s[j])
		q = q.add(m.classes[i].cross[j*(j+1)/2+j])
	}
	mean = s.div(weight)
	square := q.div(weight)
	variance := square.sub(mean.mul(mean))
	// The variance of a constant feature is the rounding error of its square.
	const constant = 0x1p-98
	if variance.hi > constant*square.hi {
		deviation = variance.sqrt()
	}
	return mean, deviation
}

// meanAndDeviation returns the mean and the standard deviation of every feature over all
// live rows.
func (m *Moments) meanAndDeviation() (mean, deviation []float64) {
	weight := m.weight()
	mean, deviation = make([]float64, len(m.features)), make([]float64, len(m.features))
	for j := range mean {
		mu, sigma := m.spread(j, weight)
		mean[j], deviation[j] = mu.hi, sigma.hi
	}
	return mean, deviation
}

func (m *Moments) coordinates(standardise bool) coordinates {
	if !standardise {
		return coordinates{}
	}
	n := len(m.features)
	x := coordinates{mean: make([]double, n), scale: make([]double, n)}
	weight := m.weight()
	for j := range n {
		x.mean[j], x.scale[j] = m.spread(j, weight)
		if x.scale[j].hi == 0 {
			x.scale[j] = toDouble(1)
		}
	}
	return x
}

// Scale returns the mean μ and the standard deviation σ of every feature over all live
// rows, as Options.Standardise uses them: σ = 1 for a constant feature. Without rows
// both are nil.
func (m *Moments) Scale() (mean, sigma []float64) {
	if len(m.classes) == 0 {
		return nil, nil
	}
	x := m.coordinates(true)
	mean, sigma = make([]float64, len(x.mean)), make([]float64, len(x.mean))
	for j := range mean {
		mean[j], sigma[j] = x.mean[j].hi, x.scale[j].hi
	}
	return mean, sigma
}

// system is Σ v z z' (packed lower triangle, n+1) and Σ v z of one class, or of several
// classes with their class weights.
type system struct {
	matrix []double
	right  []double
	rows   double // Σ v without the class weights
}

// firsts returns the first sums of a class in the coordinates x̂, Σ v z. Its matrix has the
// last element alone.
func (x coordinates) firsts(c *classMoments) system {
	s := system{matrix: []double{c.weight}, right: make([]double, 0, len(c.s)+1), rows: c.weight}
	for j, t := range c.s {
		if x.mean != nil {
			t = t.sub(c.weight.mul(x.mean[j])).div(x.scale[j])
		}
		s.right = append(s.right, t)
	}
	s.right = append(s.right, c.weight.neg())
	return s
}

// part returns the sums of a class in the coordinates x̂.
func (x coordinates) part(c *classMoments) system {
	n := len(c.s)
	s := x.firsts(c)
	first, second := s.right[:n], c.cross
	if x.mean != nil {
		second = make([]double, len(c.cross))
		p := 0
		for j := range n {
			centred := c.s[j].sub(c.weight.mul(x.mean[j]))
			for k := range j + 1 {
				// Σv(x−μ)(x−μ)' = Σvxx' − μ Σvx' − (Σv(x−μ)) μ'
				t := c.cross[p].sub(x.mean[j].mul(c.s[k])).sub(centred.mul(x.mean[k]))
				second[p] = t.div(x.scale[j]).div(x.scale[k])
				p++
			}
		}
	}
	s.matrix = make([]double, 0, len(second)+n+1)
	s.matrix = append(s.matrix, second...)
	for _, t := range first {
		s.matrix = append(s.matrix, t.neg())
	}
	s.matrix = append(s.matrix, c.weight)
	return s
}

func (m *Moments) parts(x coordinates) []system {
	parts := make([]system, len(m.classes))
	for c := range parts {
		parts[c] = x.part(&m.classes[c])
	}
	return parts
}

// back returns the plane x̂'ŵ = γ̂ in the coordinates of x.
func (x coordinates) back(z []double) (w []float64, gamma float64) {
	n := len(z) - 1
	g := z[n]
	w = make([]float64, n)
	for j := range n {
		t := z[j]
		if x.mean != nil {
			t = t.div(x.scale[j])
			g = g.add(t.mul(x.mean[j]))
		}
		w[j] = t.hi
	}
	return w, g.hi
}

// planeSystem is the system of a plane without the regulariser.
type planeSystem struct {
	matrix      []double // Σ_c a_c Σ v z z'
	right       []double // Σ_c a_c d_c Σ v z
	plus, minus double   // balancing factor of a row, for d_c = 1 and −1
	mass        float64  // Σ_c a_c Σ v
}

// systems yields the class and the system of each plane, in order, from the parts of the
// classes, which it changes. Planes that are not balanced share one matrix.
func (m *Moments) systems(o Options, parts []system) iter.Seq2[int, planeSystem] {
	for c := range parts {
		parts[c].times(toDouble(o.ClassWeight(m.classes[c].label)))
	}
	first := firstPlane(len(parts))
	return func(yield func(int, planeSystem) bool) {
		if o.Balanced {
			apart(parts, func(r int, others system) bool {
				return r < first || yield(r, balanced(&parts[r], &others))
			})
			return
		}
		all := sum(parts[0].like(), parts)
		s := planeSystem{matrix: all.matrix, plus: toDouble(1), minus: toDouble(1)}
		for c := range parts {
			s.mass += parts[c].mass().hi
		}
		for r := first; r < len(parts); r++ {
			s.right = make([]double, len(all.right))
			for j, t := range parts[r].right { // the class less all others
				s.right[j] = t.sub(all.right[j].sub(t))
			}
			if !yield(r, s) {
				return
			}
		}
	}
}

// balanced gives each side of a plane half of the total weight.
func balanced(own, others *system) planeSystem {
	all := own.rows.add(others.rows)
	half := double{all.hi / 2, all.lo / 2}
	s := planeSystem{
		matrix: make([]double, len(own.matrix)), right: make([]double, len(own.right)),
		plus: half.div(own.rows), minus: half.div(others.rows),
	}
	for p, t := range others.matrix {
		s.matrix[p] = t.mul(s.minus).add(own.matrix[p].mul(s.plus))
	}
	for j, t := range others.right {
		s.right[j] = own.right[j].mul(s.plus).sub(t.mul(s.minus))
	}
	s.mass = others.mass().mul(s.minus).hi + own.mass().mul(s.plus).hi
	return s
}

// mass is Σ v with the class weights.
func (s *system) mass() double { return s.matrix[len(s.matrix)-1] }

// like is a zero system of the shape of s.
func (s *system) like() system {
	return system{matrix: make([]double, len(s.matrix)), right: make([]double, len(s.right))}
}

// sum adds systems to a zero one.
func sum(zero system, parts []system) system {
	zero.add(parts)
	return zero
}

func (s *system) add(parts []system) {
	for c := range parts {
		for p, t := range parts[c].matrix {
			s.matrix[p] = s.matrix[p].add(t)
		}
		for j, t := range parts[c].right {
			s.right[j] = s.right[j].add(t)
		}
		s.rows = s.rows.add(parts[c].rows)
	}
}

func (s *system) times(a double) {
	for p, t := range s.matrix {
		s.matrix[p] = t.mul(a)
	}
	for j, t := range s.right {
		s.right[j] = t.mul(a)
	}
}

// apart yields each part's index and the sum of all other parts. Subtracting the part
// from the total would lose digits when the part is most of the total, so apart adds
// instead. It descends into halves and adds the sibling half at each level, which takes
// O(n²·k·log k), with log k sums in memory.
func apart(parts []system, yield func(r int, others system) bool) {
	var within func(low, high int, outside system) bool
	within = func(low, high int, outside system) bool {
		if high-low == 1 {
			return yield(low, outside)
		}
		middle := (low + high) / 2
		with := func(parts []system) system {
			s := system{slices.Clone(outside.matrix), slices.Clone(outside.right), outside.rows}
			s.add(parts)
			return s
		}
		return within(low, middle, with(parts[middle:high])) && within(middle, high, with(parts[low:middle]))
	}
	within(0, len(parts), parts[0].like())
}

// factor is a symmetric positive definite system, ready to be solved.
type factor struct {
	matrix    []double  // packed lower triangle, diagonal between 1/4 and 2
	scale     []float64 // powers of two: the solution is scale·(that of matrix)
	cholesky  mat.Cholesky
	ok        bool
	exact     bool      // by factoriseExactly
	inverse   []float64 // then, the diagonal of the inverse of matrix
	condition float64
}

// factorise adds [R 0; 0 1]/ν to a matrix and factorises it. The matrix becomes the
// factor's.
func (m *Moments) factorise(matrix []double, nu float64) *factor {
	n := len(m.features) + 1
	f := &factor{matrix: matrix, scale: make([]float64, n), condition: math.Inf(1)}
	ridge := toDouble(1).div(toDouble(nu))
	for p, r := range m.regulariser {
		f.matrix[p] = f.matrix[p].add(ridge.mul(toDouble(r)))
	}
	for j := range n {
		d := &f.matrix[j*(j+1)/2+j]
		if m.regulariser == nil || j == n-1 {
			*d = d.add(ridge)
		}
		_, exponent := math.Frexp(d.hi)
		f.scale[j] = math.Ldexp(1, -exponent/2)
	}
	dense := mat.NewSymDense(n, nil)
	p := 0
	for j := range n {
		for k := range j + 1 {
			t := &f.matrix[p]
			s := f.scale[j] * f.scale[k]
			t.hi, t.lo = t.hi*s, t.lo*s
			dense.SetSym(j, k, t.hi)
			p++
		}
	}
	if f.ok = f.cholesky.Factorize(dense); f.ok {
		f.condition = f.cholesky.Cond()
	}
	if m.regulariser != nil && !(f.condition < inFloat64) {
		f.factoriseExactly()
	}
	return f
}

// inFloat64 and inDouble bound the condition numbers that a factor in float64 and in double-double
// arithmetic is trusted with.
const inFloat64, inDouble = 0x1p50, 0x1p80

// factoriseExactly is Cholesky's method in double-double arithmetic. A regulariser K(Z, Z) and the
// sums of K(x, Z) have about the square of the condition number of K(Z, Z), too much for float64,
// though the plane's function may be well determined. The factor is rounded at the end alone. Its
// own condition number is the root of the matrix's, so each step of the refinement gains 20 bits
// and more. All processors compute the same bits. It takes n³/6 multiplications in double-double
// arithmetic.
func (f *factor) factoriseExactly() {
	n := len(f.scale)
	l, upper := slices.Clone(f.matrix), mat.NewTriDense(n, mat.Upper, nil)
	f.ok, f.condition = false, math.Inf(1)
	for j := range n {
		row := l[gram.PackedLen(j):][:j+1]
		for k := range row {
			above := l[gram.PackedLen(k):][:k+1]
			t := row[k]
			for i, x := range above[:k] {
				t = t.sub(row[i].mul(x))
			}
			switch {
			case k < j:
				row[k] = t.div(above[k])
			case t.hi > 0:
				row[k] = t.sqrt()
			default:
				return
			}
			upper.SetTri(k, j, row[k].hi)
		}
	}
	f.cholesky.SetFromU(upper)
	f.condition = f.cholesky.Cond()
	if f.exact = f.condition < inDouble; !f.exact {
		return
	}
	f.ok, f.inverse = true, make([]float64, n)
	b := f.whitening() // its columns have the roots of the diagonal as norms, but for the scale
	for j := range n {
		for i := j; i < n; i++ {
			g := b.At(i, j) / f.scale[j]
			f.inverse[j] += float64(g * g)
		}
	}
}

// uncertain is the root of the energy z'Az of the change that rounding of the sums A in float64 may
// make to the solution z of Az = b, relative to that of z. It takes the rounding errors of
// the products A_jk z_k for independent, and neither for smaller nor larger than half a unit.
func (f *factor) uncertain(z, b []double) float64 {
	var change, energy float64
	for j := range z {
		var error float64
		for k := range z {
			e := f.matrix[gram.PackedLen(max(j, k))+min(j, k)].hi * z[k].hi
			error += float64(e * e)
		}
		change += float64(error * f.inverse[j])
		energy += float64(z[j].hi * b[j].hi)
	}
	return 0x1p-53 * math.Sqrt(change/energy)
}

// whitening returns B = L^-1 D for the factor L of the scaled matrix.
func (f *factor) whitening() *mat.TriDense {
	b := new(mat.TriDense)
	f.cholesky.LTo(b)
	_ = b.InverseTri(b) // its error repeats the condition of the factor
	for i := range f.scale {
		for j, scale := range f.scale[:i+1] {
			b.SetTri(i, j, b.At(i, j)*scale)
		}
	}
	return b
}

// solve refines the float64 solution against the double-double system. Each step
// reduces the error by a factor of about condition·2^-53. The refinement is settled
// when a step is below 2^-75 of the largest unknown: that leaves 22 bits below
// float64's last one, so the answer's bits do not depend on how the factor was rounded.
//
// From a condition number of about 2^29 on, the rounding of the residual keeps steps
// above that. Then the refinement ends when a step is not at most half of the previous
// one. It succeeds if that step is below 2^-60, and fails otherwise, because the factor
// in float64 is too far from the matrix. With an exact factor it ends there, too. It fails if
// the steps do not settle, or if the rounding of the sums may change the plane's values on the
// rows by more than an eighth of them.
func (f *factor) solve(b []double) ([]double, bool) {
	if !f.ok {
		return nil, false
	}
	const settled, uncertain = 0x1p-75, 1. / 8
	accepted := 0x1p-60
	if f.exact {
		accepted = 0x1p-30
	}
	n := len(b)
	z := make([]double, n)
	rest := make([]double, n) // b − matrix·z
	for j := range b {
		rest[j] = double{b[j].hi * f.scale[j], b[j].lo * f.scale[j]}
	}
	b = slices.Clone(rest)
	upper := f.cholesky.RawU().(mat.RawTriangular).RawTriangular()
	step := make([]float64, n)
	for last := math.Inf(1); ; {
		for j, t := range rest {
			step[j] = t.hi
		}
		substitute(upper, step)
		var size, largest float64
		for j, d := range step {
			z[j] = z[j].add(toDouble(d))
			size, largest = max(size, math.Abs(d)), max(largest, math.Abs(z[j].hi))
		}
		if size-size != 0 {
			return nil, false
		}
		if size <= settled*largest {
			break
		}
		if size > last/2 {
			if size <= accepted*largest {
				break
			}
			return nil, false
		}
		last = size
		copy(rest, b)
		p := 0
		for j := range n {
			for k := range j {
				h := f.matrix[p].neg()
				rest[j] = rest[j].add(h.mul(z[k]))
				rest[k] = rest[k].add(h.mul(z[j]))
				p++
			}
			rest[j] = rest[j].sub(f.matrix[p].mul(z[j]))
			p++
		}
	}
	if f.exact && !(f.uncertain(z, b) < uncertain) {
		return nil, false
	}
	for j := range z {
		z[j].hi, z[j].lo = z[j].hi*f.scale[j], z[j].lo*f.scale[j]
	}
	return z, true
}

// substitute solves U'Ux = b in place, with the same bits on every processor, as BLAS does not.
func substitute(u blas64.Triangular, x []float64) {
	for i := range x {
		row := u.Data[i*u.Stride:][:len(x)]
		x[i] /= row[i]
		for k := i + 1; k < len(x); k++ {
			x[k] -= float64(row[k] * x[i])
		}
	}
	for i := len(x) - 1; i >= 0; i-- {
		row := u.Data[i*u.Stride:][:len(x)]
		for k := i + 1; k < len(x); k++ {
			x[i] -= float64(row[k] * x[k])
		}
		x[i] /= row[i]
	}
}

// ErrClasses reports that the rows are of fewer than two classes, so no plane can
// separate them.
var ErrClasses = errors.New("the rows are of fewer than two classes")

// Features names the columns.
func (m *Moments) Features() []string { return m.features }

// Classes lists the labels of the summed rows, in canonical order.
func (m *Moments) Classes() []string {
	labels := make([]string, len(m.classes))
	for i := range m.classes {
		labels[i] = m.classes[i].label
	}
	return labels
}
