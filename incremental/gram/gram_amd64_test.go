//go:build !purego

package gram

import (
	"testing"
	"unsafe"
)

// The generator of the assembly uses the same layout.
func TestLayoutOfTheAssembly(t *testing.T) {
	var c Column
	var p512 planAVX512
	var p2 planAVX2
	var pair planPairAVX2
	var w narrow
	for what, numbers := range map[string][2]uintptr{
		"size of a Column":         {unsafe.Sizeof(c), 32},
		"address in a Column":      {unsafe.Offsetof(c.base), 0},
		"stride of a tile":         {tileStride * 8, (256 + 8) * 8},
		"stride of 4-byte rings":   {ringStride32, 2*256*4 + 64},
		"stride of 8-byte rings":   {ringStride64, 2*256*8 + 64},
		"rows in a plan, AVX-512":  {unsafe.Offsetof(p512.list), 0},
		"slot in a plan, AVX-512":  {unsafe.Offsetof(p512.slot), 35 * 64},
		"begin in a plan, AVX-512": {unsafe.Offsetof(p512.begin), 35*64 + 34},
		"free in a plan, AVX-512":  {unsafe.Offsetof(p512.free), 35*64 + 68},
		"whole in a plan, AVX-512": {unsafe.Offsetof(p512.whole), 35*64 + 102},
		"twice in a plan, AVX-512": {unsafe.Offsetof(p512.twice), 35*64 + 136},
		"distance of narrow lanes": {unsafe.Sizeof(w.entries[0][0]), 64},
		"stride of a narrow tile":  {unsafe.Sizeof(w.tile[0]), (64 + 8) * 8},
		"size of narrow rings":     {unsafe.Sizeof(w.rings), 2 * 10 * (2*64*8 + 64)},
		"fields in a narrow plan":  {unsafe.Offsetof(w.plan.groups), 64 + 16*2*64 + 64},
		"size of a group's fields": {unsafe.Sizeof(w.plan.groups[0]), 32},
		"own among them":           {unsafe.Offsetof(w.plan.groups[0].own), 4},
		"slots among them":         {unsafe.Offsetof(w.plan.groups[0].slots), 8},
		"next among them":          {unsafe.Offsetof(w.plan.groups[0].next), 16},
		"waiting among them":       {unsafe.Offsetof(w.plan.groups[0].waiting), 20},
		"after among them":         {unsafe.Offsetof(w.plan.groups[0].after), 24},
		"rows in a plan, AVX2":     {unsafe.Offsetof(p2.list), 0},
		"slot in a plan, AVX2":     {unsafe.Offsetof(p2.slot), 64 * 32},
		"spill in a plan, AVX2":    {unsafe.Offsetof(p2.spill), 64*32 + 64*4},
		"size of a pair's plan":    {unsafe.Sizeof(pair), 64*32 + 2*64*4 + 2*32},
		"rows in a pair's plan":    {unsafe.Offsetof(pair.list), 0},
		"slots in a pair's plan":   {unsafe.Offsetof(pair.slots), 64 * 32},
		"spills in a pair's plan":  {unsafe.Offsetof(pair.spills), 64*32 + 2*64*4},
	} {
		if numbers[0] != numbers[1] {
			t.Errorf("%s: %d, the assembly has %d", what, numbers[0], numbers[1])
		}
	}
}
