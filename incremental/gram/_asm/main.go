// Command asm writes the assembly of package gram. go generate runs it.
//
// Every routine is a small loop around a register-blocked body. A body is a Go function
// over registers, and the generator loops over sizes.
package main

import (
	"fmt"
	"os"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// These constants must match those of the package; its tests compare them.
const (
	lanes      = 8
	stretch    = 256
	tileStride = (stretch + lanes) * 8 // bytes between the columns of a tile
	columnSize = 32                    // bytes of a Column; its first word is the address
	dealBlock  = 5                     // columns that are dealt together

	ringRows     = 2 * stretch
	ringStride32 = ringRows*4 + 64 // bytes between the columns of a ring
	ringStride64 = ringRows*8 + 64

	// The fields of a plan.
	planSlotAVX512  = 35 * 64
	planBeginAVX512 = planSlotAVX512 + 34
	planFreeAVX512  = planBeginAVX512 + 34
	planWholeAVX512 = planFreeAVX512 + 34
	planTwiceAVX512 = planWholeAVX512 + 34

	planSlotAVX2  = 64 * 32
	planSpillAVX2 = planSlotAVX2 + 64*4

	// The fields of a plan for two classes, by class.
	pairSlotAVX2  = 64 * 32
	pairSpillAVX2 = pairSlotAVX2 + 2*64*4
)

func main() {
	ConstraintExpr("!purego")
	foldOrderTable()
	for h := 1; h <= avx512Block; h++ {
		rectangleAVX512(h)
		triangleAVX512(h)
	}
	for _, f := range fusedKinds {
		fusedTriangleAVX512(f)
		for h := 1; h <= avx512Block; h++ {
			fusedRectangleAVX512(f, h)
		}
	}
	for _, f := range fusedKinds {
		planNarrowAVX512(f.size)
		dealNarrowAVX512(f.size)
		for n := narrowFewest; n <= narrowColumns; n++ {
			sumNarrowAVX512(f, n)
		}
	}
	foldNarrowAVX512()
	for h := 1; h <= avx2Block; h++ {
		rectangleAVX2(h)
		triangleAVX2(h)
	}
	for _, size := range []int{4, 8} {
		ordersTables(size)
		planAVX512(size)
		planAVX2(size)
		planPairAVX2(size)
	}
	for _, l := range loaders {
		deals(dealAVX512, l)
		deals(dealAVX2, l)
		deals(dealPairAVX2, l)
	}
	for _, k := range kinds[:2] { // of floats
		for _, h := range []int{1, productsAtOnce} {
			productsOf("AVX512", ZMM, k.name, k.size, k.load, h)
			productsOf("AVX2", YMM, k.name, k.size, k.load, h)
			dotsOf("AVX512", ZMM, k.name, k.size, k.load, h)
			dotsOf("AVX2", YMM, k.name, k.size, k.load, h)
		}
	}
	scale("AVX512", ZMM)
	scale("AVX2", YMM)
	for _, k := range kinds {
		pack("AVX512", ZMM, k.name, k.size, k.load)
		if k.avx2 == nil {
			k.avx2 = k.load
		}
		pack("AVX2", YMM, k.name, k.size, k.avx2)
		if k.size >= 4 {
			packBackAVX2(k.name, k.size, k.avx2)
		}
	}
	Generate()
	if err := writeNEON("../kernels_arm64.s", "../kernels_arm64.go"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func function(name, signature, doc string, arguments ...any) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	Doc(strings.Split(name+" "+fmt.Sprintf(doc, arguments...), "\n")...)
}

func pointer(name string) Register { return Load(Param(name), GP64()) }

// loop runs body until the counter, raised by step, reaches end. Its body
// runs at least once.
func loop(label string, counter Register, end Op, step int, body func()) {
	Label(label)
	body()
	ADDQ(U32(step), counter)
	CMPQ(counter, end)
	JLT(LabelRef(label))
}

// loopToZero runs body for the counter from −end to −step, at least once. The addition that
// ends an iteration sets the flags of the branch. Together they are one operation, on a port
// of the processor that does not multiply.
func loopToZero(label string, counter, end Register, step int, body func()) {
	MOVQ(end, counter)
	NEGQ(counter)
	Label(label)
	body()
	ADDQ(U32(step), counter)
	JNZ(LabelRef(label))
}

// symbol is a table of the assembly.
func symbol(name string) Mem { return NewDataAddr(Symbol{Name: name, Static: true}, 0) }
