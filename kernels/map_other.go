package kernels

var (
	variants = []*variant{&reference}
	fastest  = &reference
)
