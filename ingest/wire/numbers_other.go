//go:build !amd64 || purego

package wire

// There is no kernel for numbers here.
const hasNumbers = false

func plainNumbers(row []float64, b []byte, steps []step, i int) (done, end int) { return 0, i }
