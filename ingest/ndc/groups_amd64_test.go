//go:build !purego

package ndc

import (
	"math"
	"testing"
)

// TestLines: a line is its segment, exactly.
func TestLines(t *testing.T) {
	table := lineTable()
	for i, s := range normalTable() {
		// Some f of the segment, as the kernel has it.
		e, k := i/perOctave, i%perOctave
		f := math.Ldexp(1+float64(k)/perOctave, 32+e)
		line := table[math.Float64bits(f)>>indexShift%uint64(len(table))]
		a := math.Float64frombits(line&(1<<32-1)|math.Float64bits(knotGrid)) - knotGrid
		b := math.Float64frombits(line&^(1<<32-1)) * (1 << 32)
		if math.Float64bits(a) != s.a || b != s.b {
			t.Fatalf("octave %d, step %d: %v − %v|f|, not %v − %v|f|", e, k, a, b, math.Float64frombits(s.a), s.b)
		}
	}
}
