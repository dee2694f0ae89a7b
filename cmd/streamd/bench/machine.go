package bench

import (
	"encoding/binary"
	"math"
	"sync/atomic"
)

// readPiece is what readBytes reads at a time, in bytes.
const readPiece = 512

// readBytes reads b, at the pace of the memory that it is in, and forgets it.
// The last bytes, fewer than readPiece, are left out.
func readBytes(b []byte) {
	if pieces := len(b) / readPiece; pieces > 0 {
		readPieces(&b[:pieces*readPiece][0], pieces)
	}
}

// multiplyAdd does rounds of independent fused multiply-adds in registers, and
// returns how many of float64 those were.
func multiplyAdd(rounds int) int64 { return int64(rounds * multiplyAddRound(rounds)) }

// sink keeps the compiler from leaving out what comes to nothing.
var sink atomic.Uint64

// readPiecesGo reads in words, of which a core loads two or more per cycle:
// several times what memory gives.
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

// multiplyAddGo does rounds of eight multiply-adds, one number each: the peak
// of what Go's compiler makes of math.FMA, not of the core's vectors.
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
