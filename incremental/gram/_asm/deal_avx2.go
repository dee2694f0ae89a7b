package main

import (
	"fmt"
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// In AVX2 a group is one vector. Its rows of a class are permuted to the front, and
// the vector is stored from the class's next position on, wherever that is: what it
// holds behind those rows is overwritten with the next group's. The plan has the
// permutations and
//
//   - slot, for each group the next position in the ring, in bytes,
//   - spill, all ones for as many rows as come to lie behind the ring's end. When
//     all groups are dealt these are copied to its begin.
//
// Nothing that waits is overwritten: that is less than a stretch of rows, half a
// ring, and no group stores further than if all rows of the stretch were of the class.
func planAVX2(size, classes int) {
	group := 32 / size // rows of a vector
	function(fmt.Sprintf("plan%dto%dAVX2", 8*size, classes), planSignature, planDoc, classes)
	plan, codes, keep := pointer("plan"), pointer("codes"), pointer("keep")
	orders := GP64()
	LEAQ(symbol(ordersName(size)), orders)

	// next is the next position in the ring.
	wanted, next, spilled := make([]VecVirtual, classes), make([]Register, classes), make([]Register, classes)
	class, positions := pointer("class"), pointer("positions")
	for c := range classes {
		wanted[c], next[c], spilled[c] = broadcastAVX2(class), GP64(), GP64()
		INCQ(class)
		MOVQ(Mem{Base: positions, Disp: 8 * c}, next[c])
		ANDQ(U32(ringRows-1), next[c])
		XORQ(spilled[c], spilled[c])
	}
	g := GP64() // four times the group
	XORQ(g, g)
	loop("rows", g, U32(4*stretch/group), 4*8/group, func() {
		PREFETCHT0(Mem{Base: codes, Disp: 4 * 2 * stretch})
		for c := range classes {
			same, rows, kept := YMM(), GP64(), GP64()
			VPCMPEQD(Mem{Base: codes}, wanted[c], same)
			VMOVMSKPS(same, rows.As32())
			MOVBQZX(Mem{Base: keep}, kept)
			ANDQ(kept, rows)
			for part := range 8 / group {
				set := GP64()
				MOVQ(rows, set)
				if group < 8 {
					ANDQ(U32(1<<group-1), set)
					SHRQ(Imm(uint64(group)), rows)
				}
				order, slot, count := YMM(), GP64(), GP64()
				VPMOVZXBD(Mem{Base: orders, Index: set, Scale: 8}, order)
				VMOVDQU(order, Mem{Base: plan, Index: g, Scale: 8, Disp: c*planSizeAVX2 + 32*part})
				MOVQ(next[c], slot)
				SHLQ(Imm(uint64(bits.TrailingZeros(uint(size)))), slot)
				MOVL(slot.As32(), Mem{Base: plan, Index: g, Scale: 1, Disp: c*planSizeAVX2 + planSlotAVX2 + 4*part})
				POPCNTQ(set, count)
				ADDQ(count, next[c])
				inside := fmt.Sprintf("inside%d%d", c, part)
				CMPQ(next[c], U32(ringRows))
				JLT(LabelRef(inside))
				SUBQ(U32(ringRows), next[c])
				MOVQ(next[c], spilled[c])
				Label(inside)
			}
		}
		ADDQ(Imm(4*8), codes)
		INCQ(keep)
	})
	positions, after := pointer("positions"), pointer("next")
	for c := range classes {
		spill, position := broadcastAVX2(spilled[c]), GP64()
		VPCMPGTD(symbol(rowsName(size)), spill, spill)
		VMOVDQU(spill, Mem{Base: plan, Disp: c*planSizeAVX2 + planSpillAVX2})
		MOVQ(Mem{Base: positions, Disp: 8 * c}, position)
		SUBQ(position, next[c])
		ANDQ(U32(ringRows-1), next[c])
		ADDQ(position, next[c])
		MOVQ(next[c], Mem{Base: after, Disp: 8 * c})
	}
	VZEROUPPER()
	RET()
}

func broadcastAVX2(x Register) VecVirtual {
	y := YMM()
	VMOVD(x.(GPVirtual).As32(), y.AsX())
	VPBROADCASTD(y.AsX(), y)
	return y
}

func ordersName(size int) string { return fmt.Sprintf("orders%d", 8*size) }
func rowsName(size int) string   { return fmt.Sprintf("rows%d", 8*size) }

// ordersTables writes what plans are made of. Elements are permuted in words of 4
// bytes. Orders has, for each set of a vector's rows, as a mask, the permutation
// that puts these first, a byte for each word; rows has each word's row.
func ordersTables(size int) {
	group, words := 32/size, size/4
	GLOBL(ordersName(size), RODATA|NOPTR)
	for set := range 1 << group {
		var order uint64
		first := 0
		for word := range 8 {
			if set>>(word/words)&1 == 1 {
				order |= uint64(word) << (8 * first)
				first++
			}
		}
		DATA(8*set, U64(order))
	}
	GLOBL(rowsName(size), RODATA|NOPTR)
	for word := range 8 {
		DATA(4*word, U32(word/words))
	}
}

// dealAVX2 writes one routine that deals the rows of a stretch of some columns
// into the columns of the rings of one class or of two. It also asks for the
// columns' next stretch, which takes a tenth off ten float32 columns from memory.
// (In AVX-512, whose other work is shorter, asking beside the sums gains more.)
func dealAVX2(l loader, width, classes int) {
	group := 32 / l.to
	function(fmt.Sprintf("deal%sx%dto%dAVX2", l.name, width, classes), dealSignature, dealDoc, width, classes)
	rings := ringPointers(classes)
	columns, plan := pointer("columns"), pointer("plan")
	source := sources(columns, width, pointer("from"))
	g := GP64() // four times the group
	XORQ(g, g)
	loop("group", g, U32(4*stretch/group), 4, func() {
		order, slot := make([]VecVirtual, classes), make([]GPVirtual, classes)
		for class, ring := range rings {
			order[class], slot[class] = YMM(), GP64()
			VMOVDQU(Mem{Base: plan, Index: g, Scale: 8, Disp: class * planSizeAVX2}, order[class])
			MOVL(Mem{Base: plan, Index: g, Scale: 1, Disp: class*planSizeAVX2 + planSlotAVX2}, slot[class].As32())
			ADDQ(ring, slot[class])
		}
		for j := range source {
			x, rows := YMM(), Mem{Base: source[j], Index: g, Scale: uint8(group * l.from / 4)}
			PREFETCHT1(rows.Offset(stretch * l.from))
			l.load(rows, x)
			for class := range rings {
				picked := YMM()
				VPERMD(x, order[class], picked)
				VMOVDQU(picked, Mem{Base: slot[class], Disp: j * l.ringStride()})
			}
		}
	})
	for class, ring := range rings {
		spill := YMM()
		VMOVDQU(Mem{Base: plan, Disp: class*planSizeAVX2 + planSpillAVX2}, spill)
		for j := range source {
			begin := Mem{Base: ring, Disp: j * l.ringStride()}
			x := YMM()
			VMOVDQU(begin, x)
			VPBLENDVB(spill, begin.Offset(ringRows*l.to), x, x)
			VMOVDQU(x, begin)
		}
	}
	VZEROUPPER()
	RET()
}
