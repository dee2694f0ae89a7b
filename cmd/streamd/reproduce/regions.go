package reproduce

import (
	"context"
	"io"
	"math"
	"math/rand/v2"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/plot"
	"streamd/incremental/decision"
	"streamd/incremental/newton"
	"streamd/kernels"
	"streamd/kernels/basis"
	"streamd/kernels/reduce"
)

// surface is a nonlinear classifier of two features, for a picture.
type surface struct {
	method string
	points *set
	rows   newton.Blocks // the points in the coordinates of the kernel
	by     *model.Classifier
	nu, mu float64 // ν in the scale of the thesis
}

// surfaces fits each of the methods to points in the coordinates of a basis.
func surfaces(ctx context.Context, s *set, mu, nu float64, z []float64, methods ...method) ([]surface, error) {
	k, err := newKernelPart(mu, z, newton.Blocks{s.block(0, s.rows())})
	if err != nil {
		return nil, err
	}
	var all []surface
	for _, m := range methods {
		learned, err := m.learn(ctx, k.part, nu, false)
		if err != nil {
			return nil, err
		}
		by := &model.Classifier{
			Features: s.features, Map: k.in.Map, Model: learned, Rule: decision.ByValue(len(learned.Classes)),
		}
		all = append(all, surface{m.name, s, k.rows, by, nu, mu})
	}
	return all, nil
}

// A learner returns surfaces. The last one has the picture.
type learner func(ctx context.Context, c *Config) ([]surface, error)

// spiral is figure 2.3: 194 points of two spirals, the square kernel.
func spiral(ctx context.Context, _ *Config) ([]surface, error) {
	const mu, nu = 1, 1 << 10
	s := spiralPoints()
	return surfaces(ctx, s, mu, nu, chosen(newton.Blocks{s.block(0, s.rows())}, 1), psvm)
}

// spiralPoints returns Wieland's points: three turns around the origin, and their negatives.
func spiralPoints() *set {
	s := &set{features: []string{"x1", "x2"}, classes: []string{"-1", "1"}, columns: make([][]float64, 2)}
	for i := range 97 {
		sin, cos := math.Sincos(float64(i) * math.Pi / 16)
		radius := 6.5 * float64(104-i) / 104
		for code, sign := range []float64{-1, 1} {
			s.columns[0] = append(s.columns[0], sign*radius*sin)
			s.columns[1] = append(s.columns[1], sign*radius*cos)
			s.codes = append(s.codes, int32(code))
		}
	}
	return s
}

func spiralTable(ctx context.Context, c *Config) ([]Result, error) {
	all, err := spiral(ctx, c)
	if err != nil {
		return nil, err
	}
	return []Result{all[0].result("Spiral", nil, figures{train: 100, within: 0.5})}, nil
}

// rings is figures 2.11 and 2.12: 500 points of three classes, the square kernel.
func rings(ctx context.Context, c *Config) ([]surface, error) {
	const mu, nu = 0.1, 10
	s := ringPoints(c.Seed)
	return surfaces(ctx, s, mu, nu, chosen(newton.Blocks{s.block(0, s.rows())}, 1), mpsvm, brMPSVM)
}

// ringPoints makes points like those in the thesis's pictures: a disc of 50 in the middle, a
// thin ring of 50 around it, and a ring of 400 around both, which reaches into the thin one.
func ringPoints(seed uint64) *set {
	s := &set{features: []string{"x1", "x2"}, classes: []string{"1", "2", "3"}, columns: make([][]float64, 2)}
	r := rand.New(rand.NewPCG(seed, 500))
	for code, ring := range []struct {
		points           int
		radius, furthest float64
	}{{400, 1.9, 4}, {50, 1.4, 1.7}, {50, 0, 1}} {
		for range ring.points {
			sin, cos := math.Sincos(2 * math.Pi * r.Float64())
			radius := math.Sqrt(ring.radius*ring.radius + r.Float64()*(ring.furthest*ring.furthest-ring.radius*ring.radius))
			s.columns[0], s.columns[1] = append(s.columns[0], 1.3*radius*cos), append(s.columns[1], radius*sin)
			s.codes = append(s.codes, int32(code))
		}
	}
	return s
}

func ringsTable(ctx context.Context, c *Config) ([]Result, error) {
	all, err := rings(ctx, c)
	if err != nil {
		return nil, err
	}
	return []Result{
		all[0].result("Figure 2.11", nil, figures{train: 91.8, within: 3}),
		all[1].result("Figure 2.12", nil, figures{train: 98.8, within: 1.5}),
	}, nil
}

// drawRings draws figures 2.11 and 2.12.
func drawRings(ctx context.Context, w io.Writer, c *Config) error {
	all, err := rings(ctx, c)
	if err != nil {
		return err
	}
	var pictures []plot.Regions
	for i := range all {
		pictures = append(pictures, all[i].picture())
	}
	return plot.SideBySide(w, pictures...)
}

// checkerboard is the board of Ho and Kleinberg, with 1000 points. The basis is 40 means of
// clusters.
func checkerboard(ctx context.Context, c *Config) ([]surface, error) {
	const points, mu, nu = 40, 0.0006, 1 << 15
	s := checkerboardPoints(c.Seed)
	kernel, err := kernels.Gaussian(mu)
	if err != nil {
		return nil, err
	}
	rows := s.block(0, s.rows())
	found, err := reduce.Clusters{Nu: 100}.Reduce(ctx, &reduce.Problem{
		Columns: rows.Columns, Codes: rows.Codes, Classes: len(s.classes), Kernel: kernel, Points: points, Seed: c.Seed, Workers: c.workers(),
	})
	if err != nil {
		return nil, err
	}
	return surfaces(ctx, s, mu, nu, found.Z, psvm, ssvm)
}

func checkerboardTable(ctx context.Context, c *Config) ([]Result, error) {
	all, err := checkerboard(ctx, c)
	if err != nil {
		return nil, err
	}
	var results []Result
	for i := range all {
		results = append(results, all[i].result("Checkerboard", checkerboardGrid(), figures{}))
	}
	return results, nil
}

// checkerboardPoints returns 1000 of the 200×200 places of the board, at random.
func checkerboardPoints(seed uint64) *set {
	const points = 1000
	r := rand.New(rand.NewPCG(seed, points))
	s := newBoard()
	for range points {
		s.put(r.IntN(boardSide), r.IntN(boardSide))
	}
	return s.set
}

// checkerboardGrid returns 199×199 places.
func checkerboardGrid() *set {
	s := newBoard()
	for x := 1; x < boardSide; x++ {
		for y := 1; y < boardSide; y++ {
			s.put(x, y)
		}
	}
	return s.set
}

const boardSide, squareSide = 200, 50

// board has points of the 4×4 squares.
type board struct{ *set }

func newBoard() board {
	return board{&set{features: []string{"x1", "x2"}, classes: []string{"-1", "1"}, columns: make([][]float64, 2)}}
}

func (b board) put(x, y int) {
	b.columns[0], b.columns[1] = append(b.columns[0], float64(x)), append(b.columns[1], float64(y))
	b.codes = append(b.codes, int32((x/squareSide+y/squareSide)%2))
}

func (f *surface) result(name string, test *set, published figures) Result {
	train := correctness(f.by.Model, f.rows)
	r := Result{
		DataSet: name, Rows: f.points.rows(), Features: len(f.points.features), Method: f.method,
		Nu: f.nu, Mu: f.mu, Train: &train,
	}
	if test != nil {
		share := correctness(f.by.Model, lifted(newton.Blocks{test.block(0, test.rows())}, basis.New(f.by.Map, false)))
		r.Test = &share
	}
	published.compare(&r)
	return r
}

// draw draws the regions of the two classes, the points and the basis.
func (learn learner) draw(ctx context.Context, w io.Writer, c *Config) error {
	all, err := learn(ctx, c)
	if err != nil {
		return err
	}
	picture := all[len(all)-1].picture()
	return picture.SVG(w)
}

func (f *surface) picture() plot.Regions {
	return plot.Regions{Classifier: f.by, Rows: f.points.block(0, f.points.rows())}
}
