package incremental

import (
	"math"
	"math/bits"

	"streamd/incremental/exact"
)

// gridded is the numbers of a feature in shift (origin c, t and w), as integers times 2^exponent.
type gridded struct {
	exponent int
	c, t, w  int64
}

// shiftIntegers is the part of shift after Σv for numbers that are integers below 2^62 in a unit
// of each feature. The numbers of float32 features mostly are. Then an entry of Σvxx' takes one
// addition of 128 bits in place of one for each of its terms. It reports false, and has added
// nothing, for other numbers. v is Σv with the factor.
func (c *classState) shiftIntegers(from *classSummary, origin []float64, v, factor float64, grid []gridded) bool {
	const most = 0x1p62
	low := lowest(v)
	units, scale := v, 1.0 // v in units of the lower of 1 and its lowest bit
	if low < 0 {
		if low < -64 {
			return false
		}
		scale = math.Ldexp(1, -low)
		units = v * scale
	}
	if !(math.Abs(units) < most) {
		return false
	}
	weight, low := int64(units), min(low, 0)
	for j, cj := range origin {
		t := factor * from.s[j]
		e := min(lowest(t), lowest(cj)+low)
		if e < -farthest {
			return false
		}
		e = min(e, farthest)                               // zeros are anything
		unit := math.Float64frombits(uint64(1023-e) << 52) // 2^-e
		ti, ci := t*unit, cj*unit
		if !(math.Abs(ti)+math.Abs(float64(ci*v)) < most && math.Abs(ci) < most) {
			return false
		}
		grid[j] = gridded{exponent: e, c: int64(ci), t: int64(ti), w: int64(ti) + weight*int64(ci/scale)}
	}
	for k := range grid {
		g := &grid[k]
		if !c.s.AddInteger(k, uint64(g.w>>63), uint64(g.w), g.exponent) {
			for _, x := range sumWithProduct(factor*from.s[k], v, origin[k]) {
				c.s.Add(k, x)
			}
		}
	}
	p := 0
	for j := range grid {
		a := &grid[j]
		for k := range grid[:j+1] {
			b := &grid[k]
			e := a.exponent + b.exponent
			x := factor * from.cross[p+k]
			hi, lo, fits := integerOf(x, e)
			hi, lo = addProduct(hi, lo, a.t, b.c)
			hi, lo = addProduct(hi, lo, a.c, b.w)
			if !c.cross.AddInteger(p+k, hi, lo, e) { // then the window grows by the terms
				c.cross.AddProducts(p+k, exact.FactorOf(factor*from.s[j]), []exact.Factor{exact.FactorOf(origin[k])})
				for _, w := range sumWithProduct(factor*from.s[k], v, origin[k]) {
					c.cross.AddProducts(p+k, exact.FactorOf(origin[j]), []exact.Factor{exact.FactorOf(w)})
				}
				fits = false
			}
			if !fits {
				c.cross.Add(p+k, x)
			}
		}
		p += j + 1
	}
	return true
}

// farthest bounds an exponent of a grid, so that 2^±farthest and the products of two are far from
// the ends of float64.
const farthest = 256

// lowest is the exponent of the lowest bit of a number, and beyond farthest for 0.
func lowest(x float64) int {
	b := math.Float64bits(x)
	if b<<1 == 0 {
		return 2 * farthest
	}
	return int(b>>52&0x7ff) - 1075 + bits.TrailingZeros64(b|1<<52)
}

// integerOf is x as a signed integer of 128 bits in units of 2^e. ok is false, and the integer 0,
// if it is none below 2^124.
func integerOf(x float64, e int) (hi, lo uint64, ok bool) {
	b := math.Float64bits(x)
	m := b&(1<<52-1) | 1<<52
	switch shift := int(b>>52&0x7ff) - 1075 - e; {
	case b<<1 == 0:
		return 0, 0, true
	case shift < 0:
		if shift < -52 || bits.TrailingZeros64(m) < -shift {
			return 0, 0, false
		}
		lo = m >> -shift
	case shift < 64:
		hi, lo = m>>(64-shift), m<<shift
	case shift < 72:
		hi = m << (shift - 64)
	default:
		return 0, 0, false
	}
	sign := uint64(int64(b) >> 63)
	lo, borrow := bits.Sub64(lo^sign, sign, 0)
	hi, _ = bits.Sub64(hi^sign, sign, borrow)
	return hi, lo, true
}

// addProduct adds a·b to a signed integer of 128 bits.
func addProduct(hi, lo uint64, a, b int64) (uint64, uint64) {
	h, l := bits.Mul64(uint64(a), uint64(b))
	h -= uint64(a>>63)&uint64(b) + uint64(b>>63)&uint64(a)
	lo, carry := bits.Add64(lo, l, 0)
	hi, _ = bits.Add64(hi, h, carry)
	return hi, lo
}
