package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The fused kernels pack the tile columns that they sum: they convert columns and
// subtract origins on the way, so that each number is converted once and need not be read
// back. Other units of the processor convert and subtract than those that multiply and
// add. A rectangle leaves the former idle, but a triangle needs them for its s. So only
// the first block of columns is packed by its triangle, and the others by their
// rectangles with the first block.
const lineRows = 16 // rows at a time: a cache line of float32

const (
	fusedTriangleDoc = `is triangle%[2]d for columns of float%[1]d that are
not in the tile yet: it fills the tile's columns with rows elements, 1 to a stretch,
from byte from on, less their origins, and with zeros up to a multiple of 16.`

	fusedRectangleDoc = `is rectangle%[2]d for one block of right and columns
of left, of float%[1]d, that are not in the tile yet: it fills them as fusedTriangle
does.`
)

// A fusedKind is a kind of columns with fused kernels.
type fusedKind struct {
	size   int                                      // bytes per element
	load   func(rows Mem, u VecVirtual)             // loads 8 elements as float64
	masked func(rows Mem, k Register, u VecVirtual) // the same, with zeros outside of the mask k
}

var fusedKinds = []fusedKind{
	{4, func(rows Mem, u VecVirtual) { VCVTPS2PD(rows, u) }, func(rows Mem, k Register, u VecVirtual) { VCVTPS2PD_Z(rows, k, u) }},
	{8, func(rows Mem, u VecVirtual) { VMOVUPD(rows, u) }, func(rows Mem, k Register, u VecVirtual) { VMOVUPD_Z(rows, k, u) }},
}

// at is the address of the row skip rows after the offset, which counts 4 bytes per row.
func (f fusedKind) at(column, offset Register, skip int) Mem {
	return Mem{Base: column, Index: offset, Scale: uint8(f.size / 4), Disp: f.size * skip}
}

// sources returns the addresses of h columns' stretches.
func sources(columns Register, h int, from Register) []Register {
	addresses := make([]Register, h)
	for j := range addresses {
		addresses[j] = GP64()
		MOVQ(Mem{Base: columns, Disp: j * columnSize}, addresses[j])
		ADDQ(from, addresses[j])
	}
	return addresses
}

// rows loops over the rows of a stretch, 16 at a time, the last ones under masks. Its
// body processes 8 rows of each column, which column packs.
func (f fusedKind) rows(h int, tile Register, body func(offset Register, half int, column func(r int) VecVirtual)) {
	columns := sources(pointer("columns"), h, pointer("from"))
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
	loop("rows", offset, end, 4*lineRows, func() { add([2]Register{}) })
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

// inTile is the address of 8 rows of a tile's column. The offset counts 4 bytes per row.
func inTile(tile Register, column int, offset Register, half int) Mem {
	return Mem{Base: tile, Index: offset, Scale: 2, Disp: column*tileStride + 8*lanes*half}
}

func fusedTriangleAVX512(f fusedKind) {
	const h = avx512Block
	function(fmt.Sprintf("fusedTriangle%dx%dAVX512", 8*f.size, h),
		"func(s, cross *float64, row int, tile *float64, columns *byte, from int, origin *float64, rows int)",
		fusedTriangleDoc, 8*f.size, h)
	acc := triangleAccumulators(h)
	f.rows(h, pointer("tile"), func(_ Register, _ int, column func(r int) VecVirtual) {
		addTriangle(acc, column)
	})
	addRows(append(rowPointers(h), pointer("s")), acc)
	VZEROUPPER()
	RET()
}

func fusedRectangleAVX512(f fusedKind, h int) {
	function(fmt.Sprintf("fusedRectangle%dx%dAVX512", 8*f.size, h),
		"func(cross *float64, row int, left, right *float64, columns *byte, from int, origin *float64, rows int)",
		fusedRectangleDoc, 8*f.size, h)
	acc := rectangleAccumulators(h)
	right := pointer("right")
	f.rows(h, pointer("left"), func(offset Register, half int, column func(r int) VecVirtual) {
		addRectangle(acc, column, func(c int) Mem { return inTile(right, c, offset, half) })
	})
	addRows(rowPointers(h), acc)
	VZEROUPPER()
	RET()
}
