package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"streamd/incremental"
)

// Solve measures reading the planes off the summed state: the copy of the sums that a solve
// works on, and the solve.
//
// The baseline is a float64 program with sums of float64: gonum's Cholesky factorisation of
// one matrix of the same order, or of one for each class where each class has its own, and a
// solution for each plane. It forms no matrix, standardises nothing and refines nothing.
type Solve struct {
	Features []int `default:"10,100,784" help:"Features."`
	Classes  []int `default:"2,10" help:"Classes. Two classes have one plane; more classes have one plane each."`
	Timed
}

// Check implements Benchmark.
func (c Solve) Check() error {
	return cmp.Or(Within("features", 1, maxFeatures, c.Features...), Within("classes", 2, maxClasses, c.Classes...), c.Timed.check())
}

var solveOptions = []struct {
	name string
	o    incremental.Options
}{
	{"plain", incremental.Options{Nu: 1}},
	{"balanced", incremental.Options{Nu: 1, Balanced: true}},
	{"standardised", incremental.Options{Nu: 1, Standardise: true}},
}

// Measure implements Benchmark. An operation is a solve.
func (c Solve) Measure(ctx context.Context, run *Run) error {
	run.plan(c.Repeats, c.Time, len(c.Features)*len(c.Classes)*len(solveOptions))
	for _, n := range c.Features {
		for _, k := range c.Classes {
			random := rand.New(rand.NewPCG(2, uint64(n)))
			state, err := summed(normalBlock(random, Float32, 2*n+100*k, n, k))
			if err != nil {
				return err
			}
			for _, how := range solveOptions {
				planes, factors := k, 1
				if k == 2 {
					planes = 1
				}
				if how.o.Balanced {
					factors = planes
				}
				sides := []side{
					loop("solve", func() (int64, error) {
						_, err := state.Moments().Solve(how.o)
						return 1, err
					}),
					loop("copy of the sums", func() (int64, error) {
						state.Moments()
						return 1, nil
					}),
					loop("gonum", cholesky(random, n+1, factors, planes)),
				}
				r := Result{Benchmark: "solve", Parameters: []Parameter{{"features", n}, {"classes", k}, {"options", how.name}}}
				err := run.measure(ctx, r, sides, func(r *Result, samples [][]Sample) {
					r.addSeconds()
					// While the sums are copied, they must not change.
					r.addRatio("copy_share", Sample.nsPerOp, samples[1], samples[0])
					r.addRatio("gonum_ratio", Sample.nsPerRow, samples[2], samples[0])
				})
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// summed returns the state of one block.
func summed(b *incremental.Block) (*incremental.State, error) {
	state := incremental.NewState(incremental.DefaultFeatures(len(b.Columns)))
	var z incremental.Summariser
	summary, err := z.Summarise(b)
	if err != nil {
		return nil, fmt.Errorf("sum up a block: %w", err)
	}
	state.Add(summary)
	return state, nil
}

// cholesky factorises a matrix of order n so many times, and solves for so many right sides.
func cholesky(random *rand.Rand, n, factors, sides int) work {
	rows := mat.NewDense(2*n, n, normals[float64](random, 2*n*n))
	var square mat.SymDense
	square.SymOuterK(1, rows.T())
	right := mat.NewVecDense(n, normals[float64](random, n))
	return func() (int64, error) {
		var factor mat.Cholesky
		var z mat.VecDense
		for i := range factors {
			if !factor.Factorize(&square) {
				return 0, errors.New("gonum: the matrix is not positive definite")
			}
			for range sides / factors {
				if err := factor.SolveVecTo(&z, right); err != nil {
					return 0, fmt.Errorf("gonum: solution %d: %w", i, err)
				}
			}
		}
		return 1, nil
	}
}
