package main

import (
	"fmt"
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// A ring consists of slots of one vector each, in which the rows of a class wait for a
// stretch to fill up.
func slots(size int) int { return 2 * stretch * size / 64 }

// In AVX-512 a group is two vectors. The plan's list names the class's rows, one after
// the other, by their place within their group. The list begins as far into a slot as
// the class's next position is, so that a vector of the list is the permutation that
// puts rows to their places in a slot. For each group the plan has
//
//   - slot, where the group begins in the ring, and begin, where its list begins, both
//     in bytes,
//   - free, the places of that slot that earlier rows have left,
//   - whole, all ones when the group fills the slot, and twice, when it fills the next
//     one too.
func planAVX512(size int) {
	group := 64 / size // rows of a vector
	function(fmt.Sprintf("plan%dAVX512", 8*size), planSignature, planDoc)
	plan, codes, keep := pointer("plan"), pointer("codes"), pointer("keep")
	shift := bits.TrailingZeros(uint(group)) // from positions to slots
	table := GLOBL(fmt.Sprintf("places%d", 8*size), RODATA|NOPTR)
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

	wanted, start := ZMM(), GP64()
	VPBROADCASTD(pointer("class").(GPVirtual).As32(), wanted)
	next := pointer("position") // the position within the list
	MOVQ(next, start)           // the ring's slot where the list begins, in bytes
	SHRQ(Imm(uint64(shift)), start)
	SHLQ(Imm(6), start)
	ANDQ(U32(group-1), next)
	g, end := GP64(), pointer("rows")
	SHRQ(Imm(uint64(shift)+1), end)
	field := func(field int) Mem { return Mem{Base: plan, Index: g, Scale: 2, Disp: field} }
	XORQ(g, g)
	begin := func() (filled Register) {
		filled, list := GP64(), GP64()
		MOVQ(next, filled)
		SHRQ(Imm(uint64(shift)), filled)
		MOVQ(filled, list)
		SHLQ(Imm(6), list)
		MOVW(list.As16(), field(planBeginAVX512))
		ADDQ(start, list)
		ANDQ(U32(64*(slots(size)-1)), list)
		MOVW(list.As16(), field(planSlotAVX512))
		return filled
	}
	Label("group")
	filled, fill, free := begin(), GP64(), GP32()
	MOVQ(next, fill)
	ANDQ(U32(group-1), fill)
	MOVL(U32(1<<group-1), free)
	SHLXL(fill.As32(), free, free)
	MOVW(free.As16(), field(planFreeAVX512))
	for half := range 2 {
		codes := Mem{Base: codes, Disp: 4 * group * half}
		if half == 0 || size == 4 { // once a cache line
			PREFETCHT0(codes.Offset(4 * 2 * stretch))
		}
		k, rows, count := K(), GP32(), GP64()
		if size == 4 {
			VPCMPEQD(codes, wanted, k)
			KMOVW(k, rows)
			ANDW(Mem{Base: keep, Disp: 2 * half}, rows.As16())
		} else {
			VPCMPEQD(codes, wanted.AsY(), k)
			KMOVW(k, rows)
			ANDB(Mem{Base: keep, Disp: half}, rows.As8())
		}
		KMOVW(rows, k)
		named := ZMM()
		if size == 4 {
			VPCOMPRESSD_Z(places[half], k, named)
		} else {
			VPCOMPRESSQ_Z(places[half], k, named)
		}
		VMOVDQU64(named, Mem{Base: plan, Index: next, Scale: uint8(size)})
		POPCNTL(rows, count.As32())
		ADDQ(count, next)
	}
	// The group fills 0 to 2 slots. twice is half of that number, rounded down: 1 for two
	// slots. whole is minus half of it, rounded down: all ones for one slot and for two.
	last, twice := GP64(), GP64()
	MOVQ(next, last)
	SHRQ(Imm(uint64(shift)), last)
	SUBQ(filled, last)
	MOVQ(last, twice)
	SHRQ(Imm(1), twice)
	MOVW(twice.As16(), field(planTwiceAVX512))
	NEGQ(last)
	SARQ(Imm(1), last)
	MOVW(last.As16(), field(planWholeAVX512))
	ADDQ(U32(2*4*group), codes)
	ADDQ(U32(2*group/8), keep)
	INCQ(g)
	CMPQ(g, end)
	JLT(LabelRef("group"))
	begin()
	position := pointer("position")
	ANDQ(I32(-group), position)
	ADDQ(position, next)
	Store(next, ReturnIndex(0))
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

// dealAVX512 writes the routine that deals the rows of a stretch of some columns into
// the columns of a ring. The waiting rows of a slot stay in a register. Each group
// stores one vector per column, full or not. A group that fills two slots, which is
// rare, stores another one.
func dealAVX512(l loader, width int) {
	stride := l.ringStride()
	function(fmt.Sprintf("deal%sx%dAVX512", l.name, width), dealSignature, dealDoc, width)
	ring, columns, plan := pointer("ring"), pointer("columns"), pointer("plan")
	source := sources(columns, width, pointer("from"))
	g, offset, end := GP64(), GP64(), pointer("rows")
	SHRQ(Imm(uint64(bits.TrailingZeros(uint(128/l.to)))), end)
	XORQ(g, g)
	XORQ(offset, offset)
	planned := func(field int) Mem { return Mem{Base: plan, Index: g, Scale: 2, Disp: field} }
	slot := func() Register {
		at := GP64()
		MOVWQZX(planned(planSlotAVX512), at)
		ADDQ(ring, at)
		return at
	}
	first := slot()
	waiting := make([]VecVirtual, width)
	for j := range waiting {
		waiting[j] = ZMM()
		VMOVDQU64(Mem{Base: first, Disp: j * stride}, waiting[j])
	}
	size := 2 * 64 / l.to * l.from // bytes of a group in a column
	load := func(j int) [2]VecVirtual {
		x := [2]VecVirtual{ZMM(), ZMM()}
		l.load(Mem{Base: source[j], Index: offset, Scale: 1}, x[0])
		l.load(Mem{Base: source[j], Index: offset, Scale: 1, Disp: size / 2}, x[1])
		return x
	}
	Label("group")
	index, free, whole, list := [2]VecVirtual{ZMM(), ZMM()}, K(), K(), GP64()
	MOVWQZX(planned(planBeginAVX512), list)
	for i := range index {
		VMOVDQU64(Mem{Base: plan, Index: list, Scale: 1, Disp: 64 * i}, index[i])
	}
	KMOVW(planned(planFreeAVX512), free)
	KMOVW(planned(planWholeAVX512), whole)
	at := slot()
	for j, w := range waiting {
		for line := 0; line < size; line += 64 {
			PREFETCHT1(Mem{Base: source[j], Index: offset, Scale: 1, Disp: stretch*l.from + line})
		}
		x := load(j)
		l.merge(l.permute(x, index[0]), free, w)
		VMOVDQU64(w, Mem{Base: at, Disp: j * stride})
		l.merge(l.permute(x, index[1]), whole, w)
	}
	CMPW(planned(planTwiceAVX512), Imm(0))
	JEQ(LabelRef("once"))
	second, third := GP64(), ZMM()
	MOVWQZX(planned(planSlotAVX512), second)
	ADDQ(U32(64), second)
	ANDQ(U32(stride-64-1), second) // a ring's size is a power of two
	ADDQ(ring, second)
	VMOVDQU64(Mem{Base: plan, Index: list, Scale: 1, Disp: 128}, third)
	for j, w := range waiting {
		VMOVDQU64(w, Mem{Base: second, Disp: j * stride})
		VMOVDQA64(l.permute(load(j), third), w)
	}
	Label("once")
	ADDQ(U32(size), offset)
	INCQ(g)
	CMPQ(g, end)
	JLT(LabelRef("group"))
	last := slot()
	for j, w := range waiting {
		VMOVDQU64(w, Mem{Base: last, Disp: j * stride})
	}
	VZEROUPPER()
	RET()
}
