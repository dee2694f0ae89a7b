//go:build !purego

package gram

import (
	"testing"
	"unsafe"
)

// The generator of the assembly has these numbers too.
func TestLayoutIsWhatTheAssemblyTakesItFor(t *testing.T) {
	var c Column
	var p [2]plan
	for what, numbers := range map[string][2]uintptr{
		"size of a Column":        {unsafe.Sizeof(c), 32},
		"address in a Column":     {unsafe.Offsetof(c.base), 0},
		"stride of a tile":        {tileStride * 8, (256 + 8) * 8},
		"stride of narrow rings":  {ringStride32, 2*256*4 + 64},
		"stride of wide rings":    {ringStride64, 2*256*8 + 64},
		"size of a class's plans": {unsafe.Sizeof(p), 2 * 38 * 64},
		"slot in a plan":          {unsafe.Offsetof(p[0].slot), 35 * 64},
		"begin in a plan":         {unsafe.Offsetof(p[0].begin), 35*64 + 34},
		"free in a plan":          {unsafe.Offsetof(p[0].free), 35*64 + 68},
		"whole in a plan":         {unsafe.Offsetof(p[0].whole), 35*64 + 102},
		"twice in a plan":         {unsafe.Offsetof(p[0].twice), 35*64 + 136},
	} {
		if numbers[0] != numbers[1] {
			t.Errorf("%s: %d, the assembly has %d", what, numbers[0], numbers[1])
		}
	}
}
