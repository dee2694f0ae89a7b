package retire

import (
	"iter"
	"math"
	"math/bits"
	"time"
)

// HalfLife is the age at which a live block weighs half as much as the newest one. Exactly one of
// Time and Rows is set; the zero HalfLife forgets nothing.
//
// The age of a block is the time between its event time and that of the newest live block, or the
// number of live rows of later event times: blocks of one time have one age. So it is a function of
// the live set, and no clock takes part.
//
// # Steps
//
// An axis is divided into steps, StepsPerHalving of them to a half-life. Event times are on an axis
// from 1970. Rows are counted from an origin P:
//
//	position of t = rows of times in [P, t]       (t ≥ P)
//	              = −(rows of times in (t, P))    (t < P)
//
// P is the time between the oldest live block, excluded, and the newest that is divisible by the
// largest power of two (in milliseconds); of blocks of one time, that time. A block that is added
// at the new end, or lets go at the old one, then moves no other block, except for the few that
// change P: these are as rare as the carries of a counter into its highest bits. With the age
// itself in place of the position, each new block would move one block over each boundary between
// steps.
//
// A block that is d steps below that of the newest position weighs Weight(d), where d differs from
// StepsPerHalving·age/half-life by less than 1. So a weight is between 2^-1/8 and 2^1/8 times
// 2^(-age/half-life), 9.1% off at most, apart from the rounding of Weight.
type HalfLife struct {
	Time time.Duration // at least 8 ms, in whole ms
	Rows int64         // up to 2^53
}

const (
	// StepsPerHalving is the number of steps to a half-life.
	StepsPerHalving = 8
	// MostHalvings bounds the weights: a block that is more than MostHalvings·StepsPerHalving steps
	// below the newest one weighs nothing, which is less than 2^-MostHalvings.
	MostHalvings = 32
	// WeightBits is the number of bits behind the point of Multiplier's factor.
	WeightBits = 16
)

// multipliers are 2^(WeightBits − j/StepsPerHalving), rounded to nearest.
var multipliers = [StepsPerHalving]uint64{65536, 60097, 55109, 50535, 46341, 42495, 38968, 35734}

// Multiplier is the weight of a block d steps below the newest: m·2^(−WeightBits−halvings). It is
// within 2^-16 of 2^(−d/StepsPerHalving), relative to that. Ok is false where the weight is zero.
func Multiplier(d uint64) (m uint64, halvings int, ok bool) {
	if d > MostHalvings*StepsPerHalving {
		return 0, 0, false
	}
	return multipliers[d%StepsPerHalving], int(d / StepsPerHalving), true
}

// Weight is Multiplier as a number.
func Weight(d uint64) float64 {
	m, halvings, _ := Multiplier(d)
	return math.Ldexp(float64(m), -WeightBits-halvings)
}

// Step is the step of a position: ⌊position·StepsPerHalving/half-life⌋.
func (h HalfLife) Step(position int64) int64 {
	half := h.Rows
	if half == 0 {
		half = h.Time.Milliseconds()
	}
	whole, rest := position/half, position%half
	if rest < 0 {
		whole, rest = whole-1, rest+half
	}
	hi, lo := bits.Mul64(uint64(rest), StepsPerHalving)
	part, _ := bits.Div64(hi, lo, uint64(half))
	return whole*StepsPerHalving + int64(part)
}

// origin is P of HalfLife.
func origin(oldest, newest int64) int64 {
	const sign = 1 << 63 // keeps the order of negative times
	if oldest == newest {
		return newest
	}
	highest := bits.Len64(uint64(oldest)^uint64(newest)) - 1 // bit where they differ
	return int64((uint64(newest)^sign)>>highest<<highest ^ sign)
}

// Origin is P of the live blocks in milliseconds since 1970. The blocks of a half-life in time need
// none: it is the lowest time.
func (l *Ledger) Origin(h HalfLife) int64 {
	first, ok := l.shelves[live].entries.Min()
	if !ok || h.Rows == 0 {
		return math.MinInt64
	}
	last, _ := l.shelves[live].entries.Max()
	return origin(first.milliseconds, last.milliseconds)
}

// End is the position of the newest live block, or 0 without one. With a half-life in rows it takes
// O(blocks since P).
func (l *Ledger) End(h HalfLife) (position int64) {
	last, ok := l.shelves[live].entries.Max()
	if !ok || h.Rows == 0 {
		return last.milliseconds
	}
	from := l.Origin(h)
	l.shelves[live].entries.Reverse(func(e ranked) bool {
		if e.milliseconds >= from {
			position += e.Rows
		}
		return e.milliseconds >= from
	})
	return position
}

// Ages yields the live blocks in descending rank with their ages, in rows or milliseconds. A
// position is that of the newest block less the age. The ledger and the entries must not change
// meanwhile.
func (l *Ledger) Ages(h HalfLife) iter.Seq2[*Entry, int64] {
	return func(yield func(*Entry, int64) bool) {
		last, _ := l.shelves[live].entries.Max()
		at := last.milliseconds
		var later, same int64 // rows of later times than at, and of at
		l.shelves[live].entries.Reverse(func(e ranked) bool {
			if h.Rows == 0 {
				return yield(e.Entry, last.milliseconds-e.milliseconds)
			}
			if e.milliseconds != at {
				later, same, at = later+same, 0, e.milliseconds
			}
			same += e.Rows
			return yield(e.Entry, later)
		})
	}
}
