package bench

import (
	"encoding/binary"
	"math"
	"sync/atomic"
)

// readPiece is the number of bytes that readBytes reads at a time.
const readPiece = 512

// readBytes reads b at the pace of its memory, and keeps nothing. It leaves out the last
// bytes, fewer than readPiece.
func readBytes(b []byte) {
	if pieces := len(b) / readPiece; pieces > 0 {
		readPieces(&b[:pieces*readPiece][0], pieces)
	}
}

// multiplyAdd does rounds of independent fused multiply-adds in registers. It returns their
// number, counted in float64.
func multiplyAdd(rounds int) int64 { return int64(rounds * multiplyAddRound(rounds)) }

// sink keeps the compiler from leaving out loops without a result.
var sink atomic.Uint64

// readPiecesGo reads in words. A core loads two or more words per cycle, which is faster than
// memory.
func readPiecesGo(b []byte) {
	var x0, x1, x2, x3 uint64
	for ; len(b) >= 64; b = b[64:] {
		x := (*[64]byte)(b)
		x0 ^= binary.NativeEndian.Uint64(x[0:]) ^ binary.NativeEndian.Uint64(x[32:])
		x1 ^= binary.NativeEndian.Uint64(x[8:]) ^ binary.NativeEndian.Uint64(x[40:])
		x2 ^= binary.NativeEndian.Uint64(x[16:]) ^ binary.NativeEndian.Uint64(x[48:])
		x3 ^= binary.NativeEndian.Uint64(x[24:]) ^ binary.NativeEndian.Uint64(x[56:])
	}
	sink.Store(x0 ^ x1 ^ x2 ^ x3)
}

// multiplyAddGo does rounds of eight multiply-adds of one number each. This is the peak of
// math.FMA as Go's compiler has it, not of the core's vectors.
func multiplyAddGo(rounds int) (perRound int) {
	var a0, a1, a2, a3, a4, a5, a6, a7 float64
	x := float64(rounds)
	for range rounds {
		a0 = math.FMA(x, x, a0)
		a1 = math.FMA(x, x, a1)
		a2 = math.FMA(x, x, a2)
		a3 = math.FMA(x, x, a3)
		a4 = math.FMA(x, x, a4)
		a5 = math.FMA(x, x, a5)
		a6 = math.FMA(x, x, a6)
		a7 = math.FMA(x, x, a7)
	}
	sink.Store(math.Float64bits(a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7))
	return 8
}
