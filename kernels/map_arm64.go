//go:build !purego

package kernels

// Every arm64 processor has NEON.
var (
	neon = variant{
		name:     "NEON",
		squares:  inBlocks(squares1NEON, squares2NEON, squares3NEON, squares4NEON),
		products: inBlocks(products1NEON, products2NEON, products3NEON, products4NEON),
		gaussian: func(v []float64, gamma float64) { gaussianNEON(&v[0], len(v), -gamma) },
	}
	variants = []*variant{&reference, &neon}
	fastest  = &neon
)
