//go:build !purego

package sample

import "golang.org/x/sys/cpu"

//go:generate go run -C _asm . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg sample

var hasAVX512 = cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL && cpu.X86.HasPOPCNT

// remaining is remainingGo, but that it may list groups behind those, too, up to the next
// multiple of together. groups and left have elements for all of them.
func remaining(groups []uint32, left []uint64, of int, z stream, level int) (n int) {
	if !hasAVX512 || of == 0 {
		return remainingGo(groups, left, of, z, level)
	}
	return remainingAVX512(&groups[0], &left[0], of, uint64(z), level)
}
