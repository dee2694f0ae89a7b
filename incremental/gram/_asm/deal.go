package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// The rows of a stretch are dealt in groups, to the ring of one class at a time.
const (
	planSignature = "func(plan *byte, codes *int32, rows int, keep *byte, class, position int) (next int)"
	planDoc       = `plans the places of those rows that are in keep and of the class,
which has position rows already, and returns how many it has then. rows is a multiple
of 32 above 0, up to a stretch.`

	dealSignature = "func(ring, columns *byte, from, rows int, plan *byte)"
	dealDoc       = `copies rows of %d columns, from byte from on, to their planned
places in the ring, and prefetches the next stretch.`
)

// A loader reads a vector of a column's rows.
type loader struct {
	name     string
	from, to int // bytes per element, in the column and in the ring
	load     func(...Op)
}

var loaders = []loader{
	{"32", 4, 4, VMOVUPS},
	{"64", 8, 8, VMOVUPD},
	{"Int8", 1, 4, VPMOVSXBD},
	{"Int16", 2, 4, VPMOVSXWD},
	{"Uint8", 1, 4, VPMOVZXBD},
	{"Uint16", 2, 4, VPMOVZXWD},
}

func (l loader) ringStride() int {
	if l.to == 8 {
		return ringStride64
	}
	return ringStride32
}

// deals writes the routines for the loader's columns: for one at a time and, for numbers
// that need no widening, for several.
func deals(deal func(l loader, width int), l loader) {
	if l.from == l.to {
		deal(l, dealBlock)
	}
	deal(l, 1)
}
