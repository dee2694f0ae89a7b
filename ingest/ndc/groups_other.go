//go:build (!amd64 && !arm64) || purego

package ndc

// There are no kernels here.
const hasGroups = false

func (s *Sampler) placeGroups(*cluster) { panic("ndc: no kernels") }
