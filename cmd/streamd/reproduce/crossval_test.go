package reproduce

import (
	"context"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"streamd/incremental"
	"streamd/incremental/newton"
)

// randomSet makes whole numbers of k classes that overlap. Their sums are exact for any blocks.
func randomSet(r *rand.Rand, m, n, k int) *set {
	s := &set{columns: make([][]float64, n), codes: make([]int32, m)}
	for c := range k {
		s.classes = append(s.classes, string(rune('a'+c)))
	}
	for i := range s.codes {
		s.codes[i] = int32(i % k)
	}
	s.features = incremental.DefaultFeatures(len(s.columns))
	for j := range s.columns {
		for i := range m {
			centre := float64((int(s.codes[i])*(j+1))%k) * 10
			s.columns[j] = append(s.columns[j], math.Round(centre+8*r.NormFloat64()))
		}
	}
	return s
}

func TestDealtDividesEvenly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(2, 10).Draw(t, "k")
		codes := rapid.SliceOfN(rapid.Int32Range(0, 4), k*k, 400).Draw(t, "codes")
		order, start := dealt(codes, k, rapid.Uint64().Draw(t, "seed"))
		if !slices.Equal(slices.Sorted(slices.Values(order)), slices.Sorted(slices.Values(identity(len(codes))))) {
			t.Fatal("not every row is in one cell")
		}
		if len(start) != k*k+1 || start[0] != 0 || start[k*k] != len(codes) || !slices.IsSorted(start) {
			t.Fatalf("cells begin at %v", start)
		}
		// Folds: of all rows, and of the rows of each class.
		for class := int32(-1); class <= 4; class++ {
			var size, tuning []int
			for f := range k {
				count := func(cell int) (n int) {
					for _, row := range order[start[cell]:start[cell+1]] {
						if class < 0 || codes[row] == class {
							n++
						}
					}
					return n
				}
				inFold, inTuning := 0, 0
				for other := range k {
					inFold += count(f*k + other)
					if other != f {
						inTuning += count(other*k + f)
					}
				}
				size, tuning = append(size, inFold), append(tuning, inTuning)
			}
			if slices.Max(size)-slices.Min(size) > 1 {
				t.Fatalf("class %d: folds of %v rows", class, size)
			}
			// A turn gives a tuning set one row, or none for the diagonal.
			if slices.Max(tuning)-slices.Min(tuning) > 2+len(codes)/(k*k) {
				t.Fatalf("class %d: tuning sets of %v rows", class, tuning)
			}
		}
	})
}

func identity(m int) []int {
	rows := make([]int, m)
	for i := range rows {
		rows[i] = i
	}
	return rows
}

func TestSeedDecidesAboutTheDivision(t *testing.T) {
	codes := make([]int32, 300)
	first, _ := dealt(codes, 10, 1)
	again, _ := dealt(codes, 10, 1)
	other, _ := dealt(codes, 10, 2)
	if !slices.Equal(first, again) || slices.Equal(first, other) {
		t.Error("the division is not a function of the seed")
	}
}

// The training sums of a fold have the bits of sums that never had the fold.
func TestFoldsWereNeverSeen(t *testing.T) {
	s := randomSet(rand.New(rand.NewPCG(1, 1)), 230, 3, 3)
	for j := range s.columns {
		for i := range s.columns[j] {
			s.columns[j][i] /= 3
		}
	}
	division, err := divide(s, 5)
	if err != nil {
		t.Fatal(err)
	}
	order, start := dealt(s.codes, folds, 5)
	dealtSet := s.pick(order)
	for f := range division {
		for what, left := range map[*incremental.Moments]func(row, column int) bool{
			division[f].train.moments: func(row, _ int) bool { return row != f },
			division[f].rest:          func(row, column int) bool { return row != f && column != f },
		} {
			state := incremental.NewState(s.features)
			var z incremental.Summariser
			for c := range folds * folds {
				if left(c/folds, c%folds) {
					summary, err := z.Summarise(dealtSet.block(start[c], start[c+1]))
					if err != nil {
						t.Fatal(err)
					}
					state.Add(summary)
				}
			}
			if !reflect.DeepEqual(what, state.Moments()) {
				t.Fatalf("fold %d: other sums", f)
			}
		}
		count := func(b newton.Blocks) (rows int) {
			for _, block := range b {
				rows += block.Rows()
			}
			return rows
		}
		d := &division[f]
		if count(d.test)+count(d.train.rows) != s.rows() {
			t.Errorf("fold %d: %d + %d of %d rows", f, count(d.test), count(d.train.rows), s.rows())
		}
		all := 0
		for i, split := range d.tuning {
			all += count(split.tune)
			if count(split.tune)+count(split.rest) != count(d.train.rows) {
				t.Errorf("fold %d: %d + %d to tune", f, count(split.tune), count(split.rest))
			}
			if share := float64(count(split.tune)) / float64(count(d.train.rows)); math.Abs(share-0.1) > 0.02 {
				t.Errorf("fold %d: tuning set %d of %.0f %%", f, i, 100*share)
			}
		}
		if len(d.tuning) != folds || all != count(d.train.rows) {
			t.Errorf("fold %d: %d tuning sets of %d rows together", f, len(d.tuning), all)
		}
	}
}

// A fold's scores are those of models that are fitted to its rows again.
func TestScoresAgainstLearningAnew(t *testing.T) {
	s := randomSet(rand.New(rand.NewPCG(2, 2)), 150, 3, 3)
	division, err := divide(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	nus := exponents{low: -6, high: 6}.values()
	chosen := map[float64]bool{}
	for _, m := range []method{mpsvm, bMPSVM, brMPSVM, ofr} {
		for f := range division {
			d := &division[f]
			anew := func(rows newton.Blocks, nu float64) *incremental.Model {
				p, err := newPart(s.features, rows)
				if err != nil {
					t.Fatal(err)
				}
				model, err := m.learn(ctx, p, nu, true)
				if err != nil {
					t.Fatal(err)
				}
				return model
			}
			best, right := 0.0, -1.0
			for _, nu := range nus {
				if c := correctness(anew(d.tuning[0].rest, nu), d.tuning[0].tune); c > right {
					best, right = nu, c
				}
			}
			got, err := d.run(ctx, m, nus, true)
			if err != nil {
				t.Fatal(err)
			}
			model := anew(d.train.rows, best)
			if got.nu != best || got.test != correctness(model, d.test) || got.train != correctness(model, d.train.rows) {
				t.Errorf("%s, fold %d: %+v, want ν = %v", m.name, f, got, best)
			}
			chosen[best] = true
		}
	}
	if len(chosen) < 3 {
		t.Errorf("ν is always one of %v, so that nothing was tested", chosen)
	}
}

func TestExponentsNearOneComeFirst(t *testing.T) {
	if got, want := (exponents{low: -2, high: 3}).values(), []float64{1, 0.5, 2, 0.25, 4, 8}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := first([]float64{0.1, 0.7, 0.3, 0.7}); got != 1 {
		t.Errorf("the first of the largest is %d", got)
	}
}

func TestTooFewRows(t *testing.T) {
	if _, err := divide(randomSet(rand.New(rand.NewPCG(3, 3)), 8, 2, 2), 1); err == nil {
		t.Error("eight rows are divided into ten folds")
	}
}

// The one ν for all is the best of the first method on the folds themselves.
func TestOneNu(t *testing.T) {
	s := randomSet(rand.New(rand.NewPCG(4, 4)), 120, 2, 2)
	y := validation{methods: []method{psvm, ssvm}, nus: exponents{low: -16, high: 2}, one: true}
	c := &Config{Seed: 3, Seeds: 2}
	trials, err := y.run(context.Background(), s, c)
	if err != nil {
		t.Fatal(err)
	}
	mean := func(t trial) (sum float64) {
		for d := range t {
			sum += t.mean(d, func(s score) float64 { return s.test })
		}
		return sum
	}
	got := mean(trials[0])
	for _, nu := range y.nus.values() {
		other, err := validation{methods: []method{psvm}, nus: exponents{low: int(math.Log2(nu)), high: int(math.Log2(nu))}}.run(context.Background(), s, c)
		if err != nil {
			t.Fatal(err)
		}
		if sum := mean(other[0]); sum > got {
			t.Errorf("ν = %v is better than the chosen %v: %v, %v", nu, trials[0][0][0].nu, sum, got)
		}
	}
	for _, trial := range trials {
		for _, division := range trial {
			for _, s := range division {
				if s.nu != trials[0][0][0].nu {
					t.Errorf("ν = %v and %v", s.nu, trials[0][0][0].nu)
				}
			}
		}
	}
}
