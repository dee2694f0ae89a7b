package reduce

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"

	"streamd/incremental/gram"
	"streamd/kernels"
	"streamd/kernels/lp"
)

// A Problem is a sample of labelled rows and the size of the basis to choose.
type Problem struct {
	Columns []gram.Column // n columns of m finite numbers
	Codes   []int32       // m classes, from 0 to Classes−1
	Classes int
	// Weights holds m finite numbers ≥ 0; nil: all are 1. A row of weight 0 is
	// ignored. Weights multiply the errors of the 1-norm program and count in
	// centres and in correctness. Subsets are drawn without regard to them.
	Weights []float64

	Kernel kernels.Kernel
	Points int // t ≥ 1: there are no more coordinates, but perhaps fewer
	Seed   uint64
	// PointsOnly: the caller has no use for planes. Reducers that choose points without them then
	// return neither planes nor stages, and save k programs of all rows.
	PointsOnly bool

	// Workers is the number of goroutines; 0: GOMAXPROCS. The result does not
	// depend on it.
	Workers int
	// Progress, if any, is called with each stage's report when the stage is
	// done, on the goroutine of Reduce.
	Progress func(Stage)
}

// A Reducer chooses a basis. It is a value and may be shared.
type Reducer interface {
	// Reduce returns a basis of 1 to p.Points coordinates and a classifier on it (see
	// PointsOnly). The result is a function of the reducer and the problem, including its Seed and
	// the order of its rows.
	//
	// When ctx ends before there is any classifier, Reduce returns ctx's error. When
	// it ends later, Reduce returns the best classifier so far, marked as
	// Interrupted. Fewer than two classes with rows of positive weight (ErrClasses),
	// too few rows for a point (ErrRows), and fewer points than planes are errors.
	Reduce(ctx context.Context, p *Problem) (*Result, error)
}

// A Result is a basis with classifiers.
type Result struct {
	Features int       // n
	Points   int       // t
	Z        []float64 // t×n, point by point; no two are the same
	// Projection is the matrix of kernels.Map.Projected, to at most as many coordinates as
	// the problem has points; nil: the coordinates are those of the points.
	Projection []float64
	Planes     []Plane // see the package's comment
	Stages     []Stage // the report
	// Interrupted: the context ended before the last stage was done.
	Interrupted bool
}

// Map returns the map to the coordinates of the basis, for the kernel of the problem.
func (r *Result) Map(kernel kernels.Kernel) (*kernels.Map, error) {
	m, err := kernels.NewMap(kernel, r.Features, r.Z)
	if err == nil && r.Projection != nil {
		m, err = m.Projected(r.Projection)
	}
	return m, err
}

// A Plane is the one-vs-rest classifier of a class: a row with coordinates k, K(x, Z) or their
// projection, is on the class's side if k'u − γ ≥ 0.
type Plane struct {
	Class int
	U     []float64 // one for each coordinate
	Gamma float64
}

// A Stage reports on one stage of one plane. The figures of a step are means
// over the runs of the stage.
type Stage struct {
	Class         int // the class of the plane
	Stage         int // 0, 1, …
	Rows          int // training rows of each run
	Runs          int
	Nu            float64 // ν of the programs
	Candidates    int     // points that the classifier (b) could choose from
	Classifier    Step    // (b), LP(Y, C); zero for given points
	Approximation Step    // (c), NLP(u, C, t); zero if (b) had at most t points
	Reduced       Step    // (d), LP(Y, Z)
}

// A Step is one step of a stage. Correctness is a share, from 0 to 1.
type Step struct {
	Points         float64 // points with a coefficient other than 0
	Training       float64 // correctness on the training rows
	Testing        float64 // correctness on the test rows
	SupportVectors float64 // training rows with a positive dual variable
	// Unconverged is the number of programs that reached a limit.
	Unconverged int
	// Error is ‖u f(C) − w f(Z)‖/‖u f(C)‖, for an approximation.
	Error float64
}

var (
	// ErrClasses reports that fewer than two classes have rows.
	ErrClasses = errors.New("a basis needs rows of two classes or more")

	// ErrRows reports that there are too few rows for a single point.
	ErrRows = errors.New("too few rows for a basis")
)

// A sample is a checked Problem.
type sample struct {
	*Problem
	live    []int // rows of positive weight
	planes  []int // the positive class of each plane
	workers int
}

func newSample(p *Problem) (*sample, error) {
	s := &sample{Problem: p, workers: p.Workers}
	if s.workers <= 0 {
		s.workers = runtime.GOMAXPROCS(0)
	}
	m := len(p.Codes)
	if p.Weights != nil && len(p.Weights) != m {
		panic(fmt.Sprintf("reduce: %d weights for %d rows", len(p.Weights), m))
	}
	for j, c := range p.Columns {
		if c.Len() != m {
			panic(fmt.Sprintf("reduce: column %d has %d of %d rows", j, c.Len(), m))
		}
	}
	if len(p.Columns) == 0 {
		return nil, errors.New("a basis needs rows of one feature or more")
	}
	rows := make([]int, p.Classes)
	for i, code := range p.Codes {
		if p.Weights == nil || p.Weights[i] > 0 {
			s.live = append(s.live, i)
			rows[code]++
		}
	}
	present := 0
	for class, count := range rows {
		if count > 0 {
			present++
			s.planes = append(s.planes, class)
		}
	}
	if present < 2 {
		return nil, ErrClasses
	}
	if present == 2 {
		s.planes = s.planes[1:]
	}
	if p.Points < len(s.planes) {
		return nil, fmt.Errorf("a basis of %d points is too small for %d planes: one point for each is the least", p.Points, len(s.planes))
	}
	return s, nil
}

// random returns the random source of the given numbers. Sources of different numbers are
// independent.
func (s *sample) random(numbers ...int) *rand.Rand {
	stream := uint64(0)
	for _, k := range numbers {
		stream = stream<<16 | uint64(k)
	}
	return rand.New(rand.NewPCG(s.Seed, stream))
}

// point appends row i to z.
func (s *sample) point(z []float64, i int) []float64 {
	for _, c := range s.Columns {
		z = append(z, c.At(i))
	}
	return z
}

// rows are some rows of the sample with their sides of a plane.
type rows struct {
	columns []gram.Column
	d       []float64 // ±1
	weights []float64 // nil: 1 each
}

// side is 1 for row i on the positive side, and 0 otherwise.
func (r *rows) side(i int) int {
	if r.d[i] > 0 {
		return 1
	}
	return 0
}

// take returns some rows with their sides. It copies them unless they are all rows.
func (s *sample) take(which []int, class int) rows {
	var r rows
	if len(which) == len(s.Codes) {
		r.columns = s.Columns
	} else {
		r.columns = pick(s.Columns, which)
	}
	r.d = make([]float64, len(which))
	if s.Weights != nil {
		r.weights = make([]float64, len(which))
	}
	for k, i := range which {
		r.d[k] = -1
		if int(s.Codes[i]) == class {
			r.d[k] = 1
		}
		if s.Weights != nil {
			r.weights[k] = s.Weights[i]
		}
	}
	return r
}

// pick copies some rows, in their order.
func pick(columns []gram.Column, which []int) []gram.Column {
	m := len(which)
	picked, numbers := make([]gram.Column, len(columns)), make([]float64, m*len(columns))
	for j, c := range columns {
		v := numbers[j*m:][:m:m]
		for k, i := range which {
			v[k] = c.At(i)
		}
		picked[j] = gram.ColumnOf(v)
	}
	return picked
}

// A classifier is K(x, Z)u − γ.
type classifier struct {
	z, u      []float64
	gamma     float64
	objective float64 // of its program
	step      Step
}

// classify solves LP(r, Z), the 1-norm program (1), and reports on it.
func (s *sample) classify(ctx context.Context, r, tests rows, z []float64, nu float64, workers int) (*classifier, error) {
	m, err := kernels.NewMap(s.Kernel, len(s.Columns), z)
	if err != nil {
		return nil, err
	}
	c, err := classifyIn(ctx, kernels.NewMapper(m).Map(r.columns), r, nu, workers)
	if err != nil {
		return nil, err
	}
	c.z = z
	c.step.Testing, err = s.test(tests, z, c.u, c.gamma)
	return c, err
}

// classifyIn solves the 1-norm program in the coordinates k of the rows.
func classifyIn(ctx context.Context, k []gram.Column, r rows, nu float64, workers int) (*classifier, error) {
	program := lp.Program{Columns: k, D: r.d, Nu: nu, Costs: r.weights}
	solution, err := program.Solve(ctx, workers)
	if err != nil && !(errors.Is(err, lp.ErrNotConverged) && solution != nil) {
		return nil, fmt.Errorf("LP of %d rows and %d coordinates: %w", len(r.d), len(k), err)
	}
	c := &classifier{u: solution.U, gamma: solution.Gamma, objective: solution.Objective}
	if err != nil {
		c.step.Unconverged = 1
	}
	for _, u := range c.u {
		if u != 0 {
			c.step.Points++
		}
	}
	c.step.SupportVectors = float64(solution.SupportVectors())
	c.step.Training = correctness(k, r, c.u, c.gamma)
	return c, nil
}

func (s *sample) coordinates(r rows, z []float64) ([]gram.Column, error) {
	m, err := kernels.NewMap(s.Kernel, len(s.Columns), z)
	if err != nil {
		return nil, err
	}
	return kernels.NewMapper(m).Map(r.columns), nil
}

// test is the correctness of a classifier on rows, or 0 if there are none.
func (s *sample) test(r rows, z, u []float64, gamma float64) (float64, error) {
	if len(r.d) == 0 {
		return 0, nil
	}
	k, err := s.coordinates(r, z)
	if err != nil {
		return 0, err
	}
	return correctness(k, r, u, gamma), nil
}

// correctness is the weighted share of the rows, with coordinates k, that are on their
// side.
func correctness(k []gram.Column, r rows, u []float64, gamma float64) float64 {
	var right, all float64
	values := make([]float64, gram.TileRows)
	for from := 0; from < len(r.d); from += len(values) {
		v := values[:min(len(values), len(r.d)-from)]
		for i := range v {
			v[i] = -gamma
		}
		gram.AddProducts(v, k, from, nil, u)
		for i, value := range v {
			weight := 1.0
			if r.weights != nil {
				weight = r.weights[from+i]
			}
			all += weight
			if value >= 0 == (r.d[from+i] > 0) {
				right += weight
			}
		}
	}
	return right / all
}

// given returns the result for given points: the 1-norm program on all rows gives each
// plane its classifier. unconverged counts the limits reached in choosing the points.
func (s *sample) given(ctx context.Context, z []float64, nu float64, unconverged int) (*Result, error) {
	if err := checkNu(nu); err != nil {
		return nil, err
	}
	m, err := kernels.NewMap(s.Kernel, len(s.Columns), z)
	if err != nil {
		return nil, err
	}
	return s.on(ctx, m, &Result{Features: len(s.Columns), Points: m.Points(), Z: z}, nu, unconverged)
}

// on adds the classifiers in the coordinates of the result's map.
func (s *sample) on(ctx context.Context, m *kernels.Map, result *Result, nu float64, unconverged int) (*Result, error) {
	if s.PointsOnly {
		return result, ctx.Err()
	}
	k, err := kernels.NewMapper(m).MapContext(ctx, s.take(s.live, s.planes[0]).columns)
	if err != nil {
		return nil, err
	}
	for _, class := range s.planes {
		c, err := classifyIn(ctx, k, s.take(s.live, class), nu, s.workers)
		if err != nil {
			return nil, err
		}
		result.Planes = append(result.Planes, Plane{Class: class, U: c.u, Gamma: c.gamma})
		c.step.Unconverged += unconverged
		s.report(result, Stage{Class: class, Rows: len(s.live), Runs: 1, Nu: nu, Candidates: result.Points, Reduced: c.step})
	}
	return result, nil
}

func checkNu(nu float64) error {
	if !(nu > 0) || math.IsInf(nu, 0) {
		return fmt.Errorf("ν is %v, not a positive number", nu)
	}
	return nil
}

func (s *sample) report(r *Result, stage Stage) {
	r.Stages = append(r.Stages, stage)
	if s.Progress != nil {
		s.Progress(stage)
	}
}
