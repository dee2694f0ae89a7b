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

func groupTable() *uint64 { return &lineTable()[0] }

func normalsOfGroup(z *float64, rows *int32, from, stride uint64, pairs int, table *uint64) {
	normalsAVX512(z, rows, from, stride, pairs, table)
}

func transformGroup(columns *[]float32, base int, rows *int32, z, centre, root *float64, n int) {
	transformAVX512(columns, base, rows, z, centre, root, n)
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
