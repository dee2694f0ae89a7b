//go:build !purego

package bench

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// The loops of machine_amd64.s: a piece is readPiece bytes, a round sixteen
// instructions that do not wait for each other (a core of today starts two
// per cycle, each of which takes four).

//go:noescape
func readAVX2(b *byte, pieces int)

func multiplyAddAVX512(rounds int)

func multiplyAddAVX2(rounds int)

// readPieces reads in vectors of 256 bits, as wide a load as any that keeps up with
// memory: loads of 512 bits took a sixth longer on a Zen 4.
func readPieces(b *byte, pieces int) {
	if cpu.X86.HasAVX2 {
		readAVX2(b, pieces)
	} else {
		readPiecesGo(unsafe.Slice(b, pieces*readPiece))
	}
}

func multiplyAddRound(rounds int) (perRound int) {
	switch {
	case cpu.X86.HasAVX512F:
		multiplyAddAVX512(rounds)
		return 16 * 8
	case cpu.X86.HasAVX2 && cpu.X86.HasFMA:
		multiplyAddAVX2(rounds)
		return 16 * 4
	default:
		return multiplyAddGo(rounds)
	}
}
