//go:build !amd64 || purego

package bench

import "unsafe"

func readPieces(b *byte, pieces int) { readPiecesGo(unsafe.Slice(b, pieces*readPiece)) }

func multiplyAddRound(rounds int) (perRound int) { return multiplyAddGo(rounds) }
