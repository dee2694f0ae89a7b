package schema

import "math"

// log1p is log(1+x), of x > −1, with the same bits on every processor. It is that of package math
// (FreeBSD's s_log1p.c, Sun Microsystems 1993) with each product rounded, where a compiler might
// fuse it with a sum.
func log1p(x float64) float64 {
	const (
		ln2High = 6.93147180369123816490e-01
		ln2Low  = 1.90821492927058770002e-10
		p1      = 6.666666666666735130e-01
		p2      = 3.999999999940941908e-01
		p3      = 2.857142874366239149e-01
		p4      = 2.222219843214978396e-01
		p5      = 1.818357216161805012e-01
		p6      = 1.531383769920937332e-01
		p7      = 1.479819860511658591e-01
		small   = 1.0 / (1 << 29)
		tiny    = 1.0 / (1 << 54)
	)
	switch absolute := math.Abs(x); {
	case math.IsNaN(x) || math.IsInf(x, 1):
		return x
	case absolute < tiny:
		return x
	case absolute < small:
		return x - float64(float64(x*x)*0.5)
	}
	const sqrt2MinusOne, halfSqrt2MinusOne = 4.142135623730950488017e-01, -2.928932188134524755992e-01
	f, c, k := x, 0.0, 0
	var mantissa uint64
	if x <= halfSqrt2MinusOne || x >= sqrt2MinusOne {
		u := 1 + x
		if math.Abs(x) < 1<<53 {
			bits := math.Float64bits(u)
			k = int(bits>>52) - 1023
			if c = x - (u - 1); k > 0 { // of the rounding of u
				c = 1 - (u - x)
			}
			c /= u
		} else {
			u = x
			k = int(math.Float64bits(u)>>52) - 1023
		}
		bits := math.Float64bits(u)
		mantissa = bits & (1<<52 - 1)
		if mantissa < 0x0006a09e667f3bcd { // of the square root of 2
			u = math.Float64frombits(mantissa | 0x3ff0000000000000)
		} else {
			k++
			u = math.Float64frombits(mantissa | 0x3fe0000000000000)
			mantissa = (1<<52 - mantissa) >> 2
		}
		f = u - 1
	} else {
		mantissa = 1
	}
	half := float64(float64(0.5*f) * f)
	kf := float64(k)
	if mantissa == 0 {
		if f == 0 {
			if k == 0 {
				return 0
			}
			c += float64(kf * ln2Low)
			return float64(kf*ln2High) + c
		}
		r := float64(half * (1 - float64(0.66666666666666666*f)))
		if k == 0 {
			return f - r
		}
		return float64(kf*ln2High) - ((r - (float64(kf*ln2Low) + c)) - f)
	}
	s := f / (2 + f)
	z := float64(s * s)
	r := p6 + float64(z*p7)
	for _, p := range [...]float64{p5, p4, p3, p2, p1} {
		r = p + float64(z*r)
	}
	r = float64(z * r)
	if k == 0 {
		return f - (half - float64(s*(half+r)))
	}
	return float64(kf*ln2High) - ((half - (float64(s*(half+r)) + (float64(kf*ln2Low) + c))) - f)
}
