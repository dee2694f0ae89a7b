//go:build !purego

package kafka

import (
	"hash/crc32"
	"math/rand/v2"
	"os"
	"testing"
)

// TestChecksum: the assembly has the checksums of the standard library. With
// STREAMD_REQUIRE_VARIANTS set it is a failure if it cannot be tested.
func TestChecksum(t *testing.T) {
	if !hasAVX512 {
		if os.Getenv("STREAMD_REQUIRE_VARIANTS") != "" {
			t.Fatal("this processor has no AVX-512 with VPCLMULQDQ")
		}
		t.Skip("NOT TESTED: this processor has no AVX-512 with VPCLMULQDQ")
	}
	rng := rand.New(rand.NewPCG(15, 16))
	data := make([]byte, 40_000)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	check := func(from, to int) {
		t.Helper()
		crc := rng.Uint32()
		if got, want := checksum(crc, data[from:to]), crc32.Update(crc, castagnoli, data[from:to]); got != want {
			t.Fatalf("bytes %d to %d behind %08x: %08x, want %08x", from, to, crc, got, want)
		}
	}
	for length := range 3000 {
		check(length%67, length%67+length)
	}
	for range 1000 {
		from := rng.IntN(len(data))
		check(from, from+rng.IntN(len(data)-from+1))
	}
	// Each bit counts, wherever it is.
	const length = 1024
	for bit := range 8 * length {
		clear(data[:length])
		data[bit/8] = 1 << (bit % 8)
		check(0, length)
	}
}
