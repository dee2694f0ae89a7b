//go:build !amd64 || purego

package wire

// There is no kernel for labels here.
func (d *Decoder) pairCodes([]int32, *labelArray, codeOf) (done int, reason string) { return 0, "" }
