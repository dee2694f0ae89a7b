// Command asm writes the assembly of package kernels. go generate runs it.
package main

import (
	"fmt"
	"math"
	"os"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// A width is an instruction set. A few points are processed together, each with a few
// vectors of rows. The accumulators, the vectors of rows, a coefficient and a difference
// must fit the registers.
type width struct {
	name   string
	vector func() VecVirtual
	bytes  int
	points int
	// The vectors of rows of the main loop, and of the loop for the remaining groups
	// of eight rows.
	many, few int
}

var widths = []width{
	{"AVX512", ZMM, 64, 4, 4, 1},
	{"AVX2", YMM, 32, 2, 4, 2},
}

func main() {
	ConstraintExpr("!purego")
	constants()
	for _, w := range widths {
		for points := 1; points <= w.points; points++ {
			sum(w, points, true)
			sum(w, points, false)
		}
		gaussian(w)
	}
	Generate()
	if err := writeNEON("../kernels_arm64.s", "../kernels_arm64.go"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func function(name, signature, doc string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	Doc(strings.Split(name+" "+doc, "\n")...)
}

func pointer(name string) Register { return Load(Param(name), GP64()) }

// sumDoc is the name of a sum without its instruction set, and its comment without the name.
func sumDoc(points int, squares bool) (name, doc string) {
	kind, what := "products", "x'z"
	if squares {
		kind, what = "squares", "‖x−z‖²"
	}
	noun := "points"
	if points == 1 {
		noun = "point"
	}
	return fmt.Sprintf("%s%d", kind, points), fmt.Sprintf(`computes %s for rows, a multiple of 8 above 0,
and %d %s of n features, n above 0.`, what, points, noun)
}

// sum writes the squares or products of rows with a few points.
func sum(w width, points int, squares bool) {
	name, doc := sumDoc(points, squares)
	function(name+w.name, "func(out *float64, stride int, tile *float64, pitch int, z *float64, n, rows int)", doc)
	out, stride := pointer("out"), pointer("stride")
	tile, pitch := pointer("tile"), pointer("pitch")
	zs := []Register{pointer("z")}
	end, rows := pointer("n"), pointer("rows")
	for _, r := range []Register{stride, pitch, end, rows} {
		SHLQ(Imm(3), r)
	}
	for range points - 1 {
		next := GP64()
		MOVQ(zs[len(zs)-1], next)
		ADDQ(end, next)
		zs = append(zs, next)
	}
	for _, vectors := range []int{w.many, w.few} {
		label := fmt.Sprintf("%d", vectors)
		Label("rows" + label)
		CMPQ(rows, U32(vectors*w.bytes))
		JLT(LabelRef("end" + label))
		acc := make([][]VecVirtual, points)
		for p := range acc {
			for range vectors {
				v := w.vector()
				if w.bytes == 64 {
					VPXORQ(v, v, v)
				} else {
					VXORPD(v, v, v)
				}
				acc[p] = append(acc[p], v)
			}
		}
		column, feature := GP64(), GP64()
		MOVQ(tile, column)
		XORQ(feature, feature)
		Label("features" + label)
		x := make([]VecVirtual, vectors)
		for v := range x {
			x[v] = w.vector()
			VMOVUPD(Mem{Base: column, Disp: v * w.bytes}, x[v])
		}
		for p := range points {
			z := w.vector()
			VBROADCASTSD(Mem{Base: zs[p], Index: feature, Scale: 1}, z)
			for v := range x {
				if squares {
					d := w.vector()
					VSUBPD(z, x[v], d)
					VFMADD231PD(d, d, acc[p][v])
				} else {
					VFMADD231PD(z, x[v], acc[p][v])
				}
			}
		}
		ADDQ(pitch, column)
		ADDQ(Imm(8), feature)
		CMPQ(feature, end)
		JLT(LabelRef("features" + label))
		results := GP64()
		MOVQ(out, results)
		for p := range points {
			for v := range vectors {
				VMOVUPD(acc[p][v], Mem{Base: results, Disp: v * w.bytes})
			}
			if p < points-1 {
				ADDQ(stride, results)
			}
		}
		ADDQ(U32(vectors*w.bytes), tile)
		ADDQ(U32(vectors*w.bytes), out)
		SUBQ(U32(vectors*w.bytes), rows)
		JMP(LabelRef("rows" + label))
		Label("end" + label)
	}
	VZEROUPPER()
	RET()
}

// The constants of the exponential.
const (
	log2e = iota
	toInteger
	ln2High
	ln2Low
	one
	cutoff
	taylor // 12 of them
	count  = taylor + 12
)

const table = "exponential"

// exponential is the constants.
func exponential() [count]float64 {
	values := [count]float64{
		log2e: 1.44269504088896340735992468100189214, toInteger: 3 << 51,
		ln2High: 0x1.62e42fefa39efp-1, ln2Low: 0x1.abc9e3b39803fp-56,
		one: 1, cutoff: -100,
	}
	factorial := 1.0
	for k := 2; k <= 13; k++ {
		factorial *= float64(k)
		values[taylor+13-k] = 1 / factorial
	}
	return values
}

// constants writes a vector of eight of each constant.
func constants() {
	GLOBL(table, RODATA|NOPTR)
	for i, x := range exponential() {
		for lane := range 8 {
			DATA(64*i+8*lane, U64(math.Float64bits(x)))
		}
	}
}

func constant(i int) Mem { return NewDataAddr(Symbol{Name: table, Static: true}, 64*i) }

const gaussianDoc = `turns count numbers s, a multiple of 8 above 0, into exp(−γs).`

func gaussian(w width) {
	function("gaussian"+w.name, "func(v *float64, count int, minusGamma float64)", gaussianDoc)
	v, end := pointer("v"), pointer("count")
	SHLQ(Imm(3), end)
	ADDQ(v, end)
	first, minus := XMM(), w.vector()
	Load(Param("minusGamma"), first)
	VBROADCASTSD(first, minus)
	load := func(i int) VecVirtual {
		r := w.vector()
		VMOVUPD(constant(i), r)
		return r
	}
	scale, magic, high := load(log2e), load(toInteger), load(ln2High)
	Label("next")
	s, y, shifted, k, r, q := w.vector(), w.vector(), w.vector(), w.vector(), w.vector(), w.vector()
	VMOVUPD(Mem{Base: v}, s)
	VMULPD(s, minus, y)
	VMOVAPD(y, shifted)
	VFMADD213PD(magic, scale, shifted)
	VSUBPD(magic, shifted, k)
	VMOVAPD(y, r)
	VFNMADD231PD(k, high, r)
	VFNMADD231PD(constant(ln2Low), k, r)
	VMOVUPD(constant(taylor), q)
	for i := taylor + 1; i < count; i++ {
		VFMADD213PD(constant(i), r, q)
	}
	square := w.vector()
	VMULPD(r, r, square)
	VFMADD213PD(r, square, q)
	VADDPD(constant(one), q, q)
	VPSLLQ(Imm(52), shifted, shifted)
	const notLess = 0x15 // quiet, true for NaN
	if w.bytes == 64 {
		keep := K()
		VCMPPD(Imm(notLess), constant(cutoff), y, keep)
		VPADDQ_Z(shifted, q, keep, q)
	} else {
		VPADDQ(shifted, q, q)
		keep := w.vector()
		VCMPPD(Imm(notLess), constant(cutoff), y, keep)
		VANDPD(keep, q, q)
	}
	// s − s is NaN if s is infinite or NaN, and 0 otherwise.
	VSUBPD(s, s, s)
	VADDPD(s, q, q)
	VMOVUPD(q, Mem{Base: v})
	ADDQ(U32(w.bytes), v)
	CMPQ(v, end)
	JLT(LabelRef("next"))
	VZEROUPPER()
	RET()
}
