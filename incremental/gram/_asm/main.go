// Command asm writes the assembly of package gram: go generate runs it.
//
// Every routine is one small loop around a register-blocked body, so the
// generator is written as the loops are read: a body is a Go function over
// registers, and sizes are loops of the generator.
package main

import (
	"fmt"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// What the package and its assembly agree on; the package's tests compare.
const (
	lanes      = 8
	stretch    = 256
	tileStride = (stretch + lanes) * 8 // bytes between the columns of a tile
	columnSize = 32                    // bytes of a Column; its first word is the address
	dealBlock  = 5                     // columns that are dealt together

	ringStride32 = 512*4 + 64 // bytes between the columns of a ring
	ringStride64 = 512*8 + 64

	// The fields of a plan, and the distance between those of two classes.
	planSlot  = 35 * 64
	planBegin = planSlot + 34
	planFree  = planBegin + 34
	planWhole = planFree + 34
	planTwice = planWhole + 34
	planSize  = 2 * 38 * 64
)

func main() {
	ConstraintExpr("!purego")
	foldOrderTable()
	ask()
	for h := 1; h <= avx512Block; h++ {
		rectangleAVX512(h)
		triangleAVX512(h)
		fusedTriangleAVX512(h)
		askingRectangleAVX512(h)
	}
	for h := 1; h <= avx2Block; h++ {
		rectangleAVX2(h)
		triangleAVX2(h)
	}
	for _, classes := range []int{1, 2} {
		plan(4, classes)
		plan(8, classes)
	}
	for _, l := range loaders {
		for _, classes := range []int{1, 2} {
			if l.from == l.to {
				deal(l, dealBlock, classes)
			}
			deal(l, 1, classes)
		}
	}
	for _, k := range kinds {
		pack(k.name, k.size, k.load)
	}
	Generate()
}

func function(name, signature, doc string, arguments ...any) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	Doc(strings.Split(name+" "+fmt.Sprintf(doc, arguments...), "\n")...)
}

func pointer(name string) Register { return Load(Param(name), GP64()) }

// loop runs body until the counter, raised by step, reaches end. Its body
// runs at least once.
func loop(label string, counter, end Register, step int, body func()) {
	Label(label)
	body()
	ADDQ(U32(step), counter)
	CMPQ(counter, end)
	JLT(LabelRef(label))
}
