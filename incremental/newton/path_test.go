package newton

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"streamd/incremental"
)

// A path finds, for each ν, the planes that Refine finds from the solved ones, whatever the order
// and the ratios of the ν, and ends at the same bits in any order of the blocks.
func TestPath(t *testing.T) {
	paths := [][]float64{
		{0x1p-20, 0x1p-16, 0x1p-12, 0x1p-8, 0x1p-4, 1, 16, 256},
		{256, 1, 0x1p-9, 4, 4},
		{0.3, 0.1, 7, 100.7}, // no powers of two: sums are made anew
	}
	for _, c := range cases {
		for _, method := range []Method{Full, Logistic} {
			for i, nus := range paths {
				r := rand.New(rand.NewPCG(5, uint64(i)))
				blocks := c.draw(r, 900, 5).cut(200)
				shuffled := slices.Clone(blocks)
				r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
				at := func(nu float64) (*incremental.Model, Options) {
					o := c.options
					o.Nu = nu
					model, with := proximal(t, blocks, o)
					with.Multipliers, with.Method = c.with.Multipliers, method
					return model, with
				}
				model, with := at(nus[0])
				whole := NewPath(model, blocks, with)
				with.Workers = 3
				again := NewPath(model, shuffled, with)
				with.Workers, with.room = 1, 1
				apart := NewPath(model, blocks, with) // a plane at a time, if Full
				for _, nu := range nus {
					start, with := at(nu)
					want := refine(t, start, blocks, with)
					got, err := whole.Refine(t.Context(), nu)
					if err != nil {
						t.Fatal(err)
					}
					same, err := again.Refine(t.Context(), nu)
					if err != nil || !slices.Equal(bits(same), bits(got)) {
						t.Fatalf("%s, %v, %v: ν %v: other bits in another order of the blocks; %v", c.name, method, nus, nu, err)
					}
					slow, err := apart.Refine(t.Context(), nu)
					if err != nil {
						t.Fatal(err)
					}
					for _, result := range []*Result{got, slow} {
						if result.Model.Options.Nu != nu || result.Rows != want.Rows || len(result.Planes) != len(want.Planes) {
							t.Fatalf("%s, %v: ν %v: %+v, not %+v", c.name, method, nu, result, want)
						}
						for r, p := range result.Model.Planes {
							z, w := scaled(p, with), scaled(want.Model.Planes[r], with)
							for j := range z {
								if !(math.Abs(z[j]-w[j]) <= 1e-7*norm(w)) {
									t.Errorf("%s, %v, %v: ν %v, class %s: number %d is %g, not %g", c.name, method, nus, nu, p.Class, j, z[j], w[j])
								}
							}
							if a, b := result.Planes[r], want.Planes[r]; !near(a.Objective, b.Objective, 1e-12) || a.SupportVectors != b.SupportVectors {
								t.Errorf("%s, %v, %v: ν %v, class %s: %+v, not %+v", c.name, method, nus, nu, p.Class, a, b)
							}
						}
					}
				}
			}
		}
	}
}

// A path takes fewer passes than as many searches, each of which begins at the planes of the ν
// before.
func TestPathTakesFewerPasses(t *testing.T) {
	for _, method := range []Method{Full, Logistic} {
		r := rand.New(rand.NewPCG(7, 7))
		blocks := clouds(r, 3000, 8, 3).cut(1000)
		model, with := proximal(t, blocks, incremental.Options{Nu: 0x1p-10, Standardise: true})
		with.Method, with.Coarse = method, true
		path := NewPath(model, blocks, with)
		apart, together := 0, 0
		for nu := 0x1p-10; nu < 0x1p10; nu *= 4 {
			next := *model
			next.Options.Nu = nu
			result := refine(t, &next, blocks, with)
			apart, model = apart+result.Passes, result.Model
			result, err := path.Refine(t.Context(), nu)
			if err != nil {
				t.Fatal(err)
			}
			together += result.Passes
		}
		if together >= apart {
			t.Errorf("%v: %d passes, and one search after the other takes %d", method, together, apart)
		}
		t.Logf("%v: %d passes, and %d apart", method, together, apart)
	}
}
