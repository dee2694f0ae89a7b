package schema

import (
	"encoding/binary"
	"math/bits"
)

// murmur3 is MurmurHash3_x86_32 with seed 0 (Appleby), as scikit-learn's FeatureHasher has it.
func murmur3(text string) uint32 {
	const c1, c2 = 0xcc9e2d51, 0x1b873593
	b, h := []byte(text), uint32(0)
	mix := func(k uint32) uint32 { return bits.RotateLeft32(k*c1, 15) * c2 }
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h^mix(binary.LittleEndian.Uint32(b)), 13)*5 + 0xe6546b64
	}
	if len(b) > 0 {
		var k uint32
		for i, c := range b {
			k |= uint32(c) << (8 * i)
		}
		h ^= mix(k)
	}
	h ^= uint32(len(text))
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}

// hashed is the column of a word out of n, a power of two, and its sign.
func hashed(word string, n int) (column int, sign int16) {
	h := int32(murmur3(word))
	sign = 1
	if h < 0 {
		sign = -1
	}
	if h == -1<<31 { // its absolute value is no int32: FeatureHasher takes that of 2³¹−1−(n−1)
		return int((int64(1<<31-1) - int64(n-1)) % int64(n)), sign
	}
	if h < 0 {
		h = -h
	}
	return int(h) % n, sign
}
