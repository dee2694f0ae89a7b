//go:build !amd64 || purego

package gram

var (
	variants = []*variant{&reference}
	fastest  = &reference
)

// No variant here deals.
type dealer struct{}

func dealable(classes, columns int) bool { return false }

func (k *Kernel) sumDealt(sums []Sums, columns []Column, codes []int32, weights []float64) {
	panic("gram: no variant deals")
}
