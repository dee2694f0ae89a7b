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
// 3×3 block sums the low lanes first and then the high lanes; smaller blocks have
// registers for both at once.
const (
	avx512Block = 5
	avx2Block   = 3
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
	Label("block")
	acc := rectangleAccumulators(h)
	offset := GP64()
	XORQ(offset, offset)
	loop("rows", offset, end, 2*64, func() {
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
func firstEntries(n int) Register {
	r, k := GP32(), K()
	MOVL(U32(1<<n-1), r)
	KMOVW(r, k)
	return k
}

// foldOrder loads the final permutation of foldAVX512.
func foldOrder() VecVirtual {
	order := ZMM()
	VMOVDQU64(symbol(foldOrderName), order)
	return order
}

const foldOrderName = "foldOrder"

func foldOrderTable() {
	GLOBL(foldOrderName, RODATA|NOPTR)
	for i, x := range []uint64{0, 2, 4, 6, 1, 3, 5, 7} {
		DATA(8*i, U64(x))
	}
}

// foldAVX512 adds up the lanes of each of one to five accumulators, in the canonical
// order, and returns the sums in the first accumulator's register.
func foldAVX512(acc []VecVirtual, order VecVirtual) VecVirtual {
	of := func(i int) VecVirtual { return acc[min(i, len(acc)-1)] }
	foldFours(of(0), of(1))
	switch {
	case len(acc) > 2:
		foldFours(of(2), of(3))
		foldTwos(of(0), of(2))
	default:
		foldTwos(of(0), of(0))
	}
	fifth := of(0)
	if len(acc) > 4 {
		fifth = of(4)
		foldFours(fifth, fifth)
		foldTwos(fifth, fifth)
	}
	foldOnes(of(0), fifth)
	VPERMPD(of(0), order, of(0))
	return of(0)
}

// Each step of folding halves two registers into the first: it puts their lower halves
// side by side, and their upper halves, and adds.
func foldFours(x, y VecVirtual) { halve(x, y, 0x44, 0xee) } // l0+l4 … l3+l7
func foldTwos(x, y VecVirtual)  { halve(x, y, 0x88, 0xdd) } // (l0+l4)+(l2+l6), (l1+l5)+(l3+l7)

func halve(x, y VecVirtual, lower, upper uint64) {
	l := ZMM()
	VSHUFF64X2(Imm(lower), y, x, l)
	VSHUFF64X2(Imm(upper), y, x, x)
	VADDPD(l, x, x)
}

func foldOnes(x, y VecVirtual) {
	even := ZMM()
	VUNPCKLPD(y, x, even)
	VUNPCKHPD(y, x, x)
	VADDPD(even, x, x)
}

// addRows adds the folded accumulators of each row to the numbers at its address. It
// loads all of them before it stores any: rows are so close to each other that a load
// would wait for the last row's store.
func addRows(addresses []Register, acc [][]VecVirtual) {
	order := foldOrder()
	masks := map[int]Register{}
	for _, a := range acc {
		if masks[len(a)] == nil {
			masks[len(a)] = firstEntries(len(a))
		}
	}
	sums := make([]VecVirtual, len(acc))
	for r, a := range acc {
		sums[r] = foldAVX512(a, order)
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
	const w = avx2Block
	function(fmt.Sprintf("rectangle%dAVX2", h),
		"func(cross *float64, row int, left, right *float64, rows, blocks int)", rectangleDoc, h, w)
	rows := rowPointers(h)
	left, right := pointer("left"), pointer("right")
	end, blocks := pointer("rows"), pointer("blocks")
	SHLQ(Imm(3), end)
	Label("block")
	acc := bothHalves(h+1, h*w, end, func(half int, offset Register, acc []VecVirtual) {
		u := loadColumns(left, h, offset, half)
		d := YMM()
		for c := range w {
			VMOVUPD(columnAt(right, c, offset, half), d)
			for r := range u {
				VFMADD231PD(u[r], d, acc[r*w+c])
			}
		}
	})
	for r := range h {
		addToAVX2(rows[r], acc[r*w:(r+1)*w])
		ADDQ(U32(8*w), rows[r])
	}
	ADDQ(U32(w*tileStride), right)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	VZEROUPPER()
	RET()
}

func triangleAVX2(h int) {
	function(fmt.Sprintf("triangle%dAVX2", h),
		"func(s, cross *float64, row int, left, right *float64, rows int)", triangleDoc, h)
	rows := rowPointers(h)
	s, left, right, end := pointer("s"), pointer("left"), pointer("right"), pointer("rows")
	SHLQ(Imm(3), end)
	n := h + h*(h+1)/2
	acc := bothHalves(h+1, n, end, func(half int, offset Register, acc []VecVirtual) {
		u := loadColumns(left, h, offset, half)
		for r := range u {
			VADDPD(u[r], acc[r], acc[r])
		}
		d := YMM()
		for c := range h {
			VMOVUPD(columnAt(right, c, offset, half), d)
			for r := c; r < h; r++ {
				VFMADD231PD(u[r], d, acc[h+r*(r+1)/2+c])
			}
		}
	})
	addToAVX2(s, acc[:h])
	for r := range h {
		addToAVX2(rows[r], acc[h+r*(r+1)/2:][:r+1])
	}
	VZEROUPPER()
	RET()
}

func loadColumns(base Register, h int, offset Register, half int) []VecVirtual {
	u := make([]VecVirtual, h)
	for r := range u {
		u[r] = YMM()
		VMOVUPD(columnAt(base, r, offset, half), u[r])
	}
	return u
}

// bothHalves sums lanes 0 to 3 and lanes 4 to 7 of n accumulators over a tile's rows up
// to byte end of a column, and adds the two. Its body adds 4 of 16 rows: the given half,
// 0 or 1 in the first 8 rows and 2 or 3 in the next. The body needs own registers.
func bothHalves(own, n int, end Register, body func(half int, offset Register, acc []VecVirtual)) []VecVirtual {
	offset := GP64()
	sum := func(label string, halves ...int) (acc [2][]VecVirtual) {
		for _, half := range halves {
			for range n {
				a := YMM()
				VXORPD(a, a, a)
				acc[half] = append(acc[half], a)
			}
		}
		XORQ(offset, offset)
		loop(label, offset, end, 2*64, func() {
			for i := range 2 {
				for _, half := range halves {
					body(2*i+half, offset, acc[half])
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
	low := AllocLocal(n * 32)
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
func addToAVX2(address Register, acc []VecVirtual) {
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
		at := Mem{Base: address, Disp: 8 * i}
		if i+1 < len(acc) {
			VADDPD(at, even, even)
			VMOVUPD(even, at)
		} else {
			VADDSD(at, even, even)
			VMOVSD(even, at)
		}
	}
}
