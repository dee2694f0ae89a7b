//go:build !purego

package gram

// Every arm64 processor has NEON.
var (
	neon = variant{
		name:       "NEON",
		accumulate: accumulateNEON,
		pack:       packersNEON.pack,
		gather:     gatherNEON,
		perTerm:    12,
	}
	variants = []*variant{&reference, &neon}
	fastest  = &neon
)

// No variant deals here.
type dealer struct{}

// The kernels for blocks of 1, 2, … columns of left.
var (
	rectanglesNEON = []rectangle{rectangle1NEON, rectangle2NEON, rectangle3NEON}
	trianglesNEON  = []triangle{triangle1NEON, triangle2NEON, triangle3NEON}
)

func accumulateNEON(s, cross, left, right []float64, n, rows int) {
	accumulatePanels(trianglesNEON, rectanglesNEON, len(rectanglesNEON), s, cross, left, right, n, rows)
}

var packersNEON = packers{
	Float32: packFloat32NEON, Float64: packFloat64NEON,
	Int8: packInt8NEON, Int16: packInt16NEON, Int32: packInt32NEON, Int64: packInt64NEON,
	Uint8: packUint8NEON, Uint16: packUint16NEON, Uint32: packUint32NEON, Uint64: packUint64NEON,
}

// gatherNEON reads contiguous float32 and float64, eight rows at a time. The rows are those of
// the sorter, which are in the column.
func gatherNEON(dst []float64, c Column, rows []int32, origin float64) {
	whole := len(rows) / lanes * lanes
	switch {
	case whole == 0 || c.stride != 1:
		whole = 0
	case c.kind == Float32:
		gatherFloat32NEON(&dst[0], c.base, &rows[0], whole/lanes, origin)
	case c.kind == Float64:
		gatherFloat64NEON(&dst[0], c.base, &rows[0], whole/lanes, origin)
	default:
		whole = 0
	}
	gatherColumn(dst[whole:], c, rows[whole:], origin)
}
