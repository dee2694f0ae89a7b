//go:build !purego

package wire

import (
	"encoding/binary"
	"math"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/cpu"
)

// TestPair: a kernel writes the codes of whole groups, and none of the group with
// a label that differs in any one bit. With STREAMD_REQUIRE_VARIANTS set it is a
// failure if it cannot be tested.
func TestPair(t *testing.T) {
	if !cpu.X86.HasAVX2 {
		if os.Getenv("STREAMD_REQUIRE_VARIANTS") != "" {
			t.Fatal("this processor has no AVX2")
		}
		t.Skip("NOT TESTED: this processor has no AVX2")
	}
	const first, second = 0x8899aabbccddeeff, 0x7766554433221100 // no bit in common
	const firstCode, secondCode, untouched = 7, -9, 77
	for _, size := range []int{1, 2, 4, 8} {
		for rows := range 35 {
			for stranger := range rows + 1 { // the last lies beyond
				for bit := range 8 * size {
					var labels []byte
					var codes, want []int32
					done := min(stranger, rows) / 8 * 8
					for i := range rows + 1 {
						x, code := uint64(first), int32(firstCode)
						if i*i%3 == 1 {
							x, code = second, secondCode
						}
						if i == stranger {
							x ^= 1 << bit
						}
						if i >= done {
							code = untouched
						}
						labels = append(labels, binary.LittleEndian.AppendUint64(nil, x)[:size]...)
						codes, want = append(codes, untouched), append(want, code)
					}
					mask := uint64(math.MaxUint64) >> (64 - 8*size)
					got := pairs[size](&codes[0], &labels[0], rows, first&mask, second&mask, firstCode, secondCode)
					if got != done || !slices.Equal(codes, want) {
						t.Fatalf("%d bytes, %d rows, bit %d of row %d is another: %d done, codes %v, want %d, %v",
							size, rows, bit, stranger, got, codes, done, want)
					}
				}
			}
		}
	}
}
