package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The fused kernels make the tile columns that they sum: they convert float32
// columns and subtract the origins on the way, so that a column is converted once
// and has not to be read back for that. The units that convert and subtract are
// others than those that multiply and add. A rectangle leaves them idle, and a
// triangle needs them for its s as well; so only the first block of columns is made
// by its triangle, and the others by their rectangles with the first.
//
// They also ask for a stretch of some of the columns next, from byte nextFrom on, so
// that it is on its way from memory while this one is summed. Spread over all of
// them, what is asked for comes as fast as it is summed.
const (
	askedByTriangle  = 3
	askedByRectangle = 4
)

const (
	fusedTriangleDoc = `is triangle%d for columns that are not in the tile
yet: it fills the tile's columns with rows elements, 1 to a stretch, of float32
columns from byte from on, less their origins, and with zeros up to a multiple of
16. It also asks for a stretch of %d columns, next, from byte nextFrom on.`

	fusedRectangleDoc = `is rectangle%d for one block of right and for
columns of left that are not in the tile yet: it fills them as fusedTriangle does,
and asks for %d columns.`

	askingTriangleDoc = `is triangle%d for columns that are in the tile as
fusedRectangle leaves them, and asks for %d columns.`
)

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

// fusedRows is a loop over the rows of a stretch, 16 at a time, the last ones under
// masks, that asks for count columns. Its body does 8 rows; column makes a column of
// the tile.
func fusedRows(h, count int, tile Register, body func(offset Register, half int, column func(r int) VecVirtual)) {
	columns := sources(pointer("columns"), h, pointer("from"))
	next := sources(pointer("next"), count, pointer("nextFrom"))
	origin := pointer("origin")
	const line = 16 // rows, of a cache line
	offset, end := GP64(), GP64()
	add := func(kept [2]Register) {
		for half, k := range kept {
			body(offset, half, func(r int) VecVirtual {
				u, c := ZMM(), Mem{Base: origin, Disp: 8 * r}
				source := Mem{Base: columns[r], Index: offset, Scale: 1, Disp: 4 * lanes * half}
				if k == nil {
					VCVTPS2PD(source, u)
					VSUBPD_BCST(c, u, u)
				} else {
					VCVTPS2PD_Z(source, k, u)
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
	loop("rows", offset, end, 4*line, func() {
		askAt(next, offset)
		add([2]Register{})
	})
	Label("rest")
	rest, mask := GP64(), GP64()
	Load(Param("rows"), rest)
	ANDQ(U32(line-1), rest)
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

// inTile is where 8 rows of a column of a tile are. The offset is that of the rows
// in float32 columns, in bytes.
func inTile(tile Register, column int, offset Register, half int) Mem {
	return Mem{Base: tile, Index: offset, Scale: 2, Disp: column*tileStride + 8*lanes*half}
}

// askAt asks for a line of each column.
func askAt(columns []Register, offset Register) {
	for _, column := range columns {
		PREFETCHT1(Mem{Base: column, Index: offset, Scale: 1})
	}
}

func fusedTriangleAVX512(h int) {
	asked := min(h, askedByTriangle)
	function(fmt.Sprintf("fusedTriangle%dAVX512", h),
		"func(s, cross *float64, row int, tile *float64, columns *byte, from int, origin *float64, rows int, next *byte, nextFrom int)",
		fusedTriangleDoc, h, asked)
	acc := triangleAccumulators(h)
	fusedRows(h, asked, pointer("tile"), func(_ Register, _ int, column func(r int) VecVirtual) {
		addTriangle(acc, column)
	})
	addRows(append(rowPointers(h), pointer("s")), acc)
	VZEROUPPER()
	RET()
}

func fusedRectangleAVX512(h int) {
	function(fmt.Sprintf("fusedRectangle%dAVX512", h),
		"func(cross *float64, row int, left, right *float64, columns *byte, from int, origin *float64, rows int, next *byte, nextFrom int)",
		fusedRectangleDoc, h, askedByRectangle)
	acc := rectangleAccumulators(h)
	right := pointer("right")
	fusedRows(h, askedByRectangle, pointer("left"), func(offset Register, half int, column func(r int) VecVirtual) {
		addRectangle(acc, column, func(c int) Mem { return inTile(right, c, offset, half) })
	})
	addRows(rowPointers(h), acc)
	VZEROUPPER()
	RET()
}

func askingTriangleAVX512(h int) {
	asked := min(h, askedByTriangle)
	function(fmt.Sprintf("askingTriangle%dAVX512", h),
		"func(s, cross *float64, row int, tile *float64, rows int, next *byte, nextFrom int)",
		askingTriangleDoc, h, asked)
	acc := triangleAccumulators(h)
	tile, end := pointer("tile"), pointer("rows")
	next := sources(pointer("next"), asked, pointer("nextFrom"))
	const line = 16
	ADDQ(Imm(line-1), end)
	ANDQ(I32(-line), end)
	SHLQ(Imm(2), end)
	offset := GP64()
	XORQ(offset, offset)
	loop("rows", offset, end, 4*line, func() {
		askAt(next, offset)
		for half := range 2 {
			addTriangle(acc, func(r int) VecVirtual { return loaded(inTile(tile, r, offset, half)) })
		}
	})
	addRows(append(rowPointers(h), pointer("s")), acc)
	VZEROUPPER()
	RET()
}
