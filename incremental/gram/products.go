package gram

import (
	"fmt"
	"math"
	"sync"
	"unsafe"
)

// AddProducts adds Σ_j w_j (x_ij − c_j) to values[i−from], for the rows i of columns from
// row from on. A nil c is the origin 0.
//
// Columns are summed in order; columns with w_j = 0 are skipped. With
// t_j = w_j (x_ij − c_j), each operation rounded to float64, every four columns change a
// value v to v + ((t_0+t_1) + (t_2+t_3)). Each of the last one to three columns changes
// it to v + t_j.
//
// The values are read and written once for every four columns, and should be few enough
// to stay in the first-level cache.
func AddProducts(values []float64, columns []Column, from int, c, w []float64) {
	fastest.addProducts(values, columns, from, c, w)
}

func (v *variant) addProducts(values []float64, columns []Column, from int, c, w []float64) {
	checkProducts(columns, c, len(w))
	switch plain(columns) {
	case Float32:
		addProducts[float32](v, values, columns, from, c, w)
		return
	case Float64:
		addProducts[float64](v, values, columns, from, c, w)
		return
	}
	z := productScratches.Get().(*productScratch)
	defer productScratches.Put(z)
	var (
		some  [4]Column
		o, u  [4]float64
		count int
	)
	for j, wj := range w {
		if wj != 0 {
			some[count], u[count] = columns[j], wj
			if c != nil {
				o[count] = c[j]
			}
			count++
		}
		if count < 4 && j < len(w)-1 {
			continue
		}
		for done := 0; done < len(values); done += stretch {
			part := values[done:min(done+stretch, len(values))]
			x := convert(&z.tile, some[:count], from+done, len(part))
			addProducts[float64](v, part, x[:count], 0, o[:count], u[:count])
		}
		count = 0
	}
}

// AddDots adds Σ_i y_{i−from} (x_ij − c_j) to sums[j], for the rows i of columns from row
// from on. A nil c is the origin 0.
//
// Rows are summed in stretches of TileRows, and those in lanes, as Sum does: row i of a stretch
// adds y (x_ij − c_j), each operation rounded to float64, to lane i mod 8, and at the end the
// lanes are added in Sum's order, and the result to sums[j]. A stretch whose y are all 0 is
// skipped.
func AddDots(sums []float64, columns []Column, from int, c, y []float64) {
	fastest.addDots(sums, columns, from, c, y)
}

func (v *variant) addDots(sums []float64, columns []Column, from int, c, y []float64) {
	checkProducts(columns, c, len(sums))
	kind := plain(columns)
	for len(y) > 0 {
		some := y[:min(stretch, len(y))]
		switch {
		case allZero(some):
		case kind == Float32:
			addDots[float32](v, sums, columns, from, c, some)
		case kind == Float64:
			addDots[float64](v, sums, columns, from, c, some)
		default:
			z := productScratches.Get().(*productScratch)
			for j := 0; j < len(columns); j += 4 {
				end := min(j+4, len(columns))
				x, o := convert(&z.tile, columns[j:end], from, len(some)), c
				if c != nil {
					o = c[j:end]
				}
				addDots[float64](v, sums[j:end], x[:end-j], 0, o, some)
			}
			productScratches.Put(z)
		}
		y, from = y[len(some):], from+len(some)
	}
}

func allZero(y []float64) bool {
	for _, t := range y {
		if t != 0 {
			return false
		}
	}
	return true
}

// Largest is max_i |x_i − c| of a column: 0 if it has no rows, and NaN if one of them
// is NaN.
func Largest(column Column, c float64) float64 {
	var top uint64
	switch plain([]Column{column}) {
	case Float32:
		top = largest(elements[float32](column), c)
	case Float64:
		top = largest(elements[float64](column), c)
	default:
		var numbers [stretch]float64
		for from := 0; from < column.n; from += stretch {
			v := numbers[:min(stretch, column.n-from)]
			column.Copy(v, from)
			top = max(top, largest(v, c))
		}
	}
	return math.Float64frombits(top)
}

// largest returns the result's bits. Bits rise with the magnitude, and NaN is above
// infinity.
func largest[T float32 | float64](v []T, c float64) (top uint64) {
	for _, x := range v {
		top = max(top, math.Float64bits(float64(x)-c)&^(1<<63))
	}
	return top
}

// checkProducts checks lengths. Rows out of range panic where they are read.
func checkProducts(columns []Column, c []float64, numbers int) {
	if numbers != len(columns) || c != nil && len(c) != len(columns) {
		panic(fmt.Sprintf("gram: %d numbers and an origin of %d for %d columns", numbers, len(c), len(columns)))
	}
}

// Plain reports whether the columns are all contiguous and all of float32 or all of
// float64. AddProducts and AddDots read such columns in place. They convert others in
// each call, which takes longer than the arithmetic.
func Plain(columns []Column) bool { return plain(columns) != 0 }

// plain returns the kind of plain columns, and 0 for others.
func plain(columns []Column) Kind {
	kind := Float32
	if len(columns) > 0 && columns[0].kind == Float64 {
		kind = Float64
	}
	for j := range columns {
		if columns[j].kind != kind || columns[j].stride != 1 {
			return 0
		}
	}
	return kind
}

// rowsOf returns rows of a plain column.
func rowsOf[T float32 | float64](c *Column, from, rows int) []T {
	return unsafe.Slice((*T)(c.base), c.n)[from:][:rows]
}

// convert copies rows of up to four columns to a tile, and returns its columns.
func convert(tile *[4][stretch]float64, columns []Column, from, rows int) (x [4]Column) {
	for j, column := range columns {
		column.Copy(tile[j][:rows], from)
		x[j] = ColumnOf(tile[j][:rows])
	}
	return x
}

// A productsKernel adds to values groups·8 rows of columns, whose first rows are at x, each less
// its c and times its w: one column, or four.
type productsKernel = func(values *float64, x **byte, c, w *float64, groups int)

// A dotsKernel writes the lanes of the products of y with groups·8 rows, from byte from on, of one
// Column or four.
type dotsKernel = func(lanes *float64, columns *byte, from int, c, y *float64, groups int)

// kindProducts are the kernels for a kind of columns; nil: there are none.
type kindProducts struct {
	one, four         productsKernel
	dotsOne, dotsFour dotsKernel
}

// productsOf returns the variant's kernels for T.
func productsOf[T float32 | float64](v *variant) *kindProducts {
	return &v.products[kindOf[T]()-Float32]
}

// A productScratch is the memory of a call. What a kernel is given would escape from the stack.
type productScratch struct {
	tile    [4][stretch]float64
	columns [4]Column
	first   [4]*byte
	c, w    [4]float64
	lanes   [4][lanes]float64
}

var productScratches = sync.Pool{New: func() any { return new(productScratch) }}

func addProducts[T float32 | float64](v *variant, values []float64, columns []Column, from int, c, w []float64) {
	z := productScratches.Get().(*productScratch)
	var (
		x [4][]T
		n int
	)
	z.c = [4]float64{}
	kernels := productsOf[T](v)
	for j, wj := range w {
		if wj == 0 {
			continue
		}
		x[n], z.w[n] = rowsOf[T](&columns[j], from, len(values)), wj
		if c != nil {
			z.c[n] = c[j]
		}
		if n++; n < 4 {
			continue
		}
		done := addWhole(z, kernels.four, values, x[:])
		addFour(values[done:], &[4][]T{x[0][done:], x[1][done:], x[2][done:], x[3][done:]}, &z.c, &z.w)
		n = 0
	}
	for j, x := range x[:n] {
		z.c[0], z.w[0] = z.c[j], z.w[j]
		done := addWhole(z, kernels.one, values, [][]T{x})
		x, c, w := x[:len(values)], z.c[0], z.w[0]
		for i := done; i < len(values); i++ {
			values[i] += float64((float64(x[i]) - c) * w)
		}
	}
	clear(z.first[:]) // keep no reference to the rows
	productScratches.Put(z)
}

// addWhole adds the rows that a kernel takes, and returns their number.
func addWhole[T float32 | float64](z *productScratch, kernel productsKernel, values []float64, x [][]T) int {
	groups := len(values) / lanes
	if kernel == nil || groups == 0 {
		return 0
	}
	for j := range x {
		z.first[j] = (*byte)(unsafe.Pointer(&x[j][0]))
	}
	kernel(&values[0], &z.first[0], &z.c[0], &z.w[0], groups)
	return groups * lanes
}

func addFour[T float32 | float64](values []float64, x *[4][]T, c, w *[4]float64) {
	x0, x1, x2, x3 := x[0][:len(values)], x[1][:len(values)], x[2][:len(values)], x[3][:len(values)]
	c0, c1, c2, c3 := c[0], c[1], c[2], c[3]
	w0, w1, w2, w3 := w[0], w[1], w[2], w[3]
	for i := range values {
		t0, t1 := float64((float64(x0[i])-c0)*w0), float64((float64(x1[i])-c1)*w1)
		t2, t3 := float64((float64(x2[i])-c2)*w2), float64((float64(x3[i])-c3)*w3)
		values[i] += (t0 + t1) + (t2 + t3)
	}
}

// addDots adds a stretch.
func addDots[T float32 | float64](v *variant, sums []float64, columns []Column, from int, c, y []float64) {
	z := productScratches.Get().(*productScratch)
	kernels := productsOf[T](v)
	groups := len(y) / lanes
	z.c = [4]float64{}
	for len(columns) > 0 {
		n, kernel := 1, kernels.dotsOne
		if len(columns) >= 4 {
			n, kernel = 4, kernels.dotsFour
		}
		if c != nil {
			c = c[copy(z.c[:n], c):]
		}
		var x [4][]T
		for j := range columns[:n] {
			x[j] = rowsOf[T](&columns[j], from, len(y))
		}
		done := 0
		if kernel != nil && groups > 0 {
			done = groups * lanes
			copy(z.columns[:n], columns)
			kernel(&z.lanes[0][0], bytesOf(z.columns[:]), from*int(unsafe.Sizeof(T(0))), &z.c[0], &y[0], groups)
		} else {
			z.lanes = [4][lanes]float64{}
		}
		for j, x := range x[:n] {
			addLanes(&z.lanes[j], x[done:], z.c[j], y[done:])
			sums[j] += fold(&z.lanes[j])
		}
		columns, sums = columns[n:], sums[n:]
	}
	clear(z.columns[:]) // keep no reference to the rows
	productScratches.Put(z)
}

// addLanes adds y (x − c) to lanes, from lane 0 on.
func addLanes[T float32 | float64](l *[lanes]float64, x []T, c float64, y []float64) {
	l0, l1, l2, l3, l4, l5, l6, l7 := l[0], l[1], l[2], l[3], l[4], l[5], l[6], l[7]
	for len(y) >= lanes && len(x) >= lanes {
		x8, y8 := (*[lanes]T)(x), (*[lanes]float64)(y)
		l0 += float64((float64(x8[0]) - c) * y8[0])
		l1 += float64((float64(x8[1]) - c) * y8[1])
		l2 += float64((float64(x8[2]) - c) * y8[2])
		l3 += float64((float64(x8[3]) - c) * y8[3])
		l4 += float64((float64(x8[4]) - c) * y8[4])
		l5 += float64((float64(x8[5]) - c) * y8[5])
		l6 += float64((float64(x8[6]) - c) * y8[6])
		l7 += float64((float64(x8[7]) - c) * y8[7])
		x, y = x[lanes:], y[lanes:]
	}
	*l = [lanes]float64{l0, l1, l2, l3, l4, l5, l6, l7}
	for i, t := range y {
		l[i] += float64((float64(x[i]) - c) * t)
	}
}
