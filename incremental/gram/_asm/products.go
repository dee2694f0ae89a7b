package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// productsAtOnce columns are multiplied by a vector at a time.
const productsAtOnce = 4

const (
	productsDoc = `adds to values the sum of %d columns, each less its origin and times its
w: of groups·8 rows. x are the addresses of the columns' first rows.`

	dotsDoc = `writes the lanes of the sums of %d columns, each less its origin and times y,
over groups·8 rows from byte from on. columns are Columns.`
)

// productsOf writes the routine that multiplies h columns of a kind by a vector.
func productsOf(variant string, register func() VecVirtual, name string, size int, load load, h int) {
	function(fmt.Sprintf("products%d%s%s", h, name, variant), "func(values *float64, x **byte, c, w *float64, groups int)", productsDoc, h)
	values, x := pointer("values"), pointer("x")
	c, w, end := pointer("c"), pointer("w"), pointer("groups")
	SHLQ(Imm(3), end)
	columns := make([]Register, h)
	origins, factors := make([]VecVirtual, h), make([]VecVirtual, h)
	for j := range columns {
		columns[j], origins[j], factors[j] = GP64(), register(), register()
		MOVQ(Mem{Base: x, Disp: 8 * j}, columns[j])
		VBROADCASTSD(Mem{Base: c, Disp: 8 * j}, origins[j])
		VBROADCASTSD(Mem{Base: w, Disp: 8 * j}, factors[j])
	}
	row := GP64()
	XORQ(row, row)
	loop("rows", row, end, 8, func() {
		width := int(factors[0].Size()) / 8
		for r := 0; r < 8; r += width {
			t := make([]VecVirtual, h)
			for j := range t {
				t[j] = register()
				load(Mem{Base: columns[j], Index: row, Scale: uint8(size), Disp: r * size}, t[j])
				VSUBPD(origins[j], t[j], t[j])
				VMULPD(factors[j], t[j], t[j])
			}
			for step := 1; step < h; step *= 2 { // (t_0+t_1) + (t_2+t_3)
				for j := 0; j < h; j += 2 * step {
					VADDPD(t[j+step], t[j], t[j])
				}
			}
			at := Mem{Base: values, Index: row, Scale: 8, Disp: 8 * r}
			VADDPD(at, t[0], t[0])
			VMOVUPD(t[0], at)
		}
	})
	VZEROUPPER()
	RET()
}

// dotsOf writes the routine that multiplies a vector by h columns of a kind.
func dotsOf(variant string, register func() VecVirtual, name string, size int, load load, h int) {
	function(fmt.Sprintf("dots%d%s%s", h, name, variant), "func(lanes *float64, columns *byte, from int, c, y *float64, groups int)", dotsDoc, h)
	to, from, c, y, end := pointer("lanes"), pointer("from"), pointer("c"), pointer("y"), pointer("groups")
	SHLQ(Imm(3), end)
	columns := sources(pointer("columns"), h, from)
	width := int(register().Size()) / 8
	origins, sums := make([]VecVirtual, h), make([][]VecVirtual, h)
	for j := range columns {
		origins[j] = register()
		VBROADCASTSD(Mem{Base: c, Disp: 8 * j}, origins[j])
		for range lanes / width {
			sum := register()
			VXORPD(sum.AsX(), sum.AsX(), sum.AsX())
			sums[j] = append(sums[j], sum)
		}
	}
	row := GP64()
	XORQ(row, row)
	loop("rows", row, end, 8, func() {
		for i := range lanes / width {
			factor := register()
			VMOVUPD(Mem{Base: y, Index: row, Scale: 8, Disp: 8 * i * width}, factor)
			for j, column := range columns {
				t := register()
				load(Mem{Base: column, Index: row, Scale: uint8(size), Disp: i * width * size}, t)
				VSUBPD(origins[j], t, t)
				VMULPD(factor, t, t)
				VADDPD(t, sums[j][i], sums[j][i])
			}
		}
	})
	for j := range sums {
		for i, sum := range sums[j] {
			VMOVUPD(sum, Mem{Base: to, Disp: 8 * (lanes*j + width*i)})
		}
	}
	VZEROUPPER()
	RET()
}

// scale writes the routine that multiplies the columns of a tile by weights.
func scale(variant string, register func() VecVirtual) {
	function("scale"+variant, "func(scaled, tile, weights *float64, count, groups int)",
		`writes groups·8 rows of count columns of a tile, each times its row's weight, to the
columns of scaled. count and groups are above 0.`)
	scaled, tile, weights := pointer("scaled"), pointer("tile"), pointer("weights")
	count, end := pointer("count"), pointer("groups")
	SHLQ(Imm(3), end)
	row := GP64()
	Label("column")
	XORQ(row, row)
	loop("rows", row, end, 8, func() {
		for r, x := 0, register(); r < 8; r += int(x.Size()) / 8 {
			at := func(base Register) Mem { return Mem{Base: base, Index: row, Scale: 8, Disp: 8 * r} }
			VMOVUPD(at(weights), x)
			VMULPD(at(tile), x, x)
			VMOVUPD(x, at(scaled))
		}
	})
	ADDQ(U32(tileStride), tile)
	ADDQ(U32(tileStride), scaled)
	DECQ(count)
	JNZ(LabelRef("column"))
	VZEROUPPER()
	RET()
}
