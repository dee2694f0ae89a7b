package ndc

import (
	"math"
	"sync"
)

// A word's number is in one of these quarters. See the package comment for its place
// there.
const (
	quarterGeometry uint64 = 0 << 62
	quarterTrain    uint64 = 1 << 62
	quarterTest     uint64 = 2 << 62
	quarterDrift    uint64 = 3 << 62

	drawStride = 1 << 52 // words that one draw of the geometry may use
)

// step is SplitMix64's γ, 2^64 over the golden ratio, made odd.
const step = 0x9e3779b97f4a7c15

// mix is SplitMix64's output function (Stafford's variant 13).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// words is a place in the sequence of random words. The word there is mix of it, and the
// next place is a step further.
type words uint64

// wordsAt is the place of word number k under key.
func wordsAt(key, k uint64) words { return words(key + k*step) }

func (w *words) next() uint64 {
	word := mix(uint64(*w))
	*w += step
	return word
}

// uniform is the next multiple of 2^-53 in [0, 1).
func (w *words) uniform() float64 { return float64(float64(w.next()>>11) * 0x1p-53) }

// Normals. A half word, made odd, is a number f with 0 < |f| < 2^31; its
// magnitude stands for the tail u = |f|/2^32, its sign for the side. |z| is
// linear in |f| between knots at 128 equal steps in each octave [2^e, 2^(e+1)),
// which are the leading 7 bits of the float64 f: exponent and leading bits are
// the table's index, with no branch and no loop.
const (
	octaves    = 31
	perOctave  = 128
	knotGrid   = 0x1p26 // |z| at a knot is a multiple of 1/knotGrid
	signBit    = 1 << 63
	indexShift = 52 - 7
)

// segment is the line |z| = a − b|f|. The bits of a, which is positive, take f's sign bit
// without a branch.
type segment struct {
	a uint64
	b float64
}

// segments has a power of two of entries so that a masked index needs no check.
type segments [32 * perOctave]segment

// normalTable is computed at the first New, so that a program without NDC does not pay
// for it.
var normalTable = sync.OnceValue(func() *segments {
	var t segments
	for e := range octaves {
		width := float64(math.Ldexp(1, e) / perOctave)
		for k := range perOctave {
			f := float64(float64(perOctave+k) * width)
			z := float64(math.RoundToEven(float64(tail(f)*knotGrid)) / knotGrid)
			end := float64(math.RoundToEven(float64(tail(f+width)*knotGrid)) / knotGrid)
			// All exact: width is a power of two, f/width a small integer.
			b := (z - end) / width
			t[e*perOctave+k] = segment{math.Float64bits(z + float64(b*f)), b}
		}
	}
	return &t
})

// tail is the z that a standard normal exceeds with probability f/2^32.
func tail(f float64) float64 {
	return float64(math.Sqrt2 * math.Erfinv(1-float64(f*0x1p-31)))
}

// normal is the standard normal of a half word.
func (t *segments) normal(half uint32) float64 {
	f := float64(int32(half) | 1)
	bits := math.Float64bits(f)
	// The exponent's bias of 1023·128 is −128 modulo the table's length.
	s := &t[(bits>>indexShift+perOctave)%uint64(len(t))]
	return math.Float64frombits(s.a|bits&signBit) - float64(s.b*f)
}

// fill sets z to the normals of the words from a place on.
func (t *segments) fill(z []float64, from words) {
	i := 1
	for ; i < len(z); i += 2 {
		word := mix(uint64(from))
		from += step
		z[i-1], z[i] = t.normal(uint32(word)), t.normal(uint32(word>>32))
	}
	if i == len(z) {
		z[i-1] = t.normal(uint32(mix(uint64(from))))
	}
}

// toInteger, added and subtracted, rounds a float64 below 2^51 to the nearest integer,
// ties to even, and never gives −0.
const toInteger = 3 << 51

func round(x float64) float64 { return x + toInteger - toInteger }
