//go:build !purego

package wire

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// hasNumbers is whether this processor has what plainNumbers needs.
var hasNumbers = cpu.X86.HasAVX2 && cpu.X86.HasBMI1 && cpu.X86.HasBMI2 && cpu.X86.HasLZCNT

// plainNumbers reads numbers of b, the first at b[i], which is in reach, with the text
// of their steps behind them, into row, until it meets one that is not plain: a digit,
// no 0 before others; perhaps a point between digits; perhaps an exponent of a sign and
// up to two digits. It returns how many it has read and where the next begins. Any it
// may leave to number.
func plainNumbers(row []float64, b []byte, steps []step, i int) (done, end int) {
	return numbersAVX2(&row[0], &b[0], i, len(b)-67, (*byte)(unsafe.Pointer(&steps[0])), len(steps), &fives[0][0])
}
