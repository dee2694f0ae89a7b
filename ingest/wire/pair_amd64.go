//go:build !purego

package wire

import "golang.org/x/sys/cpu"

//go:generate go run -C _asm . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg wire

// pairs are the kernels, by the bytes of a label; they take its bits with zeros above.
var pairs = [9]func(codes *int32, labels *byte, rows int, first, second uint64, firstCode, secondCode int32) (done int){
	1: pair1AVX2, 2: pair2AVX2, 4: pair4AVX2, 8: pair8AVX2,
}

// pairCodes writes the codes of numbers from the front, for as long as there are no
// more than two different ones, and returns how many it has written; the last few
// it may leave. On failure it returns the first bad element and the reason. It tells
// numbers apart by their bits: the same bits are the same label, and whether others
// are too, as those of 0 and −0, is for code to say.
//
// There is no kernel for AVX-512: twice the width was no faster with 20,000 rows,
// whose labels and codes do not fit the first-level cache.
func (d *Decoder) pairCodes(codes []int32, a *labelArray, code codeOf) (done int, reason string) {
	if !cpu.X86.HasAVX2 {
		return 0, ""
	}
	pair := pairs[a.typ.size]
	first := a.bits(0)
	firstCode, reason := code(d, a, 0)
	if reason != "" {
		return 0, reason
	}
	done = pair(&codes[0], &a.data[0], a.rows, first, first, firstCode, firstCode)
	i := done
	for i < a.rows && a.bits(i) == first {
		i++
	}
	if i == a.rows {
		return done, ""
	}
	secondCode, reason := code(d, a, i)
	if reason != "" {
		return i, reason
	}
	return done + pair(&codes[done], &a.data[done*a.typ.size], a.rows-done, first, a.bits(i), firstCode, secondCode), ""
}
