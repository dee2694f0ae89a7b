package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

type load = func(address Mem, v VecVirtual)

// kinds lists how a vector of each kind becomes float64. Integers pass through the
// narrowest type with a conversion. All conversions round to nearest.
var kinds = []struct {
	name string
	size int
	load load
	avx2 load // where AVX2 lacks the conversion
}{
	{"Float32", 4, func(a Mem, v VecVirtual) { VCVTPS2PD(a, v) }, nil},
	{"Float64", 8, func(a Mem, v VecVirtual) { VMOVUPD(a, v) }, nil},
	{"Int8", 1, widened(VPMOVSXBD), nil},
	{"Int16", 2, widened(VPMOVSXWD), nil},
	{"Int32", 4, func(a Mem, v VecVirtual) { VCVTDQ2PD(a, v) }, nil},
	{"Int64", 8, func(a Mem, v VecVirtual) { VCVTQQ2PD(a, v) }, inHalves(VMOVUPD, 0x1p63)},
	{"Uint8", 1, widened(VPMOVZXBD), nil},
	{"Uint16", 2, widened(VPMOVZXWD), nil},
	{"Uint32", 4, func(a Mem, v VecVirtual) { VCVTUDQ2PD(a, v) }, inHalves(VPMOVZXDQ, 0)},
	{"Uint64", 8, func(a Mem, v VecVirtual) { VCVTUQQ2PD(a, v) }, inHalves(VMOVUPD, 0)},
}

// widened converts integers that extend makes 32 bits wide.
func widened(extend func(...Op)) load {
	return func(address Mem, v VecVirtual) {
		half := v.AsY()
		if v.Size() == 32 {
			half = v.AsX()
		}
		extend(address, half)
		VCVTDQ2PD(half, v)
	}
}

// inHalves converts 64-bit integers. With the exponents of 2⁵² and 2⁸⁴, the lower half l
// is the number 2⁵²+l and the upper half h is 2⁸⁴+2³²h. All operations but the last
// addition are exact. Signed integers are first raised by 2⁶³, which flips their sign
// bit.
func inHalves(read func(...Op), raised float64) load {
	return func(address Mem, v VecVirtual) {
		exponent := math.Float64bits(0x1p84) ^ uint64(raised)>>32
		high := YMM()
		read(address, v)
		VPSRLQ(Imm(32), v, high)
		VPXOR(vectorOf(exponent), high, high)
		VSUBPD(vectorOf(math.Float64bits(0x1p84+0x1p52+raised)), high, high)
		VPBLENDD(Imm(0b10101010), vectorOf(math.Float64bits(0x1p52)), v, v)
		VADDPD(high, v, v)
	}
}

// vectorOf is a constant vector in memory.
func vectorOf(x uint64) Mem {
	name := fmt.Sprintf("vector%x", x)
	if !vectors[name] {
		vectors[name] = true
		GLOBL(name, RODATA|NOPTR)
		for i := range 4 {
			DATA(8*i, U64(x))
		}
	}
	return symbol(name)
}

var vectors = map[string]bool{}

const packSignature = "func(tile *float64, columns *byte, count, from int, origin *float64, groups int)"

const packDoc = `writes groups·8 elements from byte from on of count columns,
each less its origin, to the columns of tile. count and groups are above 0.`

// pack writes the routine that packs columns of one kind into a tile, with vectors from
// the given register file.
func pack(variant string, register func() VecVirtual, name string, size int, load load) {
	function("pack"+name+variant, packSignature, packDoc)
	packing(register, func(source, row Register, r int, x VecVirtual) {
		load(Mem{Base: source, Index: row, Scale: uint8(size), Disp: r * size}, x)
	}, func(Register) {})
}

// packBackAVX2 writes the routine that packs the columns of a ring that is filled downwards.
// The numbers are reversed after their conversion.
func packBackAVX2(name string, size int, load load) {
	function("packBack"+name+"AVX2", packSignature,
		`is pack%sAVX2 for columns whose rows go downwards in memory. The first
8 rows are those from byte from on, the last one first, and the next 8 are before them.`, name)
	packing(YMM, func(source, _ Register, r int, x VecVirtual) {
		load(Mem{Base: source, Disp: (4 - r) * size}, x)
		VPERMPD(Imm(0b00011011), x, x)
	}, func(source Register) { SUBQ(Imm(uint64(8*size)), source) })
}

// packing writes the body of a routine that packs. take loads the numbers from r on of a group
// of 8, and next goes on to the next group.
func packing(register func() VecVirtual, take func(source, row Register, r int, x VecVirtual), next func(source Register)) {
	tile, columns, count := pointer("tile"), pointer("columns"), pointer("count")
	from, origin, end := pointer("from"), pointer("origin"), pointer("groups")
	SHLQ(Imm(3), end)
	Label("column")
	source, row, c := GP64(), GP64(), register()
	MOVQ(Mem{Base: columns}, source)
	ADDQ(from, source)
	VBROADCASTSD(Mem{Base: origin}, c)
	XORQ(row, row)
	loop("rows", row, end, 8, func() {
		width := int(c.Size()) / 8
		for r := 0; r < 8; r += width {
			x := register()
			take(source, row, r, x)
			VSUBPD(c, x, x)
			VMOVUPD(x, Mem{Base: tile, Index: row, Scale: 8, Disp: r * 8})
		}
		next(source)
	})
	ADDQ(U32(columnSize), columns)
	ADDQ(U32(8), origin)
	ADDQ(U32(tileStride), tile)
	DECQ(count)
	JNZ(LabelRef("column"))
	VZEROUPPER()
	RET()
}
