package incremental

import "math"

// double is the unevaluated sum hi + lo of two float64 numbers, |lo| ≤ ulp(hi)/2,
// with about 106 significant bits (Dekker 1971). Joldes, Muller and Popescu (2017)
// prove these algorithms right to a few units of 2^-104. Explicit conversions keep a
// compiler from fusing operations that must round twice.
type double struct{ hi, lo float64 }

func twoSum(a, b float64) (s, e float64) {
	a, b = float64(a), float64(b) // products of a caller that this is inlined into
	s = a + b
	bb := s - a
	return s, (a - (s - bb)) + (b - bb)
}

func quickTwoSum(a, b float64) double {
	a, b = float64(a), float64(b)
	s := a + b
	return double{s, b - (s - a)}
}

func twoProduct(a, b float64) (p, e float64) {
	p = float64(a * b)
	return p, math.FMA(a, b, -p)
}

func toDouble(x float64) double { return double{hi: x} }

func (a double) add(b double) double {
	s, e := twoSum(a.hi, b.hi)
	t, f := twoSum(a.lo, b.lo)
	r := quickTwoSum(s, e+t)
	return quickTwoSum(r.hi, f+r.lo)
}

func (a double) neg() double { return double{-a.hi, -a.lo} }

func (a double) sub(b double) double { return a.add(b.neg()) }

func (a double) mul(b double) double {
	p, e := twoProduct(a.hi, b.hi)
	t := float64(a.lo * b.lo)
	t = math.FMA(a.hi, b.lo, t)
	t = math.FMA(a.lo, b.hi, t)
	return quickTwoSum(p, e+t)
}

// div divides by b ≠ 0: three digits of long division in base 2^53.
func (a double) div(b double) double {
	q1 := a.hi / b.hi
	r := a.sub(b.mul(toDouble(q1)))
	q2 := r.hi / b.hi
	r = r.sub(b.mul(toDouble(q2)))
	q3 := r.hi / b.hi
	return quickTwoSum(q1, q2).add(toDouble(q3))
}

// sqrt of a ≥ 0: a float64 root and one Newton step.
func (a double) sqrt() double {
	if a.hi <= 0 {
		return double{}
	}
	x := math.Sqrt(a.hi)
	r := a.sub(toDouble(x).mul(toDouble(x)))
	return quickTwoSum(x, r.hi/(2*x))
}
