package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"streamd/incremental"
)

// Solve measures reading the planes off the summed state: the copy of the sums
// that a solve works on, and the solve.
//
// The baseline is what a float64 program would do with sums of float64: gonum's
// Cholesky factorisation of one matrix of the same order, or of one per class
// where each class has its own, and a solution for each plane. It forms no
// matrix, standardises nothing and refines nothing.
type Solve struct {
	Features []int
	Classes  []int
}

// How planes are asked for.
var solveOptions = []struct {
	name string
	o    incremental.Options
}{
	{"plain", incremental.Options{Nu: 1}},
	{"balanced", incremental.Options{Nu: 1, Balanced: true}},
	{"standardised", incremental.Options{Nu: 1, Standardise: true}},
}

// Measure runs all combinations. An op is a solve.
func (c Solve) Measure(ctx context.Context, plan Plan, report *Report) error {
	at, cases := 0, len(c.Features)*len(c.Classes)*len(solveOptions)
	for _, n := range c.Features {
		for _, k := range c.Classes {
			r := rand.New(rand.NewPCG(2, uint64(n)))
			block := normalBlock(r, Float32, 2*n+100*k, n, k)
			state, err := summed(block)
			if err != nil {
				return err
			}
			for _, how := range solveOptions {
				result := Result{Benchmark: "solve", Parameters: []Parameter{{"features", n}, {"classes", k}, {"options", how.name}}}
				planes := k
				if k == 2 {
					planes = 1
				}
				factors := 1
				if how.o.Balanced {
					factors = planes
				}
				samples, err := plan.Case(at, cases, result.name()).alternate(ctx,
					side{"solve", loop(func() (int64, error) {
						_, err := state.Moments().Solve(how.o)
						return 1, err
					})},
					side{"copy of the sums", loop(func() (int64, error) {
						state.Moments()
						return 1, nil
					})},
					side{"gonum", loop(cholesky(r, n+1, factors, planes))})
				if err != nil {
					return err
				}
				result.Samples = samples[0]
				result.add("seconds", func(i int) float64 { return samples[0][i].nsPerOp() / 1e9 })
				// Of the time: the sums must not change meanwhile.
				result.add("copy_share", func(i int) float64 { return samples[1][i].nsPerOp() / samples[0][i].nsPerOp() })
				result.addSpeedup("gonum_ratio", samples[2])
				if err := report.Add(result); err != nil {
					return err
				}
				at++
			}
		}
	}
	return nil
}

// summed is the state of one block.
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

// cholesky factorises a matrix of order n so many times and solves for so many
// right sides.
func cholesky(r *rand.Rand, n, factors, sides int) work {
	rows := mat.NewDense(2*n, n, normals[float64](r, 2*n*n))
	var square mat.SymDense
	square.SymOuterK(1, rows.T())
	right := mat.NewVecDense(n, normals[float64](r, n))
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
