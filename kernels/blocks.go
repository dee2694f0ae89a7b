//go:build (amd64 || arm64) && !purego

package kernels

// inBlocks processes points in blocks of as many as there are routines. The routine at i
// is for i+1 points.
func inBlocks(routines ...func(out *float64, stride int, tile *float64, pitch int, z *float64, n, rows int)) func([]float64, int, []float64, int, []float64, int, int) {
	return func(out []float64, stride int, tile []float64, pitch int, z []float64, n, rows int) {
		points := len(z) / n
		for i := 0; i < points; i += len(routines) {
			some := min(len(routines), points-i)
			routines[some-1](&out[i*stride], stride, &tile[0], pitch, &z[i*n], n, rows)
		}
	}
}
