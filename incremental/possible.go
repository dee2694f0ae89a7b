package incremental

import (
	"context"
	"errors"
	"fmt"
	"math"

	"streamd/incremental/gram"
)

// maxRows is the number of rows that exact sums have room for.
const maxRows = math.MaxInt32

// Up to fewFeatures features Possible needs no memory but that of its frame.
const (
	fewFeatures = 16
	fewNumbers  = (fewFeatures+1)*(fewFeatures+2)/2 + fewFeatures + 1
)

// Possible says why no rows can have these sums. It returns nil for every summary of a
// Summariser, and is for summaries that others have made. When ctx ends it returns its
// cause.
//
// The origin must be in range, and Σv of a class must be a sum of as many weights. With
// z = [1; x−c] the matrix Σvzz' of a class is positive semidefinite. Its computed sums have
// rounding errors, so the matrix D^-½(Σvzz')D^-½ + εI is factored by Cholesky, where D is the
// diagonal and ε bounds the errors: the Cauchy-Schwarz inequality bounds the error of each
// scaled sum by the depth of the summation (see package gram) in units of the last place,
// and the factoring adds n+1 such units (Higham 2002, theorem 10.7). The cost is k·n³/6
// multiply-adds.
func (s *Summary) Possible(ctx context.Context) error {
	if indexOutside(s.origin) < len(s.origin) || hasNegativeZero(s.origin) {
		return errors.New("an origin is not in the range of exact sums")
	}
	if len(s.classes) == 0 {
		return nil
	}
	n := len(s.origin)
	var memory [fewNumbers]float64
	matrix, scale := memory[:], memory[gram.PackedLen(fewFeatures+1):]
	if n > fewFeatures {
		matrix, scale = make([]float64, gram.PackedLen(n+1)), make([]float64, n+1)
	}
	for i := range s.classes {
		c := &s.classes[i]
		if err := c.possible(ctx, matrix, scale); err != nil {
			return fmt.Errorf("class %.40q: %w", c.label, err)
		}
	}
	return nil
}

func hasNegativeZero(xs []float64) bool {
	for _, x := range xs {
		if x == 0 && math.Signbit(x) {
			return true
		}
	}
	return false
}

func (c *classSummary) possible(ctx context.Context, matrix, scale []float64) error {
	const rounding = 1 + 0x1p-20 // more than that of Σv
	rows := float64(c.rows)
	switch {
	case c.rows < 1 || c.rows > maxRows:
		return fmt.Errorf("it has %d rows", c.rows)
	case !(c.weight >= rows*minWeight/rounding && c.weight <= rows*maxWeight*rounding):
		return fmt.Errorf("the sum of the weights of %d rows is %v", c.rows, c.weight)
	case hasNegativeZero(c.s) || hasNegativeZero(c.cross):
		return errors.New("a sum is −0, which sums of rows never are")
	}
	n := len(c.s)
	scale[0] = 1 / math.Sqrt(c.weight)
	for j := range n {
		square := c.cross[gram.PackedLen(j)+j]
		if !(square >= 0) {
			return fmt.Errorf("the sum of squares of feature %d is %v", j, square)
		}
		if scale[j+1] = 0; square > 0 {
			scale[j+1] = 1 / math.Sqrt(square)
		}
	}
	matrix[0] = 1
	for j := range n {
		row := matrix[gram.PackedLen(j+1):][:j+2]
		row[0] = c.s[j]
		copy(row[1:], c.cross[gram.PackedLen(j):])
		d := scale[j+1]
		for k, x := range row {
			if y := scale[k]; d > 0 && y > 0 {
				row[k] = float64(x*d) * y
			} else if x != 0 { // all values of one of the two are its origin
				return fmt.Errorf("the sums of feature %d are not 0, but its values are its origin", max(j, k-1))
			}
		}
		if d == 0 {
			row[j+1] = 1
		}
	}
	const unit = 0x1p-52 // twice the error of a rounding
	depth := float64(rows/256) + 64 + float64(n)
	if failed, err := cholesky(ctx, matrix, scale, n+1, float64(n+1)*depth*unit); err != nil {
		return err
	} else if failed > 0 {
		return fmt.Errorf("the matrix of its sums is not positive semidefinite at feature %d", failed-1)
	}
	return nil
}

// cholesky factors a packed matrix of order n and adds epsilon to its diagonal. It returns the
// index of the first pivot that is not positive, or 0: the first one is. column has room for n
// numbers.
func cholesky(ctx context.Context, a, column []float64, n int, epsilon float64) (failed int, err error) {
	// Column by column the entries of a row do not wait for each other.
	for j := range n {
		if j%64 == 63 && ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		x := a[gram.PackedLen(j)+j] + epsilon
		if !(x > 0) {
			return j, nil
		}
		pivot := math.Sqrt(x)
		for i := j + 1; i < n; i++ {
			row := a[gram.PackedLen(i) : gram.PackedLen(i)+i+1]
			y := row[j] / pivot
			column[i] = y
			rest := row[j+1:]
			for k, z := range column[j+1 : i+1] {
				rest[k] -= float64(y * z) // the same decision on every processor
			}
		}
	}
	return 0, nil
}
