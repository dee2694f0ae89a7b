package gram

// A sorter holds row indices, class after class.
type sorter struct {
	rows  []int32
	start []int // class code's rows are rows[start[code]:start[code+1]]
}

// sumSorted sums the classes one after the other, each from the indices of its
// rows. It serves variants that cannot deal, and many classes, because its memory does
// not grow with their number.
func (k *Kernel) sumSorted(sums []Sums, columns []Column, codes []int32, weights []float64) {
	z := &k.sorter
	z.sort(codes, len(sums), weights)
	n := len(columns)
	for code := range sums {
		rows := z.rows[z.start[code]:z.start[code+1]]
		for len(rows) > 0 && !k.stopped() {
			some := rows[:min(stretch, len(rows))]
			rows = rows[len(some):]
			for j := range columns {
				k.variant.gather(k.tile[j*tileStride:], columns[j], some, k.origin[j])
			}
			if weights != nil {
				v := k.tile[n*tileStride:]
				for r, i := range some {
					v[r] = weights[i]
				}
			}
			k.addTile(&sums[code], n, len(some), weights != nil)
		}
	}
}

// sort is a counting sort of the rows of weight > 0.
func (z *sorter) sort(codes []int32, classes int, weights []float64) {
	// Counts go into start[code+2] and are summed up. Then start[code+1] moves from
	// the beginning of a class to its end.
	z.start = grow(z.start, classes+2)
	clear(z.start)
	for i, code := range codes {
		if weights == nil || weights[i] > 0 {
			z.start[code+2]++
		}
	}
	if z.start[0] != 0 || z.start[1] != 0 {
		panic("gram: a class code is below 0")
	}
	for code := range classes {
		z.start[code+2] += z.start[code+1]
	}
	z.rows = grow(z.rows, z.start[classes+1])
	for i, code := range codes {
		if weights == nil || weights[i] > 0 {
			z.rows[z.start[code+1]] = int32(i)
			z.start[code+1]++
		}
	}
}
