package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// A ring is slots of one vector each, in which the rows of a class wait for a
// stretch to fill up.
func slots(size int) int { return 2 * stretch * size / 64 }

// plan writes the plans by which the rows of a stretch are dealt to one class or
// to two that follow each other. They are dealt in groups of two vectors. A plan's
// list names its class's rows, one after the other, by their place within their
// group; it begins as far into a slot as the class's next position is, so that a
// vector of the list is the permutation that puts rows where they belong in a
// slot. For each group the plan has
//
//   - the slot that it begins in, in the ring, and its list, both in bytes,
//   - free, the places of that slot that earlier rows have left,
//   - whole, all ones when it fills the slot, and twice, when the next one too.
//
// What a class waits for is how many rows it had in the group before: two classes
// at a time wait for half as long.
func plan(size, classes int) {
	group := 64 / size // rows of a vector
	function(fmt.Sprintf("plan%dto%dAVX512", 8*size, classes),
		"func(plan *byte, codes *int32, keep *byte, class int, positions, next *int)",
		`plans where the rows of a stretch go that are in keep and of the
first of %d classes, when these have so many positions already, and gives those after.`, classes)
	plan, codes, keep := pointer("plan"), pointer("codes"), pointer("keep")
	shift := map[int]int{4: 4, 8: 3}[size] // from positions to slots
	table := GLOBL(fmt.Sprintf("places%dto%d", 8*size, classes), RODATA|NOPTR)
	for i := range 2 * group {
		if size == 4 {
			DATA(4*i, U32(i))
		} else {
			DATA(8*i, U64(i))
		}
	}
	places := [2]VecVirtual{ZMM(), ZMM()}
	VMOVDQU64(table, places[0])
	VMOVDQU64(table.Offset(64), places[1])

	// next is the position within the list; start is that of the ring's slot
	// where the list begins, in bytes.
	wanted, start, next := make([]VecVirtual, classes), make([]Register, classes), make([]Register, classes)
	class, positions := pointer("class"), pointer("positions")
	for c := range classes {
		wanted[c], start[c], next[c] = ZMM(), GP64(), GP64()
		VPBROADCASTD(class.(GPVirtual).As32(), wanted[c])
		INCQ(class)
		MOVQ(Mem{Base: positions, Disp: 8 * c}, next[c])
		MOVQ(next[c], start[c])
		SHRQ(Imm(uint64(shift)), start[c])
		SHLQ(Imm(6), start[c])
		ANDQ(U32(group-1), next[c])
	}
	g := GP64()
	field := func(c, field int) Mem {
		return Mem{Base: plan, Index: g, Scale: 2, Disp: c*planSize + field}
	}
	XORQ(g, g)
	begin := func(c int) (filled Register) {
		filled, list := GP64(), GP64()
		MOVQ(next[c], filled)
		SHRQ(Imm(uint64(shift)), filled)
		MOVQ(filled, list)
		SHLQ(Imm(6), list)
		MOVW(list.As16(), field(c, planBegin))
		ADDQ(start[c], list)
		ANDQ(U32(64*(slots(size)-1)), list)
		MOVW(list.As16(), field(c, planSlot))
		return filled
	}
	Label("group")
	filled := make([]Register, classes)
	for c := range classes {
		filled[c] = begin(c)
		fill, free := GP64(), GP32()
		MOVQ(next[c], fill)
		ANDQ(U32(group-1), fill)
		MOVL(U32(1<<group-1), free)
		SHLXL(fill.As32(), free, free)
		MOVW(free.As16(), field(c, planFree))
	}
	for half := range 2 {
		codes := Mem{Base: codes, Disp: 4 * group * half}
		if half == 0 || size == 4 { // of each line
			PREFETCHT0(codes.Offset(4 * 2 * stretch))
		}
		for c := range classes {
			k, rows, count := K(), GP32(), GP64()
			if size == 4 {
				VPCMPEQD(codes, wanted[c], k)
				KMOVW(k, rows)
				ANDW(Mem{Base: keep, Disp: 2 * half}, rows.As16())
			} else {
				VPCMPEQD(codes, wanted[c].AsY(), k)
				KMOVW(k, rows)
				ANDB(Mem{Base: keep, Disp: half}, rows.As8())
			}
			KMOVW(rows, k)
			named := ZMM()
			list := Mem{Base: plan, Index: next[c], Scale: uint8(size), Disp: c * planSize}
			if size == 4 {
				VPCOMPRESSD_Z(places[half], k, named)
			} else {
				VPCOMPRESSQ_Z(places[half], k, named)
			}
			VMOVDQU64(named, list)
			POPCNTL(rows, count.As32())
			ADDQ(count, next[c])
		}
	}
	// Of the slots filled, 0 to 2, -1 and the upper bit are the flags.
	for c := range classes {
		last, twice := GP64(), GP64()
		MOVQ(next[c], last)
		SHRQ(Imm(uint64(shift)), last)
		SUBQ(filled[c], last)
		MOVQ(last, twice)
		SHRQ(Imm(1), twice)
		MOVW(twice.As16(), field(c, planTwice))
		NEGQ(last)
		SARQ(Imm(1), last)
		MOVW(last.As16(), field(c, planWhole))
	}
	ADDQ(U32(2*4*group), codes)
	ADDQ(U32(2*group/8), keep)
	INCQ(g)
	CMPQ(g, Imm(uint64(stretch/(2*group))))
	JLT(LabelRef("group"))
	positions, after := pointer("positions"), pointer("next")
	for c := range classes {
		begin(c)
		position := GP64()
		MOVQ(Mem{Base: positions, Disp: 8 * c}, position)
		ANDQ(I32(-group), position)
		ADDQ(position, next[c])
		MOVQ(next[c], Mem{Base: after, Disp: 8 * c})
	}
	VZEROUPPER()
	RET()
}

// A loader reads groups of rows of a column.
type loader struct {
	name     string
	from, to int // bytes per element, in the column and in the ring
	load     func(...Op)
}

var loaders = []loader{
	{"32", 4, 4, VMOVDQU32},
	{"64", 8, 8, VMOVDQU64},
	{"Int8", 1, 4, VPMOVSXBD},
	{"Int16", 2, 4, VPMOVSXWD},
	{"Uint8", 1, 4, VPMOVZXBD},
	{"Uint16", 2, 4, VPMOVZXWD},
}

// permute takes the places named by index out of two vectors.
func (l loader) permute(x [2]VecVirtual, index VecVirtual) VecVirtual {
	picked := ZMM()
	VMOVDQA64(index, picked)
	if l.to == 8 {
		VPERMI2Q(x[1], x[0], picked)
	} else {
		VPERMI2D(x[1], x[0], picked)
	}
	return picked
}

// merge writes the places of dst that are in the mask.
func (l loader) merge(x VecVirtual, mask Register, dst VecVirtual) {
	if l.to == 8 {
		VMOVDQA64(x, mask, dst)
	} else {
		VMOVDQA32(x, mask, dst)
	}
}

// deal writes one routine that deals the rows of a stretch of some columns into
// the columns of the rings of one class or of two. What waits of a slot stays
// in a register; each group stores one vector per column and class, which may
// not be full yet, and in the rare case that it fills two slots another one.
func deal(l loader, width, classes int) {
	stride := ringStride32
	if l.to == 8 {
		stride = ringStride64
	}
	function(fmt.Sprintf("deal%sx%dto%dAVX512", l.name, width, classes),
		"func(first, second, columns *byte, from int, plan *byte)",
		`puts those rows of a stretch of %d columns, from byte from
on, that are of %d classes where the plans have them in the rings first and second.`, width, classes)
	rings := []Register{pointer("first")}
	if classes > 1 {
		rings = append(rings, pointer("second"))
	}
	columns, plan := pointer("columns"), pointer("plan")
	source := sources(columns, width, pointer("from"))
	g, offset := GP64(), GP64()
	XORQ(g, g)
	XORQ(offset, offset)
	planned := func(class, field int) Mem {
		return Mem{Base: plan, Index: g, Scale: 2, Disp: class*planSize + field}
	}
	slots := func() []Register {
		at := make([]Register, classes)
		for class := range at {
			at[class] = GP64()
			MOVWQZX(planned(class, planSlot), at[class])
			ADDQ(rings[class], at[class])
		}
		return at
	}
	slot := slots()
	waiting := make([][]VecVirtual, classes)
	for class := range waiting {
		for j := range width {
			waiting[class] = append(waiting[class], ZMM())
			VMOVDQU64(Mem{Base: slot[class], Disp: j * stride}, waiting[class][j])
		}
	}
	load := func(j int) [2]VecVirtual {
		x := [2]VecVirtual{ZMM(), ZMM()}
		l.load(Mem{Base: source[j], Index: offset, Scale: 1}, x[0])
		l.load(Mem{Base: source[j], Index: offset, Scale: 1, Disp: 64 / l.to * l.from}, x[1])
		return x
	}
	Label("group")
	index := make([][2]VecVirtual, classes)
	free, whole := make([]Register, classes), make([]Register, classes)
	for class := range classes {
		index[class], free[class], whole[class] = [2]VecVirtual{ZMM(), ZMM()}, K(), K()
		list := GP64()
		MOVWQZX(planned(class, planBegin), list)
		for i := range index[class] {
			VMOVDQU64(Mem{Base: plan, Index: list, Scale: 1, Disp: class*planSize + 64*i}, index[class][i])
		}
		KMOVW(planned(class, planFree), free[class])
		KMOVW(planned(class, planWhole), whole[class])
	}
	slot = slots()
	for j := range source {
		x := load(j)
		for class, w := range waiting {
			l.merge(l.permute(x, index[class][0]), free[class], w[j])
			VMOVDQU64(w[j], Mem{Base: slot[class], Disp: j * stride})
			l.merge(l.permute(x, index[class][1]), whole[class], w[j])
		}
	}
	for class, w := range waiting {
		once := fmt.Sprintf("once%d", class)
		CMPW(planned(class, planTwice), Imm(0))
		JEQ(LabelRef(once))
		second, list, third := GP64(), GP64(), ZMM()
		MOVWQZX(planned(class, planSlot), second)
		ADDQ(U32(64), second)
		ANDQ(U32(stride-64-1), second) // a ring's size is a power of two
		ADDQ(rings[class], second)
		MOVWQZX(planned(class, planBegin), list)
		VMOVDQU64(Mem{Base: plan, Index: list, Scale: 1, Disp: class*planSize + 128}, third)
		for j := range source {
			VMOVDQU64(w[j], Mem{Base: second, Disp: j * stride})
			VMOVDQA64(l.permute(load(j), third), w[j])
		}
		Label(once)
	}
	ADDQ(U32(2*64/l.to*l.from), offset)
	INCQ(g)
	CMPQ(g, Imm(uint64(stretch*l.to/128)))
	JLT(LabelRef("group"))
	slot = slots()
	for class, w := range waiting {
		for j := range w {
			VMOVDQU64(w[j], Mem{Base: slot[class], Disp: j * stride})
		}
	}
	VZEROUPPER()
	RET()
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
