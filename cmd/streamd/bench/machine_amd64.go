//go:build !purego

package bench

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// The loops of machine_amd64.s. A piece is readPiece bytes. A round is sixteen instructions
// that do not wait for each other, enough to fill the pipelines of a core.

//go:noescape
func readAVX2(b *byte, pieces int)

func multiplyAddAVX512(rounds int)

func multiplyAddAVX2(rounds int)

// readPieces reads in vectors of 256 bits. They keep up with memory, and on some processors
// loads of 512 bits do not.
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
