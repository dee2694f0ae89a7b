package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The rows of a stretch are dealt in groups to rings: to one class, or to two that
// follow each other. What a class waits for is how many rows it had in the group
// before: two classes at a time wait for half as long.
const (
	planSignature = "func(plan *byte, codes *int32, keep *byte, class int, positions, next *int)"
	planDoc       = `plans where the rows of a stretch go that are in keep and of the
first of %d classes, when these have so many positions already, and gives those after.`

	dealSignature = "func(first, second, columns *byte, from int, plan *byte)"
	dealDoc       = `puts those rows of a stretch of %d columns, from byte from
on, that are of %d classes where the plans have them in the rings first and second.`
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

// deals writes the routines for the loader's columns: for one at a time and, where
// nothing is to be widened, for several.
func deals(deal func(l loader, width, classes int), l loader, classes int) {
	if l.from == l.to {
		deal(l, dealBlock, classes)
	}
	deal(l, 1, classes)
}

func ringPointers(classes int) []Register {
	rings := []Register{pointer("first")}
	if classes > 1 {
		rings = append(rings, pointer("second"))
	}
	return rings
}
