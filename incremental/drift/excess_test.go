package drift

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The p-value agrees with one that was computed with SciPy 1.17.1:
//
//	l, w = np.array([5., 7, 9, 6]), np.array([10., 12, 14, 9])
//	m = l.sum() / w.sum()
//	s = np.sqrt(4/3 * ((l - m*w)**2).sum() / w.sum()**2 * (1 + w.sum()/500))
//	scipy.stats.t.sf((m - 250/500) / s, 3)
func TestExcessAgainstSciPy(t *testing.T) {
	all, p := Excess([]Loss{{5, 10}, {7, 12}, {9, 14}, {6, 9}}, Loss{250, 500})
	if all != (Loss{27, 45}) || math.Abs(p-0.03354424814545084) > 1e-12 {
		t.Errorf("%v, p %v", all, p)
	}
}

// Blocks that are alike have p-values that are spread evenly. Equal blocks have no excess.
func TestExcessByChance(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	draw := func(rows int) (l Loss) {
		for range rows {
			x := r.NormFloat64()
			l.Sum += x * x
			l.Weight++
		}
		return l
	}
	const trials = 4000
	var below [3]int
	levels := [len(below)]float64{0.5, 0.1, 0.01}
	for range trials {
		newest := make([]Loss, 16)
		for i := range newest {
			newest[i] = draw(5 + r.IntN(30))
		}
		_, p := Excess(newest, draw(1500))
		for i, level := range levels {
			if p < level {
				below[i]++
			}
		}
	}
	for i, level := range levels {
		expected := level * trials
		if off := math.Abs(float64(below[i]) - expected); off > 5*math.Sqrt(expected)+0.1*expected {
			t.Errorf("p is below %v in %d of %d trials", level, below[i], trials)
		}
	}
	for _, l := range []Loss{{3, 10}, {0, 10}, {3e4, 10}, {3e-4, 10}} {
		if _, p := Excess([]Loss{l, l, l}, Loss{l.Sum * (10 - 1e-13), 100}); p < 0.1 {
			t.Errorf("equal blocks of %v have p %v", l, p)
		}
	}
	if _, p := Excess([]Loss{{3.1, 10}, {3, 10}, {3.2, 10}}, Loss{10, 100}); p > 1e-3 {
		t.Errorf("three times the loss has p %v", p)
	}
}

// A comparison is that of the least p-value among those of the newest 8, 16 and 32 blocks that
// leave a rest, times their number. Of equal ones it is that of the fewest blocks.
func TestCompareIsTheBestOfItsTests(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 7))
	sizes := map[int]int{}
	for trial := range 600 {
		newest := make([]Loss, r.IntN(40))
		level := 1.
		for i := range newest {
			if i == []int{4, 8, 16, 32}[trial%4] {
				level = 0.5 // the older ones are better
			}
			newest[i] = Loss{level * (1 + 2*r.Float64()), 1}
		}
		all := Loss{}
		for _, l := range newest {
			all = Loss{all.Sum + l.Sum, all.Weight + l.Weight}
		}
		if rest := float64(r.IntN(3)); rest > 0 {
			all = Loss{all.Sum + rest, all.Weight + 2*rest}
		}
		var want Comparison
		tests := 0.
		for _, n := range []int{8, 16, 32} {
			rest := all
			for i := 0; i < n && i < len(newest); i++ {
				rest = Loss{rest.Sum - newest[i].Sum, rest.Weight - newest[i].Weight}
			}
			if n > len(newest) || rest.Weight <= 0 {
				continue
			}
			latest, p := Excess(newest[:n], rest)
			if tests++; tests == 1 || p < want.P {
				want = Comparison{n, latest.Sum / latest.Weight, rest.Sum / rest.Weight, p}
			}
		}
		want.P = math.Min(1, want.P*tests)
		got, ok := Compare(newest, all)
		if ok != (tests > 0) || ok && (got.Blocks != want.Blocks || math.Abs(got.P-want.P) > 1e-9 || math.Abs(got.Newest-want.Newest) > 1e-12 || math.Abs(got.Rest-want.Rest) > 1e-12) {
			t.Fatalf("trial %d: %+v, %v, want %+v of %v tests", trial, got, ok, want, tests)
		}
		if ok {
			sizes[got.Blocks]++
		}
	}
	if len(sizes) != 3 {
		t.Errorf("comparisons are of %v blocks: not of all sizes", sizes)
	}
	none := make([]Loss, MostNewest)
	for i := range none {
		none[i].Weight = 1
	}
	if got, ok := Compare(none, Loss{0, 100}); !ok || got.Blocks != LeastNewest || got.P != 1 {
		t.Errorf("without a loss: %+v, %v", got, ok)
	}
	for i := range none {
		none[i].Sum = 0.1
	}
	if got, ok := Compare(none[:LeastNewest], Loss{0.8 - 1e-15, 100}); !ok || got.Rest != 0 || got.P > 1e-9 {
		t.Errorf("a rest of no loss but for rounding: %+v, %v", got, ok)
	}
}

// An alarm begins below a hundredth of δ, and ends at δ.
func TestHolds(t *testing.T) {
	for _, c := range []struct {
		held bool
		p    float64
		want bool
	}{
		{false, 0.0000199, true}, {false, Delta / 100, false}, {false, 0.0001, false},
		{true, 0.0000199, true}, {true, 0.00199, true}, {true, Delta, false}, {true, 1, false},
	} {
		if got := Holds(c.held, c.p); got != c.want {
			t.Errorf("held %v, p %v: %v", c.held, c.p, got)
		}
	}
}
