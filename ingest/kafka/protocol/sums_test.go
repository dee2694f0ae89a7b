package protocol

import (
	"bytes"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

func TestSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	data := make([]byte, 3*long)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	var s Sums
	for n := 0; n < len(data); {
		n += 1 + rng.IntN(min(len(data)-n, 3*step))
		s.Extend(data[:n])
	}
	for range 300 {
		from := rng.IntN(len(data))
		to := from + rng.IntN(len(data)-from+1)
		crc := rng.Uint32()
		want := crc32.Update(crc, Castagnoli, data[from:to])
		for _, part := range [][]byte{data[from:to], bytes.Clone(data[from:to])} {
			if got := s.Update(crc, part); got != want {
				t.Fatalf("bytes %d to %d: %08x, want %08x", from, to, got, want)
			}
		}
	}
}
