//go:build !purego

package gram

import (
	"golang.org/x/sys/cpu"
)

//go:generate go run -C _asm . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg gram

var (
	avx2 = variant{
		name: "AVX2",
		missing: missing(feature{"AVX2", cpu.X86.HasAVX2}, feature{"FMA", cpu.X86.HasFMA},
			feature{"POPCNT", cpu.X86.HasPOPCNT}),
		accumulate: accumulateAVX2,
		scale:      scaleAVX2,
		products: [2]kindProducts{
			{products1Float32AVX2, products4Float32AVX2, dots1Float32AVX2, dots4Float32AVX2},
			{products1Float64AVX2, products4Float64AVX2, dots1Float64AVX2, dots4Float64AVX2},
		},
		pack:         packersAVX2.pack,
		gather:       gatherColumn,
		deal:         dealAVX2.sum,
		dealtClasses: 6,
		perTerm:      16,
	}
	avx512 = variant{
		name: "AVX-512",
		missing: missing(feature{"AVX512F", cpu.X86.HasAVX512F}, feature{"AVX512DQ", cpu.X86.HasAVX512DQ},
			feature{"AVX512BW", cpu.X86.HasAVX512BW}, feature{"AVX512VL", cpu.X86.HasAVX512VL},
			feature{"BMI2", cpu.X86.HasBMI2}, feature{"POPCNT", cpu.X86.HasPOPCNT}),
		accumulate: accumulateAVX512,
		scale:      scaleAVX512,
		products: [2]kindProducts{
			{products1Float32AVX512, products4Float32AVX512, dots1Float32AVX512, dots4Float32AVX512},
			{products1Float64AVX512, products4Float64AVX512, dots1Float64AVX512, dots4Float64AVX512},
		},
		pack:         packersAVX512.pack,
		gather:       gatherColumn,
		fused:        fusedAVX512,
		isFused:      isFused,
		deal:         dealAVX512.sum,
		dealtClasses: 16,
		perTerm:      32,
	}
	// variants are in order of speed, the slowest first.
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

const (
	blockAVX512 = 5
	widthAVX2   = 2 // the columns of right of a rectangle

	// Up to this many columns are packed by the kernels that sum them, without panels.
	// Fewer than a block, and more than these, are faster packed first.
	fusedFloat32 = 192
	fusedFloat64 = 128
)

type (
	fusedTriangle  = func(s, cross *float64, row int, tile *float64, columns *byte, from int, origin *float64, rows int)
	fusedRectangle = func(cross *float64, row int, left, right *float64, columns *byte, from int, origin *float64, rows int)
)

// The kernels for blocks of 1, 2, … columns of left.
var (
	rectanglesAVX512 = []rectangle{rectangle1AVX512, rectangle2AVX512, rectangle3AVX512, rectangle4AVX512, rectangle5AVX512}
	trianglesAVX512  = []triangle{triangle1AVX512, triangle2AVX512, triangle3AVX512, triangle4AVX512, triangle5AVX512}
	rectanglesAVX2   = []rectangle{rectangle1AVX2, rectangle2AVX2, rectangle3AVX2, rectangle4AVX2, rectangle5AVX2, rectangle6AVX2}
	trianglesAVX2    = []triangle{triangle1AVX2, triangle2AVX2, triangle3AVX2, triangle4AVX2, triangle5AVX2, triangle6AVX2}
)

// The fused kernels, for float32 and for float64.
var fusedKernelsAVX512 = [2]struct {
	triangle   fusedTriangle
	rectangles [blockAVX512]fusedRectangle
}{{
	fusedTriangle32x5AVX512,
	[...]fusedRectangle{fusedRectangle32x1AVX512, fusedRectangle32x2AVX512, fusedRectangle32x3AVX512, fusedRectangle32x4AVX512, fusedRectangle32x5AVX512},
}, {
	fusedTriangle64x5AVX512,
	[...]fusedRectangle{fusedRectangle64x1AVX512, fusedRectangle64x2AVX512, fusedRectangle64x3AVX512, fusedRectangle64x4AVX512, fusedRectangle64x5AVX512},
}}

func accumulateAVX512(s, cross, left, right []float64, n, rows int) {
	accumulatePanels(trianglesAVX512, rectanglesAVX512, blockAVX512, s, cross, left, right, n, rows)
}

func accumulateAVX2(s, cross, left, right []float64, n, rows int) {
	accumulatePanels(trianglesAVX2, rectanglesAVX2, widthAVX2, s, cross, left, right, n, rows)
}

// fusedAVX512 packs and sums a stretch. The first block of columns is packed by its
// triangle, and the others by their rectangles with the first block.
func fusedAVX512(sum *Sums, tile []float64, columns []Column, from, rows int, c []float64) {
	kind := columns[0].kind
	kernels := &fusedKernelsAVX512[kind-Float32]
	from *= kind.size()
	padded := wholeLines(rows)
	kernels.triangle(&sum.S[0], &sum.Cross[0], 1, &tile[0], bytesOf(columns), from, &c[0], rows)
	for j := blockAVX512; j < len(columns); j += blockAVX512 {
		h := min(blockAVX512, len(columns)-j)
		cross, left := sum.Cross[PackedLen(j):], &tile[j*tileStride]
		kernels.rectangles[h-1](&cross[0], j+1, left, &tile[0], bytesOf(columns[j:]), from, &c[j], rows)
		if blocks := j/blockAVX512 - 1; blocks > 0 {
			rectanglesAVX512[h-1](&cross[blockAVX512], j+1, left, &tile[blockAVX512*tileStride], padded, blocks)
		}
		trianglesAVX512[h-1](&sum.S[j], &cross[j], j+1, left, left, padded)
	}
}

func isFused(columns []Column) bool {
	n := len(columns)
	if n < blockAVX512 {
		return false
	}
	kind := columns[0].kind
	return (kind == Float32 && n <= fusedFloat32 || kind == Float64 && n <= fusedFloat64) && alike(columns) == n
}

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
