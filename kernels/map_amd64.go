//go:build !purego

package kernels

import "golang.org/x/sys/cpu"

//go:generate go run -C _asm . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg kernels

var (
	avx2 = variant{
		name:     "AVX2",
		missing:  missing(feature{"AVX2", cpu.X86.HasAVX2}, feature{"FMA", cpu.X86.HasFMA}),
		squares:  inBlocks(squares1AVX2, squares2AVX2),
		products: inBlocks(products1AVX2, products2AVX2),
		gaussian: func(v []float64, gamma float64) { gaussianAVX2(&v[0], len(v), -gamma) },
	}
	avx512 = variant{
		name:     "AVX-512",
		missing:  missing(feature{"AVX512F", cpu.X86.HasAVX512F}),
		squares:  inBlocks(squares1AVX512, squares2AVX512, squares3AVX512, squares4AVX512),
		products: inBlocks(products1AVX512, products2AVX512, products3AVX512, products4AVX512),
		gaussian: func(v []float64, gamma float64) { gaussianAVX512(&v[0], len(v), -gamma) },
	}
	// variants are in order of speed, the slowest first.
	variants = []*variant{&reference, &avx2, &avx512}
	fastest  = pick()
)

type feature struct {
	name string
	has  bool
}

func missing(needed ...feature) string {
	for _, f := range needed {
		if !f.has {
			return f.name
		}
	}
	return ""
}

func pick() *variant {
	best := &reference
	for _, v := range variants {
		if v.missing == "" {
			best = v
		}
	}
	return best
}
