package main

import (
	"fmt"
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// In AVX2 a group is one vector. Its rows of the class are permuted to the front, and
// the whole vector is stored at the class's next position, aligned or not. The next
// group overwrites the places behind those rows. The plan has the permutations and
//
//   - slot, for each group the next position in the ring, in bytes,
//   - spill, all ones for as many rows as come to lie behind the ring's end. After the
//     last group these are copied to the ring's beginning.
//
// No waiting row is overwritten: less than a stretch of rows waits, half a ring, and no
// group stores further than if all rows of the stretch were of the class.
func planAVX2(size int) {
	group := 32 / size // rows of a vector
	function(fmt.Sprintf("plan%dAVX2", 8*size), planSignature, planDoc)
	plan, codes, keep := pointer("plan"), pointer("codes"), pointer("keep")
	orders := GP64()
	LEAQ(symbol(ordersName(size)), orders)

	wanted, spilled := broadcastAVX2(pointer("class")), GP64()
	next := pointer("position") // the next position in the ring
	ANDQ(U32(ringRows-1), next)
	XORQ(spilled, spilled)
	g, end := groups(size)
	loop("rows", g, end, 4*8/group, func() {
		PREFETCHT0(Mem{Base: codes, Disp: 4 * 2 * stretch})
		same, rows, kept := YMM(), GP64(), GP64()
		VPCMPEQD(Mem{Base: codes}, wanted, same)
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
			VMOVDQU(order, Mem{Base: plan, Index: g, Scale: 8, Disp: 32 * part})
			MOVQ(next, slot)
			SHLQ(Imm(uint64(bits.TrailingZeros(uint(size)))), slot)
			MOVL(slot.As32(), Mem{Base: plan, Index: g, Scale: 1, Disp: planSlotAVX2 + 4*part})
			POPCNTQ(set, count)
			ADDQ(count, next)
			inside := fmt.Sprintf("inside%d", part)
			CMPQ(next, U32(ringRows))
			JLT(LabelRef(inside))
			SUBQ(U32(ringRows), next)
			MOVQ(next, spilled)
			Label(inside)
		}
		ADDQ(Imm(4*8), codes)
		INCQ(keep)
	})
	spill, position := broadcastAVX2(spilled), pointer("position")
	VPCMPGTD(symbol(rowsName(size)), spill, spill)
	VMOVDQU(spill, Mem{Base: plan, Disp: planSpillAVX2})
	SUBQ(position, next)
	ANDQ(U32(ringRows-1), next)
	ADDQ(position, next)
	Store(next, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// Two classes share permutations and loads. The ring of class 0 is filled upwards and that of
// class 1 downwards, so its next rows go before those that wait. One permutation puts the
// rows of class 0 first and those of class 1 last, in reverse order. The vector is stored into
// both rings: where its first row is the next one of class 0, and where its last row is the
// next one of class 1. In either ring the next group overwrites what is not of the class.
// Rows of neither class are in no place of the permutation. Each class has slots and a spill,
// as in a plan for one class. The spill of class 1 is what comes to lie before its ring.
func planPairAVX2(size int) {
	group := 32 / size // rows of a vector
	shift := uint64(bits.TrailingZeros(uint(size)))
	function(fmt.Sprintf("planPair%dAVX2", 8*size),
		"func(plan *byte, codes *int32, rows int, keep *byte, first, second int) (next, nextSecond int)",
		`plans the places of those rows that are in keep and of class 0 or 1.
These have first and second positions already. It returns how many they have then. rows is
a multiple of 32 above 0, up to a stretch.`)
	plan, codes, keep := pointer("plan"), pointer("codes"), pointer("keep")
	orders, back := GP64(), GP64()
	LEAQ(symbol(ordersName(size)), orders)
	LEAQ(symbol(backName(size)), back)

	zero, one := YMM(), YMM()
	VPXOR(zero, zero, zero)
	VPCMPEQD(one, one, one)
	VPSRLD(Imm(31), one, one)
	next := [2]Register{pointer("first"), pointer("second")} // the next positions in the rings
	spilled := [2]Mem{AllocLocal(8), AllocLocal(8)}
	for class, n := range next {
		ANDQ(U32(ringRows-1), n)
		MOVQ(U32(0), spilled[class])
	}
	g, end := groups(size)
	loop("rows", g, end, 4*8/group, func() {
		PREFETCHT0(Mem{Base: codes, Disp: 4 * 2 * stretch})
		var rows [2]Register
		kept := GP64()
		MOVBQZX(Mem{Base: keep}, kept)
		for class, wanted := range []VecVirtual{zero, one} {
			same := YMM()
			rows[class] = GP64()
			VPCMPEQD(Mem{Base: codes}, wanted, same)
			VMOVMSKPS(same, rows[class].(GPVirtual).As32())
			ANDQ(kept, rows[class])
		}
		for part := range 8 / group {
			var order [2]VecVirtual
			for class, table := range []Register{orders, back} {
				set, slot := GP64(), GP64()
				MOVQ(rows[class], set)
				if group < 8 {
					ANDQ(U32(1<<group-1), set)
					SHRQ(Imm(uint64(group)), rows[class])
				}
				order[class] = YMM()
				VPMOVZXBD(Mem{Base: table, Index: set, Scale: 8}, order[class])
				if class == 0 {
					MOVQ(next[class], slot)
				} else {
					MOVQ(I32(ringRows-group), slot)
					SUBQ(next[class], slot)
				}
				SHLQ(Imm(shift), slot)
				MOVL(slot.As32(), Mem{Base: plan, Index: g, Scale: 1, Disp: pairSlotAVX2 + class*64*4 + 4*part})
				POPCNTQ(set, set)
				ADDQ(set, next[class])
				inside := fmt.Sprintf("inside%d_%d", part, class)
				CMPQ(next[class], U32(ringRows))
				JLT(LabelRef(inside))
				SUBQ(U32(ringRows), next[class])
				MOVQ(next[class], spilled[class])
				Label(inside)
			}
			VPOR(order[0], order[1], order[0])
			VMOVDQU(order[0], Mem{Base: plan, Index: g, Scale: 8, Disp: 32 * part})
		}
		ADDQ(Imm(4*8), codes)
		INCQ(keep)
	})
	for class, parameter := range []string{"first", "second"} {
		count := GP64()
		MOVQ(spilled[class], count)
		if class == 1 { // the rows from group − count on
			NEGQ(count)
			ADDQ(Imm(uint64(group-1)), count)
		}
		spill, position := broadcastAVX2(count), pointer(parameter)
		if class == 0 {
			VPCMPGTD(symbol(rowsName(size)), spill, spill)
		} else {
			row := YMM()
			VMOVDQU(symbol(rowsName(size)), row)
			VPCMPGTD(spill, row, spill)
		}
		VMOVDQU(spill, Mem{Base: plan, Disp: pairSpillAVX2 + 32*class})
		SUBQ(position, next[class])
		ANDQ(U32(ringRows-1), next[class])
		ADDQ(position, next[class])
		Store(next[class], ReturnIndex(class))
	}
	VZEROUPPER()
	RET()
}

// dealPairAVX2 is dealAVX2 for two classes.
func dealPairAVX2(l loader, width int) {
	group := 32 / l.to
	function(fmt.Sprintf("dealPair%sx%dAVX2", l.name, width),
		"func(ring, second, columns *byte, from, rows int, plan *byte)",
		`copies rows of %d columns, from byte from on, to their planned
places in the rings of class 0 and of class 1, and prefetches the next stretch.`, width)
	rings := [2]Register{pointer("ring"), pointer("second")}
	columns, plan := pointer("columns"), pointer("plan")
	source := sources(columns, width, pointer("from"))
	g, end := groups(l.to)
	loop("group", g, end, 4, func() {
		order := YMM()
		VMOVDQU(Mem{Base: plan, Index: g, Scale: 8}, order)
		var slots [2]Register
		for class := range slots {
			slots[class] = GP64()
			MOVLQSX(Mem{Base: plan, Index: g, Scale: 1, Disp: pairSlotAVX2 + class*64*4}, slots[class])
			ADDQ(rings[class], slots[class])
		}
		for j := range source {
			x, picked, rows := YMM(), YMM(), Mem{Base: source[j], Index: g, Scale: uint8(group * l.from / 4)}
			PREFETCHT1(rows.Offset(stretch * l.from))
			l.load(rows, x)
			VPERMD(x, order, picked)
			for class := range slots {
				VMOVDQU(picked, Mem{Base: slots[class], Disp: j * l.ringStride()})
			}
		}
	})
	for class, into := range [2]int{0, ringRows*l.to - 32} {
		spill := YMM()
		VMOVDQU(Mem{Base: plan, Disp: pairSpillAVX2 + 32*class}, spill)
		spilled := [2]int{ringRows * l.to, -32}[class]
		for j := range source {
			ring, x := Mem{Base: rings[class], Disp: j * l.ringStride()}, YMM()
			VMOVDQU(ring.Offset(into), x)
			VPBLENDVB(spill, ring.Offset(spilled), x, x)
			VMOVDQU(x, ring.Offset(into))
		}
	}
	VZEROUPPER()
	RET()
}

// groups counts groups in steps of 4, from g to end.
func groups(size int) (g, end Register) {
	g, end = GP64(), pointer("rows")
	XORQ(g, g)
	if size == 4 {
		SHRQ(Imm(1), end)
	}
	return g, end
}

func broadcastAVX2(x Register) VecVirtual {
	y := YMM()
	VMOVD(x.(GPVirtual).As32(), y.AsX())
	VPBROADCASTD(y.AsX(), y)
	return y
}

func ordersName(size int) string { return fmt.Sprintf("orders%d", 8*size) }
func backName(size int) string   { return fmt.Sprintf("ordersBack%d", 8*size) }
func rowsName(size int) string   { return fmt.Sprintf("rows%d", 8*size) }

// ordersTables writes the tables of plans. Elements are permuted in words of 4 bytes.
// Orders has, for each set of a vector's rows, as a mask, the permutation that puts
// these first, a byte for each word; its other bytes are 0. OrdersBack has those that put
// them last, the first row at the end. Rows has each word's row.
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
	GLOBL(backName(size), RODATA|NOPTR)
	for set := range 1 << group {
		var order uint64
		last := group
		for row := range group {
			if set>>row&1 == 1 {
				last--
				for word := range words {
					order |= uint64(row*words+word) << (8 * (last*words + word))
				}
			}
		}
		DATA(8*set, U64(order))
	}
	GLOBL(rowsName(size), RODATA|NOPTR)
	for word := range 8 {
		DATA(4*word, U32(word/words))
	}
}

// dealAVX2 writes the routine that deals the rows of a stretch of some columns into the
// columns of a ring.
func dealAVX2(l loader, width int) {
	group := 32 / l.to
	function(fmt.Sprintf("deal%sx%dAVX2", l.name, width), dealSignature, dealDoc, width)
	ring, columns, plan := pointer("ring"), pointer("columns"), pointer("plan")
	source := sources(columns, width, pointer("from"))
	g, end := groups(l.to)
	loop("group", g, end, 4, func() {
		order, slot := YMM(), GP64()
		VMOVDQU(Mem{Base: plan, Index: g, Scale: 8}, order)
		MOVL(Mem{Base: plan, Index: g, Scale: 1, Disp: planSlotAVX2}, slot.As32())
		ADDQ(ring, slot)
		for j := range source {
			x, picked, rows := YMM(), YMM(), Mem{Base: source[j], Index: g, Scale: uint8(group * l.from / 4)}
			PREFETCHT1(rows.Offset(stretch * l.from))
			l.load(rows, x)
			VPERMD(x, order, picked)
			VMOVDQU(picked, Mem{Base: slot, Disp: j * l.ringStride()})
		}
	})
	spill := YMM()
	VMOVDQU(Mem{Base: plan, Disp: planSpillAVX2}, spill)
	for j := range source {
		begin, x := Mem{Base: ring, Disp: j * l.ringStride()}, YMM()
		VMOVDQU(begin, x)
		VPBLENDVB(spill, begin.Offset(ringRows*l.to), x, x)
		VMOVDQU(x, begin)
	}
	VZEROUPPER()
	RET()
}
