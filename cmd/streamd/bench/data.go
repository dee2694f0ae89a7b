package bench

import (
	"fmt"
	"math/rand/v2"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// Type is the type of a feature column.
type Type string

// The types of columns.
const (
	Float32 Type = "float32"
	Float64 Type = "float64"
)

// size is the size of a number in bytes.
func (t Type) size() int {
	switch t {
	case Float32:
		return 4
	case Float64:
		return 8
	}
	panic(fmt.Sprintf("bench: a type %q", t))
}

// normalBlock makes m rows of n standard normal features, each of one of k classes at random.
// The labels are 0, 1, …
func normalBlock(r *rand.Rand, t Type, m, n, k int) *incremental.Block {
	b := &incremental.Block{Codes: make([]int32, m)}
	for c := range k {
		b.Classes = append(b.Classes, fmt.Sprint(c))
	}
	for i := range b.Codes {
		b.Codes[i] = int32(r.IntN(k))
	}
	for range n {
		if t == Float32 {
			b.Columns = append(b.Columns, gram.ColumnOf(normals[float32](r, m)))
		} else {
			b.Columns = append(b.Columns, gram.ColumnOf(normals[float64](r, m)))
		}
	}
	return b
}

func normals[T float32 | float64](r *rand.Rand, m int) []T {
	v := make([]T, m)
	for i := range v {
		v[i] = T(r.NormFloat64())
	}
	return v
}

// slice returns the rows of a block from one number to another, which is not included.
func slice(b *incremental.Block, from, to int) *incremental.Block {
	part := &incremental.Block{Classes: b.Classes, Codes: b.Codes[from:to]}
	for _, c := range b.Columns {
		part.Columns = append(part.Columns, c.Slice(from, to))
	}
	return part
}
