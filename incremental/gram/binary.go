package gram

import (
	"encoding/binary"
	"math"
	"math/bits"
	"unsafe"
)

// Columns of 0 and 1 with origin 0 are summed by their ones. A term of a sum that has a zero for
// a factor changes no lane, so it can be left out. A product of two such columns counts the rows
// that have both, which is exact in any order. A product with another column keeps its lanes: the
// terms of each are those of the canonical order without zeros. So the bits are those of the dense
// kernel.

const (
	leastBinary = 8 // the least number of binary columns for which ones are collected
	mixing      = 4 // the number of other columns that are multiplied with binary ones at a time
	// binaryRows are looked at together: long runs of a column, and yet in cache where the columns
	// of a row lie side by side.
	binaryRows = 4 * stretch
	probedRows = 64 // the first rows, which say whether ones are worth collecting
)

// Binary reports whether the column is 0 or 1 in each row of weight > 0 (nil: in every row).
func Binary(c Column, weights []float64) bool {
	var masks [binaryRows / 64]uint64
	for from := 0; from < c.n; from += binaryRows {
		to := min(from+binaryRows, c.n)
		if weights == nil {
			if c.kind != Indicator && !c.ones(masks[:], from, to) {
				return false
			}
			continue
		}
		for i := from; i < to; i++ {
			if weights[i] > 0 {
				if x := c.At(i); x != 0 && x != 1 {
					return false
				}
			}
		}
	}
	return true
}

// ones sums binary columns by their ones. It numbers them: first the indicators, group by group,
// with one number behind each group for codes without a column, then the others.
type ones struct {
	at     []int // by number: the column of the block, or −1
	groups []group
	bits   []Column // binary columns that are no indicators, as far as the first rows tell
	bad    []bool   // such a column is not binary
	list   []uint16 // row i has the ones of bits list[ends[i]:ends[i+1]], by number, ascending
	ends   []int

	binary  []bool // by column of the block
	others  []int  // the block's other columns
	columns []Column
	sums    Sums // of the other columns, for one class

	found []uint32        // the ones of some rows, column by column: row<<16 | number
	place [binaryRows]int // first the number of ones of a row, then the place of its next

	tile   []uint16     // the numbers that each row of a tile has, in rows of width
	counts [stretch]int // how many these are
	width  int
	pairs  []uint32          // packed lower triangle by number: the rows that have both
	mixed  []float64         // by number: the products with the other columns
	lanes  [][mixing]float64 // of the products with some others
	terms  []uint32          // of a tile: (number · lanes + lane)<<8 | row of the tile
	seen   []int             // by number: the last tile that had it
	newest []uint16          // the numbers of a tile
	tiles  int
}

// group is the indicators that view the same codes.
type group struct {
	column  Column
	numbers []uint16 // by code; the last entry is for codes from there on
}

// sumBinary sums unweighted rows by ones where that takes less time, and reports whether it has.
func (k *Kernel) sumBinary(sums []Sums, columns []Column, codes []int32, c []float64) bool {
	z := &k.ones
	defer z.release()
	if !z.divide(columns, c, k.variant.perTerm) || !z.collect(columns, len(codes), k.variant.perTerm) {
		return false
	}
	k.sorter.sort(codes, len(sums), nil)
	k.origin = k.origin[:0]
	z.columns = z.columns[:0]
	for _, j := range z.others {
		k.origin = append(k.origin, c[j])
		z.columns = append(z.columns, columns[j])
	}
	for code := range sums {
		rows := k.sorter.rows[k.sorter.start[code]:k.sorter.start[code+1]]
		if len(rows) == 0 {
			continue
		}
		z.begin()
		for from := 0; from < len(rows) && !k.stopped(); from += stretch {
			some := rows[from:min(from+stretch, len(rows))]
			z.gather(some)
			z.count(len(some))
			if len(z.columns) == 0 {
				continue
			}
			for j := range z.columns {
				k.variant.gather(k.tile[j*tileStride:], z.columns[j], some, k.origin[j])
			}
			z.mix(k.tile)
			k.addTile(&z.sums, len(z.columns), len(some), false)
		}
		sum := &sums[code]
		sum.begin(len(columns))
		sum.Rows, sum.Weight = len(rows), float64(len(rows))
		z.spread(sum)
	}
	return true
}

// release keeps no reference to the block.
func (z *ones) release() {
	clear(z.groups)
	clear(z.bits)
	clear(z.columns)
}

// divide divides the columns into binary and other ones by the first rows, and numbers the former.
// It is false where these are few, or their ones too many.
func (z *ones) divide(columns []Column, c []float64, perTerm int) bool {
	z.at, z.groups, z.bits, z.others = z.at[:0], z.groups[:0], z.bits[:0], z.others[:0]
	rows, found := min(probedRows, columns[0].n), 0
	z.binary = grow(z.binary, len(columns))
	for j := range columns {
		var mask [1]uint64
		is := c[j] == 0 && columns[j].kind == Indicator
		if c[j] == 0 && !is && rows > 0 {
			first := columns[j].At(0)
			is = (first == 0 || first == 1) && columns[j].ones(mask[:], 0, rows)
		}
		if z.binary[j] = is; !is {
			z.others = append(z.others, j)
		}
		found += bits.OnesCount64(mask[0])
	}
	const none = math.MaxUint16
	if n := len(columns); n-len(z.others) < leastBinary || 2*n > none {
		return false
	}
	for j := range columns {
		if !z.binary[j] || columns[j].kind != Indicator || z.isNumbered(columns[j]) {
			continue
		}
		var numbers []uint16
		for i := j; i < len(columns); i++ {
			if z.binary[i] && columns[i].sameCodes(columns[j]) {
				_, code, _ := columns[i].Codes()
				for len(numbers) <= int(code)+1 {
					numbers = append(numbers, none)
				}
				if numbers[code] != none { // the same column once more
					z.binary[i], z.others = false, append(z.others, i)
					continue
				}
				numbers[code] = uint16(len(z.at))
				z.at = append(z.at, i)
			}
		}
		for code, number := range numbers {
			if number == none {
				numbers[code] = uint16(len(z.at))
			}
		}
		z.at = append(z.at, -1)
		z.groups = append(z.groups, group{column: columns[j], numbers: numbers})
	}
	for j := range columns {
		if z.binary[j] && columns[j].kind != Indicator {
			z.bits = append(z.bits, columns[j])
			z.at = append(z.at, j)
		}
	}
	return z.cost(found/max(rows, 1))*perTerm < z.dense()
}

// dense is the number of products of a row that ones can replace.
func (z *ones) dense() int {
	n := len(z.at) - len(z.groups) + len(z.others)
	return PackedLen(n) - PackedLen(len(z.others))
}

// cost is that of a row with that many ones besides those of the groups, in terms. A column that is
// looked through for ones costs half a term, and a one that is found six.
func (z *ones) cost(found int) int {
	ones := len(z.groups) + found
	return ones*(ones+3+2*len(z.others))/2 + len(z.bits)/2 + 6*found
}

// isNumbered reports whether the indicator is of a group that there is.
func (z *ones) isNumbered(c Column) bool {
	for i := len(z.groups) - 1; i >= 0; i-- {
		if z.groups[i].column.sameCodes(c) {
			return true
		}
	}
	return false
}

// collect lists the ones of m rows that no indicators have. It is false where there are too many to
// be worth it. A column that turns out not to be binary is one of the others then.
func (z *ones) collect(columns []Column, m, perTerm int) bool {
	z.width = len(z.groups)
	if len(z.bits) == 0 {
		return true
	}
	z.list = z.list[:0]
	z.ends = append(grow(z.ends, m+1)[:0], 0)
	z.bad = grow(z.bad, len(z.bits))
	clear(z.bad)
	most := 0
	for from := 0; from < m; from += binaryRows {
		to := min(from+binaryRows, m)
		z.find(from, to)
		rows := z.place[:to-from]
		end, terms := len(z.list), 0
		for r, count := range rows {
			most = max(most, count)
			terms += z.cost(count)
			rows[r] = end
			end += count
			z.ends = append(z.ends, end)
		}
		if terms*perTerm > z.dense()*len(rows) {
			return false
		}
		if cap(z.list) < end {
			z.list = append(make([]uint16, 0, max(end, 2*cap(z.list))), z.list...)
		}
		z.list = z.list[:end]
		for _, one := range z.found {
			r := one >> 16
			z.list[rows[r]] = uint16(one)
			rows[r]++
		}
	}
	z.width += most
	for b, bad := range z.bad {
		if bad {
			number := len(z.at) - len(z.bits) + b
			z.others = append(z.others, z.at[number])
			z.at[number] = -1
		}
	}
	return true
}

// find finds the ones of rows from to to−1 in columns that are no indicators, and counts those of
// each row.
func (z *ones) find(from, to int) {
	clear(z.place[:])
	z.found = z.found[:0]
	first := len(z.at) - len(z.bits)
	var masks [binaryRows / 64]uint64
	for b, c := range z.bits {
		if z.bad[b] = z.bad[b] || !c.ones(masks[:], from, to); z.bad[b] {
			continue
		}
		number := uint32(first + b)
		for i, mask := range masks[:(to-from+63)/64] {
			for ; mask != 0; mask &= mask - 1 {
				r := 64*i + bits.TrailingZeros64(mask)
				z.found = append(z.found, uint32(r)<<16|number)
				z.place[r]++
			}
		}
	}
}

// ones sets bit r of masks, 64 to a word, where element from+r is 1, and clears the others up to
// to−1. It is false, and masks are undefined, where an element is neither 0 nor 1. The column is no
// indicator.
func (c Column) ones(masks []uint64, from, to int) bool {
	masks = masks[:(to-from+63)/64]
	switch c.kind {
	case Float32:
		return floatBits(masks, elements[float32](c), c.stride, from, to)
	case Float64:
		return floatBits(masks, elements[float64](c), c.stride, from, to)
	case Int8, Uint8:
		return byteBits(masks, elements[uint8](c), c.stride, from, to)
	case Int16, Uint16:
		return wholeBits(masks, elements[uint16](c), c.stride, from, to)
	case Int32, Uint32:
		return wholeBits(masks, elements[uint32](c), c.stride, from, to)
	case Int64, Uint64:
		return wholeBits(masks, elements[uint64](c), c.stride, from, to)
	}
	clear(masks)
	at, x, _ := c.Slice(from, to).NonZero()
	for i, r := range at {
		switch x[i] {
		case 1:
			masks[r/64] |= 1 << (r % 64)
		case 0:
		default:
			return false
		}
	}
	return true
}

// The loops below have no branch for a number, which would be mispredicted.

// floatBits finds the ones of floats: x² − x is 0 for 0 and 1 alone.
func floatBits[T float32 | float64](masks []uint64, v []T, stride, from, to int) bool {
	var bad uint64
	for i := range masks {
		var mask uint64
		first := from + 64*i
		rows := min(64, to-first)
		some := v[first*stride:][:(rows-1)*stride+1]
		for r := range rows {
			x := float64(some[r*stride])
			bad |= math.Float64bits(float64(x*x) - x)
			mask |= math.Float64bits(x) >> 61 & 1 << (r & 63) // a bit of 1 that 0 and −0 have not
		}
		if masks[i] = mask; bad<<1 != 0 { // −0 is 0
			return false
		}
	}
	return true
}

func wholeBits[T uint8 | uint16 | uint32 | uint64](masks []uint64, v []T, stride, from, to int) bool {
	var all T
	for i := range masks {
		var mask uint64
		first := from + 64*i
		rows := min(64, to-first)
		some := v[first*stride:][:(rows-1)*stride+1]
		for r := range rows {
			x := some[r*stride]
			all |= x
			mask |= uint64(x) << (r & 63)
		}
		if masks[i] = mask; all > 1 {
			return false
		}
	}
	return true
}

// byteBits takes eight bytes at a time.
func byteBits(masks []uint64, v []uint8, stride, from, to int) bool {
	if stride != 1 {
		return wholeBits(masks, v, stride, from, to)
	}
	whole := (to - from) / 64
	for i := range masks[:whole] {
		var mask, all uint64
		for r := range 8 { // the product has the eight bytes' ones in its highest byte
			w := binary.LittleEndian.Uint64(v[from+64*i+8*r:])
			all |= w
			mask |= w * 0x0102040810204080 >> 56 << (8 * r)
		}
		if masks[i] = mask; all&^0x0101010101010101 != 0 {
			return false
		}
	}
	return wholeBits(masks[whole:], v, 1, from+64*whole, to)
}

// begin begins a class.
func (z *ones) begin() {
	n := len(z.at)
	z.pairs = grow(z.pairs, PackedLen(n))
	clear(z.pairs)
	z.mixed = grow(z.mixed, n*len(z.others))
	clear(z.mixed)
	z.lanes = grow(z.lanes, n*lanes)
	clear(z.lanes)
	z.seen = grow(z.seen, n)
	clear(z.seen)
	z.tiles = 0
	z.sums = Sums{S: z.sums.S[:0], Cross: z.sums.Cross[:0]}
}

// gather lists the numbers of the rows of a tile.
func (z *ones) gather(rows []int32) {
	z.tile = grow(z.tile, stretch*z.width)
	for g := range z.groups {
		codes, _, _ := z.groups[g].column.Codes()
		numbers := z.groups[g].numbers
		last := len(numbers) - 1
		at := g
		for _, i := range rows {
			z.tile[at] = numbers[min(int(codes[i]), last)]
			at += z.width
		}
	}
	for r, i := range rows {
		z.counts[r] = len(z.groups)
		if len(z.bits) > 0 {
			z.counts[r] += copy(z.tile[r*z.width+len(z.groups):], z.list[z.ends[i]:z.ends[i+1]])
		}
	}
}

// count counts the pairs of ones in the rows of a tile, and lists its terms.
func (z *ones) count(rows int) {
	first := unsafe.Pointer(unsafe.SliceData(z.pairs))
	for r := range rows {
		list := z.tile[r*z.width:][:z.counts[r]]
		for a, j := range list {
			pairs := unsafe.Add(first, 4*PackedLen(int(j))) // of j and all k ≤ j
			for _, k := range list[:a+1] {
				*(*uint32)(unsafe.Add(pairs, 4*int(k)))++
			}
		}
	}
	if len(z.others) == 0 {
		return
	}
	z.terms, z.newest = z.terms[:0], z.newest[:0]
	z.tiles++
	for r := range rows {
		lane := uint32(r % lanes)
		for _, j := range z.tile[r*z.width:][:z.counts[r]] {
			z.terms = append(z.terms, (uint32(j)*lanes+lane)<<8|uint32(r))
			if z.seen[j] != z.tiles {
				z.seen[j] = z.tiles
				z.newest = append(z.newest, j)
			}
		}
	}
}

// mix adds the products of binary columns with the columns of a tile, mixing of these at a time.
// The last column stands in for missing ones.
func (z *ones) mix(tile []float64) {
	n := len(z.others)
	for k := 0; k < n; k += mixing {
		d0 := (*[stretch]float64)(tile[k*tileStride:])
		d1 := (*[stretch]float64)(tile[min(k+1, n-1)*tileStride:])
		d2 := (*[stretch]float64)(tile[min(k+2, n-1)*tileStride:])
		d3 := (*[stretch]float64)(tile[min(k+3, n-1)*tileStride:])
		for _, term := range z.terms {
			l, r := &z.lanes[term>>8], term&(stretch-1)
			l[0] += d0[r]
			l[1] += d1[r]
			l[2] += d2[r]
			l[3] += d3[r]
		}
		for _, j := range z.newest {
			l := (*[lanes][mixing]float64)(z.lanes[int(j)*lanes:])
			to := z.mixed[int(j)*n:][k:n]
			for i := range min(mixing, len(to)) {
				to[i] += ((l[0][i] + l[4][i]) + (l[2][i] + l[6][i])) + ((l[1][i] + l[5][i]) + (l[3][i] + l[7][i]))
			}
			*l = [lanes][mixing]float64{}
		}
	}
}

// spread moves what is summed of a class to its sums.
func (z *ones) spread(sum *Sums) {
	p := 0
	for a, j := range z.at {
		if j < 0 {
			p += a + 1
			continue
		}
		for _, k := range z.at[:a+1] {
			if k >= 0 {
				sum.Cross[entry(j, k)] = float64(z.pairs[p])
			}
			p++
		}
		sum.S[j] = float64(z.pairs[p-1])
		for b, k := range z.others {
			sum.Cross[entry(j, k)] = z.mixed[a*len(z.others)+b]
		}
	}
	p = 0
	for a, j := range z.others {
		sum.S[j] = z.sums.S[a]
		for _, k := range z.others[:a+1] {
			sum.Cross[entry(j, k)] = z.sums.Cross[p]
			p++
		}
	}
}

// entry is the place of (j, k) in a packed lower triangle.
func entry(j, k int) int { return PackedLen(max(j, k)) + min(j, k) }
