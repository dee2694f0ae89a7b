//go:build (amd64 || arm64) && !purego

package gram

// Blocks of columns are of register size. For wide blocks, panels of right pass: the columns of
// a block of left stay in the first-level cache while the columns of a panel stream by, and the
// panel stays in the second-level cache for the next block. A panel of left fits the
// second-level cache, too.
const (
	panelRight = 60 // a multiple of any block's columns
	panelLeft  = 240
)

type (
	triangle  = func(s, cross *float64, row int, left, right *float64, rows int)
	rectangle = func(cross *float64, row int, left, right *float64, rows, blocks int)
	packer    = func(tile *float64, columns *byte, count, from int, origin *float64, groups int)
)

// accumulatePanels takes each block of a panel of left along the columns of a panel of
// right. There are as many kernels of either shape as a block of left has columns. Rectangles
// take width columns of right at a time.
func accumulatePanels(triangles []triangle, rectangles []rectangle, width int, s, cross, left, right []float64, n, rows int) {
	block := len(triangles)
	for top := 0; top < n; top += panelLeft {
		bottom := min(top+panelLeft, n)
		for k := 0; k < bottom; k += panelRight {
			end := k + panelRight
			for j := max(top, k); j < bottom; j += block {
				h := min(block, n-j)
				if blocks := (min(end, j) - k) / width; blocks > 0 {
					rectangles[h-1](&cross[PackedLen(j)+k], j+1, &left[j*tileStride], &right[k*tileStride], rows, blocks)
				}
				if j < end {
					triangles[h-1](&s[j], &cross[PackedLen(j)+j], j+1, &left[j*tileStride], &right[j*tileStride], rows)
				}
			}
		}
	}
}

// packers are a variant's packers, by kind.
type packers [Uint64 + 1]packer

func (p *packers) pack(tile []float64, columns []Column, from, to int, c []float64) {
	whole := (to - from) / lanes
	for j := 0; j < len(columns); {
		count := alike(columns[j:])
		done := 0
		if count == 0 {
			count = 1
		} else if whole > 0 {
			kind := columns[j].kind
			p[kind](&tile[j*tileStride], bytesOf(columns[j:]), count, from*kind.size(), &c[j], whole)
			done = whole * lanes
		}
		if from+done < to {
			for i := j; i < j+count; i++ {
				columns[i].pack(tile[i*tileStride+done:], from+done, to, c[i])
			}
		}
		j += count
	}
}

// alike is the number of leading columns that are contiguous in memory and of the kind
// of the first.
func alike(columns []Column) int {
	for j := range columns {
		if columns[j].stride != 1 || columns[j].kind != columns[0].kind {
			return j
		}
	}
	return len(columns)
}
