package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Blocks of two classes and few columns of floats are summed in chunks. All that is
// dealt, packed and added up stays in the first-level cache. The lanes wait in memory
// until a stretch is whole.
//
// The two classes share vectors. The ring of class 0 is filled upwards and that of class
// 1 downwards. So in a slot of L places the next place of class 0 is beside the next
// place of class 1, however the rows are mixed: when class 0 has f rows in its slot,
// class 1 lacks f rows in its own. The waiting rows of the two slots fit one vector:
// those of class 0 below place f, those of class 1 from f on. A group of 2L rows makes
// two more vectors, rotated by f places: the first completes the two slots, the second
// has what comes next. Two of the three slots are then full, and the third one waits.
// (When f is 0, the waiting rows are a whole slot of class 1, which is in its place
// already. Before the first group there are none.)
const (
	narrowFewest  = avx512Block
	narrowColumns = 10
	narrowChunk   = 64                        // rows
	narrowRing    = 2 * narrowChunk           // rows of a class
	narrowTile    = (narrowChunk + lanes) * 8 // bytes between the columns of a chunk

	// A plan has a list of two vectors for each group, with room before and after the
	// lists, and these fields for each group.
	narrowLists      = 64
	narrowFields     = narrowLists + 16*2*64 + 64
	narrowList       = narrowFields      // the list's offset, less the places of the waiting rows of class 0
	narrowOwn        = narrowFields + 4  // the mask of these places
	narrowSlots      = narrowFields + 8  // the slots of both classes
	narrowNext       = narrowFields + 16 // the slot of the second vector
	narrowWaiting    = narrowFields + 20 // the slot of the waiting rows
	narrowAfter      = narrowFields + 24 // the position of class 0 after the group
	narrowFieldsLog2 = 5                 // a group's fields take 32 bytes
)

func narrowStride(size int) int { return narrowRing*size + 64 } // bytes between the columns of a ring

func planNarrowAVX512(size int) {
	group := 64 / size // rows of a vector
	shift := map[int]uint64{4: 4, 8: 3}[size]
	function(fmt.Sprintf("planNarrow%dAVX512", 8*size),
		"func(plan *byte, codes *int32, groups, position, dealt int, waiting uint32) (counted int)",
		`plans groups of %d rows. Class 0 has position of the rows dealt so
far. It returns the number of rows of class 0 or 1.`, 2*group)

	var ups, downs [2]VecVirtual // the rows of a group, by their places in it
	places := func(name string, of func(i int) int) Mem {
		table := GLOBL(fmt.Sprintf("%s%d", name, 8*size), RODATA|NOPTR)
		for i := range 2 * group {
			if size == 4 {
				DATA(4*i, U32(of(i)))
			} else {
				DATA(8*i, U64(of(i)))
			}
		}
		return table
	}
	up := places("placesUp", func(i int) int { return i })
	down := places("placesDown", func(i int) int { return 2*group - 1 - i })
	for half := range 2 {
		ups[half], downs[half] = ZMM(), ZMM()
		VMOVDQU64(up.Offset(64*half), ups[half])
		VMOVDQU64(down.Offset(64*(1-half)), downs[half])
	}
	vector := func() VecVirtual { // a vector of codes
		if size == 4 {
			return ZMM()
		}
		return YMM()
	}
	back := GLOBL(fmt.Sprintf("back%d", 8*size), RODATA|NOPTR)
	for i := range group {
		DATA(4*i, U32(group-1-i))
	}
	order, second := vector(), vector()
	VMOVDQU32(back, order)
	one := GP32()
	MOVL(U32(1), one)
	VPBROADCASTD(one, second)

	plan, codes, end := pointer("plan"), pointer("codes"), pointer("groups")
	position, dealt := pointer("position"), pointer("dealt")
	SHRQ(Imm(shift), dealt) // slots, from here on
	list, g, counted := GP64(), GP64(), GP64()
	LEAQ(Mem{Base: plan, Disp: narrowLists}, list)
	MOVQ(plan, g)
	SHLQ(Imm(narrowFieldsLog2), end)
	ADDQ(g, end)
	XORQ(counted, counted)

	slot := func() Register {
		s := GP64()
		MOVQ(position, s)
		SHRQ(Imm(shift), s)
		return s
	}
	at := func(class int, slot Register, next int) Register { // offset in the rings
		a := GP64()
		LEAQ(Mem{Base: slot, Disp: next}, a)
		if class == 1 {
			SUBQ(dealt, a)
		}
		ANDQ(U32(narrowRing*size/64-1), a)
		SHLQ(Imm(6), a)
		if class == 1 {
			ADDQ(U32(narrowColumns*narrowStride(size)), a)
		}
		return a
	}
	set := func(r Register, disp int) { MOVL(r.(GPVirtual).As32(), Mem{Base: g, Disp: disp}) }

	waiting := GP64()
	Load(Param("waiting"), waiting.As32())
	Label("group")
	set(waiting, narrowWaiting)
	first, own, mask, start := slot(), GP64(), GP32(), GP64()
	MOVQ(position, own)
	ANDQ(U32(group-1), own)
	MOVL(I32(-1), mask)
	BZHIL(own.(GPVirtual).As32(), mask, mask)
	MOVL(mask, Mem{Base: g, Disp: narrowOwn})
	SHLQ(Imm(6-shift), own)
	MOVQ(list, start)
	SUBQ(plan, start)
	SUBQ(own, start)
	set(start, narrowList)

	// The next vector overwrites what a compressed one has behind its rows.
	next := GP64()
	MOVQ(list, next)
	put := func(class, half int) Register {
		k, named, count := K(), ZMM(), GP64()
		rows := Mem{Base: codes, Disp: 4 * group * half}
		where, v := ups[half], vector()
		if class == 0 {
			VMOVDQU32(rows, v)
			VPTESTNMD(v, v, k)
		} else {
			where = downs[half]
			VPERMD(rows, order, v)
			VPCMPEQD(v, second, k)
		}
		if size == 4 {
			VPCOMPRESSD_Z(where, k, named)
		} else {
			VPCOMPRESSQ_Z(where, k, named)
		}
		VMOVDQU64(named, Mem{Base: next})
		KMOVW(k, count.(GPVirtual).As32())
		POPCNTL(count.(GPVirtual).As32(), count.(GPVirtual).As32())
		ADDQ(count, counted)
		LEAQ(Mem{Base: next, Index: count, Scale: uint8(size)}, next)
		return count
	}
	for half := range 2 {
		if half == 0 || size == 4 { // once a cache line
			PREFETCHT0(Mem{Base: codes, Disp: 4*group*half + 4*2*stretch})
		}
		ADDQ(put(0, half), position)
	}
	put(1, 1)
	put(1, 0)
	MOVQ(position, Mem{Base: g, Disp: narrowAfter})

	// rows counts what class 0 has in its first slot and in those behind it.
	rows, slots := GP64(), [2]Register{at(0, first, 0), at(1, first, 0)}
	MOVQ(first, rows)
	SHLQ(Imm(shift), rows)
	NEGQ(rows)
	ADDQ(position, rows)
	after := at(1, first, -2) // without a row of class 0, all three slots are of class 1
	TESTQ(rows, rows)
	CMOVQEQ(after, slots[0])
	comes := at(1, first, -1)
	after = at(0, first, 1)
	CMPQ(rows, Imm(uint64(group)))
	CMOVQGT(after, comes)
	set(comes, narrowNext)
	MOVQ(comes, waiting)
	CMOVQLT(slots[0], waiting)
	CMPQ(rows, Imm(uint64(2*group)))
	CMOVQGE(slots[1], waiting)
	for class, slot := range slots {
		set(slot, narrowSlots+4*class)
	}
	ADDQ(Imm(2), dealt)
	ADDQ(U32(4*2*group), codes)
	ADDQ(U32(2*64), list)
	ADDQ(U32(1<<narrowFieldsLog2), g)
	CMPQ(g, end)
	JLT(LabelRef("group"))
	set(waiting, narrowWaiting)
	first = slot()
	for class := range 2 {
		set(at(class, first, 0), narrowSlots+4*class)
	}
	Store(counted, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// Waiting rows are kept in the rings and not in registers, so that one routine serves any
// number of columns.
func dealNarrowAVX512(size int) {
	stride := narrowStride(size)
	function(fmt.Sprintf("dealNarrow%dAVX512", 8*size),
		"func(rings, columns *byte, count, from int, plan *byte, first, groups int)",
		`deals groups of rows of count columns, from byte from on, by the
plan's groups from first on.`)
	rings, offset, plan := pointer("rings"), pointer("from"), pointer("plan")
	g, end := pointer("first"), pointer("groups")
	SHLQ(Imm(narrowFieldsLog2), g)
	SHLQ(Imm(narrowFieldsLog2), end)
	ADDQ(plan, g)
	ADDQ(g, end)
	Label("group")
	list, own := GP64(), K()
	MOVLQZX(Mem{Base: g, Disp: narrowList}, list)
	KMOVW(Mem{Base: g, Disp: narrowOwn}, own)
	ADDQ(plan, list)
	around, next := ZMM(), ZMM()
	VMOVDQU64(Mem{Base: list}, around)
	if size == 4 {
		VMOVDQU32(Mem{Base: list, Disp: 128}, own, around)
	} else {
		VMOVDQU64(Mem{Base: list, Disp: 128}, own, around)
	}
	VMOVDQU64(Mem{Base: list, Disp: 64}, next)
	at := func(disp int) Register {
		a := GP64()
		MOVLQZX(Mem{Base: g, Disp: disp}, a)
		ADDQ(rings, a)
		return a
	}
	slots := [2]Register{at(narrowSlots), at(narrowSlots + 4)}
	comes, waits := at(narrowNext), at(narrowWaiting)
	blend := func(below, from VecVirtual, own Register) VecVirtual {
		z := ZMM()
		if size == 4 {
			VPBLENDMD(below, from, own, z)
		} else {
			VPBLENDMQ(below, from, own, z)
		}
		return z
	}
	column, left := pointer("columns"), pointer("count")
	deal := func(columns int) {
		for j := range columns {
			rows, second := GP64(), ZMM()
			MOVQ(Mem{Base: column, Disp: j * columnSize}, rows)
			ADDQ(offset, rows)
			VMOVDQU64(Mem{Base: rows, Disp: 64}, second)
			picked := func(order VecVirtual) VecVirtual {
				x := ZMM()
				VMOVDQU64(Mem{Base: rows}, x)
				if size == 4 {
					VPERMT2D(second, order, x)
				} else {
					VPERMT2Q(second, order, x)
				}
				return x
			}
			waiting := loaded(Mem{Base: waits, Disp: j * stride})
			these := picked(around)
			VMOVDQU64(picked(next), Mem{Base: comes, Disp: j * stride})
			VMOVDQU64(blend(waiting, these, own), Mem{Base: slots[0], Disp: j * stride})
			VMOVDQU64(blend(these, waiting, own), Mem{Base: slots[1], Disp: j * stride})
		}
		ADDQ(U32(columns*columnSize), column)
		for _, s := range append(slots[:], comes, waits) {
			ADDQ(U32(columns*stride), s)
		}
	}
	SUBQ(Imm(dealBlock), left)
	JLT(LabelRef("few"))
	Label("block")
	deal(dealBlock)
	SUBQ(Imm(dealBlock), left)
	JGE(LabelRef("block"))
	Label("few")
	ADDQ(Imm(dealBlock), left)
	JZ(LabelRef("done"))
	Label("one")
	deal(1)
	DECQ(left)
	JNZ(LabelRef("one"))
	Label("done")
	ADDQ(U32(128), offset)
	ADDQ(U32(1<<narrowFieldsLog2), g)
	CMPQ(g, end)
	JLT(LabelRef("group"))
	VZEROUPPER()
	RET()
}

// sumNarrowAVX512 writes the routine for n columns: the triangle of the first five, the
// rectangle of the others with them, and the triangle of the others. The first two pack
// the tile.
func sumNarrowAVX512(f fusedKind, n int) {
	size := f.size
	function(fmt.Sprintf("sumNarrow%dx%dAVX512", 8*size, n),
		"func(lanes, tile *float64, rings *byte, step int, origin *float64, groups, last int, next *byte, nextFrom int)",
		`adds rows of %d columns in rings to lanes: those of the packed triangle,
and from the next multiple of 8 on those of s. It takes groups of 16 rows and then those in
the masks of last. The next 8 rows are step bytes on. It prefetches as many rows of all
columns in next, from byte nextFrom on.`, n)
	sums, tile, ring, origin := pointer("lanes"), pointer("tile"), pointer("rings"), pointer("origin")
	offset, at := GP64(), GP64()
	lane := func(p int) Mem { return Mem{Base: sums, Disp: 64 * p} }
	firsts := (n*(n+1)/2 + lanes - 1) / lanes * lanes
	inTile := func(column, half int) Mem {
		return Mem{Base: tile, Index: offset, Scale: 1, Disp: column*narrowTile + 64*half}
	}
	// packed packs 8 rows of a column.
	packed := func(column, half int, kept Register) VecVirtual {
		u, c := ZMM(), Mem{Base: origin, Disp: 8 * column}
		rows := Mem{Base: ring, Index: at, Scale: 1, Disp: column * narrowStride(size)}
		if kept == nil {
			f.load(rows, u)
			VSUBPD_BCST(c, u, u)
		} else {
			f.masked(rows, kept, u)
			VSUBPD_BCST_Z(c, u, kept, u)
		}
		VMOVUPD(u, inTile(column, half))
		return u
	}
	// pass adds all rows to lanes, the last ones under masks, and prefetches so many
	// columns. Memory is slower than any one pass, so the prefetches are spread over all
	// of them. In the loop that deals they would delay its own loads.
	prefetched := 0
	pass := func(label string, packing bool, prefetch int, where [][]int, add func(acc [][]VecVirtual, half int, kept Register)) {
		acc := make([][]VecVirtual, len(where))
		for r := range where {
			for _, p := range where[r] {
				acc[r] = append(acc[r], loaded(lane(p)))
			}
		}
		columns, ahead := addresses(pointer("next"), prefetched, prefetch), pointer("nextFrom")
		prefetched += prefetch
		rows := func(kept [2]Register) {
			for _, column := range columns {
				for line := range size / 4 {
					PREFETCHT1(Mem{Base: column, Index: ahead, Scale: 1, Disp: 64 * line})
				}
			}
			ADDQ(U32(lineRows*size), ahead)
			for half, k := range kept {
				add(acc, half, k)
				if packing {
					ADDQ(parameter("step"), at)
				}
			}
		}
		end, kept := pointer("groups"), [2]Register{}
		XORQ(offset, offset)
		if packing {
			XORQ(at, at)
		}
		SHLQ(Imm(7), end)
		JZ(LabelRef(label + "last"))
		loop(label, offset, end, 2*8*lanes, func() { rows(kept) })
		Label(label + "last")
		if packing {
			mask := pointer("last")
			kept = [2]Register{K(), K()}
			KMOVW(mask.(GPVirtual).As32(), kept[0])
			SHRQ(Imm(lanes), mask)
			KMOVW(mask.(GPVirtual).As32(), kept[1])
		}
		rows(kept)
		for r := range where {
			for c, p := range where[r] {
				VMOVUPD(acc[r][c], lane(p))
			}
		}
	}
	// entries returns the places of the lanes of h rows of the triangle, from column k on.
	entries := func(j, h, k int, count func(r int) int) [][]int {
		where := make([][]int, h)
		for r := range where {
			for c := range count(r) {
				where[r] = append(where[r], (j+r)*(j+r+1)/2+k+c)
			}
		}
		return where
	}
	triangle := func(label string, j, h int, packing bool, prefetch int, column func(j, half int, kept Register) VecVirtual) {
		where := entries(j, h, j, func(r int) int { return r + 1 })
		where = append(where, nil)
		for r := range h {
			where[h] = append(where[h], firsts+j+r)
		}
		pass(label, packing, prefetch, where, func(acc [][]VecVirtual, half int, kept Register) {
			addTriangle(acc, func(r int) VecVirtual { return column(j+r, half, kept) })
		})
	}
	few, others := avx512Block, n-avx512Block
	if others == 0 {
		triangle("triangle", 0, few, true, few, packed)
	} else {
		// A rectangle takes longer than a triangle. Together they prefetch all columns.
		const first = 3
		second := min(n-first, 4)
		triangle("triangle", 0, few, true, first, packed)
		pass("rectangle", true, second, entries(few, others, 0, func(int) int { return few }),
			func(acc [][]VecVirtual, half int, kept Register) {
				addRectangle(acc, func(r int) VecVirtual { return packed(few+r, half, kept) },
					func(c int) Mem { return inTile(c, half) })
			})
		triangle("others", few, others, false, n-first-second,
			func(j, half int, _ Register) VecVirtual { return loaded(inTile(j, half)) })
	}
	VZEROUPPER()
	RET()
}

// foldNarrowAVX512 writes the routine that ends a stretch.
func foldNarrowAVX512() {
	function("foldNarrowAVX512", "func(sums, lanes *float64, count int)",
		`adds count sums of lanes to sums, and clears the lanes, which are a
multiple of 8.`)
	sums, from, count := pointer("sums"), pointer("lanes"), pointer("count")
	zero := ZMM()
	VPXORQ(zero, zero, zero)
	f := newFolding()
	fold := func() VecVirtual {
		acc := make([]VecVirtual, lanes)
		for i := range acc {
			at := Mem{Base: from, Disp: 64 * i}
			acc[i] = loaded(at)
			VMOVUPD(zero, at)
		}
		return foldEightAVX512(acc, f)
	}
	SUBQ(Imm(lanes), count)
	JLT(LabelRef("few"))
	Label("eight")
	eight := fold()
	VADDPD(Mem{Base: sums}, eight, eight)
	VMOVUPD(eight, Mem{Base: sums})
	ADDQ(U32(64), sums)
	ADDQ(U32(64*lanes), from)
	SUBQ(Imm(lanes), count)
	JGE(LabelRef("eight"))
	Label("few")
	ADDQ(Imm(lanes), count)
	JZ(LabelRef("done"))
	mask, k, old := GP32(), K(), ZMM()
	MOVL(I32(-1), mask)
	BZHIL(count.(GPVirtual).As32(), mask, mask)
	KMOVW(mask, k)
	few := fold()
	VMOVUPD_Z(Mem{Base: sums}, k, old)
	VADDPD(old, few, few)
	VMOVUPD(few, k, Mem{Base: sums})
	Label("done")
	VZEROUPPER()
	RET()
}

// addresses loads the addresses of count columns from the given one on.
func addresses(columns Register, from, count int) []Register {
	loaded := make([]Register, count)
	for j := range loaded {
		loaded[j] = GP64()
		MOVQ(Mem{Base: columns, Disp: (from + j) * columnSize}, loaded[j])
	}
	return loaded
}

// parameter is an argument's place in memory.
func parameter(name string) Mem {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return p.Addr
}

// foldEightAVX512 adds up the lanes of each of eight accumulators, in the canonical order,
// and returns the sums in their order.
func foldEightAVX512(acc []VecVirtual, f folding) VecVirtual {
	for i := range 2 { // the even ones, and the odd ones
		f.fours(acc[i], acc[i+2])
		f.fours(acc[i+4], acc[i+6])
		foldTwos(acc[i], acc[i+4])
	}
	f.ones(acc[0], acc[1])
	return acc[0]
}
