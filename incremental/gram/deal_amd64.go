//go:build !purego

package gram

import (
	"fmt"
	"math/bits"
	"unsafe"
)

// Rows of few classes are dealt like cards: each class has a ring of two
// stretches, in the width of the data, into which its rows go; when one of the
// two is full it is summed. So every column is read once, in order, however the
// classes are mixed. Where rows go is the same for all columns and is planned
// once per stretch; then a column costs each class, in AVX-512, two permutations
// and one aligned store for 32 rows of 4 bytes, and in AVX2 one permutation and one
// store, wherever it falls, for 8 rows.
//
// In AVX-512 two classes of few columns have a way of their own, sumNarrow; without it,
// measured in ns per row of ten float32 columns and two classes, in cache, on
// one core of a Zen 5, in AVX-512: this 0.45, and the plan 0.1; storing a vector for
// each 16 rows 0.85; compressing each column and storing at the end of what is
// there 1.6 (in C), because most of those stores cross a cache line. The whole sum
// takes 2.4, and 8 when indices are sorted and rows gathered. On a Zen 4, whose
// vectors of 512 bits take two turns: 0.85, 0.35 and 3.8, of which the multiply-adds
// alone would take 2.0; in AVX2 1.5, 0.35 and 5.3, and 11 when sorted.
//
// Dealing in the kernels that sum, an instruction here and one there, was 2 % faster in
// cache and 5 % slower from memory: what comes late then holds up the sums. Summing
// under masks, without dealing, was not tried: it takes all multiply-adds, 55 in 8
// rows for ten columns, once more for each class but the first.
const (
	ringRows     = 2 * stretch
	ringStride32 = ringRows*4 + 64
	ringStride64 = ringRows*8 + 64
	dealBlock    = 5

	// readAhead is how far before the rows that are summed the columns are asked
	// for: two classes have some rows in hand that have been read, a stretch of them
	// on average, and this one is dealt next. Asking for what comes after it, or for
	// less, takes longer.
	readAhead = stretch
)

// A dealing is how a variant deals.
type dealing struct {
	planSize int           // bytes for one class and one width of elements
	planners [2][2]planner // for one class and for two, for 4-byte and for 8-byte elements
	deals    [Uint64 + 1]kindDeals
	narrow   bool // there is sumNarrow
}

// kindDeals are what deals one column of a kind, and five if that exists, to one
// class and to two.
type kindDeals struct{ one, five [2]deal }

type (
	planner = func(plan *byte, codes *int32, keep *byte, class int, positions, next *int)
	deal    = func(first, second, columns *byte, from int, plan *byte)
)

type dealer struct {
	dealing  *dealing
	plans    []byte   // of each class, for 4-byte and then for 8-byte elements
	position []int    // rows that each class has got
	next     []int    // and will have got with the stretch in hand
	sources  []Column // the features and the weights
	alike    []int    // of each source: how many from it on can be dealt together
	rings    []Column // for each class as many
	memory   []byte
	summed   int                  // rows, of all classes
	widths   int                  // 2: there are 8-byte elements
	keep     [stretch / 64]uint64 // bit r: row r is to be dealt
	codes    [stretch]int32       // of a block that is shorter than a stretch
	one      [1]Column
	narrow   *narrow          // nil: not used yet
	loose    [stretch]float64 // a column that is not contiguous, or of such a block
}

// sum sums the classes as their stretches fill up.
func (d *dealing) sum(k *Kernel, sums []Sums, columns []Column, codes []int32, weights []float64) {
	z := &k.dealer
	if d.narrow && k.fuse && len(sums) == 2 && len(columns) <= narrowColumns && len(codes) > 0 {
		k.sumNarrow(sums, columns, codes)
		return
	}
	z.prepare(d, len(sums), columns, weights)
	if k.fuse && len(codes) > 0 {
		askFor(bytesOf(columns), len(columns), 0, columns[0].kind.size()*min(readAhead, len(codes)))
	}
	for from := 0; from < len(codes) && !k.stopped(); from += stretch {
		// A last, short stretch is read from before its begin on, so that it is
		// a whole one; the rows that have been dealt are not dealt again.
		to := min(from+stretch, len(codes))
		first := max(min(from, to-stretch), 0)
		z.keepFrom(from - first)
		if weights != nil {
			z.keepPositive(weights[first:to])
		}
		z.plan(codes[first:to])
		z.deal(first, to)
		for class := range sums {
			old := z.position[class]
			z.position[class] = z.next[class]
			if old/stretch < z.next[class]/stretch && !k.stopped() {
				k.addDealt(&sums[class], class, old, stretch, weights != nil)
			}
		}
	}
	for class, rows := range z.position {
		if rows%stretch > 0 && !k.stopped() {
			k.addDealt(&sums[class], class, rows, rows%stretch, weights != nil)
		}
	}
	clear(z.sources) // no reference to the block stays
}

// addDealt sums the half of the class's rings that the row at position is in.
func (k *Kernel) addDealt(sum *Sums, class, position, rows int, weighted bool) {
	z := &k.dealer
	n := len(z.sources)
	from := position / stretch % 2 * stretch
	columns := z.rings[class*n:][:n]
	z.summed += rows
	if k.fuse {
		next, nextFrom := z.sources, z.summed+readAhead
		if nextFrom+stretch > z.sources[0].n {
			next, nextFrom = columns, from // there is nothing more to ask for
		}
		k.addFused(sum, columns, from, rows, next, nextFrom)
		return
	}
	k.variant.pack(k.tile, columns, from, from+rows, k.origin)
	if weighted {
		n--
	}
	k.addTile(sum, n, rows, weighted)
}

// prepare lays out rings for the columns of a block.
func (z *dealer) prepare(d *dealing, classes int, columns []Column, weights []float64) {
	z.dealing = d
	z.sources = append(z.sources[:0], columns...)
	if weights != nil {
		z.sources = append(z.sources, ColumnOf(weights))
	}
	z.summed = 0
	z.position, z.next = grow(z.position, classes), grow(z.next, classes)
	clear(z.position)
	z.plans = grow(z.plans, 2*classes*d.planSize+64)

	z.alike = grow(z.alike, len(z.sources))
	for j := range z.sources {
		z.alike[j] = alike(z.sources[j:min(j+dealBlock, len(z.sources))])
	}
	z.rings = z.rings[:0]
	size := 0
	for _, c := range z.sources {
		ring := Column{n: ringRows, stride: 1, kind: ringKind(c)}
		z.rings = append(z.rings, ring)
		size += ringStride(ring)
	}
	n := len(z.sources)
	z.memory = grow(z.memory, classes*size+64)
	next := unsafe.Pointer(aligned(z.memory))
	for class := range classes {
		if class > 0 {
			z.rings = append(z.rings, z.rings[:n]...)
		}
		for j := range n {
			ring := &z.rings[class*n+j]
			ring.base = next
			next = unsafe.Add(next, ringStride(*ring))
		}
	}
	z.widths = 1
	if size > n*ringStride32 {
		z.widths = 2
	}
}

// aligned is where the first cache line of memory begins.
func aligned(memory []byte) *byte {
	first := unsafe.Pointer(unsafe.SliceData(memory))
	return (*byte)(unsafe.Add(first, -uintptr(first)&63))
}

// planOf is the plan for a class and elements of that many bytes.
func (z *dealer) planOf(class, size int) *byte {
	return (*byte)(unsafe.Add(unsafe.Pointer(aligned(z.plans)), (2*class+size/8)*z.dealing.planSize))
}

// ringKind is the kind in which a column's numbers wait in a ring.
func ringKind(c Column) Kind {
	switch {
	case c.stride != 1:
		return Float64
	case c.kind.size() < 4:
		return Int32
	}
	return c.kind
}

func ringStride(ring Column) int { return ring.kind.size()*ringRows + 64 }

// keepFrom says that rows first to stretch are to be dealt.
func (z *dealer) keepFrom(first int) {
	for i := range z.keep {
		z.keep[i] = ^uint64(0) << max(first-64*i, 0)
	}
}

func (z *dealer) keepPositive(weights []float64) {
	for r, v := range weights {
		if !(v > 0) {
			z.keep[r/64] &^= 1 << (r % 64)
		}
	}
}

// plan plans the dealing of rows of the given codes, up to a stretch.
func (z *dealer) plan(codes []int32) {
	kept := 0
	for _, rows := range z.keep {
		kept += bits.OnesCount64(rows)
	}
	if len(codes) < stretch {
		kept -= stretch - len(codes)
		for i := copy(z.codes[:], codes); i < stretch; i++ {
			z.codes[i] = -1
		}
		codes = z.codes[:]
	}
	for class, step := 0, 0; class < len(z.position); class += step {
		step = min(2, len(z.position)-class)
		for i, plan := range z.dealing.planners[step-1][:z.widths] {
			plan(z.planOf(class, 4<<i), &codes[0], (*byte)(unsafe.Pointer(&z.keep)),
				class, &z.position[class], &z.next[class])
		}
	}
	for class, next := range z.next {
		kept -= next - z.position[class]
	}
	if kept != 0 {
		panic(fmt.Sprintf("gram: a class code is out of range 0 to %d", len(z.position)-1))
	}
}

// deal deals rows from to to.
func (z *dealer) deal(from, to int) {
	n := len(z.sources)
	for j := 0; j < n; {
		columns, first := z.sources[j:], from
		count := z.alike[j]
		if count == 0 || to-from < stretch {
			z.one[0] = z.loosen(columns[0], from, to)
			columns, first, count = z.one[:], 0, 1
		}
		kind := columns[0].kind
		do := &z.dealing.deals[kind].one
		if count >= dealBlock && z.dealing.deals[kind].five[0] != nil {
			do, count = &z.dealing.deals[kind].five, dealBlock
		} else {
			count = 1
		}
		size := z.rings[j].kind.size()
		for class, step := 0, 0; class < len(z.position); class += step {
			step = min(2, len(z.position)-class)
			last := class + step - 1
			do[step-1]((*byte)(z.rings[class*n+j].base), (*byte)(z.rings[last*n+j].base),
				bytesOf(columns), first*kind.size(), z.planOf(class, size))
		}
		j += count
	}
}

// loosen copies rows from to to of a column, so that a whole stretch can be
// read: as they are when they are contiguous, as float64 otherwise.
func (z *dealer) loosen(c Column, from, to int) Column {
	copied := Column{base: unsafe.Pointer(&z.loose), n: stretch, stride: 1, kind: c.kind}
	if c.stride != 1 {
		c.pack(z.loose[:], from, to, 0)
		copied.kind = Float64
		return copied
	}
	size := c.kind.size()
	source := unsafe.Slice((*byte)(c.base), c.n*size)
	copy(unsafe.Slice((*byte)(copied.base), stretch*size), source[from*size:to*size])
	return copied
}

// A plan says where the rows of a stretch go that are of one class; the generator
// has the particulars.
type planAVX512 struct {
	list                            [35][64]byte // rows, by 4 or 8 bytes
	slot, begin, free, whole, twice [17]uint16   // of each group; slot also of what is after the last
	_                               [22]byte     // to whole cache lines
}

type planAVX2 struct {
	list  [64][32]byte // of each group
	slot  [64]uint32   // of each group
	spill [32]byte
}

var dealAVX512 = dealing{
	planSize: int(unsafe.Sizeof(planAVX512{})),
	narrow:   true,
	planners: [2][2]planner{{plan32to1AVX512, plan64to1AVX512}, {plan32to2AVX512, plan64to2AVX512}},
	deals: [...]kindDeals{
		Float32: deal32AVX512, Float64: deal64AVX512,
		Int8:  {one: [2]deal{dealInt8x1to1AVX512, dealInt8x1to2AVX512}},
		Int16: {one: [2]deal{dealInt16x1to1AVX512, dealInt16x1to2AVX512}},
		Int32: deal32AVX512, Int64: deal64AVX512,
		Uint8:  {one: [2]deal{dealUint8x1to1AVX512, dealUint8x1to2AVX512}},
		Uint16: {one: [2]deal{dealUint16x1to1AVX512, dealUint16x1to2AVX512}},
		Uint32: deal32AVX512, Uint64: deal64AVX512,
	},
}

var (
	deal32AVX512 = kindDeals{
		[2]deal{deal32x1to1AVX512, deal32x1to2AVX512},
		[2]deal{deal32x5to1AVX512, deal32x5to2AVX512},
	}
	deal64AVX512 = kindDeals{
		[2]deal{deal64x1to1AVX512, deal64x1to2AVX512},
		[2]deal{deal64x5to1AVX512, deal64x5to2AVX512},
	}
)

var dealAVX2 = dealing{
	planSize: int(unsafe.Sizeof(planAVX2{})),
	planners: [2][2]planner{{plan32to1AVX2, plan64to1AVX2}, {plan32to2AVX2, plan64to2AVX2}},
	deals: [...]kindDeals{
		Float32: deal32AVX2, Float64: deal64AVX2,
		Int8:  {one: [2]deal{dealInt8x1to1AVX2, dealInt8x1to2AVX2}},
		Int16: {one: [2]deal{dealInt16x1to1AVX2, dealInt16x1to2AVX2}},
		Int32: deal32AVX2, Int64: deal64AVX2,
		Uint8:  {one: [2]deal{dealUint8x1to1AVX2, dealUint8x1to2AVX2}},
		Uint16: {one: [2]deal{dealUint16x1to1AVX2, dealUint16x1to2AVX2}},
		Uint32: deal32AVX2, Uint64: deal64AVX2,
	},
}

var (
	deal32AVX2 = kindDeals{
		[2]deal{deal32x1to1AVX2, deal32x1to2AVX2},
		[2]deal{deal32x5to1AVX2, deal32x5to2AVX2},
	}
	deal64AVX2 = kindDeals{
		[2]deal{deal64x1to1AVX2, deal64x1to2AVX2},
		[2]deal{deal64x5to1AVX2, deal64x5to2AVX2},
	}
)
