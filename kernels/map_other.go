//go:build !amd64 || purego

package kernels

var (
	variants = []*variant{&reference}
	fastest  = &reference
)
