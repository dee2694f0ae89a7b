//go:build (!amd64 && !arm64) || purego

package gram

var (
	variants = []*variant{&reference}
	fastest  = &reference
)

// No variant deals here.
type dealer struct{}
