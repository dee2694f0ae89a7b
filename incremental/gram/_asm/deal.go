package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// A ring is slots of one vector each, in which the rows of a class wait for a
// tile to fill up.
func slots(size int) int { return 512 * size / 64 }

// plan writes the plan by which the rows of one class are dealt. The rows of a
// group that are of the class go to the next positions of the class's ring. So
// that slots are written whole, index rotates a group's rows to where they
// belong within a slot: low are the places before them, which earlier rows
// have, and rows that do not fit into the slot come out at the front, where the
// next slot has them. whole says that there are such.
func plan(size int) {
	group := 64 / size
	function(fmt.Sprintf("plan%dAVX512", 8*size),
		"func(plan *byte, codes *int32, keep *byte, groups, class, position int) int",
		`plans where the rows go that are of the class and in keep,
of groups groups of %d rows, when the class has position rows already, and gives
the position after them.`, group)
	plan, codes, keep, groups := pointer("plan"), pointer("codes"), pointer("keep"), pointer("groups")
	class, position := pointer("class"), pointer("position")
	table := GLOBL(fmt.Sprintf("iota%d", 8*size), RODATA|NOPTR)
	for i := range group {
		if size == 4 {
			DATA(4*i, U32(i))
		} else {
			DATA(8*i, U64(i))
		}
	}
	iota, rotation, index := ZMM(), ZMM(), ZMM()
	VMOVDQU64(table, iota)
	wanted := ZMM()
	VPBROADCASTD(class.(GPVirtual).As32(), wanted)

	slot := func(offset Register) {
		s := GP64()
		MOVQ(position, s)
		SHLQ(Imm(uint64(map[int]int{4: 2, 8: 3}[size])), s)
		ANDQ(U32(uint32(slots(size)-1)*64), s)
		MOVW(s.As16(), Mem{Base: plan, Index: offset, Scale: 2, Disp: planSlot})
	}
	g := GP64()
	XORQ(g, g)
	loop("group", g, groups, 1, func() {
		k, rows := K(), GP32()
		if size == 4 {
			VPCMPEQD(Mem{Base: codes}, wanted, k)
			KMOVW(k, rows)
			ANDW(Mem{Base: keep, Index: g, Scale: 2}, rows.As16())
		} else {
			VPCMPEQD(Mem{Base: codes}, wanted.AsY(), k)
			KMOVW(k, rows)
			ANDB(Mem{Base: keep, Index: g, Scale: 1}, rows.As8())
		}
		KMOVW(rows, k)
		slot(g)
		fill, low := GP64(), GP32()
		MOVQ(position, fill)
		ANDQ(U32(group-1), fill)
		MOVL(U32(1), low)
		SHLXL(fill.As32(), low, low)
		DECL(low)
		MOVW(low.As16(), Mem{Base: plan, Index: g, Scale: 2, Disp: planLow})
		address := GP64()
		MOVQ(g, address)
		SHLQ(Imm(6), address)
		if size == 4 {
			VPCOMPRESSD_Z(iota, k, index)
			VPBROADCASTD(fill.As32(), rotation)
			VPSUBD(rotation, iota, rotation)
			VPERMD(index, rotation, index)
		} else {
			VPCOMPRESSQ_Z(iota, k, index)
			VPBROADCASTQ(fill, rotation)
			VPSUBQ(rotation, iota, rotation)
			VPERMQ(index, rotation, index)
		}
		VMOVDQU64(index, Mem{Base: plan, Index: address, Scale: 1, Disp: planIndex})
		count := GP64()
		POPCNTL(rows, count.As32())
		ADDQ(count, position)
		ADDQ(count, fill)
		// fill is below two groups: its group bit says that the slot is full.
		SHRQ(Imm(uint64(map[int]int{4: 4, 8: 3}[size])), fill)
		NEGQ(fill)
		MOVW(fill.As16(), Mem{Base: plan, Index: g, Scale: 2, Disp: planWhole})
		ADDQ(U32(4*group), codes)
	})
	slot(g)
	Store(position, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// A loader brings a group of rows of a column into the places of an index.
type loader struct {
	name     string
	from, to int // bytes per element, in the column and in the ring
	load     func(address Mem, index, dst VecVirtual)
}

func widening(load func(...Op)) func(address Mem, index, dst VecVirtual) {
	return func(address Mem, index, dst VecVirtual) {
		load(address, dst)
		VPERMD(dst, index, dst)
	}
}

var loaders = []loader{
	{"32", 4, 4, func(address Mem, index, dst VecVirtual) { VPERMD(address, index, dst) }},
	{"64", 8, 8, func(address Mem, index, dst VecVirtual) { VPERMQ(address, index, dst) }},
	{"Int8", 1, 4, widening(VPMOVSXBD)},
	{"Int16", 2, 4, widening(VPMOVSXWD)},
	{"Uint8", 1, 4, widening(VPMOVZXBD)},
	{"Uint16", 2, 4, widening(VPMOVZXWD)},
}

// deal writes one routine that deals groups of rows of some columns into the
// columns of a ring.
func deal(l loader, width int) {
	stride := ringStride32
	if l.to == 8 {
		stride = ringStride64
	}
	function(fmt.Sprintf("deal%sx%dAVX512", l.name, width),
		"func(ring *byte, columns *byte, from int, plan *byte, groups int)",
		`puts the rows of a class, out of groups groups of rows of
%d columns from byte from on, where the plan has them in the columns of ring.`, width)
	ring, columns, plan, groups := pointer("ring"), pointer("columns"), pointer("plan"), pointer("groups")
	from := pointer("from")
	source := make([]Register, width)
	for j := range source {
		source[j] = GP64()
		MOVQ(Mem{Base: columns, Disp: j * columnSize}, source[j])
		ADDQ(from, source[j])
	}
	at := func(offset Register) Register {
		slot := GP64()
		MOVWQZX(Mem{Base: plan, Index: offset, Scale: 2, Disp: planSlot}, slot)
		ADDQ(ring, slot)
		return slot
	}
	g := GP64()
	XORQ(g, g)
	slot := at(g)
	waiting := make([]VecVirtual, width)
	for j := range waiting {
		waiting[j] = ZMM()
		VMOVDQU64(Mem{Base: slot, Disp: j * stride}, waiting[j])
	}
	offset, address := GP64(), GP64()
	XORQ(offset, offset)
	XORQ(address, address)
	loop("group", g, groups, 1, func() {
		index, low, whole := ZMM(), K(), K()
		VMOVDQU64(Mem{Base: plan, Index: address, Scale: 1, Disp: planIndex}, index)
		KMOVW(Mem{Base: plan, Index: g, Scale: 2, Disp: planLow}, low)
		KMOVW(Mem{Base: plan, Index: g, Scale: 2, Disp: planWhole}, whole)
		slot := at(g)
		for j := range source {
			rotated, full := ZMM(), ZMM()
			l.load(Mem{Base: source[j], Index: offset, Scale: 1}, index, rotated)
			blend(l, low, waiting[j], rotated, full)
			VMOVDQU64(full, Mem{Base: slot, Disp: j * stride})
			blend(l, whole, rotated, full, waiting[j])
		}
		ADDQ(U32(64), address)
		ADDQ(U32(64/l.to*l.from), offset)
	})
	slot = at(g)
	for j := range waiting {
		VMOVDQU64(waiting[j], Mem{Base: slot, Disp: j * stride})
	}
	VZEROUPPER()
	RET()
}

// blend takes yes where the mask is set, no elsewhere.
func blend(l loader, mask Register, yes, no, dst VecVirtual) {
	if l.to == 8 {
		VPBLENDMQ(yes, no, mask, dst)
	} else {
		VPBLENDMD(yes, no, mask, dst)
	}
}

// kinds says how eight numbers of each kind become float64; integers go through
// the narrowest type that has a conversion, all of them rounding to nearest.
var kinds = []struct {
	name string
	size int
	load func(address Mem, dst VecVirtual)
}{
	{"Float32", 4, func(a Mem, z VecVirtual) { VCVTPS2PD(a, z) }},
	{"Float64", 8, func(a Mem, z VecVirtual) { VMOVUPD(a, z) }},
	{"Int8", 1, func(a Mem, z VecVirtual) { VPMOVSXBD(a, z.AsY()); VCVTDQ2PD(z.AsY(), z) }},
	{"Int16", 2, func(a Mem, z VecVirtual) { VPMOVSXWD(a, z.AsY()); VCVTDQ2PD(z.AsY(), z) }},
	{"Int32", 4, func(a Mem, z VecVirtual) { VCVTDQ2PD(a, z) }},
	{"Int64", 8, func(a Mem, z VecVirtual) { VCVTQQ2PD(a, z) }},
	{"Uint8", 1, func(a Mem, z VecVirtual) { VPMOVZXBD(a, z.AsY()); VCVTDQ2PD(z.AsY(), z) }},
	{"Uint16", 2, func(a Mem, z VecVirtual) { VPMOVZXWD(a, z.AsY()); VCVTDQ2PD(z.AsY(), z) }},
	{"Uint32", 4, func(a Mem, z VecVirtual) { VCVTUDQ2PD(a, z) }},
	{"Uint64", 8, func(a Mem, z VecVirtual) { VCVTUQQ2PD(a, z) }},
}

// pack writes the routine that makes tile columns of columns of one kind.
func pack(name string, size int, load func(Mem, VecVirtual)) {
	function(fmt.Sprintf("pack%sAVX512", name),
		"func(tile *float64, columns *byte, count, from int, origin *float64, groups int)",
		`writes groups·8 elements from byte from on of count columns,
each less its origin, to the columns of tile. count and groups are above 0.`)
	tile, columns, count := pointer("tile"), pointer("columns"), pointer("count")
	from, origin, end := pointer("from"), pointer("origin"), pointer("groups")
	SHLQ(Imm(3), end)
	Label("column")
	source, row, c := GP64(), GP64(), ZMM()
	MOVQ(Mem{Base: columns}, source)
	ADDQ(from, source)
	VBROADCASTSD(Mem{Base: origin}, c)
	XORQ(row, row)
	loop("rows", row, end, 8, func() {
		x := ZMM()
		load(Mem{Base: source, Index: row, Scale: uint8(size)}, x)
		VSUBPD(c, x, x)
		VMOVUPD(x, Mem{Base: tile, Index: row, Scale: 8})
	})
	ADDQ(U32(columnSize), columns)
	ADDQ(U32(8), origin)
	ADDQ(U32(tileStride), tile)
	DECQ(count)
	JNZ(LabelRef("column"))
	VZEROUPPER()
	RET()
}
