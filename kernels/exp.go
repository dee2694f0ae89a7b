package kernels

import "math"

const (
	// smallest is the least magnitude that exact sums can add.
	smallest = 0x1p-149
	// Cutoff is the exponent of a Gaussian below which it is 0: a whole number above
	// ln smallest = −103.3.
	Cutoff = -100
	cutoff = Cutoff

	// Adding and subtracting toInteger rounds to the nearest integer, which is in the
	// low bits of the sum.
	toInteger = 3 << 51

	log2e = 1.44269504088896340735992468100189214
	// ln 2 = ln2High + ln2Low, to 107 bits. y − k·ln2High needs no more than 53
	// bits, so the FMA gives it without error.
	ln2High = 0x1.62e42fefa39efp-1
	ln2Low  = 0x1.abc9e3b39803fp-56
)

// taylor holds 1/k! from k = 13 down to 2. For |r| ≤ ln2/2 the omitted terms are below
// 2^-57.
var taylor = [...]float64{
	1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320,
	1. / 5040, 1. / 720, 1. / 120, 1. / 24, 1. / 6, 1. / 2,
}

// reduce returns k and p with exp(y) = 2^k (1 + p) for y from −2^20 to 0, and
// |p| ≤ √2 − 1 up to rounding. The low bits of shifted are those of k.
func reduce(y float64) (shifted, k, p float64) {
	shifted = math.FMA(y, log2e, toInteger)
	k = shifted - toInteger
	r := math.FMA(-k, ln2High, y)
	r = math.FMA(-k, ln2Low, r)
	q := taylor[0]
	for _, c := range taylor[1:] {
		q = math.FMA(q, r, c)
	}
	return shifted, k, math.FMA(float64(r*r), q, r)
}

// expNonPositive is exp(y) for y from cutoff to 0, within one unit in the last
// place.
func expNonPositive(y float64) float64 {
	shifted, _, p := reduce(y)
	return math.Float64frombits(math.Float64bits(1+p) + math.Float64bits(shifted)<<52)
}

// gaussianOf is exp(−γs) for a finite s ≥ 0.
func gaussianOf(gamma, s float64) float64 {
	y := -float64(gamma * s)
	if y < cutoff {
		return 0
	}
	return expNonPositive(y)
}

// tanh is within 4 units in the last place. With q = exp(−2|y|) − 1 it is
// −q/(2 + q), which loses nothing near zero.
func tanh(y float64) float64 {
	a := math.Abs(y)
	if a > 20 {
		return math.Copysign(1, y) // 1 − tanh(20) is below 2^-56
	}
	_, k, p := reduce(-2 * a)
	scale := math.Float64frombits(uint64(int64(k)+1023) << 52)
	q := math.FMA(scale, p, scale-1)
	return math.Copysign(-q/(2+q), y)
}
