// Command asm writes the assembly of package ndc: go generate runs it.
package main

import (
	"fmt"
	"os"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Rows are lanes. A group is the rows of two vectors of float64, whose results fill one
// vector of float32.
const (
	vectors   = 2
	groupRows = 8 * vectors
)

// tile is the number of coordinates that are summed side by side. The four vectors of two
// coordinates hide the latency of an addition. More make points of few features slower.
const tile = 2

func main() {
	ConstraintExpr("!purego")
	normals()
	transform()
	Generate()
	if err := writeNEON("../kernels_arm64.s", "../kernels_arm64.go"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const (
	normalsDoc = `makes 2·pairs normals of each of 16 rows, those of row r from the
places from + r·stride on. Normal i of all rows is at z[16i].`
	transformDoc = `writes the n coordinates round(c + zR) of each of 16 rows, that of row r
to element base + r of its column. Normal i of all rows is at z[16i], n is above 0.`
)

// The constants of the package's words and mix.
const (
	step             = 0x9e3779b97f4a7c15
	firstMultiplier  = 0xbf58476d1ce4e5b9
	secondMultiplier = 0x94d049bb133111eb
)

func function(name, signature, doc string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	Doc(strings.Split(name+" "+doc, "\n")...)
}

func normals() {
	function("normalsAVX512", "func(z *float64, rows *int32, from, stride uint64, pairs int, table *uint64)", normalsDoc)
	z, pairs, table := Load(Param("z"), GP64()), Load(Param("pairs"), GP64()), Load(Param("table"), GP64())
	place := places(Load(Param("rows"), GP64()), argument("from"), argument("stride"))
	next, first, second := constant(step), constant(firstMultiplier), constant(secondMultiplier)
	n := normalOf{
		table:   table,
		odd:     constant(1 << 32),
		upper:   constant(0xffffffff_00000000),
		segment: constant(32*128 - 1),
		grid:    constant(0x4190_0000_0000_0000), // 2^26
		sign:    constant(1 << 63),
	}

	Label("pair")
	for v := range place {
		lower, word := ZMM(), mix(place[v], first, second)
		VPADDQ(next, place[v], place[v])
		VPSLLQ(Imm(32), word, lower)
		n.store(lower, Mem{Base: z, Disp: 64 * v})
		n.store(word, Mem{Base: z, Disp: 64 * (v + vectors)})
	}
	ADDQ(U32(2*groupRows*8), z)
	DECQ(pairs)
	JNZ(LabelRef("pair"))
	VZEROUPPER()
	RET()
}

// places are from + r·stride of the group's rows.
func places(rows Register, from, stride VecVirtual) (place [vectors]VecVirtual) {
	for v := range place {
		place[v] = ZMM()
		VPMOVSXDQ(Mem{Base: rows, Disp: 32 * v}, place[v])
		VPMULLQ(stride, place[v], place[v])
		VPADDQ(from, place[v], place[v])
	}
	return place
}

// mix is the package's mix.
func mix(place, first, second VecVirtual) VecVirtual {
	x, shifted := ZMM(), ZMM()
	VPSRLQ(Imm(30), place, x)
	VPXORQ(place, x, x)
	VPMULLQ(first, x, x)
	VPSRLQ(Imm(27), x, shifted)
	VPXORQ(shifted, x, x)
	VPMULLQ(second, x, x)
	VPSRLQ(Imm(31), x, shifted)
	VPXORQ(shifted, x, x)
	return x
}

// normalOf follows the lines of the package's normal. It may fuse b|f|, which is exact: b
// has 21 bits, f 31.
type normalOf struct {
	table                           Register
	odd, upper, segment, grid, sign VecVirtual
}

// store makes normals of the upper halves of words.
func (n *normalOf) store(word VecVirtual, z Mem) {
	const (
		aAndBOrC    = 0xea
		aAndNotBOrC = 0xba
		aOrBAndC    = 0xf8
	)
	f, index, line, a, all := word, ZMM(), ZMM(), ZMM(), K()
	VPTERNLOGQ(Imm(aAndBOrC), n.odd, n.upper, word)
	VCVTQQ2PD(word, f)
	VPSRLQ(Imm(52-7), f, index)
	VPANDQ(n.segment, index, index)
	KXNORB(all, all, all)
	VPXORQ(line, line, line)
	VGATHERQPD(Mem{Base: n.table, Index: index, Scale: 8}, all, line)
	VMOVDQA64(line, a)
	VPTERNLOGQ(Imm(aAndNotBOrC), n.grid, n.upper, a)
	VSUBPD(n.grid, a, a)
	VPTERNLOGQ(Imm(aOrBAndC), n.sign, f, a)
	VPANDQ(n.upper, line, line)
	VFNMADD231PD(line, f, a)
	VMOVUPD(a, z)
}

func transform() {
	function("transformAVX512", "func(columns *[]float32, base int, rows *int32, z, centre, root *float64, n int)", transformDoc)
	n := Load(Param("n"), GP64())
	rows := ZMM()
	VMOVDQU32(Mem{Base: Load(Param("rows"), GP64())}, rows)
	integer := constant(0x4338_0000_0000_0000) // 3<<51
	j := GP64()
	XORQ(j, j)

	Label("tile")
	// A tile that is cut short repeats its last column.
	centre, root, last := Load(Param("centre"), GP64()), Load(Param("root"), GP64()), GP64()
	LEAQ(Mem{Base: n, Disp: -1}, last)
	var at, r [tile]Register
	var sum [tile][vectors]VecVirtual
	for c := range at {
		at[c], r[c] = GP64(), GP64()
		LEAQ(Mem{Base: j, Disp: c}, at[c])
		CMPQ(at[c], last)
		CMOVQGT(last, at[c])
		MOVQ(n, r[c])
		IMULQ(at[c], r[c])
		LEAQ(Mem{Base: root, Index: r[c], Scale: 8}, r[c])
		for v := range sum[c] {
			sum[c][v] = ZMM()
			VBROADCASTSD(Mem{Base: centre, Index: at[c], Scale: 8}, sum[c][v])
		}
	}
	i, normal := GP64(), Load(Param("z"), GP64())
	XORQ(i, i)
	Label("normal")
	var x [vectors]VecVirtual
	for v := range x {
		x[v] = ZMM()
		VMOVUPD(Mem{Base: normal, Disp: 64 * v}, x[v])
	}
	for c := range sum {
		entry := ZMM()
		VBROADCASTSD(Mem{Base: r[c], Index: i, Scale: 8}, entry)
		for v := range x {
			product := ZMM()
			VMULPD(entry, x[v], product)
			VADDPD(product, sum[c][v], sum[c][v])
		}
	}
	ADDQ(U32(8*groupRows), normal)
	INCQ(i)
	CMPQ(i, n)
	JLT(LabelRef("normal"))

	columns, base := Load(Param("columns"), GP64()), Load(Param("base"), GP64())
	for c, s := range sum {
		for v := range s {
			VADDPD(integer, s[v], s[v])
			VSUBPD(integer, s[v], s[v])
			VCVTPD2PS(s[v], s[v].AsY())
		}
		VINSERTF64X4(Imm(1), s[1].AsY(), s[0], s[0])
		header, all := GP64(), K() // a slice's header is three words
		LEAQ(Mem{Base: at[c], Index: at[c], Scale: 2}, header)
		MOVQ(Mem{Base: columns, Index: header, Scale: 8}, header)
		LEAQ(Mem{Base: header, Index: base, Scale: 4}, header)
		KXNORW(all, all, all)
		VSCATTERDPS(s[0], all, Mem{Base: header, Index: rows, Scale: 4})
	}
	ADDQ(U32(tile), j)
	CMPQ(j, n)
	JLT(LabelRef("tile"))
	VZEROUPPER()
	RET()
}

// argument makes a vector of an argument.
func argument(name string) VecVirtual {
	from, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	v := ZMM()
	VPBROADCASTQ(from.Addr, v)
	return v
}

func constant(x uint64) VecVirtual {
	r, v := GP64(), ZMM()
	MOVQ(U64(x), r)
	VPBROADCASTQ(r, v)
	return v
}
