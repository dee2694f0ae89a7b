package svm

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"streamd/incremental"
	"streamd/incremental/gram"
)

var _ incremental.Solver = Lasso{}

// recorder keeps the programs of a solver and their solutions.
type recorder struct {
	incremental.Solver
	programs []incremental.Program
	z        [][]float64
}

func (r *recorder) Plane(p *incremental.Program, nu float64) ([]float64, error) {
	z, err := r.Solver.Plane(p, nu)
	program := *p
	program.Matrix, program.Right = slices.Clone(p.Matrix), slices.Clone(p.Right)
	r.programs, r.z = append(r.programs, program), append(r.z, z)
	return z, err
}

// The conditions of the optimum hold: with the gradient g = ν(Hz − b) of the squared error,
// g = −sign(w) where w is not 0, |g| ≤ 1 elsewhere, and 0 for γ. A small ν has few features, and a
// large one the plane of least squares.
func TestLasso(t *testing.T) {
	state, _ := tenFeatures(t, 3, 300)
	for _, standardise := range []bool{false, true} {
		var used []int
		for _, nu := range []float64{1e-5, 1e-2, 0.03, 0.1, 1, 1e6} {
			o := incremental.Options{Nu: nu, Standardise: standardise}
			proximal, err := state.Moments().Solve(o)
			if err != nil {
				t.Fatal(err)
			}
			r := &recorder{Solver: Lasso{}}
			o.Solver = r
			model, err := state.Moments().Solve(o)
			if err != nil {
				t.Fatal(err)
			}
			p, z := r.programs[0], r.z[0]
			n := len(z) - 1
			features := 0
			for i := range z {
				g := -p.Right[i]
				for j, v := range z {
					k := i*(i+1)/2 + j
					if j > i {
						k = j*(j+1)/2 + i
					}
					g += p.Matrix[k] * v
				}
				g *= nu
				var far float64
				switch scale := 1e-7 * max(1, nu*p.Mass); {
				case i == n:
					far = math.Abs(g) / scale
				case z[i] == 0:
					far = (math.Abs(g) - 1) / scale
				default:
					features++
					far = math.Abs(g+math.Copysign(1, z[i])) / scale
				}
				if far > 1 {
					t.Errorf("ν = %g, scaled %v: the gradient of variable %d, %v, is %v", nu, standardise, i, z[i], g)
				}
			}
			used = append(used, features)
			if nu == 1e6 {
				for j, w := range model.Planes[0].W {
					if want := proximal.Planes[0].W[j]; math.Abs(w-want) > 1e-4*math.Abs(want)+1e-6 {
						t.Errorf("scaled %v: w[%d] is %v, of least squares %v", standardise, j, w, want)
					}
				}
			}
		}
		if used[0] != 0 || used[len(used)-1] != 10 || !slices.IsSorted(used) || used[2] == 0 && used[3] == 10 {
			t.Errorf("scaled %v: %v features", standardise, used)
		}
	}
}

// Features far from 0, of which some nearly depend on others, have a plane, scaled or not.
func TestLassoFarFromZero(t *testing.T) {
	const n, m, far = 60, 2000, 1e5
	r := rand.New(rand.NewPCG(1, n))
	b := &incremental.Block{Features: incremental.DefaultFeatures(n), Classes: []string{"a", "b"}, Codes: make([]int32, m)}
	columns := make([][]float64, n)
	for j := range columns {
		columns[j] = make([]float64, m)
		for i := range columns[j] {
			columns[j][i] = far + r.NormFloat64()
			if j%7 == 6 {
				columns[j][i] = 0.999*columns[j-1][i] + 0.001*columns[j][i]
			}
			if columns[0][i] > far {
				b.Codes[i] = 1
			}
		}
		b.Columns = append(b.Columns, gram.ColumnOf(columns[j]))
	}
	var z incremental.Summariser
	summary, err := z.Summarise(b)
	if err != nil {
		t.Fatal(err)
	}
	state := incremental.NewState(b.Features)
	state.Add(summary)
	for _, standardise := range []bool{false, true} {
		for _, nu := range []float64{1e-9, 1e-4, 0.01, 1, 1e6} {
			model, err := state.Moments().Solve(incremental.Options{Nu: nu, Standardise: standardise, Solver: Lasso{}})
			if err != nil {
				t.Fatalf("ν = %g, scaled %v: %v", nu, standardise, err)
			}
			if w := model.Planes[0].W; nu == 0.01 && (w[0] <= 0 || slices.ContainsFunc(w[1:], func(w float64) bool { return w != 0 })) {
				t.Errorf("scaled %v: more features than the one that decides: %v", standardise, w)
			}
		}
	}
}
