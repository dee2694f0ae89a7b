package gram

import (
	"fmt"
	"math"
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
	checkProducts(columns, c, len(w))
	switch plain(columns) {
	case Float32:
		addProducts[float32](values, columns, from, c, w)
		return
	case Float64:
		addProducts[float64](values, columns, from, c, w)
		return
	}
	var (
		tile  [4][stretch]float64
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
			v := values[done:min(done+stretch, len(values))]
			x := convert(&tile, some[:count], from+done, len(v))
			addProducts[float64](v, x[:count], 0, o[:count], u[:count])
		}
		count = 0
	}
}

// AddDots adds Σ_i y_{i−from} (x_ij − c_j) to sums[j], for the rows i of columns from row
// from on. A nil c is the origin 0.
//
// Rows are summed in order, in stretches of TileRows. A stretch's sum begins at zero and
// adds y (x_ij − c_j), each operation rounded to float64, row after row; then it is added
// to sums[j]. A stretch whose y are all 0 is skipped.
func AddDots(sums []float64, columns []Column, from int, c, y []float64) {
	checkProducts(columns, c, len(sums))
	kind := plain(columns)
	for len(y) > 0 {
		some := y[:min(stretch, len(y))]
		switch {
		case allZero(some):
		case kind == Float32:
			addDots[float32](sums, columns, from, c, some)
		case kind == Float64:
			addDots[float64](sums, columns, from, c, some)
		default:
			var tile [4][stretch]float64
			for j := 0; j < len(columns); j += 4 {
				end := min(j+4, len(columns))
				x, o := convert(&tile, columns[j:end], from, len(some)), c
				if c != nil {
					o = c[j:end]
				}
				addDots[float64](sums[j:end], x[:end-j], 0, o, some)
			}
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

func addProducts[T float32 | float64](values []float64, columns []Column, from int, c, w []float64) {
	var (
		x    [4][]T
		o, u [4]float64
		n    int
	)
	for j, wj := range w {
		if wj == 0 {
			continue
		}
		x[n], u[n] = rowsOf[T](&columns[j], from, len(values)), wj
		if c != nil {
			o[n] = c[j]
		}
		if n++; n < 4 {
			continue
		}
		addFour(values, &x, &o, &u)
		n = 0
	}
	for j, x := range x[:n] {
		x, c, w := x[:len(values)], o[j], u[j]
		for i := range values {
			values[i] += float64((float64(x[i]) - c) * w)
		}
	}
}

func addFour[T float32 | float64](values []float64, x *[4][]T, c, w *[4]float64) {
	x0, x1, x2, x3 := x[0][:len(values)], x[1][:len(values)], x[2][:len(values)], x[3][:len(values)]
	c0, c1, c2, c3 := c[0], c[1], c[2], c[3]
	w0, w1, w2, w3 := w[0], w[1], w[2], w[3]
	if c0 == 0 && c1 == 0 && c2 == 0 && c3 == 0 { // the same numbers in less time
		for i := range values {
			t0, t1 := float64(float64(x0[i])*w0), float64(float64(x1[i])*w1)
			t2, t3 := float64(float64(x2[i])*w2), float64(float64(x3[i])*w3)
			values[i] += (t0 + t1) + (t2 + t3)
		}
		return
	}
	for i := range values {
		t0, t1 := float64((float64(x0[i])-c0)*w0), float64((float64(x1[i])-c1)*w1)
		t2, t3 := float64((float64(x2[i])-c2)*w2), float64((float64(x3[i])-c3)*w3)
		values[i] += (t0 + t1) + (t2 + t3)
	}
}

// addDots sums four columns at a time, which takes as long as one. The last column stands
// in for missing ones.
func addDots[T float32 | float64](sums []float64, columns []Column, from int, c, y []float64) {
	for len(columns) > 0 {
		last := min(len(columns), 4) - 1
		x0 := rowsOf[T](&columns[0], from, len(y))
		x1 := rowsOf[T](&columns[min(1, last)], from, len(y))
		x2 := rowsOf[T](&columns[min(2, last)], from, len(y))
		x3 := rowsOf[T](&columns[last], from, len(y))
		var o [4]float64
		if c != nil {
			c = c[copy(o[:], c[:last+1]):]
		}
		c0, c1, c2, c3 := o[0], o[1], o[2], o[3]
		var s0, s1, s2, s3 float64
		if c0 == 0 && c1 == 0 && c2 == 0 && c3 == 0 {
			for i, t := range y {
				s0 += float64(float64(x0[i]) * t)
				s1 += float64(float64(x1[i]) * t)
				s2 += float64(float64(x2[i]) * t)
				s3 += float64(float64(x3[i]) * t)
			}
		} else {
			for i, t := range y {
				s0 += float64((float64(x0[i]) - c0) * t)
				s1 += float64((float64(x1[i]) - c1) * t)
				s2 += float64((float64(x2[i]) - c2) * t)
				s3 += float64((float64(x3[i]) - c3) * t)
			}
		}
		s := [4]float64{s0, s1, s2, s3}
		for j := range last + 1 {
			sums[j] += s[j]
		}
		columns, sums = columns[last+1:], sums[last+1:]
	}
}
