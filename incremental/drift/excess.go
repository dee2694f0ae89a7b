package drift

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Delta is δ of the detectors, that of MOA and River.
const Delta = 0.002

// The newest blocks are 32 at most, and 8 at least.
const MostNewest, LeastNewest = 32, 8

// Comparison is the loss of a model on the newest blocks beside that on the rest.
type Comparison struct {
	Blocks       int     // the newest ones
	Newest, Rest float64 // mean losses
	P            float64 // probability of such an excess without a change
}

// Compare compares the loss on the newest 8, 16 and 32 blocks with that on the rest of all, and
// returns the comparison of the least p-value, times their number (Bonferroni). A few blocks show
// a change soon, and many a small one. newest begins with the newest block. ok is false where
// there are too few blocks, or no rest.
func Compare(newest []Loss, all Loss) (c Comparison, ok bool) {
	tests := 0.
	for n := LeastNewest; n <= min(len(newest), MostNewest); n *= 2 {
		rest := all
		for _, l := range newest[:n] {
			rest.Sum -= l.Sum
			rest.Weight -= l.Weight
		}
		if !(rest.Weight > 0) {
			break
		}
		rest.Sum = max(0, rest.Sum) // it is a difference
		latest, p := Excess(newest[:n], rest)
		if tests++; tests == 1 || p < c.P {
			c = Comparison{n, latest.Mean(), rest.Mean(), p}
		}
	}
	c.P = min(1, tests*c.P)
	return c, tests > 0
}

// Holds reports whether the alarm of a comparison holds. Successive comparisons have blocks in
// common, and there may be one after each block. So an alarm takes a p-value far below δ, and
// holds until the p-value is above δ again.
func Holds(held bool, p float64) bool { return p < Delta/100 || held && p < Delta }

// Loss is the loss of a model on the rows of a block: a sum over rows, and their weight.
type Loss struct{ Sum, Weight float64 }

// Mean is the loss of a unit of weight.
func (l Loss) Mean() float64 { return l.Sum / l.Weight }

// Excess tests whether a model's mean loss on the newest blocks is larger than its loss on the
// rest. It returns the total of the newest blocks and the p-value: the probability of at least
// this excess if all blocks are alike.
//
// Sums do not say how the loss varies from row to row, but blocks vary among themselves. For q
// blocks of losses lᵢ and weights wᵢ, with W = Σwᵢ, the mean ℓ = Σlᵢ/W has the variance
//
//	s² = q/(q−1) · Σ(lᵢ − ℓwᵢ)² / W²
//
// (ratio estimator: Cochran 1977, 6.13). The rest is taken to vary as much for its weight. The
// difference in units of its standard error follows Student's t with q − 1 degrees of freedom.
// It takes two blocks at least.
func Excess(newest []Loss, rest Loss) (all Loss, p float64) {
	for _, l := range newest {
		all.Sum += l.Sum
		all.Weight += l.Weight
	}
	mean := all.Mean()
	var squares float64
	for _, l := range newest {
		d := l.Sum - float64(mean*l.Weight)
		squares += float64(d * d)
	}
	q := float64(len(newest))
	variance := q / (q - 1) * squares / (all.Weight * all.Weight) * (1 + all.Weight/rest.Weight)
	// Losses from sums have about twelve digits. Equal blocks differ by no less.
	const digits = 1e-12
	deviation := max(math.Sqrt(variance), digits*max(mean, rest.Mean()))
	if deviation == 0 { // no loss at all
		return all, 0.5
	}
	t := (mean - rest.Mean()) / deviation
	return all, distuv.StudentsT{Sigma: 1, Nu: q - 1}.Survival(t)
}
