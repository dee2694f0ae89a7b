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
	for _, l := range []Loss{{3, 10}, {0, 10}} {
		if _, p := Excess([]Loss{l, l, l}, Loss{l.Sum * (10 - 1e-13), 100}); p < 0.1 {
			t.Errorf("equal blocks of %v have p %v", l, p)
		}
	}
	if _, p := Excess([]Loss{{3.1, 10}, {3, 10}, {3.2, 10}}, Loss{10, 100}); p > 1e-3 {
		t.Errorf("three times the loss has p %v", p)
	}
}
