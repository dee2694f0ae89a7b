package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Blocks of two classes and few columns of floats are summed in chunks, for which
// all that is dealt and packed stays in the first-level cache; the lanes wait in
// memory for a stretch to be whole.
//
// The two classes share vectors. The first one's ring goes up and the second one's
// goes down, so that in a slot of L places the next place of the one is beside the
// next place of the other, however the rows are mixed: with f rows of the first in
// its slot, those of the second lack f. The rows that wait in the two slots make up
// one vector, the first's below place f and the second's from there on; and a group
// of 2L rows makes up two more, around from place f on: what completes the two slots,
// and what comes next. Two of the three slots that these make are full then, and the
// third one is what waits. (When f is 0, what waits is a whole slot of the second,
// which is there already; before the first group, it is nothing.)
const (
	narrowColumns = 10
	narrowChunk   = 64                        // rows
	narrowRing    = 2 * narrowChunk           // rows of a class
	narrowTile    = (narrowChunk + lanes) * 8 // bytes between the columns of a chunk

	// A plan has lists of two vectors each, with room before and after them, and for
	// each group these fields.
	narrowLists      = 64
	narrowFields     = narrowLists + 16*2*64 + 64
	narrowList       = narrowFields      // where the list is, less the places that wait for the first class
	narrowOwn        = narrowFields + 4  // the mask of these
	narrowSlots      = narrowFields + 8  // the slots of either class
	narrowNext       = narrowFields + 16 // the slot of what comes next
	narrowWaiting    = narrowFields + 20 // the slot of what waits
	narrowAfter      = narrowFields + 24 // the first class's position after the group
	narrowFieldsLog2 = 5                 // of their bytes
)

func narrowStride(size int) int { return narrowRing*size + 64 } // bytes between the columns of a ring

func planNarrowAVX512(size int) {
	group := 64 / size // rows of a vector
	shift := map[int]uint64{4: 4, 8: 3}[size]
	function(fmt.Sprintf("planNarrow%dAVX512", 8*size),
		"func(plan *byte, codes *int32, groups, position, dealt int, waiting uint32) (counted int)",
		`plans so many groups of %d rows, where class 0 has position of the
rows dealt so far, and gives how many of them are of class 0 or 1.`, 2*group)

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
	vector := func() VecVirtual { // of codes
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
	at := func(class int, slot Register, next int) Register { // from the first ring on
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

	// What a compressed vector has too much is overwritten by the next one.
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
		if half == 0 || size == 4 { // of each line
			PREFETCHT0(Mem{Base: codes, Disp: 4*group*half + 4*2*stretch})
		}
		ADDQ(put(0, half), position)
	}
	put(1, 1)
	put(1, 0)
	MOVQ(position, Mem{Base: g, Disp: narrowAfter})

	// How many rows have the first's slot and the next ones now?
	rows, slots := GP64(), [2]Register{at(0, first, 0), at(1, first, 0)}
	MOVQ(first, rows)
	SHLQ(Imm(shift), rows)
	NEGQ(rows)
	ADDQ(position, rows)
	after := at(1, first, -2) // when all rows are of the second, it gets all three slots
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

// What waits does so in the rings, so that one routine serves any number of columns.
func dealNarrowAVX512(size int) {
	stride := narrowStride(size)
	function(fmt.Sprintf("dealNarrow%dAVX512", 8*size),
		"func(rings, columns *byte, count, from int, plan *byte, first, groups int)",
		`puts so many groups of rows of count columns, from byte from on,
where the plan has them from its group first on.`)
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

// sumNarrowAVX512 is for n columns: the triangle of up to five, the rectangle of the
// others with them, and these others' triangle. The first two make the tile. That ten
// conversions and subtractions are in the loops that multiply is as fast as making
// the tile before them.
func sumNarrowAVX512(f fusedKind, n int) {
	size := f.size
	function(fmt.Sprintf("sumNarrow%dx%dAVX512", 8*size, n),
		"func(lanes, tile *float64, rings *byte, step int, origin *float64, groups, last int, next *byte, nextFrom int)",
		`adds rows of %d columns in rings to lanes: those of the packed triangle,
and from the next multiple of 8 on those of s. It takes so many groups of 16 rows, 8 of
them after step bytes, and then those in the masks of last, and asks for as many rows
of all columns next, from byte nextFrom on.`, n)
	sums, tile, ring, origin := pointer("lanes"), pointer("tile"), pointer("rings"), pointer("origin")
	offset, at := GP64(), GP64()
	lane := func(p int) Mem { return Mem{Base: sums, Disp: 64 * p} }
	firsts := (n*(n+1)/2 + lanes - 1) / lanes * lanes
	inTile := func(column, half int) Mem {
		return Mem{Base: tile, Index: offset, Scale: 1, Disp: column*narrowTile + 64*half}
	}
	// made makes 8 rows of a column of the tile.
	made := func(column, half int, kept Register) VecVirtual {
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
	// pass adds all rows to lanes, the last ones under masks, and asks for columns: in
	// the loop that deals, which reads them, all that is asked for would come in its way.
	asked := 0
	pass := func(label string, making bool, asking int, where [][]int, add func(acc [][]VecVirtual, half int, kept Register)) {
		acc := make([][]VecVirtual, len(where))
		for r := range where {
			for _, p := range where[r] {
				acc[r] = append(acc[r], loaded(lane(p)))
			}
		}
		columns, ahead := addresses(pointer("next"), asked, asking), pointer("nextFrom")
		asked += asking
		rows := func(kept [2]Register) {
			for _, column := range columns {
				for line := range size / 4 {
					PREFETCHT1(Mem{Base: column, Index: ahead, Scale: 1, Disp: 64 * line})
				}
			}
			ADDQ(U32(lineRows*size), ahead)
			for half, k := range kept {
				add(acc, half, k)
				if making {
					ADDQ(parameter("step"), at)
				}
			}
		}
		end, kept := pointer("groups"), [2]Register{}
		XORQ(offset, offset)
		if making {
			XORQ(at, at)
		}
		SHLQ(Imm(7), end)
		JZ(LabelRef(label + "last"))
		loop(label, offset, end, 2*8*lanes, func() { rows(kept) })
		Label(label + "last")
		if making {
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
	// entries are where the lanes of h rows of the triangle are, from column k on.
	entries := func(j, h, k int, count func(r int) int) [][]int {
		where := make([][]int, h)
		for r := range where {
			for c := range count(r) {
				where[r] = append(where[r], (j+r)*(j+r+1)/2+k+c)
			}
		}
		return where
	}
	triangle := func(label string, j, h int, making bool, asking int, column func(j, half int, kept Register) VecVirtual) {
		where := entries(j, h, j, func(r int) int { return r + 1 })
		where = append(where, nil)
		for r := range h {
			where[h] = append(where[h], firsts+j+r)
		}
		pass(label, making, asking, where, func(acc [][]VecVirtual, half int, kept Register) {
			addTriangle(acc, func(r int) VecVirtual { return column(j+r, half, kept) })
		})
	}
	few := min(n, avx512Block)
	first := few
	if n > few {
		first = askedByTriangle
	}
	triangle("triangle", 0, few, true, first, made)
	if n > few {
		second := min(n-first, askedByRectangle)
		pass("rectangle", true, second, entries(few, n-few, 0, func(int) int { return few }),
			func(acc [][]VecVirtual, half int, kept Register) {
				addRectangle(acc, func(r int) VecVirtual { return made(few+r, half, kept) },
					func(c int) Mem { return inTile(c, half) })
			})
		triangle("others", few, n-few, false, n-first-second,
			func(j, half int, _ Register) VecVirtual { return loaded(inTile(j, half)) })
	}
	VZEROUPPER()
	RET()
}

// foldNarrowAVX512 ends a stretch.
func foldNarrowAVX512() {
	function("foldNarrowAVX512", "func(sums, lanes *float64, count int)",
		`adds count sums of lanes to sums and clears the lanes, of a multiple of 8.`)
	sums, from, count := pointer("sums"), pointer("lanes"), pointer("count")
	zero := ZMM()
	VPXORQ(zero, zero, zero)
	fold := func() VecVirtual {
		acc := make([]VecVirtual, lanes)
		for i := range acc {
			at := Mem{Base: from, Disp: 64 * i}
			acc[i] = loaded(at)
			VMOVUPD(zero, at)
		}
		return foldEightAVX512(acc)
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

// addresses loads those of count columns from the given one on.
func addresses(columns Register, from, count int) []Register {
	loaded := make([]Register, count)
	for j := range loaded {
		loaded[j] = GP64()
		MOVQ(Mem{Base: columns, Disp: (from + j) * columnSize}, loaded[j])
	}
	return loaded
}

// parameter is where an argument is in memory.
func parameter(name string) Mem {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return p.Addr
}
