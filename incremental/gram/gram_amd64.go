//go:build !purego

package gram

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

//go:generate go run -C _asm . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg gram

var (
	avx2 = variant{
		name: "AVX2",
		missing: missing(feature{"AVX2", cpu.X86.HasAVX2}, feature{"FMA", cpu.X86.HasFMA},
			feature{"POPCNT", cpu.X86.HasPOPCNT}),
		accumulate:   accumulateAVX2,
		pack:         packersAVX2.pack,
		fused:        fusedAVX2,
		isFused:      isFused,
		deal:         dealAVX2.sum,
		dealtClasses: 6, // the cross-over is at 6 to 8 for int8 and float64, at 12 for float32
	}
	avx512 = variant{
		name: "AVX-512",
		missing: missing(feature{"AVX512F", cpu.X86.HasAVX512F}, feature{"AVX512DQ", cpu.X86.HasAVX512DQ},
			feature{"AVX512BW", cpu.X86.HasAVX512BW}, feature{"AVX512VL", cpu.X86.HasAVX512VL},
			feature{"BMI2", cpu.X86.HasBMI2}, feature{"POPCNT", cpu.X86.HasPOPCNT}),
		accumulate:   accumulateAVX512,
		pack:         packersAVX512.pack,
		fused:        fusedAVX512,
		isFused:      isFused,
		deal:         dealAVX512.sum,
		dealtClasses: 16,
	}
	// variants are slower to faster.
	variants = []*variant{&reference, &avx2, &avx512}
	fastest  = pick()
)

type feature struct {
	name string
	has  bool
}

func missing(needed ...feature) string {
	for _, f := range needed {
		if !f.has {
			return f.name
		}
	}
	return ""
}

func pick() *variant {
	best := &reference
	for _, v := range variants {
		if v.missing == "" {
			best = v
		}
	}
	return best
}

// The kernels' blocks of columns are of register size. A panel of left fits the
// second-level cache. In AVX-512 a few columns of right stay in the first-level cache
// while those of a panel of left stream by, and then the next few; folding eight
// sums at a time, and no masks, makes that 3 to 6 % faster at n = 256 and 784 than
// the other way round. In AVX2 panels of right pass: the columns of a block of left
// stay in the first-level cache while the columns of a panel stream by, and the panel
// is near for the next block.
const (
	blockAVX512 = 5
	tallBlock   = 8 // columns of right
	tallRows    = 3 // columns of left, which are rows of the triangle
	blockAVX2   = 3
	wideAVX2    = 4 // columns of right, where there are many
	panelRight  = 60
	panelLeft   = 240

	// These are the greatest numbers of columns that are packed by the kernels that
	// sum them, without panels. On a Xeon with two 512-bit units that takes 100 and
	// 160 columns of float32 11 % and 4 % less time than packing them first, and 100
	// of float64 2 %; from 130 of float64 on it takes longer.
	fusedFloat32 = 192
	fusedFloat64 = 128

	// The kernels of fused stretches ask for so many columns each.
	askedByTriangle  = 3
	askedByRectangle = 4
)

// accumulateAVX512 takes some columns of right down the rows of a panel of left.
func accumulateAVX512(s, cross, left, right []float64, n, rows int) {
	for top := 0; top < n; top += panelLeft {
		bottom := min(top+panelLeft, n)
		for k, w := 0, 0; k < bottom; k += w {
			if w = tallBlock; n-k <= 2*blockAVX512 {
				w = n - k
			}
			if k >= top {
				triangleAVX512(s, cross, left, right, k, w, rows)
			}
			for j := max(top, k+w); j < bottom; {
				h := min(tallRows, bottom-j)
				blocks := (bottom - j) / h
				tallRectanglesAVX512[h-1](&cross[PackedLen(j)+k], j+1, &left[j*tileStride], &right[k*tileStride], rows, blocks)
				j += blocks * h
			}
		}
	}
}

// triangleAVX512 adds the sums of up to 10 columns from j on, and those of the
// products of these with each other.
func triangleAVX512(s, cross, left, right []float64, j, n, rows int) {
	for first := j; first < j+n; first += blockAVX512 {
		h := min(blockAVX512, j+n-first)
		if first > j {
			rectanglesAVX512[h-1](&cross[PackedLen(first)+j], first+1, &left[first*tileStride], &right[j*tileStride], rows, 1)
		}
		trianglesAVX512[h-1](&s[first], &cross[PackedLen(first)+first], first+1, &left[first*tileStride], &right[first*tileStride], rows)
	}
}

// accumulateAVX2 takes a block of left along the rows of a panel of right.
func accumulateAVX2(s, cross, left, right []float64, n, rows int) {
	for top := 0; top < n; top += panelLeft {
		bottom := min(top+panelLeft, n)
		for k := 0; k < bottom; k += panelRight {
			end := k + panelRight
			for j := max(top, k); j < bottom; j += blockAVX2 {
				h := min(blockAVX2, n-j)
				if blocks := (min(end, j) - k) / blockAVX2; blocks > 0 {
					rectangleAVX2(h, cross[PackedLen(j)+k:], j+1, left[j*tileStride:], right[k*tileStride:], rows, blocks)
				}
				if j < end {
					trianglesAVX2[h-1](&s[j], &cross[PackedLen(j)+j], j+1, &left[j*tileStride], &right[j*tileStride], rows)
				}
			}
		}
	}
}

// rectangleAVX2 takes four columns of right at a time, as long as there are twelve: on
// a Xeon that takes 4 to 5 % less time for 100 and more columns.
func rectangleAVX2(h int, cross []float64, row int, left, right []float64, rows, blocks int) {
	if wide := blocks / wideAVX2; wide > 0 && h == blockAVX2 {
		rectangle3x4AVX2(&cross[0], row, &left[0], &right[0], rows, wide*blockAVX2)
		if blocks %= wideAVX2; blocks == 0 {
			return
		}
		done := wide * wideAVX2 * blockAVX2
		cross, right = cross[done:], right[done*tileStride:]
	}
	rectanglesAVX2[h-1](&cross[0], row, &left[0], &right[0], rows, blocks)
}

// fusedAVX512 packs and sums a stretch of few columns.
func fusedAVX512(sum *Sums, tile []float64, columns []Column, from, rows int, c []float64, next []Column, nextFrom int) {
	n, kind := len(columns), columns[0].kind
	kernels := &fusedKernelsAVX512[kind-Float32]
	from *= kind.size()
	nextFrom *= kind.size()
	padded := wholeLines(rows)
	asked := 0
	ask := func(count int) *byte { // for the next ones, as long as there are any
		first := min(asked, n-count)
		asked += count
		return bytesOf(next[first:])
	}
	for j := 0; j < n; j += blockAVX512 {
		h := min(blockAVX512, n-j)
		cross, left := sum.Cross[PackedLen(j):], &tile[j*tileStride]
		if j == 0 {
			kernels.triangles[h-1](&sum.S[0], &cross[0], 1, left,
				bytesOf(columns), from, &c[0], rows, ask(min(h, askedByTriangle)), nextFrom)
			continue
		}
		kernels.rectangles[h-1](&cross[0], j+1, left, &tile[0],
			bytesOf(columns[j:]), from, &c[j], rows, ask(askedByRectangle), nextFrom)
		if blocks := j/blockAVX512 - 1; blocks > 0 {
			rectanglesAVX512[h-1](&cross[blockAVX512], j+1, left, &tile[blockAVX512*tileStride], padded, blocks)
		}
		kernels.asking[h-1](&sum.S[j], &cross[j], j+1, left, rows, ask(min(h, askedByTriangle)), nextFrom)
	}
}

func isFused(columns []Column) bool {
	n := len(columns)
	if n == 0 {
		return false
	}
	kind := columns[0].kind
	return (kind == Float32 && n <= fusedFloat32 || kind == Float64 && n <= fusedFloat64) && alike(columns) == n
}

// fusedAVX2 fuses whole stretches.
func fusedAVX2(sum *Sums, tile []float64, columns []Column, from, rows int, c []float64, _ []Column, _ int) {
	n, kind := len(columns), columns[0].kind
	if rows < stretch {
		packersAVX2.pack(tile, columns, from, from+rows, c)
		accumulateAVX2(sum.S, sum.Cross, tile, tile, n, pad(tile, n, rows))
		return
	}
	from *= kind.size()
	for j := 0; j < n; j += blockAVX2 {
		h := min(blockAVX2, n-j)
		cross, left := sum.Cross[PackedLen(j):], tile[j*tileStride:]
		fusedTrianglesAVX2[kind-Float32][h-1](&sum.S[j], &cross[j], j+1, &left[0], bytesOf(columns[j:]), from, &c[j])
		if j > 0 {
			rectangleAVX2(h, cross, j+1, left, tile, stretch, j/blockAVX2)
		}
	}
}

type (
	wholeTriangle  = func(s, cross *float64, row int, tile *float64, columns *byte, from int, origin *float64)
	fusedTriangle  = func(s, cross *float64, row int, tile *float64, columns *byte, from int, origin *float64, rows int, next *byte, nextFrom int)
	rectangle      = func(cross *float64, row int, left, right *float64, rows, blocks int)
	fusedRectangle = func(cross *float64, row int, left, right *float64, columns *byte, from int, origin *float64, rows int, next *byte, nextFrom int)
	askingTriangle = func(s, cross *float64, row int, tile *float64, rows int, next *byte, nextFrom int)
	triangle       = func(s, cross *float64, row int, left, right *float64, rows int)
	packer         = func(tile *float64, columns *byte, count, from int, origin *float64, groups int)
)

// The kernels for blocks of 1, 2, … columns of left.
var (
	rectanglesAVX512     = [blockAVX512]rectangle{rectangle1AVX512, rectangle2AVX512, rectangle3AVX512, rectangle4AVX512, rectangle5AVX512}
	tallRectanglesAVX512 = [tallRows]rectangle{tallRectangle1AVX512, tallRectangle2AVX512, tallRectangle3AVX512}
	trianglesAVX512      = [blockAVX512]triangle{triangle1AVX512, triangle2AVX512, triangle3AVX512, triangle4AVX512, triangle5AVX512}
	rectanglesAVX2       = [blockAVX2]rectangle{rectangle1AVX2, rectangle2AVX2, rectangle3AVX2}
	trianglesAVX2        = [blockAVX2]triangle{triangle1AVX2, triangle2AVX2, triangle3AVX2}
)

// The fused kernels, for float32 and for float64.
var (
	fusedKernelsAVX512 = [2]struct {
		triangles  [blockAVX512]fusedTriangle
		rectangles [blockAVX512]fusedRectangle
		asking     [blockAVX512]askingTriangle
	}{{
		[...]fusedTriangle{fusedTriangle32x1AVX512, fusedTriangle32x2AVX512, fusedTriangle32x3AVX512, fusedTriangle32x4AVX512, fusedTriangle32x5AVX512},
		[...]fusedRectangle{fusedRectangle32x1AVX512, fusedRectangle32x2AVX512, fusedRectangle32x3AVX512, fusedRectangle32x4AVX512, fusedRectangle32x5AVX512},
		[...]askingTriangle{askingTriangle32x1AVX512, askingTriangle32x2AVX512, askingTriangle32x3AVX512, askingTriangle32x4AVX512, askingTriangle32x5AVX512},
	}, {
		[...]fusedTriangle{fusedTriangle64x1AVX512, fusedTriangle64x2AVX512, fusedTriangle64x3AVX512, fusedTriangle64x4AVX512, fusedTriangle64x5AVX512},
		[...]fusedRectangle{fusedRectangle64x1AVX512, fusedRectangle64x2AVX512, fusedRectangle64x3AVX512, fusedRectangle64x4AVX512, fusedRectangle64x5AVX512},
		[...]askingTriangle{askingTriangle64x1AVX512, askingTriangle64x2AVX512, askingTriangle64x3AVX512, askingTriangle64x4AVX512, askingTriangle64x5AVX512},
	}}
	fusedTrianglesAVX2 = [2][blockAVX2]wholeTriangle{
		{fusedTriangle32x1AVX2, fusedTriangle32x2AVX2, fusedTriangle32x3AVX2},
		{fusedTriangle64x1AVX2, fusedTriangle64x2AVX2, fusedTriangle64x3AVX2},
	}
)

// packers are a variant's packers, by kind.
type packers [Uint64 + 1]packer

var packersAVX512 = packers{
	Float32: packFloat32AVX512, Float64: packFloat64AVX512,
	Int8: packInt8AVX512, Int16: packInt16AVX512, Int32: packInt32AVX512, Int64: packInt64AVX512,
	Uint8: packUint8AVX512, Uint16: packUint16AVX512, Uint32: packUint32AVX512, Uint64: packUint64AVX512,
}

var packersAVX2 = packers{
	Float32: packFloat32AVX2, Float64: packFloat64AVX2,
	Int8: packInt8AVX2, Int16: packInt16AVX2, Int32: packInt32AVX2, Int64: packInt64AVX2,
	Uint8: packUint8AVX2, Uint16: packUint16AVX2, Uint32: packUint32AVX2, Uint64: packUint64AVX2,
}

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

// alike is the number of columns that are contiguous in memory and of the kind
// of the first.
func alike(columns []Column) int {
	for j := range columns {
		if columns[j].stride != 1 || columns[j].kind != columns[0].kind {
			return j
		}
	}
	return len(columns)
}

func bytesOf(columns []Column) *byte { return (*byte)(unsafe.Pointer(unsafe.SliceData(columns))) }
