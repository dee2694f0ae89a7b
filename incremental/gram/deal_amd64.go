//go:build !purego

package gram

import (
	"fmt"
	"math/bits"
	"unsafe"
)

// Rows of few classes are dealt like cards. Each class has a ring of two stretches, in
// the width of the data. Rows go into their class's ring, and a full stretch is summed.
// So every column is read once, in order, however the classes are mixed.
//
// The places of the rows are the same for all columns, so they are planned once per
// stretch. Per class, a column then takes two permutations and one aligned store for 32
// rows of 4 bytes in AVX-512, and one permutation and one unaligned store for 8 rows in
// AVX2. Two classes share the permutation in AVX2. Compressing each column and storing it
// behind the waiting rows would be slower, because most of those stores cross a cache line.
// So would gathering rows by sorted indices.
const (
	ringRows     = 2 * stretch
	ringStride32 = ringRows*4 + 64
	ringStride64 = ringRows*8 + 64
	dealBlock    = 5
	dealRows     = 32 // the kernels take a multiple of these
)

// A dealing holds a variant's kernels for dealing.
type dealing struct {
	narrow   bool       // sumNarrow takes the blocks of isNarrow
	planSize int        // bytes
	planners [2]planner // for 4-byte and for 8-byte elements
	deals    [Uint64 + 1]kindDeals

	// pairPlanners, if any, and pairDeals are for two classes at once. They fill the ring of
	// class 1 downwards: position p is row ringRows−1−p. packBack packs from such rings.
	pairPlanners [2]pairPlanner
	pairDeals    [Uint64 + 1]pairKindDeals
	packBack     *packers
}

// pairKindDeals are kindDeals for two classes at once.
type pairKindDeals struct{ one, five pairDeal }

// kindDeals deal one column of a kind at a time, and five if that kernel exists.
type kindDeals struct{ one, five deal }

type (
	planner = func(plan *byte, codes *int32, rows int, keep *byte, class, position int) (next int)
	deal    = func(ring, columns *byte, from, rows int, plan *byte)

	pairPlanner = func(plan *byte, codes *int32, rows int, keep *byte, first, second int) (next, nextSecond int)
	pairDeal    = func(ring, second, columns *byte, from, rows int, plan *byte)
)

type dealer struct {
	dealing  *dealing
	plans    []byte   // a class's plans for 4-byte and for 8-byte elements, class by class
	position []int    // the rows that each class has received
	next     []int    // the rows after the current stretch
	sources  []Column // the features and the weights
	alike    []int    // for each source, the number of columns from it on that can be dealt together
	rings    []Column // as many for each class
	memory   []byte
	pair     bool                 // two classes are dealt at once
	widths   int                  // 2: there are 8-byte elements
	keep     [stretch / 64]uint64 // bit r: row r is to be dealt
	codes    [stretch]int32       // of a block that is shorter than a stretch
	one      [1]Column
	narrow   *narrow          // nil: not used yet
	loose    [stretch]float64 // a column that is not contiguous, or of such a block
}

// sum sums the classes as their stretches fill up.
func (d *dealing) sum(k *Kernel, sums []Sums, columns []Column, codes []int32, weights []float64) {
	if d.narrow && k.isNarrow(len(sums), len(columns), len(codes)) {
		k.sumNarrow(sums, columns, codes)
		return
	}
	z := &k.dealer
	z.prepare(d, len(sums), columns, weights)
	for from := 0; from < len(codes) && !k.stopped(); from += stretch {
		// A last, short stretch begins earlier, to be whole. Its rows that have
		// been dealt are not dealt again.
		to := min(from+stretch, len(codes))
		first := max(min(from, to-stretch), 0)
		z.keepRows(from-first, to-first)
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
	clear(z.sources) // keep no reference to the block
}

// addDealt sums the stretch of the class's rings that contains the given position.
func (k *Kernel) addDealt(sum *Sums, class, position, rows int, weighted bool) {
	z := &k.dealer
	n := len(z.sources)
	from := position / stretch % 2 * stretch
	columns := z.rings[class*n:][:n]
	if k.fuse {
		k.addFused(sum, columns, from, rows)
		return
	}
	if z.pair && class == 1 {
		z.packBack(k.tile, columns, from, rows, k.origin)
	} else {
		k.variant.pack(k.tile, columns, from, from+rows, k.origin)
	}
	if weighted {
		n--
	}
	k.addTile(sum, n, rows, weighted)
}

// packBack is the variant's pack for rings that are filled downwards.
func (z *dealer) packBack(tile []float64, columns []Column, from, rows int, c []float64) {
	whole := rows / lanes
	for j := 0; whole > 0 && j < len(columns); {
		kind, count := columns[j].kind, alike(columns[j:])
		first := ringRows - lanes - from
		z.dealing.packBack[kind](&tile[j*tileStride], bytesOf(columns[j:]), count, first*kind.size(), &c[j], whole)
		j += count
	}
	for j := range columns {
		for r := whole * lanes; r < rows; r++ {
			tile[j*tileStride+r] = columns[j].At(ringRows-1-from-r) - c[j]
		}
	}
}

// prepare lays out rings for the columns of a block.
func (z *dealer) prepare(d *dealing, classes int, columns []Column, weights []float64) {
	z.dealing = d
	z.sources = append(z.sources[:0], columns...)
	if weights != nil {
		z.sources = append(z.sources, ColumnOf(weights))
	}
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
	z.pair = classes == 2 && d.pairPlanners[0] != nil
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

// wholeGroups rounds rows up to a multiple that the kernels take.
func wholeGroups(rows int) int { return (rows + dealRows - 1) / dealRows * dealRows }

// aligned is the address of the first cache line in memory.
func aligned(memory []byte) *byte {
	first := unsafe.Pointer(unsafe.SliceData(memory))
	return (*byte)(unsafe.Add(first, -uintptr(first)&63))
}

// planOf is the plan for a class and elements of that many bytes.
func (z *dealer) planOf(class, size int) *byte {
	return (*byte)(unsafe.Add(unsafe.Pointer(aligned(z.plans)), (2*class+size/8)*z.dealing.planSize))
}

// ringKind is the kind of a column's numbers in a ring.
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

// keepRows marks rows from to to−1 to be dealt, and no others.
func (z *dealer) keepRows(from, to int) {
	for i := range z.keep {
		z.keep[i] = ^uint64(0) << max(from-64*i, 0) &^ (^uint64(0) << max(to-64*i, 0))
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
	rows := wholeGroups(len(codes))
	if rows > len(codes) {
		copy(z.codes[:], codes)
		codes = z.codes[:]
	}
	keep := (*byte)(unsafe.Pointer(&z.keep))
	for i := range z.widths {
		if z.pair {
			plan := z.dealing.pairPlanners[i]
			z.next[0], z.next[1] = plan(z.planOf(0, 4<<i), &codes[0], rows, keep, z.position[0], z.position[1])
			continue
		}
		for class, position := range z.position {
			z.next[class] = z.dealing.planners[i](z.planOf(class, 4<<i), &codes[0], rows, keep, class, position)
		}
	}
	for class, position := range z.position {
		kept -= z.next[class] - position
	}
	if kept != 0 {
		panic(fmt.Sprintf("gram: a class code is out of range 0 to %d", len(z.position)-1))
	}
}

// deal deals rows from to to−1.
func (z *dealer) deal(from, to int) {
	n := len(z.sources)
	for j := 0; j < n; {
		columns, first, count := z.sources[j:], from, z.alike[j]
		if count == 0 || to-from < stretch {
			z.one[0] = z.loosen(columns[0], from, to)
			columns, first, count = z.one[:], 0, 1
		}
		kind, size := columns[0].kind, z.rings[j].kind.size()
		one, pair := z.dealing.deals[kind], z.dealing.pairDeals[kind]
		do, both := one.one, pair.one
		if count >= dealBlock && one.five != nil {
			do, both, count = one.five, pair.five, dealBlock
		} else {
			count = 1
		}
		at, rows := first*kind.size(), wholeGroups(to-from)
		if z.pair {
			both((*byte)(z.rings[j].base), (*byte)(z.rings[n+j].base), bytesOf(columns), at, rows, z.planOf(0, size))
		} else {
			for class := range z.position {
				do((*byte)(z.rings[class*n+j].base), bytesOf(columns), at, rows, z.planOf(class, size))
			}
		}
		j += count
	}
}

// loosen copies rows from to to−1 of a column, so that a whole stretch can be read: in
// their kind if they are contiguous, and as float64 otherwise.
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

// A plan maps the rows of a stretch that are of one class to places in its ring. The
// generator documents the fields.
type planAVX512 struct {
	list                            [35][64]byte // rows, by 4 or 8 bytes
	slot, begin, free, whole, twice [17]uint16   // of each group; slot and begin also of the end
	_                               [22]byte     // to whole cache lines
}

type planAVX2 struct {
	list  [64][32]byte // of each group
	slot  [64]uint32   // of each group
	spill [32]byte
}

// A planPairAVX2 is a plan for two classes.
type planPairAVX2 struct {
	list   [64][32]byte // of each group
	slots  [2][64]int32 // of each group, by class
	spills [2][32]byte
}

var dealAVX512 = dealing{
	narrow:   true,
	planSize: int(unsafe.Sizeof(planAVX512{})),
	planners: [...]planner{plan32AVX512, plan64AVX512},
	deals: [...]kindDeals{
		Float32: {deal32x1AVX512, deal32x5AVX512}, Float64: {deal64x1AVX512, deal64x5AVX512},
		Int8: {one: dealInt8x1AVX512}, Int16: {one: dealInt16x1AVX512},
		Int32: {deal32x1AVX512, deal32x5AVX512}, Int64: {deal64x1AVX512, deal64x5AVX512},
		Uint8: {one: dealUint8x1AVX512}, Uint16: {one: dealUint16x1AVX512},
		Uint32: {deal32x1AVX512, deal32x5AVX512}, Uint64: {deal64x1AVX512, deal64x5AVX512},
	},
}

var dealAVX2 = dealing{
	planSize: int(unsafe.Sizeof(planPairAVX2{})), // the larger one
	planners: [...]planner{plan32AVX2, plan64AVX2},
	deals: [...]kindDeals{
		Float32: {deal32x1AVX2, deal32x5AVX2}, Float64: {deal64x1AVX2, deal64x5AVX2},
		Int8: {one: dealInt8x1AVX2}, Int16: {one: dealInt16x1AVX2},
		Int32: {deal32x1AVX2, deal32x5AVX2}, Int64: {deal64x1AVX2, deal64x5AVX2},
		Uint8: {one: dealUint8x1AVX2}, Uint16: {one: dealUint16x1AVX2},
		Uint32: {deal32x1AVX2, deal32x5AVX2}, Uint64: {deal64x1AVX2, deal64x5AVX2},
	},
	pairPlanners: [...]pairPlanner{planPair32AVX2, planPair64AVX2},
	pairDeals: [...]pairKindDeals{
		Float32: {dealPair32x1AVX2, dealPair32x5AVX2}, Float64: {dealPair64x1AVX2, dealPair64x5AVX2},
		Int8: {one: dealPairInt8x1AVX2}, Int16: {one: dealPairInt16x1AVX2},
		Int32: {dealPair32x1AVX2, dealPair32x5AVX2}, Int64: {dealPair64x1AVX2, dealPair64x5AVX2},
		Uint8: {one: dealPairUint8x1AVX2}, Uint16: {one: dealPairUint16x1AVX2},
		Uint32: {dealPair32x1AVX2, dealPair32x5AVX2}, Uint64: {dealPair64x1AVX2, dealPair64x5AVX2},
	},
	packBack: &packers{
		Float32: packBackFloat32AVX2, Float64: packBackFloat64AVX2,
		Int32: packBackInt32AVX2, Int64: packBackInt64AVX2,
		Uint32: packBackUint32AVX2, Uint64: packBackUint64AVX2,
	},
}
