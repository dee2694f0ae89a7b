//go:build !amd64 || purego

package sample

func remaining(groups []uint32, left []uint64, of int, z stream, level int) (n int) {
	return remainingGo(groups, left, of, z, level)
}
