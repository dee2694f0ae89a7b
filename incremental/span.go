package incremental

import (
	"math"
	"math/bits"
)

// span bounds numbers: each is zero or a multiple of 2^low below 2^high.
type span struct {
	low, high int
	used, bad bool
}

// cover extends the span to bound these numbers, too.
func (s *span) cover(xs []float64) {
	low, high := math.MaxInt, math.MinInt
	for _, x := range xs {
		b := math.Float64bits(x)
		exponent := int(b >> 52 & 0x7ff)
		if uint(exponent-1) < 0x7fe { // a normal number: the usual case
			low = min(low, exponent-1075+bits.TrailingZeros64(b|1<<52))
			high = max(high, exponent-1075+53)
			continue
		}
		switch mantissa := b & (1<<52 - 1); {
		case exponent != 0:
			s.bad = true
		case mantissa != 0:
			low = min(low, -1074+bits.TrailingZeros64(mantissa))
			high = max(high, -1074+bits.Len64(mantissa))
		}
	}
	switch {
	case low > high: // zeros alone
	case s.used:
		s.low, s.high = min(s.low, low), max(s.high, high)
	default:
		s.low, s.high, s.used = low, high, true
	}
}

// union bounds the numbers of both.
func (s span) union(t span) span {
	switch {
	case !t.used:
		s.bad = s.bad || t.bad
		return s
	case !s.used:
		t.bad = s.bad || t.bad
		return t
	}
	return span{low: min(s.low, t.low), high: max(s.high, t.high), used: true, bad: s.bad || t.bad}
}

// plus bounds the terms of s + t and their sums.
func (s span) plus(t span) span {
	if !s.used || !t.used {
		if t.used {
			s.low, s.high, s.used = t.low, t.high, true
		}
		s.bad = s.bad || t.bad
		return s
	}
	return span{low: min(s.low, t.low), high: max(s.high, t.high) + 1, used: true, bad: s.bad || t.bad}
}

func (s span) times(t span) span {
	if !s.used || !t.used {
		return span{bad: s.bad || t.bad}
	}
	return span{low: s.low + t.low, high: s.high + t.high, used: true, bad: s.bad || t.bad}
}
