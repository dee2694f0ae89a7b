//go:build (!amd64 && !arm64) || purego

package kernels

var (
	variants = []*variant{&reference}
	fastest  = &reference
)
