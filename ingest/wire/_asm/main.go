// Command asm writes the assembly of package wire: go generate runs it.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("!purego")
	for _, size := range []int{1, 2, 4, 8} {
		pair(size)
	}
	numbers()
	Generate()
}

// group is the number of labels that are taken together: a vector of codes.
const group = 8

// ahead is how far labels of eight bytes are fetched before they are looked at. Theirs
// is one stream of lines, each of which has mostly been written by another core, and a
// processor that only follows the stream by itself, to the end of a page, waits for
// most of them. Of smaller labels it has time enough.
const ahead = 4096

// pair writes the routine for labels of so many bytes.
func pair(size int) {
	name := fmt.Sprintf("pair%dAVX2", size)
	TEXT(name, NOSPLIT, "func(codes *int32, labels *byte, rows int, first, second uint64, firstCode, secondCode int32) (done int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s writes the codes of labels of %d bytes, in whole groups of %d,", name, size, group),
		"up to the first group with a label that is neither of the two. It returns the",
		"number of rows done, and touches no others.")
	codes, labels, rows := Load(Param("codes"), GP64()), Load(Param("labels"), GP64()), Load(Param("rows"), GP64())
	broadcast := VPBROADCASTD
	if size == 8 {
		broadcast = VPBROADCASTQ
	}
	first, second := argument(broadcast, "first"), argument(broadcast, "second")
	// Not VPBROADCASTD, whose D go vet takes for eight bytes.
	firstCode, secondCode := argument(VBROADCASTSS, "firstCode"), argument(VBROADCASTSS, "secondCode")
	done, source := GP64(), Mem{Base: labels}
	XORQ(done, done)

	Label("next")
	SUBQ(Imm(group), rows)
	JLT(LabelRef("end"))
	var known, isSecond VecVirtual
	switch size {
	case 1:
		known, isSecond = compare(VPMOVZXBD, VPCMPEQD, source, first, second)
	case 2:
		known, isSecond = compare(VPMOVZXWD, VPCMPEQD, source, first, second)
	case 4:
		known, isSecond = compare(VMOVUPS, VPCMPEQD, source, first, second)
	case 8:
		PREFETCHT0(source.Offset(ahead))
		known, isSecond = compare(VMOVUPS, VPCMPEQQ, source, first, second)
		knownHigh, isSecondHigh := compare(VMOVUPS, VPCMPEQQ, source.Offset(32), first, second)
		VPAND(knownHigh, known, known)
		// The lower halves of the lanes, then the lanes in order.
		VSHUFPS(Imm(0b10_00_10_00), isSecondHigh, isSecond, isSecond)
		VPERMQ(Imm(0b11_01_10_00), isSecond, isSecond)
	}
	all := GP32()
	VMOVMSKPS(known, all)
	CMPL(all, Imm(1<<group-1))
	JNE(LabelRef("end"))
	VBLENDVPS(isSecond, secondCode, firstCode, isSecond)
	VMOVDQU(isSecond, Mem{Base: codes, Index: done, Scale: 4})
	ADDQ(Imm(uint64(group*size)), labels)
	ADDQ(Imm(group), done)
	JMP(LabelRef("next"))

	Label("end")
	Store(done, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// argument makes a vector of an argument.
func argument(broadcast func(...Op), name string) VecVirtual {
	from, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	v := YMM()
	broadcast(from.Addr, v)
	return v
}

// compare says which of a vector of labels are one of the two, and which the second.
func compare(load, equal func(...Op), source Mem, first, second VecVirtual) (known, isSecond VecVirtual) {
	x, known, isSecond := YMM(), YMM(), YMM()
	load(source, x)
	equal(second, x, isSecond)
	equal(first, x, known)
	VPOR(isSecond, known, known)
	return known, isSecond
}
