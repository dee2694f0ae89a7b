//go:build !purego

package gram

import (
	"fmt"
	"math/bits"
	"unsafe"
)

// Rows of few classes are dealt like cards: each class has a ring of two
// tiles, in the width of the data, into which its rows go; when one of the two
// is full it is packed and summed. So every column is read once, in order,
// whatever the classes' order.
//
// Where a group of rows goes is the same for all columns, and is worked out
// once (see the plan functions); then a column costs per group and class one
// permutation, two blends and one aligned store. Compressing every column and
// storing where the ring's end is takes half as many instructions and more
// time, because most such stores cross a cache line: 1.6 ns per row of ten
// float32 columns and two classes against 1.2, without the plan's 0.1. Summing
// under masks without dealing would cost a full pass of multiply-adds per
// class, 0.9 ns per row and class for ten columns and n/10 times that for more.
const (
	ringRows     = 2 * stretch
	ringStride32 = ringRows*4 + 64
	ringStride64 = ringRows*8 + 64
	dealBlock    = 5

	maxDealtClasses = 16
	maxRingBytes    = 32 << 20
)

// dealable says whether rows of that many classes are dealt rather than sorted.
func dealable(classes, columns int) bool {
	return classes <= maxDealtClasses && classes*columns*ringStride64 <= maxRingBytes
}

// plan says where the groups of a stretch go; plan32AVX512 and plan64AVX512
// write it and the deal functions read it.
type plan struct {
	index [stretch / 8][64]byte // where the rows of a slot come from
	slot  [stretch/8 + 1]uint16 // the slot, in bytes from the begin of the ring
	low   [stretch / 8]uint16   // the places of a slot that earlier rows have
	whole [stretch / 8]uint16   // all ones where the slot is full then
}

type dealer struct {
	plans    []plan   // of each class, for 4-byte and then for 8-byte elements
	position []int    // rows that each class has got
	next     []int    // and will have got with the stretch in hand
	sources  []Column // the features and the weights
	rings    []Column // for each class as many
	memory   []byte
	wide     bool              // there are 8-byte elements
	keep     [stretch / 8]byte // bit r: row r has a weight above 0
	codes    [stretch]int32    // a last, short stretch
	one      [1]Column
	loose    [stretch]float64 // a column that is not contiguous, or in a short stretch
}

type (
	planner = func(plan *byte, codes *int32, keep *byte, groups, class, position int) int
	deal    = func(ring, columns *byte, from int, plan *byte, groups int)
)

// deals has, for each kind, what deals one column and, if it exists, five.
var deals = [...]struct{ one, five deal }{
	Float32: {deal32x1AVX512, deal32x5AVX512}, Float64: {deal64x1AVX512, deal64x5AVX512},
	Int8: {one: dealInt8x1AVX512}, Int16: {one: dealInt16x1AVX512},
	Int32: {deal32x1AVX512, deal32x5AVX512}, Int64: {deal64x1AVX512, deal64x5AVX512},
	Uint8: {one: dealUint8x1AVX512}, Uint16: {one: dealUint16x1AVX512},
	Uint32: {deal32x1AVX512, deal32x5AVX512}, Uint64: {deal64x1AVX512, deal64x5AVX512},
}

func (k *Kernel) sumDealt(sums []Sums, columns []Column, codes []int32, weights []float64) {
	z := &k.dealer
	z.prepare(len(sums), columns, weights)
	for from := 0; from < len(codes); from += stretch {
		to := min(from+stretch, len(codes))
		if weights != nil {
			z.keepPositive(weights[from:to])
		}
		z.plan(codes[from:to])
		z.deal(from, to)
		for class := range sums {
			old := z.position[class]
			z.position[class] = z.next[class]
			if old/stretch < z.next[class]/stretch {
				k.addDealt(&sums[class], class, old, stretch, weights != nil)
			}
		}
	}
	for class, rows := range z.position {
		if rows%stretch > 0 {
			k.addDealt(&sums[class], class, rows, rows%stretch, weights != nil)
		}
	}
}

// addDealt sums the half of the class's rings that the row at position is in.
func (k *Kernel) addDealt(sum *Sums, class, position, rows int, weighted bool) {
	z := &k.dealer
	n := len(z.sources)
	from := position / stretch % 2 * stretch
	k.variant.pack(k.tile, z.rings[class*n:][:n], from, from+rows, k.origin)
	if weighted {
		n--
	}
	k.addTile(sum, n, rows, weighted)
}

func (z *dealer) prepare(classes int, columns []Column, weights []float64) {
	z.sources = append(z.sources[:0], columns...)
	if weights != nil {
		z.sources = append(z.sources, ColumnOf(weights))
	}
	for i := range z.keep {
		z.keep[i] = 0xff
	}
	z.position, z.next = grow(z.position, classes), grow(z.next, classes)
	clear(z.position)
	z.plans = grow(z.plans, 2*classes)

	z.rings = z.rings[:0]
	size := 0
	for _, c := range z.sources {
		ring := Column{n: ringRows, stride: 1, kind: ringKind(c)}
		z.rings = append(z.rings, ring)
		size += ringStride(ring)
	}
	n := len(z.sources)
	z.memory = grow(z.memory, classes*size+64)
	next := unsafe.Pointer(unsafe.SliceData(z.memory))
	next = unsafe.Add(next, -uintptr(next)&63)
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
	z.wide = size > n*ringStride32
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

func (z *dealer) keepPositive(weights []float64) {
	clear(z.keep[:])
	for r, v := range weights {
		if v > 0 {
			z.keep[r/8] |= 1 << (r % 8)
		}
	}
}

func (z *dealer) plan(codes []int32) {
	kept := 0
	for i, b := range z.keep {
		kept += min(max(len(codes)-8*i, 0), bits.OnesCount8(b))
	}
	if len(codes) < stretch {
		for i := copy(z.codes[:], codes); i < stretch; i++ {
			z.codes[i] = -1
		}
		codes = z.codes[:]
	}
	dealt := 0
	for class, position := range z.position {
		p := unsafe.Pointer(&z.plans[2*class])
		z.next[class] = plan32AVX512((*byte)(p), &codes[0], &z.keep[0], stretch/16, class, position)
		if z.wide {
			p = unsafe.Pointer(&z.plans[2*class+1])
			plan64AVX512((*byte)(p), &codes[0], &z.keep[0], stretch/8, class, position)
		}
		dealt += z.next[class] - position
	}
	if dealt != kept {
		panic(fmt.Sprintf("gram: a class code is out of range 0 to %d", len(z.position)-1))
	}
}

// deal deals rows from to to.
func (z *dealer) deal(from, to int) {
	n := len(z.sources)
	for j := 0; j < n; {
		columns, first := z.sources[j:], from
		count := alike(columns)
		if count == 0 || to-from < stretch {
			z.one[0] = z.loosen(columns[0], from, to)
			columns, first, count = z.one[:], 0, 1
		}
		kind := columns[0].kind
		do := deals[kind].one
		if count >= dealBlock && deals[kind].five != nil {
			do, count = deals[kind].five, dealBlock
		} else {
			count = 1
		}
		size := z.rings[j].kind.size()
		groups := stretch * size / 64
		for class := range z.position {
			p := 2 * class
			if size == 8 {
				p++
			}
			do((*byte)(z.rings[class*n+j].base), bytesOf(columns), first*kind.size(), (*byte)(unsafe.Pointer(&z.plans[p])), groups)
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
