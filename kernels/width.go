package kernels

import (
	"errors"
	"slices"

	"streamd/incremental/gram"
)

// MedianGamma uses the pairs of medianRows rows. Their 130,816 distances make the
// median's standard error about a hundredth.
const medianRows = 512

// ErrOnePoint reports that all inspected rows are the same point.
var ErrOnePoint = errors.New("the rows looked at are all the same point, so there is no distance to read gamma off")

// MedianGamma is the median heuristic for the Gaussian kernel: γ = 1/median of
// ‖x_i − x_j‖² over the pairs of distinct points among 512 rows, evenly spaced
// in the order of the rows (all rows when they are fewer). The upper of two
// medians is taken. The rows must be finite; the cost is 131,000·n
// multiply-adds.
func MedianGamma(columns []gram.Column) (float64, error) {
	n, m := len(columns), 0
	if n > 0 {
		m = columns[0].Len()
	}
	some := min(m, medianRows)
	rows := make([]float64, some*n)
	for i := range some {
		for j, c := range columns {
			rows[i*n+j] = c.At(int(int64(i) * int64(m) / int64(some)))
		}
	}
	radial := Kernel{form: gaussian}
	var distances []float64
	for i := range some {
		for k := range i {
			if d := radial.Argument(rows[i*n:][:n], rows[k*n:][:n]); d > 0 {
				distances = append(distances, d)
			}
		}
	}
	if len(distances) == 0 {
		return 0, ErrOnePoint
	}
	slices.Sort(distances)
	return 1 / distances[len(distances)/2], nil
}
