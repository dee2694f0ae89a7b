//go:build !purego

package gram

import (
	"math/bits"
	"unsafe"
)

// Blocks of two classes and narrowFewest to narrowColumns columns of floats, unweighted, are
// summed in AVX-512 in chunks of a quarter of a stretch, whose lanes wait in memory. So
// all that is dealt, packed and added up stays in the first-level cache. The rings and
// the tile of whole stretches do not fit there. The ring of class 0 is filled upwards and
// that of class 1 downwards. So a vector has the next rows of both, and a column takes two
// permutations and three stores for 32 rows of 4 bytes.
const (
	narrowFewest  = blockAVX512
	narrowColumns = 10
	narrowChunk   = 64
	narrowRing    = 2 * narrowChunk
	narrowEntries = (narrowColumns*(narrowColumns+1)/2+lanes-1)/lanes*lanes + (narrowColumns+lanes-1)/lanes*lanes
	narrowGroup   = 128     // bytes of a column that are dealt at once
	readAhead     = stretch // rows from those being summed to those being prefetched
)

// narrow is the memory for such a block.
type narrow struct {
	// entries are the lanes of each class's cross, padded to a multiple of 8, and of s.
	// They are zero between stretches.
	entries [2][narrowEntries][lanes]float64
	tile    [narrowColumns][narrowChunk + lanes]float64
	rings   [2 * narrowColumns * (narrowRing*8 + 64)]byte
	plan    narrowPlan
	tail    [narrowColumns][narrowGroup]byte
	tails   [narrowColumns]Column // the columns of tail
	summed  int                   // rows of both classes
}

// A narrowPlan maps the rows of a stretch to places in the rings. The generator documents
// the fields.
type narrowPlan struct {
	lists  [1 + 2*stretch/(narrowGroup/8) + 1][64]byte // with room before and after them
	groups [stretch/(narrowGroup/8) + 1]struct {
		list, own     uint32
		slots         [2]uint32
		next, waiting uint32
		after         int
	}
	_ [32]byte // to whole cache lines
}

type (
	narrowPlanner = func(plan *byte, codes *int32, groups, position, dealt int, waiting uint32) (counted int)
	narrowDeal    = func(rings, columns *byte, count, from int, plan *byte, first, groups int)
	narrowSum     = func(entries, tile *float64, rings *byte, step int, origin *float64, groups, last int, next *byte, nextFrom int)
)

// The kernels for float32 and for float64, the last ones for 5, 6, … columns.
var narrowKernels = [2]struct {
	plan narrowPlanner
	deal narrowDeal
	sum  [narrowColumns - narrowFewest + 1]narrowSum
}{{
	planNarrow32AVX512, dealNarrow32AVX512, [...]narrowSum{
		sumNarrow32x5AVX512, sumNarrow32x6AVX512, sumNarrow32x7AVX512, sumNarrow32x8AVX512, sumNarrow32x9AVX512, sumNarrow32x10AVX512,
	},
}, {
	planNarrow64AVX512, dealNarrow64AVX512, [...]narrowSum{
		sumNarrow64x5AVX512, sumNarrow64x6AVX512, sumNarrow64x7AVX512, sumNarrow64x8AVX512, sumNarrow64x9AVX512, sumNarrow64x10AVX512,
	},
}}

// isNarrow reports whether sumNarrow is for a block of m rows of so many classes.
func (k *Kernel) isNarrow(classes, n, m int) bool {
	return k.fuse && classes == 2 && narrowFewest <= n && n <= narrowColumns && m > 0
}

// sumNarrow sums the rows of two classes as chunks fill up.
func (k *Kernel) sumNarrow(sums []Sums, columns []Column, codes []int32) {
	z := &k.dealer
	if z.narrow == nil {
		z.narrow = new(narrow) // it is large enough to begin at a page
		for j := range z.narrow.tails {
			z.narrow.tails[j].base = unsafe.Pointer(&z.narrow.tail[j])
		}
	}
	w, n, m := z.narrow, len(columns), len(codes)
	w.summed = 0
	size := columns[0].kind.size()
	kernels := &narrowKernels[columns[0].kind-Float32]
	group := narrowGroup / size
	plan, rings := (*byte)(unsafe.Pointer(&w.plan)), &w.rings[0]

	var position [2]int // the rows that each class has received
	var waiting uint32
	for from := 0; from < m; from += stretch {
		some := codes[from:min(from+stretch, m)]
		groups, short := len(some)/group, len(some)%group
		whole := groups
		if short > 0 { // a last group is filled up with rows of class 0
			clear(z.codes[copy(z.codes[:], some):])
			some = z.codes[:]
			groups++
		}
		if kernels.plan(plan, &some[0], groups, position[0], from, waiting) != groups*group {
			z.narrow = nil // its lanes may not be zero
			panic("gram: a class code is out of range 0 to 1")
		}
		waiting = w.plan.groups[groups].waiting
		for g := 0; g < groups; {
			next := min(g+narrowChunk/group, groups)
			if g < whole {
				kernels.deal(rings, bytesOf(columns), n, (from+g*group)*size, plan, g, min(next, whole)-g)
			}
			first, dealt := w.plan.groups[next-1].after, from+next*group
			if next > whole {
				kernels.deal(rings, bytesOf(w.tailOf(columns, from+whole*group)), n, 0, plan, whole, 1)
				first, dealt = first-(dealt-m), m
			}
			g = next
			for class, after := range [2]int{first, dealt - first} {
				before := position[class]
				position[class] = after
				if before/narrowChunk == after/narrowChunk {
					continue
				}
				end := after / narrowChunk * narrowChunk
				k.addChunk(class, columns, end-narrowChunk, narrowChunk)
				if end%stretch == 0 {
					k.endStretch(&sums[class], class, n, stretch)
				}
			}
		}
	}
	w.putWaiting(m, n, size)
	for class, rows := range position {
		if short := rows % narrowChunk; short > 0 {
			k.addChunk(class, columns, rows-short, short)
		}
		if short := rows % stretch; short > 0 {
			k.endStretch(&sums[class], class, n, short)
		}
	}
}

// tailOf copies the rows from the given one on, less than a group.
func (w *narrow) tailOf(columns []Column, from int) []Column {
	for j, c := range columns {
		size := c.kind.size()
		copy(w.tail[j][:], unsafe.Slice((*byte)(c.base), c.n*size)[from*size:])
	}
	return w.tails[:len(columns)]
}

// putWaiting copies the waiting rows of both classes to the slots of each, at the end of a
// block of m rows.
func (w *narrow) putWaiting(m, n, size int) {
	group := narrowGroup / size
	last := &w.plan.groups[((m-1)%stretch)/group+1]
	for j := range n {
		column := w.rings[j*narrowStride(size):]
		for _, slot := range last.slots {
			copy(column[slot:][:64], column[last.waiting:])
		}
	}
}

func narrowStride(size int) int { return narrowRing*size + 64 }

// addChunk adds a class's rows from position from on to its lanes.
func (k *Kernel) addChunk(class int, columns []Column, from, rows int) {
	w, n, size := k.dealer.narrow, len(columns), columns[0].kind.size()
	w.summed += rows
	next, nextFrom := columns, (w.summed+readAhead)*size
	if nextFrom+narrowChunk*size > columns[0].n*size { // nothing more to prefetch
		next, nextFrom = w.tails[:], 0
	}
	from %= narrowRing
	step, last := lanes, uint16(1)<<((rows-1)%lineRows+1)-1
	if class == 1 {
		// Its lanes are in reverse order, which changes no bit: a lane has the same rows in
		// the same order, and the order in which lanes are added is symmetric.
		from, step = narrowRing-lanes-from, -lanes
		last = bits.ReverseBytes16(bits.Reverse16(last))
	}
	from += class * narrowColumns * narrowStride(size) / size
	narrowKernels[size/8].sum[n-narrowFewest](&w.entries[class][0][0], &w.tile[0][0], &w.rings[from*size], step*size,
		&k.origin[0], (rows-1)/lineRows, int(last), bytesOf(next), nextFrom)
}

// endStretch adds the lanes of a class's stretch to its sums.
func (k *Kernel) endStretch(sum *Sums, class, n, rows int) {
	entries := &k.dealer.narrow.entries[class]
	sum.begin(n)
	sum.Rows += rows
	sum.Weight += float64(rows)
	cross := PackedLen(n)
	foldNarrowAVX512(&sum.Cross[0], &entries[0][0], cross)
	foldNarrowAVX512(&sum.S[0], &entries[(cross+lanes-1)/lanes*lanes][0], n)
}
