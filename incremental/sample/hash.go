package sample

import (
	"crypto/sha256"
	"encoding/binary"
)

const golden = 0x9E3779B97F4A7C15 // 2^64 over the golden ratio, odd

// mix is the finalizer of SplitMix64: a bijection in which every bit of x affects every
// bit of the result.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// stream is the key of a block's random numbers.
type stream uint64

func streamOf(seed uint64, digest *[sha256.Size]byte) stream {
	return stream(mix(binary.LittleEndian.Uint64(digest[:]) ^ mix(seed)))
}

func (z stream) at(t uint64) uint64 { return mix(uint64(z) + t*golden) }

// group is the number of rows that share a word of random bits.
const group = 64

// word is word l, 1 to 63, of a group of rows. The bits that are set in words 1 to l
// mark the rows of level l or above.
func (z stream) word(g uint32, l int) uint64 { return z.at(uint64(g)*group + uint64(l)) }

// hash is the hash of a row of the level.
func (z stream) hash(index uint32, level int) uint64 {
	return (z.at(1<<32+uint64(index)) | 1<<63) >> level
}

// level is the level of a row.
func (z stream) level(index uint32) int { return z.levelFrom(index, 0) }

// levelFrom is the level of a row that is of level l or above.
func (z stream) levelFrom(index uint32, l int) int {
	for l < top && z.word(index/group, l+1)>>(index%group)&1 != 0 {
		l++
	}
	return l
}

// Fold is the fold of a block, 0 to k−1, by its content. It uses other bits of the
// digest than the hashes of rows.
func Fold(digest [sha256.Size]byte, k int) int {
	return int(binary.LittleEndian.Uint64(digest[8:]) % uint64(k))
}
