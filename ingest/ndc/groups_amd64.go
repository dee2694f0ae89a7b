//go:build !purego

package ndc

import (
	"math"
	"sync"

	"golang.org/x/sys/cpu"
)

//go:generate go run -C _asm . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg ndc

// hasGroups reports whether this processor can run placeGroups. There are no kernels for
// AVX2, which can neither multiply 64 bits nor scatter.
var hasGroups = cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ

// placeGroups equals place, to the bit, with a row in each lane of vectors. It first
// makes the normals of a group of rows, then its coordinates, one after another.
func (s *Sampler) placeGroups(c *cluster) {
	n, table, z := s.g.n, lineTable(), &s.normals[0]
	var short [groupRows]int32
	for rows := c.rows; len(rows) > 0; {
		group := &short
		if len(rows) < groupRows {
			// A group that is cut short repeats its last row.
			for i := range short {
				short[i] = rows[min(i, len(rows)-1)]
			}
			rows = nil
		} else {
			group, rows = (*[groupRows]int32)(rows), rows[groupRows:]
		}
		normalsAVX512(z, &group[0], uint64(c.from), uint64(c.stride), (n+1)/2, &table[0])
		transformAVX512(&c.columns[0], c.base, &group[0], z, &c.centre[0], &c.root[0], n)
	}
}

// lines are the segments for f·2^32, which is a word's upper half in place. Each takes
// eight bytes, so that all stay in a first-level cache and one gather loads a vector of
// them. The upper four bytes are those of b/2^32, which ends in zeros. The lower four
// are a·knotGrid: below the upper half of the float64 knotGrid they make knotGrid + a.
// The index is that of segments without the exponent's bias.
type lines [len(segments{})]uint64

var lineTable = sync.OnceValue(func() *lines {
	var t lines
	for i, s := range normalTable() {
		a := math.Float64frombits(s.a)
		t[(i-perOctave+len(t))%len(t)] = math.Float64bits(s.b/(1<<32)) | uint64(a*knotGrid)
	}
	return &t
})
