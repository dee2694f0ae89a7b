package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// A rectangle is the sums of h columns of left with a few columns of right. In AVX-512
// 5×5 accumulators of one register each leave room for five columns of left and one of
// right: 25 multiply-adds need ten loads. In AVX2 an accumulator takes two registers. A
// 6×2 block sums the low lanes first and then the high lanes: twelve accumulators keep two
// units of four cycles busy, and twelve multiply-adds need eight loads. Small blocks have
// registers for both halves at once.
//
// Vectors of eight columns of one row, in outer products, would need no folding. But rows have to
// be transposed, and wait as float64: on a Xeon with AVX-512 784 columns took 6 to 9 % less, 256
// as long, and 32 and 100 took 59 and 21 % more.
const (
	avx512Block = 5
	avx2Block   = 6
	avx2Width   = 2 // columns of right
)

const rectangleDoc = `adds to %d rows of the packed triangle the sums
of a tile's products: of the columns of left from left on with blocks·%d columns
of right. cross is the first row's first entry; that row has row entries, and
the next ones have one more each. rows is a multiple of 16 above 0.`

const triangleDoc = `adds to s the sums of %d columns of left, and to the same
number of rows of the packed triangle, whose last entries are on the diagonal,
the sums of the products with the columns of right. cross, row and rows are as
for rectangles.`

// rowPointers returns the addresses of the first entries of h rows.
func rowPointers(h int) []Register {
	rows := []Register{pointer("cross")}
	row := pointer("row")
	SHLQ(Imm(3), row)
	for range h - 1 {
		next := GP64()
		MOVQ(rows[len(rows)-1], next)
		ADDQ(row, next)
		ADDQ(U32(8), row)
		rows = append(rows, next)
	}
	return rows
}

func columnAt(base Register, c int, offset Register, half int) Mem {
	return Mem{Base: base, Index: offset, Scale: 1, Disp: c*tileStride + half*32}
}

func rectangleAVX512(h int) {
	const w = avx512Block
	function(fmt.Sprintf("rectangle%dAVX512", h),
		"func(cross *float64, row int, left, right *float64, rows, blocks int)", rectangleDoc, h, w)
	rows := rowPointers(h)
	left, right := pointer("left"), pointer("right")
	end, blocks := pointer("rows"), pointer("blocks")
	SHLQ(Imm(3), end)
	ADDQ(end, left)
	ADDQ(end, right)
	Label("block")
	acc := rectangleAccumulators(h)
	offset := GP64()
	loopToZero("rows", offset, end, 2*64, func() {
		for half := range 2 {
			at := func(base Register, c int) Mem { return columnAt(base, c, offset, 0).Offset(64 * half) }
			addRectangle(acc, func(r int) VecVirtual { return loaded(at(left, r)) },
				func(c int) Mem { return at(right, c) })
		}
	})
	addRows(rows, acc)
	for r := range h {
		ADDQ(U32(8*w), rows[r])
	}
	ADDQ(U32(w*tileStride), right)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	VZEROUPPER()
	RET()
}

// addRectangle adds 8 rows of left columns times right ones to the accumulators.
func addRectangle(acc [][]VecVirtual, left func(r int) VecVirtual, right func(c int) Mem) {
	u := make([]VecVirtual, len(acc))
	for r := range u {
		u[r] = left(r)
	}
	for c := range acc[0] {
		d := loaded(right(c))
		for r := range u {
			VFMADD231PD(u[r], d, acc[r][c])
		}
	}
}

// addTriangle adds 8 rows to the accumulators. The accumulators' last row is s.
func addTriangle(acc [][]VecVirtual, column func(r int) VecVirtual) {
	h := len(acc) - 1
	u := make([]VecVirtual, h)
	for r := range u {
		u[r] = column(r)
		VADDPD(u[r], acc[h][r], acc[h][r])
		for c := range r + 1 {
			VFMADD231PD(u[r], u[c], acc[r][c])
		}
	}
}

func loaded(from Mem) VecVirtual {
	z := ZMM()
	VMOVUPD(from, z)
	return z
}

func rectangleAccumulators(h int) [][]VecVirtual {
	return rowsOfZMM(h, func(int) int { return avx512Block })
}

func triangleAccumulators(h int) [][]VecVirtual {
	return rowsOfZMM(h+1, func(r int) int { return min(r+1, h) })
}

func triangleAVX512(h int) {
	function(fmt.Sprintf("triangle%dAVX512", h),
		"func(s, cross *float64, row int, left, right *float64, rows int)", triangleDoc, h)
	rows := rowPointers(h)
	s, left, right, end := pointer("s"), pointer("left"), pointer("right"), pointer("rows")
	SHLQ(Imm(3), end)
	acc := triangleAccumulators(h)
	first := acc[h]
	offset := GP64()
	XORQ(offset, offset)
	loop("rows", offset, end, 64, func() {
		u := make([]VecVirtual, h)
		for r := range u {
			u[r] = loaded(columnAt(left, r, offset, 0))
			VADDPD(u[r], first[r], first[r])
		}
		for c := range h {
			d := loaded(columnAt(right, c, offset, 0))
			for r := c; r < h; r++ {
				VFMADD231PD(u[r], d, acc[r][c])
			}
		}
	})
	addRows(append(rows, s), acc)
	VZEROUPPER()
	RET()
}

// rowsOfZMM returns n rows of zeroed registers.
func rowsOfZMM(n int, length func(r int) int) [][]VecVirtual {
	rows := make([][]VecVirtual, n)
	for r := range rows {
		for range length(r) {
			z := ZMM()
			VPXORQ(z, z, z)
			rows[r] = append(rows[r], z)
		}
	}
	return rows
}

// firstEntries is the mask of the first n numbers of a vector.
func firstEntries(n int) Register { return mask(1<<n - 1) }

func mask(bits uint32) Register {
	r, k := GP32(), K()
	MOVL(U32(bits), r)
	KMOVW(r, k)
	return k
}

const foldOrderName = "foldOrder"

func foldOrderTable() {
	GLOBL(foldOrderName, RODATA|NOPTR)
	for i, x := range []uint64{0, 2, 4, 6, 1, 3, 5, 7} {
		DATA(8*i, U64(x))
	}
}

// A folding has the constants of foldAVX512.
type folding struct {
	order VecVirtual // of the last permutation
	high  Register   // the mask of a vector's upper half
	odd   Register   // the mask of every second number
}

func newFolding() folding {
	f := folding{order: ZMM(), high: mask(0xf0), odd: mask(0xaa)}
	VMOVDQU64(symbol(foldOrderName), f.order)
	return f
}

// foldAVX512 adds up the lanes of each of one to five accumulators, in the canonical
// order, and returns the sums in the first accumulator's register.
func foldAVX512(acc []VecVirtual, f folding) VecVirtual {
	of := func(i int) VecVirtual { return acc[min(i, len(acc)-1)] }
	f.fours(of(0), of(1))
	switch {
	case len(acc) > 2:
		f.fours(of(2), of(3))
		foldTwos(of(0), of(2))
	default:
		foldTwos(of(0), of(0))
	}
	fifth := of(0)
	if len(acc) > 4 {
		fifth = of(4)
		f.fours(fifth, fifth)
		foldTwos(fifth, fifth)
	}
	f.ones(of(0), fifth)
	VPERMPD(of(0), f.order, of(0))
	return of(0)
}

// Each step of folding halves two registers into the first: it puts one half of each side
// by side, then the other halves, and adds. Only one port of the processor shuffles, but
// every port that adds can blend. A sum does not depend on which number is added to which.
// So a step takes one half from each by a blend, and shuffles only the other halves.

// fours adds l0+l4 … l3+l7 of x and of y.
func (f folding) fours(x, y VecVirtual) {
	swapped := ZMM()
	VSHUFF64X2(Imm(0x4e), y, x, swapped) // the upper half of x, the lower half of y
	if y != x {
		VMOVAPD(y, f.high, x)
	}
	VADDPD(swapped, x, x)
}

// foldTwos adds (l0+l4)+(l2+l6) and (l1+l5)+(l3+l7). No blend keeps their order.
func foldTwos(x, y VecVirtual) {
	l := ZMM()
	VSHUFF64X2(Imm(0x88), y, x, l)
	VSHUFF64X2(Imm(0xdd), y, x, x)
	VADDPD(l, x, x)
}

// ones adds the last two sums.
func (f folding) ones(x, y VecVirtual) {
	swapped := ZMM()
	VSHUFPD(Imm(0x55), y, x, swapped) // the odd numbers of x, the even ones of y
	if y != x {
		VMOVAPD(y, f.odd, x)
	}
	VADDPD(swapped, x, x)
}

// addRows adds the folded accumulators of each row to the numbers at its address. It
// loads all of them before it stores any: rows are so close to each other that a load
// would wait for the last row's store.
func addRows(addresses []Register, acc [][]VecVirtual) {
	f := newFolding()
	masks := map[int]Register{}
	for _, a := range acc {
		if masks[len(a)] == nil {
			masks[len(a)] = firstEntries(len(a))
		}
	}
	sums := make([]VecVirtual, len(acc))
	for r, a := range acc {
		sums[r] = foldAVX512(a, f)
	}
	for r, a := range acc {
		old := ZMM()
		VMOVUPD_Z(Mem{Base: addresses[r]}, masks[len(a)], old)
		VADDPD(old, sums[r], sums[r])
	}
	for r, a := range acc {
		VMOVUPD(sums[r], masks[len(a)], Mem{Base: addresses[r]})
	}
}

func rectangleAVX2(h int) {
	const w = avx2Width
	function(fmt.Sprintf("rectangle%dAVX2", h),
		"func(cross *float64, row int, left, right *float64, rows, blocks int)", rectangleDoc, h, w)
	rows := rowPointers(h)
	left, right := pointer("left"), pointer("right")
	end, blocks := pointer("rows"), pointer("blocks")
	SHLQ(Imm(3), end)
	ADDQ(end, left)
	ADDQ(end, right)
	low := lowHalves(h)
	Label("block")
	entries := make([]entry, 0, h*w)
	for r := range h {
		for c := range w {
			entries = append(entries, entry{r, c})
		}
	}
	acc := bothHalves("", entries, left, right, end, low)
	for r := range h {
		addToAVX2(rows[r], 0, acc[r*w:(r+1)*w])
		ADDQ(U32(8*w), rows[r])
	}
	ADDQ(U32(w*tileStride), right)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	VZEROUPPER()
	RET()
}

// triangleAVX2 writes a triangle as one pass for every two columns of right. The last pass
// has the fewest entries, so it takes s too.
func triangleAVX2(h int) {
	const w = avx2Width
	function(fmt.Sprintf("triangle%dAVX2", h),
		"func(s, cross *float64, row int, left, right *float64, rows int)", triangleDoc, h)
	rows := rowPointers(h)
	s, left, right, end := pointer("s"), pointer("left"), pointer("right"), pointer("rows")
	SHLQ(Imm(3), end)
	ADDQ(end, left)
	ADDQ(end, right)
	low := lowHalves(h)
	for first := 0; first < h; first += w {
		var entries []entry
		if first+w >= h {
			for r := range h {
				entries = append(entries, entry{r, sumOnly})
			}
		}
		for r := first; r < h; r++ {
			for c := first; c <= min(r, first+w-1); c++ {
				entries = append(entries, entry{r, c})
			}
		}
		acc := bothHalves(fmt.Sprint(first), entries, left, right, end, low)
		for len(entries) > 0 {
			// n counts the leading entries whose sums are consecutive numbers.
			r, c, n := entries[0].row, entries[0].column, 1
			for n < len(entries) && (c == sumOnly) == (entries[n].column == sumOnly) && (c == sumOnly || entries[n].row == r) {
				n++
			}
			if c == sumOnly {
				addToAVX2(s, 0, acc[:n])
			} else {
				addToAVX2(rows[r], 8*c, acc[:n])
			}
			entries, acc = entries[n:], acc[n:]
		}
	}
	VZEROUPPER()
	RET()
}

// An entry is the sum of the products of a column of left, row, with one of right.
type entry struct{ row, column int }

// sumOnly, in place of a column of right, stands for the sum of the row itself.
const sumOnly = -1

// addEntries adds 4 rows to the accumulators of entries, which are in order of their rows.
func addEntries(entries []entry, acc []VecVirtual, at func(base Register, c int) Mem, left, right Register) {
	d := map[int]VecVirtual{}
	for _, e := range entries {
		if e.column != sumOnly && d[e.column] == nil {
			d[e.column] = YMM()
			VMOVUPD(at(right, e.column), d[e.column])
		}
	}
	u, row := YMM(), -1
	for i, e := range entries {
		if e.column == sumOnly {
			VADDPD(at(left, e.row), acc[i], acc[i])
			continue
		}
		if e.row != row {
			row = e.row
			VMOVUPD(at(left, row), u)
		}
		VFMADD231PD(u, d[e.column], acc[i])
	}
}

// lowHalves is the memory of bothHalves for h columns of left.
func lowHalves(h int) Mem {
	if h*avx2Width <= 6 {
		return Mem{}
	}
	return AllocLocal(h * avx2Width * 32)
}

// bothHalves sums lanes 0 to 3 and then lanes 4 to 7 of the entries over a tile's rows, and
// adds the two. Few entries have registers for both at once. A column has end bytes, and left
// and right point behind their first column.
func bothHalves(label string, entries []entry, left, right, end Register, low Mem) []VecVirtual {
	const own = avx2Width + 1 // registers beside the accumulators
	n := len(entries)
	offset := GP64()
	sum := func(name string, halves ...int) (acc [2][]VecVirtual) {
		for _, half := range halves {
			for range n {
				a := YMM()
				VXORPD(a, a, a)
				acc[half] = append(acc[half], a)
			}
		}
		loopToZero(name+label, offset, end, 2*64, func() {
			for i := range 2 {
				for _, half := range halves {
					addEntries(entries, acc[half], func(base Register, c int) Mem { return columnAt(base, c, offset, 2*i+half) }, left, right)
				}
			}
		})
		return acc
	}
	if 2*n+own <= 16 {
		acc := sum("rows", 0, 1)
		for i, high := range acc[1] {
			VADDPD(acc[0][i], high, high)
		}
		return acc[1]
	}
	for i, a := range sum("low", 0)[0] {
		VMOVUPD(a, low.Offset(32*i))
	}
	acc := sum("high", 1)[1]
	for i, a := range acc {
		VADDPD(low.Offset(32*i), a, a)
	}
	return acc
}

// addToAVX2 adds up the four partial sums of each of up to three accumulators,
// in the canonical order, and adds the results to consecutive numbers.
func addToAVX2(address Register, offset int, acc []VecVirtual) {
	pairs := make([]VecVirtual, len(acc))
	for i, a := range acc {
		high := XMM()
		pairs[i] = a.AsX().(VecVirtual)
		VEXTRACTF128(Imm(1), a, high)
		VADDPD(high, pairs[i], pairs[i])
	}
	for i := 0; i < len(acc); i += 2 {
		a, b := pairs[i], pairs[min(i+1, len(acc)-1)]
		even, odd := XMM(), XMM()
		VUNPCKLPD(b, a, even)
		VUNPCKHPD(b, a, odd)
		VADDPD(odd, even, even)
		at := Mem{Base: address, Disp: offset + 8*i}
		if i+1 < len(acc) {
			VADDPD(at, even, even)
			VMOVUPD(even, at)
		} else {
			VADDSD(at, even, even)
			VMOVSD(even, at)
		}
	}
}
