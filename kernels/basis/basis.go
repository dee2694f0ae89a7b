// Package basis chooses the coordinates K(x, Z) of a nonlinear classifier from a sample
// of the rows: the γ of a Gaussian kernel, and a basis Z of few points. Planes are then
// solved from sums in these coordinates.
//
// Problem.Gamma chooses γ, Problem.Compare recommends a reducer and a size, Problem.Choose
// chooses the basis, and a Lifter maps blocks to the Coordinates. Features may be scaled before the
// kernel, by the means and deviations of all rows (incremental.Moments.Scale) or of the sample
// (Scale).
//
// All choices are functions of the Problem, including the order of its rows, and do not
// depend on the number of workers.
package basis

import (
	"context"
	"slices"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/tuning"
	"streamd/kernels"
	"streamd/kernels/reduce"
)

// Problem is the rows that coordinates are chosen from, and the settings. It is only read.
type Problem struct {
	// Rows are finite rows of at least two classes. Any first part of them should be a
	// sample of all. Where that is not so, as in the order of a file, Order lists the
	// rows in a random order for Gamma.
	Rows  *incremental.Block
	Order []int
	// Totals are the rows that the sample stands for; nil means the sample itself.
	Totals []incremental.ClassTotal
	// Mean and Sigma scale the features to (x − μ)/σ before the kernel. Nil means no
	// scaling.
	Mean, Sigma []float64

	Planes    incremental.Options // options of the planes that judge γ, except Standardise; Nu 0: ν is chosen, too
	Objective tuning.Objective    // figure that γ is chosen by
	Judge     Judge               // judges γ by planes of its own; nil: proximal planes do
	// Gram regularises by u'K(Z, Z)u instead of ‖u‖²: see New. Coordinates that depend on others
	// are then left out.
	Gram    bool
	Points  int            // most coordinates
	Reducer reduce.Reducer // nil: every row becomes a point
	Seed    uint64
	Workers int // goroutines of the reducer; 0: GOMAXPROCS

	Tried    func()             // unless nil, called after each γ
	Progress func(reduce.Stage) // unless nil, called after each stage of the reducer
}

// Choose chooses the basis for a kernel and returns the reducer's stages. It returns the
// errors of the Reducer and of ctx.
//
// Programs that serve the report alone are solved for a Progress only, and none of them in an
// eigen-subspace: there are so many coordinates that they can take longer than all the rest.
func (p *Problem) Choose(ctx context.Context, kernel kernels.Kernel) (*kernels.Map, []reduce.Stage, error) {
	b := p.scaled()
	result := &reduce.Result{Features: len(b.Columns)}
	if p.Reducer == nil {
		result.Z = points(b)
	} else {
		_, eigen := p.Reducer.(reduce.Eigen)
		var err error
		result, err = p.Reducer.Reduce(ctx, &reduce.Problem{
			Columns: b.Columns, Codes: b.Codes, Classes: len(b.Classes), Weights: b.Weights,
			Kernel: kernel, Points: p.Points, Seed: p.Seed, Workers: p.Workers, Progress: p.Progress,
			PointsOnly: p.Progress == nil || eigen,
		})
		if err != nil {
			return nil, nil, err
		}
		if result.Interrupted {
			return nil, nil, ctx.Err()
		}
	}
	m, err := result.Map(kernel)
	if err == nil && p.Gram {
		m = independent(m)
	}
	if err == nil && p.Mean != nil {
		m, err = m.Scaled(p.Mean, p.Sigma)
	}
	return m, result.Stages, err
}

// points returns the rows of a block, one after the other.
func points(b *incremental.Block) []float64 {
	z := make([]float64, 0, b.Rows()*len(b.Columns))
	for i := range b.Rows() {
		for _, c := range b.Columns {
			z = append(z, c.At(i))
		}
	}
	return z
}

// scaled returns the rows in the kernel's units.
func (p *Problem) scaled() *incremental.Block { return Scaled(p.Rows, p.Mean, p.Sigma) }

// Scaled returns rows as a kernel sees them that scales features to (x − μ)/σ. Nil: it does not.
func Scaled(rows *incremental.Block, mean, sigma []float64) *incremental.Block {
	b := *rows
	if mean == nil {
		return &b
	}
	b.Columns = slices.Clone(b.Columns)
	for j, c := range b.Columns {
		x := make([]float64, c.Len())
		c.Copy(x, 0)
		inverse := 1 / sigma[j] // as in kernels.Map, so that a row that is a point has distance 0
		for i := range x {
			x[i] = (x[i] - mean[j]) * inverse
		}
		b.Columns[j] = gram.ColumnOf(x)
	}
	return &b
}

// Scale returns the weighted mean and standard deviation of each feature over the rows of
// a block, with the bits of incremental.Moments.Scale. It takes O(m) per feature and no
// sums of products.
func Scale(b *incremental.Block) (mean, sigma []float64, err error) {
	var z incremental.Summariser
	for j := range b.Columns {
		one := *b
		one.Features, one.Columns = nil, b.Columns[j:j+1]
		s, err := z.Summarise(&one)
		if err != nil {
			return nil, nil, err
		}
		state := incremental.NewState(incremental.DefaultFeatures(1))
		state.Add(s)
		of, by := state.Moments().Scale()
		mean, sigma = append(mean, of...), append(sigma, by...)
	}
	return mean, sigma, nil
}
