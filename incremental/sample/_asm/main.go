// Command asm writes the assembly of package sample: go generate runs it.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	golden = 0x9E3779B97F4A7C15
	lanes  = 8  // groups that are looked at together
	group  = 64 // rows, and words
)

func main() {
	ConstraintExpr("!purego")
	remaining()
	Generate()
}

func remaining() {
	// How far the words of a group are from those of the first of eight.
	behind := GLOBL("remainingBehind", RODATA|NOPTR)
	for lane := range uint64(lanes) {
		DATA(int(8*lane), U64(wrap(lane*group)))
	}
	numbers := GLOBL("remainingNumbers", RODATA|NOPTR)
	for lane := range uint64(lanes) {
		DATA(int(4*lane), U32(uint32(lane)))
	}

	TEXT("remainingAVX512", NOSPLIT, "func(groups *uint32, left *uint64, of int, z uint64, level int) (n int)")
	Pragma("noescape")
	Doc("remainingAVX512 lists those of the first of groups of the stream z, rounded up to a",
		"multiple of 8, that have rows of the level or above, and which these are. It may",
		"write to all of as many elements.")
	groups, left, of := Load(Param("groups"), GP64()), Load(Param("left"), GP64()), Load(Param("of"), GP64())
	level := Load(Param("level"), GP64())
	z, err := Param("z").Resolve()
	if err != nil {
		panic(err)
	}
	first, number := ZMM(), YMM()
	VPBROADCASTQ(z.Addr, first)
	VPADDQ(behind, first, first)
	VMOVDQU32(numbers, number)
	next := broadcast(wrap(lanes * group))
	nextNumber := YMM()
	{
		eight := GP32()
		MOVL(U32(lanes), eight)
		VPBROADCASTD(eight, nextNumber)
	}
	var steps [5]VecVirtual
	for i := uint64(1); i < 5; i++ {
		steps[i] = broadcast(wrap(i))
	}
	m := mixer{broadcast(0xBF58476D1CE4E5B9), broadcast(0x94D049BB133111EB)}
	all := ZMM()
	VPTERNLOGD(Imm(0xff), all, all, all)
	n := GP64()
	XORQ(n, n)

	Label("next")
	x, rows, l := ZMM(), ZMM(), GP64()
	VMOVDQA64(first, x)
	VMOVDQA64(all, rows)
	MOVQ(level, l)
	// Four words at a time, which do not wait for each other.
	SUBQ(Imm(4), l)
	JLT(LabelRef("few"))
	Label("four")
	for i := 1; i < 4; i++ {
		word := ZMM()
		VPADDQ(steps[i], x, word)
		m.and(word, rows)
	}
	VPADDQ(steps[4], x, x)
	last := ZMM()
	VMOVDQA64(x, last)
	m.and(last, rows)
	some := K()
	VPTESTMQ(rows, rows, some)
	KORTESTB(some, some)
	JEQ(LabelRef("none"))
	SUBQ(Imm(4), l)
	JGE(LabelRef("four"))
	Label("few")
	ADDQ(Imm(4), l)
	JEQ(LabelRef("list"))
	Label("one")
	VPADDQ(steps[1], x, x)
	word := ZMM()
	VMOVDQA64(x, word)
	m.and(word, rows)
	DECQ(l)
	JNE(LabelRef("one"))

	Label("list")
	listed, count := K(), GP32()
	VPTESTMQ(rows, rows, listed)
	// Into registers: to memory some processors take a hundred cycles.
	rowsListed, numberListed := ZMM(), YMM()
	VPCOMPRESSQ_Z(rows, listed, rowsListed)
	VPCOMPRESSD_Z(number, listed, numberListed)
	VMOVDQU64(rowsListed, Mem{Base: left, Index: n, Scale: 8})
	VMOVDQU32(numberListed, Mem{Base: groups, Index: n, Scale: 4})
	KMOVB(listed, count)
	POPCNTL(count, count)
	ADDQ(count.As64(), n)
	Label("none")
	VPADDQ(next, first, first)
	VPADDD(nextNumber, number, number)
	SUBQ(Imm(lanes), of)
	JG(LabelRef("next"))
	Store(n, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// mixer has the factors of the package's mix.
type mixer struct{ first, second VecVirtual }

// and leaves those rows that are bits of mix(x), and loses x.
func (m mixer) and(x, rows VecVirtual) {
	shifted := ZMM()
	VPSRLQ(Imm(30), x, shifted)
	VPXORQ(shifted, x, x)
	VPMULLQ(m.first, x, x)
	shifted = ZMM()
	VPSRLQ(Imm(27), x, shifted)
	VPXORQ(shifted, x, x)
	VPMULLQ(m.second, x, x)
	shifted = ZMM()
	VPSRLQ(Imm(31), x, shifted)
	VPTERNLOGQ(Imm(0b0110_0000), shifted, x, rows) // rows & (x ^ shifted)
}

func broadcast(x uint64) VecVirtual {
	r, v := GP64(), ZMM()
	MOVQ(U64(x), r)
	VPBROADCASTQ(r, v)
	return v
}

// wrap is t·golden, modulo 2^64.
func wrap(t uint64) uint64 { return t * golden }
