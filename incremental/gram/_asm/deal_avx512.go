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

// In AVX-512 a group is two vectors. The plan's list names its class's rows, one
// after the other, by their place within their group; it begins as far into a slot
// as the class's next position is, so that a vector of the list is the permutation
// that puts rows where they belong in a slot. For each group the plan has
//
//   - the slot that it begins in, in the ring, and its list, both in bytes,
//   - free, the places of that slot that earlier rows have left,
//   - whole, all ones when it fills the slot, and twice, when the next one too.
func planAVX512(size, classes int) {
	group := 64 / size // rows of a vector
	function(fmt.Sprintf("plan%dto%dAVX512", 8*size, classes), planSignature, planDoc, classes)
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
		return Mem{Base: plan, Index: g, Scale: 2, Disp: c*planSizeAVX512 + field}
	}
	XORQ(g, g)
	begin := func(c int) (filled Register) {
		filled, list := GP64(), GP64()
		MOVQ(next[c], filled)
		SHRQ(Imm(uint64(shift)), filled)
		MOVQ(filled, list)
		SHLQ(Imm(6), list)
		MOVW(list.As16(), field(c, planBeginAVX512))
		ADDQ(start[c], list)
		ANDQ(U32(64*(slots(size)-1)), list)
		MOVW(list.As16(), field(c, planSlotAVX512))
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
		MOVW(free.As16(), field(c, planFreeAVX512))
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
			list := Mem{Base: plan, Index: next[c], Scale: uint8(size), Disp: c * planSizeAVX512}
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
		MOVW(twice.As16(), field(c, planTwiceAVX512))
		NEGQ(last)
		SARQ(Imm(1), last)
		MOVW(last.As16(), field(c, planWholeAVX512))
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

// What waits of a slot stays
// in a register; each group stores one vector per column and class, which may
// not be full yet, and in the rare case that it fills two slots another one.
func dealAVX512(l loader, width, classes int) {
	stride := l.ringStride()
	function(fmt.Sprintf("deal%sx%dto%dAVX512", l.name, width, classes), dealSignature, dealDoc, width, classes)
	rings := ringPointers(classes)
	columns, plan := pointer("columns"), pointer("plan")
	source := sources(columns, width, pointer("from"))
	g, offset := GP64(), GP64()
	XORQ(g, g)
	XORQ(offset, offset)
	planned := func(class, field int) Mem {
		return Mem{Base: plan, Index: g, Scale: 2, Disp: class*planSizeAVX512 + field}
	}
	slots := func() []Register {
		at := make([]Register, classes)
		for class := range at {
			at[class] = GP64()
			MOVWQZX(planned(class, planSlotAVX512), at[class])
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
		MOVWQZX(planned(class, planBeginAVX512), list)
		for i := range index[class] {
			VMOVDQU64(Mem{Base: plan, Index: list, Scale: 1, Disp: class*planSizeAVX512 + 64*i}, index[class][i])
		}
		KMOVW(planned(class, planFreeAVX512), free[class])
		KMOVW(planned(class, planWholeAVX512), whole[class])
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
		CMPW(planned(class, planTwiceAVX512), Imm(0))
		JEQ(LabelRef(once))
		second, list, third := GP64(), GP64(), ZMM()
		MOVWQZX(planned(class, planSlotAVX512), second)
		ADDQ(U32(64), second)
		ANDQ(U32(stride-64-1), second) // a ring's size is a power of two
		ADDQ(rings[class], second)
		MOVWQZX(planned(class, planBeginAVX512), list)
		VMOVDQU64(Mem{Base: plan, Index: list, Scale: 1, Disp: class*planSizeAVX512 + 128}, third)
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
