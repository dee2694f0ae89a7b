package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The fused kernels make the tile columns that they sum: they convert columns and
// subtract the origins on the way, so that a column is converted once and has not to
// be read back for that. The units that convert and subtract are others than those
// that multiply and add. A rectangle leaves them idle, and a triangle needs them for
// its s as well; so only the first block of columns is made by its triangle, and the
// others by their rectangles with the first.
//
// They also ask for a stretch of some of the columns next, from byte nextFrom on, so
// that it is on its way from memory while this one is summed. Spread over all of
// them, what is asked for comes as fast as it is summed.
const (
	askedByTriangle  = 3
	askedByRectangle = 4

	lineRows = 16 // rows at a time: a cache line of float32
)

const (
	fusedTriangleDoc = `is triangle%[2]d for columns of float%[1]d that are
not in the tile yet: it fills the tile's columns with rows elements, 1 to a stretch,
from byte from on, less their origins, and with zeros up to a multiple of 16. It also
asks for a stretch of %[3]d columns, next, from byte nextFrom on.`

	fusedRectangleDoc = `is rectangle%[2]d for one block of right and columns
of left, of float%[1]d, that are not in the tile yet: it fills them as
fusedTriangle does, and asks for %[3]d columns.`

	askingTriangleDoc = `is triangle%[2]d for columns that are in the tile as
fusedRectangle leaves them, and asks for %[3]d columns of float%[1]d.`
)

// A fusedKind is a kind of columns that have fused kernels.
type fusedKind struct {
	size   int                                      // bytes per element
	load   func(rows Mem, u VecVirtual)             // 8 elements as float64, or 4 in AVX2
	masked func(rows Mem, k Register, u VecVirtual) // and those not in the mask k as zeros
}

var fusedKinds = []fusedKind{
	{4, func(rows Mem, u VecVirtual) { VCVTPS2PD(rows, u) }, func(rows Mem, k Register, u VecVirtual) { VCVTPS2PD_Z(rows, k, u) }},
	{8, func(rows Mem, u VecVirtual) { VMOVUPD(rows, u) }, func(rows Mem, k Register, u VecVirtual) { VMOVUPD_Z(rows, k, u) }},
}

// at is the rows of a column that are at the offset, which counts 4 bytes per row,
// and skip rows.
func (f fusedKind) at(column, offset Register, skip int) Mem {
	return Mem{Base: column, Index: offset, Scale: uint8(f.size / 4), Disp: f.size * skip}
}

// ask asks for a line of rows of each column.
func (f fusedKind) ask(columns []Register, offset Register) {
	for _, column := range columns {
		for line := range f.size / 4 {
			PREFETCHT1(f.at(column, offset, line*64/f.size))
		}
	}
}

// sources gives the addresses of h columns' stretches, sharing one offset.
func sources(columns Register, h int, from Register) []Register {
	addresses := make([]Register, h)
	for j := range addresses {
		addresses[j] = GP64()
		MOVQ(Mem{Base: columns, Disp: j * columnSize}, addresses[j])
		ADDQ(from, addresses[j])
	}
	return addresses
}

// rows is a loop over the rows of a stretch, 16 at a time, the last ones under
// masks, that asks for count columns. Its body does 8 rows; column makes a column of
// the tile.
func (f fusedKind) rows(h, count int, tile Register, body func(offset Register, half int, column func(r int) VecVirtual)) {
	columns := sources(pointer("columns"), h, pointer("from"))
	next := sources(pointer("next"), count, pointer("nextFrom"))
	origin := pointer("origin")
	offset, end := GP64(), GP64()
	add := func(kept [2]Register) {
		for half, k := range kept {
			body(offset, half, func(r int) VecVirtual {
				u, c := ZMM(), Mem{Base: origin, Disp: 8 * r}
				rows := f.at(columns[r], offset, lanes*half)
				if k == nil {
					f.load(rows, u)
					VSUBPD_BCST(c, u, u)
				} else {
					f.masked(rows, k, u)
					VSUBPD_BCST_Z(c, u, k, u)
				}
				VMOVUPD(u, inTile(tile, r, offset, half))
				return u
			})
		}
	}
	XORQ(offset, offset)
	Load(Param("rows"), end)
	SHRQ(Imm(4), end)
	JZ(LabelRef("rest"))
	SHLQ(Imm(6), end)
	loop("rows", offset, end, 4*lineRows, func() {
		f.ask(next, offset)
		add([2]Register{})
	})
	Label("rest")
	rest, mask := GP64(), GP64()
	Load(Param("rows"), rest)
	ANDQ(U32(lineRows-1), rest)
	JZ(LabelRef("sums"))
	MOVQ(I32(-1), mask)
	BZHIQ(rest, mask, mask)
	kept := [2]Register{K(), K()}
	KMOVW(mask.As32(), kept[0])
	SHRQ(Imm(lanes), mask)
	KMOVW(mask.As32(), kept[1])
	add(kept)
	Label("sums")
}

// inTile is where 8 rows of a column of a tile are. The offset counts 4 bytes per row.
func inTile(tile Register, column int, offset Register, half int) Mem {
	return Mem{Base: tile, Index: offset, Scale: 2, Disp: column*tileStride + 8*lanes*half}
}

func fusedTriangleAVX512(f fusedKind, h int) {
	asked := min(h, askedByTriangle)
	function(fmt.Sprintf("fusedTriangle%dx%dAVX512", 8*f.size, h),
		"func(s, cross *float64, row int, tile *float64, columns *byte, from int, origin *float64, rows int, next *byte, nextFrom int)",
		fusedTriangleDoc, 8*f.size, h, asked)
	acc := triangleAccumulators(h)
	f.rows(h, asked, pointer("tile"), func(_ Register, _ int, column func(r int) VecVirtual) {
		addTriangle(acc, column)
	})
	addRows(append(rowPointers(h), pointer("s")), acc)
	VZEROUPPER()
	RET()
}

func fusedRectangleAVX512(f fusedKind, h int) {
	function(fmt.Sprintf("fusedRectangle%dx%dAVX512", 8*f.size, h),
		"func(cross *float64, row int, left, right *float64, columns *byte, from int, origin *float64, rows int, next *byte, nextFrom int)",
		fusedRectangleDoc, 8*f.size, h, askedByRectangle)
	acc := rectangleAccumulators(h)
	right := pointer("right")
	f.rows(h, askedByRectangle, pointer("left"), func(offset Register, half int, column func(r int) VecVirtual) {
		addRectangle(acc, column, func(c int) Mem { return inTile(right, c, offset, half) })
	})
	addRows(rowPointers(h), acc)
	VZEROUPPER()
	RET()
}

func askingTriangleAVX512(f fusedKind, h int) {
	asked := min(h, askedByTriangle)
	function(fmt.Sprintf("askingTriangle%dx%dAVX512", 8*f.size, h),
		"func(s, cross *float64, row int, tile *float64, rows int, next *byte, nextFrom int)",
		askingTriangleDoc, 8*f.size, h, asked)
	acc := triangleAccumulators(h)
	tile, end := pointer("tile"), pointer("rows")
	next := sources(pointer("next"), asked, pointer("nextFrom"))
	ADDQ(Imm(lineRows-1), end)
	ANDQ(I32(-lineRows), end)
	SHLQ(Imm(2), end)
	offset := GP64()
	XORQ(offset, offset)
	loop("rows", offset, end, 4*lineRows, func() {
		f.ask(next, offset)
		for half := range 2 {
			addTriangle(acc, func(r int) VecVirtual { return loaded(inTile(tile, r, offset, half)) })
		}
	})
	addRows(append(rowPointers(h), pointer("s")), acc)
	VZEROUPPER()
	RET()
}

const fusedTriangleAVX2Doc = `is triangle%[2]d for columns of float%[1]d that are
not in the tile yet: it fills the tile's columns with a stretch from byte from on,
less their origins.`

// fusedTriangleAVX2 is for whole stretches, which need no masks. For ten columns it
// takes a fifth off the time of packing them and summing.
func fusedTriangleAVX2(f fusedKind, h int) {
	function(fmt.Sprintf("fusedTriangle%dx%dAVX2", 8*f.size, h),
		"func(s, cross *float64, row int, tile *float64, columns *byte, from int, origin *float64)",
		fusedTriangleAVX2Doc, 8*f.size, h)
	columns := sources(pointer("columns"), h, pointer("from"))
	tile, origin := pointer("tile"), pointer("origin")
	origins := make([]VecVirtual, h)
	for r := range origins {
		origins[r] = YMM()
		VBROADCASTSD(Mem{Base: origin, Disp: 8 * r}, origins[r])
	}
	n := h + h*(h+1)/2
	acc := bothHalves(2*h, n, U32(4*stretch), 4*lanes, func(half int, offset Register, acc []VecVirtual) {
		u := make([]VecVirtual, h)
		for r := range u {
			u[r] = YMM()
			f.load(f.at(columns[r], offset, lanes/2*half), u[r])
			VSUBPD(origins[r], u[r], u[r])
			VMOVUPD(u[r], Mem{Base: tile, Index: offset, Scale: 2, Disp: r*tileStride + 32*half})
			VADDPD(u[r], acc[r], acc[r])
			for c := range r + 1 {
				VFMADD231PD(u[r], u[c], acc[h+r*(r+1)/2+c])
			}
		}
	})
	addToAVX2(pointer("s"), acc[:h])
	for r, row := range rowPointers(h) {
		addToAVX2(row, acc[h+r*(r+1)/2:][:r+1])
	}
	VZEROUPPER()
	RET()
}
