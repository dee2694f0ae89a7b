package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Where the package's type step has its fields, and its size.
const (
	stepBehind = 0
	stepLength = 8
	stepTo     = 24
	stepOthers = 32
	stepSize   = 40
)

// window is how many characters are looked at at once: a number must end among
// them, and the text behind it is compared so far. It is the place of a point, in
// it, where there is none, and how many digits are behind that then.
const window = 32

// most is the greatest mantissa over 10^16 that fits 64 bits for sure.
const most = 1843

func numbers() {
	// Bytes from edge+k are 0 in the first 32-k places and all ones in the last k.
	edge := vectors("numbersEdge", 0, ^uint64(0))
	// With lift digits are the greatest signed bytes.
	lift := vectors("numbersLift", each('\x7f'-'9'))
	lowest := vectors("numbersLowest", each('\x7f'-'9'+'0'))
	point := vectors("numbersPoint", each('.'))
	zero := vectors("numbersZero", each('0'))
	// Weights of neighbours: of digits, of pairs of digits, of fours.
	ten := vectors("numbersTen", 0x010a_010a_010a_010a)
	hundred := vectors("numbersHundred", 0x0001_0064_0001_0064)
	tenThousand := vectors("numbersTenThousand", 0x0001_2710_0001_2710)

	noPoint := GLOBL("numbersNoPoint", RODATA|NOPTR)
	DATA(0, U32(window))

	TEXT("numbersAVX2", NOSPLIT, "func(row *float64, text *byte, at, last int, steps *byte, n int, fives *uint64) (done, end int)")
	Pragma("noescape")
	Doc("numbersAVX2 reads numbers from text[at] on into row by n steps, until it meets one that",
		"begins behind text[last], or is not plain, or is not followed by its step's text, or",
		"is half way between two float64, or nearly. It returns how many it has read, and",
		"where the next begins. It touches 32 bytes before at and 67 behind last.")
	row, steps, n, fives := Load(Param("row"), GP64()), Load(Param("steps"), GP64()), Load(Param("n"), GP64()), Load(Param("fives"), GP64())
	p := Load(Param("text"), GP64())
	limit := GP64()
	MOVQ(p, limit)
	ADDQ(Load(Param("last"), GP64()), limit)
	ADDQ(Load(Param("at"), GP64()), p)
	edges := GP64()
	LEAQ(edge, edges)
	none := XMM()
	VXORPS(none, none, none)
	lifts, lowests, points, zeros := hoist(lift), hoist(lowest), hoist(point), hoist(zero)
	tens, hundreds, tenThousands := hoist(ten), hoist(hundred), hoist(tenThousand)

	Label("next")
	CMPQ(p, limit)
	JA(LabelRef("end"))
	minus := GP64()
	XORQ(minus, minus)
	CMPB(Mem{Base: p}, Imm('-'))
	SETEQ(minus.As8())
	text := YMM()
	VMOVDQU(Mem{Base: p}, text)
	v := YMM()
	VPADDB(lifts, text, v)
	VPCMPGTB(v, lowests, v)
	isOther := mask(v)
	v = YMM()
	VPCMPEQB(points, text, v)
	isPoint := mask(v)
	VPCMPEQB(zeros, text, text)
	isZero := mask(text)

	// The number ends at the first character that is neither a digit nor the first
	// point, which is only looked for where the digits end.
	others, pointBit, length := GP32(), GP32(), GP64()
	ANDNL(isOther, minus.As32(), others)
	BLSIL(others, pointBit)
	ANDL(isPoint, pointBit)
	XORL(pointBit, others)
	TZCNTL(others, length.As32())
	JCS(LabelRef("end"))
	// It begins with a digit, which is no zero before another one.
	wrong := GP32()
	MOVL(isOther, wrong)
	SHRL(Imm(1), wrong)
	ANDNL(isZero, wrong, wrong)
	ORL(isOther, wrong)
	BTL(minus.As32(), wrong)
	JCS(LabelRef("end"))
	// It ends with one.
	k := GP64() // digits behind the point, window if there is none
	TZCNTL(pointBit, pointBit)
	LEAQ(Mem{Base: length, Disp: -1}, k)
	SUBL(pointBit, k.As32())
	JEQ(LabelRef("end"))
	CMOVLMI(noPoint, k.As32())

	// All digits, flush right and with zeros before them: those before the point are
	// loaded from one place further left.
	digits := GP64() // and one
	MOVL(k.As32(), digits.As32())
	SHRL(Imm(5), digits.As32())
	ADDL(length.As32(), digits.As32())
	SUBL(minus.As32(), digits.As32())
	ADDQ(length, p)
	v, shifted, behindPoint := YMM(), YMM(), YMM()
	VMOVDQU(Mem{Base: p, Disp: -32}, v)
	VMOVDQU(Mem{Base: p, Disp: -33}, shifted)
	VMOVDQU(Mem{Base: edges, Index: k, Scale: 1}, behindPoint)
	VPBLENDVB(behindPoint, v, shifted, v)
	VPSUBB(zeros, v, v)
	VPAND(Mem{Base: edges, Index: digits, Scale: 1, Disp: -1}, v, v)
	VPMADDUBSW(tens, v, v)
	VPMADDWD(hundreds, v, v)
	VPACKUSDW(v, v, v)
	VPMADDWD(tenThousands, v, v)

	// Four times eight digits make the mantissa.
	low := XMM()
	VEXTRACTI128(Imm(1), v, low)
	high, mantissa, eight := GP64(), RDX, GP64() // RDX is MULX's
	VMOVQ(v.AsX(), high)
	VMOVQ(low, mantissa)
	RORQ(Imm(32), high)
	CMPQ(high, U32(most))
	JA(LabelRef("back"))
	MOVL(mantissa.As32(), eight.As32())
	SHRQ(Imm(32), mantissa)
	IMUL3Q(U32(1e8), eight, eight)
	ADDQ(eight, mantissa)
	MOVQ(U64(1e16), eight)
	IMULQ(eight, high)
	ADDQ(high, mantissa)
	shift := GP64()
	LZCNTQ(mantissa, shift)
	SHLXQ(shift, mantissa, mantissa)
	SHLQ(Imm(63), minus)
	SHLQ(Imm(52), shift)
	SUBQ(shift, minus)
	scale := minus // without the power of five: the sign, and how much smaller
	nearest(row, steps, fives, mantissa, scale, k, none, "exponent")
	followed(p, steps, "exponent")
	Label("read")
	ADDQ(Imm(stepSize), steps)
	DECQ(n)
	JNE(LabelRef("next"))
	JMP(LabelRef("end"))

	// What stands behind it is perhaps an exponent: e, a sign and one or two digits.
	// Without it ten times a float64, or a hundred times, may be half way between two.
	Label("exponent")
	c, exponent := GP32(), GP32()
	MOVBLZX(Mem{Base: p}, c)
	ORL(Imm(0x20), c)
	CMPL(c, Imm('e'))
	JNE(LabelRef("back"))
	MOVBLZX(Mem{Base: p, Disp: 2}, exponent)
	SUBL(Imm('0'), exponent)
	CMPL(exponent, Imm(9))
	JHI(LabelRef("back"))
	MOVBLZX(Mem{Base: p, Disp: 1}, c)
	ADDQ(Imm(3), length)
	ADDQ(Imm(3), p)
	second := GP32()
	MOVBLZX(Mem{Base: p}, second)
	SUBL(Imm('0'), second)
	CMPL(second, Imm(9))
	JHI(LabelRef("sign"))
	LEAL(Mem{Base: exponent.As64(), Index: exponent.As64(), Scale: 4}, exponent)
	LEAL(Mem{Base: second.As64(), Index: exponent.As64(), Scale: 2}, exponent)
	INCQ(length)
	INCQ(p)
	Label("sign")
	CMPL(c, Imm('-'))
	JEQ(LabelRef("scale"))
	CMPL(c, Imm('+'))
	JNE(LabelRef("back"))
	NEGL(exponent)
	Label("scale")
	ANDL(Imm(window-1), k.As32())
	ADDL(exponent, k.As32())
	CMPL(k.As32(), Imm(window-1))
	JHI(LabelRef("back"))
	nearest(row, steps, fives, mantissa, scale, k, none, "back")
	followed(p, steps, "back")
	JMP(LabelRef("read"))

	Label("back")
	SUBQ(length, p)
	Label("end")
	done := Load(Param("n"), GP64())
	SUBQ(n, done)
	Store(done, ReturnIndex(0))
	SUBQ(Load(Param("text"), GP64()), p)
	Store(p, ReturnIndex(1))
	VZEROUPPER()
	RET()
}

// nearest stores mantissa/10^k as the package's function of that name computes it, with
// the top bit of the mantissa set, or goes elsewhere. Of the factor behind, scale has
// the sign and what the mantissa's shift takes off the exponent.
func nearest(row, steps, fives, mantissa, scale, k Register, none VecVirtual, halfWay string) {
	quotient, bits, half := GP64(), GP64(), GP64()
	MULXQ(Mem{Base: fives, Index: k, Scale: 8}, half, quotient)
	MOVQ(Mem{Base: fives, Index: k, Scale: 8, Disp: 8 * (window + 1)}, bits)
	BLSIQ(quotient, half)
	TESTL(U32(0x300), half.As32())
	JNE(LabelRef(halfWay))
	ADDQ(scale, bits)
	x, factor, to := XMM(), XMM(), GP64()
	VCVTSI2SDQ(quotient, none, x)
	VMOVQ(bits, factor)
	VMULSD(factor, x, x)
	MOVQ(Mem{Base: steps, Disp: stepTo}, to)
	VMOVSD(x, Mem{Base: row, Index: to, Scale: 8})
}

// followed moves p behind the text of the step, or goes elsewhere if that is not there.
func followed(p, steps Register, elsewhere string) {
	behind, text, same := GP64(), YMM(), GP32()
	MOVQ(Mem{Base: steps, Disp: stepBehind}, behind)
	VMOVDQU(Mem{Base: p}, text)
	VPCMPEQB(Mem{Base: behind}, text, text)
	VPMOVMSKB(text, same)
	ORL(Mem{Base: steps, Disp: stepOthers}, same)
	INCL(same)
	JNE(LabelRef(elsewhere))
	ADDQ(Mem{Base: steps, Disp: stepLength}, p)
}

// vectors is a table of vectors, each of which has one word four times.
func vectors(name string, words ...uint64) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i, w := range words {
		for lane := range 4 {
			DATA(8*(4*i+lane), U64(w))
		}
	}
	return m
}

// each is a word of eight times the same byte.
func each(b byte) uint64 { return 0x01_01_01_01_01_01_01_01 * uint64(b) }

func hoist(m Mem) VecVirtual {
	v := YMM()
	VMOVDQU(m, v)
	return v
}

// mask has the top bit of each byte of a vector.
func mask(v VecVirtual) GPVirtual {
	m := GP32()
	VPMOVMSKB(v, m)
	return m
}
