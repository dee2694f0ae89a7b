package reproduce

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/newton"
	"streamd/kernels"
	"streamd/kernels/reduce"
)

// surface is a nonlinear classifier of two features that can be drawn.
type surface struct {
	method string
	points *set
	kernel *kernelPart
	model  *incremental.Model
}

// surfaces fits each of the methods to points in the coordinates of a basis.
func surfaces(ctx context.Context, s *set, mu, nu float64, basis []float64, methods ...method) ([]surface, error) {
	k, err := newKernelPart(mu, basis, newton.Blocks{s.block(0, s.rows())})
	if err != nil {
		return nil, err
	}
	var all []surface
	for _, m := range methods {
		model, err := m.learn(ctx, k.part, nu, false)
		if err != nil {
			return nil, err
		}
		all = append(all, surface{m.name, s, k, model})
	}
	return all, nil
}

// A learner gives surfaces on a set of the data folder, of which the last is to
// be drawn; or says why the set is absent.
type learner func(ctx context.Context, c *Config) (all []surface, absent string, err error)

// spiral is figure 2.3: 194 points of two spirals, the square kernel.
func spiral(ctx context.Context, c *Config) ([]surface, string, error) {
	const mu, nu = 1, 1 << 10
	s, absent, err := c.open("spiral")
	if s == nil {
		return nil, absent, err
	}
	all, err := surfaces(ctx, s, mu, nu, chosen(newton.Blocks{s.block(0, s.rows())}, 1), psvm)
	return all, "", err
}

func spiralTable(ctx context.Context, c *Config) ([]Result, error) {
	all, absent, err := spiral(ctx, c)
	const name = "Spiral"
	if absent != "" {
		return []Result{{DataSet: name, Absent: absent, missing: true}}, nil
	}
	if err != nil {
		return nil, err
	}
	return []Result{all[0].result(name, nil, figures{train: 100, within: 0.5})}, nil
}

// checkerboard is the board of Ho and Kleinberg: 1000 points, of which 40 means
// of clusters are the basis.
func checkerboard(ctx context.Context, c *Config) ([]surface, string, error) {
	const points, mu, nu = 40, 0.0006, 1 << 15
	s, absent, err := c.open("checkerboard")
	if s == nil {
		return nil, absent, err
	}
	kernel, err := kernels.Gaussian(mu)
	if err != nil {
		return nil, "", err
	}
	rows := s.block(0, s.rows())
	basis, err := reduce.Clusters{Nu: 100}.Reduce(ctx, &reduce.Problem{
		Columns: rows.Columns, Codes: rows.Codes, Classes: len(s.classes), Kernel: kernel, Points: points, Seed: c.Seed, Workers: c.workers(),
	})
	if err != nil {
		return nil, "", err
	}
	all, err := surfaces(ctx, s, mu, nu, basis.Z, psvm, ssvm)
	return all, "", err
}

func checkerboardTable(ctx context.Context, c *Config) ([]Result, error) {
	all, absent, err := checkerboard(ctx, c)
	const name = "Checkerboard"
	if absent != "" {
		return []Result{{DataSet: name, Absent: absent, missing: true}}, nil
	}
	if err != nil {
		return nil, err
	}
	var results []Result
	for i := range all {
		results = append(results, all[i].result(name, checkerboardGrid(), figures{}))
	}
	return results, nil
}

// checkerboardGrid is 199×199 points by the rule of the board: 50 units a square.
func checkerboardGrid() *set {
	grid := &set{features: []string{"x1", "x2"}, classes: []string{"-1", "1"}, columns: make([][]float64, 2)}
	for x := 1; x < 200; x++ {
		for y := 1; y < 200; y++ {
			grid.columns[0] = append(grid.columns[0], float64(x))
			grid.columns[1] = append(grid.columns[1], float64(y))
			grid.codes = append(grid.codes, int32((x/50+y/50)%2))
		}
	}
	return grid
}

func (f *surface) result(name string, test *set, published figures) Result {
	train := correctness(f.model, f.kernel.rows)
	r := Result{
		DataSet: name, Rows: f.points.rows(), Features: len(f.points.features), Method: f.method,
		Nu: f.model.Options.Nu, Mu: f.kernel.mu, Train: &train,
	}
	if test != nil {
		share := correctness(f.model, f.kernel.coordinates(newton.Blocks{test.block(0, test.rows())}))
		r.Test = &share
	}
	published.compare(&r)
	return r
}

func drawSpiral(ctx context.Context, w io.Writer, c *Config) error {
	return drawSurface(ctx, w, c, spiral)
}

func drawCheckerboard(ctx context.Context, w io.Writer, c *Config) error {
	return drawSurface(ctx, w, c, checkerboard)
}

// drawSurface draws the regions of the two classes, the points, and the basis
// if that is not the points.
func drawSurface(ctx context.Context, w io.Writer, c *Config, learn learner) error {
	all, absent, err := learn(ctx, c)
	if err != nil {
		return err
	}
	if absent != "" {
		return fmt.Errorf("nothing to draw: %s", absent)
	}
	f := &all[len(all)-1]
	const side, cells = 600, 200
	low, high := math.Inf(1), math.Inf(-1)
	for _, column := range f.points.columns {
		for _, x := range column {
			low, high = min(low, x), max(high, x)
		}
	}
	margin := (high - low) / 40
	low, high = low-margin, high+margin
	at := func(x float64) float64 { return side * (x - low) / (high - low) }
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d"><rect width="%d" height="%d" fill="#fbe4e4"/><g fill="#dbe7fb" shape-rendering="crispEdges">`+"\n",
		side, side, side, side, side, side)
	// A row of cells at a time; neighbours of the second class are one rectangle.
	x, y := make([]float64, cells), make([]float64, cells)
	class, values := make([]int32, cells), make([]float64, cells)
	const cell = float64(side) / cells
	for row := range cells {
		for i := range x {
			x[i] = low + (float64(i)+0.5)*(high-low)/cells
			y[i] = high - (float64(row)+0.5)*(high-low)/cells
		}
		mapped := kernels.NewMapper(f.kernel.basis).Map([]gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)})
		f.model.Classify(class, values, mapped)
		for i := 0; i < cells; {
			from := i
			for i < cells && class[i] == 1 {
				i++
			}
			if i > from {
				fmt.Fprintf(&b, `<rect x="%g" y="%g" width="%g" height="%g"/>`, float64(from)*cell, float64(row)*cell, float64(i-from)*cell, cell)
			}
			i++
		}
	}
	b.WriteString("\n</g>\n")
	for i, code := range f.points.codes {
		colour := "#c33"
		if f.points.classes[code] == f.model.Classes[1] {
			colour = "#26c"
		}
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>`, at(f.points.columns[0][i]), side-at(f.points.columns[1][i]), colour)
	}
	if t := f.kernel.basis.Points(); t < f.points.rows() {
		for i := range t {
			z := f.kernel.basis.Point(i)
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="6" fill="none" stroke="#000" stroke-width="1.5"/>`, at(z[0]), side-at(z[1]))
		}
	}
	b.WriteString("\n</svg>\n")
	_, err = w.Write(b.Bytes())
	return err
}
