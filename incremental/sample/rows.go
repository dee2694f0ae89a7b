package sample

import "math"

// rows are rows of one block, by ascending index, in one array. Each consists of its
// index, its class and level, its place in the block, its weight and its numbers. Places
// are left out unless hasPlaces: then they are the indices. Weights are left out unless
// hasWeights. Numbers are float32 unless isWide; a float64 takes two words.
type rows struct {
	words     []uint32
	n         uint32 // numbers of a row
	flags     uint8
	low, high uint8 // bounds of the levels
}

const (
	head        = 2 // words: index, class and level
	levelBits   = 6
	mostClasses = 1 << (32 - levelBits)
)

// The flags of an encoding.
const (
	hasWeights = 1 << iota
	isWide
	hasPlaces
	isSparse // an encoding without zeros
)

// room returns space for m rows of the form of r.
func (r rows) room(m int) rows {
	return rows{words: make([]uint32, m*r.stride()), n: r.n, flags: r.flags, low: top}
}

// stride is the number of words of a row. It is asked for each row, and so it has no branches.
func (r *rows) stride() int { return r.numbers() + int(r.n)<<(r.flags&isWide/isWide) }

// weights is the offset of a row's weight, in words.
func (r *rows) weights() int { return head + int(r.flags&hasPlaces/hasPlaces) }

// numbers is the offset of a row's numbers, in words.
func (r *rows) numbers() int { return r.weights() + int(r.flags&hasWeights/hasWeights)<<1 }

func (r *rows) len() int { return len(r.words) / r.stride() }

func (r *rows) row(i int) []uint32 {
	stride := r.stride()
	return r.words[i*stride : (i+1)*stride]
}

func (r *rows) index(i int) uint32 { return r.words[i*r.stride()] }

func (r *rows) code(i int) int { return int(r.words[i*r.stride()+1] >> levelBits) }

func (r *rows) level(i int) int { return int(r.words[i*r.stride()+1] % levels) }

func (r *rows) weight(i int) float64 {
	if r.flags&hasWeights == 0 {
		return 1
	}
	return float64Of(r.row(i)[r.weights():])
}

// place is the row's place in its block.
func (r *rows) place(i int) uint32 {
	if r.flags&hasPlaces == 0 {
		return r.index(i)
	}
	return r.row(i)[head]
}

func (r *rows) at(i, j int) float64 {
	x := r.row(i)[r.numbers():]
	if r.flags&isWide != 0 {
		return float64Of(x[2*j:])
	}
	return float64(math.Float32frombits(x[j]))
}

// set puts row i and returns its words, with place, weight and numbers to be set.
func (r *rows) set(i int, index, code uint32, level uint8) []uint32 {
	row := r.row(i)
	row[0], row[1] = index, code<<levelBits|uint32(level)
	r.low, r.high = min(r.low, level), max(r.high, level)
	return row
}

func (r *rows) setPlace(i int, place uint32) {
	if r.flags&hasPlaces != 0 {
		r.row(i)[head] = place
	}
}

func (r *rows) setWeight(i int, v float64) { putFloat64(r.row(i)[r.weights():], v) }

// setNumber sets number j of row i. −0 becomes 0.
func (r *rows) setNumber(i, j int, x float64) {
	x += 0
	to := r.row(i)[r.numbers():]
	if r.flags&isWide != 0 {
		putFloat64(to[2*j:], x)
	} else {
		to[j] = math.Float32bits(float32(x))
	}
}

// nonZero counts the numbers that are not 0.
func (r *rows) nonZero() (count int) {
	for i := range r.len() {
		words := r.row(i)[r.numbers():]
		if r.flags&isWide != 0 {
			for j := 0; j < len(words); j += 2 {
				some := words[j] | words[j+1]
				count += int((some | -some) >> 31)
			}
			continue
		}
		for _, x := range words {
			count += int((x | -x) >> 31)
		}
	}
	return count
}

// leastBytes is the least that the weight and the numbers of a row take, encoded with flags.
func (r *rows) leastBytes(flags byte) int {
	if flags&isSparse != 0 {
		return 4*(r.numbers()-r.weights()) + (int(r.n)+7)/8
	}
	return 4 * (r.stride() - r.weights())
}

func float64Of(words []uint32) float64 {
	return math.Float64frombits(uint64(words[0]) | uint64(words[1])<<32)
}

func putFloat64(words []uint32, x float64) {
	bits := math.Float64bits(x)
	words[0], words[1] = uint32(bits), uint32(bits>>32)
}

// finite reports whether numbers in words, of float64 if they are wide, are finite.
func finite(words []uint32, wide bool) bool {
	const exponent32, exponent64 = 0x7f800000, 0x7ff00000
	if !wide {
		for _, w := range words {
			if w&exponent32 == exponent32 {
				return false
			}
		}
		return true
	}
	for i := 1; i < len(words); i += 2 { // the higher words
		if words[i]&exponent64 == exponent64 {
			return false
		}
	}
	return true
}

func isFloat32(x float64) bool { return float64(float32(x)) == x }

// narrowest returns the rows with numbers of float32 and without weights, as far as that
// loses nothing.
func (r rows) narrowest() rows {
	form := rows{n: r.n, flags: r.flags & hasPlaces}
	for i := range r.len() {
		if r.weight(i) != 1 {
			form.flags |= hasWeights
		}
		for j := 0; form.flags&isWide != r.flags&isWide && j < int(r.n); j++ {
			if !isFloat32(r.at(i, j)) {
				form.flags |= isWide
			}
		}
	}
	if form.flags == r.flags {
		return r
	}
	out := form.room(r.len())
	for i := range r.len() {
		out.set(i, r.index(i), uint32(r.code(i)), uint8(r.level(i)))
		out.setPlace(i, r.place(i))
		if out.flags&hasWeights != 0 {
			out.setWeight(i, r.weight(i))
		}
		for j := range int(r.n) {
			out.setNumber(i, j, r.at(i, j))
		}
	}
	return out
}

// above returns the rows at the floor of their class or above, or r if these are all.
func (r *rows) above(floor []uint8) rows {
	stride := r.stride()
	stays := func(row int) bool {
		word := r.words[row+1]
		return uint8(word%levels) >= floor[word>>levelBits]
	}
	m := 0
	for row := 0; row < len(r.words); row += stride {
		if stays(row) {
			m++
		}
	}
	switch m * stride {
	case 0:
		return rows{}
	case len(r.words):
		return *r
	}
	out := r.room(m)
	to := 0
	for row := 0; row < len(r.words); row += stride {
		if stays(row) {
			level := uint8(r.words[row+1] % levels)
			out.low, out.high = min(out.low, level), max(out.high, level)
			to += copy(out.words[to:], r.words[row:row+stride])
		}
	}
	if r.flags != 0 {
		return out.narrowest()
	}
	return out
}

// count is the number of the rows.
func count(of []rows) (m int) {
	for i := range of {
		m += of[i].len()
	}
	return m
}
