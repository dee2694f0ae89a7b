//go:build !purego

package kafka

import (
	"hash/crc32"

	"golang.org/x/sys/cpu"
)

//go:generate go run -C _asm . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg kafka

var hasAVX512 = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasSSE42

// checksum is crc32.Update with Castagnoli's polynomial, at four times the speed of the
// instruction for it where the processor multiplies eight polynomials at once.
func checksum(crc uint32, p []byte) uint32 {
	const stretch = 256
	if whole := len(p) / stretch * stretch; hasAVX512 && whole >= 2*stretch {
		crc = ^checksumAVX512(^crc, &p[0], whole)
		p = p[whole:]
	}
	return crc32.Update(crc, castagnoli, p)
}
