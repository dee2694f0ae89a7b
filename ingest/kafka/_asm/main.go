// Command asm writes the assembly of package kafka: go generate runs it.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	lane    = 16 // bytes that are folded as one polynomial
	vector  = 4 * lane
	vectors = 4 // that do not wait for each other
)

func main() {
	ConstraintExpr("!purego")
	checksum()
	Generate()
}

// checksum writes CRC-32C by folding (Gopal et al. 2009): the first bytes, times a power
// of x, are added to those that lie so far behind, which leaves the remainder as it was.
func checksum() {
	byAll, byOne := powers("checksumByAll", vectors*vector), powers("checksumByOne", vector)

	TEXT("checksumAVX512", NOSPLIT, "func(crc uint32, p *byte, n int) uint32")
	Pragma("noescape")
	Doc("checksumAVX512 is the checksum of something whose own is crc, followed by the n",
		"bytes at p, a multiple of 256 and not 0; both are inverted.")
	p, n := Load(Param("p"), GP64()), Load(Param("n"), GP64())
	by, sum := ZMM(), make([]VecVirtual, vectors)
	VBROADCASTI32X4(byAll, by)
	for i := range sum {
		sum[i] = ZMM()
		VMOVDQU64(Mem{Base: p, Disp: i * vector}, sum[i])
	}
	crc, err := Param("crc").Resolve()
	if err != nil {
		panic(err)
	}
	before := XMM()
	VMOVSS(crc.Addr, before) // zeros above it; of VMOVD go vet takes the D for eight bytes
	VPXORQ(before.AsZ(), sum[0], sum[0])
	JMP(LabelRef("rest"))

	Label("next")
	for i := range sum {
		fold(sum[i], by, Mem{Base: p, Disp: i * vector})
	}
	Label("rest")
	ADDQ(U32(vectors*vector), p)
	SUBQ(U32(vectors*vector), n)
	JG(LabelRef("next"))

	VBROADCASTI32X4(byOne, by)
	for i := 1; i < vectors; i++ {
		fold(sum[0], by, sum[i])
	}
	last := AllocLocal(vector)
	VMOVDQU64(sum[0], last)
	remainder := GP64()
	XORQ(remainder, remainder)
	for i := 0; i < vector; i += 8 {
		CRC32Q(last.Offset(i), remainder)
	}
	Store(remainder.As32(), ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// fold multiplies the lanes of sum and adds what lies behind them.
func fold(sum, by VecVirtual, behind Op) {
	high := ZMM()
	multiply(0x11, by, sum, high)
	multiply(0x00, by, sum, sum)
	VPTERNLOGQ(Imm(0b1001_0110), behind, high, sum) // the sum of all three
}

// multiply is VPCLMULQDQ of 64 bytes, which avo does not know.
func multiply(halves int, x, y, product VecVirtual) {
	Instruction(&ir.Instruction{
		Opcode:   "VPCLMULQDQ",
		Operands: []Op{Imm(uint64(halves)), x, y, product},
		Inputs:   []Op{x, y},
		Outputs:  []Op{product},
		ISA:      []string{"AVX512F", "VPCLMULQDQ"},
	})
}

// powers is what the two halves of a lane are multiplied by so that it may be added to
// one so many bytes behind. A product of polynomials whose highest bit is the
// coefficient of x^0 lies one bit too low.
func powers(name string, bytes int) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	DATA(0, U64(uint64(power(8*bytes+32))<<1))
	DATA(8, U64(uint64(power(8*bytes-32))<<1))
	return m
}

// power is x^n modulo Castagnoli's polynomial; its highest bit is the coefficient of
// x^0.
func power(n int) uint32 {
	x := uint32(1) << 31
	for range n {
		x = x>>1 ^ 0x82f63b78&-(x&1)
	}
	return x
}
