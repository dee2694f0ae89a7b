package incremental

import (
	"iter"
	"math"

	"streamd/incremental/gram"
)

// A column's sum of squares about an origin is at least its sum of squares about the
// mean, and float64 loses digits in proportion to the quotient. These constants bound
// the quotient: for any column, and for a column of exact sums, which loses digits
// only in its products with other columns.
const (
	mostOffCentre      = 16   // 3.9 standard deviations
	mostExactOffCentre = 1024 // 32 standard deviations
)

// recentre moves the origin of each column that is off centre to the median of all
// rows, and reports whether any has moved. The median is within one standard deviation
// of the mean, so one step is enough. It costs O(k·n), and O(m) for each column that
// moves. sums are about the present origin; order lists those of classes with rows.
func recentre(b *Block, sums []gram.Sums, order []int, origin []float64) (moved bool) {
	for j := range origin {
		square, off := offCentre(sums, order, j, mostOffCentre)
		if !off {
			continue
		}
		if _, far := offCentre(sums, order, j, mostExactOffCentre); !far && exactSums(b, j, origin[j], square) {
			continue
		}
		if gram.Binary(b.Columns[j], b.Weights) {
			continue // at most a digit is lost for each hundredfold of rows
		}
		if c := weightedMedian(b, j); c != origin[j] {
			origin[j], moved = c, true
		}
	}
	return moved
}

// offCentre reports whether Σv(x−c)² of column j exceeds most times Σv(x−μ)² over the
// rows of all classes, and returns Σv(x−c)². Since Σv(x−μ)² = Σv(x−c)² − (Σv(x−c))²/Σv,
// the comparison can be arranged so that nothing cancels. Sums that are not finite are
// not off centre.
func offCentre(sums []gram.Sums, order []int, j int, most float64) (square float64, off bool) {
	var weight, first float64
	diagonal := gram.PackedLen(j) + j
	for _, code := range order {
		sum := &sums[code]
		weight += sum.Weight
		first += sum.S[j]
		square += sum.Cross[diagonal]
	}
	return square, float64(first*first) > float64((1-1/most)*float64(weight*square))
}

// exactSums reports whether float64 computes square = Σv(x−c)² of column j exactly in
// any order. All terms are multiples of one power of two, and square must be below 2^53
// times that power. Columns of small whole numbers, such as indicators of categories,
// pass.
func exactSums(b *Block, j int, c, square float64) bool {
	var numbers, weights span
	numbers.cover([]float64{c})
	weights.cover([]float64{1})
	for x, v := range weighted(b, j) {
		numbers.cover(x)
		weights.cover(v)
	}
	return !numbers.bad && square < math.Ldexp(1, 2*numbers.low+weights.low+53)
}

// weightedMedian is the least value of column j that, together with the values
// below it, has half of the weight. It is a radix selection without memory of its own:
// each of eight passes over the rows finds one byte of the median, the highest first.
// The order of the rows matters only to the rounding of their weights.
func weightedMedian(b *Block, j int) float64 {
	var found uint64 // the bytes of the median's key that are known
	half := math.NaN()
	for shift := 56; shift >= 0; shift -= 8 {
		var weights [256]float64
		for xs, vs := range weighted(b, j) {
			for i, x := range xs {
				key := orderedBits(x)
				if key>>shift>>8 != found {
					continue
				}
				v := 1.0
				if vs != nil {
					v = vs[i]
				}
				weights[byte(key>>shift)] += v
			}
		}
		if shift == 56 {
			var all float64
			for _, v := range weights {
				all += v
			}
			half = all / 2
		}
		last := 0 // the highest byte that occurs, if rounding leaves half out of reach
		for digit, v := range weights {
			if v == 0 {
				continue
			}
			last = digit
			if v >= half {
				break
			}
			half -= v
		}
		found = found<<8 | uint64(last)
	}
	return fromOrderedBits(found)
}

// orderedBits maps numbers to unsigned integers of the same order. −0 becomes 0.
func orderedBits(x float64) uint64 {
	bits := math.Float64bits(x + 0)
	if bits>>63 != 0 {
		return ^bits
	}
	return bits | 1<<63
}

func fromOrderedBits(key uint64) float64 {
	if key>>63 != 0 {
		return math.Float64frombits(key &^ (1 << 63))
	}
	return math.Float64frombits(^key)
}

// weighted yields the values of column j in the rows of weight > 0 and their weights
// (nil: 1 each), up to gram.TileRows at a time. The slices are valid until the next.
func weighted(b *Block, j int) iter.Seq2[[]float64, []float64] {
	return func(yield func(x, v []float64) bool) {
		var numbers, weights [gram.TileRows]float64
		for from := 0; from < b.Rows(); from += gram.TileRows {
			x := numbers[:min(gram.TileRows, b.Rows()-from)]
			b.Columns[j].Copy(x, from)
			var v []float64
			if b.Weights != nil {
				v = weights[:0]
				for i, w := range b.Weights[from:][:len(x)] {
					if w > 0 {
						x[len(v)] = x[i]
						v = append(v, w)
					}
				}
				x = x[:len(v)]
			}
			if !yield(x, v) {
				return
			}
		}
	}
}
