package reproduce

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// pairedT returns the p-value of the two-sided paired t-test, which the thesis takes from Mitchell,
// "Machine Learning", 1997, section 5.6. It is the probability that the means of a and b lie as far
// apart as they do, or farther, if the differences of pairs are independent and normal with mean 0.
// It is 1 if all pairs are equal, and 0 if all differ by the same. It panics with fewer than two
// pairs.
//
// With n pairs, mean difference δ and variance s² (n−1 degrees of freedom), t² = n·δ²/s², and
// p = I_x((n−1)/2, 1/2) with x = (n−1)/(n−1+t²), where I is the regularised incomplete beta
// function.
func pairedT(a, b []float64) float64 {
	if len(a) != len(b) || len(a) < 2 {
		panic("reproduce: a t-test of too few pairs")
	}
	n := float64(len(a))
	var mean, squares float64
	for i := range a {
		mean += (a[i] - b[i]) / n
	}
	largest := 0.0
	for i := range a {
		rest := a[i] - b[i] - mean
		squares += rest * rest
		largest = max(largest, math.Abs(a[i]), math.Abs(b[i]))
	}
	// Equal differences leave the rounding of their mean.
	if rounding := largest * 0x1p-50; squares <= n*rounding*rounding {
		if math.Abs(mean) <= rounding {
			return 1
		}
		return 0
	}
	t2 := n * mean * mean * (n - 1) / squares
	return mathext.RegIncBeta((n-1)/2, 0.5, (n-1)/(n-1+t2))
}
